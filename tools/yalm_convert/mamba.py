"""Models with Mamba-2's selective state spaces: their rows for architectures.py, and what rows cannot say: facts, `scan` of
docs/format.md among them, and tensors."""

import math
import re

import numpy as np

from .computed import Mapped, Reordered, Turned
from .errors import ModelError
from .source import shown

FULL, LINEAR = "full_attention", "linear_attention"
TYPES = {"attention": FULL, FULL: FULL, "mamba": LINEAR, LINEAR: LINEAR}
BLOCKS = {"M": LINEAR, "*": FULL, "-": "mlp", "E": "moe"}  # hybrid_override_pattern's letters
MAMBA = {
    "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_head": None, "mamba_d_conv": 4, "mamba_expand": 2,
    "mamba_conv_bias": True, "time_step_limit": None, "sliding_window": None, "rope_theta": 10000.0, "hidden_size": 4096,
    "num_hidden_layers": 32, "num_attention_heads": 32,
}  # fmt: skip
GRANITE = dict(
    MAMBA, vocab_size=32000, intermediate_size=11008, num_key_value_heads=None, max_position_embeddings=2048, rms_norm_eps=1e-6,
    embedding_multiplier=1.0, attention_multiplier=1.0, residual_multiplier=1.0, logits_scaling=1.0, num_local_experts=8,
    num_experts_per_tok=2, shared_intermediate_size=1024, position_embedding_type=None,
)  # fmt: skip
BAMBA = dict(
    MAMBA, vocab_size=128000, intermediate_size=14336, num_key_value_heads=8, max_position_embeddings=262144, rms_norm_eps=1e-5,
    partial_rotary_factor=0.5, attn_layer_indices=None,
)  # fmt: skip
FALCON = dict(
    MAMBA, vocab_size=128000, intermediate_size=14336, num_key_value_heads=8, max_position_embeddings=8192, rms_norm_eps=1e-5,
    mamba_d_ssm=1024, mamba_rms_norm=False, mamba_norm_before_gate=True, lm_head_multiplier=1.0, embedding_multiplier=1.0,
    key_multiplier=1.0, attention_in_multiplier=1.0, attention_out_multiplier=1.0, ssm_in_multiplier=1.0,
    ssm_out_multiplier=1.0, mlp_multipliers=None, ssm_multipliers=None,
)  # fmt: skip
NEMOTRON = dict(
    MAMBA, vocab_size=131072, intermediate_size=21504, num_key_value_heads=8, head_dim=128, max_position_embeddings=4096,
    rms_norm_eps=1e-5, mamba_n_groups=8, mamba_d_state=128, mamba_d_head=64, hidden_act="relu2", time_step_min=0.001,
    hybrid_override_pattern=None, no_ffn_layers=None, mlp_layer_types=None, moe_latent_size=None,
    num_experts=8, num_experts_per_tok=2, moe_intermediate_size=7688, moe_shared_expert_intermediate_size=7688,
    n_routed_experts=None, n_shared_experts=1, routed_scaling_factor=1.0, n_group=1, topk_group=1, norm_topk_prob=True,
)  # fmt: skip
OF_EXPERTS = (
    "num_experts num_local_experts num_experts_per_tok moe_intermediate_size n_routed_experts n_shared_experts mlp_layer_types "
    "routed_scaling_factor n_group topk_group norm_topk_prob moe_shared_expert_intermediate_size shared_intermediate_size"
).split()
NAMES = (
    (".feed_forward.", ".mlp."),
    (".pre_ff_layernorm.", ".post_attention_layernorm."),
    ("model.final_layernorm.", "model.norm."),
)
DENSE_NAMES = ((".block_sparse_moe.shared_experts.", ".mlp."),)  # Granite's expert of all tokens is its MLP then
TOLD = (("mamba_proj_bias", False), ("projectors_bias", False), ("use_bias", False), ("mamba_hidden_act", "silu"))
UNBIASED = (("attention_bias", False), ("mlp_bias", False))
ROWS: dict = {
    "NemotronHForCausalLM": dict(
        model_type="nemotron_h", defaults=NEMOTRON, facts=("ungated",),
        changes=dict(
            names=(
                ("backbone.", "model."),
                ("model.embeddings.", "model.embed_tokens."),
                ("model.norm_f.", "model.norm."),
            )
        ),
        keys=(
            ("ssm_state_size", ("mamba_d_state",)), ("mamba_num_heads", ("mamba_n_heads",)),
            ("mamba_head_dim", ("mamba_d_head",)), ("n_groups", ("mamba_n_groups",)), ("conv_kernel", ("mamba_d_conv",)),
            ("use_conv_bias", ("mamba_conv_bias",)), ("layer_norm_epsilon", ("rms_norm_eps",)),
            ("norm_eps", ("rms_norm_eps",)), ("mlp_hidden_act", ("hidden_act",)), ("expand", ("mamba_expand",)),
            ("mamba_dt_min", ("time_step_min",)), ("layers_block_type", ("layer_types",)),
        ),
        told=(*TOLD, *UNBIASED),
    ),
    "FalconH1ForCausalLM": dict(
        model_type="falcon_h1", defaults=FALCON, changes=dict(names=NAMES),
        told=(*TOLD, *UNBIASED, ("mamba_use_mlp", True), ("attn_layer_indices", None)),
    ),
    "BambaForCausalLM": dict(model_type="bamba", defaults=BAMBA, changes=dict(names=NAMES), told=(*TOLD, *UNBIASED)),
}  # fmt: skip


