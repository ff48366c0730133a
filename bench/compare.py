#!/usr/bin/env python3
"""Times yalm, llama.cpp and its fork ik_llama.cpp side by side on the same random weights, in turns (A B C A B C …),
and prints the ratios. Usually called by compare_llama_cpp.sh, which builds the peers.

The ratio of a round is taken between runs that followed each other, and the median of the rounds' ratios is printed.
So a machine that others use as well wrongs no engine. All take the same number of threads, an fp16 cache, and their
own defaults otherwise. Some settings of yalm's and the fork's change their speed and nothing else. These are tried
before a type's rounds, and the fastest of each test is kept. In prefill of q8 and of GGUF's own
numbers yalm has a second row, with tokens rounded to 8 bits as the peers round them (--activations int8); with q4 it
rounds them so by default.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from pathlib import Path

from measure import busy_process, case_name, machine, result_name, stop_politely, throughput
from run import percent, table

from models import (
    PRESETS,
    ROOT,
    BenchError,
    check_room,
    cleaned,
    convert,
    make_directory,
    model_name,
    n_weights,
    run_tool,
)

# llama.cpp's type: yalm's. bf12 is the numbers of bf16 in fewer bits, for which the peers have no type: they read bf16.
TYPES = {"f16": "fp16", "bf16": "bf16", "bf12": "bf12", "q8_0": "q8", "q4_0": "q4"}
PEERS_TYPES = {**{kind: kind for kind in TYPES}, "bf12": "bf16"}
# Mixtures that llama-quantize makes, and yalm converts from its file: both have the same numbers.
SAME_FILE = ("q2_k", "q3_k_m", "iq4_xs", "q4_k_m", "q5_k_m", "q6_k")
TYPES |= {kind: kind for kind in SAME_FILE}
PEERS_TYPES |= {kind: kind for kind in SAME_FILE}
QUANTISED = ("q8_0", "q4_0", *SAME_FILE)


# What an engine may choose from, by its name. Run-time repacking interleaves the rows of quantised matrices for wide registers;
# machine.hugepages copies the file into pages of 2 MiB.
SETTINGS = {
    "yalm": [(), ("--set", "machine.hugepages=on")],
    "llama.cpp": [()],
    "ik_llama.cpp": [(), ("-rtr", "1")],
}
PEERS = [name for name in SETTINGS if name != "yalm"]


class Engine:
    def __init__(self, name):
        self.name = name
        self.settings = {}  # (type, prefill or decode): the fastest

    def choose_settings(self, kind, model, options, threads):
        """Tries settings, each in one process, and remembers which was the fastest at what."""
        choices = SETTINGS[self.name]
        if len(choices) < 2:
            return
        rows = []
        for settings in choices:
            print(f"compare: {self.name}, {kind}: trying {' '.join(settings) or 'its defaults'}", file=sys.stderr)
            found = self.run(model, options.prompt, options.generate, threads=threads, settings=settings)
            rows += [(row["avg_ts"], bool(row["n_gen"]), settings) for row in found]
        for decode in (False, True):
            mine = [row for row in rows if row[1] == decode]
            if mine:
                self.settings[kind, decode] = max(mine)[2]


class Yalm(Engine):
    def __init__(self, path):
        super().__init__("yalm")
        self.path = path

    def run(self, model, prompt=0, generate=0, depth=0, threads=0, settings=()):
        return throughput(self.path, model, prompt, generate, depth, threads=threads, options=settings)


class Peer(Engine):
    """An engine with a llama-bench."""

    def __init__(self, name, folder):
        super().__init__(name)
        self.folder = folder
        self.can_deepen = name != "ik_llama.cpp"  # the fork knows tokens behind a prompt, but no prompt behind another

    def run(self, model, prompt=0, generate=0, depth=0, threads=0, settings=()):
        """Rows of llama-bench; none where it cannot do what is asked."""
        command = [self.folder / "llama-bench", "-m", model, "-t", threads, "-r", 1, "-o", "json", *settings]
        if depth and not self.can_deepen:
            if prompt:
                return []
            command += ["-p", 0, "-n", 0, "-gp", f"{depth},{generate}"]
        else:
            command += ["-p", prompt, "-n", generate, *(["-d", depth] if depth else [])]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exits with {done.returncode}"]
            raise BenchError(f"{self.name}: llama-bench: {lines[-1]}")
        return json.loads(done.stdout)


def pair_paths(directory, kind):
    """(yalm's file, llama.cpp's file), beside the directory."""
    ends = (f"{TYPES[kind]}.bin", f"{PEERS_TYPES[kind]}.gguf")
    return tuple(directory.with_name(f"{directory.name}-{end}") for end in ends)


@contextlib.contextmanager
def finished(path):
    """A temporary name that becomes `path` when all went well, so that no half of a file is ever taken for the whole."""
    temporary = path.with_name(f".{path.name}.tmp")
    yield temporary
    temporary.rename(path)


def quantise(peer, plain, kind, out):
    """Quantises as llama.cpp's users do. With Q4_0 its classifier is Q6_K, ours q8."""
    with finished(out) as temporary:
        command = [str(peer / "llama-quantize"), str(plain), str(temporary), kind.upper()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"llama-quantize: {(done.stdout + done.stderr).strip().splitlines()[-1]}")


