"""tools/convert.py on directories that it must convert: what is in the file is what was in the directory."""

import json
import math

import hf
import numpy as np
import pytest
import safetensors.numpy

ELSEWHERE = ("tiny-qwen3_5", "tiny-qwen3-next", "tiny-gemma4", "tiny-lfm2")  # test_recurrent.py and others
ROWS = hf.random_hf_model.rows() | hf.random_hf_model.presets()  # tests/parity looks at their weights
ROWS |= hf.random_hf_model.random_hf_mamba.presets()
TINY = [name for name in hf.random_hf_model.PRESETS if name.startswith("tiny-") and not name.startswith(ELSEWHERE)]
TINY = [name for name in TINY if name not in ROWS]
SOURCE_DTYPE = {"fp32": "F32", "fp16": "F16", "bf16": "BF16"}


# ------------------------------------------------------------------------------------ an independent account of names and types


def stored_name(name, stored):
    """The Hugging Face name of a tensor of the model file; `stored` has those that there are."""
    whole = {"embedding": "model.embed_tokens.weight", "norm": "model.norm.weight", "classifier": "lm_head.weight"}
    if name in whole:
        return whole[name]
    _, layer, *rest = name.split(".")
    p = f"model.layers.{layer}."
    qwen = f"{p}mlp.gate.weight" in stored
    if rest[0] in ("q_norm", "k_norm"):
        return f"{p}self_attn.{rest[0]}.weight"
    if f"{p}self_attn.sinks" in stored and rest[0] in ("experts", "router", "router_bias", "sink_logits"):
        part, _, bias = rest[-1].partition("_")
        kind = bias or "weight"
        of = {"experts": f"mlp.experts.{rest[1]}.{part}.{kind}" if len(rest) > 1 else ""}
        return p + of.get(rest[0], "self_attn.sinks" if rest[0] == "sink_logits" else f"mlp.router.{kind}")
    if rest[0] == "shared":
        return f"{p}mlp.shared_experts.{rest[1]}_proj.weight"
    if rest[0] == "router_choice_bias":
        return f"{p}mlp.gate.e_score_correction_bias"
    if rest[0] == "router" and f"{p}block_sparse_moe.router.layer.weight" in stored:
        return f"{p}block_sparse_moe.router.layer.weight"
    if rest[0] == "experts" and qwen:
        return f"{p}mlp.experts.{rest[1]}.{rest[2]}_proj.weight"
    if rest[0] == "experts":
        return f"{p}block_sparse_moe.experts.{rest[1]}.{ {'gate': 'w1', 'down': 'w2', 'up': 'w3'}[rest[2]] }.weight"
    part, _, bias = rest[0].partition("_bias") if rest[0].endswith("_bias") else (rest[0], "", None)
    kind = "weight" if bias is None else "bias"
    around = f"{p}pre_feedforward_layernorm.weight" in stored
    if f"{p}post_mlp_layernorm.weight" in stored and rest[0].endswith("_norm"):
        names = {"attention_norm": "input", "attention_post_norm": "post_self_attn", "ffn_norm": "post_attention"}
        return f"{p}{names.get(rest[0], 'post_mlp')}_layernorm.weight"
    behind = f"{p}post_feedforward_layernorm.weight" in stored and not around
    special = {
        "attention_norm": "post_attention_layernorm" if behind else "input_layernorm",
        "attention_post_norm": "post_attention_layernorm",
        "ffn_norm": (
            "pre_feedforward_layernorm"
            if around
            else "post_feedforward_layernorm"
            if behind
            else "post_attention_layernorm"
        ),
        "ffn_post_norm": "post_feedforward_layernorm",
        "router": "mlp.gate" if qwen else "block_sparse_moe.gate",
    }
    return p + special.get(part, f"{'self_attn' if part in 'qkvo' else 'mlp'}.{part}_proj") + f".{kind}"


def split_rows(stored, config):
    """Matrices that a family stores as one, apart: q, k and v; gate and up."""
    kv = config["n_kv_heads"] * config["head_dim"]
    parts = {
        "self_attn.qkv_proj": {"q": config["n_heads"] * config["head_dim"], "k": kv, "v": kv},
        "mlp.gate_up_proj": {"gate": config["ffn_dim"], "up": config["ffn_dim"]},
    }
    found = {}
    for name, (dtype, shape, data) in stored.items():
        joined = next((joined for joined in parts if name.endswith(f"{joined}.weight")), None)
        if joined is None:
            found[name] = [dtype, shape, data]
            continue
        row, at = len(data) // shape[0], 0
        for part, rows in parts[joined].items():
            room = name.replace(joined.split(".")[1], f"{part}_proj")
            found[room] = [dtype, [rows, shape[1]], data[at : at + rows * row]]
            at += rows * row
        assert at == len(data)
    return found


