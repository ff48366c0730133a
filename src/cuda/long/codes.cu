// Codes of keys: their sizes, their tables, and how they are written.
#include "cuda/long/codes.cuh"

#include "cuda/kernels/kv_rows.cuh"

enum { CODES_THREADS = 128 };

void codes_shape(struct key_codes *c, int n_layers, const struct kv_cache *cache, int d_sub)
{
    *c = {};
    c->n_layers = n_layers;
    c->n_kv_heads = cache->n_kv_heads;
    c->head_dim = cache->head_dim;
    c->d_sub = d_sub;
    c->n_sub = cache->head_dim / d_sub;
    const int step = d_sub == 1 ? 8 : 4; // sub-quantisers that a warp takes at once (codes_score.cu)
    c->rows = (c->n_sub + step - 1) / step * step;
    c->n_tiles = (cache->policy.capacity + CODES_TILE - 1) / CODES_TILE;
}

// ------------------------------------------------------------------------------------------ tables

// Block i: KV head i of all layers'. A component's 16 values become bytes: value = scale * byte + middle, off by at most scale
// / 2, where scale is a 254th of their span. They do not depend on the query, so a key's bytes serve all heads of a group.
static __global__ void code_tables_kernel(struct key_codes c, int dims)
{
    grid_dependency_wait();
    const size_t at = blockIdx.x;
    for (int i = (int)threadIdx.x; i < dims; i += (int)blockDim.x) {
        unsigned words[4] = {};
        float2 range = {0.0f, 0.0f};
        if (i < c.head_dim) {
            const float *values = c.centroids + (at * c.head_dim + i) * CODES_CENTROIDS;
            float least = values[0], most = values[0];
            for (int j = 1; j < CODES_CENTROIDS; j++) {
                least = fminf(least, values[j]);
                most = fmaxf(most, values[j]);
            }
            const float middle = 0.5f * least + 0.5f * most, reach = most - middle;
            const float factor = reach >= 1e-30f ? 127.0f / reach : 0.0f;
            range = make_float2(factor > 0.0f ? reach / 127.0f : 0.0f, middle);
            for (int j = 0; j < CODES_CENTROIDS; j++)
                words[j / 4] |= (unsigned)(__float2int_rn((values[j] - middle) * factor) & 255) << 8 * (j % 4);
        }
        c.tables[at * dims + i] = make_uint4(words[0], words[1], words[2], words[3]);
        c.ranges[at * dims + i] = range;
    }
}

yalm_status codes_tables(const struct key_codes *c, cudaStream_t stream, yalm_error *error)
{
    return LAUNCH(error, code_tables_kernel, c->n_layers * c->n_kv_heads, CODES_THREADS, 0, stream, *c, codes_dims(c));
}

// ------------------------------------------------------------------------------------------ appending

struct code_append {
    const struct evaluation *step;
    const float *keys;           // (n, n_kv_heads, head_dim); NULL: from the cache
    const void *rows;            // of the cache's layer: (n_kv_heads, capacity, head_dim)
    const float *scales;         // of int8
    const float *centroids;      // (n_kv_heads, n_sub, d_sub, 16)
    unsigned *codes;             // (n_kv_heads, head_words)
    size_t head_words;           // of 4 bytes
    int head_dim, n_sub, n_rows; // n_rows: key_codes.rows
    struct kv_policy policy;
};

// Block (t, kv_head): token t's key. Reads 4 head_dim bytes of it and 64 head_dim of centroids, which all tokens share; changes
// head_dim / (2 d_sub) bytes. T: of the cache's rows.
template <int D_SUB, class T> static __global__ void code_append_kernel(struct code_append a)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int kv_head = (int)blockIdx.y, slot = policy_slot(a.policy, a.step->position + blockIdx.x);
    unsigned *codes = a.codes + (size_t)kv_head * a.head_words;
    const float *centroids = a.centroids + (size_t)kv_head * a.head_dim * CODES_CENTROIDS;
    if (a.keys) {
        const float *key = a.keys + ((size_t)blockIdx.x * gridDim.y + kv_head) * a.head_dim;
        encode_key<D_SUB>(codes, centroids, a.n_sub, a.n_rows, slot, (int)threadIdx.x, (int)blockDim.x,
                          [=](int i) { return key[i]; });
    } else {
        const struct kv_rows<T> rows = kv_rows_of<T>(a.rows, a.scales, kv_head, a.policy.capacity, a.head_dim);
        encode_key<D_SUB>(codes, centroids, a.n_sub, a.n_rows, slot, (int)threadIdx.x, (int)blockDim.x,
                          [=](int i) { return kv_element(rows, slot, i); });
    }
}

template <int D_SUB>
static yalm_status append(const struct code_append *a, yalm_kv type, dim3 grid, cudaStream_t stream, yalm_error *error)
{
    if (type == YALM_KV_FP32)
        return LAUNCH(error, (code_append_kernel<D_SUB, float>), grid, CODES_THREADS, 0, stream, *a);
    if (type == YALM_KV_INT8)
        return LAUNCH(error, (code_append_kernel<D_SUB, int8_t>), grid, CODES_THREADS, 0, stream, *a);
    return LAUNCH(error, (code_append_kernel<D_SUB, half>), grid, CODES_THREADS, 0, stream, *a);
}

yalm_status codes_append(const struct key_codes *c, int layer, const struct evaluation *step, const float *keys,
                         const struct kv_cache *cache, int cache_layer, int n, cudaStream_t stream, yalm_error *error)
{
    const struct kv_layer rows = kv_layer_of(cache, cache_layer);
    const size_t head = (size_t)layer * c->n_kv_heads;
    struct code_append a = {};
    a.step = step;
    a.keys = keys;
    a.rows = rows.keys;
    a.scales = rows.key_scales;
    a.centroids = c->centroids + head * c->head_dim * CODES_CENTROIDS;
    a.codes = reinterpret_cast<unsigned *>(c->codes + head * codes_head_words(c));
    a.head_words = 4 * codes_head_words(c);
    a.head_dim = c->head_dim;
    a.n_sub = c->n_sub;
    a.n_rows = c->rows;
    a.policy = cache->policy;
    const dim3 grid(n, c->n_kv_heads);
    return c->d_sub == 1   ? append<1>(&a, cache->type, grid, stream, error)
           : c->d_sub == 2 ? append<2>(&a, cache->type, grid, stream, error)
                           : append<4>(&a, cache->type, grid, stream, error);
}
