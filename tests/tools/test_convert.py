"""tools/convert.py on directories that it must convert: what is in the file is what was in the directory."""

import json
import math

import hf
import numpy as np
import pytest
import safetensors.numpy

TINY = [name for name in hf.random_hf_model.PRESETS if name.startswith("tiny-")]
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
    """Experts that stand in one tensor. Granite's gate comes before up; of gpt-oss columns are outputs, gate and up alternate, and there are biases."""
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
]


@pytest.mark.parametrize(("preset", "whole", "kind", "prefix", "head"), WHOLES, ids=[w[1] for w in WHOLES])
def test_the_text_part_of_a_model_that_sees(preset, whole, kind, prefix, head, tiny, convert, tmp_path):
    plain = tiny(preset)
    directory = tmp_path / preset
    directory.mkdir()
    text = json.loads((plain / "config.json").read_text())
    del text["architectures"], text["tie_word_embeddings"]
    text["model_type"] = kind
    if kind == "qwen3_vl_text":
        text["rope_parameters"] = {"rope_type": "default", "mrope_section": [4, 4, 4]}
    config = {
        "architectures": [whole],
        "model_type": "x",
        "text_config": text,
        "vision_config": {},
        "tie_word_embeddings": True,
    }
    (directory / "config.json").write_text(json.dumps(config))
    tensors = {}
    for name, tensor in hf.read_tensors(plain).items():
        name = name.replace("lm_head.", head) if name.startswith("lm_head.") else prefix + name.removeprefix("model.")
        tensors[name] = tensor
    tensors["model.visual.patch_embed.weight"] = ["F32", [4], bytes(16)]
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


# ------------------------------------------------------------------------------------ configuration


def config_of(convert, directory, **changes):
    hf.edit_json(directory / "config.json", **changes)
    return convert(directory)[0]["config"]


def rope_of(convert, directory, **changes):
    return config_of(convert, directory, **changes)["rope"]


@pytest.fixture
def plain(tiny, tmp_path):
    return hf.copy(tiny("tiny-gqa"), tmp_path / "plain")


@pytest.mark.parametrize("preset", ["tiny-gqa", "tiny-linear-rope", "tiny-llama3rope", "tiny-yarn"])
def test_spellings_of_rope_are_equal(preset, tiny, convert, tmp_path):
    directory = hf.copy(tiny(preset), tmp_path / preset)
    wanted = rope_of(convert, directory)
    source = json.loads((directory / "config.json").read_text())
    scaling = source.get("rope_scaling") or {"rope_type": "default"}
    legacy = {"type" if k == "rope_type" else k: v for k, v in scaling.items()}
    newer = dict(scaling, rope_theta=source["rope_theta"])
    assert rope_of(convert, directory, rope_scaling=legacy) == wanted
    assert rope_of(convert, directory, rope_scaling=..., rope_theta=..., rope_parameters=newer) == wanted


def test_yarn_as_transformers_resolves_it(plain, convert):
    yarn = {"rope_type": "yarn", "factor": 4.0}
    rope = rope_of(convert, plain, rope_scaling=yarn)
    assert rope["attention_factor"] == pytest.approx(0.1 * math.log(4) + 1)
    assert (rope["beta_fast"], rope["beta_slow"], rope["truncate"], rope["original_context"]) == (32, 1, True, 256)
    rope = rope_of(
        convert, plain, rope_scaling=dict(yarn, mscale=0.7, mscale_all_dim=1.1, truncate=False, beta_fast=16)
    )
    assert rope["attention_factor"] == pytest.approx((0.07 * math.log(4) + 1) / (0.11 * math.log(4) + 1))
    assert (rope["beta_fast"], rope["truncate"]) == (16, False)
    assert rope_of(convert, plain, rope_scaling=dict(yarn, attention_factor=1.5))["attention_factor"] == 1.5
    rope = rope_of(convert, plain, rope_scaling={"rope_type": "yarn", "original_max_position_embeddings": 64})
    assert rope["factor"] == 4


def test_missing_keys_have_transformers_values(tiny, convert, tmp_path):
    llama = hf.copy(tiny("tiny-llama"), tmp_path / "llama")
    absent = {
        k: ... for k in ("rope_theta", "rms_norm_eps", "num_key_value_heads", "tie_word_embeddings", "hidden_act")
    }
    c = config_of(convert, llama, max_position_embeddings=..., head_dim=None, **absent)
    assert (c["rope"]["theta"], c["norm_eps"], c["n_kv_heads"]) == (10000, 1e-6, 4)
    assert (c["context_length"], c["tied_embeddings"], c["head_dim"]) == (2048, False, 32)
    mistral = hf.copy(tiny("tiny-window"), tmp_path / "mistral")
    c = config_of(convert, mistral, sliding_window=..., rope_theta=..., max_position_embeddings=...)
    assert (c["sliding_window"], c["rope"]["theta"], c["context_length"]) == (4096, 10000, 131072)
    assert config_of(convert, mistral, sliding_window=None)["sliding_window"] == 0
    mixtral = hf.copy(tiny("tiny-mixtral"), tmp_path / "mixtral")
    c = config_of(convert, mixtral, rope_theta=..., sliding_window=..., num_experts_per_tok=...)
    assert (c["rope"]["theta"], c["sliding_window"], c["n_active_experts"]) == (1e6, 0, 2)


