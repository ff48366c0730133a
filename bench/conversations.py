#!/usr/bin/env python3
"""Which tokens a server reads again: replays conversations of an agent, and counts by the server's own words.

Each trace runs on a server that has just started. Of each request it asks for what of the prompt is new: what follows the
longest beginning that any earlier request has read or written. What the server has read beyond that it has read again.
Models have random weights: what they write does not matter here. Prompts are token ids, in which a control token begins each
message and another ends it, as chat templates have it.

usage: conversations.py [MODEL.bin | SHAPE …] [--trace NAME …] [--option "--set KEY=VALUE" …] [--json FILE]
       conversations.py --url http://127.0.0.1:8080 [--trace NAME …]   # a server that runs already: llama-server, say
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHAPES = ("fable-4m", "tiny-qwen3_5", "tiny-gemma3", "tiny-gemma4", "tiny-gpt-oss")
BEGIN, END, VOCAB = 1, 2, 4096  # of models/fable-4m, whose tokenizer all have
SYSTEM, TURNS, CALL, CONTEXT = 6000, 12, 48, 16384
ALLOWED = 64  # tokens that a request may read again
SYSTEM_ROLE, USER, ASSISTANT, TOOL = 10, 11, 12, 13


def message(role, content):
    return [BEGIN, role, *content, END]


def words(rng, n):
    return [rng.randrange(100, VOCAB) for _ in range(n)]


def agent(seed, turns=TURNS, system=SYSTEM, thoughts=0, edit=False, titles=False):
    """A conversation: yields (prompt, tokens to write), and is sent what was written."""
    rng = random.Random(seed)
    history = [message(SYSTEM_ROLE, words(random.Random(0), system)), message(USER, words(rng, 80))]
    for turn in range(turns):
        prompt = [token for each in history for token in each] + [BEGIN, ASSISTANT]
        written = yield prompt, CALL
        history.append(message(ASSISTANT, written[thoughts:]))
        history.append(message(TOOL, words(rng, rng.randrange(20, 500))))
        if titles and turn % 4 == 0:
            yield [*message(SYSTEM_ROLE, words(rng, 60)), *history[1], BEGIN, ASSISTANT], 8
        if edit and turn == turns - 2:
            history[2 * (turns // 2) + 1] = message(TOOL, words(rng, 200))


TRACES = {
    "agent": lambda: [agent(1)],
    "two": lambda: [agent(i, turns=8) for i in range(2)],
    "six": lambda: [agent(i, turns=6, system=2000) for i in range(6)],
    "edit": lambda: [agent(1, edit=True)],
    "thoughts": lambda: [agent(1, thoughts=32)],
    "title": lambda: [agent(1, titles=True)],
}


class Seen:
    """All that requests have read and written."""

    def __init__(self):
        self.texts = []

    def common(self, tokens):
        return max((self.shared(text, tokens) for text in self.texts), default=0)

    @staticmethod
    def shared(a, b):
        low, high = 0, min(len(a), len(b))
        while low < high:  # the longest beginning that is alike
            middle = (low + high + 1) // 2
            low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle - 1)
        return low


def complete(url, prompt, n):
    fields = {"prompt": prompt, "n_predict": n, "temperature": 0, "cache_prompt": True, "return_tokens": True,
              "ignore_eos": True}  # fmt: skip
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(fields).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        body = json.load(answer)
    return body["tokens"], body["timings"]["prompt_n"], body["timings"]["prompt_ms"]


def replay(url, trace):
    """One row: sums over the requests, which go round the conversations."""
    seen, row = Seen(), dict(trace=trace, requests=0, prompt=0, new=0, read=0, most_again=0, ms=0)
    talks = TRACES[trace]()
    waiting = [(talk, next(talk)) for talk in talks]
    while waiting:
        talk, (prompt, n) = waiting.pop(0)
        written, read, ms = complete(url, prompt, n)
        new = max(len(prompt) - seen.common(prompt), 1)  # the last one is evaluated in any case
        seen.texts.append(prompt + written[:-1])
        row["requests"] += 1
        row["prompt"] += len(prompt)
        row["new"] += new
        row["read"] += read
        row["most_again"] = max(row["most_again"], read - new)
        row["ms"] += round(ms)
        with contextlib.suppress(StopIteration):
            waiting.append((talk, talk.send(written)))
    return row


@contextlib.contextmanager
def served(yalm, model, options):
    """The address of a server of the model."""
    command = [yalm, model, "-m", "serve", "--port", "0", "-T", str(CONTEXT), "--parallel", "2", *options]
    with subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True) as process:
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("listening on "):
                break
        else:
            raise SystemExit(f"conversations: {shlex.join(map(str, command))} ends: {''.join(said)}")
        try:
            yield said[-1].split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()


def make_model(shape, folder):
    """The file of a shape with random weights, or of the bundled model."""
    source = ROOT / "models/fable-4m"
    if shape != "fable-4m":
        source = folder / shape
        subprocess.run([sys.executable, ROOT / "tools/random_hf_model.py", shape, source, "--vocab", str(VOCAB),
                        "--tokenizer", ROOT / "models/fable-4m"], check=True, stderr=subprocess.DEVNULL)  # fmt: skip
    out = folder / f"{shape}.bin"
    subprocess.run([sys.executable, ROOT / "tools/convert.py", source, out], check=True, capture_output=True)
    return out


def show(model, row):
    mark = "" if row["most_again"] <= ALLOWED else " more than allowed"
    print(f"| {model} | {row['trace']} | {row['requests']} | {row['prompt']:,} | {row['new']:,} | {row['read']:,} | "
          f"{row['most_again']:,}{mark} | {row['ms'] / 1000:.2f} |", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--trace", action="append", choices=TRACES)
    parser.add_argument("--option", action="append", default=[], help="of the server")
    parser.add_argument("--url", help="a server that runs already, and has read nothing")
    parser.add_argument("--yalm", type=Path, default=ROOT / "yalm")
    parser.add_argument("--json", type=Path, help="the rows")
    a = parser.parse_args()
    options = [word for option in a.option for word in shlex.split(option)]
    rows = []
    print(
        "| model | trace | requests | prompt tokens | new | read | most again in one | seconds |\n" + "| --- " * 8 + "|"
    )

    def run(model, trace, url):
        rows.append({"model": model, **replay(url, trace)})
        show(model, rows[-1])

    with tempfile.TemporaryDirectory() as folder:
        for name in a.models or ([] if a.url else SHAPES):
            model = Path(name) if os.sep in name or name.endswith(".bin") else make_model(name, Path(folder))
            for trace in a.trace or TRACES:
                with served(a.yalm, model, options) as url:
                    run(model.stem, trace, url)
    for trace in (a.trace or TRACES) if a.url else ():
        run(a.url, trace, a.url)
    if a.json:
        a.json.write_text(json.dumps(rows, indent=1) + "\n")
    return any(row["most_again"] > ALLOWED for row in rows)


if __name__ == "__main__":
    sys.exit(main())
