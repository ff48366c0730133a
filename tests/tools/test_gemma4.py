"""Gemma 4: which tensor becomes which in each of its three shapes, what config.json says of layers that differ, and
what is refused."""

import json

import hf
import numpy as np
import pytest

DENSE, INPUTS, EXPERTS = "tiny-gemma4", "tiny-gemma4-e", "tiny-gemma4-moe"
PLAIN = {"type": "default", "theta": 1e4}
LAYER = {
    "attention_norm": "input_layernorm", "attention_post_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_post_norm": "post_feedforward_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
    "o": "self_attn.o_proj", "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm", "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj", "shared.gate": "mlp.gate_proj", "shared.up": "mlp.up_proj", "shared.down": "mlp.down_proj",
    "input_gate": "per_layer_input_gate", "input_projection": "per_layer_projection", "input_norm": "post_per_layer_input_norm",
    "expert_norm": "pre_feedforward_layernorm_2", "expert_post_norm": "post_feedforward_layernorm_2",
    "shared_post_norm": "post_feedforward_layernorm_1",
}  # fmt: skip
WHOLE = {
    "embedding": "embed_tokens",
    "norm": "norm",
    "layer_embedding": "embed_tokens_per_layer",
    "layer_projection": "per_layer_model_projection",
    "layer_projection_norm": "per_layer_projection_norm",
}


def rope(head_dim):
    """A quarter of a head rotates as if all of it did: theta' ^ (-2 i / (head_dim / 4)) is theta ^ (-2 i / head_dim)."""
    return {"type": "default", "theta": pytest.approx(1e6**0.25), "rotary_dim": head_dim // 4}


def floats(entry):
    dtype, shape, data = entry
    if dtype in ("BF16", "bf16"):
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, "<f4").reshape(shape)


def expected(name, source):
    """The values that a tensor of the model file should have."""
    if not name.startswith("layers."):
        return source[f"model.{WHOLE[name]}.weight"]
    _, layer, part = name.split(".", 2)
    p = f"model.layers.{layer}."
    if part == "scale":
        return source[p + "layer_scalar"]
    if part == "router":
        columns = source[p + "router.scale"] * np.float32(128**-0.5)
        return source[p + "router.proj.weight"] * columns
    if part == "router_scale":
        return source[p + "router.per_expert_scale"]
    if part.startswith("experts."):
        _, e, matrix = part.split(".")
        if matrix == "down":
            return source[p + "experts.down_proj"][int(e)]
        return np.split(source[p + "experts.gate_up_proj"][int(e)], 2)[matrix == "up"]
    if part == "v" and f"{p}self_attn.v_proj.weight" not in source:
        part = "k"
    return source[f"{p}{LAYER[part]}.weight"]


@pytest.mark.parametrize("preset", [DENSE, INPUTS, EXPERTS])
def test_every_tensor(preset, tiny, convert):
    _, tensors, err = convert(tiny(preset, "--dtype", "bf16"))
    source = {name: floats(entry) for name, entry in hf.read_tensors(tiny(preset, "--dtype", "bf16")).items()}
    for name, (entry, data) in tensors.items():
        exact = name.endswith(("norm", "router", "scale"))
        assert entry["dtype"] == ("fp32" if exact else "bf16"), name
        assert (floats((entry["dtype"], entry["shape"], data)) == expected(name, source)).all(), name
    assert err.count("warning") == 1 and "no tokenizer.json" in err


def test_layers_of_two_kinds(tiny, convert):
    c = convert(tiny(DENSE))[0]["config"]
    assert (c["head_dim"], c["n_kv_heads"], c["sliding_window"], c["rope"]) == (96, 1, 0, rope(96))
    sliding = {"layers": [0, 1, 3, 4], "sliding_window": 24, "rope": PLAIN, "head_dim": 48, "n_kv_heads": 2}
    assert c["kinds"] == [sliding]
    always = {"qk_norm", "v_norm", "norms_around", "layer_scale"}
    assert all(c[key] is True for key in always) and c["activation"] == "gelu_tanh" and c["tied_embeddings"]
    assert (c["attention_scale"], c["embedding_scale"], c["logits_softcap"]) == (1, 128**0.5, 3)


