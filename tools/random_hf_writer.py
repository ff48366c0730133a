"""The weights of random_hf_model.py: drawn, rounded, and written as safetensors."""

import functools
import json

import numpy as np
from random_hf_classic import PLACES, width
from random_hf_shapes import tensor_shapes

NUMPY = {"bf16": np.uint16, "fp16": np.float16, "fp32": np.float32}
SAFE = {"bf16": "BF16", "fp16": "F16", "fp32": "F32"}


def encode(x, dtype):
    """float32 array -> array of the stored type; bf16 as uint16, rounded to nearest even."""
    if dtype != "bf16":
        return x.astype(NUMPY[dtype])
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_shard(path, shapes, make, dtype):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    item = np.dtype(NUMPY[dtype]).itemsize
    for name, shape in shapes.items():
        size = int(np.prod(shape)) * item
        header[name] = {"dtype": SAFE[dtype], "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            make(name, shape).tofile(f)


@functools.lru_cache(1)
def normals(seed):
    """4 Mi of them, and the state of the generator after. Tests make many models of one seed in one process."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(4 << 20, dtype=np.float32), rng.bit_generator.state


def filler(config, dtype, seed):
    """make(name, shape) -> an array of the stored type, for tensors in the order of their shapes."""
    rng = np.random.default_rng(seed)
    drawn, rng.bit_generator.state = normals(seed)
    dim = width(config)
    std = np.float32(0.02 if dim >= 1024 else 1.5 / dim**0.5)

    def make(name, shape):
        n = int(np.prod(shape))
        if name.endswith(
            (
                "norm.weight",
                "norm_embedding.weight",
                "norm_hidden.weight",
                "_layernorm_1.weight",
                "_layernorm_2.weight",
                "layer_scalar",
                "_scale",
                "router.scale",
                "norm_f.weight",
                ".D",
            )
        ) or (config["model_type"] in PLACES and name.endswith(".weight") and ("ln_" in name or "norm" in name)):
            less = (
                config["model_type"].startswith(("gemma", "vaultgemma", "qwen3_5", "qwen3_next"))
                and config["model_type"] != "gemma4_text"
                and not name.endswith("linear_attn.norm.weight")
            )
            base = 0 if less else 1  # Gemma's are less by 1
            if config["model_type"] == "gemma4_text" and name.endswith("k_norm.weight"):
                base = 0.3  # for scores have no other scale
            return encode((base + 0.1 * rng.standard_normal(n, dtype=np.float32)).astype(np.float32), dtype)
        if ".act_fn." in name:  # xIELU's, far from what they begin as
            fixed = {"beta": 0.5, "eps": -1e-6}.get(name.rpartition(".")[2])
            return encode(np.float32(rng.standard_normal(1) if fixed is None else [fixed]).astype(np.float32), dtype)
        if name.endswith(("sinks", "gate_up_proj_bias")):  # logits beside those of keys; units at both bounds
            mean, deviation = (1, 1) if name.endswith("sinks") else (0, 5)
            return encode((mean + deviation * rng.standard_normal(n, dtype=np.float32)).astype(np.float32), dtype)
        if name.endswith(("A_log", "dt_bias", "conv1d.weight", "conv.conv.weight")):  # that remember and forget
            mean, deviation = {"A_log": (-1, 1), "dt_bias": (-1, 1)}.get(name.rpartition(".")[2], (0.3, 0.5))
            return encode((mean + deviation * rng.standard_normal(n, dtype=np.float32)).astype(np.float32), dtype)
        start = int(rng.integers(len(drawn)))
        if n < len(drawn):  # then less than the block is encoded
            piece = drawn[start : start + n]
            return encode(np.concatenate((piece, drawn[: n - len(piece)])) * std, dtype)
        return np.resize(np.roll(encode(drawn * std, dtype), -start), n)

    return make


def write_model(out, config, make, dtype, shard_gib):
    """Returns how many parameters in how many shards."""
    shapes, shards, size = tensor_shapes(config), [{}], 0
    item = np.dtype(NUMPY[dtype]).itemsize
    for name, shape in shapes.items():
        n = int(np.prod(shape)) * item
        if size and size + n > shard_gib * 2**30:
            shards.append({})
            size = 0
        shards[-1][name] = shape
        size += n

    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if len(shards) == 1:
        write_shard(out / "model.safetensors", shards[0], make, dtype)
    else:
        where = {}
        for i, part in enumerate(shards):
            file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
            write_shard(out / file, part, make, dtype)
            where.update({name: file for name in part})
        total = sum(int(np.prod(s)) for s in shapes.values()) * item
        (out / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=2) + "\n"
        )
    return sum(int(np.prod(s)) for s in shapes.values()), len(shards)
