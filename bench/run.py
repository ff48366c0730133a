#!/usr/bin/env python3
"""Times whole models of real shapes with random weights, and sets each speed beside the limit that the same run measured.

usage: run.py [--full | --smoke] [--kernels PROGRAM] [--dtypes fp16,bf16] [--threads N] [--rounds N] [--keep] …

Says at its start what it will do and about how long that takes. Prints tables (markdown) and writes
bench/results/<machine>-<date>.json and plots beside it as SVG. Rounds alternate between the cases; what is printed
are medians over all samples. The models are made under build/bench/ and removed afterwards, and an interrupted run
leaves nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import plot
from measure import alternate, busy_process, machine, result_name, stop_politely, summary, throughput
from plan import announce, make_plan, state_needs

from models import BITS, PRESETS, ROOT, BenchError, cleaned, convert, make_models

DISTURBED = 0.05  # of the processors taken by others: more is said below the tables
FABLE = {"generate": 256, "repetitions": 10}  # 256 tokens take it 20 ms, which one interruption by others can double

KERNEL = re.compile(r"(\S.*?) +([\d.]+) (G\w+/s) +([\d.]+) % +\(rounds (-?\d+) to (\d+) %\)")


def run_kernels(program):
    """bench/kernels.c: its lines as they come, and the same as records."""
    found = {"machine": [], "records": []}
    with subprocess.Popen([program], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            parts = KERNEL.fullmatch(line.strip())
            if not parts:
                found["machine"].append(line.strip())
                continue
            name, speed, unit, percents, low, high = parts.groups()
            fractions = {"fraction": float(percents) / 100, "lowest": int(low) / 100, "highest": int(high) / 100}
            found["records"].append({"kernel": name, "speed": float(speed), "unit": unit, **fractions})
    if process.returncode != 0:
        raise BenchError(f"{Path(program).name} exits with {process.returncode}")
    return found


def dtype_section(plan, run, models):
    """Prefill and decode for each dtype."""
    cases = {
        dtype: partial(run, path, prompt=plan["prompt"], generate=plan["generate"]) for dtype, path in models.items()
    }
    records = []
    for dtype, rows in alternate(cases, plan["rounds"], plan["shape"]).items():
        for test in ("n_gen", "n_prompt"):
            mine = [row for row in rows if row[test]]
            records.append(summary(mine, section="dtype", shape=plan["shape"], dtype=dtype))
    return records


def prompt_section(plan, run, models):
    """Prefill at several lengths, in the first dtype."""
    dtype, path = next(iter(models.items()))
    rows = alternate({"prompts": partial(run, path, prompt=plan["prompts"])}, plan["rounds"], plan["shape"])["prompts"]
    by_length = [[row for row in rows if row["n_prompt"] == n] for n in plan["prompts"]]
    return [summary(found, section="prompt", shape=plan["shape"], dtype=dtype) for found in by_length]


def depth_section(plan, run, model):
    """Decode with several numbers of positions in the cache."""
    cases = {
        f"depth {depth}": partial(run, model, generate=plan["depth_generate"], depth=depth) for depth in plan["depths"]
    }
    found = alternate(cases, plan["rounds"], plan["depth_shape"]).values()
    return [summary(rows, section="depth", shape=plan["depth_shape"], dtype=plan["depth_dtype"]) for rows in found]


def small_section(plan, run, model):
    """The bundled model, whose weights lie in the caches: what is left is the engine itself."""
    threads = sorted({1, machine()["cores"], plan["threads"]} - {0})
    cases = {f"{n} threads": partial(run, model, **FABLE, threads=n) for n in threads}
    records = []
    for rows in alternate(cases, plan["rounds"], "fable-4m").values():
        records.append(summary(rows, section="small", shape="fable-4m", dtype="bf16"))
    return records


def busy_section(plan, run, models):
    """Decode alone, and with a busy process pinned to one of the cores, in turns."""

    def alone(path, **what):
        return run(path, warmup=False, **what)

    def disturbed(path, **what):
        with busy_process():
            return alone(path, **what)

    records = []
    for shape, (path, what) in models.items():
        cases = {
            "alone": partial(alone, path, **what),
            "beside a busy process": partial(disturbed, path, **what),
        }
        for how, rows in alternate(cases, plan["rounds"], shape).items():
            records.append(summary(rows, section="busy", shape=shape, how=how))
    return records


# ------------------------------------------------------------------------------------------- output


def percent(fraction):
    return "" if fraction is None else f"{100 * fraction:.0f} %"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] * len(head)) + " |"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def speed_cells(record):
    return [
        f"{record['tokens_per_s']:.1f}",
        f"{record['achieved']:.1f} {record['unit']}",
        f"{record['limit']:.1f} {record['unit']}",
        percent(record["fraction"]),
        percent(record["best_fraction"]),
        percent(record["fraction_of_reads"]),
    ]


def amount(record):
    n = record["amount_per_token"]
    return f"{n / 1e6:.1f} M{'B' if record['unit'] == 'GB/s' else 'OP'}"


def markdown(records, facts):
    def of(section):
        return [record for record in records if record["section"] == section]

    columns = ["tok/s", "achieved", "limit", "of limit", "best", "of reading between"]
    parts = [
        f"{facts['cpu']}, {facts['cores']} cores, {', '.join(facts['features'])}; {'; '.join(facts['caches'])}; "
        f"load {facts['load']:.1f} at the start; {facts['date']}\n"
    ]
    for section, title in (("dtype", "By dtype"), ("prompt", "By prompt length"), ("depth", "By depth (fp16 cache)")):
        rows = [[r["shape"], r["dtype"], r["case"], amount(r), *speed_cells(r)] for r in of(section)]
        if rows:
            parts += [f"### {title}\n", table(["model", "dtype", "test", "a token", *columns], rows)]
    rows = [
        [r["shape"], r["n_threads"], f"{r['tokens_per_s']:.0f}", f"{1e6 / r['tokens_per_s']:.0f} µs", amount(r)]
        for r in of("small")
    ]
    if rows:
        parts += ["### In the caches\n", table(["model", "threads", "tok/s", "a token", "bytes"], rows)]
    busy = of("busy")
    rows = [
        [
            a["shape"],
            f"{a['tokens_per_s']:.1f}",
            f"{b['tokens_per_s']:.1f}",
            percent(b["tokens_per_s"] / a["tokens_per_s"]),
        ]
        for a, b in zip(busy[::2], busy[1::2])
    ]
    if rows:
        parts += ["### Beside a busy process\n", table(["model", "alone, tok/s", "beside it, tok/s", "kept"], rows)]
    return "\n".join(parts + disturbances(records))


def disturbances(records):
    """Says which figures other processes have disturbed."""
    worst = [(r["section"], r.get("dtype", ""), r["case"], r["others"]) for r in records if r["section"] != "busy"]
    worst = [" ".join(filter(None, words)) + f" {percent(x)}" for *words, x in worst if x > DISTURBED]
    return [f"Processors taken by other work or the hypervisor, at worst: {', '.join(worst)}.\n"] if worst else []


def plots(records):
    """{name: SVG}"""
    found = {}
    depth = [r for r in records if r["section"] == "depth"]
    if depth:
        measured = [(r["n_depth"], r["tokens_per_s"]) for r in depth]
        theory = [(r["n_depth"], 1e9 * r["limit"] / r["amount_per_token"]) for r in depth]
        series = {"measured": (measured, False), "bandwidth / (weights + cache)": (theory, True)}
        title = f"Decode against depth: {depth[0]['shape']}, {depth[0]['dtype']}, fp16 cache"
        found["depth"] = plot.curves(
            title, "positions in the cache", "tokens a second", series, [x for x, _ in measured]
        )
    prompt = [r for r in records if r["section"] == "prompt"]
    if prompt:
        measured = [(r["n_prompt"], r["tokens_per_s"]) for r in prompt]
        theory = [(r["n_prompt"], 1e9 * r["limit"] / r["amount_per_token"]) for r in prompt]
        series = {"measured": (measured, False), "peak float32 multiply-adds": (theory, True)}
        title = f"Prefill against prompt length: {prompt[0]['shape']}, {prompt[0]['dtype']}"
        found["prompt"] = plot.curves(
            title, "tokens in the prompt", "tokens a second", series, [x for x, _ in measured]
        )
    groups = {}
    for r in records:
        if r["section"] == "dtype":
            name = "decode, of read bandwidth" if r["n_gen"] else "prefill, of peak arithmetic"
            groups.setdefault(r["dtype"], {})[name] = 100 * r["fraction"]
    if groups:
        found["dtypes"] = plot.bars("Fraction of the machine's limit", "%", groups)
    return found


def write_results(folder, results):
    """All files, or none."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = result_name(results["machine"])
    texts = {f"{stem}.json": json.dumps(results, indent=1) + "\n"}
    texts.update((f"{stem}-{name}.svg", svg) for name, svg in plots(results["records"]).items())
    with cleaned(folder, keep=True):
        for name, text in texts.items():
            (folder / f"{name}.tmp").write_text(text, encoding="utf-8")
        for name in texts:
            (folder / f"{name}.tmp").rename(folder / name)
    return [folder / name for name in texts]


