"""One token's products as GPUs with much shared memory run them: blocks of 16 warps (matvec.cuh). The emulator's GPU has little, unless told otherwise."""

from __future__ import annotations

import os
import subprocess

import pytest
from harness import BUILD, VARIANT, built

pytestmark = pytest.mark.skipif(not VARIANT.startswith("emulated"), reason="of the emulated GPU")


@pytest.mark.parametrize("program", ["test_matvec", "test_several", "test_quant", "test_experts"])
def test_products_of_large_blocks(program):
    environment = {**os.environ, "YALM_EMULATED_CAPABILITY": "9.0"}
    done = subprocess.run(
        [built(BUILD / "tests/cuda" / program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
