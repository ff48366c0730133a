// y = W x for one vector, of quantised weights: as matvec.cuh, and bound as there by reading W once, but with less room for everything
// else. A byte of weights arrives every 0.05 clocks on a multiprocessor of an H200 (4.3 TB/s / 132 / 1.8 GHz = 18 bytes a clock), which is 34
// weights of q4 and the scales they share. Two things make that fit:
//
// Integers. q8 and q4 are multiplied by x as 16-bit integers, with one scale for each 128 columns, as on the CPU (what that loses, and why not 8
// bits, is in docs/quantisation.md). x = scale * (256 high + low), both signed bytes, so that a dp4a multiplies four weights by a half of x
// each: 16 of them for a lane's 32 weights of q4 in 16 bytes. A q4 nibble in the upper half of a byte is 16 times its value, with its sign; so
// one AND makes four weights of the odd columns, a shift and an AND those of the even ones, and x lies in shared memory apart likewise.
// About 45 instructions for 32 weights: a third of what a multiprocessor issues while they arrive.
// 8-bit floats become fp16 by moving bits, and are multiplied in fp32: about 60 instructions for 16 weights, half of what it issues.
//
// Tiles of several rows. x in shared memory would be read once for each row: 64 bytes for each 16 of q4 or 8-bit floats, of the 128 a
// clock that shared memory gives. So a tile is a segment of ROWS rows, with DEPTH / ROWS steps in each, and reads x once: of the 128 bytes
// 18 are weights arriving, 18 weights read, and 36 x.
//
// q4n, q5 and q6 become bytes in the columns' order first: by look-ups in four registers, __byte_perm (q4n: 81 instructions for 32 weights), or by bits
// (q6). What a group has in the second plane is one more copy of 4 or 8 bytes, to a ring of its own.
//
// A tile's scales are one more 16-byte copy for each lane, or half as many, on the way with its first packs. Rows' scales (fp8) are fetched
// while the first packs are under way.
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

