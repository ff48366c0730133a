"""Weight matrices as q8 and q4 (docs/format.md, "Quantised matrices"): groups of 32 columns that share one fp16 scale.

A group's scale is searched for: of some candidates, each improved by least squares, the one that leaves the smallest squared error. With importance,
the mean squares of what the columns are multiplied by, an error counts by its column's: what is small then is the error of the products.
Groups lie along the last axis here, (32, groups), so that every step is a few long vector operations; blocks are small enough for a cache.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Optional

import numpy as np

from .checkpoint import PIECE, Tensor
from .errors import ModelError
from .source import shown

GROUP = 32
BLOCK = 1024  # groups
GROUP_BYTES = {"q8": 32, "q4": 16}
LEAST, MOST = {"q8": -127, "q4": -8}, {"q8": 127, "q4": 7}
LARGEST = 65504.0  # a finite fp16 scale
# Of q4: where the value of the largest magnitude goes, so the scale has either sign and uses all 16 quants. The finest of these lets
# that value be cut off, which is often worth it.
TARGETS = {"q8": (127.0,), "q4": (-8.0, -8.6, -7.4, -9.4, 7.0, 7.6, -6.7)}


def groups_of(columns: int) -> int:
    return -(-columns // GROUP)


def quantised_size(dtype: str, shape: tuple) -> int:
    rows, columns = shape
    return rows * groups_of(columns) * (GROUP_BYTES[dtype] + 2)


def quantise(source: Tensor, dtype: str, importance: Optional[np.ndarray] = None) -> Iterator[np.ndarray]:
    """The tensor's bytes: all rows' quants, block by block, and at last all rows' scales. importance: (columns)."""
    rows, columns = source.shape
    weights = None if importance is None else _group_weights(importance)
    scales = np.empty((rows, groups_of(columns)), np.float16)
    at_once = max(1, PIECE // (columns * source.dtype.itemsize))
    with ThreadPoolExecutor(_processors()) as pool:
        for first in range(0, rows, at_once):
            n = min(at_once, rows - first)
            values = source.values(first, n)
            quants, scales[first : first + n] = _quantise_rows(values, weights, source, dtype, pool)
            yield quants
    yield scales.reshape(-1)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _group_weights(importance: np.ndarray) -> np.ndarray:
    """(groups of a row, 32), each group's with the mean 1; where nothing is important, all columns are alike."""
    padded = np.zeros(groups_of(len(importance)) * GROUP, np.float32)
    padded[: len(importance)] = importance
    groups = padded.reshape(-1, GROUP)
    means = groups.mean(axis=1, keepdims=True)
    return np.divide(groups, means, out=np.ones_like(groups), where=means > 0)


def _quantise_rows(
    values: np.ndarray, weights: Optional[np.ndarray], source: Tensor, dtype: str, pool: ThreadPoolExecutor
) -> tuple:
    rows, columns = values.shape
    n = groups_of(columns)
    if columns % GROUP:
        padded = np.zeros((rows, n * GROUP), values.dtype)
        padded[:, :columns] = values
        values = padded
    values = values.reshape(rows * n, GROUP)
    quants = np.empty((rows * n, GROUP_BYTES[dtype]), np.uint8)
    scales = np.empty(rows * n, np.float16)

    def block(first: int) -> None:
        part = slice(first, first + BLOCK)
        of_groups = None if weights is None else weights[np.arange(first, min(first + BLOCK, rows * n)) % n]
        quants[part], scales[part] = quantise_groups(values[part], dtype, of_groups)

    for _ in pool.map(block, range(0, rows * n, BLOCK)):
        pass
    if not np.isfinite(scales).all():
        raise ModelError(
            f"{source.path}: tensor {shown(source.name)} has a value that is NaN, infinite, or too large for {dtype}"
        )
    return quants.reshape(-1), scales.reshape(rows, n)


def quantise_groups(values: np.ndarray, dtype: str, weights: Optional[np.ndarray] = None) -> tuple:
    """(groups, 32) values, and weights of their errors -> (groups, bytes) quants and (groups) scales. A scale is not finite where the values do not allow one."""
    x = np.ascontiguousarray(values.T, dtype=np.float32)
    with np.errstate(all="ignore"):
        scale = search(x, dtype, None if weights is None else np.ascontiguousarray(weights.T))
        half = scale.astype(np.float16)
        quants = _round(x, _inverse(half.astype(np.float32)), dtype).astype(np.int8)
        half[~np.isfinite(x.sum(axis=0) * 0.0)] = np.nan
    return pack(np.ascontiguousarray(quants.T), dtype), half


def pack(quants: np.ndarray, dtype: str) -> np.ndarray:
    """(rows, columns) int8, columns even -> (rows, bytes)."""
    packed = quants.view(np.uint8)
    return packed if dtype == "q8" else (packed[:, 0::2] & 15) | (packed[:, 1::2] << 4)


def search(x: np.ndarray, dtype: str, weights: Optional[np.ndarray] = None) -> np.ndarray:
    """The scales of x's columns. With quants q, the best scale is x·q / q·q, and leaves the error x·x - (x·q)² / q·q, where each product is by weights
    of the shape of x, if there are any."""
    weighted = x if weights is None else x * weights
    largest, smallest = x.max(axis=0), x.min(axis=0)
    extreme = np.where(largest >= -smallest, largest, smallest)
    best = np.zeros_like(extreme)
    best_gain = np.full_like(extreme, -1.0)
    for target in TARGETS[dtype]:
        scale, gain = _improve(x, extreme / np.float32(target), dtype, weighted, weights)
        better = gain > best_gain
        best[better], best_gain[better] = scale[better], gain[better]
    for _ in range(2):
        scale, gain = _improve(x, best, dtype, weighted, weights)
        better = gain > best_gain
        best[better], best_gain[better] = scale[better], gain[better]
    return best


def _improve(
    x: np.ndarray, scale: np.ndarray, dtype: str, weighted: np.ndarray, weights: Optional[np.ndarray]
) -> tuple:
    """The best scale for the quants that `scale` gives, and the squared error that it saves against a scale of 0."""
    q = _round(x, _inverse(scale), dtype)
    xq = np.einsum("ij,ij->j", weighted, q)
    qq = np.einsum("ij,ij->j", q, q if weights is None else q * weights)
    best = np.divide(xq, qq, out=np.zeros_like(xq), where=qq > 0)
    return best, best * xq


def _inverse(scale: np.ndarray) -> np.ndarray:
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)


def _round(x: np.ndarray, inverse: np.ndarray, dtype: str) -> np.ndarray:
    q = x * inverse
    np.rint(q, out=q)
    return np.clip(q, LEAST[dtype], MOST[dtype], out=q)
