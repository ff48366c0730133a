"""How a quantised matrix's integers and scales lie in the model file (docs/format.md, "Quantised matrices")."""

import numpy as np

from .grids import VALUES

GROUP = 32  # columns that share a scale
GROUP_BYTES = {
    "q8": 32,
    "q6": 24,
    "q5": 20,
    "q4n": 16,
    "q4": 16,
    "q6k": 24,
    "q5k": 20,
    "q4k": 16,
    "q5u": 20,
    "q5a": 20,
    "q4a": 16,
}
EIGHT_SCALES = {
    "q8": 16,
    "q6": 8,
    "q5": 8,
    "q4n": 8,
    "q4": 16,
    "q6k": 18,
    "q5k": 16,
    "q4k": 16,
    "q5u": 16,
    "q5a": 32,
    "q4a": 32,
}
# Types of GGUF's numbers: nothing is rounded to them. Of the scales that stand together, so many bytes are fp16 numbers.
AS_THEY_ARE = {"q6k": 2, "q5k": 4, "q4k": 4, "q5u": 2, "q5a": 4, "q4a": 4}
SIX_BITS = ("q6", "q5", "q4n")  # whose scales are an 8-bit integer for each group, and a number for each row
EIGHTS, PAIRS, ODD = 4, 4, 2  # of a group's columns


def groups_of(columns: int) -> int:
    return -(-columns // GROUP)


def quantised_size(dtype: str, shape: tuple) -> int:
    rows, columns = shape
    groups, row = groups_of(columns), 4 if dtype in SIX_BITS else 0
    return rows * (groups * GROUP_BYTES[dtype] + groups * EIGHT_SCALES[dtype] // 8 + row)


def scale_numbers(scales: np.ndarray, dtype: str) -> np.ndarray:
    """The fp16 numbers among the bytes of groups' scales, of a type of GGUF's numbers."""
    every = scales.reshape(-1, EIGHT_SCALES[dtype] if dtype.endswith("k") else AS_THEY_ARE[dtype])
    return np.ascontiguousarray(every[:, : AS_THEY_ARE[dtype]]).view("<f2")


def filled_up(values: np.ndarray) -> np.ndarray:
    """(rows, columns), with zeros up to whole groups."""
    rows, columns = values.shape
    if columns % GROUP == 0:
        return values
    padded = np.zeros((rows, groups_of(columns) * GROUP), values.dtype)
    padded[:, :columns] = values
    return padded


def pack(quants: np.ndarray, dtype: str) -> np.ndarray:
    """(rows, columns) int8, columns whole groups, but even ones are enough for q4 -> (rows, bytes)."""
    bits = quants.view(np.uint8)
    if dtype == "q8":
        return bits
    if dtype in VALUES:
        index = np.zeros(256, np.uint8)
        index[VALUES[dtype].view(np.uint8)] = np.arange(len(VALUES[dtype]))
        bits = index[bits]
    nibbles = (bits[:, 0::2] & 15) | (bits[:, 1::2] << 4)
    if dtype in ("q4n", "q4"):
        return nibbles
    return np.concatenate([nibbles, _second_plane(bits, dtype)], axis=1)


def _second_plane(bits: np.ndarray, dtype: str) -> np.ndarray:
    """What q5 and q6 have beyond four bits: of a group, a byte for each pair of columns in eight; q6 has those of the
    even columns first."""
    rows = len(bits)
    high = (bits >> 4).reshape(rows, -1, EIGHTS, PAIRS, ODD)
    if dtype == "q5":
        return np.packbits(high.swapaxes(2, 3), bitorder="little").reshape(rows, -1)
    high &= 3
    plane = high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6
    return plane.swapaxes(2, 3).reshape(rows, -1)
