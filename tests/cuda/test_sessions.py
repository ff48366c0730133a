"""The engine's tests of tokens that are evaluated ahead, and of sessions that are evaluated together, on the emulated GPU."""

from __future__ import annotations

import os
import subprocess

import pytest
from harness import BUILD, VARIANT, built

pytestmark = pytest.mark.skipif(VARIANT != "emulated", reason="of the emulated GPU")


@pytest.mark.parametrize("program", ["test_ahead", "test_together"])
def test_bits_are_those_of_one_alone(program):
    environment = {**os.environ, "YALM_CUDA_LIBRARY": str(built(BUILD / "libyalm-cuda.so"))}
    done = subprocess.run(
        [built(BUILD / "tests/engine" / program), "cuda"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
