"""Kimi Delta Attention, Kimi Linear's, between layers with latents (`kda_rank` of docs/format.md)."""

import numpy as np

from .checkpoint import Tensor
from .computed import Computed, Mapped, Turned
from .source import shown

FULL, LINEAR = "full_attention", "linear_attention"
# Keys of config.json, by what they are called within `linear_attn_config`.
SIZES = {
    "head_dim": "linear_head_dim",
    "num_heads": "linear_num_heads",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}
LISTS = ("full_attn_layers", "kda_layers")
# As transformers names them, which saves a dense layer's MLP as if it had experts.
NAMES = (
    (".self_attn.forget_gate.", ".self_attn."),
    *((f".block_sparse_moe.{part}_proj.", f".mlp.{part}_proj.") for part in ("gate", "up", "down")),
)
KEYS = (
    ("model_max_length", ("max_position_embeddings",)),
    ("moe_renormalize", ("norm_topk_prob",)),
    ("num_expert_group", ("n_group",)),
    ("num_experts_per_token", ("num_experts_per_tok",)),
    ("num_shared_experts", ("n_shared_experts",)),
)
TOLD = (
    ("moe_router_activation_func", "sigmoid"), ("moe_layer_freq", 1), ("mla_use_nope", True), ("use_grouped_topk", True),
)  # fmt: skip


OWN = {
    "vocab_size": 163840, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27, "num_attention_heads": 32,
    "max_position_embeddings": 1048576, "rms_norm_eps": 1e-5, "moe_intermediate_size": 1024, "routed_scaling_factor": 2.446,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "mlp_layer_types": None, "q_lora_rank": None,
    "linear_attn_config": None, "linear_head_dim": 128, "linear_num_heads": 32, "linear_conv_kernel_dim": 4,
}  # fmt: skip


def rows(deepseek: dict) -> dict:
    """Rows of architectures.py. deepseek: the defaults of what is no otherwise than in DeepSeek-V3."""
    defaults = {key: value for key, value in deepseek.items() if key != "rope_interleave"} | OWN
    row = dict(model_type="kimi_linear", defaults=defaults, changes={"names": NAMES}, keys=KEYS, told=TOLD)
    return {"KimiLinearForCausalLM": row}


def has_kda(keys) -> bool:
    return "linear_attn_config" in keys.defaults


def read_kda(keys, facts: dict) -> dict:
    inner = keys.inner("linear_attn_config", keys.object("linear_attn_config"))
    for key in inner.values:
        if key not in (*SIZES, *LISTS):
            raise inner.error(f"{shown(key)} is not known")

    def size(theirs: str, least: int, most: int) -> int:
        found = (inner.integer(theirs, None, least, most), keys.integer(SIZES[theirs], None, least, most))
        return inner.agree(theirs, found[0], SIZES[theirs], found[1], keys.defaults[SIZES[theirs]])

    heads, width = size("num_heads", 1, 1 << 12), size("head_dim", 1, 1 << 12)
    conv = size("short_conv_kernel_size", 2, 64)
    types = _types(keys, inner, facts["n_layers"])
    layers = {kind: [layer for layer, this in enumerate(types) if this == kind] for kind in (FULL, LINEAR)}
    if not layers[FULL]:
        raise keys.error("layer_types: found no layer with attention, which is not supported")
    delta = {
        "n_key_heads": heads, "n_value_heads": heads, "key_dim": width, "value_dim": width, "conv_width": conv,
        "kda_rank": width,
    }  # fmt: skip
    kinds = {"kinds": [{"layers": layers[LINEAR], "delta": delta}]} if layers[LINEAR] else {}
    return {"unrotated_layers": layers[FULL], **kinds}


def _types(keys, inner, n: int) -> list:
    """Each layer's type. The lists of linear_attn_config count from 1."""
    types, lists = keys.values.get("layer_types"), [inner.values.get(key) for key in LISTS]
    if types is None and all(isinstance(part, list) for part in lists):
        if sorted(map(str, lists[0] + lists[1])) != sorted(map(str, range(1, n + 1))):
            raise inner.error(f"{' and '.join(LISTS)}: expected each layer from 1 to {n} in one of them")
        types = [FULL if layer in lists[0] else LINEAR for layer in range(1, n + 1)]
    if types is None:
        types = [LINEAR if layer == 0 or layer % 4 else FULL for layer in range(n)]
    if not isinstance(types, list) or len(types) != n or any(kind not in (FULL, LINEAR) for kind in types):
        raise keys.error(f"layer_types: found {shown(types)}, expected {FULL!r} or {LINEAR!r} for each of {n} layers")
    return types


class Beside(Computed):
    """Matrices with as many rows, side by side."""

    def __init__(self, parts: list):
        self.parts, self.name, self.path = parts, parts[0].name, parts[0].path
        self.shape = (parts[0].shape[0], sum(part.shape[1] for part in parts))

    def values(self, first: int, n: int) -> np.ndarray:
        return np.concatenate([part.values(first, n).astype(np.float32) for part in self.parts], axis=1)


def plan_kda(planner, name: str, stored: str, delta: dict) -> None:
    """A layer's tensors but for its norm and what follows. planner: a Planner of plan.py."""
    dim, heads, width, rank = planner.config["hidden_dim"], delta["n_value_heads"], delta["key_dim"], delta["kda_rank"]
    channels, taps = heads * width, delta["conv_width"]

    def take(part: str, *shape: int) -> Tensor:
        return planner.take(f"{stored}.{part}.weight", shape)

    for part in "qkv":
        planner.weights(f"{name}.{part}", take(f"{part}_proj", channels, dim))
    planner.weights(f"{name}.o", take("o_proj", dim, channels))
    if f"{stored}.conv1d.weight" in planner.left:  # of all three
        convs = [take("conv1d", 3 * channels, 1, taps).part(0, (3 * channels, taps))]
    else:
        convs = [take(f"{part}_conv1d", channels, 1, taps).part(0, (channels, taps)) for part in "qkv"]
    planner.exact(f"{name}.conv", Beside([Turned(conv, 0, 1) for conv in convs]))
    planner.exact(f"{name}.beta", take("b_proj", heads, dim))
    for ours, theirs in (("decay", "f"), ("gate", "g")):
        planner.floats(f"{name}.{ours}_a", take(f"{theirs}_a_proj", rank, dim))
        planner.floats(f"{name}.{ours}_b", take(f"{theirs}_b_proj", channels, rank))
    planner.exact(f"{name}.decay_bias", planner.take(f"{stored}.dt_bias", (channels,)))
    stored_rate, rate = ("A", np.negative) if f"{stored}.A" in planner.left else ("A_log", np.exp)
    rates = planner.take(f"{stored}.{stored_rate}", (1, 1, heads, 1)).part(0, (heads,))
    planner.exact(f"{name}.decay_rate", Mapped(rates, rate))
    planner.exact(f"{name}.value_norm", take("o_norm", width))
