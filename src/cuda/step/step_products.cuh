// The products of a step (step.cuh): each warp keeps the x of its columns in registers while the block's rows pass by in the
// ring.
//
// Instructions for each weight, about: fp16 and bf16 2.2, q8 1.2, q4 1.2, 8-bit floats 3; an H100's multiprocessor gets 13
// bytes of weights a clock (3 TB/s), an H200's 18, and issues 128. q8 and q4 are multiplied as integers, by the rule of
// matvec_quant.cu.
#pragma once
#include <type_traits>

#include "cuda/step/step.cuh"

// ------------------------------------------------------------------------------------------ x

// What a lane keeps of x for one chunk: PACK_COLS columns, as floats or (quant_x) as integers.
template <class T> struct float_chunk {
    float x[PACK_COLS<T>];
};
template <class T> using step_x = std::conditional_t<GROUPED<T>, quant_x<T>, float_chunk<T>>;

// Fours of columns whose norm is under way before x is waited for: more have no room in registers.
enum { STEP_NORM_AHEAD = 8 };

__device__ __forceinline__ float4 step_norm_of(const struct step_phase &p, int col)
{
    return p.norm && col < p.cols ? __ldg(reinterpret_cast<const float4 *>(p.norm + col)) : float4{1, 1, 1, 1};
}

// N times four columns of x, from columns col[i] on, and of the norm; zeros where there are none.
template <int N>
__device__ __forceinline__ void step_fetch_x(float4 (&x)[N], float4 (&norm)[N], const struct step_phase &p, const int (&col)[N])
{
    const float *from[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        from[i] = col[i] < p.cols ? p.x + col[i] : NULL;
        if (N <= STEP_NORM_AHEAD)
            norm[i] = step_norm_of(p, col[i]);
    }
    told_wait_fours(x, from, step_parity(p.x_words, p.launch));
}

// x ∘ norm; the sum of the squares of x is added to `squares`.
__device__ __forceinline__ float4 step_normalise(float4 x, float4 norm, float &squares)
{
    squares = fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, fmaf(x.w, x.w, squares))));
    return {x.x * norm.x, x.y * norm.y, x.z * norm.z, x.w * norm.w};
}

// The lane's columns of each chunk.
template <class T, int CHUNKS>
__device__ __forceinline__ void step_load_x(struct float_chunk<T> (&x)[CHUNKS], const struct step_phase &p,
                                            const struct step_memory &, int first_chunk, bool active, float &squares)
{
    constexpr int FOURS = PACK_COLS<T> / 4, N = CHUNKS * FOURS;
    float4 fours[N], norm[N];
    int col[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        col[i] = active ? ((first_chunk + i / FOURS) * 32 + (int)threadIdx.x % 32) * PACK_COLS<T> + i % FOURS * 4 : p.cols;
    step_fetch_x(fours, norm, p, col);
#pragma unroll
    for (int i = 0; i < N; i++) {
        float *to = x[i / FOURS].x + i % FOURS * 4;
        fours[i] = step_normalise(fours[i], N <= STEP_NORM_AHEAD ? norm[i] : step_norm_of(p, col[i]), squares);
        to[0] = fours[i].x;
        to[1] = fours[i].y;
        to[2] = fours[i].z;
        to[3] = fours[i].w;
    }
}

// The same as integers: all warps together round all of x, in shared memory. What comes next is under way meanwhile.
template <class T, int CHUNKS>
__device__ __forceinline__ void step_load_x(struct quant_x<T> (&x)[CHUNKS], const struct step_phase &p,
                                            const struct step_memory &m, int first_chunk, bool, float &squares)
{
    constexpr int AT_ONCE = 4, STRIDE = AT_ONCE * STEP_WARPS;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int padded = p.shape.chunks * 32 * PACK_COLS<T>, n_blocks = padded / X_BLOCK;
    float4 next[AT_ONCE], norm[AT_ONCE];
    int col[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        col[i] = X_BLOCK * (warp + i * STEP_WARPS) + 4 * lane;
    step_fetch_x(next, norm, p, col);
    for (int first = warp; first < n_blocks; first += STRIDE) {
        float4 now[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            now[i] = step_normalise(next[i], norm[i], squares);
            col[i] += X_BLOCK * STRIDE;
        }
        if (first + STRIDE < n_blocks)
            step_fetch_x(next, norm, p, col);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i * STEP_WARPS < n_blocks)
                quantise_block<T>(m.x, padded, first + i * STEP_WARPS, now[i]);
    }
    barrier_sync(STEP_BARRIER, STEP_THREADS);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        x[i].load(m.x, padded, min(first_chunk + i, p.shape.chunks - 1));
}

// ------------------------------------------------------------------------------------------ products

template <class T>
__device__ __forceinline__ float add_pack(float sum, uint4 pack, uint2, const struct float_chunk<T> &x, float)
{
    const unsigned words[4] = {pack.x, pack.y, pack.z, pack.w};
    float other = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (PACK_COLS<T> == 8) {
            const float2 both = word_to_floats<T>(words[i]);
            sum = fmaf(both.x, x.x[2 * i], sum);
            other = fmaf(both.y, x.x[2 * i + 1], other);
        } else {
            const float2 even = word_to_floats<half>(even_bytes<T>(words[i])),
                         odd = word_to_floats<half>(odd_bytes<T>(words[i]));
            sum = fmaf(even.x, x.x[4 * i], sum);
            other = fmaf(odd.x, x.x[4 * i + 1], other);
            sum = fmaf(even.y, x.x[4 * i + 2], sum);
            other = fmaf(odd.y, x.x[4 * i + 3], other);
        }
    }
    return sum + other;
}

