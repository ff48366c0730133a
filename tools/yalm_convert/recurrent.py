"""Recurrent layers, Gated DeltaNet's: their sizes in config.json, and their tensors ("Recurrent layers" in docs/format.md)."""

import numpy as np

from .computed import Mapped, Turned, Within
from .kda import FULL, LINEAR, has_kda, read_kda
from .mamba import has_scan, read_scan
from .source import shown

MROPE = {"mrope_section", "mrope_interleaved"}  # say nothing about a text


def has_recurrent(keys) -> bool:
    return "linear_num_value_heads" in keys.defaults or has_scan(keys) or has_kda(keys)


def attention_keys(keys):
    """What config.json says of the layers with attention alone."""
    values = {key: value for key, value in keys.values.items() if key != "layer_types"}
    rope = values.get("rope_parameters")
    if isinstance(rope, dict):
        values["rope_parameters"] = {key: value for key, value in rope.items() if key not in MROPE}
    return keys.but(values)


def read_recurrent(keys, facts: dict) -> dict:
    """`kinds`, with the one kind of layer that is recurrent; {} where no layer is."""
    n_layers = facts["n_layers"]
    if has_scan(keys):
        return read_scan(keys, facts)
    if has_kda(keys):
        return read_kda(keys, facts)
    if not keys.flag("attn_output_gate", True):
        raise keys.error("attn_output_gate is false, which transformers does not have")
    recurrent = [layer for layer, kind in enumerate(_types(keys, n_layers)) if kind == LINEAR]
    if len(recurrent) == n_layers:
        raise keys.error("layer_types: found no layer with attention, which is not supported")
    delta = {
        ours: keys.integer(theirs, keys.defaults[theirs], 1, most)
        for ours, theirs, most in (
            ("n_key_heads", "linear_num_key_heads", 1 << 12),
            ("n_value_heads", "linear_num_value_heads", 1 << 12),
            ("key_dim", "linear_key_head_dim", 1 << 12),
            ("value_dim", "linear_value_head_dim", 1 << 12),
            ("conv_width", "linear_conv_kernel_dim", 64),
        )
    }
    if delta["n_value_heads"] % delta["n_key_heads"]:
        raise keys.error(
            f"linear_num_value_heads {delta['n_value_heads']} is not a multiple of"
            f" linear_num_key_heads {delta['n_key_heads']}"
        )
    if delta["conv_width"] < 2:
        raise keys.error("linear_conv_kernel_dim is 1, expected 2 or more")
    if keys.values.get("tiled_value_heads"):  # of GGUF files
        delta["tiled"] = True
    return {"kinds": [{"layers": recurrent, "delta": delta}]} if recurrent else {}


def _types(keys, n_layers: int) -> list:
    types = keys.values.get("layer_types")
    if types is None:
        step = keys.integer("full_attention_interval", keys.defaults["full_attention_interval"], 1)
        return [LINEAR if (layer + 1) % step else FULL for layer in range(n_layers)]
    if not isinstance(types, list) or len(types) != n_layers or any(kind not in (FULL, LINEAR) for kind in types):
        raise keys.error(
            f"layer_types: found {shown(types)}, expected {FULL!r} or {LINEAR!r} for each of {n_layers} layers"
        )
    return types


def kind_of(config: dict, layer: int) -> dict:
    """The member of `kinds` that names the layer; {} where none does."""
    return next((kind for kind in config.get("kinds", []) if layer in kind["layers"]), {})


def plan_recurrent(planner, name: str, stored: str, delta: dict) -> None:
    """A recurrent layer's tensors but for its norm and what follows. planner: a Planner of plan.py."""
    dim, heads, width = planner.config["hidden_dim"], delta["n_value_heads"], delta["conv_width"]
    keys, values = delta["n_key_heads"] * delta["key_dim"], heads * delta["value_dim"]
    channels = 2 * keys + values
    products = _products(planner, stored, delta, dim)
    for ours in ("q", "k", "v", "output_gate"):
        planner.weights(f"{name}.{ours}", products[ours])
    planner.weights(f"{name}.o", planner.take(f"{stored}.out_proj.weight", (dim, values)))
    conv = planner.take(f"{stored}.conv1d.weight", (channels, 1, width))
    planner.exact(f"{name}.conv", Turned(conv.part(0, (channels, width)), 0, 1))
    for ours in ("decay", "beta"):
        planner.exact(f"{name}.{ours}", products[ours])
    planner.exact(f"{name}.decay_bias", planner.take(f"{stored}.dt_bias", (heads,)))
    stored_rate, rate = ("A", np.negative) if f"{stored}.A" in planner.left else ("A_log", np.exp)
    planner.exact(f"{name}.decay_rate", Mapped(planner.take(f"{stored}.{stored_rate}", (heads,)), rate))
    planner.exact(f"{name}.value_norm", planner.take(f"{stored}.norm.weight", (delta["value_dim"],)))


def _products(planner, stored: str, delta: dict, dim: int) -> dict:
    """What the layer's input is multiplied by, by our names."""
    heads = delta["n_value_heads"]
    keys, values = delta["n_key_heads"] * delta["key_dim"], heads * delta["value_dim"]
    together, pair = f"{stored}.in_proj_qkvz.weight", f"{stored}.in_proj_ba.weight"
    found = {}
    if pair in planner.left:  # those of a key head stand together: of its value heads beta, then decay
        each = heads // delta["n_key_heads"]
        both = planner.take(pair, (2 * heads, dim))
        found = {"beta": Within(both, 2 * each, 0, each), "decay": Within(both, 2 * each, each, each)}
    else:
        found["decay"] = planner.take(f"{stored}.in_proj_a.weight", (heads, dim))
        found["beta"] = planner.take(f"{stored}.in_proj_b.weight", (heads, dim))
    if together in planner.left:
        rows = values // delta["n_key_heads"]
        sizes = {"q": delta["key_dim"], "k": delta["key_dim"], "v": rows, "output_gate": rows}
        joined, block, first = planner.take(together, (2 * (keys + values), dim)), sum(sizes.values()), 0
        for ours, size in sizes.items():
            found[ours] = Within(joined, block, first, size)
            first += size
        return found
    joined, first = planner.take(f"{stored}.in_proj_qkv.weight", (2 * keys + values, dim)), 0
    for ours, rows in (("q", keys), ("k", keys), ("v", values)):
        found[ours] = joined.part(first * dim, (rows, dim))
        first += rows
    found["output_gate"] = planner.take(f"{stored}.in_proj_z.weight", (values, dim))
    return found
