// NoMAD's scores and those from codes in runs (codes.h) with NEON: `tbl` looks up 16 bytes in a row's table.
#pragma once
#include "cpu/kernels/codes.h"
#include "cpu/kernels/vec/nomad.h"

VEC_INLINE uint8x16_t half_bytes(uint8x16_t codes, bool high)
{
    return high ? vshrq_n_u8(codes, 4) : vandq_u8(codes, vdupq_n_u8(15));
}

// One block and n_queries queries, a constant where this is inlined.
VEC_INLINE void nomad_scores_block(int n_queries, float *scores, const uint8_t *block, const struct nomad_score_args *a,
                                   int query)
{
    const ptrdiff_t bytes = (ptrdiff_t)a->rows * NOMAD_ROW;
    uint16x8_t sums[2][4] = {0}; // of 8 keys each
    for (ptrdiff_t at = 0; at < bytes; at += NOMAD_ROW) {
        const uint8x16_t codes = vld1q_u8(block + at);
        __builtin_prefetch(block + at + NOMAD_AHEAD);
#pragma GCC unroll 2
        for (int i = 0; i < n_queries; i++) {
            const uint8x16_t table = vld1q_u8(a->entries + (query + i) * bytes + at);
#pragma GCC unroll 2
            for (int high = 0; high < 2; high++) {
                const uint8x16_t found = vqtbl1q_u8(table, half_bytes(codes, high));
                sums[i][2 * high] = vaddw_u8(sums[i][2 * high], vget_low_u8(found));
                sums[i][2 * high + 1] = vaddw_high_u8(sums[i][2 * high + 1], found);
            }
        }
    }
#pragma GCC unroll 2
    for (int i = 0; i < n_queries; i++) {
        const float32x4_t step = vdupq_n_f32(a->step[query + i]), base = vdupq_n_f32(a->base[query + i]);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            float *to = scores + i * a->ld + j * 8;
            vst1q_f32(to, vfmaq_f32(base, vcvtq_f32_u32(vmovl_u16(vget_low_u16(sums[i][j]))), step));
            vst1q_f32(to + 4, vfmaq_f32(base, vcvtq_f32_u32(vmovl_high_u16(sums[i][j])), step));
        }
    }
}

VEC_INLINE void nomad_scores(const struct nomad_score_args *a)
{
    for (ptrdiff_t b = 0; b < a->n_blocks; b++)
        for (int i = 0; i < a->n_queries; i += 2) {
            const uint8_t *block = a->codes + b * a->rows * NOMAD_ROW;
            float *scores = a->scores + i * a->ld + b * NOMAD_BLOCK;
            if (a->n_queries - i == 1)
                nomad_scores_block(1, scores, block, a, i);
            else
                nomad_scores_block(2, scores, block, a, i);
        }
}

// Sixteen bytes of a group, half of their bits: 16 slots, by fours (code_byte()).
VEC_INLINE void code_scores_part(const struct code_score_args *a, int query, ptrdiff_t group, int part, bool high)
{
    enum { AHEAD = 512 }; // bytes of each run
    const ptrdiff_t at = group * CODE_GROUP_BYTES + part * 16;
    const int8_t *weights = a->weights + (ptrdiff_t)query * a->n;
    int32x4_t sums[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        sums[i] = vdupq_n_s32(a->offset[query]);
    for (int c = 0; c < a->n; c++) {
        const uint8_t *run = a->runs + a->run_of[c] * a->stride + at;
        if (part == 0 && !high)
            fetch_line((const char *)run + AHEAD, a->to_l2);
        const uint8x16_t values = vqtbl1q_u8(vld1q_u8(a->values + (ptrdiff_t)c * CODE_VALUES), half_bytes(vld1q_u8(run), high));
        const int16x8_t first = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(values))),
                        second = vreinterpretq_s16_u16(vmovl_high_u8(values));
        sums[0] = vmlal_n_s16(sums[0], vget_low_s16(first), weights[c]);
        sums[1] = vmlal_high_n_s16(sums[1], first, weights[c]);
        sums[2] = vmlal_n_s16(sums[2], vget_low_s16(second), weights[c]);
        sums[3] = vmlal_high_n_s16(sums[3], second, weights[c]);
    }
    float *scores = a->scores + query * a->ld + group * CODE_GROUP + (high ? CODE_GROUP / 2 : 0) + (ptrdiff_t)part * 4;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        vst1q_f32(scores + (ptrdiff_t)i * 16,
                  vfmaq_f32(vdupq_n_f32(a->base[query]), vcvtq_f32_s32(sums[i]), vdupq_n_f32(a->step[query])));
}

VEC_INLINE void code_scores(const struct code_score_args *a)
{
    for (int group = 0; group < a->n_groups; group++)
        for (int part = 0; part < 4; part++)
            for (int query = 0; query < a->n_queries; query++) {
                code_scores_part(a, query, group, part, false);
                code_scores_part(a, query, group, part, true);
            }
}
