// Scores of all keys that a token sees, from their codes.
//
//     score[i, j] = Σ_c q[i, c] centroid[c, code of key j in c's sub-quantiser],  c < d
//                 ≈ base[i] + step[i] Σ_c query[i, c] table[c, code]
//
// with the centroids' components as bytes (scale_c * table + middle_c: code_tables_kernel), the query's as bytes too (q_c
// scale_c = step * query), and base = Σ_c q_c middle_c. The sum is exact. It is off by at most Σ_c |q_c| scale_c / 2 + step / 2
// Σ_c |table_c|. On average that is less than the CPU's tables of 8-bit products lose, whose entries are all scaled by a
// query's largest row.
//
// Bytes: rows / 2 a key and KV head (64 for d = 128, d_sub = 1), for all queries of a group at once, and 4 written for each
// query. Which limit that meets decides the form; an H200's multiprocessor reads about 16 bytes in a cycle, so a key of 64
// bytes may take 3.9 cycles:
//
// - Tables of products with the query, in shared memory: 128 words a key and query, 32 in a cycle, are 4 cycles. With three
//   integer instructions each, at 64 lanes in a cycle, they are 6; with four queries' bytes in a word 12, for adding them up.
// - The same in registers, looked up by prmt: 11 instructions for 8 codes and 4 more to add bytes up are 3.8 cycles for one
//   query. But 10 of the 15 are once more for every other: 11 cycles with four queries.
// - Here bytes do not depend on the query, so 128 / 8 * 11 instructions are 2.8 cycles whatever the group. The products are the
//   tensor cores', half an mma a key for each four queries: 0.8 cycles beside it. All queries of a group cost what one does,
//   less than the bytes.
//
// prmt looks up one table at a time: a register gets the same component of four keys, where the second matrix of a product
// (m16n8k32) has four components of one key. So the four keys stand where components do. The first matrix has each of four
// queries v four times, as rows 4 v + x with zeros but in key x's place; it takes eight components at once. Three quarters of
// the products are with zeros; they cost nothing that is needed elsewhere.
//
// A block takes parts of 1,024 slots in turn (selective.h), each of its warps a tile of 256 (codes.cuh). For each lane
// SCORE_DEPTH 16-byte copies are on their way to shared memory, over the ends of tiles: 4 KB a warp, 64 KB on a multiprocessor
// of 16 of them.
#include "cuda/kernels/kv_rows.cuh"
#include "cuda/long/codes.cuh"
#include "cuda/long/selective.cuh"

enum {
    SCORE_WARPS = CODES_SCORE_WARPS,
    SCORE_THREADS = 32 * SCORE_WARPS,
    SCORE_DEPTH = 8,   // copies
    SCORE_QUERIES = 8, // of a block, at most: two products' rows
    LANE_DIMS = ATTENTION_MAX_DIM / 32,
};
static_assert(SCORE_WARPS * CODES_TILE == PART_KEYS, "a part is a tile for each warp");

// Blocks for each multiprocessor: what a thread's registers leave room for.
template <int TILES> constexpr int SCORE_BLOCKS = TILES == 1 ? 4 : 3;

struct scoring {
    const struct evaluation *step;
    const float *q, *sink_q, *key;
    struct code_book book; // of all KV heads
    uint4 *codes;          // (n_kv_heads, head_words)
    size_t head_words;
    const void *keys; // the cache's rows, for the sinks
    const float *key_scales;
    yalm_kv type;
    struct kv_policy policy;
    float *scores, *sink_scores;
    float2 *part_stats;
    int group, head_dim, n_sub, rows, dims, ld, n_parts;
};

// What a warp takes at once: LOADS words for each lane, which are STEPS steps of the products, of two components for each lane.
template <int D_SUB> struct score_unit {
    static constexpr int LOADS = D_SUB == 1 ? 2 : 1, STEPS = D_SUB == 4 ? 2 : 1, STAGES = SCORE_DEPTH / LOADS;
};

// Component c is number `half` of lane 4 n + t's two in a step.
struct component_place {
    int step, t, half;
};
template <int D_SUB> __device__ static inline struct component_place component_place(int c)
{
    if (D_SUB == 1)
        return {c / 8, c % 4, c % 8 / 4};
    const int sub = c / D_SUB, part = c % D_SUB;
    return {sub / 4 * (D_SUB / 2) + part / 2, sub % 4, part % 2};
}