def has_scan(keys) -> bool:
    return "mamba_d_state" in keys.defaults


def scan_values(values: dict, defaults: dict, path) -> tuple:
    """(config.json's members and defaults in the words of other models; where each of its blocks comes to lie; more names of
    tensors)."""
    if "mamba_d_state" not in defaults:
        return values, defaults, (), ()
    values, blocks = {key: value for key, value in values.items() if (key, value) != ("mamba_d_head", "auto")}, ()
    types = values.get("layer_types") or values.pop("layers_block_type", None)
    if "attn_layer_indices" in defaults and isinstance(values.get("attn_layer_indices"), list):
        n = values.get("num_hidden_layers", defaults["num_hidden_layers"])
        types = [FULL if layer in values["attn_layer_indices"] else LINEAR for layer in range(n)]
    sparse = values.get("num_local_experts", 1) != 0
    if "hybrid_override_pattern" in defaults:
        types, found, blocks = _merged(types or list(values.get("hybrid_override_pattern") or ""), path)
        values, sparse = {**values, **found}, "sparse" in found["mlp_layer_types"]
    if not sparse:
        width = values.get("shared_intermediate_size", defaults.get("shared_intermediate_size"))
        values = {key: value for key, value in values.items() if key not in OF_EXPERTS}
        defaults = {key: value for key, value in defaults.items() if key not in OF_EXPERTS}
        values.update({"intermediate_size": width} if width else {})
    return {**values, "layer_types": types}, defaults, blocks, () if sparse else DENSE_NAMES


def _merged(blocks: list, path) -> tuple:
    """Nemotron's blocks, one norm each, as layers: a recurrence or attention, and the MLP or the experts that follow it."""
    types, mlps, places = [], [], []
    for n, block in enumerate(blocks):
        kind = BLOCKS.get(block, TYPES.get(block, block) if isinstance(block, str) else None)
        if kind not in BLOCKS.values():
            raise ModelError(
                f"{path}: layer_types: found {shown(block)}, expected a recurrence, attention, an MLP or experts"
            )
        if kind in (LINEAR, FULL):
            types.append(kind)
            mlps.append(None)
            places.append((len(types) - 1, "input_layernorm", "mamba" if kind == LINEAR else "self_attn"))
            continue
        if not types or mlps[-1]:
            raise ModelError(
                f"{path}: layer_types: an MLP that follows another, or comes first, is not supported (block {n})"
            )
        mlps[-1] = kind
        places.append((len(types) - 1, "post_attention_layernorm", "mlp"))
    if not types:
        raise ModelError(f"{path}: hybrid_override_pattern: found nothing, expected the blocks")
    return types, {
        "num_hidden_layers": len(types), "mlp_layer_types": ["sparse" if mlp == "moe" else "dense" for mlp in mlps],
        "no_ffn_layers": [layer for layer, mlp in enumerate(mlps) if mlp is None],
    }, tuple(places)  # fmt: skip


def block_name(name: str, blocks: tuple) -> str:
    """A tensor's name where each block is part of a layer."""
    match = re.match(r"model\.layers\.(\d+)\.(norm|mixer)\.(.*)", name)
    if not match or int(match[1]) >= len(blocks):
        return name
    layer, norm, mixer = blocks[int(match[1])]
    return f"model.layers.{layer}.{norm if match[2] == 'norm' else mixer}.{match[3]}"


