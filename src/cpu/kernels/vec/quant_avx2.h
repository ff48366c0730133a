// How the quantised kernels multiply with AVX2. The same names as in vec/quant_avx512.h.
#pragma once
#include "cpu/kernels/vec/ivec_avx2.h"
#include "cpu/kernels/vec/quant_grid.h"
#include "cpu/kernels/vec/quant_x86.h"

// Of `words` (1 or 2) words of four bytes that a group has at p, the one numbered `which`, of 8 groups, in the order of
// part_lane().
VEC_INLINE ivec lane_words(const uint8_t *p, int words, int which)
{
    if (words == 1)
        return _mm256_permutevar8x32_epi32(ivec_load(p), _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
    const ivec order = _mm256_add_epi32(_mm256_setr_epi32(0, 4, 0, 4, 2, 6, 2, 6), _mm256_set1_epi32(which));
    return _mm256_blend_epi32(_mm256_permutevar8x32_epi32(ivec_load(p), order),
                              _mm256_permutevar8x32_epi32(ivec_load(p + 32), order), 0xcc);
}

// n integers of a byte, n <= VEC, and zeros.
VEC_INLINE vec vec_load_bytes(const int8_t *p, int n)
{
    int64_t part = 0;
    memcpy(&part, p, (size_t)n);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(part)));
}

// The integers of a group of bytes, or of what is looked up, in their order.
VEC_INLINE ivec group_bytes(enum dtype type, struct quants_at at)
{
    return dtype_table(type) ? six_bit_group(type, at, 0) : ivec_load(at.low);
}

// The bytes of 4 groups: piece by piece as 16-bit integers, even and odd columns apart.
VEC_INLINE void byte_pieces(enum dtype type, struct quants_at at, ivec even[4], ivec odd[4])
{
    ivec w[4], pieces[4];
    int8_t bytes[4 * QUANT_GROUP];
    if (dtype_is_grid(type))
        grid_bytes(bytes, at, 4);
    for (int i = 0; i < 4; i++)
        w[i] = dtype_is_grid(type) ? ivec_load(bytes + (ptrdiff_t)i * QUANT_GROUP) : group_bytes(type, groups_on(type, at, i));
    transpose_within(pieces, w);
    for (int i = 0; i < 4; i++) {
        even[i] = _mm256_srai_epi16(_mm256_slli_epi16(pieces[i], 8), 8);
        odd[i] = _mm256_srai_epi16(pieces[i], 8);
    }
}

// Nibbles ^ flip as bytes (with 8, q4's quants + 8) of the 8 groups at p: piece by piece, even and odd columns apart.
VEC_INLINE void nibble_pieces(const uint8_t *p, int flip, ivec even[4], ivec odd[4])
{
    ivec w[4], pieces[4];
    for (int i = 0; i < 4; i++)
        w[i] = ivec_load(p + (ptrdiff_t)32 * i);
    transpose_within(pieces, w);
    const ivec four_bits = _mm256_set1_epi8(15), flips = _mm256_set1_epi8((char)flip);
    for (int i = 0; i < 4; i++) {
        even[i] = _mm256_xor_si256(_mm256_and_si256(pieces[i], four_bits), flips);
        odd[i] = _mm256_xor_si256(_mm256_and_si256(_mm256_srli_epi16(pieces[i], 4), four_bits), flips);
    }
}

// 8 groups' scales, or (`halves`) those of the first 4 or the second, in the order of part_lane().
VEC_INLINE vec lane_scales(bool halves, bool second, vec scales)
{
    if (halves)
        return second ? _mm256_permute2f128_ps(scales, scales, 0x11) : _mm256_permute2f128_ps(scales, scales, 0x00);
    return _mm256_permutevar8x32_ps(scales, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}

// Lanes of first halves of groups from a, of second ones from b, in the order of part_lane().
VEC_INLINE vec vec_of_halves(vec a, vec b)
{
    return _mm256_blend_ps(a, b, 0xf0);
}

// Of a row, q8's products: of 4 columns of each piece in each lane.
VEC_INLINE void bytes_dot_part(int n_rows, ivec sums[PART_ROWS], const ivec even[PART_ROWS][4], const ivec odd[PART_ROWS][4],
                               int parts, const char *x, const int32_t less[8])
{
    (void)n_rows, (void)parts, (void)less;
    ivec first = ivec_zero(), second = ivec_zero();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        first = ivec_dot(first, even[0][i], ivec_load(x + 64 * i));
        second = ivec_dot(second, odd[0][i], ivec_load(x + 64 * i + 32));
    }
    sums[0] = _mm256_add_epi32(first, second);
}

// a + b of 16-bit elements in a's register, as ivec_accumulate(). (gcc 12 would add up in a tree, of sums in memory.)
VEC_INLINE ivec accumulate16(ivec a, ivec b)
{
    __asm__("vpaddw %1, %0, %0" : "+x"(a) : "x"(b));
    return a;
}

