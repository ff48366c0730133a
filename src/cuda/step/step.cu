// One token's step as one kernel (step.cuh): the kernel, and what the host makes for it.
#include "cuda/step.h"

#include "cuda/state.h"
#include "cuda/step/step_attention.cuh"
#include "cuda/step/step_products.cuh"

// The warp that copies weights, one thread of it. All of it sets out for the L2 cache what a phase reads besides: the block's share of a norm, which all
// blocks read, and keys and values.
__device__ __forceinline__ void step_reader(const struct step_launch &l, const struct step_now &now,
                                            const struct step_memory &m)
{
    struct step_ring ring = {0, 0}, landed = {0, 0};
    const int lane = (int)threadIdx.x % 32;
    int ahead = 0;
    for (int i = 0; i < l.n_phases; i++) {
        const struct step_phase &p = l.phases[i];
        if (p.work == STEP_ATTEND) {
            step_prefetch_keys(p, l, now.position);
            continue;
        }
        for (int line = (int)blockIdx.x + (int)gridDim.x * lane; p.norm && 32 * line < p.cols; line += 32 * (int)gridDim.x)
            prefetch_l2(p.norm + 32 * line);
        if (lane == 0)
            step_read(p, i, ring, landed, ahead, l, m);
        __syncwarp();
    }
}

// The token's embedding, this block's share.
__device__ __forceinline__ void step_embed(const struct step_launch &l, const struct step_now &now)
{
    const struct matrix &e = l.embedding;
    for (int col = (int)(blockIdx.x + gridDim.x * threadIdx.x); col < e.cols; col += (int)gridDim.x * STEP_THREADS) {
        const size_t at = (size_t)now.token * e.cols + col;
        const float x = e.dtype == DTYPE_FP32   ? static_cast<const float *>(e.data)[at]
                        : e.dtype == DTYPE_FP16 ? to_float(static_cast<const half *>(e.data)[at])
                        : e.dtype == DTYPE_BF16
                            ? to_float(static_cast<const __nv_bfloat16 *>(e.data)[at])
                            : QUANT_CALL(e.dtype, 0.0f, quant_value, e.data, e.rows, e.cols, now.token, col);
        told_store(l.embedded + col, l.embedding_scale * x, ~now.launch & 1);
    }
}

__device__ __forceinline__ void step_compute(const struct step_launch &l, const struct step_now &now,
                                             const struct step_memory &m)
{
    struct step_ring ring = {0, 0};
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const struct step_cut cut = step_cut_of(l, now.position);
    int batches = 0;
    step_embed(l, now);
    for (int i = (int)threadIdx.x; i < l.head_dim / 2; i += STEP_THREADS)
        m.turns[i] = rotation_of(now.position, l.rope.inverse_frequency[i], l.rope.scale);
    // Each warp has a copy of the phase that it is at, and the next one on its way to registers.
    constexpr int words = sizeof(struct step_phase) / 16;
    static_assert(sizeof(struct step_phase) % 16 == 0 && words <= 32, "16 bytes for each lane");
    struct step_phase &p = m.phases[warp];
    uint4 next = {0, 0, 0, 0};
    if (lane < words)
        next = __ldg(reinterpret_cast<const uint4 *>(l.phases) + lane);
    barrier_sync(STEP_BARRIER, STEP_THREADS);
    for (int i = 0; i < l.n_phases; i++) {
        __syncwarp();
        if (lane < words) {
            reinterpret_cast<uint4 *>(&p)[lane] = next;
            if (i + 1 < l.n_phases)
                next = __ldg(reinterpret_cast<const uint4 *>(l.phases + i + 1) + lane);
        }
        __syncwarp();
        if (lane == 0) {
            p.turn = now.launch * l.n_layers + p.layer;
            p.launch = now.launch;
        }
        __syncwarp();
        if (p.work == STEP_ATTEND)
            step_attend(p, l, m, cut, now.position);
        else
            step_product(p, i, ring, batches, l, m);
    }
}

static __global__ void __launch_bounds__(STEP_THREADS + 32, 1)
    step_kernel(const __grid_constant__ struct step_launch l, const struct step_now now)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    SHARED_DYNAMIC(uint8_t, shared);
    grid_dependency_wait();
    const struct step_memory m = step_memory_of(shared, l);
    if (threadIdx.x == 0)
        for (int i = 0; i < l.n_slots; i++) {
            arrivals_init(m.full + i, 1);
            arrivals_init(m.empty + i, STEP_WARPS);
        }
    __syncthreads();
    if (threadIdx.x >= STEP_THREADS)
        step_reader(l, now, m);
    else
        step_compute(l, now, m);
#endif
}

// ------------------------------------------------------------------------------------------ the plan

