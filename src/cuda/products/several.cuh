// y = W x for up to eight vectors, each with the bits that matvec.cuh gives it alone: W is read once for all of them.
//
// Sums have the order that they have there: a row's segments and steps are the same. A lane adds up its packs in order, a warp
// its lanes, and the block's end the segments. Only who computes what differs. A warp has a segment of two rows and keeps their
// packs in registers. It multiplies them by one token's x after the other's, so each reading of x in shared memory serves both
// rows.
//
// The x of all tokens seldom fits into shared memory: 8 x 4 bytes for each column, with types that have groups 8 x 2. So a
// block takes as many segments of its rows as fit, then the next ones, with their x; sums of all segments stay in shared memory
// to the end.
//
// Bytes: W once, x once for each block. Shared memory is the limit. A warp's pack of 512 bytes comes from memory in 28 clocks
// (H200: 18 bytes a clock for a multiprocessor), and goes through shared memory in 8. Two packs share n tokens' x, which is
// read in 8.5 n clocks (q4, q4n, q5, q6), 8 n (8-bit floats), 4.5 n (q8) or 4 n (16 bits). So 8 tokens take 2.7, 2.6, 1.6 or
// 1.4 times one. Instructions take less: of q4 with 8 tokens some 47 clocks of 76.
#pragma once
#include "cuda/products/matvec_quant.cuh"

enum {
    SEVERAL_ROWS = 2, // of a tile
};

struct several {
    struct quant_matvec q;
    int group; // segments whose x is in shared memory at a time
};

template <class T> constexpr bool PLAIN = !std::is_same_v<T, fp8_e4m3> && !std::is_same_v<T, fp8_e5m2> && !GROUPED<T>;
// Steps of a segment, at most, as the kernels of one vector have them.
template <class T> constexpr int SEVERAL_STEPS = PLAIN<T> ? MATVEC_DEPTH : MATVEC_DEPTH / 2;

// ------------------------------------------------------------------------------------------ a lane's products

// What a lane needs of x for a pack of 16 or 32 bits an element, and its two sums (add_products() in matvec.cuh).
template <class T> struct plain_x {
    float4 words[PACK_COLS<T> / 4];
    __device__ __forceinline__ void load(const uint8_t *xs, int, int step)
    {
        const float *at = reinterpret_cast<const float *>(xs) + step * 32 * PACK_COLS<T> + 4 * (threadIdx.x % 32);
#pragma unroll
        for (int i = 0; i < PACK_COLS<T> / 4; i++)
            words[i] = *reinterpret_cast<const float4 *>(at + 128 * i);
    }
};
template <class T> struct plain_sum {
    float at[2] = {0, 0};
    __device__ __forceinline__ void add(uint4 pack, uint2, const struct plain_x<T> &x, float)
    {
        float w[PACK_COLS<T>];
        unpack<T>(w, pack);
#pragma unroll
        for (int h = 0; h < PACK_COLS<T> / 4; h++) {
            at[0] = fmaf(w[4 * h], x.words[h].x, at[0]);
            at[1] = fmaf(w[4 * h + 1], x.words[h].y, at[1]);
            at[0] = fmaf(w[4 * h + 2], x.words[h].z, at[0]);
            at[1] = fmaf(w[4 * h + 3], x.words[h].w, at[1]);
        }
    }
    __device__ __forceinline__ float total() const
    {
        return at[0] + at[1];
    }
};
template <class T> struct quant_sum {
    float at = 0;
    __device__ __forceinline__ void add(uint4 pack, uint2 more, const lane_x<T> &x, float scale)
    {
        at = add_pack(at, pack, more, x, scale);
    }
    __device__ __forceinline__ float total() const { return at; }
};
template <class T> using several_sum = std::conditional_t<PLAIN<T>, plain_sum<T>, quant_sum<T>>;
template <class T> using several_x = std::conditional_t<PLAIN<T>, plain_x<T>, lane_x<T>>;

// ------------------------------------------------------------------------------------------ x

__device__ __forceinline__ bool x_aligned(const struct matvec &m)
{
    return reinterpret_cast<uintptr_t>(m.x) % 16 == 0 && m.x_pitch % 4 == 0;
}

// This thread's sum of squares of one token's x, in the order of stage_x(), or of stage_integers(): by quads where x is
// aligned.
__device__ __forceinline__ float squares_of(const float *x, int cols, bool quads, bool aligned)
{
    float squares = 0;
    if (quads) {
        for (int c = 4 * (int)threadIdx.x; c < cols; c += 4 * (int)blockDim.x) {
            const float4 four = load_four(x, c, cols, aligned);
            squares = fmaf(four.x, four.x, fmaf(four.y, four.y, fmaf(four.z, four.z, fmaf(four.w, four.w, squares))));
        }
        return squares;
    }
    for (int c = (int)threadIdx.x; c < cols; c += (int)blockDim.x) {
        const float x_c = __ldcg(x + c);
        squares = fmaf(x_c, x_c, squares);
    }
    return squares;
}

