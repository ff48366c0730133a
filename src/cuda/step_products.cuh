// The products of a step (step.cuh): each warp keeps the x of its columns in registers while the block's rows pass by in the ring.
//
// Instructions for each weight, about: fp16 and bf16 2.2, q8 1.2, q4 1.2, 8-bit floats 3; an H100's multiprocessor gets 13 bytes of weights a clock
// (3 TB/s), an H200's 18, and issues 128. q8 and q4 are multiplied as integers, by the rule of matvec_quant.cu.
#pragma once
#include "cuda/step.cuh"

// Chunks that a warp can have: their x takes about 64 registers of a lane.
template <class T> constexpr int STEP_MOST_CHUNKS = PACK_COLS<T> == 8 ? 8 : 4;
template <> inline constexpr int STEP_MOST_CHUNKS<q8> = 8;

// ------------------------------------------------------------------------------------------ x in registers

// What a lane keeps of x for one chunk: PACK_COLS columns.
template <class T> struct step_x { // fp16, bf16, 8-bit floats
    float x[PACK_COLS<T>];
};
template <> struct step_x<q8> {
    unsigned high[4], low[4];
    float scale;
};
template <> struct step_x<q4> { // of even columns, of odd ones
    unsigned high[2][4], low[2][4];
    float scale;
};

// Columns [col, col + n) of x ∘ norm, zeros where there are none; adds their squares, without norm, to the sum.
template <int N>
__device__ __forceinline__ void step_load_columns(float (&to)[N], const struct step_phase &p, int col, float &squares)
{
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        float4 x = {0, 0, 0, 0}, norm = {1, 1, 1, 1};
        if (col < p.cols) {
            x = __ldcg(reinterpret_cast<const float4 *>(p.x + col + i));
            if (p.norm)
                norm = __ldg(reinterpret_cast<const float4 *>(p.norm + col + i));
        }
        squares = fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, fmaf(x.w, x.w, squares))));
        to[i] = x.x * norm.x;
        to[i + 1] = x.y * norm.y;
        to[i + 2] = x.z * norm.z;
        to[i + 3] = x.w * norm.w;
    }
}

// x as 16-bit integers with one scale for each 128 columns, which LANES lanes have together: as quantise_block() in matvec_quant.cu. The scale.
template <int N, int LANES> __device__ __forceinline__ float step_round(int (&q)[N], const float (&x)[N])
{
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        bits = max(bits, __float_as_uint(x[i]) & 0x7fffffffu);
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2)
        bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, step));
    constexpr float most_integer = 32512; // 127 * 256
    const float most = __uint_as_float(bits), inverse = most > 1e-30f ? most_integer / most : 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float whole = rintf(x[i] * inverse);
        q[i] = fabsf(whole) <= most_integer ? (int)whole : 0;
    }
    return most / most_integer;
}

__device__ __forceinline__ void step_split(const int (&q)[4], unsigned *high, unsigned *low)
{
    unsigned h = 0, l = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int lower = (int8_t)q[i];
        l |= ((unsigned)lower & 0xff) << 8 * i;
        h |= ((unsigned)((q[i] - lower) >> 8) & 0xff) << 8 * i;
    }
    *high = h;
    *low = l;
}

template <class T>
__device__ __forceinline__ void step_load_x(struct step_x<T> &x, const struct step_phase &p, int col, float &squares)
{
    step_load_columns(x.x, p, col, squares);
}
__device__ __forceinline__ void step_load_x(struct step_x<q8> &x, const struct step_phase &p, int col, float &squares)
{
    float columns[16];
    int q[16];
    step_load_columns(columns, p, col, squares);
    x.scale = step_round<16, 8>(q, columns);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int four[4] = {q[4 * i], q[4 * i + 1], q[4 * i + 2], q[4 * i + 3]};
        step_split(four, &x.high[i], &x.low[i]);
    }
}
__device__ __forceinline__ void step_load_x(struct step_x<q4> &x, const struct step_phase &p, int col, float &squares)
{
    float columns[32];
    int q[32];
    step_load_columns(columns, p, col, squares);
    x.scale = step_round<32, 4>(q, columns) * 0.0625f; // q4's weights come out 16 times too large
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int even[4] = {q[8 * i], q[8 * i + 2], q[8 * i + 4], q[8 * i + 6]};
        const int odd[4] = {q[8 * i + 1], q[8 * i + 3], q[8 * i + 5], q[8 * i + 7]};
        step_split(even, &x.high[0][i], &x.low[0][i]);
        step_split(odd, &x.high[1][i], &x.low[1][i]);
    }
}

