// y = x wᵀ for up to 8 tokens with a quantised matrix: bound, as one token's product is, by reading the matrix once. (By slabs
// of fp16, as many tokens' products go, 4.6 to 5.1 bytes would move for each weight instead of 0.56 to 1.06.)
//
// One multiply-add for each weight and token would be too many: an H200's multiprocessor gets 34 weights of q4 a clock
// (matvec_quant.cu), which with 8 tokens are 272 multiply-adds of the 128 that it has. The tensor cores' smallest product has 8
// columns: one mma of 16 x 8 x 16 takes 256 weights with all tokens at once, however few these are. So weights become fp16 in
// registers, exactly (quants are integers, 8-bit floats are fp16 numbers), are multiplied by x in fp16, and a group's sum joins
// the others times its scale, in fp32: nothing but x is rounded. Instructions for each weight: q4 1.1 to make it fp16, 0.1 of
// mma and fragments, 0.4 of scales: 34 * 1.6 = 55 of the 128 a clock; q8 1.8, 8-bit floats 2, at half as many weights a clock.
//
// A block's 16 warps share a row: each has a slice of 8 groups (256 columns), whose x it keeps in registers as fragments (32
// for 8 tokens) while all of the block's rows pass by, 16 at a time. Then warps add up by way of shared memory, always in the
// same order. Rows of more than 16 slices take several passes. So x is read once for each block, 16 bytes a column: 64 KB for
// 4,096 columns on each multiprocessor, from the L2 cache while the first weights come from memory; with two blocks it would be
// twice that, therefore there is one.
//
// A warp always has 4 KB of weights on their way (cp.async; of q5 and q6, which need room for second planes, 2.5 and 3): 64 KB
// on each multiprocessor. They arrive by 64 bytes of each row, and ldmatrix deals them out: lane (g, t) = (lane / 4, lane % 4)
// gets bytes 4t … 4t + 3 of each 16 of rows g and g + 8. Which columns those are does not matter to a sum, as long as x's
// fragments have the same ones (load_columns).
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/vec_quant.cuh"

enum {
    FEW_WARPS = 16,
    FEW_THREADS = 32 * FEW_WARPS,
    FEW_ROWS = 16,                                // of a tile
    FEW_GROUPS = 8,                               // of a slice
    FEW_STAGE = FEW_ROWS * 64,                    // bytes
    FEW_SCALES = FEW_ROWS * FEW_GROUPS,           // of a slice's tile; so many groups' second planes, too
    FEW_SUMS = FEW_WARPS * FEW_ROWS * FEW_TOKENS, // of a tile
    FEW_MOST_TILES = 8                            // whose sums are kept at once
};

template <class T> constexpr int SLICE_STAGES = FEW_GROUPS *QUANT_GROUP / PACK_COLS<T> / 4; // 2 of q4, else 4
template <class T> constexpr int STAGES = HIGH_BYTES<T> ? 2 : 4; // on their way to a warp: shared memory has room for so many
template <class T> constexpr int AHEAD = STAGES<T> / SLICE_STAGES<T>; // slices on their way
template <class T> constexpr int RING_BYTES = FEW_WARPS *STAGES<T> *FEW_STAGE;

struct few {
    const void *w; // (rows, cols)
    int rows, cols;
    const half *x; // (parts, n, cols)
    int n, parts;
    const float *bias; // (rows) or NULL
    float *y;          // (n, rows)
    bool add;
    int at_once; // tiles, at most FEW_MOST_TILES
};

// What a warp reads next: its slice of tile `tile`, in pass `pass` over tiles [first, last).
struct few_place {
    int tile, pass, first, last;
};

__device__ __forceinline__ void move_on(struct few_place &at, int at_once, int n_passes, int end)
{
    if (++at.tile < at.last)
        return;
    if (++at.pass == n_passes) {
        at.pass = 0;
        at.first = at.last;
        at.last = min(at.first + at_once, end);
    }
    at.tile = at.first;
}

// ------------------------------------------------------------------------------------------ weights on their way

