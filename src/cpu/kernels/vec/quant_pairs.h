// Tiles of vec/quant_int8.h on x86 without VNNI; included by it. An instruction multiplies pairs of bytes and sums each pair in
// 16 bits. Adding these up there costs one instruction where 32 bits take two: as many are added as are certain to fit.
//
// Quants have no sign, since something is added to them; q8's and grids', which need all bits, give their sign to the tokens.
// Of q4k, q5k, q6k and q3k scales are whole numbers of a unit that eight groups have in common. The sums in 16 bits are
// multiplied by these on their way to 32, for nothing, and the unit waits until the block's end.
//
// Rows come one after the other, and tokens from L1 for each: so a row's sums need two registers, and all others keep what is
// added up over the block.
#pragma once
#include "cpu/kernels/vec/quant.h"

// What is added to quants, by which sums are greater.
VEC_INLINE int pairs_plus(enum dtype type)
{
    if (dtype_is_byte(type) || dtype_is_affine(type)) // of these, lifts are less by that
        return 0;
    return dtype_quants[type] == DTYPE_Q4 ? 8 : SIX_PLUS;
}

// Products of quads of columns that fit in 16 bits together: quants are below 16, 32 (of affine types) or 64, tokens' integers
// at most 127, and two products at most 2 * 128 * 127.
VEC_INLINE int pairs_together(enum dtype type)
{
    return dtype_quants[type] == DTYPE_Q4 ? 8 : dtype_is_affine(type) ? 4 : dtype_is_byte(type) ? 1 : 2;
}

VEC_INLINE ivec four_bytes(const void *p)
{
    int32_t quad;
    memcpy(&quad, p, sizeof quad);
    return ivec_set(quad);
}

// Of `quads` quads of columns, at most pairs_together(), of one row and each panel: sums of products in 16 bits. panel: of the
// first one's, at these columns.
VEC_INLINE void pairs_sum(enum dtype type, int n_vecs, ivec sums[QUANT_TILE_VECS], const uint8_t *w, int quads,
                          const char *panel, ptrdiff_t panel_size)
{
#pragma GCC unroll 8
    for (int i = 0; i < quads; i++) {
        const ivec four = four_bytes(w + 4 * i), weights = dtype_is_byte(type) ? X86(abs_epi8)(four) : four;
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++) {
            const ivec x = ivec_load(panel + j * panel_size + 4 * VEC * i),
                       products = X86(maddubs_epi16)(weights, dtype_is_byte(type) ? ivec_signed_by(x, four) : x);
            sums[j] = i ? X86(add_epi16)(sums[j], products) : products;
        }
    }
}

// -128 Σ q of a group, or of one of its halves, times the token's scale.
VEC_INLINE vec pairs_offset(enum dtype type, const char *record, int half)
{
    if (!dtype_has_halves(type))
        return vec_load((const float *)(record + RECORD_OFFSETS));
    const ivec both = ivec_load(record + RECORD_SECOND), sum = ivec_shift(half ? both : ivec_shift(both, 16), -16);
    return vec_mul(vec_mul(ivec_to_float(sum), vec_set(-128)), vec_load((const float *)(record + RECORD_SCALES)));
}

// f += the products of a group, or of half of one, with its scale; and with its minimum.
VEC_INLINE void pairs_group(enum dtype type, int n_rows, int n_vecs, vec f[QUANT_TALL_ROWS][QUANT_TILE_VECS],
                            const struct many_tile *a, int g, int half)
{
    const int quads = dtype_has_halves(type) ? QUANT_GROUP / 8 : QUANT_GROUP / 4;
    const int together = pairs_together(type) < quads ? pairs_together(type) : quads;
    const char *record = a->panel + (ptrdiff_t)g * RECORD, *x = record + half * quads * 4 * VEC;
    vec offset[QUANT_TILE_VECS];
    ivec start[QUANT_TILE_VECS]; // what is added to quants, -128 Σ q being there
#pragma GCC unroll 16
    for (int j = 0; j < n_vecs; j++) {
        offset[j] = pairs_offset(type, record + j * a->panel_size, half);
        start[j] = ivec_shift(ivec_load(record + j * a->panel_size + RECORD_STARTS), pairs_plus(type) == 8 ? -4 : -2);
    }
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++) {
        const uint8_t *w = (const many_weight *)a->w + r * MANY_COLS + g * QUANT_GROUP + half * quads * 4;
        const float *scales = a->w_scales + r * MANY_SCALES + g + half * MANY_SECOND;
        ivec c[QUANT_TILE_VECS], sums[QUANT_TILE_VECS];
#pragma GCC unroll 8
        for (int i = 0; i < quads; i += together) {
            pairs_sum(type, n_vecs, sums, w + 4 * i, together, x + 4 * VEC * i, a->panel_size);
#pragma GCC unroll 16
            for (int j = 0; j < n_vecs; j++)
                c[j] = i                  ? ivec_dot(c[j], sums[j], X86(set1_epi16)(1))
                       : pairs_plus(type) ? ivec_dot(start[j], sums[j], X86(set1_epi16)(1))
                                          : ivec_products(sums[j], X86(set1_epi16)(1));
        }
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++) {
            const vec token = vec_load((const float *)(record + j * a->panel_size + RECORD_SCALES));
            f[r][j] = vec_fma(vec_mul(ivec_to_float(c[j]), token), vec_set(*scales), f[r][j]);
            if (dtype_is_affine(type))
                f[r][j] = vec_fma(offset[j], vec_set(scales[MANY_LIFTS]), f[r][j]);
        }
    }
}