// ------------------------------------------------------------------------------------------ products

__device__ __forceinline__ int step_dot(uint4 a, const unsigned (&b)[4], int sum)
{
    sum = __dp4a((int)a.x, (int)b[0], sum);
    sum = __dp4a((int)a.y, (int)b[1], sum);
    sum = __dp4a((int)a.z, (int)b[2], sum);
    return __dp4a((int)a.w, (int)b[3], sum);
}

// sum + pack · x, the pack's group scaled by `scale`.
__device__ __forceinline__ float step_add(float sum, uint4 pack, const struct step_x<q8> &x, float scale)
{
    const int total = 256 * step_dot(pack, x.high, 0) + step_dot(pack, x.low, 0);
    return fmaf((float)total, scale * x.scale, sum);
}
__device__ __forceinline__ float step_add(float sum, uint4 pack, const struct step_x<q4> &x, float scale)
{
    constexpr unsigned upper = 0xf0f0f0f0u;
    const uint4 even = {pack.x << 4 & upper, pack.y << 4 & upper, pack.z << 4 & upper, pack.w << 4 & upper};
    const uint4 odd = {pack.x & upper, pack.y & upper, pack.z & upper, pack.w & upper};
    const int high = step_dot(odd, x.high[1], step_dot(even, x.high[0], 0)),
              low = step_dot(odd, x.low[1], step_dot(even, x.low[0], 0));
    return fmaf((float)(256 * high + low), scale * x.scale, sum);
}
template <class T> __device__ __forceinline__ float step_add(float sum, uint4 pack, const struct step_x<T> &x, float)
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
            const float2 even = word_to_floats<half>(even_bytes<T>(words[i])), odd = word_to_floats<half>(odd_bytes<T>(words[i]));
            sum = fmaf(even.x, x.x[4 * i], sum);
            other = fmaf(odd.x, x.x[4 * i + 1], other);
            sum = fmaf(even.y, x.x[4 * i + 2], sum);
            other = fmaf(odd.y, x.x[4 * i + 3], other);
        }
    }
    return sum + other;
}

// A lane's values of up to four rows become the rows' sums over the warp: every `32 / ROWS`-th lane has one, whose number is returned.
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

__device__ __forceinline__ struct step_row step_row_of(const struct step_phase &p, const struct step_stages &s, int part) {
    struct step_row r = {part, -1, 0, 1, 0};
    const int i = (int)threadIdx.x;
    if (i >= s.n)
        return r;
    if (p.work == STEP_GATED)
        r.row = s.first + i;
    else
        step_find_row(p, s.first + i, &r.part, &r.row);
    if (p.bias[r.part])
        r.bias = __ldg(p.bias[r.part] + r.row);
    if (p.type == DTYPE_FP8)
        r.factor = row_factor<fp8_e4m3>(p.w[r.part], p.rows[r.part], p.cols, r.row);
    if (p.work == STEP_ADD)
        r.old = __ldcg(p.y[0] + r.row);
    return r;
}

__device__ __forceinline__ float step_sum_of(const float *sums, int columns, int row)
{
    float sum = 0;
    for (int c = 0; c < columns; c++)
        sum += sums[c * (STEP_SUMS + 1) + row];
    return sum;
}

