#!/usr/bin/env python3
"""What the methods for long contexts cost in quality on a model: perplexity and divergence beside dense attention's,
and pass keys.

usage: attention_quality.py --model FILE --calibration FILE [--text NAME=FILE …] [--contexts N,N,…] [--tokens N]
                            [--keys N,N,…] [--methods hybrid,sparq,nomad] [--also NAME=OPTIONS …]

Each text is cut into windows of a context's length. A window is evaluated as a prompt (which is dense) but for its
last eighth, 1,024 tokens at most. These are fed token by token, as in generation, and scored. There are as many
windows as have --tokens of these. The hybrid is measured as it is by default; SparQ and NoMAD as published: SparQ at
1/8 with a copy of the keys in the cache's type, NoMAD with a code for each component. --also measures other settings.
Codebooks are learned from the calibration text, which should be none that is scored.

With --keys N, pass keys are hidden in N tokens at five depths: one alone (five prompts), and five with names
together, each of which is asked for. The prompt's last tokens, the question, are read one by one.

Prints markdown, and writes JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import machine, result_name, throughput

from models import ROOT, BenchError

TEXT = ROOT / "models/fable-4m/heldout.txt"
SCORED_MOST = 1024  # of a window
NAMES = ("Anna", "Peter", "Clara", "Thomas", "Rosa")
DEPTHS = (0, 0.25, 0.5, 0.75, 1)
KEY_IDS = 5  # mode passkey's
QUESTION_IDS = 24  # more than any question has
INTRO = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
    "I will quiz you about the important information there."
)
GRASS = " The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."


def method_options(books):
    """Each method's options, as it is measured."""
    return {
        "hybrid": ["--attention", "hybrid", "--codebooks", str(books)],
        "sparq": [
            *("--attention", "sparq", "--attention-ratio", "1/8"),
            *("--set", "sparq.copy=fp16", "--set", "sparq.from=1"),
        ],
        "nomad": ["--attention", "nomad", "--codebooks", str(books)],
    }


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
        return self.run("-m", "tokenize", "-f", "-", stdin=text.encode()).split()


# -------------------------------------------------------------------------------- what follows a text


