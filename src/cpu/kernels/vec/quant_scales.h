// The scales of a row's groups, as floats, for either vector width; included by vec/quant.h.
//
// Those of some types stand together for eight groups, with fp16 numbers in common (docs/format.md, "Quantised
// matrices"). Few bytes are read for many weights, so it is enough that nothing here goes byte by byte.
#pragma once
#include "cpu/kernels/vec/quant_planes.h"
#include "cpu/kernels/vec/vec.h"

// Of VEC groups: what the quants of each are multiplied by, those of its first 16 columns and of its last. `lift` is what an
// affine type then adds to each: its minimum, and its scale as often as its quants are smaller than the file's numbers.
struct group_scales {
    vec scale[2], lift[2];
};

// Eight bytes at p and, with 16 groups, eight `apart` bytes further: each as a number with sign.
VEC_INLINE vec signed_eights(const uint8_t *p, ptrdiff_t apart, int n);
// An fp16 number there for each eight groups; 0 where there are none.
VEC_INLINE vec eights_halves(const uint8_t *p, ptrdiff_t apart, int n);
// Of q4k and q5k: the scales' and the minima's integers.
VEC_INLINE void six_bit_scales(vec *scale, vec *minimum, const uint8_t *p, ptrdiff_t apart, int n);
// The four low bits of each of eight bytes, and the four upper ones.
VEC_INLINE void nibble_eights(vec *low, vec *high, const uint8_t *p, ptrdiff_t apart, int n);
// Four bits of each of eight groups, in 32 bits at p.
VEC_INLINE vec nibbles_of_eights(const uint8_t *p, ptrdiff_t apart, int n);
// Of q3k: six bits of each of eight groups' first halves, and of their second. A byte at p has the low four of both; behind
// the eight bytes come the upper two, 16 bits of first halves and 16 of second ones.
VEC_INLINE void six_bit_eights(vec *first, vec *second, const uint8_t *p, ptrdiff_t apart, int n);
// Eight groups' scales and zero points at p, of which there are `zeros`, and with 16 groups those `apart` bytes further.
VEC_INLINE void zero_scales(vec *scale, vec *zero, int zeros, const uint8_t *p, ptrdiff_t apart, int n);
// n bytes e without sign as 2^(e - 128), subnormal ones too, and zeros.
VEC_INLINE vec powers(const uint8_t *p, int n);
// n pairs of fp16, n <= VEC, and zeros.
VEC_INLINE void half_pairs(vec *first, vec *second, const uint8_t *p, int n);

// 2, 4 or 8 bytes at p. (Of bytes that were just stored apart a processor would wait for the whole.)
VEC_INLINE int64_t loaded(const uint8_t *p, int bytes)
{
    uint16_t two;
    uint32_t four;
    int64_t eight;
    if (bytes == 2)
        return memcpy(&two, p, 2), two;
    if (bytes == 4)
        return memcpy(&four, p, 4), four;
    return memcpy(&eight, p, 8), eight;
}

