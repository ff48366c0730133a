"""Vectors of texts against Hugging Face transformers' float32 (tests/golden/embed), from text to vector, on each instruction
set, alone and together."""

from __future__ import annotations

import io
import subprocess

import embed_cases
import numpy as np
import pytest
from harness import convert_directory
from test_parity import ISAS

CASES = embed_cases.make_cases()
VECTORS = [name for name, case in CASES.items() if case.pooling]
EXACT = 2e-6  # 1 - cosine, with float32 activations and cache
TEXT = "".join(f"{text}\n" for text in embed_cases.TEXTS)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("embed"), {}

    def get(name):
        if name not in made:
            directory = embed_cases.write(CASES[name], folder / name)
            made[name] = convert_directory(directory, folder / f"{name}.bin")
        return made[name], np.load(embed_cases.GOLDEN / f"{name}.npz")

    return get


def embed(yalm, model, *options, isa=None):
    command = [yalm, model, "-m", "embed", "-q", "-o", "npy", *options]
    done = subprocess.run(command, input=TEXT.encode(), capture_output=True, timeout=600, env=environment(isa))
    return done


def environment(isa):
    import os

    return os.environ | ({"YALM_ISA": isa} if isa else {})


@pytest.mark.parametrize("name", VECTORS)
def test_tokens(yalm, models, name):
    model, golden = models(name)
    first = 0
    for text, end in zip(embed_cases.TEXTS, golden["ends"]):
        done = subprocess.run([yalm, model, "-m", "tokenize", "-f", "-"], input=text.encode(), capture_output=True)
        expected = golden["ids"][first : end - 1].tolist()  # [SEP] is for vectors alone
        assert list(map(int, done.stdout.split())) == expected, text
        first = end


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", VECTORS)
def test_vectors(yalm, models, name, isa):
    model, golden = models(name)
    done = embed(yalm, model, "--activations", "fp32", "--kv", "fp32", isa=isa)
    if b"this machine has" in done.stderr:
        pytest.skip(f"this machine lacks {isa}")
    assert done.returncode == 0, done.stderr
    vectors = np.load(io.BytesIO(done.stdout))
    cosine = (vectors.astype(np.float64) * golden["out"]).sum(1)
    assert (1 - cosine).max() < EXACT, cosine


@pytest.mark.parametrize("name", VECTORS)
def test_alone_or_together(yalm, models, name):
    model, golden = models(name)
    whole = np.load(io.BytesIO(embed(yalm, model).stdout))
    assert (1 - (whole * golden["out"]).sum(1)).max() < 1e-3  # by 16-bit integers, and with keys and values of 11 bits
    lengths = np.diff(golden["ends"], prepend=0)
    longest = int(lengths.max())
    for chunk in (longest, longest + 6):  # the longest text alone, and others in groups
        pieces = np.load(io.BytesIO(embed(yalm, model, "--set", f"machine.chunk={chunk}").stdout))
        assert np.abs(pieces - whole).max() < 1e-3
    done = embed(yalm, model, "--set", f"machine.chunk={longest - 1}")
    said = f"line {int(lengths.argmax()) + 1}: cut to {longest - 2} tokens (machine.chunk takes more)"
    assert done.returncode == 0 and said in done.stderr.decode(), done.stderr
    cut = np.abs(np.load(io.BytesIO(done.stdout)) - whole).max(1)
    assert (cut > 1e-3).sum() <= 1 and cut.argmax() == lengths.argmax()


@pytest.mark.parametrize(
    "name, most", [("bert-mean", embed_cases.POSITIONS), ("xlmr-first", 2 * embed_cases.POSITIONS)]
)
def test_no_further_than_the_rows_of_positions(yalm, models, name, most):
    def fails(text, *options):
        done = subprocess.run([yalm, model, "-m", "embed", "-q", *options], input=text.encode(), capture_output=True)
        assert done.returncode == (2 if done.stderr else 0) and len(done.stderr.splitlines()) <= 1, done.stderr
        return done.stderr.decode()

    model, _ = models(name)
    assert f"found {most + 1}, expected 1 to {most}: the model has no rows" in fails("x", "-T", str(most + 1))
    assert not fails("x", "-T", str(most))

    def cut(*options):
        done = subprocess.run(
            [yalm, model, "-m", "embed", *options], input=b"x " * 400, capture_output=True, check=True
        )
        assert b"cut" in done.stderr
        return done.stdout

    assert cut("--set", "machine.chunk=800") == cut()
