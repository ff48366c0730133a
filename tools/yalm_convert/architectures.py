"""The architectures that the converter knows, and the keys of their config.json.

A row says what transformers takes missing keys to be, and what the name itself says. READ lists the keys that
config.py reads, beside those that have a default; HARMLESS those that say nothing about the computation; FOREIGN
those that are other architectures'.
"""

from dataclasses import dataclass

from . import kda, mamba, routed, tencent
from .classic import ROWS
from .convolution import KEYS, NAMES, TOLD
from .encoders import BERT_FACTS, BERT_NAMES, MODERN_FACTS, MODERN_NAMES, NOMIC
from .plan import UNCHANGED, Changes

LLAMA = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": None, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "sliding_window": None,
}  # fmt: skip
MISTRAL = dict(
    LLAMA, intermediate_size=14336, num_key_value_heads=8, max_position_embeddings=131072, sliding_window=4096
)
MIXTRAL = dict(
    MISTRAL, rms_norm_eps=1e-5, rope_theta=1e6, sliding_window=None, num_local_experts=8, num_experts_per_tok=2
)
QWEN2 = dict(
    LLAMA, vocab_size=151936, intermediate_size=22016, num_key_value_heads=32, max_position_embeddings=32768,
    sliding_window=4096,
    max_window_layers=28,
)  # fmt: skip
QWEN3 = dict(QWEN2, head_dim=128)
QWEN3_MOE = dict(
    QWEN2, hidden_size=2048, intermediate_size=6144, num_hidden_layers=24, num_key_value_heads=4, max_window_layers=0,
    num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=False,
)  # fmt: skip
QWEN3_VL_MOE = {key: value for key, value in QWEN3_MOE.items() if key != "norm_topk_prob"} | {"sliding_window": None}
PHI3 = dict(
    LLAMA, vocab_size=32064, hidden_size=3072, intermediate_size=8192, max_position_embeddings=4096, rms_norm_eps=1e-5,
    original_max_position_embeddings=4096, partial_rotary_factor=1.0,
)  # fmt: skip
GLM4 = dict(
    LLAMA, vocab_size=151552, intermediate_size=13696, num_hidden_layers=40, num_key_value_heads=2, head_dim=128,
    max_position_embeddings=131072, rms_norm_eps=1.5625e-7, partial_rotary_factor=0.5, attention_bias=True,
)  # fmt: skip
GLM4_MOE = dict(
    GLM4, intermediate_size=10944, num_hidden_layers=46, num_attention_heads=96, num_key_value_heads=8, head_dim=None,
    rms_norm_eps=1e-5, attention_bias=False, use_qk_norm=False, moe_intermediate_size=1408, num_experts=128,
    num_experts_per_tok=8,
    n_routed_experts=None, n_shared_experts=1, routed_scaling_factor=1.0, n_group=1, topk_group=1, first_k_dense_replace=1,
    norm_topk_prob=True,
)  # fmt: skip
SMOLLM3 = dict(
    LLAMA, vocab_size=128256, hidden_size=2048, num_hidden_layers=36, num_attention_heads=16, num_key_value_heads=4,
    max_position_embeddings=32768, rope_theta=2e6, tie_word_embeddings=True, no_rope_layer_interval=4,
)  # fmt: skip
MINISTRAL3 = dict(
    MISTRAL, vocab_size=131072, num_hidden_layers=34, head_dim=128, max_position_embeddings=262144, rms_norm_eps=1e-5,
    sliding_window=None, llama_4_scaling=True,
)  # fmt: skip
OLMO2 = dict(LLAMA, vocab_size=50304, rms_norm_eps=1e-5)
OLMO3 = dict(OLMO2, rope_theta=5e5, rope_local_base_freq=5e5, sliding_window=4096, sliding_window_pattern=4)
GEMMA = dict(
    LLAMA, vocab_size=256000, hidden_size=3072, intermediate_size=24576, num_hidden_layers=28, num_attention_heads=16,
    num_key_value_heads=16, head_dim=256, max_position_embeddings=8192, tie_word_embeddings=True,
    hidden_act="gelu_pytorch_tanh", use_bidirectional_attention=False,
)  # fmt: skip
GEMMA2 = dict(
    LLAMA, vocab_size=256000, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26, num_attention_heads=8,
    num_key_value_heads=4, head_dim=256, max_position_embeddings=8192, tie_word_embeddings=True, sliding_window=4096,
    sliding_window_pattern=2, hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=256, attn_logit_softcapping=50.0,
    final_logit_softcapping=30.0, use_bidirectional_attention=False,
)  # fmt: skip
GEMMA3 = dict(
    GEMMA2, vocab_size=262208, max_position_embeddings=131072, rope_theta=1e6, rope_local_base_freq=1e4,
    sliding_window_pattern=6, attn_logit_softcapping=None, final_logit_softcapping=None,
)  # fmt: skip
GEMMA4 = dict(
    LLAMA, vocab_size=262144, hidden_size=2304, intermediate_size=9216, num_hidden_layers=30, num_attention_heads=8,
    num_key_value_heads=4, head_dim=256, max_position_embeddings=131072, tie_word_embeddings=True, sliding_window=512,
    sliding_window_pattern=6, hidden_activation="gelu_pytorch_tanh", final_logit_softcapping=None,
    use_bidirectional_attention=None,
    hidden_size_per_layer_input=256, vocab_size_per_layer_input=262144, num_kv_shared_layers=0, use_double_wide_mlp=False,
    attention_k_eq_v=False, global_head_dim=512, num_global_key_value_heads=None, per_layer_config=None, enable_moe_block=False,
    num_experts=None, top_k_experts=None, moe_intermediate_size=None,
)  # fmt: skip
GEMMA4_UNIFIED = dict(  # of 12B
    GEMMA4, hidden_size_per_layer_input=0, sliding_window=1024, max_position_embeddings=262144
)  # fmt: skip
GLM = dict(GLM4, rms_norm_eps=1.5625e-7)
HELIUM = dict(
    LLAMA, vocab_size=48000, hidden_size=2560, intermediate_size=7040, num_hidden_layers=24, num_attention_heads=20,
    num_key_value_heads=20, head_dim=128, max_position_embeddings=4096, rms_norm_eps=1e-8, rope_theta=1e5,
)  # fmt: skip
ERNIE4_5 = dict(
    LLAMA, vocab_size=103424, hidden_size=1024, intermediate_size=3072, num_hidden_layers=18, num_attention_heads=16,
    num_key_value_heads=2, head_dim=128, max_position_embeddings=131072, rms_norm_eps=1e-5, rope_theta=5e5,
    tie_word_embeddings=True,
)  # fmt: skip
SEED_OSS = dict(
    LLAMA, vocab_size=155136, intermediate_size=27648, num_hidden_layers=64, num_attention_heads=80, num_key_value_heads=8,
    head_dim=128, max_position_embeddings=524288, attention_bias=True, attention_out_bias=False,
)  # fmt: skip
CWM = dict(
    LLAMA, vocab_size=128256, hidden_size=6144, intermediate_size=21504, num_hidden_layers=64, num_attention_heads=48,
    num_key_value_heads=8, head_dim=128, max_position_embeddings=131072, rms_norm_eps=1e-5, rope_theta=1e6,
    sliding_window=8192, sliding_window_pattern=4, rope_parameters={
        "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
)  # fmt: skip
MINISTRAL = dict(MISTRAL, rms_norm_eps=1e-6, max_window_layers=0)
EXAONE4 = dict(
    LLAMA, vocab_size=102400, intermediate_size=16384, num_key_value_heads=32, rms_norm_eps=1e-5, sliding_window=4096,
    sliding_window_pattern=4, full_unrotated=True,
)  # fmt: skip
OLMOE = dict(
    LLAMA, vocab_size=50304, hidden_size=2048, intermediate_size=2048, num_hidden_layers=16, num_attention_heads=16,
    max_position_embeddings=4096, rms_norm_eps=1e-5, num_local_experts=64, num_experts_per_tok=8, norm_topk_prob=False,
)  # fmt: skip
MINIMAX_M2 = dict(
    LLAMA, vocab_size=200064, hidden_size=3072, intermediate_size=1536, num_hidden_layers=62, num_attention_heads=48,
    num_key_value_heads=8, head_dim=128, max_position_embeddings=196608, rope_theta=5e6, num_local_experts=256,
    num_experts_per_tok=8, partial_rotary_factor=1.0, rotary_dim=None,
)  # fmt: skip
SOLAR_OPEN = dict(
    GLM4_MOE, vocab_size=196608, num_hidden_layers=48, num_attention_heads=64, head_dim=128, rope_theta=1e6,
    moe_intermediate_size=1280, first_k_dense_replace=0, partial_rotary_factor=1.0,
)  # fmt: skip
DOTS1 = dict(
    LLAMA, vocab_size=152064, hidden_size=4608, intermediate_size=10944, num_hidden_layers=62, num_key_value_heads=32,
    sliding_window=4096, max_window_layers=62, moe_intermediate_size=1408, num_experts=None, num_experts_per_tok=1,
    n_routed_experts=None, n_shared_experts=None, routed_scaling_factor=1.0, n_group=1, topk_group=1,
    first_k_dense_replace=0, norm_topk_prob=False,
)  # fmt: skip
DEEPSEEK_V2 = dict(
    LLAMA, vocab_size=102400, moe_intermediate_size=1407, num_experts=64, n_routed_experts=None, num_experts_per_tok=6,
    n_shared_experts=2, routed_scaling_factor=1.0, n_group=None, topk_group=None, topk_method="greedy",
    scoring_func="softmax", first_k_dense_replace=0, norm_topk_prob=False, q_lora_rank=1536, kv_lora_rank=512,
    qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, qk_head_dim=None,
)  # fmt: skip
DEEPSEEK_V3 = dict(
    {key: value for key, value in DEEPSEEK_V2.items() if key != "topk_method"}, vocab_size=129280, hidden_size=7168,
    intermediate_size=18432, num_hidden_layers=61, num_attention_heads=128, max_position_embeddings=4096,
    moe_intermediate_size=2048, num_experts=256, num_experts_per_tok=8, n_shared_experts=1, routed_scaling_factor=2.5,
    n_group=8, topk_group=4, scoring_func="sigmoid", first_k_dense_replace=3, norm_topk_prob=True, rope_interleave=True,
)  # fmt: skip
GLM4_MOE_LITE = dict(
    DEEPSEEK_V3, vocab_size=154880, hidden_size=2048, intermediate_size=10240, num_hidden_layers=47,
    num_attention_heads=20, max_position_embeddings=202752, rms_norm_eps=1e-5, moe_intermediate_size=1536,
    num_experts=64, num_experts_per_tok=4, routed_scaling_factor=1.8, n_group=1, topk_group=1, first_k_dense_replace=1,
    mlp_layer_types=None, q_lora_rank=768, qk_nope_head_dim=192, v_head_dim=256, partial_rotary_factor=1.0,
)  # fmt: skip
MISTRAL4 = dict(
    DEEPSEEK_V3, vocab_size=131072, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36,
    num_attention_heads=32, max_position_embeddings=1048576, num_experts=128, num_experts_per_tok=4,
    routed_scaling_factor=1.0, n_group=1, topk_group=1, scoring_func="softmax", first_k_dense_replace=0,
    q_lora_rank=1024, kv_lora_rank=256, qk_nope_head_dim=64, llama_4_scaling=True,
)  # fmt: skip
HY_V3 = dict(
    LLAMA, vocab_size=120832, intermediate_size=13312, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8,
    head_dim=128, max_position_embeddings=131072, rms_norm_eps=1e-5, rope_theta=11158840.0, moe_intermediate_size=1536,
    num_experts=192, num_experts_per_tok=8, n_shared_experts=1, routed_scaling_factor=2.826,
    mlp_layer_types=None, first_k_dense_replace=1,
)  # fmt: skip
GPT_OSS = dict(
    LLAMA, vocab_size=201088, hidden_size=2880, intermediate_size=2880, num_hidden_layers=36, num_attention_heads=64,
    num_key_value_heads=8, head_dim=64, max_position_embeddings=131072, rms_norm_eps=1e-5, rope_theta=150000.0,
    sliding_window=128, sliding_window_pattern=2, num_local_experts=128, num_experts_per_tok=4, attention_bias=True,
    swiglu_limit=7.0, swiglu_alpha=1.702, rope_parameters={
        "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
        "original_max_position_embeddings": 4096,
    },
)  # fmt: skip
GRANITE = dict(
    LLAMA, embedding_multiplier=1.0, attention_multiplier=1.0, residual_multiplier=1.0, logits_scaling=1.0,
)  # fmt: skip
GRANITE_MOE = dict(GRANITE, num_local_experts=8, num_experts_per_tok=2)
GRANITE_MOE_SHARED = dict(GRANITE_MOE, shared_intermediate_size=0)
GRANITE_SWA = dict(
    GRANITE, vocab_size=100352, hidden_size=2560, intermediate_size=8192, num_hidden_layers=24, num_attention_heads=20,
    num_key_value_heads=4, max_position_embeddings=8192, rms_norm_eps=1e-5, tie_word_embeddings=True, sliding_window=128,
    sliding_window_pattern=4, layer_rope_theta=None,
)  # fmt: skip
QWEN2_MOE = dict(
    QWEN2, hidden_size=2048, intermediate_size=5632, num_hidden_layers=24, num_attention_heads=16, num_key_value_heads=16,
    moe_intermediate_size=1408, shared_expert_intermediate_size=5632, num_experts=60, num_experts_per_tok=4,
    norm_topk_prob=False, qkv_bias=True, sliding_window=None,
)  # fmt: skip
MELLUM = dict(
    LLAMA, vocab_size=98304, hidden_size=2304, intermediate_size=7168, num_hidden_layers=28, num_key_value_heads=4,
    head_dim=128, max_position_embeddings=131072, rope_theta=5e5, rope_local_base_freq=1e4, sliding_window=1024,
    sliding_window_pattern=1, moe_intermediate_size=896, num_experts=64, num_experts_per_tok=8, norm_topk_prob=True,
    mlp_layer_types=None,
)  # fmt: skip
QWEN3_5 = dict(
    LLAMA, vocab_size=248320, intermediate_size=12288, num_attention_heads=16, num_key_value_heads=4,
    max_position_embeddings=32768,
    head_dim=256, partial_rotary_factor=0.25, full_attention_interval=4, linear_conv_kernel_dim=4, linear_key_head_dim=128,
    linear_value_head_dim=128, linear_num_key_heads=16, linear_num_value_heads=32, attn_output_gate=True,
    tiled_value_heads=False,
)  # fmt: skip
QWEN3_5_MOE = dict(
    QWEN3_5, hidden_size=2048, num_hidden_layers=40, num_key_value_heads=2, num_experts=256, num_experts_per_tok=8,
    moe_intermediate_size=512, shared_expert_intermediate_size=512,
)  # fmt: skip
QWEN3_NEXT = dict(
    QWEN3_5_MOE, vocab_size=151936, intermediate_size=5632, num_hidden_layers=48, num_experts=512, num_experts_per_tok=10,
    norm_topk_prob=True, decoder_sparse_step=1,
)  # fmt: skip
LFM2 = dict(
    LLAMA, vocab_size=65536, hidden_size=2560, intermediate_size=12288, num_key_value_heads=8,
    max_position_embeddings=128000, rms_norm_eps=1e-5, rope_theta=1e6, tie_word_embeddings=True, conv_bias=False,
    conv_L_cache=3, block_ff_dim=None, block_multiple_of=256, block_ffn_dim_multiplier=1.0, block_auto_adjust_ff_dim=True,
    full_attn_idxs=None,
)  # fmt: skip
LFM2_MOE = dict(
    {key: value for key, value in LFM2.items() if not key.startswith(("block_", "full_"))}, hidden_size=2048,
    intermediate_size=7168, moe_intermediate_size=1792, first_k_dense_replace=2, num_experts=32, num_experts_per_tok=4,
    n_shared_experts=0, routed_scaling_factor=1.0, norm_topk_prob=True, expert_eps=1e-6,
)  # fmt: skip


BERT = dict(
    LLAMA, vocab_size=30522, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
    max_position_embeddings=512, rms_norm_eps=1e-12, type_vocab_size=2,
)  # fmt: skip
MODERN_BERT = dict(
    BERT, vocab_size=50368, intermediate_size=1152, num_hidden_layers=22, max_position_embeddings=8192, rms_norm_eps=1e-5,
    hidden_activation="gelu", norm_bias=False, sliding_window=128, sliding_window_pattern=3, rope_theta=160000.0,
    rope_local_base_freq=10000.0,
)  # fmt: skip
del MODERN_BERT["type_vocab_size"]


@dataclass(frozen=True)
class Architecture:
    """What a name under `architectures` says that other keys of config.json do not."""

    model_type: str
    defaults: dict
    window: str = "none"  # which layers have one: layers.read_kinds()
    biases: tuple = ()  # keys that may be true
    facts: tuple = ()  # what always holds
    ropes: tuple = ("default", "linear", "llama3", "yarn", "longrope")
    changes: Changes = UNCHANGED
    only_qkv: bool = False  # attention_bias is not of o
    keys: tuple = ()  # (its name of a key, our names) each
    told: tuple = ()  # (key, the one value that it may have, or a tuple of them) each
    also: tuple = ()  # other model types of the same form


GRANITE_NAMES = (
    (".block_sparse_moe.experts.gate_up_proj", ".block_sparse_moe.input_linear.weight"),
    (".block_sparse_moe.experts.down_proj", ".block_sparse_moe.output_linear.weight"),
    (".block_sparse_moe.router.weight", ".block_sparse_moe.router.layer.weight"),
    (".shared_mlp.input_linear.", ".block_sparse_moe.shared_experts.gate_up_proj."),
    (".shared_mlp.output_linear.", ".block_sparse_moe.shared_experts.down_proj."),
)
BERT_TOLD = (("position_embedding_type", "absolute"), ("is_decoder", False), ("add_cross_attention", False))
BERT_KEYS = (("layer_norm_eps", ("rms_norm_eps",)),)
BERT_ROW = dict(
    biases=("attention_bias", "mlp_bias"), facts=BERT_FACTS, changes=Changes(names=BERT_NAMES), keys=BERT_KEYS,
    told=BERT_TOLD,
)  # fmt: skip
MODERN_ROW = dict(
    window="first", biases=("attention_bias", "mlp_bias"), facts=MODERN_FACTS, changes=Changes(names=MODERN_NAMES),
    ropes=("default",),
    keys=(
        ("norm_eps", ("rms_norm_eps",)), ("local_attention", ("sliding_window",)),
        ("global_attn_every_n_layers", ("sliding_window_pattern",)), ("global_rope_theta", ("rope_theta",)),
        ("local_rope_theta", ("rope_local_base_freq",)),
    ),
    told=(("is_decoder", False), ("add_cross_attention", False)),
)  # fmt: skip
DEEPSEEK_TOLD = (("scoring_func", "sigmoid"), ("topk_method", "noaux_tc"), ("moe_layer_freq", 1))
GEMMA4_CHANGES = Changes(placed=True, values_are_keys=True)
LFM2_ROW = dict(facts=("qk_norm",), changes=Changes(names=NAMES), keys=KEYS, told=TOLD)

ARCHITECTURES = {
    "LlamaForCausalLM": Architecture("llama", LLAMA, biases=("attention_bias", "mlp_bias")),
    "MistralForCausalLM": Architecture("mistral", MISTRAL, "always"),
    "MixtralForCausalLM": Architecture("mixtral", MIXTRAL, "always"),
    "Qwen2ForCausalLM": Architecture("qwen2", QWEN2, "asked", facts=("qkv_bias",)),
    "Qwen3ForCausalLM": Architecture("qwen3", QWEN3, "asked", ("attention_bias",), ("qk_norm",)),
    "Qwen3MoeForCausalLM": Architecture("qwen3_moe", QWEN3_MOE, "asked", ("attention_bias",), ("qk_norm",)),
    "Qwen3VLMoeTextModel": Architecture("qwen3_vl_moe_text", QWEN3_VL_MOE, "none", ("attention_bias",), ("qk_norm",)),
    "Phi3ForCausalLM": Architecture("phi3", PHI3, "always", ropes=("default", "longrope")),
    "GlmForCausalLM": Architecture("glm", GLM, "none", ("attention_bias",), changes=Changes(pairs=True), only_qkv=True),
    "Glm4ForCausalLM": Architecture(
        "glm4", GLM4, "none", ("attention_bias",), ("norms_around",), changes=Changes(pairs=True), only_qkv=True
    ),
    "Ministral3ForCausalLM": Architecture("ministral3", MINISTRAL3, "always"),
    "Olmo2ForCausalLM": Architecture("olmo2", OLMO2, "none", ("attention_bias",), ("norms_after", "whole_qk_norm")),
    "Olmo3ForCausalLM": Architecture("olmo3", OLMO3, "types", ("attention_bias",), ("norms_after", "whole_qk_norm")),
    "GemmaForCausalLM": Architecture("gemma", GEMMA, biases=("attention_bias",), changes=Changes(norm_plus=1.0)),
    "Gemma2ForCausalLM": Architecture(
        "gemma2", GEMMA2, "types", ("attention_bias",), ("norms_around",), changes=Changes(norm_plus=1.0)
    ),
    "Gemma3ForCausalLM": Architecture(
        "gemma3_text", GEMMA3, "types", ("attention_bias",), ("norms_around", "qk_norm"), changes=Changes(norm_plus=1.0)
    ),
    "Gemma3TextModel": Architecture(
        "gemma3_text", GEMMA3, "types", ("attention_bias",), ("norms_around", "qk_norm"), changes=Changes(norm_plus=1.0)
    ),
    "Gemma4ForCausalLM": Architecture("gemma4_text", GEMMA4, "types", ("attention_bias",), changes=GEMMA4_CHANGES),
    "Gemma4UnifiedForCausalLM": Architecture(
        "gemma4_unified_text", GEMMA4_UNIFIED, "types", ("attention_bias",), changes=GEMMA4_CHANGES
    ),
    "Glm4MoeForCausalLM": Architecture("glm4_moe", GLM4_MOE, "none", ("attention_bias",), only_qkv=True),
    "GptOssForCausalLM": Architecture(
        "gpt_oss", GPT_OSS, "types", ("attention_bias",), ("mlp_bias", "router_bias", "sink_logits")
    ),
    "GraniteForCausalLM": Architecture("granite", GRANITE, biases=("attention_bias", "mlp_bias")),
    "GraniteMoeForCausalLM": Architecture(
        "granitemoe", GRANITE_MOE, biases=("attention_bias",), changes=Changes(names=GRANITE_NAMES)
    ),
    "Qwen3NextForCausalLM": Architecture(
        "qwen3_next",
        QWEN3_NEXT,
        "none",
        ("attention_bias",),
        ("qk_norm", "output_gate", "shared_gate"),
        changes=Changes(norm_plus=1.0),
    ),
    "Qwen3_5ForCausalLM": Architecture(
        "qwen3_5_text", QWEN3_5, "none", ("attention_bias",), ("qk_norm", "output_gate"), changes=Changes(norm_plus=1.0)
    ),
    "Qwen3_5MoeForCausalLM": Architecture(
        "qwen3_5_moe_text",
        QWEN3_5_MOE,
        "none",
        ("attention_bias",),
        ("qk_norm", "output_gate", "shared_gate"),
        changes=Changes(norm_plus=1.0),
    ),
    "SmolLM3ForCausalLM": Architecture("smollm3", SMOLLM3, biases=("attention_bias", "mlp_bias")),
    "VaultGemmaForCausalLM": Architecture(
        "vaultgemma",
        GEMMA2,
        "types",
        ("attention_bias",),
        changes=Changes(norm_plus=1.0, names=((".pre_feedforward_layernorm.", ".post_attention_layernorm."),)),
    ),
    "HeliumForCausalLM": Architecture(
        "helium", HELIUM, "none", ("attention_bias", "mlp_bias"), changes=Changes(pairs=True), only_qkv=True
    ),
    "Ernie4_5ForCausalLM": Architecture(
        "ernie4_5",
        ERNIE4_5,
        "none",
        ("attention_bias", "mlp_bias"),
        changes=Changes(pairs=True),
        keys=(("use_bias", ("attention_bias", "mlp_bias")),),
    ),
    "SeedOssForCausalLM": Architecture("seed_oss", SEED_OSS, "none", ("attention_bias", "mlp_bias"), only_qkv=True),
    "CwmForCausalLM": Architecture("cwm", CWM, "first", ("mlp_bias",)),
    "MinistralForCausalLM": Architecture("ministral", MINISTRAL, "later"),
    "Exaone4ForCausalLM": Architecture("exaone4", EXAONE4, "types", facts=("norms_after", "qk_norm")),
    "GraniteSWAForCausalLM": Architecture(
        "granite_swa", GRANITE_SWA, "first", ("attention_bias", "mlp_bias"), ("sink_logits",)
    ),
    "GraniteMoeSharedForCausalLM": Architecture(
        "granitemoeshared",
        GRANITE_MOE_SHARED,
        biases=("attention_bias",),
        changes=Changes(names=GRANITE_NAMES),
    ),
    "GraniteMoeHybridForCausalLM": Architecture(
        "granitemoehybrid",
        mamba.GRANITE,
        biases=("attention_bias",),
        changes=Changes(names=GRANITE_NAMES),
        told=(*mamba.TOLD, ("normalization_function", "rmsnorm")),
    ),
    "Qwen2MoeForCausalLM": Architecture("qwen2_moe", QWEN2_MOE, "none", facts=("shared_gate",)),
    "OlmoeForCausalLM": Architecture(
        "olmoe", OLMOE, "none", ("attention_bias",), ("whole_qk_norm",), keys=(("num_experts", ("num_local_experts",)),)
    ),
    "MiniMaxM2ForCausalLM": Architecture(
        "minimax_m2",
        MINIMAX_M2,
        facts=("whole_qk_norm", "sigmoid_router"),
        changes=Changes(names=((".block_sparse_moe.e_score", ".block_sparse_moe.gate.e_score"),)),
        told=(
            ("use_qk_norm", True),
            ("qk_norm_type", "per_layer"),
            ("scoring_func", "sigmoid"),
            ("use_routing_bias", True),
            ("shared_intermediate_size", 0),
        ),
    ),
    "MellumForCausalLM": Architecture("mellum", MELLUM, "types", ("attention_bias",), ("qk_norm",)),
    "SolarOpenForCausalLM": Architecture("solar_open", SOLAR_OPEN, "none", ("attention_bias",), only_qkv=True),
    "Dots1ForCausalLM": Architecture("dots1", DOTS1, "later", ("attention_bias",), ("qk_norm",)),
    "DeepseekV2ForCausalLM": Architecture(
        "deepseek_v2",
        DEEPSEEK_V2,
        changes=Changes(pairs=True),
        told=(("scoring_func", "softmax"), ("moe_layer_freq", 1), ("norm_topk_prob", False)),
    ),
    "DeepseekV3ForCausalLM": Architecture(
        "deepseek_v3",
        DEEPSEEK_V3,
        told=DEEPSEEK_TOLD,
        also=("kimi_k2",),
    ),
    "Glm4MoeLiteForCausalLM": Architecture("glm4_moe_lite", GLM4_MOE_LITE, told=DEEPSEEK_TOLD),
    "Mistral4ForCausalLM": Architecture("mistral4", MISTRAL4),
    "HYV3ForCausalLM": Architecture(
        "hy_v3",
        HY_V3,
        "none",
        ("attention_bias",),
        ("qk_norm",),
        changes=Changes(
            names=(
                (".mlp.router.gate.", ".mlp.gate."),
                (".mlp.expert_bias", ".mlp.gate.e_score_correction_bias"),
                (".mlp.e_score", ".mlp.gate.e_score"),
                (".mlp.shared_mlp.", ".mlp.shared_experts."),
            )
        ),
        keys=(
            ("num_shared_experts", ("n_shared_experts",)),
            ("router_scaling_factor", ("routed_scaling_factor",)),
        ),
    ),
    "Lfm2ForCausalLM": Architecture("lfm2", LFM2, **LFM2_ROW),
    "Lfm2MoeForCausalLM": Architecture("lfm2_moe", LFM2_MOE, **LFM2_ROW),
    "BertModel": Architecture("bert", BERT, **BERT_ROW),
    "BertForSequenceClassification": Architecture("bert", BERT, **BERT_ROW),
    "ModernBertModel": Architecture("modernbert", MODERN_BERT, **MODERN_ROW),
    "ModernBertForMaskedLM": Architecture("modernbert", MODERN_BERT, **MODERN_ROW),
    "ModernBertForSequenceClassification": Architecture("modernbert", MODERN_BERT, **MODERN_ROW),
    "XLMRobertaModel": Architecture("xlm-roberta", BERT, **BERT_ROW),
    "XLMRobertaForSequenceClassification": Architecture("xlm-roberta", BERT, **BERT_ROW),
}
MORE = (tencent.rows(LLAMA, DEEPSEEK_V3), routed.rows(LLAMA, ERNIE4_5, OLMO2, EXAONE4))
for rows in (ROWS, mamba.ROWS, NOMIC, kda.rows(DEEPSEEK_V3), *MORE):
    for name, row in rows.items():
        ARCHITECTURES[name] = Architecture(**{**row, "changes": Changes(**row.get("changes", {}))})

READ = set(MIXTRAL) | set(QWEN3) | {
    "architectures", "model_type", "hidden_act", "head_dim", "rope_scaling", "rope_parameters", "partial_rotary_factor",
    "original_max_position_embeddings", "use_sliding_window", "layer_types", "tie_word_embeddings", "attention_bias",
    "mlp_bias",
    "bos_token_id", "eos_token_id", "quantization_config", "auto_map",
}  # fmt: skip
# Of those with experts that have a width of their own.
READ_UNROTATED = {"no_rope_layers", "no_rope_layer_interval"}
READ_GRANITE = set(GRANITE) - set(LLAMA)
READ_MAMBA = {"num_experts", "num_local_experts", "time_step_limit", *mamba.OF_EXPERTS}
READ_MOE = {"num_experts", "moe_intermediate_size", "norm_topk_prob", "mlp_only_layers", "decoder_sparse_step"}
HARMLESS = {
    "_name_or_path", "_attn_implementation", "_flash_attn_2_enabled", "attention_dropout", "bad_words_ids",
    "begin_suppress_tokens",
    "cache_implementation", "chunk_size_feed_forward", "decoder_start_token_id", "diversity_penalty", "do_sample", "dtype",
    "early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id", "id2label", "initializer_range", "is_decoder", "is_encoder_decoder", "label2id", "length_penalty",
    "max_length", "max_sequence_length", "min_length", "name_or_path", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
    "num_return_sequences", "output_attentions", "output_hidden_states", "output_router_logits", "output_scores",
    "pad_token_id",
    "prefix", "pretraining_tp", "problem_type", "remove_invalid_values", "repetition_penalty", "return_dict",
    "return_dict_in_generate", "router_aux_loss_coef", "router_jitter_noise", "sep_token_id", "suppress_tokens",
    "task_specific_params",
    "temperature", "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers_version", "typical_p",
    "use_bfloat16", "embedding_dropout", "summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout",
    "summary_proj_to_labels", "reorder_and_upcast_attn", "hidden_dropout", "emb_pdrop", "attention_softmax_in_fp32",
    "scale_attention_softmax_in_fp32",
    "mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "num_nextn_predict_layers",
    "initial_context_length", "experts_per_token", "residual_dropout", "enable_moe_fp32_combine", "eod_token_id",
    "use_cache", "attention_probs_dropout_prob", "classifier_dropout", "gradient_checkpointing", "hidden_dropout_prob",
    "num_labels", "output_past", "classifier_activation", "classifier_bias", "classifier_pooling", "cls_token_id",
    "decoder_bias", "deterministic_flash_attn", "initializer_cutoff_factor", "mlp_dropout",
    "reference_compile", "repad_logits_with_grad", "sparse_pred_ignore_index", "sparse_prediction",
    "unsloth_fixed", "unsloth_version", "use_flash_attention_2", "resid_pdrop", "embd_pdrop", "attn_pdrop",
    "aux_loss_alpha", "ep_size", "num_mtp_layers", "seq_aux", "block_mlp_init_scale", "block_out_init_scale",
    "block_use_xavier_init", "conv_use_xavier_init", "mamba_chunk_size", "chunk_size", "num_logits_to_keep",
    "z_loss_coefficient", "use_mamba_kernels", "residual_in_fp32", "rescale_prenorm_residual", "mamba_ssm_cache_dtype",
    "moe_shared_expert_overlap", "time_step_max", "time_step_floor", "init_method", "mtp_layers_block_type",
    "mtp_hybrid_override_pattern", "mlp_expansion_factor", "is_matryoshka", "matryoshka_dimensions", "truncate_dim",
    "dense_seq_output", "fused_bias_fc", "fused_dropout_add_ln", "pad_vocab_size_multiple", "parallel_block_tied_norm",
    "use_flash_attn", "use_xentropy",
} | tencent.HARMLESS  # fmt: skip
# Other architectures' ways to compute something else. Harmless only where they are switched off.
FOREIGN = {
    "add_cross_attention", "alibi", "attention_multiplier", "attn_logit_softcapping", "clip_qkv", "cross_attention_hidden_size",
    "dim_model_base", "embedding_multiplier", "final_logit_softcapping", "first_k_dense_replace", "kv_lora_rank", "logit_scale",
    "logits_scaling", "mamba_d_state", "moe_intermediate_size", "moe_layer_freq", "n_routed_experts",
    "n_shared_experts", "no_rope_layers", "q_lora_rank", "qk_layernorm", "qk_norm",
    "query_pre_attn_scalar",
    "residual_multiplier", "rope_interleaved", "scale_depth", "scale_emb", "shared_expert_intermediate_size",
    "sliding_window_pattern",
    "tie_encoder_decoder", "use_parallel_residual", "use_qk_norm", "num_experts", "pruned_heads", "rope_interleave",
    "use_mrope", "mrope_section", "decoder_sparse_step", "mlp_only_layers", "no_rope_layer_interval",
}  # fmt: skip
