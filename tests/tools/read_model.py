"""A reader of model files, written from docs/format.md alone: it shares nothing with the converter.

read_model(path) checks every rule of the container that holds for any model and returns (metadata, {name: (entry, bytes)}).
"""

import json
import struct
from pathlib import Path

import gguf
import numpy as np
import xxhash

MAGIC = bytes.fromhex("59414c4d0d0a1a0a")
# Of 32 columns, scale included; of some types an eighth of what eight groups have.
GROUP_SIZE = {
    "q8": 34,
    "q6": 25,
    "q5": 21,
    "q4n": 17,
    "q4": 18,
    "q6k": 26.25,
    "q5k": 22,
    "q5u": 22,
    "q4k": 18,
    "q5a": 24,
    "q4a": 20,
    "mxfp4": 17,
    "iq4nl": 18,
    "iq4xs": 17.25,
    "q4z32": 19,
    "q4z64": 17.5,
    "q4z128": 16.75,
    "q3k": 13.75,
    "q2k": 10.5,
    "iq3s": 13.75,
    "iq3xxs": 12.25,
    "iq2s": 10.25,
    "iq2xs": 9.25,
    "iq2xxs": 8.25,
}
PLANES = {
    "q6": 8,
    "q5": 4,
    "q4n": 0,
    "q6k": 8,
    "q5k": 4,
    "q5u": 4,
    "q4k": 0,
    "q5a": 4,
    "q4a": 0,
    **dict.fromkeys(("mxfp4", "iq4nl", "iq4xs", "q4z32", "q4z64", "q4z128"), 0),
}  # second planes' bytes, of a group
SIX_BITS = ("q6", "q5", "q4n")
VALUES = {  # that the bits stand for
    "q4n": np.array([-32, -24, -18, -13, -9, -6, -4, -2, 0, 2, 4, 7, 10, 14, 19, 26]),
    "q5": np.array([-32, -28, -25, -22, -19, -17, -15, -13, -11, -9, -7, -6, -5, -3, -2, -1,
                    0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 19, 22, 25, 29]),
    **{dtype: np.append(np.arange(n), np.arange(-n, 0))  # two's complement
       for dtype, n in (("q6", 32), ("q6k", 32), ("q5k", 16), ("q5u", 16), ("q5a", 16), ("q4k", 8), ("q4a", 8),
                         ("q4z32", 8), ("q4z64", 8), ("q4z128", 8))},
    "mxfp4": np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]),
    **dict.fromkeys(("iq4nl", "iq4xs"),
                    np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])),
}  # fmt: skip
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
    "expert_scale",
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
}  # fmt: skip (may be left out)
OWN = ("head_dim", "n_kv_heads", "ffn_dim", "kv_of")  # what kinds may have
ROPE = {
    "default": set(),
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_context"},
    "longrope": {"short_factors", "long_factors", "original_context", "attention_factor"},
    "yarn": {"factor", "beta_fast", "beta_slow", "original_context", "attention_factor", "truncate"},
}


class FormatError(Exception):
    pass


def require(condition, text):
    if not condition:
        raise FormatError(text)


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


