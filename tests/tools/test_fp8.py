"""tools/convert.py --dtype fp8 and fp8_e5m2: rounding against a search among all values of the type, whole models, refusals."""

import hf
import numpy as np
import pytest
from read_model import read_model
from read_types import from_fp8
from test_convert import as_floats, stored_name
from yalm_convert import fp8
from yalm_convert.checkpoint import read_file

DTYPES = ("fp8", "fp8_e5m2")


def values_of(dtype):
    """{pattern: value} of all finite patterns, without scales."""
    patterns = [p for p in range(128) if p != 127] if dtype == "fp8" else list(range(124))
    data = np.array(patterns, np.uint8).tobytes() + np.ones(1, "<f4").tobytes()
    return np.array(patterns), from_fp8({"dtype": dtype, "shape": [1, len(patterns)]}, data)[0]


def nearest(values, dtype):
    """The nearest value of the type, the one with the even pattern of two; by search."""
    patterns, magnitudes = values_of(dtype)
    distance = np.abs(np.abs(values)[..., None].astype(np.float64) - magnitudes)
    best = (distance == distance.min(axis=-1, keepdims=True)) * (2 - patterns % 2)
    return np.copysign(magnitudes[np.argmax(best, axis=-1)], values)


def test_the_types_are_what_they_are_said_to_be():
    _, magnitudes = values_of("fp8")
    assert (magnitudes[0], magnitudes[1], magnitudes[8], magnitudes[-1]) == (0, 2**-9, 2**-6, 448)
    _, magnitudes = values_of("fp8_e5m2")
    assert (magnitudes[0], magnitudes[1], magnitudes[4], magnitudes[-1]) == (0, 2**-16, 2**-14, 57344)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounds_to_nearest_even_and_saturates(dtype):
    _, magnitudes = values_of(dtype)
    middles = (magnitudes[1:] + magnitudes[:-1]) / 2
    between = np.concatenate(
        [np.nextafter(middles, 0, dtype=np.float32), middles, np.nextafter(middles, 1e9, dtype=np.float32)]
    )
    everything = np.concatenate([magnitudes, between, -magnitudes, -between]).astype(np.float32)[None]
    elements, scales = fp8.round_rows(everything, dtype)  # the largest magnitude is the type's: the scale is 1
    assert (scales == 1).all()
    assert (elements.astype(np.float32) == nearest(everything, dtype)).all()
    if dtype == "fp8_e5m2":
        beyond, _ = fp8.round_rows(np.array([[57345, 61440, 1e30, -1e30]], np.float32), dtype)
        assert beyond.astype(np.float32).tolist() == [[57344, 57344, 57344, -57344]]


def test_scales_are_the_rows_own():
    rng = np.random.default_rng(5)
    values = (rng.standard_normal((40, 300)) * 10.0 ** rng.uniform(-30, 30, (40, 1))).astype(np.float32)
    values[7] = 0
    values[8] = 1e-44
    elements, scales = fp8.round_rows(values, "fp8")
    largest = np.abs(values).max(axis=1)
    assert np.allclose(scales, largest / 448, rtol=1e-6, atol=1e-45)
    found = elements.astype(np.float32) * scales[:, None]
    error = np.abs(found - values).max(axis=1)
    assert (error <= np.maximum(largest / 28, 2e-44)).all()  # half a step of the topmost binade: 16 of 448
    assert (found[7:9] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("preset", ["tiny-bias", "tiny-mixtral", "tiny-oddvocab"])
def test_whole_models(preset, dtype, tmp_path, monkeypatch, capsys):
    """Norms, biases and routers stay exact, all else is the nearest that the type has."""
    directory = hf.make(preset, tmp_path / preset)
    code, out, err = hf.call(monkeypatch, capsys, directory, tmp_path / "model.bin", "--dtype", dtype)
    assert (code, out) == (0, ""), err
    stored = hf.read_tensors(directory)
    for name, (entry, data) in read_model(tmp_path / "model.bin")[1].items():
        kind, shape, source = stored[stored_name(name, stored)]
        assert entry["shape"] == shape
        source = as_floats(kind, source).reshape(shape)
        if name.endswith(("norm", "_bias", "router")):
            assert entry["dtype"] == "fp32" and (as_floats("fp32", data).reshape(shape) == source).all()
            continue
        assert entry["dtype"] == dtype
        error = np.abs(from_fp8(entry, data) - source)
        if dtype == "fp8":
            largest = np.abs(source).max(axis=1, keepdims=True)
            assert (error <= np.maximum(np.abs(source) / 16, largest / 448 * 2**-10) * 1.0001).all(), name
        else:
            assert (error <= np.maximum(np.abs(source) / 8, 2.0**-17) * 1.0001).all(), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_do_not_show(dtype, tmp_path, monkeypatch):
    values = np.random.default_rng(1).standard_normal((300, 101)).astype(np.float32)
    path = tmp_path / "x.safetensors"
    hf.write_tensors(path, {"x": ["F32", [300, 101], values.tobytes()]})

    def whole():
        return b"".join(part.tobytes() for part in fp8.to_fp8(read_file(path)["x"], dtype))

    usual = whole()
    assert len(usual) == fp8.fp8_size(dtype, (300, 101))
    for piece, step in ((7 * 101 * 4, 1 << 18), (1 << 20, 350), (50, 1)):
        monkeypatch.setattr(fp8, "PIECE", piece)
        monkeypatch.setattr(fp8, "STEP", step)
        assert whole() == usual


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_that_are_no_numbers(value, dtype, tmp_path, monkeypatch, capsys):
    directory = hf.make("tiny-llama", tmp_path / "tiny", "--dtype", "fp32")
    (path,) = directory.glob("*.safetensors")
    tensors = hf.read_tensors(path)
    name = "model.layers.1.mlp.down_proj.weight"
    data = np.frombuffer(tensors[name][2], np.float32).copy()
    data[12345] = value
    tensors[name][2] = data.tobytes()
    hf.write_tensors(path, tensors)
    code, _, err = hf.call(monkeypatch, capsys, directory, tmp_path / "out.bin", "--dtype", dtype)
    assert code == 3 and f'tensor "{name}" has a value that is NaN or infinite' in err
    assert not (tmp_path / "out.bin").exists()


def test_keep(tmp_path, monkeypatch, capsys):
    options = (
        "--dtype",
        "fp8",
        "--keep",
        "layers.*.down=fp8_e5m2",
        "--keep",
        "embedding=q8",
        "--keep",
        "layers.0.q=bf16",
    )
    code, _, err = hf.call(monkeypatch, capsys, hf.FABLE, tmp_path / "out.bin", *options)
    assert code == 0, err
    types = {name: entry["dtype"] for name, (entry, _) in read_model(tmp_path / "out.bin")[1].items()}
    assert types["layers.1.down"] == "fp8_e5m2" and types["layers.1.q"] == "fp8" and types["layers.0.q"] == "bf16"
    assert types["embedding"] == "q8" and types["norm"] == "fp32"