// ------------------------------------------------------------------------------------------ queries

// Fragments of the first matrix, (TILES, dims / 8, 32), and each query's base and step. A warp takes a query; absent ones are
// zeros. q: the first.
template <int D_SUB, int TILES>
__device__ static inline void stage_queries(const struct scoring &a, uint4 *fragments, float2 *linear, const float *q,
                                            const float2 *ranges, int n_queries)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    unsigned *words = reinterpret_cast<unsigned *>(fragments);
    for (int i = warp; i < 4 * TILES; i += SCORE_WARPS) {
        float x[LANE_DIMS], most = 0.0f, base = 0.0f;
#pragma unroll
        for (int k = 0; k < LANE_DIMS; k++) {
            const int c = k * 32 + lane;
            x[k] = 0.0f;
            if (i < n_queries && c < a.head_dim) {
                const float2 range = __ldg(ranges + c);
                const float value = __ldcg(q + (size_t)i * a.head_dim + c);
                x[k] = value * range.x;
                base = fmaf(value, range.y, base);
            }
            most = fmaxf(most, fabsf(x[k]));
        }
        most = warp_max(most);
        base = warp_sum(base);
        const float inverse = most >= 1e-30f ? 127.0f / most : 0.0f;
#pragma unroll
        for (int k = 0; k < LANE_DIMS; k++) {
            const int c = k * 32 + lane;
            if (c < a.dims) {
                const struct component_place at = component_place<D_SUB>(c);
                const unsigned byte = (unsigned)__float2int_rn(x[k] * inverse) & 255u;
                const int step = i / 4 * (a.dims / 8) + at.step, v = i % 4;
                for (int key = 0; key < 4; key++) {
                    const int to = (v % 2 * 4 + key) * 4 + at.t;
                    words[(step * 32 + to) * 4 + at.half * 2 + v / 2] = byte << 8 * key;
                }
            }
        }
        if (lane == 0)
            linear[i] = make_float2(base, inverse > 0.0f ? most / 127.0f : 0.0f);
    }
}

// ------------------------------------------------------------------------------------------ codes

// A tile's words on their way, one unit after another; after the last one the block's next part's, as far as the token sees
// keys there.
struct code_stream {
    const uint4 *at; // this lane's next word
    int part, unit;
};

__device__ static inline bool tile_has_keys(const struct visible &v, int tile)
{
    const int first = tile * CODES_TILE, last = first + CODES_TILE, end = v.slot + v.n;
    return first < v.capacity && ((first < end && last > v.slot) || (end > v.capacity && first < end - v.ring));
}

__device__ static inline void next_tile(struct code_stream &stream, const struct scoring &a, const struct visible &v,
                                        const uint4 *codes)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    do
        stream.part += (int)gridDim.x;
    while (stream.part < a.n_parts && !tile_has_keys(v, stream.part * SCORE_WARPS + warp));
    stream.unit = 0;
    stream.at = codes + (size_t)(stream.part * SCORE_WARPS + warp) * (a.rows / 4) * 32 + lane;
}

// The stream's next unit sets out for this lane's places.
template <int LOADS>
__device__ static inline void fetch_unit(struct code_stream &stream, uint4 *to, int n_units, const struct scoring &a,
                                         const struct visible &v, const uint4 *codes)
{
    if (stream.part < a.n_parts) {
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            copy_async16(to + 32 * i, stream.at + 32 * i);
        stream.at += 32 * LOADS;
        if (++stream.unit == n_units)
            next_tile(stream, a, v, codes);
    }
    copy_async_commit();
}

// One step: two components of each lane, whose codes are `first` and `second` (the same word where one code stands for both),
// times the queries.
template <int TILES>
__device__ static inline void multiply_step(int (&sum)[TILES][8][4], const uint4 *fragments, int fragment_stride, uint4 first,
                                            uint4 second, uint4 first_table, uint4 second_table)
{
    const unsigned firsts[4] = {first.x, first.y, first.z, first.w}, seconds[4] = {second.x, second.y, second.z, second.w};
    unsigned query[TILES][4];
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        const uint4 word = fragments[t * fragment_stride];
        query[t][0] = word.x;
        query[t][1] = word.y;
        query[t][2] = word.z;
        query[t][3] = word.w;
    }
