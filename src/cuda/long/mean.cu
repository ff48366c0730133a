// Keeps the mean v̄ of the values that a token sees, as running sums. Values that come into sight are added; those that leave
// it (a sliding window) or were rolled back are taken away. A sum is of multiples of 2^-24 in double precision, and so exact
// while it stays below 2^29. It depends on the positions that it covers alone, not on the order in which threads add. As
// cpu/long/mean.c.
#include "cuda/kernels/kv_policy.cuh"
#include "cuda/kernels/kv_rows.cuh"
#include "cuda/long/selective.h"

enum { SUM_THREADS = 512 };

struct sums {
    const struct evaluation *step;
    const void *values;  // (n_layers, n_kv_heads, capacity, head_dim)
    const float *scales; // (n_layers, n_kv_heads, capacity) of int8
    struct kv_policy policy;
    int head_dim, n; // n = n_layers * n_kv_heads
    double *sums;
    int64_t *covered;
};

// Σ over positions [from, to) of a component, rounded to multiples of 2^-24: of this thread's share of the positions.
template <class T>
__device__ static inline double sum_positions(const struct sums &s, const struct kv_rows<T> &values, int c, int64_t from,
                                              int64_t to, int row, int n_rows)
{
    double sum = 0;
#pragma unroll 4
    for (int64_t p = from + row; p < to; p += n_rows)
        sum += rint((double)kv_element(values, policy_slot(s.policy, p), c) * 0x1p24);
    return sum * 0x1p-24;
}

// Block i: the sums of one layer's one KV head come to cover what the token at step->position sees before itself. Reads the
// values of positions that come or go: one in the usual step, all after a prefill. Dynamic shared memory: a double for each
// thread.
template <class T> static __global__ void cover_kernel(struct sums s)
{
    SHARED_DYNAMIC(double, partial);
    grid_dependency_launch();
    grid_dependency_wait();
    const int64_t to = s.step->position, from = policy_first_visible(s.policy, to);
    int64_t *covered = s.covered + 2 * (int64_t)blockIdx.x;
    const int64_t old_from = covered[0], old_to = covered[1];
    __syncthreads(); // all have read it
    const struct kv_rows<T> values = kv_rows_of<T>(s.values, s.scales, (int)blockIdx.x, s.policy.capacity, s.head_dim);
    const int columns = ((int)s.head_dim + 31) / 32 * 32, n_rows = max((int)blockDim.x / columns, 1);
    const int c = (int)threadIdx.x % columns, row = (int)threadIdx.x / columns;
    const int64_t moved = llabs(old_from - from) + llabs(old_to - to);
    const bool anew = moved > to - from || old_from > to || old_to < from;
    double change = 0;
    if (c < s.head_dim && row < n_rows) {
        if (anew) {
            change = sum_positions(s, values, c, from, to, row, n_rows);
        } else {
            change = sum_positions(s, values, c, from, old_from, row, n_rows) +
                     sum_positions(s, values, c, old_to, to, row, n_rows) -
                     sum_positions(s, values, c, old_from, from, row, n_rows) -
                     sum_positions(s, values, c, to, old_to, row, n_rows);
        }
    }
    partial[threadIdx.x] = change;
    __syncthreads();
    if (row == 0 && c < s.head_dim) {
        for (int i = 1; i < n_rows; i++)
            change += partial[i * columns + c];
        double *sum = s.sums + (int64_t)blockIdx.x * s.head_dim + c;
        *sum = (anew ? 0 : *sum) + change;
    }
    if (threadIdx.x == 0) {
        covered[0] = from;
        covered[1] = to;
    }
}

// Before positions [step->position, + n) are written without the sums following: nothing is covered any more where they may
// overwrite what is.
static __global__ void forget_kernel(struct sums s)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= s.n)
        return;
    int64_t *covered = s.covered + 2 * (int64_t)i;
    const int64_t ring = s.policy.capacity - s.policy.n_sinks;
    if (covered[1] > s.step->position || covered[0] + ring < s.step->position + s.step->n)
        covered[0] = covered[1] = -1; // nothing, and nowhere near
}

static struct sums sums_make(const struct value_sums *v)
{
    const struct kv_cache *c = v->cache;
    return {v->step, c->values, c->value_scales, c->policy, c->head_dim, c->n_layers * c->n_kv_heads, v->sums, v->covered};
}

yalm_status value_sums_cover(const struct value_sums *v, cudaStream_t stream, yalm_error *error)
{
    const struct sums sums = sums_make(v);
    const size_t shared = SUM_THREADS * sizeof(double);
    return LAUNCH_KV(v->cache->type, error, cover_kernel, sums.n, SUM_THREADS, shared, stream, sums);
}

yalm_status value_sums_forget(const struct value_sums *v, cudaStream_t stream, yalm_error *error)
{
    const struct sums sums = sums_make(v);
    return LAUNCH(error, forget_kernel, (sums.n + 255) / 256, 256, 0, stream, sums);
}
