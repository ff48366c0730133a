"""Latents (MLA): how kv_b is split, in which order heads rotate, and what types the matrices get."""

import hf
import numpy as np
import pytest

PRESET, HEADS, NOPE, ROPE, V, RANK = "tiny-deepseek-v3", 4, 24, 16, 20, 40


@pytest.fixture
def directory(tmp_path):
    return hf.make(PRESET, tmp_path / PRESET, "--dtype", "fp32")


def floats(tensors, name):
    return np.frombuffer(tensors[name][1], np.float32)


def source(directory, part):
    _, shape, data = hf.read_tensors(directory)[f"model.layers.1.self_attn.{part}.weight"]
    return np.frombuffer(data, np.float32).reshape(shape)


def test_halves_of_kv_b(directory, convert):
    _, tensors, _ = convert(directory)
    kv_b = source(directory, "kv_b_proj").reshape(HEADS, NOPE + V, RANK)
    assert (floats(tensors, "layers.1.k_b") == kv_b[:, :NOPE].swapaxes(1, 2).reshape(-1)).all()
    assert (floats(tensors, "layers.1.v_b") == kv_b[:, NOPE:].reshape(-1)).all()


@pytest.mark.parametrize("interleaved", [True, False])
def test_rotation(directory, convert, interleaved):
    hf.edit_json(directory / "config.json", rope_interleave=interleaved)
    _, tensors, _ = convert(directory)
    order = [*range(0, ROPE, 2), *range(1, ROPE, 2)] if interleaved else range(ROPE)
    kv_a, q = source(directory, "kv_a_proj_with_mqa"), source(directory, "q_b_proj").reshape(HEADS, NOPE + ROPE, -1)
    wanted = np.concatenate([kv_a[:RANK], kv_a[RANK:][order]])
    assert (floats(tensors, "layers.1.kv_a") == wanted.reshape(-1)).all()
    wanted = np.concatenate([q[:, :NOPE], q[:, NOPE:][:, order]], axis=1)
    assert (floats(tensors, "layers.1.q") == wanted.reshape(-1)).all()


@pytest.mark.parametrize("dtype", ["q4", "q8", "fp8", "bf12", "fp16"])
def test_types(directory, convert, dtype):
    """Matrices of each head stay floats."""
    metadata, _, _ = convert(directory, "--dtype", dtype)
    types = {entry["name"]: entry["dtype"] for entry in metadata["tensors"]}
    assert types["layers.1.k_b"] == types["layers.1.v_b"] == ("fp16" if dtype == "fp16" else "fp32")
    assert types["layers.1.q_a"] != "fp32"


def test_kimi_k2_is_of_the_same_form(directory, convert):
    wanted = convert(directory)
    hf.edit_json(directory / "config.json", model_type="kimi_k2")
    assert convert(directory)[0]["config"] == wanted[0]["config"]
