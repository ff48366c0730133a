"""Rounding that sees the rest of the row: what an error does to the products, later columns make up for.

What counts is the error of a matrix's products, d·A·d for a row's errors d, where A holds the second moments of what the
columns read: the mean of x·xᵀ over a text (docs/quantisation.md). With A = U·D·Uᵀ, U upper triangular with ones on its
diagonal, columns are rounded in turn: column j of what it is and of all errors before it, times column j of U. That is
GPTQ's rounding (Frantar et al., arXiv 2210.17323) as LDLQ writes it (Chee et al., arXiv 2307.13304).

Rows do not depend on each other. They lie along the last axis here, (columns, rows), as groups do in grids.py.
"""

import dataclasses

import numpy as np

from .grids import MOST_SCALE, TARGETS, whole_scales
from .native import rounded_in_turn, search
from .packing import GROUP, groups_of

# A text of some thousand tokens is not all texts. What two columns have in common counts COMMON; EVERY times the median of
# A's diagonal, where columns are read at all, is added to it. The mean would follow a few columns of huge activations.
COMMON, EVERY = 0.85, 0.5
LAZY = 256  # columns, whole groups


@dataclasses.dataclass
class Block:
    """Columns whose second moments are known: those from `first` on, whole groups."""

    first: int
    importance: np.ndarray  # (columns)
    feedback: np.ndarray  # (columns, columns), U


_last: tuple = (None, [])


def blocks_of(products: object) -> list:
    """(columns, columns of a block), of each block's products the lower triangle -> Blocks. Other scales of all products
    mean the same. Where there are none, nothing is known. Matrices that read the same come one after another: what was
    made last is kept."""
    global _last
    if _last[0] is not products:
        of, products = products, np.asarray(products)
        columns, width = products.shape
        diagonal = products[np.arange(columns), np.arange(columns) % width]
        read, firsts = diagonal[diagonal > 0], range(0, columns, width)
        more = EVERY * float(np.median(read)) if len(read) else 0.0
        _last = of, [_block(first, products[first : first + width], more) for first in firsts] if more else []
    return _last[1]


def _block(first: int, lower: np.ndarray, more: float) -> Block:
    """Of the moments A, turned round so that the triangle that cholesky() reads has what lies above A's diagonal."""
    n = len(lower)
    size = groups_of(n) * GROUP  # also of the columns that fill up the last group
    turned, diagonal = np.zeros((size, size)), np.full(size, more)
    np.multiply(lower[:, :n].T[::-1, ::-1], COMMON, out=turned[size - n :, size - n :])
    diagonal[:n] += lower.diagonal()
    turned[np.diag_indices(size)] = diagonal[::-1]
    upper = np.linalg.cholesky(turned).astype(np.float32)[::-1, ::-1]
    return Block(first, diagonal.astype(np.float32), upper / upper.diagonal())


def improved(x: np.ndarray, dtype: str, blocks: list) -> tuple:
    """(columns, rows) values -> int8 quants of that shape, (groups, rows) whole scales, and what rows' scales are multiples of.
    The latter have room for the largest scale that search() tries, since errors may make the largest value larger. They
    are not finite where the values do not allow one."""
    of_rows = np.abs(x).max(axis=0) / np.float32(MOST_SCALE * min(map(abs, TARGETS[dtype])))
    of_rows[~np.isfinite(np.square(x).sum(axis=0))] = np.nan
    quants, whole = np.empty(x.shape, np.int8), np.empty((len(x) // GROUP, x.shape[1]), np.float32)
    for block in blocks:
        end = block.first + len(block.importance)
        within, groups = slice(block.first, end), slice(block.first // GROUP, end // GROUP)
        _round_in_turn(x[within], quants[within], whole[groups], of_rows, dtype, block)
    return quants, whole, of_rows


def _round_in_turn(
    x: np.ndarray, quants: np.ndarray, whole: np.ndarray, of_rows: np.ndarray, dtype: str, block: Block
) -> None:
    """What errors do to later columns is added when it is needed: to LAZY columns at once, for large products of matrices
    are faster; to a group; to a group's columns one by one."""
    errors, feedback = np.empty_like(x), block.feedback
    for batch in range(0, len(x), LAZY):
        ahead = x[batch : batch + LAZY] + feedback[:batch, batch : batch + LAZY].T @ errors[:batch]
        for first in range(batch, batch + len(ahead), GROUP):
            mine = slice(first, first + GROUP)
            wanted = ahead[first - batch : first - batch + GROUP]
            wanted += feedback[batch:first, mine].T @ errors[batch:first]
            importance = block.importance[mine] / block.importance[mine].mean()
            whole[first // GROUP] = whole_scales(search(wanted, dtype, importance[:, None]), of_rows)
            scale = whole[first // GROUP] * of_rows
            quants[mine] = rounded_in_turn(x[mine], wanted, scale, dtype, feedback[mine, mine], errors[mine])
