"""What takes long, by libyalm where that is built, else by numpy: the same bits, in half to seven tenths of the time.

The library is the one beside the program that this converter belongs to (yalm_measure.h, "converting"). grids.py, and
split_nibbles() here, define what it computes. Python passes it each type's constants.
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
PLACE = HERE.parents[2] if HERE.parents[1].name == "tools" else HERE.parents[3] / "lib"  # else: installed, under share


class _Grid(ctypes.Structure):
    """yalm_grid."""

    _fields_ = (
        ("size", ctypes.c_size_t),
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
    size = ctypes.sizeof(_Grid)
    return _Grid(
        size, NEAREST.get(dtype), LEAST.get(dtype, 0), MOST.get(dtype, 0), numbers, len(targets), ROUNDS[dtype]
    )


@functools.lru_cache(None)
def library() -> Optional[ctypes.CDLL]:
    """None where there is none that has the functions, in the form that is called here."""
    array, grid, size = ctypes.c_void_p, ctypes.POINTER(_Grid), ctypes.c_size_t
    try:
        found = ctypes.CDLL(str(PLACE / f"libyalm.so.{ABI}"))
        found.yalm_version.restype = ctypes.c_char_p
        found.yalm_search_scales.argtypes = array, grid, array, array, ctypes.c_bool, size
        found.yalm_search_scales.restype = found.yalm_round_groups.restype = ctypes.c_bool
        found.yalm_split_nibbles.argtypes = array, array, ctypes.c_int, ctypes.c_uint8, size
        found.yalm_round_groups.argtypes = array, array, grid, array, array, array, array, size
    except (OSError, AttributeError):
        return None
    known = found.yalm_search_scales(None, _grid("q8"), None, None, True, 0)
    return found if known and found.yalm_version().decode().startswith(f"{ABI}.") else None


def _at(array: np.ndarray, dtype: type = np.float32) -> int:
    if array.dtype != dtype or not array.flags.c_contiguous:
        raise TypeError(f"found an array of {array.dtype}, expected {dtype.__name__} without gaps")
    return array.ctypes.data


def split_nibbles(codes: np.ndarray, size: int, flipped: int) -> np.ndarray:
    """(rows, blocks, bytes) of codes, each `size` bytes shared by two parts of the columns -> as yalm_split_nibbles()."""
    found, codes = np.empty(codes.size, np.uint8), np.ascontiguousarray(codes)
    if library() is not None:
        library().yalm_split_nibbles(_at(found, np.uint8), _at(codes, np.uint8), size, flipped, codes.size // size)
        return found
    words = codes.reshape(-1).view("<u2")
    parts = found.view(f"V{size // 2}").reshape(-1, 2)
    for i, half in enumerate((words & 0x0F0F, words >> 4 & 0x0F0F)):
        parts[:, i] = ((half | half >> 4).astype(np.uint8) ^ np.uint8(flipped)).view(parts.dtype)
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
    library().yalm_round_groups(_at(quants, np.int8), None, _grid(dtype), _at(x), _at(scales), None, None, len(scales))
    return quants


def rounded_in_turn(
    x: np.ndarray, wanted: np.ndarray, scales: np.ndarray, dtype: str, feedback: np.ndarray, errors: np.ndarray
) -> np.ndarray:
    """grids.py's nearest_in_turn(), but that `wanted` may stay as it was."""
    if library() is None:
        return nearest_in_turn(x, wanted, scales, dtype, feedback, errors)
    quants, feedback = np.empty(x.shape, np.int8), np.ascontiguousarray(feedback)
    arrays = map(_at, (wanted, scales, x, feedback))
    library().yalm_round_groups(_at(quants, np.int8), _at(errors), _grid(dtype), *arrays, len(scales))
    return quants