def test_keys_of_others_and_inputs(tiny, convert):
    metadata, tensors, _ = convert(tiny(INPUTS))
    c = metadata["config"]
    assert (c["ffn_dim"], c["layer_input_dim"]) == (224, 32)
    sliding, full = (
        {"sliding_window": 24, "rope": PLAIN, "head_dim": 48, "n_kv_heads": 1},
        {"sliding_window": 0, "rope": c["rope"]},
    )
    assert c["kinds"] == [
        {"layers": [0, 1, 3, 4], **sliding},
        {"layers": [5, 8], **full, "ffn_dim": 448, "kv_of": 0},
        {"layers": [6, 7], **sliding, "ffn_dim": 448, "kv_of": 1},
    ]
    assert "layers.4.k" in tensors and not {"layers.5.k", "layers.6.v", "layers.8.k_norm"} & set(tensors)


def test_experts_beside_a_dense_mlp(tiny, convert):
    c = convert(tiny(EXPERTS))[0]["config"]
    wanted = {"n_experts": 6, "n_active_experts": 3, "expert_ffn_dim": 80, "shared_ffn_dim": 224, "expert_norms": True}
    assert {key: c.get(key) for key in wanted} == wanted


def test_keys_that_nobody_sees_are_left_out(tiny, convert, tmp_path):
    """Released checkpoints have k and v of layers that see others' keys."""
    wanted, directory = convert(tiny(INPUTS)), hf.copy(tiny(INPUTS), tmp_path / "model")
    tensors = hf.read_tensors(directory)
    for name in ("k_proj", "v_proj", "k_norm"):
        tensors[f"model.layers.6.self_attn.{name}.weight"] = tensors[f"model.layers.4.self_attn.{name}.weight"]
    hf.write_tensors(directory / "model.safetensors", tensors)
    assert hf.contents(convert(directory)[1]) == hf.contents(wanted[1])


def test_quantised(tiny, convert):
    """What is looked up is less sensitive than the layers, the small matrices of inputs more."""
    kinds = {name: entry["dtype"] for name, (entry, _) in convert(tiny(INPUTS), "--dtype", "q4")[1].items()}
    assert kinds["embedding"] == "q6" and kinds["layer_embedding"] == "q5"
    assert {kinds[name] for name in ("layer_projection", "layers.3.input_gate", "layers.8.input_projection")} == {"q8"}
    kinds = {name: entry["dtype"] for name, (entry, _) in convert(tiny(EXPERTS), "--dtype", "q8")[1].items()}
    assert {kinds[f"layers.1.{name}"] for name in ("q", "v", "shared.up", "experts.5.down")} == {"q8"}
    assert {kinds[f"layers.1.{name}"] for name in ("router", "router_scale", "scale", "expert_norm")} == {"fp32"}


# ------------------------------------------------------------------------------------ config.json


@pytest.fixture
def changed(tiny, tmp_path):
    """changed(preset, key=value…) -> a copy with other settings."""

    def do(preset, **changes):
        directory = hf.copy(tiny(preset), tmp_path / f"changed{len(list(tmp_path.iterdir()))}")
        hf.edit_json(directory / "config.json", **changes)
        return directory

    return do


def test_by_layer(changed, convert, tiny):
    """So transformers writes it."""
    for preset, layer, full in (
        (DENSE, {"head_dim": 96, "num_key_value_heads": 1}, (2, 5)),
        (INPUTS, {"head_dim": 64}, (2, 5, 8)),
    ):
        changes = dict(
            global_head_dim=..., num_global_key_value_heads=..., per_layer_config=dict.fromkeys(map(str, full), layer)
        )
        assert convert(changed(preset, **changes))[0]["config"] == convert(tiny(preset))[0]["config"]