#pragma unroll
    for (int word = 0; word < 4; word++) {
        const struct code_picks one = code_picks(firsts[word]), two = code_picks(seconds[word]);
        const unsigned low[2] = {look_up<0>(first_table, one), look_up<0>(second_table, two)};
        const unsigned high[2] = {look_up<1>(first_table, one), look_up<1>(second_table, two)};
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            mma_m16n8k32_s8(sum[t][2 * word], query[t], low);
            mma_m16n8k32_s8(sum[t][2 * word + 1], query[t], high);
        }
    }
}

// A unit of this lane's words, `from`. fragments, tables: of its first step, and of this lane.
template <int D_SUB, int TILES>
__device__ static inline void multiply_unit(int (&sum)[TILES][8][4], const uint4 *from, const uint4 *fragments,
                                            int fragment_stride, const uint4 *tables)
{
    const uint4 codes = from[0];
    if constexpr (D_SUB == 1) {
        multiply_step<TILES>(sum, fragments, fragment_stride, codes, from[32], tables[0], tables[4]);
    } else {
#pragma unroll
        for (int i = 0; i < score_unit<D_SUB>::STEPS; i++)
            multiply_step<TILES>(sum, fragments + 32 * i, fragment_stride, codes, codes, tables[2 * i], tables[2 * i + 1]);
    }
}

// ------------------------------------------------------------------------------------------ results

// A tile's sums become scores; keys that the token does not see: -inf. stats: (4 TILES), of the tile.
template <int TILES>
__device__ static inline void store_tile(const struct scoring &a, const struct visible &v, const int (&sum)[TILES][8][4],
                                         int tile, float *scores, const float2 *linear, int n_queries, float2 *stats)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++) {
        const int query = 2 * i + lane / 16;
        const float2 line = linear[query];
        float2 x[8];
        float most = -INFINITY, total = 0.0f;
#pragma unroll
        for (int r = 0; r < 8; r++) {
            const int slot = tile * CODES_TILE + 32 * r + lane % 4 * 8 + lane / 4 % 4 * 2;
            const int *sums = &sum[i / 2][r][i % 2 * 2];
            x[r].x = key_number(v, slot) >= 0 ? fmaf((float)sums[0], line.y, line.x) : -INFINITY;
            x[r].y = key_number(v, slot + 1) >= 0 ? fmaf((float)sums[1], line.y, line.x) : -INFINITY;
            if (query < n_queries)
                *reinterpret_cast<float2 *>(scores + (size_t)query * a.ld + slot) = x[r];
            most = fmaxf(most, fmaxf(x[r].x, x[r].y));
        }
        most = warp_max<8>(most);
        const float from = most == -INFINITY ? 0.0f : most;
#pragma unroll
        for (int r = 0; r < 8; r++)
            total += __expf(x[r].x - from) + __expf(x[r].y - from);
        total = warp_sum<8>(total);
        if (lane % 16 == 0)
            stats[query] = make_float2(most, total);
    }
}

// A part's from its tiles', stats: (SCORE_WARPS, 4 TILES). By the first n_queries threads.
template <int TILES> __device__ static inline void store_stats(float2 *to, const float2 *stats, int n_parts, int n_queries)
{
    const int query = (int)threadIdx.x;
    if (query >= n_queries)
        return;
    float2 part = {-INFINITY, 0.0f};
    for (int warp = 0; warp < SCORE_WARPS; warp++)
        part.x = fmaxf(part.x, stats[warp * 4 * TILES + query].x);
    for (int warp = 0; warp < SCORE_WARPS; warp++) {
        const float2 tile = stats[warp * 4 * TILES + query];
        part.y = fmaf(softmax_weight(tile.x, part.x), tile.y, part.y);
    }
    to[(size_t)query * n_parts] = part;
}

// ------------------------------------------------------------------------------------------ the kernel