// A lane's values of up to four rows become the rows' sums over the warp: every `32 / ROWS`-th lane has one, whose number is
// returned.
template <int ROWS> __device__ __forceinline__ int step_sum_rows(float (&value)[ROWS])
{
    const int lane = (int)threadIdx.x % 32;
    int row = 0;
#pragma unroll
    for (int half = ROWS / 2, step = 16; half > 0; half /= 2, step /= 2) {
        const bool upper = lane & step;
#pragma unroll
        for (int i = 0; i < half; i++) {
            const float keep = upper ? value[i + half] : value[i], give = upper ? value[i] : value[i + half];
            value[i] = keep + __shfl_xor_sync(0xffffffffu, give, step);
        }
        row += upper ? half : 0;
    }
#pragma unroll
    for (int step = 16 / ROWS; step > 0; step /= 2)
        value[0] += __shfl_xor_sync(0xffffffffu, value[0], step);
    return row;
}

// ------------------------------------------------------------------------------------------ what becomes of the sums

// What a row's end needs besides its sum: fetched as its batch begins.
struct step_row {
    int part, row; // row -1: none
    float bias, factor, old;
};

__device__ __forceinline__ float step_row_factor(enum dtype type, const void *w, int rows, int cols, int row)
{
    return QUANT_CALL(type, 1.0f, row_factor, w, rows, cols, row);
}

template <bool ALL>
__device__ __forceinline__ struct step_row step_row_of(const struct step_phase &p, const struct step_batch &b, int part,
                                                       const struct step_choice *chosen)
{
    struct step_row r = {part, -1, 0, 1, 0};
    const int i = (int)threadIdx.x;
    if (i >= b.n)
        return r;
    if (p.work == STEP_GATED)
        r.row = step_row_in<ALL>(p, b) + i;
    else
        step_find_row(p, b.first + i, &r.part, &r.row);
    const float *bias = step_bias<ALL>(p, chosen, b, r.part);
    if (bias)
        r.bias = __ldg(bias + r.row);
    r.factor = step_row_factor(p.type, step_matrix<ALL>(p, chosen, b, r.part), p.rows[r.part], p.cols, r.row);
    if (ALL && p.weigh)
        r.factor *= 1.0f / (1.0f + expf(-told_wait(p.weigh, step_parity(p.more_words, p.launch))));
    if (ALL && p.table && p.work == STEP_ADD) {
        r.factor *= chosen[p.slot].weight;
        r.bias *= chosen[p.slot].weight;
    }
    if (p.work == STEP_ADD)
        r.old = ALL && p.old_words == STEP_PLAIN ? p.old[r.row] : told_wait(p.old + r.row, step_parity(p.old_words, p.launch));
    return r;
}

