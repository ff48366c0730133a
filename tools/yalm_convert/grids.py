"""The integers that a quantised type has, and the scale by which a group of weights fits them best.

Scales are searched for: of some candidates, each improved by least squares, the one that leaves the smallest squared
error, where errors count by weights of their own. Groups lie along the last axis here, (32, groups), so that every
step is a few long vector operations; blocks are small enough for a cache. Where libyalm is built, native.py calls
it instead.
"""

from functools import reduce
from typing import Optional

import numpy as np

# What the indices of q4n, q5, q3 and q2 stand for (src/model/quant_values.h): dense near 0, where most weights are, and where
# small ones may meet the largest activations.
VALUES = {
    "q4n": np.array([-32, -24, -18, -13, -9, -6, -4, -2, 0, 2, 4, 7, 10, 14, 19, 26], np.int8),
    "q5": np.array([-32, -28, -25, -22, -19, -17, -15, -13, -11, -9, -7, -6, -5, -3, -2, -1,
                    0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 19, 22, 25, 29], np.int8),
    "q3": np.array([-32, -18, -10, -4, 2, 8, 16, 26], np.int8),
    "q2": np.array([-32, -11, 4, 21], np.int8),
}  # fmt: skip
LEAST, MOST = {"q8": -127, "q6": -32}, {"q8": 127, "q6": 31}
# Where the value of the largest magnitude goes, best first: a scale has either sign, and uses all that there is on
# both sides. The finest let that value be cut off, which is often worth it.
TARGETS = {
    "q8": (127.0,),
    "q6": (-32.0, 31.0, -28.8, 30.2, -32.8, -24.8),
    "q5": (-32.0, 29.0, -28.8, -25.6),
    "q4n": (-32.0, 26.7, -25.6, -30.4, -34.4),
    "q3": (-32.0, 28.0, -36.0, -26.0, -42.0),
    "q2": (-32.0, 26.0, -40.0, -26.0, -50.0, 32.0),
}
MOST_SCALE = 127  # of a group, in SIX_BITS
ROUNDS = {"q8": 2, "q6": 1, "q5": 1, "q4n": 1, "q3": 1, "q2": 1}  # by which the best is refined


def _nearest_values(values: np.ndarray) -> bytes:
    """The value nearest to (i - 64) / 2 up to (i - 63) / 2, as a byte. The middle between two integers is a multiple
    of a half, so this is exact."""
    nearest = np.zeros(256, np.int8)
    middles = values[1:].astype(int) + values[:-1]
    nearest[:128] = values[np.searchsorted(middles, np.arange(-64, 64), side="right")]
    return nearest.tobytes()


NEAREST = {dtype: _nearest_values(values) for dtype, values in VALUES.items()}


def search(x: np.ndarray, dtype: str, weights: Optional[np.ndarray] = None) -> np.ndarray:
    """The scales of x's columns. With quants q, the best scale is x·q / q·q, and leaves the error x·x - (x·q)² / q·q.
    Each product is by weights of the shape of x, or one for each of its rows, if there are any. NaN where a group's
    sums are not finite."""
    weighted = x if weights is None else x * weights
    largest, smallest = x.max(axis=0), x.min(axis=0)
    extreme = np.where(largest >= -smallest, largest, smallest)
    best = np.zeros_like(extreme)
    best_gain = np.full_like(extreme, -1.0)
    trials = (extreme / np.float32(target) for target in TARGETS[dtype])
    for trial in (*trials, *[best] * ROUNDS[dtype]):
        scale, gain = _improve(x, trial, dtype, weighted, weights)
        better = gain > best_gain
        np.copyto(best, scale, where=better)
        np.copyto(best_gain, gain, where=better)
    best[~np.isfinite(reduce(np.add, x) * 0.0)] = np.nan
    return best


def turned(values: np.ndarray) -> np.ndarray:
    """The transpose of a matrix, copied. Some rows at a time, whose cache lines stay until all of each has been used."""
    found = np.empty(values.shape[::-1], values.dtype)
    for first in range(0, len(values), 64):
        found[:, first : first + 64] = values[first : first + 64].T
    return found


def whole_scales(scales: np.ndarray, of_rows: np.ndarray) -> np.ndarray:
    """The whole numbers by which rows' scales are nearest to those of groups."""
    whole = np.divide(scales, of_rows, out=np.zeros_like(scales), where=of_rows > 0)
    return np.nan_to_num(np.rint(whole)).clip(-MOST_SCALE, MOST_SCALE)


def _improve(
    x: np.ndarray, scale: np.ndarray, dtype: str, weighted: np.ndarray, weights: Optional[np.ndarray]
) -> tuple:
    """The best scale for the quants that `scale` gives, and the squared error that it saves against a scale of 0."""
    q = nearest(x, scale, dtype)
    xq = reduce(np.add, weighted * q)  # row by row, on every machine, be it of one group
    qq = reduce(np.add, q * (q if weights is None else q * weights))
    best = np.divide(xq, qq, out=np.zeros_like(xq), where=qq > 0)
    return best, best * xq


def nearest(x: np.ndarray, scale: np.ndarray, dtype: str) -> np.ndarray:
    """The type's integers, as float32, by which x's columns are nearest to themselves; 0 where the scale is 0."""
    return nearest_by(x, inverses(scale), dtype)


def nearest_in_turn(
    x: np.ndarray, wanted: np.ndarray, scale: np.ndarray, dtype: str, feedback: np.ndarray, errors: np.ndarray
) -> np.ndarray:
    """The integers, int8, nearest to groups `wanted` (32, n), row by row. A row's errors against x, times its row of feedback
    (32, 32), are added to later rows of `wanted`. Sets errors (32, n)."""
    quants, inverse = np.empty(x.shape, np.int8), inverses(scale)
    for i, row in enumerate(wanted):
        q = nearest_by(row, inverse, dtype)
        quants[i], errors[i] = q, x[i] - q * scale
        wanted[i + 1 :] += feedback[i, i + 1 :, None] * errors[i]
    return quants


def inverses(scale: np.ndarray) -> np.ndarray:
    """0 where the scale is 0, or so small that its inverse may be infinite."""
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=np.abs(scale) >= np.float32(2**-126))


def nearest_by(x: np.ndarray, inverse: np.ndarray, dtype: str) -> np.ndarray:
    """The same, by the scale's inverse."""
    if dtype not in VALUES:
        q = x * inverse
        np.rint(q, out=q)
        np.maximum(q, LEAST[dtype], out=q)
        return np.minimum(q, MOST[dtype], out=q)
    q = x * (2 * inverse)
    q += 64
    np.maximum(q, 0, out=q)
    np.minimum(q, 127, out=q)
    found = q.astype(np.uint8).tobytes().translate(NEAREST[dtype])  # of numpy's own ways to look up, none is as fast
    return np.frombuffer(found, np.int8).reshape(q.shape).astype(np.float32)
