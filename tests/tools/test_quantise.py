"""tools/convert.py --dtype q8 to q2: what is lost, against bounds and against simpler ways to round; --keep."""

import hf
import numpy as np
import pytest
from read_model import read_model
from read_types import SIX_BITS, VALUES, dequantise
from test_convert import as_floats, stored_name
from yalm_convert import packing, quantise

HAVE_NO_ZERO = ("q3", "q2")
QUANTISED = ("q8", "q6", "q5", "q4n", "q3", "q2")
INTEGERS = {"q8": np.arange(-127, 128), **{dtype: np.sort(values) for dtype, values in VALUES.items()}}


@pytest.fixture
def convert(monkeypatch, capsys, tmp_path):
    """convert(directory, *options) -> (tensors, stderr); the conversion must succeed."""

    def do(directory, *options):
        code, out, err = hf.call(monkeypatch, capsys, directory, tmp_path / "model.bin", *options)
        assert (code, out) == (0, ""), err
        return read_model(tmp_path / "model.bin")[1], err

    return do


def decoded(values, dtype):
    """What quantising (rows, whole groups of columns) makes of them."""
    quants, *scales = quantise.quantise_rows(values, dtype)
    data = b"".join(part.tobytes() for part in (packing.pack(quants, dtype), *scales))
    return dequantise({"dtype": dtype, "shape": list(values.shape)}, data)[0]


def by_largest(values, dtype):
    """The usual rounding to a group's own exact scale: the largest magnitude gets the largest integer, and the rest
    the nearest ones."""
    groups, integers = values.reshape(-1, 32), INTEGERS[dtype]
    extreme = groups[np.arange(len(groups)), np.abs(groups).argmax(axis=1)]
    scale = (extreme / integers[0])[:, None]
    wanted = np.divide(groups, scale, out=np.zeros_like(groups), where=scale != 0)
    places = np.searchsorted((integers[1:] + integers[:-1]) / 2, wanted)
    return (integers[places] * scale).reshape(values.shape)


def samples():
    rng = np.random.default_rng(7)
    normal = rng.standard_normal((300, 320)).astype(np.float32)
    heavy = rng.standard_t(3, (300, 320)).astype(np.float32)
    uniform = rng.uniform(0, 1, (300, 320)).astype(np.float32)  # of one sign
    return {"normal": normal * 0.02, "heavy": heavy * 0.02, "uniform": uniform}


@pytest.mark.parametrize("dtype", QUANTISED)
@pytest.mark.parametrize("name", samples())
def test_the_search_loses_less_than_the_usual_rounding(name, dtype):
    """Though six-bit types round their scales too."""
    values = samples()[name]
    found, usual = (
        np.square(rounded - values).sum() for rounded in (decoded(values, dtype), by_largest(values, dtype))
    )
    assert found < {"q8": 1.0, "q6": 0.97, "q5": 0.95, "q4n": 0.97, "q3": 0.9, "q2": 0.8}[dtype] * usual


def test_unequal_values_lose_less_than_equal_ones():
    """Of four bits on normally distributed weights, beside the usual equal steps with exact scales, though the values
    are denser near 0 than squared error alone would have them. And each bit more takes six tenths of the error and
    more."""
    values = samples()["normal"]
    error = {dtype: np.square(decoded(values, dtype) - values).sum() for dtype in QUANTISED}
    equal = values.reshape(-1, 32)
    scale = equal[np.arange(len(equal)), np.abs(equal).argmax(axis=1)][:, None] / -8
    equal = np.clip(np.round(equal / scale), -8, 7) * scale
    assert error["q4n"] < 0.85 * np.square(equal.reshape(values.shape) - values).sum()
    assert error["q3"] < 0.4 * error["q2"] and error["q4n"] < 0.4 * error["q3"]
    assert error["q5"] < 0.4 * error["q4n"] and error["q6"] < 0.3 * error["q5"] and error["q8"] < 0.1 * error["q6"]