// Where piece `piece` of 16 bytes of a stage's row lies: eight rows' pieces of one column in different banks.
__device__ __forceinline__ int piece_at(int row, int piece)
{
    return row * 64 + ((piece ^ (row / 2 & 3)) * 16);
}

// Stage s of a tile's slice sets out, this lane's two pieces; nothing where `there` is false.
template <class T, bool ALIGNED>
__device__ __forceinline__ void fetch_stage(uint8_t *stage, const struct few &f, int tile, int slice, int s, bool there)
{
    const int lane = (int)threadIdx.x % 32, piece = lane % 4;
    const int col = (slice * SLICE_STAGES<T> + s) * 4 * PACK_COLS<T> + piece * PACK_COLS<T>;
    const int left = there ? (GROUPED<T> ? groups_of(f.cols) * QUANT_GROUP : f.cols) - col : 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = tile * FEW_ROWS + 8 * i + lane / 4;
        const bool valid = row < f.rows && left > 0;
        uint8_t *to = stage + piece_at(8 * i + lane / 4, piece);
        const uint8_t *from = static_cast<const uint8_t *>(f.w);
        if (valid)
            from += row * quant_pitch<T>(f.cols) + col * 16 / PACK_COLS<T>;
        if (ALIGNED || ROWS_ALIGNED<T>)
            copy_async16(to, from, valid);
        else if (GROUPED<T>)
            *reinterpret_cast<uint4 *>(to) = load_words(from, valid);
        else
            *reinterpret_cast<uint4 *>(to) = load_pack<T, false>(reinterpret_cast<const T *>(from), valid ? left : 0);
    }
}

// What the slice's groups have in the second plane: (FEW_ROWS, FEW_GROUPS), four of each lane.
template <class T>
__device__ __forceinline__ void fetch_slice_high(uint8_t *to, const struct few &f, int tile, int slice, bool there)
{
#pragma unroll
    for (int i = 0; i < FEW_SCALES / 32; i++) {
        const int at = i * 32 + (int)threadIdx.x % 32, row = tile * FEW_ROWS + at / FEW_GROUPS;
        const int group = slice * FEW_GROUPS + at % FEW_GROUPS;
        const bool valid = there && row < f.rows && group < groups_of(f.cols);
        const uint8_t *from = static_cast<const uint8_t *>(f.w);
        if (valid)
            from += row * quant_pitch<T>(f.cols) + high_plane(f.cols) + (size_t)group * HIGH_BYTES<T>;
        fetch_high<T>(to + at * HIGH_BYTES<T>, from, valid);
    }
}

// The slice's scales: (FEW_ROWS, FEW_GROUPS), a row for each of 16 lanes.
template <class T, bool ALIGNED>
__device__ __forceinline__ void fetch_slice_scales(scale_type<T> *to, const struct few &f, int tile, int slice, bool there)
{
    const int lane = (int)threadIdx.x % 32, row = tile * FEW_ROWS + lane, group = slice * FEW_GROUPS;
    if (lane >= FEW_ROWS)
        return;
    const int left = there && row < f.rows ? groups_of(f.cols) - group : 0;
    const scale_type<T> *from = group_scales<T>(f.w, f.rows, f.cols);
    if (left > 0)
        from += (size_t)row * groups_of(f.cols) + group;
    fetch_eight_scales<ALIGNED>(to + lane * FEW_GROUPS, from, left);
}

// ------------------------------------------------------------------------------------------ fragments

// Columns [col, col + 2 * N) of a row of x as N pairs, zeros beyond its end.
template <int N, bool ALIGNED> __device__ __forceinline__ void load_pairs(unsigned *pairs, const half *row, int col, int cols)
{
    if constexpr (ALIGNED && N == 4) {
        const uint4 words = col < cols ? __ldcg(reinterpret_cast<const uint4 *>(row + col)) : uint4{0, 0, 0, 0};
        pairs[0] = words.x;
        pairs[1] = words.y;
        pairs[2] = words.z;
        pairs[3] = words.w;
    } else if constexpr (ALIGNED) {
        const uint2 words = col < cols ? __ldcg(reinterpret_cast<const uint2 *>(row + col)) : uint2{0, 0};
        pairs[0] = words.x;
        pairs[1] = words.y;
    } else {
        const unsigned short *at = reinterpret_cast<const unsigned short *>(row);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const unsigned low = col + 2 * i < cols ? __ldcg(at + col + 2 * i) : 0;
            pairs[i] = low | (col + 2 * i + 1 < cols ? (unsigned)__ldcg(at + col + 2 * i + 1) << 16 : 0);
        }
    }
}