def read_scan(keys, facts: dict) -> dict:
    """`kinds`, with the one kind of layer that scans, or `delta`, where all do beside attention; layers without RoPE, and
    without an MLP."""
    n, beside = facts["n_layers"], "mamba_d_ssm" in keys.defaults
    types = keys.values.get("layer_types") or [FULL if beside else LINEAR] * n
    if not isinstance(types, list) or len(types) != n or any(kind not in TYPES for kind in types if not beside):
        raise keys.error(f"layer_types: found {shown(types)}, expected 'mamba' or 'attention' for each of {n} layers")
    scanning = [layer for layer, kind in enumerate(types) if not beside and TYPES[kind] == LINEAR]
    attending = [layer for layer in range(n) if layer not in scanning]
    if not attending:
        raise keys.error("layer_types: found no layer with attention, which is not supported")
    found: dict = {"delta": _delta(keys, facts)} if beside else {}
    if scanning:
        found["kinds"] = [{"layers": scanning, "delta": _delta(keys, facts)}]
    if "hybrid_override_pattern" in keys.defaults or not _rotates(keys):
        found["unrotated_layers"] = attending
    if keys.values.get("no_ffn_layers"):
        found["no_ffn_layers"] = keys.values["no_ffn_layers"]
    if keys.values.get("moe_latent_size") is not None:
        raise keys.error(f"moe_latent_size is {keys.values['moe_latent_size']}: experts of a latent are not supported")
    return found


def _rotates(keys) -> bool:
    if "position_embedding_type" not in keys.defaults:
        return True
    kind = keys.string("position_embedding_type", "nope")
    if kind not in ("nope", "rope"):
        raise keys.error(f"position_embedding_type: found {shown(kind)}, expected 'nope' or 'rope'")
    return kind == "rope"


