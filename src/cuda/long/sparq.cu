// SparQ on the GPU (Ribar et al., arXiv 2312.04985): the second copy of the keys and the approximate scores. With d components
// and a group of query heads that share a KV head,
//
//     i1 = the r components in which Σ_group |q| is largest                                     (prepare)
//     q' = q[i1] / sqrt(Σ_i1 |q_i| / Σ |q_i|)      q has its factor 1 / √d already              (prepare)
//     x_j = q' · K[j, i1]                          for all slots j                              (score)
//
// It differs from the paper: i1 is the group's, the copy may be int8 or 4 bits with a scale a key (sparq_copy.cuh), and scores
// stay in registers while all r components go by. The next steps are in select.cu and attention/decode.cu.
#include "cuda/long/method.h"
#include "cuda/long/selective.cuh"
#include "cuda/long/sparq_copy.cuh"

enum {
    APPEND_TOKENS = 32, // of a block
    APPEND_THREADS = 256,
    PREPARE_THREADS = 256, // head_dim at least: a thread for each component
    SCORE_EACH = 8,        // slots of a thread: a pack of each run (sparq_copy.cuh)
    SCORE_THREADS = PART_KEYS / SCORE_EACH,
    STAGE_BYTES = 4096, // of the runs, on their way to shared memory
    STAGES = 4,
    MIN_KEYS = 128, // selected, unless asked for fewer
};

// Bytes that a layer's further steps cost, as reading: on an H100 some 35 µs at 3.1 TB/s (docs/attention.md).
static constexpr double STEP_BYTES = 110e6;

// Arguments of all kernels here; pointers are the layer's.
struct sparq_args {
    const struct evaluation *step;
    const float *q, *sink_q; // (n_heads, head_dim)
    yalm_kv cache_type;
    const void *keys;        // (n_kv_heads, capacity, head_dim)
    const float *key_scales; // (n_kv_heads, capacity) of an int8 cache
    struct kv_policy policy;
    int group, head_dim, r;
    char *copied;  // (n_kv_heads, head_dim, ld)
    float *scales; // (n_kv_heads, ld); NULL: of fp16
    int *components;
    float *scaled_q;
    struct cuda_selective t;
};

// ------------------------------------------------------------------------------------------ the copy

template <class COPY> __device__ static inline char *copy_of(const struct sparq_args &a, int kv_head)
{
    return a.copied + (size_t)kv_head * a.head_dim * (a.t.ld / 8) * sizeof(struct copy_pack<COPY>);
}

// One warp: a token's key, by put(), and its scale.
template <class T, class COPY, class Put>
__device__ static inline void copy_row(const struct sparq_args &a, int kv_head, int slot, Put put)
{
    const struct kv_rows<T> keys = kv_rows_of<T>(a.keys, a.key_scales, kv_head, a.policy.capacity, a.head_dim);
    copy_key<COPY>(keys, slot, a.scales ? a.scales + (size_t)kv_head * a.t.ld : NULL, put);
}

// Block (i, kv_head): APPEND_TOKENS of step->n tokens, whose rows are in the cache. Reads rows, writes runs: turned in shared
// memory.
template <class T, class COPY> static __global__ void __launch_bounds__(APPEND_THREADS) append_kernel(struct sparq_args a)
{
    enum { STRIDE = APPEND_TOKENS + 2 };
    SHARED_ARRAY(COPY, tile, ATTENTION_MAX_DIM * STRIDE);
    grid_dependency_launch();
    grid_dependency_wait();
    const int kv_head = (int)blockIdx.y, first = (int)blockIdx.x * APPEND_TOKENS;
    const int n = min((int)APPEND_TOKENS, a.step->n - first);
    const int64_t position = a.step->position + first;
    for (int t = (int)threadIdx.x / 32; t < n; t += APPEND_THREADS / 32)
        copy_row<T, COPY>(a, kv_head, policy_slot(a.policy, position + t),
                          [&](int c, COPY element) { tile[c * STRIDE + t] = element; });
    __syncthreads();
    const int t = (int)threadIdx.x % APPEND_TOKENS;
    const struct copy_writer<COPY> to(copy_of<COPY>(a, kv_head), a.t.ld, policy_slot(a.policy, position + t), t, n);
    for (int c = (int)threadIdx.x / APPEND_TOKENS; c < a.head_dim; c += APPEND_THREADS / APPEND_TOKENS)
        to.put(c, t < n ? tile[c * STRIDE + t] : COPY{});
}

