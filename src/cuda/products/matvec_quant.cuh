// Parts of the kernels that multiply quantised weights with vectors: weights on their way, x in shared memory, a pack's
// products. How and why: matvec_quant.cu.
#pragma once
#include <type_traits>

#include "cuda/kernels/quant_x.cuh"
#include "cuda/products/matvec.cuh"

enum {
    X_BATCH = 4, // blocks that a warp quantises at a time
};

template <class T> struct float_x;
template <class T> using lane_x = std::conditional_t<GROUPED<T>, quant_x<T>, float_x<T>>;

struct quant_matvec {
    struct matvec m;
    enum matvec_kind kind;
};

// The launch's row belongs to a matrix of `rows` rows, as its row `row`.
struct quant_row {
    const uint8_t *w;
    int rows, row;
};

__device__ __forceinline__ struct quant_row find_row(const struct quant_matvec &q, const void *const *w, int row)
{
    const struct matvec &m = q.m;
    const uint8_t *const first = static_cast<const uint8_t *>(w[0]), *const second = static_cast<const uint8_t *>(w[1]);
    if (q.kind == MATVEC_GATED)
        return {row % 2 == 0 ? first : second, m.rows[0], row / 2};
    if (row < m.rows[0])
        return {first, m.rows[0], row};
    row -= m.rows[0];
    if (row < m.rows[1])
        return {second, m.rows[1], row};
    return {static_cast<const uint8_t *>(m.w[2]), m.rows[2], row - m.rows[1]};
}

// ------------------------------------------------------------------------------------------ weights on their way

// A lane's part of a tile: packs at `at`, `at` + 512 bytes, … of each row that is there, as far as there are columns left.
template <int ROWS> struct quant_tile {
    const uint8_t *at[ROWS];
    const uint8_t *high[ROWS]; // of the second plane, where there is one
    int left, rows;
    int first_row, first_col; // of the launch; of the matrix
};

// Of the launch's rows first_row …, of which `rows` are there, the segment that begins at column `segment`.
template <class T, int ROWS>
__device__ __forceinline__ struct quant_tile<ROWS> quant_tile_at(const struct quant_matvec &q, const void *const *w,
                                                                 int first_row, int rows, int segment) {
    const struct matvec &m = q.m;
    struct quant_tile<ROWS> tile;
    const int width = m.steps * 32 * PACK_COLS<T>, col = segment + (int)threadIdx.x % 32 * PACK_COLS<T>;
    tile.first_row = first_row;
    tile.first_col = m.first_col + segment;
    tile.rows = rows;
    tile.left = min(m.cols, segment + width) - col;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const struct quant_row row = find_row(q, w, r < tile.rows ? tile.first_row + r : 0);
        const uint8_t *first = row.w + row.row * quant_pitch<T>(m.stride);
        tile.at[r] = first + (m.first_col + col) * 16 / PACK_COLS<T>;
        if (HIGH_BYTES<T>)
            tile.high[r] = first + high_plane(m.stride) + (size_t)((m.first_col + col) / QUANT_GROUP) * HIGH_BYTES<T>;
    }
    return tile;
}

template <class T, int ROWS>
__device__ __forceinline__ struct quant_tile<ROWS> quant_tile_of(const struct quant_matvec &q, const void *const *w, int number,
                                                                 int n_tiles, int first_row, int last_row) {
    const int row = first_row + number / q.m.segments * ROWS;
    return quant_tile_at<T, ROWS>(q, w, row, number < n_tiles ? min(ROWS, last_row - row) : 0,
                                  number % q.m.segments * q.m.steps * 32 * PACK_COLS<T>);
}

// Where a lane's part of the second plane lies that belongs to place `place` of its ring.
template <class T>
__device__ __forceinline__ uint8_t *high_place(uint4 *ring, int place)
{
    const int lane = (int)threadIdx.x % 32;
    return reinterpret_cast<uint8_t *>(ring - lane + 32 * (MATVEC_DEPTH + 2)) + (32 * place + lane) * HIGH_BYTES<T>;
}

