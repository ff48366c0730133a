"""Weight matrices as q8 to q2 (docs/format.md, "Quantised matrices"): groups of 32 columns that share one scale.

A group's scale is searched for (grids.py). With importance, the mean squares of what the columns are multiplied by,
an error counts by its column's: what is small then is the error of the products. But for q8, scales become
integers of 8 bits under one number for each row before weights are rounded by them; and where second moments are known,
errors are made up for along the row (feedback.py).
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Optional

import numpy as np

from .checkpoint import PIECE, Tensor
from .errors import ModelError
from .feedback import blocks_of, improved
from .grids import MOST_SCALE, turned, whole_scales
from .native import rounded, search
from .packing import GROUP, SIX_BITS, filled_up, groups_of, pack
from .source import shown

# Few and long steps, for between them Python's threads wait for each other.
BLOCK = 32768  # groups, or a whole row's
ROWS, AT_ONCE = 2048, 2  # in a block, where errors are made up for; blocks that are read together, for threads


@dataclasses.dataclass
class Importance:
    """What a matrix's columns read, on a text."""

    squares: np.ndarray  # (columns), their means
    products: object = None  # an array or what makes one: (columns, a block's columns), as blocks_of() takes them


def quantise(source: Tensor, dtype: str, importance: Optional[Importance] = None) -> Iterator[np.ndarray]:
    """The tensor's bytes: all rows' quants, block by block, and at last all rows' scales."""
    rows, columns = source.shape
    weights = None if importance is None else _group_weights(importance.squares)
    seen = importance is not None and importance.products is not None and dtype in SIX_BITS
    moments = blocks_of(importance.products) if seen else []
    at_once = max(AT_ONCE * ROWS if moments else 1, PIECE // (columns * source.dtype.itemsize))
    scales: list = []
    with ThreadPoolExecutor(_processors()) as pool:
        for first in range(0, rows, at_once):
            values = filled_up(source.values(first, min(at_once, rows - first)))
            step = -(-len(values) // AT_ONCE) if moments else max(1, BLOCK // groups_of(columns))
            blocks = (values[r : r + step] for r in range(0, len(values), step))
            for packed, *of_block in pool.map(lambda block: _packed_rows(block, dtype, weights, moments), blocks):
                if not all(np.isfinite(part).all() for part in of_block):
                    raise ModelError(
                        f"{source.path}: tensor {shown(source.name)} has a value that is NaN, infinite, or too large for "
                        f"{dtype}"
                    )
                scales.append(of_block)
                yield packed.reshape(-1)
    for parts in zip(*scales):
        yield np.concatenate(parts).reshape(-1)


def _packed_rows(values: np.ndarray, dtype: str, weights: Optional[np.ndarray], moments: Sequence) -> tuple:
    quants, *scales = quantise_rows(values, dtype, weights, moments)
    return pack(quants, dtype), *scales


def memory_of_moments(shape: tuple) -> int:
    """Bytes that a matrix takes at most by whose second moments it is rounded: they and what is made of them, and blocks
    of rows as they are read, as float32, and rounded."""
    (rows, columns), width = shape, min(shape[1], 2048)
    return columns * (8 * width + 12 * min(rows, AT_ONCE * ROWS)) + 40 * width**2


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _group_weights(importance: np.ndarray) -> np.ndarray:
    """(groups of a row, 32), each group's with the mean 1; where nothing is important, all columns are alike."""
    groups = filled_up(importance.astype(np.float32)[None]).reshape(-1, GROUP)
    means = groups.mean(axis=1, keepdims=True)
    return np.divide(groups, means, out=np.ones_like(groups), where=means > 0)


def quantise_rows(
    values: np.ndarray, dtype: str, weights: Optional[np.ndarray] = None, moments: Sequence = ()
) -> tuple:
    """(rows, whole groups of columns) values, weights of a row's errors, (groups, 32), and blocks_of() its products or
    none -> int8 quants of that shape,
    and scales in the file's types. These are fp16 (rows, groups), or int8 of that shape and fp32 (rows). A scale, of
    the groups or of a row, is not finite where the values do not allow one."""
    rows, columns = values.shape
    if moments:
        with np.errstate(all="ignore"):
            quants, scales, of_rows = improved(turned(values.astype(np.float32, copy=False)), dtype, moments)
        return turned(quants), scales.T.astype(np.int8), of_rows
    x = np.ascontiguousarray(values, np.float32).reshape(-1, GROUP)
    of_groups = None if weights is None else np.tile(weights, (rows, 1))
    with np.errstate(all="ignore"):
        found = search(x, dtype, of_groups, rows=True)
        scales, used = _stored_scales(found.reshape(rows, -1), dtype)
        quants = rounded(x, used.reshape(-1), dtype)
    return quants.reshape(rows, columns), *scales


def _stored_scales(found: np.ndarray, dtype: str) -> tuple:
    """Of (rows, groups) scales: what the file has of them, and what they are then, in fp32."""
    if dtype not in SIX_BITS:
        half = found.astype(np.float16)
        return (half,), half.astype(np.float32)
    of_rows = np.abs(found).max(axis=1) / np.float32(MOST_SCALE)
    whole = whole_scales(found.T, of_rows).T.astype(np.int8)
    return (whole, of_rows), whole * of_rows[:, None]
