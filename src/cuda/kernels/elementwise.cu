// Embedding, normalisation, activation, rotation: bound by reading their input and writing their output once.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/kv_rows.cuh"
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/rotation.cuh"
#include "cuda/kernels/vec_quant.cuh"

enum { ELEMENT_THREADS = 256 };

static unsigned blocks_for(size_t n)
{
    return (unsigned)((n + ELEMENT_THREADS - 1) / ELEMENT_THREADS);
}

// ------------------------------------------------------------------------------------------ embedding

// Block (i, t): the i-th ELEMENT_THREADS columns of token t.
template <class T>
static __global__ void embed_kernel(float *x, const T *embedding, const int32_t *tokens, int dim, float scale)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int col = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (col < dim)
        x[(size_t)blockIdx.y * dim + col] = scale * to_float(embedding[(size_t)tokens[blockIdx.y] * dim + col]);
}

// The same of quantised rows.
template <class T>
static __global__ void embed_quant_kernel(float *x, const void *embedding, const int32_t *tokens, int rows, int dim,
                                          float scale)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int col = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (col < dim)
        x[(size_t)blockIdx.y * dim + col] = scale * quant_value<T>(embedding, rows, dim, tokens[blockIdx.y], col);
}

template <class T>
static yalm_status embed_quant(float *x, const struct matrix *embedding, const int32_t *tokens, int n, cudaStream_t stream,
                               yalm_error *error, float scale)
{
    const dim3 grid(blocks_for(embedding->cols), n);
    return LAUNCH(error, embed_quant_kernel<T>, grid, ELEMENT_THREADS, 0, stream, x, embedding->data, tokens, embedding->rows,
                  embedding->cols, scale);
}

yalm_status embed(float *x, const struct matrix *embedding, const int32_t *tokens, int n, cudaStream_t stream,
                  yalm_error *error, float scale)
{
    const int dim = embedding->cols;
    const dim3 grid(blocks_for(dim), n);
    switch (embedding->dtype) {
    case DTYPE_FP32:
        return LAUNCH(error, embed_kernel<float>, grid, ELEMENT_THREADS, 0, stream, x,
                      static_cast<const float *>(embedding->data), tokens, dim, scale);
    case DTYPE_FP16:
        return LAUNCH(error, embed_kernel<half>, grid, ELEMENT_THREADS, 0, stream, x,
                      static_cast<const half *>(embedding->data), tokens, dim, scale);
    case DTYPE_BF16:
        return LAUNCH(error, embed_kernel<__nv_bfloat16>, grid, ELEMENT_THREADS, 0, stream, x,
                      static_cast<const __nv_bfloat16 *>(embedding->data), tokens, dim, scale);
        QUANT_CASES(embed_quant, x, embedding, tokens, n, stream, error, scale)
    default:
        return no_kernel(embedding->dtype, error);
    }
}

// Token t's position, counted in its own text.
__device__ static inline int64_t position_of(const struct evaluation *step, int t)
{
    return step->texts ? t - step->texts[t].first : step->position + t;
}

// Block (i, t), as above.
static __global__ void add_rows_kernel(float *x, const float *positions, const float *types, const struct evaluation *step,
                                       bool apart, int dim)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int col = (int)(blockIdx.x * blockDim.x + threadIdx.x), t = (int)blockIdx.y;
    if (col >= dim)
        return;
    const int64_t position = apart ? step[t].position : position_of(step, t), type = step->texts ? step->texts[t].type : 0;
    float sum = x[(size_t)t * dim + col];
    if (types)
        sum += types[type * dim + col];
    if (positions)
        sum += positions[position * dim + col];
    x[(size_t)t * dim + col] = sum;
}

yalm_status add_rows(float *x, const float *positions, const float *types, const struct evaluation *step, bool apart, int n,
                     int dim, cudaStream_t stream, yalm_error *error)
{
    const dim3 grid(blocks_for(dim), n);
    return LAUNCH(error, add_rows_kernel, grid, ELEMENT_THREADS, 0, stream, x, positions, types, step, apart, dim);
}

