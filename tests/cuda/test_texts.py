"""Vectors and scores of texts on a GPU beside the CPU's: models that read whole texts at once, and one that reads them as it
would go on with them. Without a GPU in the emulated build, as in test_devices.py, whose program compares them."""

from __future__ import annotations

import json
import os
import subprocess

import cases
import embed_cases
import numpy as np
import pytest
from harness import BUILD, ROOT, THOROUGH, built, convert_directory

from tests.cuda.test_devices import EMULATED, EXACT, MANY, has_gpu, kind_of

pytestmark = pytest.mark.skipif(not EMULATED and not has_gpu(), reason="no GPU, and not the emulated build")
CASES = embed_cases.make_cases()
CAUSAL = "tiny-qwen3"
FORMS = [("fp32", "fp32"), ("fp16", "fp16"), ("fp32", "int8"), ("q8", "fp16")]
# Each model once, its types and caches by turns: types of tokens and rows of positions; windows to both sides; rotation and
# gates; each token before those behind it.
RUNS = [
    ("bert-score", "fp32", "fp32"), ("gemma3-mean", "fp32", "fp32"), ("modern-first", "fp32", "int8"),
    ("modern-score", "fp16", "fp16"), ("nomic-mean", "q8", "fp16"), ("xlmr-first", "fp32", "fp32"), (CAUSAL, "fp32", "fp32"),
]  # fmt: skip
if THOROUGH or not EMULATED:
    RUNS = [(name, *form) for name in (*CASES, CAUSAL) for form in FORMS]


def write_causal(folder):
    """As sentence-transformers keeps Qwen3-Embedding."""
    cases.write_model(cases.CASES[CAUSAL], folder)
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [{"path": f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_lasttoken": True}))
    return folder


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("texts"), {}

    def get(name):
        if name not in made:
            case = CASES.get(name)
            made[name] = (
                embed_cases.write(case, folder / name) if case else write_causal(folder / name),
                (case or cases.CASES[name]).config["vocab_size"],
            )
        return made[name]

    return get


@pytest.mark.parametrize("name, dtype, kv", RUNS, ids=lambda value: str(value))
def test_texts_are_the_cpus(sources, tmp_path, name, dtype, kv):
    source, vocab = sources(name)
    model = convert_directory(source, tmp_path / "model.bin", "--dtype", dtype)
    np.random.default_rng(5).integers(5, vocab, 120, dtype=np.int32).tofile(tmp_path / "ids")
    library = built(BUILD / "libyalm-cuda.so" if EMULATED else ROOT / "libyalm-cuda.so")
    done = subprocess.run(
        [built(BUILD / "tests/cuda/compare_devices"), model, tmp_path / "ids", f"kv={kv}", "texts"],
        capture_output=True, text=True, timeout=900, env={**os.environ, "YALM_CUDA_LIBRARY": str(library)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {line.split()[0]: tuple(map(float, line.split()[1:])) for line in done.stdout.splitlines()}
    bound = EXACT if dtype == kv == "fp32" else MANY[kind_of(dtype, kv)][0]
    assert set(found) == {"together", "batches", "alone"}
    for distance, _, rows in found.values():
        assert rows > 0 and distance <= bound, found
