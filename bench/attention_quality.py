#!/usr/bin/env python3
"""What sparse attention costs in quality: the bundled model's perplexity, divergence from dense attention and pass keys, for each method.

usage: attention_quality.py [--quick] [--methods dense,sparq,nomad,hybrid] [--yalm PATH] [--model PATH] [--results FOLDER]

Perplexity goes through the way that a method decodes: windows of 1,536 tokens of the held-out text, the first 512 of each evaluated as a prompt
(which is dense), the others fed one by one and scored; and, for the whole context, windows of 2,000 tokens of which all but the first are
fed one by one. Pass keys are hidden at five depths in 256 to 2,000 tokens, with one key or with two that have names, and the question is read
one token at a time. Codebooks are calibrated on held-out text that is not scored. Prints markdown, and writes JSON and a plot as SVG.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import plot
from measure import machine, result_name

from models import ROOT, BenchError

TEXT = ROOT / "models/fable-4m/heldout.txt"
SCORED_TOKENS = 3072
CALIBRATION_BYTES = 34000  # about 9,000 tokens, from the end of the text
NAMES = ("Anna", "Peter", "Clara", "Thomas", "Rosa", "Martin")
INTRO = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
    "I will quiz you about the important information there."
)
GRASS = " The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."


def cases(books):
    """(method, what is varied, its share of dense attention's traffic at head_dim 64 and long contexts, options)."""
    found = [("dense", "", 1.0, [])]
    for n in (2, 4, 8, 16):
        for least in (32, 64, 128):
            options = [
                "--attention",
                "sparq",
                "--set",
                "sparq.from=1",
                "--attention-ratio",
                f"1/{n}",
                "--set",
                f"sparq.min_k={least}",
            ]
            found.append(("sparq", f"ratio 1/{n}, k ≥ {least}", 1 / n, options))
    for d_sub in (1, 2, 4):
        options = ["--attention", "nomad", "--codebooks", books[d_sub]]
        found.append(("nomad", f"d_sub {d_sub}", 0.5 + 0.125 / d_sub, options))
    for d_sub, codes in ((1, 1), (1, 0.5), (1, 0.375), (2, 1), (4, 1)):  # 0.5: the default with d_sub 1
        read = {1: "", 0.5: ", half of the codes", 0.375: ", 3/8 of the codes"}[codes]
        for n, least in ((16, 64), (32, 32), (64, 16)):
            options = ["--attention", "hybrid", "--codebooks", books[d_sub], "--set", f"hybrid.codes={codes}"]
            options += ["--set", "hybrid.from=1", "--attention-ratio", f"1/{n}", "--set", f"hybrid.min_k={least}"]
            share = codes * 0.125 / d_sub + 1 / n
            found.append(("hybrid", f"d_sub {d_sub}, S/{n}, k ≥ {least}{read}", share, options))
    off = [
        "--set",
        "hybrid.from=1",
        "--attention-ratio",
        "1/16",
        "--set",
        "hybrid.min_k=64",
        "--set",
        "hybrid.draw=off",
    ]
    found.append(
        (
            "hybrid",
            "d_sub 1, S/16, k ≥ 64, half of the codes, the best",
            0.125,
            ["--attention", "hybrid", "--codebooks", books[1], *off],
        )
    )
    return found


class Engine:
    def __init__(self, yalm, model):
        self.yalm, self.model = str(yalm), str(model)

    def run(self, *options, statuses=(0,), stdin=b""):
        command = [self.yalm, self.model, *map(str, options)]
        done = subprocess.run(command, capture_output=True, input=stdin, check=False)
        if done.returncode not in statuses:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
            raise BenchError(f"{' '.join(command)}: {lines[-1]}")
        return done.stdout.decode()

    def ids(self, text):
        return self.run("--tokenize", "-f", "-", stdin=text.encode()).split()


def perplexity(engine, options, window, prompt, tokens, base=None, save=None):
    command = [
        "-m",
        "perplexity",
        "-q",
        "-f",
        TEXT,
        "--ctx",
        window,
        "--set",
        f"perplexity.decode_from={prompt}",
        "--max-tokens",
        tokens,
    ]
    command += ["--kl-base", base] if base else ["--save-logits", save] if save else []
    out = engine.run(*command, *options)
    found = {"perplexity": float(re.search(r"PPL = ([\d.]+)", out)[1])}
    if base:
        found["kl"] = float(re.search(r"KL divergence: mean ([-\d.e]+)", out)[1])
        found["same_top"] = float(re.search(r"same top: ([\d.]+)", out)[1])
    return found


def key_prompt(rnd, lines, depth, named):
    """Text up to the key that is asked for, and the key. With names, another key stands at a random place."""
    who = rnd.sample(NAMES, 2) if named else [None]
    keys = [rnd.randint(10000, 99999) for _ in who]
    places = [round(depth * lines), rnd.randint(0, lines)][: len(who)]
    of = [f" of {name}" if name else "" for name in who]
    facts = [f" The pass key{o} is {k}. Remember it. {k} is the pass key{o}." for o, k in zip(of, keys)]
    text = INTRO
    for line in range(lines + 1):
        text += "".join(fact for fact, place in zip(facts, places) if place == line)
        text += GRASS if line < lines else ""
    return f"{text} What is the pass key{of[0]}? The pass key{of[0]} is", str(keys[0])


def key_file(engine, path, length, trials, named, seed):
    """One line of ids for each trial: as many lines of filler as fit into `length` tokens, depths 0, 1/4 … 1 in turn."""
    rnd = random.Random(seed)
    line = len(engine.ids(INTRO + GRASS * 2)) - len(engine.ids(INTRO + GRASS))
    rest = len(engine.ids(key_prompt(rnd, 0, 0, named)[0])) + 8
    rows = []
    for trial in range(trials):
        text, key = key_prompt(rnd, (length - rest) // line, (trial % 5) / 4, named)
        rows.append(" ".join(engine.ids(f"{text} {key}")))
    path.write_text("\n".join(rows) + "\n", encoding="ascii")
    return path


def passkeys(engine, options, files):
    """{name of the file: found, in per cent}"""
    found = {}
    for name, path in files.items():
        command = ["-m", "passkey", "-q", "--tokens", path, "--set", "passkey.decode_last=24"]
        out = engine.run(*command, *options, statuses=(0, 1))  # 1: some were missed
        hits, trials = map(int, re.search(r"found (\d+)/(\d+)", out).groups())
        found[name] = 100 * hits / trials
    return found


def calibrate(engine, folder):
    text = folder / "calibration.txt"
    text.write_bytes(TEXT.read_bytes()[-CALIBRATION_BYTES:])
    books = {}
    for d_sub in (1, 2, 4):
        books[d_sub] = folder / f"d{d_sub}.nomad"
        engine.run("-m", "calibrate", "-f", text, "--set", f"calibrate.d_sub={d_sub}", "-o", books[d_sub], "-q")
    return books


# Windows, prompts and tokens of the two perplexities, lengths of pass keys.
PLAN = {"part": (1536, 512, SCORED_TOKENS), "whole": (2000, 1, 4000), "lengths": (256, 512, 1024, 2000)}
QUICK = {"part": (300, 200, 300), "whole": (260, 1, 260), "lengths": (256,)}


def measure(engine, wanted, trials, quick, folder, say):
    plan = QUICK if quick else PLAN
    books = calibrate(engine, folder) if {"nomad", "hybrid"} & wanted else dict.fromkeys((1, 2, 4), "")
    lengths = plan["lengths"]
    files = {f"{n}": key_file(engine, folder / f"one-{n}", n, trials, False, n) for n in lengths}
    files |= {f"{n}, two keys": key_file(engine, folder / f"two-{n}", n, trials, True, n) for n in lengths[-2:]}
    dense = folder / "dense.logits"
    records = []
    for method, setting, traffic, options in cases(books):
        if method not in wanted or (quick and method in (r["method"] for r in records)):
            continue
        say(f"{method} {setting}")
        first = method == "dense"
        part = perplexity(engine, options, *plan["part"], None if first else dense, dense if first else None)
        whole = perplexity(engine, options, *plan["whole"])
        records.append(
            {
                "method": method,
                "setting": setting,
                "traffic": traffic,
                **part,
                "whole": whole["perplexity"],
                "passkeys": passkeys(engine, options, files),
            }
        )
    return records


def markdown(records):
    keys = list(records[0]["passkeys"])
    head = ["method", "setting", "traffic", "perplexity", "more", "over the whole context", "KL divergence", "same top"]
    lines = [
        "| " + " | ".join(head + [f"keys in {key}" for key in keys]) + " |",
        "| --- " * (len(head) + len(keys)) + "|",
    ]
    base = records[0]
    for r in records:
        dense = r["method"] == "dense"
        more = "" if dense else f"{100 * (r['perplexity'] / base['perplexity'] - 1):+.2f} %"
        whole = f"{r['whole']:.3f}" + ("" if dense else f" ({100 * (r['whole'] / base['whole'] - 1):+.2f} %)")
        cells = [r["method"], r["setting"], f"{r['traffic']:.3f}", f"{r['perplexity']:.3f}", more, whole]
        cells += ["" if dense else f"{r['kl']:.5f}", "" if dense else f"{r['same_top']:.1f} %"]
        cells += [f"{r['passkeys'][key]:.0f} %" for key in keys]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def svg(records):
    """Perplexity over dense, in per cent, against the share of traffic."""
    base = records[0]["perplexity"]
    series = {}
    for r in records[1:]:
        name = r["method"] + (" d_sub 1" if r["setting"].startswith("d_sub 1, S") else "")
        wanted = r["method"] != "hybrid" or (r["setting"].startswith("d_sub 1, S") and "best" not in r["setting"])
        if (
            wanted
            and "k ≥ 128" not in r["setting"]
            and "ratio 1/2," not in r["setting"]
            and "d_sub 4" not in r["setting"]
        ):
            point = (round(r["traffic"], 4), 100 * (r["perplexity"] / base - 1))
            best = series.setdefault(name, {})
            best[point[0]] = min(best.get(point[0], point[1]), point[1])
    lines = {name: (sorted(points.items()), False) for name, points in series.items()}
    xs = [x for points, _ in lines.values() for x, _ in points]
    return plot.curves(
        "Perplexity over dense attention", "share of dense attention's traffic", "per cent more", lines, xs
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="one setting of each method, briefly: whether all of this works"
    )
    parser.add_argument("--yalm", type=Path, default=ROOT / "yalm")
    parser.add_argument("--model", type=Path, default=ROOT / "build/fable-4m.bin")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results")
    parser.add_argument("--methods", default="dense,sparq,nomad,hybrid")
    parser.add_argument("--trials", type=int, default=20, help="pass keys for each length")
    arguments = parser.parse_args()
    wanted = set(arguments.methods.split(",")) | {"dense"}
    if wanted - {"dense", "sparq", "nomad", "hybrid"}:
        parser.error(f"--methods: found '{arguments.methods}', expected some of dense,sparq,nomad,hybrid")
    try:
        with tempfile.TemporaryDirectory() as folder:
            engine = Engine(arguments.yalm, arguments.model)
            records = measure(
                engine,
                wanted,
                arguments.trials,
                arguments.quick,
                Path(folder),
                lambda text: print(text, file=sys.stderr),
            )
    except BenchError as error:
        print(f"attention_quality: {error}", file=sys.stderr)
        return 1
    print(markdown(records))
    facts = machine()
    arguments.results.mkdir(parents=True, exist_ok=True)
    name = arguments.results / ("attention-quality-" + result_name(facts))
    name.with_suffix(".json").write_text(json.dumps({"machine": facts, "records": records}, indent=1), encoding="utf-8")
    if len(records) > 1:
        name.with_suffix(".svg").write_text(svg(records), encoding="utf-8")
    print(f"wrote {name}.json", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