#ifdef __AVX512F__
VEC_INLINE __m128i both_eights(const uint8_t *p, ptrdiff_t apart, int n)
{
    const __m128i first = _mm_loadl_epi64((const __m128i *)p);
    return n > 8 ? _mm_unpacklo_epi64(first, _mm_loadl_epi64((const __m128i *)(p + apart))) : first;
}
VEC_INLINE vec signed_eights(const uint8_t *p, ptrdiff_t apart, int n)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(both_eights(p, apart, n)));
}
VEC_INLINE vec eights_halves(const uint8_t *p, ptrdiff_t apart, int n)
{
    uint16_t half[2] = {0, 0};
    memcpy(half, p, 2);
    if (n > 8)
        memcpy(half + 1, p + apart, 2);
    return _mm512_cvtph_ps(_mm256_set_m128i(_mm_set1_epi16((short)half[1]), _mm_set1_epi16((short)half[0])));
}
VEC_INLINE void six_bit_scales(vec *scale, vec *minimum, const uint8_t *p, ptrdiff_t apart, int n)
{
    int32_t more[2] = {0, 0};
    memcpy(more, p + 8, 4);
    if (n > 8)
        memcpy(more + 1, p + apart + 8, 4);
    const __m512i bytes = _mm512_cvtepu8_epi32(both_eights(p, apart, n));
    const __m512i words = _mm512_inserti64x4(_mm512_set1_epi32(more[0]), _mm256_set1_epi32(more[1]), 1);
    const __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i upper = _mm512_and_si512(_mm512_srlv_epi32(words, shifts), _mm512_set1_epi32(15));
    *scale = _mm512_cvtepi32_ps(_mm512_and_si512(bytes, _mm512_set1_epi32(63)));
    *minimum = _mm512_cvtepi32_ps(_mm512_or_si512(_mm512_srli_epi32(bytes, 6), _mm512_slli_epi32(upper, 2)));
}
VEC_INLINE void nibble_eights(vec *low, vec *high, const uint8_t *p, ptrdiff_t apart, int n)
{
    const __m512i bytes = _mm512_cvtepu8_epi32(both_eights(p, apart, n));
    *low = _mm512_cvtepi32_ps(_mm512_and_si512(bytes, _mm512_set1_epi32(15)));
    *high = _mm512_cvtepi32_ps(_mm512_srli_epi32(bytes, 4));
}
VEC_INLINE __m512i both_words(const uint8_t *p, ptrdiff_t apart, int n)
{
    return _mm512_inserti64x4(_mm512_set1_epi32((int)loaded(p, 4)), _mm256_set1_epi32(n > 8 ? (int)loaded(p + apart, 4) : 0),
                              1);
}
VEC_INLINE vec nibbles_of_eights(const uint8_t *p, ptrdiff_t apart, int n)
{
    const __m512i at = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srlv_epi32(both_words(p, apart, n), at), _mm512_set1_epi32(15)));
}
VEC_INLINE void six_bit_eights(vec *first, vec *second, const uint8_t *p, ptrdiff_t apart, int n)
{
    enum { AND_OR = 0xea }; // of bits a, b, c: (a & b) | c
    const __m512i bytes = _mm512_cvtepu8_epi32(both_eights(p, apart, n)), words = both_words(p + 8, apart, n);
    const __m512i to_first = _mm512_setr_epi32(4, 2, 0, 30, 28, 26, 24, 22, 4, 2, 0, 30, 28, 26, 24, 22);
    const __m512i to_second = _mm512_setr_epi32(20, 18, 16, 14, 12, 10, 8, 6, 20, 18, 16, 14, 12, 10, 8, 6);
    const __m512i low = _mm512_and_si512(bytes, _mm512_set1_epi32(15)), high = _mm512_srli_epi32(bytes, 4);
    const __m512i upper = _mm512_set1_epi32(0x30);
    *first = _mm512_cvtepi32_ps(_mm512_ternarylogic_epi32(_mm512_rolv_epi32(words, to_first), upper, low, AND_OR));
    *second = _mm512_cvtepi32_ps(_mm512_ternarylogic_epi32(_mm512_rolv_epi32(words, to_second), upper, high, AND_OR));
}
VEC_INLINE __m128i both_parts(const uint8_t *p, ptrdiff_t apart, int n, int bytes)
{
    return _mm_set_epi64x(n > 8 ? loaded(p + apart, bytes) : 0, loaded(p, bytes));
}
VEC_INLINE void zero_scales(vec *scale, vec *zero, int zeros, const uint8_t *p, ptrdiff_t apart, int n)
{
    __m256i halves = _mm256_setzero_si256();
    if (zeros == 8)
        halves = _mm256_set_m128i(n > 8 ? _mm_loadu_si128((const __m128i *)(p + apart)) : _mm_setzero_si128(),
                                  _mm_loadu_si128((const __m128i *)p));
    else // those of the second eight begin in the upper half
        halves = _mm256_permute4x64_epi64(_mm256_castsi128_si256(both_parts(p, apart, n, 2 * zeros)), 0x10);
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i eight = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8);
    const __m512i at = _mm512_add_epi32(eight, _mm512_srli_epi32(lane, 3 - __builtin_ctz((unsigned)zeros)));
    const __m512i bytes = _mm512_cvtepu8_epi32(both_parts(p + (ptrdiff_t)2 * zeros, apart, n, zeros));
    *scale = _mm512_permutexvar_ps(at, _mm512_cvtph_ps(halves));
    *zero = _mm512_permutexvar_ps(at, _mm512_cvtepi32_ps(bytes));
}
VEC_INLINE vec powers(const uint8_t *p, int n)
{
    const __m512i e = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), p));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __mmask16 small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    const __m512i all = _mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(1 << 21), e);
    return _mm512_maskz_mov_ps((__mmask16)((1u << n) - 1), _mm512_castsi512_ps(all));
}
VEC_INLINE void half_pairs(vec *first, vec *second, const uint8_t *p, int n)
{
    const __m512i pairs = _mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), p);
    *first = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs));
    *second = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16)));
}
#elif defined __AVX2__
VEC_INLINE vec signed_eights(const uint8_t *p, ptrdiff_t apart, int n)
{
    (void)apart, (void)n;
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
VEC_INLINE vec eights_halves(const uint8_t *p, ptrdiff_t apart, int n)
{
    (void)apart, (void)n;
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)half));
}
VEC_INLINE void six_bit_scales(vec *scale, vec *minimum, const uint8_t *p, ptrdiff_t apart, int n)
{
    (void)apart, (void)n;
    int32_t more;
    memcpy(&more, p + 8, sizeof more);
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    const __m256i shifted = _mm256_srlv_epi32(_mm256_set1_epi32(more), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    const __m256i upper = _mm256_and_si256(shifted, _mm256_set1_epi32(15));
    *scale = _mm256_cvtepi32_ps(_mm256_and_si256(bytes, _mm256_set1_epi32(63)));
    *minimum = _mm256_cvtepi32_ps(_mm256_or_si256(_mm256_srli_epi32(bytes, 6), _mm256_slli_epi32(upper, 2)));
}
VEC_INLINE void nibble_eights(vec *low, vec *high, const uint8_t *p, ptrdiff_t apart, int n)
{
    (void)apart, (void)n;
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    *low = _mm256_cvtepi32_ps(_mm256_and_si256(bytes, _mm256_set1_epi32(15)));
    *high = _mm256_cvtepi32_ps(_mm256_srli_epi32(bytes, 4));
}
VEC_INLINE vec nibbles_of_eights(const uint8_t *p, ptrdiff_t apart, int n)
{
    (void)apart, (void)n;
    const __m256i at = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28), words = _mm256_set1_epi32((int)loaded(p, 4));
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srlv_epi32(words, at), _mm256_set1_epi32(15)));
}
VEC_INLINE void six_bit_eights(vec *first, vec *second, const uint8_t *p, ptrdiff_t apart, int n)
{
    (void)apart, (void)n;
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)), upper = _mm256_set1_epi32(0x30);
    const int64_t word = loaded(p + 8, 4); // moved to where 12 more bits make room for the lowest pair
    const __m256i at = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const __m256i of_first = _mm256_srlv_epi32(_mm256_set1_epi32((int)(word << 4 & 0xffff0)), at);
    const __m256i of_second = _mm256_srlv_epi32(_mm256_set1_epi32((int)(word >> 12 & 0xffff0)), at);
    *first =
        _mm256_cvtepi32_ps(_mm256_or_si256(_mm256_and_si256(of_first, upper), _mm256_and_si256(bytes, _mm256_set1_epi32(15))));
    *second = _mm256_cvtepi32_ps(_mm256_or_si256(_mm256_and_si256(of_second, upper), _mm256_srli_epi32(bytes, 4)));
}
VEC_INLINE void zero_scales(vec *scale, vec *zero, int zeros, const uint8_t *p, ptrdiff_t apart, int n)
{
    (void)apart, (void)n;
    const __m128i half = zeros == 8 ? _mm_loadu_si128((const __m128i *)p) : _mm_cvtsi64_si128(loaded(p, 2 * zeros));
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                  at = _mm256_srli_epi32(lane, 3 - __builtin_ctz((unsigned)zeros));
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(loaded(p + (ptrdiff_t)2 * zeros, zeros)));
    *scale = _mm256_permutevar8x32_ps(_mm256_cvtph_ps(half), at);
    *zero = _mm256_permutevar8x32_ps(_mm256_cvtepi32_ps(bytes), at);
}
VEC_INLINE vec powers(const uint8_t *p, int n)
{
    int64_t part = 0;
    memcpy(&part, p, (size_t)n);
    const __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(part));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(1 << 21), e);
    const __m256i all = _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e));
    const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_castsi256_ps(_mm256_and_si256(all, there));
}
VEC_INLINE void half_pairs(vec *first, vec *second, const uint8_t *p, int n)
{
    const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i apart = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const __m256i pairs = _mm256_shuffle_epi8(_mm256_maskload_epi32((const int *)p, there), apart);
    const __m256i all = _mm256_permute4x64_epi64(pairs, _MM_SHUFFLE(3, 1, 2, 0));
    *first = _mm256_cvtph_ps(_mm256_castsi256_si128(all));
    *second = _mm256_cvtph_ps(_mm256_extracti128_si256(all, 1));
}
#else
VEC_INLINE vec words_to_floats(uint16x8_t x)
{
    return (vec){vcvtq_f32_u32(vmovl_u16(vget_low_u16(x))), vcvtq_f32_u32(vmovl_high_u16(x))};
}
VEC_INLINE vec signed_eights(const uint8_t *p, ptrdiff_t apart, int n)
{
    (void)apart, (void)n;
    const int16x8_t x = vmovl_s8(vld1_s8((const int8_t *)p));
    return (vec){vcvtq_f32_s32(vmovl_s16(vget_low_s16(x))), vcvtq_f32_s32(vmovl_high_s16(x))};
}
VEC_INLINE vec eights_halves(const uint8_t *p, ptrdiff_t apart, int n)
{
    (void)apart, (void)n;
    uint16_t half[VEC];
    memcpy(half, p, sizeof *half);
    for (int i = 1; i < VEC; i++)
        half[i] = half[0];
    return vec_load_as(DTYPE_FP16, half, 0);
}
VEC_INLINE void six_bit_scales(vec *scale, vec *minimum, const uint8_t *p, ptrdiff_t apart, int n)
{
    (void)apart, (void)n;
    uint32_t more;
    memcpy(&more, p + 8, sizeof more);
    const uint8x8_t bytes = vld1_u8(p), twice = vreinterpret_u8_u32(vdup_n_u32(more));
    const uint8x8_t lower = vand_u8(twice, vdup_n_u8(15)), upper = vshr_n_u8(twice, 4);
    const uint8x8_t nibbles = vzip1_u8(lower, upper);
    *scale = words_to_floats(vmovl_u8(vand_u8(bytes, vdup_n_u8(63))));
    *minimum = words_to_floats(vmovl_u8(vorr_u8(vshr_n_u8(bytes, 6), vshl_n_u8(nibbles, 2))));
}
VEC_INLINE void nibble_eights(vec *low, vec *high, const uint8_t *p, ptrdiff_t apart, int n)
{
    (void)apart, (void)n;
    const uint8x8_t bytes = vld1_u8(p);
    *low = words_to_floats(vmovl_u8(vand_u8(bytes, vdup_n_u8(15))));
    *high = words_to_floats(vmovl_u8(vshr_n_u8(bytes, 4)));
}
// `bits` bits of each of eight groups, from the lowest.
VEC_INLINE vec bits_of_word(int bits, uint32_t of)
{
    const int32x4_t first = {0, -1, -2, -3}, step = vdupq_n_s32(bits);
    const uint32x4_t word = vdupq_n_u32(of), mask = vdupq_n_u32((1u << bits) - 1);
    const int32x4_t right = vmulq_s32(first, step), further = vsubq_s32(right, vshlq_n_s32(step, 2));
    return (vec){vcvtq_f32_u32(vandq_u32(vshlq_u32(word, right), mask)),
                 vcvtq_f32_u32(vandq_u32(vshlq_u32(word, further), mask))};
}
VEC_INLINE vec nibbles_of_eights(const uint8_t *p, ptrdiff_t apart, int n)
{
    (void)apart, (void)n;
    return bits_of_word(4, (uint32_t)loaded(p, 4));
}
VEC_INLINE void six_bit_eights(vec *first, vec *second, const uint8_t *p, ptrdiff_t apart, int n)
{
    nibble_eights(first, second, p, apart, n);
    *first = vec_fma(bits_of_word(2, (uint32_t)loaded(p + 8, 2)), vec_set(16), *first);
    *second = vec_fma(bits_of_word(2, (uint32_t)loaded(p + 10, 2)), vec_set(16), *second);
}
VEC_INLINE void zero_scales(vec *scale, vec *zero, int zeros, const uint8_t *p, ptrdiff_t apart, int n)
{
    (void)apart, (void)n;
    uint16_t half[VEC];
    uint8_t byte[VEC];
    for (int i = 0; i < VEC; i++) {
        const ptrdiff_t at = (ptrdiff_t)i * zeros / VEC;
        memcpy(half + i, p + 2 * at, sizeof *half);
        byte[i] = p[2 * zeros + at];
    }
    *scale = vec_load_as(DTYPE_FP16, half, 0);
    *zero = words_to_floats(vmovl_u8(vld1_u8(byte)));
}
VEC_INLINE float32x4_t power_of(uint32x4_t e)
{
    const uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    const uint32x4_t small = vshlq_u32(vdupq_n_u32(1 << 21), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), small, normal));
}
VEC_INLINE vec powers(const uint8_t *p, int n)
{
    uint8_t part[VEC] = {0};
    memcpy(part, p, (size_t)n);
    const uint16x8_t e = vmovl_u8(vld1_u8(part));
    float all[VEC], there[VEC] = {0};
    vec_store(all, (vec){power_of(vmovl_u16(vget_low_u16(e))), power_of(vmovl_high_u16(e))});
    memcpy(there, all, (size_t)n * sizeof *all);
    return vec_load(there);
}
VEC_INLINE void half_pairs(vec *first, vec *second, const uint8_t *p, int n)
{
    uint16_t pairs[2 * VEC] = {0}, each[2][VEC];
    memcpy(pairs, p, (size_t)n * 2 * sizeof *pairs);
    const uint16x8x2_t apart = vld2q_u16(pairs);
    vst1q_u16(each[0], apart.val[0]);
    vst1q_u16(each[1], apart.val[1]);
    *first = vec_load_as(DTYPE_FP16, each[0], 0);
    *second = vec_load_as(DTYPE_FP16, each[1], 0);
}
#endif

