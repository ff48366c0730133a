// How the quantised kernels multiply with AVX-512 (F, BW, DQ, VL), and VNNI where the file is compiled for it. The same
// names as in vec/quant_avx2.h.
#pragma once
#include "cpu/kernels/vec/ivec_avx512.h"
#include "cpu/kernels/vec/quant_grid.h"
#include "cpu/kernels/vec/quant_x86.h"

// Of `words` (1 or 2) words of four bytes that a group has at p, the one numbered `which`, of 16 groups, in the order of
// part_lane().
VEC_INLINE ivec lane_words(const uint8_t *p, int words, int which)
{
    const ivec order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    if (words == 1)
        return _mm512_permutexvar_epi32(order, ivec_load(p));
    return _mm512_permutex2var_epi32(ivec_load(p), _mm512_add_epi32(_mm512_slli_epi32(order, 1), ivec_set(which)),
                                     ivec_load(p + 64));
}

// n integers of a byte, n <= VEC, and zeros.
VEC_INLINE vec vec_load_bytes(const int8_t *p, int n)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), p)));
}

VEC_INLINE void load_groups(ivec w[4], const uint8_t *p)
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        w[i] = ivec_load(p + (ptrdiff_t)64 * i);
}

// The numbers of two groups, or of one, whose four bits are looked up. A byte is two columns, the low four bits first.
VEC_INLINE ivec looked_up(enum dtype type, struct quants_at at, int groups)
{
    const ivec w = _mm512_cvtepu8_epi16(groups == 2 ? _mm256_loadu_si256((const __m256i *)at.low)
                                                    : _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)at.low)));
    return ivec_look_up(dtype_table(type), 0, _mm512_and_si512(_mm512_or_si512(w, _mm512_slli_epi16(w, 4)), ivec_set8(15)));
}

// The bytes of 8 groups, piece by piece: with VNNI 128 more, as bytes without sign; else as 16-bit integers, even
// and odd columns apart.
VEC_INLINE void byte_pieces(enum dtype type, struct quants_at at, ivec even[4], ivec odd[4])
{
    ivec w[4], pieces[4];
    if (dtype_is_grid(type)) {
        int8_t bytes[8 * QUANT_GROUP];
        grid_bytes(bytes, at, 8);
        load_groups(w, (const uint8_t *)bytes);
    } else if (dtype_table(type)) {
        for (int i = 0; i < 4; i++)
            w[i] = looked_up(type, groups_on(type, at, (ptrdiff_t)2 * i), 2);
    } else {
        load_groups(w, at.low);
    }
    transpose_within(pieces, w);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
#ifdef __AVX512VNNI__
        even[i] = _mm512_xor_si512(pieces[i], _mm512_set1_epi8(-128));
        odd[i] = even[i];
#else
        even[i] = _mm512_srai_epi16(_mm512_slli_epi16(pieces[i], 8), 8);
        odd[i] = _mm512_srai_epi16(pieces[i], 8);
#endif
    }
}

// Nibbles ^ flip as bytes (with 8, q4's quants + 8) of the 16 groups at p: piece by piece, even and odd columns apart.
VEC_INLINE void nibble_pieces(const uint8_t *p, int flip, ivec even[4], ivec odd[4])
{
    enum { AND_XOR = 0x6a }; // of bits a, b, c: (a & b) ^ c
    ivec w[4], pieces[4];
    load_groups(w, p);
    transpose_within(pieces, w);
    const ivec four_bits = _mm512_set1_epi8(15), flips = _mm512_set1_epi8((char)flip);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        even[i] = _mm512_ternarylogic_epi64(pieces[i], four_bits, flips, AND_XOR);
        odd[i] = _mm512_ternarylogic_epi64(_mm512_srli_epi16(pieces[i], 4), four_bits, flips, AND_XOR);
    }
}