// ------------------------------------------------------------------------------------------ the queries

// Block kv_head: its largest components, ascending, of equal ones the first; and its queries' values there. Also the copy of
// the token's own key. A component's rank is how many are before it: head_dim² comparisons, in shared memory.
template <class T, class COPY> static __global__ void __launch_bounds__(PREPARE_THREADS) prepare_kernel(struct sparq_args a)
{
    SHARED_ARRAY(float, sums, ATTENTION_MAX_DIM);
    SHARED_ARRAY(int, chosen, ATTENTION_MAX_DIM);
    SHARED_ARRAY(int, counts, PREPARE_THREADS / 32);
    grid_dependency_launch();
    grid_dependency_wait();
    const int kv_head = (int)blockIdx.x, c = (int)threadIdx.x, warp = c / 32, lane = c % 32, d = a.head_dim;
    const float *q = a.q + (size_t)kv_head * a.group * d;
    float mine = -1.0f;
    if (c < d) {
        mine = 0.0f;
        for (int i = 0; i < a.group; i++)
            mine += fabsf(q[i * d + c]);
        mine = mine >= 0.0f ? mine : -1.0f; // NaN
        sums[c] = mine;
    }
    __syncthreads();
    int rank = 0;
#pragma unroll 4
    for (int i = 0; c < d && i < d; i++)
        rank += sums[i] > mine || (sums[i] == mine && i < c);
    const bool keep = c < d && rank < a.r;
    const unsigned votes = __ballot_sync(0xffffffffu, keep);
    if (lane == 0)
        counts[warp] = __popc(votes);
    __syncthreads();
    int at = __popc(votes & ((1u << lane) - 1));
    for (int w = 0; w < warp; w++)
        at += counts[w];
    if (keep) {
        chosen[at] = c;
        a.components[kv_head * a.r + at] = c;
    }
    __syncthreads();
    for (int i = warp; i <= a.group; i += PREPARE_THREADS / 32) {
        if (i == a.group) {
            const int slot = policy_slot(a.policy, a.step->position);
            const struct copy_place<COPY> to(copy_of<COPY>(a, kv_head), a.t.ld, slot);
            copy_row<T, COPY>(a, kv_head, slot, [&](int c, COPY element) { to.put(c, element); });
            continue;
        }
        float all = 0.0f, part = 0.0f;
        for (int k = lane; k < d; k += 32)
            all += fabsf(q[i * d + k]);
        for (int k = lane; k < a.r; k += 32)
            part += fabsf(q[i * d + chosen[k]]);
        all = warp_sum(all);
        part = warp_sum(part);
        const float factor = part > 0.0f ? sqrtf(all / part) : 1.0f;
        for (int k = lane; k < a.r; k += 32)
            a.scaled_q[(size_t)(kv_head * a.group + i) * a.r + k] = factor * q[i * d + chosen[k]];
    }
}

// ------------------------------------------------------------------------------------------ scores

template <class T> __device__ static inline void score_sinks_as(const struct sparq_args &a, int kv_head, int sinks)
{
    score_sinks(a.t.sink_scores, a.sink_q, kv_rows_of<T>(a.keys, a.key_scales, kv_head, a.policy.capacity, a.head_dim), kv_head,
                a.group, a.policy.n_sinks, sinks, a.head_dim);
}
__device__ static inline void score_sinks_of(const struct sparq_args &a, int kv_head, int sinks)
{
    if (a.cache_type == YALM_KV_FP32)
        score_sinks_as<float>(a, kv_head, sinks);
    else if (a.cache_type == YALM_KV_INT8)
        score_sinks_as<int8_t>(a, kv_head, sinks);
    else
        score_sinks_as<half>(a, kv_head, sinks);
}