// Likewise of a folded type, a whole group, without the unit.
VEC_INLINE void folded_group(enum dtype type, int n_rows, int n_vecs, vec f[QUANT_TALL_ROWS][QUANT_TILE_VECS],
                             const struct many_tile *a, int g)
{
    const int quads = pairs_together(type);
    const bool starts = pairs_plus(type) != 0;
    const char *record = a->panel + (ptrdiff_t)g * RECORD;
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++) {
        const uint8_t *w = (const many_weight *)a->w + r * MANY_COLS + g * QUANT_GROUP;
        const float *scales = a->w_scales + r * MANY_SCALES + g;
        ivec c[QUANT_TILE_VECS], sums[QUANT_TILE_VECS];
        if (starts)
#pragma GCC unroll 16
            for (int j = 0; j < n_vecs; j++)
                c[j] = ivec_products(ivec_load(record + j * a->panel_size + RECORD_SECOND), four_bytes(scales + MANY_LIFTS));
#pragma GCC unroll 4
        for (int k = 0; k < QUANT_GROUP; k += 4 * quads) {
            const ivec scale = four_bytes(scales + (dtype_has_halves(type) && k >= QUANT_GROUP / 2 ? MANY_SECOND : 0));
            pairs_sum(type, n_vecs, sums, w + k, quads, record + k * VEC, a->panel_size);
#pragma GCC unroll 16
            for (int j = 0; j < n_vecs; j++)
                c[j] = k || starts ? ivec_dot(c[j], sums[j], scale) : ivec_products(sums[j], scale);
        }
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++) {
            const float *token = (const float *)(record + j * a->panel_size + RECORD_SCALES);
            f[r][j] = vec_fma(ivec_to_float(c[j]), vec_load(token), f[r][j]);
        }
    }
}

// Brings in the units, and minima.
VEC_INLINE void unfold(enum dtype type, int n_rows, int n_vecs, vec f[QUANT_TALL_ROWS][QUANT_TILE_VECS],
                       const struct many_tile *a)
{
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++)
            f[r][j] = vec_mul(f[r][j], vec_set(a->w_scales[r * MANY_SCALES + MANY_UNIT]));
    for (int g = 0; g < (dtype_is_affine(type) ? MANY_GROUPS : 0); g++)
#pragma GCC unroll 16
        for (int r = 0; r < n_rows; r++) {
            const vec lift = vec_set(a->w_scales[r * MANY_SCALES + MANY_LIFTS + g]);
#pragma GCC unroll 16
            for (int j = 0; j < n_vecs; j++)
                f[r][j] = vec_fma(pairs_offset(type, a->panel + (ptrdiff_t)g * RECORD + j * a->panel_size, 0), lift, f[r][j]);
        }
}

VEC_INLINE void tile_groups(enum dtype type, int n_rows, int n_vecs, vec f[QUANT_TALL_ROWS][QUANT_TILE_VECS],
                            const struct many_tile *a)
{
    if (folded_cols(type)) {
        for (int g = 0; g < MANY_GROUPS; g++)
            folded_group(type, n_rows, n_vecs, f, a, g);
        unfold(type, n_rows, n_vecs, f, a);
        return;
    }
    for (int g = 0; g < a->groups; g++)
        for (int half = 0; half < (dtype_has_halves(type) ? 2 : 1); half++)
            pairs_group(type, n_rows, n_vecs, f, a, g, half);
}
