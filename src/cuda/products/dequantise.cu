// Products of many tokens with quantised matrices: slabs of their rows become fp16, which cuBLASLt multiplies (matmul.cu).
//
// What that costs beside the product, for each weight and n tokens, on an H200 (4.3 TB/s; a guessed 600 of 989 Tflop/s in
// fp16): the product takes 2 n / 600e12 s, 1.7 ps for n = 512 and 6.8 for 2048. Reading 0.56 to 1.06 bytes and writing 2 takes
// 0.6 to 0.7 ps: 40 % of it for 512 tokens, 10 % for 2,048, the usual chunk. A product of our own could dequantise tiles to
// shared memory and save that. But it would be made of mma.sync, which on Hopper reaches about two thirds of what the library
// does: it loses 50 % at any n.
//
// fp16 has room for 2^-24 to 65504, and 11 bits. A matrix's weights are divided by one power of two, alpha, which brings the
// largest that its scales allow to just below 2^15. The product is multiplied by it again, in fp32. So nothing overflows and
// each weight is rounded to 2^-11 of itself. Only those below 2^-28 of the largest lose more: 2^-39 of that largest. fp8_e5m2
// needs none of it: its numbers are fp16 numbers.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/vec_quant.cuh"

enum { FACTORS_THREADS = 1024, DEQUANTISE_THREADS = 256, DEQUANTISE_UNITS = 4 };

// Weights are below 2^LOG_LARGEST times their scale.
template <class T> constexpr int LOG_LARGEST = SIX_BITS<T> ? 12 : 0; // -32, and a group's scale of at most 127
template <> constexpr int LOG_LARGEST<q8> = 7;                       // -128
template <> constexpr int LOG_LARGEST<q4> = 3;                       // -8
template <> constexpr int LOG_LARGEST<fp8_e4m3> = 9;                 // 448

// ------------------------------------------------------------------------------------------ alpha

// The magnitudes' bits are ordered as the magnitudes are.
__device__ __forceinline__ unsigned larger_half(unsigned most, unsigned pair)
{
    return max(most, max(pair & 0x7fffu, pair >> 16 & 0x7fffu));
}

// The largest of this thread's share of the scales' magnitudes.
template <class T> __device__ __forceinline__ float most_scale(const void *w, int rows, int cols)
{
    if constexpr (!GROUPED<T> || SIX_BITS<T>) { // of rows
        float most = 0;
        for (int row = (int)threadIdx.x; row < rows; row += FACTORS_THREADS)
            most = fmaxf(most, fabsf(row_factor<T>(w, rows, cols, row)) / BITS_FACTOR<T>);
        return most;
    } else {
        const half *scales = group_scales<T>(w, rows, cols); // behind whole groups of quants: at a multiple of 16 bytes
        const size_t n = (size_t)rows * groups_of(cols), packs = n / PACK<half>;
        unsigned most = 0;
#pragma unroll 4
        for (size_t i = threadIdx.x; i < packs; i += FACTORS_THREADS) {
            const uint4 pack = load_stream(reinterpret_cast<const uint4 *>(scales) + i);
            most = larger_half(larger_half(larger_half(larger_half(most, pack.x), pack.y), pack.z), pack.w);
        }
        for (size_t i = packs * PACK<half> + threadIdx.x; i < n; i += FACTORS_THREADS)
            most = max(most, (unsigned)__half_as_ushort(scales[i]) & 0x7fffu);
        return __half2float(__ushort_as_half((unsigned short)most));
    }
}