template <class T, int ROWS>
__device__ __forceinline__ struct quant_tile<ROWS> quant_tile_of(const struct quant_matvec &q, const void *const *w, int number,
                                                                 int n_tiles, int first_row, int last_row) {
    const struct matvec &m = q.m;
    struct quant_tile<ROWS> tile;
    const int width = m.steps * 32 * PACK_COLS<T>, segment = number % m.segments * width;
    const int col = segment + (int)threadIdx.x % 32 * PACK_COLS<T>;
    tile.first_row = first_row + number / m.segments * ROWS;
    tile.first_col = m.first_col + segment;
    tile.rows = number < n_tiles ? min(ROWS, last_row - tile.first_row) : 0;
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

// x ∘ norm to shared memory as integers, this warp's blocks; returns this lane's sum of squares of x. The norm, a weight, is on its way to the
// L2 cache before the wait.
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

// ------------------------------------------------------------------------------------------ the kernel

__device__ static inline bool resolve_kind(enum matvec_kind kind, struct matvec &m, float *weight)
{
    return kind == MATVEC_STORE ? resolve_expert<MATVEC_STORE>(m, weight)
           : kind == MATVEC_ADD ? resolve_expert<MATVEC_ADD>(m, weight)
           : kind == MATVEC_UP  ? resolve_expert<MATVEC_UP>(m, weight)
                                : resolve_expert<MATVEC_GATED>(m, weight);
}

// What matvec_kernel does at its end. `of` has the chosen expert's biases where there is one.
__device__ static inline void finish_rows(const struct matvec &of, enum matvec_kind kind, int first_row, int last_row,
                                          const float *sums, float scale, float weight)
{
    const int together = kind == MATVEC_GATED ? 2 : 1;
    for (int row = first_row / together + (int)threadIdx.x; row < last_row / together; row += (int)blockDim.x) {
        const float *at = sums + (row * together - first_row) * of.segments;
        if (kind == MATVEC_STORE)
            finish_row<MATVEC_STORE>(of, row, at, scale, weight);
        else if (kind == MATVEC_ADD)
            finish_row<MATVEC_ADD>(of, row, at, scale, weight);
        else if (kind == MATVEC_UP)
            finish_row<MATVEC_UP>(of, row, at, scale, weight);
        else
            finish_row<MATVEC_GATED>(of, row, at, scale, weight);
    }
}

// Places of 512 bytes in a warp's ring: its packs, two tiles' scales, and the packs' part of the second plane.
template <class T> constexpr int RING_PLACES = MATVEC_DEPTH + (GROUPED<T> ? 2 : 0) + MATVEC_DEPTH *HIGH_BYTES<T> / 16;

// Dynamic shared memory: the rings, x, the tiles' sums (rows, segments), the rows' factors (rows).
template <class T, int ROWS, bool ALIGNED>
static __global__ void __launch_bounds__(32 * MATVEC_WARPS, ALIGNED ? MATVEC_RESIDENTS : 1)
    quant_matvec_kernel(struct quant_matvec q)
{
    SHARED_DYNAMIC(uint4, rings); // (WARPS, RING_PLACES, 32)
    SHARED_ARRAY(float, squares, MATVEC_WARPS);
    constexpr int most_steps = MATVEC_DEPTH / ROWS;
    const struct matvec &m = q.m;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, together = q.kind == MATVEC_GATED ? 2 : 1;
    float weight = 1;
    grid_dependency_launch();
    SHARED_ARRAY(const void *, matrices,
                 2 * MATVEC_WARPS); // the first two of the launch, or the chosen expert's: registers are few
    const void **w = matrices + 2 * warp;
    if (lane < 2 && !m.table)
        w[lane] = lane == 0 ? m.w[0] : m.w[1];
    if (m.table) {
        grid_dependency_wait();
        struct matvec chosen = m;
        if (!resolve_kind(q.kind, chosen, &weight))
            return;
        if (lane < 2)
            w[lane] = lane == 0 ? chosen.w[0] : chosen.w[1];
    }
    __syncwarp();

    const int64_t units = m.n_rows / together;
    const int first_row = (int)(units * blockIdx.x / gridDim.x) * together;
    const int last_row = (int)(units * (blockIdx.x + 1) / gridDim.x) * together;
    const int n_tiles = (last_row - first_row + ROWS - 1) / ROWS * m.segments,
              padded = m.segments * m.steps * 32 * PACK_COLS<T>;
    uint8_t *xs = reinterpret_cast<uint8_t *>(rings + blockDim.x / 32 * RING_PLACES<T> * 32);
    float *sums = reinterpret_cast<float *>(xs + x_bytes<T>(padded));
    float *factors = sums + (last_row - first_row) * m.segments;
    uint4 *ring = rings + warp * RING_PLACES<T> * 32 + lane; // this lane's place of pack 0
    uint4 *scales = ring + MATVEC_DEPTH * 32; // and of the tile's scales; the next tile's are 32 on, and so in turns

    struct quant_tile<ROWS> tile = quant_tile_of<T, ROWS>(q, w, warp, n_tiles, first_row, last_row);
    if (GROUPED<T>)
        fetch_scales<T, ROWS, ALIGNED>(scales, q, w, tile);
#pragma unroll
    for (int j = 0; j < MATVEC_DEPTH; j++) {
        if (j / ROWS < m.steps)
            fetch_pack<T, ROWS, ALIGNED>(ring, tile, j % ROWS, j / ROWS);
        copy_async_commit();
    }
    if (!GROUPED<T> || ROW_SCALED<T>)
        for (int row = first_row + (int)threadIdx.x; row < last_row; row += (int)blockDim.x) {
            const struct quant_row of = find_row(q, w, row);
            factors[row - first_row] = row_factor<T>(of.w, of.rows, m.stride, of.row);
        }

    float own_squares;
    if constexpr (GROUPED<T>)
        own_squares = stage_integers<T>(xs, m, padded);
    else
        own_squares = stage_x<T, ALIGNED>(reinterpret_cast<float *>(xs), m);
    own_squares = warp_sum(own_squares);
    if (lane == 0)
        squares[warp] = own_squares;
    __syncthreads();

    int other = 32; // where the next tile's scales are
    for (int number = warp; number < n_tiles; number += (int)blockDim.x / 32) {
        const int tile_row = number / m.segments * ROWS, segment = number % m.segments;
        tile = quant_tile_of<T, ROWS>(q, w, number + (int)blockDim.x / 32, n_tiles, first_row, last_row);
        float sum[ROWS] = {};
#pragma unroll
        for (int s = 0; s < most_steps; s++) {
            lane_x<T> x = {};
            if (s < m.steps)
                x.load(xs, padded, segment * m.steps + s);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                copy_async_wait<MATVEC_DEPTH - 1>();
                if (GROUPED<T> && r == 0 && s == 0) {
                    __syncwarp(); // all lanes' scales are here, and nobody reads those of the tile before any more
                    fetch_scales<T, ROWS, ALIGNED>(scales + other, q, w, tile);
                }
                if (s < m.steps) {
                    float scale = 1;
                    if (GROUPED<T>) {
                        const scale_type<T> *tiles = reinterpret_cast<const scale_type<T> *>(scales - lane + 32 - other);
                        scale = scale_value(tiles[(r * most_steps + s) * PACK_COLS<T> + lane * PACK_COLS<T> / QUANT_GROUP]);
                    }
                    uint2 more = {0, 0};
                    if (HIGH_BYTES<T>)
                        more = load_high<T>(high_place<T>(ring, s * ROWS + r));
                    sum[r] = add_pack(sum[r], ring[32 * (s * ROWS + r)], more, x, scale);
                    fetch_pack<T, ROWS, ALIGNED>(ring, tile, r, s);
                }
                copy_async_commit();
            }
        }
        other = 32 - other;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float total = warp_sum(sum[r]);
            if (lane == 0 && tile_row + r < last_row - first_row)
                sums[(tile_row + r) * m.segments + segment] =
                    GROUPED<T> && !ROW_SCALED<T> ? total : total * factors[tile_row + r];
        }
    }
    __syncthreads();

    float scale = 1;
    if (m.norm) {
        float all = 0;
        for (int i = 0; i < (int)blockDim.x / 32; i++)
            all += squares[i];
        scale = 1.0f / sqrtf(all / (float)m.cols + m.eps);
    }
    struct matvec of = m;
    if (m.table)
        resolve_kind(q.kind, of, &weight);
    finish_rows(of, q.kind, first_row, last_row, sums, scale, weight);
    prefetch_next(m); // here, where registers are free for it
}

