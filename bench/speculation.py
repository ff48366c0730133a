#!/usr/bin/env python3
"""Times mode chat with and without speculation: prompts that have a file of this repository edited, and prompts for
prose (speculation.json). Each is answered greedily in both ways, one after the other, the order changing from prompt
to prompt; the answers must be the same to the byte. Printed are tokens a second as the program says them, and ratios:
of each prompt, their median, and that of all tokens together.

    bench/speculation.py qwen2.5-coder-0.5b.bin
    bench/speculation.py model-bf16.bin --speculate draft=model-q4.bin --only prose
    bench/speculation.py model.bin --peer llama-server model.gguf

With --peer llama.cpp's server answers each prompt too, plainly and by its own guesses from n-grams; its answers are
its own, and so are its times.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
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
    parser.add_argument("--peer", nargs=2, metavar=("LLAMA_SERVER", "GGUF"), help="answers beside")
    parser.add_argument(
        "--peer-speculate", default="ngram-simple,ngram-mod", help="its --spec-type, each (%(default)s)"
    )
    parser.add_argument(
        "-o", "--options", nargs=argparse.REMAINDER, default=[], help="more of yalm's, to the end of the line"
    )
    return parser.parse_args()


def message(prompt):
    if isinstance(prompt, str):
        return prompt
    name, task = prompt
    text = (ROOT / name).read_text(encoding="utf-8")
    return "\n".join([task, "", f"{name}:", "```", *text.splitlines(), "```"])


def title(prompt):
    return prompt[:44] if isinstance(prompt, str) else prompt[0]


def answer(args, prompt, how):
    """(what the model says, tokens, seconds)"""
    command = [
        args.yalm,
        args.model,
        "-m",
        "chat",
        "--temp",
        "0",
        "-n",
        str(args.n),
        "-q",
        "--speculate",
        how,
        *args.options,
    ]
    lines = message(prompt).replace("\n", "\\\n")  # a backslash: the message goes on
    done = subprocess.run(
        list(map(str, command)), input=lines + "\n/stats\n", capture_output=True, text=True, check=False
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
        name = title(prompt)
        if (text, n) != (other_text, other_n):
            sys.exit(f"speculation.py: {name}: the answers differ")
        if n:
            rows.append((name, n, plain, fast))
            print(f"{name:44} {n:5} {n / plain:8.1f} {n / fast:8.1f} {plain / fast:6.2f}", flush=True)
    return rows


@contextlib.contextmanager
def peer(args, how):
    """llama.cpp's server on a free port, guessing as `how` says or, where that is "off", not: its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [args.peer[0], "-m", args.peer[1], "-c", "8192", "-np", "1", "--port", str(port), "--no-webui"]
    command += [] if how == "off" else ["--spec-type", how]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError, urllib.error.HTTPError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
                break
            if server.poll() is not None:
                sys.exit(f"speculation.py: {args.peer[0]} ended with {server.returncode}")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1/chat/completions"
    finally:
        server.terminate()
        server.wait()


def peer_answer(args, address, prompt):
    """(tokens, seconds), as the server says them."""
    body = {
        "messages": [{"role": "user", "content": message(prompt)}],
        "temperature": 0,
        "max_tokens": args.n,
        "cache_prompt": False,
    }
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        timings = json.load(reply)["timings"]
    return timings["predicted_n"], timings["predicted_ms"] / 1000


def compare_peer(args, prompts):
    """As compare(), with a column for each way of the peer's; tokens a second of all tokens in the last line."""
    ways = ["off", *args.peer_speculate.split(",")]
    print(f"{'llama.cpp':44} " + " ".join(f"{way:>14}" for way in ways))
    sums = [[0, 0.0] for _ in ways]
    with contextlib.ExitStack() as servers:
        addresses = [servers.enter_context(peer(args, way)) for way in ways]
        for prompt in prompts:
            cells = []
            for total, address in zip(sums, addresses):
                n, seconds = peer_answer(args, address, prompt)
                total[0] += n
                total[1] += seconds
                cells.append(f"{n / seconds if n else 0:14.1f}")
            print(f"{title(prompt):44} " + " ".join(cells), flush=True)
    print(f"{'all':44} " + " ".join(f"{n / seconds:14.1f}" for n, seconds in sums) + "\n")


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
            if args.peer:
                compare_peer(args, prompts[: args.prompts])


if __name__ == "__main__":
    main()
