"""GGUF's numbers on the GPU, emulated or not: it multiplies them as fp16, so a file that keeps them gives the logits of
one whose matrices the converter has made fp16."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import BUILD, HANG, ROOT, VARIANT, built, convert_directory

sys.path.insert(0, str(ROOT / "tests/tools"))

from test_gguf import EXACT, model, one_matrix  # noqa: F401

EMULATED = VARIANT == "emulated"
pytestmark = pytest.mark.skipif(
    not EMULATED and (VARIANT != "release" or not Path("/dev/nvidiactl").exists()),
    reason="no GPU, and not the emulated build",
)


@pytest.mark.parametrize("kind", [kind for kind, dtype in EXACT.items() if dtype not in ("q8", "q4")])
def test_logits_are_those_of_fp16(kind, one_matrix, yalm, tmp_path):  # noqa: F811
    source, _ = one_matrix(kind)
    ids = tmp_path / "ids.txt"
    ids.write_text(" ".join(str(7 * i % 251) for i in range(20)), encoding="ascii")
    environment = {**os.environ, "YALM_CUDA_LIBRARY": str(built((BUILD if EMULATED else ROOT) / "libyalm-cuda.so"))}
    hashes = []
    for options in ((), ("--keep", "layers.1.down=fp16")):
        file = convert_directory(source, tmp_path / f"{len(options)}.bin", *options)
        done = subprocess.run(
            [yalm, file, "-d", "cuda", "--tokens", ids, "-n", "2", "--temp", "0", "--speculate", "off"],
            env=environment, capture_output=True, text=True, timeout=HANG, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        hashes += re.findall(r"last logits: (\w+)", done.stderr)
    assert len(hashes) == 2 and hashes[0] == hashes[1]