@pytest.mark.parametrize("dtype", QUANTISED)
def test_errors_are_about_half_a_step_at_most(dtype):
    """The widest step of q4n is 7 of 32; the largest value may be cut off."""
    values = samples()["normal"].reshape(-1, 32)
    most = np.abs(values).max(axis=1, keepdims=True)
    error = np.abs(decoded(values, dtype) - values)
    steps = {"q8": 0.6 / 127, "q6": 2.2 / 32, "q5": 4.0 / 32, "q4n": 6.0 / 32, "q3": 10.0 / 32, "q2": 18.0 / 32}
    assert (error <= most * steps[dtype]).all()


@pytest.mark.parametrize("dtype", QUANTISED)
def test_values_that_fit_come_back(dtype):
    """With whole scales of groups, the largest of a row 127: but for the rounding of one float32."""
    rng = np.random.default_rng(3)
    integers = INTEGERS[dtype]
    quants = rng.choice(integers, (500, 4, 32)).astype(np.float32)
    quants[..., 5] = integers[0]
    scales = rng.integers(40, 128, (500, 4, 1)).astype(np.float32)
    scales[:, 2] = 127
    values = quants * scales * 2.0 ** rng.integers(-12, 4, (500, 1, 1)).astype(np.float32)
    values = (values if dtype in SIX_BITS else values / scales).reshape(500, 128)
    found = decoded(values, dtype)
    assert (np.abs(found - values) <= (2.0**-20 if dtype in SIX_BITS else 0) * np.abs(values)).all()
    assert (decoded(np.zeros((3, 32), np.float32), dtype) == 0).all()
    assert (np.abs(decoded(np.full((1, 32), -0.25, np.float32), dtype) + 0.25) <= 0.25 * 2**-11).all()


@pytest.mark.parametrize("dtype", SIX_BITS)
def test_every_integer_has_its_bits(dtype):
    """Each of the type's integers in each column, beside all others."""
    integers = INTEGERS[dtype]
    n = len(integers)
    quants = integers[(np.arange(n)[:, None] + np.arange(96)) % n].astype(np.int8)
    data = packing.pack(quants, dtype).tobytes() + bytes([1]) * (3 * n) + np.ones(n, "<f4").tobytes()
    assert (dequantise({"dtype": dtype, "shape": [n, 96]}, data)[0] == quants).all()
    assert len(data) == packing.quantised_size(dtype, (n, 96))


@pytest.mark.parametrize("dtype", SIX_BITS)
def test_groups_of_zeros_and_small_ones_beside_large(dtype):
    values = samples()["normal"][:50].copy()
    values[:, 32:64] = 0
    values[:, 64:96] *= 1e-6
    values[7] = 0
    found = decoded(values, dtype)
    assert (found[:, 32:64] == 0).all() and (found[7] == 0).all()
    assert (
        np.abs(found[:, 64:96]).max() <= np.abs(values).max() / 127
    )  # a group's scale is no finer than the row lets it be


@pytest.mark.parametrize("dtype", QUANTISED)
@pytest.mark.parametrize("preset", ["tiny-bias", "tiny-mixtral", "tiny-oddvocab"])
def test_whole_models(preset, dtype, tmp_path, convert):
    """Widths that are no multiple of 32 among them; norms, biases and routers stay exact."""
    directory = hf.make(preset, tmp_path / preset)
    stored = hf.read_tensors(directory)
    last = "classifier" if "lm_head.weight" in stored else "embedding"
    four = ["q4", "--bits", "4.25", "--keep", "embedding=q4", "--keep", f"{last}=q6"]
    tensors, err = convert(directory, "--dtype", *(four if dtype == "q4n" else [dtype]))
    for name, (entry, data) in tensors.items():
        kind, shape, source = stored[stored_name(name, stored)]
        assert entry["shape"] == shape
        source = as_floats(kind, source).reshape(shape)
        if name.endswith(("norm", "_bias", "router")):
            assert entry["dtype"] == "fp32" and (as_floats("fp32", data).reshape(shape) == source).all()
            continue
        expected = {} if dtype in ("q8", "q6") else {last: "q6"}
        assert entry["dtype"] == expected.get(name, dtype)
        found, filling = dequantise(entry, data)
        assert entry["dtype"] in HAVE_NO_ZERO or not filling.any()
        error = np.sqrt(((found - source) ** 2).mean() / (source**2).mean())
        assert error < {"q8": 0.008, "q6": 0.025, "q5": 0.05, "q4n": 0.09, "q3": 0.18, "q2": 0.35}[entry["dtype"]], (
            name,
            error,
        )
    assert "as stored" not in err