// ------------------------------------------------------------------------------------------ normalisation

// Four neighbours, which begin at a multiple of four elements, by one access.
__device__ __forceinline__ void store_quad(float *to, const float (&x)[4])
{
    *reinterpret_cast<float4 *>(to) = make_float4(x[0], x[1], x[2], x[3]);
}

template <class PAIR> __device__ __forceinline__ void store_pairs(void *to, PAIR first, PAIR second)
{
    static_assert(sizeof(PAIR) == sizeof(unsigned), "two elements of 16 bits");
    uint2 words;
    memcpy(&words.x, &first, sizeof first);
    memcpy(&words.y, &second, sizeof second);
    *static_cast<uint2 *>(to) = words;
}

__device__ __forceinline__ void store_quad(half *to, const float (&x)[4])
{
    store_pairs(to, __float22half2_rn(make_float2(x[0], x[1])), __float22half2_rn(make_float2(x[2], x[3])));
}

__device__ __forceinline__ void store_quad(__nv_bfloat16 *to, const float (&x)[4])
{
    store_pairs(to, __float22bfloat162_rn(make_float2(x[0], x[1])), __float22bfloat162_rn(make_float2(x[2], x[3])));
}

// rmsnorm_kernel where rows are whole quads.
template <class T>
__device__ __forceinline__ void normalise_quads(T *to, const float *from, const float *weight, float eps, int dim, size_t rest,
                                                float *sums)
{
    const float4 *x = reinterpret_cast<const float4 *>(from), *w = reinterpret_cast<const float4 *>(weight);
    float squares = 0;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < dim / 4 && weight; i += (int)blockDim.x) {
        const float4 four = x[i];
        squares = fmaf(four.x, four.x, fmaf(four.y, four.y, fmaf(four.z, four.z, fmaf(four.w, four.w, squares))));
    }
    const float scale = weight ? 1.0f / sqrtf(block_sum(squares, sums) / (float)dim + eps) : 1.0f;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < dim / 4; i += (int)blockDim.x) {
        const float4 four = x[i], by = weight ? w[i] : float4{1, 1, 1, 1};
        float value[4] = {four.x * scale * by.x, four.y * scale * by.y, four.z * scale * by.z, four.w * scale * by.w};
        store_quad(to + 4 * i, value);
        if (rest > 0) {
#pragma unroll
            for (int j = 0; j < 4; j++)
                value[j] -= to_float(from_float<T>(value[j]));
            store_quad(to + rest + 4 * i, value);
        }
    }
}

// Block t normalises token t; the second reading of x is served by the caches. rest: elements from y to what rounding loses; 0:
// not wanted.
template <class T>
static __global__ void rmsnorm_kernel(void *y, const float *x, const float *weight, float eps, int dim, size_t rest)
{
    SHARED_ARRAY(float, sums, 32);
    grid_dependency_launch();
    grid_dependency_wait();
    const float *from = x + (size_t)blockIdx.x * dim;
    T *to = static_cast<T *>(y) + (size_t)blockIdx.x * dim;
    if (dim % 4 == 0) {
        normalise_quads(to, from, weight, eps, dim, rest, sums);
        return;
    }
    float squares = 0;
    for (int i = (int)threadIdx.x; i < dim && weight; i += (int)blockDim.x)
        squares = fmaf(from[i], from[i], squares);
    const float scale = weight ? 1.0f / sqrtf(block_sum(squares, sums) / (float)dim + eps) : 1.0f;
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x) {
        const float value = from[i] * scale * (weight ? weight[i] : 1.0f);
        const T rounded = from_float<T>(value);
        to[i] = rounded;
        if (rest > 0)
            to[rest + i] = from_float<T>(value - to_float(rounded));
    }
}

yalm_status rmsnorm(void *y, enum dtype type, const float *x, const float *weight, float eps, int n, int dim,
                    cudaStream_t stream, yalm_error *error)
{
    return LAUNCH_TYPE(type, error, rmsnorm_kernel, n, ELEMENT_THREADS, 0, stream, y, x, weight, eps, dim, 0);
}

