"""Which matrices of the layers become q8 where --dtype q4 has bytes to spare: those whose rounding to 4 bits does most harm for each of its bytes.

The order was measured, as the KL divergence that goes when all of a kind are exact (docs/quantisation.md). Layers at either end come before those in the middle.
"""

import dataclasses
import math

from .checkpoint import Tensor
from .quantise import quantised_size

KINDS = ("v", "down", "up", "o", "q", "k", "gate")
FEW, MANY = "q4", "q8"
LEAST_BITS, MOST_BITS = 4.5, 8.5  # a weight
DEFAULT_BITS = 4.63  # v's few rows, where heads share them


def mixed(plan: list, bits: float, kept: set) -> list:
    """The plan with at most so many bits a weight on average in the layers' matrices, those aside that --keep names or that q4 holds without loss."""
    n_layers = 1 + max((_layer(p.name) for p in plan if p.name.startswith("layers.")), default=0)
    those = [p for p in plan if p.quantised == FEW and p.name.startswith("layers.") and p.name not in kept]
    those = [p for p in those if not (isinstance(p.source, Tensor) and p.source.holds(FEW))]
    room = sum(math.prod(p.shape) for p in those) * bits / 8 - sum(p.size for p in those)
    chosen = set()
    for planned in sorted(those, key=lambda p: _place(p.name, n_layers)):
        more = quantised_size(MANY, planned.shape) - planned.size
        if more <= room:
            room -= more
            chosen.add(planned.name)
    return [dataclasses.replace(p, quantised=MANY) if p.name in chosen else p for p in plan]


def _layer(name: str) -> int:
    return int(name.split(".")[1])


def _place(name: str, n_layers: int) -> tuple:
    layer, kind = _layer(name), name.rpartition(".")[2]
    from_end = n_layers - 1 - layer
    return KINDS.index(kind), min(layer, from_end), from_end, name
