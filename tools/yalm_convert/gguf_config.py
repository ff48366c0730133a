"""What a GGUF file says of its model, as the config.json and the tensors' names that Hugging Face's form of the same model has.

From there on the converter's usual way is taken, with its checks and refusals. The facts are those of llama.cpp's
converter and loader.
"""

import math
from collections.abc import Iterator
from typing import Optional

import numpy as np

from . import gguf_encoders, gguf_gemma4, gguf_kda, gguf_mamba
from .checkpoint import Checkpoint, Tensor
from .computed import Given, Reordered
from .errors import ModelError
from .gguf_blocks import tensor_of
from .gguf_families import CONVOLVING_NAMES, FAMILIES, MIXTRAL_PARTS, RECURRENT, SCORED, VARIANTS, Family
from .gguf_file import GgufFile
from .mtp import NEXTN, as_qwen
from .refused import why_not
from .source import alike, shown

# Settings, each after the architecture's name, and their names in config.json.
SETTINGS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "attention.sliding_window": "sliding_window",
    # What only some architectures have; config.py refuses it in others.
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention.clamp_kqv": "clip_qkv",
    "attention.max_alibi_bias": "alibi",
    "use_parallel_residual": "use_parallel_residual",
    "expert_shared_count": "n_shared_experts",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "leading_dense_block_count": "first_k_dense_replace",
    "nextn_predict_layers": "num_nextn_predict_layers",
}
WHOLE = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "position_embd": "embeddings.position_embeddings", "token_embd_norm": "embeddings.LayerNorm",
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection", "per_layer_proj_norm": "model.per_layer_projection_norm",
}  # fmt: skip
LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
}  # fmt: skip
# Tokens that end an answer in one chat format or another; of the kinds control and user-defined.
ENDS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
    "<|eom_id|>",
    "</s>", "<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<turn|>", "<|tool_response>",
)  # fmt: skip
UNENDED = ("attn_sinks", "exp_probs_b", "ssm_a", "ssm_d")  # tensors whose names there do not end in weight or bias
MARKED = (3, 4)
FREQUENCIES = "rope_freqs.weight"
FACTORS = {"short_factor": "rope_factors_short.weight", "long_factor": "rope_factors_long.weight"}


# Scores are scaled by the width of the model and not of a head in the largest of these, by their number of layers.
BY_MODEL_WIDTH = {"gemma2": 46, "gemma3": 62, "gemma-embedding": 0}
# Settings that are read by name below, or say nothing of the computation.
OTHERS = {
    "vocab_size", "rope.dimension_count", "attention.value_length", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.attn_factor", "rope.scaling.finetuned",
    "rope.scaling.yarn_log_multiplier",
    "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
    "attention.temperature_scale",
    "expert_count", "expert_used_count", "expert_weights_norm", "expert_gating_func", "attention.causal", "pooling_type",
    "tensor_data_layout",
    "rope.scale_linear", "attention.sliding_window_pattern", "rope.freq_base_swa", "rope.dimension_sections", "ssm.inner_size",
    "n_deepstack_layers", "classifier.output_labels",
    "dense_2_feat_in", "dense_2_feat_out", "dense_3_feat_in", "dense_3_feat_out",
    "attention.key_length_mla", "attention.value_length_mla",
    "attention.recurrent_layers", "attention.value_length_swa", "rope.dimension_count_swa",
}  # fmt: skip


def family_of(file: GgufFile) -> Family:
    name = file.get("general.architecture")
    if file.get("general.type", "model") != "model":
        raise ModelError(f"{file.path}: general.type is {shown(file.get('general.type'))}, expected a model")
    if name not in FAMILIES:
        raise ModelError(f"{file.path}: general.architecture: {shown(name)} is not supported: {why_not(name)}")
    for (general, setting), family in VARIANTS.items():
        if name == general and file.get(f"{name}.{setting}"):
            return family
    return FAMILIES[name]