def test_windows_that_are_off(plain, tiny, convert, tmp_path):
    """Settings of other families that many tools leave in config.json."""
    c = config_of(convert, plain, use_sliding_window=False, sliding_window=None, max_window_layers=28)
    assert c["sliding_window"] == 0
    qwen = hf.copy(tiny("tiny-qwen2"), tmp_path / "qwen")
    assert config_of(convert, qwen, sliding_window=..., use_sliding_window=...)["sliding_window"] == 0
    assert (
        config_of(convert, qwen, use_sliding_window=True, sliding_window=9, max_window_layers=3)["sliding_window"] == 0
    )
    assert config_of(convert, qwen, max_window_layers=0)["sliding_window"] == 9
    hf.edit_json(qwen / "config.json", max_window_layers=1, sliding_window=256)
    metadata, _, err = convert(qwen)
    assert metadata["config"]["sliding_window"] == 0 and "no less than the context: left out" in err


def test_facts_of_later_families(tiny, convert, tmp_path):
    later = ("qkv_bias", "qk_norm", "expert_ffn_dim", "dense_layers", "raw_expert_weights", "unrotated_layers")
    later += ("attention_scale", "embedding_scale", "norms_after", "whole_qk_norm", "query_growth")
    later += ("norms_around", "attention_softcap", "logits_softcap", "router_bias", "sink_logits")
    later += ("sigmoid_router", "expert_scale", "shared_ffn_dim")
    facts = {}
    for preset in (
        "tiny-gqa",
        "tiny-qwen2",
        "tiny-qwen3",
        "tiny-qwen3-moe",
        "tiny-phi3",
        "tiny-smollm3",
        "tiny-granite",
        "tiny-olmo2",
        "tiny-ministral3",
        "tiny-glm4",
        "tiny-glm4-moe",
        "tiny-granite-moe",
        "tiny-gpt-oss",
        "tiny-olmo3",
        "tiny-gemma2",
        "tiny-gemma3",
    ):
        metadata, _, err = convert(tiny(preset))
        assert "warning" not in err.replace("model will take token ids only", "").replace("convert.py: warning", "", 1)
        facts[preset] = {key: metadata["config"][key] for key in later if key in metadata["config"]}
    assert facts == {
        "tiny-gqa": {},
        "tiny-qwen2": {"qkv_bias": True},
        "tiny-qwen3": {"qk_norm": True},
        "tiny-qwen3-moe": {"qk_norm": True, "expert_ffn_dim": 80, "dense_layers": [1]},
        "tiny-phi3": {},
        "tiny-smollm3": {"unrotated_layers": [1]},
        "tiny-ministral3": {"query_growth": 0.3},
        "tiny-olmo2": {"norms_after": True, "whole_qk_norm": True},
        "tiny-gpt-oss": {"router_bias": True, "sink_logits": True},
        "tiny-granite-moe": {"attention_scale": 0.03, "embedding_scale": 12 / 0.22},
        "tiny-glm4-moe": {
            "qkv_bias": True,
            "qk_norm": True,
            "expert_ffn_dim": 80,
            "dense_layers": [0],
            "sigmoid_router": True,
            "expert_scale": 1.5,
            "shared_ffn_dim": 80,
        },
        "tiny-glm4": {"norms_around": True, "qkv_bias": True},
        "tiny-olmo3": {"norms_after": True, "whole_qk_norm": True},
        "tiny-gemma2": {
            "attention_softcap": 2,
            "logits_softcap": 3,
            "norms_around": True,
            "embedding_scale": 128**0.5,
        },
        "tiny-gemma3": {
            "norms_around": True,
            "qk_norm": True,
            "embedding_scale": 128**0.5,
            "attention_scale": 40**-0.5,
        },
        "tiny-granite": {"attention_scale": 0.03, "embedding_scale": 12 / 0.22},
    }
    other = hf.copy(tiny("tiny-qwen3-moe"), tmp_path / "moe")
    assert config_of(convert, other, norm_topk_prob=...)["raw_expert_weights"] is True
    assert config_of(convert, other, num_local_experts=6, num_experts=...)["n_experts"] == 6
    other = hf.copy(tiny("tiny-smollm3"), tmp_path / "smollm3")
    assert config_of(convert, other, no_rope_layers=None)["unrotated_layers"] == [3]
    assert config_of(convert, other, no_rope_layer_interval=2)["unrotated_layers"] == [1, 3]
    assert "unrotated_layers" not in config_of(convert, other, no_rope_layer_interval=5)


