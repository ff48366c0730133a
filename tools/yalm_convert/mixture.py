"""Which matrices of the layers become q8 where --dtype q4 has bytes to spare: those whose rounding to 4 bits does most harm for each of its bytes.

The order was measured, as the KL divergence that goes when all of a kind are exact (docs/quantisation.md). Layers at either end come before those in the middle.
What is multiplied by the same input, in one go, has one type: q and k, gate and up, and all experts of a layer.
"""

import dataclasses
import math

from .checkpoint import Tensor
from .quantise import quantised_size

KINDS = (("v",), ("down",), ("o",), ("gate", "up"), ("q", "k"))
FEW, MANY = "q4", "q8"
LEAST_BITS, MOST_BITS = 4.5, 8.5  # a weight
DEFAULT_BITS = 4.63  # v's few rows, where heads share them


def mixed(plan: list, bits: float, kept: set) -> list:
    """The plan with at most so many bits a weight on average in the layers' matrices, those aside that --keep names or that q4 holds without loss."""
    those = [p for p in plan if p.quantised == FEW and p.name.startswith("layers.") and p.name not in kept]
    those = [p for p in those if not (isinstance(p.source, Tensor) and p.source.holds(FEW))]
    room = sum(math.prod(p.shape) for p in those) * bits / 8 - sum(p.size for p in those)
    n_layers = 1 + max((_layer(p.name) for p in those), default=0)
    together: dict = {}
    for planned in those:
        together.setdefault(_place(planned.name, n_layers), []).append(planned)
    chosen = set()
    for _, unit in sorted(together.items()):
        more = sum(quantised_size(MANY, p.shape) - p.size for p in unit)
        if more <= room:
            room -= more
            chosen.update(p.name for p in unit)
    return [dataclasses.replace(p, quantised=MANY) if p.name in chosen else p for p in plan]


def _layer(name: str) -> int:
    return int(name.split(".")[1])


def _place(name: str, n_layers: int) -> tuple:
    """The same for matrices that go together."""
    part = name.rpartition(".")[2]
    kind = next(n for n, parts in enumerate(KINDS) if part in parts)
    from_end = n_layers - 1 - _layer(name)
    return kind, min(_layer(name), from_end), from_end