@pytest.mark.parametrize("columns", [1, 31, 33, 100])
@pytest.mark.parametrize("dtype", QUANTISED)
def test_rows_of_any_width(columns, dtype, tmp_path):
    values = np.random.default_rng(columns).standard_normal((70, columns)).astype(np.float32)
    path = tmp_path / "x.safetensors"
    hf.write_tensors(path, {"x": ["F32", [70, columns], values.tobytes()]})
    from yalm_convert.checkpoint import read_file

    data = b"".join(part.tobytes() for part in quantise.quantise(read_file(path)["x"], dtype))
    assert len(data) == packing.quantised_size(dtype, (70, columns))
    found, filling = dequantise({"dtype": dtype, "shape": [70, columns]}, data)
    assert dtype in HAVE_NO_ZERO or not filling.any()
    assert np.abs(found - values).max() < {"q8": 0.02, "q6": 0.2, "q5": 0.3, "q4n": 0.6, "q3": 1.0, "q2": 2.0}[dtype]


@pytest.mark.parametrize("dtype", ["q4n", "q5"])
def test_blocks_do_not_show(dtype, tmp_path, monkeypatch):
    """The same bytes however the tensor is read and however many threads there are."""
    from yalm_convert.checkpoint import read_file

    values = np.random.default_rng(1).standard_normal((300, 352)).astype(np.float32)
    path = tmp_path / "x.safetensors"
    hf.write_tensors(path, {"x": ["F32", [300, 352], values.tobytes()]})

    def whole():
        return b"".join(part.tobytes() for part in quantise.quantise(read_file(path)["x"], dtype))

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
    option = "q4" if dtype == "q4n" else dtype
    code, _, err = hf.call(monkeypatch, capsys, directory, tmp_path / "out.bin", "--dtype", option)
    assert code == 3 and f'tensor "{name}" has a value that is NaN, infinite, or too large for {dtype}' in err
    assert not (tmp_path / "out.bin").exists()


def test_keep(convert):
    options = ("--keep", "layers.*.down=q8", "--keep", "layers.0.*=fp16", "--keep", "layers.0.q=fp32")
    tensors, err = convert(hf.FABLE, "--dtype", "q4", *options)
    types = {name: entry["dtype"] for name, (entry, _) in tensors.items()}
    assert types["layers.0.q"] == "fp32" and types["layers.0.down"] == "fp16" and types["layers.1.down"] == "q8"
    assert types["layers.1.o"] in SIX_BITS and types["embedding"] in SIX_BITS and types["layers.0.ffn_norm"] == "fp32"
    assert "warning" not in err
    tensors, _ = convert(hf.FABLE, "--keep", "embedding=q4", "--keep", "layers.1.v=q5")
    types = {name: entry["dtype"] for name, (entry, _) in tensors.items()}
    assert types["embedding"] == "q4n" and types["layers.1.q"] == "bf16" and types["layers.1.v"] == "q5"


@pytest.mark.parametrize(
    "kept, text",
    [
        ("layers.99.*=q8", "option '--keep': layers.99.*: the model has no matrix of that name"),
        ("norm=q8", "option '--keep': norm: the model has no matrix of that name"),
        (
            "embedding=q7",
            "found 'embedding=q7', expected NAME=DTYPE with one of fp32, fp16, bf16, bf12, fp8, fp8_e5m2, q8, q6, q5, q4, q3, "
            "q2",
        ),
        ("embedding", "found 'embedding', expected NAME=DTYPE"),
        ("=q8", "found '=q8', expected NAME=DTYPE"),
    ],
)
def test_wrong_keep(kept, text, tmp_path, monkeypatch, capsys):
    code, _, err = hf.call(monkeypatch, capsys, hf.FABLE, tmp_path / "out.bin", "--keep", kept)
    assert code == 2 and text in err
    assert not (tmp_path / "out.bin").exists()
