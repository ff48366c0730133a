"""The header of a GGUF file (versions 2 and 3): its settings, and where each tensor lies, checked before it is believed.

The package `gguf` knows the types of tensors and what their blocks mean (gguf_blocks.py). Its reader makes several
objects of each token of a vocabulary, which takes half a gigabyte and eight seconds for a small model. It reports
damage as an IndexError. So the header is read here.

    "GGUF" | u32 version | u64 tensors | u64 settings | settings | tensors' names, shapes, types, offsets | padding | data
"""

import mmap
import re
import struct
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import gguf

from .errors import ModelError
from .source import refuse_pointer, shown

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
MAX_DIMENSIONS = 4


@dataclass(frozen=True)
class Entry:
    """A tensor as the header tells of it."""

    name: str
    path: Path
    kind: gguf.GGMLQuantizationType
    shape: tuple  # outermost first
    offset: int  # of the first byte, from the start of the file


@dataclass
class GgufFile:
    """One file, or all parts of one that is split."""

    path: Path
    settings: dict = field(default_factory=dict)
    entries: dict = field(default_factory=dict)  # name -> Entry

    def get(self, key: str, default: object = None) -> object:
        return self.settings.get(key, default)


class _Reader:
    """Takes numbers and strings off the beginning of a file."""

    def __init__(self, path: Path, data: mmap.mmap):
        self.path, self.data, self.at = path, data, 0

    def error(self, text: str) -> ModelError:
        return ModelError(f"{self.path}: {text}")

    def take(self, layout: str, count: int = 1) -> tuple:
        size = struct.calcsize("<" + layout) * count
        self.need(size)
        found = struct.unpack_from(f"<{count}{layout}", self.data, self.at)
        self.at += size
        return found

    def need(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise self.error(f"truncated: the header goes on past byte {len(self.data)}, where the file ends")

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list:
        """A vocabulary has hundreds of thousands: the loop does no more than it must."""
        found, data, at, end = [], self.data, self.at, len(self.data)
        length_at = struct.Struct("<Q").unpack_from
        try:
            for _ in range(count):
                begin = at + 8
                at = begin + length_at(data, at)[0]
                if at > end:
                    break
                found.append(data[begin:at].decode("utf-8"))
        except struct.error:  # there are no eight bytes
            at = end + 1
        except UnicodeDecodeError as error:
            raise self.error(f"text at byte {begin} is not UTF-8: {error.reason}") from None
        self.need(at - self.at)
        self.at = at
        return found

    def value(self, kind: int, where: str) -> object:
        if kind in SCALARS:
            return self.take(SCALARS[kind])[0]
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            raise self.error(f"setting {shown(where)} is of type {kind}, which is not known")
        (inner,), (count,) = self.take("I"), self.take("Q")
        if inner in SCALARS:
            return list(self.take(SCALARS[inner], count))
        if inner != STRING:
            raise self.error(f"setting {shown(where)} is an array of type {inner}, which is not supported")
        self.need(8 * count)
        return self.strings(count)


def read_gguf(path: Path) -> GgufFile:
    """The file and, where it is the first of several parts, the others."""
    whole = _read_one(path)
    for key in ("split.count", "split.no", "split.tensors.count"):
        if type(whole.get(key, 0)) is not int:
            raise ModelError(f"{path}: {key} is {shown(whole.get(key))}, expected an integer")
    count = whole.get("split.count", 0)
    if count <= 1:
        return whole
    number = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.gguf", path.name)
    if not number or int(number[3]) != count:
        raise ModelError(f"{path}: one of {count} parts, expected a name that ends in -00001-of-{count:05d}.gguf")
    if whole.get("split.no", 0) != 0:
        first = path.with_name(f"{number[1]}-00001-of-{number[3]}.gguf")
        raise ModelError(f"{path}: part {number[2]} of {number[3]}, give the first: {first}")
    for n in range(1, count):
        name = path.with_name(f"{number[1]}-{n + 1:05d}-of-{number[3]}.gguf")
        if not name.is_file():
            raise ModelError(f"{path}: one of {count} parts, but {name.name} is missing")
        part = _read_one(name)
        if part.get("split.no") != n or part.get("split.count") != count:
            raise ModelError(f"{name}: not part {n + 1} of {count}, as its name says")
        for key in part.entries.keys() & whole.entries.keys():
            raise ModelError(f"{name}: tensor {shown(key)} is in an earlier part too")
        whole.entries.update(part.entries)
    stated = whole.get("split.tensors.count", len(whole.entries))
    if stated != len(whole.entries):
        raise ModelError(f"{path}: {len(whole.entries)} tensors in {count} parts, expected {stated}")
    return whole


def _read_one(path: Path) -> GgufFile:
    with open(path, "rb") as file:
        beginning = file.read(64)
        refuse_pointer(path, beginning)
        if beginning[:4] != b"GGUF":
            raise ModelError(f"{path}: not a GGUF file: begins with {beginning[:4]!r}, expected b'GGUF'")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(_Reader(path, data))


def _parse(reader: _Reader) -> GgufFile:
    reader.at = 4
    (version,) = reader.take("I")
    if version not in (2, 3):
        why = "of a big-endian machine" if version and version & 0xFFFF == 0 else f"of version {version}"
        raise reader.error(f"a GGUF file {why}, expected version 2 or 3, little-endian")
    n_tensors, n_settings = reader.take("Q", 2)
    found = GgufFile(reader.path)
    for _ in range(n_settings):
        key = reader.string()
        if key in found.settings:
            raise reader.error(f"setting {shown(key)} is there twice")
        found.settings[key] = reader.value(reader.take("I")[0], key)
    infos = [_info(reader) for _ in range(n_tensors)]
    alignment = found.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise reader.error(f"general.alignment is {shown(alignment)}, expected a power of two")
    start = -(-reader.at // alignment) * alignment
    for name, kind, shape, offset in infos:
        if offset % alignment:
            raise reader.error(f"tensor {shown(name)} is at {offset}, expected a multiple of {alignment}")
        if name in found.entries:
            raise reader.error(f"tensor {shown(name)} is there twice")
        found.entries[name] = _entry(reader, name, kind, shape, start + offset)
    return found


def _info(reader: _Reader) -> tuple:
    name = reader.string()
    (n,) = reader.take("I")
    if not 1 <= n <= MAX_DIMENSIONS:
        raise reader.error(f"tensor {shown(name)} has {n} dimensions, expected 1 to {MAX_DIMENSIONS}")
    shape = tuple(reversed(reader.take("Q", n)))
    (kind,), (offset,) = reader.take("I"), reader.take("Q")
    return name, kind, shape, offset


def _entry(reader: _Reader, name: str, kind: int, shape: tuple, offset: int) -> Entry:
    try:
        known = gguf.GGMLQuantizationType(kind)
    except ValueError:
        raise reader.error(f"tensor {shown(name)} is of type {kind}, which is not known") from None
    block, size = gguf.GGML_QUANT_SIZES[known]
    if not all(shape) or shape[-1] % block:
        raise reader.error(
            f"tensor {shown(name)}: shape {list(shape)} is not possible with {known.name}, of which {block} make a block"
        )
    end = offset + prod(shape) // block * size
    if end > len(reader.data):
        raise reader.error(f"truncated: tensor {shown(name)} ends at byte {end}, the file has {len(reader.data)}")
    return Entry(name, reader.path, known, shape, offset)
