// What recurrent layers do between their products; included by table.c.
//
// The state's columns do not depend on each other. A block of them stays in L1 while all tokens of the call go over it: 16 KB
// of a head of 128. Each token reads it twice, a scan's once, and writes it once.
#pragma once
#include "cpu/kernels/vec/elementwise.h"

VEC_INLINE void convolve(float *y, const float *const *rows, const float *taps, const float *bias, ptrdiff_t ldt, int n_taps,
                         int n)
{
    for (int i = 0; i < n; i += VEC) {
        const int part = n - i < VEC ? n - i : VEC;
        vec sum = bias ? vec_load_part(bias + i, part) : vec_zero();
        for (int j = 0; j < n_taps; j++)
            sum = vec_fma(vec_load_part(taps + j * ldt + i, part), vec_load_part(rows[j] + i, part), sum);
        vec_store_part(y + i, silu(sum), part);
    }
}

VEC_INLINE void convolve_gated(float *y, const float *const *rows, const float *taps, ptrdiff_t ldt, int n_taps,
                               const float *bias, const float *gates, int n)
{
    for (int i = 0; i < n; i += VEC) {
        const int part = n - i < VEC ? n - i : VEC;
        vec sum = bias ? vec_load_part(bias + i, part) : vec_zero();
        for (int j = 0; j < n_taps; j++)
            sum = vec_fma(vec_load_part(taps + j * ldt + i, part), vec_load_part(rows[j] + i, part), sum);
        vec_store_part(y + i, vec_mul(vec_load_part(gates + i, part), sum), part);
    }
}

// Chains of sums: as many as hide the latency of a multiply-add.
enum { DELTA_VECS = DELTA_COLS / VEC, DELTA_CHAINS = 8 / DELTA_VECS };

// Vector j of a row of a block of `cols` columns.
VEC_INLINE vec delta_load(const float *row, int j, int cols, _Bool whole)
{
    const int left = cols - j * VEC;
    return whole ? vec_load(row + j * VEC) : vec_load_part(row + j * VEC, left < 0 ? 0 : left < VEC ? left : VEC);
}

VEC_INLINE void delta_store(float *row, int j, int cols, vec x, _Bool whole)
{
    const int left = cols - j * VEC;
    if (whole)
        vec_store(row + j * VEC, x);
    else if (left > 0)
        vec_store_part(row + j * VEC, x, left < VEC ? left : VEC);
}

VEC_INLINE void delta_zero(vec sums[DELTA_CHAINS][DELTA_VECS])
{
#pragma GCC unroll 8
    for (int chain = 0; chain < DELTA_CHAINS; chain++)
#pragma GCC unroll 8
        for (int j = 0; j < DELTA_VECS; j++)
            sums[chain][j] = vec_zero();
}

// Vector j of the chains' sums together.
VEC_INLINE vec delta_sum(vec sums[DELTA_CHAINS][DELTA_VECS], int j)
{
    vec sum = sums[0][j];
#pragma GCC unroll 8
    for (int chain = 1; chain < DELTA_CHAINS; chain++)
        sum = vec_add(sum, sums[chain][j]);
    return sum;
}

// sums += Σ_i decays[i] x[i] S[i], for rows [first, first + n) of S, n <= DELTA_CHAINS. decays NULL: they are left out.
VEC_INLINE void delta_recall(vec sums[DELTA_CHAINS][DELTA_VECS], const float *x, const float *decays, const float *s,
                             ptrdiff_t ld, int n, int cols, _Bool whole)
{
#pragma GCC unroll 8
    for (int chain = 0; chain < n; chain++) {
        const vec factor = vec_set(decays ? decays[chain] * x[chain] : x[chain]);
#pragma GCC unroll 8
        for (int j = 0; j < DELTA_VECS; j++)
            sums[chain][j] = vec_fma(factor, delta_load(s + chain * ld, j, cols, whole), sums[chain][j]);
    }
}

