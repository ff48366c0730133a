// What the attention kernels on tensor cores have for a cache of int8 (kv_rows.cuh). A key's scale multiplies its scores. A
// value's multiplies its weights, which are then rounded to fp16: so scales are counted in a unit in which the largest so far
// is below 2^15. Weights of rows whose scale is down to 2^-29 of that keep fp16's 11 bits, and sums in fp32 are brought to the
// new unit where it grows.
#pragma once
#include "cuda/attention/attention.cuh"

// Decode's kernel (decode_int8.cu). heads: 8 or 16, that share one read of K and V.
yalm_status attend_decode_int8_launch(const struct attend *a, int heads, dim3 grid, cudaStream_t stream, yalm_error *error);

static constexpr float LEAST_LIMIT = 0x1p-111f; // whose unit's inverse is finite

// The unit of a limit, a power of 2 above all scales so far, and its inverse.
__device__ static inline float scale_unit(float limit)
{
    return limit * 0x1p-15f;
}
__device__ static inline float scale_inverse_unit(float limit)
{
    return 0x1p15f / limit;
}

// Raises the warp's limit above scales of which a lane's four neighbours together have all, and `largest` is a lane's own.
// Returns what the sums so far are to be multiplied by, mostly 1.
__device__ static inline float raise_limit(float *limit, float largest)
{
    if (!__any_sync(0xffffffff, largest >= *limit)) {
        return 1.0f;
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 2));
    const float raised = __uint_as_float((__float_as_uint(largest) & 0x7f800000u) + 0x00800000u); // the next power of 2
    const float by = *limit / raised;
    *limit = raised;
    return by;
}

// ------------------------------------------------------------------------------------------ tiles of fp16, made of int8

// Where a block keeps a tile that is on its way: each thread's own pieces of 16 bytes, of keys and of values, and the scales.
template <int D, int KEYS> struct int8_staging {
    uint8_t pieces[2][KEYS * D];
    float scales[2][KEYS];
};

// Calls with(j, piece, i) for each of a thread's pieces: the i-th of all is piece `piece` of row j. Only where head_dim is a
// multiple of 16.
template <int D, int KEYS, int THREADS, class With>
__device__ static inline void each_piece(int head_dim, int thread, With with)
{
    const int pieces = head_dim / 16, n = KEYS * pieces;
    const unsigned inverse = (65536 + pieces - 1) / pieces; // i / pieces = i * inverse >> 16 for i < 65536 / pieces
#pragma unroll
    for (int step = 0; step < (KEYS * D / 16 + THREADS - 1) / THREADS; step++) {
        const int i = step * THREADS + thread, j = (int)(i * inverse >> 16);
        if (i < n) {
            with(j, i - j * pieces, i);
        }
    }
}

// Each of THREADS threads begins to copy its part of a tile. Rows of odd lengths are read when they are converted.
template <int D, int KEYS, int THREADS>
__device__ static inline void stage_tile(struct int8_staging<D, KEYS> *staging, const struct attend &a, int kv_head,
                                         const struct seen &seen, int tile, int thread)
{
    const struct key_tile keys = seen_tile(seen, tile, KEYS);
    const int64_t base = (int64_t)kv_head * a.policy.capacity;
    for (int i = thread; i < 2 * KEYS; i += THREADS) {
        const int of_values = i / KEYS, j = i % KEYS;
        const float *scales = of_values ? a.value_scales : a.key_scales;
        copy_async_few<4>(&staging->scales[of_values][j], scales + base + tile_slot(seen, keys, j));
    }
    if (a.head_dim % 16 == 0) {
        const int8_t *from_k = static_cast<const int8_t *>(a.keys), *from_v = static_cast<const int8_t *>(a.values);
        each_piece<D, KEYS, THREADS>(a.head_dim, thread, [&](int j, int piece, int i) {
            const int64_t from = (base + tile_slot(seen, keys, j)) * a.head_dim + piece * 16;
            copy_async16(staging->pieces[0] + i * 16, from_k + from);
            copy_async16(staging->pieces[1] + i * 16, from_v + from);
        });
    }
}