__device__ __forceinline__ float step_silu(float x)
{
    return x / (1.0f + expf(-x));
}

__device__ __forceinline__ void step_finish_row(const struct step_phase &p, int n, const struct step_row &r,
                                                const struct step_row &up, const float *sums, float scale)
{
    if (r.row < 0)
        return;
    float value = step_sum_of(sums, p.shape.columns, (int)threadIdx.x) * r.factor * scale + r.bias;
    if (p.work == STEP_GATED)
        value = step_silu(value) * (step_sum_of(sums, p.shape.columns, n + (int)threadIdx.x) * up.factor * scale + up.bias);
    p.y[r.part][r.row] = r.old + value;
}

// 1 / rms(x) from the warps' sums of squares.
__device__ __forceinline__ float step_norm_scale(const struct step_phase &p, const float *squares)
{
    if (!p.norm)
        return 1;
    float all = 0;
    for (int c = 0; c < p.shape.columns; c++)
        all += squares[c];
    return 1.0f / sqrtf(all / (float)p.cols + p.eps);
}

// ------------------------------------------------------------------------------------------ a product

// What the computing warps do of it, each with CHUNKS of columns.
template <class T, int CHUNKS>
__device__ __forceinline__ void step_rows(const struct step_phase &p, int number, struct step_ring &ring,
                                          const struct step_launch &l, const struct step_memory &m)
{
    constexpr int EACH = step_rows_each(CHUNKS);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int column = warp % p.shape.columns, group = warp / p.shape.columns;
    const bool active = group < p.shape.groups;
    const int chunk = column * CHUNKS;
    float *squares = m.squares + number % 2 * STEP_WARPS, own_squares = 0;
    struct step_x<T> x[CHUNKS];
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        step_load_x(x[i], p, active ? ((chunk + i) * 32 + lane) * PACK_COLS<T> : p.cols, own_squares);
    if (p.norm) {
#pragma unroll
        for (int step = 16; step > 0; step /= 2)
            own_squares += __shfl_xor_sync(0xffffffffu, own_squares, step);
        if (lane == 0 && group == 0)
            squares[column] = own_squares;
    }

    struct step_stages s = step_stages_of(p, number);
    int batch = 0;
    const int last_pack = p.cols / PACK_COLS<T> - 1; // lanes beyond it have no x, and read what is there
    for (; s.n > 0; batch++) {
        float *sums = m.work + (batch + number) % 2 * STEP_WARPS * (STEP_SUMS + 1);
        const struct step_row row = step_row_of(p, s, 0);
        struct step_row up = row;
        if (p.work == STEP_GATED)
            up = step_row_of(p, s, 1);
        while (s.at < s.n_rows) {
            const struct step_stage stage = step_next_stage(p, s);
            arrivals_wait(m.full + ring.slot, ring.parity);
            const uint8_t *slot = m.ring + (size_t)ring.slot * l.slot_bytes;
            const half *scales = reinterpret_cast<const half *>(slot + stage.n * p.shape.row_bytes);
            for (int first = group * EACH; active && first < stage.n; first += p.shape.groups * EACH) {
                float value[EACH] = {};
#pragma unroll
                for (int i = 0; i < CHUNKS; i++) {
                    const int pack = min((chunk + i) * 32 + lane, last_pack);
#pragma unroll
                    for (int r = 0; r < EACH; r++) {
                        const int at = min(first + r, stage.n - 1);
                        const uint4 weights = *reinterpret_cast<const uint4 *>(slot + at * p.shape.row_bytes + 16 * pack);
                        float scale = 1;
                        if (GROUPED<T>)
                            scale = __half2float(scales[at * (p.shape.scale_bytes / 2) + pack * PACK_COLS<T> / QUANT_GROUP]);
                        value[r] = step_add(value[r], weights, x[i], scale);
                    }
                }
                const int of = first + step_sum_rows<EACH>(value);
                if (lane % (32 / EACH) == 0 && of < stage.n)
                    sums[column * (STEP_SUMS + 1) + stage.at + of] = value[0];
            }
            __syncwarp();
            if (lane == 0)
                arrivals_arrive(m.empty + ring.slot);
            step_ring_next(ring, l.n_slots);
        }
        barrier_sync(STEP_BARRIER, STEP_THREADS);
        step_finish_row(p, s.n, row, up, sums, step_norm_scale(p, squares));
        s.first += s.n;
        step_batch(s, p.work == STEP_GATED);
    }
}

