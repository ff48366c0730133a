"""tools/convert.py --dtype q8 and q4: what is lost, against bounds and against simpler ways to round; --keep."""

import hf
import numpy as np
import pytest
from read_model import dequantise, read_model
from test_convert import as_floats, stored_name
from yalm_convert import quantise

QUANTISED = ("q8", "q4")


@pytest.fixture
def convert(monkeypatch, capsys, tmp_path):
    """convert(directory, *options) -> (tensors, stderr); the conversion must succeed."""

    def do(directory, *options):
        code, out, err = hf.call(monkeypatch, capsys, directory, tmp_path / "model.bin", *options)
        assert (code, out) == (0, ""), err
        return read_model(tmp_path / "model.bin")[1], err

    return do


def decoded(values, dtype):
    """What quantising (groups, 32) values makes of them."""
    packed, scales = quantise.quantise_groups(values, dtype)
    entry = {"dtype": dtype, "shape": list(values.shape)}
    return dequantise(entry, packed.tobytes() + scales.tobytes())[0]


def by_largest(values, dtype):
    """The usual rounding: the largest magnitude gets the largest quant; of q4, as llama.cpp's Q4_0 does, -8."""
    if dtype == "q8":
        scale = np.abs(values).max(axis=1) / 127
    else:
        scale = values[np.arange(len(values)), np.abs(values).argmax(axis=1)] / -8
    scale = scale.astype(np.float16).astype(np.float32)[:, None]
    quants = np.round(np.divide(values, scale, out=np.zeros_like(values), where=scale != 0))
    return np.clip(quants, -127 if dtype == "q8" else -8, 127 if dtype == "q8" else 7) * scale


def samples():
    rng = np.random.default_rng(7)
    normal = rng.standard_normal((3000, 32)).astype(np.float32)
    heavy = rng.standard_t(3, (3000, 32)).astype(np.float32)
    uniform = rng.uniform(0, 1, (3000, 32)).astype(np.float32)  # of one sign
    return {"normal": normal * 0.02, "heavy": heavy * 0.02, "uniform": uniform}


@pytest.mark.parametrize("dtype", QUANTISED)
@pytest.mark.parametrize("name", samples())
def test_the_search_loses_less_than_the_usual_rounding(name, dtype):
    values = samples()[name]
    found = ((decoded(values, dtype) - values) ** 2).sum(axis=1)
    usual = ((by_largest(values, dtype) - values) ** 2).sum(axis=1)
    assert found.sum() < {"q8": 1.0, "q4": 0.95}[dtype] * usual.sum()
    assert (found <= usual * 1.02 + 1e-12).all()  # in each group, but for the rounding of scales to fp16


@pytest.mark.parametrize("dtype", QUANTISED)
def test_errors_are_about_half_a_step_at_most(dtype):
    values = samples()["normal"]
    most = np.abs(values).max(axis=1, keepdims=True)
    error = np.abs(decoded(values, dtype) - values)
    assert (
        error <= most / (127 if dtype == "q8" else 7) * (0.6 if dtype == "q8" else 1.3)
    ).all()  # q4 may cut the largest off


@pytest.mark.parametrize("dtype", QUANTISED)
def test_values_that_fit_come_back_exactly(dtype):
    rng = np.random.default_rng(3)
    most = 127 if dtype == "q8" else 7
    quants = rng.integers(-most, most + 1, (500, 32)).astype(np.float32)
    quants[:, 5] = most
    values = quants * 2.0 ** rng.integers(-12, 4, (500, 1)).astype(np.float32)
    assert (decoded(values, dtype) == values).all()
    assert (decoded(np.zeros((3, 32), np.float32), dtype) == 0).all()
    assert (np.abs(decoded(np.full((1, 32), -0.25, np.float32), dtype) + 0.25) <= 0.25 * 2**-11).all()


@pytest.mark.parametrize("dtype", QUANTISED)
@pytest.mark.parametrize("preset", ["tiny-bias", "tiny-mixtral", "tiny-oddvocab"])
def test_whole_models(preset, dtype, tmp_path, convert):
    """Widths that are no multiple of 32 among them; norms, biases and routers stay exact."""
    directory = hf.make(preset, tmp_path / preset)
    tensors, err = convert(directory, "--dtype", dtype, *(["--bits", "4.5"] if dtype == "q4" else []))
    stored = hf.read_tensors(directory)
    for name, (entry, data) in tensors.items():
        kind, shape, source = stored[stored_name(name, stored)]
        assert entry["shape"] == shape
        source = as_floats(kind, source).reshape(shape)
        if name.endswith(("norm", "_bias", "router")):
            assert entry["dtype"] == "fp32" and (as_floats("fp32", data).reshape(shape) == source).all()
            continue
        assert entry["dtype"] == ("q8" if name in ("embedding", "classifier") else dtype)
        found, filling = dequantise(entry, data)
        assert not filling.any()
        error = np.sqrt(((found - source) ** 2).mean() / (source**2).mean())
        assert error < (0.008 if entry["dtype"] == "q8" else 0.1), (name, error)
    assert "as stored" not in err


