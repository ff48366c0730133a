"""Which type each matrix of the layers gets where --dtype q4 has so many bits a weight: one of STEPS.

All begin with the fewest bits. Each matrix may take the next finer type; of all these steps the one that saves most
error for each of its bytes is taken, until none fits. What a step saves is the matrix's sensitivity times what its
type's error falls by. Both were measured (docs/quantisation.md). What is multiplied by the same input, in one go, has
one type: q and k, gate and up, and all experts of a layer that are chosen among. Of these a token meets a few alone.

The classifier and the embedding take part: bytes that they leave go to the layers, and the other way round.
"""

import dataclasses
import heapq
import math

from .packing import quantised_size

ERRORS = {
    "q2": 25.0,
    "q3": 4.8,
    "q4n": 1.0,
    "q5": 0.25,
    "q6": 0.11,
    "q8": 0.008,
}  # KL divergence with all layers in one type, beside q4n's; in the order of steps
STEPS = tuple(ERRORS)
ENOUGH = "q4n"  # where all can be that, nothing is coarser
# KL divergence for each weight of a kind in q4n, the others exact, beside that of gate and up. Attention's output_gate's
# was not measured, nor any of scans' or latents': of these kv_a makes the values, too.
SENSITIVITY = {"v": 16.0, "q": 2.3, "k": 2.3, "output_gate": 2.3, "o": 1.9, "down": 1.5, "gate": 1.0, "up": 1.0}
SENSITIVITY |= {"kv_a": 16.0, "q_a": 2.3}
SENSITIVITY |= {"x": 16.0, "b": 2.3, "c": 2.3, "z": 2.3}  # of scans, as v, k, q and output_gate
RECURRENT = {"v": 1.1, "q": 0.5, "k": 0.5, "output_gate": 0.9, "o": 2.1}  # Gated DeltaNet's: as wide as all the rest
# KL divergence where these alone are q4n, beside all layers': where they are two matrices, or one.
OUTSIDE, TIED = {"classifier": 0.25, "embedding": 0.05}, {"embedding": 0.76}
ENDS, AT_ENDS = 8, 1.5  # the layers of the first and last eighth are so much more sensitive
UNITS = (("q", "k"), ("gate", "up"))
LEAST_BITS, ENOUGH_BITS, MOST_BITS = 2.25, 4.25, 8.5  # a weight, the row scales of narrow matrices aside
DEFAULT_BITS = 4.5


def mixed(plan: list, bits: float, kept: set, active: float = 1.0) -> list:
    """The plan with at most so many bits a weight on average in the layers' matrices, beside a classifier and an embedding
    as planned; those aside that --keep names or that are copied without loss. Fewer than q2's are q2's. active: the part
    of the experts that a token meets."""
    recurrent = {int(p.name.split(".")[1]) for p in plan if p.name.startswith("layers.") and p.name.endswith(".beta")}
    units: dict = {}
    beside = OUTSIDE if any(planned.name == "classifier" for planned in plan) else TIED
    outside = [p for p in plan if p.name in beside and p.quantised in STEPS and p.name not in kept]
    first = STEPS.index(ENOUGH) if bits >= ENOUGH_BITS else 0
    for planned in plan:
        if planned.quantised == ENOUGH and planned.name.startswith("layers.") and planned.name not in kept:
            units.setdefault(_unit(planned.name), []).append(planned)
    n_layers = 1 + max((layer for layer, *_ in units), default=0)
    sensitivity = {place: _sensitivity(place, n_layers, recurrent, active) for place in units}
    room = bits / 8 * sum(map(_weights, units.values())) + sum(planned.size for planned in outside)
    total = sum(sensitivity[place] * _weights(unit) for place, unit in units.items())
    for planned in outside if units else ():
        place, unit = (n_layers, "", (planned.name,)), [planned]
        units[place], sensitivity[place] = unit, beside[planned.name] * total / _weights(unit)
    room -= sum(_size(unit, STEPS[first]) for unit in units.values())
    chosen = dict.fromkeys(units, first)
    steps = [_step(place, units[place], first, sensitivity[place]) for place in units]
    heapq.heapify(steps)
    while steps:
        _, more, to, place = heapq.heappop(steps)
        if more > room:
            continue  # a smaller step of another may fit
        room -= more
        chosen[place] = to
        if to + 1 < len(STEPS):
            heapq.heappush(steps, _step(place, units[place], to, sensitivity[place]))
    types = {planned.name: STEPS[chosen[place]] for place, unit in units.items() for planned in unit}
    return [dataclasses.replace(p, quantised=types[p.name]) if p.name in types else p for p in plan]


def _unit(name: str) -> tuple:
    """(layer, "experts" where they are chosen among, parts): the same for matrices that go together."""
    _, layer, *among, part = name.split(".")
    return int(layer), among[0] if among else "", next((unit for unit in UNITS if part in unit), (part,))


def _sensitivity(place: tuple, n_layers: int, recurrent: set, active: float) -> float:
    layer, among, (part, *_) = place
    own = RECURRENT.get(part, SENSITIVITY[part]) if layer in recurrent and not among else SENSITIVITY[part]
    ends = min(layer, n_layers - 1 - layer) < n_layers / ENDS
    return own * (AT_ENDS if ends else 1) * (active if among == "experts" else 1)


def _step(place: tuple, unit: list, at: int, sensitivity: float) -> tuple:
    """From type `at` to the next one: (less error for each byte, negative; bytes; the next type; place). Of equal
    ones the smallest comes first."""
    more = _size(unit, STEPS[at + 1]) - _size(unit, STEPS[at])
    saved = sensitivity * _weights(unit) * (ERRORS[STEPS[at]] - ERRORS[STEPS[at + 1]])
    return -saved / more, more, at + 1, place


def _weights(unit: list) -> int:
    return sum(math.prod(planned.shape) for planned in unit)


def _size(unit: list, dtype: str) -> int:
    return sum(quantised_size(dtype, planned.shape) for planned in unit)
