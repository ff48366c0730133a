"""GGUF files of Gemma 4, as llama.cpp's converter writes them: settings for each kind of layer, or for each layer."""

import json

import gguf
import gguf_files
import hf
import numpy as np
import pytest

LAYER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm", "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "router.proj": "ffn_gate_inp", "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}  # fmt: skip
BARE = {  # without .weight in a Hugging Face directory
    "layer_scalar": "layer_output_scale.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
}
WHOLE = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
}


def settings(config):
    types = config["layer_types"]
    full, shared = config["global_head_dim"], config["num_kv_shared_layers"]
    values = {
        "block_count": len(types),
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 1e4,
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "attention.key_length": full,
        "attention.value_length": full,
        "attention.key_length_swa": config["head_dim"],
        "attention.value_length_swa": config["head_dim"],
        "rope.dimension_count": full,
        "rope.dimension_count_swa": config["head_dim"],
        "attention.sliding_window": config["sliding_window"],
        "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in types],
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        "final_logit_softcapping": config["final_logit_softcapping"],
    }
    if config["use_double_wide_mlp"]:
        ffn = config["intermediate_size"]
        values["feed_forward_length"] = [ffn] * (len(types) - shared) + [2 * ffn] * shared
    if config["num_global_key_value_heads"]:
        counts = (config["num_key_value_heads"], config["num_global_key_value_heads"])
        values["attention.head_count_kv"] = [counts[kind == "full_attention"] for kind in types]
    if config.get("enable_moe_block"):
        values["expert_count"] = config["num_experts"]
        values["expert_used_count"] = config["top_k_experts"]
        values["expert_feed_forward_length"] = config["moe_intermediate_size"]
    return values


def renamed(name):
    parts = name.split(".")
    if parts[1] != "layers":
        return f"{WHOLE[parts[1]]}.weight"
    end = ".".join(parts[3:])
    return f"blk.{parts[2]}.{BARE.get(end) or LAYER[end.removesuffix('.weight')] + '.weight'}"


def write(directory, path, quantise=None, apart=False, frequencies=None, **changed):
    """changed: settings, whose dots are two underscores; None: left out. apart: gate and up of the experts are
    tensors of their own."""
    config = json.loads((directory / "config.json").read_text())
    writer = gguf.GGUFWriter(str(path), "gemma4")
    values = settings(config) | {key.replace("__", "."): value for key, value in changed.items()}
    for key, value in values.items():
        if isinstance(value, list):
            writer.add_array(f"gemma4.{key}", value)
        elif value is not None:
            add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)]
            add(f"gemma4.{key}", value)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    n = config["global_head_dim"] // 2
    factors = [1.0] * (n // 4) + [1e30] * (n - n // 4) if frequencies is None else frequencies
    if factors:
        writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))
    for name, (kind, shape, data) in hf.read_tensors(directory).items():
        array = np.frombuffer(data, np.uint16 if kind == "BF16" else np.float32).reshape(shape)
        floats = gguf_files.as_floats(kind, array)
        tensors = {renamed(name): floats}
        if apart and name.endswith("gate_up_proj"):
            halves = np.split(floats, 2, axis=1)
            tensors = {
                renamed(name).replace("gate_up", part): half.copy() for part, half in zip(("gate", "up"), halves)
            }
        for stored, values in tensors.items():
            if quantise and values.ndim > 1 and values.shape[-1] % 32 == 0 and "ffn_gate_inp" not in stored:
                writer.add_tensor(stored, gguf.quantize(values, quantise), raw_dtype=quantise)
            elif kind == "BF16" and values.ndim > 1 and "ffn_gate_inp" not in stored and not apart:
                writer.add_tensor(stored, array.view(np.uint8), raw_dtype=gguf_files.KINDS["BF16"])
            else:
                writer.add_tensor(stored, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


PRESETS = ("tiny-gemma4", "tiny-gemma4-e", "tiny-gemma4-moe")


@pytest.mark.parametrize("preset", PRESETS)
def test_the_file_gives_what_the_directory_gives(preset, tiny, convert, tmp_path):
    wanted, found = convert(tiny(preset)), convert(write(tiny(preset), tmp_path / "model.gguf"))
    assert found[0]["config"] == wanted[0]["config"] and hf.contents(found[1]) == hf.contents(wanted[1])
    assert "is not known" not in found[2]


def test_experts_in_two_tensors(tiny, convert, tmp_path):
    wanted = convert(tiny("tiny-gemma4-moe"), "--dtype", "fp32")
    found = convert(write(tiny("tiny-gemma4-moe"), tmp_path / "model.gguf", apart=True), "--dtype", "fp32")
    assert hf.contents(found[1]) == hf.contents(wanted[1])


@pytest.mark.parametrize("preset", PRESETS)
def test_blocks_without_loss(preset, tiny, convert, tmp_path):
    """Experts and what is looked up are taken apart as quants. Rows of 80 make no blocks."""
    path = write(tiny(preset), tmp_path / "model.gguf", gguf.GGMLQuantizationType.Q8_0)
    tensors, err = convert(path)[1:]
    kinds = {entry["dtype"] for name, (entry, _) in tensors.items() if not (".experts." in name and "down" in name)}
    assert kinds == {"fp32", "q8"} and "without loss" in err


REFUSED = {
    "gemma4.attention.sliding_window_pattern: expected true or false": dict(attention__sliding_window_pattern=None),
    "gemma4.attention.value_length is 32, expected 96": dict(attention__value_length=32),
    "gemma4.rope.dimension_count_swa is 24, expected 48": dict(rope__dimension_count_swa=24),
    "gemma4.attention.head_count_kv: found [2, 1, 1, 2, 2, 1], expected one": dict(
        attention__head_count_kv=[2, 1, 1, 2, 2, 1]
    ),
    "gemma4.feed_forward_length: found [352, 352, 352, 352, 352, 704]": dict(feed_forward_length=[352] * 5 + [704]),
    'gemma4.rope.scaling.type is "linear", which is not supported': dict(rope__scaling__type="linear"),
    "tensor 'rope_freqs.weight': expected 1 for the components": dict(frequencies=[1.0] * 12 + [2.0] * 36),
    "tensor 'rope_freqs.weight': expected": dict(frequencies=[]),
    "tensor 'rope_freqs.weight': expected 1": dict(frequencies=[1.0] * 12 + [1e30] * 12),
    "'rope_freqs.weight': expected 1 for the components": dict(frequencies=[1e30] * 24 + [1.0] * 24),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused(text, tiny, tmp_path, monkeypatch, capsys):
    path = write(tiny("tiny-gemma4"), tmp_path / "model.gguf", **REFUSED[text])
    code, _, err = hf.call(monkeypatch, capsys, path, tmp_path / "model.bin")
    assert code == 3 and text in err and "Traceback" not in err


def test_a_whole_head_may_rotate(tiny, convert, tmp_path):
    path = write(tiny("tiny-gemma4"), tmp_path / "model.gguf", frequencies=[1.0] * 48)
    assert convert(path)[0]["config"]["rope"] == {"type": "default", "theta": 1e6}