// Those of types whose groups have two.
VEC_INLINE struct group_scales scales_of_halves(enum dtype type, const uint8_t *scales, int n)
{
    const ptrdiff_t apart = (ptrdiff_t)dtype_eight_scales[type];
    const vec d = eights_halves(scales, apart, n);
    vec scale[2], minimum[2] = {vec_zero(), vec_zero()};
    if (type == DTYPE_Q6K) {
        for (int half = 0; half < 2; half++)
            scale[half] = signed_eights(scales + 2 + half * QUANT_EIGHT, apart, n);
    } else if (type == DTYPE_Q3K) {
        six_bit_eights(&scale[0], &scale[1], scales + 2, apart, n);
        for (int half = 0; half < 2; half++)
            scale[half] = vec_sub(scale[half], vec_set(32));
    } else {
        const vec m = vec_sub(vec_zero(), eights_halves(scales + 2, apart, n));
        for (int half = 0; half < 2; half++) {
            nibble_eights(&scale[half], &minimum[half], scales + 4 + half * QUANT_EIGHT, apart, n);
            minimum[half] = vec_mul(m, minimum[half]);
        }
    }
    return (struct group_scales){{vec_mul(d, scale[0]), vec_mul(d, scale[1])}, {minimum[0], minimum[1]}};
}

