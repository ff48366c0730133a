#!/usr/bin/env python3
"""Runs yalm's tests, one more at once than there are cores, since some wait, the longest first. It adds up their counts; its
last line is

    N passed, N failed, N skipped

and it exits with 1 where a test failed, a program crashed or was too slow, or nothing ran. The make target that calls it
builds what it runs: cmocka programs and pytest folders of the release build, the same under AddressSanitizer and
UndefinedBehaviorSanitizer, the rooms that use threads under ThreadSanitizer and on OpenMP's threads, the fuzzers, and the CUDA
half, whose kernels the CPU runs (emulated, emulated-asan, emulated-msan). With --thorough also arm64: the CPU half built for
that processor, and run by QEMU. The lines before the last one say which instruction sets there were. Logs lie in build/test/.

`make test` runs each kind of test, but not each test under each sanitizer. `make test-all` (--thorough) runs them all, before a
release. `make check ROOM=cpu/long` tests one room.

usage: run.py [--thorough] [--room ROOM] [--fuzz-seconds N] [--jobs N] release|openmp|asan|tsan|fuzz|cuda|arm64|all...
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import fnmatch
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from harness import known_isas, usable_isas
from selection import (
    ARM64_TESTS,
    BESIDE_ASAN,
    BRIEFLY,
    CUDA_ASAN_TESTS,
    CUDA_PARTS,
    CUDA_ROOM,
    DRAWN,
    FORCED,
    FORCED_BRIEFLY,
    FORCED_IN_FULL,
    NOT_IN_QEMU,
    NUMBERS,
    ROOMS,
    SERVED_TESTS,
    THOROUGH_ROOMS,
    THREADED_PROGRAMS,
    THREADED_ROOMS,
    THREADED_TESTS,
    UNSANITIZED,
    WITH_ASAN,
)

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build/test"
TIMES = LOGS / "seconds.json"  # what each job took when it ran last
PARTS = ("release", "openmp", "asan", "tsan", "fuzz", "cuda")
THOROUGH_PARTS = ("arm64",)  # of `make test-all` alone
TIME_LIMIT = 1800  # seconds in which a job writes nothing to its log: however busy the machine, a test ends meanwhile
# What a job takes that has not run here yet, about: by the beginning of its name. (Where they have run, run.py knows.)
GUESSES = (
    ("emulated/cuda-", 1200),
    ("emulated/cuda.py", 350),
    ("emulated/cuda/test_attention_prefill", 13),
    ("emulated-", 400),
    ("emulated/", 5),
    ("release/cli.py", 170),
    ("release/cli-", 60),
    ("release/serve-", 60),
    ("release/serve.py", 75),
    ("release/tools", 95),
    ("release/parity", 60),
    ("release/engine/test_forward", 35),
    ("release/engine/test_together", 30),
    ("release/cpu/test_quant", 40),
    ("release/mpi", 30),
    ("asan/cli", 115),
    ("asan/serve-", 105),
    ("asan/serve.py", 110),
    ("asan/parity", 60),
    ("asan/chat", 30),
    ("asan/text", 20),
    ("asan/cpu/test_quant", 50),
    ("asan/cpu", 12),
    ("asan/engine/test_exact", 40),
    ("asan/engine", 20),
    ("tsan/parity", 400),
    ("tsan/serve", 30),
    ("tsan/", 10),
    ("arm64/", 120),
    ("", 8),
)
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    "PYTHONDONTWRITEBYTECODE": "",  # the converter, which tests start a hundred times, is compiled once
}
# Python tests start programs a thousand times: there `make test` leaves uses after return to the C tests, and holds back less
# of what was freed.
STARTED_OFTEN = "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=0:quarantine_size_mb=32"


@dataclasses.dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other):
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


@dataclasses.dataclass
class Job:
    name: str
    command: list
    count: object  # (job, exit status, output) -> Counts
    environment: dict = dataclasses.field(default_factory=dict)
    used: float = 0  # processor time, in seconds, its children's too

    @property
    def log(self):
        return LOGS / (self.name.replace("/", "-") + ".log")

    @property
    def folder(self):
        return LOGS / self.name.replace("/", "-")


# ------------------------------------------------------------------------------------------- counting


def settle(counts, status):
    """A program that failed without a failed test crashed; one that passed without a test ran nothing."""
    if (status != 0 and counts.failed == 0) or counts == Counts():
        counts.failed += 1
    return counts


def count_cmocka(job, status, output):
    results, group = {}, 0
    for line in output.splitlines():
        if re.match(r"\[=+\] Running", line):
            group += 1
        match = re.match(r"\[ *(RUN|OK|FAILED|SKIPPED) *\] ([A-Za-z_].*?) *$", line)
        if match and (match[1] != "RUN" or (group, match[2]) not in results):
            results[group, match[2]] = match[1]
    found = list(results.values())
    # One that ran and came to no end crashed.
    failed = found.count("FAILED") + found.count("RUN")
    return settle(Counts(found.count("OK"), failed, found.count("SKIPPED")), status)


def count_pytest(job, status, output):
    try:
        suites = ElementTree.parse(job.folder / "results.xml").getroot().iter("testsuite")
    except (OSError, ElementTree.ParseError):
        return Counts(failed=1)
    counts = Counts()
    for suite in suites:
        total, failed, skipped = (int(suite.get(key)) for key in ("tests", "failures", "skipped"))
        failed += int(suite.get("errors"))
        counts += Counts(total - failed - skipped, failed, skipped)
    return settle(counts, 0 if status == 5 and counts != Counts() else status)


def count_fuzzer(job, status, output):
    done = re.search(r"Done (\d+) runs", output)
    return Counts(passed=1) if status == 0 and done and int(done[1]) > 1 else Counts(failed=1)


# ------------------------------------------------------------------------------------------- jobs


@functools.lru_cache(None)
def tsan_prefix():
    """How ThreadSanitizer's programs start: older run-times need a fixed memory layout. None where they cannot run at all."""
    program = ROOT / "build/tsan/tests/parity/driver"
    for prefix in ([], ["setarch", "-R"]):
        try:
            done = subprocess.run([*prefix, program], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if done.returncode == 2 and "usage" in done.stderr:
            return prefix
    return None


def cmocka_jobs(variant, rooms=("*",), prefix=(), suffix=".c", only=None, leave_out=()):
    threaded = rooms == THREADED_ROOMS  # then what is of one thread by nature, kernels, has nothing to show
    for room in rooms:
        for source in sorted(ROOT.glob(f"tests/{room}/test_*{suffix}")):
            if threaded and source.stem.endswith("_kernels"):
                continue
            name = f"{source.parent.name}/{source.stem}"
            if name in leave_out or (only and name not in only):
                continue
            program = ROOT / "build" / variant / source.relative_to(ROOT).with_suffix("")
            yield Job(f"{variant}/{name}", [*prefix, program], count_cmocka)


def pytest_jobs(variant, *options, leave_out=(), rooms=None, prefix=(), label="", thorough=True, isa=None, only=None):
    """only: of rooms, the tests that run, as pytest's -k has them."""
    for room in sorted({path.parent.name for path in ROOT.glob("tests/*/test_*.py")}):
        if room in leave_out or (rooms and room not in rooms):
            continue
        job = Job(f"{variant}/{room}{label}.py", [], count_pytest, {"YALM_VARIANT": variant})
        job.environment["YALM_THOROUGH"] = "1" if thorough else ""  # of some jobs of `make test`, too
        if isa:
            job.environment["YALM_ISA"] = isa
        if variant == "asan" and not thorough:
            job.environment["ASAN_OPTIONS"] = STARTED_OFTEN
        brief = [
            not thorough and BRIEFLY.get(f"{variant}/{room}"),
            FORCED_BRIEFLY.get((isa, room)),
            not thorough and DRAWN.get((isa, room)),
            (only or {}).get(room),
        ]
        which = ["-k", " and ".join(f"({which})" for which in brief if which)] if any(brief) else []
        how = ["-q", "--tb=short", "--durations=12", f"--basetemp={job.folder}/temporary"]
        how += [f"--junitxml={job.folder}/results.xml", *options, *which]
        job.command = [*prefix, sys.executable, "-m", "pytest", *how, f"tests/{room}"]
        yield job


def forced(variant, thorough):
    """Of a build: each lesser instruction set than the machine's best, and the rooms that run by it."""
    lesser = usable_isas()[:-1]
    all_forced = (*FORCED, *(FORCED_IN_FULL if thorough else ()))
    return [(isa, rooms) for isa, build, rooms in all_forced if build == variant and isa in lesser]


def cuda_jobs(thorough):
    if not thorough:
        yield from pytest_jobs("emulated", rooms=(CUDA_ROOM,), thorough=False)
        yield from cmocka_jobs("emulated", (CUDA_ROOM,), suffix=".cc")
        return
    for label, which in CUDA_PARTS:
        yield from pytest_jobs("emulated", "-k", which, rooms=(CUDA_ROOM,), label=label)
    yield from pytest_jobs("emulated-asan", "-k", CUDA_ASAN_TESTS, rooms=(CUDA_ROOM,))
    for variant in ("emulated-asan", "emulated-msan", "emulated"):
        yield from cmocka_jobs(variant, (CUDA_ROOM,), suffix=".cc")


def fuzz_jobs(seconds):
    for source in sorted(ROOT.glob("tests/fuzz/fuzz_*.c")):
        job = Job(f"fuzz/{source.stem}", [ROOT / "build/fuzz/tests/fuzz" / source.stem], count_fuzzer)
        short = source.stem[len("fuzz_") :]
        words, seeds = source.with_name(short + ".dict"), source.parent / "corpus" / short
        job.command += [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=3000", "-print_final_stats=1"]
        job.command += [f"-artifact_prefix={job.folder}/", *([f"-dict={words}"] if words.exists() else [])]
        # New inputs go to the first folder; the committed seeds stay as they are.
        job.command += [job.folder / "corpus", *([seeds] if seeds.is_dir() else [])]
        yield job


def plan(parts, fuzz_seconds, thorough):
    """The jobs, and counts of what cannot run here."""
    only = None if thorough else THREADED_PROGRAMS
    jobs, beforehand = [], Counts()
    if "fuzz" in parts:
        jobs += fuzz_jobs(fuzz_seconds)
    if "asan" in parts:
        # These rooms' other run, in the release build, is by the best one.
        lesser = [room for _, rooms in forced("asan", thorough) for room in rooms]
        jobs += pytest_jobs("asan", leave_out=(*UNSANITIZED, *lesser), thorough=thorough)
        jobs += cmocka_jobs("asan", leave_out=() if thorough else NUMBERS)
    if "release" in parts:
        others = (CUDA_ROOM, *(() if thorough else THOROUGH_ROOMS))
        rest = BESIDE_ASAN if "asan" in parts and not thorough else None
        others = (*others, *(WITH_ASAN if rest else ()))
        jobs += [*pytest_jobs("release", leave_out=others, thorough=thorough, only=rest), *cmocka_jobs("release")]
    for variant in parts & {"asan", "release"}:
        for isa, rooms in forced(variant, thorough):
            jobs += pytest_jobs(variant, rooms=rooms, label=f"-{isa}", thorough=thorough, isa=isa)
    if "openmp" in parts:
        jobs += cmocka_jobs("openmp", THREADED_ROOMS, only=only)
    if "cuda" in parts:
        jobs += cuda_jobs(thorough)
    if "arm64" in parts:
        jobs += [job for job in cmocka_jobs("arm64") if job.name not in NOT_IN_QEMU]
        jobs += pytest_jobs("arm64", "-k", ARM64_TESTS, rooms=("parity",), thorough=False)
    if "tsan" in parts:
        prefix = tsan_prefix()
        threaded = list(cmocka_jobs("tsan", THREADED_ROOMS, prefix or (), only=only))
        threaded += pytest_jobs("tsan", "-k", SERVED_TESTS, rooms=("serve",), prefix=prefix or ())
        if thorough:
            threaded += pytest_jobs("tsan", "-k", THREADED_TESTS, rooms=("parity",), prefix=prefix or ())
        if prefix is None:
            print(f"tsan: ThreadSanitizer's programs do not start on this machine: {len(threaded)} jobs skipped")
            beforehand.skipped += len(threaded)
        else:
            jobs += threaded
    return jobs, beforehand


def tests_room(job, room):
    """Whether the job tests that room of src/."""
    globs = ROOMS.get(room, (f"*/{room}/*", f"*/{room}.py", f"*/{room}-*.py"))
    return any(fnmatch.fnmatch(job.name, glob) for glob in globs)


def coverage(jobs):
    """By which instruction sets the tests that depend on rounding ran."""
    usable, best = usable_isas(), usable_isas()[-1]
    lesser = {}
    for job in jobs:
        lesser.setdefault(job.environment.get("YALM_ISA"), set()).add(
            job.name.split("/")[1].partition("-")[0].removesuffix(".py")
        )
    lesser.pop(None, None)
    lacking = [isa for isa in known_isas() if isa not in usable]
    lines = [f"instruction sets: kernels, whole models and devices by {', '.join(usable)}; all else by {best}"]
    lines += [f"    {', '.join(sorted(rooms))} again by {isa}" for isa, rooms in sorted(lesser.items())]
    lines += [f"    not covered, for this machine lacks them: {', '.join(lacking)}"] if lacking else []
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------- running


def known_times():
    try:
        return json.loads(TIMES.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def longest_first(jobs, fuzz_seconds):
    """So that no core is idle while another one ends a long job that was begun last."""
    known = known_times()

    def expected(job):
        guess = next(seconds for name, seconds in GUESSES if job.name.startswith(name))
        return known.get(job.name, fuzz_seconds if job.name.startswith("fuzz/") else guess)

    return sorted(jobs, key=expected, reverse=True)


def run(job, stopped, seconds):
    """Runs one job; returns its counts, and notes its time. Its output goes to its log, and to the terminal where it failed."""
    if stopped.is_set():
        return Counts(failed=1)
    shutil.rmtree(job.folder, ignore_errors=True)
    (job.folder / "corpus").mkdir(parents=True)
    began = time.monotonic()
    try:
        with job.log.open("wb") as log:
            process = subprocess.Popen(
                [str(word) for word in job.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, **ENVIRONMENT, **job.environment},
                start_new_session=True,
            )
            status, job.used = wait(process, job.log, stopped)
    except OSError as error:
        job.log.write_text(f"cannot run: {error}\n")
        status = 127
    output = job.log.read_text(encoding="utf-8", errors="replace")
    counts = job.count(job, status, output)
    seconds[job.name] = round(time.monotonic() - began, 1)
    line = f"{job.name:36} {counts}  ({seconds[job.name]} s, of the processor {job.used:.1f} s)"
    if counts.failed:
        line += (
            f"\n--- exit status {status}; the end of {job.log.relative_to(ROOT)}:\n" + output[-6000:].rstrip() + "\n---"
        )
    elif not job.name.startswith("fuzz/"):
        shutil.rmtree(job.folder, ignore_errors=True)
    print(line, flush=True)
    return counts


def wait(process, log, stopped):
    """Its exit status, and the processor time that it took with what it started, in seconds."""
    written, ends, killed = 0, time.monotonic() + TIME_LIMIT, False
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return 124 if killed else process.returncode, usage.ru_utime + usage.ru_stime
        if log.stat().st_size > written:
            written, ends = log.stat().st_size, time.monotonic() + TIME_LIMIT
        if not killed and (stopped.is_set() or time.monotonic() > ends):
            os.killpg(process.pid, signal.SIGKILL)
            killed = True
        time.sleep(0.05)


def where_it_went(jobs):
    """The processor time of each build's tests, the most first."""
    each = {}
    for job in jobs:
        variant = job.name.split("/")[0]
        each[variant] = each.get(variant, 0) + job.used
    most = ", ".join(f"{variant} {each[variant]:.0f}" for variant in sorted(each, key=each.get, reverse=True))
    return f"processor time: {sum(each.values()):.0f} s ({most})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=[*PARTS, *THOROUGH_PARTS, "all"])
    parser.add_argument("--thorough", action="store_true")
    parser.add_argument("--room")
    parser.add_argument("--fuzz-seconds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=1 + len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    parts = set(options.parts)
    if "all" in parts:
        parts = {*PARTS, *(THOROUGH_PARTS if options.thorough else ())}

    LOGS.mkdir(parents=True, exist_ok=True)
    ENVIRONMENT["YALM_THOROUGH"] = "1" if options.thorough else ""
    jobs, counts = plan(parts, options.fuzz_seconds, options.thorough)
    jobs = [job for job in jobs if not options.room or tests_room(job, options.room)]
    if not jobs:
        parser.error(f"room {options.room}: found no test of it; rooms are the folders of src/ and of tests/")
    jobs, seconds = longest_first(jobs, options.fuzz_seconds), known_times()
    stopped = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        try:
            for result in pool.map(lambda job: run(job, stopped, seconds), jobs):
                counts += result
        except KeyboardInterrupt:
            stopped.set()
            return 130
    TIMES.write_text(json.dumps(seconds, indent=1, sort_keys=True), encoding="utf-8")
    print(where_it_went(jobs))
    print(coverage(jobs))
    print(counts, flush=True)
    return 1 if counts.failed or not counts.passed else 0


if __name__ == "__main__":
    sys.exit(main())
