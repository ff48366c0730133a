"""Where the programs under test are, and how a test converts a model."""

from __future__ import annotations

import contextlib
import io
import os
import platform
import re
import signal
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
VARIANT = os.environ.get("YALM_VARIANT", "release")
# `make test` leaves out what `make test-all` runs besides; a test that is called by hand runs whole.
THOROUGH = os.environ.get("YALM_THOROUGH", "1") == "1"
BUILD = ROOT / "build" / VARIANT
SHARED = ROOT.parent / "shared"
HANG = 300  # seconds after which a test gives up: it ends what hangs, and is never what a test measures

sys.path.append(str(ROOT / "tools"))
import convert  # noqa: E402


def known_isas():
    """Instruction sets of this kind of processor, the best one last, and what the kernel calls what each needs."""
    if VARIANT == "arm64" or platform.machine() == "aarch64":
        return {"scalar": set(), "neon": set(), "neondot": {"asimddp"}, "neoni8mm": {"i8mm"}}
    avx2, avx512 = {"avx2", "fma", "f16c"}, {"avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl"}
    vnni = avx512 | {"avx512_vnni"}
    amx = vnni | {"avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"}
    return {
        "scalar": set(),
        "avx2": avx2,
        "avxvnni": avx2 | {"avx_vnni"},
        "avx512": avx512,
        "avx512vnni": vnni,
        "amx": amx,
    }


def usable_isas():
    """Those that this machine can run, or QEMU. YALM_ISA in the environment names the best one that may be used."""
    known = known_isas()
    if VARIANT == "arm64":
        return list(known)
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    flags = set(re.search(r"^(?:flags|Features)\s*:(.*)", cpu, re.M)[1].split())
    usable = [isa for isa, need in known.items() if need <= flags]
    return usable[: usable.index(os.environ["YALM_ISA"]) + 1] if "YALM_ISA" in os.environ else usable


def patience(seconds):
    """A limit for what must be done within `seconds` where nothing else runs: as many times that as work takes longer now."""
    began, worked = time.monotonic(), time.thread_time()
    while time.thread_time() - worked < 0.05:
        pass
    return seconds * max(1, (time.monotonic() - began) / 0.05) * 1.5


def wait_until(condition):
    """What condition() gives once that is true."""
    ends = time.monotonic() + HANG
    while not (found := condition()):
        assert time.monotonic() < ends, "it does not come to be"
        time.sleep(0.02)
    return found


def built(path):
    if not path.exists():
        pytest.fail(f"{path.relative_to(ROOT)} is missing: `make test` builds it", pytrace=False)
    return path


def convert_directory(source, out, *options):
    """What a user's convert.py does, in this process, which is faster; fails the test with its message where it fails."""
    if "--calibration" not in options:
        options = (*options, "--calibration", "none")
    argv, handlers = sys.argv, {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    sys.argv = ["convert.py", str(source), str(out), *options]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            status = convert.main()
    except SystemExit as end:
        status = end.code
    finally:
        sys.argv = argv
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if status != 0:
        pytest.fail(f"convert.py {source} exits with {status}: {said.getvalue().strip()}", pytrace=False)
    return out
