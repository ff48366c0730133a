// Decode attention with a cache of int8: flash decoding from rows of integers with one scale each (kv_rows.cuh). Rows, splits
// and products in two halves are decode.cu's.
//
// Bytes: 2 * (head_dim + 4) for each visible key of a KV head, read once for up to HEADS heads of a group. At head_dim 128 that
// is 52 % of fp16's. Operations: 4 * head_dim * n_heads a key, and some three for each two elements to make halves of them.
// Bound by reading: at 4.8 TB/s each of 132 multiprocessors gets a tile of 16 keys of 128 components in 200 clocks. In these it
// must issue about 450 warp instructions, of the 800 that it can. In flight: three tiles of 4 KiB for each of eight warps, 96
// KiB on each multiprocessor.
//
// Halves in shared memory would have to be written and read once more, 6 bytes for each byte of the cache: more than the 128 a
// clock that there are. So each lane copies (cp.async) what it will itself need as fragments, and makes halves of it in
// registers:
//
//   scores: lane (g, t) = (lane / 4, lane % 4) takes 16 bytes of key g at component 16 t of each 64. Which component is the
//           product's k-th does not matter if the queries' fragments agree: four bytes in a row are a fragment's elements;
//   values: it takes 16 bytes (8 where D is 64) of keys 4t … 4t + 3 at component 16 g. Byte c of all four, paired, is column g
//           of the c-th product, whose outputs are components c, 16 + c, 32 + c … of the row.
//
// A tile's keys are numbered so that the four keys whose weights a lane has after the first product are those whose values it
// has for the second.
//
// Scales come after the first product and before the second (int8.cuh).
#include "cuda/attention/int8.cuh"
#include "cuda/attention/tiles.cuh"

// Sizes of an instance.
template <int D> struct int8_shape {
    static constexpr int WARPS = D > 128 ? 2 : 4, STAGES = 4;
    static constexpr int KEYS = D > 64 ? 16 : 32;      // in a tile
    static constexpr int PIECE = D < 128 ? D / 8 : 16; // bytes of a value that a lane has in a row
    static constexpr int TILE = KEYS * D;              // bytes of a tile's keys, and of its values
    static constexpr int STAGE = 2 * TILE + 3 * KEYS * (int)sizeof(float);
    static constexpr int BIASES = 2 * TILE + 2 * KEYS * (int)sizeof(float); // in it
    static constexpr size_t SHARED_BYTES = WARPS * STAGES * STAGE;
};

// Number of the key that is column c of the i-th eight of a tile.
__device__ static constexpr int column_key(int i, int c)
{
    return i / 2 * 16 + c / 2 * 4 + i % 2 * 2 + c % 2;
}

// BYTES bytes at component c of a row, as far as it has them. WHOLE: head_dim is a multiple of 16.
template <int BYTES, bool WHOLE> __device__ static inline void copy_piece(uint8_t *to, const int8_t *row, int c, int head_dim)
{
    if (c >= head_dim) {
        return;
    }
    if constexpr (WHOLE && BYTES == 16) {
        copy_async16(to, row + c);
    } else if constexpr (WHOLE) {
        copy_async_few<BYTES>(to, row + c);
    } else if (head_dim % 4 == 0) {
        for (int i = 0; i < BYTES && c + i < head_dim; i += 4) {
            copy_async_few<4>(to + i, row + c + i);
        }
    } else {
        for (int i = 0; i < BYTES && c + i < head_dim; i += 2) {
            *reinterpret_cast<uint16_t *>(to + i) = *reinterpret_cast<const uint16_t *>(row + c + i);
        }
    }
}

// What a warp reads: one KV head.
struct int8_rows {
    struct kv_rows<int8_t> keys, values;
};

