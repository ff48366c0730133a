"""RoPE's settings, from either spelling of config.json to the one of docs/format.md.

`rope_scaling` stands beside a top-level `rope_theta`; the newer `rope_parameters` holds `rope_theta` itself. Missing values are
what transformers takes them to be. Where two places disagree, versions of transformers do too, so that is refused.
"""

import math

from .source import shown

TYPES = ("default", "linear", "llama3", "yarn", "longrope")
KEYS = {
    "default": set(),
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
    "longrope": {"short_factor", "long_factor", "factor", "attention_factor", "original_max_position_embeddings"},
    "yarn": {
        "factor", "beta_fast", "beta_slow", "original_max_position_embeddings", "attention_factor", "mscale",
        "mscale_all_dim", "truncate",
    },
    "dynamic": {"alpha", "factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"},  # HunYuan's: alpha alone counts
}  # fmt: skip
ALWAYS = {"type", "rope_type", "rope_theta", "partial_rotary_factor", "finetuned"}  # the last only tells a story


def read_rope(keys, default_theta: float, head_dim: int, warnings: list) -> dict:
    """`keys` is the Keys of config.json. Of some architectures a part of each head rotates: those whose defaults have
    a partial_rotary_factor."""
    scaling, parameters = keys.object("rope_scaling"), keys.object("rope_parameters")
    if scaling and parameters and scaling != parameters:
        raise keys.error("rope_scaling and rope_parameters differ: only one of them can hold")
    prefix = "rope_scaling" if scaling else "rope_parameters"
    rope = keys.inner(prefix, scaling or parameters or keys.defaults.get("rope_parameters", {}))

    kind = rope.agree(
        "rope_type", rope.string("rope_type", None), f"{prefix}.type", rope.string("type", None), "default"
    )
    if "original_max_position_embeddings" in keys.defaults:  # Phi-3, to which these are other names of one thing
        kind = {"su": "longrope", "yarn": "longrope"}.get(kind, kind)
    alpha = rope.number("alpha", None, 1, 1e9) if "fixed_alpha" in keys.defaults and kind == "dynamic" else None
    if kind not in TYPES and (alpha is None or head_dim < 4):
        raise keys.error(f"{prefix}: RoPE type {shown(kind)} is not supported, expected one of {', '.join(TYPES)}")
    _check_keys(rope, kind, keys, prefix, warnings)

    top = keys.number("rope_theta", None, 1e-9, 1e18)
    theta = rope.agree("rope_theta", rope.number("rope_theta", None, 1e-9, 1e18), "rope_theta", top, default_theta)
    rotary_dim = _rotary_dim(rope, keys, head_dim)
    if alpha is not None:
        kind, theta = "default", theta * alpha ** (head_dim / (head_dim - 2))

    result = {"type": kind, "theta": theta}
    if rotary_dim != head_dim:
        result["rotary_dim"] = rotary_dim
    if kind == "longrope":
        result.update(_long(rope, keys, rotary_dim // 2))
    elif kind == "linear":
        result["factor"] = rope.number("factor", None, 1, 1e9, required=True)
    elif kind != "default":
        result.update(_scaled(rope, keys, kind, theta))
    return result


def _check_keys(rope, kind: str, keys, prefix: str, warnings: list) -> None:
    others = set().union(*KEYS.values()) - KEYS[kind]
    for key in rope.values:
        if key in others and rope.values[key] is not None:
            warnings.append(f"{keys.path}: {prefix}.{key} is not used by RoPE of type {kind}")
        elif key not in others | KEYS[kind] | ALWAYS:
            raise keys.error(f"{prefix}.{key} is not known")


def _rotary_dim(rope, keys, head_dim: int) -> int:
    key = "partial_rotary_factor"
    found = rope.agree(key, rope.number(key, None, 0, 1e9), key, keys.number(key, None, 0, 1e9), None)
    if found not in (None, 1.0) and key not in keys.defaults:
        raise keys.error(f"{key} is not supported, expected 1 or none")
    factor = keys.defaults.get(key, 1.0) if found is None else found
    rotary_dim = int(head_dim * factor)
    if found is None and "rotary_dim" in keys.defaults:
        rotary_dim = keys.integer("rotary_dim", keys.defaults["rotary_dim"] or rotary_dim, 2, head_dim)
    if not 2 <= rotary_dim <= head_dim or rotary_dim % 2:
        raise keys.error(
            f"{key} {factor:g} of head_dim {head_dim}: {rotary_dim} components rotate, expected an even number of them"
        )
    return rotary_dim


def _long(rope, keys, n: int) -> dict:
    key = "original_max_position_embeddings"
    context = float(keys.integer("max_position_embeddings", keys.defaults["max_position_embeddings"], 1))
    original = rope.agree(
        key, rope.number(key, None, 2, 1e9), key, keys.number(key, None, 2, 1e9), keys.defaults.get(key, context)
    )
    factor = rope.number("factor", context / original, 0, 1e9)
    inferred = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    result = {"original_context": original, "attention_factor": rope.number("attention_factor", inferred, 1e-9, 1e9)}
    for name in ("short_factor", "long_factor"):
        values = rope.values.get(name)
        numbers = isinstance(values, list) and all(
            isinstance(v, (int, float)) and not isinstance(v, bool) for v in values
        )
        if not numbers or len(values) != n or not all(1e-9 <= v <= 1e9 for v in values):
            raise rope.error(f"{name}: found {shown(values)}, expected {n} numbers from 1e-09 to 1e+09")
        result[f"{name}s"] = [float(v) for v in values]
    return result


def _scaled(rope, keys, kind: str, theta: float) -> dict:
    key = "original_max_position_embeddings"
    context = float(keys.integer("max_position_embeddings", keys.defaults["max_position_embeddings"], 1))
    top = keys.number(key, None, 1, 1e9)
    original = rope.agree(key, rope.number(key, None, 1, 1e9), key, top, context)
    if kind == "llama3":
        result = {
            "factor": rope.number("factor", None, 1, 1e9, required=True),
            "low_freq_factor": rope.number("low_freq_factor", None, 1e-9, 1e9, required=True),
            "high_freq_factor": rope.number("high_freq_factor", None, 1e-9, 1e9, required=True),
            "original_context": original,
        }
        if result["low_freq_factor"] >= result["high_freq_factor"]:
            raise rope.error("low_freq_factor must be below high_freq_factor")
        return result

    if theta == 1:
        raise keys.error("rope_theta is 1, where RoPE of type yarn is not defined")
    factor = rope.number("factor", context / original, 1, 1e9)
    result = {
        "factor": factor,
        "beta_fast": rope.number("beta_fast", 0.0, 0, 1e9) or 32.0,
        "beta_slow": rope.number("beta_slow", 0.0, 0, 1e9) or 1.0,
        "original_context": original,
        "attention_factor": _attention_factor(rope, factor),
        "truncate": rope.flag("truncate", True),
    }
    if result["beta_fast"] < result["beta_slow"]:
        raise rope.error("beta_fast must not be below beta_slow")
    return result


def _attention_factor(rope, factor: float) -> float:
    def mscale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    over, under = rope.number("mscale", 0.0, 0, 1e9), rope.number("mscale_all_dim", 0.0, 0, 1e9)
    inferred = mscale(over) / mscale(under) if over and under else mscale(1.0)
    return rope.number("attention_factor", inferred, 1e-9, 1e9)