__device__ __forceinline__ float step_sum_of(const float *sums, int columns, int row)
{
    float sum = 0;
#pragma unroll
    for (int c = 0; c < STEP_WARPS; c++)
        sum += c < columns ? sums[c * (STEP_SUMS + 1) + row] : 0.0f;
    return sum;
}

// 1 / rms(x) from the warps' sums of squares.
__device__ __forceinline__ float step_norm_scale(const struct step_phase &p, const float *squares)
{
    float all = 0;
#pragma unroll
    for (int w = 0; w < STEP_WARPS; w++)
        all += squares[w];
    return p.norm ? 1.0f / sqrtf(all / (float)p.cols + p.eps) : 1.0f;
}

template <bool ALL>
__device__ __forceinline__ void step_finish_row(const struct step_phase &p, const struct step_batch &b,
                                                const struct step_row &r, const struct step_row &up, const float *sums,
                                                const float *squares)
{
    if (r.row < 0)
        return;
    const int i = (int)threadIdx.x;
    const float scale = step_norm_scale(p, squares);
    float value = step_sum_of(sums, p.shape.columns, i) * r.factor * scale + r.bias;
    if (p.work == STEP_GATED) {
        const float other = step_sum_of(sums, p.shape.columns, b.n + i) * up.factor * scale + up.bias;
        value = gated_unit(ALL ? p.activation : ACTIVATION_SILU, value, other);
    }
    value += r.old;
    if (ALL && p.scale)
        value *= __ldg(p.scale);
    if (ALL && p.cap > 0)
        value = capped(value, p.cap);
    float *y = p.y[r.part] + (p.work == STEP_GATED ? b.first + i : r.row);
    if (p.y_words[r.part] == STEP_PLAIN)
        *y = value;
    else
        told_store(y, value, step_parity(p.y_words[r.part], p.launch));
}

// ------------------------------------------------------------------------------------------ a product

// Bulk copies take whole 16 bytes: rows' scales come with so many bytes before them that are not theirs.
__device__ __forceinline__ int step_scales_skew(const struct step_phase &p, int row)
{
    return (int)((size_t)row * p.shape.scale_bytes % 16);
}

// Where a warp's columns and rows are, and what every stage needs, in registers.
template <int CHUNKS> struct step_place {
    int column, first_row, next_row;       // rows of a stage: `EACH` from first_row on, and so every next_row
    int row_bytes, row_scales, stage_rows; // of a stage
    int pack[CHUNKS];                      // lanes beyond the last one have no x, and read what is there
};

template <class T, int CHUNKS> __device__ __forceinline__ struct step_place<CHUNKS> step_place_of(const struct step_phase &p) {
    constexpr int EACH = step_rows_each(CHUNKS);
    const int warp = (int)threadIdx.x / 32, group = warp / p.shape.columns;
    struct step_place<CHUNKS> at;
    at.column = warp % p.shape.columns;
    at.row_bytes = p.shape.row_bytes;
    at.row_scales = p.shape.scale_bytes / (int)sizeof(scale_type<T>);
    at.stage_rows = p.shape.rows;
    at.first_row = group < p.shape.groups ? group * EACH : at.stage_rows;
    at.next_row = p.shape.groups * EACH;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        at.pack[i] = min((at.column * CHUNKS + i) * 32 + (int)threadIdx.x % 32, p.cols / PACK_COLS<T> - 1);
    return at;
}

