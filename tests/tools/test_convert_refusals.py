"""What tools/convert.py must not convert: one line that names the file and the thing, the exit code, and nothing written."""

import json
import os
import struct

import hf
import numpy as np
import pytest

BAD_MODEL = 3
Q = "model.layers.0.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    home = tmp_path_factory.mktemp("bases")
    names = {"llama": "tiny-gqa", "mistral": "tiny-window", "mixtral": "tiny-mixtral"}
    names |= {"qwen2": "tiny-qwen2", "qwen3_moe": "tiny-qwen3-moe", "phi3": "tiny-phi3", "smollm3": "tiny-smollm3"}
    names |= {name: f"tiny-{name}" for name in ("gemma2", "gemma3", "olmo3", "gpt-oss", "glm4-moe")}
    names |= {"granite": "tiny-granite", "ministral3": "tiny-ministral3", "qwen3": "tiny-qwen3"}
    names |= {name.removeprefix("tiny-"): name for name in hf.random_hf_model.rows()} | {"gemma": "tiny-gemma"}
    made = {name: hf.make(preset, home / name) for name, preset in names.items()}
    made["sharded"] = hf.make("tiny-gqa", home / "sharded", "--shard-gib", "0.0005")
    return made


@pytest.fixture
def directory(bases, tmp_path):
    """directory(base) -> a copy to break."""
    return lambda base="llama": hf.copy(bases[base], tmp_path / "model")


@pytest.fixture
def refused(monkeypatch, capsys, tmp_path):
    """refused(directory, text, *options): exit code 3, one line that holds `text`, nothing written."""

    def check(directory, *texts, options=(), code=BAD_MODEL):
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        found, stdout, err = hf.call(monkeypatch, capsys, directory, out / "model.bin", *options)
        lines = [line for line in err.splitlines() if not line.startswith("convert.py: warning: ")]
        assert (found, stdout) == (code, ""), err
        assert len(lines) == 1 and lines[0].startswith("convert.py: "), err
        for text in texts:
            assert text in lines[0]
        assert os.listdir(out) == []

    return check


# ------------------------------------------------------------------------------------ config.json