template <class T>
__device__ __forceinline__ void step_product_of(const struct step_phase &p, int number, struct step_ring &ring,
                                                const struct step_launch &l, const struct step_memory &m)
{
    switch ((p.shape.chunks + p.shape.columns - 1) / p.shape.columns) {
    case 1:
        return step_rows<T, 1>(p, number, ring, l, m);
    case 2:
        return step_rows<T, 2>(p, number, ring, l, m);
    case 3:
        return step_rows<T, 3>(p, number, ring, l, m);
    case 4:
        return step_rows<T, 4>(p, number, ring, l, m);
    case 5:
        if constexpr (STEP_MOST_CHUNKS<T> == 8)
            return step_rows<T, 5>(p, number, ring, l, m);
        break;
    case 6:
        if constexpr (STEP_MOST_CHUNKS<T> == 8)
            return step_rows<T, 6>(p, number, ring, l, m);
        break;
    case 7:
        if constexpr (STEP_MOST_CHUNKS<T> == 8)
            return step_rows<T, 7>(p, number, ring, l, m);
        break;
    case 8:
        if constexpr (STEP_MOST_CHUNKS<T> == 8)
            return step_rows<T, 8>(p, number, ring, l, m);
        break;
    }
}

__device__ static inline void step_product(const struct step_phase &p, int number, struct step_ring &ring,
                                           const struct step_launch &l, const struct step_memory &m)
{
    switch (p.type) {
    case DTYPE_FP16:
        return step_product_of<half>(p, number, ring, l, m);
    case DTYPE_BF16:
        return step_product_of<__nv_bfloat16>(p, number, ring, l, m);
    case DTYPE_Q8:
        return step_product_of<q8>(p, number, ring, l, m);
    case DTYPE_Q4:
        return step_product_of<q4>(p, number, ring, l, m);
    case DTYPE_FP8:
        return step_product_of<fp8_e4m3>(p, number, ring, l, m);
    case DTYPE_FP8_E5M2:
        return step_product_of<fp8_e5m2>(p, number, ring, l, m);
    default:
        return;
    }
}

// What the reader does of it: one thread.
__device__ static inline void step_read(const struct step_phase &p, int number, struct step_ring &ring,
                                        const struct step_launch &l, const struct step_memory &m)
{
    struct step_stages s = step_stages_of(p, number);
    while (s.n > 0) {
        while (s.at < s.n_rows) {
            const struct step_stage stage = step_next_stage(p, s);
            const unsigned bytes = stage.n * p.shape.row_bytes, scales = stage.n * p.shape.scale_bytes;
            const uint8_t *w = p.w[stage.part];
            uint8_t *slot = m.ring + (size_t)ring.slot * l.slot_bytes;
            uint64_t *full = m.full + ring.slot;
            arrivals_wait(m.empty + ring.slot, ring.parity ^ 1);
            arrivals_expect(full, bytes + scales);
            copy_bulk(slot, w + (size_t)stage.row * p.shape.row_bytes, bytes, full);
            if (scales > 0)
                copy_bulk(slot + bytes,
                          w + (size_t)p.rows[stage.part] * p.shape.row_bytes + (size_t)stage.row * p.shape.scale_bytes, scales,
                          full);
            step_ring_next(ring, l.n_slots);
        }
        s.first += s.n;
        step_batch(s, p.work == STEP_GATED);
    }
}
