"""Layers with a short convolution alone, LFM2's: their facts in config.json, and their tensors ("Short convolutions" in
docs/format.md)."""

from .computed import Turned
from .source import shown

FULL, CONV = "full_attention", "conv"
# Of the published files, beside what transformers calls them.
NAMES = (
    (".operator_norm.", ".input_layernorm."), (".ffn_norm.", ".post_attention_layernorm."), (".out_proj.", ".o_proj."),
    (".q_layernorm.", ".q_norm."), (".k_layernorm.", ".k_norm."), (".feed_forward.", ".mlp."), (".w1.", ".gate_proj."),
    (".w3.", ".up_proj."), (".w2.", ".down_proj."), (".expert_bias", ".gate.e_score_correction_bias"),
    ("model.embedding_norm.", "model.norm."),
)  # fmt: skip
KEYS = (
    ("norm_eps", ("rms_norm_eps",)), ("block_norm_eps", ("rms_norm_eps",)), ("tie_embedding", ("tie_word_embeddings",)),
    ("theta", ("rope_theta",)), ("num_heads", ("num_attention_heads",)), ("block_dim", ("hidden_size",)),
    ("conv_dim", ("hidden_size",)), ("conv_dim_out", ("hidden_size",)), ("num_dense_layers", ("first_k_dense_replace",)),
)  # fmt: skip
TOLD = (("use_pos_enc", True), ("block_use_swiglu", True), ("use_expert_bias", True))


def convolves(keys) -> bool:
    return "conv_L_cache" in keys.defaults


def read_convolutions(keys, facts: dict) -> dict:
    """`kinds`, with the one kind of layer that convolves, and `ffn_dim`, which config.json may have before it is cut."""
    layers = [layer for layer, kind in enumerate(_types(keys, facts["n_layers"])) if kind == CONV]
    if len(layers) == facts["n_layers"]:
        raise keys.error("layer_types: found no layer with attention, which is not supported")
    conv = {"conv_width": keys.integer("conv_L_cache", keys.defaults["conv_L_cache"], 2, 64)}
    if keys.flag("conv_bias", False):
        conv["bias"] = True
    found = {"kinds": [{"layers": layers, "conv": conv}]} if layers else {}
    return {**found, "ffn_dim": _ffn_dim(keys, facts["ffn_dim"])} if "block_multiple_of" in keys.defaults else found


def _types(keys, n_layers: int) -> list:
    types, full = keys.values.get("layer_types"), keys.values.get("full_attn_idxs")
    if types is None and "full_attn_idxs" in keys.defaults:
        if full is not None and (not isinstance(full, list) or any(n not in range(n_layers) for n in full)):
            raise keys.error(f"full_attn_idxs: found {shown(full)}, expected layers from 0 to {n_layers - 1}")
        return [FULL if full is None or layer in full else CONV for layer in range(n_layers)]
    if not isinstance(types, list) or len(types) != n_layers or any(kind not in (FULL, CONV) for kind in types):
        raise keys.error(
            f"layer_types: found {shown(types)}, expected {FULL!r} or {CONV!r} for each of {n_layers} layers"
        )
    return types


def _ffn_dim(keys, width: int) -> int:
    width = keys.integer("block_ff_dim", width, 1, 1 << 20)  # which transformers takes before intermediate_size
    if not keys.flag("block_auto_adjust_ff_dim", keys.defaults["block_auto_adjust_ff_dim"]):
        return width
    times = keys.number("block_ffn_dim_multiplier", keys.defaults["block_ffn_dim_multiplier"], 1e-3, 1e3)
    step = keys.integer("block_multiple_of", keys.defaults["block_multiple_of"], 1, 1 << 20)
    return -(-int(times * int(2 * width / 3)) // step) * step


def plan_convolution(planner, name: str, stored: str, conv: dict) -> None:
    """A layer's tensors but for its norm and what follows: in_proj is k, q and v, one above the other. planner: a Planner of
    plan.py."""
    dim, bias = planner.config["hidden_dim"], conv.get("bias", False)
    joined, first = planner.take(f"{stored}.in_proj.weight", (3 * dim, dim)), 0
    biases = planner.take(f"{stored}.in_proj.bias", (3 * dim,)) if bias else None
    for ours in "kqv":
        planner.weights(f"{name}.{ours}", joined.part(first * dim, (dim, dim)))
        if biases:
            planner.exact(f"{name}.{ours}_bias", biases.part(first, (dim,)))
        first += dim
    planner.linear(f"{name}.o", f"{stored}.o_proj", dim, dim, bias)
    taps = planner.take(f"{stored}.conv.weight", (dim, 1, conv["conv_width"]))
    planner.exact(f"{name}.conv", Turned(taps.part(0, (dim, conv["conv_width"])), 0, 1))
    if bias:
        planner.exact(f"{name}.conv_bias", planner.take(f"{stored}.conv.bias", (dim,)))