template <class T> __device__ static inline void score_apart(const struct scoring &a, const struct visible &v, int kv_head)
{
    score_sinks(a.sink_scores, a.sink_q, kv_rows_of<T>(a.keys, a.key_scales, kv_head, a.policy.capacity, a.head_dim), kv_head,
                a.group, a.policy.n_sinks, v.sinks, a.head_dim);
}

// The codes of the token's own key, before anybody asks for the tile that has them.
template <int D_SUB>
__device__ static inline void append_own(const struct scoring &a, const struct visible &v, uint4 *codes, int kv_head)
{
    const int end = v.slot + v.n - 1, slot = end < v.capacity ? end : end - v.ring;
    if (a.key == NULL || slot / PART_KEYS % (int)gridDim.x != (int)blockIdx.x)
        return;
    const float *key = a.key + (size_t)kv_head * a.head_dim;
    encode_key<D_SUB>(reinterpret_cast<unsigned *>(codes), a.book.centroids + (size_t)kv_head * a.head_dim * CODES_CENTROIDS,
                      a.n_sub, a.rows, slot, (int)threadIdx.x, SCORE_THREADS, [=](int i) { return __ldcg(key + i); });
    __threadfence();
    __syncthreads();
}

// Block (i, kv_head, pass): parts i, i + gridDim.x, … for queries [4 TILES pass, …) of the group.
template <int D_SUB, int TILES>
static __global__ __launch_bounds__(SCORE_THREADS, SCORE_BLOCKS<TILES>) void score_codes_kernel(struct scoring a)
{
    using unit = score_unit<D_SUB>;
    SHARED_DYNAMIC(uint4, ring);
    SHARED_ARRAY(float2, linear, SCORE_QUERIES);
    SHARED_ARRAY(float2, stats, 2 * SCORE_WARPS * SCORE_QUERIES);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, kv_head = (int)blockIdx.y;
    const int n_steps = a.dims / 8, n_units = n_steps / unit::STEPS;
    const int first_query = (int)blockIdx.z * 4 * TILES, n_queries = min(4 * TILES, a.group - first_query);
    const int head = kv_head * a.group + first_query;
    uint4 *fragments = ring + SCORE_WARPS * SCORE_DEPTH * 32, *tables = fragments + TILES * n_steps * 32;
    uint4 *codes = a.codes + kv_head * a.head_words, *mine = ring + warp * SCORE_DEPTH * 32 + lane;

    for (int i = (int)threadIdx.x; i < a.dims; i += SCORE_THREADS)
        tables[i] = __ldg(a.book.tables + (size_t)kv_head * a.dims + i);
    grid_dependency_launch();
    grid_dependency_wait();
    const struct visible v = visible_at(a.policy, a.step->position);
    append_own<D_SUB>(a, v, codes, kv_head);
    struct code_stream stream = {NULL, (int)blockIdx.x - (int)gridDim.x, 0};
    next_tile(stream, a, v, codes);
#pragma unroll
    for (int i = 0; i < unit::STAGES; i++)
        fetch_unit<unit::LOADS>(stream, mine + i * unit::LOADS * 32, n_units, a, v, codes);
    stage_queries<D_SUB, TILES>(a, fragments, linear, a.q + (size_t)head * a.head_dim, a.book.ranges + (size_t)kv_head * a.dims,
                                n_queries);
    if (blockIdx.x == 0 && blockIdx.z == 0 && v.sinks > 0) {
        if (a.type == YALM_KV_FP32)
            score_apart<float>(a, v, kv_head);
        else if (a.type == YALM_KV_INT8)
            score_apart<int8_t>(a, v, kv_head);
        else
            score_apart<half>(a, v, kv_head);
    }
    __syncthreads();

    int stage = 0;
    for (int part = (int)blockIdx.x, odd = 0; part < a.n_parts; part += (int)gridDim.x, odd ^= 1) {
        const int tile = part * SCORE_WARPS + warp;
        float2 *to = a.part_stats + (size_t)head * a.n_parts + part;
        if (part > 0 && !part_has_keys(v, part)) { // nobody asks for its scores
            if ((int)threadIdx.x < n_queries)
                to[(size_t)threadIdx.x * a.n_parts] = make_float2(-INFINITY, 0.0f);
            continue;
        }
        int sum[TILES][8][4] = {};
        for (int i = 0; i < n_units && tile_has_keys(v, tile); i++) {
            uint4 *from = mine + stage * unit::LOADS * 32;
            copy_async_wait<unit::STAGES - 1>();
            multiply_unit<D_SUB, TILES>(sum, from, fragments + i * unit::STEPS * 32 + lane, n_steps * 32,
                                        tables + i * unit::LOADS * 4 * D_SUB + lane % 4 * D_SUB);
            fetch_unit<unit::LOADS>(stream, from, n_units, a, v, codes);
            stage = stage + 1 == unit::STAGES ? 0 : stage + 1;
        }
        float2 *of_part = stats + odd * SCORE_WARPS * SCORE_QUERIES;
        store_tile<TILES>(a, v, sum, tile, a.scores + (size_t)head * a.ld, linear, n_queries, of_part + warp * 4 * TILES);
        __syncthreads();
        store_stats<TILES>(to, of_part, a.n_parts, n_queries);
    }
    copy_async_wait<0>();
}