// n groups' scales, n <= VEC, and zeros. Those that stand together come in whole eights.
VEC_INLINE struct group_scales scales_of(enum dtype type, const uint8_t *scales, int n)
{
    const ptrdiff_t apart = (ptrdiff_t)dtype_eight_scales[type];
    const vec centre = vec_set((float)dtype_centre(type));
    vec scale, lift = vec_zero(), minimum;
    if (dtype_has_halves(type))
        return scales_of_halves(type, scales, n);
    if (dtype_zeros(type)) {
        zero_scales(&scale, &minimum, dtype_zeros(type), scales, apart, n);
        lift = vec_mul(vec_sub(centre, minimum), scale);
    } else if (type == DTYPE_IQ4XS) {
        scale = vec_mul(eights_halves(scales, apart, n), signed_eights(scales + 2, apart, n));
    } else if (dtype_in_eights(type)) {
        six_bit_scales(&scale, &minimum, scales + 4, apart, n);
        scale = vec_mul(eights_halves(scales, apart, n), scale);
        lift = vec_sub(vec_mul(centre, scale), vec_mul(eights_halves(scales + 2, apart, n), minimum));
    } else if (dtype_is_affine(type)) {
        half_pairs(&scale, &minimum, scales, n);
        lift = vec_fma(centre, scale, minimum);
    } else if (type == DTYPE_MXFP4) {
        scale = powers(scales, n);
    } else if (dtype_row_scale[type]) {
        scale = vec_load_bytes((const int8_t *)scales, n);
    } else {
        scale = n == VEC ? vec_load_as(DTYPE_FP16, scales, 0) : vec_load_part_as(DTYPE_FP16, scales, 0, n);
    }
    return (struct group_scales){{scale, scale}, {lift, lift}};
}

