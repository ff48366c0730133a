// Quantised weights as docs/format.md has them: what a pack of them is. They lie on the device as in the file.
//
// Rows of q8, q4 and q4n begin at multiples of 32 and 16 bytes, whatever their width, since each is whole groups. Rows of q5
// and q6 begin at multiples of 4 and 8, for their groups have second planes. Rows of the 8-bit floats are only as aligned as
// their width makes them, and rows' scales not at all.
#pragma once
#include "cuda/kernels/vec.cuh"
#include "model/quant_values.h"

#include <type_traits>

struct q8 {
    int8_t quant;
};
struct q4 {
    uint8_t quants; // of two columns
};
// Integers of six bits: the low four bits of two columns, and in a second plane what more there is of them
// (model/quant_values.h).
struct q4n {
    uint8_t quants;
};
struct q5 {
    uint8_t quants;
};
struct q6 {
    uint8_t quants;
};
struct fp8_e4m3 {
    uint8_t bits;
};
struct fp8_e5m2 {
    uint8_t bits;
};

template <class T> constexpr bool SIX_BITS = false;
template <> inline constexpr bool SIX_BITS<q4n> = true;
template <> inline constexpr bool SIX_BITS<q5> = true;
template <> inline constexpr bool SIX_BITS<q6> = true;
template <class T> constexpr bool GROUPED = SIX_BITS<T>; // a scale for each group of columns
template <> inline constexpr bool GROUPED<q8> = true;
template <> inline constexpr bool GROUPED<q4> = true;
template <class T> constexpr bool ROW_SCALED = SIX_BITS<T>; // and one for each row
template <> inline constexpr bool ROW_SCALED<fp8_e4m3> = true;
template <class T> constexpr int PACK_COLS = SIX_BITS<T> ? 32 : PACK<T>; // columns of 16 bytes
template <> inline constexpr int PACK_COLS<q4> = 32;
template <class T> constexpr int HIGH_BYTES = 0; // of a group in the second plane
template <> inline constexpr int HIGH_BYTES<q5> = 4;
template <> inline constexpr int HIGH_BYTES<q6> = 8;
// Whether each row's first plane begins at a multiple of 16 bytes, however many groups there are.
template <class T> constexpr bool ROWS_ALIGNED = GROUPED<T> &&HIGH_BYTES<T> == 0;
template <class T> using scale_type = std::conditional_t<SIX_BITS<T>, int8_t, half>; // a group's

__device__ __forceinline__ float scale_value(half x)
{
    return __half2float(x);
}
__device__ __forceinline__ float scale_value(int8_t x)
{
    return (float)x;
}

__host__ __device__ __forceinline__ int groups_of(int cols)
{
    return (cols + QUANT_GROUP - 1) / QUANT_GROUP;
}

// From one row's quants to the next one's, and from a row's first plane to its second.
template <class T> __host__ __device__ __forceinline__ size_t quant_pitch(int cols)
{
    return GROUPED<T> ? (size_t)groups_of(cols) * (QUANT_GROUP * 16 / PACK_COLS<T> + HIGH_BYTES<T>) : cols * sizeof(T);
}
__host__ __device__ __forceinline__ size_t high_plane(int cols)
{
    return (size_t)groups_of(cols) * (QUANT_GROUP / 2);
}

// All groups' scales: (rows, groups).
template <class T> __device__ __forceinline__ const scale_type<T> *group_scales(const void *w, int rows, int cols)
{
    return reinterpret_cast<const scale_type<T> *>(static_cast<const uint8_t *>(w) + (size_t)rows * quant_pitch<T>(cols));
}
template <class T> __device__ __forceinline__ float group_scale(const void *w, int rows, int cols, int row, int group)
{
    return scale_value(group_scales<T>(w, rows, cols)[(size_t)row * groups_of(cols) + group]);
}

// An fp8_e4m3 becomes an fp16 by moving its bits to where fp16 has them; its exponent is then 8 too small, also of subnormals.
// q6's integers become bytes in the upper six bits.
template <class T> constexpr float BITS_FACTOR = 1;
template <> inline constexpr float BITS_FACTOR<fp8_e4m3> = 256;
template <> inline constexpr float BITS_FACTOR<q6> = 0.25f;