// The pack of row r and step s sets out for this lane's place in the ring.
template <class T, int ROWS, bool ALIGNED>
__device__ __forceinline__ void fetch_pack(uint4 *ring, const struct quant_tile<ROWS> &tile, int r, int s)
{
    constexpr int step = 32 * PACK_COLS<T>;
    uint4 *to = ring + 32 * (s * ROWS + r);
    const bool there = r < tile.rows && tile.left > s * step;
    if constexpr (HIGH_BYTES < T >> 0)
        fetch_high<T>(high_place<T>(ring, s * ROWS + r), tile.high[r] + 32 * HIGH_BYTES<T> * s, there);
    if (ALIGNED || ROWS_ALIGNED<T>)
        copy_async16(to, tile.at[r] + 512 * s, there);
    else if (GROUPED<T>)
        *to = load_words(tile.at[r] + 512 * s, there);
    else
        *to = load_pack<T, false>(reinterpret_cast<const T *>(tile.at[r]) + s * step, r < tile.rows ? tile.left - s * step : 0);
}

// The tile's scales set out: this lane's eight, for all lanes, at `to`. (ROWS, groups of a row's segment), at most 512 bytes.
template <class T, int ROWS, bool ALIGNED>
__device__ __forceinline__ void fetch_scales(uint4 *scales, const struct quant_matvec &q, const void *const *w,
                                             const struct quant_tile<ROWS> &tile)
{
    constexpr int lanes = MATVEC_DEPTH / ROWS * PACK_COLS<T> / 8; // for a row
    const int r = (int)threadIdx.x % 32 / lanes, groups = groups_of(q.m.stride);
    const int group = tile.first_col / QUANT_GROUP + (int)threadIdx.x % lanes * 8;
    scale_type<T> *to = reinterpret_cast<scale_type<T> *>(scales - threadIdx.x % 32) + 8 * (threadIdx.x % 32);
    if (r >= ROWS)
        return;
    const int left = r < tile.rows ? groups - group : 0;
    const struct quant_row row = find_row(q, w, r < tile.rows ? tile.first_row + r : 0);
    const scale_type<T> *from = group_scales<T>(row.w, row.rows, q.m.stride) + (size_t)row.row * groups + group;
    fetch_eight_scales<ALIGNED>(to, from, left);
}

// ------------------------------------------------------------------------------------------ x in shared memory

// Columns [col, col + 4) of x, zeros beyond its end.
__device__ __forceinline__ float4 load_four(const float *x, int col, int cols, bool aligned)
{
    if (aligned && col + 4 <= cols)
        return __ldcg(reinterpret_cast<const float4 *>(x + col));
    return {col < cols ? __ldcg(x + col) : 0.0f, col + 1 < cols ? __ldcg(x + col + 1) : 0.0f,
            col + 2 < cols ? __ldcg(x + col + 2) : 0.0f, col + 3 < cols ? __ldcg(x + col + 3) : 0.0f};
}

// x ∘ norm to shared memory as integers, this warp's blocks; returns this lane's sum of squares of x. The norm, a weight, is on
// its way to the L2 cache before the wait.
template <class T> __device__ __forceinline__ float stage_integers(uint8_t *xs, const struct matvec &m, int padded)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, n_warps = (int)blockDim.x / 32;
    const int n_blocks = padded / X_BLOCK;
    const bool aligned = reinterpret_cast<uintptr_t>(m.x) % 16 == 0;
    float squares = 0;
    if (m.norm)
        for (int c = 32 * (int)threadIdx.x; c < m.cols; c += 32 * (int)blockDim.x)
            prefetch_l2(m.norm + c);
    grid_dependency_wait();
    for (int first = warp; first < n_blocks; first += X_BATCH * n_warps) {
        float4 x[X_BATCH], norm[X_BATCH];
#pragma unroll
        for (int i = 0; i < X_BATCH; i++) {
            const int col = X_BLOCK * (first + i * n_warps) + 4 * lane;
            x[i] = load_four(m.x, col, m.cols, aligned);
            norm[i] = m.norm ? load_four(m.norm, col, m.cols, true) : float4{1, 1, 1, 1};
        }
#pragma unroll
        for (int i = 0; i < X_BATCH; i++) {
            if (first + i * n_warps >= n_blocks)
                break;
            squares = fmaf(x[i].x, x[i].x, fmaf(x[i].y, x[i].y, fmaf(x[i].z, x[i].z, fmaf(x[i].w, x[i].w, squares))));
            x[i] = {x[i].x * norm[i].x, x[i].y * norm[i].y, x[i].z * norm[i].z, x[i].w * norm[i].w};
            quantise_block<T>(xs, padded, first + i * n_warps, x[i]);
        }
    }
    return squares;
}