// Copies one part's share of a KV head's runs to shared memory, STAGE_RUNS components at a time. A thread copies 16 bytes at a
// time, neighbouring threads neighbouring bytes. (Loads to registers looked simpler; but the compiler moved each next to its
// use, down to two in flight.)
template <class COPY> struct run_stream {
    enum { RUN = SCORE_THREADS * (int)sizeof(struct copy_pack<COPY>), STAGE_RUNS = STAGE_BYTES / RUN };
    uint4 *ring;       // (STAGES, STAGE_BYTES), shared
    const char *at;    // the part in component 0's run
    size_t stride;     // of runs
    int r;             // of these components
    const int *chosen; // shared

    // A group of copies, empty beyond the last.
    __device__ __forceinline__ void load(int stage) const
    {
#pragma unroll
        for (int i = (int)threadIdx.x; i < STAGE_BYTES / 16; i += SCORE_THREADS) {
            const int run = stage * STAGE_RUNS + i / (RUN / 16);
            if (run < r)
                copy_async16(ring + stage % STAGES * (STAGE_BYTES / 16) + i, at + chosen[run] * stride + i % (RUN / 16) * 16);
        }
        copy_async_commit();
    }
    // All threads: the stage's bytes are there, and what was read of the one before makes room for another.
    __device__ __forceinline__ const struct copy_pack<COPY> *next(int stage) const {
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        load(stage + STAGES - 1);
        return reinterpret_cast<const struct copy_pack<COPY> *>(ring + stage % STAGES * (STAGE_BYTES / 16)) + threadIdx.x;
    }
};

// scores[h][j] += factors[h] x_j, a pack's eight slots.
template <class COPY, int HEADS>
__device__ __forceinline__ void add_pack(float (&scores)[HEADS][SCORE_EACH], const struct copy_pack<COPY> &pack,
                                         const float *factors)
{
    float x[SCORE_EACH], by[HEADS];
    unpack_run(x, pack);
    load_factors(by, factors);
#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int j = 0; j < SCORE_EACH; j++)
            scores[h][j] = fmaf(by[h], x[j], scores[h][j]);
}

// The sums times the keys' scales, -inf where no key is seen, and each query's part_stats. Ends with a barrier. shared: (64)
template <class COPY, int HEADS>
__device__ __forceinline__ void leave_scores(const struct sparq_args &a, const struct visible &v, int kv_head, int part,
                                             int first, float (&scores)[HEADS][SCORE_EACH], float *shared)
{
    enum { APART = copy_pack<COPY>::APART };
    const int slot = part * PART_KEYS + pack_slot<COPY>((int)threadIdx.x);
    float4 scale[2] = {{1.0f, 1.0f, 1.0f, 1.0f}, {1.0f, 1.0f, 1.0f, 1.0f}};
    if (a.scales) {
        const float4 *from = reinterpret_cast<const float4 *>(a.scales + (size_t)kv_head * a.t.ld + slot);
        scale[0] = from[0];
        scale[1] = from[APART / 4];
    }
    const float scales[SCORE_EACH] = {scale[0].x, scale[0].y, scale[0].z, scale[0].w,
                                      scale[1].x, scale[1].y, scale[1].z, scale[1].w};
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (first + h >= a.group)
            break;
        const size_t head = (size_t)kv_head * a.group + first + h;
        float max = -INFINITY, sum = 0.0f;
#pragma unroll
        for (int j = 0; j < SCORE_EACH; j++) {
            scores[h][j] = key_number(v, slot + j % 4 + j / 4 * APART) >= 0 ? scores[h][j] * scales[j] : -INFINITY;
            max = fmaxf(max, scores[h][j]);
        }
#pragma unroll
        for (int j = 0; j < SCORE_EACH; j++)
            sum += max > -INFINITY ? softmax_weight(scores[h][j], max) : 0.0f;
        float4 *to = reinterpret_cast<float4 *>(a.t.scores + head * a.t.ld + slot);
        to[0] = make_float4(scores[h][0], scores[h][1], scores[h][2], scores[h][3]);
        to[APART / 4] = make_float4(scores[h][4], scores[h][5], scores[h][6], scores[h][7]);
        leave_part_stats(a.t.part_stats + head * a.t.n_parts + part, max, sum, shared);
        __syncthreads();
    }
}

