"""Checkpoints whose weights are quantised already: config.json's `quantization_config` says how, and several tensors
make each matrix.

The matrices come to the plan under the names that they have without quantisation, and as `Computed` tensors. What a
method may be, docs/sources.md tells.
"""

from typing import Optional

import numpy as np

from .checkpoint import Checkpoint, Stored
from .errors import ModelError
from .packed_floats import Mxfp4, Scaled
from .packed_integers import AWQ, BYTES, Integers, along_columns, gptq, nibbles, order_of, read_array
from .source import shown

REFUSED = {
    "bitsandbytes": "its layouts are its library's own",
    "hqq": "its layouts are its library's own",
    "aqlm": "its codebooks are nothing that the model file can hold",
    "torchao": "its tensors are torch's objects",
}
# Beside the weights: of activations, which here are what they are.
DROPPED = ("input_scale", "activation_scale", "input_global_scale", "input_zero_point", "k_scale", "v_scale", "q_scale")


class Parts:
    """The tensors of one matrix, taken from a checkpoint by their suffixes."""

    def __init__(self, tensors: dict, prefix: str):
        self.tensors, self.prefix = tensors, prefix

    def take(self, suffix: str, required: bool = True) -> Optional[Stored]:
        tensor = self.tensors.pop(self.prefix + suffix, None)
        if tensor is None and required:
            like = (
                next(t for name, t in self.tensors.items() if name.startswith(self.prefix)) if self.others() else None
            )
            where = like.path if like else "the checkpoint"
            raise ModelError(
                f"{where}: tensor {shown(self.prefix + suffix)} is missing, which the others of its name need"
            )
        return tensor

    def others(self) -> bool:
        return any(name.startswith(self.prefix) for name in self.tensors)

    def array(self, suffix: str) -> np.ndarray:
        return read_array(self.take(suffix))


def wrong(tensor: Stored, expected: str) -> ModelError:
    return ModelError(
        f"{tensor.path}: tensor {shown(tensor.name)}: found shape {list(tensor.shape)}, expected {expected}"
    )


def unpack(tensors: Checkpoint, config: dict, where: str) -> Checkpoint:
    """All tensors; quantised ones as matrices under their plain names."""
    method = config.get("quant_method")
    readers: dict = {
        "gptq": (".qweight", _gptq),
        "awq": (".qweight", _awq),
        "fp8": (".weight_scale_inv", _fp8),
        "mxfp4": ("_blocks", _mxfp4),
    }
    found, left = Checkpoint(), dict(tensors)
    found.absent = tensors.absent
    if method == "compressed-tensors":
        suffixes: list = [(".weight_packed", _packed), (".weight_scale", _scaled)]
    elif method in readers:
        suffixes = [readers[method]]
    else:
        reason = f": {REFUSED[method]}" if method in REFUSED else ""
        raise ModelError(
            f"{where}: quantization_config: weights quantised by {shown(method)} are not supported{reason}; expected"
            f" {', '.join([*readers, 'compressed-tensors'])}, or the model that it was made from"
        )
    for suffix, read in suffixes:
        for name in [name for name in left if name.endswith(suffix)]:
            prefix = name[: -len(suffix)]
            plain = prefix if suffix == "_blocks" else f"{prefix}.weight"
            found[plain] = read(plain, Parts(left, prefix), config, where)
    for name, tensor in left.items():
        if not name.endswith(DROPPED):
            found[name] = tensor
    return found


# ------------------------------------------------------------------------------------ GPTQ and AWQ


def _setting(config: dict, key: str, allowed: tuple, default: object, where: str) -> object:
    value = config.get(key, default)
    value = default if value is None else value
    if value not in allowed:
        raise ModelError(
            f"{where}: quantization_config.{key}: {shown(value)} is not supported, expected {' or '.join(map(shown, allowed))}"
        )
    return value


