"""Methods for long contexts where layers differ: a GPU attends to the CPU's keys in those that see the farthest."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import cases
import numpy as np
import pytest
from harness import BUILD, HANG, ROOT, VARIANT, built, convert_directory

EMULATED = VARIANT == "emulated"
pytestmark = pytest.mark.skipif(
    not EMULATED and (VARIANT != "release" or not Path("/dev/nvidiactl").exists()),
    reason="no GPU, and not the emulated build",
)
SPARQ = "--attention sparq --set sparq.from=1 --set sparq.k=12 --set sparq.copy=fp16".split()


@pytest.mark.parametrize("name", ["tiny-olmo3", "tiny-qwen3_5"])
def test_keys_are_those_of_the_cpu(tmp_path, name):
    case = cases.CASES[name]
    model = convert_directory(cases.write_model(case, tmp_path / "source"), tmp_path / "model.bin", "--dtype", "fp32")
    vocab = case.config["vocab_size"]
    tokens = np.random.default_rng(3).integers(3, vocab, 60)
    (tmp_path / "ids").write_text(" ".join(map(str, tokens)), encoding="utf-8")
    environment = {**os.environ, "YALM_CUDA_LIBRARY": str(built((BUILD if EMULATED else ROOT) / "libyalm-cuda.so"))}
    command = [built(BUILD / "yalm"), model, "-m", "perplexity", "--tokens", tmp_path / "ids", "--kv", "fp32", "-q"]
    command += ["--set", "perplexity.decode_from=48", "--save-logits", tmp_path / "logits"]

    def logits(*more):
        subprocess.run([*command, *more], env=environment, check=True, capture_output=True, timeout=HANG)
        return np.fromfile(tmp_path / "logits", np.float32).reshape(-1, vocab)

    cpu, gpu, dense = logits("-d", "cpu", *SPARQ), logits("-d", "cuda", *SPARQ), logits("-d", "cuda")
    extent = cpu.max() - cpu.min()
    assert np.abs(cpu - gpu).max() <= 1e-5 * extent
    assert np.abs(dense - gpu).max() > 1e-2 * extent  # most keys were left out
