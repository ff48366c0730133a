"""Which columns of the weight matrices matter. yalm evaluates a text by the model before it is quantised, and says
how large the columns of what each matrix reads are (docs/format.md, "The file of importance")."""

import contextlib
import dataclasses
import errno
import json
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import BinaryIO, Callable

import numpy as np
import xxhash

from .checkpoint import PIECE, Tensor
from .packing import GROUP, SIX_BITS
from .plan import Planned, data
from .quantise import Importance
from .writer import Layout, write_model

TEXT = Path(__file__).with_name("calibration.txt")  # of many kinds: see docs/quantisation.md
ASK = SIX_BITS
WEIGHED = (*ASK, "q8")  # which gains too little to calibrate for it alone
WINDOW = 512  # tokens that are evaluated together
# Every column counts for this much of the mean beside what the text says of it: a few columns of huge activations
# would have a group to themselves.
EVERY = 1.0
PATIENCE = 10  # seconds for yalm to end in
SAID = 4096  # characters of what yalm says last
# What yalm looks at in a layer; and one of those that have an input in common.
OBSERVED = ("q", "k", "v", "output_gate", "o", "gate", "up", "down")
ONE_OF_INPUT = ("q", "o", "up", "down")


class Failed(Exception):
    """Importance could not be measured; the text says why."""


def asked_for(plan: list) -> list:
    """The matrices of the layers that are to be rounded to a type for which importance is worth its time."""
    return [planned for planned in plan if planned.quantised in ASK and planned.name.startswith("layers.")]


def find_yalm() -> Path:
    """Finds the program: what YALM names, else the one beside tools/, else the one in PATH."""
    named, beside = os.environ.get("YALM"), Path(__file__).resolve().parents[2] / "yalm"
    found = shutil.which(named) if named else shutil.which(beside) or shutil.which("yalm")
    if not found:
        raise Failed(f"YALM={named} is no program" if named else "no yalm is built here, in PATH, or named by YALM")
    return Path(found)


def weighed(
    plan: list,
    whole: list,
    metadata: dict,
    output: Path,
    text: Path,
    advance: Callable[[int], None],
    told: Callable[[float], None],
) -> list:
    """The plan with its matrices' importance. `whole` is the plan of the same model with its weights unquantised, which
    is written beside `output` meanwhile. advance(n) is told of n of its bytes written, and later of n bytes proven,
    told(part) of how much of the text has been read."""
    yalm, layout, of_sums = find_yalm(), Layout(metadata, whole), size_of_sums(whole)
    # Until the end: the sums, and beside them the unquantised model, and later what is made.
    needed, free = of_sums + max(layout.length, sum(p.size for p in plan)), shutil.disk_usage(output.parent).free
    if free < needed:
        raise Failed(f"{needed} bytes of disk are needed, {of_sums} of them for second moments; {free} are free")
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", suffix=".tmp", dir=output.parent) as place:
        model, file = Path(place, "model.bin"), Path(place, "importance")
        write_model(model, layout, lambda planned: data(planned, False), advance)
        observe(yalm, model, text, file, told)
        found = read(file, model_checksum(layout.head()))
    return [weigh(planned, found) for planned in plan]


def weigh(planned: Planned, found: dict) -> Planned:
    if planned.quantised not in WEIGHED or not isinstance(planned.source, Tensor):
        return planned
    seen = found.get(planned.name)
    if seen is None:
        return planned
    squares = seen.squares + EVERY * seen.squares.mean()
    return dataclasses.replace(planned, importance=dataclasses.replace(seen, squares=squares))


def without_moments(plan: list) -> int:
    """How many matrices are known column by column alone, without experts, which always are."""
    seen = [planned for planned in plan if planned.importance and planned.quantised in ASK]
    return sum(planned.importance.products is None and ".experts." not in planned.name for planned in seen)


def model_checksum(head: bytes) -> str:
    return f"{struct.unpack_from('<Q', head, 40)[0]:016x}"


def size_of_sums(whole: list) -> int:
    """Bytes of the file of importance without its table (docs/format.md), with all second moments."""
    names, size = {planned.name for planned in whole}, 0
    last = "classifier" if "classifier" in names else "embedding"
    for planned in whole:
        first, _, part = planned.name.rpartition(".")
        if planned.name == last or (first.startswith("layers.") and part in OBSERVED):
            columns = planned.shape[1]
            one = planned.name == last or (part in ONE_OF_INPUT and ".experts." not in first)
            size += 16 + 4 * columns + (4 * columns * block_of(columns) if one else 0)
    return size