// nibble_pieces() of six-bit values: above their nibbles stand the `bits` of the second plane, the uppermost turned over. These
// go there for two pieces at once, and what is below them does not count.
VEC_INLINE void joined_pieces(int bits, struct quants_at at, ivec even[4], ivec odd[4])
{
    enum { AND_XOR = 0x6a }; // of bits a, b, c: (a & b) ^ c
    const ivec four_bits = ivec_set8(15);
    ivec w[4], pieces[4], high[2][2];
    load_groups(w, at.low);
    transpose_within(pieces, w);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const ivec word = lane_words(at.high, bits, bits == 2 ? i / 2 : 0);
        const int mask = bits == 2 ? 0x33 << i % 2 * 2 : 0x11 << (i / 2 + i % 2 * 2);
        high[i / 2][i % 2] =
            _mm512_ternarylogic_epi32(word, ivec_set8(mask), ivec_set8(bits == 2 ? mask & 0xaa : mask), AND_XOR);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const ivec two = high[0][i % 2], next = high[1][i % 2];
        const int left = 4 - 2 * i, next_left = left - (bits == 1);
        even[i] = ivec_choose(four_bits, pieces[i], left >= 0 ? _mm512_slli_epi32(two, left) : _mm512_srli_epi32(two, -left));
        odd[i] = ivec_choose(four_bits, _mm512_srli_epi16(pieces[i], 4),
                             next_left >= 0 ? _mm512_slli_epi32(next, next_left) : _mm512_srli_epi32(next, -next_left));
    }
}

// 16 groups' scales, or (`halves`) those of the first 8 or the second, in the order of part_lane().
VEC_INLINE vec lane_scales(bool halves, bool second, vec scales)
{
    const ivec all = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const ivec half = _mm512_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6, 1, 3, 5, 7, 1, 3, 5, 7);
    return _mm512_permutexvar_ps(halves ? _mm512_add_epi32(half, _mm512_set1_epi32(second ? 8 : 0)) : all, scales);
}

// Lanes of first halves of groups from a, of second ones from b, in the order of part_lane().
VEC_INLINE vec vec_of_halves(vec a, vec b)
{
    return _mm512_mask_blend_ps(0xf0f0, a, b);
}

VEC_INLINE ivec nibble_add(ivec sum, ivec w, ivec x)
{
#ifdef __AVX512VNNI__
    return ivec_dot8(sum, w, x);
#else
    return _mm512_add_epi16(sum, _mm512_maddubs_epi16(w, x));
#endif
}

// For each of n_rows rows and each lane, over 4 bytes of each piece: 256 Σ (even · high[…][0] + odd · high[…][1]) + Σ (even ·
// low[…][0] + odd · low[…][1]) + less. With one digit there is no `high`. Two products of at most 15 * 128 fit in 16 bits, and
// so do all of a group.
VEC_INLINE void nibbles_dot(int n_rows, ivec sums[PART_ROWS], const ivec even[PART_ROWS][4], const ivec odd[PART_ROWS][4],
                            int digits, const int8_t high[4][2][64], const int8_t low[4][2][64], const int32_t less[16])
{
    ivec h[PART_ROWS], l[PART_ROWS];
#pragma GCC unroll 2
    for (int r = 0; r < n_rows; r++)
        h[r] = l[r] = ivec_zero();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const ivec high_even = ivec_load(high[i][0]), high_odd = ivec_load(high[i][1]);
        const ivec low_even = ivec_load(low[i][0]), low_odd = ivec_load(low[i][1]);
#pragma GCC unroll 2
        for (int r = 0; r < n_rows; r++) {
            if (digits == 2)
                h[r] = nibble_add(nibble_add(h[r], even[r][i], high_even), odd[r][i], high_odd);
            l[r] = nibble_add(nibble_add(l[r], even[r][i], low_even), odd[r][i], low_odd);
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < n_rows; r++)
#ifdef __AVX512VNNI__
        sums[r] = _mm512_add_epi32(digits == 2 ? _mm512_add_epi32(_mm512_slli_epi32(h[r], 8), l[r]) : l[r], ivec_load(less));
#else
    {
        const ivec low_sum = _mm512_madd_epi16(l[r], _mm512_set1_epi16(1));
        sums[r] =
            _mm512_add_epi32(digits == 2 ? _mm512_add_epi32(_mm512_madd_epi16(h[r], _mm512_set1_epi16(256)), low_sum) : low_sum,
                             ivec_load(less));
    }
#endif
}

