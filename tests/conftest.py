"""What the Python tests share: the programs under test, and models converted once for each run.

YALM_VARIANT names the build: release (default), or a sanitizer's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
VARIANT = os.environ.get("YALM_VARIANT", "release")
BUILD = ROOT / "build" / VARIANT
SHARED = ROOT.parent / "shared"


def built(path):
    if not path.exists():
        pytest.fail(f"{path.relative_to(ROOT)} is missing: run `make test`, or build it first", pytrace=False)
    return path


@pytest.fixture(scope="session")
def variant():
    return VARIANT


@pytest.fixture(scope="session")
def yalm():
    """Path of the command line program."""
    return built(ROOT / "yalm" if VARIANT == "release" else BUILD / "yalm")


@pytest.fixture(scope="session")
def isas():
    """Instruction sets that this machine can run."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    flags = set(flags.partition("\nflags")[2].partition("\n")[0].split())
    needs = {"avx2": {"avx2", "fma", "f16c"}, "avx512": {"avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl"}}
    return ["scalar", *(isa for isa, need in needs.items() if need <= flags)]


def convert_directory(source, out, *options):
    """Runs the converter as a user would; fails the test with its message where it fails."""
    command = [sys.executable, str(ROOT / "tools/convert.py"), str(source), str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        pytest.fail(f"convert.py {source} exits with {done.returncode}: {done.stderr.strip()}", pytrace=False)
    return out


@pytest.fixture(scope="session")
def fable(tmp_path_factory):
    """The bundled model, converted."""
    return convert_directory(ROOT / "models/fable-4m", tmp_path_factory.mktemp("fable") / "fable-4m.bin")


@pytest.fixture(scope="session")
def shared():
    """Real vocabularies and texts that lie beside some checkouts."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not there")
    return SHARED