def test_what_is_left_out_has_transformers_values(changed, convert, tiny, tmp_path, monkeypatch):
    c = convert(changed(DENSE, rope_parameters=..., num_kv_shared_layers=..., use_double_wide_mlp=...))[0]["config"]
    assert c == convert(tiny(DENSE))[0]["config"]
    c = convert(changed(DENSE, final_logit_softcapping=..., use_bidirectional_attention="vision"))[0]["config"]
    assert "logits_softcap" not in c
    every_sixth = hf.random_hf_model.gemma4(64, 96, 12, 2, 1, 128, 64, pattern=6, head_dim=16, full_dim=32, tied=True)
    monkeypatch.setitem(hf.random_hf_model.PRESETS, "every-sixth", every_sixth)
    directory = hf.make("every-sixth", tmp_path / "every-sixth")
    hf.edit_json(directory / "config.json", layer_types=..., sliding_window=...)
    (kind,) = convert(directory)[0]["config"]["kinds"]
    assert (kind["layers"], kind["sliding_window"]) == ([0, 1, 2, 3, 4, 6, 7, 8, 9, 10], 512)


def test_rope_of_other_kinds(changed, convert):
    def ropes(full, sliding):
        both = {"full_attention": full, "sliding_attention": sliding}
        c = convert(changed(DENSE, rope_parameters=both))[0]["config"]
        return c["rope"], c["kinds"][0]["rope"]

    stretched = {"rope_type": "proportional", "rope_theta": 1e6, "factor": 8.0, "partial_rotary_factor": 0.5}
    found = ropes(stretched, {"rope_type": "linear", "factor": 2, "rope_theta": 500})
    assert found[0] == {"type": "linear", "theta": pytest.approx(1e3), "factor": 8, "rotary_dim": 48}
    assert found[1] == {"type": "linear", "theta": 500, "factor": 2}
    found = ropes({"rope_type": "default", "rope_theta": 7e5}, {"rope_type": "default"})
    assert found == ({"type": "default", "theta": 7e5}, PLAIN)
    assert "rotary_dim" not in ropes({"rope_type": "proportional"}, {})[0]


def test_the_last_layer_sees_everything(tiny, changed, convert):
    types = json.loads((tiny(DENSE) / "config.json").read_text())["layer_types"]
    c, _, err = convert(changed(DENSE, layer_types=[*types[:5], "sliding_attention"]))
    assert c["config"] == convert(tiny(DENSE))[0]["config"]
    assert "the last layer is taken for 'full_attention'" in err


@pytest.mark.parametrize(
    ("preset", "whole", "text"),
    [
        (INPUTS, "Gemma4ForConditionalGeneration", "gemma4_text"),
        (DENSE, "Gemma4UnifiedForConditionalGeneration", "gemma4_unified_text"),
    ],
)
def test_models_that_see(preset, whole, text, tiny, convert, tmp_path):
    directory, wanted = hf.copy(tiny(preset), tmp_path / "sees"), convert(tiny(preset))
    config = json.loads((directory / "config.json").read_text())
    inner = {**config, "model_type": text, "use_bidirectional_attention": "vision"}
    if preset == DENSE:  # has no such key
        del inner["hidden_size_per_layer_input"], inner["vocab_size_per_layer_input"]
    hf.edit_json(directory / "config.json", **dict.fromkeys(config, ...))
    hf.edit_json(
        directory / "config.json",
        architectures=[whole],
        model_type=text[:-5],
        text_config=inner,
        vision_config={},
        audio_config=None,
        image_token_id=9,
    )
    tensors = {
        name.replace("model.", "model.language_model.", 1): entry for name, entry in hf.read_tensors(directory).items()
    }
    tensors["model.embed_vision.embedding_projection.weight"] = ["F32", [2], bytes(8)]
    hf.write_tensors(directory / "model.safetensors", tensors)
    metadata, found, err = convert(directory)
    assert hf.contents(found) == hf.contents(wanted[1]) and "1 tensors of the others are left out" in err
    assert metadata["config"] == {**wanted[0]["config"], "architecture": metadata["config"]["architecture"]}