// Of the types that have no kernels of their own, once for all: in each of the few products it would be much text. (Not cold:
// gcc would compile it for size, and half of a token's time was in it.)
static __attribute__((noinline)) void scales_of_others(struct group_scales *to, enum dtype type, const uint8_t *scales, int n)
{
    switch (type) {
#define CASE(TYPE)                                                                                                             \
    case DTYPE_##TYPE:                                                                                                         \
        *to = scales_of(DTYPE_##TYPE, scales, n);                                                                              \
        break;
        CASE(Q4A)
        CASE(Q5A)
        CASE(Q4Z32)
        CASE(Q4Z64)
        CASE(Q4Z128)
#undef CASE
    default:
        break;
    }
}

// Four bits of each group's signs.
VEC_INLINE vec scales_beside_signs(const uint8_t *high, int n)
{
    uint32_t words[VEC] = {0};
    float all[VEC];
    memcpy(words, high, (size_t)n * sizeof *words);
    for (int i = 0; i < VEC; i++) // the product brings bits 0, 8, 16 and 24 together
        all[i] = (float)(int)((words[i] >> 7 & 0x01010101) * 0x01020408 >> 24 & 15);
    return vec_load(all);
}

// Of grids: (2 s + 1) d, with s of four bits.
static __attribute__((noinline)) void scales_of_grid(struct group_scales *to, struct quants_at at, const uint8_t *scales, int n)
{
    const ptrdiff_t apart = (ptrdiff_t)dtype_eight_scales[at.type];
    const float unit = at.type == DTYPE_IQ3S ? 1 : at.type == DTYPE_IQ3XXS ? 0.25f : 0.125f;
    const vec d = vec_mul(eights_halves(scales, apart, n), vec_set(unit)), twice = vec_add(d, d);
    vec s[2];
    if (at.type == DTYPE_IQ2S || at.type == DTYPE_IQ2XS)
        nibble_eights(&s[0], &s[1], scales + 2, apart, n);
    else
        s[0] = s[1] = at.type == DTYPE_IQ3S ? nibbles_of_eights(scales + 2, apart, n) : scales_beside_signs(at.high, n);
    *to = (struct group_scales){{vec_fma(s[0], twice, d), vec_fma(s[1], twice, d)}, {vec_zero(), vec_zero()}};
}

// The same of a type that `kernels` multiplies, whose groups are at `at`.
VEC_INLINE struct group_scales load_scales(enum dtype kernels, struct quants_at at, const uint8_t *scales, int n)
{
    struct group_scales found;
    if (dtype_is_grid(kernels)) {
        scales_of_grid(&found, at, scales, n);
        return found;
    }
    if (!dtype_is_shared(kernels) || __builtin_expect(at.type == kernels, 1))
        return scales_of(kernels, scales, n);
    if (kernels == DTYPE_IQ4NL)
        return scales_of(DTYPE_IQ4XS, scales, n);
    scales_of_others(&found, at.type, scales, n);
    return found;
}