YARN = {"rope_type": "yarn", "factor": 4.0}
CONFIGS = [
    # base, changes, what the message says
    ("llama", {"architectures": ["FalconForCausalLM"]}, 'architectures: ["FalconForCausalLM"] is not supported'),
    (
        "llama",
        {"architectures": ..., "model_type": "xlnet"},
        "architectures: nothing is not supported: README.md lists those that are",
    ),
    ("llama", {"architectures": ["DeepseekV3ForCausalLM"]}, "is not supported: yalm lacks latent attention (MLA)"),
    ("llama", {"architectures": ["GraniteMoeHybridForCausalLM"]}, "is not supported: yalm lacks Mamba's recurrence"),
    ("llama", {"architectures": ["Ernie4_5_MoeForCausalLM"]}, "yalm lacks a bias beside the softmax that chooses experts"),
    ("llama", {"architectures": ["NoSuchForCausalLM"]}, "is not supported: README.md lists those that are"),
    ("llama", {"architectures": ["LlamaForCausalLM"] * 2}, "is not supported"),
    ("llama", {"architectures": [["LlamaForCausalLM"]]}, "is not supported"),
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
    ("qwen3_moe", {"mlp_only_layers": [0, 1, 2, 3]}, "leave no layer with experts"),
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
    ("ernie4_5", {"use_bias": 1}, "attention_bias: found 1, expected true or false"),
    ("ernie4_5", {"attention_bias": False}, "use_bias is true, but attention_bias is false"),
    ("seed-oss", {"attention_bias": False, "attention_out_bias": True}, "attention_out_bias is true without attention_bias"),
    ("granite-swa", {"layer_rope_theta": [1e4] * 3}, "10000.0, 10000.0], expected a number for each of 4 layers"),
    ("granite-swa", {"layer_rope_theta": [0, 1e4, 1e5, 0]}, "in layers of sliding_attention, expected one number"),
    ("granite-swa", {"layer_rope_theta": [0, True, 1e5, 0]}, "layer_rope_theta: found [0, true, 100000.0, 0], expected"),
    ("minimax-m2", {"use_qk_norm": False}, "use_qk_norm: found false, expected true"),
    ("minimax-m2", {"rotary_dim": 34}, "rotary_dim: found 34, expected an integer from 2 to 32"),
    ("mellum", {"mlp_layer_types": ["sparse"] * 3}, "expected 'dense' or 'sparse' for each of 4 layers"),
    ("dots1", {"n_routed_experts": None}, "n_routed_experts: found nothing, expected an integer"),
    ("qwen2-moe", {"use_sliding_window": True}, "use_sliding_window is true, which Qwen2MoeForCausalLM does not have"),
    ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention is true, which is not supported"),
    ("gemma2", {"hidden_activation": "gelu"}, 'hidden_activation: activation "gelu" is not supported, expected'),
    ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar: found 0, expected a number from 0.001"),
    ("gemma2", {"attn_logit_softcapping": -1}, "attn_logit_softcapping: found -1, expected a number"),
    ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50, which transformers leaves out"),
    ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention is true, which is not supported"),
    ("gemma3", {"rope_parameters": {"rope_theta": 1e6}}, 'rope_parameters: found "rope_theta", expected'),
    ("gemma3", {"sliding_window": None}, "expected 'full_attention' for every layer"),
    ("olmo3", {"layer_types": ["full_attention"]}, "expected 'full_attention' or 'sliding_attention' for each of 4 layers"),
    ("glm4-moe", {"n_group": 2}, "n_group is 2: choosing among groups of experts is not supported"),
    ("glm4-moe", {"first_k_dense_replace": 3}, "leave no layer with experts"),
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


# ------------------------------------------------------------------------------------ *.safetensors


def without(tensors, name):
    del tensors[name]


def add(tensors, name):
    tensors[name] = ["BF16", [2], bytes(4)]


def reshape(tensors, name):
    tensors[name][1] = list(reversed(tensors[name][1]))


@pytest.mark.parametrize(
    ("base", "change", "name", "text"),
    [
        ("llama", without, Q, f'tensor "{Q}" is missing, expected one of shape [128, 128]'),
        ("llama", without, "model.norm.weight", 'tensor "model.norm.weight" is missing'),
        ("mixtral", without, "model.layers.2.block_sparse_moe.experts.3.w2.weight", "experts.3.w2.weight\" is missing"),
        ("llama", add, "model.layers.0.self_attn.q_proj.bias", "is not known, or not called for by config.json"),
        ("llama", add, "model.layers.3.mlp.up_proj.weight", "is not known, or not called for by config.json"),
        ("llama", add, 'bad\n"name', r'tensor "bad\n\"name" is not known'),
        ("llama", reshape, "model.layers.0.mlp.up_proj.weight", "found shape [128, 352], expected [352, 128]"),
    ],
)  # fmt: skip
def test_tensors(base, change, name, text, directory, refused):
    broken = directory(base)
    tensors = hf.read_tensors(broken)
    change(tensors, name)
    hf.write_tensors(broken / "model.safetensors", tensors)
    refused(broken, text)


def test_head_that_is_not_the_embedding(directory, refused):
    broken = directory()
    tensors = hf.read_tensors(broken)
    dtype, shape, data = tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = [dtype, shape, data[:-1] + bytes([data[-1] ^ 1])]
    hf.write_tensors(broken / "model.safetensors", tensors)
    refused(broken, "tie_word_embeddings is true, but tensor 'lm_head.weight' is not the embedding's copy")


def header_with(**changes):
    return lambda header: dict(header, **{Q: dict(header[Q], **changes)})


def duplicate(header):
    text = json.dumps(header)
    return (text[:-1] + f', "{Q}": ' + json.dumps(header[Q]) + "}").encode()


def moved(by):
    return lambda header: header_with(data_offsets=[n + by for n in header[Q]["data_offsets"]])(header)


@pytest.mark.parametrize(
    ("lie", "text"),
    [
        (
            header_with(dtype="F8_E5M2"),
            f'tensor "{Q}": type "F8_E5M2" is not supported, expected one of F32, F16, BF16',
        ),
        (header_with(dtype="F64"), 'type "F64" is not supported'),
        (
            header_with(dtype="I8", shape=[128, 256]),
            f'tensor "{Q}": type "I8" is not supported, expected one of F32, F16, BF16',
        ),
        (header_with(dtype=["F32"]), 'type ["F32"] is not supported'),
        (header_with(dtype="F32"), "32768 bytes, but shape [128, 128] of F32 has 65536"),
        (header_with(shape=[2**40, 2**40]), "32768 bytes, but shape [1099511627776, 1099511627776] of BF16 has"),
        (header_with(shape=[-128, -128]), "expected sizes and begin <= end"),
        (header_with(shape=[128.0, 128]), "expected sizes and begin <= end"),
        (header_with(shape=[True, 16384]), "expected sizes and begin <= end"),
        (header_with(data_offsets=[5, 3]), "expected sizes and begin <= end"),
        (header_with(data_offsets=[0]), "expected sizes and begin <= end"),
        (header_with(more=1), "expected dtype, shape and data_offsets"),
        (moved(-64), f'tensor "{Q}" overlaps the one before it'),
        (moved(64), f'tensor "{Q}" leaves a gap before it'),
        (moved(1 << 40), "leaves a gap before it"),
        (duplicate, f'header: duplicate key "{Q}"'),
        (lambda header: b"{" * 9, "header: not JSON"),
        (lambda header: b"\xff\xfe", "header: not UTF-8"),
        (lambda header: dict(header, x=5), 'tensor "x": found 5, expected dtype, shape and data_offsets'),
    ],
)
def test_header(lie, text, directory, refused):
    broken = directory()
    tensors = hf.read_tensors(broken)
    hf.write_tensors(broken / "model.safetensors", tensors, lie(hf.header_of(tensors)))
    refused(broken, "model.safetensors", text)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda data: b"", "0 bytes: not a safetensors file, or truncated"),
        (lambda data: data[:5], "5 bytes: not a safetensors file, or truncated"),
        (lambda data: data[:40], "truncated: header of"),
        (lambda data: data[:-1], "truncated: tensor"),
        (lambda data: data[: len(data) // 2], "truncated: tensor"),
        (lambda data: data + b"\0", "something follows the last tensor"),
        (lambda data: bytes(8) + data[8:], "header of 0 bytes, expected 2 to"),
        (lambda data: struct.pack("<Q", 2**64 - 1) + data[8:], "header of 18446744073709551615 bytes, expected 2 to"),
        (lambda data: b"<!DOCTYPE html><html></html>", "a web page, not a safetensors file"),
        (lambda data: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a git-lfs pointer"),
    ],
)
def test_file(change, text, directory, refused):
    broken = directory()
    path = broken / "model.safetensors"
    path.write_bytes(change(path.read_bytes()))
    refused(broken, "model.safetensors", text)


# ------------------------------------------------------------------------------------ which files


def test_pickles(directory, refused):
    broken = directory()
    (broken / "model.safetensors").rename(broken / "pytorch_model.bin")
    refused(broken, 'no *.safetensors, only "pytorch_model.bin": pickle files can run programs and are not read')


def test_no_weights(directory, refused):
    broken = directory()
    (broken / "model.safetensors").unlink()
    refused(broken, "no *.safetensors files")


def test_several_files_without_index(directory, refused):
    broken = directory("sharded")
    (broken / "model.safetensors.index.json").unlink()
    refused(broken, "*.safetensors files, but no model.safetensors.index.json")


def test_missing_shard(directory, refused):
    broken = directory("sharded")
    shard = sorted(broken.glob("*.safetensors"))[1]
    shard.unlink()
    refused(broken, f'shard "{shard.name}" is missing')


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("../model/model.safetensors", "leaves the model's directory"),
        ("sub/../../x.safetensors", "leaves the model's directory"),
        ("/etc/passwd", "leaves the model's directory"),
        ("C:\\x.safetensors", "leaves the model's directory"),
        ("..\\x.safetensors", "leaves the model's directory"),
        ("absent.safetensors", 'shard "absent.safetensors" is missing'),
        ("x\0y", "expected a file's name"),
        (5, "is in 5, expected a file's name"),
        ("", "expected a file's name"),
    ],
)
def test_index_paths(file, text, directory, refused):
    broken = directory("sharded")
    index = broken / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    hf.edit_json(index, weight_map=dict(places, **{Q: file}))
    refused(broken, "model.safetensors.index.json", text)