// A stage of n rows: each one's sum over the warp's columns.
template <class T, int CHUNKS>
__device__ __forceinline__ void step_multiply(float *sums, const struct step_phase &p, const struct step_place<CHUNKS> &at,
                                              const step_x<T> (&x)[CHUNKS], const uint8_t *slot, const scale_type<T> *scales,
                                              int n)
{
    constexpr int EACH = step_rows_each(CHUNKS);
    for (int first = at.first_row; first < n; first += at.next_row) {
        float value[EACH] = {};
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
#pragma unroll
            for (int r = 0; r < EACH; r++) {
                const int of = min(first + r, n - 1);
                const uint8_t *row = slot + of * at.row_bytes;
                const uint4 weights = *reinterpret_cast<const uint4 *>(row + 16 * at.pack[i]);
                uint2 more = {0, 0};
                if (HIGH_BYTES<T>)
                    more = load_high<T>(row + p.cols / 2 + HIGH_BYTES<T> * at.pack[i]);
                float scale = 1;
                if (GROUPED<T>)
                    scale = scale_value(scales[of * at.row_scales + at.pack[i] * PACK_COLS<T> / QUANT_GROUP]);
                value[r] = add_pack(value[r], weights, more, x[i], scale);
            }
        }
        const int of = first + step_sum_rows<EACH>(value);
        if ((int)threadIdx.x % (32 / EACH) == 0 && of < n)
            sums[of] = value[0];
    }
}

// The phase's x, and the squares of what the warp has of it.
template <class T, int CHUNKS>
__device__ __forceinline__ void step_begin_x(step_x<T> (&x)[CHUNKS], float *squares, const struct step_phase &p,
                                             const struct step_memory &m, const struct step_place<CHUNKS> &at)
{
    const int warp = (int)threadIdx.x / 32, group = warp / p.shape.columns;
    float own = 0;
    step_load_x(x, p, m, at.column * CHUNKS, group < p.shape.groups, own);
    own = warp_sum(own);
    if (threadIdx.x % 32 == 0)
        squares[warp] = GROUPED<T> || group == 0 ? own : 0.0f; // other groups have the same columns again
}

// What the computing warps do of it, each with CHUNKS of columns.
template <bool ALL, class T, int CHUNKS>
__device__ __forceinline__ void step_rows(const struct step_phase &p, struct step_progress &now, const struct step_launch &l,
                                          const struct step_memory &m)
{
    struct step_batch b = step_first_batch<ALL>(p);
    if (b.n <= 0) {
        if (ALL)
            step_pass();
        return;
    }
    const struct step_place<CHUNKS> at = step_place_of<T, CHUNKS>(p);
    const int n_slots = l.n_slots, slot_bytes = l.slot_bytes;
    float *squares = m.squares + now.phase % 2 * STEP_WARPS;
    struct step_row row = step_row_of<ALL>(p, b, 0, m.chosen), up = row;
    if (p.work == STEP_GATED)
        up = step_row_of<ALL>(p, b, 1, m.chosen);
    step_x<T> x[CHUNKS];
    step_begin_x<T>(x, squares, p, m, at);
    for (bool first_batch = true; b.n > 0; step_batch_set<ALL>(b, p, b.first + b.n), now.batches++) {
        float *sums = m.sums + now.batches % 2 * STEP_WARPS * (STEP_SUMS + 1);
        if (!first_batch) {
            row = step_row_of<ALL>(p, b, 0, m.chosen);
            if (p.work == STEP_GATED)
                up = step_row_of<ALL>(p, b, 1, m.chosen);
        }
        first_batch = false;
        const int n_rows = step_batch_rows(p, b);
        for (int done = 0; done < n_rows;) {
            const struct step_run run = step_run_at<ALL>(p, b, done);
            for (int left = run.n, n; left > 0; left -= n, done += n) {
                n = min(left, at.stage_rows);
                const uint8_t *slot = m.ring + now.ring.slot * slot_bytes;
                const scale_type<T> *scales = reinterpret_cast<const scale_type<T> *>(
                    slot + n * at.row_bytes + (GROUPED<T> ? step_scales_skew(p, run.row + run.n - left) : 0));
                arrivals_wait(m.full + now.ring.slot, now.ring.parity);
                step_multiply<T>(sums + at.column * (STEP_SUMS + 1) + done, p, at, x, slot, scales, n);
                __syncwarp();
                if (threadIdx.x % 32 == 0)
                    arrivals_arrive(m.empty + now.ring.slot);
                step_ring_next(now.ring, n_slots);
            }
        }
        barrier_sync(STEP_BARRIER, STEP_THREADS);
        step_finish_row<ALL>(p, b, row, up, sums, squares);
    }
}

