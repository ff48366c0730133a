"""Weight matrices as 8-bit floats (docs/format.md, "8-bit floats"): fp8 is E4M3 with a scale for each row, fp8_e5m2
is E5M2 as it is.

An 8-bit float's relative error is about the same wherever in the type's range a value lies. So a search for scales,
as quantise.py does for integers, would gain less than half a percent of the squared error. A row's largest magnitude
becomes E4M3's largest, 448.
"""

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from .checkpoint import PIECE, Tensor, row_blocks
from .errors import ModelError
from .source import shown

SCALE_BYTES = {"fp8": 4, "fp8_e5m2": 0}  # of each row
LARGEST = {"fp8": np.float32(448), "fp8_e5m2": np.float32(57344)}
ROUNDED = {"fp8": np.dtype(ml_dtypes.float8_e4m3fn), "fp8_e5m2": np.dtype(ml_dtypes.float8_e5m2)}
STEP = 1 << 18  # elements that are rounded at once: few enough for a cache


def fp8_size(dtype: str, shape: tuple) -> int:
    rows, columns = shape
    return rows * (columns + SCALE_BYTES[dtype])


def to_fp8(source: Tensor, dtype: str) -> Iterator[np.ndarray]:
    """The tensor's bytes: all rows' elements, block by block, and at last all rows' scales."""
    rows, columns = source.shape
    scales = np.empty(rows, "<f4")
    at_once = max(1, min(STEP, PIECE // source.dtype.itemsize) // columns)
    for first, values in row_blocks(source, at_once, PIECE):
        elements, scales[first : first + len(values)] = round_rows(values.astype(np.float32), dtype)
        if not np.isfinite(scales[first : first + len(values)]).all():
            raise ModelError(f"{source.path}: tensor {shown(source.name)} has a value that is NaN or infinite")
        yield elements.view(np.uint8).reshape(-1)
    if SCALE_BYTES[dtype]:
        yield scales


def round_rows(values: np.ndarray, dtype: str) -> tuple:
    """(rows, columns) float32 -> elements, to nearest even and at most the type's largest, and scales, 1 where the
    type has none.

    A scale is not finite where one of the row's values is not.
    """
    largest = np.abs(values).max(axis=1)  # NaN where there is one
    with np.errstate(all="ignore"):
        scales = (
            largest / LARGEST[dtype] if SCALE_BYTES[dtype] else np.where(np.isfinite(largest), np.float32(1), np.nan)
        )
        scaled = values * _inverse(scales)[:, None]
        np.clip(scaled, -LARGEST[dtype], LARGEST[dtype], out=scaled)
        return scaled.astype(ROUNDED[dtype]), scales


def _inverse(scales: np.ndarray) -> np.ndarray:
    """1 / scales, held to what float32 has; of a row of zeros, or so small that it might as well be, 0."""
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > 0)
    return np.where(np.isfinite(inverse), inverse, np.float32(0))
