// Scores of all blocks by nomad_scores_queries(), for either width of x86; included by vec/nomad_avx2.h and vec/nomad_avx512.h.
#pragma once
#include "cpu/kernels/vec/nomad.h"

// Two streams of blocks, which memory delivers faster than one. Codes are mostly scored a run after another of the same length.
// Beyond its end the second stream fetches where the next run's first one begins. What the first would fetch there has been
// read, so it fetches where the next run's second one begins.
VEC_INLINE void nomad_scores(const struct nomad_score_args *a)
{
    const ptrdiff_t bytes = (ptrdiff_t)a->rows * NOMAD_ROW, half = a->n_blocks / 2;
    for (ptrdiff_t b = 0; b < half; b++) {
        nomad_scores_queries(a, b, NOMAD_AHEAD + ((b * bytes + NOMAD_AHEAD < half * bytes) ? 0 : a->n_blocks * bytes));
        nomad_scores_queries(a, b + half, NOMAD_AHEAD);
    }
    if (a->n_blocks % 2)
        nomad_scores_queries(a, a->n_blocks - 1, NOMAD_AHEAD);
}