@pytest.mark.parametrize("places", [None, {}, [], "x"])
def test_index_without_places(places, directory, refused):
    broken = directory("sharded")
    hf.edit_json(broken / "model.safetensors.index.json", weight_map=places)
    refused(broken, "as weight_map, expected an object")


def test_index_that_is_wrong_about_a_shard(directory, refused):
    broken = directory("sharded")
    index = broken / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    other = next(file for file in places.values() if file != places[Q])
    hf.edit_json(index, weight_map=dict(places, **{Q: other}))
    refused(broken, f'tensor "{Q}" is here, but the index has it in "{other}"')


def test_index_that_names_what_is_needed_and_not_there(directory, refused):
    broken = directory("sharded")
    index = broken / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    file = places[Q]
    tensors = hf.read_tensors(broken / file)
    del tensors[Q]
    hf.write_tensors(broken / file, tensors)
    refused(broken, f'{file}: tensor "{Q}" is missing, where the index has it, expected one of shape [128, 128]')
    hf.edit_json(index, weight_map={name: place for name, place in places.items() if name != Q})
    refused(broken, f'model: tensor "{Q}" is missing, expected one of shape [128, 128]')


KINDS = [
    (
        "adapter_config.json",
        '{"base_model_name_or_path": "x/y"}',
        'an adapter (LoRA) for "x/y", not a model: give that',
    ),
    ("params.json", "{}", "a model in the form of its maker (Mistral or Meta)"),
    ("model-q4.gguf", "", "GGUF files without config.json"),
    ("notes.txt", "", "no config.json: not a Hugging Face model directory"),
]


