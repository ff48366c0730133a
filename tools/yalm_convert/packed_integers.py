"""Matrices of few-bit integers that safetensors hold packed in words of 32 bits, or as bytes: GPTQ, AWQ, and
compressed-tensors' own.

Each weight is s (q - z): q its integer, s and z the scale and the zero point of its row and its group of columns.
Where scales are fp16 numbers (or nearly), and groups are made of 32 neighbouring columns each, the model file holds
all of it without loss: as q4 or q8, if q - z are integers of 4 or 8 bits with sign; else, of 4 bits, with its zero
points, for as many columns as they are of.
"""

from dataclasses import dataclass
from typing import Callable, Optional

import numpy as np

from .checkpoint import Stored
from .computed import Computed
from .errors import ModelError
from .packing import GROUP, GROUPS_WITH_ZEROS
from .source import shown

RANGES = {"q4": (-8, 7), "q8": (-128, 127)}  # of what q - z may be
EIGHT_GROUPS = 8 * GROUP  # columns, a multiple of which types with zero points have
NEARLY = 2.0**-11  # what rounding a scale to fp16 may move it by
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # which of 8 columns each nibble of a word holds


@dataclass(frozen=True)
class Layout:
    """How the integers lie: unpack(words) gives those of a few output rows, (rows, columns) uint8; pairs(words), of 4
    bits, bytes of two neighbouring columns, as the model file has them."""

    bits: int
    rows_in_words: int  # output rows that a word holds; 1 where it holds columns
    along: int  # the axis of the stored matrix along which output rows lie
    unpack: Callable[[np.ndarray], np.ndarray]
    pairs: Optional[Callable[[np.ndarray], np.ndarray]] = None


