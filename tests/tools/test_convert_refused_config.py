"""What tools/convert.py must not convert for what its config.json and its other JSON say: one line that names the file and the
thing, the exit code, and nothing written."""

import hf
import pytest

YARN = {"rope_type": "yarn", "factor": 4.0}
CONFIGS = [
    # base, changes, what the message says
    ("llama", {"architectures": ["PersimmonForCausalLM"]}, 'architectures: ["PersimmonForCausalLM"] is not supported'),
    (
        "llama",
        {"architectures": ..., "model_type": "xlnet"},
        "architectures: nothing is not supported: README.md lists those that are",
    ),
    ("llama", {"architectures": ["LongcatFlashForCausalLM"]}, "yalm lacks two blocks of attention in a layer"),
    ("llama", {"architectures": ["JambaForCausalLM"]}, "is not supported: yalm lacks Mamba's first recurrence"),
    ("llama", {"architectures": ["NoSuchForCausalLM"]}, "is not supported: README.md lists those that are"),
    ("llama", {"architectures": ["LlamaForCausalLM"] * 2}, "is not supported"),
    ("llama", {"architectures": [["LlamaForCausalLM"]]}, "is not supported"),
    ("phi", {"qk_layernorm": True}, "qk_layernorm: found true, expected false"),
    ("phi", {"hidden_act": "quick_gelu"}, 'hidden_act: activation "quick_gelu" is not supported, expected one of gelu'),
    ("falcon", {"alibi": True}, "alibi: found true, expected false"),
    ("falcon", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn: found what no Falcon has"),
    ("gpt2", {"n_ctx": 500}, "n_ctx is 500, but max_position_embeddings is 512"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx: found true, expected false"),
    ("mpt", {"attn_config": {"clip_qkv": 6}}, "attn_config.clip_qkv: found 6, expected null"),
    ("mpt", {"attn_config": {"alibi_bias_max": 16}}, "attn_config.alibi_bias_max: found 16, expected 8"),
    ("starcoder2", {"mlp_type": "gated"}, 'mlp_type: found "gated", expected "default"'),
    ("cohere2", {"use_qk_norm": True}, "use_qk_norm: found true, expected false"),
    ("llama", {"model_type": "qwen2"}, 'model_type "qwen2" is not supported with LlamaForCausalLM'),
    ("llama", {"hidden_act": "gelu"}, 'hidden_act: activation "gelu" is not supported'),
    ("llama", {"quantization_config": {"quant_method": "hqq"}}, 'weights quantised by "hqq" are not supported: its layouts'),
    ("llama", {"quantization_config": []}, "quantization_config: found [], expected an object"),
    ("llama", {"final_logit_softcapping": 30.0}, '"final_logit_softcapping" is 30.0, which is not supported'),
    ("llama", {"use_qk_norm": True}, '"use_qk_norm" is true, which is not supported'),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is not supported"),
    ("llama", {"num_attention_heads": 3}, "hidden_size 128 is not a multiple of num_attention_heads 3"),
    ("llama", {"num_key_value_heads": 3}, "num_attention_heads 4 is not a multiple of num_key_value_heads 3"),
    ("llama", {"head_dim": 31}, "head_dim is 31, expected an even number"),
    ("llama", {"hidden_size": 0}, "hidden_size: found 0, expected an integer from 1"),
    ("llama", {"hidden_size": 128.0}, "hidden_size: found 128.0, expected an integer"),
    ("llama", {"hidden_size": "128"}, 'hidden_size: found "128", expected an integer'),
    ("llama", {"num_hidden_layers": True}, "num_hidden_layers: found true, expected an integer"),
    ("llama", {"vocab_size": 10**30}, "vocab_size: found 1000000000000000000000000000000"),
    ("llama", {"rms_norm_eps": float("nan")}, "rms_norm_eps: found NaN, expected a number"),
    ("llama", {"rms_norm_eps": 0}, "rms_norm_eps: found 0, expected a number"),
    ("llama", {"rms_norm_eps": -1e-5}, "rms_norm_eps: found -1e-05, expected a number"),
    ("llama", {"rope_theta": float("nan")}, "rope_theta: found NaN, expected a number"),
    ("llama", {"rope_theta": float("inf")}, "rope_theta: found Infinity, expected a number"),
    ("llama", {"rope_theta": -10000.0}, "rope_theta: found -10000.0, expected a number"),
    ("llama", {"tie_word_embeddings": "yes"}, 'tie_word_embeddings: found "yes", expected true or false'),
    ("llama", {"tie_word_embeddings": ...}, "tensor \"lm_head.weight\" is missing"),
    ("llama", {"eos_token_id": 512}, "eos_token_id: found 512, expected at most 16 ids from 0 to 511"),
    ("llama", {"eos_token_id": list(range(17))}, "expected at most 16 ids"),
    ("llama", {"eos_token_id": [2, "x"]}, "eos_token_id: found [2, \"x\"]"),
    ("llama", {"bos_token_id": -2}, "bos_token_id: found -2, expected an integer from 0 to 511"),
    ("llama", {"num_local_experts": 8}, "num_local_experts is 8, but the architecture has no experts"),
    ("llama", {"sliding_window": 128}, "sliding_window is 128, which LlamaForCausalLM does not have"),
    ("llama", {"use_sliding_window": True}, "use_sliding_window is true"),
    ("mistral", {"use_sliding_window": False}, "use_sliding_window is false, but sliding_window is 48"),
    ("mistral", {"layer_types": ["full_attention"] * 3}, "expected 'sliding_attention' for every layer"),
    ("mistral", {"sliding_window": 0}, "sliding_window: found 0, expected an integer from 1"),
    ("mistral", {"attention_bias": True}, "attention_bias is true, which MistralForCausalLM does not have"),
    ("qwen2", {"attention_bias": True}, "attention_bias is true, which Qwen2ForCausalLM does not have"),
    ("qwen2", {"layer_types": ["full_attention"] * 2}, "expected 'full_attention' or 'sliding_attention' for each of 3 layers"),
    ("qwen2", {"layer_types": ["linear_attention"] * 3}, "expected 'full_attention' or 'sliding_attention' for each of 3 "
    "layers"),
    ("qwen2", {"layer_types": ["sliding_attention"] * 3}, "expected 'full_attention' for every layer"),
    ("qwen2", {"num_experts": 4}, '"num_experts" is 4, which is not supported'),
    ("qwen3_moe", {"num_experts_per_tok": 7}, "num_experts_per_tok: found 7, expected an integer from 1 to 6"),
    ("qwen3_moe", {"num_experts_per_tok": ...}, "found nothing, and the default 8 is more than the 6 experts"),
    ("qwen3_moe", {"num_experts": 6, "num_local_experts": 5}, "num_experts is 6, but num_local_experts is 5"),
    ("qwen3_moe", {"mlp_only_layers": "1"}, 'mlp_only_layers: found "1", expected layers'),
    ("qwen3_moe", {"mlp_only_layers": [0, 1, 2, 3]}, "mlp_only_layers and decoder_sparse_step: found no layer with experts"),
    ("qwen3_moe", {"moe_intermediate_size": 81}, 'tensor "model.layers.0.mlp.experts.0.gate_proj.weight": found shape [80, '
    '128]'),
    ("phi3", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling.short_factor: found null, expected 16 numbers"),
    ("phi3", {"rope_scaling": {"type": "linear", "factor": 4.0}}, 'RoPE type "linear" is not supported with Phi3ForCausalLM'),
    ("phi3", {"partial_rotary_factor": 0.01}, "partial_rotary_factor 0.01 of head_dim 32: 0 components rotate"),
    (
        "phi3",
        {"rope_scaling": {"type": "longrope", "short_factor": [1] * 16, "long_factor": [1] * 15}},
        "rope_scaling.long_factor: found [1, 1, 1, 1",
    ),
    ("phi3", {"num_key_value_heads": 4}, 'qkv_proj.weight": found shape [256, 128], expected [384, 128]'),
    ("qwen3", {"architectures": ["Mistral3ForConditionalGeneration"]}, "text_config: found null, expected the settings of"),
    (
        "qwen3",
        {"architectures": ["Mistral3ForConditionalGeneration"], "text_config": {"model_type": "gemma3"}},
        'text_config.model_type "gemma3" of Mistral3ForConditionalGeneration is not supported, expected mistral, ministral3',
    ),
    ("ernie4_5-moe", {"use_bias": True}, "use_bias: found true, expected false"),
    ("ernie4_5-moe", {"moe_norm_min": 0}, "moe_norm_min: found 0, expected"),
    ("ernie4_5", {"use_bias": 1}, "attention_bias: found 1, expected true or false"),
    ("ernie4_5", {"attention_bias": False}, "use_bias is true, but attention_bias is false"),
    ("seed-oss", {"attention_bias": False, "attention_out_bias": True}, "attention_out_bias is true without attention_bias"),
    ("granite-swa", {"layer_rope_theta": [1e4] * 3}, "10000.0, 10000.0], expected a number for each of 4 layers"),
    ("granite-swa", {"layer_rope_theta": [0, 1e4, 1e5, 0]}, "in layers of sliding_attention, expected one number"),
    ("granite-swa", {"layer_rope_theta": [0, True, 1e5, 0]}, "layer_rope_theta: found [0, true, 100000.0, 0], expected"),
    ("minimax-m2", {"use_qk_norm": False}, "use_qk_norm: found false, expected true"),
    ("hunyuan", {"use_cla": True}, "use_cla: found true, expected false"),
    ("hunyuan", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 'RoPE type "dynamic" is not supported'),
    ("hunyuan-moe", {"moe_topk": [2, 2, 1, 2]}, "num_experts_per_tok: found [2, 2, 1, 2], expected an integer from 1 to 6"),
    ("hunyuan-moe", {"moe_intermediate_size": 96}, "moe_intermediate_size is 96, but intermediate_size is 200"),
    ("minimax-m2", {"rotary_dim": 34}, "rotary_dim: found 34, expected an integer from 2 to 32"),
    ("mellum", {"mlp_layer_types": ["sparse"] * 3}, "expected 'dense' or 'sparse' for each of 4 layers"),
    ("mellum", {"mlp_layer_types": ["dense"] * 4}, "mlp_layer_types: found no layer with experts"),
    ("afmoe", {"attention_bias": True}, "attention_bias is true, which AfmoeForCausalLM does not have"),
    ("afmoe", {"route_norm": False}, "route_norm: found false, expected true"),
    ("afmoe", {"num_expert_groups": 4}, "num_expert_groups: found 4, expected 1"),
    ("dots1", {"n_routed_experts": None}, "n_routed_experts: found nothing, expected an integer"),
    ("qwen2-moe", {"use_sliding_window": True}, "use_sliding_window is true, which Qwen2MoeForCausalLM does not have"),
    ("gemma", {"use_bidirectional_attention": True}, "is true, which is supported with Gemma 3 alone"),
    ("gemma2", {"hidden_activation": "gelu"}, 'hidden_activation: activation "gelu" is not supported, expected'),
    ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar: found 0, expected a number from 0.001"),
    ("gemma2", {"attn_logit_softcapping": -1}, "attn_logit_softcapping: found -1, expected a number"),
    ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50, which transformers leaves out"),
    ("gemma3", {"use_bidirectional_attention": True}, "no modules.json, which says how the model's vectors are made"),
    ("gemma3", {"rope_parameters": {"rope_theta": 1e6}}, 'rope_parameters: found "rope_theta", expected'),
    ("gemma3", {"sliding_window": None}, "expected 'full_attention' for every layer"),
    ("olmo3", {"layer_types": ["full_attention"]}, "expected 'full_attention' or 'sliding_attention' for each of 4 layers"),
    ("glm4-moe", {"topk_group": 2}, "topk_group: found 2, expected at most n_group = 1"),
    ("mistral4", {"n_group": 2}, "n_group is 2: choosing among groups of experts by their softmax is not supported"),
    ("deepseek-v2", {"topk_method": "best"}, "topk_method: found \"best\", expected 'greedy' or 'group_limited_greedy'"),
    ("deepseek-v2", {"norm_topk_prob": True}, "norm_topk_prob: found true, expected false"),
    ("deepseek-v3", {"scoring_func": "softmax"}, 'scoring_func: found "softmax", expected "sigmoid"'),
    ("deepseek-v3", {"qk_head_dim": 41}, "qk_head_dim: found 41, expected 40"),
    ("deepseek-v3", {"attention_bias": True}, "attention_bias is true, which DeepseekV3ForCausalLM does not have"),
    ("deepseek-v3", {"qk_rope_head_dim": 15}, "head_dim is 15, expected an even number"),
    ("glm4-moe", {"first_k_dense_replace": 3}, "first_k_dense_replace: found no layer with experts, expected one or more"),
    ("gpt-oss", {"swiglu_limit": 8.0}, "swiglu_limit: found 8.0, expected 7.0"),
    ("gpt-oss", {"num_experts_per_tok": 7}, "num_experts_per_tok: found 7, expected an integer from 1 to 6"),
    ("ministral3", {"rope_parameters": None}, "rope_parameters: found nothing, expected them with llama_4_scaling_beta"),
    ("ministral3", {"rope_parameters": {"rope_type": "default"}}, "rope_parameters.llama_4_scaling_beta: found nothing"),
    ("granite", {"logits_scaling": 0}, "logits_scaling: found 0, expected a number from 1e-06"),
    ("granite", {"residual_multiplier": 1e-4}, "residual_multiplier 0.0001 is too small for rms_norm_eps"),
    ("llama", {"embedding_multiplier": 12.0}, '"embedding_multiplier" is 12.0, which is not supported'),
    ("smollm3", {"no_rope_layers": [1, 1]}, "no_rope_layers: found [1, 1], expected 0 or 1 for each of 4 layers"),
    ("llama", {"no_rope_layers": [1, 0]}, '"no_rope_layers" is [1, 0], which is not supported'),
    ("mixtral", {"num_experts_per_tok": 5}, "num_experts_per_tok: found 5, expected an integer from 1 to 4"),
    ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 'RoPE type "dynamic" is not supported'),
    ("llama", {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "short_factor: found null, expected 16 numbers"),
    ("llama", {"rope_parameters": {"rope_type": "mrope"}}, 'rope_parameters: RoPE type "mrope" is not supported'),
    ("llama", {"rope_scaling": {"type": "linear"}}, "rope_scaling.factor: found nothing, expected a number"),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 0.5}}, "rope_scaling.factor: found 0.5"),
    ("llama", {"rope_scaling": {"type": "linear", "rope_type": "yarn"}},
     'rope_type is "yarn", but rope_scaling.type is "linear"'),
    ("llama", {"rope_scaling": dict(YARN, beta_fast=1, beta_slow=32)}, "beta_fast must not be below beta_slow"),
    ("llama", {"rope_scaling": dict(YARN, attention_factor=-1)}, "attention_factor: found -1"),
    ("llama", {"rope_scaling": dict(YARN, truncate=1)}, "truncate: found 1, expected true or false"),
    ("llama", {"rope_scaling": dict(YARN, llama_4_scaling_beta=0.1)}, "rope_scaling.llama_4_scaling_beta is not known"),
    ("llama", {"rope_scaling": YARN, "rope_parameters": dict(YARN, factor=2)}, "rope_scaling and rope_parameters differ"),
    ("llama", {"rope_parameters": {"rope_theta": 5e5}}, "rope_theta is 500000.0, but rope_theta is 10000.0"),
    (
        "llama",
        {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0}},
        "low_freq_factor must be below high_freq_factor",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("base", "changes", "text"), CONFIGS, ids=[c[2][:40].strip() for c in CONFIGS])
