"""Weight matrices of bfloat16 numbers in 12 bits each, without loss (docs/format.md, "bfloat16 in 12 bits").

A row keeps each number's sign and fraction, and four bits that say how far its exponent is below the row's largest.
What is out of their reach, about one number in ten thousand of trained weights, stands in the row's header. A matrix
with a row that has more of these than its header holds stays bfloat16.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .checkpoint import PIECE, TYPES, Tensor, rounded, row_blocks

BLOCK, BLOCK_BYTES, HEADER_COLUMNS, MOST_COLUMNS = 128, 192, 4096, 65536
REACH = 15  # exponents that codes stand for; the code REACH itself is an exponent of zero
STEP = 1 << 18  # numbers that are packed at once: few enough for a cache


def header_bytes(columns: int) -> int:
    return -(-columns // HEADER_COLUMNS) * 64


def bf12_size(shape: tuple) -> int:
    rows, columns = shape
    return rows * (header_bytes(columns) + -(-columns // BLOCK) * BLOCK_BYTES)


class Survey(NamedTuple):
    fits: bool  # each row's header holds the row's exceptions
    rounded: int  # how many numbers are no bfloat16 as they are stored


def survey(source: Tensor) -> Survey:
    """Reads all of the tensor: whether 12 bits hold it, and how many numbers are rounded first."""
    fits, n_rounded = source.shape[1] <= MOST_COLUMNS, 0
    for values, numbers in _blocks(source):
        fits = fits and bool(find_exponents(numbers.view("<u2"))[1].all())
        if values.dtype != numbers.dtype:
            n_rounded += np.count_nonzero(values.astype(np.float32) != numbers.astype(np.float32))
    return Survey(fits, n_rounded)


def to_bf12(source: Tensor, check_finite: bool) -> Iterator[np.ndarray]:
    """The tensor's bytes, row after row. survey() must have said that it fits."""
    for _, values in _blocks(source, check_finite):
        numbers = values.view("<u2")
        largest, _ = find_exponents(numbers)
        yield pack_rows(numbers, largest).reshape(-1)


def _blocks(source: Tensor, check_finite: bool = False) -> Iterator[tuple]:
    """(rows, columns) values as they are stored, and as bfloat16, a few rows at a time."""
    at_once = max(1, min(STEP, PIECE // source.dtype.itemsize) // source.shape[1])
    for _, values in row_blocks(source, at_once, PIECE):
        yield values, rounded(source, values, TYPES["BF16"], check_finite)


def find_exponents(numbers: np.ndarray) -> tuple:
    """(rows, columns) bfloat16 as uint16 -> the exponent that each row's codes count down from, and whether its
    exceptions then fit."""
    exponents = (numbers >> 7 & 255).astype(np.uint8)
    room = header_bytes(numbers.shape[1]) // 4 - 1
    largest = exponents.max(axis=1)
    lowest = np.maximum(largest.astype(np.int16) - (REACH - 1), 1).astype(np.uint8)
    good = ((exponents < lowest[:, None]) & (exponents > 0)).sum(axis=1) <= room
    for r in np.flatnonzero(~good):  # a few large numbers, perhaps: they are the exceptions then
        counts = np.bincount(exponents[r], minlength=256)
        counts[0] = 0
        reached = np.convolve(counts, np.ones(REACH, np.int64))[:256]  # by codes from this exponent down
        largest[r] = np.argmax(reached)
        good[r] = counts.sum() - reached[largest[r]] <= room
    return largest, good


def pack_rows(numbers: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """(rows, columns) bfloat16 as uint16 -> (rows, bytes of a row)."""
    rows, columns = numbers.shape
    exponents = (numbers >> 7 & 255).astype(np.int16)
    codes = largest.astype(np.int16)[:, None] - exponents
    excepted = (exponents > 0) & ((codes < 0) | (codes >= REACH))
    codes[exponents == 0] = REACH
    codes[excepted] = REACH
    kept = np.where(excepted, 0, numbers).astype(np.uint32)

    blocks = -(-columns // BLOCK)
    words = np.zeros((rows, blocks * BLOCK), np.uint32)
    words[:, :columns] = (kept & 0x807F) << 16
    padded = np.full((rows, blocks * BLOCK), REACH, np.uint32)
    padded[:, :columns] = codes
    packed = np.zeros((rows, blocks, 3, 16), "<u4")
    words = words.reshape(rows, blocks, 2, 4, 16)
    padded = padded.reshape(rows, blocks, 8, 16)
    for turn in range(4):
        part = words[:, :, :, turn]
        packed[:, :, :2] |= part if turn == 0 else part >> 8 * turn | part << (32 - 8 * turn)
    for place in range(8):
        packed[:, :, 2] |= padded[:, :, place] << 4 * place

    header = np.zeros((rows, header_bytes(columns) // 4, 2), "<u2")
    header[:, 0, 0] = largest
    header[:, 0, 1] = excepted.sum(axis=1)
    row, column = np.nonzero(excepted)
    slot = np.arange(len(row)) - np.searchsorted(row, row) + 1
    header[row, slot, 0] = column
    header[row, slot, 1] = numbers[row, column]
    return np.concatenate([header.reshape(rows, -1).view(np.uint8), packed.reshape(rows, -1).view(np.uint8)], axis=1)