def perplexity(engine, options, text, context, tokens, logits, base):
    """Scores a text's windows, beside the logits of dense attention; alone where these are to be saved."""
    scored = min(context // 8, SCORED_MOST)
    windows = -(-tokens // scored)
    command = ["-m", "perplexity", "-q", "-f", text, "--ctx", context, "--max-tokens", windows * context]
    command += ["--set", f"perplexity.decode_from={context - scored - 1}"]
    out = engine.run(*command, *options, "--kl-base" if base else "--save-logits", logits)
    n = int(re.search(r"nll: .* over (\d+) tokens", out)[1])
    if n < tokens:
        raise BenchError(f"{text}: too short for {windows} windows of {context} tokens")
    found = {"tokens": n, "perplexity": float(re.search(r"PPL = ([\d.]+)", out)[1])}
    if base:
        found["kl"] = float(re.search(r"KL divergence: mean ([-\d.e]+)", out)[1])
        found["same_top"] = float(re.search(r"same top: ([\d.]+)", out)[1])
        found["ratio"], found["ratio_error"] = map(float, re.search(r"PPL ratio: (\S+) \+/- (\S+)", out).groups())
    return found


def traffic(engine, options, context):
    """What the last token of a context reads of the cache, as a share of dense attention's."""
    [row] = throughput(engine.yalm, engine.model, 0, 1, context - 2, options=(*options, "--ctx", str(context)))
    return row["attention_bytes"] / row["dense_attention_bytes"]


def continuations(engine, methods, texts, contexts, tokens, folder, say):
    records = []
    for name, text in texts.items():
        for context in contexts:
            logits = folder / "dense.logits"
            for method, options in {"dense": [], **methods}.items():
                found = perplexity(engine, options, text, context, tokens, logits, method != "dense")
                share = traffic(engine, options, context) if method != "dense" else 1
                records.append({"text": name, "context": context, "method": method, "traffic": share, **found})
                say(json.dumps(records[-1]))
            logits.unlink()
    return records


# -------------------------------------------------------------------------------- pass keys


def key_prompt(lines, facts, question):
    """Text whose facts stand at their depths among lines of filler, and the beginning of an answer."""
    text = INTRO
    for line in range(lines + 1):
        text += "".join(fact for depth, fact in facts if round(depth * lines) == line)
        text += GRASS if line < lines else ""
    return text + question


def single_trial(rnd, depth):
    """(facts, question, key)"""
    key = rnd.randint(10000, 99999)
    fact = f" The pass key is {key}. Remember it. {key} is the pass key."
    return [(depth, fact)], " What is the pass key? The pass key is", key


def named_trials(rnd):
    keys = [rnd.randint(10000, 99999) for _ in NAMES]
    facts = [
        (depth, f" The pass key of {name} is {key}. Remember it. {key} is the pass key of {name}.")
        for depth, name, key in zip(DEPTHS, NAMES, keys)
    ]
    return [(facts, f" What is the pass key of {n}? The pass key of {n} is", k) for n, k in zip(NAMES, keys)]


def key_file(engine, path, length, rounds):
    """A line of ids for each trial, its prompt as long as fits. First come those alone by depth, deepest first, which
    share what stands before the key; then the named by depth, which share all but the question."""
    rnd = random.Random(length)
    line = len(engine.ids(INTRO + GRASS * 2)) - len(engine.ids(INTRO + GRASS))
    rows = []
    for _ in range(rounds):
        trials = [single_trial(rnd, depth) for depth in reversed(DEPTHS)] + named_trials(rnd)
        rest = max(len(engine.ids(key_prompt(0, facts, question))) for facts, question, _ in trials) + 16
        for facts, question, key in trials:
            rows.append(engine.ids(key_prompt((length - rest) // line, facts, f"{question} {key}")))
    path.write_text("".join(" ".join(row) + "\n" for row in rows), encoding="ascii")
    return path


def passkeys(engine, methods, lengths, rounds, folder, say):
    """For each length and method: whether each trial's key was found."""
    records = []
    for length in lengths:
        path = key_file(engine, folder / "keys", length, rounds)
        for method, options in {"dense": [], **methods}.items():
            command = ["-m", "passkey", "-q", "--tokens", path, "--ctx", length]
            command += ["--set", f"passkey.decode_last={QUESTION_IDS}"]
            out = engine.run(*command, *options, statuses=(0, 1))  # 1: some were missed
            found = [line.endswith(": found") for line in re.findall(r"^trial \d+: .*$", out, re.M)]
            records.append({"length": length, "method": method, "found": found})
            say(json.dumps(records[-1]))
    return records


# -------------------------------------------------------------------------------- results


def markdown(rows):
    """A table whose first row is its head."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def continuation_table(records):
    rows = [["text", "context", "method", "perplexity", "more, %", "KL", "same top, %", "traffic"]]
    for r in records:
        cells = [r["text"], f"{r['context']:,}", r["method"], f"{r['perplexity']:.3f}"]
        if r["method"] == "dense":
            cells += ["", "", "", ""]
        else:
            more, error = 100 * (r["ratio"] - 1), 100 * r["ratio_error"]
            cells += [
                f"{more:+.2f} ± {error:.2f}",
                f"{r['kl']:.5f}",
                f"{r['same_top']:.1f}",
                f"1/{1 / r['traffic']:.1f}",
            ]
        rows.append(cells)
    return markdown(rows)


def key_table(records):
    """How many of the keys that dense attention finds a method finds, at each depth; and how many it finds alone."""
    rows = [
        ["tokens", "method", "found", *(f"alone, depth {d:g}" for d in DEPTHS), *(f"of five, {d:g}" for d in DEPTHS)]
    ]
    dense = {r["length"]: r["found"] for r in records if r["method"] == "dense"}
    n = len(DEPTHS)
    for r in records:
        cells = [f"{r['length']:,}", r["method"], f"{sum(r['found'])} of {len(r['found'])}"]
        for place in [*reversed(range(n)), *range(n, 2 * n)]:  # of a round; alone, the deepest comes first
            both = [m for m, d in zip(r["found"][place :: 2 * n], dense[r["length"]][place :: 2 * n]) if d]
            cells.append(f"{sum(both)} of {len(both)}")
        rows.append(cells)
    return markdown(rows)


def numbers(text):
    return [int(n) for n in text.split(",") if n]


def named(text):
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"found '{text}', expected NAME=VALUE")
    return name, value


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yalm", type=Path, default=ROOT / "yalm")
    parser.add_argument("--model", type=Path, default=ROOT / "build/fable-4m.bin")
    parser.add_argument("--calibration", type=Path, default=TEXT, help="text that codebooks are learned from")
    parser.add_argument("--codebooks", type=Path, help="learned already")
    parser.add_argument("--text", type=named, action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--contexts", type=numbers, default=[2048], help="lengths of windows; none with ''")
    parser.add_argument("--tokens", type=int, default=SCORED_MOST, help="scored of each text and context, at least")
    parser.add_argument("--keys", type=numbers, default=[], help="lengths of prompts with pass keys")
    parser.add_argument("--rounds", type=int, default=1, help="of ten pass keys for each length")
    parser.add_argument("--methods", default="hybrid,sparq,nomad")
    parser.add_argument("--also", type=named, action="append", default=[], metavar="NAME=OPTIONS")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results")
    arguments = parser.parse_args()
    wanted = [name for name in arguments.methods.split(",") if name]
    if set(wanted) - set(method_options("")):
        parser.error(f"--methods: found '{arguments.methods}', expected some of {','.join(method_options(''))}")
    return arguments, wanted


def measure(arguments, wanted, folder, say):
    engine = Engine(arguments.yalm, arguments.model)
    books = arguments.codebooks or folder / "books.nomad"
    if arguments.codebooks is None:
        say("codebooks")
        engine.run("-m", "calibrate", "-q", "-f", arguments.calibration, "-o", books)
    methods = {name: options for name, options in method_options(books).items() if name in wanted}
    for name, options in arguments.also:
        methods[name] = [*shlex.split(options), "--codebooks", str(books)]
    texts = dict(arguments.text) or {"heldout": TEXT}
    records = continuations(engine, methods, texts, arguments.contexts, arguments.tokens, folder, say)
    return records, passkeys(engine, methods, arguments.keys, arguments.rounds, folder, say)


def main():
    arguments, wanted = parse_arguments()
    try:
        with tempfile.TemporaryDirectory() as folder:
            records, keys = measure(
                arguments, wanted, Path(folder), lambda text: print(text, file=sys.stderr, flush=True)
            )
    except BenchError as error:
        print(f"attention_quality: {error}", file=sys.stderr)
        return 1
    if records:
        print(continuation_table(records))
    if keys:
        print(key_table(keys))
    facts = machine()
    arguments.results.mkdir(parents=True, exist_ok=True)
    path = arguments.results / f"attention-quality-{arguments.model.stem}-{result_name(facts)}.json"
    path.write_text(json.dumps({"machine": facts, "records": records, "keys": keys}, indent=1), encoding="utf-8")
    print(f"wrote {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
