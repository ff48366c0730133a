#!/usr/bin/env python3
"""Plants each fault of faults.py, one at a time, and says which test of `make test` finds it: does the short suite
still find what it is there for?

It changes the source and puts it back, so it wants a checkout without changes that the user can spare for an hour
(git worktree add). Its list, as docs/testing.md has it, goes to standard output. It exits with 1 where a fault was
not found.

usage: plant.py [WORDS...]    all faults, or those whose text has one of these words
"""

import contextlib
import fnmatch
import functools
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import run
from faults import FAULTS

ROOT = run.ROOT


@functools.lru_cache(None)
def short_suite():
    with contextlib.redirect_stdout(sys.stderr):  # what cannot run here is no part of the table
        # Without the sanitizers', which take long to build: so the release has all of its rooms' tests.
        return run.plan(set(run.PARTS) - {"asan"}, 10, thorough=False)[0]


def jobs_of(fault):
    """The short suite's jobs, in the order in which they are tried."""
    jobs, tried = short_suite(), []
    for glob in fault.jobs:
        tried += [job for job in jobs if fnmatch.fnmatch(job.name, glob) and job not in tried]
    if not tried:
        raise SystemExit(f"{fault.about}: no job of the short suite is named {' or '.join(fault.jobs)}")
    return tried


def programs(job):
    """The make targets that a job runs."""
    variant, room = job.name.split("/")[:2]
    if not job.name.endswith(".py"):
        return [str(job.command[-1].relative_to(ROOT))]
    if variant.startswith("emulated"):
        return ["all", "cuda-test-programs"]  # the Python tests run those of cmocka, too
    room = room.removesuffix(".py")
    return ["cpu", *made(variant, "tests/parity"), *made(variant, f"tests/{room}")]


def made(variant, folder):
    sources = [path for path in (ROOT / folder).glob("*.c") if not path.name.startswith("test_")]
    return [f"build/{variant}/{path.relative_to(ROOT).with_suffix('')}" for path in sources]


def build(job):
    variant = job.name.split("/")[0]
    command = ["make", "-s", "-j2", f"VARIANT={variant}", *programs(job)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{job.name}: does not build:\n{done.stderr[-3000:]}")


def failing_test(job):
    """The first test that failed, by the job's log; what the program said last where it crashed."""
    log = job.log.read_text(encoding="utf-8", errors="replace")
    found = re.search(
        r"^\[  FAILED  \] (?!\d+ test)(.+?) *$|^FAILED \S+::(\S+)|^(WARNING: ThreadSanitizer)", log, flags=re.M
    )
    begun = re.findall(r"^\[ RUN      \] (.+?) *$", log, flags=re.M)
    return next(filter(None, found.groups())) if found else f"{begun[-1]} (crashed)" if begun else "(crashed)"


def found_by(fault):
    """Job and test that find a planted fault; None where all of its jobs pass."""
    os.environ["PYTEST_ADDOPTS"] = "-x"
    for job in jobs_of(fault):
        build(job)
        with contextlib.redirect_stdout(sys.stderr):
            counts = run.run(job, threading.Event(), {})
        if counts.failed:
            return f"{job.name.removesuffix('.py')}: {failing_test(job)}"
    return None


def plant(fault):
    path = ROOT / fault.path
    right = path.read_text(encoding="utf-8")
    if right.count(fault.right) != 1:
        raise SystemExit(f"{fault.path}: found {right.count(fault.right)} times, expected once: {fault.right}")
    try:
        path.write_text(right.replace(fault.right, fault.wrong), encoding="utf-8")
        return found_by(fault)
    finally:
        path.write_text(right, encoding="utf-8")


def main():
    # In a shell's background ^C is ignored, and programs under test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    words = sys.argv[1:]
    faults = [fault for fault in FAULTS if not words or any(word in fault.about for word in words)]
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, check=True).stdout:
        raise SystemExit("plant.py: the checkout has changes: commit them, or use another one (git worktree add)")
    missed = 0
    for fault in faults:
        found = plant(fault)
        missed += found is None
        print(f"- {fault.about}: {found or '**nothing**'}", flush=True)
    print(f"\n{len(faults) - missed} of {len(faults)}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
