#!/usr/bin/env python3
"""How long a token takes on several ranks, over wires of a given delay and rate. Sets the model of docs/machines.md
beside what namespaces on one machine measure (root, Open MPI), and says what it predicts for more machines.

usage: ranks.py MODEL            measured and modelled, at each of SETTINGS
       ranks.py --predict        tables of predictions
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/mpi")]

DIRECT_BYTES = 32 << 10  # as in src/engine/group.c
FRAME, HEADER = 1448, 100  # bytes of a message in a frame, and around them
ROUNDS = 4
FIRST = ("sh", "-c", 'echo -20 > /proc/self/autogroup; exec "$@"', "sh")  # before what else the machine does
SETTINGS = [  # ranks, microseconds, Mbit/s
    (2, 500, 1000),
    (2, 2000, 1000),
    (2, 10000, 1000),
    (2, 1000, 20),
]


def wire_seconds(length, mbit):
    frames = -(-length // FRAME)
    return (length + frames * HEADER) * 8 / (mbit * 1e6)


def sum_seconds(length, n, delay, mbit):
    """Seconds of a sum of `length` bytes over n ranks."""
    if n == 2 or length <= DIRECT_BYTES:
        return delay + (n - 1) * wire_seconds(length, mbit)
    return 2 * (delay + (n - 1) * wire_seconds(length / n, mbit))


def token_seconds(n, layers, dim, vocab, delay, mbit, bytes_each=4):
    """What messages add to a token: rank 0's word, two sums in each layer, the logits on their way to rank 0."""
    word = delay + (n - 1) * wire_seconds(48, mbit)
    logits = delay + (n - 1) * wire_seconds(4 * vocab / n, mbit)
    return word + 2 * layers * sum_seconds(bytes_each * (dim + 1), n, delay, mbit) + logits


def facts(model):
    """(layers, hidden_dim, vocabulary)."""
    text = subprocess.run([ROOT / "yalm", model, "-m", "info"], capture_output=True, text=True, check=True).stdout
    return tuple(
        int(re.search(pattern, text)[1]) for pattern in (r"layers +(\d+)", r"hidden, ffn +(\d+)", r"vocabulary +(\d+)")
    )


def measure(hosts, n, model):
    """(seconds, bytes that rank 0 sends, messages) of a token: the best of some rounds, since others' work can only
    add to it."""
    from hosts import run

    best, sent = 1e9, []
    for tokens in [10, 40] + [40] * (ROUNDS - 1):
        words = (
            *FIRST,
            "./yalm",
            model,
            "-i",
            "Once upon a time",
            "-n",
            tokens,
            "--temp",
            0,
            "--threads",
            1,
            "--set",
            "text.ignore_eos=on",
        )
        code, _, err = run(hosts, n, *words, timeout=300)
        assert code == 0, err
        count, seconds = re.search(r"decode: (\d+) tokens in ([\d.]+) s", err).groups()
        if tokens == 40:
            best = min(best, float(seconds) / int(count))
        messages, amount, unit = re.search(r"ranks: sent (\d+) messages, ([\d.]+) (\w+)", err).groups()
        sent.append((int(messages), float(amount) * {"B": 1, "KB": 1e3, "MB": 1e6}[unit]))
    return best, (sent[1][1] - sent[0][1]) / 30, (sent[1][0] - sent[0][0]) / 30


def compare(model):
    from hosts import Wired

    layers, dim, vocab = facts(model)
    print("| ranks | delay | rate | sent by rank 0, a token | without them | predicted | measured | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for n, delay_us, mbit in SETTINGS:
        with tempfile.TemporaryDirectory() as folder:
            with Wired(n, Path(folder), 0, 1e6) as hosts:
                bare = measure(hosts, n, model)[0]
            with Wired(n, Path(folder), delay_us, mbit) as hosts:
                measured, sent, messages = measure(hosts, n, model)
        predicted = bare + token_seconds(n, layers, dim, vocab, delay_us / 1e6, mbit)
        print(
            f"| {n} | {delay_us / 1000:g} ms | {mbit} Mbit/s | {messages:.1f} messages, {sent / 1e3:.1f} KB | "
            f"{bare * 1e3:.1f} ms "
            f"| {predicted * 1e3:.1f} ms | {measured * 1e3:.1f} ms | {predicted / measured - 1:+.0%} |",
            flush=True,
        )


def predict():
    """Decode of one conversation, by machines that each read 40 GB/s; 25 µs of delay, 50 on 1 Gbit/s."""
    shapes = {"7B (q4, 4.1 GB)": (4.1e9, 32, 4096, 32000), "70B (q4, 39 GB)": (39e9, 80, 8192, 128256)}
    for name, (weights, layers, dim, vocab) in shapes.items():
        one = weights / 40e9
        print(f"| {name}, one machine: {one * 1e3:.0f} ms | 2 | 4 | 8 |\n| --- | --- | --- | --- |")
        for mbit, delay in ((1000, 50e-6), (10000, 25e-6), (100000, 25e-6)):
            times = [one / n + token_seconds(n, layers, dim, vocab, delay, mbit) for n in (2, 4, 8)]
            print(
                f"| {mbit // 1000} Gbit/s | " + " | ".join(f"{t * 1e3:.0f} ms, {one / t:.1f} ×" for t in times) + " |"
            )


if __name__ == "__main__":
    if sys.argv[1:] == ["--predict"]:
        predict()
    elif len(sys.argv) == 2:
        compare(sys.argv[1])
    else:
        sys.exit(__doc__)