yalm_status rmsnorm_split(void *y, enum dtype type, const float *x, const float *weight, float eps, int n, int dim,
                          cudaStream_t stream, yalm_error *error)
{
    return LAUNCH_TYPE(type, error, rmsnorm_kernel, n, ELEMENT_THREADS, 0, stream, y, x, weight, eps, dim, (size_t)n * dim);
}

// Block t, of token t; the later two readings of x are served by the caches. rest: as above.
template <class T>
static __global__ void layernorm_kernel(void *y, const float *x, const float *weight, const float *bias, float eps, int dim,
                                        size_t rest)
{
    SHARED_ARRAY(float, sums, 32);
    SHARED_ARRAY(float, squares, 32);
    grid_dependency_launch();
    grid_dependency_wait();
    const float *from = x + (size_t)blockIdx.x * dim;
    T *to = static_cast<T *>(y) + (size_t)blockIdx.x * dim;
    float sum = 0, square = 0;
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x)
        sum += from[i];
    const float mean = block_sum(sum, sums) / (float)dim;
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x)
        square = fmaf(from[i] - mean, from[i] - mean, square);
    const float scale = 1.0f / sqrtf(block_sum(square, squares) / (float)dim + eps);
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x) {
        const float value = fmaf((from[i] - mean) * scale, weight[i], bias ? bias[i] : 0.0f);
        const T rounded = from_float<T>(value);
        to[i] = rounded;
        if (rest > 0)
            to[rest + i] = from_float<T>(value - to_float(rounded));
    }
}

yalm_status layernorm(void *y, enum dtype type, const float *x, const float *weight, const float *bias, float eps, int n,
                      int dim, bool split, cudaStream_t stream, yalm_error *error)
{
    return LAUNCH_TYPE(type, error, layernorm_kernel, n, ELEMENT_THREADS, 0, stream, y, x, weight, bias, eps, dim,
                       split ? (size_t)n * dim : 0);
}

// ------------------------------------------------------------------------------------------ activation

// A thread has four neighbours.
template <class T>
static __global__ void gate_multiply_kernel(void *y, const float *gate, const float *up, size_t n, enum activation activation)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const size_t at = 4 * ((size_t)blockIdx.x * blockDim.x + threadIdx.x);
    T *to = static_cast<T *>(y);
    if (at + 4 <= n) {
        const float4 g = *reinterpret_cast<const float4 *>(gate + at),
                     u = up ? *reinterpret_cast<const float4 *>(up + at) : float4{1, 1, 1, 1};
        const float four[4] = {gated_unit(activation, g.x, u.x), gated_unit(activation, g.y, u.y),
                               gated_unit(activation, g.z, u.z), gated_unit(activation, g.w, u.w)};
        store_quad(to + at, four);
        return;
    }
    for (size_t i = at; i < n; i++)
        to[i] = from_float<T>(gated_unit(activation, gate[i], up ? up[i] : 1.0f));
}

yalm_status gate_multiply(void *y, enum dtype type, const float *gate, const float *up, size_t n, cudaStream_t stream,
                          yalm_error *error, enum activation activation)
{
    return LAUNCH_TYPE(type, error, gate_multiply_kernel, blocks_for((n + 3) / 4), ELEMENT_THREADS, 0, stream, y, gate, up, n,
                       activation);
}

static __global__ void softcap_kernel(float *x, size_t n, float cap)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = cap * tanhf(x[i] / cap);
}

yalm_status softcap(float *x, size_t n, float cap, cudaStream_t stream, yalm_error *error)
{
    return LAUNCH(error, softcap_kernel, blocks_for(n), ELEMENT_THREADS, 0, stream, x, n, cap);
}

// ------------------------------------------------------------------------------------------ rotation

