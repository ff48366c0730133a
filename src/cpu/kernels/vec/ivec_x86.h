// What AVX2 and AVX-512 write alike. Included by vec/ivec_avx2.h and vec/ivec_avx512.h, which define the names of their
// intrinsics, and VNNI(operation) where they have it: sum += a b, by pairs or fours.
#pragma once

VEC_INLINE ivec ivec_zero(void)
{
    return X86_BITS(setzero)();
}
VEC_INLINE ivec ivec_load(const void *p)
{
    return X86_BITS(loadu)(p);
}
VEC_INLINE void ivec_store(void *p, ivec x)
{
    X86_BITS(storeu)(p, x);
}
VEC_INLINE ivec ivec_set(int32_t x)
{
    return X86(set1_epi32)(x);
}
VEC_INLINE ivec ivec_set8(int x)
{
    return X86(set1_epi8)((char)x);
}
VEC_INLINE ivec ivec_add(ivec a, ivec b)
{
    return X86(add_epi32)(a, b);
}
VEC_INLINE ivec ivec_sub(ivec a, ivec b)
{
    return X86(sub_epi32)(a, b);
}
VEC_INLINE ivec ivec_xor(ivec a, ivec b)
{
    return X86_BITS(xor)(a, b);
}
// Within four bytes, to the left; to the right, with the sign, where bits are less than 0.
VEC_INLINE ivec ivec_shift(ivec a, int bits)
{
    return bits >= 0 ? X86(slli_epi32)(a, bits) : X86(srai_epi32)(a, -bits);
}
VEC_INLINE vec ivec_to_float(ivec x)
{
    return X86(cvtepi32_ps)(x);
}
VEC_INLINE ivec ivec_round(vec x)
{
    return X86(cvtps_epi32)(x);
}

// a + b in a's register. Not by the intrinsic, nor is VNNI: gcc 12 copies every sum before or after it, which the tiles have no
// registers for.
VEC_INLINE ivec ivec_accumulate(ivec a, ivec b)
{
#ifdef __AVX512F__
    return ivec_add(a, b);
#else
    __asm__("vpaddd %1, %0, %0" : "+x"(a) : "x"(b));
    return a;
#endif
}

// sum[i] += a[2i] b[2i] + a[2i + 1] b[2i + 1], of 16-bit elements.
VEC_INLINE ivec ivec_dot(ivec sum, ivec a, ivec b)
{
#ifdef VNNI
    VNNI("vpdpwssd");
    return sum;
#else
    return ivec_accumulate(sum, X86(madd_epi16)(a, b));
#endif
}

// The same without a sum before.
VEC_INLINE ivec ivec_products(ivec a, ivec b)
{
    return X86(madd_epi16)(a, b);
}

// sum[i] += four products of 8-bit elements, a's without sign.
VEC_INLINE ivec ivec_dot8(ivec sum, ivec a, ivec b)
{
#ifdef VNNI
    VNNI("vpdpbusd");
    return sum;
#else
    return ivec_accumulate(sum, X86(madd_epi16)(X86(maddubs_epi16)(a, b), X86(set1_epi16)(1)));
#endif
}

// sum[i] += four products of a's and x's 8-bit elements, and of b's and y's, a's and b's without sign and below 64.
VEC_INLINE ivec ivec_dot8_two(ivec sum, ivec a, ivec x, ivec b, ivec y)
{
#ifdef VNNI
    return ivec_dot8(ivec_dot8(sum, a, x), b, y);
#else
    const ivec both = X86(add_epi16)(X86(maddubs_epi16)(a, x), X86(maddubs_epi16)(b, y));
    return ivec_accumulate(sum, X86(madd_epi16)(both, X86(set1_epi16)(1)));
#endif
}

// The larger of each pair, compared as bits, of numbers without sign.
VEC_INLINE ivec ivec_larger(ivec a, vec b)
{
    return X86(max_epi32)(a, X86_BITS(castps)(b));
}