// Block (part, kv_head): of up to HEADS queries at a time. Bytes, of a KV head with S keys: S r elements of the copy once for
// each HEADS queries, and 4 S written for each query. Operations: 2 r S for each query. Bound by reading: a block has two to
// three stages of 4 KB under way. Dynamic shared memory: (r, HEADS) floats and r ints.
template <class COPY, int HEADS>
static __global__ void __launch_bounds__(SCORE_THREADS, HEADS == 8 ? 3 : 4) score_kernel(struct sparq_args a)
{
    enum { STAGE_RUNS = run_stream<COPY>::STAGE_RUNS };
    SHARED_DYNAMIC(float, q);
    SHARED_ARRAY(uint4, ring, STAGES * STAGE_BYTES / 16);
    SHARED_ARRAY(float, shared, 64);
    grid_dependency_launch();
    grid_dependency_wait();
    const int part = (int)blockIdx.x, kv_head = (int)blockIdx.y;
    const struct visible v = visible_at(a.policy, a.step->position);
    if (part == 0 && v.sinks > 0)
        score_sinks_of(a, kv_head, v.sinks);
    if (!part_has_keys(v, part)) {
        for (int i = (int)threadIdx.x; i < a.group; i += SCORE_THREADS)
            a.t.part_stats[((size_t)kv_head * a.group + i) * a.t.n_parts + part] = make_float2(-INFINITY, 0.0f);
        return;
    }
    int *components = reinterpret_cast<int *>(q + HEADS * a.r);
    for (int i = (int)threadIdx.x; i < a.r; i += SCORE_THREADS)
        components[i] = a.components[kv_head * a.r + i];
    __syncthreads();
    struct run_stream<COPY> runs;
    runs.ring = ring;
    runs.at = copy_of<COPY>(a, kv_head) + (size_t)part * run_stream<COPY>::RUN;
    runs.stride = (size_t)(a.t.ld / SCORE_EACH) * sizeof(struct copy_pack<COPY>);
    runs.r = a.r;
    runs.chosen = components;
    for (int first = 0; first < a.group; first += HEADS) {
        for (int stage = 0; stage < STAGES - 1; stage++)
            runs.load(stage);
        for (int i = (int)threadIdx.x; i < HEADS * a.r; i += SCORE_THREADS) { // (r, HEADS): in place before the first stage is
            const int h = i % HEADS, c = i / HEADS;
            q[i] = first + h < a.group ? a.scaled_q[(size_t)(kv_head * a.group + first + h) * a.r + c] : 0.0f;
        }
        float scores[HEADS][SCORE_EACH] = {};
        for (int stage = 0; stage * STAGE_RUNS < a.r; stage++) {
            const struct copy_pack<COPY> *packs = runs.next(stage);
            const float *factors = q + stage * STAGE_RUNS * HEADS;
            const int n = a.r - stage * STAGE_RUNS;
            if (n >= STAGE_RUNS) {
#pragma unroll
                for (int k = 0; k < STAGE_RUNS; k++)
                    add_pack<COPY, HEADS>(scores, packs[k * SCORE_THREADS], factors + k * HEADS);
            } else {
#pragma unroll 1
                for (int k = 0; k < n; k++)
                    add_pack<COPY, HEADS>(scores, packs[k * SCORE_THREADS], factors + k * HEADS);
            }
        }
        leave_scores<COPY, HEADS>(a, v, kv_head, part, first, scores, shared);
    }
}

// ------------------------------------------------------------------------------------------ launches

static struct sparq_args args_of(const struct cuda_state *s, const struct attention *a)
{
    const struct kv_cache *cache = a->cache;
    const size_t layer_heads = (size_t)a->layer * cache->n_kv_heads;
    const struct kv_layer rows = kv_layer_of(cache, a->layer);
    struct sparq_args args = {};
    args.step = a->step;
    args.q = a->q;
    args.sink_q = a->sink_q;
    args.cache_type = cache->type;
    args.keys = rows.keys;
    args.key_scales = rows.key_scales;
    args.policy = cache->policy;
    args.group = a->n_heads / cache->n_kv_heads;
    args.head_dim = cache->head_dim;
    args.r = s->method->sparq.r;
    args.copied = s->method->sparq.copied + layer_heads * cache->head_dim * s->method->sparq.stride;
    args.scales = s->method->sparq.scales ? s->method->sparq.scales + layer_heads * s->method->selective.ld : NULL;
    args.components = s->method->sparq.components;
    args.scaled_q = s->method->sparq.q;
    args.t = s->method->selective;
    return args;
}

// LAUNCH of the instance for the cache's type and the copy's: kernel is a template of both.
#define LAUNCH_COPY_OF(s, error, kernel, type, ...)                                                                            \
    ((s)->method->sparq.copy == SPARQ_COPY_INT8 ? LAUNCH(error, (kernel<type, int8_t>), __VA_ARGS__)                           \
     : (s)->method->sparq.copy == SPARQ_COPY_Q4 ? LAUNCH(error, (kernel<type, nibble>), __VA_ARGS__)                           \
                                                : LAUNCH(error, (kernel<type, half>), __VA_ARGS__))
