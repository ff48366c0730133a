"""tools/convert.py on Kimi Linear: which tensor becomes which, other spellings of the same model, its GGUF file, and what is
refused."""

import gguf_files
import hf
import numpy as np
import pytest

PRESET = "tiny-kimi-linear"
ALIKE = hf.random_hf_model.kimi_linear(96, 200, 5, 4, 4, 320, 512, kda=(4, 20, 3), full=(3, 5))  # heads, as GGUF has it
LINEAR = {
    "head_dim": 20,
    "num_heads": 3,
    "short_conv_kernel_size": 3,
    "full_attn_layers": [3, 5],
    "kda_layers": [1, 2, 4],
}


@pytest.fixture
def directory(tmp_path):
    return hf.make(PRESET, tmp_path / PRESET, "--dtype", "fp32")


def stored(directory):
    return {
        name: np.frombuffer(data, np.float32).reshape(shape)
        for name, (_, shape, data) in hf.read_tensors(directory).items()
    }


def test_every_tensor(directory, convert):
    metadata, tensors, _ = convert(directory)
    config, source = metadata["config"], stored(directory)
    delta = {"n_key_heads": 3, "n_value_heads": 3, "key_dim": 20, "value_dim": 20, "conv_width": 3, "kda_rank": 20}
    assert config["kinds"] == [{"layers": [0, 1, 3], "delta": delta}] and config["unrotated_layers"] == [2, 4]
    assert config["latent"]["kv_rank"] == 40 and config["dense_layers"] == [0] and config["n_expert_groups"] == 4
    found = {name: np.frombuffer(data, np.float32) for name, (_, data) in tensors.items()}
    within = {name.split("self_attn.")[1]: array for name, array in source.items() if "layers.1.self_attn." in name}
    pairs = {"q": "q_proj.weight", "k": "k_proj.weight", "v": "v_proj.weight", "o": "o_proj.weight", "beta": "b_proj.weight",
             "decay_a": "f_a_proj.weight", "decay_b": "f_b_proj.weight", "gate_a": "g_a_proj.weight",
             "gate_b": "g_b_proj.weight", "decay_bias": "dt_bias", "value_norm": "o_norm.weight"}  # fmt: skip
    for ours, theirs in pairs.items():
        assert (found[f"layers.1.{ours}"] == within[theirs].reshape(-1)).all(), ours
    taps = np.concatenate([within[f"{part}_conv1d.weight"][:, 0, :] for part in "qkv"]).T
    assert (found["layers.1.conv"] == taps.reshape(-1)).all()
    assert (found["layers.1.decay_rate"] == np.exp(within["A_log"]).reshape(-1)).all()


@pytest.mark.parametrize("dtype", ["q4", "fp8", "bf12"])
def test_gates_stay_floats(directory, convert, dtype):
    metadata, _, _ = convert(directory, "--dtype", dtype)
    types = {entry["name"]: entry["dtype"] for entry in metadata["tensors"]}
    assert types["layers.1.decay_a"] == types["layers.1.decay_b"] == types["layers.1.gate_b"] == "fp32"
    assert types["layers.1.q"] not in ("fp32", "fp16")


def test_the_same_in_other_words(directory, convert):
    """Keys of transformers, which lists layers by their types."""
    wanted = convert(directory)
    kinds = ["linear_attention" if layer in LINEAR["kda_layers"] else "full_attention" for layer in range(1, 6)]
    hf.edit_json(
        directory / "config.json",
        linear_attn_config=...,
        layer_types=kinds,
        linear_head_dim=20,
        linear_num_heads=3,
        linear_conv_kernel_dim=3,
        first_k_dense_replace=...,
        mlp_layer_types=["dense", *["sparse"] * 4],
        model_max_length=...,
        max_position_embeddings=512,
    )
    found = convert(directory)
    assert found[0]["config"] == wanted[0]["config"] and hf.contents(found[1]) == hf.contents(wanted[1])


def test_gguf(monkeypatch, convert, tmp_path):
    monkeypatch.setitem(hf.random_hf_model.PRESETS, "alike", ALIKE)
    source = hf.make("alike", tmp_path / "alike")
    wanted, found = convert(source), convert(gguf_files.write(source, tmp_path / "model.gguf"))
    assert hf.contents(found[1]) == hf.contents(wanted[1]) and found[0]["config"] == wanted[0]["config"]


def test_its_tokenizer_is_named(directory, monkeypatch, capsys, tmp_path):
    (directory / "tiktoken.model").write_text("IQ== 0\n")
    code, _, err = hf.call(monkeypatch, capsys, directory, tmp_path / "model.bin")
    assert code == 0
    assert "(tiktoken.model is read where tokenizer_class is TikTokenTokenizer): the model will take token ids" in err


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"linear_attn_config": {**LINEAR, "kda_layers": [1, 2]}}, "expected each layer from 1 to 5 in one of them"),
        ({"linear_attn_config": {**LINEAR, "gate": 1}}, 'linear_attn_config."gate" is not known'),
        (
            {"linear_attn_config": {**LINEAR, "num_heads": 0}},
            "linear_attn_config.num_heads: found 0, expected an integer",
        ),
        ({"linear_head_dim": 24}, "head_dim is 20, but linear_head_dim is 24"),
        ({"layer_types": ["linear_attention"] * 5}, "layer_types: found no layer with attention"),
        (
            {"layer_types": ["full_attention"] * 4},
            "expected 'full_attention' or 'linear_attention' for each of 5 layers",
        ),
        ({"moe_router_activation_func": "softmax"}, 'moe_router_activation_func: found "softmax", expected "sigmoid"'),
        ({"mla_use_nope": False}, "mla_use_nope: found false, expected true"),
    ],
)
def test_refused(directory, changes, text, monkeypatch, capsys, tmp_path):
    hf.edit_json(directory / "config.json", **changes)
    code, _, err = hf.call(monkeypatch, capsys, directory, tmp_path / "model.bin")
    assert code == 3 and text in err, err
