"""tools/convert.py with a calibration text: what it finds, what it leaves behind, and when it does without; the
weighted search."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
import types

import hf
import numpy as np
import pytest
from harness import BUILD, HANG, ROOT, VARIANT
from read_model import read_model
from read_types import SIX_BITS, VALUES, dequantise
from yalm_convert import calibrate, packing, quantise

YALM = ROOT / "yalm" if VARIANT == "release" else BUILD / "yalm"


@pytest.fixture(autouse=True)
def built_yalm(monkeypatch):
    monkeypatch.setenv("YALM", str(YALM))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_bytes((hf.FABLE / "heldout.txt").read_bytes()[:6000])
    return path


def weighted_errors(values, weights, scales):
    """Of q4n, each group and scale (groups, candidates): the weighted squared error of the nearest values."""
    errors = np.empty(scales.shape)
    for i, scale in enumerate(scales.T):
        distance = np.abs(values[:, :, None] - VALUES["q4n"] * scale[:, None, None]).min(axis=2)
        errors[:, i] = (weights * distance**2).sum(axis=1)
    return errors


def decoded(values, dtype, weights=None):
    quants, *scales = quantise.quantise_rows(values, dtype, weights)
    data = packing.pack(quants, dtype).tobytes() + b"".join(part.tobytes() for part in scales)
    return dequantise({"dtype": dtype, "shape": list(values.shape)}, data)[0]


def test_the_weighted_search_is_near_brute_force():
    """Among 400 scales of each group, exact ones."""
    rng = np.random.default_rng(5)
    values = rng.standard_normal((50, 64)).astype(np.float32)
    weights = np.exp(1.5 * rng.standard_normal((2, 32))).astype(np.float32)
    of_groups = np.tile(weights, (50, 1))
    groups = values.reshape(-1, 32)
    largest = np.abs(groups).max(axis=1, keepdims=True)
    steps = np.concatenate([np.linspace(-0.07, -0.01, 200), np.linspace(0.01, 0.07, 200)])
    best = weighted_errors(groups, of_groups, largest * steps).min(axis=1)
    found, plain = (
        (of_groups * (decoded(values, "q4n", w).reshape(-1, 32) - groups) ** 2).sum() for w in (weights, None)
    )
    assert found < 1.25 * best.sum() and found < 0.95 * plain


@pytest.mark.parametrize("dtype", ["q8", "q6", "q5", "q4n"])
def test_weights_that_are_alike_change_nothing(dtype):
    values = np.random.default_rng(6).standard_normal((100, 96)).astype(np.float32)
    plain, alike = (quantise.quantise_rows(values, dtype, w) for w in (None, np.ones((3, 32), np.float32)))
    assert all((a == b).all() for a, b in zip(plain, alike))


def test_columns_keep_their_weights_in_every_block(tmp_path, monkeypatch):
    """Rows of 11 groups, whose last is not full, some at a time."""
    from yalm_convert.checkpoint import read_file

    rng = np.random.default_rng(8)
    values = rng.standard_normal((30, 350)).astype(np.float32)
    importance = np.exp(rng.standard_normal(350)).astype(np.float32)
    hf.write_tensors(tmp_path / "x.safetensors", {"x": ["F32", [30, 350], values.tobytes()]})
    monkeypatch.setattr(quantise, "BLOCK", 77)
    source = read_file(tmp_path / "x.safetensors")["x"]
    asked = quantise.Importance(importance)
    data = b"".join(part.tobytes() for part in quantise.quantise(source, "q4n", asked))
    weights = np.append(importance, [0, 0]).astype(np.float32).reshape(11, 32)
    weights /= weights.mean(axis=1, keepdims=True)
    whole = decoded(np.pad(values, ((0, 0), (0, 2))), "q4n", weights)
    assert (dequantise({"dtype": "q4n", "shape": [30, 350]}, data)[0] == whole[:, :350]).all()


@pytest.mark.parametrize("bits", ["4.5", "2.7"])
def test_calibration_lessens_what_matters(bits, tmp_path, monkeypatch, capsys, text):
    """Of each matrix that has six bits or fewer, the error of its products is less than without."""
    mixed = ("--dtype", "q4", "--bits", bits)
    code, _, err = hf.call(monkeypatch, capsys, hf.FABLE, tmp_path / "with", *mixed, "--calibration", str(text))
    assert code == 0 and "calibrated by text in" in err
    assert hf.call(monkeypatch, capsys, hf.FABLE, tmp_path / "without", *mixed)[0] == 0
    assert hf.call(monkeypatch, capsys, hf.FABLE, tmp_path / "whole", "--dtype", "bf16")[0] == 0
    subprocess.run(
        [YALM, tmp_path / "whole", "-m", "importance", "-f", text, "-o", tmp_path / "i", "--ctx", "512", "-q"],
        check=True,
    )
    importance = calibrate.read(tmp_path / "i", calibrate.model_checksum((tmp_path / "whole").read_bytes()[:64]))
    with_, without, whole = (read_model(tmp_path / name)[1] for name in ("with", "without", "whole"))
    less = 0
    for name, (entry, data) in with_.items():
        if entry["dtype"] not in SIX_BITS or name not in importance:
            assert entry["dtype"] in ("q8", *SIX_BITS) or data == without[name][1]
            continue
        assert entry["dtype"] == without[name][0]["dtype"]
        exact = (np.frombuffer(whole[name][1], "<u2").astype(np.uint32) << 16).view("<f4").reshape(entry["shape"])
        lower = np.asarray(importance[name].products)
        moments = lower + np.tril(lower, -1).T
        off = [dequantise(*of[name])[0] - exact for of in (with_, without)]
        errors = [((d @ moments) * d).sum() for d in off]
        assert errors[0] < 0.95 * errors[1], name
        less += errors[0] < 0.99 * errors[1]
    assert less > 14
    assert sorted(os.listdir(tmp_path)) == ["i", "whole", "with", "without"]


def test_says_how_far_it_is(tmp_path, text, monkeypatch):
    """yalm to whoever listens; without pseudo-terminals it is silent, and its mistake is one line all the same."""
    hf.run(hf.FABLE, tmp_path / "model", "--quiet")
    told, without = [], []
    calibrate.observe(YALM, tmp_path / "model", text, tmp_path / "a", told.append)
    assert told == sorted(told) and len(set(told)) > 2 and told[-1] == 1
    for _ in range(2):
        with pytest.raises(calibrate.Failed, match=r"^yalm: /nonexistent: No such file or directory$"):
            calibrate.observe(YALM, tmp_path / "model", "/nonexistent", tmp_path / "b", without.append)
        monkeypatch.setattr(os, "openpty", os.pipe)
    assert without == []


def test_disk_is_asked_for_before_it_begins(tmp_path, monkeypatch, capsys, text):
    """The bf16 model beside its sums, or they beside what is made."""
    for free, code in ((19_000_000, 1), (24_000_000, 0)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: types.SimpleNamespace(free=free))
        found, _, err = hf.call(
            monkeypatch, capsys, hf.FABLE, tmp_path / "out", "--dtype", "q4", "--calibration", str(text)
        )
        assert found == code and ("bytes of disk are needed, 1" in err) == bool(code), err


def test_without_yalm(tmp_path, monkeypatch, capsys, text):
    monkeypatch.setenv("YALM", "/nonexistent/yalm")
    assert hf.call(monkeypatch, capsys, hf.FABLE, tmp_path / "none", "--dtype", "q4")[0] == 0
    argv = ["convert.py", str(hf.FABLE), str(tmp_path / "default"), "--dtype", "q4"]
    monkeypatch.setattr(sys, "argv", argv)
    assert hf.convert_module.main() == 0
    err = capsys.readouterr().err
    assert "quantised without calibration, all weights alike: YALM=/nonexistent/yalm is no program" in err
    assert (tmp_path / "default").read_bytes() == (tmp_path / "none").read_bytes()
    code, _, err = hf.call(
        monkeypatch, capsys, hf.FABLE, tmp_path / "asked", "--dtype", "q4", "--calibration", str(text)
    )
    assert code == 1 and "calibration: YALM=/nonexistent/yalm is no program" in err
    assert sorted(os.listdir(tmp_path)) == ["default", "none"]


def test_without_a_tokenizer(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["convert.py", str(tiny("tiny-gqa")), str(tmp_path / "out"), "--dtype", "q4"])
    assert hf.convert_module.main() == 0
    assert "all weights alike: the model has no tokenizer to read a text by" in capsys.readouterr().err


def test_only_q4_asks_for_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("YALM", "/nonexistent/yalm")
    for dtype in ("bf16", "q8", "fp8"):
        monkeypatch.setattr(sys, "argv", ["convert.py", str(hf.FABLE), str(tmp_path / "out"), "--dtype", dtype])
        assert hf.convert_module.main() == 0
        assert "calibrat" not in capsys.readouterr().err


def test_yalm_that_fails(tmp_path, monkeypatch, capsys):
    empty = tmp_path / "empty"
    empty.touch()
    code, _, err = hf.call(
        monkeypatch, capsys, hf.FABLE, tmp_path / "out", "--dtype", "q4", "--calibration", str(empty)
    )
    assert code == 1 and "calibration: yalm: " in err and len(err.splitlines()) == 1
    code, _, err = hf.call(monkeypatch, capsys, hf.FABLE, tmp_path / "out", "--calibration", "/nonexistent")
    assert code == 2 and "--calibration /nonexistent: no such file" in err
    assert os.listdir(tmp_path) == ["empty"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_leaves_nothing(number, tmp_path):
    long = tmp_path / "long"
    long.write_bytes((hf.FABLE / "heldout.txt").read_bytes() * 20)
    place = tmp_path / "place"
    place.mkdir()
    command = [sys.executable, hf.CONVERT, hf.FABLE, place / "out", "--dtype", "q4", "--calibration", long]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        for _ in itertools.islice(iter(int, 1), 3000):  # until yalm has begun its file
            if list(place.rglob("importance.*.tmp")):
                break
            time.sleep(0.01)
        running.send_signal(number)
        _, err = running.communicate(timeout=HANG)
    assert running.returncode == 128 + number and "interrupted; nothing was written" in err
    assert os.listdir(place) == []