def config_values(file: GgufFile, warnings: list) -> dict:
    """What config.json would have."""
    family, prefix = family_of(file), f"{file.get('general.architecture')}."
    keys = {**SETTINGS, **family.settings}
    values: dict = {"architectures": [family.architecture], **family.always}
    for key, value in file.settings.items():
        short = key[len(prefix) :] if key.startswith(prefix) else None
        if keys.get(short):
            values[keys[short]] = _number(value)
        elif short is not None and short not in (*keys, *OTHERS):
            warnings.append(f"{file.path}: setting {shown(key)} is not known, and ignored")
    if "token_embd.weight" not in file.entries:
        raise ModelError(f"{file.path}: no tensor 'token_embd.weight': not a whole model")
    values["vocab_size"] = file.entries["token_embd.weight"].shape[0]
    if values.get("sliding_window") == 0:
        values["sliding_window"] = None
    values["num_hidden_layers"] = _main_layers(file)
    values.pop("num_nextn_predict_layers", None)
    values["tie_word_embeddings"] = "output.weight" not in file.entries
    _biases(file, values)
    heads, hidden = values.get("num_attention_heads"), values.get("hidden_size")
    if isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
        values.setdefault("head_dim", hidden // heads)
    _windows(file, prefix, values)
    if family.names is RECURRENT:
        _recurrent(file, prefix, values)
    if family.names is CONVOLVING_NAMES:
        _convolving(file, values)
    if gguf_mamba.is_scan(family):
        gguf_mamba.complete(file, prefix, values)
    if "attention.kv_lora_rank" in family.settings:
        _latents(file, prefix, values)
    if gguf_kda.is_kda(family):
        gguf_kda.complete(file, prefix, values)
    for key in ("bos_token_id", "eos_token_id"):
        if f"tokenizer.ggml.{key}" in file.settings:
            values[key] = file.get(f"tokenizer.ggml.{key}")
    values["eos_token_id"] = _ends(file) or None
    if family.settings is gguf_encoders.SETTINGS:
        gguf_encoders.complete(file, values)
        if family.architecture == "NomicBertModel":
            _rope(file, prefix, values)
    elif family.settings is gguf_gemma4.SETTINGS:
        factors = _vector(file, FREQUENCIES) if FREQUENCIES in file.entries else None
        gguf_gemma4.complete(file, values, factors)
    else:
        _rope(file, prefix, values)
    if family.local_theta is not None:
        own = file.get(f"{prefix}rope.freq_base_swa") or family.local_theta
        values["rope_local_base_freq"] = own or values.get("rope_theta")
    return values


def _convolving(file: GgufFile, values: dict) -> None:
    """Layers without KV heads have a short convolution."""
    kv_heads, layers = values.get("num_key_value_heads"), values["num_hidden_layers"]
    kv_heads = kv_heads if isinstance(kv_heads, list) else [kv_heads] * layers
    values["layer_types"] = ["full_attention" if n else "conv" for n in kv_heads]
    values["num_key_value_heads"] = max(kv_heads)
    values["conv_bias"] = any(name.endswith("shortconv.in_proj.bias") for name in file.entries)


def _latents(file: GgufFile, prefix: str, values: dict) -> None:
    """Older files have the lengths of expanded heads, newer ones, under names of their own, beside the cache's. Models
    of V3's form have V2's name, and sigmoids. Youtu has V2's name, too, but no experts."""
    key = file.get(f"{prefix}attention.key_length_mla", file.get(f"{prefix}attention.key_length"))
    rope = file.get(f"{prefix}rope.dimension_count")
    if not isinstance(key, int) or not isinstance(rope, int):
        raise ModelError(f"{file.path}: {prefix}attention.key_length or rope.dimension_count is missing")
    v = file.get(f"{prefix}attention.value_length_mla", file.get(f"{prefix}attention.value_length"))
    values.update(qk_nope_head_dim=key - rope, qk_rope_head_dim=rope, v_head_dim=v, head_dim=rope)
    values.setdefault("q_lora_rank", None)
    if not values.get("n_routed_experts") and values["architectures"] == ["DeepseekV2ForCausalLM"]:
        values["architectures"] = ["YoutuForCausalLM"]
        for key in ("first_k_dense_replace", "n_shared_experts", *SCORED.values()):
            values.pop(key, None)
        return
    if file.get(f"{prefix}expert_gating_func") == 2 and values["architectures"] == ["DeepseekV2ForCausalLM"]:
        values["architectures"] = ["DeepseekV3ForCausalLM"]
    elif values.get("n_group", 1) > 1:
        values["topk_method"] = "group_limited_greedy"
    values.setdefault("n_group", 1)
    values.setdefault("topk_group", values["n_group"])


def _main_layers(file: GgufFile) -> object:
    """Without those at the end that guess further tokens."""
    prefix = file.get("general.architecture")
    layers, more = (_number(file.get(f"{prefix}.{key}")) for key in ("block_count", "nextn_predict_layers"))
    return layers - more if isinstance(layers, int) and isinstance(more, int) else layers


def _windows(file: GgufFile, prefix: str, values: dict) -> None:
    """Which layers have a window, and what scores are scaled by."""
    pattern = file.get(f"{prefix}attention.sliding_window_pattern")
    if isinstance(pattern, list):
        values["layer_types"] = ["sliding_attention" if windowed else "full_attention" for windowed in pattern]
    elif pattern is not None:
        values["sliding_window_pattern"] = pattern
    name, layers = prefix[:-1], values.get("num_hidden_layers")
    if name in BY_MODEL_WIDTH and values.get("head_dim"):
        by_model = layers == BY_MODEL_WIDTH[name]
        values["query_pre_attn_scalar"] = (
            values["hidden_size"] // values["num_attention_heads"] if by_model else values["head_dim"]
        )


def _recurrent(file: GgufFile, prefix: str, values: dict) -> None:
    heads, inner = values.get("linear_num_value_heads"), file.get(f"{prefix}ssm.inner_size")
    if isinstance(heads, int) and heads and isinstance(inner, int):
        values["linear_value_head_dim"] = inner // heads
    tiled = file.get("general.architecture") != "qwen3next"
    if tiled and heads != values.get("linear_num_key_heads"):
        values["tiled_value_heads"] = True
    recurrent = file.get(f"{prefix}attention.recurrent_layers")
    if isinstance(recurrent, list):
        kinds = ["linear_attention" if one else "full_attention" for one in recurrent]
        values["layer_types"] = kinds[: values["num_hidden_layers"]]


def _ends(file: GgufFile) -> list:
    """Ids that end a text: those that settings name, and those that are known by how they are spelled, for files name
    one of several."""
    found = [file.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot", "eom")]
    tokens, kinds = file.get("tokenizer.ggml.tokens") or [], file.get("tokenizer.ggml.token_type") or []
    spelled = {text: token for token, (text, kind) in enumerate(zip(tokens, kinds)) if kind in MARKED and text in ENDS}
    if "<|return|>" in spelled:  # gpt-oss: there <|end|> ends a part of an answer
        spelled.pop("<|end|>", None)
    found += [spelled[text] for text in ENDS if text in spelled]
    return [end for n, end in enumerate(found) if end is not None and end not in found[:n]]


def _number(value: object) -> object:
    """float32 settings as somebody wrote them, 1e-06 and not 9.999999974752427e-07; a number for each layer, where
    all are one, as that one."""
    value = alike(value)
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _biases(file: GgufFile, values: dict) -> None:
    name = values["architectures"][0]
    if name.startswith(("Glm", "SeedOss")):
        values["attention_bias"] = "blk.0.attn_q.bias" in file.entries
    if name in ("Glm4ForCausalLM", "Glm4MoeForCausalLM"):
        values["use_qk_norm"] = "blk.0.attn_q_norm.weight" in file.entries or None
    if name.startswith("StableLm"):
        values["use_qkv_bias"] = "blk.0.attn_q.bias" in file.entries
    if "blk.0.attn_output.bias" in file.entries:
        values["attention_bias"] = True
    if "blk.0.ffn_down.bias" in file.entries:
        values["mlp_bias"] = True


def _rope(file: GgufFile, prefix: str, values: dict) -> None:
    def get(key: str) -> object:
        return _number(file.get(prefix + key))

    heads, hidden = values.get("num_attention_heads"), values.get("hidden_size")
    width = values.get("head_dim") or (hidden // heads if isinstance(heads, int) and heads and hidden else 0)
    rotated = get("rope.dimension_count")
    if rotated is not None and width and rotated != width:
        values["partial_rotary_factor"] = rotated / width
    if get("attention.value_length") not in (None, width) and "kv_lora_rank" not in values:
        raise ModelError(
            f"{file.path}: heads of {width} have values of {get('attention.value_length')}, expected as many"
        )
    if get("rope.scaling.finetuned") is False and values["architectures"] == ["GraniteForCausalLM"]:
        raise ModelError(f"{file.path}: rope.scaling.finetuned is false: a Granite without RoPE is not supported")
    kind, growth = get("rope.scaling.type"), get("attention.temperature_scale")
    scaling: dict = {}
    if kind == "linear" or (kind is None and get("rope.scale_linear") not in (None, 1.0)):
        scaling = {"rope_type": "linear", "factor": get("rope.scaling.factor") or get("rope.scale_linear")}
    elif kind == "yarn":
        log = get("rope.scaling.yarn_log_multiplier")
        if log and "kv_lora_rank" in values:  # of DeepSeek's a tenth of it is stored
            log = round(10 * log, 6)
        scaling = {
            "rope_type": "yarn",
            "factor": get("rope.scaling.factor"),
            "original_max_position_embeddings": get("rope.scaling.original_context_length"),
            "attention_factor": get("rope.scaling.yarn_attn_factor"),
            "beta_fast": get("rope.scaling.yarn_beta_fast"),
            "beta_slow": get("rope.scaling.yarn_beta_slow"),
            "mscale": log,
            "mscale_all_dim": log,
            **family_of(file).yarn,
        }
    elif kind not in (None, "none", "longrope"):
        raise ModelError(f"{file.path}: rope.scaling.type {shown(kind)} is not supported")
    if all(name in file.entries for name in FACTORS.values()):
        factors = {key: _vector(file, name) for key, name in FACTORS.items()}
        values["original_max_position_embeddings"] = get("rope.scaling.original_context_length")
        scaling = {"rope_type": "longrope", **factors}
    if values["architectures"] == ["GptOssForCausalLM"] and scaling:
        scaling["truncate"] = False  # which no file says
    if FREQUENCIES in file.entries:
        scaling = _llama3(file, width, values.get("rope_theta", 10000.0))
    if growth:
        scaling["llama_4_scaling_beta"] = growth
    if scaling:
        values["rope_scaling"] = {key: value for key, value in scaling.items() if value is not None}


def _vector(file: GgufFile, name: str) -> list:
    return [float(x) for piece in tensor_of(file.entries[name]).pieces() for x in piece]


def _llama3(file: GgufFile, width: int, theta: float) -> dict:
    """Llama 3's scaling, of which the file has what each frequency is divided by. All models released with it differ
    in `factor` alone."""
    found = np.array(_vector(file, FREQUENCIES))
    scaling = {"rope_type": "llama3", "factor": float(found.max()), "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling["original_max_position_embeddings"] = 8192
    wavelength = 2 * math.pi * theta ** (np.arange(0, width, 2) / width)
    smooth = np.clip((8192 / wavelength - 1) / 3, 0, 1)
    expected = 1 / ((1 - smooth) / scaling["factor"] + smooth)
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-4):
        raise ModelError(
            f"{file.path}: tensor {FREQUENCIES!r} does not hold Llama 3's factors of RoPE (low_freq_factor 1,"
            " high_freq_factor 4, of a context of 8192), which are all that is known"
        )
    return scaling


# ------------------------------------------------------------------------------------ tensors


def model_tensors(file: GgufFile) -> Checkpoint:
    """All tensors under the names that Hugging Face has for them. One without keeps its own, which is then refused."""
    family, found = family_of(file), Checkpoint()
    consumed = {FREQUENCIES, *FACTORS.values()}
    prefix = file.get("general.architecture")
    heads = {"q_proj": file.get(f"{prefix}.attention.head_count")}
    kv_heads = file.get(f"{prefix}.attention.head_count_kv", heads["q_proj"])
    heads["k_proj"] = max(kv_heads) if isinstance(kv_heads, list) else kv_heads  # 0: a layer has no k_proj
    layers = _main_layers(file)
    for name, entry in file.entries.items():
        further = name.startswith("blk.") and name.split(".")[1].isdecimal() and int(name.split(".")[1]) > layers
        if name in consumed or (further and file.get(f"{prefix}.nextn_predict_layers")):
            continue
        entry_tensor = tensor_of(entry)
        entry_tensor = gguf_mamba.flat(name, entry_tensor) if gguf_mamba.is_scan(family) else entry_tensor
        entry_tensor = gguf_kda.shaped(name, entry_tensor) if gguf_kda.is_kda(family) else entry_tensor
        for renamed, tensor in _renamed(file, family, name, entry_tensor):
            if family.names is RECURRENT:
                renamed = as_qwen(renamed, layers)
            part = renamed.split(".")[-2]
            if family.paired and part in heads:
                tensor = _by_halves(file, tensor, heads[part])
            found[renamed] = tensor
    found.update(_xielu(file, layers))
    return found


def _xielu(file: GgufFile, layers: int) -> dict:
    """Apertus's activations, whose numbers are settings: one for each layer, or for all."""
    found: dict = {}
    for part in ("alpha_p", "alpha_n", "beta", "eps"):
        numbers = file.get(f"xielu.{part}", [])
        numbers = numbers if isinstance(numbers, list) else [numbers] * layers
        if len(numbers) not in (0, layers):
            raise ModelError(f"{file.path}: xielu.{part}: found {len(numbers)} numbers, expected {layers}")
        for layer, number in enumerate(numbers):
            name = f"model.layers.{layer}.mlp.act_fn.{part}"
            found[name] = Given(name, file.path, [number])
    return found


def _renamed(file: GgufFile, family: Family, name: str, tensor: Tensor) -> Iterator[tuple]:
    name += ".weight" * name.endswith(".ffn_norm")  # Falcon-H1's
    parts = name.split(".")
    squeezed = {"ssm_conv1d": 2, "conv": 2, "ffn_gate_inp_shexp": 1}.get(parts[-2] if len(parts) > 1 else "")
    if squeezed == len(tensor.shape):  # has lost a dimension of one
        tensor = tensor.part(0, (*tensor.shape[:-1], 1, tensor.shape[-1]))
    if family.settings is gguf_encoders.SETTINGS and name.rpartition(".")[0] in gguf_encoders.WHOLE:
        yield f"{gguf_encoders.WHOLE[name.rpartition('.')[0]]}.{parts[-1]}", tensor
        return
    whole = family.names.get(parts[0], WHOLE.get(parts[0]))
    if whole and len(parts) == 2:
        yield f"{whole}.{parts[1]}", tensor
        return
    if len(parts) > 2 and parts[2] in ("attn_k_b", "attn_v_b") and len(tensor.shape) == 3:  # of each head
        tensor = tensor.part(0, (tensor.shape[0] * tensor.shape[1], tensor.shape[2]))
    if parts[0] != "blk" or (len(parts) < 4 and parts[-1] not in UNENDED):
        yield name, tensor
        return
    layer, part, kind = f"model.layers.{parts[1]}", parts[2], parts[-1]
    known = {**LAYER, **family.names}
    if part == "nextn" and len(parts) == 5:
        yield f"{layer}.{NEXTN.get(parts[3], parts[3])}.{kind}", tensor
        return
    if part == "shortconv" and len(parts) == 5:
        yield f"{layer}.conv.{parts[3]}.{kind}", tensor
        return
    expert = _expert_part(part, parts)
    if part == "ffn_gate_up_exps" and kind == "weight" and len(tensor.shape) == 3 and tensor.shape[1] % 2 == 0:
        half = (tensor.shape[1] // 2, tensor.shape[2])
        for n in range(2 * tensor.shape[0]):  # gate's rows of each expert, and then up's
            piece = tensor.part(n * math.prod(half), half)
            yield f"{layer}.{_expert(family, n // 2, ('gate', 'up')[n % 2])}.weight", piece
        return
    if family.paired and part == "attn_qkv":
        raise ModelError(
            f"{file.path}: tensor {shown(name)}: q, k and v in one are not supported with {family.architecture}"
        )
    if expert and len(parts) == 5:  # one expert's own, as files of before had them
        yield f"{layer}.{_expert(family, int(parts[3]), expert)}.{kind}", tensor
    elif expert and len(tensor.shape) == (3 if kind == "weight" else 2):
        experts, *shape = tensor.shape
        for e in range(experts):
            yield f"{layer}.{_expert(family, e, expert)}.{kind}", tensor.part(e * math.prod(shape), tuple(shape))
    elif part in UNENDED and part in known:
        yield f"{layer}.{known[part]}", tensor
    elif f"{part}.{kind}" in known and len(parts) == 4:
        yield f"{layer}.{known[f'{part}.{kind}']}", tensor
    elif part in known and len(parts) == 4:
        yield f"{layer}.{known[part]}{'_' if part == 'ssm_dt' else '.'}{kind}", tensor
    else:
        yield name, tensor


def _expert_part(part: str, parts: list) -> Optional[str]:
    for letter in ("gate", "up", "down"):
        if part == f"ffn_{letter}_exps" or (part == f"ffn_{letter}" and len(parts) == 5 and parts[3].isdecimal()):
            return letter
    return None


def _expert(family: Family, number: int, part: str) -> str:
    mixtral = family.experts.startswith("block_sparse_moe")
    return family.experts.format(number, MIXTRAL_PARTS[part] if mixtral else part)


def _by_halves(file: GgufFile, tensor: Tensor, heads: object) -> Tensor:
    """Row 2 i + j of a head is row i of its half j."""
    rows = tensor.shape[0]
    if not isinstance(heads, int) or heads < 1 or rows % (2 * heads):
        raise ModelError(
            f"{file.path}: tensor {shown(tensor.name)} has {rows} rows, which {shown(heads)} heads do not share"
        )
    order = np.arange(rows // heads).reshape(-1, 2).T.reshape(-1)
    return Reordered(tensor, order)
