"""How a quantised matrix's integers and scales lie in the model file (docs/format.md, "Quantised matrices")."""

import numpy as np

from .grids import VALUES

GROUP = 32  # columns that share a scale
GROUP_BYTES = {
    "q8": 32,
    "q6": 24,
    "q5": 20,
    "q4n": 16,
    "q3": 12,
    "q2": 8,
    "q4": 16,
    "q6k": 24,
    "q5k": 20,
    "q4k": 16,
    "q5u": 20,
    "q5a": 20,
    "q4a": 16,
    "mxfp4": 16,
    "iq4nl": 16,
    "iq4xs": 16,
    "q4z32": 16,
    "q4z64": 16,
    "q4z128": 16,
    "q3k": 12,
    "q2k": 8,
    "iq3s": 13,
    "iq3xxs": 12,
    "iq2s": 9,
    "iq2xs": 8,
    "iq2xxs": 8,
}
EIGHT_SCALES = {
    "q8": 16,
    "q6": 8,
    "q5": 8,
    "q4n": 8,
    "q3": 8,
    "q2": 8,
    "q4": 16,
    "q6k": 18,
    "q5k": 16,
    "q4k": 16,
    "q5u": 16,
    "q5a": 32,
    "q4a": 32,
    "mxfp4": 8,
    "iq4nl": 16,
    "iq4xs": 10,
    "q4z32": 24,
    "q4z64": 12,
    "q4z128": 6,
    "q3k": 14,
    "q2k": 20,
    "iq3s": 6,
    "iq3xxs": 2,
    "iq2s": 10,
    "iq2xs": 10,
    "iq2xxs": 2,
}
# Types of numbers that a file has already: nothing is rounded to them. Scales that stand together are so many bytes, and
# of these the first so many are fp16 numbers.
AS_THEY_ARE = {
    "q6k": (18, 2),
    "q5k": (16, 4),
    "q4k": (16, 4),
    "q5u": (2, 2),
    "q5a": (4, 4),
    "q4a": (4, 4),
    "mxfp4": (1, 0),
    "iq4nl": (2, 2),
    "iq4xs": (10, 2),
    "q4z32": (24, 16),
    "q4z64": (12, 8),
    "q4z128": (6, 4),
    "q3k": (14, 2),
    "q2k": (20, 4),
    "iq3s": (6, 2),
    "iq3xxs": (2, 2),
    "iq2s": (10, 2),
    "iq2xs": (10, 2),
    "iq2xxs": (2, 2),
}
WIDER = {"q4", "mxfp4", "iq4nl", "q4z32", "q4z64", "q4z128"}  # whose values q8 has, too
E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)  # in halves
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
GROUPS_WITH_ZEROS = (128, 64, 32)  # columns that have a scale and a zero point in q4z128 and its likes
SIX_BITS = (
    "q6",
    "q5",
    "q4n",
    "q3",
    "q2",
)  # whose scales are an 8-bit integer for each group, and a number for each row
EIGHTS, PAIRS, ODD = 4, 4, 2  # of a group's columns


def _indices(values: np.ndarray) -> bytes:
    """The place of each value, by its byte."""
    index = np.zeros(256, np.uint8)
    index[values.view(np.uint8)] = np.arange(len(values))
    return index.tobytes()


INDICES = {dtype: _indices(values) for dtype, values in VALUES.items()}


def groups_of(columns: int) -> int:
    return -(-columns // GROUP)


def quantised_size(dtype: str, shape: tuple) -> int:
    rows, columns = shape
    groups, row = groups_of(columns), 4 if dtype in SIX_BITS else 0
    return rows * (groups * GROUP_BYTES[dtype] + groups * EIGHT_SCALES[dtype] // 8 + row)


def scale_numbers(scales: np.ndarray, dtype: str) -> np.ndarray:
    """The fp16 numbers among the bytes of groups' scales, of a type of numbers that a file has already; of mxfp4, whose
    last power of two means NaN, a number for each."""
    if dtype == "mxfp4":
        return np.where(scales == 0xFF, np.float32(np.nan), np.float32(0))
    together, halves = AS_THEY_ARE[dtype]
    return np.ascontiguousarray(scales.reshape(-1, together)[:, :halves]).view("<f2")


def widened(quants: np.ndarray, scales: np.ndarray, dtype: str) -> tuple:
    """Bytes of such a type, one of WIDER -> q8's integers and scales. Those below fp16's become its least."""
    rows, columns = len(quants), 2 * quants.shape[1]
    codes = np.stack([quants & 15, quants >> 4], axis=-1).reshape(rows, -1, GROUP)
    if dtype == "iq4nl":
        return IQ4[codes].reshape(rows, -1), scales.view("<f2").reshape(rows, -1)
    if dtype == "mxfp4":
        exponents = scales.astype(np.int32).reshape(rows, -1) - 128
        found = np.rint(np.ldexp(E2M1[codes].astype(np.float32), np.minimum(exponents + 24, 0)[..., None]))
        return found.astype(np.int8).reshape(rows, -1), np.ldexp(np.float32(1), np.maximum(exponents, -24)).astype(
            "<f2"
        )
    together, halves = AS_THEY_ARE[dtype]
    parts, groups = scales.reshape(-1, together), int(dtype[3:]) // GROUP
    zeros = np.repeat(parts[:, halves:].reshape(rows, -1), groups, axis=1)[..., None]
    found = (codes ^ 8).astype(np.int16) - zeros
    spread = np.repeat(scale_numbers(scales, dtype).reshape(rows, -1), groups, axis=1)
    return found.astype(np.int8).reshape(rows, columns), spread


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
        bits = np.frombuffer(bits.tobytes().translate(INDICES[dtype]), np.uint8).reshape(bits.shape)
    if dtype == "q2":
        return _pairs_plane(bits)
    if dtype == "q3":
        return np.concatenate([_pairs_plane(bits), _bits_plane(bits >> 2)], axis=1)
    nibbles = (bits[:, 0::2] & 15) | (bits[:, 1::2] << 4)
    if dtype in ("q4n", "q4"):
        return nibbles
    return np.concatenate([nibbles, (_bits_plane if dtype == "q5" else _pairs_plane)(bits >> 4)], axis=1)


def _bits_plane(bits: np.ndarray) -> np.ndarray:
    """One bit of each column, 0 or 1: of a group, a byte for each pair of columns in eight."""
    rows = len(bits)
    return np.packbits(bits.reshape(rows, -1, EIGHTS, PAIRS, ODD).swapaxes(2, 3), bitorder="little").reshape(rows, -1)


def _pairs_plane(bits: np.ndarray) -> np.ndarray:
    """The low two bits of each column, likewise, those of the even columns first."""
    rows = len(bits)
    bits = (bits & 3).reshape(rows, -1, EIGHTS, PAIRS, ODD)
    plane = bits[:, :, 0] | bits[:, :, 1] << 2 | bits[:, :, 2] << 4 | bits[:, :, 3] << 6
    return plane.swapaxes(2, 3).reshape(rows, -1)
