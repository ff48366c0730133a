// Kernels of the attention methods that select keys: one table for each instruction set, (vec/sparse.c). As in kernels.h,
// each works on its caller's thread alone, allocates nothing, and takes sizes that need be no multiple of anything.
#pragma once
#include "cpu/kernels/kernels.h"

enum { SPARSE_DIMS = 512 }; // components of a head that these kernels take

// Elements of SparQ's second copy of the keys, in the order of sparq_copy.
enum copy_type { COPY_INT8, COPY_FP16, COPY_Q4, COPY_TYPES };

// The copy of a layer's KV head is component-major. Each component of all slots is one run of memory, so a few components are
// read as few long streams. (Blocks of keys, each component-major in itself, would keep an append together. But with 256 keys
// in a block the runs are so short that memory delivers them at half the rate: measured.) In the runs of q4 each COPY_GROUP
// slots are COPY_GROUP / 2 bytes. Byte j has slot j of the group in its low half and slot j + COPY_GROUP / 2 in the high one,
// each increased by 8.
enum { COPY_GROUP = 256 };

// Of a run, what lies before a slot.
static inline ptrdiff_t copy_offset(enum copy_type type, int slot)
{
    if (type == COPY_Q4)
        return slot / COPY_GROUP * (COPY_GROUP / 2) + slot % (COPY_GROUP / 2);
    return type == COPY_FP16 ? 2 * (ptrdiff_t)slot : slot;
}

// Bytes from one run to the next, with room for `slots` (a multiple of COPY_GROUP). It is an odd number of cache lines, so the
// same slots of different components lie in different sets of the caches.
static inline ptrdiff_t copy_stride(enum copy_type type, int slots)
{
    return copy_offset(type, slots) / 64 * 64 + 64;
}

// scores[i, j] = scales[slot + j] Σ_c q[i, c] copy[slot + j][components[c]] for n consecutive slots.
struct score_args {
    float *scores; // (n_queries, ld)
    ptrdiff_t ld;
    const void *copy;
    ptrdiff_t stride;          // of its runs, in bytes
    const float *scales;       // of all slots: of int8 and q4; else NULL
    const float *q;            // (n_queries, r)
    const int *components;     // (r)
    int n_queries, r, slot, n; // 1 <= r <= SPARSE_DIMS
    bool to_l2;                // machine_fetching()'s runs_to_l2; results do not depend on it
};

struct sparse_kernels {
    // Rows rows[0 … n) of `from`, of row_bytes each, one after another.
    void (*gather)(void *to, const void *from, size_t row_bytes, const int *rows, int n);
    void (*score[COPY_TYPES])(const struct score_args *args);

    // As a softmax goes on: max' = max(max, x…), sum' = sum e^(max - max') + Σ e^(x - max').
    void (*softmax_stats)(const float *x, int n, float *max, float *sum);
    // The same, and x becomes e^(x - max'); all 0 where no x yet was more than -inf.
    void (*softmax_keep)(float *x, int n, float *max, float *sum);
    // w[j] = Σ_i factor[i] x[i, j]; x: (n_rows, ld)
    void (*weighted_sum)(float *w, const float *x, ptrdiff_t ld, int n_rows, int n, const float *factor);
    // Σ x[indices[j]]
    float (*sum_at)(const float *x, const int *indices, int n);
    // Those j in [first, last) with x[j] >= least, ascending, to indices, and x[j] to values; returns how many. Both have room
    // for last - first + 16.
    int (*collect)(int *indices, float *values, const float *x, int first, int last, float least);
    // Those of n with values[j] >= least, moved together in their order, and their indices with them; returns how many.
    int (*keep)(int *indices, float *values, int n, float least);
    // The least and the largest number of x; inf and -inf where there is none.
    void (*range)(const float *x, int n, float *least, float *largest);
    // How many x are at least `least`.
    int (*count_from)(const float *x, int n, float least);
    // sum[i] += sign * x[i], x rounded to a multiple of 2^-24 (as fp16 is): exact, in any order, while sums stay below 2^29.
    void (*add_exactly)(double *sum, const float *x, int n, double sign);
};

extern const struct sparse_kernels sparse_kernels_scalar, sparse_kernels_avx2, sparse_kernels_avx512, sparse_kernels_neon;

void avx512vnni_sparq_score(const struct score_args *args);