def make_pair(directory, peer, kind):
    """The directory's weights for yalm, and for the peers."""
    ours, theirs = pair_paths(directory, kind)
    if not theirs.exists():
        make_theirs(directory, peer, kind, theirs)
    if not ours.exists():
        print(f"compare: converting to {ours.name}", file=sys.stderr)
        if kind in SAME_FILE:
            convert(theirs, None, ours)
        else:
            convert(directory, TYPES[kind], ours)
    return ours, theirs


def make_theirs(directory, peer, kind, theirs):
    print(f"compare: converting to {theirs.name}", file=sys.stderr)
    plain = pair_paths(directory, "f16")[1] if kind in QUANTISED else theirs
    existed = plain.exists()
    if not existed:
        dtype = "f16" if kind in QUANTISED else PEERS_TYPES[kind]
        with finished(plain) as temporary:
            run_tool([sys.executable, ROOT / "bench/write_gguf.py", directory, temporary, "--dtype", dtype])
    if kind in QUANTISED:
        quantise(peer, plain, kind, theirs)
        if not existed:
            plain.unlink()


def compare(options, kind, pair, test, rounded=()):
    """Runs of one test in turns: [(our row, {peer: its row})]. `rounded`: settings of ours that change results."""
    ours, theirs = pair
    rounds = []
    for _ in range(options.rounds):
        settings = (*options.yalm.settings.get((kind, "generate" in test), ()), *rounded)
        row = {
            **options.yalm.run(ours, threads=options.threads, settings=settings, **test)[0],
            "settings": " ".join(settings),
        }
        others = {}
        for peer in options.peers:
            settings = peer.settings.get((kind, "generate" in test), ())
            for found in peer.run(theirs, threads=row["n_threads"], settings=settings, **test):
                others[peer.name] = {**found, "settings": " ".join(settings)}
        rounds.append((row, others))
    return rounds


def peer_fraction(ours, theirs):
    """The peer's part of the limit that our run measured right before: the same operations, or bytes in proportion to
    the files, in its time."""
    amount = theirs["model_size"] / ours["model_size"] if ours["n_gen"] else 1
    return amount * ours["fraction_of_limit"] * theirs["avg_ts"] / ours["avg_ts"]


def spread(ratios):
    return {"ratio": statistics.median(ratios), "lowest_ratio": min(ratios), "highest_ratio": max(ratios)}


def sum_up_peer(name, rounds):
    pairs = [(ours, others[name]) for ours, others in rounds]
    return {
        "tokens_per_s": statistics.median(theirs["avg_ts"] for _, theirs in pairs),
        "fraction": statistics.median(peer_fraction(*pair) for pair in pairs),
        "settings": pairs[0][1]["settings"],
        **spread([ours["avg_ts"] / theirs["avg_ts"] for ours, theirs in pairs]),
    }


def sum_up(kind, rounds, busy):
    ours = [row for row, _ in rounds]
    return {
        "type": kind,
        "case": case_name(ours[0]) + (", busy" if busy else ""),
        "threads": ours[0]["n_threads"],
        "settings": ours[0]["settings"],
        "yalm": statistics.median(row["avg_ts"] for row in ours),
        "fraction": statistics.median(row["fraction_of_limit"] for row in ours),
        "peers": {name: sum_up_peer(name, rounds) for name in rounds[0][1]},
        # In each round the one that was faster then.
        "better": spread([row["avg_ts"] / max(peer["avg_ts"] for peer in others.values()) for row, others in rounds]),
        "rows": rounds,
    }


def report(record):
    speeds = "".join(
        f", {name} {peer['tokens_per_s']:.1f} (ratio {peer['ratio']:.2f})" for name, peer in record["peers"].items()
    )
    ours = " ".join(["yalm", record["settings"]]).strip()
    print(f"compare: {record['type']} {record['case']}: {ours} {record['yalm']:.1f} tok/s{speeds}", file=sys.stderr)
    return record


def list_tests(options):
    for depth in options.depths:
        if options.prompt and (depth == 0 or any(peer.can_deepen for peer in options.peers)):
            yield {"prompt": options.prompt, "depth": depth}
        if options.generate:
            yield {"generate": options.generate, "depth": depth}


def rounding(record):
    """How tokens are rounded, in words, where it is not the default."""
    words = record["settings"].split()
    return f", {words[words.index('--activations') + 1]} tokens" if "--activations" in words else ""


