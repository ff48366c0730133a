"""What takes long, by libyalm where that is built, else by numpy: the same bits, several times as fast.

The library is the one beside the program that this converter belongs to (yalm_measure.h, "converting"). What it computes is
what grids.py and gguf_packing.py do, the references; it finds every constant there.
"""

import ctypes
import functools
from pathlib import Path
from typing import Optional

import numpy as np

from .grids import LEAST, MOST, NEAREST, ROUNDS, TARGETS, nearest, nearest_in_turn, turned
from .grids import search as search_by_numpy

ABI = "0.2"
HERE = Path(__file__).resolve()
PLACES = (HERE.parents[2], HERE.parents[3] / "lib")  # of the source's tree, and of what is installed


class _Grid(ctypes.Structure):
    """yalm_grid."""

    _fields_ = (
        ("nearest", ctypes.c_char_p),
        ("least", ctypes.c_float),
        ("most", ctypes.c_float),
        ("targets", ctypes.POINTER(ctypes.c_float)),
        ("n_targets", ctypes.c_int),
        ("rounds", ctypes.c_int),
    )


@functools.lru_cache(None)
def _grid(dtype: str) -> _Grid:
    targets = TARGETS[dtype]
    numbers = (ctypes.c_float * len(targets))(*targets)
    return _Grid(NEAREST.get(dtype), LEAST.get(dtype, 0), MOST.get(dtype, 0), numbers, len(targets), ROUNDS[dtype])


@functools.lru_cache(None)
def library() -> Optional[ctypes.CDLL]:
    """None where there is none that has the functions."""
    array, grid, size = ctypes.c_void_p, ctypes.POINTER(_Grid), ctypes.c_size_t
    for place in PLACES:
        try:
            found = ctypes.CDLL(str(place / f"libyalm.so.{ABI}"))
            found.yalm_version.restype = ctypes.c_char_p
            found.yalm_search_scales.argtypes = array, grid, array, array, ctypes.c_bool, size
            found.yalm_split_nibbles.argtypes = array, array, ctypes.c_int, ctypes.c_uint8, size
            found.yalm_round_groups.argtypes = array, array, grid, array, array, array, array, size
        except (OSError, AttributeError):
            continue
        return found if found.yalm_version().decode().startswith(f"{ABI}.") else None
    return None


def _at(array: np.ndarray) -> int:
    assert array.dtype in (np.float32, np.int8, np.uint8) and array.flags.c_contiguous
    return array.ctypes.data


def split_nibbles(codes: np.ndarray, size: int, turned_over: int) -> np.ndarray:
    """Whole `size` bytes, with the codes of one column in their lower four bits and of another in their upper ones -> the same,
    first the bytes of the lower ones: two columns that are neighbours in each, some bits turned over."""
    found, codes = np.empty(codes.size, np.uint8), np.ascontiguousarray(codes)
    if library() is not None:
        library().yalm_split_nibbles(_at(found), _at(codes), size, turned_over, codes.size // size)
        return found
    words = codes.reshape(-1).view("<u2")
    parts = found.view(f"V{size // 2}").reshape(-1, 2)
    for i, half in enumerate((words & 0x0F0F, words >> 4 & 0x0F0F)):
        parts[:, i] = ((half | half >> 4).astype(np.uint8) ^ np.uint8(turned_over)).view(parts.dtype)
    return found


def search(x: np.ndarray, dtype: str, weights: Optional[np.ndarray] = None, rows: bool = False) -> np.ndarray:
    """grids.py's search(): the scales (n) of groups (32, n), where errors count by weights, (32, n) or (32, 1). With rows all
    of that are rows: groups (n, 32)."""
    if library() is None:
        x, weights = (array if array is None or not rows else turned(array) for array in (x, weights))
        return search_by_numpy(x, dtype, weights)
    if weights is not None:
        weights = np.ascontiguousarray(np.broadcast_to(weights, x.shape))
    scales = np.empty(x.shape[not rows], np.float32)
    at = None if weights is None else _at(weights)
    library().yalm_search_scales(_at(scales), _grid(dtype), _at(x), at, rows, len(scales))
    return scales


def rounded(x: np.ndarray, scales: np.ndarray, dtype: str) -> np.ndarray:
    """Groups (n, 32) by their scales (n) -> int8 of that shape."""
    if library() is None:
        return turned(nearest(turned(x), scales, dtype).astype(np.int8))
    quants = np.empty(x.shape, np.int8)
    library().yalm_round_groups(_at(quants), None, _grid(dtype), _at(x), _at(scales), None, None, len(scales))
    return quants


def rounded_in_turn(
    x: np.ndarray, wanted: np.ndarray, scales: np.ndarray, dtype: str, feedback: np.ndarray, errors: np.ndarray
) -> np.ndarray:
    """grids.py's nearest_in_turn(), but that `wanted` may stay as it was."""
    if library() is None:
        return nearest_in_turn(x, wanted, scales, dtype, feedback, errors)
    quants, feedback = np.empty(x.shape, np.int8), np.ascontiguousarray(feedback)
    arrays = map(_at, (wanted, scales, x, feedback))
    library().yalm_round_groups(_at(quants), _at(errors), _grid(dtype), *arrays, len(scales))
    return quants
