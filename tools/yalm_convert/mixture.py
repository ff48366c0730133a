"""Which type each matrix of the layers gets where --dtype q4 has so many bits a weight: one of STEPS.

All begin with the fewest bits. Each matrix may take the next finer type; of all these steps the one that saves most
error for each of its bytes is taken, until none fits. What a step saves is the matrix's sensitivity times what its
type's error falls by. Both were measured (docs/quantisation.md). What is multiplied by the same input, in one go, has
one type: q and k, gate and up, and all experts of a layer.
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
# KL divergence for each weight of a kind in q4n, the others exact, beside that of gate and up. output_gate's was not
# measured, nor any of recurrent layers', nor of latents: of these kv_a makes the values, too.
SENSITIVITY = {"v": 16.0, "q": 2.3, "k": 2.3, "output_gate": 2.3, "o": 1.9, "down": 1.5, "gate": 1.0, "up": 1.0}
SENSITIVITY |= {"kv_a": 16.0, "q_a": 2.3}
SENSITIVITY |= {"x": 16.0, "b": 2.3, "c": 2.3, "z": 2.3}  # of scans, as v, k, q and output_gate
ENDS, AT_ENDS = 8, 1.5  # the layers of the first and last eighth are so much more sensitive
UNITS = (("q", "k"), ("gate", "up"))
LEAST_BITS, ENOUGH_BITS, MOST_BITS = 2.25, 4.25, 8.5  # a weight, the row scales of narrow matrices aside
DEFAULT_BITS = 4.5


def mixed(plan: list, bits: float, kept: set) -> list:
    """The plan with at most so many bits a weight on average in the layers' matrices, those aside that --keep names
    or that are copied without loss. Fewer than q2's are q2's."""
    units: dict = {}
    first = STEPS.index(ENOUGH) if bits >= ENOUGH_BITS else 0
    for planned in plan:
        if planned.quantised == ENOUGH and planned.name.startswith("layers.") and planned.name not in kept:
            units.setdefault(_unit(planned.name), []).append(planned)
    n_layers = 1 + max((layer for layer, _ in units), default=0)
    room = bits / 8 * sum(_weights(unit) for unit in units.values()) - sum(
        _size(unit, STEPS[first]) for unit in units.values()
    )
    chosen = dict.fromkeys(units, first)
    steps = [_step(place, units[place], first, n_layers) for place in units]
    heapq.heapify(steps)
    while steps:
        _, more, to, place = heapq.heappop(steps)
        if more > room:
            continue  # a smaller step of another may fit
        room -= more
        chosen[place] = to
        if to + 1 < len(STEPS):
            heapq.heappush(steps, _step(place, units[place], to, n_layers))
    types = {planned.name: STEPS[chosen[place]] for place, unit in units.items() for planned in unit}
    return [dataclasses.replace(p, quantised=types[p.name]) if p.name in types else p for p in plan]


def _unit(name: str) -> tuple:
    """(layer, parts): the same for matrices that go together."""
    part = name.rpartition(".")[2]
    return int(name.split(".")[1]), next((unit for unit in UNITS if part in unit), (part,))


def _step(place: tuple, unit: list, at: int, n_layers: int) -> tuple:
    """From type `at` to the next one: (less error for each byte, negative; bytes; the next type; place). Of equal
    ones the smallest comes first."""
    layer, parts = place
    ends = min(layer, n_layers - 1 - layer) < n_layers / ENDS
    sensitivity = SENSITIVITY[parts[0]] * (AT_ENDS if ends else 1)
    more = _size(unit, STEPS[at + 1]) - _size(unit, STEPS[at])
    saved = sensitivity * _weights(unit) * (ERRORS[STEPS[at]] - ERRORS[STEPS[at + 1]])
    return -saved / more, more, at + 1, place


def _weights(unit: list) -> int:
    return sum(math.prod(planned.shape) for planned in unit)


def _size(unit: list, dtype: str) -> int:
    return sum(quantised_size(dtype, planned.shape) for planned in unit)
