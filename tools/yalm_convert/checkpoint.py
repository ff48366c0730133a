"""The tensors of a directory's *.safetensors files: where each lies, checked before it is believed.

A file is a u64 header length, a JSON header {name: {dtype, shape, data_offsets}}, and the tensors' bytes without
gaps. Tensors are read in pieces of at most PIECE bytes, so memory does not depend on the model.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import ml_dtypes
import numpy as np

from .errors import ModelError
from .source import locate, parse_json, read_json, refuse_pointer, shown

PIECE = 16 << 20  # bytes
MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors library too
INDEX = "model.safetensors.index.json"

TYPES = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
# What tensors of quantised checkpoints are besides, which make no matrix alone (prequantised.py).
PARTS = {
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
}
NAMES = {TYPES["F32"]: "fp32", TYPES["F16"]: "fp16", TYPES["BF16"]: "bf16"}  # in the model file


class Tensor:
    """What a model file's tensor is made from: has name, path, dtype, shape (outermost first), part() and pieces()."""

    form = ""  # what its values are stored as, where that is no type of numpy's

    @property
    def default(self) -> str:
        """The type that a matrix becomes in the model file where none is asked for."""
        return NAMES[self.dtype]

    @property
    def width(self) -> int:
        """Elements in a row. A vector is rows of one."""
        return self.shape[-1] if len(self.shape) > 1 else 1

    @property
    def count(self) -> int:
        return int(np.prod(self.shape, dtype=object))

    @property
    def size(self) -> int:
        return self.count * self.dtype.itemsize

    def holds(self, dtype: str) -> bool:
        """Can exactly() give this type, which is quantised?"""
        return False

    def values(self, first: int, n: int) -> np.ndarray:
        """(n, width) elements of n rows from row `first` on."""
        read = [piece.copy() for piece in self.part(first * self.width, (n, self.width)).pieces()]
        return (read[0] if len(read) == 1 else np.concatenate(read)).reshape(n, self.width)


@dataclass(frozen=True)
class Stored(Tensor):
    """A tensor of a file, or the part of one that begins at `offset`."""

    name: str
    path: Path
    dtype: np.dtype
    shape: tuple
    offset: int  # of the first byte, from the start of the file

    def part(self, first: int, shape: tuple) -> "Stored":
        """`shape` elements from element `first` on."""
        return Stored(self.name, self.path, self.dtype, shape, self.offset + first * self.dtype.itemsize)

    def pieces(self) -> Iterator[np.ndarray]:
        left = self.size
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset)
            while left:
                piece = np.empty(min(PIECE, left), np.uint8)
                read_whole(file, memoryview(piece), self)
                left -= len(piece)
                yield piece.view(self.dtype)


class Checkpoint(dict):
    """{name: Stored}, and the tensors that an index names but no file has: {name: file}."""

    def __init__(self, tensors: Optional[dict] = None):
        super().__init__(tensors or {})
        self.absent: dict = {}


def read_checkpoint(model_dir: Path) -> Checkpoint:
    """All that the directory's safetensors hold."""
    single = locate(model_dir, "model.safetensors")
    if single:
        return Checkpoint(read_file(single))
    index = locate(model_dir, INDEX)
    if index:
        return _read_shards(model_dir, index)
    names = sorted(p.name for p in model_dir.glob("*.safetensors"))
    if len(names) == 1:
        return Checkpoint(read_file(locate(model_dir, names[0])))
    if names:
        raise ModelError(f"{model_dir}: {len(names)} *.safetensors files, but no {INDEX} that says what is where")
    pickles = sorted(p.name for p in model_dir.iterdir() if p.suffix in (".bin", ".pt", ".pth") and p.is_file())
    if pickles:
        raise ModelError(
            f"{model_dir}: no *.safetensors, only {shown(pickles[0])}: pickle files can run programs and are not read;"
            " save the model again with safe_serialization=True"
        )
    raise ModelError(f"{model_dir}: no *.safetensors files")


def _read_shards(model_dir: Path, index: Path) -> Checkpoint:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ModelError(f"{index}: found {shown(places)} as weight_map, expected an object {{tensor: file}}")
    for name, file in places.items():
        if not isinstance(file, str) or not file or "\0" in file:
            raise ModelError(f"{index}: tensor {shown(name)} is in {shown(file)}, expected a file's name")
        if file.startswith(("/", "\\")) or re.match("[A-Za-z]:", file) or ".." in re.split(r"[/\\]", file):
            raise ModelError(f"{index}: tensor {shown(name)} is in {shown(file)}, which leaves the model's directory")
    tensors = Checkpoint()
    for file in sorted(set(places.values())):
        path = locate(model_dir, file)
        if path is None:
            raise ModelError(f"{index}: shard {shown(file)} is missing from {model_dir}")
        for name, tensor in read_file(path).items():
            if places.get(name, file) != file:
                raise ModelError(f"{path}: tensor {shown(name)} is here, but the index has it in {shown(places[name])}")
            tensors[name] = tensor
    # Only those that the model needs are missed, by whoever takes them: indices list tied classifiers, and what
    # follows from config.json.
    tensors.absent = {name: file for name, file in places.items() if name not in tensors}
    return tensors


