"""A reader of model files, written from docs/format.md alone: it shares nothing with the converter (tensors: read_types.py).

read_model(path) checks every rule of the container that holds for any model and returns (metadata, {name: (entry, bytes)}).
"""

import json
import struct
from pathlib import Path

import xxhash
from read_types import GROUP_SIZE, SIX_BITS, bf12_row, require

MAGIC = bytes.fromhex("59414c4d0d0a1a0a")
ITEM_SIZE = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "fp8_e5m2": 1, "u8": 1, "u32": 4}
ROW_SCALE = {"fp8": 4, **dict.fromkeys(SIX_BITS, 4)}
CONFIG = {
    "architecture", "activation", "n_layers", "hidden_dim", "ffn_dim", "n_heads", "n_kv_heads", "head_dim", "vocab_size",
    "context_length", "norm_eps", "rope", "sliding_window", "n_experts", "n_active_experts", "tied_embeddings",
    "attention_bias",
    "mlp_bias", "bos", "eos",
}  # fmt: skip
LATER = {
    "mtp",
    "pooling",
    "qkv_bias",
    "qk_norm",
    "rotated_qk_norm",
    "expert_ffn_dim",
    "raw_expert_weights",
    "dense_layers",
    "unrotated_layers",
    "attention_scale",
    "query_growth",
    "query_growth_context",
    "norms_after",
    "norms_around",
    "router_bias",
    "sigmoid_router",
    "softmax_choice_bias",
    "expert_scale",
    "expert_eps",
    "shared_ffn_dim",
    "sink_logits",
    "kinds",
    "attention_softcap",
    "logits_softcap",
    "whole_qk_norm",
    "embedding_scale",
    "output_gate",
    "shared_gate",
    "v_norm",
    "layer_scale",
    "layer_input_dim",
    "expert_norms",
    "latent",
    "n_expert_groups",
    "n_active_groups",
    "layer_norm",
    "norm_bias",
    "embedding_norm",
    "ungated",
    "parallel",
    "one_norm",
    "classifier_bias",
    "alibi",
    "learned_positions",
    "delta",
    "no_ffn_layers",
}  # fmt: skip (may be left out)
OWN = ("head_dim", "n_kv_heads", "ffn_dim", "kv_of")  # what kinds may have
ROPE = {
    "default": set(),
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_context"},
    "longrope": {"short_factors", "long_factors", "original_context", "attention_factor"},
    "yarn": {"factor", "beta_fast", "beta_slow", "original_context", "attention_factor", "truncate"},
}