// A lane's part of a tile. In stage lie keys' pieces (KEYS / 8, D / 64, 32 lanes, 16), values' pieces (KEYS / 4, D / 8 / PIECE,
// 32 lanes, PIECE), keys' scales (KEYS) and values' scales (KEYS). Behind them lie biases of drawn rows (KEYS). Only scales and
// biases are read by other lanes.
template <int D, bool WHOLE, class SEEN>
__device__ static inline void copy_pieces(uint8_t *stage, const struct int8_rows &from, const SEEN &seen, int tile)
{
    using shape = int8_shape<D>;
    constexpr int PIECE = shape::PIECE, PARTS = D / 8 / PIECE;
    [[maybe_unused]] constexpr int UNROLL = WHOLE ? 8 : 1;
    const struct key_tile keys = seen_tile(seen, tile, shape::KEYS);
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, head_dim = from.keys.head_dim;
#pragma unroll UNROLL
    for (int i = 0; i < shape::KEYS / 8; i++) {
        const int8_t *row = from.keys.data + (int64_t)tile_slot(seen, keys, column_key(i, g)) * head_dim;
#pragma unroll UNROLL
        for (int block = 0; block < D / 64; block++) {
            copy_piece<16, WHOLE>(stage + ((i * (D / 64) + block) * 32 + lane) * 16, row, block * 64 + t * 16, head_dim);
        }
    }
#pragma unroll UNROLL
    for (int j = 0; j < shape::KEYS / 4; j++) {
        const int8_t *row = from.values.data + (int64_t)tile_slot(seen, keys, j / 4 * 16 + t * 4 + j % 4) * head_dim;
#pragma unroll UNROLL
        for (int part = 0; part < PARTS; part++) {
            copy_piece<PIECE, WHOLE>(stage + shape::TILE + ((j * PARTS + part) * 32 + lane) * PIECE, row,
                                     (part * 8 + g) * PIECE, head_dim);
        }
    }
    float *scales = reinterpret_cast<float *>(stage + 2 * shape::TILE);
#pragma unroll
    for (int i = lane; i < 2 * shape::KEYS; i += 32) {
        const float *all = i < shape::KEYS ? from.keys.scales : from.values.scales;
        copy_async_few<4>(scales + i, all + tile_slot(seen, keys, i % shape::KEYS));
    }
}

template <int D, class SEEN>
__device__ static inline void copy_tile(uint8_t *stage, const struct int8_rows &from, const SEEN &seen, int tile)
{
    if (from.keys.head_dim % 16 == 0) {
        copy_pieces<D, true>(stage, from, seen, tile);
    } else {
        copy_pieces<D, false>(stage, from, seen, tile);
    }
}

// What a warp keeps in registers; fragments as mma_m16n8k16 wants them.
template <int D, int TILES> struct int8_state {
    unsigned q[TILES][D / 16][4];
    float acc[TILES][D / 8][4];   // in scale_unit(limit)
    float max[TILES], sum[TILES]; // of row lane / 4; sum: of this lane's keys
    float limit;                  // above all values' scales so far
};

// q: the first head's. Rows of absent heads, and components beyond head_dim, are 0.
template <int D, int TILES>
__device__ static inline void load_queries(struct int8_state<D, TILES> &rows, const float *q, int n_heads, int head_dim)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        const int head = t * 8 + lane / 4;
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int c = k / 4 * 64 + lane % 4 * 16 + k % 4 * 4 + i * 2;
                float2 x = {0.0f, 0.0f};
                if (head < n_heads && c < head_dim) {
                    x = *reinterpret_cast<const float2 *>(q + (int64_t)head * head_dim + c);
                }
                split_halves(x, &rows.q[t][k][2 * i], &rows.q[t][k][2 * i + 1]);
            }
        }
    }
}

template <int D, int TILES> __device__ static inline void shrink(struct int8_state<D, TILES> &rows, int t, float by)
{
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            rows.acc[t][n][i] *= by;
        }
    }
}

// Values' scales of this lane's keys, two for each eight, in the warp's unit, which grows with them.
template <int D, int TILES, int EIGHTS>
__device__ static inline void count_in_unit(struct int8_state<D, TILES> &rows, float2 (&scales)[EIGHTS])
{
    float largest = 0.0f; // of numbers, where some are NaN
#pragma unroll
    for (int i = 0; i < EIGHTS; i++) {
        largest = fmaxf(largest, fmaxf(scales[i].x, scales[i].y));
    }
    const float by = raise_limit(&rows.limit, largest);
    if (by != 1.0f) {
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            shrink(rows, t, by);
        }
    }
    const float inverse_unit = scale_inverse_unit(rows.limit);
#pragma unroll
    for (int i = 0; i < EIGHTS; i++) {
        scales[i].x *= inverse_unit;
        scales[i].y *= inverse_unit;
    }
}