struct rotation {
    const struct evaluation *step;
    const float *q, *k, *v;
    float *rotated_q, *sink_q, *rotated_k;
    struct kv_layer layer;
    struct kv_policy policy;
    struct rope rope;
    int n_kv_heads, group, head_dim;
    int n_still;           // a head's first components, which do not rotate
    int q_pitch, kv_pitch; // of q; of k and v
    bool still;            // no rotation
    float scale, growth;   // of queries
    int growth_context;
    const float *key_offset; // of rows of int8: (n_kv_heads, head_dim), or NULL
    const float *weights;    // of queries, rotated: (head_dim), or NULL
};

// Puts a token's key, rotated, and value into their slots. A row of int8 needs its largest magnitude first. One warp makes it,
// and rotates twice rather than keep what it rotated. All threads make other rows, a pair of components each. Of a latent only
// the last components rotate, and there is no value.
template <class T>
__device__ static inline void append(const struct rotation &r, const float *k, const float *v, size_t slot, const float2 *turns,
                                     const float *offset)
{
    const int half_dim = (r.head_dim - r.n_still) / 2;
    T *key = static_cast<T *>(r.layer.keys) + slot * r.head_dim, *value = static_cast<T *>(r.layer.values) + slot * r.head_dim;
    if constexpr (sizeof(T) == 1) {
        if (threadIdx.x / 32 == 0) {
            kv_store_row(key, r.layer.key_scales + slot, r.head_dim, [=](int i) {
                const int pair = i < half_dim ? i : i - half_dim;
                const float2 both = rotate(k, pair, half_dim, turns[pair], 1.0f);
                return (i < half_dim ? both.x : both.y) - (offset ? offset[i] : 0.0f);
            });
        } else if (threadIdx.x / 32 == 1) {
            kv_store_row(value, r.layer.value_scales + slot, r.head_dim, [=](int i) { return v[i]; });
        }
    } else {
        for (int i = (int)threadIdx.x; i < r.n_still; i += (int)blockDim.x) {
            key[i] = from_float<T>(k[i]);
        }
        k += r.n_still;
        key += r.n_still;
        for (int i = (int)threadIdx.x; i < half_dim; i += (int)blockDim.x) {
            const float2 both = rotate(k, i, half_dim, turns[i], 1.0f);
            key[i] = from_float<T>(both.x);
            key[i + half_dim] = from_float<T>(both.y);
            if (v) {
                value[i] = from_float<T>(v[i]);
                value[i + half_dim] = from_float<T>(v[i + half_dim]);
            }
        }
    }
}

// A token's queries, key and value of one KV head. position: in its text.
template <class T>
__device__ static inline void rotate_heads(const struct rotation &r, int t, int kv_head, int64_t position, const float2 *turns)
{
    const int half_dim = (r.head_dim - r.n_still) / 2;
    const float *weights = r.weights ? r.weights + r.n_still : NULL; // of what rotates
    float scale = r.scale;
    if (r.growth > 0)
        scale *= 1.0f + r.growth * logf(1.0f + (float)(position / r.growth_context));
    const size_t q_at = ((size_t)t * r.n_kv_heads + kv_head) * r.group * r.head_dim;
    const float *own_q = r.q + (size_t)t * r.q_pitch + (size_t)kv_head * r.group * r.head_dim;
    for (int j = (int)threadIdx.x; j < r.group * half_dim; j += (int)blockDim.x) {
        const int i = j % half_dim;
        const size_t in_group = (size_t)(j / half_dim) * r.head_dim + r.n_still, head = q_at + in_group;
        const float2 q = rotate(own_q + in_group, i, half_dim, turns[i], scale);
        const float2 weight = weights ? make_float2(weights[i], weights[i + half_dim]) : make_float2(1.0f, 1.0f);
        r.rotated_q[head + i] = weight.x * q.x;
        r.rotated_q[head + i + half_dim] = weight.y * q.y;
        if (r.sink_q) {
            const float2 sink = rotate(own_q + in_group, i, half_dim, turns[half_dim + i], scale);
            r.sink_q[head + i] = weight.x * sink.x;
            r.sink_q[head + i + half_dim] = weight.y * sink.y;
        }
    }
    for (int j = (int)threadIdx.x; j < r.group * r.n_still; j += (int)blockDim.x) {
        const size_t at = (size_t)(j / r.n_still) * r.head_dim + j % r.n_still;
        const float still = scale * own_q[at] * (r.weights ? r.weights[j % r.n_still] : 1.0f);
        r.rotated_q[q_at + at] = still;
        if (r.sink_q)
            r.sink_q[q_at + at] = still;
    }

    if (!r.k)
        return;
    const size_t from = (size_t)t * r.kv_pitch + (size_t)kv_head * r.head_dim;
    append<T>(r, r.k + from, r.v ? r.v + from : NULL,
              (size_t)kv_head * r.policy.capacity + policy_slot(r.policy, r.step->position + t), turns,
              r.key_offset ? r.key_offset + kv_head * r.head_dim : NULL);
    const size_t to = ((size_t)t * r.n_kv_heads + kv_head) * r.head_dim;
    for (int i = (int)threadIdx.x; r.rotated_k && i < half_dim; i += (int)blockDim.x) {
        const float2 k = rotate(r.k + from, i, half_dim, turns[i], 1.0f);
        r.rotated_k[to + i] = k.x;
        r.rotated_k[to + i + half_dim] = k.y;
    }
}

