"""Writes a model file that holds a tokenizer and no weights: enough for the tokenizer's own tests."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import xxhash

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from yalm_convert.tokenizer import read_tokenizer  # noqa: E402

DTYPES = {"uint8": "u8", "uint32": "u32", "float32": "fp32"}


def write(path, source):
    """Converts the tokenizer of directory `source` into the file `path`; returns its TokenizerData."""
    data = read_tokenizer(Path(source), {})
    config = {
        "architecture": "LlamaForCausalLM",
        "activation": "silu",
        "n_layers": 1,
        "hidden_dim": 4,
        "ffn_dim": 4,
        "n_heads": 1,
        "n_kv_heads": 1,
        "head_dim": 4,
        "vocab_size": data.facts["n_pieces"],
        "context_length": 8,
        "norm_eps": 1e-5,
        "rope": {"type": "default", "theta": 10000.0},
        "sliding_window": 0,
        "n_experts": 0,
        "n_active_experts": 0,
        "tied_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos": -1 if data.bos is None else data.bos,
        "eos": data.eos,
    }
    tensors, blobs = [], []
    for name, array in data.tensors:
        blob = array.tobytes()
        tensors.append({"name": name, "dtype": DTYPES[array.dtype.name], "shape": list(array.shape), "offset": 0})
        tensors[-1].update(length=len(blob), xxh3=xxhash.xxh3_64_hexdigest(blob))
        blobs.append(blob)
    metadata = {"config": config, "tokenizer": data.facts, "source": {"name": "tokenizer", "converter": "test"}}
    start = 1 << 20
    at = start
    for entry in tensors:
        at += -at % 64
        entry["offset"] = at
        at += entry["length"]
    text = json.dumps({**metadata, "tensors": tensors}).encode()
    assert 64 + len(text) <= start
    head = struct.pack(
        "<8sIIQQQQQQ", b"YALM\r\n\x1a\n", 1, 64, at, 64, len(text), xxhash.xxh3_64_intdigest(text), start, 0
    )
    with Path(path).open("wb") as out:
        out.write(head + text)
        for entry, blob in zip(tensors, blobs):
            out.seek(entry["offset"])
            out.write(blob)
        out.truncate(at)
    return data
