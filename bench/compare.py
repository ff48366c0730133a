#!/usr/bin/env python3
"""Times yalm and llama.cpp side by side on the same random weights, in turns (A B A B …), and prints the ratios. Usually called by
compare_llama_cpp.sh, which builds llama.cpp.

The ratio of a round is taken between runs that followed each other; printed is the median of the rounds' ratios, so that a machine
that others use as well wrongs neither engine. Both take the same number of threads, an fp16 cache, and their own defaults otherwise.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from measure import busy_process, case_name, machine, result_name, stop_politely, throughput
from run import percent, table

from models import PRESETS, ROOT, BenchError, check_room, convert, make_directory, model_name, n_weights, run_tool

# llama.cpp's type: yalm's.
TYPES = {"f16": "fp16", "bf16": "bf16", "q8_0": "q8", "q4_0": "q4"}
QUANTISED = ("q8_0", "q4_0")


def run_peer(bench, model, prompt=0, generate=0, depth=0, threads=0):
    command = [bench, "-m", model, "-p", prompt, "-n", generate, "-d", depth, "-t", threads, "-r", 1, "-o", "json"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exits with {done.returncode}"]
        raise BenchError(f"llama-bench: {lines[-1]}")
    return json.loads(done.stdout)


def pair_paths(directory, kind):
    """(yalm's file, llama.cpp's file), beside the directory."""
    return tuple(directory.with_name(f"{directory.name}-{end}") for end in (f"{TYPES[kind]}.bin", f"{kind}.gguf"))


def make_pair(directory, peer, kind):
    """The directory's weights for both engines."""
    ours, theirs = pair_paths(directory, kind)
    if not ours.exists():
        print(f"compare: converting to {ours.name}", file=sys.stderr)
        convert(directory, TYPES[kind], ours)
    if theirs.exists():
        return ours, theirs
    print(f"compare: converting to {theirs.name}", file=sys.stderr)
    plain = pair_paths(directory, "f16")[1] if kind in QUANTISED else theirs
    existed = plain.exists()
    if not existed:
        dtype = "f16" if kind in QUANTISED else kind
        run_tool([sys.executable, ROOT / "bench/write_gguf.py", directory, plain, "--dtype", dtype])
    if kind in QUANTISED:
        # As its users do: with Q4_0, its classifier is Q6_K, ours q8.
        command = [str(peer / "llama-quantize"), str(plain), str(theirs), kind.upper()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"llama-quantize: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
        if not existed:
            plain.unlink()
    return ours, theirs


def compare(options, pair, test):
    """Runs of one test in turns: [(our row, their row)]."""
    ours, theirs = pair
    rounds = []
    for _ in range(options.rounds):
        row = throughput(options.yalm, ours, threads=options.threads, **test)[0]
        rounds.append((row, run_peer(options.peer / "llama-bench", theirs, threads=row["n_threads"], **test)[0]))
    return rounds


def peer_fraction(ours, theirs):
    """Of the limit that our run measured right before: the same operations, or bytes in proportion to the files, in their time."""
    amount = theirs["model_size"] / ours["model_size"] if ours["n_gen"] else 1
    return amount * ours["fraction_of_limit"] * theirs["avg_ts"] / ours["avg_ts"]


def sum_up(kind, rounds, busy):
    ours, theirs = zip(*rounds)
    ratios = [a["avg_ts"] / b["avg_ts"] for a, b in rounds]
    return {
        "type": kind,
        "case": case_name(ours[0]) + (", busy" if busy else ""),
        "threads": ours[0]["n_threads"],
        "yalm": statistics.median(row["avg_ts"] for row in ours),
        "llama_cpp": statistics.median(row["avg_ts"] for row in theirs),
        "ratio": statistics.median(ratios),
        "lowest_ratio": min(ratios),
        "highest_ratio": max(ratios),
        "fraction": statistics.median(row["fraction_of_limit"] for row in ours),
        "llama_cpp_fraction": statistics.median(peer_fraction(a, b) for a, b in rounds),
        "rows": rounds,
    }


def report(record):
    speeds = f"yalm {record['yalm']:.1f} tok/s, llama.cpp {record['llama_cpp']:.1f}, ratio {record['ratio']:.2f}"
    print(f"compare: {record['type']} {record['case']}: {speeds}", file=sys.stderr)
    return record


def list_tests(options):
    for depth in options.depths:
        if options.prompt:
            yield {"prompt": options.prompt, "depth": depth}
        if options.generate:
            yield {"generate": options.generate, "depth": depth}


def print_table(records, facts, name):
    print(f"{facts['cpu']}, {facts['cores']} cores, load {facts['load']:.1f} at the start; {name}; {facts['date']}\n")
    head = ["weights", "test", "threads", "yalm, tok/s", "llama.cpp, tok/s", "ratio", "of limit: yalm", "llama.cpp"]
    rows = []
    for r in records:
        span = f"{r['ratio']:.2f} ({r['lowest_ratio']:.2f} to {r['highest_ratio']:.2f})"
        speeds = [
            f"{r['yalm']:.1f}",
            f"{r['llama_cpp']:.1f}",
            span,
            percent(r["fraction"]),
            percent(r["llama_cpp_fraction"]),
        ]
        rows.append([r["type"], r["case"], r["threads"], *speeds])
    print(table(head, rows))


def run(options):
    facts = machine()
    options.build.mkdir(parents=True, exist_ok=True)
    n = n_weights(options.shape, options.layers)
    # The directory, one pair, and a 16-bit GGUF to quantise from.
    check_room(options.build, 2 * n * (1 + 2 * (len(options.types) if options.keep else 1) + 1), 4 * n + (1 << 30))
    before = set(options.build.iterdir())
    directory = options.build / model_name(options.shape, options.layers)
    if not all(path.exists() for kind in options.types for path in pair_paths(directory, kind)):
        print(f"compare: making {directory.name}", file=sys.stderr)
        make_directory(options.build, options.shape, options.layers)
    records = []
    try:
        for kind in options.types:
            pair = make_pair(directory, options.peer, kind)
            for test in list_tests(options):
                print(f"compare: {kind}, {test}", file=sys.stderr)
                records.append(report(sum_up(kind, compare(options, pair, test), busy=False)))
            if options.busy:
                with busy_process():
                    test = {"generate": options.generate}
                    records.append(report(sum_up(kind, compare(options, pair, test), busy=True)))
            if not options.keep:
                for path in set(pair) - before:
                    path.unlink()
    finally:
        if records:
            print_table(records, facts, directory.name)
        shutil.rmtree(directory, ignore_errors=True)
        if not options.keep:
            for path in set(options.build.glob(f"{directory.name}-*")) - before:
                path.unlink()
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / f"{result_name(facts)}-llama-cpp.json"
    path.write_text(json.dumps({"machine": facts, "records": records}, indent=1) + "\n", encoding="utf-8")
    print(f"compare: wrote {path}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, required=True, help="folder of llama-bench and llama-quantize")
    parser.add_argument("--types", default="f16", help=f"comma-separated, of {', '.join(TYPES)}")
    parser.add_argument("--shape", choices=PRESETS, default="tinyllama-1.1b")
    parser.add_argument("--layers", type=int, help="fewer than the shape has: deep caches fill faster")
    parser.add_argument("--depths", default="0", help="comma-separated; llama-bench fills the cache by evaluating")
    parser.add_argument("--prompt", type=int, default=512, help="tokens to prefill; 0 leaves that out")
    parser.add_argument("--generate", type=int, default=64, help="tokens to decode; 0 leaves that out")
    parser.add_argument("--busy", action="store_true", help="decode also beside a busy process pinned to one core")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as yalm chooses")
    parser.add_argument("--keep", action="store_true", help="leave the models in the build folder; they are used again")
    parser.add_argument("--build", type=Path, default=ROOT / "build/bench")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results")
    parser.add_argument("--yalm", type=Path, default=ROOT / "yalm")
    options = parser.parse_args()
    options.types = options.types.lower().split(",")
    for kind in options.types:
        if kind not in TYPES:
            parser.error(f"--types: found '{kind}', expected some of {', '.join(TYPES)}")
    try:
        options.depths = [int(word) for word in options.depths.split(",")]
    except ValueError:
        parser.error(f"--depths: found '{options.depths}', expected numbers")
    stop_politely()
    try:
        run(options)
    except BenchError as error:
        sys.exit(f"compare.py: {error}")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