// A layer of more bytes takes so long that more of it on its way costs nothing; of a smaller one blocks wait for each other in a larger part of the time,
// and what they tell each other waits behind the weights under way.
enum { LARGE_LAYER = 200 << 20 };
// Bytes of a layer's keys and values: more than the L2 cache holds are read faster by a kernel of their own, whose blocks have all of shared memory.
enum { MOST_KEYS = 48 << 20 };

struct step_kernel_plan {
    struct step_launch launch;
    size_t shared_bytes;
    int n_blocks;
};

static bool type_runs(enum dtype type)
{
    return type == DTYPE_FP16 || type == DTYPE_BF16 || type == DTYPE_FP8 || type == DTYPE_FP8_E5M2 ||
           dtype_group_bytes[type] > 0;
}

static int pack_cols(enum dtype type)
{
    const bool nibbles = dtype_group_bytes[type] > 0 && type != DTYPE_Q8;
    return nibbles ? 32 : dtype_sizes[type] == 2 ? 8 : 16;
}

struct step_planner {
    struct step_phase *phases;
    int n, slot_bytes, x_bytes;
    size_t layer_bytes; // of the first one's weights
    bool fits;
};

// How a product of `cols` columns is spread; false where no instance is for it. Bulk copies take multiples of 16 bytes from such addresses.
static bool shape_make(struct step_shape *shape, enum dtype type, int cols, struct step_planner *planner)
{
    const int scale = (int)dtype_group_scale[type];
    if (!type_runs(type) || cols % (scale > 0 ? 8 * QUANT_GROUP : pack_cols(type)) != 0)
        return false;
    const int chunk = 32 * pack_cols(type);
    shape->chunks = (cols + chunk - 1) / chunk;
    const int in_warp = (shape->chunks + STEP_WARPS - 1) / STEP_WARPS;
    shape->columns = (shape->chunks + in_warp - 1) / in_warp;
    shape->groups = STEP_WARPS / shape->columns;
    shape->scale_bytes = cols / QUANT_GROUP * scale;
    shape->row_bytes = scale > 0 ? cols / QUANT_GROUP * (int)dtype_group_bytes[type] : cols / pack_cols(type) * 16;
    const int row = shape->row_bytes + shape->scale_bytes;
    const int together = step_rows_each(in_warp) * shape->groups;
    shape->rows = together * row < STEP_SLOT ? STEP_SLOT / (together * row) * together : STEP_SLOT > row ? STEP_SLOT / row : 1;
    const int bytes = (int)round_up(shape->rows * row + (shape->scale_bytes % 16 ? 32 : 0), 128); // step_scales_skew()
    planner->slot_bytes = bytes > planner->slot_bytes ? bytes : planner->slot_bytes;
    const int x = scale > 0 ? (int)x_bytes<q8>(shape->chunks * chunk) : 0; // of all types with groups
    planner->x_bytes = x > planner->x_bytes ? x : planner->x_bytes;
    return in_warp <= (dtype_sizes[type] == 2 || type == DTYPE_Q8 ? STEP_MOST_CHUNKS<half> : STEP_MOST_CHUNKS<q4>);
}

// What a product reads and writes beside weights.
struct step_ends {
    const float *x, *norm;
    enum step_words x_words, y_words;
    const float *old; // of STEP_ADD
    enum step_words old_words;
};

static void add_product(struct step_planner *planner, enum step_work work, int layer, const struct product *products,
                        int n_products, const struct step_ends &ends, float eps)
{
    struct step_phase p = {};
    const struct matrix *first = &products[0].w;
    p.work = work;
    p.layer = layer;
    p.type = first->dtype;
    p.cols = first->cols;
    p.x = ends.x;
    p.norm = ends.norm;
    p.eps = eps;
    p.old = ends.old;
    p.x_words = ends.x_words;
    p.y_words = ends.y_words;
    p.old_words = ends.old_words;
    planner->fits = planner->fits && shape_make(&p.shape, p.type, p.cols, planner);
    for (int i = 0; i < n_products; i++) {
        const struct matrix *w = &products[i].w;
        planner->fits = planner->fits && w->dtype == p.type && w->cols == p.cols;
        p.w[i] = static_cast<const uint8_t *>(w->data);
        p.bias[i] = products[i].bias;
        p.y[i] = products[i].y;
        p.rows[i] = w->rows;
        p.units += w->rows;
        planner->layer_bytes += layer == 0 ? (size_t)w->rows * dtype_row_bytes(w->dtype, w->cols) : 0;
    }
    if (work == STEP_GATED)
        p.units = p.rows[0];
    planner->phases[planner->n++] = p;
}