def _gptq(name: str, parts: Parts, config: dict, where: str) -> Integers:
    bits = _setting(config, "bits", (2, 4, 8), 4, where)
    if config.get("dynamic"):
        raise ModelError(f"{where}: quantization_config.dynamic: settings that differ by matrix are not supported")
    version = _setting(config, "checkpoint_format", ("gptq", "gptq_v2"), "gptq", where)
    packed, scales = parts.take(".qweight"), parts.take(".scales")
    zeros, g_idx, rows = parts.take(".qzeros"), parts.take(".g_idx", False), packed.shape[-1]
    columns, groups = packed.shape[0] * 32 // bits, scales.shape[0]
    if scales.shape != (groups, rows) or columns % groups:
        raise wrong(scales, f"groups of {columns} columns, and {rows} rows")
    if zeros.shape != (groups, rows * bits // 32):
        raise wrong(zeros, f"{[groups, rows * bits // 32]}")
    z = nibbles(read_array(zeros), bits).T.astype(np.int16) + (version == "gptq")
    s = read_array(scales).T.astype(np.float32)
    order = order_of(g_idx, columns // groups, groups)
    form = f"GPTQ of {bits} bits" + ("" if order is None else ", its columns in another order")
    return Integers(name, form, packed, gptq(bits), (rows, columns), s, z, order)


def _awq(name: str, parts: Parts, config: dict, where: str) -> Integers:
    _setting(config, "bits", (4,), 4, where)
    _setting(config, "version", ("gemm", "GEMM"), "gemm", where)
    packed, scales, zeros = parts.take(".qweight"), parts.take(".scales"), parts.take(".qzeros")
    columns, rows, groups = packed.shape[0], packed.shape[1] * 8, scales.shape[0]
    if scales.shape != (groups, rows) or columns % groups:
        raise wrong(scales, f"groups of {columns} columns, and {rows} rows")
    if zeros.shape != (groups, rows // 8):
        raise wrong(zeros, f"{[groups, rows // 8]}")
    z = AWQ.unpack(read_array(zeros)).astype(np.int16)
    s = read_array(scales).T.astype(np.float32)
    return Integers(name, "AWQ of 4 bits", packed, AWQ, (rows, columns), s, z)


# ------------------------------------------------------------------------------------ compressed-tensors


def _weights_of(config: dict, where: str) -> list:
    """The settings of all groups' weights."""
    groups = config.get("config_groups")
    found = [g.get("weights") for g in groups.values() if isinstance(g, dict)] if isinstance(groups, dict) else []
    found = [weights for weights in found if isinstance(weights, dict)]
    if not found:
        raise ModelError(
            f"{where}: quantization_config.config_groups: found {shown(groups)}, expected a group with weights"
        )
    return found


def _packed(name: str, parts: Parts, config: dict, where: str) -> object:
    settings = _weights_of(config, where)
    if any(weights.get("type") == "float" for weights in settings):
        return _packed_floats(name, parts, settings, where)
    bits = settings[0].get("num_bits")
    if bits not in (2, 4, 8) or any(weights.get("num_bits") != bits for weights in settings):
        raise ModelError(
            f"{where}: quantization_config: num_bits {shown(bits)} is not supported, expected 2, 4 or 8 everywhere"
        )
    packed, scale, shape = parts.take(".weight_packed"), parts.take(".weight_scale"), parts.array(".weight_shape")
    rows, columns = (int(n) for n in shape.reshape(-1)[-2:])
    if packed.shape != (rows, -(-columns * bits // 32)):
        raise wrong(packed, f"{[rows, -(-columns * bits // 32)]}")
    scales = _by_rows(scale, rows)
    zero = parts.take(".weight_zero_point", False)
    zeros = _zero_points(zero, bits, scales.shape)
    order = order_of(parts.take(".weight_g_idx", False), columns // scales.shape[1], scales.shape[1])
    form = f"packed integers of {bits} bits" + ("" if order is None else ", their columns in another order")
    return Integers(name, form, packed, along_columns(bits), (rows, columns), scales, zeros, order)


def _zero_points(zero: Optional[Stored], bits: int, shape: tuple) -> np.ndarray:
    """(rows, groups), with the offset that the integers have."""
    offset = 1 << (bits - 1)
    if zero is None:
        return np.full(shape, offset, np.int16)
    if zero.dtype == np.int8:
        if zero.count != shape[0] * shape[1]:
            raise wrong(zero, f"{list(shape)}")
        return read_array(zero).reshape(shape).astype(np.int16) + np.int16(offset)
    if zero.shape != (-(-shape[0] * bits // 32), shape[1]):
        raise wrong(zero, f"{[-(-shape[0] * bits // 32), shape[1]]}")
    return nibbles(read_array(zero).T, bits).T[: shape[0]].astype(np.int16)


def _by_rows(scale: Stored, rows: int) -> np.ndarray:
    """(rows, groups) float32: one for all, one for each row, or some for each row."""
    values = read_array(scale).astype(np.float32)
    if values.size == 1:
        return np.full((rows, 1), values.reshape(-1)[0], np.float32)
    if values.shape[0] != rows or values.ndim > 2:
        raise wrong(scale, f"one, or some for each of {rows} rows")
    return values.reshape(rows, -1)


def _scaled(name: str, parts: Parts, config: dict, where: str) -> object:
    """compressed-tensors' floats and integers of 8 bits, a byte each."""
    weight = parts.take(".weight")
    if weight.dtype != np.int8:
        blocks = [w["block_structure"] for w in _weights_of(config, where) if w.get("strategy") == "block"]
        return _floats(name, weight, parts.take(".weight_scale"), blocks[0] if blocks else None)
    scales = _by_rows(parts.take(".weight_scale"), weight.shape[0])
    zeros = _zero_points(parts.take(".weight_zero_point", False), 8, scales.shape)
    if weight.shape[1] % scales.shape[1]:
        raise wrong(weight, f"columns that {scales.shape[1]} groups share")
    return Integers(name, "integers of 8 bits", weight, BYTES, weight.shape, scales, zeros)


def _packed_floats(name: str, parts: Parts, settings: list, where: str) -> Mxfp4:
    if any(w.get("num_bits") != 4 or w.get("group_size") != 32 for w in settings):
        raise ModelError(f"{where}: quantization_config: floats of less than 8 bits other than MXFP4 are not supported")
    packed = parts.take(".weight_packed")
    return _mxfp4_of(name, packed, parts.take(".weight_scale"), (*packed.shape[:-1], 2 * packed.shape[-1]))


# ------------------------------------------------------------------------------------ 8-bit and 4-bit floats


def _fp8(name: str, parts: Parts, config: dict, where: str) -> Scaled:
    return _floats(name, parts.take(".weight"), parts.take(".weight_scale_inv"), config.get("weight_block_size"))


def _floats(name: str, weight: Stored, scale: Stored, block: object) -> Scaled:
    if weight.dtype.name != "float8_e4m3fn" or len(weight.shape) != 2:
        raise ModelError(
            f"{weight.path}: tensor {shown(name)}: found {weight.dtype.name}, expected a matrix of F8_E4M3"
        )
    rows, columns = weight.shape
    values = read_array(scale)
    values = (
        np.ldexp(np.float32(1), values.astype(np.int32) - 127)
        if values.dtype == np.uint8
        else values.astype(np.float32)
    )
    if values.size == 1:
        return Scaled(name, weight, values.reshape(1, 1), (rows, columns))
    if values.size == rows:
        return Scaled(name, weight, values.reshape(rows, 1), (1, columns))
    good = isinstance(block, list) and len(block) == 2 and all(isinstance(n, int) and n > 0 for n in block)
    expected = (-(-rows // block[0]), -(-columns // block[1])) if good else None
    if values.shape != expected:
        raise wrong(scale, f"{list(expected)}" if good else f"one, or one for each of {rows} rows")
    return Scaled(name, weight, values, tuple(block))


def _mxfp4(name: str, parts: Parts, config: dict, where: str) -> Mxfp4:
    """gpt-oss's experts, in one tensor: (experts, rows, columns / 32, 16) becomes (experts, rows, columns)."""
    blocks = parts.take("_blocks")
    if len(blocks.shape) < 3 or blocks.shape[-1] != 16:
        raise wrong(blocks, "(experts, rows, groups, 16)")
    return _mxfp4_of(name, blocks, parts.take("_scales"), (*blocks.shape[:-2], 32 * blocks.shape[-2]))


def _mxfp4_of(name: str, blocks: Stored, scales: Stored, shape: tuple) -> Mxfp4:
    if scales.shape != (*shape[:-1], shape[-1] // 32) or shape[-1] % 32:
        raise wrong(scales, f"{[*shape[:-1], shape[-1] // 32]}")
    return Mxfp4(name, blocks, read_array(scales).view(np.uint8), shape)
