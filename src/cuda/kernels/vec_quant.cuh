// Quantised weights as docs/format.md has them: what a pack of them is. They lie on the device as in the file.
//
// q8 and q4 rows begin at multiples of 32 and 16 bytes, whatever their width, since each is whole groups; rows of the 8-bit floats are
// only as aligned as their width makes them, and their rows' scales not at all.
#pragma once
#include "cuda/kernels/vec.cuh"

struct q8 {
    int8_t quant;
};
struct q4 {
    uint8_t quants; // of two columns
};
struct fp8_e4m3 {
    uint8_t bits;
};
struct fp8_e5m2 {
    uint8_t bits;
};

template <class T> constexpr bool GROUPED = false; // a scale for each group of columns
template <> inline constexpr bool GROUPED<q8> = true;
template <> inline constexpr bool GROUPED<q4> = true;
template <class T> constexpr int PACK_COLS = PACK<T>; // columns of 16 bytes
template <> inline constexpr int PACK_COLS<q4> = 32;

__host__ __device__ __forceinline__ int groups_of(int cols)
{
    return (cols + QUANT_GROUP - 1) / QUANT_GROUP;
}

// From one row's quants to the next one's.
template <class T> __host__ __device__ __forceinline__ size_t quant_pitch(int cols)
{
    return GROUPED<T> ? (size_t)groups_of(cols) * (QUANT_GROUP * 16 / PACK_COLS<T>) : (size_t)cols;
}

// All rows' scales: (rows, groups) of q8 and q4.
template <class T> __device__ __forceinline__ const half *group_scales(const void *w, int rows, int cols)
{
    return reinterpret_cast<const half *>(static_cast<const uint8_t *>(w) + (size_t)rows * quant_pitch<T>(cols));
}

// An fp8_e4m3 becomes an fp16 by moving its bits to where that type has them, with an exponent that is 8 too small; so do its subnormals.
template <class T> constexpr float BITS_FACTOR = 1;
template <> inline constexpr float BITS_FACTOR<fp8_e4m3> = 256;

// What row `row` of as_halves() is multiplied with, of types without groups.
template <class T> __device__ __forceinline__ float row_factor(const void *, int, int, int)
{
    return 1;
}
template <> __device__ __forceinline__ float row_factor<fp8_e4m3>(const void *w, int rows, int cols, int row)
{
    const uint8_t *at = static_cast<const uint8_t *>(w) + (size_t)rows * cols + sizeof(float) * row;
    const unsigned bits = at[0] | (unsigned)at[1] << 8 | (unsigned)at[2] << 16 | (unsigned)at[3] << 24;
    return BITS_FACTOR<fp8_e4m3> * __uint_as_float(bits);
}

// Bytes 0 and 2 of a word as a pair of fp16, and bytes 1 and 3, both without BITS_FACTOR.
template <class T> __device__ __forceinline__ unsigned even_bytes(unsigned word);
template <class T> __device__ __forceinline__ unsigned odd_bytes(unsigned word);
template <> __device__ __forceinline__ unsigned even_bytes<fp8_e4m3>(unsigned word)
{
    return (word << 8 & 0x80008000u) | (word << 7 & 0x3f803f80u);
}
template <> __device__ __forceinline__ unsigned odd_bytes<fp8_e4m3>(unsigned word)
{
    return (word & 0x80008000u) | (word >> 1 & 0x3f803f80u);
}
template <> __device__ __forceinline__ unsigned even_bytes<fp8_e5m2>(unsigned word)
{
    return word << 8 & 0xff00ff00u;
}
template <> __device__ __forceinline__ unsigned odd_bytes<fp8_e5m2>(unsigned word)
{
    return word & 0xff00ff00u;
}

__device__ __forceinline__ unsigned minus_halves(unsigned pair, float both)
{
    __half2 x;
    memcpy(&x, &pair, sizeof x);
    x = __hsub2(x, __float2half2_rn(both));
    memcpy(&pair, &x, sizeof x);
    return pair;
}

// Eight columns in a row, from the words that have them, as four pairs of fp16 in order: exactly the quants, or the floats without
// BITS_FACTOR. An integer u below 1024 in the lower bits of the fp16 1024 (0x6400) makes 1024 + u.
template <class T> __device__ __forceinline__ uint4 as_halves(unsigned first, unsigned second)
{
    const unsigned a0 = even_bytes<T>(first), a1 = odd_bytes<T>(first), b0 = even_bytes<T>(second), b1 = odd_bytes<T>(second);
    return {__byte_perm(a0, a1, 0x5410), __byte_perm(a0, a1, 0x7632), __byte_perm(b0, b1, 0x5410), __byte_perm(b0, b1, 0x7632)};
}
template <> __device__ __forceinline__ uint4 as_halves<q8>(unsigned first, unsigned second)
{
    const unsigned a = first ^ 0x80808080u, b = second ^ 0x80808080u, upper = 0x64646464u;
    return {minus_halves(__byte_perm(a, upper, 0x4140), 1152), minus_halves(__byte_perm(a, upper, 0x4342), 1152),
            minus_halves(__byte_perm(b, upper, 0x4140), 1152), minus_halves(__byte_perm(b, upper, 0x4342), 1152)};
}
__device__ __forceinline__ unsigned two_nibbles(unsigned byte) // of a word of which 8 was added to each nibble
{
    return minus_halves((byte & 0xfu) | (byte & 0xf0u) << 12 | 0x64006400u, 1032);
}
template <> __device__ __forceinline__ uint4 as_halves<q4>(unsigned word, unsigned)
{
    const unsigned u = word ^ 0x88888888u;
    return {two_nibbles(u), two_nibbles(u >> 8), two_nibbles(u >> 16), two_nibbles(u >> 24)};
}

// The words for as_halves() of columns [col, col + 8), col a multiple of 8, of row `row`; beyond the row's end zeros.
template <class T> __device__ __forceinline__ uint2 load_eight(const void *w, int cols, int row, int col)
{
    const uint8_t *at = static_cast<const uint8_t *>(w) + row * quant_pitch<T>(cols) + col * 16 / PACK_COLS<T>;
    if (PACK_COLS<T> == 32)
        return {*reinterpret_cast<const unsigned *>(at), 0};
    if (GROUPED<T> || cols % 8 == 0)
        return *reinterpret_cast<const uint2 *>(at);
    uint2 words = {0, 0};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        words.x |= col + i < cols ? (unsigned)at[i] << 8 * i : 0;
        words.y |= col + i + 4 < cols ? (unsigned)at[i + 4] << 8 * i : 0;
    }
    return words;
}

// One weight.
template <class T> __device__ __forceinline__ float quant_value(const void *w, int rows, int cols, int row, int col)
{
    const uint2 words = load_eight<T>(w, cols, row, col / 8 * 8);
    const uint4 halves = as_halves<T>(words.x, words.y);
    const int pair = col % 8 / 2;
    const float2 both = word_to_floats<half>(pair == 0 ? halves.x : pair == 1 ? halves.y : pair == 2 ? halves.z : halves.w);
    const float scale = GROUPED<T>
                            ? __half2float(group_scales<T>(w, rows, cols)[(size_t)row * groups_of(cols) + col / QUANT_GROUP])
                            : row_factor<T>(w, rows, cols, row);
    return (col % 2 ? both.y : both.x) * scale;
}
