// Attention in plain C: online softmax, a block of keys at a time (see struct attend_args for the formula).
#include "cpu/kernels/ref/scalar.h"

enum { BLOCK = 64 }; // keys

static inline __attribute__((always_inline)) float kv_element(enum kv_type type, const void *x, ptrdiff_t i)
{
    return type == KV_INT8 ? (float)((const int8_t *)x)[i] : element(type == KV_FP32 ? DTYPE_FP32 : DTYPE_FP16, x, i);
}

static inline __attribute__((always_inline)) float score(enum kv_type type, const float *q, const void *k, ptrdiff_t at,
                                                         int head_dim)
{
    double sum = 0;
    for (int i = 0; i < head_dim; i++)
        sum += (double)q[i] * (double)kv_element(type, k, at + i);
    return (float)sum;
}

// One query and the keys [first, last), at most BLOCK of them.
static inline __attribute__((always_inline)) void attend_block(enum kv_type type, const struct attend_args *a, int query,
                                                               ptrdiff_t first, ptrdiff_t last)
{
    const ptrdiff_t d = a->head_dim;
    float *acc = a->acc + query * d;
    float scores[BLOCK] = {0}, max = a->max[query];
    for (ptrdiff_t j = first; j < last; j++) {
        scores[j - first] = score(type, a->q + query * d, a->k, j * d, a->head_dim);
        if (type == KV_INT8)
            scores[j - first] *= a->k_scales[j];
        if (a->softcap > 0)
            scores[j - first] = a->softcap * tanhf(scores[j - first] / a->softcap);
        if (a->bias)
            scores[j - first] += a->bias[j];
        if (scores[j - first] > max)
            max = scores[j - first];
    }
    if (max > a->max[query]) {
        const float shrink = expf(a->max[query] - max); // e^-inf = 0 the first time
        for (ptrdiff_t i = 0; i < d; i++)
            acc[i] *= shrink;
        a->sum[query] *= shrink;
        a->max[query] = max;
    }
    double sum = 0;
    for (ptrdiff_t j = first; j < last; j++) {
        const float p = expf(scores[j - first] - max);
        const float weight = type == KV_INT8 ? p * a->v_scales[j] : p;
        sum += (double)p;
        for (ptrdiff_t i = 0; i < d; i++)
            acc[i] += weight * kv_element(type, a->v, j * d + i);
    }
    a->sum[query] += (float)sum;
}

static inline __attribute__((always_inline)) void attend(enum kv_type type, const struct attend_args *a)
{
    for (int i = 0; i < a->n_queries; i++) {
        int first = a->first && a->first[i] > 0 ? a->first[i] : 0;
        const int last = a->last && a->last[i] < a->n_keys ? a->last[i] : a->n_keys;
        for (; first < last; first += BLOCK)
            attend_block(type, a, i, first, last - first < BLOCK ? last : first + BLOCK);
    }
}

void scalar_attend_fp16(const struct attend_args *args)
{
    attend(KV_FP16, args);
}

void scalar_attend_fp32(const struct attend_args *args)
{
    attend(KV_FP32, args);
}

void scalar_attend_int8(const struct attend_args *args)
{
    attend(KV_INT8, args);
}
