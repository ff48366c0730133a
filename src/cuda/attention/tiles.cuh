// Tiles of K and V in shared memory, for the kernels on tensor cores.
#pragma once
#include "cuda/attention/attention.cuh"

// x = hi + lo + a part in 2^22.
__device__ static inline void split_halves(float2 x, unsigned *hi, unsigned *lo)
{
    const half2 high = __float22half2_rn(x);
    const float2 back = __half22float2(high);
    const half2 low = __float22half2_rn(make_float2(x.x - back.x, x.y - back.y));
    memcpy(hi, &high, sizeof high);
    memcpy(lo, &low, sizeof low);
}

// Rows of a tile in shared memory, in pieces of 16 bytes. Eight rows' pieces of one column must lie in different banks
// (ldmatrix). Padded rows have an odd number of pieces: one address serves all columns. Exchanged ones, for D a multiple of 64,
// exchange pieces within a row instead, which takes less memory and more registers.
template <int D> struct padded_rows {
    static constexpr int DIM = D, LENGTH = D / 8 + 1; // pieces; D is a multiple of 16
    __device__ static constexpr int at(int row, int piece) { return (row * LENGTH + piece) * 8; } // in halves
};
template <int D> struct exchanged_rows {
    static constexpr int DIM = D, LENGTH = D / 8;
    __device__ static constexpr int at(int row, int piece) { return (row * LENGTH + (piece ^ (row & 7))) * 8; }
};

// Each of THREADS threads copies its part of a tile of K and V, both at once; head_dim is even.
template <class ROWS, int KEYS, int THREADS, class SEEN>
__device__ static inline void copy_tile(half *k, half *v, const struct attend &a, int kv_head, const SEEN &seen, int tile,
                                        int thread)
{
    static_assert(KEYS * ROWS::DIM / 8 % THREADS == 0, "every thread has as many pieces");
    const struct key_tile keys = seen_tile(seen, tile, KEYS);
    const int64_t base = (int64_t)kv_head * a.policy.capacity * a.head_dim;
    const half *from_k = static_cast<const half *>(a.keys) + base, *from_v = static_cast<const half *>(a.values) + base;
    if (a.head_dim % 8 == 0) {
        const int pieces = a.head_dim / 8, n = KEYS * pieces;
        const unsigned inverse = (65536 + pieces - 1) / pieces; // i / pieces = i * inverse >> 16 for i < 65536 / pieces
#pragma unroll
        for (int step = 0; step < KEYS * ROWS::DIM / 8 / THREADS; step++) {
            const int i = step * THREADS + thread, j = (int)(i * inverse >> 16), piece = i - j * pieces;
            if (i < n) {
                const int64_t from = (int64_t)tile_slot(seen, keys, j) * a.head_dim + piece * 8;
                copy_async16(k + ROWS::at(j, piece), from_k + from);
                copy_async16(v + ROWS::at(j, piece), from_v + from);
            }
        }
        return;
    }
    for (int i = thread; i < KEYS * a.head_dim / 2; i += THREADS) {
        const int j = i / (a.head_dim / 2), c = i % (a.head_dim / 2) * 2, to = ROWS::at(j, c / 8) + c % 8;
        const int64_t from = (int64_t)tile_slot(seen, keys, j) * a.head_dim + c;
        *reinterpret_cast<half2 *>(k + to) = *reinterpret_cast<const half2 *>(from_k + from);
        *reinterpret_cast<half2 *>(v + to) = *reinterpret_cast<const half2 *>(from_v + from);
    }
}

// What lies beyond head_dim in n tiles, which no copy writes, is 0 for good.
template <int D, int THREADS> __device__ static inline void clear_tiles(half *tiles, int halves, int head_dim, int thread)
{
    if (head_dim < D) {
        for (int i = thread; i < halves; i += THREADS) {
            tiles[i] = __float2half_rn(0.0f);
        }
    }
}