// Sixteen integers become two pieces of a tile of fp16.
template <class ROWS> __device__ static inline void convert_piece(half *tile, int j, int piece, const uint8_t *from)
{
    const uint4 bytes = *reinterpret_cast<const uint4 *>(from);
    const unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        unsigned low[2], high[2];
        int8_to_halves(low, words[2 * h]);
        int8_to_halves(high, words[2 * h + 1]);
        *reinterpret_cast<uint4 *>(tile + ROWS::at(j, 2 * piece + h)) = make_uint4(low[0], low[1], high[0], high[1]);
    }
}

// The same threads make fp16 of what they have copied, integers without their scales. scales: (2, KEYS), keys' and values'.
template <class ROWS, int KEYS, int THREADS>
__device__ static inline void convert_tile(half *k, half *v, float *scales, const struct int8_staging<ROWS::DIM, KEYS> *staging,
                                           const struct attend &a, int kv_head, const struct seen &seen, int tile, int thread)
{
    for (int i = thread; i < 2 * KEYS; i += THREADS) {
        scales[i] = staging->scales[i / KEYS][i % KEYS];
    }
    if (a.head_dim % 16 == 0) {
        each_piece<ROWS::DIM, KEYS, THREADS>(a.head_dim, thread, [&](int j, int piece, int i) {
            convert_piece<ROWS>(k, j, piece, staging->pieces[0] + i * 16);
            convert_piece<ROWS>(v, j, piece, staging->pieces[1] + i * 16);
        });
        return;
    }
    const struct key_tile keys = seen_tile(seen, tile, KEYS);
    const int64_t base = (int64_t)kv_head * a.policy.capacity;
    const int8_t *from_k = static_cast<const int8_t *>(a.keys), *from_v = static_cast<const int8_t *>(a.values);
    for (int i = thread; i < KEYS * a.head_dim; i += THREADS) {
        const int j = i / a.head_dim, c = i % a.head_dim, to = ROWS::at(j, c / 8) + c % 8;
        const int64_t from = (base + tile_slot(seen, keys, j)) * a.head_dim + c;
        k[to] = __float2half_rn((float)from_k[from]);
        v[to] = __float2half_rn((float)from_v[from]);
    }
}

// ------------------------------------------------------------------------------------------ scales

// Scores of a warp's rows with a tile's keys, as fragments of mma_m16n8k16, times keys' scales.
template <int TILES, int KEYS>
__device__ static inline void scale_scores(float (&scores)[TILES][KEYS / 8][4], const float *key_scales)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
        const float2 by = *reinterpret_cast<const float2 *>(key_scales + n * 8 + threadIdx.x % 4 * 2);
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                scores[t][n][i] *= i % 2 == 0 ? by.x : by.y;
            }
        }
    }
}

// Weights times values' scales in the warp's unit. Returns what the sums so far are to be multiplied by.
template <int TILES, int KEYS>
__device__ static inline float scale_weights(float (&weights)[TILES][KEYS / 8][4], const float *value_scales, float *limit)
{
    float2 scales[KEYS / 8];
    float largest = 0.0f; // of numbers, where some are NaN
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
        scales[n] = *reinterpret_cast<const float2 *>(value_scales + n * 8 + threadIdx.x % 4 * 2);
        largest = fmaxf(largest, fmaxf(scales[n].x, scales[n].y));
    }
    const float by = raise_limit(limit, largest), inverse_unit = scale_inverse_unit(*limit);
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
        const float2 scale = {scales[n].x * inverse_unit, scales[n].y * inverse_unit};
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                weights[t][n][i] *= i % 2 == 0 ? scale.x : scale.y;
            }
        }
    }
    return by;
}
