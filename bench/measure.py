"""Runs the engine's own measurement, and sums up what it says. Each run measures the machine's limits in the same
process, so a fraction of the limit survives a machine whose speed changes. Rounds alternate between the cases, and
medians are taken over them."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from models import BenchError

MODEL_KEYS = ("n_prompt", "n_gen", "n_depth", "n_threads")


def busy_seconds():
    """(of all processors so far, by everybody and by the hypervisor; of ours, by the processes that we waited for)."""
    user, nice, system, _, _, irq, softirq, stolen = map(int, read_text("/proc/stat").split()[1:9])
    mine = resource.getrusage(resource.RUSAGE_CHILDREN)
    everybody = (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")
    return everybody, mine.ru_utime + mine.ru_stime


def throughput(yalm, model, prompt=0, generate=0, depth=0, repetitions=1, threads=0, options=()):
    """Rows of `-m throughput -o json`, each with the share of the processors that others had meanwhile. Lengths and
    depths are numbers or lists of them; threads 0 is the default."""

    def text(value):
        return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

    command = [str(yalm), str(model), "-m", "throughput", "-o", "json", "-q", "-p", text(prompt), "-n", text(generate)]
    command += ["--depth", text(depth), "--set", "throughput.fill=random", "-r", str(repetitions), *options]
    if threads:
        command += ["--threads", str(threads)]
    everybody, mine, start = *busy_seconds(), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"{Path(yalm).name} exits with {done.returncode}"]
        raise BenchError(lines[-1])
    others = (busy_seconds()[0] - everybody) - (busy_seconds()[1] - mine)
    share = max(0, others) / (time.monotonic() - start) / os.cpu_count()
    return [{**row, "others": share} for row in json.loads(done.stdout)]


def case_name(row):
    name = f"tg{row['n_gen']}" if row["n_gen"] else f"pp{row['n_prompt']}"
    return name + (f" @ d{row['n_depth']}" if row["n_depth"] else "")


def samples(rows, key):
    """All samples of rows of one case: rates (tok/s), or fractions of what each row's own process measured."""
    if key == "rate":
        return [rate for row in rows for rate in row["samples_ts"]]
    return [row[key] * rate / row["avg_ts"] for row in rows for rate in row["samples_ts"]]


def fraction_of_reads(rows):
    """Decode beside plain reading between the repetitions, the median. None where nothing was read: prefill, a GPU,
    too little memory."""
    if any(row.get("fraction_of_reads_between") is None for row in rows):
        return None
    return statistics.median(samples(rows, "fraction_of_reads_between"))


def summary(rows, **names):
    """One record of several runs of the same case."""
    first = rows[0]
    decode = first["n_gen"] > 0
    rates, fractions = samples(rows, "rate"), samples(rows, "fraction_of_limit")
    n_tokens = first["n_gen"] or first["n_prompt"]
    unit = "gb_per_s" if decode else "gop_per_s"
    return {
        **names,
        "case": case_name(first),
        **{key: first[key] for key in MODEL_KEYS},
        "isa": first["isa"],
        "model_size": first["model_size"],
        "tokens_per_s": statistics.median(rates),
        "best_tokens_per_s": max(rates),
        "lowest_tokens_per_s": min(rates),
        "amount_per_token": first[unit] * first["avg_ns"] / n_tokens,  # bytes or operations
        "limit": statistics.median(row["limit_" + unit] for row in rows),  # GB/s or GOP/s
        "unit": "GB/s" if decode else "GOP/s",
        "achieved": statistics.median(rates) * first[unit] / first["avg_ts"],
        "fraction": statistics.median(fractions),
        "fraction_of_reads": fraction_of_reads(rows),
        "best_fraction": max(fractions),
        "others": max(row["others"] for row in rows),
        "n_samples": len(rates),
        "rows": rows,
    }


def alternate(cases, rounds, label):
    """Runs each case's function once in every round: {name: rows of all rounds}."""
    found = {name: [] for name in cases}
    for i in range(rounds):
        for name, run in cases.items():
            print(f"bench: {label}, {name}, round {i + 1} of {rounds}", file=sys.stderr)
            found[name] += run()
    return found


def stop_politely():
    """A request to end is an interrupt: what was made is removed."""

    def interrupt(number, frame):
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


@contextlib.contextmanager
def busy_process():
    """A process that does nothing but compute, pinned to the first of the cores that we may use; yields that core's number."""
    core = min(os.sched_getaffinity(0))
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"],
        stdout=subprocess.PIPE,
    )
    try:
        process.stdout.readline()
        yield core
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def read_text(path):
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def machine():
    """What the figures were measured on."""
    cpuinfo = read_text("/proc/cpuinfo")
    name = re.search(r"^model name\s*: (.*)$", cpuinfo, re.MULTILINE)
    caches = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (read_text(index / part) for part in ("level", "type", "size"))
        caches.append(f"L{level} {kind.lower()} {size}")
    memory = re.search(r"^MemTotal:\s+(\d+)", read_text("/proc/meminfo"), re.MULTILINE)
    flags = re.search(r"^flags\s*: (.*)$", cpuinfo, re.MULTILINE)
    interesting = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8")
    return {
        "cpu": name[1] if name else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "features": [flag for flag in interesting if flags and flag in flags[1].split()],
        "caches": caches,
        "memory_gib": round(int(memory[1]) / 2**20, 1) if memory else None,
        "kernel": platform.release(),
        "load": os.getloadavg()[0],
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def result_name(facts):
    words = re.findall(r"[a-z0-9]+", facts["cpu"].lower())
    date = re.sub(r"[^0-9T]", "", facts["date"][:19])
    return f"{'-'.join(words)}-{facts['cores']}-{date}"
