"""Which layers see everything and which a window, and how each of the two rotates: `sliding_window`, `rope` and
`kinds` of docs/format.md."""

from typing import Optional

from .rope import read_rope
from .source import shown

FULL, SLIDING = "full_attention", "sliding_attention"
BY_TYPE = ("later", "types", "first")


def read_kinds(keys, rule: str, name: str, facts: dict, warnings: list) -> dict:
    """rule: "none": no layer has a window; "always": all have, where there is one; "asked": where use_sliding_window
    is true, those that layer_types or max_window_layers names; "later": the same without being asked; "types": those
    that layer_types or sliding_window_pattern names, which counts up to a layer without; "first": it counts from one."""
    window, types = _windows(keys, rule, name, facts["n_layers"], warnings)
    of = {kind: [n for n, this in enumerate(types) if this == kind] for kind in (FULL, SLIDING)}
    ropes, unrotated = _ropes(keys, facts["head_dim"], warnings), []
    if "layer_rope_theta" in keys.defaults:
        ropes, unrotated = _layer_thetas(keys, of, ropes)
    if window and "full_unrotated" in keys.defaults:
        unrotated = of[FULL]
    found = {"unrotated_layers": unrotated} if unrotated else {}
    if not of[SLIDING]:
        return {"sliding_window": 0, "rope": ropes[FULL], **found}
    if not of[FULL]:
        return {"sliding_window": window, "rope": ropes[SLIDING], **found}
    kind = {"layers": of[SLIDING], "sliding_window": window, "rope": ropes[SLIDING]}
    return {"sliding_window": 0, "rope": ropes[FULL], "kinds": [kind], **found}


def _windows(keys, rule: str, name: str, n_layers: int, warnings: list) -> tuple:
    """(window, 0 where there is none; each layer's type)."""
    window, types = _window(keys, rule, name), _types(keys, n_layers)
    if types is None:
        types = [SLIDING if window and _has_window(keys, rule, layer) else FULL for layer in range(n_layers)]
    expected = SLIDING if window and rule in ("always", "asked") else FULL
    mixed = window and rule in ("asked", *BY_TYPE)
    if not mixed and any(kind != expected for kind in types):
        raise keys.error(
            f"layer_types: found {shown(types)}, expected {expected!r} for every layer, as sliding_window has it"
        )
    context = keys.integer("max_position_embeddings", keys.defaults["max_position_embeddings"], 1)
    alike = not {"rope_local_base_freq", "full_unrotated", "layer_rope_theta"} & set(keys.defaults)
    if SLIDING in types and FULL in types and window >= context and alike:
        warnings.append(
            f"{keys.path}: some layers have a window of {window}, which is no less than the context: left out"
        )
        types = [FULL] * n_layers
    return window, types


def _window(keys, rule: str, name: str) -> int:
    absent = "sliding_window" not in keys.values
    least = int(keys.values.get("use_sliding_window") is not False)  # where it is false, transformers writes 0
    window = keys.integer("sliding_window", keys.defaults["sliding_window"] if absent else None, least) or 0
    asked = keys.flag("use_sliding_window", bool(window) and rule in ("always", *BY_TYPE))
    if rule == "none":
        if asked:
            raise keys.error(f"use_sliding_window is true, which {name} does not have")
        if window and "use_sliding_window" not in keys.values:
            raise keys.error(f"sliding_window is {window}, which {name} does not have")
        return 0
    if rule == "asked":
        return window if asked else 0
    if asked != bool(window):
        raise keys.error(f"use_sliding_window is {shown(asked)}, but sliding_window is {window or 'null'}")
    return window


def _types(keys, n_layers: int) -> Optional[list]:
    types = keys.values.get("layer_types")
    if types is None:
        return None
    if not isinstance(types, list) or len(types) != n_layers or any(kind not in (FULL, SLIDING) for kind in types):
        raise keys.error(
            f"layer_types: found {shown(types)}, expected {FULL!r} or {SLIDING!r} for each of {n_layers} layers"
        )
    return types


def _has_window(keys, rule: str, layer: int) -> bool:
    if rule in ("types", "first"):
        step = keys.integer("sliding_window_pattern", keys.defaults["sliding_window_pattern"], 1)
        return (layer + (rule == "types")) % step != 0
    from_layer = keys.integer("max_window_layers", keys.defaults.get("max_window_layers", 0), 0)
    return rule == "always" or layer >= from_layer


def _ropes(keys, head_dim: int, warnings: list) -> dict:
    """RoPE of either kind of layer. Architectures that tell them apart have both in rope_parameters, or, the older
    way, rope_theta and rope_scaling of the layers that see everything beside rope_local_base_freq of the others."""
    if "rope_local_base_freq" not in keys.defaults:
        rope = read_rope(keys, keys.defaults["rope_theta"], head_dim, warnings)
        return {FULL: rope, SLIDING: rope}
    both = keys.object("rope_parameters")
    for kind in both:
        if kind not in (FULL, SLIDING):
            raise keys.error(f"rope_parameters: found {shown(kind)}, expected {FULL!r} and {SLIDING!r}")
    local = {key: value for key, value in keys.values.items() if key not in ("rope_theta", "rope_scaling")}
    local.update(rope_theta=keys.values.get("rope_local_base_freq"), rope_parameters=both.get(SLIDING))
    whole = {**keys.values, "rope_parameters": both.get(FULL)}
    return {
        FULL: read_rope(keys.but(whole), keys.defaults["rope_theta"], head_dim, warnings),
        SLIDING: read_rope(keys.but(local), keys.defaults["rope_local_base_freq"], head_dim, warnings),
    }


def _layer_thetas(keys, of: dict, ropes: dict) -> tuple:
    """(RoPE of either kind, layers without): layer_rope_theta has each layer's theta, 0 where it has no RoPE. of: each
    kind's layers."""
    n_layers, thetas = sum(map(len, of.values())), keys.values.get("layer_rope_theta")
    if thetas is None:
        return ropes, []
    numbers = isinstance(thetas, list) and all(type(theta) in (int, float) and 0 <= theta <= 1e18 for theta in thetas)
    if not numbers or len(thetas) != n_layers:
        raise keys.error(f"layer_rope_theta: found {shown(thetas)}, expected a number for each of {n_layers} layers")
    found = dict(ropes)
    for kind, layers in of.items():
        own = sorted({float(thetas[n]) for n in layers if thetas[n]})
        if len(own) > 1:
            raise keys.error(f"layer_rope_theta: found {shown(own)} in layers of {kind}, expected one number")
        found[kind] = {**ropes[kind], "theta": own[0]} if own else ropes[kind]
    return found, [n for n, theta in enumerate(thetas) if not theta]