#define LAUNCH_COPY(s, error, kernel, ...)                                                                                     \
    ((s)->caches[(s)->far].type == YALM_KV_FP32   ? LAUNCH_COPY_OF(s, error, kernel, float, __VA_ARGS__)                       \
     : (s)->caches[(s)->far].type == YALM_KV_INT8 ? LAUNCH_COPY_OF(s, error, kernel, int8_t, __VA_ARGS__)                      \
                                                  : LAUNCH_COPY_OF(s, error, kernel, half, __VA_ARGS__))

static yalm_status sparq_append(struct cuda_state *s, const struct attention *a, int n, yalm_error *error)
{
    const dim3 grid((n + APPEND_TOKENS - 1) / APPEND_TOKENS, a->cache->n_kv_heads);
    return LAUNCH_COPY(s, error, append_kernel, grid, APPEND_THREADS, 0, s->stream, args_of(s, a));
}

static yalm_status sparq_prepare(struct cuda_state *s, const struct attention *a, yalm_error *error)
{
    return LAUNCH_COPY(s, error, prepare_kernel, a->cache->n_kv_heads, PREPARE_THREADS, 0, s->stream, args_of(s, a));
}

template <class COPY> static yalm_status launch_score(struct cuda_state *s, const struct sparq_args &args, yalm_error *error)
{
    const dim3 grid(s->method->selective.n_parts, far_cache(s)->n_kv_heads);
    const int heads = args.group == 1 ? 1 : args.group == 2 ? 2 : args.group <= 4 ? 4 : 8; // at a time
    const size_t shared = (size_t)(heads + 1) * args.r * sizeof(float);
    return heads == 1   ? LAUNCH(error, (score_kernel<COPY, 1>), grid, SCORE_THREADS, shared, s->stream, args)
           : heads == 2 ? LAUNCH(error, (score_kernel<COPY, 2>), grid, SCORE_THREADS, shared, s->stream, args)
           : heads == 4 ? LAUNCH(error, (score_kernel<COPY, 4>), grid, SCORE_THREADS, shared, s->stream, args)
                        : LAUNCH(error, (score_kernel<COPY, 8>), grid, SCORE_THREADS, shared, s->stream, args);
}

static yalm_status sparq_score(struct cuda_state *s, const struct attention *a, yalm_error *error)
{
    const struct sparq_args args = args_of(s, a);
    return s->method->sparq.copy == SPARQ_COPY_INT8 ? launch_score<int8_t>(s, args, error)
           : s->method->sparq.copy == SPARQ_COPY_Q4 ? launch_score<nibble>(s, args, error)
                                                    : launch_score<half>(s, args, error);
}

// ------------------------------------------------------------------------------------------ sizes

static int selected(const struct cuda_sparq *p, int n)
{
    const int k = (int)(p->share * n);
    return p->k ? p->k : k > p->min_k ? k : p->min_k;
}

static double element_bytes(enum sparq_copy copy)
{
    return copy == SPARQ_COPY_INT8 ? sizeof(int8_t) : copy == SPARQ_COPY_Q4 ? 0.5 : sizeof(half);
}

// Of one KV head with n keys: the runs that scores are computed from, keys and values of the selected.
static double head_bytes(const struct cuda_state *s, int n)
{
    const struct cuda_sparq *p = &s->method->sparq;
    const int k = selected(p, n) < n ? selected(p, n) : n;
    return n * (p->r * element_bytes(p->copy) + (p->copy == SPARQ_COPY_FP16 ? 0 : sizeof(float))) +
           2.0 * k * kv_row_bytes(far_cache(s)) + (s->method->selective.tail ? far_cache(s)->head_dim * 8.0 : 0);
}

static double sparq_bytes(const struct cuda_state *s, int64_t position)
{
    const int sinks = policy_sinks_apart(far_cache(s)->policy, position) ? far_cache(s)->policy.n_sinks : 0;
    return far_cache(s)->n_kv_heads *
           (head_bytes(s, selective_n_keys(&far_cache(s)->policy, position)) + 2.0 * sinks * kv_row_bytes(far_cache(s)));
}