// One block. Where the largest scale is 0, or no number, alpha is 1.
template <class T> static __global__ void factors_kernel(struct product_factors *factors, const void *w, int rows, int cols)
{
    SHARED_ARRAY(float, all, 32);
    grid_dependency_wait();
    const float own = warp_max(most_scale<T>(w, rows, cols));
    if (threadIdx.x % 32 == 0)
        all[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    float most = 0;
    for (int i = 0; i < FACTORS_THREADS / 32; i++)
        most = fmaxf(most, all[i]);
    const int exponent = (int)(__float_as_uint(most) >> 23) - 127; // most < 2^(exponent + 1)
    const int wanted = min(max(exponent + 1 + LOG_LARGEST<T> - 15, -120), 120);
    const bool exact = LOG_LARGEST<T> == 0 || most == 0 || !isfinite(most);
    factors->alpha = exact ? 1.0f : __uint_as_float((unsigned)(wanted + 127) << 23);
    factors->zero = 0;
    factors->one = 1;
}

static struct product_factors *factors_of(const struct matrix *m)
{
    return reinterpret_cast<struct product_factors *>(static_cast<char *>(const_cast<void *>(m->data)) + factors_at(m));
}

const struct product_factors *product_factors_of(const struct matrix *m)
{
    return factors_of(m);
}

template <class T> static yalm_status make_factors(const struct matrix *m, cudaStream_t stream, yalm_error *error)
{
    return LAUNCH(error, factors_kernel<T>, 1, FACTORS_THREADS, 0, stream, factors_of(m), m->data, m->rows, m->cols);
}

yalm_status product_factors_make(const struct matrix *m, cudaStream_t stream, yalm_error *error)
{
    switch (m->dtype) {
        QUANT_CASES(make_factors, m, stream, error)
    default:
        return no_kernel(m->dtype, error);
    }
}

// ------------------------------------------------------------------------------------------ slabs

__device__ __forceinline__ unsigned scaled_pair(unsigned pair, float factor)
{
    const float2 both = word_to_floats<half>(pair);
    const __half2 scaled = __floats2half2_rn(both.x * factor, both.y * factor);
    memcpy(&pair, &scaled, sizeof pair);
    return pair;
}

// to (n_rows, cols) = rows [first_row, first_row + n_rows) of w (rows, cols), divided by alpha. Moves 1.06, 0.56 or 1 bytes in
// and 2 out for each weight. A thread has DEQUANTISE_UNITS eights of columns, each a store of 16 bytes; a warp's stores of one
// are 512 bytes in a row.
template <class T>
static __global__ void dequantise_kernel(half *to, const void *w, int rows, int cols, int first_row, int n_rows,
                                         const struct product_factors *factors)
{
    grid_dependency_launch();
    const int eights = (cols + 7) / 8;
    const size_t n = (size_t)n_rows * eights;
    const size_t first = (size_t)blockIdx.x * (DEQUANTISE_THREADS * DEQUANTISE_UNITS) + threadIdx.x;
    uint2 words[DEQUANTISE_UNITS];
    float scale[DEQUANTISE_UNITS];
#pragma unroll
    for (int i = 0; i < DEQUANTISE_UNITS; i++) {
        const size_t at = first + i * DEQUANTISE_THREADS;
        if (at >= n)
            break;
        const int row = first_row + (int)(at / eights), col = (int)(at % eights) * 8;
        words[i] = load_eight<T>(w, cols, row, col);
        scale[i] = column_scale<T>(w, rows, cols, row, col) * (row_factor<T>(w, rows, cols, row) / BITS_FACTOR<T>);
    }
    const float inverse = 1.0f / factors->alpha;
    grid_dependency_wait(); // weights are nobody's to write; the slab is what the product before reads
#pragma unroll
    for (int i = 0; i < DEQUANTISE_UNITS; i++) {
        const size_t at = first + i * DEQUANTISE_THREADS;
        if (at >= n)
            break;
        const float factor = scale[i] * inverse * BITS_FACTOR<T>;
        uint4 eight = as_halves<T>(words[i].x, words[i].y);
        eight = {scaled_pair(eight.x, factor), scaled_pair(eight.y, factor), scaled_pair(eight.z, factor),
                 scaled_pair(eight.w, factor)};
        const int row = (int)(at / eights), col = (int)(at % eights) * 8;
        half *from = to + (size_t)row * cols + col;
        if (cols % 8 == 0) {
            *reinterpret_cast<uint4 *>(from) = eight;
            continue;
        }
        half each[8];
        memcpy(each, &eight, sizeof each);
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (col + j < cols)
                from[j] = each[j];
    }
}

template <class T>
static yalm_status dequantise_as(half *to, const struct matrix *m, int first_row, int n_rows, cudaStream_t stream,
                                 yalm_error *error)
{
    const size_t n = (size_t)n_rows * ((m->cols + 7) / 8), share = DEQUANTISE_THREADS * DEQUANTISE_UNITS;
    return LAUNCH(error, dequantise_kernel<T>, (unsigned)((n + share - 1) / share), DEQUANTISE_THREADS, 0, stream, to, m->data,
                  m->rows, m->cols, first_row, n_rows, factors_of(m));
}

yalm_status dequantise(void *to, const struct matrix *m, int first_row, int n_rows, cudaStream_t stream, yalm_error *error)
{
    half *slab = static_cast<half *>(to);
    switch (m->dtype) {
        QUANT_CASES(dequantise_as, slab, m, first_row, n_rows, stream, error)
    default:
        return no_kernel(m->dtype, error);
    }
}

// ------------------------------------------------------------------------------------------ how large a slab is

static const size_t most_slab_bytes = (size_t)128 << 20; // mistral-7b's largest matrix but the classifier takes 112 MiB

static size_t slab_for(const struct matrix *m)
{
    if (!matrix_is_quantised(m))
        return 0;
    const size_t row = sizeof(half) * m->cols, whole = row * m->rows;
    return whole < most_slab_bytes ? whole : row > most_slab_bytes ? row : most_slab_bytes;
}

size_t slab_bytes(const struct model_config *c, const struct model_weights *w)
{
    size_t most = slab_for(&w->classifier), inputs = w->layer_projection.data ? slab_for(&w->layer_projection) : 0;
    most = inputs > most ? inputs : most;
    for (int i = 0; i < c->n_layers; i++) {
        const struct layer_weights *l = &w->layers[i];
        const struct expert_weights *ffn = l->router.data ? &l->shared : &l->experts[0]; // experts have products of their own
        const struct delta_weights *delta = &l->delta;
        const struct scan_weights *scan = &l->scan;
        const struct matrix *const matrices[] = {
            &l->q,           &l->k,           &l->v,          &l->output_gate, &l->o,
            &ffn->gate,      &ffn->up,        &ffn->down,     &l->input_gate,  &l->input_projection,
            &scan->c,        &scan->b,        &scan->x,       &scan->z,        &scan->o,
            &delta->decay_a, &delta->decay_b, &delta->gate_a, &delta->gate_b,  &l->latent.q_a};
        for (const struct matrix *m : matrices) {
            const size_t bytes = m->rows > 0 ? slab_for(m) : 0;
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}