static void plan_layer(struct step_planner *planner, struct cuda_state *s, int layer)
{
    const struct layer_weights *w = &s->weights->weights.layers[layer];
    const struct expert_weights *ffn = &w->experts[0];
    const float eps = s->config->norm_eps;
    const struct step_words_memory *own = &s->step_words;
    const float *x = layer == 0 ? own->embedded : own->x;
    const enum step_words x_words = layer == 0 ? STEP_BY_LAUNCH : STEP_EVEN;
    const struct product qkv[] = {{w->q, w->q_bias, own->q}, {w->k, w->k_bias, own->k}, {w->v, w->v_bias, own->v}};
    const struct product o = {w->o, w->o_bias, own->x}, down = {ffn->down, ffn->down_bias, own->x};
    const struct product units[] = {{ffn->gate, ffn->gate_bias, own->gated}, {ffn->up, ffn->up_bias, NULL}};
    const struct step_ends normed = {x, w->attention_norm, x_words, STEP_BY_LAYER, NULL, STEP_PLAIN};
    const int alike = w->v.dtype == w->q.dtype ? 3 : 2; // a v of another type is a product of its own
    add_product(planner, STEP_STORE, layer, qkv, alike, normed, eps);
    if (alike < 3)
        add_product(planner, STEP_STORE, layer, qkv + alike, 3 - alike, normed, eps);
    struct step_phase attend = {};
    attend.work = STEP_ATTEND;
    attend.layer = layer;
    attend.eps = eps;
    attend.head_norms[0] = w->q_norm;
    attend.head_norms[1] = w->k_norm;
    attend.still = s->config->unrotated_layer[layer];
    planner->phases[planner->n++] = attend;
    add_product(planner, STEP_ADD, layer, &o, 1, {own->attended, NULL, STEP_BY_LAYER, STEP_ODD, x, x_words}, eps);
    add_product(planner, STEP_GATED, layer, units, 2, {own->x, w->ffn_norm, STEP_ODD, STEP_BY_LAYER, NULL, STEP_PLAIN}, eps);
    add_product(planner, STEP_ADD, layer, &down, 1, {own->gated, NULL, STEP_BY_LAYER, STEP_EVEN, own->x, STEP_ODD}, eps);
}

int step_most_phases(const struct model_config *config)
{
    return 6 * config->n_layers + 1;
}

// Whether a model and a session are of a kind that the kernel computes. A head's norm is summed up by head_dim / 8 neighbouring lanes.
static bool session_fits(const struct cuda_state *s)
{
    const struct model_config *c = s->config;
    const unsigned ops =
        1u << OP_EMBED | 1u << OP_PROJECT | 1u << OP_HEAD_NORM | 1u << OP_ATTEND | 1u << OP_ADD | 1u << OP_UNITS;
    const bool head_norms = (c->head_dim & (c->head_dim - 1)) == 0 || !(s->recipe.ops & 1u << OP_HEAD_NORM);
    return s->device.capability >= 90 && !s->several && !s->method && !s->group &&
           recipe_within(&s->recipe, ops, TRAIT_UNROTATED) && head_norms && s->caches[0].type == YALM_KV_FP16 &&
           c->head_dim % 8 == 0 && c->head_dim <= ATTENTION_MAX_DIM && c->hidden_dim % 4 == 0 && !cuda_without("step");
}

// What blocks hand each other: one block of words, one part for each split of attention.
static size_t words_of(const struct cuda_state *s)
{
    return 2 * (size_t)s->config->hidden_dim + 2 * (size_t)s->q_dim + 2 * (size_t)s->kv_dim + s->config->ffn_dim;
}
static size_t parts_of(const struct cuda_state *s)
{
    return (size_t)(s->config->n_heads + s->device.n_sms) * STEP_HEADS * s->config->head_dim; // more than there can be
}

void step_take(struct cuda_state *s, struct cuda_blocks *b)
{
    if (!session_fits(s))
        return;
    struct step_words_memory *w = &s->step_words;
    take(b, s->step_phases, step_most_phases(s->config), sizeof(struct step_phase));
    take(b, w->embedded, words_of(s), sizeof(float));
    take(b, w->parts, parts_of(s), sizeof(float4));
    if (!w->embedded)
        return;
    w->x = w->embedded + s->config->hidden_dim;
    w->q = w->x + s->config->hidden_dim;
    w->k = w->q + s->q_dim;
    w->v = w->k + s->kv_dim;
    w->attended = w->v + s->kv_dim;
    w->gated = w->attended + s->q_dim;
}

static yalm_status upload_plan(struct cuda_state *s, const struct step_planner *planner, yalm_error *error)
{
    TRY_CUDA(cudaMemset(s->step_words.embedded, 0, words_of(s) * sizeof(float)));
    TRY_CUDA(cudaMemset(s->step_words.parts, 0, parts_of(s) * sizeof(float4)));
    TRY_CUDA(cudaMemcpy(s->step_phases, planner->phases, planner->n * sizeof *planner->phases, cudaMemcpyHostToDevice));
    return YALM_OK;
}