static struct choice sparq_choice(const struct cuda_state *s, int n)
{
    struct choice c = {};
    c.k = selected(&s->method->sparq, n);
    c.local = s->method->sparq.local ? s->method->sparq.local : c.k / 4;
    return c;
}

static yalm_status sparq_check(const struct model_config *config, const yalm_session_options *options, yalm_error *error)
{
    struct settings settings;
    TRY(settings_read(&settings, options, error));
    const struct sparq_settings *o = &settings.sparq;
    const int d = config_far(config).head_dim;
    if (d > ATTENTION_MAX_DIM)
        return error_set(error, YALM_USAGE, "sparq attention on the GPU: found heads of %d components, expected at most %d", d,
                         (int)ATTENTION_MAX_DIM);
    if (o->r > d)
        return error_set(error, YALM_USAGE, "sparq.r: found %d, expected at most the model's head_dim, %d", o->r, d);
    return YALM_OK;
}

// Traffic in elements is S r + 2 k d of the dense 2 S d. Each term gets half of the wanted ratio: r = ratio d and k = ratio S /
// 2 (as cpu/long/sparq.c).
static yalm_status sparq_plan(struct cuda_state *s, const struct backend_plan *plan, yalm_error *error)
{
    struct settings settings;
    TRY(settings_read(&settings, plan->options, error));
    const struct sparq_settings *o = &settings.sparq;
    struct cuda_sparq *p = &s->method->sparq;
    const int d = far_cache(s)->head_dim, by_ratio = o->ratio > 0 ? (int)lrintf(o->ratio * (float)d) : d / 4;
    p->copy = (enum sparq_copy)o->copy;
    p->r = o->r ? o->r : by_ratio > 1 ? by_ratio : 1;
    p->share = o->ratio > 0 ? (double)o->ratio / 2 : 1.0 / 16;
    p->k = o->k;
    p->min_k = o->min_k ? o->min_k : (int)MIN_KEYS;
    p->local = o->local;
    p->stride = (size_t)(s->method->selective.ld * element_bytes(p->copy));
    s->method->selective.tail =
        o->tail == SWITCH_ON || (o->tail == SWITCH_AUTO && s->config->n_heads == far_cache(s)->n_kv_heads);
    s->method->selective.from = o->from ? o->from : selective_break_even(s, head_bytes, STEP_BYTES / far_cache(s)->n_kv_heads);
    return YALM_OK;
}

static void sparq_take_kept(struct cuda_state *s, struct cuda_blocks *b)
{
    const size_t heads = (size_t)far_cache(s)->n_layers * far_cache(s)->n_kv_heads;
    take(b, s->method->sparq.copied, heads * far_cache(s)->head_dim, s->method->sparq.stride);
    if (s->method->sparq.copy != SPARQ_COPY_FP16)
        take(b, s->method->sparq.scales, heads * s->method->selective.ld, sizeof(float));
}

static void sparq_take_scratch(struct cuda_state *s, struct cuda_blocks *b)
{
    take(b, s->method->sparq.components, (size_t)far_cache(s)->n_kv_heads * s->method->sparq.r, sizeof(int));
    take(b, s->method->sparq.q, (size_t)s->config->n_heads * s->method->sparq.r, sizeof(float));
}

// Packs are read whole, slots that nothing was ever written to with them.
static yalm_status sparq_open(struct cuda_state *s, const struct backend_plan *plan, yalm_error *error)
{
    (void)plan;
    const size_t heads = (size_t)far_cache(s)->n_layers * far_cache(s)->n_kv_heads;
    TRY_CUDA(cudaMemset(s->method->sparq.copied, 0, heads * far_cache(s)->head_dim * s->method->sparq.stride));
    if (s->method->sparq.scales)
        TRY_CUDA(cudaMemset(s->method->sparq.scales, 0, heads * s->method->selective.ld * sizeof(float)));
    return YALM_OK;
}

static struct cuda_method_table make_method(void)
{
    struct cuda_method_table m = {};
    m.name = "sparq";
    m.check = sparq_check;
    m.plan = sparq_plan;
    m.take_kept = sparq_take_kept;
    m.take_scratch = sparq_take_scratch;
    m.open = sparq_open;
    m.append = sparq_append;
    m.prepare = sparq_prepare;
    m.score = sparq_score;
    m.choice = sparq_choice;
    m.bytes = sparq_bytes;
    return m;
}

const struct cuda_method_table method_sparq = make_method();
