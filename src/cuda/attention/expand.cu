// Keys and values of each head from latents, for many tokens' attention: then a query and a key cost the tensor cores of
// prefill.cu a head's own width, where the latents cost floats and 2 * (rank + rope) multiply-adds.
//
// to[h][slot] = [w_h latents[slot]; what of the key rotates, or zeros], in fp16. A block has 64 slots and 64 components of a
// head; a warp 16 slots. Operations: 2 * rank for each component; bytes: latents once for 64 components, from the L2 cache.
#include "cuda/attention/tiles.cuh"

enum { TILE = 64, THREADS = 128 };
using tile_rows = padded_rows<TILE>;

struct expansion_of {
    const half *latents; // (capacity, head_dim)
    const half *w;       // (heads, rank, out) where TURNED, else (heads, out, rank)
    half *to;            // (heads, capacity, width)
    int capacity, head_dim, rank, out, width, n;
    bool rotating;
};

// (TILE, TILE) of a matrix with `pitch` elements a row, at (row, col); zeros beyond (rows, cols). whole: pieces of 16 bytes lie
// aligned, and are there wholly or not at all.
__device__ static inline void load_tile(half *to, const half *from, int pitch, int row, int col, int rows, int cols, bool whole)
{
    if (whole) {
        for (int i = threadIdx.x; i < TILE * TILE / 8; i += THREADS) {
            const int r = i / (TILE / 8), piece = i % (TILE / 8);
            uint4 x = {0, 0, 0, 0};
            if (row + r < rows && col + piece * 8 < cols)
                x = *reinterpret_cast<const uint4 *>(from + (size_t)(row + r) * pitch + col + piece * 8);
            *reinterpret_cast<uint4 *>(to + tile_rows::at(r, piece)) = x;
        }
        return;
    }
    for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        const int r = i / TILE, c = i % TILE;
        const bool there = row + r < rows && col + c < cols;
        to[tile_rows::at(r, c / 8) + c % 8] = there ? from[(size_t)(row + r) * pitch + col + c] : __float2half_rn(0.0f);
    }
}

// grid: (ceil(n / TILE), ceil(out / TILE), heads); n: slots, from the first on.
template <bool TURNED> static __global__ void __launch_bounds__(THREADS) expand_kernel(const struct expansion_of e)
{
    SHARED_ARRAY(half, a, TILE * tile_rows::LENGTH * 8);
    SHARED_ARRAY(half, b, TILE * tile_rows::LENGTH * 8);
    grid_dependency_launch();
    grid_dependency_wait();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slot0 = blockIdx.x * TILE, out0 = blockIdx.y * TILE,
              head = blockIdx.z;
    const half *w = e.w + (size_t)head * e.rank * e.out;
    const bool whole = e.rank % 8 == 0 && e.out % 8 == 0 && e.head_dim % 8 == 0;
    float sums[TILE / 8][4] = {};
    for (int j = 0; j < e.rank; j += TILE) {
        load_tile(a, e.latents, e.head_dim, slot0, j, e.n, e.rank, whole);
        if (TURNED)
            load_tile(b, w, e.out, j, out0, e.rank, e.out, whole);
        else
            load_tile(b, w, e.rank, out0, j, e.out, e.rank, whole);
        __syncthreads();
#pragma unroll
        for (int step = 0; step < TILE / 16; step++) {
            unsigned rows[4];
            ldmatrix_x4(rows, a + tile_rows::at(warp * 16 + lane % 16, step * 2 + lane / 16));
#pragma unroll
            for (int f = 0; f < TILE / 16; f++) {
                unsigned cols[4];
                if (TURNED)
                    ldmatrix_x4_trans(cols, b + tile_rows::at(step * 16 + lane % 16, f * 2 + lane / 16));
                else
                    ldmatrix_x4(cols, b + tile_rows::at(f * 16 + lane % 8 + lane / 16 * 8, step * 2 + lane / 8 % 2));
                const unsigned low[2] = {cols[0], cols[1]}, high[2] = {cols[2], cols[3]};
                mma_m16n8k16<half>(sums[2 * f], rows, low);
                mma_m16n8k16<half>(sums[2 * f + 1], rows, high);
            }
        }
        __syncthreads();
    }
    half *to = e.to + (size_t)head * e.capacity * e.width;
#pragma unroll
    for (int i = 0; i < TILE / 8 * 4; i++) {
        const int slot = slot0 + warp * 16 + lane / 4 + i % 4 / 2 * 8, c = out0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (slot < e.n && c < e.out)
            to[(size_t)slot * e.width + c] = from_float<half>(sums[i / 4][i % 4]);
    }
    const int more = e.width - e.out;
    for (int i = threadIdx.x; blockIdx.y == 0 && i < TILE * more; i += THREADS) {
        const int slot = slot0 + i / more, c = i % more;
        if (slot < e.n)
            to[(size_t)slot * e.width + e.out + c] =
                e.rotating ? e.latents[(size_t)slot * e.head_dim + e.rank + c] : __float2half_rn(0.0f);
    }
}

yalm_status expand_latents(const struct kv_cache *to, const struct kv_cache *from, int layer, const struct latent_config *d,
                           const half *k_b, const half *v_b, int n, cudaStream_t stream, yalm_error *error)
{
    const half *latents = static_cast<const half *>(kv_layer_of(from, layer).keys);
    struct expansion_of e = {latents,
                             k_b,
                             static_cast<half *>(to->keys),
                             from->policy.capacity,
                             from->head_dim,
                             d->kv_rank,
                             d->nope_dim,
                             to->head_dim,
                             n,
                             true};
    const unsigned slots = (n + TILE - 1) / TILE;
    TRY(LAUNCH(error, (expand_kernel<true>), dim3(slots, (e.out + TILE - 1) / TILE, to->n_kv_heads), THREADS, 0, stream, e));
    e.w = v_b;
    e.to = static_cast<half *>(to->values);
    e.out = d->v_dim;
    e.rotating = false;
    return LAUNCH(error, (expand_kernel<false>), dim3(slots, (e.out + TILE - 1) / TILE, to->n_kv_heads), THREADS, 0, stream, e);
}

// y[i] = the first `dim` of x[i], of `width`, both of elements as wide as T.
template <class T> static __global__ void narrow_kernel(T *y, const T *x, int dim, int width, size_t n)
{
    grid_dependency_launch();
    grid_dependency_wait();
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n * dim; i += (size_t)gridDim.x * blockDim.x)
        y[i] = x[i / dim * width + i % dim];
}

yalm_status narrow_heads(void *y, const void *x, enum dtype type, int dim, int width, size_t n, cudaStream_t stream,
                         yalm_error *error)
{
    enum { BLOCKS = 1024 };
    if (type == DTYPE_FP32)
        return LAUNCH(error, narrow_kernel<float>, BLOCKS, THREADS, 0, stream, static_cast<float *>(y),
                      static_cast<const float *>(x), dim, width, n);
    return LAUNCH(error, narrow_kernel<uint16_t>, BLOCKS, THREADS, 0, stream, static_cast<uint16_t *>(y),
                  static_cast<const uint16_t *>(x), dim, width, n);
}