def nibbles(words: np.ndarray, bits: int) -> np.ndarray:
    """(rows, words) int32 -> (rows, words * 32 / bits) uint8, lowest bits first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    found = words.astype("<u4")[..., None] >> shifts & np.uint32((1 << bits) - 1)
    return found.astype(np.uint8).reshape(len(words), -1)


def awq_rows(words: np.ndarray) -> np.ndarray:
    """(input columns, words) -> (output rows, input columns)."""
    found = nibbles(words, 4).reshape(len(words), -1, 8)
    inverse = np.argsort(AWQ_ORDER)
    return found[:, :, inverse].reshape(len(words), -1).T


def awq_pairs(words: np.ndarray) -> np.ndarray:
    found = np.empty((8 * words.shape[1], len(words) // 2), np.uint8)
    first, second, lower = words[0::2].astype("<u4"), words[1::2].astype("<u4"), np.uint32(0x0F0F0F0F)
    for odd, pair in enumerate((first & lower | (second & lower) << 4, first >> 4 & lower | second & ~lower)):
        of_rows = np.ascontiguousarray(pair.T).view(np.uint8).reshape(words.shape[1], -1, 4)
        for i in range(4):
            found[AWQ_ORDER[2 * i + odd] :: 8] = of_rows[:, :, i]
    return found


def word_bytes(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words).view(np.uint8)


def along_columns(bits: int) -> Layout:
    """compressed-tensors: (rows, words of a row)."""
    return Layout(bits, 1, 0, lambda words: nibbles(words, bits), word_bytes)


def gptq(bits: int) -> Layout:
    """(words of a column, rows)."""
    return Layout(
        bits, 1, 1, lambda words: nibbles(np.ascontiguousarray(words.T), bits), lambda words: word_bytes(words.T)
    )


AWQ = Layout(4, 8, 1, awq_rows, awq_pairs)  # (columns, words of 8 rows)
BYTES = Layout(8, 1, 0, lambda values: values.view(np.uint8) ^ np.uint8(128))  # signed bytes as they are, 128 added


class Integers(Computed):
    """scales and zeros (rows, groups), float32 and integers; groups (columns): which is each column's, None where
    they follow each other."""

    def __init__(self, name: str, form: str, packed: Stored, layout: Layout, shape: tuple, scales, zeros, groups=None):
        self.name, self.path, self.form, self.shape = name, packed.path, form, shape
        self.packed, self.layout = packed, layout
        self.scales, self.zeros, self.groups = scales, zeros, groups
        self.exact = self._exact()

    def _exact(self) -> str:
        """Also where fp16 has scales only nearly: rounding the integers again would move weights ten times as far."""
        columns = self.shape[1] // self.scales.shape[1]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            half = self.scales.astype(np.float16).astype(np.float32)
            self.moved = float(np.nan_to_num(np.abs(half / self.scales - 1)).max())
        if self.groups is not None or columns % GROUP or self.moved > NEARLY:
            return ""
        least, most = -int(self.zeros.max()), (1 << self.layout.bits) - 1 - int(self.zeros.min())
        held = next((dtype for dtype, (low, high) in RANGES.items() if low <= least and most <= high), "")
        if held == "q8" and self.layout.bits == 4 and self.zeros.min() >= 0 and self.shape[1] % EIGHT_GROUPS == 0:
            return f"q4z{next(n for n in GROUPS_WITH_ZEROS if columns % n == 0)}"
        return held

    def _rows(self, first: int, n: int, unpack: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """(n, …) of what unpack() gives."""
        per, along = self.layout.rows_in_words, self.layout.along
        begin, end = first // per, -(-(first + n) // per)
        stored = np.memmap(self.path, self.packed.dtype, "r", self.packed.offset, self.packed.shape)
        words = np.array(stored[begin:end] if along == 0 else stored[:, begin:end])
        return unpack(words)[first - begin * per :][:n]

    def _centred(self, first: int, n: int) -> np.ndarray:
        zeros = self._spread(self.zeros[first : first + n])
        return self._rows(first, n, self.layout.unpack)[:, : self.shape[1]].astype(np.int16) - zeros.astype(np.int16)

    def _spread(self, of_groups: np.ndarray) -> np.ndarray:
        if self.groups is not None:
            return of_groups[:, self.groups]
        return np.repeat(of_groups, -(-self.shape[1] // of_groups.shape[1]), axis=1)[:, : self.shape[1]]

    def values(self, first: int, n: int) -> np.ndarray:
        return self._centred(first, n) * self._spread(self.scales[first : first + n])

    def quants(self, first: int, n: int) -> tuple:
        scales = self.scales[first : first + n]
        columns = self.shape[1] // scales.shape[1]
        if self.exact not in RANGES:
            return self._with_zeros(first, n, columns // int(self.exact[3:]))
        return self._centred(first, n).astype(np.int8), np.repeat(scales.astype(np.float16), columns // GROUP, axis=1)

    def _with_zeros(self, first: int, n: int, times: int) -> tuple:
        """Bytes as the model file has them. times: as often as a scale is repeated."""
        scales, zeros = (np.repeat(part[first : first + n], times, axis=1) for part in (self.scales, self.zeros))
        eights = (n, self.shape[1] // EIGHT_GROUPS, -1)
        halves = np.ascontiguousarray(scales.astype("<f2")).view(np.uint8).reshape(eights)
        found = np.concatenate([halves, zeros.astype(np.uint8).reshape(eights)], axis=-1)
        return self._rows(first, n, self.layout.pairs) ^ np.uint8(0x88), found.reshape(n, -1)


def read_array(tensor: Stored) -> np.ndarray:
    """All of a small tensor."""
    with open(tensor.path, "rb") as file:
        file.seek(tensor.offset)
        data = file.read(tensor.size)
    if len(data) != tensor.size:
        raise ModelError(f"{tensor.path}: truncated while it was read, in tensor {shown(tensor.name)}")
    return np.frombuffer(data, tensor.dtype).reshape(tensor.shape)


def order_of(g_idx: Optional[Stored], group: int, n_groups: int) -> Optional[np.ndarray]:
    """Each column's group, None where they follow each other."""
    if g_idx is None:
        return None
    found = read_array(g_idx).astype(np.int64)
    if (found == np.arange(len(found)) // group).all():
        return None
    if found.min() < 0 or found.max() >= n_groups:
        raise ModelError(f"{g_idx.path}: tensor {shown(g_idx.name)} names group {found.max()}, there are {n_groups}")
    return found