def block_of(columns: int) -> int:
    """Columns whose products with each other are added up (src/model/importance.h)."""
    blocks = 1 if columns <= 2048 else math.ceil(columns / 1024)
    return columns if blocks == 1 else math.ceil(math.ceil(columns / blocks) / GROUP) * GROUP


def observe(yalm: Path, model: Path, text: Path, file: Path, told: Callable[[float], None]) -> None:
    command = [yalm, model, "-m", "importance", "-f", text, "-o", file, "-d", "cpu", "--ctx", str(WINDOW), "-q"]
    said = ""
    with contextlib.ExitStack() as opened:
        ours, theirs = (opened.enter_context(open(end, "wb" if i else "rb", 0)) for i, end in enumerate(_channel()))
        running = opened.enter_context(
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=theirs,
                env={**os.environ, "TERM": "ansi", "NO_COLOR": "1"},
            )
        )
        theirs.close()
        try:
            while piece := _read(ours):
                said = (said + piece)[-SAID:]
                for percent in re.findall(r"(\d+) %  observing", piece):
                    told(int(percent) / 100)
        except BaseException:
            end(running)
            raise
    if running.returncode != 0:
        said = re.sub(r"\r\x1b\[K( *\d+ %  observing)?", "", said)
        raise Failed(" ".join(said.split()) or f"{yalm} ended with {running.returncode}")


def _channel() -> tuple:
    """Both ends of what yalm takes for a terminal, to which alone it says how far it is; else of a pipe."""
    try:
        return os.openpty()
    except OSError:
        return os.pipe()


def _read(file: BinaryIO) -> str:
    """What has come; "" at the end, of which a terminal says EIO."""
    try:
        return file.read(4096).decode("utf-8", "replace")
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return ""


def end(running: subprocess.Popen) -> None:
    running.send_signal(signal.SIGINT)
    try:
        running.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        running.kill()


class Moments:
    """Second moments in a file of importance, (columns, a block's columns). They are read when an array is wanted, and the
    file stays open until then."""

    def __init__(self, file: BinaryIO, first: int, shape: list):
        self.file, self.first, self.shape = file, first, tuple(shape)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        self.file.seek(self.first)
        found = np.fromfile(self.file, "<f4", math.prod(self.shape)).reshape(self.shape)
        return found if dtype is None else found.astype(dtype)


def read(path: Path, model: str) -> dict:
    """{matrix's name: Importance}, as float32, of what its columns are multiplied by. Matrices that no token reached are
    left out."""
    file = open(path, "rb")  # noqa: SIM115 (Moments keep it)
    try:
        length = int.from_bytes(file.read(8), "little")
        table = json.loads(file.read(min(length, 1 << 30)))
        facts = table.pop("__metadata__")
        of, checksum = facts["model"], facts["xxh3"]
    except (ValueError, LookupError, TypeError, AttributeError):
        raise Failed(f"{path}: not a file of importance") from None
    body = xxhash.xxh3_64()
    while piece := file.read(PIECE):
        body.update(piece)
    if checksum != f"{body.intdigest():016x}":
        raise Failed(f"{path}: damaged: its checksum is another")
    if of != model:
        raise Failed(f"{path}: importance of another model: made for checksum {of}, expected {model}")
    arrays = {name: array(file, 8 + length, entry) for name, entry in table.items()}
    matrices = {name.removesuffix(".tokens"): counts for name, counts in arrays.items() if name.endswith(".tokens")}
    return {
        name: Importance(arrays[name] / np.float32(n), arrays.get(f"input.{number}"))
        for name, (n, number) in matrices.items()
        if n > 0
    }


def array(file: BinaryIO, start: int, entry: dict) -> object:
    first, shape = start + entry["data_offsets"][0], entry["shape"]
    if len(shape) == 2:
        return Moments(file, first, shape)
    file.seek(first)
    return np.fromfile(file, {"F32": "<f4", "I64": "<i8"}[entry["dtype"]], math.prod(shape)).reshape(shape)
