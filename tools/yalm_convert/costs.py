"""What becomes of matrices that were quantised already: how many of which form, into what, and how far off that is,
by a sample of their rows."""

import numpy as np

from .checkpoint import NAMES, Tensor
from .fp8 import SCALE_BYTES, round_rows
from .packing import GROUP, GROUP_BYTES, filled_up
from .quantise import quantise_rows

MATRICES, ROWS = 6, 24  # looked at, of each form


def report(plan: list) -> str:
    """One line, "" where all matrices were plain numbers."""
    groups: dict = {}
    for planned in plan:
        if isinstance(planned.source, Tensor) and planned.source.form and len(planned.shape) == 2:
            same = planned.source.holds(planned.quantised)
            groups.setdefault((planned.source.form, planned.dtype_name, same), []).append(planned.source)
    said = []
    for (form, dtype, same), sources in sorted(groups.items()):
        off = max(source.moved for source in sources) if same else error(sources, dtype)
        by = f"at most {100 * off:.2g} %" if same else f"{100 * off:.2g} % (root mean square)"
        how = "without loss" if off == 0 else f"which moves weights by {by}"
        said.append(f"{len(sources)} of {form} become {dtype}, {how}")
    return "matrices: " + "; ".join(said) if said else ""


def error(sources: list, dtype: str) -> float:
    """Of matrices that become `dtype`: the root of the mean square of what changes, beside that of the weights."""
    off = total = 0.0
    for source in sources[:: -(-len(sources) // MATRICES)]:
        rows = source.shape[0]
        values = source.values(rows // 2, min(ROWS, rows - rows // 2)).astype(np.float32)
        with np.errstate(all="ignore"):
            found = as_stored(values, dtype)
        off += float(np.square(found - values, dtype=np.float64).sum())
        total += float(np.square(values, dtype=np.float64).sum())
    return (off / total) ** 0.5 if total else 0.0


def as_stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """What values (rows, columns) are after they have been `dtype`."""
    rows, columns = values.shape
    if dtype in GROUP_BYTES:
        quants, *scales = quantise_rows(filled_up(values), dtype)
        of_groups = scales[0].astype(np.float32) * (1 if len(scales) == 1 else scales[1][:, None])
        return (quants.reshape(rows, -1, GROUP) * of_groups[..., None]).reshape(rows, -1)[:, :columns]
    if dtype in SCALE_BYTES:
        elements, scales = round_rows(values, dtype)
        return elements.astype(np.float32) * scales[:, None]
    numbers = next(number for number, name in NAMES.items() if name == dtype.replace("bf12", "bf16"))
    return values.astype(numbers).astype(np.float32)
