"""GGUF's blocks in the model file's types that hold all their values: the same bits in other places, nothing rounded.

Blocks come as (rows, blocks of a row, bytes); what is returned is (rows, bytes) of quants and of scales, as
docs/format.md has them. A row's bits are moved many at a time: as numbers of 16 or 64 bits, little-endian.
"""

import numpy as np

from .native import split_nibbles

GROUPS = 8  # of 32 columns, in the blocks of 256
BYTES = 0x0101010101010101
PAIRS_APART = np.array([sum((byte >> 2 * i & 3) << 4 * i for i in range(4)) for byte in range(256)], "<u2")


def _nibbles(codes: np.ndarray, size: int, flipped: int = 0) -> np.ndarray:
    """(rows, blocks, bytes) of codes, each `size` of them shared by two parts of the columns -> (rows, bytes)."""
    return split_nibbles(codes, size, flipped).reshape(len(codes), -1)


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


def q4_k(blocks: np.ndarray) -> tuple:
    return _nibbles(blocks[..., 16:], 32, 0x88), _k_scales(blocks)


def _k_bits(bits: np.ndarray) -> np.ndarray:
    """32 bytes, of which bit g belongs to group g; turned over."""
    eights = _by_eights(bits)
    found = [_fifth_bits([x >> g & np.uint64(BYTES) for x in eights]).view("<u4") for g in range(GROUPS)]
    return ~np.stack(found, axis=-1)


def _k_pairs(bits: np.ndarray, turned: int) -> np.ndarray:
    """64 bytes, of which 32 have two bits of each of four groups -> the plane of such bits, 8 bytes a group."""
    rows, n = bits.shape[:2]
    eights, found = _by_eights(bits), np.empty((rows, n, 2, 4, 2), "<u4")
    for g in range(4):
        bits = [x >> 2 * g & np.uint64(3 * BYTES) for x in eights]
        words = (bits[0] | bits[1] << 2 | bits[2] << 4 | bits[3] << 6) ^ np.uint64(turned * BYTES)
        for odd in range(2):
            found[..., g, odd] = _narrow(words >> np.uint64(8 * odd)).view("<u4").reshape(rows, n, 2)
    return found.view(np.uint8)


def q5_k(blocks: np.ndarray) -> tuple:
    return _joined(_nibbles(blocks[..., 48:], 32), _k_bits(blocks[..., 16:48]).view(np.uint8)), _k_scales(blocks)


def q6_k(blocks: np.ndarray) -> tuple:
    scales = [blocks[..., 208:], blocks[..., 192:208:2], blocks[..., 193:208:2]]
    quants = _joined(_nibbles(blocks[..., :128], 64), _k_pairs(blocks[..., 128:192], 0xAA))
    return quants, np.concatenate(scales, axis=-1).reshape(len(blocks), -1)


def q3_k(blocks: np.ndarray) -> tuple:
    """Six bits for each scale: four of one in the first eight and of one in the second, and two of each fourth."""
    rows, n = blocks.shape[:2]
    low, found = np.ascontiguousarray(blocks[..., 96:104]).view("<u8"), np.empty((rows, n, 14), np.uint8)
    found[..., :2] = blocks[..., 108:]
    for i in range(2):
        four_bits = low >> np.uint64(4 * i) & np.uint64(15 * BYTES)
        found[..., 2 + 4 * i : 6 + 4 * i] = _narrow(four_bits | four_bits >> np.uint64(4))
    spread = PAIRS_APART[blocks[..., 104:108]]
    found[..., 10:] = (spread[..., :2] | spread[..., 2:] << 2).view(np.uint8)
    quants = _joined(_k_pairs(blocks[..., 32:96], 0), _k_bits(blocks[..., :32]).view(np.uint8))
    return quants, found.reshape(rows, -1)


def q2_k(blocks: np.ndarray) -> tuple:
    scales = [blocks[..., 80:], blocks[..., 0:16:2], blocks[..., 1:16:2]]
    quants = _k_pairs(blocks[..., 16:80], 0).reshape(len(blocks), -1)
    return quants, np.concatenate(scales, axis=-1).reshape(len(blocks), -1)


def q4_1(blocks: np.ndarray) -> tuple:
    return _nibbles(blocks[..., 4:], 16, 0x88), blocks[..., :4].reshape(len(blocks), -1)


def iq4_nl(blocks: np.ndarray) -> tuple:
    return _nibbles(blocks[..., 2:], 16), blocks[..., :2].reshape(len(blocks), -1)


def mxfp4(blocks: np.ndarray) -> tuple:
    return _nibbles(blocks[..., 1:], 16), np.ascontiguousarray(blocks[..., 0])


