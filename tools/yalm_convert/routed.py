"""Rows of architectures.py for mixtures that but for their experts are a dense model: ERNIE 4.5, FlexOlmo, K-EXAONE,
Trinity. And which layers have no experts."""

from typing import Optional

from .source import shown

ERNIE_NAMES = (  # as files have it, and as transformers does
    (".mlp.moe_statics.e_score", ".mlp.gate.e_score"),
    (".mlp.gate.moe_statics.e_score", ".mlp.gate.e_score"),
)
ERNIE_KEYS = (
    ("moe_k", ("num_experts_per_tok",)),
    ("moe_num_experts", ("num_experts",)),
    ("moe_num_shared_experts", ("n_shared_experts",)),
    ("moe_layer_start_index", ("first_k_dense_replace",)),
    ("moe_layer_interval", ("decoder_sparse_step",)),
)
ERNIE = {
    "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28, "num_attention_heads": 20,
    "num_key_value_heads": 4, "head_dim": None, "moe_intermediate_size": 1536, "num_experts": 64,
    "num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1, "moe_layer_end_index": -1,
    "decoder_sparse_step": 1, "scoring_func": "softmax", "moe_norm_min": 1e-12,
}  # fmt: skip
FLEX_OLMO = {
    "vocab_size": 100352, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 5e5, "num_local_experts": 7,
    "num_experts_per_tok": 5, "norm_topk_prob": False,
}  # fmt: skip
EXAONE = {
    "max_position_embeddings": 2048, "moe_intermediate_size": 1024, "num_experts": 64, "n_routed_experts": None,
    "num_experts_per_tok": 8, "n_shared_experts": 1, "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "mlp_layer_types": None, "norm_topk_prob": True,
}  # fmt: skip
AFMOE = {
    "vocab_size": 200192, "hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16, "head_dim": 128,
    "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "moe_intermediate_size": 1408, "num_experts": 64,
    "n_routed_experts": None, "num_experts_per_tok": 6, "n_shared_experts": 2, "routed_scaling_factor": 1.0,
    "first_k_dense_replace": 1, "sliding_window": 1024, "sliding_window_pattern": 4, "full_unrotated": True,
    "mup_enabled": False,
}  # fmt: skip
AFMOE_NAMES = (
    (".mlp.router.gate.", ".mlp.gate."),
    (".mlp.expert_bias", ".mlp.gate.e_score_correction_bias"),
    (".pre_mlp_layernorm.", ".pre_feedforward_layernorm."),
    (".post_mlp_layernorm.", ".post_feedforward_layernorm."),
)
AFMOE_KEYS = (
    ("num_shared_experts", ("n_shared_experts",)),
    ("num_dense_layers", ("first_k_dense_replace",)),
    ("route_scale", ("routed_scaling_factor",)),
    ("global_attn_every_n_layers", ("sliding_window_pattern",)),
    ("load_balance_coeff", ()),  # of training, and how it is computed
    ("use_grouped_mm", ()),
)


def rows(llama: dict, ernie: dict, olmo: dict, exaone: dict) -> dict:
    """Rows of architectures.py, with the defaults of what is no otherwise than in Llama, ERNIE 4.5, OLMo 2 and EXAONE 4."""
    k_exaone = dict(
        model_type="exaone_moe",
        defaults=exaone | EXAONE,
        window="types",
        facts=("qk_norm",),
        changes={"names": ((".mlp.e_score", ".mlp.gate.e_score"),)},
        keys=(("num_shared_experts", ("n_shared_experts",)),),
        told=(("scoring_func", "sigmoid"), ("topk_method", "noaux_tc")),
    )
    return {
        "ExaoneMoeForCausalLM": k_exaone,
        "ExaoneMoEForCausalLM": k_exaone,  # in the release
        "AfmoeForCausalLM": dict(
            model_type="afmoe",
            defaults=llama | AFMOE,
            window="types",
            facts=("qk_norm", "norms_around", "output_gate"),
            changes={"names": AFMOE_NAMES},
            keys=AFMOE_KEYS,
            told=(
                ("score_func", "sigmoid"),
                ("route_norm", True),
                ("n_group", 1),
                ("topk_group", 1),
                ("num_expert_groups", 1),
                ("num_limited_groups", 1),
            ),
        ),
        "Ernie4_5_MoeForCausalLM": dict(
            model_type="ernie4_5_moe",
            defaults=ernie | ERNIE,
            facts=("softmax_choice_bias",),
            changes={"pairs": True, "names": ERNIE_NAMES},
            keys=ERNIE_KEYS,
            told=(
                ("use_bias", False),
                ("use_rmsnorm", True),
                ("scoring_func", "softmax"),
                ("routed_scaling_factor", 1.0),
            ),
        ),
        "FlexOlmoForCausalLM": dict(
            model_type="flex_olmo",
            defaults=olmo | FLEX_OLMO,
            biases=("attention_bias",),
            facts=("norms_after", "whole_qk_norm"),
            keys=(("num_experts", ("num_local_experts",)),),
        ),
    }


def read_dense(keys, n: int) -> list:
    """Layers without experts, of n."""
    step = keys.integer("decoder_sparse_step", 1, 1, 1 << 10)
    named = keys.values.get("mlp_only_layers") or []
    if not isinstance(named, list) or not all(type(layer) is int for layer in named):
        raise keys.error(f"mlp_only_layers: found {shown(named)}, expected layers")
    first = keys.integer("first_k_dense_replace", keys.defaults.get("first_k_dense_replace", 0), 0)
    last = keys.integer("moe_layer_end_index", -1, -1) if "moe_layer_end_index" in keys.defaults else -1
    last = n - 1 if last == -1 else last
    dense = [layer for layer in range(n) if not first <= layer <= last or layer in named or (layer + 1) % step]
    typed = _dense_types(keys, n)
    dense = dense if typed is None else typed
    if len(dense) == n:
        by = "mlp_only_layers and decoder_sparse_step" if first < n else "first_k_dense_replace"
        by = by if typed is None else "mlp_layer_types"
        raise keys.error(f"{by}: found no layer with experts, expected one or more")
    return dense


def _dense_types(keys, n: int) -> Optional[list]:
    """Layers that mlp_layer_types has without experts."""
    types = keys.values.get("mlp_layer_types") if "mlp_layer_types" in keys.defaults else None
    if types is not None and (
        not isinstance(types, list) or len(types) != n or any(kind not in ("dense", "sparse") for kind in types)
    ):
        raise keys.error(f"mlp_layer_types: found {shown(types)}, expected 'dense' or 'sparse' for each of {n} layers")
    return None if types is None else [layer for layer, kind in enumerate(types) if kind == "dense"]