// Of each of n_rows rows, q8's products: of 4 columns of each piece in each lane.
VEC_INLINE void bytes_dot_part(int n_rows, ivec sums[PART_ROWS], const ivec even[PART_ROWS][4], const ivec odd[PART_ROWS][4],
                               int parts, const char *x, const int32_t less[16])
{
    ivec h[PART_ROWS], l[PART_ROWS];
#pragma GCC unroll 2
    for (int r = 0; r < n_rows; r++)
        h[r] = l[r] = ivec_zero();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const ivec first = ivec_load(x + i * parts * 64), second = ivec_load(x + (i * parts + parts - 1) * 64);
#pragma GCC unroll 2
        for (int r = 0; r < n_rows; r++) {
#ifdef __AVX512VNNI__
            if (parts == 2)
                h[r] = ivec_dot8(h[r], even[r][i], first);
            l[r] = ivec_dot8(l[r], even[r][i], second);
#else
            h[r] = ivec_dot(h[r], even[r][i], first);
            l[r] = ivec_dot(l[r], odd[r][i], second);
#endif
        }
    }
    (void)odd, (void)less;
#pragma GCC unroll 2
    for (int r = 0; r < n_rows; r++)
#ifdef __AVX512VNNI__
        sums[r] = _mm512_add_epi32(parts == 2 ? _mm512_add_epi32(_mm512_slli_epi32(h[r], 8), l[r]) : l[r], ivec_load(less));
#else
        sums[r] = _mm512_add_epi32(h[r], l[r]);
#endif
}

// The quants of one group in their order, as 16-bit numbers.
VEC_INLINE void quants_in_order(enum dtype type, int16_t *to, struct quants_at at)
{
    const uint8_t *p = at.low;
    type = dtype_quants[type];
    if (type != DTYPE_Q4) {
        ivec_store(
            to, _mm512_cvtepi8_epi16(type == DTYPE_Q8 ? _mm256_loadu_si256((const __m256i *)p) : six_bit_group(type, at, 0)));
    } else {
        const ivec w =
            _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)); // a byte is two columns: the low four bits first
        const ivec low = _mm512_srli_epi32(_mm512_slli_epi32(_mm512_srai_epi32(_mm512_slli_epi32(w, 28), 28), 16), 16);
        ivec_store(to, _mm512_or_si512(low, _mm512_slli_epi32(_mm512_srai_epi32(w, 4), 16)));
    }
}

// ------------------------------------------------------------------------------------------ tokens as bytes

// x with w's sign; where that is 0, x.
VEC_INLINE ivec ivec_signed_by(ivec x, ivec w)
{
    return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), ivec_zero(), x);
}