// Block (t, kv_head): of token t the query heads that share a KV head, and its key and value. Dynamic shared memory:
// (head_dim / 2) turns at the token's position, and as many at the sinks' distance.
template <class T> static __global__ void rope_append_kernel(struct rotation r)
{
    SHARED_DYNAMIC(float2, turns);
    grid_dependency_launch();
    grid_dependency_wait();
    const int half_dim = (r.head_dim - r.n_still) / 2, t = (int)blockIdx.x;
    const int64_t position = position_of(r.step, t), furthest = r.policy.span - 1;
    for (int i = (int)threadIdx.x; i < half_dim; i += (int)blockDim.x) {
        turns[i] = r.still ? float2{1, 0} : rotation_of(position, r.rope.inverse_frequency[i], r.rope.scale);
        if (r.sink_q)
            turns[half_dim + i] =
                r.still ? float2{1, 0}
                        : rotation_of(position < furthest ? position : furthest, r.rope.inverse_frequency[i], r.rope.scale);
    }
    __syncthreads();
    rotate_heads<T>(r, t, (int)blockIdx.y, position, turns);
}

yalm_status rope_append(const struct rope_append *r, int n, cudaStream_t stream, yalm_error *error)
{
    const struct kv_cache *cache = r->cache;
    const struct rotation rotation = {
        .step = r->step,
        .q = r->q,
        .k = r->k,
        .v = r->v,
        .rotated_q = r->rotated_q,
        .sink_q = cache->policy.n_sinks > 0 ? r->sink_q : NULL,
        .rotated_k = r->rotated_k,
        .layer = kv_layer_of(cache, r->layer),
        .policy = cache->policy,
        .rope = r->rope,
        .n_kv_heads = cache->n_kv_heads,
        .group = r->n_heads / cache->n_kv_heads,
        .head_dim = cache->head_dim,
        .n_still = r->rope.dims ? cache->head_dim - r->rope.dims : 0,
        .q_pitch = r->pitch ? r->pitch : r->n_heads * cache->head_dim,
        .kv_pitch = r->pitch ? r->pitch : cache->n_kv_heads * cache->head_dim,
        .still = r->still,
        .scale = r->scale > 0 ? r->scale : 1.0f / sqrtf((float)cache->head_dim),
        .growth = r->growth,
        .growth_context = r->growth_context,
        .key_offset = r->key_offset,
        .weights = r->weights,
    };
    const dim3 grid(n, cache->n_kv_heads);
    const size_t shared = sizeof(float2) * cache->head_dim;
    return LAUNCH_KV(cache->type, error, rope_append_kernel, grid, ELEMENT_THREADS, shared, stream, rotation);
}