FULL = "full_attention"
REFUSED = [
    (DENSE, {"use_bidirectional_attention": "all"}, "use_bidirectional_attention is 'all', which is not supported"),
    (DENSE, {"layer_types": [FULL] * 5}, "layer_types: found"),
    (DENSE, {"layer_types": ["linear_attention"] * 6}, "expected 'full_attention' or 'sliding_attention' for each of 6"),
    (DENSE, {"per_layer_config": {"2": {"head_dim": 96}}}, "per_layer_config: expected the same for all layers of full"),
    (DENSE, {"per_layer_config": {"2": {"head_dim": 96}, "5": {"head_dim": 48}}}, "per_layer_config: expected the same"),
    (DENSE, {"per_layer_config": {"2": 3, "5": 3}}, "per_layer_config: expected the same for all layers of full"),
    (DENSE, {"per_layer_config": {"2": {"intermediate_size": 5}, "5": {"intermediate_size": 5}}},
     '"intermediate_size" is not known'),
    (DENSE, {"global_head_dim": 47}, "layers of full_attention have heads of 47, 1 of keys for 4 of queries"),
    (DENSE, {"num_global_key_value_heads": 3}, "have heads of 96, 3 of keys for 4 of queries"),
    (DENSE, {"num_kv_shared_layers": 4}, "num_kv_shared_layers: no layer of full_attention before them has keys"),
    (DENSE, {"num_kv_shared_layers": 6}, "num_kv_shared_layers: found 6, expected an integer from 0 to 5"),
    (DENSE, {"attention_k_eq_v": False}, "self_attn.k_proj.weight"),
    (DENSE, {"attention_k_eq_v": ...}, "2.self_attn.k_proj.weight"),
    (DENSE, {"rope_parameters": {FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.01}}}, "nothing rotates"),
    (DENSE, {"rope_parameters": {"rope_theta": 1e6}}, 'rope_parameters: found "rope_theta", expected'),
    (DENSE, {"rope_parameters": {FULL: {"rope_type": "axial"}}}, 'RoPE type "axial" is not supported'),
    (INPUTS, {"vocab_size_per_layer_input": 500}, "vocab_size_per_layer_input is 500, expected vocab_size 512"),
    (INPUTS, {"hidden_size_per_layer_input": 16}, "embed_tokens_per_layer.weight"),
    (INPUTS, {"use_double_wide_mlp": False}, "found shape [448, 128], expected [224, 128]"),
    (INPUTS, {"num_kv_shared_layers": 0, "use_double_wide_mlp": False}, "layers.5.self_attn.k_proj.weight"),
    (EXPERTS, {"use_double_wide_mlp": True}, "use_double_wide_mlp is true beside enable_moe_block"),
    (EXPERTS, {"top_k_experts": 7}, "expected num_experts, top_k_experts of them"),
    (EXPERTS, {"moe_intermediate_size": ...}, "enable_moe_block is true: expected num_experts"),
    (EXPERTS, {"moe_intermediate_size": 40}, "experts.gate_up_proj"),
    (EXPERTS, {"enable_moe_block": False}, "is not known"),
]  # fmt: skip


@pytest.mark.parametrize(("preset", "changes", "text"), REFUSED, ids=[text[:40] for *_, text in REFUSED])
def test_refused(preset, changes, text, changed, tmp_path, monkeypatch, capsys):
    code, out, err = hf.call(monkeypatch, capsys, changed(preset, **changes), tmp_path / "model.bin")
    lines = [line for line in err.splitlines() if "warning: " not in line]
    assert (code, out, len(lines)) == (3, "", 1) and text in lines[0], err
