// e^x and the product of register tiles, for either vector width.
#pragma once
#include "cpu/kernels/vec/vec.h"

// e^r for |r| <= ln 2 / 2: 1 + r (1 + r p(r)), p of degree 3 through the Chebyshev nodes. By Horner's rule, since it takes the
// fewest instructions: where this is called, there are always several vectors under way.
VEC_INLINE vec exp_of_rest(vec r)
{
    vec p = vec_fma(r, vec_set(0x1.11d9aep-7f), vec_set(0x1.56b48cp-5f));
    p = vec_fma(r, p, vec_set(0x1.555526p-3f));
    p = vec_fma(r, p, vec_set(0x1.ffff56p-2f));
    p = vec_fma(r, p, vec_set(1.0f));
    return vec_fma(r, p, vec_set(1.0f));
}

// e^x with a relative error below 1e-6 for x in [-64, 88.3]; less gives 0. Beside the 1 of the likeliest key a weight of 1e-28
// is nothing, but its products with values would be subnormal: some processors take a hundred cycles for these. NaN stays NaN.
// Of greater x the result is anything. x = n ln 2 + r.
VEC_INLINE vec vec_exp(vec x)
{
    const vec n = vec_round(vec_mul(x, vec_set(0x1.715476p+0f)));
    const vec r = vec_fma(n, vec_set(-0x1.62e430p-1f), x);
    return vec_scale2_from(vec_set(-64.0f), x, exp_of_rest(r), n);
}

// x (n) = cap tanh(x / cap), whole vectors: x may be written up to the next multiple of VEC. tanh(y) = 1 - 2 / (1 + e^2y).
VEC_INLINE void softcap_vecs(float *x, float cap, int n)
{
    const vec one = vec_set(1.0f), twice = vec_set(2.0f / cap), most = vec_set(88.3f);
    for (int i = 0; i < n; i += VEC) {
        const vec power = vec_min(most, vec_mul(twice, vec_load(x + i))); // in this order NaN passes
        const vec rest = vec_div(vec_set(2.0f), vec_add(one, vec_exp(power)));
        vec_store(x + i, vec_mul(vec_set(cap), vec_sub(one, rest)));
    }
}

#ifdef __AVX512F__
// e^x for x of at most about 0, as vec_exp(), but e^-64 for x below -64. It takes fewer instructions: the power of two comes
// from the bits of a sum, and is added to those of a float. NaN stays NaN.
VEC_INLINE vec exp_below(vec x)
{
    const vec base = vec_set(0x1.8p23f), held = vec_max(vec_set(-64), x);
    const vec n = vec_fma(held, vec_set(0x1.715476p+0f), base);
    const vec r = vec_fma(vec_sub(n, base), vec_set(-0x1.62e430p-1f), held);
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(exp_of_rest(r)), _mm512_slli_epi32(_mm512_castps_si512(n), 23)));
}
#endif

// c[r][j] += Σ_k a[r, k] b[j][k], the inner loop of every large product here. a: (TILE_ROWS, lda); b: n_vecs panels, `panel`
// floats apart, each (depth, VEC). n_vecs and lda are constants where this is inlined, and c lives in registers.
VEC_INLINE void tile_multiply(vec c[TILE_ROWS][TILE_VECS], int n_vecs, const float *a, ptrdiff_t lda, const float *b,
                              ptrdiff_t panel, int depth)
{
    for (ptrdiff_t k = 0; k < depth; k++) {
        vec column[TILE_VECS];
#pragma GCC unroll 8
        for (int j = 0; j < n_vecs; j++)
            column[j] = vec_load(b + j * panel + k * VEC);
#pragma GCC unroll 8
        for (int r = 0; r < TILE_ROWS; r++) {
            const vec x = vec_set(a[r * lda + k]);
#pragma GCC unroll 8
            for (int j = 0; j < n_vecs; j++)
                c[r][j] = vec_fma(x, column[j], c[r][j]);
        }
    }
}

// to (rows, ldto) = or += a b as above. Only `rows` <= TILE_ROWS rows and `cols` <= n_vecs * VEC columns of `to` are touched;
// all TILE_ROWS rows of a are read.
VEC_INLINE void tile_store(int n_vecs, float *to, ptrdiff_t ldto, int rows, int cols, _Bool add, const float *a, ptrdiff_t lda,
                           const float *b, ptrdiff_t panel, int depth)
{
    vec c[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 8
        for (int j = 0; j < n_vecs; j++)
            c[r][j] = vec_zero();
    tile_multiply(c, n_vecs, a, lda, b, panel, depth);
    const int tail = cols - (n_vecs - 1) * VEC; // live columns in the last vector
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++) {
        if (r >= rows)
            break;
        float *row = to + r * ldto;
#pragma GCC unroll 8
        for (int j = 0; j < n_vecs; j++) {
            float *p = row + j * VEC;
            const int n = j + 1 < n_vecs ? VEC : tail;
            if (n == VEC)
                vec_store(p, add ? vec_add(c[r][j], vec_load(p)) : c[r][j]);
            else
                vec_store_part(p, add ? vec_add(c[r][j], vec_load_part(p, n)) : c[r][j], n);
        }
    }
}

// As tile_store(), for n_vecs in 1 … TILE_VECS that is known only at run time.
VEC_INLINE void tile(int n_vecs, float *to, ptrdiff_t ldto, int rows, int cols, _Bool add, const float *a, ptrdiff_t lda,
                     const float *b, ptrdiff_t panel, int depth)
{
    if (n_vecs == 3)
        tile_store(3, to, ldto, rows, cols, add, a, lda, b, panel, depth);
    else if (n_vecs == 2)
        tile_store(2, to, ldto, rows, cols, add, a, lda, b, panel, depth);
    else
        tile_store(1, to, ldto, rows, cols, add, a, lda, b, panel, depth);
}
