"""Models with recurrent layers: which tensor becomes which, what is refused, and their GGUF files, whose heads stand
in another order."""

import json
import math

import gguf_files
import hf
import numpy as np
import pytest

TINY, MOE, NEXT = "tiny-qwen3_5", "tiny-qwen3_5-moe", "tiny-qwen3-next"
ALL_EXPERTS = "tiny-qwen3-next of experts"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    home = tmp_path_factory.mktemp("recurrent")
    presets = hf.random_hf_model.PRESETS
    with pytest.MonkeyPatch.context() as patch:  # GGUF has no layers without experts in this one
        patch.setitem(presets, ALL_EXPERTS, {**presets[NEXT], "mlp_only_layers": []})
        return make_all(home)


def make_all(home):
    return {preset: hf.make(preset, home / preset, "--dtype", "bf16") for preset in (TINY, MOE, NEXT, ALL_EXPERTS)}


def floats(entry):
    dtype, shape, data = entry
    if dtype in ("BF16", "bf16"):
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, "<f4").reshape(shape)


def stored(directory):
    return {name: floats(entry) for name, entry in hf.read_tensors(directory).items()}


def written(tensors):
    return {name: floats((entry["dtype"], entry["shape"], data)) for name, (entry, data) in tensors.items()}


def test_every_tensor(tiny, convert):
    metadata, tensors, _ = convert(tiny[TINY])
    config, source, found = metadata["config"], stored(tiny[TINY]), written(tensors)
    delta = {"n_key_heads": 2, "n_value_heads": 4, "key_dim": 32, "value_dim": 48, "conv_width": 4}
    assert config["kinds"] == [{"layers": [0, 1, 3, 4], "delta": delta}]
    assert config["output_gate"] and config["qk_norm"] and config["rope"]["rotary_dim"] == 16
    within = "model.layers.3.linear_attn."
    joined = source[within + "in_proj_qkv.weight"]
    for name, rows in {"q": joined[:64], "k": joined[64:128], "v": joined[128:]}.items():
        assert (found[f"layers.3.{name}"] == rows).all() and tensors[f"layers.3.{name}"][0]["dtype"] == "bf16"
    pairs = {"in_proj_z.weight": "output_gate", "out_proj.weight": "o", "in_proj_a.weight": "decay", "in_proj_b.weight": "beta",
             "dt_bias": "decay_bias", "norm.weight": "value_norm"}  # fmt: skip
    for theirs, ours in pairs.items():
        assert (found[f"layers.3.{ours}"] == source[within + theirs]).all(), ours
    assert (found["layers.3.conv"] == source[within + "conv1d.weight"][:, 0, :].T).all()
    assert (found["layers.3.decay_rate"] == np.exp(source[within + "A_log"])).all()
    assert (found["layers.3.attention_norm"] == source["model.layers.3.input_layernorm.weight"] + np.float32(1)).all()
    for name in ("conv", "decay", "beta", "decay_bias", "decay_rate", "value_norm"):
        assert tensors[f"layers.3.{name}"][0]["dtype"] == "fp32"

    heads = source["model.layers.2.self_attn.q_proj.weight"].reshape(4, 2, 64, 128)
    assert (found["layers.2.output_gate"] == heads[:, 1].reshape(256, 128)).all()
    rotated, still = np.arange(16).reshape(2, 8), np.arange(16, 64).reshape(2, 24)
    order = np.concatenate([rotated[0], still[0], rotated[1], still[1]])
    assert (found["layers.2.q"] == heads[:, 0][:, order].reshape(256, 128)).all()


def test_matrices_by_key_heads(tiny, convert):
    source, found = stored(tiny[NEXT]), written(convert(tiny[NEXT])[1])
    within = "model.layers.0.linear_attn."
    joined = source[within + "in_proj_qkvz.weight"].reshape(2, 2 * 32 + 4 * 48, 128)
    parts = {"q": joined[:, :32], "k": joined[:, 32:64], "v": joined[:, 64:160], "output_gate": joined[:, 160:]}
    pair = source[within + "in_proj_ba.weight"].reshape(2, 4, 128)
    for name, rows in {**parts, "beta": pair[:, :2], "decay": pair[:, 2:]}.items():
        assert (found[f"layers.0.{name}"] == rows.reshape(-1, 128)).all(), name


def test_quantised(tiny, convert):
    _, tensors, _ = convert(tiny[MOE], "--dtype", "q8", "--keep", "*.output_gate=bf16")
    kinds = {name: entry["dtype"] for name, (entry, _) in tensors.items()}
    assert {kinds[f"layers.0.{name}"] for name in ("q", "k", "v", "o", "shared.gate", "experts.5.down")} == {"q8"}
    assert kinds["layers.0.output_gate"] == kinds["layers.1.output_gate"] == "bf16"
    exact = ("router", "shared.router", "conv", "decay", "beta", "value_norm")
    assert {kinds[f"layers.0.{name}"] for name in exact} == {"fp32"}
    _, tensors, _ = convert(tiny[TINY], "--dtype", "q4")
    assert {tensors[f"layers.{n}.output_gate"][0]["dtype"] for n in range(6)} <= {"q4n", "q5", "q6", "q8"}


