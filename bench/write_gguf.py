#!/usr/bin/env python3
"""Writes a Llama in Hugging Face form as GGUF, for llama.cpp: the same weights, norms in fp32, and no vocabulary
("no_vocab"), since only speed and logits are compared. The format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

usage: write_gguf.py MODEL_DIR OUT.gguf [--dtype f16|bf16|f32]
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import sys
from pathlib import Path

import numpy as np

ALIGNMENT = 32
U32, F32, STRING = 4, 6, 8  # GGUF's types of values
TENSOR_TYPES = {"f32": 0, "f16": 1, "bf16": 30}
FILE_TYPES = {"f32": 0, "f16": 1, "bf16": 32}
NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def safetensors(directory):
    """{name: (dtype, shape, bytes as a memory map)} of all shards."""
    found = {}
    for path in sorted(directory.glob("*.safetensors")):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        data = np.memmap(path, np.uint8, "r", offset=8 + length)
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[name] = (entry["dtype"], entry["shape"], data[begin:end])
    return found


def to_float32(dtype, data):
    if dtype == "BF16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return data.view({"F16": np.float16, "F32": np.float32}[dtype]).astype(np.float32)


def encode(source, data, dtype):
    """The bytes of a tensor in another type, rounded to nearest even."""
    if SAFE[dtype] == source:
        return data
    x = to_float32(source, data)
    if dtype != "bf16":
        return x.astype({"f16": np.float16, "f32": np.float32}[dtype]).view(np.uint8)
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).view(np.uint8)


SAFE = {"f32": "F32", "f16": "F16", "bf16": "BF16"}


def interleave(data, heads, rows):
    """llama.cpp rotates neighbouring pairs of a head's components, Hugging Face's form its halves: rows change places."""
    data = data.reshape(heads, 2, rows // heads // 2, -1)
    return np.ascontiguousarray(data.swapaxes(1, 2)).reshape(-1)


def rope_factors(config, head_dim):
    """Llama 3's divisors of the frequencies (its `rope_scaling`), or None."""
    scaling = config.get("rope_scaling")
    if not scaling:
        return None
    if scaling.get("rope_type") != "llama3":
        sys.exit(f"write_gguf.py: rope_scaling {scaling.get('rope_type')!r} is not supported, expected 'llama3'")
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    context, factors = scaling["original_max_position_embeddings"], []
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * config["rope_theta"] ** (i / head_dim)
        smooth = min(max((context / wavelength - low) / (high - low), 0), 1)
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def metadata(config, name, head_dim, dtype):
    return [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, name),
        ("general.alignment", U32, ALIGNMENT),
        ("general.file_type", U32, FILE_TYPES[dtype]),
        ("llama.context_length", U32, config["max_position_embeddings"]),
        ("llama.embedding_length", U32, config["hidden_size"]),
        ("llama.block_count", U32, config["num_hidden_layers"]),
        ("llama.feed_forward_length", U32, config["intermediate_size"]),
        ("llama.attention.head_count", U32, config["num_attention_heads"]),
        ("llama.attention.head_count_kv", U32, config["num_key_value_heads"]),
        ("llama.attention.key_length", U32, head_dim),
        ("llama.attention.value_length", U32, head_dim),
        ("llama.attention.layer_norm_rms_epsilon", F32, config["rms_norm_eps"]),
        ("llama.rope.dimension_count", U32, head_dim),
        ("llama.rope.freq_base", F32, config["rope_theta"]),
        ("llama.vocab_size", U32, config["vocab_size"]),
        ("tokenizer.ggml.model", STRING, "no_vocab"),
    ]


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def pack_value(key, kind, value):
    packed = string(value) if kind == STRING else struct.pack("<I" if kind == U32 else "<f", value)
    return string(key) + struct.pack("<I", kind) + packed


def gguf_name(name):
    if not name.startswith("model.layers."):
        return NAMES[name]
    layer, _, rest = name[len("model.layers.") :].partition(".")
    return f"blk.{layer}.{NAMES[rest]}"


def write(directory, out, dtype):
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    if config["model_type"] != "llama":
        sys.exit(f"write_gguf.py: model_type {config['model_type']!r} is not supported, expected 'llama'")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads

    tensors = []  # (name, shape, type, function that gives the bytes)
    for name, (source, shape, data) in safetensors(directory).items():
        kind = "f32" if len(shape) == 1 else dtype

        def content(source=source, data=data, kind=kind, name=name, rows=shape[0]):
            encoded = encode(source, data, kind)
            if ".q_proj." in name or ".k_proj." in name:
                encoded = interleave(encoded, heads if ".q_proj." in name else kv_heads, rows)
            return encoded

        size = int(np.prod(shape)) * (4 if kind == "f32" else 2)
        tensors.append((gguf_name(name), shape, kind, size, content))
    factors = rope_factors(config, head_dim)
    if factors is not None:
        tensors.append(("rope_freqs.weight", [len(factors)], "f32", 4 * len(factors), lambda: factors.view(np.uint8)))

    facts = metadata(config, directory.name, head_dim, dtype)
    header = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(facts)), *(pack_value(*fact) for fact in facts)]
    at = 0
    for name, shape, kind, size, _ in tensors:
        sizes = b"".join(struct.pack("<Q", n) for n in reversed(shape))
        header.append(string(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", TENSOR_TYPES[kind], at))
        at += size + -size % ALIGNMENT
    with out.open("wb") as file:
        file.write(b"".join(header))
        file.write(bytes(-file.tell() % ALIGNMENT))
        for _, _, _, size, content in tensors:
            content().tofile(file)
            file.write(bytes(-size % ALIGNMENT))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", choices=TENSOR_TYPES, default="f16")
    arguments = parser.parse_args()
    write(arguments.directory, arguments.out, arguments.dtype)


if __name__ == "__main__":
    main()
