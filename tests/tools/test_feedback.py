"""Rounding that sees the rest of the row: what it saves where columns go together, and that nothing else shows."""

import subprocess
import sys

import hf
import numpy as np
import pytest
from read_types import dequantise
from yalm_convert import feedback, packing, quantise
from yalm_convert.checkpoint import read_file

DTYPES = ("q2", "q3", "q4n", "q5", "q6")


def case(columns, rows=200, tokens=3000, seed=5):
    """(rows, columns) weights, and the moments of what these columns read: few directions, and noise."""
    rng = np.random.default_rng(seed)
    few = rng.standard_normal((tokens, 12)) @ rng.standard_normal((12, columns))
    x = few + rng.standard_normal((tokens, columns))
    return rng.standard_normal((rows, columns)).astype(np.float32), (x.T @ x / tokens).astype(np.float32)


def rounded(values, dtype, importance, path):
    rows, columns = values.shape
    hf.write_tensors(path, {"x": ["F32", [rows, columns], values.tobytes()]})
    data = b"".join(part.tobytes() for part in quantise.quantise(read_file(path)["x"], dtype, importance))
    assert len(data) == packing.quantised_size(dtype, (rows, columns))
    found, filling = dequantise({"dtype": dtype, "shape": [rows, columns]}, data)
    assert dtype in ("q3", "q2") or not filling.any()
    return found, data


def lost(found, values, moments):
    off = (found - values).astype(np.float64)
    return ((off @ moments) * off).sum()


@pytest.mark.parametrize("columns", [96, 150])
@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_are_made_up_for(columns, dtype, tmp_path):
    """Widths of whole groups, and others."""
    values, moments = case(columns)
    squares = moments.diagonal().copy()
    plain, _ = rounded(values, dtype, quantise.Importance(squares), tmp_path / "plain.safetensors")
    fed, _ = rounded(values, dtype, quantise.Importance(squares, np.tril(moments)), tmp_path / "fed.safetensors")
    assert lost(fed, values, moments) < 0.4 * lost(plain, values, moments)


def test_columns_that_have_nothing_in_common_are_rounded_each_by_itself():
    """As the search does it, but for scales that are multiples of other numbers."""
    values, _ = case(96)
    blocks = feedback.blocks_of(np.eye(96, dtype=np.float32))
    alone, fed = (quantise.quantise_rows(values, "q4n", None, of) for of in ([], blocks))
    assert (alone[0] == fed[0]).mean() > 0.99
    off = [np.square(quants.reshape(-1, 3, 32) * (whole * of_rows[:, None])[..., None] - values.reshape(-1, 3, 32)).sum()
           for quants, whole, of_rows in (alone, fed)]  # fmt: skip
    assert off[1] < 1.01 * off[0]


@pytest.mark.parametrize("dtype", ("q4n", "q5", "q6"))  # which have a 0
def test_a_column_of_huge_activations_leaves_the_others_theirs(dtype):
    """What the other columns have in common counts as it does without it."""
    values, moments = case(96)
    values[:, 40] = 0  # which loses nothing
    huge = moments.copy()
    huge[40], huge[:, 40] = 0, 0
    huge[40, 40] = 1e4 * moments[41, 41]
    plain, fed = (quantise.quantise_rows(values, dtype, None, of) for of in ([], feedback.blocks_of(np.tril(huge))))
    off = [(quants.reshape(-1, 3, 32) * (whole * of_rows[:, None])[..., None]).reshape(-1, 96) for quants, whole, of_rows
           in (plain, fed)]  # fmt: skip
    moments[40], moments[:, 40] = 0, 0
    assert lost(off[1], values, moments) < 0.5 * lost(off[0], values, moments)


def test_blocks_are_parts_of_the_whole():
    """Moments in blocks of 64 columns are the whole's of which the rest is nothing."""
    values, moments = case(160)
    apart = np.where(np.arange(160)[:, None] // 64 == np.arange(160) // 64, moments, 0)
    rows = np.zeros((160, 64), np.float32)
    for column in range(160):
        first = column // 64 * 64
        rows[column, : column + 1 - first] = moments[column, first : column + 1]
    weights = quantise._group_weights(moments.diagonal() + feedback.EVERY * np.median(moments.diagonal()))
    one, other = (
        quantise.quantise_rows(values, "q5", weights, feedback.blocks_of(products))
        for products in (rows, np.tril(apart).astype(np.float32))
    )
    assert (one[0] == other[0]).mean() > 0.99


def test_same_on_any_number_of_threads(tmp_path, monkeypatch):
    values, moments = case(128, rows=1300)
    importance = quantise.Importance(moments.diagonal().copy(), np.tril(moments))
    found = []
    for n in (1, 3):
        monkeypatch.setattr(quantise, "_processors", lambda n=n: n)
        found.append(rounded(values, "q4n", importance, tmp_path / f"{n}.safetensors")[1])
    assert found[0] == found[1]


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_values_that_no_scale_holds(value, tmp_path):
    values, moments = case(64)
    values[7, 9] = value
    with pytest.raises(quantise.ModelError, match='tensor "x" has a value that is NaN, infinite, or too large for q4n'):
        rounded(
            values, "q4n", quantise.Importance(moments.diagonal().copy(), np.tril(moments)), tmp_path / "x.safetensors"
        )


def test_rows_of_zeros_and_a_text_that_says_nothing():
    values, moments = case(64)
    values[3] = 0
    quants, scales, of_rows = quantise.quantise_rows(values, "q4n", None, feedback.blocks_of(np.tril(moments)))
    assert not quants[3].any() and not scales[3].any() and of_rows[3] == 0
    assert feedback.blocks_of(np.zeros((64, 64), np.float32)) == []


def test_memory_is_what_is_foretold(tmp_path):
    """A wide matrix in blocks, its moments read from a file."""
    rows, columns, width = 1500, 4096, 1024
    values = np.random.default_rng(3).standard_normal((rows, columns)).astype(np.float32)
    hf.write_tensors(tmp_path / "x.safetensors", {"x": ["F32", [rows, columns], values.tobytes()]})
    np.tile(np.eye(width, dtype="<f4"), (columns // width, 1)).tofile(tmp_path / "moments")
    program = f"""
import resource, sys
from pathlib import Path
sys.path.insert(0, {str(hf.ROOT / "tools")!r})
import numpy as np
from yalm_convert import calibrate, checkpoint, quantise
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
moments = calibrate.Moments(open("moments", "rb"), 0, [{columns}, {width}])
before = peak()
importance = quantise.Importance(np.ones({columns}, np.float32), moments)
for _ in quantise.quantise(checkpoint.read_file(Path("x.safetensors"))["x"], "q4n", importance):
    pass
print(peak() - before)"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < quantise.memory_of_moments((rows, columns)) + 6 * quantise.PIECE
