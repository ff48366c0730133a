"""tools/convert.py on checkpoints that are quantised already: each form against what its definition says, written in
numpy here, and what is refused."""

import json

import hf
import numpy as np
import pytest
import random_hf_model as random
from read_types import dequantise, from_fp8

GROUP = 32
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TYPES = {
    np.dtype("<i4"): "I32", np.dtype("<i8"): "I64", np.dtype("i1"): "I8", np.dtype("u1"): "U8",
    np.dtype("<f2"): "F16", np.dtype("<f4"): "F32",
}  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return hf.make("tiny-gqa", tmp_path_factory.mktemp("plain") / "tiny", "--dtype", "fp32")


def quantised(plain, directory, config, encode):
    """A directory whose linear layers are encode(weights, random numbers, number of the matrix) -> ({suffix: array},
    values); and the values by name."""
    hf.copy(plain, directory)
    hf.edit_json(directory / "config.json", quantization_config=config)
    tensors, wanted, rng = {}, {}, np.random.default_rng(11)
    for name, (dtype, shape, data) in hf.read_tensors(plain).items():
        prefix = name.removesuffix(".weight")
        if not prefix.endswith(LINEARS):
            tensors[name] = [dtype, shape, data]
            continue
        parts, values = encode(np.frombuffer(data, "<f4").reshape(shape), rng, len(wanted))
        for suffix, array in parts.items():
            kind, array = array if isinstance(array, tuple) else (TYPES[array.dtype], array)
            tensors[prefix + suffix] = [kind, list(array.shape), np.ascontiguousarray(array).tobytes()]
        layer, _, part = prefix.removeprefix("model.layers.").partition(".")
        wanted[f"layers.{layer}.{part.split('.')[1].removesuffix('_proj')}"] = values.astype(np.float32)
    (file,) = directory.glob("*.safetensors")
    hf.write_tensors(file, tensors)
    return directory, wanted