def test_a_model_that_sees(tiny, convert, tmp_path):
    """Its text part under another prefix, settings within text_config, and a head that guesses further tokens."""
    wanted = convert(tiny[MOE])
    directory = hf.copy(tiny[MOE], tmp_path / "sees")
    config = json.loads((directory / "config.json").read_text())
    rope = dict(config["rope_parameters"], mrope_section=[2, 2, 2], mrope_interleaved=True)
    text = dict(config, rope_parameters=rope, mtp_num_hidden_layers=1, mamba_ssm_dtype="float32", attn_output_gate=True)
    del text["architectures"]
    whole = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "text_config": text}
    (directory / "config.json").write_text(json.dumps(whole))
    tensors = hf.read_tensors(directory)
    renamed = {name.replace("model.", "model.language_model.", 1): entry for name, entry in tensors.items()}
    more = ["F32", [2], bytes(8)]
    hf.write_tensors(
        directory / "model.safetensors", {**renamed, "model.visual.patch.weight": more, "mtp.fc.weight": more}
    )
    found = convert(directory)
    assert hf.contents(found[1]) == hf.contents(wanted[1])
    found[0]["config"]["bos"], found[0]["config"]["eos"] = wanted[0]["config"]["bos"], wanted[0]["config"]["eos"]
    assert found[0]["config"] == wanted[0]["config"]


def test_further_tokens_are_left_out(tiny, convert, tmp_path):
    directory = hf.copy(tiny[TINY], tmp_path / "mtp")
    tensors = hf.read_tensors(directory)
    hf.write_tensors(directory / "model.safetensors", {**tensors, "mtp.layers.0.x.weight": ["F32", [2], bytes(8)]})
    assert hf.contents(convert(directory)[1]) == hf.contents(convert(tiny[TINY])[1])


def tiled(rows, delta, size):
    keys = delta["n_key_heads"]
    return rows.reshape(keys, -1, size, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)


@pytest.mark.parametrize("preset", [TINY, MOE, ALL_EXPERTS])
def test_gguf(preset, tiny, convert, tmp_path):
    """The same tensors; of value heads, where there are more of them than key heads, in the order of the file."""
    wanted, found = convert(tiny[preset]), convert(gguf_files.write(tiny[preset], tmp_path / "model.gguf"))
    ours, theirs = written(wanted[1]), written(found[1])
    assert ours.keys() == theirs.keys()
    kind, expected = found[0]["config"]["kinds"][0], wanted[0]["config"]["kinds"][0]
    several = preset == TINY  # has more value heads than key heads, and is of a family whose files move them
    assert kind["delta"].pop("tiled", False) == several and kind == expected
    delta = kind["delta"]
    keys = 2 * delta["n_key_heads"] * delta["key_dim"]
    for layer in kind["layers"] if several else []:
        for name, size in {"v": delta["value_dim"], "output_gate": delta["value_dim"], "decay": 1, "beta": 1,
                           "decay_bias": 1, "decay_rate": 1}.items():  # fmt: skip
            name = f"layers.{layer}.{name}"
            ours[name] = tiled(ours[name], delta, size)
        o, conv = f"layers.{layer}.o", f"layers.{layer}.conv"
        ours[o] = tiled(ours[o].T, delta, delta["value_dim"]).T
        ours[conv] = np.concatenate(
            [ours[conv][:, :keys], tiled(ours[conv][:, keys:].T, delta, delta["value_dim"]).T], 1
        )
    for name, values in ours.items():
        assert values.shape == theirs[name].shape and (values == theirs[name]).all(), name
    for key in ("output_gate", "shared_gate", "shared_ffn_dim", "n_experts", "qk_norm", "expert_ffn_dim", "rope"):
        assert wanted[0]["config"].get(key) == pytest.approx(found[0]["config"].get(key)), key
    assert math.prod(theirs["layers.0.conv"].shape) == 4 * (keys + delta["n_value_heads"] * delta["value_dim"])


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"layer_types": ["linear_attention"] * 6}, "layer_types: found no layer with attention"),
        ({"layer_types": ["linear_attention"] * 5}, "for each of 6 layers"),
        ({"layer_types": ["sliding_attention"] * 6}, "expected 'full_attention' or 'linear_attention'"),
        ({"linear_num_value_heads": 5}, "linear_num_value_heads 5 is not a multiple of linear_num_key_heads 2"),
        ({"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim is 1, expected 2 or more"),
        ({"attn_output_gate": False}, "attn_output_gate is false, which transformers does not have"),
        ({"linear_key_head_dim": 16}, "found shape [320, 128], expected [256, 128]"),
        ({"mlp_bias": True}, "mlp_bias is true, which Qwen3_5ForCausalLM does not have"),
    ],
)
def test_refused(changes, text, tiny, tmp_path, monkeypatch, capsys):
    directory = hf.copy(tiny[TINY], tmp_path / "model")
    hf.edit_json(directory / "config.json", **changes)
    code, out, err = hf.call(monkeypatch, capsys, directory, tmp_path / "model.bin")
    lines = [line for line in err.splitlines() if "warning: " not in line]
    assert (code, out, len(lines)) == (3, "", 1) and text in lines[0], err


def test_layers_by_interval(tiny, convert, tmp_path):
    directory = hf.copy(tiny[TINY], tmp_path / "model")
    hf.edit_json(directory / "config.json", layer_types=..., full_attention_interval=3)
    assert convert(directory)[0]["config"]["kinds"] == convert(tiny[TINY])[0]["config"]["kinds"]