// Turns scores of 8 heads with the tile's keys into weights times values' scales, fragments of the second product. A larger
// maximum shrinks what was there. key_scales, value_scales: of this lane's keys, two for each eight; value_scales in the sums'
// unit. biases: of the tile's keys, or NULL.
template <int D, int TILES, int EIGHTS>
__device__ static inline void softmax_tile(struct int8_state<D, TILES> &rows, int t, const float (&scores)[EIGHTS][4],
                                           const float2 (&key_scales)[EIGHTS], const float2 (&value_scales)[EIGHTS], int n_keys,
                                           float softcap, const float *biases, unsigned (&p)[EIGHTS][2])
{
    float2 s[EIGHTS];
    float max = rows.max[t];
#pragma unroll
    for (int i = 0; i < EIGHTS; i++) {
        const int key = column_key(i, threadIdx.x % 4 * 2);
        s[i] = {(scores[i][0] + scores[i][2]) * key_scales[i].x, (scores[i][1] + scores[i][3]) * key_scales[i].y};
        if (softcap > 0.0f) {
            s[i] = {capped(s[i].x, softcap), capped(s[i].y, softcap)};
        }
        if (biases) {
            const float2 bias = *reinterpret_cast<const float2 *>(biases + key);
            s[i] = {s[i].x + bias.x, s[i].y + bias.y};
        }
        s[i].x = key < n_keys ? s[i].x : -INFINITY;
        s[i].y = key + 1 < n_keys ? s[i].y : -INFINITY;
        max = fmaxf(max, fmaxf(s[i].x, s[i].y));
    }
    max = fmaxf(max, __shfl_xor_sync(0xffffffff, max, 1));
    max = fmaxf(max, __shfl_xor_sync(0xffffffff, max, 2));
    if (__any_sync(0xffffffff, max > rows.max[t])) {
        const float scale = max > rows.max[t] ? __expf(rows.max[t] - max) : 1.0f;
        rows.sum[t] *= scale;
        shrink(rows, t, scale);
        rows.max[t] = max;
    }
    const float base = max == -INFINITY ? 0.0f : max;
#pragma unroll
    for (int i = 0; i < EIGHTS; i++) {
        const float2 x = {__expf(s[i].x - base), __expf(s[i].y - base)};
        rows.sum[t] += x.x + x.y;
        split_halves(make_float2(x.x * value_scales[i].x, x.y * value_scales[i].y), &p[i][0], &p[i][1]);
    }
}

// scores of the tile's keys, each eight of them a product's columns. stage: this lane's part of it.
template <int D, int TILES, int EIGHTS>
__device__ static inline void score_tile(float (&scores)[TILES][EIGHTS][4], const struct int8_state<D, TILES> &rows,
                                         const uint8_t *stage)
{
    const uint4 *pieces = reinterpret_cast<const uint4 *>(stage) + threadIdx.x % 32;
#pragma unroll
    for (int block = 0; block < D / 64; block++) {
#pragma unroll
        for (int i = 0; i < EIGHTS; i++) {
            const uint4 piece = pieces[(i * (D / 64) + block) * 32];
            const unsigned words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
            for (int w = 0; w < 4; w++) {
                unsigned b[2];
                int8_to_halves(b, words[w]);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    mma_m16n8k16<half>(scores[t][i], rows.q[t][block * 4 + w], b);
                }
            }
        }
    }
}

// acc += p V, sixteen keys at a time.
template <int D, int TILES, int EIGHTS>
__device__ static inline void add_values(struct int8_state<D, TILES> &rows, const unsigned (&p)[TILES][EIGHTS][2],
                                         const uint8_t *values)
{
    constexpr int PIECE = int8_shape<D>::PIECE, PARTS = D / 8 / PIECE, WORDS = PIECE / 4;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int sixteen = 0; sixteen < EIGHTS / 2; sixteen++) {
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            unsigned words[4][WORDS]; // of four keys
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const uint8_t *piece = values + (((sixteen * 4 + j) * PARTS + part) * 32 + lane) * PIECE;
                if constexpr (PIECE == 16) {
                    const uint4 both = *reinterpret_cast<const uint4 *>(piece);
                    memcpy(words[j], &both, sizeof both);
                } else {
                    const uint2 both = *reinterpret_cast<const uint2 *>(piece);
                    memcpy(words[j], &both, sizeof both);
                }
            }
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
#pragma unroll
                for (int h = 0; h < 2; h++) { // bytes 2h and 2h + 1 of the word
                    const unsigned order = h == 0 ? 0x5140 : 0x7362;
                    unsigned low[2], high[2]; // of the first two keys, of the others
                    int8_to_halves(low, __byte_perm(words[0][w], words[1][w], order));
                    int8_to_halves(high, __byte_perm(words[2][w], words[3][w], order));
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        const unsigned b[2] = {low[c], high[c]};
#pragma unroll
                        for (int t = 0; t < TILES; t++) {
                            const unsigned a[4] = {p[t][2 * sixteen][0], p[t][2 * sixteen][1], p[t][2 * sixteen + 1][0],
                                                   p[t][2 * sixteen + 1][1]};
                            mma_m16n8k16<half>(rows.acc[t][part * PIECE + w * 4 + h * 2 + c], a, b);
                        }
                    }
                }
            }
        }
    }
}