// scales[t] = 1 / rms(x[t]); squares: (WARPS) in shared memory. All threads of the block come along.
__device__ __forceinline__ void norm_scales(float *scales, float *squares, const struct matvec &m, bool quads)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int t = 0; t < m.tokens; t++) {
        const float own = m.norm ? warp_sum(squares_of(m.x + (size_t)t * m.x_pitch, m.cols, quads, x_aligned(m))) : 0;
        if (lane == 0)
            squares[t * MATVEC_WARPS + warp] = own;
    }
    __syncthreads();
    if ((int)threadIdx.x < m.tokens) {
        float all = 0;
        for (int w = 0; w < (int)blockDim.x / 32; w++)
            all += squares[threadIdx.x * MATVEC_WARPS + w];
        scales[threadIdx.x] = m.norm ? 1.0f / sqrtf(all / (float)m.cols + m.eps) : 1.0f;
    }
}

// Columns [first, first + padded) of all tokens' x (∘ norm) to shared memory, as the kernels of one vector have them there.
template <class T> __device__ __forceinline__ void stage_several(uint8_t *xs, const struct matvec &m, int first, int padded)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, n_warps = (int)blockDim.x / 32;
    const int n_blocks = padded / X_BLOCK, all = n_blocks * m.tokens; // a warp has a block at a time
    const bool aligned = x_aligned(m);
    for (int begin = warp; begin < all; begin += X_BATCH * n_warps) {
        float4 x[X_BATCH];
#pragma unroll
        for (int i = 0; i < X_BATCH; i++) {
            const int at = min(begin + i * n_warps, all - 1), col = first + at % n_blocks * X_BLOCK + 4 * lane;
            x[i] = load_four(m.x + (size_t)(at / n_blocks) * m.x_pitch, col, m.cols, aligned);
            if (m.norm) {
                const float4 norm = load_four(m.norm, col, m.cols, true);
                x[i] = {x[i].x * norm.x, x[i].y * norm.y, x[i].z * norm.z, x[i].w * norm.w};
            }
        }
#pragma unroll
        for (int i = 0; i < X_BATCH; i++) {
            const int at = begin + i * n_warps, block = at % n_blocks;
            if (at >= all)
                break;
            uint8_t *to = xs + at / n_blocks * x_bytes<T>(padded);
            if constexpr (GROUPED<T>)
                quantise_block<T>(to, padded, block, x[i]);
            else
                *reinterpret_cast<float4 *>(reinterpret_cast<float *>(to) + x_index<T>(block * X_BLOCK + 4 * lane)) = x[i];
        }
    }
}

// ------------------------------------------------------------------------------------------ the kernel

// Pack `number` of a tile, row by row in each step, sets out for its place in the warp's ring.
template <class T, bool ALIGNED>
__device__ __forceinline__ void several_fetch(uint4 *ring, const struct quant_tile<SEVERAL_ROWS> &tile, int number, int steps)
{
    const int r = number % SEVERAL_ROWS, s = number / SEVERAL_ROWS;
    if (s < steps) // fetch_pack() has a place for each pack of a tile
        fetch_pack<T, SEVERAL_ROWS, ALIGNED>(ring - number / MATVEC_DEPTH * MATVEC_DEPTH * 32, tile, r, s);
}

// A warp's part of shared memory, this lane's places: of pack 0, and of the tile's scales, the next tile's being `other` places
// on, 32 or 0 by turns.
struct several_ring {
    uint4 *packs, *scales;
    int other;
};

