"""tools/convert.py --dtype bf12: every number comes back to the bit, whole models, matrices that it does not hold."""

import hf
import numpy as np
import pytest
from read_model import read_model
from read_types import bf12_row, from_bf12
from test_convert import as_floats, stored_name
from yalm_convert import bf12
from yalm_convert.checkpoint import TYPES, read_file


def unpacked(numbers):
    """What comes back of (rows, columns) numbers, and whether the rows fit."""
    largest, good = bf12.find_exponents(numbers)
    data = bf12.pack_rows(numbers[good], largest[good])
    return from_bf12({"shape": numbers[good].shape}, data.tobytes()), good


def as_bf16(values):
    return np.asarray(values, np.float32).astype(TYPES["BF16"]).view(np.uint16)


@pytest.mark.parametrize("columns", [1, 127, 128, 129, 2048, 4096, 4097])
def test_trained_weights_fit(columns):
    rng = np.random.default_rng(columns)
    numbers = as_bf16(rng.standard_normal((64, columns)) * 0.02)
    back, good = unpacked(numbers)
    assert good.all() and (back == numbers).all()
    assert bf12.bf12_size(numbers.shape) == 64 * sum(bf12_row(columns))


def test_all_numbers():
    """Each of the 65,536, in rows of 15 exponents beside zeros and the numbers below 2^-126."""
    tiny = np.array([f | s << 15 for s in range(2) for f in range(128)], np.uint16)
    for first in range(1, 256, 15):
        row = [f | e << 7 | s << 15 for s in range(2) for e in range(first, min(first + 15, 256)) for f in range(128)]
        numbers = np.concatenate([np.array(row, np.uint16), tiny])[None]
        back, good = unpacked(numbers)
        assert good.all() and (back == numbers).all()


def test_exceptions():
    rng = np.random.default_rng(3)
    numbers = as_bf16(rng.standard_normal((6, 300)))
    numbers[1, 40:55] = as_bf16(1e-9)  # 15: as many as a header holds
    numbers[2, 40:56] = as_bf16(1e-9)  # one more
    numbers[3, [0, 299]] = as_bf16([1e20, np.inf])  # above the rest: all others would be out of reach, from there
    numbers[4] = 0
    numbers[5] = np.where(np.arange(300) % 2, as_bf16(1e-20), as_bf16(1e20))
    back, good = unpacked(numbers)
    assert good.tolist() == [True, True, False, True, True, False]
    assert (back == numbers[good]).all()


