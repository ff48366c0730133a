"""Models with bf12 weights beside the same with bf16 weights, which are the same numbers."""

import os

import numpy as np
import pytest
from harness import ROOT, convert_directory

TEXT = ("-m", "perplexity", "-f", ROOT / "models/fable-4m/heldout.txt", "--ctx", 64, "--max-tokens", 64)


@pytest.fixture(scope="module")
def models(program, tmp_path_factory):
    def convert(dtype):
        path = tmp_path_factory.mktemp(dtype) / "model.bin"
        return type(program)(program.binary, convert_directory(ROOT / "models/fable-4m", path, "--dtype", dtype))

    return convert("bf16"), convert("bf12")


@pytest.fixture(params=["scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "amx"])
def isa(request, isas):
    if request.param not in isas:
        pytest.skip(f"no {request.param} here")
    return request.param


def logits(model, path, *options):
    model.ok(*TEXT, "--save-logits", path, *options)
    return path.read_bytes()


@pytest.mark.parametrize("chunk", [16, 64])
def test_prompts_give_the_same_bits(models, isa, chunk, tmp_path):
    options = ("--set", f"machine.isa={isa}", "--set", f"machine.chunk={chunk}")
    bf16, bf12 = (logits(model, tmp_path / "logits", *options) for model in models)
    assert bf16 == bf12


def test_float32_prompts_too(models, isa, tmp_path):
    options = ("--set", f"machine.isa={isa}", "--activations", "fp32")
    if isa == "amx":
        pytest.skip("amx has no float32 products of many tokens")
    bf16, bf12 = (logits(model, tmp_path / "logits", *options) for model in models)
    assert bf16 == bf12


@pytest.mark.parametrize("chunk", [1, 5, 8])
def test_few_tokens_give_the_same_but_for_the_order_of_sums(models, isa, chunk, tmp_path):
    options = ("--set", f"machine.isa={isa}", "--set", f"machine.chunk={chunk}", "--kv", "fp32")
    found = [np.frombuffer(logits(model, tmp_path / "logits", *options), np.float32) for model in models]
    assert len(found[0]) > 0 and np.isfinite(found[1]).all()
    assert np.abs(found[0] - found[1]).max() <= 2e-5 * np.ptp(found[0])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_bits_with_any_number_of_threads(models, threads, tmp_path):
    first = logits(models[1], tmp_path / "logits", "--threads", 1, "--set", "machine.chunk=2")
    assert logits(models[1], tmp_path / "logits", "--threads", threads, "--set", "machine.chunk=2") == first
    first = logits(models[1], tmp_path / "logits", "--threads", 1)
    assert logits(models[1], tmp_path / "logits", "--threads", threads) == first


def test_text_and_size(models):
    texts = [model.ok("-i", "Once upon a time", "-n", 40, "--temp", 0) for model in models]
    assert texts[0] == texts[1]
    listing = models[1].ok("-m", "info", "-v").decode()
    assert "bf12" in listing
    sizes = [os.stat(model.model).st_size for model in models]
    assert sizes[1] < 0.9 * sizes[0]
