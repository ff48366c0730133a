"""Hybrid attention on the GPU from the command line: what it says of its memory, what it refuses."""

from __future__ import annotations

import re
import subprocess

import pytest
from harness import BUILD, ROOT, VARIANT, built

pytestmark = pytest.mark.skipif(VARIANT != "emulated", reason="of the emulated GPU")


@pytest.fixture(scope="module")
def books(fable, tmp_path_factory):
    """Codebooks."""
    folder = tmp_path_factory.mktemp("hybrid")
    heldout = (ROOT / "models/fable-4m/heldout.txt").read_text(encoding="utf-8")
    (folder / "learned.txt").write_text(heldout[100000:130000], encoding="utf-8")
    run(fable, "-m", "calibrate", "-f", folder / "learned.txt", "-o", folder / "a.nomad")
    return folder


def run(model, *words, code=0):
    done = subprocess.run([built(BUILD / "yalm"), model, *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done.stderr
    return done


def test_memory_is_said_and_codebooks_are_needed(fable, books):
    words = (
        "-i",
        "Once",
        "-n",
        "2",
        "--temp",
        "0",
        "-d",
        "cuda",
        "--attention",
        "hybrid",
        "--ctx",
        "256",
        "--set",
        "machine.chunk=1",
    )
    done = run(fable, *words, "--codebooks", books / "a.nomad")
    # 4 layers and 2 KV heads of 64 components: codes of 256 slots, half a byte each, and codebooks (floats, bytes, ranges).
    kept = 8 * (256 * 64 // 2 + 64 * 16 * 4 + 64 * 16 + 64 * 8)
    found = re.search(r"hybrid (?:attention )?([\d.]+) KB", done.stderr)
    assert found and abs(float(found[1]) * 1e3 / kept - 1) < 0.02, done.stderr
    done = run(fable, *words, "--codebooks", books / "b.nomad", code=1)
    assert "b.nomad: No such file or directory; `yalm MODEL -m calibrate -f TEXT`" in done.stderr