// Adds a tile's keys to the rows.
template <int D, int TILES>
__device__ static inline void attend_tile(struct int8_state<D, TILES> &rows, const uint8_t *stage, int n_keys, float softcap,
                                          bool biased)
{
    using shape = int8_shape<D>;
    constexpr int EIGHTS = shape::KEYS / 8;
    float scores[TILES][EIGHTS][4] = {};
    score_tile<D, TILES, EIGHTS>(scores, rows, stage);
    const float *scales = reinterpret_cast<const float *>(stage + 2 * shape::TILE) + threadIdx.x % 4 * 4;
    float2 key_scales[EIGHTS], value_scales[EIGHTS];
#pragma unroll
    for (int i = 0; i < EIGHTS; i += 2) {
        const float4 k = *reinterpret_cast<const float4 *>(scales + i * 8);
        const float4 v = *reinterpret_cast<const float4 *>(scales + shape::KEYS + i * 8);
        key_scales[i] = make_float2(k.x, k.y);
        key_scales[i + 1] = make_float2(k.z, k.w);
        value_scales[i] = make_float2(v.x, v.y);
        value_scales[i + 1] = make_float2(v.z, v.w);
    }
    count_in_unit(rows, value_scales);
    const float *biases = biased ? reinterpret_cast<const float *>(stage + shape::BIASES) : NULL;
    unsigned p[TILES][EIGHTS][2];
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        softmax_tile<D, TILES, EIGHTS>(rows, t, scores[t], key_scales, value_scales, n_keys, softcap, biases, p[t]);
    }
    add_values<D, TILES, EIGHTS>(rows, p, stage + shape::TILE);
}

// The warp's rows into the block's parts.
template <int D, int TILES, int WARPS>
__device__ static inline void leave_rows(const struct int8_state<D, TILES> &rows,
                                         const struct block_parts<WARPS, TILES * 8> &parts, int head_dim)
{
    constexpr int PIECE = int8_shape<D>::PIECE;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float unit = scale_unit(rows.limit);
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        const int row = warp * TILES * 8 + t * 8 + lane / 4;
        float sum = rows.sum[t];
        sum += __shfl_xor_sync(0xffffffff, sum, 1);
        sum += __shfl_xor_sync(0xffffffff, sum, 2);
        if (lane % 4 == 0) {
            parts.state[row] = make_float2(rows.max[t], sum);
        }
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int c = (n / PIECE * 8 + lane % 4 * 2 + j) * PIECE + n % PIECE;
                if (c < head_dim) {
                    parts.acc[row * head_dim + c] = (rows.acc[t][n][j] + rows.acc[t][n][j + 2]) * unit;
                }
            }
        }
    }
}

