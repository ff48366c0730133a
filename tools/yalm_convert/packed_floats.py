"""Matrices of 8-bit and 4-bit floats with scales: FP8 (E4M3) with one scale for all, for each row or for each block,
and MXFP4 (E2M1 in groups of 32 columns).

Scales of rows are what the model file's fp8 has: those are copied. So are MXFP4's bytes, which the model file has
likewise.
"""

import numpy as np

from .checkpoint import Stored
from .computed import Computed
from .errors import ModelError
from .packing import E2M1, GROUP
from .source import shown

NOT_A_NUMBER = 255  # as a scale's exponent


class Scaled(Computed):
    """E4M3 times a scale; scales (rows / height rounded up, columns / width rounded up) float32, each of a block of
    the matrix."""

    def __init__(self, name: str, stored: Stored, scales: np.ndarray, block: tuple):
        self.name, self.path, self.shape = name, stored.path, stored.shape
        self.stored, self.scales, self.block = stored, scales, block
        by_rows = scales.shape[1] == 1
        self.exact, self.form = ("fp8", "FP8") if by_rows else ("", "FP8 in blocks")

    def _scales(self, first: int, n: int) -> np.ndarray:
        """(n, groups of columns)."""
        return self.scales[np.arange(first, first + n) // self.block[0]]

    def values(self, first: int, n: int) -> np.ndarray:
        scales = np.repeat(self._scales(first, n), self.block[1], axis=1)[:, : self.shape[1]]
        return self.stored.values(first, n).astype(np.float32) * scales

    def floats(self, first: int, n: int) -> tuple:
        elements = self.stored.values(first, n)
        if (elements.view(np.uint8) & 127 == 127).any():
            raise ModelError(f"{self.path}: tensor {shown(self.name)} has a value that is NaN")
        return elements, self._scales(first, n)[:, 0].astype("<f4")


class Mxfp4(Computed):
    """blocks (…, rows, columns / 32, 16) bytes of two values, the low four bits first; scales (…, rows, columns /
    32), exponents + 127."""

    form = "MXFP4"
    exact = "mxfp4"

    def __init__(self, name: str, blocks: Stored, scales: np.ndarray, shape: tuple):
        self.name, self.path, self.shape = name, blocks.path, shape
        self.blocks, self.scales = blocks, scales.reshape(-1, shape[-1] // GROUP)
        if (self.scales == NOT_A_NUMBER).any():
            raise ModelError(f"{self.path}: tensor {shown(name)} has a scale that is NaN")

    def _bytes(self, first: int, n: int) -> np.ndarray:
        row = self.shape[-1] // 2
        return self.blocks.part(first * row, (n, row)).values(0, n)

    def values(self, first: int, n: int) -> np.ndarray:
        data = self._bytes(first, n)
        halves = E2M1[np.stack([data & 15, data >> 4], axis=-1).reshape(n, -1)]
        scales = np.ldexp(np.float32(1), self.scales[first : first + n].astype(np.int32) - 128)
        return halves * np.repeat(scales, GROUP, axis=1)

    def quants(self, first: int, n: int) -> tuple:
        return self._bytes(first, n), self.scales[first : first + n]