// The values of two groups, or of one, of which `nibbles` has the low four bits in their order, and `plus` more.
VEC_INLINE ivec six_bit_pair(enum dtype type, ivec nibbles, struct quants_at at, int groups, int plus)
{
    type = dtype_quants[type];
    if (dtype_table(type))
        return ivec_look_up(dtype_table(type), plus, nibbles);
    const int words = type == DTYPE_Q6 ? 2 : 1; // of a group's four bytes
    const ivec all = _mm512_broadcast_i32x4(_mm_maskz_loadu_epi32((__mmask8)((1 << words * groups) - 1), at.high));
    if (words == 1) { // each column's byte, and of it the bit
        const int64_t from = 0x0303020201010000, next = from + 0x0404040404040404;
        const ivec bytes = _mm512_shuffle_epi8(all, _mm512_setr_epi64(from, from, from, from, next, next, next, next));
        const int64_t bit = 0x0201020102010201;
        const ivec bits = _mm512_setr_epi64(bit, bit << 2, bit << 4, (int64_t)((uint64_t)bit << 6), bit, bit << 2, bit << 4,
                                            (int64_t)((uint64_t)bit << 6));
        const __mmask64 is_set = _mm512_test_epi8_mask(bytes, bits);
        if (type == DTYPE_Q5K) { // it counts -16
            const ivec more = _mm512_add_epi8(nibbles, ivec_set8(plus));
            return _mm512_mask_sub_epi8(more, is_set, more, ivec_set8(16));
        }
        return _mm512_mask_shuffle_epi8(ivec_look_up(q5_values, plus, nibbles), is_set, ivec_table(q5_values + 16, plus),
                                        nibbles);
    }
    const int64_t from = 0x0703060205010400, next = from + 0x0808080808080808;
    const ivec bytes = _mm512_shuffle_epi8(all, _mm512_setr_epi64(from, from, from, from, next, next, next, next));
    const ivec two = _mm512_rolv_epi64(bytes, _mm512_setr_epi64(4, 2, 0, 62, 4, 2, 0, 62)); // where they belong
    const ivec bits = ivec_and_or(two, ivec_set8(0x30), nibbles);
    return _mm512_add_epi8(ivec_xor(bits, ivec_set8(32)), ivec_set8(plus - 32));
}

// The quants of two groups at p, or of one, in their order. With VNNI, q4's as 16 times what they are, since they are in a
// byte's upper half then, and 128 more.
VEC_INLINE void bytes_in_order(enum dtype type, uint8_t *to, struct quants_at at, int groups)
{
    const uint8_t *p = at.low;
    if (dtype_low_pairs(type)) {
        ivec_store(to, ivec_zero());
        for (int g = 0; g < groups; g++)
            _mm256_storeu_si256((__m256i *)(to + (ptrdiff_t)g * QUANT_GROUP),
                                six_bit_group(type, groups_on(type, at, g), six_plus(at.type)));
        return;
    }
    enum { CHOOSE = 0xca, OR_AND = 0xa8, AND_XOR = 0x6a }; // of bits a, b, c: a ? b : c, (a | b) & c, (a & b) ^ c
    if (dtype_is_grid(type)) {
        grid_bytes((int8_t *)to, at, groups);
        ivec_store(to, _mm512_xor_si512(ivec_load(to), _mm512_set1_epi8(BYTES_PLUS)));
        return;
    }
    if (dtype_is_byte(type)) {
        const ivec w = dtype_table(type) ? looked_up(type, at, groups)
                       : groups == 2     ? ivec_load(p)
                                         : _mm512_maskz_loadu_epi64(0x0f, p);
        ivec_store(to, _mm512_xor_si512(w, _mm512_set1_epi8(BYTES_PLUS)));
        return;
    }
    // A byte is two columns, the low four bits first.
    const ivec w = _mm512_cvtepu8_epi16(groups == 2 ? _mm256_loadu_si256((const __m256i *)p)
                                                    : _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)p)));
    if (dtype_is_six_bit(type)) {
        const ivec nibbles = _mm512_ternarylogic_epi64(w, _mm512_slli_epi16(w, 4), _mm512_set1_epi8(15), OR_AND);
        ivec_store(to, six_bit_pair(type, nibbles, at, groups, six_plus(at.type)));
        return;
    }
#ifdef __AVX512VNNI__
    const ivec both =
        _mm512_ternarylogic_epi64(_mm512_set1_epi16(0xff), _mm512_slli_epi16(w, 4), _mm512_slli_epi16(w, 8), CHOOSE);
    ivec_store(to, _mm512_ternarylogic_epi64(both, _mm512_set1_epi8(-16), _mm512_set1_epi8(-128), AND_XOR));
#else
    const ivec both = _mm512_ternarylogic_epi64(w, _mm512_slli_epi16(w, 4), _mm512_set1_epi8(15), OR_AND);
    ivec_store(to, _mm512_xor_si512(both, _mm512_set1_epi8(8)));
#endif
}