def iq4_xs(blocks: np.ndarray) -> tuple:
    """Six bits for each scale, 32 more than it is: four of two groups in a byte, and two of eight in 16 bits."""
    rows, n = blocks.shape[:2]
    found = np.empty((rows, n, 2 + GROUPS), np.uint8)
    found[..., :2] = blocks[..., :2]
    upper = np.ascontiguousarray(blocks[..., 2:4]).view("<u2")
    for g in range(GROUPS):
        lower = blocks[..., 4 + g // 2] >> 4 * (g % 2) & 15
        found[..., 2 + g] = (lower | (upper[..., 0] >> 2 * g & 3).astype(np.uint8) << 4) - np.uint8(32)
    return _nibbles(blocks[..., 8:], 16), found.reshape(rows, -1)


def _five_bits(bits: np.ndarray, codes: np.ndarray) -> np.ndarray:
    bits = ~np.ascontiguousarray(bits).view("<u4")
    for shift, mask in ((6, 0x00CC00CC), (12, 0x0000F0F0)):  # 4 x 4 pairs of bits are transposed
        moved = (bits ^ bits >> shift) & np.uint32(mask)
        bits ^= moved ^ moved << shift
    return _joined(_nibbles(codes, 16), bits.view(np.uint8))


def q5_0(blocks: np.ndarray) -> tuple:
    return _five_bits(blocks[..., 2:6], blocks[..., 6:]), blocks[..., :2].reshape(len(blocks), -1)


def q5_1(blocks: np.ndarray) -> tuple:
    return _five_bits(blocks[..., 4:8], blocks[..., 8:]), blocks[..., :4].reshape(len(blocks), -1)


def q8_0(blocks: np.ndarray) -> tuple:
    rows, scales = len(blocks), np.ascontiguousarray(blocks[..., :2]).view("<f2")
    return np.ascontiguousarray(blocks[..., 2:]).view(np.int8).reshape(rows, -1), scales.reshape(rows, -1)


def _of_grid(low: np.ndarray, high: np.ndarray, scales: np.ndarray) -> tuple:
    """Each (rows, blocks, bytes): low bytes of indices, what else a group has, and scales."""
    rows = len(low)
    return _joined(low.reshape(rows, -1), high.reshape(rows, -1)), scales.reshape(rows, -1)


def _signs_and_more(signs: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Of each group four bytes of signs, and one of upper bits of indices."""
    rows, n = signs.shape[:2]
    return np.concatenate([signs.reshape(rows, n, GROUPS, 4), upper[..., None]], axis=-1)


def _signs_beside(words: np.ndarray) -> np.ndarray:
    """Of each group four times seven signs, and four bits of its scale, one beside each seven."""
    words = np.ascontiguousarray(words).view("<u4")
    found = (words & 0x7F) | (words << 1 & 0x7F00) | (words << 2 & 0x7F0000) | (words << 3 & 0x7F000000)
    for bit in range(4):
        found |= (words >> 28 + bit & 1) << 8 * bit + 7
    return found.view(np.uint8)


def iq3_s(blocks: np.ndarray) -> tuple:
    high = _signs_and_more(blocks[..., 74:106], blocks[..., 66:74])
    return _of_grid(blocks[..., 2:66], high, np.concatenate([blocks[..., :2], blocks[..., 106:]], axis=-1))


def iq3_xxs(blocks: np.ndarray) -> tuple:
    return _of_grid(blocks[..., 2:66], _signs_beside(blocks[..., 66:]), blocks[..., :2])


def iq2_s(blocks: np.ndarray) -> tuple:
    high = _signs_and_more(blocks[..., 34:66], blocks[..., 66:74])
    return _of_grid(blocks[..., 2:34], high, np.concatenate([blocks[..., :2], blocks[..., 74:]], axis=-1))


def iq2_xs(blocks: np.ndarray) -> tuple:
    words = np.ascontiguousarray(blocks[..., 2:66]).view("<u2")
    high = (words >> 9 | words >> 1 & 0x80).astype(np.uint8)
    scales = np.concatenate([blocks[..., :2], blocks[..., 66:]], axis=-1)
    return _of_grid(words.astype(np.uint8), high, scales)


def iq2_xxs(blocks: np.ndarray) -> tuple:
    pairs = np.ascontiguousarray(blocks[..., 2:]).view("<u4")
    return _of_grid(
        np.ascontiguousarray(pairs[..., 0::2]).view(np.uint8), _signs_beside(pairs[..., 1::2]), blocks[..., :2]
    )