// A lane's eight columns of a group of x, in the order in which weight_pairs() has the weights.
template <class T, bool ALIGNED> __device__ __forceinline__ uint4 load_columns(const half *row, int group, int cols)
{
    const int t = (int)threadIdx.x % 4, col = group * QUANT_GROUP;
    unsigned p[4];
    if (PACK_COLS<T> == 32) {
        load_pairs<4, ALIGNED>(p, row, col + 8 * t, cols);
        if (SIX_BITS<T>)
            return {p[0], p[1], p[2], p[3]};
        return {__byte_perm(p[0], p[2], 0x5410), __byte_perm(p[0], p[2], 0x7632), __byte_perm(p[1], p[3], 0x5410),
                __byte_perm(p[1], p[3], 0x7632)};
    }
    load_pairs<2, ALIGNED>(p, row, col + 4 * t, cols);
    load_pairs<2, ALIGNED>(p + 2, row, col + 16 + 4 * t, cols);
    if (GROUPED<T>)
        return {p[0], p[1], p[2], p[3]};
    return {__byte_perm(p[0], p[1], 0x5410), __byte_perm(p[0], p[1], 0x7632), __byte_perm(p[2], p[3], 0x5410),
            __byte_perm(p[2], p[3], 0x7632)};
}

__device__ __forceinline__ unsigned scaled_halves(unsigned pair, float factor, float add)
{
    __half2 x;
    memcpy(&x, &pair, sizeof x);
    x = __hfma2(x, __float2half2_rn(factor), __float2half2_rn(add));
    memcpy(&pair, &x, sizeof x);
    return pair;
}

// A lane's eight weights of a group as four pairs. Six bits: in order, from a word and as much of the second plane. 8-bit
// types: of bytes 4t … of both of its 16 (`first`, `second`), q8's in order, floats' even columns before odd ones. q4: of one
// word, columns c and c + 4 for c < 4; a nibble n with 8 added is n ^ 8, and in the lower bits of the fp16 1024 makes 1024 + n
// + 8, four bits further up 1024 + 16 (n + 8).
template <class T> __device__ __forceinline__ uint4 weight_pairs(unsigned first, unsigned second)
{
    if constexpr (SIX_BITS<T>)
        return as_halves<T>(first, second);
    else
        return {even_bytes<T>(first), odd_bytes<T>(first), even_bytes<T>(second), odd_bytes<T>(second)};
}
template <> __device__ __forceinline__ uint4 weight_pairs<q8>(unsigned first, unsigned second)
{
    return as_halves<q8>(first, second);
}
template <> __device__ __forceinline__ uint4 weight_pairs<q4>(unsigned word, unsigned)
{
    const unsigned lower = 0x000f000fu, upper = 0x00f000f0u, next = word >> 8;
    return {minus_halves((word & lower) ^ 0x64086408u, 1032), scaled_halves((word & upper) ^ 0x64806480u, 0.0625f, -72),
            minus_halves((next & lower) ^ 0x64086408u, 1032), scaled_halves((next & upper) ^ 0x64806480u, 0.0625f, -72)};
}

// sum += of rows g and g + 8 (their eight weights each) and all tokens.
__device__ __forceinline__ void multiply_group(float (&sum)[4], uint4 low, uint4 high, uint4 x)
{
    const unsigned first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
    const unsigned x_first[2] = {x.x, x.y}, x_second[2] = {x.z, x.w};
    mma_m16n8k16<half>(sum, first, x_first);
    mma_m16n8k16<half>(sum, second, x_second);
}

// A row's eight scales.
template <class T> struct alignas(FEW_GROUPS * sizeof(scale_type<T>)) eight_scales {
    scale_type<T> of[FEW_GROUPS];
};

