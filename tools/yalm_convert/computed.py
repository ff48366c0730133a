"""Tensors whose values are worked out from what files hold, some rows at a time: dequantised, reordered, added up.

They stand wherever a `Stored` does. Some of them are what the model file's own types can hold as it is: the integers
and their scales, or the 8-bit floats and theirs, are then copied.
"""

from collections.abc import Iterator

import numpy as np

from .checkpoint import PIECE, TYPES, Tensor
from .errors import ModelError
from .packing import AS_THEY_ARE, GROUP_BYTES, WIDER, pack, scale_numbers, widened
from .source import shown


class Computed(Tensor):
    """Subclasses have name, path, shape, values(), and, where `exact` names a type, its parts: quants(), or floats()."""

    dtype = TYPES["F32"]
    exact = ""  # the smallest type of the model file that holds the values as they are
    moved = 0.0  # but for this part of each, at most

    @property
    def default(self) -> str:
        return self.exact or "q8"

    def holds(self, dtype: str) -> bool:
        return bool(self.exact) and (dtype == self.exact or (dtype == "q8" and self.exact in WIDER))

    def quants(self, first: int, n: int) -> tuple:
        """Of n rows: (n, columns) int8, and (n, groups) fp16 scales of 32 columns each. Of a type that holds a file's own
        numbers: the bytes of quants and of scales, as the model file has them."""
        raise NotImplementedError

    def floats(self, first: int, n: int) -> tuple:
        """Of n rows: (n, columns) E4M3, and (n) fp32 scales."""
        raise NotImplementedError

    def part(self, first: int, shape: tuple) -> "Computed":
        """`shape` elements from element `first` on, which begins a row."""
        return Part(self, shape, first // self.width)

    def pieces(self) -> Iterator[np.ndarray]:
        for first, n in self._steps(self.width * self.dtype.itemsize):
            yield self.values(first, n).reshape(-1)

    def exactly(self, dtype: str) -> Iterator[np.ndarray]:
        """The bytes of a q8, q4 or fp8 matrix of the model file: all elements, and then all scales."""
        scales = []
        for first, n in self._steps(self.width * 4):
            elements, scale = (self.quants if dtype in GROUP_BYTES else self.floats)(first, n)
            if dtype == "q8" and self.exact in AS_THEY_ARE:
                elements, scale = widened(elements, scale, self.exact)
            numbers = scale_numbers(scale, dtype) if dtype in AS_THEY_ARE else scale
            if not np.isfinite(numbers).all():
                raise ModelError(f"{self.path}: tensor {shown(self.name)} has a scale that is NaN or infinite")
            packed = dtype in GROUP_BYTES and dtype not in AS_THEY_ARE
            yield (pack(elements, dtype) if packed else elements.view(np.uint8)).reshape(-1)
            scales.append(scale.reshape(-1))
        yield np.concatenate(scales)

    def _steps(self, row_bytes: int) -> Iterator[tuple]:
        rows, at_once = self.count // self.width, max(1, PIECE // row_bytes)
        for first in range(0, rows, at_once):
            yield first, min(at_once, rows - first)


class Given(Computed):
    """Numbers that stand in a setting: a vector."""

    def __init__(self, name: str, path: object, numbers: list):
        self.name, self.path, self.shape = name, path, (len(numbers),)
        self.numbers = np.array(numbers, np.float32)

    def values(self, first: int, n: int) -> np.ndarray:
        return self.numbers[first : first + n, None]


class Derived(Computed):
    """Another tensor's rows in other places. What is not said otherwise is that tensor's."""

    def __init__(self, source: Tensor, shape: tuple):
        self.source, self.shape = source, tuple(shape)
        self.name, self.path, self.dtype, self.form = source.name, source.path, source.dtype, source.form
        self.exact, self.moved = getattr(source, "exact", ""), getattr(source, "moved", 0.0)

    @property
    def default(self) -> str:
        return self.source.default


class Part(Derived):
    """`shape` elements of another tensor from one of its rows on."""

    def __init__(self, source: Tensor, shape: tuple, first_row: int):
        super().__init__(source, shape)
        self.first_row = first_row

    def values(self, first: int, n: int) -> np.ndarray:
        return self.source.values(self.first_row + first, n)

    def quants(self, first: int, n: int) -> tuple:
        return self.source.quants(self.first_row + first, n)

    def floats(self, first: int, n: int) -> tuple:
        return self.source.floats(self.first_row + first, n)


class Rearranged(Derived):
    """Rows that lie elsewhere in another tensor. All that is asked of them is asked there."""

    def _rows(self, get, first: int, n: int) -> list:
        """The parts of n rows, by `get`, which is one of the other tensor's functions below."""
        raise NotImplementedError

    def values(self, first: int, n: int) -> np.ndarray:
        return self._rows(self.source.values, first, n)[0]

    def quants(self, first: int, n: int) -> tuple:
        return tuple(self._rows(self.source.quants, first, n))

    def floats(self, first: int, n: int) -> tuple:
        return tuple(self._rows(self.source.floats, first, n))


class Reordered(Rearranged):
    """Another tensor's rows in another order, which stays within blocks of rows."""

    def __init__(self, source: Tensor, order: np.ndarray):
        """order: where each row of a block comes from, counted from the block's first."""
        super().__init__(source, source.shape)
        self.order = order

    def _rows(self, get, first: int, n: int) -> list:
        block = len(self.order)
        begin, end = first // block * block, -(-(first + n) // block) * block
        rows = np.arange(first, first + n)
        places = rows // block * block + self.order[rows % block] - begin
        found = get(begin, end - begin)
        return [part[places] for part in (found if isinstance(found, tuple) else [found])]


class Strided(Rearranged):
    """Every step-th of another tensor's rows, from one on."""

    def __init__(self, source: Tensor, first_row: int, step: int):
        super().__init__(source, (source.shape[0] // step, *source.shape[1:]))
        self.first_row, self.step = first_row, step

    def _rows(self, get, first: int, n: int) -> list:
        found = get(self.first_row + first * self.step, (n - 1) * self.step + 1)
        return [np.ascontiguousarray(part[:: self.step]) for part in (found if isinstance(found, tuple) else [found])]


class Within(Rearranged):
    """Of each block of another tensor's rows the `size` rows from `first` on."""

    def __init__(self, source: Tensor, block: int, first: int, size: int):
        super().__init__(source, (source.shape[0] // block * size, *source.shape[1:]))
        self.block, self.begin, self.taken = block, first, size

    def _rows(self, get, first: int, n: int) -> list:
        rows = np.arange(first, first + n)
        places = rows // self.taken * self.block + self.begin + rows % self.taken
        begin = int(places[0])
        found = get(begin, int(places[-1]) + 1 - begin)
        return [part[places - begin] for part in (found if isinstance(found, tuple) else [found])]


class Mapped(Derived):
    """A function of another tensor's values, each by itself, in float32."""

    def __init__(self, source: Tensor, function):
        super().__init__(source, source.shape)
        self.function, self.dtype, self.exact = function, TYPES["F32"], ""

    def values(self, first: int, n: int) -> np.ndarray:
        return self.function(self.source.values(first, n).astype(np.float32))


class Turned(Derived):
    """Every step-th of another matrix's columns, from one on, or so many of these, as rows. That one is read whole each
    time: it is one expert's."""

    def __init__(self, source: Tensor, first_column: int, step: int, n: int = 0):
        super().__init__(source, (n or source.shape[1] // step, source.shape[0]))
        self.first_column, self.step, self.exact = first_column, step, ""

    def values(self, first: int, n: int) -> np.ndarray:
        whole = self.source.values(0, self.source.shape[0])
        at = self.first_column + first * self.step
        return np.ascontiguousarray(whole[:, at : at + (n - 1) * self.step + 1 : self.step].T)


class TurnedBlocks(Derived):
    """Of each block of another matrix's rows the first ones, turned: that block's columns are rows."""

    def __init__(self, source: Tensor, block: int, size: int):
        super().__init__(source, (source.shape[0] // block * source.shape[1], size))
        self.block, self.exact = block, ""

    def values(self, first: int, n: int) -> np.ndarray:
        columns, size = self.source.shape[1], self.shape[1]
        found = []
        for block in range(first // columns, -(-(first + n) // columns)):
            begin, end = max(first - block * columns, 0), min(first + n - block * columns, columns)
            found.append(self.source.values(block * self.block, size)[:, begin:end].T)
        return np.ascontiguousarray(np.concatenate(found))
