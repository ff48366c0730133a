"""Gemma 4: layers of two kinds that differ in their heads, keys that later layers share, inputs of layers, and
experts with norms of their own."""

import numpy as np

from .checkpoint import TYPES, Tensor
from .computed import Derived
from .experts import take_apart
from .rope import read_rope
from .source import shown

FULL, SLIDING = "full_attention", "sliding_attention"
OVERRIDES = ("head_dim", "n_kv_heads", "ffn_dim")  # what a kind may have otherwise than the model


def is_gemma4(keys) -> bool:
    return "global_head_dim" in keys.defaults


def read_gemma4(keys, facts: dict, warnings: list) -> dict:
    """All facts but the sizes that _sizes() of config.py reads, which become those of layers that see everything."""
    if keys.values.get("use_bidirectional_attention") == "all":
        raise keys.error("use_bidirectional_attention is 'all', which is not supported")
    n_layers, ffn = facts["n_layers"], facts["ffn_dim"]
    types = _types(keys, n_layers, warnings)
    heads = {SLIDING: (facts["head_dim"], facts["n_kv_heads"]), FULL: _full_heads(keys, facts, types)}
    shared = keys.integer("num_kv_shared_layers", 0, 0, n_layers - 1)
    _check_shared(keys, types, n_layers - shared)
    found = dict(zip(("head_dim", "n_kv_heads"), heads[FULL]))
    found.update(sliding_window=0, rope=_full_rope(keys, found["head_dim"], warnings))
    found.update(qk_norm=True, v_norm=True, norms_around=True, layer_scale=True, attention_scale=1.0)
    found["embedding_scale"] = facts["hidden_dim"] ** 0.5
    cap = keys.number("final_logit_softcapping", None, 1e-3, 1e6)
    if cap is not None:
        found["logits_softcap"] = cap
    of = {kind: [n for n, of_layer in enumerate(types) if of_layer == kind] for kind in (FULL, SLIDING)}
    alike = {FULL: {"sliding_window": 0, "rope": found["rope"]}}
    if of[SLIDING]:
        alike[SLIDING] = _sliding(keys, facts, heads[SLIDING], warnings)
    kinds, own = [], {FULL: 0}
    for kind in (SLIDING,) if of[SLIDING] else ():
        kinds.append({"layers": [n for n in of[kind] if n < n_layers - shared], **alike[kind]})
        own[kind] = len(kinds)
    wide = {"ffn_dim": 2 * ffn} if keys.flag("use_double_wide_mlp", False) else {}
    for kind in alike:
        layers = [n for n in of[kind] if n >= n_layers - shared]
        if layers:
            kinds.append({"layers": layers, **alike[kind], **wide, "kv_of": own[kind]})
    if kinds:
        found["kinds"] = kinds
    found.update(_inputs(keys))
    found.update(_experts(keys, ffn))
    return found


def _types(keys, n_layers: int, warnings: list) -> list:
    types = keys.values.get("layer_types")
    if types is None:
        step = keys.defaults["sliding_window_pattern"]
        types = [SLIDING if (n + 1) % step else FULL for n in range(n_layers)]
    elif not isinstance(types, list) or len(types) != n_layers or any(kind not in (FULL, SLIDING) for kind in types):
        raise keys.error(
            f"layer_types: found {shown(types)}, expected {FULL!r} or {SLIDING!r} for each of {n_layers} layers"
        )
    elif types[-1] != FULL:
        warnings.append(f"{keys.path}: layer_types: the last layer is taken for {FULL!r}, as transformers does")
    return [*types[:-1], FULL]


def _full_heads(keys, facts: dict, types: list) -> tuple:
    """(head_dim, KV heads) of layers that see everything. transformers itself writes them as per_layer_config."""
    head_dim = keys.integer("global_head_dim", keys.defaults["global_head_dim"], 2, 1 << 12)
    given = keys.integer("num_global_key_value_heads", None, 1, 1 << 14)
    n_kv_heads = given if given and keys.flag("attention_k_eq_v", False) else facts["n_kv_heads"]
    if keys.values.get("per_layer_config") == {}:  # written where both kinds have the same heads
        return facts["head_dim"], facts["n_kv_heads"]
    layers = {key.lstrip("0") or "0": layer for key, layer in keys.object("per_layer_config").items()}
    if layers:
        every = [str(n) for n, kind in enumerate(types) if kind == FULL]
        first = layers[min(layers)]
        alike = isinstance(first, dict) and all(layer == first for layer in layers.values())
        if sorted(layers) != sorted(every) or not alike:
            raise keys.error("per_layer_config: expected the same for all layers of full_attention, and no others")
        inner = keys.inner("per_layer_config", first)
        for key in inner.values:
            if key not in ("head_dim", "num_key_value_heads"):
                raise inner.error(f"{shown(key)} is not known")
        head_dim = inner.integer("head_dim", facts["head_dim"], 2, 1 << 12)
        n_kv_heads = inner.integer("num_key_value_heads", facts["n_kv_heads"], 1, 1 << 14)
    if head_dim % 2 or facts["n_heads"] % n_kv_heads:
        raise keys.error(
            f"layers of full_attention have heads of {head_dim}, {n_kv_heads} of keys for {facts['n_heads']} of queries:"
            " expected an even number, and a divisor"
        )
    return head_dim, n_kv_heads


