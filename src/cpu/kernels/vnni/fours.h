// Lines of four components, interleaved for dot products of bytes with AVX-512: included by vbmi/codes.h and vnni/sparq.c.
#pragma once
#include "cpu/kernels/vec/vec.h"

// x: 64 slots' bytes of each of four components. Afterwards lane l (128 bits) of x[i] has the four bytes of each of slots 16 l
// + 4 i … 16 l + 4 i + 3.
VEC_INLINE void interleave_fours(__m512i x[4])
{
    const __m512i a = _mm512_unpacklo_epi8(x[0], x[1]), b = _mm512_unpackhi_epi8(x[0], x[1]);
    const __m512i c = _mm512_unpacklo_epi8(x[2], x[3]), d = _mm512_unpackhi_epi8(x[2], x[3]);
    x[0] = _mm512_unpacklo_epi16(a, c);
    x[1] = _mm512_unpackhi_epi16(a, c);
    x[2] = _mm512_unpacklo_epi16(b, d);
    x[3] = _mm512_unpackhi_epi16(b, d);
}

// A query's bytes for four components, for all slots.
VEC_INLINE __m512i repeat_four(const int8_t *bytes)
{
    int32_t four;
    memcpy(&four, bytes, sizeof four);
    return _mm512_set1_epi32(four);
}
