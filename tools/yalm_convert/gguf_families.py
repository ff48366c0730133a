"""The architectures of GGUF files: a row of FAMILIES each, by their names there."""

from dataclasses import dataclass, field
from typing import Optional

from . import gguf_encoders, gguf_gemma4, gguf_kda, gguf_mamba

EXPERTS = {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"}
OWN_EXPERTS = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}


@dataclass(frozen=True)
class Family:
    """What general.architecture stands for."""

    architecture: str  # as config.json names it
    paired: bool = False  # q and k rows lie as pairs of neighbours, and rotation here is by halves
    settings: dict = field(default_factory=dict)  # beside SETTINGS
    always: dict = field(default_factory=dict)  # keys of config.json that no setting says
    names: dict = field(default_factory=dict)  # of tensors, before LAYER
    experts: str = "mlp.experts.{}.{}_proj"  # an expert's matrix: its number and gate, up or down
    yarn: dict = field(default_factory=dict)  # of RoPE's settings, where it is YaRN
    # RoPE's in layers with a window, where these have their own; 0: that of the others.
    local_theta: Optional[float] = None


WEIGHED = {  # an expert that all tokens go through, each with its own weight
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    **{f"ffn_{part}_shexp": f"mlp.shared_expert.{part}_proj" for part in ("gate", "up", "down")},
}
# Gated DeltaNet's. Value heads stand there in another order where there are more of them than key heads.
RECURRENT = {
    "post_attention_norm": "post_attention_layernorm", "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_conv1d": "linear_attn.conv1d", "ssm_dt": "linear_attn.dt", "ssm_a": "linear_attn.A",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b", "ssm_ba": "linear_attn.in_proj_ba", "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
    **WEIGHED,
}  # fmt: skip
STATES = {
    "ssm.conv_kernel": "linear_conv_kernel_dim",
    "ssm.state_size": "linear_key_head_dim",
    "ssm.group_count": "linear_num_key_heads",
    "ssm.time_step_rank": "linear_num_value_heads",
    "full_attention_interval": "full_attention_interval",
}
AROUND = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
BEHIND = {name: AROUND[name] for name in ("post_attention_norm", "post_ffw_norm")}
MIXTRAL = {
    "settings": EXPERTS,
    "names": {"ffn_gate_inp": "block_sparse_moe.gate"},
    "experts": "block_sparse_moe.experts.{}.{}",
}
SHARED = {f"ffn_{part}_shexp": f"mlp.shared_experts.{part}_proj" for part in ("gate", "up", "down")}
SCORED = {
    "expert_count": "n_routed_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_weights_scale": "routed_scaling_factor",
    "expert_weights_norm": "norm_topk_prob",
}
CHOICE = {"exp_probs_b": "mlp.gate.e_score_correction_bias"}
# DeepSeek's. What `latents()` reads besides is none of config.json's.
LATENT = {
    **SCORED,
    "attention.q_lora_rank": "q_lora_rank",
    "attention.kv_lora_rank": "kv_lora_rank",
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
}
LATENT_NAMES = {
    "attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm", "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj", "attn_k_b": "self_attn.k_b_proj", "attn_v_b": "self_attn.v_b_proj",
    **CHOICE, **SHARED,
}  # fmt: skip
# LFM2's; `_convolving()` reads which layers are which.
CONVOLVING = {"shortconv.l_cache": "conv_L_cache"}
CONVOLVING_NAMES = {"token_embd_norm": "model.norm", **CHOICE}
MIXTRAL_PARTS = {"gate": "w1", "up": "w3", "down": "w2"}
FAMILIES = {
    "llama": Family("LlamaForCausalLM", True),
    "mistral3": Family("Ministral3ForCausalLM", True),
    "qwen2": Family("Qwen2ForCausalLM"),
    "qwen3": Family("Qwen3ForCausalLM"),
    "qwen3moe": Family("Qwen3MoeForCausalLM", settings=OWN_EXPERTS, always={"norm_topk_prob": True}),
    "qwen3next": Family(
        "Qwen3NextForCausalLM", settings={**STATES, **OWN_EXPERTS}, always={"norm_topk_prob": True}, names=RECURRENT
    ),
    "qwen35": Family("Qwen3_5ForCausalLM", settings=STATES, names=RECURRENT),
    "qwen35moe": Family("Qwen3_5MoeForCausalLM", settings={**STATES, **OWN_EXPERTS}, names=RECURRENT),
    "phi3": Family("Phi3ForCausalLM", names={"ffn_up": "mlp.gate_up_proj"}),
    "smollm3": Family("SmolLM3ForCausalLM", True),
    "granite": Family("GraniteForCausalLM", True),
    "granitemoe": Family("GraniteMoeForCausalLM", True, **MIXTRAL),
    "glm4": Family(
        "Glm4ForCausalLM",
        names={
            "ffn_up": "mlp.gate_up_proj",
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
        },
    ),
    "glm4moe": Family(
        "Glm4MoeForCausalLM",
        settings=SCORED,
        names={"post_attention_norm": "post_attention_layernorm", **CHOICE, **SHARED},
    ),
    "gpt-oss": Family(
        "GptOssForCausalLM",
        settings={**EXPERTS, "expert_feed_forward_length": "intermediate_size"},
        names={
            "post_attention_norm": "post_attention_layernorm",
            "ffn_gate_inp": "mlp.router",
            "attn_sinks": "self_attn.sinks",
        },
        yarn={"truncate": False},
    ),
    "olmo2": Family("Olmo2ForCausalLM", names=BEHIND),
    "gemma": Family("GemmaForCausalLM"),
    "chatglm": Family("GlmForCausalLM", names={"ffn_up": "mlp.gate_up_proj"}),
    "ernie4_5": Family("Ernie4_5ForCausalLM"),
    "ernie4_5-moe": Family(
        "Ernie4_5_MoeForCausalLM",
        settings={
            **OWN_EXPERTS,
            "interleave_moe_layer_step": "decoder_sparse_step",
            "expert_shared_feed_forward_length": None,  # it follows from the others
        },
        names={**CHOICE, **SHARED},
    ),
    "seed_oss": Family("SeedOssForCausalLM", names={"post_attention_norm": "post_attention_layernorm"}),
    "exaone4": Family("Exaone4ForCausalLM", always={"sliding_window": None}, names=BEHIND),
    "qwen2vl": Family("Qwen2ForCausalLM"),
    "qwen3vl": Family("Qwen3ForCausalLM"),
    "qwen3vlmoe": Family("Qwen3MoeForCausalLM", settings=OWN_EXPERTS, always={"norm_topk_prob": True}),
    "qwen2moe": Family("Qwen2MoeForCausalLM", settings=OWN_EXPERTS, names=WEIGHED),
    "olmoe": Family("OlmoeForCausalLM", settings=EXPERTS),
    "minimax-m2": Family(
        "MiniMaxM2ForCausalLM",
        settings={**EXPERTS, "expert_feed_forward_length": "intermediate_size"},
        names={**MIXTRAL["names"], "exp_probs_b": "block_sparse_moe.e_score_correction_bias"},
        experts=MIXTRAL["experts"],
    ),
    "dots1": Family("Dots1ForCausalLM", settings=SCORED, always={"sliding_window": None}, names={**CHOICE, **SHARED}),
    "afmoe": Family(
        "AfmoeForCausalLM",
        settings={**OWN_EXPERTS, "expert_weights_scale": "route_scale", "expert_weights_norm": "route_norm"},
        always={"mup_enabled": True},
        names={"attn_gate": "self_attn.gate_proj", **AROUND, **CHOICE, **SHARED},
    ),
    "deepseek2": Family("DeepseekV2ForCausalLM", settings=LATENT, names=LATENT_NAMES),
    "hunyuan-dense": Family("HunYuanDenseV1ForCausalLM"),
    "hunyuan-moe": Family("HunYuanMoEV1ForCausalLM", settings=OWN_EXPERTS, names=SHARED),
    "kimi-linear": Family(
        "KimiLinearForCausalLM", settings={**LATENT, **gguf_kda.SETTINGS}, names={**LATENT_NAMES, **gguf_kda.NAMES}
    ),
    "lfm2": Family(
        "Lfm2ForCausalLM", settings=CONVOLVING, always={"block_auto_adjust_ff_dim": False}, names=CONVOLVING_NAMES
    ),
    "lfm2moe": Family(
        "Lfm2MoeForCausalLM",
        settings={**CONVOLVING, **OWN_EXPERTS, "expert_weights_scale": "routed_scaling_factor"},
        names=CONVOLVING_NAMES,
    ),
    "granitehybrid": Family(
        "GraniteMoeHybridForCausalLM",
        settings={**EXPERTS, **gguf_mamba.SETTINGS, "expert_shared_feed_forward_length": "shared_intermediate_size"},
        names={
            **MIXTRAL["names"],
            **gguf_mamba.GRANITE,
            **{part: name.replace("mlp", "block_sparse_moe") for part, name in SHARED.items()},
        },
        experts=MIXTRAL["experts"],
    ),
    **dict.fromkeys(
        ("nemotron_h", "nemotron_h_moe"),
        Family(
            "NemotronHForCausalLM",
            settings={
                **SCORED,
                **gguf_mamba.SETTINGS,
                "expert_shared_feed_forward_length": "moe_shared_expert_intermediate_size",
                "expert_group_count": "n_group",
                "expert_group_used_count": "topk_group",
            },
            names=gguf_mamba.NEMOTRON,
            experts="mixer.experts.{}.{}_proj",
        ),
    ),
    "falcon-h1": Family("FalconH1ForCausalLM", settings=gguf_mamba.SETTINGS, names=gguf_mamba.GRANITE),
    "apertus": Family("ApertusForCausalLM", always={"rope_scaling": {"rope_type": "default"}}),
    "starcoder2": Family("Starcoder2ForCausalLM"),
    "phi2": Family("PhiForCausalLM"),
    "stablelm": Family("StableLmForCausalLM"),
    "gpt2": Family("GPT2LMHeadModel"),
    "starcoder": Family("GPTBigCodeForCausalLM"),
    "gptneox": Family("GPTNeoXForCausalLM"),
    "command-r": Family("CohereForCausalLM", settings={"logit_scale": "logit_scale"}),
    "cohere2": Family("Cohere2ForCausalLM", settings={"logit_scale": "logit_scale"}),
    "arcee": Family("ArceeForCausalLM", True),
    "bloom": Family("BloomForCausalLM"),
    "gemma2": Family("Gemma2ForCausalLM", names=AROUND),
    "gemma3": Family("Gemma3ForCausalLM", always={"sliding_window": None}, names=AROUND, local_theta=10000.0),
    "gemma-embedding": Family(
        "Gemma3TextModel",
        always={"use_bidirectional_attention": True},
        names={**AROUND, **gguf_encoders.DENSE},
        local_theta=10000.0,
    ),
    "bert": Family("BertModel", settings=gguf_encoders.SETTINGS, names=gguf_encoders.NAMES),
    "nomic-bert": Family("NomicBertModel", settings=gguf_encoders.SETTINGS, names=gguf_encoders.NOMIC_NAMES),
    "gemma4": Family(
        "Gemma4ForCausalLM",
        settings=gguf_gemma4.SETTINGS,
        names={**AROUND, **gguf_gemma4.NAMES},
        experts="experts.{}.{}_proj",
    ),
}
# What a setting makes of an architecture: its name with that setting.
VARIANTS = {
    ("llama", "expert_count"): Family("MixtralForCausalLM", True, **MIXTRAL),
    ("granitemoe", "expert_shared_feed_forward_length"): Family(
        "GraniteMoeSharedForCausalLM",
        True,
        settings={**EXPERTS, "expert_shared_feed_forward_length": "shared_intermediate_size"},
        names={**MIXTRAL["names"], **{part: name.replace("mlp", "block_sparse_moe") for part, name in SHARED.items()}},
        experts=MIXTRAL["experts"],
    ),
    ("granitehybrid", "rope.scaling.finetuned"): Family(
        "BambaForCausalLM", True, settings=gguf_mamba.SETTINGS, names=gguf_mamba.GRANITE
    ),
    ("llama", "attention.sliding_window"): Family("MistralForCausalLM", True),
    ("olmo2", "attention.sliding_window"): Family("Olmo3ForCausalLM", names=BEHIND, local_theta=0),
}
