"""What a tensor's bytes stand for, written from docs/format.md alone: it shares nothing with the converter."""

import gguf
import numpy as np

# Of 32 columns, scale included; of some types an eighth of what eight groups have.
GROUP_SIZE = {
    "q8": 34,
    "q6": 25,
    "q5": 21,
    "q4n": 17,
    "q3": 13,
    "q2": 9,
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
    "q3": 4,
    "q2": 0,
    "q6k": 8,
    "q5k": 4,
    "q5u": 4,
    "q4k": 0,
    "q5a": 4,
    "q4a": 0,
    **dict.fromkeys(("mxfp4", "iq4nl", "iq4xs", "q4z32", "q4z64", "q4z128"), 0),
}  # second planes' bytes, of a group
SIX_BITS = ("q6", "q5", "q4n", "q3", "q2")
VALUES = {  # that the bits stand for
    "q3": np.array([-32, -18, -10, -4, 2, 8, 16, 26]),
    "q2": np.array([-32, -11, 4, 21]),
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


class FormatError(Exception):
    pass


def require(condition, text):
    if not condition:
        raise FormatError(text)


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
    """(rows, groups * 32) integers of six bits, column by column, from where the format puts their bits."""
    few = dtype in ("q3", "q2")  # the first plane is q6's second one, and q3's second one q5's
    low, high = np.split(quants, [groups * (8 if few else 16)], axis=1)
    low, high = low.reshape(len(quants), groups, -1), high.reshape(len(quants), groups, PLANES[dtype]).astype(int)
    integers = np.empty((len(quants), groups, 32), int)
    for c in range(32):
        eight, pair, odd = c // 8, c % 8 // 2, c % 2
        integers[..., c] = low[..., 4 * odd + pair] >> 2 * eight & 3 if few else low[..., c // 2] >> 4 * odd & 15
        if PLANES[dtype] == 4:
            integers[..., c] |= (high[..., pair] >> (2 * eight + odd) & 1) << (2 if few else 4)
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