def read_file(path: Path) -> dict:
    size = path.stat().st_size
    with open(path, "rb") as file:
        beginning = file.read(64)
        refuse_pointer(path, beginning)
        if len(beginning) < 8:
            raise ModelError(f"{path}: {size} bytes: not a safetensors file, or truncated")
        (length,) = struct.unpack("<Q", beginning[:8])
        if not 2 <= length <= MAX_HEADER:
            if beginning.lstrip().startswith(b"<"):
                raise ModelError(f"{path}: a web page, not a safetensors file")
            raise ModelError(f"{path}: not a safetensors file: header of {length} bytes, expected 2 to {MAX_HEADER}")
        if length > size - 8:
            raise ModelError(f"{path}: truncated: header of {length} bytes in a file of {size}")
        file.seek(8)
        header = parse_json(file.read(length), f"{path}: header")
    header.pop("__metadata__", None)
    tensors = {name: _entry(path, name, entry, 8 + length) for name, entry in header.items()}
    end = 8 + length
    for tensor in sorted(tensors.values(), key=lambda t: (t.offset, t.size)):
        if tensor.offset != end:
            what = "overlaps the one before it" if tensor.offset < end else "leaves a gap before it"
            raise ModelError(
                f"{path}: tensor {shown(tensor.name)} {what}: begins at byte {tensor.offset}, expected {end}"
            )
        end += tensor.size
        if end > size:
            raise ModelError(f"{path}: truncated: tensor {shown(tensor.name)} ends at byte {end}, the file has {size}")
    if end != size:
        raise ModelError(f"{path}: {size} bytes, expected {end}: something follows the last tensor")
    return tensors


def _entry(path: Path, name: str, entry: object, data: int) -> Stored:
    where = f"{path}: tensor {shown(name)}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ModelError(f"{where}: found {shown(entry)}, expected dtype, shape and data_offsets")
    known = {**TYPES, **PARTS}
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in known:
        raise unknown_type(path, name, entry["dtype"])
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ModelError(
            f"{where}: found shape {shown(shape)} and data_offsets {shown(offsets)}, expected sizes and begin <= end"
        )
    tensor = Stored(name, path, known[entry["dtype"]], tuple(shape), data + offsets[0])
    if tensor.size != offsets[1] - offsets[0]:
        raise ModelError(
            f"{where}: {offsets[1] - offsets[0]} bytes, but shape {shown(shape)} of {entry['dtype']} has {tensor.size}"
        )
    return tensor


def unknown_type(path: Path, name: str, found: object) -> ModelError:
    return ModelError(
        f"{path}: tensor {shown(name)}: type {shown(found)} is not supported, expected one of {', '.join(TYPES)}"
    )


def _naturals(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 63 for v in value
    )


def read_whole(file, view: memoryview, tensor: Tensor) -> None:
    """Fills `view` from the file, of which the caller knows that it was long enough."""
    done = 0
    while done < len(view):
        n = file.readinto(view[done:])
        if not n:
            raise ModelError(f"{tensor.path}: truncated while it was read, in tensor {shown(tensor.name)}")
        done += n


def pieces(tensor: Tensor) -> Iterator[np.ndarray]:
    """The tensor's elements, flat, about PIECE bytes at a time."""
    return tensor.pieces()


def row_blocks(source: Tensor, at_once: int, piece: int = PIECE) -> Iterator[tuple]:
    """(first row, (rows, columns) values) of at most at_once rows, read about `piece` bytes at a time."""
    rows, columns = source.shape
    per_read = max(1, piece // (columns * source.dtype.itemsize))
    for start in range(0, rows, per_read):
        n = min(per_read, rows - start)
        values = source.values(start, n)
        for at in range(0, n, at_once):
            yield start + at, values[at : at + at_once]


def rounded(source: Tensor, values: np.ndarray, dtype: np.dtype, check_finite: bool = False) -> np.ndarray:
    """Values of `source` in another type. ModelError where one does not fit, or, if that is to be checked, is not finite."""
    if check_finite and _has_nonfinite(values):
        raise ModelError(f"{source.path}: tensor {shown(source.name)} has a value that is NaN or infinite")
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        result = values.astype(dtype)
    if _has_nonfinite(result):
        _refuse_overflow(source, values, result, NAMES[dtype])
    return result


def _has_nonfinite(values: np.ndarray) -> bool:
    """By bits, since that is several times faster than by value: the exponent is all ones in NaN and infinity alone."""
    if values.dtype == TYPES["F32"]:
        bits, magnitude, infinity = values.view("<u4"), 0x7FFFFFFF, 0x7F800000
    else:
        bits, magnitude, infinity = values.view("<u2"), 0x7FFF, 0x7F80 if values.dtype == TYPES["BF16"] else 0x7C00
    return values.size > 0 and int((bits & bits.dtype.type(magnitude)).max()) >= infinity


def _refuse_overflow(source: Tensor, piece: np.ndarray, result: np.ndarray, dtype: str) -> None:
    before, after = piece.astype(np.float32), result.astype(np.float32)
    lost = np.isfinite(before) & ~np.isfinite(after)
    if lost.any():
        value = float(before[lost][0])
        raise ModelError(
            f"{source.path}: tensor {shown(source.name)}: value {value:g} does not fit in {dtype}; --dtype bf16 or fp32 "
            f"holds it"
        )
