// What the quantised kernels do alike with AVX2 and AVX-512. Included by vec/quant_avx2.h and vec/quant_avx512.h.
#pragma once

// The 128-bit parts of four vectors transposed: piece[i] has in each the i-th elements of w[0], w[1], w[2] and w[3].
VEC_INLINE void transpose_within(ivec piece[4], const ivec w[4])
{
    const ivec a = X86(unpacklo_epi32)(w[0], w[1]), b = X86(unpackhi_epi32)(w[0], w[1]);
    const ivec c = X86(unpacklo_epi32)(w[2], w[3]), d = X86(unpackhi_epi32)(w[2], w[3]);
    piece[0] = X86(unpacklo_epi64)(a, c);
    piece[1] = X86(unpackhi_epi64)(a, c);
    piece[2] = X86(unpacklo_epi64)(b, d);
    piece[3] = X86(unpackhi_epi64)(b, d);
}

// ------------------------------------------------------------------------------------------ tokens as bytes

// A group's products in each lane: c = bytes_start(start); then c = ivec_dot8(…) for each quad of columns; bytes_scaled(…)
// is what they come to. `start`: BYTES_BASE_BITS - 128 Σ x (VEC). Without VNNI vec/quant_pairs.h has them otherwise.
#ifdef VNNI
#define BYTES_BASE 0x1.8p23f
enum { BYTES_BASE_BITS = 0x4b400000, BYTES_PLUS = -128, SIX_PLUS = BYTES_PLUS, SIX_APART = 0 };
#else
#define BYTES_IN_PAIRS
#define BYTES_BASE 0.0f
enum { BYTES_BASE_BITS = 0, BYTES_PLUS = 0, SIX_PLUS = 32, SIX_APART = 1 };
#endif

// What integers of six bits have added. Without VNNI those of affine types are the file's own numbers.
VEC_INLINE int six_plus(enum dtype type)
{
    return SIX_APART && dtype_is_affine(type) ? dtype_centre(type) : SIX_PLUS;
}

// Without the mantissas' last two bits.
VEC_INLINE vec vec_fours(vec x)
{
    return ivec_as_floats(X86_BITS(andnot)(ivec_set(3), X86_BITS(castps)(x)));
}

#ifdef VNNI
VEC_INLINE ivec bytes_start(const void *start)
{
    return ivec_load(start);
}
// The token's scale times the sum; offset: -BYTES_BASE * scale (VEC).
VEC_INLINE vec bytes_scaled(ivec c, vec scale, const float *offset)
{
    return vec_fma(ivec_as_floats(c), scale, vec_load(offset));
}
#endif

VEC_INLINE float bytes_unit(enum dtype type)
{
#ifdef VNNI
    return dtype_quants[type] == DTYPE_Q4 ? 1.0f / 16 : 1;
#else
    (void)type;
    return 1;
#endif
}
