#!/usr/bin/env python3
"""Draws docs/quality-bytes.svg, bytes against KL divergence, from the table of docs/quantisation.md under "On ordinary
widths": its rows with forms of both programs.

usage: bench/quality_bytes.py
"""

import re
from pathlib import Path

import plot

DOCS = Path(__file__).resolve().parents[1] / "docs"
ROW = re.compile(r"\| ([\d,]+) MB \| `([^`]+)` \| \**([\d.]+)\** \| [^|]+ \| (\w+) \| ([\d.]+) \|")


def main() -> None:
    series: dict = {"yalm": [], "llama.cpp": []}
    for size, ours, loss, theirs, their_loss in ROW.findall((DOCS / "quantisation.md").read_text()):
        megabytes = float(size.replace(",", ""))
        series["yalm"].append((float(loss), megabytes, re.search(r"--bits ([\d.]+)", ours).group(1)))
        series["llama.cpp"].append((float(their_loss), megabytes, theirs))
    title = "Qwen2.5-Coder-1.5B, rotated: bytes against what is lost (WikiText-2)"
    found = plot.trade(title, "KL divergence, nats a token (less is better)", "MB", series)
    (DOCS / "quality-bytes.svg").write_text(found)


if __name__ == "__main__":
    main()
