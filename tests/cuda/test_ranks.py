"""One model on several ranks with an emulated GPU each, which meet through a stand-in for NCCL (emulator/nccl): what one GPU computes, what is refused, and what
happens when a rank is lost. The ranks are threads of one program (compare_ranks.c); tests/mpi has processes."""

from __future__ import annotations

import os
import subprocess

import pytest
from harness import BUILD, THOROUGH, VARIANT, built

pytestmark = pytest.mark.skipif(VARIANT != "emulated", reason="of the emulated GPU")
EXACT = 1e-5  # of the logits' range: sums in another order
# Products of many tokens round their inputs to 16 bits, and quantised weights: as test_devices.py has it.
ROUNDED = {"fp16": 2e-3, "bf16": 2e-3, "fp8": 4e-3, "q8": 4e-3, "q4": 4e-3, "q6": 4e-3}
KINDS = ["tied", "biases", "head-norms", "norms-after", "sink-logits", "two-kinds", "whole-norms", "norms-around"]
KINDS += ["layer-norm", "alibi", "groups"]
RUNS = [(2, ["whole-norms", "layer-norm", "q4"]), (3, ["norms-around", "experts", "shared-expert", "fp16"])]
if THOROUGH:
    RUNS = [(n, [*KINDS, "experts", "shared-expert", "fp32", *ROUNDED]) for n in (2, 3)]


def ranks(*words, **environment):
    program = built(BUILD / "tests/cuda/compare_ranks")
    library = {"YALM_CUDA_LIBRARY": str(BUILD / "libyalm-cuda.so")}
    command = [program, *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, **library, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("n, models", RUNS)
def test_logits_and_draws_are_those_of_one_gpu(n, models):
    found = [line.split() for line in ranks(n, *models)]
    assert [name for name, *_ in found] == models
    for name, difference, differ in found:
        assert float(difference) <= ROUNDED.get(name, EXACT), name
        assert int(differ) == 0, name


@pytest.mark.parametrize("rank", [1, 2])
def test_lost_rank_is_named_by_all(rank):
    said = [line.split(maxsplit=2) for line in ranks("lost", rank)]
    assert [who for who, *_ in said] == ["0", "0", str(3 - rank)]
    assert all(text.startswith(f"rank {rank} (here) has not answered for 0.8 seconds") for *_, text in said)
    assert float(said[0][1]) < 1.6 and float(said[1][1]) < 0.2  # twice its patience; and from then on at once


REFUSED = [
    ({"YALM_EMULATED_DEVICES": "2"}, "rank 2 (here): device cuda: no GPU of its own: 3 ranks run on this host"),
    ({"YALM_NCCL_LIBRARY": "nowhere.so"}, "device cuda: several ranks need NCCL, and the loader finds no nowhere.so"),
    ({"YALM_EMULATED_NCCL": "21000"}, "is of NCCL 2.10, 2.14 or later is needed"),
]


@pytest.mark.parametrize("environment, text", REFUSED, ids=[text for _, text in REFUSED])
def test_refusals(environment, text):
    (line,) = ranks("open", **environment)
    assert line.startswith("1 ") and text in line


def test_fp16_sums_are_refused():
    (line,) = ranks("fp16")
    assert line.startswith("2 wire: found fp16, expected fp32")