// What this lane's word of a group has in the second plane, of row lane / 4 or `further` rows on.
template <class T> __device__ __forceinline__ unsigned lane_high(const uint8_t *high, int further, int group)
{
    if (HIGH_BYTES<T> == 0)
        return 0;
    const int lane = (int)threadIdx.x % 32;
    return high_bits<T>(load_high<T>(high + ((further + lane / 4) * FEW_GROUPS + group) * HIGH_BYTES<T>), lane % 4);
}

// Stage s of a slice, sums of rows lane / 4 and 8 further.
template <class T>
__device__ __forceinline__ void multiply_stage(float (&sum)[4], const unsigned (&w)[2][4], const uint4 (&x)[FEW_GROUPS],
                                               const struct eight_scales<T> (&scales)[2], const uint8_t *high, int s)
{
    constexpr int stage_groups = FEW_GROUPS / SLICE_STAGES<T>;
#pragma unroll
    for (int i = 0; i < stage_groups; i++) {
        const int group = s * stage_groups + i;
        if constexpr (!GROUPED<T>) {
            multiply_group(sum, weight_pairs<T>(w[i][0], w[i][2]), weight_pairs<T>(w[i][1], w[i][3]), x[group]);
        } else {
            float own[4] = {0, 0, 0, 0};
            if (PACK_COLS<T> == 32)
                multiply_group(own, weight_pairs<T>(w[i / 2][i % 2 * 2], lane_high<T>(high, 0, group)),
                               weight_pairs<T>(w[i / 2][i % 2 * 2 + 1], lane_high<T>(high, 8, group)), x[group]);
            else
                multiply_group(own, weight_pairs<T>(w[i][0], w[i][2]), weight_pairs<T>(w[i][1], w[i][3]), x[group]);
            const float first = scale_value(scales[0].of[group]), second = scale_value(scales[1].of[group]);
            sum[0] = fmaf(first, own[0], sum[0]);
            sum[1] = fmaf(first, own[1], sum[1]);
            sum[2] = fmaf(second, own[2], sum[2]);
            sum[3] = fmaf(second, own[3], sum[3]);
        }
    }
}

// ------------------------------------------------------------------------------------------ the kernel

// y of the tiles [first, last), whose sums of all warps are there: (tiles, WARPS, 32 lanes, 4).
template <class T> __device__ __forceinline__ void finish_tiles(const struct few &f, const float *sums, int first, int last)
{
    for (int i = (int)threadIdx.x; i < (last - first) * FEW_ROWS * f.n; i += FEW_THREADS) {
        const int in_tile = i % FEW_ROWS, tile = i / FEW_ROWS % (last - first), token = i / FEW_ROWS / (last - first);
        const int row = (first + tile) * FEW_ROWS + in_tile;
        if (row >= f.rows)
            continue;
        float sum = 0;
        for (int part = 0; part < f.parts; part++) {
            const int column = part * f.n + token, lane = in_tile % 8 * 4 + column / 2;
            const float *at = sums + tile * FEW_SUMS + lane * 4 + in_tile / 8 * 2 + column % 2;
#pragma unroll
            for (int warp = 0; warp < FEW_WARPS; warp++)
                sum += at[warp * 128];
        }
        float *y = f.y + (size_t)token * f.rows + row;
        const float value = fmaf(sum, row_factor<T>(f.w, f.rows, f.cols, row), f.bias ? f.bias[row] : 0.0f);
        *y = f.add ? *y + value : value;
    }
}

// Bytes of the slices' scales on their way or in use (WARPS, 2 AHEAD, ROWS, GROUPS), and of as many groups' second planes.
template <class T> constexpr int SLICE_SLOTS = 2 * AHEAD<T>;
template <class T>
constexpr int SCALES_BYTES = GROUPED<T> ? FEW_WARPS *SLICE_SLOTS<T> *FEW_SCALES *(int)sizeof(scale_type<T>) : 0;
template <class T> constexpr int HIGHS_BYTES = FEW_WARPS *SLICE_SLOTS<T> *FEW_SCALES *HIGH_BYTES<T>;

