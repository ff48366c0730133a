"""Model files of real shapes with random weights, written straight away by bench/random_model.c: 14 GB in seconds."""

from __future__ import annotations

import array
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from random_hf_model import PRESETS  # noqa: E402
from yalm_convert.config import read_config  # noqa: E402


def normalised_config(preset, layers=None):
    """The metadata's `config` of a preset of tools/random_hf_model.py."""
    values = dict(PRESETS[preset])
    if layers:
        values["num_hidden_layers"] = layers
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(values), encoding="utf-8")
        return read_config(Path(folder)).facts


def tensors(config, dtype):
    """(name, dtype, rows, cols) in the order of the file; vectors have 0 columns."""
    dim, ffn, head_dim = config["hidden_dim"], config["ffn_dim"], config["head_dim"]
    q, kv = config["n_heads"] * head_dim, config["n_kv_heads"] * head_dim
    projections = {"q": (q, dim), "k": (kv, dim), "v": (kv, dim), "o": (dim, q)}
    units = {"gate": (ffn, dim), "up": (ffn, dim), "down": (dim, ffn)}
    yield "embedding", dtype, config["vocab_size"], dim
    for layer in range(config["n_layers"]):
        at = f"layers.{layer}."
        yield at + "attention_norm", "fp32", dim, 0
        for name, shape in projections.items():
            yield (at + name, dtype, *shape)
            if config["attention_bias"]:
                yield at + name + "_bias", "fp32", shape[0], 0
        yield at + "ffn_norm", "fp32", dim, 0
        if config["n_experts"]:
            yield at + "router", "fp32", config["n_experts"], dim
        for prefix in [f"experts.{e}." for e in range(config["n_experts"])] or [""]:
            for name, shape in units.items():
                yield (at + prefix + name, dtype, *shape)
                if config["mlp_bias"]:
                    yield at + name + "_bias", "fp32", shape[0], 0
    yield "norm", "fp32", dim, 0
    if not config["tied_embeddings"]:
        yield "classifier", dtype, config["vocab_size"], dim


def write(program, out, preset, dtype, layers=None, **changes):
    """Runs the program of bench/random_model.c; raises CalledProcessError, with its words, where it fails. `changes`
    replace members of the config."""
    config = {**normalised_config(preset, layers), **changes}
    lines = [f"name {preset}", "config " + json.dumps(config, separators=(",", ":"))]
    lines += [f"tensor {name} {kind} {rows} {cols}" for name, kind, rows, cols in tensors(config, dtype)]
    subprocess.run([program, out], input="\n".join(lines) + "\n", text=True, check=True, capture_output=True)
    return Path(out)


def write_codebooks(model, config, d_sub=1):
    """Codebooks for keys of noise, evenly spread over [-1, 1], beside the model (docs/format.md, "The file of codebooks")."""
    import xxhash

    with open(model, "rb") as file:
        checksum = struct.unpack_from("<Q", file.read(64), 40)[0]
    layers, heads, head_dim = config["n_layers"], config["n_kv_heads"], config["head_dim"]
    spread = array.array("f", [(2 * c - 15) / 16 for c in range(16)])
    if sys.byteorder != "little":
        spread.byteswap()
    body = spread.tobytes() * (layers * heads * head_dim)
    header = b"NMAD\r\n\x1a\n" + struct.pack("<IIQQQ", 1, 64, 64 + len(body), checksum, xxhash.xxh3_64_intdigest(body))
    header += struct.pack("<IIIIII", layers, heads, head_dim, d_sub, config["context_length"], 1)
    path = Path(model).with_suffix(".nomad")
    path.write_bytes(header + body)
    return path


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6):
        sys.exit("usage: random_model.py PROGRAM OUT PRESET fp32|fp16|bf16|fp8|q8|q4 [LAYERS]")
    write(*sys.argv[1:5], *map(int, sys.argv[5:]))