def words(values, bits):
    """(rows, n) unsigned integers -> (rows, words), the first in the lowest bits; padded with zeros."""
    per = 32 // bits
    padded = np.zeros((len(values), -(-values.shape[1] // per) * per), np.uint64)
    padded[:, : values.shape[1]] = values
    found = sum(padded[:, i::per] << np.uint64(bits * i) for i in range(per))
    return found.astype(np.uint32).view(np.int32)


def integers(shape, rng, bits, zero, group=GROUP, scales=np.float16):
    """(q, z, s, values): q of each weight, z and s of each group; zero: None for any."""
    rows, columns = shape
    q = rng.integers(0, 1 << bits, shape)
    z = (
        rng.integers(0, 1 << bits, (rows, columns // group))
        if zero is None
        else np.full((rows, columns // group), zero)
    )
    s = (rng.uniform(0.5, 2, z.shape) * 0.01).astype(scales).astype(np.float32)
    return q, z, s, np.repeat(s, group, 1) * (q - np.repeat(z, group, 1))


def gptq(bits=4, zero=8, version="gptq", order=None, group=GROUP):
    def encode(weights, rng, _):
        q, z, s, values = integers(weights.shape, rng, bits, zero, group)
        parts = {".qweight": words(q, bits).T, ".scales": s.T.astype(np.float16)}
        parts[".qzeros"] = words((z - (version == "gptq")).T, bits)
        g_idx = np.arange(weights.shape[1], dtype=np.int32) // group
        if order:  # columns in another order than their groups
            g_idx = rng.permutation(g_idx)
            values = s[:, g_idx] * (q - z[:, g_idx])
        return {**parts, ".g_idx": g_idx}, values

    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "checkpoint_format": version}
    return config, encode


def awq(weights, rng, _, group=GROUP):
    q, z, s, values = integers(weights.shape, rng, 4, None, group)

    def packed(by_columns):  # (n, rows): in each eight rows, rows 0 2 4 6 1 3 5 7 from the lowest bits on
        places = by_columns.reshape(len(by_columns), -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
        return words(places.reshape(len(by_columns), -1), 4)

    return {".qweight": packed(q.T), ".qzeros": packed(z.T), ".scales": s.T.astype(np.float16)}, values


AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}


def packed(bits=4, zero=True, scales="F16", group=GROUP, order=None):
    """compressed-tensors' pack-quantized; zero: symmetric."""

    def encode(weights, rng, _):
        middle = 1 << (bits - 1)
        q, z, s, values = integers(weights.shape, rng, bits, middle if zero else None, group)
        if scales == "BF16":
            s = (s.view(np.uint32) & 0xFFFF0000).view(np.float32)
        g_idx = np.arange(weights.shape[1]) // group
        if order:
            g_idx = rng.permutation(g_idx)
        values = s[:, g_idx] * (q - z[:, g_idx])
        scale = ("BF16", (s.view(np.uint32) >> 16).astype(np.uint16)) if scales == "BF16" else s.astype(np.float16)
        parts = {".weight_packed": words(q, bits), ".weight_scale": scale, ".weight_shape": np.array(weights.shape)}
        if not zero:
            parts[".weight_zero_point"] = words(z.T, bits).T
        if order:
            parts[".weight_g_idx"] = g_idx.astype(np.int32)
        return parts, values

    weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": group, "symmetric": zero}
    return compressed("pack-quantized", weights), encode


def compressed(form, weights):
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]}


def e4m3(bits):
    """By the definition of docs/format.md."""
    exponent, fraction = (bits & 127) >> 3, bits & 7
    values = np.where(exponent > 0, np.ldexp(1 + fraction / 8, exponent.astype(int) - 7), np.ldexp(fraction / 8, -6))
    return np.where(bits & 128, -values, values)


def fp8(weights, rng, kind, suffix, scale_type="F32"):
    rows, columns = weights.shape
    bits = rng.integers(0, 256, weights.shape, np.uint8)
    bits[bits & 127 == 127] = 0x40
    shape = {"block": (-(-rows // 128), -(-columns // 128)), "row": (rows, 1), "one": (1,), "none": ()}[kind]
    exponents = rng.integers(110, 120, shape)
    s = np.ldexp(1.0, exponents - 127) if scale_type in ("F8_E8M0", "U8") else rng.uniform(1e-4, 1e-3, shape)
    s = np.asarray(s, np.float32)
    spread = np.repeat(np.repeat(s, 128, 0), 128, 1)[:rows, :columns] if kind == "block" else s
    stored = s if scale_type == "F32" else (scale_type, exponents.astype(np.uint8))
    return {".weight": ("F8_E4M3", bits), suffix: stored}, e4m3(bits).astype(np.float32) * spread


def bytes_(weights, rng, scales=np.float16):
    q = rng.integers(-128, 128, weights.shape).astype(np.int8)
    s = (rng.uniform(0.5, 2, (len(q), 1)) * 0.001).astype(scales).astype(np.float32)
    return {".weight": q, ".weight_scale": s}, q * s


def mxfp4(weights, rng, low=110):
    data = rng.integers(0, 256, (weights.shape[0], weights.shape[1] // 2), np.uint8)
    e = rng.integers(low, 124, (weights.shape[0], weights.shape[1] // 32), np.uint8)
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = np.stack([data & 15, data >> 4], -1).reshape(weights.shape)
    values = np.where(codes & 8, -1, 1) * table[codes & 7] * np.repeat(np.ldexp(1.0, e.astype(int) - 127), 32, 1)
    return {".weight_packed": data, ".weight_scale": e}, values


FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
MXFP4 = compressed("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32})
CHANNEL = compressed("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"})
BLOCKS = compressed(
    "float-quantized", {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}
)
INT8 = compressed("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True})
# (settings, encode), the type that it becomes, whether without loss, and what is said of it.
FORMS = {
    "gptq": (gptq(), "q4", True, "GPTQ of 4 bits"),
    "gptq v2": (gptq(version="gptq_v2"), "q4", True, "GPTQ of 4 bits"),
    "gptq, asymmetric": (gptq(zero=None, version="gptq_v2"), "q8", True, "GPTQ of 4 bits"),
    "gptq, another order": (gptq(order=True), "q8", False, "GPTQ of 4 bits, its columns in another order"),
    "gptq of 8 bits": (gptq(8, 128), "q8", True, "GPTQ of 8 bits"),
    "gptq of 2 bits": (gptq(2, 2), "q4", True, "GPTQ of 2 bits"),
    "gptq of 8 bits, asymmetric": (gptq(8, None, "gptq_v2"), "q8", False, "GPTQ of 8 bits"),
    "gptq, narrow groups": (gptq(group=16), "q8", False, "GPTQ of 4 bits"),
    "awq": ((AWQ, awq), "q8", True, "AWQ of 4 bits"),
    "w4a16": (packed(), "q4", True, "packed integers of 4 bits"),
    "w4a16, bfloat16 scales": (packed(scales="BF16"), "q4", True, "packed integers of 4 bits"),
    "w4a16, asymmetric": (packed(zero=False), "q8", True, "packed integers of 4 bits"),
    "w4a16, another order": (packed(order=True), "q8", False, "packed integers of 4 bits, their columns in another order"),
    "w8a16": (packed(8), "q8", True, "packed integers of 8 bits"),
    "fp8 in blocks": ((FP8, lambda w, r, _: fp8(w, r, "block", ".weight_scale_inv")), "q8", False, "FP8 in blocks"),
    "fp8 in blocks, powers of two": (
        (FP8, lambda w, r, _: fp8(w, r, "block", ".weight_scale_inv", "F8_E8M0")), "q8", False, "FP8 in blocks",
    ),
    "fp8, one scale": (({"quant_method": "fp8"}, lambda w, r, _: fp8(w, r, "none", ".weight_scale_inv")), "fp8", True, "FP8"),
    "fp8 of compressed-tensors, by rows": ((CHANNEL, lambda w, r, _: fp8(w, r, "row", ".weight_scale")), "fp8", True, "FP8"),
    "fp8 of compressed-tensors, one scale": ((CHANNEL, lambda w, r, _: fp8(w, r, "one", ".weight_scale")), "fp8", True, "FP8"),
    "fp8 of compressed-tensors, in blocks": ((BLOCKS, lambda w, r, _: fp8(w, r, "block", ".weight_scale")), "q8", False,
                                             "FP8 in blocks"),
    "int8": ((INT8, lambda w, r, _: bytes_(w, r)), "q8", True, "integers of 8 bits"),
    "mxfp4": ((MXFP4, lambda w, r, _: mxfp4(w, r)), "mxfp4", True, "MXFP4"),
    "mxfp4, tiny": ((MXFP4, lambda w, r, _: mxfp4(w, r, 0)), "mxfp4", True, "MXFP4"),
}  # fmt: skip


# The same of matrices whose rows are multiples of 256 columns, which types with zero points have.
WIDE = {
    "awq, 128": ((AWQ | {"group_size": 128}, lambda w, r, n: awq(w, r, n, 128)), "q4z128", "AWQ of 4 bits"),
    "awq, 64": ((AWQ | {"group_size": 64}, lambda w, r, n: awq(w, r, n, 64)), "q4z64", "AWQ of 4 bits"),
    "awq, 32": ((AWQ, awq), "q4z32", "AWQ of 4 bits"),
    "gptq, 128": (gptq(zero=None, version="gptq_v2", group=128), "q4z128", "GPTQ of 4 bits"),
    "gptq, 64": (gptq(zero=16, group=64), "q4z64", "GPTQ of 4 bits"),
    "w4a16, 256": (packed(zero=False, group=256), "q4z128", "packed integers of 4 bits"),
    "w4a16, 128": (packed(zero=False, group=128), "q4z128", "packed integers of 4 bits"),
    "w4a16, 128, symmetric": (packed(group=128), "q4", "packed integers of 4 bits"),
}


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(random.PRESETS, "wide", random.qwen2(256, 512, 2, 4, 2, 512, 256, tied=True))
        return hf.make("wide", tmp_path_factory.mktemp("wide") / "wide", "--dtype", "fp32")


@pytest.mark.parametrize("form", WIDE)
def test_zero_points(form, wide, convert, tmp_path):
    (config, encode), dtype, called = WIDE[form]
    directory, wanted = quantised(wide, tmp_path / "model", config, encode)
    for options, kind in (((), dtype), (("--dtype", "q8"), "q8")):
        _, tensors, err = convert(directory, *options)
        for name, values in wanted.items():
            entry, data = tensors[name]
            assert entry["dtype"] == kind and (dequantise(entry, data)[0] == values).all(), name
        assert f"{len(wanted)} of {called} become {kind}, without loss" in err


def values_of(entry, data):
    return from_fp8(entry, data) if entry["dtype"] == "fp8" else dequantise(entry, data)[0]


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form, plain, convert, tmp_path):
    (config, encode), dtype, exact, called = FORMS[form]
    directory, wanted = quantised(plain, tmp_path / "model", config, encode)
    _, tensors, _ = convert(directory, "--dtype", "fp32")
    for name, values in wanted.items():
        entry, data = tensors[name]
        assert entry["dtype"] == "fp32" and entry["shape"] == list(values.shape)
        assert (np.frombuffer(data, "<f4").reshape(values.shape) == values).all(), name
    _, tensors, err = convert(directory)
    groups = {}
    for name, values in wanted.items():
        by_rows = called == "FP8 in blocks" and values.shape[1] <= 128  # one block is as wide as the matrix
        groups.setdefault(("fp8", True, "FP8") if by_rows else (dtype, exact, called), []).append(name)
    for (dtype, exact, called), names in groups.items():
        off = total = 0
        for name in names:
            entry, data = tensors[name]
            assert entry["dtype"] == dtype, name
            off += np.square(values_of(entry, data) - wanted[name]).sum()
            total += np.square(wanted[name]).sum()
        assert off == 0 if exact else 0 < (off / total) ** 0.5 < 0.01
        how = "without loss" if exact else "which moves weights by"
        assert f"{len(names)} of {called} become {dtype}, {how}" in err


def test_scales_that_are_nearly_fp16(plain, convert, tmp_path):
    """The integers stay, the scales are rounded: 2^-11 of a weight at most."""
    directory, wanted = quantised(plain, tmp_path / "model", INT8, lambda w, r, _: bytes_(w, r, np.float32))
    _, tensors, err = convert(directory)
    for name, values in wanted.items():
        entry, data = tensors[name]
        found = dequantise(entry, data)[0]
        assert entry["dtype"] == "q8" and np.abs(found - values).max() > 0
        assert (np.abs(found - values) <= np.abs(values) * 2.0**-11).all()
    assert "of integers of 8 bits become q8, which moves weights by at most 0.0" in err


@pytest.mark.parametrize("form", ["gptq", "awq", "w4a16, asymmetric", "fp8 in blocks", "mxfp4"])
def test_pieces_do_not_show(form, plain, convert, monkeypatch, tmp_path):
    (config, encode), *_ = FORMS[form]
    directory, _ = quantised(plain, tmp_path / "model", config, encode)
    usual = convert(directory)[1], convert(directory, "--dtype", "fp16")[1]
    monkeypatch.setattr("yalm_convert.computed.PIECE", 9000)
    assert (convert(directory)[1], convert(directory, "--dtype", "fp16")[1]) == usual


def test_experts_of_four_bits_in_one_tensor(convert, tmp_path):
    """gpt-oss as it is released: of all experts gate_up_proj, where gate's rows and up's alternate, and down_proj."""
    directory = hf.make("tiny-gpt-oss", tmp_path / "oss")
    config = json.loads((directory / "config.json").read_text())
    experts, ffn, dim = config["num_local_experts"], config["intermediate_size"], config["hidden_size"]
    plain = convert(directory)[1]
    tensors = {name: tensor for name, tensor in hf.read_tensors(directory).items() if not name.endswith("_proj")}
    wanted, rng = {}, np.random.default_rng(2)
    for n in range(config["num_hidden_layers"]):
        for part, rows, columns in (("gate_up_proj", 2 * ffn, dim), ("down_proj", dim, ffn)):
            parts, values = mxfp4(np.empty((experts * rows, columns)), rng)
            name = f"model.layers.{n}.mlp.experts.{part}"
            blocks, scales = parts[".weight_packed"], parts[".weight_scale"]
            tensors[f"{name}_blocks"] = ["U8", [experts, rows, columns // 32, 16], blocks.tobytes()]
            tensors[f"{name}_scales"] = ["U8", [experts, rows, columns // 32], scales.tobytes()]
            wanted[n, part] = values.reshape(experts, rows, columns)
    hf.edit_json(directory / "config.json", quantization_config={"quant_method": "mxfp4"})
    (file,) = directory.glob("*.safetensors")
    hf.write_tensors(file, tensors)
    found = convert(directory)[1]
    for n in range(config["num_hidden_layers"]):
        for e in range(experts):
            for part, values in (
                ("gate", wanted[n, "gate_up_proj"][e, ::2]),
                ("up", wanted[n, "gate_up_proj"][e, 1::2]),
                ("down", wanted[n, "down_proj"][e]),
            ):
                entry, data = found[f"layers.{n}.experts.{e}.{part}"]
                assert entry["dtype"] == "mxfp4" and (dequantise(entry, data)[0] == values).all()
    others = [name for name in plain if ".experts." not in name or name.endswith("_bias")]
    assert all(found[name][1] == plain[name][1] for name in others)


# ------------------------------------------------------------------------------------ what is refused

GPTQ, ENCODE = gptq()
PACKED = packed()
Q = "model.layers.0.self_attn.q_proj"
REFUSED = [
    (
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        None,
        'weights quantised by "bitsandbytes" are not supported: its layouts',
    ),
    (
        {"quant_method": "eetq"},
        None,
        'weights quantised by "eetq" are not supported; expected gptq, awq, fp8, mxfp4, compressed-tensors',
    ),
    (GPTQ | {"bits": 3}, None, "quantization_config.bits: 3 is not supported, expected 2 or 4 or 8"),
    (GPTQ | {"checkpoint_format": "marlin"}, None, 'checkpoint_format: "marlin" is not supported'),
    (GPTQ | {"dynamic": {"a": {}}}, None, "settings that differ by matrix are not supported"),
    (GPTQ, (f"{Q}.scales", None), f'tensor "{Q}.scales" is missing'),
    (GPTQ, (f"{Q}.qzeros", ["I32", [4, 2], bytes(32)]), f'tensor "{Q}.qzeros": found shape [4, 2], expected [4, 16]'),
    (GPTQ, (f"{Q}.scales", ["F16", [3, 128], bytes(768)]), "expected groups of 128 columns, and 128 rows"),
    (GPTQ, (f"{Q}.g_idx", ["I32", [128], b"\x09\0\0\0" * 128]), "names group 9, there are 4"),
    (GPTQ, (f"{Q}.scales", ["F16", [4, 128], b"\0\x7c" * 512]), "has a scale that is NaN or infinite"),
    (GPTQ, (f"{Q}.colour", ["F16", [4], bytes(8)]), f'tensor "{Q}.colour" is not known'),
    (AWQ | {"version": "exllama"}, None, 'quantization_config.version: "exllama" is not supported'),
    (
        compressed("x", {"num_bits": 3, "type": "int"}),
        PACKED,
        "num_bits 3 is not supported, expected 2, 4 or 8 everywhere",
    ),
    (compressed("x", {"num_bits": 4, "type": "float", "group_size": 16}), PACKED, "other than MXFP4 are not supported"),
    (
        compressed("x", {"num_bits": 4, "type": "int"}) | {"config_groups": {"a": {"weights": [4]}}},
        PACKED,
        "expected a group with weights",
    ),
    (GPTQ | {"bits": "four"}, None, 'quantization_config.bits: "four" is not supported'),
    ({"quant_method": "compressed-tensors"}, PACKED, "config_groups: found null, expected a group with weights"),
]


@pytest.mark.parametrize(("config", "change", "text"), REFUSED, ids=[r[2][:40] for r in REFUSED])
def test_refused(config, change, text, plain, monkeypatch, capsys, tmp_path):
    encode = change[1] if change is PACKED else awq if config["quant_method"] == "awq" else ENCODE
    directory, _ = quantised(plain, tmp_path / "model", config, encode)
    if isinstance(change, tuple) and change is not PACKED:
        (file,) = directory.glob("*.safetensors")
        tensors = hf.read_tensors(file) | {change[0]: change[1]}
        hf.write_tensors(file, {name: tensor for name, tensor in tensors.items() if tensor})
    code, _, err = hf.call(monkeypatch, capsys, directory, tmp_path / "model.bin")
    lines = [line for line in err.splitlines() if "warning: " not in line and "matrices: " not in line]
    assert code == 3 and len(lines) == 1 and text in lines[0], err
    assert not (tmp_path / "model.bin").exists()


def test_activations_scales_are_left_out(plain, convert, tmp_path):
    directory, _ = quantised(plain, tmp_path / "model", GPTQ, ENCODE)
    before = convert(directory)[1]
    (file,) = directory.glob("*.safetensors")
    hf.write_tensors(file, hf.read_tensors(file) | {f"{Q}.input_scale": ["F32", [1], bytes(4)]})
    assert convert(directory)[1] == before
