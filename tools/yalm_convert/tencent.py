"""Tencent's models. HunYuan has norms of q and k behind their rotation (`rotated_qk_norm` of docs/format.md), and a base of
RoPE that a fixed alpha stretches; Youtu has latents, and no experts. Rows of architectures.py, and what rows cannot say."""

import numpy as np

NAMES = (
    (".query_layernorm.", ".q_norm."),
    (".key_layernorm.", ".k_norm."),
    (".mlp.gate.wg.", ".mlp.gate."),
    (".mlp.shared_mlp.", ".mlp.shared_experts."),
)
KEYS = (  # the first is of all models, the others of mixtures; their experts' width is the shared expert's, too
    ("attention_head_dim", ("head_dim",)),
    ("num_experts", ("num_local_experts",)),
    ("moe_topk", ("num_experts_per_tok",)),
    ("moe_intermediate_size", ("intermediate_size",)),
    ("intermediate_size", ("intermediate_size", "shared_intermediate_size")),
    ("shared_expert_intermediate_size", ("shared_intermediate_size",)),  # of GGUF files
    ("num_shared_expert", ("num_shared_expert",)),
)
UNREAD = (  # a mixture's, which dense models' configs have as well, and nothing reads there
    "num_experts", "moe_topk", "moe_intermediate_size", "num_shared_expert", "moe_layer_num_skipped", "use_mixed_mlp_moe",
    "norm_topk_prob", "group_limited_greedy", "routed_scaling_factor", "n_group", "topk_group",
)  # fmt: skip
TOLD = (  # the first six of all models, the others of mixtures
    ("use_qk_norm", True), ("use_cla", False), ("norm_type", "rms"), ("use_rotary_pos_emb", True),
    ("add_classification_head", False), ("use_mla", False), ("use_mixed_mlp_moe", True), ("moe_layer_num_skipped", 0),
    ("norm_topk_prob", True), ("group_limited_greedy", False), ("routed_scaling_factor", (1.0, False)),
    ("num_shared_expert", 1),
)  # fmt: skip
LATENT = (
    "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "qk_head_dim", "rope_interleave",
)  # fmt: skip
HARMLESS = {
    "capacity_factor", "cla_share_factor", "class_num", "dense_list", "embedding_initializer_range",
    "enable_lm_head_fp32", "im_end_id", "im_newline_id", "im_start_id", "image_token_id", "mask_init_id",
    "moe_drop_tokens", "moe_random_routing_dropped_token", "org_vocab_size", "pad_id",
    "pool_type", "skip_cls_token", "text_end_id", "text_start_id",
}  # fmt: skip


def rows(llama: dict, deepseek: dict) -> dict:
    """llama, deepseek: the defaults of what is no otherwise than in Llama, or in DeepSeek-V3."""
    youtu = dict(
        llama, vocab_size=128256, hidden_size=2048, intermediate_size=6144, num_attention_heads=16, tie_word_embeddings=True,
        max_position_embeddings=131072, **{key: deepseek[key] for key in LATENT},
    )  # fmt: skip
    dense = dict(llama, vocab_size=290943, rms_norm_eps=1e-5, intermediate_size=11008, fixed_alpha=True)
    experts = dict(dense, num_local_experts=1, num_experts_per_tok=1, shared_intermediate_size=11008)
    row = dict(biases=("attention_bias",), facts=("qk_norm", "rotated_qk_norm"), changes={"names": NAMES}, told=TOLD)
    return {
        "YoutuForCausalLM": dict(model_type="youtu", defaults=youtu),
        "HunYuanDenseV1ForCausalLM": dict(
            row,
            model_type="hunyuan_v1_dense",
            defaults=dense,
            keys=KEYS[:1] + tuple((key, ()) for key in UNREAD),
            told=TOLD[:6],
        ),
        "HunYuanMoEV1ForCausalLM": dict(row, model_type="hunyuan_v1_moe", defaults=experts, keys=KEYS),
    }


def rotated_norm(q, k) -> np.ndarray:
    """What q is multiplied by behind its rotation: q's weights times k's, for a score is a sum of products of both."""
    weights = (np.concatenate([piece.astype(np.float64) for piece in norm.pieces()]) for norm in (q, k))
    return next(weights) * next(weights)
