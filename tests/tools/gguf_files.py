"""GGUF files of small Hugging Face directories, as llama.cpp's converter writes them: names of tensors by the package
`gguf`'s own table."""

import json

import gguf
import hf
import numpy as np
from gguf_scans import add_scans, add_xielu, as_floats, as_scans
from yalm_convert import sentencepiece_model

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "MixtralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3moe",
    "Phi3ForCausalLM": "phi3",
    "SmolLM3ForCausalLM": "smollm3",
    "GraniteForCausalLM": "granite",
    "Olmo2ForCausalLM": "olmo2",
    "Olmo3ForCausalLM": "olmo2",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Ministral3ForCausalLM": "mistral3",
    "Glm4ForCausalLM": "glm4",
    "GptOssForCausalLM": "gpt-oss",
    "GraniteMoeForCausalLM": "granitemoe",
    "Glm4MoeForCausalLM": "glm4moe",
    "GraniteMoeSharedForCausalLM": "granitemoe",
    "GemmaForCausalLM": "gemma",
    "GlmForCausalLM": "chatglm",
    "Ernie4_5ForCausalLM": "ernie4_5",
    "Ernie4_5_MoeForCausalLM": "ernie4_5-moe",
    "SeedOssForCausalLM": "seed_oss",
    "Exaone4ForCausalLM": "exaone4",
    "Qwen2MoeForCausalLM": "qwen2moe",
    "OlmoeForCausalLM": "olmoe",
    "MiniMaxM2ForCausalLM": "minimax-m2",
    "Dots1ForCausalLM": "dots1",
    "DeepseekV2ForCausalLM": "deepseek2",
    "DeepseekV3ForCausalLM": "deepseek2",
    "YoutuForCausalLM": "deepseek2",
    "KimiLinearForCausalLM": "kimi-linear",
    "AfmoeForCausalLM": "afmoe",
    "HunYuanDenseV1ForCausalLM": "hunyuan-dense",
    "HunYuanMoEV1ForCausalLM": "hunyuan-moe",
    "Starcoder2ForCausalLM": "starcoder2",
    "PhiForCausalLM": "phi2",
    "StableLmForCausalLM": "stablelm",
    "GPT2LMHeadModel": "gpt2",
    "GPTBigCodeForCausalLM": "starcoder",
    "GPTNeoXForCausalLM": "gptneox",
    "CohereForCausalLM": "command-r",
    "Cohere2ForCausalLM": "cohere2",
    "ArceeForCausalLM": "arcee",
    "BloomForCausalLM": "bloom",
    "Lfm2ForCausalLM": "lfm2",
    "Lfm2MoeForCausalLM": "lfm2moe",
    "GraniteMoeHybridForCausalLM": "granitehybrid",
    "NemotronHForCausalLM": "nemotron_h_moe",
    "BambaForCausalLM": "granitehybrid",
    "FalconH1ForCausalLM": "falcon-h1",
    "ApertusForCausalLM": "apertus",
    "Gemma3TextModel": "gemma-embedding",
    "Qwen3NextForCausalLM": "qwen3next",
    "Qwen3_5ForCausalLM": "qwen35",
    "Qwen3_5MoeForCausalLM": "qwen35moe",
}
RECURRENT = ("qwen3next", "qwen35", "qwen35moe")
SCANS = ("granitehybrid", "nemotron_h_moe", "falcon-h1")
PAIRED = ("llama", "smollm3", "granite", "granitemoe", "mistral3", "arcee")  # whose q and k are permuted
USUAL = {  # names of keys
    "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings", "rotary_pct": "partial_rotary_factor",
    "num_experts_per_token": "num_experts_per_tok", "num_shared_experts": "n_shared_experts",
    "model_max_length": "max_position_embeddings", "moe_topk": "num_experts_per_tok", "moe_k": "num_experts_per_tok",
    "moe_num_experts": "num_experts",
}  # fmt: skip
KINDS = {
    "F32": gguf.GGMLQuantizationType.F32,
    "F16": gguf.GGMLQuantizationType.F16,
    "BF16": gguf.GGMLQuantizationType.BF16,
}


def permute(rows, heads):
    """For a rotation of neighbours: rows i and i + half of a head become 2 i and 2 i + 1."""
    shape = rows.shape
    return np.ascontiguousarray(rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2)).reshape(
        shape
    )