def print_table(records, facts, name, peers):
    print(f"{facts['cpu']}, {facts['cores']} cores, load {facts['load']:.1f} at the start; {name}; {facts['date']}\n")
    head = ["weights", "test", "threads", "yalm, tok/s", *(f"{peer}, tok/s" for peer in peers)]
    head += [f"times {peer}" for peer in peers] + (["times the better"] if len(peers) > 1 else [])
    head += ["of limit: yalm", *peers]

    def span(ratios):
        return f"{ratios['ratio']:.2f} ({ratios['lowest_ratio']:.2f} to {ratios['highest_ratio']:.2f})"

    rows = []
    for r in records:
        found = [r["peers"].get(peer) for peer in peers]
        cells = [r["type"], r["case"] + rounding(r), r["threads"], f"{r['yalm']:.1f}"]
        cells += [f"{peer['tokens_per_s']:.1f}" if peer else "" for peer in found]
        cells += [span(peer) if peer else "" for peer in found] + ([span(r["better"])] if len(peers) > 1 else [])
        rows.append([*cells, percent(r["fraction"]), *(percent(peer["fraction"]) if peer else "" for peer in found)])
    print(table(head, rows))
    for r in records:
        for name, found in {"yalm": r, **r["peers"]}.items():
            if found["settings"]:
                print(f"{r['type']}, {r['case']}: {name} with {found['settings']}")


def measure_pair(options, pair, kind):
    """Records of one type or file, as they come."""
    options.yalm.choose_settings(kind, pair[0], options, options.threads)
    for peer in options.peers:
        peer.choose_settings(kind, pair[1], options, options.threads or machine()["cores"])
    for test in list_tests(options):
        print(f"compare: {kind}, {test}", file=sys.stderr)
        yield report(sum_up(kind, compare(options, kind, pair, test), busy=False))
        if "prompt" in test and kind in options.rounded:
            yield report(sum_up(kind, compare(options, kind, pair, test, ("--activations", "int8")), busy=False))
    if options.busy:
        with busy_process():
            test = {"generate": options.generate}
            yield report(sum_up(kind, compare(options, kind, pair, test), busy=True))


def measure_all(options, directory, records):
    before = set(options.build.iterdir())
    if not all(path.exists() for kind in options.types for path in pair_paths(directory, kind)):
        print(f"compare: making {directory.name}", file=sys.stderr)
        make_directory(options.build, options.shape, options.layers)
    for kind in options.types:
        records += measure_pair(options, make_pair(directory, options.peers[0].folder, kind), kind)
        if not options.keep:
            for path in set(pair_paths(directory, kind)) - before:
                path.unlink(missing_ok=True)


def measure_files(options, records):
    """GGUF files that all engines read; yalm's copy stays in the build folder with --keep."""
    for path in options.gguf:
        ours = options.build / f"{path.stem}.bin"
        existed = ours.exists()
        if not existed:
            convert(path, None, ours)
        records += measure_pair(options, (ours, path), path.stem)
        if not (existed or options.keep):
            ours.unlink()


def measure_shape(options, records):
    """Random weights of a shape. Returns the model's name."""
    n = n_weights(options.shape, options.layers)
    # The directory, one pair, and a 16-bit GGUF to quantise from.
    check_room(options.build, 2 * n * (1 + 2 * (len(options.types) if options.keep else 1) + 1), 4 * n + (1 << 30))
    directory = options.build / model_name(options.shape, options.layers)
    with cleaned(options.build, options.keep):
        measure_all(options, directory, records)


def run(options):
    facts = machine()
    options.build.mkdir(parents=True, exist_ok=True)
    records = []
    name = "the same files" if options.gguf else model_name(options.shape, options.layers)
    try:
        if options.gguf:
            measure_files(options, records)
        else:
            measure_shape(options, records)
    finally:
        if records:
            print_table(records, facts, name, [peer.name for peer in options.peers])
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / f"{result_name(facts)}-llama-cpp.json"
    with finished(path) as temporary:
        temporary.write_text(json.dumps({"machine": facts, "records": records}, indent=1) + "\n", encoding="utf-8")
    print(f"compare: wrote {path}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--peer",
        action="append",
        required=True,
        metavar="NAME=FOLDER",
        help=f"{' or '.join(PEERS)}, and the folder of its llama-bench and llama-quantize; may be repeated",
    )
    parser.add_argument("--types", default="f16", help=f"comma-separated, of {', '.join(TYPES)}")
    parser.add_argument(
        "--gguf", action="append", type=Path, metavar="FILE", help="a file for all, instead of random weights"
    )
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
    for name in (word.partition("=")[0] for word in options.peer):
        if name not in PEERS:
            parser.error(f"--peer: found '{name}', expected {' or '.join(PEERS)}, then = and a folder")
    options.yalm = Yalm(options.yalm.resolve())
    options.peers = [Peer(name, Path(folder)) for name, _, folder in (word.partition("=") for word in options.peer)]
    options.types = options.types.lower().split(",")
    options.rounded = {"q8_0", *SAME_FILE, *(path.stem for path in options.gguf or ())}
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