# ------------------------------------------------------------------------------------------- the run


def measure_all(plan, yalm, folder):
    """All records, section after section; the models are made as they are needed."""

    def run(model, warmup=True, threads=None, **what):
        options = () if warmup else ("--set", "throughput.warmup=off")
        return throughput(yalm, model, threads=plan["threads"] if threads is None else threads, options=options, **what)

    records = []
    models = make_models(folder, plan["shape"], plan["dtypes"])
    small = folder / "fable-4m.bin"
    if not small.exists():
        convert(ROOT / "models/fable-4m", None, small)
    records += dtype_section(plan, run, models)
    records += prompt_section(plan, run, models)
    records += small_section(plan, run, small)
    if machine()["cores"] > 1:
        first = next(iter(models.values()))
        timed = {"fable-4m": (small, FABLE), plan["shape"]: (first, {"generate": 16})}
        records += busy_section(plan, run, {shape: timed[shape] for shape in plan["busy_shapes"]})
    deep = make_models(folder, plan["depth_shape"], [plan["depth_dtype"]])
    records += depth_section(plan, run, deep[plan["depth_dtype"]])
    return records


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="more dtypes, lengths, depths and rounds")
    size.add_argument("--smoke", action="store_true", help="tiny models, once: whether all of this works")
    parser.add_argument("--kernels", type=Path, help="the program of bench/kernels.c: times each kernel first")
    parser.add_argument("--dtypes", help=f"comma-separated, of {', '.join(BITS)}")
    parser.add_argument("--shape", choices=PRESETS, help="of the model timed by dtype and by prompt length")
    parser.add_argument("--depth-shape", choices=PRESETS, help="of the model timed by depth")
    parser.add_argument("--depths", help="comma-separated")
    parser.add_argument("--rounds", type=int, help="how often everything is repeated")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as yalm chooses")
    parser.add_argument("--keep", action="store_true", help="leave the models in the build folder; they are used again")
    parser.add_argument("--build", type=Path, default=ROOT / "build/bench", help="where models are made")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results")
    parser.add_argument("--yalm", type=Path, default=ROOT / "yalm")
    return parser, parser.parse_args()


def main():
    parser, arguments = parse_arguments()
    plan = make_plan(parser, arguments)
    if not arguments.yalm.exists():
        sys.exit(f"run.py: {arguments.yalm} is missing: `make` builds it")
    stop_politely()
    results = {"machine": machine(), "plan": plan}
    try:
        with cleaned(arguments.build, arguments.keep):
            announce(plan, arguments.build, arguments.kernels)
            state_needs(plan, arguments.build)
            results["kernels"] = run_kernels(arguments.kernels) if arguments.kernels else None
            results["records"] = measure_all(plan, arguments.yalm, arguments.build)
        print(markdown(results["records"], results["machine"]))
        for path in write_results(arguments.results, results):
            print(f"bench: wrote {path}", file=sys.stderr)
    except BenchError as error:
        sys.exit(f"run.py: {error}")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