// grid: (ceil(group / HEADS), n_splits, n_kv_heads). D: head_dim or the next larger instance. HEADS: 8 or 16. SEEN: as in
// decode.cu.
template <int D, int HEADS, class SEEN>
__global__ void __launch_bounds__(int8_shape<D>::WARPS * 32) attend_decode_int8(const struct attend a)
{
    using shape = int8_shape<D>;
    constexpr int WARPS = shape::WARPS, STAGES = shape::STAGES, TILES = HEADS / 8;
    SHARED_DYNAMIC(uint8_t, shared);
    SHARED_ARRAY(float2, states, WARPS * HEADS);
    grid_dependency_wait();
    grid_dependency_launch();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, split = blockIdx.y, kv_head = blockIdx.z;
    const int first_head = blockIdx.x * HEADS, n_heads = min(HEADS, a.group - first_head);
    const struct sight sight = sight_alone(a.policy, a.step->position);
    const int64_t q_offset = row_offset(a, kv_head, first_head);
    const SEEN seen = seen_of<SEEN>(a, kv_head, sight, sight, shape::KEYS);
    const int n_splits = seen_splits(seen, a.n_splits, 2 * WARPS);
    if (split >= n_splits) {
        return;
    }
    const int first = (int)((int64_t)seen.n_tiles * split / n_splits),
              last = (int)((int64_t)seen.n_tiles * (split + 1) / n_splits);
    const struct int8_rows from = {kv_rows_of<int8_t>(a.keys, a.key_scales, kv_head, a.policy.capacity, a.head_dim),
                                   kv_rows_of<int8_t>(a.values, a.value_scales, kv_head, a.policy.capacity, a.head_dim)};

    uint8_t *stages = shared + warp * STAGES * shape::STAGE;
    if (a.head_dim < D) { // what no copy writes is 0 for good
        for (int i = lane; i < STAGES * shape::STAGE / 16; i += 32) {
            reinterpret_cast<uint4 *>(stages)[i] = make_uint4(0, 0, 0, 0);
        }
        __syncwarp();
    }
    for (int s = 0; s < STAGES - 1; s++) {
        const int tile = first + warp + s * WARPS;
        if (tile < last) {
            copy_tile<D>(stages + s * shape::STAGE, from, seen, tile);
            copy_biases<shape::KEYS>(stages + s * shape::STAGE + shape::BIASES, a, seen, kv_head, tile, lane);
        }
        copy_async_commit();
    }
    struct int8_state<D, TILES> rows = {
    };
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        rows.max[t] = -INFINITY;
    }
    rows.limit = LEAST_LIMIT;
    const float *loaded = NULL;
    int stage = 0;
    for (int tile = first + warp; tile < last; tile += WARPS) {
        const struct key_tile keys = seen_tile(seen, tile, shape::KEYS);
        const float *q = keys.sinks ? a.sink_q : a.q;
        if (q != loaded) {
            load_queries(rows, q + q_offset, n_heads, a.head_dim);
            loaded = q;
        }
        copy_async_wait<STAGES - 2>();
        __syncwarp(); // all lanes' copies have come, and all have read the stage that is filled next
        const int ahead = tile + (STAGES - 1) * WARPS, free_stage = stage == 0 ? STAGES - 1 : stage - 1;
        if (ahead < last) {
            copy_tile<D>(stages + free_stage * shape::STAGE, from, seen, ahead);
            copy_biases<shape::KEYS>(stages + free_stage * shape::STAGE + shape::BIASES, a, seen, kv_head, ahead, lane);
        }
        copy_async_commit();
        attend_tile(rows, stages + stage * shape::STAGE, keys.n, a.softcap, has_biases(a, seen, keys));
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
    __syncthreads(); // the tiles' memory becomes the parts'
    const struct block_parts<WARPS, HEADS> parts = {
        reinterpret_cast<float *>(shared), states
    };
    leave_rows(rows, parts, a.head_dim);
    part_alphas_of<HEADS>(a, seen, kv_head, kv_head * gridDim.x + blockIdx.x, first_head, n_heads, split, first, last,
                          shape::KEYS);
    finish_rows<SEEN>(a, parts, kv_head, kv_head * gridDim.x + blockIdx.x, first_head, n_heads, split, n_splits);
}

// ------------------------------------------------------------------------------------------ host

template <int D, int HEADS> static yalm_status launch(const struct attend *a, dim3 grid, cudaStream_t stream, yalm_error *error)
{
    const unsigned threads = int8_shape<D>::WARPS * 32;
    const size_t shared = int8_shape<D>::SHARED_BYTES;
    return a->gathered.rows ? LAUNCH(error, (attend_decode_int8<D, HEADS, struct seen_rows>), grid, threads, shared, stream, *a)
                            : LAUNCH(error, (attend_decode_int8<D, HEADS, struct seen>), grid, threads, shared, stream, *a);
}

yalm_status attend_decode_int8_launch(const struct attend *a, int heads, dim3 grid, cudaStream_t stream, yalm_error *error)
{
    if (a->head_dim <= 64) {
        return heads == 16 ? launch<64, 16>(a, grid, stream, error) : launch<64, 8>(a, grid, stream, error);
    }
    if (a->head_dim <= 128) {
        return heads == 16 ? launch<128, 16>(a, grid, stream, error) : launch<128, 8>(a, grid, stream, error);
    }
    return launch<256, 8>(a, grid, stream, error);
}