// ------------------------------------------------------------------------------------------ host

template <int D_SUB, int TILES>
static yalm_status launch(const struct scoring *a, int n_kv_heads, int n_sms, cudaStream_t stream, yalm_error *error)
{
    const int passes = (a->group + 4 * TILES - 1) / (4 * TILES), wanted = SCORE_BLOCKS<TILES> * n_sms / (n_kv_heads * passes);
    const dim3 grid(wanted < 1 ? 1 : wanted < a->n_parts ? wanted : a->n_parts, n_kv_heads, passes);
    const size_t words = SCORE_WARPS * SCORE_DEPTH * 32 + TILES * a->dims / 8 * 32 + a->dims;
    return LAUNCH(error, (score_codes_kernel<D_SUB, TILES>), grid, SCORE_THREADS, words * sizeof(uint4), stream, *a);
}

template <int D_SUB>
static yalm_status launch_tiles(const struct scoring *a, int n_kv_heads, int n_sms, cudaStream_t stream, yalm_error *error)
{
    return a->group <= 4 ? launch<D_SUB, 1>(a, n_kv_heads, n_sms, stream, error)
                         : launch<D_SUB, 2>(a, n_kv_heads, n_sms, stream, error);
}

yalm_status codes_score(const struct key_codes *c, const struct codes_score *s, int n_sms, cudaStream_t stream,
                        yalm_error *error)
{
    const struct kv_layer rows = kv_layer_of(s->cache, s->cache_layer);
    const size_t head = (size_t)s->layer * c->n_kv_heads;
    struct scoring a = {};
    a.step = s->step;
    a.q = s->q;
    a.sink_q = s->sink_q;
    a.key = s->key;
    a.book = {c->centroids + head * c->head_dim * CODES_CENTROIDS, c->tables + head * codes_dims(c),
              c->ranges + head * codes_dims(c)};
    a.codes = c->codes + head * codes_head_words(c);
    a.head_words = codes_head_words(c);
    a.keys = rows.keys;
    a.key_scales = rows.key_scales;
    a.type = s->cache->type;
    a.policy = s->cache->policy;
    a.scores = s->scores;
    a.sink_scores = s->sink_scores;
    a.part_stats = s->part_stats;
    a.group = s->n_heads / c->n_kv_heads;
    a.head_dim = c->head_dim;
    a.n_sub = c->n_sub;
    a.rows = c->rows;
    a.dims = codes_dims(c);
    a.ld = s->ld;
    a.n_parts = s->n_parts;
    if (a.key && a.group > SCORE_QUERIES) { // several blocks would change the same codes
        TRY(codes_append(c, s->layer, s->step, s->key, s->cache, s->cache_layer, 1, stream, error));
        a.key = NULL;
    }
    return c->d_sub == 1   ? launch_tiles<1>(&a, c->n_kv_heads, n_sms, stream, error)
           : c->d_sub == 2 ? launch_tiles<2>(&a, c->n_kv_heads, n_sms, stream, error)
                           : launch_tiles<4>(&a, c->n_kv_heads, n_sms, stream, error);
}
