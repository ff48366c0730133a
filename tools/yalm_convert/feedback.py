"""Rounding that sees the rest of the row: what an error does to the products, later columns make up for.

What counts is the error of a matrix's products, d·A·d for a row's errors d, where A holds the second moments of what the
columns read: the mean of x·xᵀ over a text (docs/quantisation.md). With A = U·D·Uᵀ, U upper triangular with ones on its
diagonal, columns are rounded in turn: column j of what it is and of all errors before it, times column j of U. That is
GPTQ's rounding (Frantar et al., arXiv 2210.17323) as LDLQ writes it (Chee et al., arXiv 2307.13304).

Rows do not depend on each other. They lie along the last axis here, (columns, rows), as groups do in grids.py.
"""

import dataclasses

import numpy as np

from .grids import inverses, nearest_by, search, whole_scales
from .packing import GROUP, groups_of

# A text of some thousand tokens is not all texts. What columns have in common counts for so much, and so much of the mean of
# A's diagonal is added to it.
COMMON, EVERY = 0.7, 0.5


@dataclasses.dataclass
class Block:
    """Columns whose second moments are known: those from `first` on, whole groups."""

    first: int
    importance: np.ndarray  # (columns)
    feedback: np.ndarray  # (columns, columns), U


def blocks_of(products: np.ndarray) -> list:
    """(columns, columns of a block), of each block's products the lower triangle -> Blocks. Other scales of all products
    mean the same. Where there are none, nothing is known."""
    columns, width = products.shape
    diagonal = products[np.arange(columns), np.arange(columns) % width]
    more = EVERY * diagonal.mean(dtype=np.float64)
    return [_block(first, products[first : first + width], more) for first in range(0, columns, width)] if more else []


def _block(first: int, lower: np.ndarray, more: float) -> Block:
    n = len(lower)
    moments = np.eye(groups_of(n) * GROUP) * more  # also of the columns that fill up the last group
    lower = lower[:, :n].astype(np.float64)
    moments[:n, :n] += COMMON * (lower + np.tril(lower, -1).T) + (1 - COMMON) * np.diag(lower.diagonal())
    upper = np.linalg.cholesky(moments[::-1, ::-1])[::-1, ::-1]
    return Block(first, moments.diagonal().astype(np.float32), (upper / upper.diagonal()).astype(np.float32))


def improved(x: np.ndarray, scales: np.ndarray, of_rows: np.ndarray, dtype: str, blocks: list) -> tuple:
    """(columns, rows) values, (groups, rows) scales that were found for them, and what these are multiples of ->
    quants of the shape of x, and scales."""
    quants, scales = np.empty_like(x), scales.copy()
    for block in blocks:
        end = block.first + len(block.importance)
        within, groups = slice(block.first, end), slice(block.first // GROUP, end // GROUP)
        _round_in_turn(x[within], quants[within], scales[groups], of_rows, dtype, block)
    return quants, scales


def _round_in_turn(
    x: np.ndarray, quants: np.ndarray, scales: np.ndarray, of_rows: np.ndarray, dtype: str, block: Block
) -> None:
    errors = np.empty_like(x)
    for group, first in enumerate(range(0, len(x), GROUP)):
        mine = slice(first, first + GROUP)
        wanted = x[mine] + block.feedback[:first, mine].T @ errors[:first]
        if group:  # the first's scale was found for the same values
            importance = block.importance[mine] / block.importance[mine].mean()
            found = search(wanted, dtype, np.repeat(importance[:, None], x.shape[1], axis=1))
            scales[group] = whole_scales(found, of_rows) * of_rows
        inverse = inverses(scales[group])
        for i, column in enumerate(range(first, first + GROUP)):
            quants[column] = nearest_by(wanted[i], inverse, dtype)
            errors[column] = x[column] - quants[column] * scales[group]
            wanted[i + 1 :] += block.feedback[column, column + 1 : mine.stop, None] * errors[column]