@pytest.mark.parametrize("kind", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("preset", ["tiny-bias", "tiny-mixtral", "tiny-oddvocab"])
def test_whole_models(preset, kind, tmp_path, monkeypatch, capsys):
    """The matrices are what --dtype bf16 makes of them, to the bit; norms, biases and routers stay exact."""
    directory = hf.make(preset, tmp_path / preset, "--dtype", kind)
    for dtype in ("bf16", "bf12"):
        code, out, err = hf.call(monkeypatch, capsys, directory, tmp_path / f"{dtype}.bin", "--dtype", dtype)
        assert (code, out) == (0, "") and "stay bf16" not in err, err
        assert ("and are rounded" in err) == (dtype == "bf12" and kind != "bf16"), err
    plain, packed = (read_model(tmp_path / f"{dtype}.bin")[1] for dtype in ("bf16", "bf12"))
    stored = hf.read_tensors(directory)
    for name, (entry, data) in packed.items():
        if name.endswith(("norm", "_bias", "router")):
            source = as_floats(*stored[stored_name(name, stored)][::2])
            assert entry["dtype"] == "fp32" and (as_floats("fp32", data) == source).all()
            continue
        assert entry["dtype"] == "bf12" and plain[name][0]["dtype"] == "bf16"
        assert (from_bf12(entry, data).reshape(-1) == np.frombuffer(plain[name][1], np.uint16)).all(), name


def test_blocks_do_not_show(tmp_path, monkeypatch):
    values = np.random.default_rng(1).standard_normal((300, 101)).astype(np.float32)
    path = tmp_path / "x.safetensors"
    hf.write_tensors(path, {"x": ["F32", [300, 101], values.tobytes()]})

    def whole():
        return b"".join(part.tobytes() for part in bf12.to_bf12(read_file(path)["x"], False))

    usual = whole()
    assert len(usual) == bf12.bf12_size((300, 101))
    for piece, step in ((7 * 101 * 4, 1 << 18), (1 << 20, 350), (50, 1)):
        monkeypatch.setattr(bf12, "PIECE", piece)
        monkeypatch.setattr(bf12, "STEP", step)
        assert whole() == usual


def test_matrices_that_do_not_fit_stay(tmp_path, monkeypatch, capsys):
    directory = hf.make("tiny-llama", tmp_path / "tiny", "--dtype", "bf16")
    (path,) = directory.glob("*.safetensors")
    tensors = hf.read_tensors(path)
    name = "model.layers.1.mlp.down_proj.weight"
    data = np.frombuffer(tensors[name][2], np.uint16).copy()
    data[1000:1064] = as_bf16(10.0 ** -np.arange(64, dtype=np.float64) / 2)
    tensors[name][2] = data.tobytes()
    hf.write_tensors(path, tensors)
    code, _, err = hf.call(monkeypatch, capsys, directory, tmp_path / "out.bin", "--dtype", "bf12")
    assert code == 0 and "1 of the matrices stay bf16, for 12 bits do not hold them: layers.1.down" in err
    types = {n: entry["dtype"] for n, (entry, _) in read_model(tmp_path / "out.bin")[1].items()}
    assert types["layers.1.down"] == "bf16" and types["layers.0.down"] == types["embedding"] == "bf12"


@pytest.mark.parametrize("changed", [0, 3])
def test_what_is_rounded_is_counted(changed, tmp_path, monkeypatch, capsys):
    """Numbers of bfloat16 that are stored as fp32 are kept, all of them; others are rounded, and the converter says
    how many."""
    directory = hf.make("tiny-llama", tmp_path / "tiny", "--dtype", "bf16")
    (path,) = directory.glob("*.safetensors")
    tensors = hf.read_tensors(path)
    for entry in tensors.values():
        values = np.frombuffer(entry[2], np.uint16).astype(np.uint32) << 16
        entry[0], entry[2] = "F32", values.tobytes()
    down = tensors["model.layers.1.mlp.down_proj.weight"]
    bits = np.frombuffer(down[2], np.uint32).copy()
    bits[10 : 10 + changed] |= 1
    down[2] = bits.tobytes()
    hf.write_tensors(path, tensors)
    code, _, err = hf.call(monkeypatch, capsys, directory, tmp_path / "out.bin", "--dtype", "bf12")
    assert code == 0 and ("are rounded" in err) == bool(changed), err
    assert not changed or f"; {changed} of the " in err, err


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_check_finite(value, tmp_path, monkeypatch, capsys):
    """Values that are no numbers are kept, as bf16 keeps them, or refused where that is asked for."""
    directory = hf.make("tiny-llama", tmp_path / "tiny", "--dtype", "bf16")
    (path,) = directory.glob("*.safetensors")
    tensors = hf.read_tensors(path)
    name = "model.layers.1.mlp.down_proj.weight"
    data = np.frombuffer(tensors[name][2], np.uint16).copy()
    data[1234] = as_bf16(value)
    tensors[name][2] = data.tobytes()
    hf.write_tensors(path, tensors)
    code, _, err = hf.call(monkeypatch, capsys, directory, tmp_path / "out.bin", "--dtype", "bf12")
    entry, packed = read_model(tmp_path / "out.bin")[1]["layers.1.down"]
    assert code == 0 and (from_bf12(entry, packed).reshape(-1) == data).all(), err
    code, _, err = hf.call(monkeypatch, capsys, directory, tmp_path / "no.bin", "--dtype", "bf12", "--check-finite")
    assert code == 3 and f'tensor "{name}" has a value that is NaN or infinite' in err
    assert not (tmp_path / "no.bin").exists()


def test_too_large_for_the_type(tmp_path, monkeypatch, capsys):
    directory = hf.make("tiny-llama", tmp_path / "tiny", "--dtype", "fp32")
    (path,) = directory.glob("*.safetensors")
    tensors = hf.read_tensors(path)
    name = "model.layers.1.mlp.down_proj.weight"
    data = np.frombuffer(tensors[name][2], np.float32).copy()
    data[1234] = 3.4e38
    tensors[name][2] = data.tobytes()
    hf.write_tensors(path, tensors)
    code, _, err = hf.call(monkeypatch, capsys, directory, tmp_path / "out.bin", "--dtype", "bf12")
    assert code == 3 and "does not fit in bf16" in err


def test_keep(tmp_path, monkeypatch, capsys):
    options = ("--dtype", "q4", "--keep", "layers.*.down=bf12", "--keep", "embedding=bf16")
    code, _, err = hf.call(monkeypatch, capsys, hf.FABLE, tmp_path / "out.bin", *options)
    assert code == 0, err
    types = {name: entry["dtype"] for name, (entry, _) in read_model(tmp_path / "out.bin")[1].items()}
    assert types["layers.1.down"] == "bf12" and types["layers.1.q"] == "q4n" and types["embedding"] == "bf16"
