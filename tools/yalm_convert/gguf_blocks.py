"""Tensors of GGUF files. Numbers are read as they are; what comes in blocks is dequantised by the package `gguf`.

Where a block's values are integers times one scale that fp16 holds, the model file's q8 or q4 has them without loss.
The scale is taken out of the block, and the integers are the dequantised values divided by it. Others have types of
their own in the model file, for which their bits only move (gguf_packing.py). Everything else
becomes q8 or q4n, unless something else is asked for. It becomes q8 where the type has 4 bits a weight and more, for
then it has lost several times what q8 loses; q4n where it has fewer, for then it has lost more than q4n does.
"""

from math import prod

import gguf
import numpy as np

from .checkpoint import TYPES, Stored, Tensor, read_whole
from .computed import Computed
from .errors import ModelError
from .gguf_file import Entry
from .gguf_packing import (
    iq2_s,
    iq2_xs,
    iq2_xxs,
    iq3_s,
    iq3_xxs,
    iq4_nl,
    iq4_xs,
    mxfp4,
    q2_k,
    q3_k,
    q4_1,
    q4_k,
    q5_0,
    q5_1,
    q5_k,
    q6_k,
    q8_0,
)
from .packing import GROUP
from .source import shown

Kind = gguf.GGMLQuantizationType
PLAIN = {Kind.F32: TYPES["F32"], Kind.F16: TYPES["F16"], Kind.BF16: TYPES["BF16"]}
FEW_BITS = 4  # a weight; with fewer q4n is exact enough
CACHED = 1024 << 10  # bytes, whose bits move within the L2: up to twice as fast as from memory


def _half(begin: int):
    """The scale is an fp16 number at this byte of the block."""
    end = begin + 2 or None
    return lambda blocks: np.ascontiguousarray(blocks[..., begin:end]).view("<f2")[..., 0]


# Types that are integers times a scale: the smallest of ours that holds them, and where the scale is.
EXACT = {
    Kind.Q4_0: ("q4", _half(0)),
    Kind.TQ1_0: ("q4", _half(-2)),
    Kind.TQ2_0: ("q4", _half(-2)),
}
# Types whose bits only move: to which of ours, and how.
MOVED = {
    Kind.Q4_K: ("q4k", q4_k),
    Kind.Q5_K: ("q5k", q5_k),
    Kind.Q6_K: ("q6k", q6_k),
    Kind.Q3_K: ("q3k", q3_k),
    Kind.Q2_K: ("q2k", q2_k),
    Kind.Q8_0: ("q8", q8_0),
    Kind.Q5_0: ("q5u", q5_0),
    Kind.Q4_1: ("q4a", q4_1),
    Kind.Q5_1: ("q5a", q5_1),
    Kind.MXFP4: ("mxfp4", mxfp4),
    Kind.IQ4_NL: ("iq4nl", iq4_nl),
    Kind.IQ4_XS: ("iq4xs", iq4_xs),
    Kind.IQ3_S: ("iq3s", iq3_s),
    Kind.IQ3_XXS: ("iq3xxs", iq3_xxs),
    Kind.IQ2_S: ("iq2s", iq2_s),
    Kind.IQ2_XS: ("iq2xs", iq2_xs),
    Kind.IQ2_XXS: ("iq2xxs", iq2_xxs),
}


class Blocks(Computed):
    """A tensor that is stored in blocks."""

    def __init__(self, entry: Entry):
        self.name, self.path, self.shape = entry.name, entry.path, entry.shape
        self.kind, self.offset, self.form = entry.kind, entry.offset, entry.kind.name
        self.block, self.block_bytes = gguf.GGML_QUANT_SIZES[entry.kind]
        self.exact, self._move = MOVED.get(entry.kind, ("", None))
        if not self._move:
            self.exact, self._scales = EXACT.get(entry.kind, ("", None))

    @property
    def default(self) -> str:
        return self.exact or ("q4" if 8 * self.block_bytes / self.block < FEW_BITS else "q8")

    def _read(self, first: int, n: int) -> np.ndarray:
        """(n, bytes of a row)."""
        row = self.shape[-1] // self.block * self.block_bytes
        data = np.empty((n, row), np.uint8)
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset + first * row)
            read_whole(file, memoryview(data.reshape(-1)), self)
        return data

    def values(self, first: int, n: int) -> np.ndarray:
        with np.errstate(all="ignore"):
            return gguf.dequantize(self._read(first, n), self.kind)

    def quants(self, first: int, n: int) -> tuple:
        if self._move:
            blocks = (self.shape[-1] // self.block, self.block_bytes)  # of a row
            rows, end = max(1, CACHED // prod(blocks)), first + n
            parts = (self._read(i, min(rows, end - i)).reshape(-1, *blocks) for i in range(first, end, rows))
            return tuple(map(np.concatenate, zip(*map(self._move, parts))))
        data = self._read(first, n)
        scales = self._scales(data.reshape(n, -1, self.block_bytes))
        with np.errstate(all="ignore"):
            values = gguf.dequantize(data, self.kind).reshape(*scales.shape, self.block)
            factors = scales.astype(np.float32)[..., None]
            found = np.divide(values, factors, out=np.zeros_like(values), where=factors != 0)
            quants = np.rint(found).astype(np.int8).reshape(n, -1)
        return quants, np.repeat(scales, self.block // GROUP, axis=1)


def tensor_of(entry: Entry) -> Tensor:
    if entry.kind in PLAIN:
        return Stored(entry.name, entry.path, PLAIN[entry.kind], entry.shape, entry.offset)
    if len(entry.shape) == 1:
        raise ModelError(f"{entry.path}: tensor {shown(entry.name)} is a vector of {entry.kind.name}, expected F32")
    _, size = gguf.GGML_QUANT_SIZES[entry.kind]
    try:
        gguf.dequantize(np.zeros((1, size), np.uint8), entry.kind)
    except NotImplementedError:
        raise ModelError(
            f"{entry.path}: tensor {shown(entry.name)} is of type {entry.kind.name}, which is not supported"
        ) from None
    return Blocks(entry)
