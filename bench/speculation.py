#!/usr/bin/env python3
"""Times mode chat with and without speculation: prompts that have a file of this repository edited, and prompts for prose (speculation.json). Each
is answered greedily in both ways, one after the other, the order changing from prompt to prompt; the answers must be the same to the byte. Printed are
tokens a second as the program says them, and ratios: of each prompt, their median, and that of all tokens together.

    bench/speculation.py qwen2.5-coder-0.5b.bin
    bench/speculation.py model-bf16.bin --speculate draft=model-q4.bin --only prose
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAID = re.compile(r"generated: (\d+) tokens in ([\d.]+) s")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="converted, with a chat template")
    parser.add_argument("--yalm", type=Path, default=ROOT / "yalm")
    parser.add_argument("--speculate", default="auto", help="what is compared with off")
    parser.add_argument("--only", choices=("editing", "prose"), help="prompts of this kind alone")
    parser.add_argument("--prompts", type=int, default=20, help="the first so many of each kind")
    parser.add_argument("-n", type=int, default=256, help="tokens of each answer, at most")
    parser.add_argument(
        "-o", "--options", nargs=argparse.REMAINDER, default=[], help="more of yalm's, to the end of the line"
    )
    return parser.parse_args()


def message(prompt):
    """Of several lines, all but the last of which end with a backslash."""
    if isinstance(prompt, str):
        return prompt
    name, task = prompt
    text = (ROOT / name).read_text(encoding="utf-8")
    return "\\\n".join([task, "", f"{name}:", "```", *text.splitlines(), "```"])


def answer(args, prompt, how):
    """(what the model says, tokens, seconds)"""
    command = [
        args.yalm,
        args.model,
        "-m",
        "chat",
        "-t",
        "0",
        "-n",
        str(args.n),
        "-q",
        "--speculate",
        how,
        *args.options,
    ]
    done = subprocess.run(
        list(map(str, command)), input=message(prompt) + "\n/stats\n", capture_output=True, text=True, check=False
    )
    said = SAID.search(done.stderr)
    if done.returncode != 0 or not said:
        sys.exit(f"speculation.py: {done.stderr.strip() or 'no statistics'}")
    return done.stdout, int(said[1]), float(said[2])


def compare(args, prompts):
    """One row for each prompt: name, tokens, seconds plain, seconds with speculation."""
    rows = []
    for i, prompt in enumerate(prompts):
        ways = ("off", args.speculate) if i % 2 else (args.speculate, "off")
        answers = {how: answer(args, prompt, how) for how in ways}
        text, n, plain = answers["off"]
        other_text, other_n, fast = answers[args.speculate]
        name = prompt[:44] if isinstance(prompt, str) else prompt[0]
        if (text, n) != (other_text, other_n):
            sys.exit(f"speculation.py: {name}: the answers differ")
        if n:
            rows.append((name, n, plain, fast))
            print(f"{name:44} {n:5} {n / plain:8.1f} {n / fast:8.1f} {plain / fast:6.2f}", flush=True)
    return rows


def main():
    args = arguments()
    kinds = json.loads((ROOT / "bench/speculation.json").read_text(encoding="utf-8"))
    for kind, prompts in kinds.items():
        if args.only in (None, kind):
            print(f"{kind:44} {'n':>5} {'off':>8} {args.speculate[:8]:>8} {'ratio':>6}")
            rows = compare(args, prompts[: args.prompts])
            ratios = [plain / fast for _, _, plain, fast in rows]
            _, n, plain, fast = (sum(column) if i else "" for i, column in enumerate(zip(*rows)))
            print(f"{'median':69} {statistics.median(ratios):6.2f}")
            print(f"{'all':44} {n:5} {n / plain:8.1f} {n / fast:8.1f} {plain / fast:6.2f}\n")


if __name__ == "__main__":
    main()
