#!/usr/bin/env python3
"""Everything that a machine with a GPU can tell about yalm, by one command that needs no network, no root and at most
ten minutes. Builds for its architecture, runs the tests of kernels and of whole models on the device, measures, and
runs compute-sanitizer. Leaves gpu-check.json and gpu-check.md in the output folder, written anew after every step,
and each command's output in logs/ there.

usage: gpu_check.py [--output build/gpu-check] [--seconds 600] [--only STEP,…] [--skip STEP,…] [--arch 90] [--emulated]

A step that fails, or that runs out of its time, does not stop the others. Each step has its share of the time; what
one leaves over, the next ones may use. --emulated runs the same steps on the CPU, as small as they can be, to test
this program where there is no GPU. C libraries that are not installed are taken from build/gpu-deps
(tools/gpu_deps.py).
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench")]

from yalm_gpu_check.check import Check, Skipped, StepError  # noqa: E402
from yalm_gpu_check.steps import STEPS  # noqa: E402

SECONDS, EMULATED_SECONDS = 600, 3600


def run_step(check, name, work, ends):
    began = time.monotonic()
    check.step_ends = ends
    print(f"{began - check.began:5.0f} s  {name} …", flush=True)
    try:
        if began >= min(ends, check.ends):
            raise Skipped("no time left")
        result = work(check) or "ok"
    except Skipped as why:
        result = f"skipped: {why}"
    except StepError as why:
        result = f"FAILED: {why}"
    except Exception as why:  # a fault of this program's: the next steps still run
        result = f"FAILED: {type(why).__name__}: {why}"
    seconds = time.monotonic() - began
    check.found["steps"].append({"name": name, "result": result, "seconds": round(seconds, 2)})
    print(f"{began + seconds - check.began:5.0f} s  {name}: {result} ({seconds:.1f} s)", flush=True)
    check.write()


def schedule(steps, seconds):
    """(name, work, by when, counted from the beginning): shares of the time, in turn."""
    whole, at, found = sum(share for _, _, share in steps), 0, []
    for name, work, share in steps:
        at += share
        found.append((name, work, at / whole * seconds))
    return found


def chosen_steps(parser, options):
    names = [name for name, _, _ in STEPS]
    only, skip = ([word for word in text.split(",") if word] for text in (options.only, options.skip))
    unknown = [word for word in [*only, *skip] if word not in names]
    if unknown:
        parser.error(f"no step '{unknown[0]}': expected some of {', '.join(names)}")
    return [step for step in STEPS if step[0] == "machine" or ((not only or step[0] in only) and step[0] not in skip)]


def stopped(number, _frame):
    sys.exit(128 + number)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default=str(ROOT / "build/gpu-check"))
    parser.add_argument("--seconds", type=float, help="600; for --emulated 3600")
    parser.add_argument("--only", default="", help="steps, comma between")
    parser.add_argument("--skip", default="", help="steps, comma between")
    parser.add_argument("--arch", default="", help="build for this one (90), whatever GPU is there")
    parser.add_argument("--emulated", action="store_true")
    options = parser.parse_args()
    options.seconds = (
        options.seconds if options.seconds is not None else EMULATED_SECONDS if options.emulated else SECONDS
    )
    steps = chosen_steps(parser, options)
    signal.signal(signal.SIGTERM, stopped)
    check = Check(options)
    try:
        check.write()
        for name, work, by in schedule(steps, options.seconds):
            run_step(check, name, work, check.began + by)
    finally:
        check.close()
    print(f"see {check.out / 'gpu-check.md'}")
    return 1 if any(step["result"].startswith("FAILED") for step in check.found["steps"]) else 0


if __name__ == "__main__":
    sys.exit(main())