// What row `row` of as_halves() is multiplied with, besides groups' scales.
template <class T> __device__ __forceinline__ float row_factor(const void *w, int rows, int cols, int row)
{
    if (!ROW_SCALED<T>)
        return 1;
    const size_t groups = GROUPED<T> ? (size_t)groups_of(cols) * sizeof(scale_type<T>) : 0;
    const uint8_t *at = static_cast<const uint8_t *>(w) + (size_t)rows * (quant_pitch<T>(cols) + groups) + sizeof(float) * row;
    const unsigned bits = at[0] | (unsigned)at[1] << 8 | (unsigned)at[2] << 16 | (unsigned)at[3] << 24;
    return BITS_FACTOR<T> * __uint_as_float(bits);
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

// Eight columns of six bits in a row as bytes with sign, times 1 / BITS_FACTOR. `word` has their low four bits; `high` has the
// further bits of columns 2p and 2p + 1 lowest in byte p (load_eight, high_bits).
struct eight_bytes {
    unsigned first, second;
};

// Four numbers of a table, as a word.
constexpr unsigned table_word(const int8_t *at)
{
    return (uint8_t)at[0] | (unsigned)(uint8_t)at[1] << 8 | (unsigned)(uint8_t)at[2] << 16 | (unsigned)(uint8_t)at[3] << 24;
}
template <int I> inline constexpr unsigned Q4N_WORD = table_word(q4n_values + 4 * I);
template <int I> inline constexpr unsigned Q5_WORD = table_word(q5_values + 4 * I);

// Of 16 bytes those that the lowest four nibbles of `at` name; `upper`: 0x3210, and 4 more for each nibble of 8 and more.
__device__ __forceinline__ unsigned look_up(unsigned a, unsigned b, unsigned c, unsigned d, unsigned at, unsigned upper)
{
    return __byte_perm(__byte_perm(a, b, at & 0x7777u), __byte_perm(c, d, at & 0x7777u), upper & 0x7777u);
}

template <class T> __device__ __forceinline__ struct eight_bytes signed_bytes(unsigned word, unsigned high);
template <> __device__ __forceinline__ struct eight_bytes signed_bytes<q4n>(unsigned word, unsigned) {
    const unsigned upper = (word >> 1 & 0x44444444u) | 0x32103210u;
    return {look_up(Q4N_WORD<0>, Q4N_WORD<1>, Q4N_WORD<2>, Q4N_WORD<3>, word, upper),
            look_up(Q4N_WORD<0>, Q4N_WORD<1>, Q4N_WORD<2>, Q4N_WORD<3>, word >> 16, upper >> 16)};
} template <> __device__ __forceinline__ struct eight_bytes signed_bytes<q5>(unsigned word, unsigned high) {
    const unsigned upper = (word >> 1 & 0x44444444u) | 0x32103210u;
    const unsigned fifth = (high << 2 & 0x04040404u) | (high << 5 & 0x40404040u) | 0x32103210u;
    const unsigned first[2] = {look_up(Q5_WORD<0>, Q5_WORD<1>, Q5_WORD<2>, Q5_WORD<3>, word, upper),
                               look_up(Q5_WORD<0>, Q5_WORD<1>, Q5_WORD<2>, Q5_WORD<3>, word >> 16, upper >> 16)};
    const unsigned second[2] = {look_up(Q5_WORD<4>, Q5_WORD<5>, Q5_WORD<6>, Q5_WORD<7>, word, upper),
                                look_up(Q5_WORD<4>, Q5_WORD<5>, Q5_WORD<6>, Q5_WORD<7>, word >> 16, upper >> 16)};
    return {__byte_perm(first[0], second[0], fifth & 0x7777u), __byte_perm(first[1], second[1], fifth >> 16 & 0x7777u)};
} template <> __device__ __forceinline__ struct eight_bytes signed_bytes<q6>(unsigned word, unsigned high) {
    const unsigned even = (word << 2 & 0x3c3c3c3cu) | (high << 6 & 0xc0c0c0c0u);
    const unsigned odd = (word >> 2 & 0x3c3c3c3cu) | (high << 4 & 0xc0c0c0c0u);
    return {__byte_perm(even, odd, 0x5140), __byte_perm(even, odd, 0x7362)};
}

// What signed_bytes() needs beside the low bits, of the group's eight number `eight`, from the group's bytes in the second
// plane.
template <class T>
__device__ __forceinline__ unsigned high_bits(uint2 group, int eight)
{
    if (HIGH_BYTES<T> == 4)
        return group.x >> 2 * eight & 0x03030303u;
    return (group.x >> 2 * eight & 0x03030303u) | (group.y >> 2 * eight & 0x03030303u) << 2;
}
// A group's bytes there, at a multiple of 4 or 8.
template <class T> __device__ __forceinline__ uint2 load_high(const uint8_t *at)
{
    if (HIGH_BYTES<T> == 8)
        return *reinterpret_cast<const uint2 *>(at);
    return {HIGH_BYTES<T> == 4 ? *reinterpret_cast<const unsigned *>(at) : 0, 0};
}

// Eight columns in a row, from the words that have them, as four pairs of fp16 in order: exactly the quants, or the floats
// without BITS_FACTOR. An integer u below 1024 in the lower bits of the fp16 1024 (0x6400) makes 1024 + u.
__device__ __forceinline__ uint4 bytes_as_halves(unsigned first, unsigned second)
{
    const unsigned a = first ^ 0x80808080u, b = second ^ 0x80808080u, upper = 0x64646464u;
    return {minus_halves(__byte_perm(a, upper, 0x4140), 1152), minus_halves(__byte_perm(a, upper, 0x4342), 1152),
            minus_halves(__byte_perm(b, upper, 0x4140), 1152), minus_halves(__byte_perm(b, upper, 0x4342), 1152)};
}
template <class T> __device__ __forceinline__ uint4 as_halves(unsigned first, unsigned second)
{
    if constexpr (SIX_BITS<T>) {
        const struct eight_bytes bytes = signed_bytes<T>(first, second);
        return bytes_as_halves(bytes.first, bytes.second);
    } else {
        const unsigned a0 = even_bytes<T>(first), a1 = odd_bytes<T>(first), b0 = even_bytes<T>(second),
                       b1 = odd_bytes<T>(second);
        return {__byte_perm(a0, a1, 0x5410), __byte_perm(a0, a1, 0x7632), __byte_perm(b0, b1, 0x5410),
                __byte_perm(b0, b1, 0x7632)};
    }
}
template <> __device__ __forceinline__ uint4 as_halves<q8>(unsigned first, unsigned second)
{
    return bytes_as_halves(first, second);
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
    const uint8_t *first = static_cast<const uint8_t *>(w) + row * quant_pitch<T>(cols), *at = first + col * 16 / PACK_COLS<T>;
    if (PACK_COLS<T> == 32) {
        const uint8_t *high = first + high_plane(cols) + (size_t)(col / QUANT_GROUP) * HIGH_BYTES<T>;
        return {*reinterpret_cast<const unsigned *>(at),
                HIGH_BYTES<T> ? high_bits<T>(load_high<T>(high), col % QUANT_GROUP / 8) : 0};
    }
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

// The scale of as_halves() of row `row` and column `col`, without the row's.
template <class T> __device__ __forceinline__ float column_scale(const void *w, int rows, int cols, int row, int col)
{
    if constexpr (GROUPED<T>)
        return group_scale<T>(w, rows, cols, row, col / QUANT_GROUP);
    else
        return 1;
}

// One weight.
template <class T> __device__ __forceinline__ float quant_value(const void *w, int rows, int cols, int row, int col)
{
    const uint2 words = load_eight<T>(w, cols, row, col / 8 * 8);
    const uint4 halves = as_halves<T>(words.x, words.y);
    const int pair = col % 8 / 2;
    const float2 both = word_to_floats<half>(pair == 0 ? halves.x : pair == 1 ? halves.y : pair == 2 ? halves.z : halves.w);
    return (col % 2 ? both.y : both.x) * column_scale<T>(w, rows, cols, row, col) * row_factor<T>(w, rows, cols, row);
}

// The cases of a switch over a matrix's type: each returns call<T>(…), T of this file.
#define QUANT_CASE(TYPE, type, call, ...)                                                                                      \
    case DTYPE_##TYPE:                                                                                                         \
        return call<type>(__VA_ARGS__);
#define QUANT_CASES(call, ...)                                                                                                 \
    DEVICE_QUANT_TYPES(QUANT_CASE, call, __VA_ARGS__)                                                                          \
    QUANT_CASE(FP8, fp8_e4m3, call, __VA_ARGS__)                                                                               \
    QUANT_CASE(FP8_E5M2, fp8_e5m2, call, __VA_ARGS__)
// The value of call<T>(…) for a matrix's type; `otherwise` where that is not of this file.
#define QUANT_CHOICE(TYPE, type, dtype, call, ...) (dtype) == DTYPE_##TYPE ? call<type>(__VA_ARGS__):
#define QUANT_CALL(dtype, otherwise, call, ...)                                                                                \
    (DEVICE_QUANT_TYPES(QUANT_CHOICE, dtype, call, __VA_ARGS__)(dtype) == DTYPE_FP8 ? call<fp8_e4m3>(__VA_ARGS__)              \
     : (dtype) == DTYPE_FP8_E5M2                                                    ? call<fp8_e5m2>(__VA_ARGS__)              \
                                                                                    : (otherwise))

// Eight groups' scales, of which `left` are there, set out for shared memory. Where ALIGNED, all are there or none.
template <bool ALIGNED> __device__ __forceinline__ void fetch_eight_scales(half *to, const half *from, int left)
{
    if (ALIGNED)
        copy_async16(to, from, left > 0);
    else
        *reinterpret_cast<uint4 *>(to) = load_pack<half, false>(from, left);
}
template <bool ALIGNED> __device__ __forceinline__ void fetch_eight_scales(int8_t *to, const int8_t *from, int left)
{
    if (ALIGNED && left > 0) {
        copy_async_few<8>(to, from);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        to[i] = i < left ? from[i] : 0;
}

// A pack of which no more is known than that it is words.
__device__ __forceinline__ uint4 load_words(const uint8_t *at, bool there)
{
    const unsigned *words = reinterpret_cast<const unsigned *>(at);
    return there ? uint4{__ldg(words), __ldg(words + 1), __ldg(words + 2), __ldg(words + 3)} : uint4{0, 0, 0, 0};
}

// A group's bytes of the second plane set out.
template <class T> __device__ __forceinline__ void fetch_high(uint8_t *to, const uint8_t *from, bool there)
{
    if (there)
        copy_async_few<HIGH_BYTES<T>>(to, from);
    else
        memset(to, 0, HIGH_BYTES<T>);
}
