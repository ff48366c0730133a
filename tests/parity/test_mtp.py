"""MTP heads against torch (tests/golden/mtp): the first guess's logits, and the guesses behind it, however the text came."""

from __future__ import annotations

import cases
import mtp_cases
import numpy as np
import pytest
from harness import BUILD, VARIANT, built, convert_directory
from test_parity import EXACT, drive, reference

RUNS = {
    "one by one": {"chunk": 1},
    "a few at once": {"chunk": 7},
    "pieces of a prompt": {"chunk": 23, "inner": 20},  # which the head reads at once
    "room for one": {"chunk": 1, "inner": 1},
    "back and on": {"chunk": 5, "back": 33},
}


@pytest.fixture(scope="module")
def driver():
    return built(BUILD / "tests/parity/driver")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("mtp"), {}

    def get(name, dtype=None):
        if (name, dtype) not in made:
            case = mtp_cases.CASES[name]
            source = cases.write_model(case, folder / f"{name}{dtype}")
            golden = np.load(mtp_cases.GOLDEN / f"{name}.npz")
            assert cases.weights_digest(source) == str(golden["weights"]), "the generator's weights are others"
            cases.token_ids(case).tofile(folder / f"{name}.ids")
            more = ("--dtype", dtype) if dtype else ()
            made[name, dtype] = convert_directory(source, folder / f"{name}{dtype}.bin", *more), folder / f"{name}.ids"
        return made[name, dtype]

    return get


def guesses(driver, paths, out, vocab, **options):
    done = drive(driver, *paths, out, guess=mtp_cases.GUESSES, threads=2, **options)
    assert done.returncode == 0, f"{options}: {done.stderr}"
    row = np.dtype([("position", "<i4"), ("guesses", "<i4", mtp_cases.GUESSES), ("logits", "<f4", vocab)])
    return np.fromfile(out, row)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", mtp_cases.CASES)
def test_guesses_equal_torch(driver, models, tmp_path, name, run):
    case, golden = mtp_cases.CASES[name], np.load(mtp_cases.GOLDEN / f"{name}.npz")
    isas = ["scalar", "auto"] if VARIANT == "release" and run == "one by one" else ["auto"]
    for isa in isas:
        found = guesses(driver, models(name), tmp_path / "out", case.vocab, kv="fp32", isa=isa, **RUNS[run])
        at = found["position"] - 1
        step = RUNS[run]["chunk"]
        assert len(at) >= (case.n_tokens - 1) // step - 1 and np.isfinite(found["logits"]).all()
        spread = golden["high"][at] - golden["low"][at]
        some = np.take_along_axis(found["logits"], cases.stored_ids(case)[at], 1)
        off = np.abs(some - golden["some"][at]).max(-1) / spread
        off = np.maximum(off, np.abs(found["logits"].max(-1) - golden["high"][at]) / spread)
        assert off.max() <= EXACT, (isa, off.max())
        sure = np.cumprod(golden["lead"][at] > 2 * EXACT, 1).astype(bool)
        assert sure.mean() > 0.8 and (found["guesses"] == golden["guesses"][at])[sure].all(), isa


def test_quantised(driver, models, tmp_path):
    """The head has --dtype's types, and guesses much the same."""
    name = "mtp-qwen3_5"
    case, golden = mtp_cases.CASES[name], np.load(mtp_cases.GOLDEN / f"{name}.npz")
    found = guesses(driver, models(name, "q8"), tmp_path / "out", case.vocab, chunk=1)
    at = found["position"] - 1
    off = np.abs(np.take_along_axis(found["logits"], cases.stored_ids(case)[at], 1) - golden["some"][at]).max(-1)
    assert 0 < (off / (golden["high"][at] - golden["low"][at])).max() < 0.2


def test_the_trained_heads_guesses_come_true(driver, models, tmp_path):
    """Behind each token of greedy texts: of first guesses more than half are what the model itself writes."""
    model, _ = models("bundled-hybrid")
    right = guessed = 0
    for prompt in [each["prompt_ids"] for each in reference("greedy.json")["prompts"]]:  # fable-4m's, of one tokenizer
        np.array(prompt, np.int32).tofile(tmp_path / "ids")
        assert drive(driver, model, tmp_path / "ids", tmp_path / "text", greedy=100, kv="fp32").returncode == 0
        text = np.concatenate([prompt, np.fromfile(tmp_path / "text", np.int32)]).astype(np.int32)
        text.tofile(tmp_path / "ids")
        rows = guesses(driver, (model, tmp_path / "ids"), tmp_path / "out", 4096, chunk=1, kv="fp32")
        rows = rows[(rows["position"] >= len(prompt)) & (rows["position"] < len(text) - 1)]
        right += (rows["guesses"][:, 0] == text[rows["position"] + 1]).sum()
        guessed += len(rows)
    assert guessed > 350 and right > guessed / 2, (right, guessed)


def test_a_model_without_a_head(driver, tmp_path):
    case = cases.CASES["tiny-llama"]
    model = convert_directory(cases.write_model(case, tmp_path / "hf"), tmp_path / "model.bin")
    cases.token_ids(case).tofile(tmp_path / "ids")
    done = drive(driver, model, tmp_path / "ids", tmp_path / "out", guess=1)
    assert done.returncode == 2 and "has no MTP head" in done.stderr


def test_golden_files_cover_the_cases():
    assert {path.stem for path in mtp_cases.GOLDEN.glob("*.npz")} == set(mtp_cases.CASES)
