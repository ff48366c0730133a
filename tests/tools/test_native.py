"""Rounding by the library gives the bits that numpy gives, which are what everything else is tested against."""

import numpy as np
import pytest
from harness import ROOT, built
from yalm_convert import feedback, grids, native, quantise


def weights(rows, columns):
    """With a group of zeros, one near the smallest numbers, and columns of one sign."""
    rng = np.random.default_rng(rows)
    values = (0.02 * rng.standard_t(3, (rows, columns))).astype(np.float32)
    values[0, :32] = 0
    values[-1, 32:64] *= 1e-37
    values[:, 64:] = np.abs(values[:, 64:])
    return values, rng.uniform(0, 2, (columns // 32, 32)).astype(np.float32)


def moments(columns):
    rng = np.random.default_rng(columns)
    return np.tril(np.cov(rng.standard_normal((columns, 900)) + rng.standard_normal(900)).astype(np.float32))


def both(monkeypatch, *arguments):
    """By the library, and by numpy."""
    assert built(ROOT / "libyalm.so") and native.library() is not None
    found = quantise.quantise_rows(*arguments)
    monkeypatch.setattr(native, "library", lambda: None)
    return zip(found, quantise.quantise_rows(*arguments))


@pytest.mark.parametrize("dtype", grids.TARGETS)
@pytest.mark.parametrize("how", ["plain", "by importance", "with feedback"])
@pytest.mark.parametrize("shape", [(1, 32), (1, 64), (7, 96), (33, 160), (300, 320)])
def test_the_same_bits(shape, how, dtype, monkeypatch):
    if how == "with feedback" and dtype == "q8":
        pytest.skip("q8 is rounded without feedback")
    values, importance = weights(*shape)
    of = feedback.blocks_of(moments(shape[1])) if how == "with feedback" else ()
    pairs = both(monkeypatch, values, dtype, importance if how == "by importance" else None, of)
    assert all(one.tobytes() == other.tobytes() for one, other in pairs)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_what_no_scale_fits_is_not_finite(bad, monkeypatch):
    values, _ = weights(5, 96)
    values[2, 40:42] = bad
    _, (one, other) = both(monkeypatch, values, "q8")
    assert one.tobytes() == other.tobytes() and np.isfinite(one).sum() == 14


@pytest.mark.parametrize("size", [16, 32, 64])
def test_the_same_nibbles(size, monkeypatch):
    blocks = np.random.default_rng(size).integers(0, 256, (3, 5, 144), np.uint8)[..., 16:]
    found = native.split_nibbles(blocks, size, 0x88)
    monkeypatch.setattr(native, "library", lambda: None)
    assert (found == native.split_nibbles(blocks, size, 0x88)).all()
    first, expected = blocks.reshape(-1)[:2], found[0] ^ 0x88
    assert expected == (first[0] & 15 | (first[1] & 15) << 4)