def read_model(path):
    data = Path(path).read_bytes()
    require(len(data) >= 64, "short")
    magic, version, header, length, at, size, checksum, start, reserved = struct.unpack("<8sIIQQQQQQ", data[:64])
    require((magic, version, header, length, at, reserved) == (MAGIC, 2, 64, len(data), 64, 0), "header")
    require(start % 4096 == 0 and 64 + size <= start <= len(data), "data offset")
    text = data[64 : 64 + size]
    require(xxhash.xxh3_64_intdigest(text) == checksum, "metadata checksum")
    metadata = json.loads(text.decode("utf-8"), object_pairs_hook=unique, parse_constant=lambda c: require(False, c))
    require(set(metadata) - {"chat_template", "chat"} == {"config", "tokenizer", "source", "tensors"}, "members")
    check_config(metadata["config"])

    tensors, end = {}, start
    require(not any(data[64 + size : start]), "padding after the metadata")
    for entry in metadata["tensors"]:
        require(set(entry) == {"name", "dtype", "shape", "offset", "length", "xxh3"}, "entry")
        name, offset, length = entry["name"], entry["offset"], entry["length"]
        count = 1
        for n in entry["shape"]:
            count *= n
        require(name not in tensors and 1 <= len(entry["shape"]) <= 4, f"{name}: name or rank")
        if entry["dtype"] in GROUP_SIZE:
            require(len(entry["shape"]) == 2, f"{name}: rank")
            size = -(-entry["shape"][1] // 32) * GROUP_SIZE[entry["dtype"]] + ROW_SCALE.get(entry["dtype"], 0)
            size *= entry["shape"][0]
        elif entry["dtype"] == "bf12":
            require(len(entry["shape"]) == 2 and entry["shape"][1] <= 65536, f"{name}: rank or columns")
            size = entry["shape"][0] * sum(bf12_row(entry["shape"][1]))
        else:
            size = count * ITEM_SIZE[entry["dtype"]] + ROW_SCALE.get(entry["dtype"], 0) * entry["shape"][0]
            require(entry["dtype"] not in ROW_SCALE or len(entry["shape"]) == 2, f"{name}: rank")
        require(length == size, f"{name}: length")
        require(offset % 64 == 0 and end <= offset and offset + length <= len(data), f"{name}: offset")
        require(not any(data[end:offset]), f"{name}: padding before it")
        end = offset + length
        require(f"{xxhash.xxh3_64_intdigest(data[offset:end]):016x}" == entry["xxh3"], f"{name}: checksum")
        tensors[name] = (entry, data[offset:end])
    require(end == len(data), "something follows the last tensor")
    weights = {n: (tuple(e["shape"]), e["dtype"]) for n, (e, _) in tensors.items() if not n.startswith("tokenizer.")}
    expected = expected_tensors(metadata["config"])
    require(set(weights) == set(expected), f"tensors: {set(weights) ^ set(expected)}")
    for name, (shape, kinds) in expected.items():
        require(weights[name][0] == shape and weights[name][1] in kinds, f"{name}: {weights[name]}")
    return metadata, tensors


def unique(pairs):
    require(len(dict(pairs)) == len(pairs), "duplicate keys")
    return dict(pairs)


def check_config(c):
    require(set(c) - LATER == CONFIG, f"config: {set(c) ^ CONFIG}")
    for kind in [c, *c.get("kinds", [])]:
        if "delta" in kind:
            check_delta(kind, kind is c)
        if "delta" in kind and kind is not c:
            continue
        if "conv" in kind:
            conv = kind["conv"]
            require(set(kind) == {"layers", "conv"} and set(conv) - {"bias"} == {"conv_width"}, "conv")
            require(conv["conv_width"] >= 2, "conv_width")
            continue
        rope, head_dim = kind["rope"], kind.get("head_dim", c["head_dim"])
        require(set(rope) - {"rotary_dim"} == {"type", "theta"} | ROPE[rope["type"]], "rope")
        rotary = rope.get("rotary_dim", head_dim)
        require(rotary % 2 == 0 and 2 <= rotary <= head_dim and head_dim % 2 == 0, "rotary_dim")
        require(c["n_heads"] % kind.get("n_kv_heads", c["n_kv_heads"]) == 0, "heads")
        for factors in ("short_factors", "long_factors"):
            require(factors not in rope or len(rope[factors]) == rotary // 2, factors)
    attends = [kind for kind in c.get("kinds", []) if not {"delta", "conv"} & set(kind)]
    require(all(set(kind) - set(OWN) == {"layers", "sliding_window", "rope"} for kind in attends), "kinds")
    for kind in attends:
        if "kv_of" in kind:
            check_shared(c, kind)
    named = [layer for kind in c.get("kinds", []) for layer in kind["layers"]]
    layers = c["n_layers"] + ("mtp" in c)
    require(len(set(named)) == len(named) < layers and all(0 <= n < layers for n in named), "layers of kinds")
    require("mtp" not in c or set(c["mtp"]) == {"normed", "own_normed"}, "mtp")
    pooling = c.get("pooling", {"by": "last", "end": -1})
    require(set(pooling) - {"matryoshka"} == {"by", "end"} and pooling["by"] in ("last", "mean", "first"), "pooling")
    require(1 <= pooling.get("matryoshka", 1) < c["hidden_dim"], "pooling")
    require(-1 <= pooling["end"] < c["vocab_size"], "pooling")
    require(not c.get("expert_norms") or (c.get("norms_around") and c["shared_ffn_dim"] > 0), "expert_norms")
    if "latent" in c:
        latent = c["latent"]
        require(set(latent) == {"q_rank", "kv_rank", "nope_dim", "rope_dim", "v_dim", "norm_eps"}, "latent")
        require(c["n_kv_heads"] == 1 and c["head_dim"] == latent["kv_rank"] + latent["rope_dim"], "latent")
    require(c["norm_eps"] > 0 and c["rope"]["theta"] > 0 and len(c["eos"]) <= 16, "numbers")


def check_shared(c, kind):
    """The layers whose keys it sees lie before it, and have keys like those that it would have."""
    kinds = c["kinds"]
    of = kinds[kind["kv_of"] - 1] if kind["kv_of"] else c
    plain = set(range(c["n_layers"])) - {layer for other in kinds for layer in other["layers"]}
    require(max(of.get("layers", plain)) < min(kind["layers"]) and "kv_of" not in of, "kv_of: order")
    alike = [[k.get(key, c[key]) for key in ("sliding_window", "rope", "head_dim", "n_kv_heads")] for k in (of, kind)]
    require(alike[0] == alike[1], "kv_of: unlike")


def layer_facts(c, layer):
    kind = next((kind for kind in c.get("kinds", []) if layer in kind["layers"]), {})
    return {**c, **{key: kind[key] for key in OWN if key in kind}}, kind


def attention_tensors(c, p, weights, exact):
    dim, q, kv = c["hidden_dim"], c["n_heads"] * c["head_dim"], c["n_kv_heads"] * c["head_dim"]
    matrices, keys = {"q": (q, dim), "o": (dim, q)}, {"k": (kv, dim), "v": (kv, dim)}
    if "kv_of" not in c:
        matrices |= keys
    table = {p + name: (shape, weights) for name, shape in matrices.items()}
    if c["activation"] == "xielu":
        table[p + "xielu"] = ((3,), exact)
    if c.get("sink_logits"):
        table[p + "sink_logits"] = ((c["n_heads"],), exact)
    biased = "qkvo" if c["attention_bias"] else "qkv" if c.get("qkv_bias") else ""
    table.update({f"{p}{name}_bias": (matrices[name][:1], exact) for name in biased if name in matrices})
    if c.get("output_gate"):
        table[p + "output_gate"] = (matrices["q"], weights)
    if c.get("output_gate") and biased:
        table[p + "output_gate_bias"] = (matrices["q"][:1], exact)
    normed = [name for name in "qk"[: 2 - c.get("rotated_qk_norm", 0)] if name in matrices and c.get("qk_norm")]
    table.update({f"{p}{name}_norm": ((c["head_dim"],), exact) for name in normed})
    table.update({f"{p}{name}_norm": (matrices[name][:1], exact) for name in "qk" if c.get("whole_qk_norm")})
    return table


def latent_tensors(c, p, weights, exact):
    """A layer's with latents, in place of attention's."""
    d, dim, heads = c["latent"], c["hidden_dim"], c["n_heads"]
    table = {
        "q": ((heads * (d["nope_dim"] + d["rope_dim"]), d["q_rank"] or dim), weights),
        "kv_a": ((d["kv_rank"] + d["rope_dim"], dim), weights),
        "kv_a_norm": ((d["kv_rank"],), exact),
        "k_b": ((heads * d["kv_rank"], d["nope_dim"]), weights[:3]),
        "v_b": ((heads * d["v_dim"], d["kv_rank"]), weights[:3]),
        "o": ((dim, heads * d["v_dim"]), weights),
    }
    if d["q_rank"]:
        table |= {"q_a": ((d["q_rank"], dim), weights), "q_a_norm": ((d["q_rank"],), exact)}
    return {p + name: known for name, known in table.items()}


def check_delta(kind, beside):
    delta = kind["delta"]
    sizes = {"n_key_heads", "n_value_heads", "key_dim", "value_dim", "conv_width"}
    require(beside or set(kind) == {"layers", "delta"}, "delta")
    require(set(delta) - {"tiled", "scan", "kda_rank"} == sizes, "delta")
    scan = delta.get("scan", {"conv_bias": True, "norm_groups": 0})
    normed = {"norm_first", "norm_eps"} if scan["norm_groups"] else set()
    require(set(scan) - {"dt_min", "dt_max"} == {"conv_bias", "norm_groups"} | normed, "scan")
    require(delta["n_value_heads"] % delta["n_key_heads"] == 0 and delta["conv_width"] >= 2, "delta's sizes")


def scan_tensors(dim, heads, keys, values, delta):
    """({name: shape} of matrices, of floats) of a scan."""
    channels = 2 * keys + values
    floats = {"dt": (heads, dim), "dt_bias": (heads,), "rate": (heads,), "skip": (heads,)}
    floats["conv"] = (delta["conv_width"], channels)
    floats |= {"conv_bias": (channels,)} if delta["scan"]["conv_bias"] else {}
    floats |= {"norm": (values,)} if delta["scan"]["norm_groups"] else {}
    matrices = {"c": (keys, dim), "b": (keys, dim), "x": (values, dim), "z": (values, dim), "o": (dim, values)}
    return [{f"scan.{name}": shape for name, shape in table.items()} for table in (matrices, floats)]


def recurrent_tensors(c, delta, p, weights, exact):
    """A recurrent layer's, in place of attention's, or beside."""
    dim, heads = c["hidden_dim"], delta["n_value_heads"]
    keys, values = delta["n_key_heads"] * delta["key_dim"], heads * delta["value_dim"]
    if "scan" in delta:
        both = zip(scan_tensors(dim, heads, keys, values, delta), (weights, exact))
        return {p + name: (shape, types) for table, types in both for name, shape in table.items()}
    matrices = {
        "q": (keys, dim),
        "k": (keys, dim),
        "v": (values, dim),
        "output_gate": (values, dim),
        "o": (dim, values),
    }
    floats = {
        "conv": (delta["conv_width"], 2 * keys + values),
        "decay": (heads, dim),
        "beta": (heads, dim),
        "decay_bias": (heads,),
        "decay_rate": (heads,),
        "value_norm": (delta["value_dim"],),
    }
    if rank := delta.get("kda_rank"):
        del matrices["output_gate"], floats["decay"]
        matrices |= {f"{part}_a": (rank, dim) for part in ("decay", "gate")}
        matrices |= {"decay_b": (keys, rank), "gate_b": (values, rank)}
        floats["decay_bias"] = (keys,)
    table = {p + name: (shape, weights) for name, shape in matrices.items()}
    return table | {p + name: (shape, exact) for name, shape in floats.items()}


def convolution_tensors(dim, conv, p, weights, exact):
    """A layer's with a short convolution, likewise."""
    table = {p + name: ((dim, dim), weights) for name in "qkvo"} | {p + "conv": ((conv["conv_width"], dim), exact)}
    biased = ("q", "k", "v", "o", "conv") if conv.get("bias") else ()
    return table | {f"{p}{name}_bias": ((dim,), exact) for name in biased}


def expected_tensors(c):
    """{name: (shape, possible types)} of the doc's table."""
    weights, exact = ("fp32", "fp16", "bf16", "bf12", "fp8", "fp8_e5m2", *GROUP_SIZE), ("fp32",)
    dim, vocab, inputs = c["hidden_dim"], c["vocab_size"], c.get("layer_input_dim", 0)
    table = {"embedding": ((vocab, dim), weights), "norm": ((dim,), exact)}
    if not c["tied_embeddings"]:
        table["classifier"] = ((vocab, dim), weights)
    if inputs:
        table["layer_embedding"] = ((vocab, c["n_layers"] * inputs), weights)
        table["layer_projection"] = ((c["n_layers"] * inputs, dim), weights)
        table["layer_projection_norm"] = ((inputs,), exact)
    if "mtp" in c:
        table["mtp.projection"] = ((dim, 2 * dim), weights)
        table.update({f"mtp.{name}norm": ((dim,), exact) for name in ("embedding_", "hidden_", "")})
    for n in range(c["n_layers"] + ("mtp" in c)):
        p, (of, kind) = f"layers.{n}.", layer_facts(c, n)
        table.update({p + "attention_norm": ((dim,), exact), p + "ffn_norm": ((dim,), exact)})
        if c.get("norms_around"):
            table.update({p + "attention_post_norm": ((dim,), exact), p + "ffn_post_norm": ((dim,), exact)})
        if inputs:
            table[p + "input_gate"], table[p + "input_projection"] = ((inputs, dim), weights), ((dim, inputs), weights)
            table[p + "input_norm"] = ((dim,), exact)
        if c.get("layer_scale"):
            table[p + "scale"] = ((1,), exact)
        delta = kind.get("delta", c.get("delta"))
        if delta:
            table.update(recurrent_tensors(c, delta, p, weights, exact))
        if "conv" in kind:
            table.update(convolution_tensors(dim, kind["conv"], p, weights, exact))
        elif delta and "delta" not in c:
            pass
        elif "latent" in c:
            table.update(latent_tensors(c, p, weights, exact))
        else:
            table.update(attention_tensors(of, p, weights, exact))
        if n in c.get("no_ffn_layers", []):
            del table[p + "ffn_norm"]
        elif c["n_experts"] and n not in c.get("dense_layers", []):
            table.update(expert_tensors(of, p, weights, exact))
        else:
            table.update(mlp_tensors(dim, of["ffn_dim"], p, weights))
            biases = {"gate": of["ffn_dim"], "up": of["ffn_dim"], "down": dim} if c["mlp_bias"] else {}
            table.update({f"{p}{name}_bias": ((rows,), exact) for name, rows in biases.items()})
    return before_llama(c, table, exact)


def before_llama(c, table, exact):
    """The table with what decoders of the kind before Llama have, and without what they lack."""
    dim, vocab = c["hidden_dim"], c["vocab_size"]
    facts = {
        "embedding_norm": ("embedding_norm", (dim,)),
        "classifier_bias": ("classifier_bias", (vocab,)),
        "alibi": ("alibi_slopes", (c["n_heads"],)),
        "learned_positions": ("positions", (c["context_length"], dim)),
    }
    table = table | {name: (shape, exact) for fact, (name, shape) in facts.items() if c.get(fact)}
    without = [".gate", ".gate_bias"] * c.get("ungated", False) + [".ffn_norm"] * c.get("one_norm", False)
    table = {name: entry for name, entry in table.items() if not name.endswith(tuple(without))}
    norms = [name for name in table if c.get("norm_bias") and name.endswith("norm")]
    return table | {f"{name}_bias": ((dim,), exact) for name in norms}


def mlp_tensors(dim, ffn, p, weights):
    return {
        p + name: (shape, weights) for name, shape in (("gate", (ffn, dim)), ("up", (ffn, dim)), ("down", (dim, ffn)))
    }


def expert_tensors(c, p, weights, exact):
    dim, wide = c["hidden_dim"], c.get("expert_ffn_dim") or c["ffn_dim"]
    table = {p + "router": ((c["n_experts"], dim), exact)}
    if c.get("sigmoid_router") or c.get("softmax_choice_bias"):
        table[p + "router_choice_bias"] = ((c["n_experts"],), exact)
    if "shared_ffn_dim" in c:
        table.update(mlp_tensors(dim, c["shared_ffn_dim"], f"{p}shared.", weights))
        if c.get("shared_gate"):
            table[p + "shared.router"] = ((1, dim), exact)
    if c.get("router_bias"):
        table[p + "router_bias"] = ((c["n_experts"],), exact)
    if c.get("expert_norms"):
        table[p + "router_scale"] = ((c["n_experts"],), exact)
        table.update({f"{p}{name}_norm": ((dim,), exact) for name in ("expert", "expert_post", "shared_post")})
    for e in range(c["n_experts"]):
        block = mlp_tensors(dim, wide, f"{p}experts.{e}.", weights)
        table.update(block)
        table.update({f"{name}_bias": (shape[:1], exact) for name, (shape, _) in block.items() if c["mlp_bias"]})
    return table