// Multiplies a tile, whose first step is number `step` of x, while the next one is fetched.
template <class T, bool ALIGNED>
__device__ __forceinline__ void multiply_tile(several_sum<T> (&sum)[SEVERAL_ROWS][SEVERAL], const struct several &p,
                                              const void *const *w, const struct several_ring &ring,
                                              const struct quant_tile<SEVERAL_ROWS> &tile,
                                              const struct quant_tile<SEVERAL_ROWS> &next, const uint8_t *xs, int step)
{
    constexpr int ROWS = SEVERAL_ROWS, most_steps = SEVERAL_STEPS<T>, packs = ROWS * most_steps;
    const struct matvec &m = p.q.m;
    const int lane = (int)threadIdx.x % 32, padded = p.group * m.steps * 32 * PACK_COLS<T>;
    // Unrolled, types with high bytes want more registers than 128.
    // clang-format off
#pragma unroll(HIGH_BYTES<T> ? 1 : most_steps)
    // clang-format on
    for (int s = 0; s < most_steps; s++) {
        uint4 pack[ROWS];
        uint2 more[ROWS];
        float scale[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int k = s * ROWS + r;
            copy_async_wait<MATVEC_DEPTH - 1>();
            if (GROUPED<T> && k == 0) {
                __syncwarp(); // all lanes' scales are here, and nobody reads those of the tile before any more
                fetch_scales<T, ROWS, ALIGNED>(ring.scales + ring.other, p.q, w, next);
            }
            if (s < m.steps) {
                pack[r] = ring.packs[32 * (k % MATVEC_DEPTH)];
                more[r] = {0, 0};
                scale[r] = 1;
                if (HIGH_BYTES<T>)
                    more[r] = load_high<T>(high_place<T>(ring.packs, k));
                if (GROUPED<T>) {
                    const scale_type<T> *of = reinterpret_cast<const scale_type<T> *>(ring.scales - lane + 32 - ring.other);
                    scale[r] = scale_value(of[(r * most_steps + s) * PACK_COLS<T> + lane * PACK_COLS<T> / QUANT_GROUP]);
                }
            }
            several_fetch<T, ALIGNED>(ring.packs, k + MATVEC_DEPTH < packs ? tile : next, (k + MATVEC_DEPTH) % packs, m.steps);
            copy_async_commit();
        }
        if (s >= m.steps)
            continue;
#pragma unroll
        for (int t = 0; t < SEVERAL; t++)
            if (t < m.tokens) {
                several_x<T> x;
                x.load(xs + t * x_bytes<T>(padded), padded, step + s);
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    sum[r][t].add(pack[r], more[r], x, scale[r]);
            }
    }
}

// Writes the tile's sums over the warp to (tokens, rows, segments) from its first row and segment on.
template <class T>
__device__ __forceinline__ void leave_sums(float *sums, const several_sum<T> (&sum)[SEVERAL_ROWS][SEVERAL],
                                           const struct matvec &m, int rows, int rows_left, const float *factors)
{
#pragma unroll
    for (int t = 0; t < SEVERAL; t++)
#pragma unroll
        for (int r = 0; r < SEVERAL_ROWS; r++) {
            if (t >= m.tokens)
                continue;
            const float total = warp_sum(sum[r][t].total());
            if (threadIdx.x % 32 == 0 && r < rows_left)
                sums[(t * rows + r) * m.segments] = ROW_SCALED<T> ? total * factors[r] : total;
        }
}

// Dynamic shared memory: the rings, the tokens' x, their sums (tokens, rows, segments), the rows' factors (rows).
template <class T, bool ALIGNED>
static __global__ void __launch_bounds__(32 * MATVEC_WARPS, 1) several_kernel(const struct several p)
{
    SHARED_DYNAMIC(uint4, rings); // (WARPS, RING_PLACES, 32)
    SHARED_ARRAY(float, squares, SEVERAL *MATVEC_WARPS);
    SHARED_ARRAY(float, scales_of_norm, SEVERAL);
    SHARED_ARRAY(const void *, w, 3);
    constexpr int ROWS = SEVERAL_ROWS;
    const struct matvec &m = p.q.m;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, n_warps = (int)blockDim.x / 32;
    const int together = p.q.kind == MATVEC_GATED ? 2 : 1, n = m.tokens;
    grid_dependency_launch();
    if (threadIdx.x < 3)
        w[threadIdx.x] = m.w[threadIdx.x];
    __syncthreads();

    const int64_t units = m.n_rows / together;
    const int first_row = (int)(units * blockIdx.x / gridDim.x) * together;
    const int last_row = (int)(units * (blockIdx.x + 1) / gridDim.x) * together, rows = last_row - first_row;
    const int width = m.steps * 32 * PACK_COLS<T>, padded = p.group * width;
    uint8_t *xs = reinterpret_cast<uint8_t *>(rings + n_warps * RING_PLACES<T> * 32);
    float *sums = reinterpret_cast<float *>(xs + n * x_bytes<T>(padded)), *factors = sums + n * rows * m.segments;
    uint4 *const packs = rings + warp * RING_PLACES<T> * 32 + lane;
    struct several_ring ring = {packs, packs + MATVEC_DEPTH * 32, 32};
    if (ROW_SCALED<T>)
        for (int row = first_row + (int)threadIdx.x; row < last_row; row += (int)blockDim.x) {
            const struct quant_row of = find_row(p.q, w, row);
            factors[row - first_row] = row_factor<T>(of.w, of.rows, m.stride, of.row);
        }

    for (int begin = 0; begin < m.segments; begin += p.group) {
        const int segments = min(p.group, m.segments - begin), n_tiles = (rows + ROWS - 1) / ROWS * segments;
        const auto tile_of = [&](int number) {
            const int row = first_row + number / segments * ROWS;
            return quant_tile_at<T, ROWS>(p.q, w, row, number < n_tiles ? min(ROWS, last_row - row) : 0,
                                          (begin + number % segments) * width);
        };
        struct quant_tile<ROWS> tile = tile_of(warp);
        if (GROUPED<T>)
            fetch_scales<T, ROWS, ALIGNED>(ring.scales, p.q, w, tile);
#pragma unroll
        for (int k = 0; k < MATVEC_DEPTH; k++) {
            several_fetch<T, ALIGNED>(ring.packs, tile, k, m.steps);
            copy_async_commit();
        }
        if (begin == 0) {
            grid_dependency_wait();
            norm_scales(scales_of_norm, squares, m, GROUPED<T> || ALIGNED);
        } else {
            __syncthreads(); // nobody reads the x of the segments before any more
        }
        stage_several<T>(xs, m, begin * width, padded);
        __syncthreads();

        ring.other = 32;
        for (int number = warp; number < n_tiles; number += n_warps) {
            const int row = number / segments * ROWS, segment = number % segments;
            const struct quant_tile<ROWS> next = tile_of(number + n_warps);
            several_sum<T> sum[ROWS][SEVERAL];
            multiply_tile<T, ALIGNED>(sum, p, w, ring, tile, next, xs, segment * m.steps);
            ring.other = 32 - ring.other;
            tile = next;
            leave_sums<T>(sums + row * m.segments + begin + segment, sum, m, rows, rows - row, factors + row);
        }
        copy_async_wait<0>(); // what was asked for in vain, lest it lands on what is asked for next
    }
    __syncthreads();
    for (int t = 0; t < n; t++)
        finish_rows(m, p.q.kind, first_row, last_row, sums + t * rows * m.segments, scales_of_norm[t], 1, t);
}