template <class T, bool ALL>
__device__ __forceinline__ void step_product_of(std::bool_constant<ALL>, const struct step_phase &p, struct step_progress &now,
                                                const struct step_launch &l, const struct step_memory &m)
{
    switch ((p.shape.chunks + p.shape.columns - 1) / p.shape.columns) {
    case 1:
        return step_rows<ALL, T, 1>(p, now, l, m);
    case 2:
        return step_rows<ALL, T, 2>(p, now, l, m);
    case 3:
        return step_rows<ALL, T, 3>(p, now, l, m);
    case 4:
        return step_rows<ALL, T, 4>(p, now, l, m);
    case 5:
        if constexpr (STEP_MOST_CHUNKS<T> == 8)
            return step_rows<ALL, T, 5>(p, now, l, m);
        break;
    case 6:
        if constexpr (STEP_MOST_CHUNKS<T> == 8)
            return step_rows<ALL, T, 6>(p, now, l, m);
        break;
    case 7:
        if constexpr (STEP_MOST_CHUNKS<T> == 8)
            return step_rows<ALL, T, 7>(p, now, l, m);
        break;
    case 8:
        if constexpr (STEP_MOST_CHUNKS<T> == 8)
            return step_rows<ALL, T, 8>(p, now, l, m);
        break;
    }
}

template <bool ALL>
__device__ __forceinline__ void step_product(const struct step_phase &p, struct step_progress &now, const struct step_launch &l,
                                             const struct step_memory &m)
{
    switch (p.type) {
    case DTYPE_FP16:
        return step_product_of<half>(std::bool_constant<ALL>(), p, now, l, m);
    case DTYPE_BF16:
        return step_product_of<__nv_bfloat16>(std::bool_constant<ALL>(), p, now, l, m);
        QUANT_CASES(step_product_of, std::bool_constant<ALL>(), p, now, l, m)
    default:
        return;
    }
}

// What the reader does of it: one thread. Only so much is on its way at a time as memory needs to be busy: what waits in its
// queues would make all else wait that blocks tell each other.
template <bool ALL>
__device__ __forceinline__ void step_read(const struct step_phase &p, struct step_reading &now, const struct step_launch &l,
                                          const struct step_memory &m)
{
    const struct step_choice *chosen = m.chosen + STEP_MOST_ACTIVE;
    const unsigned row_bytes = p.shape.row_bytes, scale_bytes = p.shape.scale_bytes;
    const int stage_rows = p.shape.rows;
    for (struct step_batch b = step_first_batch<ALL>(p); b.n > 0; step_batch_set<ALL>(b, p, b.first + b.n)) {
        const int n_rows = step_batch_rows(p, b);
        for (int at = 0; at < n_rows;) {
            const struct step_run run = step_run_at<ALL>(p, b, at);
            const uint8_t *matrix = step_matrix<ALL>(p, chosen, b, run.part), *w = matrix + (size_t)run.row * row_bytes,
                          *scales = matrix + (size_t)p.rows[run.part] * row_bytes + (size_t)run.row * scale_bytes;
            for (int done = 0; done < run.n; done += stage_rows) {
                const unsigned n = min(run.n - done, stage_rows);
                uint8_t *slot = m.ring + now.ring.slot * l.slot_bytes;
                uint64_t *full = m.full + now.ring.slot;
                if (now.ahead == l.n_ahead) {
                    arrivals_wait(m.full + now.landed.slot, now.landed.parity);
                    step_ring_next(now.landed, l.n_slots);
                    now.ahead--;
                }
                now.ahead++;
                arrivals_wait(m.empty + now.ring.slot, now.ring.parity ^ 1);
                const unsigned skew = step_scales_skew(p, run.row + done), own = skew + n * scale_bytes;
                // What is more than its own lies in the matrix, or just behind.
                const unsigned with_scales = (own + 15) / 16 * 16;
                arrivals_expect(full, n * row_bytes + with_scales);
                copy_bulk(slot, w + (size_t)done * row_bytes, n * row_bytes, full);
                if (scale_bytes > 0)
                    copy_bulk(slot + n * row_bytes, scales + (size_t)done * scale_bytes - skew, with_scales, full);
                step_ring_next(now.ring, l.n_slots);
            }
            at += run.n;
        }
    }
}
