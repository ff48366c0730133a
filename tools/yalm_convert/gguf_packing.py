"""GGUF's blocks in the model file's types that hold all their values: the same bits in other places, nothing rounded.

Blocks come as (rows, blocks of a row, bytes); what is returned is (rows, bytes) of quants and of scales, as
docs/format.md has them. A row's bits are moved many at a time: as numbers of 16 or 64 bits, little-endian.
"""

import numpy as np

GROUPS = 8  # of 32 columns, in the blocks of 256
BYTES = 0x0101010101010101


def _nibbles(codes: np.ndarray) -> list:
    """Bytes with the codes of one column in their lower four bits and of another in their upper ones -> both, as bytes
    of two columns that are neighbours."""
    words = np.ascontiguousarray(codes).view("<u2")
    both = [words & 0x0F0F, words >> 4]
    both[1] &= 0x0F0F
    for half in both:
        half |= half >> 4
    return [half.astype(np.uint8) for half in both]


def _in_turns(parts: list, size: int) -> np.ndarray:
    """`size` bytes (8 or 16) of each part, again and again."""
    kind = {8: "<u8", 16: "<c16"}[size]
    return np.stack([part.view(kind) for part in parts], axis=-1)


def _narrow(words: np.ndarray) -> np.ndarray:
    """Every other byte of 64-bit numbers."""
    return words.view("<u2").astype(np.uint8)


def _by_eights(columns: np.ndarray) -> list:
    """Of 32 bytes, again and again, the first eight of each, and so on."""
    return [np.ascontiguousarray(eight) for eight in np.ascontiguousarray(columns).view("<u8").reshape(-1, 4).T]


def _fifth_bits(bits: list) -> np.ndarray:
    """A byte with 0 or 1 for each column, by eights -> q5's second plane, 4 bytes a group."""
    eights = bits[0] | bits[1] << 2 | bits[2] << 4 | bits[3] << 6
    return _narrow(eights | eights >> 7)