def test_config(base, changes, text, directory, refused):
    broken = directory(base)
    hf.edit_json(broken / "config.json", **changes)
    refused(broken, text)


JSONS = [
    (b"", "config.json: not JSON"),
    (b"[1]", "config.json: found [1], expected a JSON object"),
    (b'{"a": 1} x', "config.json: not JSON: Extra data"),
    (b'{"a": "\xff"}', "config.json: not UTF-8: invalid start byte at byte 7"),
    (b'{"hidden_size": 1, "hidden_size": 2}', 'config.json: duplicate key "hidden_size"'),
    (b"[" * 100_000, "config.json: not JSON: nested too deeply"),
    (b'{"vocab_size": ' + b"9" * 5000 + b"}", "config.json: "),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "config.json: a git-lfs pointer"),
]


@pytest.mark.parametrize(("text", "message"), JSONS, ids=range(len(JSONS)))
def test_json(text, message, directory, refused):
    broken = directory()
    (broken / "config.json").write_bytes(text)
    refused(broken, message)


def test_generation_config(directory, refused):
    broken = directory()
    (broken / "generation_config.json").write_text('{"eos_token_id": [99999]}')
    refused(broken, "generation_config.json: eos_token_id: found [99999]")


def test_tokenizer_files(directory, refused):
    broken = directory()
    (broken / "chat_template.jinja").write_bytes(b"{{ \xff }}")
    refused(broken, "chat_template.jinja: not UTF-8: invalid start byte at byte 3")
    (broken / "tokenizer.json").write_text('{"model": {}, "model": {}}')
    refused(broken, 'tokenizer.json: duplicate key "model"')


def test_no_config(directory, refused):
    broken = directory()
    (broken / "config.json").unlink()
    refused(broken, "no config.json: not a Hugging Face model directory")


def test_a_refused_architecture_is_one_short_line():
    """Without the file's name, however long the names are that it has."""
    from yalm_convert.architectures import ARCHITECTURES
    from yalm_convert.config import model_config
    from yalm_convert.errors import ModelError
    from yalm_convert.multimodal import WHOLES
    from yalm_convert.refused import LACKING, why_not

    for name in [*(stem for stems in LACKING.values() for stem in stems.split()), "x" * 1000, ["y"] * 100, None]:
        with pytest.raises(ModelError) as refused:
            model_config({"architectures": [name]}, "config.json")
        assert len(str(refused.value)) <= 200 and "is not supported: " in str(refused.value), name
    assert not [name for name in [*ARCHITECTURES, *WHOLES] if "lacks" in why_not(name)]