// Dynamic shared memory: rings (WARPS, STAGES, STAGE), scales, second planes, sums (at_once, WARPS, 32, 4).
template <class T, bool ALIGNED> static __global__ void __launch_bounds__(FEW_THREADS, 1) few_quant_kernel(struct few f)
{
    SHARED_DYNAMIC(uint8_t, rings);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    constexpr int stages = SLICE_STAGES<T>, slots = SLICE_SLOTS<T>;
    uint8_t *ring = rings + warp * STAGES<T> * FEW_STAGE;
    scale_type<T> *scales = reinterpret_cast<scale_type<T> *>(rings + RING_BYTES<T>) + warp * slots * FEW_SCALES;
    uint8_t *highs = rings + RING_BYTES<T> + SCALES_BYTES<T> + warp * slots * FEW_SCALES * HIGH_BYTES<T>;
    float *sums = reinterpret_cast<float *>(rings + RING_BYTES<T> + SCALES_BYTES<T> + HIGHS_BYTES<T>);
    const int n_slices = (groups_of(f.cols) + FEW_GROUPS - 1) / FEW_GROUPS, n_passes = (n_slices + FEW_WARPS - 1) / FEW_WARPS;
    const int64_t n_tiles = (f.rows + FEW_ROWS - 1) / FEW_ROWS;
    const int end = (int)(n_tiles * (blockIdx.x + 1) / gridDim.x);
    struct few_place at = {(int)(n_tiles * blockIdx.x / gridDim.x), 0, 0, 0};
    at.first = at.tile;
    at.last = min(at.first + f.at_once, end);
    struct few_place ahead = at;
    grid_dependency_launch();
#pragma unroll
    for (int i = 0; i < AHEAD<T>; i++) {
        const int slice = ahead.pass * FEW_WARPS + warp;
        const bool there = ahead.tile < end && slice < n_slices;
        if (GROUPED<T>)
            fetch_slice_scales<T, ALIGNED>(scales + i * FEW_SCALES, f, ahead.tile, slice, there);
        if constexpr (HIGH_BYTES < T >> 0)
            fetch_slice_high<T>(highs + i * FEW_SCALES * HIGH_BYTES<T>, f, ahead.tile, slice, there);
#pragma unroll
        for (int s = 0; s < stages; s++) {
            fetch_stage<T, ALIGNED>(ring + (i * stages + s) * FEW_STAGE, f, ahead.tile, slice, s, there);
            copy_async_commit();
        }
        move_on(ahead, f.at_once, n_passes, end);
    }
    grid_dependency_wait();

    uint4 x[FEW_GROUPS];
    for (int number = 0, of_pass = -1; at.tile < end; number++) {
        if (of_pass != at.pass) {
            of_pass = at.pass;
            const int token = lane / 4, first = (at.pass * FEW_WARPS + warp) * FEW_GROUPS;
            const half *row = f.x + (size_t)token * f.cols;
#pragma unroll
            for (int j = 0; j < FEW_GROUPS; j++)
                x[j] = load_columns<T, ALIGNED>(row, first + j, token < f.n * f.parts ? f.cols : 0);
        }
        const int slice = ahead.pass * FEW_WARPS + warp;
        const bool there = ahead.tile < end && slice < n_slices;
        struct eight_scales<T> scale[2] = {
        };
        const uint8_t *high = highs + number % slots * FEW_SCALES * HIGH_BYTES<T>;
        float sum[4] = {0, 0, 0, 0};
#pragma unroll
        for (int s = 0; s < stages; s++) {
            uint8_t *stage = ring + ((number % AHEAD<T> * stages) + s) * FEW_STAGE;
            unsigned w[2][4];
            copy_async_wait<STAGES<T> - 1>();
            __syncwarp(); // all lanes' copies have come
#pragma unroll
            for (int i = 0; i < 2; i++)
                ldmatrix_x4(w[i], stage + piece_at(lane / 8 % 2 * 8 + lane % 8, 2 * i + lane / 16));
            if (GROUPED<T> && s == 0) {
                const scale_type<T> *own = scales + number % slots * FEW_SCALES;
                const int next = (number + AHEAD<T>) % slots * FEW_SCALES;
#pragma unroll
                for (int i = 0; i < 2; i++)
                    scale[i] = *reinterpret_cast<const struct eight_scales<T> *>(own + (8 * i + lane / 4) * FEW_GROUPS);
                fetch_slice_scales<T, ALIGNED>(scales + next, f, ahead.tile, slice, there);
                if constexpr (HIGH_BYTES < T >> 0)
                    fetch_slice_high<T>(highs + next * HIGH_BYTES<T>, f, ahead.tile, slice, there);
            }
            __syncwarp(); // and all have read them
            fetch_stage<T, ALIGNED>(stage, f, ahead.tile, slice, s, there);
            copy_async_commit();
            multiply_stage<T>(sum, w, x, scale, high, s);
        }
        float4 *own = reinterpret_cast<float4 *>(sums + (at.tile - at.first) * FEW_SUMS) + threadIdx.x;
        const float4 before = at.pass > 0 ? *own : float4{0, 0, 0, 0};
        *own = {before.x + sum[0], before.y + sum[1], before.z + sum[2], before.w + sum[3]};

        const int first = at.first, last = at.last;
        const bool finished = at.pass == n_passes - 1 && at.tile == last - 1;
        move_on(at, f.at_once, n_passes, end);
        move_on(ahead, f.at_once, n_passes, end);
        if (finished) {
            __syncthreads();
            finish_tiles<T>(f, sums, first, last);
            __syncthreads();
        }
    }
}