// ------------------------------------------------------------------------------------------ launches

template <class T, int ROWS, bool ALIGNED>
static yalm_status quant_launch(struct quant_matvec q, cudaStream_t stream, yalm_error *error)
{
    struct matvec_room room;
    TRY(matvec_room(&room, error));
    struct matvec *m = &q.m;
    constexpr int step = 32 * PACK_COLS<T>, most_steps = MATVEC_DEPTH / ROWS;
    const int all_steps = (m->cols + step - 1) / step;
    m->segments = (all_steps + most_steps - 1) / most_steps;
    m->steps = (all_steps + m->segments - 1) / m->segments;
    m->n_rows = m->rows[0] + m->rows[1] + m->rows[2];
    const int together = q.kind == MATVEC_GATED ? 2 : 1, units = m->n_rows / together;
    const int most_units = room.most_tiles / (together * (m->segments + 1)), needed = (units + most_units - 1) / most_units;
    int blocks = room.blocks < units ? room.blocks : units;
    blocks = blocks > needed ? blocks : needed;
    const size_t rows = (size_t)(units + blocks - 1) / blocks * together;
    const size_t shared = (size_t)room.warps * RING_PLACES<T> * 512 + x_bytes<T>(m->segments * m->steps * step) +
                          sizeof(float) * rows * (m->segments + 1);
    if (shared > room.bytes)
        return error_set(error, YALM_FAILED,
                         "CUDA: found a product of %d columns, which needs %zu bytes of shared memory, expected at most %d",
                         m->cols, shared, (int)room.bytes);
    return LAUNCH_PRODUCT(error, (quant_matvec_kernel<T, ROWS, ALIGNED>), blocks, 32 * room.warps, shared, stream, q);
}

// Two rows for a tile; four where a row of q4 is so short that two would leave half of the copies unused.
template <class T> static yalm_status launch_groups(const struct quant_matvec &q, cudaStream_t stream, yalm_error *error)
{
    if (groups_of(q.m.stride) % 8 != 0)
        return quant_launch<T, 2, false>(q, stream, error);
    if (PACK_COLS<T> == 32 && q.m.cols <= MATVEC_DEPTH / 4 * 32 * PACK_COLS<T>)
        return quant_launch < T, PACK_COLS<T> == 32 ? 4 : 2, true > (q, stream, error);
    return quant_launch<T, 2, true>(q, stream, error);
}

template <class T> static yalm_status launch_floats(const struct quant_matvec &q, cudaStream_t stream, yalm_error *error)
{
    bool aligned = q.m.stride % 16 == 0 && q.m.cols % 16 == 0 && reinterpret_cast<uintptr_t>(q.m.x) % 16 == 0;
    for (int i = 0; i < 3; i++)
        aligned = aligned && reinterpret_cast<uintptr_t>(q.m.w[i]) % 16 == 0;
    return aligned ? quant_launch<T, 2, true>(q, stream, error) : quant_launch<T, 2, false>(q, stream, error);
}

yalm_status quant_matvec_run(const struct matvec *m, enum matvec_kind kind, enum dtype type, cudaStream_t stream,
                             yalm_error *error)
{
    const struct quant_matvec q = {*m, kind};
    switch (type) {
    case DTYPE_Q8:
        return launch_groups<q8>(q, stream, error);
    case DTYPE_Q4:
        return launch_groups<q4>(q, stream, error);
    case DTYPE_Q4N:
        return launch_groups<q4n>(q, stream, error);
    case DTYPE_Q5:
        return launch_groups<q5>(q, stream, error);
    case DTYPE_Q6:
        return launch_groups<q6>(q, stream, error);
    case DTYPE_FP8:
        return launch_floats<fp8_e4m3>(q, stream, error);
    case DTYPE_FP8_E5M2:
        return launch_floats<fp8_e5m2>(q, stream, error);
    default:
        return no_kernel(type, error);
    }
}
