"""The engine's tests of tokens ahead, sessions together, MTP heads, pages and states, on the GPU, emulated or not."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from harness import BUILD, HANG, ROOT, VARIANT, built, convert_directory

EMULATED = VARIANT == "emulated"
pytestmark = pytest.mark.skipif(
    not EMULATED and (VARIANT != "release" or not Path("/dev/nvidiactl").exists()),
    reason="no GPU, and not the emulated build",
)


@pytest.fixture(scope="module")
def environment():
    return {**os.environ, "YALM_CUDA_LIBRARY": str(built((BUILD if EMULATED else ROOT) / "libyalm-cuda.so"))}


@pytest.mark.parametrize("program", ["test_ahead", "test_mtp", "test_pages", "test_recurrent", "test_together"])
def test_bits_are_those_of_one_alone(environment, program):
    done = subprocess.run(
        [built(BUILD / "tests/engine" / program), "cuda"],
        env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not EMULATED, reason="a GPU may compute a token by one kernel where nothing is to be guessed")
@pytest.mark.parametrize("how", ["suffix", "mtp"])
def test_guesses_change_no_text(environment, yalm, fable, tmp_path, how):
    model = fable if how == "suffix" else convert_directory(ROOT / "models/hybrid-6m", tmp_path / "hybrid.bin")
    prompt = "Tom had a cat. Tom had a dog. Tom had a cat. Tom had a dog. Tom had" if how == "suffix" else "Tom had a"
    command = [yalm, model, "-d", "cuda", "-i", prompt, "-n", "6", "-T", "96", "--no-echo", "--seed", "3"]
    texts = []
    for guesses in ("off", how):
        done = subprocess.run(
            [*command, "--temp", "0", "--speculate", guesses],
            env=environment,
            capture_output=True,
            text=True,
            timeout=HANG,
            check=True,
        )
        texts.append(done.stdout)
    assert texts[0] == texts[1]
    assert int(re.search(r"speculation: \d+ of (\d+) guessed", done.stderr)[1]) > 0