// ------------------------------------------------------------------------------------------ products

// What a lane needs of x for a pack, of 8-bit floats.
template <class T> struct float_x {
    float4 words[4];
    __device__ __forceinline__ void load(const uint8_t *xs, int, int step)
    {
        const float *at = reinterpret_cast<const float *>(xs) + step * 32 * PACK_COLS<T> + 4 * (threadIdx.x % 32);
#pragma unroll
        for (int i = 0; i < 4; i++)
            words[i] = *reinterpret_cast<const float4 *>(at + 128 * i);
    }
};

template <class T> __device__ __forceinline__ float add_pack(float sum, uint4 pack, uint2, const struct float_x<T> &x, float)
{
    const unsigned words[4] = {pack.x, pack.y, pack.z, pack.w};
    float other = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 even = word_to_floats<half>(even_bytes<T>(words[i])), odd = word_to_floats<half>(odd_bytes<T>(words[i]));
        sum = fmaf(even.x, x.words[i].x, sum);
        other = fmaf(odd.x, x.words[i].y, other);
        sum = fmaf(even.y, x.words[i].z, sum);
        other = fmaf(odd.y, x.words[i].w, other);
    }
    return sum + other;
}

// ------------------------------------------------------------------------------------------ a kernel's beginning and end

__device__ static inline bool resolve_kind(enum matvec_kind kind, struct matvec &m, float *weight)
{
    return kind == MATVEC_STORE ? resolve_expert<MATVEC_STORE>(m, weight)
           : kind == MATVEC_ADD ? resolve_expert<MATVEC_ADD>(m, weight)
           : kind == MATVEC_UP  ? resolve_expert<MATVEC_UP>(m, weight)
                                : resolve_expert<MATVEC_GATED>(m, weight);
}

// Finishes one token's rows, as matvec_kernel does. `of` has the chosen expert's biases where there is one.
__device__ static inline void finish_rows(const struct matvec &of, enum matvec_kind kind, int first_row, int last_row,
                                          const float *sums, float scale, float weight, int token = 0)
{
    const int together = kind == MATVEC_GATED ? 2 : 1;
    for (int row = first_row / together + (int)threadIdx.x; row < last_row / together; row += (int)blockDim.x) {
        const float *at = sums + (row * together - first_row) * of.segments;
        if (kind == MATVEC_STORE)
            finish_row<MATVEC_STORE>(of, row, at, scale, weight, token);
        else if (kind == MATVEC_ADD)
            finish_row<MATVEC_ADD>(of, row, at, scale, weight, token);
        else if (kind == MATVEC_UP)
            finish_row<MATVEC_UP>(of, row, at, scale, weight, token);
        else
            finish_row<MATVEC_GATED>(of, row, at, scale, weight, token);
    }
}

// Places of 512 bytes in a warp's ring: its packs, two tiles' scales, and the packs' part of the second plane.
template <class T> constexpr int RING_PLACES = MATVEC_DEPTH + (GROUPED<T> ? 2 : 0) + MATVEC_DEPTH *HIGH_BYTES<T> / 16;

// Whether all packs can be read whole: the rows begin at multiples of 16 bytes, and so do eight groups' scales.
template <class T> static bool quant_aligned(const struct matvec &m)
{
    if (GROUPED<T>)
        return groups_of(m.stride) % 8 == 0;
    bool aligned = m.stride * sizeof(T) % 16 == 0 && m.cols * sizeof(T) % 16 == 0 && reinterpret_cast<uintptr_t>(m.x) % 16 == 0;
    for (const void *w : m.w)
        aligned = aligned && reinterpret_cast<uintptr_t>(w) % 16 == 0;
    return aligned;
}