def dequantise(entry, data):
    """(rows, cols) floats of a quantised tensor, and what fills its last groups."""
    (rows, columns), dtype = entry["shape"], entry["dtype"]
    groups = -(-columns // 32)
    if dtype in ("q3k", "q2k"):
        return of_two_bits(np.frombuffer(data, np.uint8), dtype, rows, groups), np.zeros(0)
    if dtype[2:] in ("k", "a"):
        return of_gguf(np.frombuffer(data, np.uint8), dtype, rows, groups), np.zeros(0)
    if dtype.startswith(("iq3", "iq2")):
        return of_grid(np.frombuffer(data, np.uint8), dtype, rows, groups), np.zeros(0)
    if dtype.startswith(("mx", "iq", "q4z")):
        values = of_four_bits(np.frombuffer(data, np.uint8), dtype, rows, groups)
        return values[:, :columns], values[:, columns:]
    scale_bytes = 1 if dtype in SIX_BITS else 2
    quants, scales = np.split(np.frombuffer(data, np.uint8), [(GROUP_SIZE[dtype] - scale_bytes) * rows * groups])
    if dtype in SIX_BITS:
        integers, of_rows = np.split(scales, [rows * groups])
        integers, of_rows = integers.view(np.int8).reshape(rows, groups), of_rows.view("<f4")
        require((integers > -128).all() and np.isfinite(of_rows).all() and (of_rows >= 0).all(), "scales")
        require((integers[of_rows == 0] == 0).all(), "scales of a row of zeros")
        scales, values = integers * of_rows[:, None], six_bits(quants.reshape(rows, -1), dtype, groups)
    else:
        scales, values = scales.view("<f2").astype(np.float32), quants.view(np.int8)
        require(np.isfinite(scales).all(), "scales")
        values = np.stack([values << 4 >> 4, values >> 4], axis=-1) if dtype == "q4" else values
        values = six_bits(quants.reshape(rows, -1), dtype, groups) if dtype == "q5u" else values
    values = (values.reshape(-1, 32) * scales.reshape(-1, 1)).reshape(rows, groups * 32)
    return values[:, :columns], values[:, columns:]


def of_gguf(data, dtype, rows, groups):
    """(rows, cols) floats of a type that has GGUF's numbers."""
    quants, scales = np.split(data, [(16 + PLANES[dtype]) * rows * groups])
    values = six_bits(quants.reshape(rows, -1), dtype, groups).astype(np.float32)
    values = values + (0 if dtype == "q6k" else 16 if PLANES[dtype] else 8)
    if dtype in ("q5a", "q4a"):
        pairs = scales.view("<f2").astype(np.float32).reshape(rows, groups, 2, 1)
        require(np.isfinite(pairs).all(), "scales")
        scale, minimum = pairs[:, :, 0], pairs[:, :, 1]
    else:
        require(groups % 8 == 0, "columns")
        eights = scales.reshape(rows, groups // 8, -1)
        halves = np.ascontiguousarray(eights[..., : 2 if dtype == "q6k" else 4]).view("<f2").astype(np.float32)
        if dtype == "q6k":
            integers = np.stack([eights[..., 2:10], eights[..., 10:18]], axis=-1).view(np.int8)
            scale = np.repeat(integers * halves[..., None], 16, axis=-1).reshape(rows, groups, 32)
            minimum = np.float32(0)
        else:
            upper = np.stack([eights[..., 12:] & 15, eights[..., 12:] >> 4], axis=-1).reshape(rows, -1, 8)
            scale = ((eights[..., 4:12] & 63) * halves[..., :1]).reshape(rows, groups, 1)
            minimum = -((eights[..., 4:12] >> 6 | upper << 2) * halves[..., 1:]).reshape(rows, groups, 1)
        require(np.isfinite(halves).all(), "scales")
    return (values * scale + minimum).reshape(rows, groups * 32)


def of_two_bits(data, dtype, rows, groups):
    """(rows, cols) floats of q3k or q2k, column by column."""
    third = 4 if dtype == "q3k" else 0
    quants, scales = np.split(data, [(8 + third) * rows * groups])
    low, high = np.split(quants.reshape(rows, -1), [groups * 8], axis=1)
    low, high = low.reshape(rows, groups, 8), high.reshape(rows, groups, third).astype(int)
    require(groups % 8 == 0, "columns")
    eights = scales.reshape(rows, groups // 8, -1)
    halves = np.ascontiguousarray(eights[..., : 2 if third else 4]).view("<f2").astype(np.float32)
    require(np.isfinite(halves).all(), "scales")
    values = np.empty((rows, groups, 32), np.float32)
    for c in range(32):
        eight, pair, odd, half = c // 8, c % 8 // 2, c % 2, c // 16
        value = (low[..., 4 * odd + pair] >> 2 * eight & 3).astype(int)
        if third:
            value = value - 4 * (high[..., pair] >> 2 * eight + odd & 1)
            i = np.arange(8)
            four, two = eights[..., 2:10] >> 4 * half & 15, eights[..., 10 + 2 * half + i // 4] >> i % 4 * 2 & 3
            scale, minimum = (four.astype(int) + 16 * two - 32) * halves[..., :1], 0
        else:
            byte = eights[..., 4 + 8 * half : 12 + 8 * half]
            scale = (byte & 15) * halves[..., :1]
            minimum = ((byte >> 4) * halves[..., 1:]).reshape(rows, groups)
        values[..., c] = value.astype(np.float32) * scale.reshape(rows, groups).astype(np.float32) - minimum
    return values.reshape(rows, groups * 32)


def of_grid(data, dtype, rows, groups):
    """(rows, cols) floats of iq3s and its likes. The grids' magnitudes are the package `gguf`'s."""
    name = dtype.upper()[:3] + "_" + dtype.upper()[3:]
    found = getattr(gguf.quants, name)
    found.init_grid()
    grid, wide = found.grid.reshape(found.grid_shape), found.grid_shape[1]
    n_low, n_high = 32 // wide, 5 if dtype in ("iq3s", "iq2s") else 4
    quants, scales = np.split(data, [(n_low + n_high) * rows * groups])
    low, high = np.split(quants.reshape(rows, -1), [groups * n_low], axis=1)
    index, high = low.reshape(rows, groups, n_low).astype(int), high.reshape(rows, groups, n_high).astype(int)
    signs, more = high[..., :4], np.arange(n_low)
    if dtype == "iq2xs":
        index |= (high >> 7) << 8
    if n_high == 5:
        index |= (high[..., 4:] >> more * (8 // n_low) & (1 << 8 // n_low) - 1) << 8
    else:
        ones = sum(signs >> i & 1 for i in range(7))
        signs = signs & 127 | (ones & 1) << 7
    minus = (signs[..., None] >> np.arange(8) & 1).reshape(rows, groups, 32)
    values = grid[index].reshape(rows, groups, 32) * np.where(minus, -1, 1)
    require(groups % 8 == 0, "columns")
    eights = scales.reshape(rows, groups // 8, -1)
    d = np.ascontiguousarray(eights[..., :2]).view("<f2").astype(np.float32)
    require(np.isfinite(d).all(), "scales")
    if eights.shape[-1] == 2:
        integers = (sum((high[..., i] >> 7) << i for i in range(4))).reshape(rows, -1, 8, 1)
    else:
        nibbles = np.stack([eights[..., 2:] & 15, eights[..., 2:] >> 4], axis=-1)
        integers = nibbles.reshape(rows, groups // 8, 8, -1)
    scale = d[..., None] * (2 * integers + 1) * np.float32({"iq3s": 1, "iq3xxs": 0.25}.get(dtype, 0.125))
    scale = np.repeat(scale.astype(np.float32).reshape(rows, groups, -1), 32 // integers.shape[-1], axis=-1)
    return (values * scale).astype(np.float32).reshape(rows, groups * 32)


def of_four_bits(data, dtype, rows, groups):
    """(rows, cols) floats of a type whose quants have four bits and one form of scales of its own."""
    quants, scales = np.split(data, [16 * rows * groups])
    values = six_bits(quants.reshape(rows, -1), dtype, groups).astype(np.float32)
    if dtype == "mxfp4":
        return (values * np.ldexp(np.float32(1), scales.reshape(rows, groups, 1).astype(int) - 127)).reshape(rows, -1)
    if dtype == "iq4nl":
        scale = scales.view("<f2").astype(np.float32).reshape(rows, groups, 1)
        require(np.isfinite(scale).all(), "scales")
        return (values * scale).reshape(rows, -1)
    require(groups % 8 == 0, "columns")
    eights = scales.reshape(rows, groups // 8, -1)
    n = 1 if dtype == "iq4xs" else 256 // int(dtype[3:])
    halves = np.ascontiguousarray(eights[..., : 2 * n]).view("<f2").astype(np.float32)
    require(np.isfinite(halves).all(), "scales")
    if dtype == "iq4xs":
        scale, zero = eights[..., 2:].view(np.int8) * halves, 0
    else:
        scale = np.repeat(halves, 8 // n, axis=-1)
        zero = np.repeat(eights[..., 2 * n :].astype(np.float32), 8 // n, axis=-1).reshape(rows, groups, 1) - 8
    return ((values - zero) * scale.reshape(rows, groups, 1)).reshape(rows, -1)


def six_bits(quants, dtype, groups):
    """(rows, groups * 32) integers of q4n, q5 or q6, column by column, from where the format puts its bits."""
    low, high = np.split(quants, [groups * 16], axis=1)
    low, high = low.reshape(len(quants), groups, 16), high.reshape(len(quants), groups, PLANES[dtype]).astype(int)
    integers = np.empty((len(quants), groups, 32), int)
    for c in range(32):
        eight, pair, odd = c // 8, c % 8 // 2, c % 2
        integers[..., c] = low[..., c // 2] >> 4 * odd & 15
        if PLANES[dtype] == 4:
            integers[..., c] |= (high[..., pair] >> (2 * eight + odd) & 1) << 4
        elif PLANES[dtype] == 8:
            integers[..., c] |= (high[..., 4 * odd + pair] >> 2 * eight & 3) << 4
    return VALUES[dtype][integers]


def from_fp8(entry, data):
    """(rows, cols) floats of an fp8 tensor, by the bits' meaning."""
    rows, columns = entry["shape"]
    fraction_bits, bias = (3, 7) if entry["dtype"] == "fp8" else (2, 15)
    one, scales = 1 << fraction_bits, np.ones(rows, np.float32)
    bits = np.frombuffer(data[: rows * columns], np.uint8).astype(np.int32).reshape(rows, columns)
    exponent, fraction = (bits & 127) >> fraction_bits, bits & (one - 1)
    require(((bits & 127) != 127).all() if entry["dtype"] == "fp8" else (exponent != 31).all(), "not finite")
    significand = np.where(exponent > 0, one + fraction, fraction).astype(np.float32)
    values = np.ldexp(np.where(bits >= 128, -significand, significand), np.maximum(exponent, 1) - bias - fraction_bits)
    if entry["dtype"] == "fp8":
        scales = np.frombuffer(data[rows * columns :], "<f4")
        require(np.isfinite(scales).all(), "scales")
    return values * scales[:, None]


def bf12_row(columns):
    """Bytes of a row's header and of its blocks."""
    return 64 * -(-columns // 4096), 192 * -(-columns // 128)


def from_bf12(entry, data):
    """(rows, cols) bfloat16 numbers, as uint16, of a bf12 tensor."""
    rows, columns = entry["shape"]
    header_bytes, blocks_bytes = bf12_row(columns)
    data = np.frombuffer(data, np.uint8).reshape(rows, header_bytes + blocks_bytes)
    headers = np.ascontiguousarray(data[:, :header_bytes]).view("<u2").reshape(rows, -1, 2)
    words = np.ascontiguousarray(data[:, header_bytes:]).view("<u4").reshape(rows, -1, 48).astype(np.uint64)
    largest, count = headers[:, 0, 0] & 255, headers[:, 0, 1]
    require((headers[:, 0, 0] < 256).all() and (count < headers.shape[1]).all(), "header")
    c = np.arange(blocks_bytes // 192 * 128)
    block, lane, turn = c // 128, c % 16, (c % 64 // 16 * 8).astype(np.uint64)
    word = words[:, block, c % 128 // 64 * 16 + lane]
    code = (words[:, block, 32 + lane] >> (c % 128 // 16 * 4).astype(np.uint64) & np.uint64(15)).astype(int)
    turned = word << turn | word >> (np.uint64(32) - turn)
    exponent = np.where(code == 15, 0, largest[:, None].astype(int) - code)
    require((exponent >= 0).all() and not ((exponent == 0) & (code < 15)).any(), "codes")
    numbers = ((turned >> np.uint64(16)).astype(int) & 0x807F | exponent << 7).astype(np.uint16)
    require((numbers[:, columns:] == 0).all() and (code[:, columns:] == 15).all(), "what fills the last block")
    for r in range(rows):
        exceptions = headers[r, 1 : count[r] + 1]
        require((np.diff(exceptions[:, 0].astype(int)) > 0).all(), "order of exceptions")
        require(
            (numbers[r, exceptions[:, 0]] == 0).all() and (exceptions[:, 0] < columns).all(), "place of an exception"
        )
        require((headers[r, count[r] + 1 :] == 0).all(), "rest of a header")
        numbers[r, exceptions[:, 0]] = exceptions[:, 1]
    return numbers[:, :columns]


def unique(pairs):
    require(len(dict(pairs)) == len(pairs), "duplicate keys")
    return dict(pairs)


def check_config(c):
    require(set(c) - LATER == CONFIG, f"config: {set(c) ^ CONFIG}")
    for kind in [c, *c.get("kinds", [])]:
        if "delta" in kind:
            check_delta(kind)
            continue
        rope, head_dim = kind["rope"], kind.get("head_dim", c["head_dim"])
        require(set(rope) - {"rotary_dim"} == {"type", "theta"} | ROPE[rope["type"]], "rope")
        rotary = rope.get("rotary_dim", head_dim)
        require(rotary % 2 == 0 and 2 <= rotary <= head_dim and head_dim % 2 == 0, "rotary_dim")
        require(c["n_heads"] % kind.get("n_kv_heads", c["n_kv_heads"]) == 0, "heads")
        for factors in ("short_factors", "long_factors"):
            require(factors not in rope or len(rope[factors]) == rotary // 2, factors)
    attends = [kind for kind in c.get("kinds", []) if "delta" not in kind]
    require(all(set(kind) - set(OWN) == {"layers", "sliding_window", "rope"} for kind in attends), "kinds")
    for kind in attends:
        if "kv_of" in kind:
            check_shared(c, kind)
    named = [layer for kind in c.get("kinds", []) for layer in kind["layers"]]
    layers = c["n_layers"] + ("mtp" in c)
    require(len(set(named)) == len(named) < layers and all(0 <= n < layers for n in named), "layers of kinds")
    require("mtp" not in c or set(c["mtp"]) == {"normed", "own_normed"}, "mtp")
    pooling = c.get("pooling", {"by": "last", "end": -1})
    require(set(pooling) == {"by", "end"} and pooling["by"] in ("last", "mean"), "pooling")
    require(-1 <= pooling["end"] < c["vocab_size"], "pooling")
    require(not c.get("expert_norms") or (c.get("norms_around") and c["shared_ffn_dim"] > 0), "expert_norms")
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
    return {**c, **{key: kind[key] for key in OWN if key in kind}}, kind.get("delta")


def attention_tensors(c, p, weights, exact):
    dim, q, kv = c["hidden_dim"], c["n_heads"] * c["head_dim"], c["n_kv_heads"] * c["head_dim"]
    matrices, keys = {"q": (q, dim), "o": (dim, q)}, {"k": (kv, dim), "v": (kv, dim)}
    if "kv_of" not in c:
        matrices |= keys
    table = {p + name: (shape, weights) for name, shape in matrices.items()}
    if c.get("sink_logits"):
        table[p + "sink_logits"] = ((c["n_heads"],), exact)
    biased = "qkvo" if c["attention_bias"] else "qkv" if c.get("qkv_bias") else ""
    table.update({f"{p}{name}_bias": (matrices[name][:1], exact) for name in biased if name in matrices})
    if c.get("output_gate"):
        table[p + "output_gate"] = (matrices["q"], weights)
    if c.get("output_gate") and biased:
        table[p + "output_gate_bias"] = (matrices["q"][:1], exact)
    normed = [name for name in "qk" if name in matrices and c.get("qk_norm")]
    table.update({f"{p}{name}_norm": ((c["head_dim"],), exact) for name in normed})
    table.update({f"{p}{name}_norm": (matrices[name][:1], exact) for name in "qk" if c.get("whole_qk_norm")})
    return table


def check_delta(kind):
    delta = kind["delta"]
    sizes = {"n_key_heads", "n_value_heads", "key_dim", "value_dim", "conv_width"}
    require(set(kind) == {"layers", "delta"} and set(delta) - {"tiled"} == sizes, "delta")
    require(delta["n_value_heads"] % delta["n_key_heads"] == 0 and delta["conv_width"] >= 2, "delta's sizes")


def recurrent_tensors(c, delta, p, weights, exact):
    """A recurrent layer's, in place of attention's."""
    dim, heads = c["hidden_dim"], delta["n_value_heads"]
    keys, values = delta["n_key_heads"] * delta["key_dim"], heads * delta["value_dim"]
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
    table = {p + name: (shape, weights) for name, shape in matrices.items()}
    return table | {p + name: (shape, exact) for name, shape in floats.items()}


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
        p, (of, delta) = f"layers.{n}.", layer_facts(c, n)
        table.update({p + "attention_norm": ((dim,), exact), p + "ffn_norm": ((dim,), exact)})
        if c.get("norms_around"):
            table.update({p + "attention_post_norm": ((dim,), exact), p + "ffn_post_norm": ((dim,), exact)})
        if inputs:
            table[p + "input_gate"], table[p + "input_projection"] = ((inputs, dim), weights), ((dim, inputs), weights)
            table[p + "input_norm"] = ((dim,), exact)
        if c.get("layer_scale"):
            table[p + "scale"] = ((1,), exact)
        if delta:
            table.update(recurrent_tensors(c, delta, p, weights, exact))
        else:
            table.update(attention_tensors(of, p, weights, exact))
        if c["n_experts"] and n not in c.get("dense_layers", []):
            table.update(expert_tensors(of, p, weights, exact))
        else:
            table.update(mlp_tensors(dim, of["ffn_dim"], p, weights))
            biases = {"gate": of["ffn_dim"], "up": of["ffn_dim"], "down": dim} if c["mlp_bias"] else {}
            table.update({f"{p}{name}_bias": ((rows,), exact) for name, rows in biases.items()})
    return table


def mlp_tensors(dim, ffn, p, weights):
    return {
        p + name: (shape, weights) for name, shape in (("gate", (ffn, dim)), ("up", (ffn, dim)), ("down", (dim, ffn)))
    }


def expert_tensors(c, p, weights, exact):
    dim, wide = c["hidden_dim"], c.get("expert_ffn_dim") or c["ffn_dim"]
    table = {p + "router": ((c["n_experts"], dim), exact)}
    if c.get("sigmoid_router"):
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
