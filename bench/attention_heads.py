#!/usr/bin/env python3
"""A picture of a model's attention by layer and KV head: what the best keys leave out. It shows how far the hybrid is
from dense attention, where it takes the best keys and where it draws them. Runs build/release/bench/attention_heads (make
build/release/bench/attention_heads)."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import plot

from models import ROOT


def heads(arguments, draw):
    """[(layer, KV head, share of the best eighth, error)]"""
    command = [ROOT / "build/release/bench/attention_heads", arguments.model, arguments.text, arguments.context]
    command += [arguments.tokens, "hybrid", 0, arguments.codebooks, f"hybrid.draw={draw}"]
    out = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [(int(a), int(b), float(c), float(d)) for a, b, c, d in map(str.split, out.splitlines())]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--codebooks", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=32, help="the last, that are compared")
    parser.add_argument("--title", default="")
    parser.add_argument("--out", type=Path, required=True, help="an SVG")
    arguments = parser.parse_args()
    try:
        drawn, best = heads(arguments, "on"), heads(arguments, "off")
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"attention_heads: {error}", file=sys.stderr)
        return 1
    series = {
        "probability outside the best eighth": [(layer, 1 - share) for layer, _, share, _ in drawn],
        "error, the best keys": [(layer, error) for layer, _, _, error in best],
        "error, drawn keys": [(layer, error) for layer, _, _, error in drawn],
    }
    n_layers = 1 + max(layer for layer, *_ in drawn)
    label = "share; error / length of the result"
    arguments.out.write_text(plot.marks(arguments.title, "layer", label, series, n_layers), encoding="utf-8")
    for name, points in series.items():
        print(f"{name}: {', '.join(f'{y:.3f}' for _, y in points)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