@pytest.mark.parametrize(("name", "text", "says"), KINDS)
def test_directories_of_other_kinds(name, text, says, directory, refused):
    broken = directory()
    (broken / "config.json").unlink()
    (broken / name).write_text(text)
    refused(broken, says)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "generation_config.json"])
def test_links_that_leave_the_directory(name, directory, refused, tmp_path):
    broken = directory()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes((broken / name).read_bytes() if (broken / name).exists() else b"{}")
    (broken / name).unlink(missing_ok=True)
    (broken / name).symlink_to(elsewhere)
    refused(broken, f"{name}: a symbolic link that leaves the model's directory", "--follow-links allows it")
    elsewhere.unlink()
    refused(broken, f"{name}: a symbolic link to a file that is missing")


# ------------------------------------------------------------------------------------ values


def with_value(broken, name, value, dtype="F32"):
    """Puts `value` into a tensor, which becomes of type `dtype`."""
    tensors = hf.read_tensors(broken)
    count = len(tensors[name][2]) // hf.ITEM_SIZE[tensors[name][0]]
    values = np.zeros(count, np.float32)
    values[count // 3] = value
    kind = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}[dtype]
    tensors[name] = [dtype, tensors[name][1], hf.random_hf_model.encode(values, kind).tobytes()]
    hf.write_tensors(broken / "model.safetensors", tensors)


@pytest.mark.parametrize("name", [Q, "model.norm.weight"])
@pytest.mark.parametrize("dtype", ["F32", "F16"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_check_finite(name, dtype, value, directory, refused, monkeypatch, capsys, tmp_path):
    broken = directory()
    with_value(broken, name, value, dtype)
    refused(broken, f'tensor "{name}" has a value that is NaN or infinite', options=["--check-finite"])
    for options in ([], ["--dtype", "fp16"]):
        assert hf.call(monkeypatch, capsys, broken, tmp_path / "model.bin", *options)[0] == 0


@pytest.mark.parametrize(
    ("value", "dtype", "wanted", "fits"),
    [
        (65519, "F32", "fp16", True),
        (65520, "F32", "fp16", False),
        (-1e6, "BF16", "fp16", False),
        (65280, "BF16", "fp16", True),
        (3.4e38, "F32", "bf16", False),
        (3.38e38, "F32", "bf16", True),
        (65504, "F16", "bf16", True),
    ],
)
def test_overflow(value, dtype, wanted, fits, directory, refused, monkeypatch, capsys, tmp_path):
    broken = directory()
    with_value(broken, Q, value, dtype)
    if fits:
        assert hf.call(monkeypatch, capsys, broken, tmp_path / "model.bin", "--dtype", wanted)[0] == 0
    else:
        refused(broken, f'tensor "{Q}": value', f"does not fit in {wanted}", options=["--dtype", wanted])


def test_norms_never_overflow(directory, monkeypatch, capsys, tmp_path):
    good = directory()
    with_value(good, "model.norm.weight", 1e6)
    assert hf.call(monkeypatch, capsys, good, tmp_path / "model.bin", "--dtype", "fp16")[0] == 0


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