def _delta(keys, facts: dict) -> dict:
    def size(key: str, most: int, least: int = 1) -> int:
        return keys.integer(key, keys.defaults[key], least, most)

    heads, groups = size("mamba_n_heads", 1 << 12), size("mamba_n_groups", 1 << 12)
    all_values = keys.integer("mamba_d_ssm", None, 1) or size("mamba_expand", 64) * facts["hidden_dim"]
    width = keys.integer("mamba_d_head", keys.defaults["mamba_d_head"] or all_values // heads, 1, 1 << 12)
    if "hybrid_override_pattern" not in keys.defaults and heads * width != all_values:
        raise keys.error(f"mamba_n_heads {heads} times mamba_d_head {width}: expected {all_values}")
    if heads % groups:
        raise keys.error(f"mamba_n_heads {heads} is not a multiple of mamba_n_groups {groups}")
    normed = keys.flag("mamba_rms_norm", keys.defaults.get("mamba_rms_norm", True))
    scan = {"conv_bias": keys.flag("mamba_conv_bias", True), "norm_groups": groups if normed else 0}
    if normed:
        scan["norm_first"] = keys.flag("mamba_norm_before_gate", keys.defaults.get("mamba_norm_before_gate", False))
        scan["norm_eps"] = keys.number("rms_norm_eps", keys.defaults["rms_norm_eps"], 1.2e-38, 1)
    low, high = _limits(keys)
    scan.update({"dt_min": low} if low > 0 else {})
    scan.update({"dt_max": high} if high < math.inf else {})
    sizes = {
        "n_key_heads": groups,
        "n_value_heads": heads,
        "key_dim": size("mamba_d_state", 1 << 12),
        "value_dim": width,
    }
    return {**sizes, "conv_width": size("mamba_d_conv", 64, 2), "scan": scan}


def _limits(keys) -> tuple:
    """The least and the greatest step. transformers reads Nemotron's least one under another name, and no greatest."""
    if "time_step_min" in keys.defaults:
        return keys.number("time_step_min", keys.defaults["time_step_min"], 0, 1e9), math.inf
    limits = keys.values.get("time_step_limit") or [0.0, math.inf]
    numbers = [
        float(limit["__float__"]) if isinstance(limit, dict) and set(limit) == {"__float__"} else limit
        for limit in limits
    ]
    if len(numbers) != 2 or not all(type(x) in (int, float) and x >= 0 for x in numbers) or numbers[1] <= 0:
        raise keys.error(f"time_step_limit: found {shown(limits)}, expected the least and the greatest step")
    return tuple(map(float, numbers))


def read_multipliers(keys, facts: dict, warnings: list) -> tuple:
    """Falcon's: (factors of matrices, by the ends of their names, the longest first, and what plan_scan() asks for; what logits
    are multiplied by)."""

    def numbers(key: str, n: int) -> list:
        given = keys.values.get(key) or [1.0] * n
        if (
            not isinstance(given, list)
            or len(given) != n
            or not all(type(x) in (int, float) and 0 < x < 1e9 for x in given)
        ):
            raise keys.error(f"{key}: found {shown(given)}, expected {n} numbers above 0")
        return given

    given = {key: keys.number(key, 1.0, 1e-9, 1e9) for key in keys.defaults if key.endswith("_multiplier")}
    gate, down = numbers("mlp_multipliers", 2)
    inside = given["attention_in_multiplier"]
    facts["attention_scale"] = facts["head_dim"] ** -0.5 * inside**2 * given["key_multiplier"]
    facts["embedding_scale"] = given["embedding_multiplier"]
    z, x, b, c, dt = (given["ssm_in_multiplier"] * number for number in numbers("ssm_multipliers", 5))
    factors = {
        ".scan.o": given["ssm_out_multiplier"], ".scan.z": z, ".o": inside * given["attention_out_multiplier"], ".gate": gate,
        ".down": down,
    }  # fmt: skip
    if any(math.frexp(factor)[0] != 0.5 for factor in factors.values()):
        warnings.append(f"{keys.path}: multipliers become part of weights, which are rounded to their type behind that")
    factors.update({"x of conv": x, "b of conv": b, "c of conv": c, "dt exactly": dt})
    return tuple(factors.items()), given["lm_head_multiplier"]


def plan_scan(planner, name: str, stored: str, delta: dict) -> None:
    """A scan's tensors. planner: a Planner of plan.py. Rows of in_proj are z, x, B, C and dt; the convolution's x, B, C."""
    dim, heads, width = planner.config["hidden_dim"], delta["n_value_heads"], delta["conv_width"]
    keys, values = delta["n_key_heads"] * delta["key_dim"], heads * delta["value_dim"]
    channels, factors = values + 2 * keys, dict(planner.changes.factors)
    joined, first = planner.take(f"{stored}.in_proj.weight", (values + channels + heads, dim)), 0
    for part, rows in (("z", values), ("x", values), ("b", keys), ("c", keys)):
        planner.weights(f"{name}.scan.{part}", joined.part(first * dim, (rows, dim)))
        first += rows
    planner.exact(f"{name}.scan.dt", joined.part(first * dim, (heads, dim)), factors.get("dt exactly", 1.0))
    planner.weights(f"{name}.scan.o", planner.take(f"{stored}.out_proj.weight", (dim, values)))
    order = np.concatenate([np.arange(values + keys, channels), np.arange(values, values + keys), np.arange(values)])
    multiplied = [(factors.get(f"{part} of conv", 1.0), n) for part, n in (("c", keys), ("b", keys), ("x", values))]
    scale = np.concatenate([np.full(n, factor, np.float32) for factor, n in multiplied])
    conv = Reordered(planner.take(f"{stored}.conv1d.weight", (channels, 1, width)).part(0, (channels, width)), order)
    planner.exact(f"{name}.scan.conv", Scaled(Turned(conv, 0, 1), scale))
    if delta["scan"]["conv_bias"]:
        planner.exact(f"{name}.scan.conv_bias", Reordered(planner.take(f"{stored}.conv1d.bias", (channels,)), order))
    planner.exact(f"{name}.scan.dt_bias", planner.take(f"{stored}.dt_bias", (heads,)))
    stored_rate, rate = ("A", np.negative) if f"{stored}.A" in planner.left else ("A_log", np.exp)
    planner.exact(f"{name}.scan.rate", Mapped(planner.take(f"{stored}.{stored_rate}", (heads,)), rate))
    planner.exact(f"{name}.scan.skip", planner.take(f"{stored}.D", (heads,)))
    if delta["scan"]["norm_groups"]:
        planner.exact(f"{name}.scan.norm", planner.take(f"{stored}.norm.weight", (values,)))


class Scaled(Mapped):
    """Another tensor's values times a number, or times each column's."""

    def __init__(self, source, factor):
        super().__init__(source, lambda values: values * np.float32(factor))