// For a row and each lane, over 4 bytes of each piece: 256 Σ (even · high[…][0] + odd · high[…][1]) + Σ (even · low[…][0] + odd
// · low[…][1]) + less. With one digit there is no `high`. Two products of at most 15 * 128 fit in 16 bits, and so do all of a
// group.
VEC_INLINE void nibbles_dot(int n_rows, ivec sums[PART_ROWS], const ivec even[PART_ROWS][4], const ivec odd[PART_ROWS][4],
                            int digits, const int8_t high[4][2][32], const int8_t low[4][2][32], const int32_t less[8])
{
    (void)n_rows;
#ifdef __AVXVNNI__
    ivec h = ivec_zero(), l = ivec_load(less);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        if (digits == 2)
            h = ivec_dot8(ivec_dot8(h, even[0][i], ivec_load(high[i][0])), odd[0][i], ivec_load(high[i][1]));
        l = ivec_dot8(ivec_dot8(l, even[0][i], ivec_load(low[i][0])), odd[0][i], ivec_load(low[i][1]));
    }
    sums[0] = digits == 2 ? _mm256_add_epi32(_mm256_slli_epi32(h, 8), l) : l;
#else
    ivec h = ivec_zero(), l = ivec_zero();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        if (digits == 2) {
            h = accumulate16(h, _mm256_maddubs_epi16(even[0][i], ivec_load(high[i][0])));
            h = accumulate16(h, _mm256_maddubs_epi16(odd[0][i], ivec_load(high[i][1])));
        }
        l = accumulate16(l, _mm256_maddubs_epi16(even[0][i], ivec_load(low[i][0])));
        l = accumulate16(l, _mm256_maddubs_epi16(odd[0][i], ivec_load(low[i][1])));
    }
    const ivec high_sum = _mm256_madd_epi16(h, _mm256_set1_epi16(256)), low_sum = _mm256_madd_epi16(l, _mm256_set1_epi16(1));
    sums[0] = _mm256_add_epi32(digits == 2 ? _mm256_add_epi32(high_sum, low_sum) : low_sum, ivec_load(less));
#endif
}

// The quants of one group in their order, as 16-bit numbers.
VEC_INLINE void quants_in_order(enum dtype type, int16_t *to, struct quants_at at)
{
    type = dtype_quants[type];
    ivec q;
    if (dtype_is_six_bit(type) || dtype_table(type)) {
        q = six_bit_group(type, at, 0);
    } else if (type == DTYPE_Q8) {
        q = ivec_load(at.low);
    } else {
        const ivec eight = _mm256_set1_epi8(8);
        q = _mm256_sub_epi8(_mm256_xor_si256(nibbles_in_order(at.low), eight), eight);
    }
    ivec_store(to, _mm256_cvtepi8_epi16(_mm256_castsi256_si128(q)));
    ivec_store(to + 16, _mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1)));
}

// ------------------------------------------------------------------------------------------ tokens as bytes

// x with w's sign, or 0 where that is 0.
VEC_INLINE ivec ivec_signed_by(ivec x, ivec w)
{
    return _mm256_sign_epi8(x, w);
}

// The quants of the group at p in their order; q4's and 8, those of six bits and 32. With VNNI, q4's as 16 times what they are,
// and all have 128 added.
VEC_INLINE void bytes_in_order(enum dtype type, uint8_t *to, struct quants_at at, int groups)
{
    const uint8_t *p = at.low;
    (void)groups;
    if (dtype_is_six_bit(type)) {
        ivec_store(to, six_bit_group(type, at, six_plus(at.type)));
        return;
    }
    if (dtype_is_grid(type))
        grid_bytes((int8_t *)to, at, 1);
    if (dtype_is_byte(type)) {
        at.low = dtype_is_grid(type) ? to : at.low;
        ivec_store(to, _mm256_xor_si256(group_bytes(type, at), _mm256_set1_epi8(BYTES_PLUS)));
        return;
    }
    const ivec w = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p)); // a byte is two columns, the low four bits first
#ifdef __AVXVNNI__
    const ivec both = _mm256_or_si256(_mm256_and_si256(_mm256_slli_epi16(w, 4), _mm256_set1_epi16(0xf0)),
                                      _mm256_and_si256(_mm256_slli_epi16(w, 8), _mm256_set1_epi16((short)0xf000)));
    ivec_store(to, _mm256_xor_si256(both, _mm256_set1_epi8(-128)));
#else
    const ivec both = _mm256_and_si256(_mm256_or_si256(w, _mm256_slli_epi16(w, 4)), _mm256_set1_epi8(15));
    ivec_store(to, _mm256_xor_si256(both, _mm256_set1_epi8(8)));
#endif
}
