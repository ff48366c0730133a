"""Writes the container of docs/format.md as a stream, and reads it back.

The metadata holds every tensor's checksum and lies before the tensors, but its length does not depend on the
checksums' values: it is written twice, first to keep its place. The file grows under another name and takes its own
only when it is whole and proven.
"""

import ctypes
import json
import os
import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable

import numpy as np
import xxhash

from .errors import ModelError

MAGIC = b"YALM\r\n\x1a\n"
VERSION, HEADER_SIZE, ALIGN, PAGE = 2, 64, 64, 4096
MAX_METADATA = 256 << 20
READ = 16 << 20
AHEAD = 4  # arrays


def keep_memory() -> None:
    """Keeps what pieces of up to 64 MiB have freed. Otherwise glibc takes each one's pages from the kernel anew, up to half
    of a conversion's time."""
    for option, value in ((-1, 2**31 - 1), (-3, 64 << 20), (-8, 1)):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX
        getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)(option, value)


class Layout:
    """The file's metadata and where each tensor goes. `plan` is of objects with name, dtype_name, shape and size."""

    def __init__(self, metadata: dict, plan: list):
        self.plan = plan
        self.checksums = ["0" * 16] * len(plan)
        self.metadata = metadata
        self.data_offset = 0
        self.offsets = [0] * len(plan)
        # The offsets' digits lengthen the metadata, which moves the offsets: repeat until they stay. They only grow.
        while True:
            end = HEADER_SIZE + len(self.encode())
            start = max(_round_up(end, PAGE), self.data_offset)
            if start == self.data_offset:
                break
            self.data_offset = start
            at = start
            for i, planned in enumerate(plan):
                self.offsets[i] = at
                at = _round_up(at + planned.size, ALIGN)
        self.length = self.offsets[-1] + plan[-1].size

    def encode(self) -> bytes:
        table = [
            {
                "name": p.name,
                "dtype": p.dtype_name,
                "shape": list(p.shape),
                "offset": offset,
                "length": p.size,
                "xxh3": checksum,
            }
            for p, offset, checksum in zip(self.plan, self.offsets, self.checksums)
        ]
        text = json.dumps(
            dict(self.metadata, tensors=table), ensure_ascii=False, separators=(",", ":"), allow_nan=False
        )
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ModelError(f"text for the metadata is not Unicode: {error.reason}") from None
        if len(data) > MAX_METADATA:
            raise ModelError(f"metadata of {len(data)} bytes, expected at most {MAX_METADATA}")
        return data

    def head(self) -> bytes:
        """All before the first tensor."""
        metadata = self.encode()
        checksum = xxhash.xxh3_64_intdigest(metadata)
        header = struct.pack(
            "<8sIIQQQQQQ",
            MAGIC,
            VERSION,
            HEADER_SIZE,
            self.length,
            HEADER_SIZE,
            len(metadata),
            checksum,
            self.data_offset,
            0,
        )
        return (header + metadata).ljust(self.data_offset, b"\0")


def _round_up(n: int, step: int) -> int:
    return -(-n // step) * step


def write_model(
    path: Path, layout: Layout, data: Callable[[object], Iterable[np.ndarray]], advance: Callable[[int], None]
) -> None:
    """Writes, proves and renames. On any failure, an interruption included, nothing is left and `path` is as it was.

    data(planned) gives a tensor's elements in arrays; advance(n) is told of n bytes written, and later of n bytes proven.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "xb") as file:
            _write(file, layout, data, advance)
            file.flush()
            with ThreadPoolExecutor(1) as disk:
                kept = disk.submit(os.fsync, file.fileno())
                verify(temporary, layout.head(), advance)
                kept.result()
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write(file, layout: Layout, data: Callable, advance: Callable) -> None:
    checksums = [xxhash.xxh3_64() for _ in layout.plan]
    arrays = ((i, array) for i, planned in enumerate(layout.plan) for array in data(planned))
    file.write(bytes(layout.data_offset))
    for i, array in _made_ahead(arrays):
        file.write(bytes(max(0, layout.offsets[i] - file.tell())))
        view = memoryview(array.view(np.uint8))
        checksums[i].update(view)
        file.write(view)
        advance(len(view))
    layout.checksums = [checksum.hexdigest() for checksum in checksums]
    if file.tell() != layout.length:
        raise OSError(f"{file.name}: wrote {file.tell()} bytes, planned {layout.length}")
    file.seek(0)
    file.write(layout.head())


def _made_ahead(arrays: Iterator) -> Iterator:
    """(number, array) each, made while those before it are written: several small ones, for some take longer than others,
    or one large one."""

    def some() -> list:
        found, n_bytes = [], 0
        while len(found) < AHEAD and n_bytes < READ and (made := next(arrays, None)) is not None:
            found.append(made)
            n_bytes += made[1].nbytes
        return found[::-1]

    with ThreadPoolExecutor(1) as maker:
        ahead = maker.submit(some)
        while found := ahead.result():
            ahead = maker.submit(some)
            while found:
                yield found.pop()


def verify(path: Path, head: bytes, advance: Callable[[int], None]) -> None:
    """Reads the file back: its head must be `head`, and every tensor must have the checksum that the head gives it."""
    with open(path, "rb", buffering=0) as file:
        found = file.read(len(head))
        if found != head:
            raise OSError(f"{path}: the header reads back otherwise than it was written")
        (length,) = struct.unpack_from("<Q", head, 16)
        (metadata_length,) = struct.unpack_from("<Q", head, 32)
        if os.fstat(file.fileno()).st_size != length:
            raise OSError(f"{path}: {os.fstat(file.fileno()).st_size} bytes, wrote {length}")
        buffer = memoryview(bytearray(READ))
        for entry in json.loads(head[HEADER_SIZE : HEADER_SIZE + metadata_length])["tensors"]:
            file.seek(entry["offset"])
            checksum, left = xxhash.xxh3_64(), entry["length"]
            while left:
                n = file.readinto(buffer[: min(READ, left)])
                if not n:
                    raise OSError(f"{path}: the file ends in tensor {entry['name']!r}")
                checksum.update(buffer[:n])
                advance(n)
                left -= n
            if checksum.hexdigest() != entry["xxh3"]:
                raise OSError(f"{path}: tensor {entry['name']!r} reads back otherwise than it was written")
