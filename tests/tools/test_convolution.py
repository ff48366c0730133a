"""Models with short convolutions: which tensor becomes which, keys of the published files, what is refused, and GGUF files."""

import gguf_files
import hf
import numpy as np
import pytest

TINY, MOE, BIASED = "tiny-lfm2", "tiny-lfm2-moe", "tiny-lfm2 with biases"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home, presets = tmp_path_factory.mktemp("convolution"), hf.random_hf_model.PRESETS
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(presets, BIASED, {**presets[TINY], "conv_bias": True})
        return {preset: hf.make(preset, home / preset, "--dtype", "fp32") for preset in (TINY, MOE, BIASED)}


def floats(entry):
    return np.frombuffer(entry[-1], "<f4").reshape(entry[1])


def written(tensors):
    return {name: floats((entry["dtype"], entry["shape"], data)) for name, (entry, data) in tensors.items()}


@pytest.mark.parametrize("preset", [TINY, BIASED])
def test_every_tensor(preset, made, convert):
    metadata, tensors, _ = convert(made[preset])
    source = {name: floats(entry) for name, entry in hf.read_tensors(made[preset]).items()}
    config, found, biased = metadata["config"], written(tensors), preset == BIASED
    conv = {"conv_width": 3, **({"bias": True} if biased else {})}
    assert config["kinds"] == [{"layers": [0, 2, 3], "conv": conv}] and config["tied_embeddings"] and config["qk_norm"]
    assert config["ffn_dim"] == 240 and config["norm_eps"] == 1e-5  # two thirds of 352, in eights
    of, p = "model.layers.2.", "layers.2."
    for n, name in enumerate("kqv"):
        assert (found[p + name] == source[of + "conv.in_proj.weight"][128 * n : 128 * (n + 1)]).all()
        assert (
            not biased or (found[f"{p}{name}_bias"] == source[of + "conv.in_proj.bias"][128 * n : 128 * (n + 1)]).all()
        )
    pairs = {"o": "conv.out_proj.weight", "attention_norm": "operator_norm.weight", "ffn_norm": "ffn_norm.weight",
             "gate": "feed_forward.w1.weight", "up": "feed_forward.w3.weight", "down": "feed_forward.w2.weight"}  # fmt: skip
    pairs |= {"o_bias": "conv.out_proj.bias", "conv_bias": "conv.conv.bias"} if biased else {}
    for ours, theirs in pairs.items():
        assert (found[p + ours] == source[of + theirs]).all(), ours
    assert (found[p + "conv"] == source[of + "conv.conv.weight"][:, 0].T).all()
    for ours, theirs in {"o": "out_proj", "q_norm": "q_layernorm", "k_norm": "k_layernorm", "k": "k_proj"}.items():
        assert (found[f"layers.1.{ours}"] == source[f"model.layers.1.self_attn.{theirs}.weight"]).all()
    assert (found["norm"] == source["model.embedding_norm.weight"]).all()


def test_experts(made, convert):
    metadata, tensors, _ = convert(made[MOE])
    config, found = metadata["config"], written(tensors)
    source = {name: floats(entry) for name, entry in hf.read_tensors(made[MOE]).items()}
    assert config["dense_layers"] == [0] and config["sigmoid_router"] and config["expert_scale"] == 1.5
    assert config["expert_eps"] == 1e-6
    assert config["n_experts"] == 6 and config["expert_ffn_dim"] == 80 and config["ffn_dim"] == 352
    assert (found["layers.4.router_choice_bias"] == source["model.layers.4.feed_forward.expert_bias"]).all()
    assert (found["layers.4.experts.5.up"] == source["model.layers.4.feed_forward.experts.5.w3.weight"]).all()


def test_keys_of_published_files(made, convert, tmp_path):
    directory = hf.copy(made[TINY], tmp_path / "model")
    more = dict(block_dim=128, block_ff_dim=352, block_norm_eps=1e-5, conv_dim=128, conv_dim_out=128, num_heads=4,
                tie_embedding=True, tie_word_embeddings=..., block_use_swiglu=True, use_pos_enc=True,
                block_mlp_init_scale=1.0, conv_use_xavier_init=True, full_attn_idxs=[1, 4], layer_types=...)  # fmt: skip
    hf.edit_json(directory / "config.json", intermediate_size=777, **more)  # block_ff_dim comes before it
    wanted, found = convert(made[TINY]), convert(directory)
    assert found[0]["config"] == wanted[0]["config"] and hf.contents(found[1]) == hf.contents(wanted[1])
    assert "ignored" not in found[2]


@pytest.mark.parametrize("preset", [TINY, MOE, BIASED])
def test_gguf(preset, made, convert, tmp_path):
    directory = hf.copy(made[preset], tmp_path / "model")
    if preset != MOE:
        hf.edit_json(directory / "config.json", block_ff_dim=240)  # files say what it is in the end
    path = gguf_files.write(directory, tmp_path / "model.gguf")
    if preset == MOE:
        scaled = gguf_files.write(directory, tmp_path / "scaled.gguf", change=lambda w: w.add_expert_weights_scale(1.5))
        assert convert(path)[0]["config"].get("expert_scale", 1) == 1  # which llama.cpp's converter does not write
        path = scaled
    wanted, found = convert(made[preset]), convert(path)
    assert found[0]["config"].keys() == wanted[0]["config"].keys()
    for key, value in wanted[0]["config"].items():
        assert key in ("rope", "norm_eps") or found[0]["config"][key] == value, key
    assert hf.contents(found[1]) == hf.contents(wanted[1])


@pytest.mark.parametrize(
    "preset, changes, text",
    [
        (TINY, {"layer_types": ["conv"] * 5}, "layer_types: found no layer with attention"),
        (TINY, {"layer_types": ["conv"] * 4}, "for each of 5 layers"),
        (TINY, {"layer_types": ..., "full_attn_idxs": [5]}, "full_attn_idxs: found [5], expected layers from 0 to 4"),
        (TINY, {"conv_L_cache": 1}, "conv_L_cache: found 1, expected an integer from 2 to 64"),
        (TINY, {"conv_L_cache": 4}, "found shape [128, 1, 3], expected [128, 1, 4]"),
        (TINY, {"conv_bias": True}, 'conv.in_proj.bias" is missing'),
        (TINY, {"conv_dim": 64}, "conv_dim is 64, but hidden_size is 128"),
        (TINY, {"use_pos_enc": False}, "use_pos_enc: found false, expected true"),
        (MOE, {"use_expert_bias": False}, "use_expert_bias: found false, expected true"),
        (MOE, {"layer_types": ...}, "expected 'full_attention' or 'conv' for each of 5 layers"),
    ],
)
def test_refused(preset, changes, text, made, tmp_path, monkeypatch, capsys):
    directory = hf.copy(made[preset], tmp_path / "model")
    hf.edit_json(directory / "config.json", **changes)
    code, out, err = hf.call(monkeypatch, capsys, directory, tmp_path / "model.bin")
    lines = [line for line in err.splitlines() if "warning: " not in line]
    assert (code, out, len(lines)) == (3, "", 1) and text in lines[0], err