def write(directory, path, quantise=None, tokenizer=None, change=None, **options):
    """Writes the directory's model. quantise: {HF name: type}, of matrices that are not stored as they are;
    tokenizer(writer) adds one; change(writer) has the last word; options are GGUFWriter's."""
    config = json.loads((directory / "config.json").read_text())
    config = {USUAL.get(key, key): value for key, value in config.items()}
    if "num_shared_expert" in config:  # HunYuan's, a number for each layer
        config["shared_intermediate_size"] = config["intermediate_size"]
        config |= {key: config[key][0] for key in ("num_experts_per_tok", "moe_intermediate_size")}
    arch = ARCHITECTURES[config["architectures"][0]]
    writer = gguf.GGUFWriter(str(path), arch, **options)
    add_settings(writer, arch, config)
    if tokenizer:
        tokenizer(writer)
    if change:
        change(writer)
    for name, (kind, data) in named(directory, arch, config).items():
        stored = (quantise or {}).get(name, (quantise or {}).get("*")) if data.ndim > 1 else None
        exact = data.ndim == 1 or "ffn_gate_inp" in name or name.endswith(".bias")
        if stored is not None and not exact:
            writer.add_tensor(name, gguf.quantize(as_floats(kind, data), stored), raw_dtype=stored)
        elif kind == "BF16" and not exact:
            writer.add_tensor(name, data.view(np.uint8), raw_dtype=KINDS["BF16"])
        else:
            writer.add_tensor(name, as_floats(kind, data) if exact else data)
    add_xielu(writer, directory, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_settings(writer, arch, config):
    heads = config["num_attention_heads"]
    width = config.get("head_dim", config["hidden_size"] // heads)
    heads_more = further(config)
    writer.add_block_count(config["num_hidden_layers"] + heads_more)
    if heads_more:
        writer.add_nextn_predict_layers(heads_more)
    writer.add_context_length(config.get("max_position_embeddings", 2048))
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(
        config.get("block_ff_dim", config.get("intermediate_size", 4 * config["hidden_size"]))
    )
    writer.add_head_count(heads)
    kv_heads = 1 if config.get("multi_query") else config.get("num_key_value_heads", heads)
    writer.add_head_count_kv(
        [kv_heads * (k != "conv") for k in config["layer_types"]] if "conv_bias" in config else kv_heads
    )
    (writer.add_layer_norm_rms_eps if {"rms_norm_eps", "norm_eps"} & set(config) else writer.add_layer_norm_eps)(
        config.get("rms_norm_eps", config.get("norm_eps", 1e-5))
    )
    if "conv_L_cache" in config:
        writer.add_shortconv_l_cache(config["conv_L_cache"])
    if "num_dense_layers" in config:
        writer.add_leading_dense_block_count(config["num_dense_layers"])
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if "use_parallel_residual" in config:
        writer.add_parallel_residual(config["use_parallel_residual"])
    if "logit_scale" in config:
        writer.add_logit_scale(config["logit_scale"])
    factor = config.get("rope_parameters", {}).get("partial_rotary_factor", 1)
    writer.add_rope_dimension_count(config.get("rotary_dim", int(width * config.get("partial_rotary_factor", factor))))
    if "linear_num_value_heads" in config:
        add_states(writer, config)
    if arch in SCANS:
        add_scans(writer, config)
    if "head_dim" in config:
        writer.add_key_length(width)
        writer.add_value_length(width)
    alpha = (config.get("rope_scaling") or {}).get("alpha", 1)  # HunYuan's, which is part of the base there
    writer.add_rope_freq_base(
        alpha ** (width / (width - 2))
        * config.get(
            "rope_theta", config.get("rope_parameters", {}).get("rope_theta", 5e5 if arch == "command-r" else 1e4)
        )
    )
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        writer.add_sliding_window(config["sliding_window"])
    if arch in ("olmo2", "exaone4") and config.get("sliding_window"):
        writer.add_sliding_window_pattern([(n + 1) % 4 != 0 for n in range(config["num_hidden_layers"])])
    if "attn_logit_softcapping" in config:
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    experts = config.get("num_local_experts", config.get("num_experts"))
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if config["model_type"] == "youtu":
        writer.add_leading_dense_block_count(config["num_hidden_layers"])
        writer.add_expert_feed_forward_length(config["intermediate_size"])
        writer.add_expert_shared_count(0)
    elif arch in ("glm4moe", "dots1", "deepseek2", "nemotron_h_moe"):
        writer.add_expert_count(config["n_routed_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_shared_count(config["n_shared_experts"])
        if "first_k_dense_replace" in config:
            writer.add_leading_dense_block_count(config["first_k_dense_replace"])
        writer.add_expert_weights_scale(config["routed_scaling_factor"])
        writer.add_expert_weights_norm(config.get("norm_topk_prob", True))
        by_softmax = config["model_type"] == "deepseek_v2"
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType["SOFTMAX" if by_softmax else "SIGMOID"])
    if arch == "afmoe":
        writer.add_expert_shared_count(config["n_shared_experts"])
        writer.add_expert_weights_scale(config["route_scale"])
        writer.add_expert_weights_norm(True)
    if arch == "ernie4_5-moe":
        writer.add_expert_shared_count(config["moe_num_shared_experts"])
        # What llama.cpp's converter takes it for.
        writer.add_expert_shared_feed_forward_length(config["intermediate_size"] // kv_heads)
        writer.add_leading_dense_block_count(config["moe_layer_start_index"])
        writer.add_interleave_moe_layer_step(config["moe_layer_interval"])
    if arch in ("deepseek2", "kimi-linear"):
        add_latents(writer, config)
    if arch == "kimi-linear":
        add_kda(writer, config)
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if "shared_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])
    if arch == "qwen2moe":
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if "attention_multiplier" in config:
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if "original_max_position_embeddings" in config:
        writer.add_rope_scaling_orig_ctx_len(config["original_max_position_embeddings"])
    add_rope(writer, config.get("rope_scaling") or config.get("rope_parameters") or {})


def add_latents(writer, config):
    rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    if config["q_lora_rank"]:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(rank)
    split = config["q_lora_rank"] or "linear_attn_config" in config  # as newer files have it; named() does so, too
    for kind, cached, own in (
        ("key", rank + rope, config["qk_nope_head_dim"] + rope),
        ("value", rank, config["v_head_dim"]),
    ):
        getattr(writer, f"add_{kind}_length")(cached if split else own)
        if split:
            getattr(writer, f"add_{kind}_length_mla")(own)
    writer.kv_data[0].pop(f"{writer.arch}.rope.dimension_count")
    writer.add_rope_dimension_count(rope)
    if config.get("n_group"):
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])


def add_kda(writer, config):
    own = config["linear_attn_config"]
    writer.kv_data[0].pop(f"{writer.arch}.attention.head_count_kv")
    writer.add_head_count_kv([int(n + 1 in own["full_attn_layers"]) for n in range(config["num_hidden_layers"])])
    writer.add_ssm_conv_kernel(own["short_conv_kernel_size"])
    writer.add_kda_head_dim(own["head_dim"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def as_kda(kind, name, array):
    """(type, name, array) as llama.cpp's converter has it: rates for their logarithms, and a dimension of one more."""
    if name.endswith("A_log"):
        return "F32", f"blk.{name.split('.')[2]}.ssm_a", -np.exp(as_floats(kind, array))
    if name.endswith("_conv1d.weight"):
        kind, array = "F32", as_floats(kind, array).reshape(1, array.shape[0], 1, -1)
    return kind, name.replace("dt_bias", "dt_proj.bias"), array


def by_heads(config, array):
    """kv_b as llama.cpp's converter splits it: (k_b, turned; v_b)."""
    nope, heads = config["qk_nope_head_dim"], config["num_attention_heads"]
    both = array.reshape(heads, -1, config["kv_lora_rank"])
    return {"k_b": np.ascontiguousarray(both[:, :nope].swapaxes(1, 2)), "v_b": np.ascontiguousarray(both[:, nope:])}


def add_states(writer, config):
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
    writer.add_array(
        f"{writer.arch}.attention.recurrent_layers", [kind == "linear_attention" for kind in config["layer_types"]]
    )
    writer.add_rope_dimension_sections([2, 2, 2, 0])
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def add_rope(writer, rope):
    if rope.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if "yarn" in (rope.get("rope_type"), rope.get("type")):
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "beta_fast" in rope:
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        if "mscale_all_dim" in rope and "llama_4_scaling_beta" not in rope:  # DeepSeek's
            writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    if rope.get("rope_type") == "longrope":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
    if "llama_4_scaling_beta" in rope:
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])


def named(directory, arch, config):
    """{name in the GGUF file: (type, array)}; matrices of bfloat16 as uint16."""
    number = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == arch)
    table = gguf.get_tensor_name_map(number, config["num_hidden_layers"] + further(config))
    numbers = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
    found, experts = {}, {}
    for name, (kind, shape, data) in hf.read_tensors(directory).items():
        if ".act_fn." in name:
            continue
        array = np.frombuffer(data, numbers[kind]).reshape(shape)
        name = nextn(config, name.removeprefix("transformer.") if arch == "bloom" else name)
        part = name.split(".")[-2]
        if (arch in PAIRED or config["architectures"] == ["BambaForCausalLM"]) and part in ("q_proj", "k_proj"):
            array = permute(array, config["num_attention_heads" if part == "q_proj" else "num_key_value_heads"])
        if arch in SCANS:
            kind, name, array = as_scans(config, kind, name, array)
        if arch == "kimi-linear":
            kind, name, array = as_kda(kind, name, array)
        if arch == "gpt2" and part in ("c_attn", "c_fc", "c_proj") and array.ndim == 2:
            array = np.ascontiguousarray(array.T)
        if part == "query_key_value":  # of each head
            array = array.reshape(config["num_attention_heads"], 3, -1).swapaxes(0, 1).reshape(shape).copy()
        if arch in RECURRENT:
            kind, name, array = recurrent(config, kind, name, array, arch != "qwen3next")
        if name.endswith("shared_expert_gate.weight"):
            array = array.squeeze()
        if name.endswith("conv.conv.weight"):
            array = array.squeeze(1)
        if name.endswith("expert_bias"):
            name += ".bias"
        plus = arch in RECURRENT and not name.endswith("linear_attn.norm.weight")
        if (arch in ("gemma", "gemma2", "gemma3", "gemma-embedding") or plus) and name.endswith("norm.weight"):
            kind, array = "F32", as_floats(kind, array) + np.float32(1)
        if arch == "gpt-oss" and ".experts." in name:
            found.update(turned_experts(name, kind, array))
        elif arch in RECURRENT and "in_proj_qkvz" in name:
            found.update(by_key_heads(config, name, kind, array))
        elif arch in RECURRENT and ".experts." in name:  # all experts' in one, gate's rows of each and then up's
            layer = name.split(".")[2]
            for letter, rows in zip(
                ("down",) if "down" in name else ("gate", "up"), np.split(array, 1 if "down" in name else 2, 1)
            ):
                found[f"blk.{layer}.ffn_{letter}_exps.weight"] = (kind, rows.copy())
        elif part == "kv_b_proj" and (config["q_lora_rank"] or arch == "kimi-linear"):
            for letter, matrix in by_heads(config, array).items():
                found[f"blk.{name.split('.')[2]}.attn_{letter}.weight"] = (kind, matrix)
        elif part == "input_linear":  # gate's rows of each expert, and then up's
            end = "_shexp" if "shared" in name else "_exps"
            end = end if config["num_local_experts"] else ""
            for n, half in enumerate(np.split(array, 2, axis=array.ndim - 2)):
                found[f"blk.{name.split('.')[2]}.ffn_{('gate', 'up')[n]}{end}.weight"] = (kind, half.copy())
        elif ".experts." in name:
            layer, _, rest = name.partition(".experts.")
            expert, matrix, _ = rest.split(".")
            experts.setdefault((layer, matrix), {})[int(expert)] = (kind, array)
        else:
            if name.startswith("blk."):
                found[name] = (kind, array)
                continue
            name = f"{name}.weight" if name.endswith(".sinks") else name.replace("correction_bias", "correction.bias")
            found[table.get_name(name, try_suffixes=(".weight", ".bias"))] = (kind, array)
    for (layer, matrix), by_number in experts.items():
        letter = {"w1": "gate", "w2": "down", "w3": "up"}.get(matrix, matrix.removesuffix("_proj"))
        together = np.stack([by_number[e][1] for e in range(len(by_number))])
        found[f"blk.{layer.split('.')[2]}.ffn_{letter}_exps.weight"] = (by_number[0][0], together)
    for key in ("short", "long"):
        if f"{key}_factor" in (config.get("rope_scaling") or {}):
            found[f"rope_factors_{key}.weight"] = ("F32", np.array(config["rope_scaling"][f"{key}_factor"], np.float32))
    if "rope_freqs" in config:
        found["rope_freqs.weight"] = ("F32", np.array(config["rope_freqs"], np.float32))
    return found


def further(config):
    return config.get("mtp_num_hidden_layers") or config.get("num_nextn_predict_layers") or 0


def nextn(config, name):
    """The head's tensors as those of one more layer."""
    layer = config["num_hidden_layers"]
    parts = {"mtp.fc": "eh_proj", "mtp.pre_fc_norm_embedding": "enorm", "mtp.pre_fc_norm_hidden": "hnorm"}
    parts |= {"mtp.norm": "shared_head_norm", f"model.layers.{layer}.shared_head.norm": "shared_head_norm"}
    parts |= {f"model.layers.{layer}.{part}": part for part in ("eh_proj", "enorm", "hnorm")}
    part, _, kind = name.rpartition(".")
    if part in parts:
        return f"blk.{layer}.nextn.{parts[part]}.{kind}"
    return name.replace("mtp.layers.0.", f"model.layers.{layer}.")


def by_key_heads(config, name, kind, array):
    """q, k, v and z of each key head stand together; there q, k and v of all heads are one matrix, z another."""
    keys, width = config["linear_num_key_heads"], config["linear_key_head_dim"]
    parts = np.split(
        array.reshape(keys, -1, array.shape[1]), [width, 2 * width, array.shape[0] // keys // 2 + width], 1
    )
    q, k, v, z = (part.reshape(-1, array.shape[1]) for part in parts)
    layer = f"blk.{name.split('.')[2]}"
    return {
        f"{layer}.attn_qkv.weight": (kind, np.concatenate([q, k, v])),
        f"{layer}.attn_gate.weight": (kind, z.copy()),
    }


def recurrent(config, kind, name, array, moved):
    """As llama.cpp's converter has it: value heads, where moved, go round the key heads; A for its logarithm; no
    dimensions of one."""
    keys, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    key_rows, width = 2 * keys * config["linear_key_head_dim"], config["linear_value_head_dim"]

    def tiled(rows, size):
        if not moved:
            return rows
        return rows.reshape(keys, heads // keys, size, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)

    part = name.partition(".linear_attn.")[2]
    if part.startswith(("in_proj_qkv.", "conv1d")):
        array = array.squeeze()
        array = np.concatenate([array[:key_rows], tiled(array[key_rows:], width)])
    elif part.startswith("in_proj_z."):
        array = tiled(array, width)
    elif part.startswith(("in_proj_a.", "in_proj_b.", "A_log", "dt_bias")):
        array = tiled(array, 1)
    elif part.startswith("out_proj"):
        array = np.ascontiguousarray(tiled(array.T, width).T)
    if part == "A_log":
        kind, array = "F32", -np.exp(as_floats(kind, array))
    return kind, name.replace("dt_bias", "dt_proj.bias"), array


def turned_experts(name, kind, array):
    """gpt-oss's experts: outputs become rows, and gate and up, which alternate, are taken apart."""
    layer, bias = name.split(".")[2], name.endswith("_bias")
    rows = array if bias else array.transpose(0, 2, 1)
    parts = {"down": rows} if ".down_proj" in name else {"gate": rows[:, ::2], "up": rows[:, 1::2]}
    end = "bias" if bias else "weight"
    return {f"blk.{layer}.ffn_{part}_exps.{end}": (kind, np.ascontiguousarray(found)) for part, found in parts.items()}


# ------------------------------------------------------------------------------------ tokenizers


def spm(writer, **changes):
    """The bundled model's tokenizer.model."""
    pieces = sentencepiece_model.read(hf.FABLE / "tokenizer.model").pieces
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text.encode() for text, _, _ in pieces])
    writer.add_token_scores([score for _, score, _ in pieces])
    writer.add_token_types([kind for _, _, kind in pieces])
    for key, value in changes.items():
        getattr(writer, f"add_{key}")(value)


def alphabet():
    """How byte-level vocabularies write the 256 bytes."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) for byte in visible] + [chr(256 + n) for n in range(len(hidden))]


TOKENS = ["<s>", "</s>", "<|end|>", "<tool>", *alphabet(), "th", "the", "Ġt", "Ġthe", "ab", "[PAD265]"]
TYPES = [3, 3, 3, 4, *[1] * (len(TOKENS) - 5), 5]
MERGES = ["t h", "th e", "Ġ t", "Ġt h", "Ġ the", "a b"]
MERGES = [merge for merge in MERGES if merge.replace(" ", "") in TOKENS]


def bpe(writer, pre="llama-bpe", token_list=TOKENS, token_types=TYPES, **changes):
    writer.add_tokenizer_model("gpt2")
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(token_list)
    writer.add_token_types(token_types)
    writer.add_token_merges(MERGES)
    for key, value in changes.items():
        getattr(writer, f"add_{key}")(value)