def _check_shared(keys, types: list, first: int) -> None:
    missing = set(types[first:]) - set(types[:first])
    if missing:
        raise keys.error(f"num_kv_shared_layers: no layer of {missing.pop()} before them has keys")


def _full_rope(keys, head_dim: int, warnings: list) -> dict:
    """RoPE of type "proportional" rotates the first components of a head as if all of it rotated: theta is another
    one for our formula."""
    both = _ropes(keys)
    given = both.get(FULL, {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6})
    if given.get("rope_type") != "proportional":
        whole = {**keys.values, "rope_parameters": given}
        return read_rope(keys.but(whole), 1e6, head_dim, warnings)
    rope = keys.inner(f"rope_parameters.{FULL}", given)
    theta = rope.number("rope_theta", 1e6, 1e-9, 1e18)
    part, factor = rope.number("partial_rotary_factor", 1.0, 0, 1), rope.number("factor", 1.0, 1, 1e9)
    rotary_dim = 2 * int(part * head_dim // 2)
    if rotary_dim == 0:
        raise rope.error(
            f"partial_rotary_factor {part:g} of head_dim {head_dim}: nothing rotates, which is not supported"
        )
    result = {"type": "default" if factor == 1 else "linear", "theta": theta ** (rotary_dim / head_dim)}
    if rotary_dim != head_dim:
        result["rotary_dim"] = rotary_dim
    return result if factor == 1 else {**result, "factor": factor}


def _ropes(keys) -> dict:
    both = keys.object("rope_parameters")
    for kind, rope in both.items():
        if kind not in (FULL, SLIDING) or not isinstance(rope, dict):
            raise keys.error(f"rope_parameters: found {shown(kind)}, expected {FULL!r} and {SLIDING!r}")
    return both


def _sliding(keys, facts: dict, heads: tuple, warnings: list) -> dict:
    """The kind of layer that has a window."""
    window = keys.integer("sliding_window", keys.defaults["sliding_window"], 1)
    local = {**keys.values, "rope_parameters": _ropes(keys).get(SLIDING)}
    rope = read_rope(keys.but(local), 1e4, heads[0], warnings)
    return {"sliding_window": window, "rope": rope, "head_dim": heads[0], "n_kv_heads": heads[1]}


def _inputs(keys) -> dict:
    dim = keys.integer("hidden_size_per_layer_input", keys.defaults["hidden_size_per_layer_input"], 0, 1 << 14)
    vocab = keys.integer("vocab_size", keys.defaults["vocab_size"], 1)
    own = keys.integer("vocab_size_per_layer_input", keys.defaults["vocab_size_per_layer_input"], 1)
    if dim and own != vocab:
        raise keys.error(f"vocab_size_per_layer_input is {own}, expected vocab_size {vocab}")
    return {"layer_input_dim": dim} if dim else {}


def _experts(keys, ffn: int) -> dict:
    if not keys.flag("enable_moe_block", False):
        return {"n_experts": 0, "n_active_experts": 0}
    if keys.flag("use_double_wide_mlp", False):
        raise keys.error("use_double_wide_mlp is true beside enable_moe_block, which is not supported")
    experts, active, width = (
        keys.integer(key, None, 1, most)
        for key, most in (("num_experts", 1 << 10), ("top_k_experts", 1 << 10), ("moe_intermediate_size", 1 << 20))
    )
    if not (experts and active and width) or active > experts:
        raise keys.error(
            "enable_moe_block is true: expected num_experts, top_k_experts of them, and moe_intermediate_size"
        )
    return {
        "n_experts": experts,
        "n_active_experts": active,
        "expert_ffn_dim": width,
        "shared_ffn_dim": ffn,
        "expert_norms": True,
    }


# ------------------------------------------------------------------------------------------- tensors


def layer_facts(config: dict, layer: int) -> dict:
    """The config with what the layer's kind has otherwise, and `kv_of` where it has no keys."""
    kind = next((kind for kind in config.get("kinds", []) if layer in kind["layers"]), {})
    return {**config, **{key: kind[key] for key in (*OVERRIDES, "kv_of") if key in kind}}


class TimesColumns(Derived):
    """A matrix whose columns are each multiplied by a number, in float32."""

    def __init__(self, source: Tensor, factors: np.ndarray):
        super().__init__(source, source.shape)
        self.factors, self.dtype, self.exact = factors, TYPES["F32"], ""

    def values(self, first: int, n: int) -> np.ndarray:
        return self.source.values(first, n).astype(np.float32) * self.factors


def plan_layer(planner, name: str, stored: str) -> None:
    """What a layer has besides attention, mlp and four norms. planner: a Planner of plan.py."""
    c, dim = planner.config, planner.config["hidden_dim"]
    if c.get("layer_input_dim"):
        n = c["layer_input_dim"]
        planner.weights(f"{name}.input_gate", planner.take(f"{stored}.per_layer_input_gate.weight", (n, dim)))
        planner.weights(f"{name}.input_projection", planner.take(f"{stored}.per_layer_projection.weight", (dim, n)))
        planner.norm(f"{name}.input_norm", planner.take(f"{stored}.post_per_layer_input_norm.weight", (dim,)))
    if c.get("layer_scale"):
        planner.exact(f"{name}.scale", planner.take(f"{stored}.layer_scalar", (1,)))


def plan_inputs(planner) -> None:
    c = planner.config
    n = c["n_layers"] * c["layer_input_dim"]
    planner.weights("layer_embedding", planner.take("model.embed_tokens_per_layer.weight", (c["vocab_size"], n)))
    projection = planner.take("model.per_layer_model_projection.weight", (n, c["hidden_dim"]))
    planner.weights("layer_projection", projection)
    norm = planner.take("model.per_layer_projection_norm.weight", (c["layer_input_dim"],))
    planner.norm("layer_projection_norm", norm)


def plan_experts_beside_mlp(planner, name: str, stored: str) -> None:
    """The router, its experts, and the dense mlp beside them, which is the shared expert."""
    c = planner.config
    dim, n, ffn, shared = c["hidden_dim"], c["n_experts"], c["expert_ffn_dim"], c["shared_ffn_dim"]
    router = planner.take(f"{stored}.router.proj.weight", (n, dim))
    scale = planner.take(f"{stored}.router.scale", (dim,))
    factors = scale.values(0, dim).astype(np.float32).reshape(-1) * np.float32(dim**-0.5)
    planner.exact(f"{name}.router", TimesColumns(router, factors))
    planner.exact(f"{name}.router_scale", planner.take(f"{stored}.router.per_expert_scale", (n,)))
    for ours, theirs in (
        ("expert_norm", "pre_feedforward_layernorm_2"),
        ("expert_post_norm", "post_feedforward_layernorm_2"),
        ("shared_post_norm", "post_feedforward_layernorm_1"),
    ):
        planner.norm(f"{name}.{ours}", planner.take(f"{stored}.{theirs}.weight", (dim,)))
    for part, shape in {"gate": (shared, dim), "up": (shared, dim), "down": (dim, shared)}.items():
        planner.weights(f"{name}.shared.{part}", planner.take(f"{stored}.mlp.{part}_proj.weight", shape))
    if f"{stored}.experts.gate_up_proj" in planner.left:
        take_apart(
            planner, f"{stored}.experts.gate_up_proj", f"{stored}.experts.down_proj", f"{stored}.experts", n, ffn
        )
    for e in range(n):
        for part, shape in {"gate": (ffn, dim), "up": (ffn, dim), "down": (dim, ffn)}.items():
            tensor = planner.take(f"{stored}.experts.{e}.{part}_proj.weight", shape)
            planner.weights(f"{name}.experts.{e}.{part}", tensor)


def prepare_attention(planner, stored: str, keeps: bool) -> None:
    """Layers without keys may have such tensors all the same: they are left out. Where attention has no v_proj,
    k_proj's product is both."""
    if not keeps:
        for part in ("k_proj.weight", "v_proj.weight", "k_norm.weight", "k_proj.bias", "v_proj.bias"):
            planner.left.pop(f"{stored}.{part}", None)
        return
    for kind in ("weight", "bias"):
        k, v = f"{stored}.k_proj.{kind}", f"{stored}.v_proj.{kind}"
        if v not in planner.left and k in planner.left:
            planner.left[v] = planner.left[k]
