"""Layout: clang-format, ruff, and lines of at most 128 columns. `make lint` adds clang-tidy, which takes longer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT

COLUMNS = 128
C_FILES = (".c", ".h", ".cc", ".cu", ".cuh")
OTHERS = (".py", ".sh", ".mk")

# Lines over 128 columns that are still there. A limit may only fall; a room without one has none.
LONG_LINES = {
    "models/fable-4m": 8,  # these scripts stay as they were when they made the model
    "src/cli": 1,
    "tests/cuda": 47,
}

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout")


def run(*command):
    return subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True)


def tracked():
    return [name for name in run("git", "ls-files").stdout.splitlines() if (ROOT / name).is_file()]


def is_source(name):
    path = ROOT / name
    return path.suffix in C_FILES + OTHERS or path.name == "Makefile" or path.read_bytes()[:2] == b"#!"


def room_of(name):
    """The limit that counts a file: that of its longest folder."""
    return max((room for room in LONG_LINES if (name + "/").startswith(room + "/")), key=len, default=name)


def test_no_line_is_longer_than_128_columns():
    found = {}
    for name in filter(is_source, tracked()):
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > COLUMNS:
                found.setdefault(room_of(name), []).append(f"{name}:{number}")
    excess = {room: lines for room, lines in found.items() if len(lines) > LONG_LINES.get(room, 0)}
    assert excess == {}, "lines over 128 columns, by room"


def test_c_is_formatted():
    # Beside this Python, of a pinned version: each lays out a little else.
    done = run(
        Path(sys.executable).parent / "clang-format",
        "--dry-run",
        *filter(lambda name: Path(name).suffix in C_FILES, tracked()),
    )
    assert (done.returncode, re.findall(r"^.*: warning: .*$", done.stderr, flags=re.M)) == (0, [])


@pytest.mark.parametrize("command", [("check", "-q"), ("format", "--check", "-q")], ids=lambda command: command[0])
def test_python_is_as_ruff_wants_it(command):
    done = run(sys.executable, "-m", "ruff", *command)
    assert (done.returncode, done.stdout) == (0, "")