// ------------------------------------------------------------------------------------------ launches

template <class T> static yalm_status few_launch(struct few f, bool aligned, cudaStream_t stream, yalm_error *error)
{
    int device = 0, n_multiprocessors = 0, most_bytes = 0;
    TRY_CUDA(cudaGetDevice(&device));
    TRY_CUDA(cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, device));
    TRY_CUDA(cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    const int n_tiles = (f.rows + FEW_ROWS - 1) / FEW_ROWS, blocks = n_tiles < n_multiprocessors ? n_tiles : n_multiprocessors;
    const int own_tiles = (n_tiles + blocks - 1) / blocks, tile_bytes = FEW_SUMS * (int)sizeof(float);
    const int fixed = RING_BYTES<T> + SCALES_BYTES<T> + HIGHS_BYTES<T>;
    const int room = (most_bytes - fixed) / tile_bytes, most = room < FEW_MOST_TILES ? room : FEW_MOST_TILES;
    f.at_once = own_tiles < most ? own_tiles : most;
    if (most < 1)
        return error_set(error, YALM_FAILED, "CUDA: found %d bytes of shared memory, expected at least %d", most_bytes,
                         fixed + tile_bytes);
    const size_t shared = fixed + (size_t)f.at_once * tile_bytes;
    if (aligned)
        return LAUNCH(error, (few_quant_kernel<T, true>), blocks, FEW_THREADS, shared, stream, f);
    return LAUNCH(error, (few_quant_kernel<T, false>), blocks, FEW_THREADS, shared, stream, f);
}

yalm_status matmul_few(float *y, const void *x, const struct matrix *w, const float *bias, int n, int parts, bool add,
                       cudaStream_t stream, yalm_error *error)
{
    struct few f = {};
    f.w = w->data;
    f.rows = w->rows;
    f.cols = w->cols;
    f.x = static_cast<const half *>(x);
    f.n = n;
    f.parts = parts;
    f.bias = bias;
    f.y = y;
    f.add = add;
    const bool packs = reinterpret_cast<uintptr_t>(x) % 16 == 0;
    const bool groups = packs && groups_of(w->cols) % FEW_GROUPS == 0 && w->cols % 8 == 0;
    const bool floats = packs && w->cols % 16 == 0 && reinterpret_cast<uintptr_t>(w->data) % 16 == 0;
    switch (w->dtype) {
        DEVICE_QUANT_TYPES(QUANT_CASE, few_launch, f, groups, stream, error)
    case DTYPE_FP8:
        return few_launch<fp8_e4m3>(f, floats, stream, error);
    case DTYPE_FP8_E5M2:
        return few_launch<fp8_e5m2>(f, floats, stream, error);
    default:
        return no_kernel(w->dtype, error);
    }
}
