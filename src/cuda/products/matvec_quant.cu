// y = W x for one vector, of quantised weights: as matvec.cuh, and bound as there by reading W once, but with less room for
// everything else. On a multiprocessor of an H200 18 bytes of weights arrive in a clock (4.3 TB/s / 132 / 1.8 GHz): 34 weights
// of q4 and the scales that they share. Two things make that fit:
//
// Integers. q8 and q4 are multiplied by x as 16-bit integers, with one scale for each 128 columns, as on the CPU (what that
// loses, and why not 8 bits, is in docs/quantisation.md). x = scale * (256 high + low), both signed bytes, so that a dp4a
// multiplies four weights by a half of x each: 16 of them for a lane's 32 weights of q4 in 16 bytes. A q4 nibble in the upper
// half of a byte is 16 times its value, with its sign; so one AND makes four weights of the odd columns, a shift and an AND
// those of the even ones, and x lies in shared memory apart likewise. About 45 instructions for 32 weights: a third of what a
// multiprocessor issues while they arrive. 8-bit floats become fp16 by moving bits, and are multiplied in fp32: about 60
// instructions for 16 weights, half of what it issues.
//
// Tiles of several rows. x in shared memory would be read once for each row: 64 bytes for each 16 of q4 or 8-bit floats, of the
// 128 a clock that shared memory gives. So a tile is a segment of ROWS rows, with DEPTH / ROWS steps in each, and reads x once:
// of the 128 bytes 18 are weights arriving, 18 weights read, and 36 x.
//
// q4n, q5 and q6 become bytes in the columns' order first: by look-ups in four registers, __byte_perm (q4n: 81 instructions for
// 32 weights), or by bits (q6). What a group has in the second plane is one more copy of 4 or 8 bytes, to a ring of its own.
//
// A tile's scales are one more 16-byte copy for each lane, or half as many, on the way with its first packs. Rows' scales (fp8)
// are fetched while the first packs are under way.
#include "cuda/products/matvec_quant.cuh"

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

// A tile has two rows. It has four where a row is so short that two would leave half of the copies unused, unless there is a
// second plane, for which there are no registers.
template <class T> static yalm_status launch(const struct quant_matvec &q, cudaStream_t stream, yalm_error *error)
{
    constexpr int short_rows = GROUPED<T> && PACK_COLS<T> == 32 && HIGH_BYTES<T> == 0 ? 4 : 2;
    if (!quant_aligned<T>(q.m))
        return quant_launch<T, 2, false>(q, stream, error);
    if (q.m.cols <= MATVEC_DEPTH / 4 * 32 * PACK_COLS<T>)
        return quant_launch<T, short_rows, true>(q, stream, error);
    return quant_launch<T, 2, true>(q, stream, error);
}

yalm_status quant_matvec_run(const struct matvec *m, enum matvec_kind kind, enum dtype type, cudaStream_t stream,
                             yalm_error *error)
{
    const struct quant_matvec q = {*m, kind};
    switch (type) {
        QUANT_CASES(launch, q, stream, error)
    default:
        return no_kernel(type, error);
    }
}
