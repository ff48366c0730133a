"""Heads that guess a token further: which tensor becomes which, what is left out, and their GGUF files."""

import json

import gguf_files
import hf
import numpy as np
import pytest

QWEN, MOE, GLM = "mtp-qwen3_5", "mtp-qwen3_5-moe", "mtp-glm4-moe"
WITHOUT = ("the MTP head is left out", "which only --speculate would use")


def stored(directory):
    return {
        name: np.frombuffer(data, "<f4").reshape(shape) for name, (_, shape, data) in hf.read_tensors(directory).items()
    }


def written(tensors):
    return {name: np.frombuffer(data, "<f4").reshape(entry["shape"]) for name, (entry, data) in tensors.items()}


def changed(tiny, tmp_path, preset, change):
    """A copy of the preset's directory, whose tensors change(tensors) has changed."""
    directory = hf.copy(tiny(preset, "--dtype", "fp32"), tmp_path / "changed")
    tensors = hf.read_tensors(directory)
    change(tensors)
    hf.write_tensors(directory / "model.safetensors", tensors)
    return directory


@pytest.mark.parametrize(("preset", "n", "plus"), [(QWEN, 4, 1), (MOE, 4, 1), (GLM, 3, 0)])
def test_every_tensor(tiny, convert, preset, n, plus):
    directory = tiny(preset, "--dtype", "fp32")
    metadata, tensors, _ = convert(directory)
    source, found = stored(directory), written(tensors)
    qwen = preset != GLM
    assert metadata["config"]["mtp"] == {"normed": True, "own_normed": qwen} and metadata["config"]["n_layers"] == n
    at, layer = ("mtp.", "mtp.layers.0.") if qwen else (f"model.layers.{n}.",) * 2
    names = ("fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    names = names if qwen else ("eh_proj", "enorm", "hnorm", "shared_head.norm")
    assert (found["mtp.projection"] == source[f"{at}{names[0]}.weight"]).all()
    for ours, theirs in zip(("embedding_norm", "hidden_norm", "norm"), names[1:]):
        assert (found[f"mtp.{ours}"] == source[f"{at}{theirs}.weight"] + np.float32(plus)).all(), ours
    assert (found[f"layers.{n}.o"] == source[layer + "self_attn.o_proj.weight"]).all()
    assert (found[f"layers.{n}.attention_norm"] == source[layer + "input_layernorm.weight"] + np.float32(plus)).all()
    last = f"layers.{n}.experts.5.down" if preset != QWEN else f"layers.{n}.down"
    assert last in found and f"layers.{n + 1}.o" not in found


def test_the_rest_is_as_without(tiny, convert, tmp_path):
    """Also where --dtype q4 spreads its bits."""

    def leave(tensors):
        for name in [name for name in tensors if name.startswith("mtp.")]:
            del tensors[name]

    plain = changed(tiny, tmp_path, QWEN, leave)
    for options in ((), ("--dtype", "q4")):
        wanted, found = convert(plain, *options), convert(tiny(QWEN, "--dtype", "fp32"), *options)
        ours = {name: entry for name, entry in hf.contents(found[1]).items() if name in hf.contents(wanted[1])}
        assert ours == hf.contents(wanted[1]) and "mtp" not in wanted[0]["config"]
        assert WITHOUT[0] not in wanted[2] + found[2]
    assert found[1]["mtp.projection"][0]["dtype"] == "q4n"


def test_what_is_not_a_whole_head(tiny, convert, tmp_path):
    def shorten(tensors):
        del tensors["mtp.layers.0.self_attn.q_norm.weight"]

    _, tensors, said = convert(changed(tiny, tmp_path, QWEN, shorten))
    assert not any(name.startswith(("mtp.", "layers.4.")) for name in tensors)
    assert all(word in said for word in WITHOUT) and "mtp.layers.0.self_attn.q_norm.weight" in said


@pytest.mark.parametrize("same", [True, False])
def test_copies_of_the_embedding(tiny, convert, tmp_path, same):
    def copy(tensors):
        kind, shape, data = tensors["lm_head.weight"]
        tensors["model.layers.3.shared_head.head.weight"] = (kind, shape, data if same else bytes(len(data)))
        tensors["model.layers.3.embed_tokens.weight"] = tensors["model.embed_tokens.weight"]

    metadata, tensors, said = convert(changed(tiny, tmp_path, GLM, copy))
    assert ("mtp" in metadata["config"]) == same == ("mtp.norm" in tensors)
    assert same or (all(word in said for word in WITHOUT) and "model.layers.3.shared_head.head.weight" in said)


def test_a_second_layer(tiny, convert, tmp_path):
    def add(tensors):
        tensors["mtp.layers.1.mlp.up_proj.weight"] = tensors["mtp.layers.0.mlp.up_proj.weight"]

    metadata, _, said = convert(changed(tiny, tmp_path, QWEN, add))
    assert metadata["config"]["mtp"] and "the first one alone is used" in said


def test_of_a_model_that_sees(tiny, convert, tmp_path):
    directory = tiny(QWEN, "--dtype", "fp32")
    wanted, sees = convert(directory), hf.copy(directory, tmp_path / "sees")
    text = json.loads((sees / "config.json").read_text())
    del text["architectures"]
    whole = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": text}
    (sees / "config.json").write_text(json.dumps(whole))
    tensors = hf.read_tensors(sees)
    hf.write_tensors(
        sees / "model.safetensors",
        {name.replace("model.", "model.language_model.", 1): entry for name, entry in tensors.items()},
    )
    assert hf.contents(convert(sees)[1]) == hf.contents(wanted[1])


@pytest.mark.parametrize("preset", [QWEN, MOE, GLM])
def test_gguf(tiny, convert, tmp_path, preset):
    directory = tiny(preset, "--dtype", "fp32")
    wanted, found = convert(directory), convert(gguf_files.write(directory, tmp_path / "model.gguf"))
    assert found[0]["config"]["mtp"] == wanted[0]["config"]["mtp"]
    ours, theirs = hf.contents(found[1]), hf.contents(wanted[1])
    heads = [name for name in theirs if name.startswith(("mtp.", f"layers.{wanted[0]['config']['n_layers']}."))]
    assert len(heads) > 12 and ours.keys() == theirs.keys() and all(ours[name] == theirs[name] for name in heads)