def test_heads_that_rotate_in_part(tiny, convert, tmp_path):
    phi = hf.copy(tiny("tiny-phi4-mini"), tmp_path / "phi")
    rope = rope_of(convert, phi)
    assert (rope["type"], rope["rotary_dim"], len(rope["short_factors"]), rope["original_context"]) == (
        "longrope",
        24,
        12,
        64,
    )
    assert rope["attention_factor"] == pytest.approx(math.sqrt(1 + math.log(4) / math.log(64)))
    factors = {"short_factor": [1] * 16, "long_factor": [2.5] * 16}
    for name in ("su", "yarn", "longrope"):
        rope = rope_of(
            convert, phi, partial_rotary_factor=..., rope_scaling={"type": name, "attention_factor": 1.5, **factors}
        )
        assert (rope["type"], rope["attention_factor"], rope["long_factors"]) == ("longrope", 1.5, [2.5] * 16)
        assert "rotary_dim" not in rope
    glm = hf.copy(tiny("tiny-glm4"), tmp_path / "glm4")
    assert rope_of(convert, glm, partial_rotary_factor=...)["rotary_dim"] == 20
    assert "rotary_dim" not in rope_of(convert, glm, partial_rotary_factor=1.0)
    assert "qkv_bias" in config_of(convert, glm, attention_bias=...)


def test_layers_of_two_kinds(tiny, convert, tmp_path):
    plain, scaled = {"type": "default", "theta": 10000}, {"type": "linear", "theta": 1e6, "factor": 4}
    gemma = hf.copy(tiny("tiny-gemma3"), tmp_path / "gemma3")
    c = config_of(convert, gemma)
    assert (c["sliding_window"], c["rope"]) == (0, scaled)
    assert c["kinds"] == [{"layers": [0, 1, 3], "sliding_window": 24, "rope": plain}]
    # By the pattern alone; of its own value where there is none.
    c = config_of(convert, gemma, layer_types=..., sliding_window_pattern=2)
    assert c["kinds"][0]["layers"] == [0, 2]
    c = config_of(convert, gemma, sliding_window_pattern=..., num_hidden_layers=4)
    assert "kinds" not in c and (c["sliding_window"], c["rope"]) == (24, plain)
    # The newer spelling has both in one place.
    both = {"full_attention": {"rope_theta": 5e5}, "sliding_attention": {"rope_type": "linear", "factor": 2}}
    c = config_of(convert, gemma, rope_theta=..., rope_scaling=..., rope_local_base_freq=..., rope_parameters=both)
    assert c["rope"] == {"type": "linear", "theta": 10000, "factor": 2}
    c = config_of(convert, gemma, layer_types=["full_attention"] * 4)
    assert "kinds" not in c and c["sliding_window"] == 0 and c["rope"] == {"type": "default", "theta": 5e5}
    qwen = hf.copy(tiny("tiny-qwen2"), tmp_path / "qwen2")
    c = config_of(convert, qwen, use_sliding_window=True, sliding_window=9, max_window_layers=1)
    assert c["kinds"] == [{"layers": [1, 2], "sliding_window": 9, "rope": c["rope"]}] and c["sliding_window"] == 0


def test_eos(plain, convert):
    assert config_of(convert, plain, eos_token_id=[2, 7, 7])["eos"] == [2, 7]
    hf.edit_json(plain / "generation_config.json", eos_token_id=[5, 6])
    assert config_of(convert, plain)["eos"] == [5, 6]
    hf.edit_json(plain / "generation_config.json", eos_token_id=8)
    assert config_of(convert, plain)["eos"] == [8]
    hf.edit_json(plain / "generation_config.json", eos_token_id=...)
    c = config_of(convert, plain, eos_token_id=None, bos_token_id=None)
    assert (c["bos"], c["eos"]) == (-1, [])


def test_unknown_keys_that_say_nothing_of_the_computation_are_warned_of(plain, convert):
    hf.edit_json(plain / "config.json", favourite_colour="blue", use_cache=False, qk_norm=False, pretraining_tp=2)
    err = convert(plain)[2]
    assert 'config.json: "favourite_colour" is not known, and ignored' in err and err.count("warning") == 2


def test_context_of_padded_vocabulary(tmp_path, convert):
    directory = hf.make("tiny-gqa", tmp_path / "padded", "--vocab", "4160", "--tokenizer", str(hf.FABLE))
    metadata, _, err = convert(directory)
    assert metadata["config"]["vocab_size"] == 4160 and "warning" not in err
