"""Where the programs under test are, and how a test converts a model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
VARIANT = os.environ.get("YALM_VARIANT", "release")
# `make test` leaves out what `make test-all` runs besides; a test that is called by hand runs whole.
THOROUGH = os.environ.get("YALM_THOROUGH", "1") == "1"
BUILD = ROOT / "build" / VARIANT
SHARED = ROOT.parent / "shared"


def built(path):
    if not path.exists():
        pytest.fail(f"{path.relative_to(ROOT)} is missing: `make test` builds it", pytrace=False)
    return path


def convert_directory(source, out, *options):
    """Runs the converter as a user would; fails the test with its message where it fails."""
    if "--calibration" not in options:
        options = (*options, "--calibration", "none")
    command = [sys.executable, str(ROOT / "tools/convert.py"), str(source), str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        pytest.fail(f"convert.py {source} exits with {done.returncode}: {done.stderr.strip()}", pytrace=False)
    return out