// ------------------------------------------------------------------------------------------ launches

// As many tokens at a time as leave room for one segment of their x and some rows' sums.
template <class T, bool ALIGNED> static yalm_status several_passes(struct several p, cudaStream_t stream, yalm_error *error)
{
    struct matvec_room room;
    TRY(matvec_room(&room, error));
    struct matvec *m = &p.q.m;
    constexpr int step = 32 * PACK_COLS<T>, most_steps = SEVERAL_STEPS<T>, least_units = 32;
    const int all_steps = (m->cols + step - 1) / step, tokens = m->tokens;
    m->segments = (all_steps + most_steps - 1) / most_steps;
    m->steps = (all_steps + m->segments - 1) / m->segments;
    m->n_rows = m->rows[0] + m->rows[1] + m->rows[2];
    const int together = p.q.kind == MATVEC_GATED ? 2 : 1, units = m->n_rows / together;
    const size_t rings = (size_t)room.warps * RING_PLACES<T> * 512, x = x_bytes<T>(m->steps * step),
                 room_left = room.bytes - sizeof(float) * (SEVERAL * (MATVEC_WARPS + 1) + 8) - rings;
    const auto unit_bytes = [&](int n) { return sizeof(float) * together * ((size_t)n * m->segments + 1); };
    int n = tokens < SEVERAL ? tokens : SEVERAL;
    while (n > 1 && n * x + least_units * unit_bytes(n) > room_left)
        n /= 2;
    const size_t most_units = (room_left - n * x) / unit_bytes(n);
    const int needed = (int)((units + most_units - 1) / most_units);
    int blocks = room.blocks < units ? room.blocks : units;
    blocks = blocks > needed ? blocks : needed;
    const size_t of_rows = (size_t)((units + blocks - 1) / blocks) * unit_bytes(n), groups = (room_left - of_rows) / (n * x);
    p.group = groups < (size_t)m->segments ? (int)groups : m->segments;
    const size_t shared = rings + p.group * n * x + of_rows;
    float *const y[] = {m->y[0], m->y[1], m->y[2]};
    const float *const first_x = m->x;
    for (int t = 0; t < tokens; t += n) {
        m->tokens = tokens - t < n ? tokens - t : n;
        m->x = first_x + (size_t)t * m->x_pitch;
        for (int i = 0; i < 3; i++)
            m->y[i] = y[i] ? y[i] + (size_t)t * m->rows[i] : NULL;
        TRY(LAUNCH(error, (several_kernel<T, ALIGNED>), blocks, 32 * room.warps, shared, stream, p));
    }
    return YALM_OK;
}

template <class T> static yalm_status several_launch(const struct several *p, cudaStream_t stream, yalm_error *error)
{
    return quant_aligned<T>(p->q.m) ? several_passes<T, true>(*p, stream, error) : several_passes<T, false>(*p, stream, error);
}

yalm_status several_quant_run(const struct several *p, enum dtype type, cudaStream_t stream, yalm_error *error);