def _joined(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Both planes of each row."""
    rows = len(low)
    return np.concatenate([low.reshape(rows, -1), high.reshape(rows, -1)], axis=1)


def _k_scales(blocks: np.ndarray) -> np.ndarray:
    """Of Q4_K and Q5_K: 6 bits for each scale, then for each minimum; four bytes of each at a time."""
    d, first, second, rest = np.ascontiguousarray(blocks[..., :16]).view("<u4").reshape(-1, 4).T
    six, four, two = 0x3F3F3F3F, 0x0F0F0F0F, 0x03030303
    scale = [first & six, (rest & four) | (first >> 2 & 0x30303030)]
    minimum = [second & six, (rest >> 4 & four) | (second >> 2 & 0x30303030)]
    upper = [x >> 2 & four for x in minimum]
    upper = [x | x >> 4 for x in upper]
    upper = [(x & 0xFF) | (x >> 8 & 0xFF00) for x in upper]
    words = [d, *(x | (y & two) << 6 for x, y in zip(scale, minimum)), upper[0] | upper[1] << 16]
    return np.stack(words, axis=-1).view(np.uint8).reshape(len(blocks), -1)


def _k_nibbles(codes: np.ndarray) -> np.ndarray:
    """128 bytes, of which 32 have two groups -> (rows, bytes)."""
    return _in_turns(_nibbles(codes), 16).view(np.uint8).reshape(len(codes), -1)


def q4_k(blocks: np.ndarray) -> tuple:
    quants = _k_nibbles(blocks[..., 16:])
    quants ^= 0x88
    return quants, _k_scales(blocks)


def q5_k(blocks: np.ndarray) -> tuple:
    eights = _by_eights(blocks[..., 16:48])
    fifths = [_fifth_bits([x >> g & np.uint64(BYTES) for x in eights]).view("<u4") for g in range(GROUPS)]
    high = ~np.stack(fifths, axis=-1)
    return _joined(_k_nibbles(blocks[..., 48:]), high.view(np.uint8)), _k_scales(blocks)


def q6_k(blocks: np.ndarray) -> tuple:
    rows, n = blocks.shape[:2]
    low = np.concatenate([part.reshape(-1, 32) for part in _nibbles(blocks[..., :128])], axis=-1)
    eights, high = _by_eights(blocks[..., 128:192]), np.empty((rows, n, 2, 4, 2), "<u4")
    for g in range(4):
        bits = [x >> 2 * g & np.uint64(3 * BYTES) for x in eights]
        words = (bits[0] | bits[1] << 2 | bits[2] << 4 | bits[3] << 6) ^ np.uint64(0xAA * BYTES)
        for odd in range(2):
            high[..., g, odd] = _narrow(words >> np.uint64(8 * odd)).view("<u4").reshape(rows, n, 2)
    scales = [blocks[..., 208:], blocks[..., 192:208:2], blocks[..., 193:208:2]]
    return _joined(low.reshape(rows, -1), high.view(np.uint8)), np.concatenate(scales, axis=-1).reshape(rows, -1)


def _pair_nibbles(codes: np.ndarray) -> np.ndarray:
    """16 bytes, whose lower bits are the first columns."""
    return _in_turns(_nibbles(codes), 8).view(np.uint8).reshape(len(codes), -1)


def q4_1(blocks: np.ndarray) -> tuple:
    quants = _pair_nibbles(blocks[..., 4:])
    quants ^= 0x88
    return quants, blocks[..., :4].reshape(len(blocks), -1)


def iq4_nl(blocks: np.ndarray) -> tuple:
    return _pair_nibbles(blocks[..., 2:]), blocks[..., :2].reshape(len(blocks), -1)


def mxfp4(blocks: np.ndarray) -> tuple:
    return _pair_nibbles(blocks[..., 1:]), np.ascontiguousarray(blocks[..., 0])


def iq4_xs(blocks: np.ndarray) -> tuple:
    """Six bits for each scale, 32 more than it is: four of two groups in a byte, and two of eight in 16 bits."""
    rows, n = blocks.shape[:2]
    found = np.empty((rows, n, 2 + GROUPS), np.uint8)
    found[..., :2] = blocks[..., :2]
    upper = np.ascontiguousarray(blocks[..., 2:4]).view("<u2")
    for g in range(GROUPS):
        lower = blocks[..., 4 + g // 2] >> 4 * (g % 2) & 15
        found[..., 2 + g] = (lower | (upper[..., 0] >> 2 * g & 3).astype(np.uint8) << 4) - np.uint8(32)
    return _pair_nibbles(blocks[..., 8:]), found.reshape(rows, -1)


def _five_bits(bits: np.ndarray, codes: np.ndarray) -> np.ndarray:
    bits = ~np.ascontiguousarray(bits).view("<u4")
    for shift, mask in ((6, 0x00CC00CC), (12, 0x0000F0F0)):  # 4 x 4 pairs of bits are transposed
        moved = (bits ^ bits >> shift) & np.uint32(mask)
        bits ^= moved ^ moved << shift
    return _joined(_pair_nibbles(codes), bits.view(np.uint8))


def q5_0(blocks: np.ndarray) -> tuple:
    return _five_bits(blocks[..., 2:6], blocks[..., 6:]), blocks[..., :2].reshape(len(blocks), -1)


def q5_1(blocks: np.ndarray) -> tuple:
    return _five_bits(blocks[..., 4:8], blocks[..., 8:]), blocks[..., :4].reshape(len(blocks), -1)


def q8_0(blocks: np.ndarray) -> tuple:
    rows, scales = len(blocks), np.ascontiguousarray(blocks[..., :2]).view("<f2")
    return np.ascontiguousarray(blocks[..., 2:]).view(np.int8).reshape(rows, -1), scales.reshape(rows, -1)