def experts_apart(directory, stored):
    """Experts that stand in one tensor. Granite's gate comes before up; of gpt-oss columns are outputs, gate and up
    alternate, and there are biases."""
    c = json.loads((directory / "config.json").read_text())
    for name in [name for name in stored if c["model_type"] == "granitemoe" and "_linear." in name]:
        dtype, (n, rows, columns), data = stored.pop(name)
        parts = ("w1", "w3") if ".input_linear." in name else ("w2",)
        size = len(data) // n // len(parts)
        for i in range(n * len(parts)):
            expert = f"{name.rsplit('.', 2)[0]}.experts.{i // len(parts)}.{parts[i % len(parts)]}.weight"
            stored[expert] = [dtype, [rows // len(parts), columns], data[i * size : (i + 1) * size]]
    for name in [name for name in stored if ".mlp.experts." in name and c["model_type"] == "gpt_oss"]:
        dtype, shape, data = stored.pop(name)
        item = len(data) // math.prod(shape)
        array = np.frombuffer(data, {2: np.uint16, 4: np.uint32}[item]).reshape(shape)
        prefix, bias = name.rsplit(".", 1)[0], name.endswith("_bias")
        for e in range(shape[0]):
            matrix = array[e] if bias else array[e].T
            parts = {"down": matrix} if ".down_proj" in name else {"gate": matrix[::2], "up": matrix[1::2]}
            for part, rows in parts.items():
                kind = "bias" if bias else "weight"
                stored[f"{prefix}.{e}.{part}.{kind}"] = [dtype, list(rows.shape), np.ascontiguousarray(rows).tobytes()]
    return stored


def by_halves(directory, stored):
    """Rows of q and k, head by head, where components that rotate together lie half a head apart."""
    c = json.loads((directory / "config.json").read_text())
    d = c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
    rotary = int(d * c.get("partial_rotary_factor", 1))
    pair = (lambda i: (2 * i, 2 * i + 1)) if c["model_type"] == "glm4" else lambda i: (i, i + rotary // 2)
    places = [pair(i) for i in range(rotary // 2)] + [
        (rotary + i, (rotary + d) // 2 + i) for i in range((d - rotary) // 2)
    ]
    order = [first for first, _ in places] + [second for _, second in places]
    for name, entry in stored.items():
        if name.split(".")[-2] in ("q_proj", "k_proj", "q_norm", "k_norm") and entry[1][0] % d == 0:
            rows = np.frombuffer(entry[2], np.uint8).reshape(entry[1][0] // d, d, -1)
            entry[2] = rows[:, order].tobytes()
    return stored


def as_floats(dtype, data):
    if dtype in ("BF16", "bf16"):
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, "<f2" if dtype in ("F16", "fp16") else "<f4").astype(np.float32)


def check_same(directory, model, dtype=None):
    """Every weight of the directory is in the model, bit for bit or rounded to nearest even, and no other."""
    tensors = model[1]
    stored = experts_apart(directory, hf.read_tensors(directory))
    stored = by_halves(directory, split_rows(stored, model[0]["config"]))
    names = set(stored)
    source_config = json.loads((directory / "config.json").read_text())
    for name, (entry, data) in tensors.items():
        if name.startswith("tokenizer."):
            continue
        kind, shape, source = stored.pop(stored_name(name, names))
        if name == "norm" and "logits_scaling" in source_config:
            scaled = as_floats(kind, source) / np.float32(source_config["logits_scaling"])
            kind, source = "F32", scaled.tobytes()
        if name.endswith("norm") and source_config["model_type"].startswith("gemma"):
            kind, source = "F32", (as_floats(kind, source) + np.float32(1)).tobytes()
        assert entry["shape"] == shape
        exact = name.endswith(("norm", "_bias", "router", "sink_logits"))
        wanted = "fp32" if exact else dtype or {v: k for k, v in SOURCE_DTYPE.items()}[kind]
        assert entry["dtype"] == wanted, name
        if SOURCE_DTYPE[wanted] == kind:
            assert data == source, name
        else:
            rounded = hf.random_hf_model.encode(as_floats(kind, source), wanted)
            assert data == rounded.tobytes(), name
    assert not stored


# ------------------------------------------------------------------------------------ weights


@pytest.mark.parametrize("preset", TINY)
def test_every_architecture_option(preset, tiny, convert):
    directory = tiny(preset)
    metadata, tensors, err = convert(directory)
    check_same(directory, (metadata, tensors))
    source = json.loads((directory / "config.json").read_text())
    c = metadata["config"]
    assert c["architecture"] == source["architectures"][0]
    assert c["head_dim"] == source.get("head_dim", source["hidden_size"] // source["num_attention_heads"])
    window = (source.get("use_sliding_window", True) and source.get("sliding_window")) or 0
    assert window == next((kind["sliding_window"] for kind in c.get("kinds", [])), c["sliding_window"])
    named = ("num_local_experts", "num_experts", "n_routed_experts")
    assert c["n_experts"] == next((source[key] for key in named if key in source), 0)
    assert (c["bos"], c["eos"]) == (1, [2])
    assert metadata["tokenizer"] == {"type": "none"}
    assert f"convert.py: warning: {directory}: no tokenizer.json or tokenizer.model" in err
    assert metadata["source"]["name"] == preset


@pytest.mark.parametrize("stored", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("wanted", ["fp32", "fp16", "bf16"])
def test_every_pair_of_types(stored, wanted, tiny, convert):
    directory = tiny("tiny-bias", "--dtype", stored)
    metadata, tensors, _ = convert(directory, "--dtype", wanted, "--check-finite")
    check_same(directory, (metadata, tensors), wanted)


def test_bundled_model(convert):
    metadata, tensors, err = convert(hf.FABLE)
    check_same(hf.FABLE, (metadata, tensors))
    assert "warning" not in err
    assert metadata["config"]["bos"] == 1 and metadata["config"]["eos"] == [2]
    assert metadata["tokenizer"]["type"] == "spm"
    assert all(tensors[name][0]["length"] for name in tensors if name.startswith("tokenizer."))


def test_shards_equal_one_file(tiny, convert, tmp_path):
    one, many = tiny("tiny-mixtral"), tiny("tiny-mixtral", "--shard-gib", "0.0005")
    assert len(list(many.glob("*.safetensors"))) > 2 and not (many / "model.safetensors").exists()
    whole, shards = convert(one), convert(many)
    assert whole[1] == shards[1] and whole[0]["config"] == shards[0]["config"]


def test_files_of_the_safetensors_library(tiny, convert, tmp_path):
    source = tiny("tiny-bias", "--dtype", "fp16")
    directory = hf.copy(source, tmp_path / "tiny-bias_--dtype_fp16")
    tensors = safetensors.numpy.load_file(source / "model.safetensors")
    safetensors.numpy.save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    assert convert(directory)[:2] == convert(source)[:2]


def test_fused_experts_equal_separate_ones(tiny, convert, tmp_path):
    separate = tiny("tiny-mixtral")
    tensors, fused = hf.read_tensors(separate), {}
    for name, (dtype, shape, data) in tensors.items():
        if ".experts." not in name:
            fused[name.replace("block_sparse_moe", "mlp")] = [dtype, shape, data]
    config = json.loads((separate / "config.json").read_text())
    experts, ffn, dim = config["num_local_experts"], config["intermediate_size"], config["hidden_size"]
    for n in range(config["num_hidden_layers"]):
        old, new = f"model.layers.{n}.block_sparse_moe.experts.", f"model.layers.{n}.mlp.experts."
        gate_up = b"".join(tensors[f"{old}{e}.{w}.weight"][2] for e in range(experts) for w in ("w1", "w3"))
        down = b"".join(tensors[f"{old}{e}.w2.weight"][2] for e in range(experts))
        fused[new + "gate_up_proj"] = ["BF16", [experts, 2 * ffn, dim], gate_up]
        fused[new + "down_proj"] = ["BF16", [experts, dim, ffn], down]
    other = hf.copy(separate, tmp_path / "tiny-mixtral")
    hf.write_tensors(other / "model.safetensors", fused)
    assert convert(other)[:2] == convert(separate)[:2]


def test_mixed_types_stay_and_are_said(tiny, convert, tmp_path):
    directory = hf.copy(tiny("tiny-gqa"), tmp_path / "mixed")
    tensors = hf.read_tensors(directory)
    dtype, shape, data = tensors["model.embed_tokens.weight"]
    tensors["model.embed_tokens.weight"] = ["F32", shape, as_floats(dtype, data).tobytes()]
    hf.write_tensors(directory / "model.safetensors", tensors)
    metadata, converted, err = convert(directory)
    check_same(directory, (metadata, converted))
    assert "stored as bf16 and fp32, and stay so" in err
    assert convert(directory, "--dtype", "bf16")[1]["embedding"][1] == data


def test_tensors_that_say_nothing_new_are_left_out(tiny, convert, tmp_path):
    directory = hf.copy(tiny("tiny-gqa"), tmp_path / "more")
    before = convert(directory)[1]
    tensors = hf.read_tensors(directory)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = ["F32", [16], bytes(64)]
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    hf.write_tensors(directory / "model.safetensors", tensors)
    assert convert(directory)[1] == before


def test_a_classifier_may_be_the_embeddings_copy_in_another_type(tiny, convert, tmp_path):
    directory = hf.copy(tiny("tiny-gqa"), tmp_path / "copy")
    before = convert(directory)[1]
    tensors = hf.read_tensors(directory)
    dtype, shape, data = tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = ["F32", shape, as_floats(dtype, data).tobytes()]
    hf.write_tensors(directory / "model.safetensors", tensors)
    assert convert(directory)[1] == before


@pytest.mark.parametrize("preset", ["tiny-gqa", "tiny-seed-oss"])
def test_the_type_alone_may_name_the_architecture(preset, tiny, convert, tmp_path):
    directory = hf.copy(tiny(preset), tmp_path / preset)
    hf.edit_json(directory / "config.json", architectures=...)
    assert convert(directory)[:2] == convert(tiny(preset))[:2]


def test_an_index_may_say_more_and_less_than_is_needed(tiny, convert, tmp_path):
    """Tied classifiers and what follows from config.json are listed by some indices and not by others."""
    source = tiny("tiny-gqa", "--shard-gib", "0.0005")
    before = convert(source)[1]
    directory = hf.copy(source, tmp_path / "listed")
    index = directory / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    file = next(iter(places.values()))
    more = {"lm_head.weight": file, "model.layers.0.self_attn.rotary_emb.inv_freq": file}
    hf.edit_json(index, weight_map={**places, **more})
    assert convert(directory)[1] == before
    tensors = hf.read_tensors(directory / file)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = ["F32", [16], bytes(64)]
    hf.write_tensors(directory / file, tensors)
    hf.edit_json(index, weight_map=places)
    assert convert(directory)[1] == before


WHOLES = [
    ("tiny-window", "Mistral3ForConditionalGeneration", "mistral", "language_model.model.", "language_model.lm_head."),
    ("tiny-qwen3", "Qwen3VLForConditionalGeneration", "qwen3_vl_text", "model.language_model.", "lm_head."),
    (
        "tiny-gemma3",
        "Gemma3ForConditionalGeneration",
        "gemma3_text",
        "language_model.model.",
        "language_model.lm_head.",
    ),
    ("tiny-qwen2", "Qwen2VLForConditionalGeneration", "qwen2_vl_text", "model.language_model.", "lm_head."),
    ("tiny-qwen2", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "model.", "lm_head."),
    (
        "tiny-deepseek-v3",
        "KimiK25ForConditionalGeneration",
        "kimi_k2",
        "language_model.model.",
        "language_model.lm_head.",
    ),
    ("tiny-llama", "LlavaForConditionalGeneration", "llama", "language_model.model.", "language_model.lm_head."),
]


@pytest.mark.parametrize(("preset", "whole", "kind", "prefix", "head"), WHOLES, ids=[w[1] for w in WHOLES])
def test_the_text_part_of_a_model_that_sees(preset, whole, kind, prefix, head, tiny, convert, tmp_path):
    plain = tiny(preset)
    directory = tmp_path / preset
    directory.mkdir()
    text = json.loads((plain / "config.json").read_text())
    tied = text.pop("tie_word_embeddings")
    del text["architectures"]
    text["model_type"] = kind
    if kind == "qwen3_vl_text":
        text["rope_parameters"] = {"rope_type": "default", "mrope_section": [4, 4, 4]}
    if kind.startswith("qwen2"):
        text["rope_scaling"] = {"type": "mrope", "mrope_section": [4, 4, 4]}
    inner = text if prefix == "model." else {"model_type": "x", "text_config": text}  # older files have all in one
    config = {
        **inner,
        "architectures": [whole],
        "vision_config": {},
        "tie_word_embeddings": tied,
    }
    (directory / "config.json").write_text(json.dumps(config))
    tensors = {}
    for name, tensor in hf.read_tensors(plain).items():
        name = name.replace("lm_head.", head) if name.startswith("lm_head.") else prefix + name.removeprefix("model.")
        tensors[name] = tensor
    tensors[f"{'' if inner is text else 'model.'}visual.patch_embed.weight"] = ["F32", [4], bytes(16)]
    hf.write_tensors(directory / "model.safetensors", tensors)
    metadata, converted, err = convert(directory)
    expected = convert(plain)
    assert converted == expected[1] and metadata["config"] == expected[0]["config"]
    assert "the part that reads text is converted; 1 tensors of the others are left out" in err


def test_links_that_the_user_allows(tiny, convert, tmp_path):
    source = tiny("tiny-gqa")
    directory = tmp_path / "tiny-gqa"
    directory.mkdir()
    for file in source.iterdir():
        (directory / file.name).symlink_to(file)
    assert convert(directory, "--follow-links")[:2] == convert(source)[:2]


def test_links_of_hugging_faces_cache(tiny, convert, tmp_path):
    repository = tmp_path / "models--someone--tiny"
    snapshot, blobs = repository / "snapshots" / "0123abcd", repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for i, file in enumerate(sorted(tiny("tiny-gqa").iterdir())):
        (blobs / str(i)).write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(f"../../blobs/{i}")
    assert convert(snapshot)[0]["source"]["name"] == "someone/tiny"