// S' = decay S + k ⊗ u, and sums += Σ_i q[i] S'[i], likewise. decays: of each row; NULL: all have `decay`.
VEC_INLINE void delta_write(vec sums[DELTA_CHAINS][DELTA_VECS], float *after, const float *before, ptrdiff_t ld, const float *q,
                            const float *k, vec decay, const float *decays, const vec u[DELTA_VECS], int n, int cols,
                            _Bool whole)
{
#pragma GCC unroll 8
    for (int chain = 0; chain < n; chain++) {
        const vec ki = vec_set(k[chain]), qi = vec_set(q[chain]), by = decays ? vec_set(decays[chain]) : decay;
#pragma GCC unroll 8
        for (int j = 0; j < DELTA_VECS; j++) {
            const vec kept = vec_fma(ki, u[j], vec_mul(by, delta_load(before + chain * ld, j, cols, whole)));
            delta_store(after + chain * ld, j, cols, kept, whole);
            sums[chain][j] = vec_fma(qi, kept, sums[chain][j]);
        }
    }
}

// One token, and `cols` <= DELTA_COLS columns: of S, v and y from their first on. With `channels` each row has a decay, else
// the first is all rows'.
VEC_INLINE void delta_token(float *y, float *after, const float *before, ptrdiff_t ld, const float *q, const float *k,
                            const float *v, const float *decays, float beta, int key_dim, int cols, _Bool whole, _Bool scan,
                            _Bool channels)
{
    vec sums[DELTA_CHAINS][DELTA_VECS], u[DELTA_VECS];
    const vec decay = vec_set(decays[0]), beta_all = vec_set(beta);
    int i = 0;
    delta_zero(sums);
    for (; !scan && i + DELTA_CHAINS <= key_dim; i += DELTA_CHAINS)
        delta_recall(sums, k + i, channels ? decays + i : NULL, before + i * ld, ld, DELTA_CHAINS, cols, whole);
    for (; !scan && i < key_dim; i++)
        delta_recall(sums, k + i, channels ? decays + i : NULL, before + i * ld, ld, 1, cols, whole);
#pragma GCC unroll 8
    for (int j = 0; j < DELTA_VECS; j++) { // a scan has recalled nothing: the sums are 0
        const vec recalled = delta_sum(sums, j);
        u[j] = vec_mul(beta_all, vec_sub(delta_load(v, j, cols, whole), channels ? recalled : vec_mul(decay, recalled)));
    }
    delta_zero(sums);
    for (i = 0; i + DELTA_CHAINS <= key_dim; i += DELTA_CHAINS)
        delta_write(sums, after + i * ld, before + i * ld, ld, q + i, k + i, decay, channels ? decays + i : NULL, u,
                    DELTA_CHAINS, cols, whole);
    for (; i < key_dim; i++)
        delta_write(sums, after + i * ld, before + i * ld, ld, q + i, k + i, decay, channels ? decays + i : NULL, u, 1, cols,
                    whole);
#pragma GCC unroll 8
    for (int j = 0; j < DELTA_VECS && y; j++)
        delta_store(y, j, cols, delta_sum(sums, j), whole);
}

// All tokens, `channels` being known where this is compiled.
VEC_INLINE void delta_tokens(const struct delta_args *a, _Bool channels)
{
    for (int c = a->first_col; c < a->last_col; c += DELTA_COLS)
        for (int t = 0; t < a->n; t++) {
            const int cols = a->last_col - c;
            const ptrdiff_t block = (ptrdiff_t)c * a->key_dim;
            const float *before = (t == 0 ? a->before : a->after) + block, *x = a->v + t * a->ldx + c;
            const float *q = a->q + t * a->ldx, *k = a->k + t * a->ldx, *decays = a->decay + t * a->ldd;
            const float beta = a->beta[t * a->ldg];
            float *y = a->y ? a->y + t * a->ldy + c : NULL, *after = a->after + block;
            if (cols >= DELTA_COLS)
                delta_token(y, after, before, DELTA_COLS, q, k, x, decays, beta, a->key_dim, DELTA_COLS, true, a->scan,
                            channels);
            else
                delta_token(y, after, before, cols, q, k, x, decays, beta, a->key_dim, cols, false, a->scan, channels);
        }
}

static void delta_rule(const struct delta_args *a)
{
    if (a->channels)
        delta_tokens(a, true);
    else
        delta_tokens(a, false);
}