static void make_launch(struct cuda_state *s, struct step_launch *l, const struct step_planner *planner, int n_slots)
{
    *l = {};
    l->phases = s->step_phases;
    l->n_phases = planner->n;
    l->n_slots = n_slots;
    l->slot_bytes = planner->slot_bytes;
    l->x_bytes = planner->x_bytes;
    l->n_ahead = planner->layer_bytes > LARGE_LAYER ? 2 : 1;
    l->n_layers = s->config->n_layers;
    l->embedding = s->weights->weights.embedding;
    l->embedding_scale = s->config->embedding_scale > 0 ? s->config->embedding_scale : 1.0f;
    l->embedded = s->step_words.embedded;
    l->q = s->step_words.q;
    l->k = s->step_words.k;
    l->v = s->step_words.v;
    l->keys = static_cast<half *>(s->caches[0].keys);
    l->values = static_cast<half *>(s->caches[0].values);
    l->policy = s->caches[0].policy;
    l->rope = s->ropes[0];
    l->n_heads = s->config->n_heads;
    l->n_kv_heads = s->config->n_kv_heads;
    l->head_dim = s->config->head_dim;
    l->scale = config_attention_scale(s->config, s->config->head_dim);
    l->attended = s->step_words.attended;
    l->parts = s->step_words.parts;
}

// s->step_plan, where a block fits each multiprocessor.
static yalm_status make_plan(struct cuda_state *s, const struct step_planner *planner, int n_slots, yalm_error *error)
{
    const size_t shared = (size_t)n_slots * planner->slot_bytes + step_fixed_bytes(s->config->head_dim, planner->x_bytes);
    int fit = 0;
    TRY_CUDA(cudaFuncSetAttribute(step_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    TRY_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, step_kernel, STEP_THREADS + 32, shared));
    if (fit < 1)
        return YALM_OK;
    TRY(upload_plan(s, planner, error));
    struct step_kernel_plan *plan = static_cast<struct step_kernel_plan *>(calloc(1, sizeof *plan));
    if (!plan)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    make_launch(s, &plan->launch, planner, n_slots);
    plan->shared_bytes = shared;
    plan->n_blocks = s->device.n_sms;
    s->step_plan = plan;
    return YALM_OK;
}

static void plan_model(struct step_planner *planner, struct cuda_state *s)
{
    const struct product classifier = {s->weights->weights.classifier, NULL, s->logits};
    planner->fits = true;
    for (int layer = 0; layer < s->config->n_layers; layer++)
        plan_layer(planner, s, layer);
    add_product(planner, STEP_STORE, 0, &classifier, 1,
                {s->step_words.x, s->weights->weights.norm, STEP_EVEN, STEP_PLAIN, NULL, STEP_PLAIN}, s->config->norm_eps);
}

yalm_status step_open(struct cuda_state *s, yalm_error *error)
{
    int device = 0, room = 0;
    if (!session_fits(s))
        return YALM_OK;
    TRY_CUDA(cudaGetDevice(&device));
    TRY_CUDA(cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    struct step_planner planner = {};
    planner.phases = static_cast<struct step_phase *>(calloc(step_most_phases(s->config), sizeof(struct step_phase)));
    if (!planner.phases)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    plan_model(&planner, s);
    const int fixed = (int)step_fixed_bytes(s->config->head_dim, planner.x_bytes) + 256, // and what may be static
        slots = planner.slot_bytes > 0 ? (room - fixed) / planner.slot_bytes : 0,
              n_slots = slots < STEP_MOST_SLOTS ? slots : STEP_MOST_SLOTS;
    const yalm_status status = planner.fits && n_slots >= 2 ? make_plan(s, &planner, n_slots, error) : YALM_OK;
    free(planner.phases);
    return status;
}

void step_close(struct cuda_state *s)
{
    free(s->step_plan);
}

bool step_runs(const struct cuda_state *s, int64_t position)
{
    const double keys = policy_n_visible(s->caches[0].policy, position);
    return s->step_plan && !policy_sinks_apart(s->caches[0].policy, position) &&
           keys * 2 * s->config->n_kv_heads * kv_row_bytes(&s->caches[0]) <= MOST_KEYS;
}

yalm_status step_run(struct cuda_state *s, int64_t position, int32_t token, yalm_error *error)
{
    const struct step_kernel_plan *plan = s->step_plan;
    const struct step_now now = {position, token, s->step_words.launches++};
    return LAUNCH_TOGETHER(error, step_kernel, plan->n_blocks, STEP_THREADS + 32, plan->shared_bytes, s->stream, plan->launch,
                           now);
}