@pytest.mark.parametrize("columns", [1, 31, 33, 100])
@pytest.mark.parametrize("dtype", QUANTISED)
def test_rows_of_any_width(columns, dtype, tmp_path):
    values = np.random.default_rng(columns).standard_normal((70, columns)).astype(np.float32)
    path = tmp_path / "x.safetensors"
    hf.write_tensors(path, {"x": ["F32", [70, columns], values.tobytes()]})
    from yalm_convert.checkpoint import read_file

    data = b"".join(part.tobytes() for part in quantise.quantise(read_file(path)["x"], dtype))
    assert len(data) == quantise.quantised_size(dtype, (70, columns))
    found, filling = dequantise({"dtype": dtype, "shape": [70, columns]}, data)
    assert not filling.any() and np.abs(found - values).max() < (0.02 if dtype == "q8" else 0.4)


def test_blocks_do_not_show(tmp_path, monkeypatch):
    """The same bytes however the tensor is read and however many threads there are."""
    from yalm_convert.checkpoint import read_file

    values = np.random.default_rng(1).standard_normal((300, 352)).astype(np.float32)
    path = tmp_path / "x.safetensors"
    hf.write_tensors(path, {"x": ["F32", [300, 352], values.tobytes()]})

    def whole():
        return b"".join(part.tobytes() for part in quantise.quantise(read_file(path)["x"], "q4"))

    usual = whole()
    monkeypatch.setattr(quantise, "PIECE", 5 * 352 * 4)
    monkeypatch.setattr(quantise, "BLOCK", 7)
    monkeypatch.setattr(quantise, "_processors", lambda: 3)
    assert whole() == usual


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, -6e37])
@pytest.mark.parametrize("dtype", QUANTISED)
def test_values_that_no_scale_holds(value, dtype, tmp_path, monkeypatch, capsys):
    directory = hf.make("tiny-llama", tmp_path / "tiny", "--dtype", "fp32")
    (path,) = directory.glob("*.safetensors")
    tensors = hf.read_tensors(path)
    name = "model.layers.1.mlp.down_proj.weight"
    data = np.frombuffer(tensors[name][2], np.float32).copy()
    data[12345] = value
    tensors[name][2] = data.tobytes()
    hf.write_tensors(path, tensors)
    code, _, err = hf.call(monkeypatch, capsys, directory, tmp_path / "out.bin", "--dtype", dtype)
    assert code == 3 and f'tensor "{name}" has a value that is NaN, infinite, or too large for {dtype}' in err
    assert not (tmp_path / "out.bin").exists()


def test_keep(convert):
    options = ("--keep", "layers.*.down=q8", "--keep", "layers.0.*=fp16", "--keep", "layers.0.q=fp32")
    tensors, err = convert(hf.FABLE, "--dtype", "q4", *options)
    types = {name: entry["dtype"] for name, (entry, _) in tensors.items()}
    assert types["layers.0.q"] == "fp32" and types["layers.0.down"] == "fp16" and types["layers.1.down"] == "q8"
    assert types["layers.1.q"] == "q4" and types["embedding"] == "q8" and types["layers.0.ffn_norm"] == "fp32"
    assert "warning" not in err
    tensors, _ = convert(hf.FABLE, "--keep", "embedding=q4")
    types = {name: entry["dtype"] for name, (entry, _) in tensors.items()}
    assert types["embedding"] == "q4" and types["layers.1.q"] == "bf16"


@pytest.mark.parametrize(
    "kept, text",
    [
        ("layers.99.*=q8", "option '--keep': layers.99.*: the model has no matrix of that name"),
        ("norm=q8", "option '--keep': norm: the model has no matrix of that name"),
        (
            "embedding=q5",
            "found 'embedding=q5', expected NAME=DTYPE with one of fp32, fp16, bf16, bf12, fp8, fp8_e5m2, q8, q4",
        ),
        ("embedding", "found 'embedding', expected NAME=DTYPE"),
        ("=q8", "found '=q8', expected NAME=DTYPE"),
    ],
)
def test_wrong_keep(kept, text, tmp_path, monkeypatch, capsys):
    code, _, err = hf.call(monkeypatch, capsys, hf.FABLE, tmp_path / "out.bin", "--keep", kept)
    assert code == 2 and text in err
    assert not (tmp_path / "out.bin").exists()
