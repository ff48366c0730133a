// One token's step as one kernel (step.cuh): the kernel, and what the host makes for it.
#include "cuda/step.h"

#include "cuda/state.h"
#include "cuda/step_attention.cuh"
#include "cuda/step_products.cuh"

// The warp that copies weights, one thread of it.
__device__ static inline void step_reader(const struct step_launch &l, const struct step_memory &m)
{
    struct step_ring ring = {0, 0};
    if (threadIdx.x % 32 != 0)
        return;
    for (int i = 0; i < l.n_phases; i++)
        if (l.phases[i].work != STEP_ATTEND)
            step_read(l.phases[i], i, ring, l, m);
}

// The launch's next phase to shared memory, by the last warp, while this one runs.
__device__ static inline void step_fetch_phase(const struct step_launch &l, const struct step_memory &m, int number)
{
    const int i = (int)threadIdx.x - (STEP_THREADS - 32);
    static_assert(sizeof(struct step_phase) % 16 == 0 && sizeof(struct step_phase) <= 32 * 16, "16 bytes for each lane");
    if (i >= 0 && i < (int)sizeof(struct step_phase) / 16 && number < l.n_phases)
        reinterpret_cast<uint4 *>(m.phases + number % 2)[i] = reinterpret_cast<const uint4 *>(l.phases + number)[i];
}

// A product's norm and biases set out for the L2 cache while the block still waits for its input.
__device__ static inline void step_prefetch(const struct step_phase &p)
{
    if (p.work != STEP_ATTEND && p.norm)
        for (int c = 32 * (int)threadIdx.x; c < p.cols; c += 32 * STEP_THREADS)
            prefetch_l2(p.norm + c);
}

__device__ static inline void step_compute(const struct step_launch &l, const struct step_memory &m)
{
    struct step_ring ring = {0, 0};
    const int64_t position = l.step->position;
    for (int i = (int)threadIdx.x; i < l.head_dim / 2; i += STEP_THREADS)
        m.turns[i] = rotation_of(position, l.rope.inverse_frequency[i], l.rope.scale);
    step_fetch_phase(l, m, 0);
    barrier_sync(STEP_BARRIER, STEP_THREADS);
    for (int i = 0; i < l.n_phases; i++) {
        const struct step_phase &p = m.phases[i % 2];
        step_prefetch(p);
        if (i > 0) {
            if (threadIdx.x == 0)
                counter_wait(l.counter, (unsigned)i * gridDim.x);
            barrier_sync(STEP_BARRIER, STEP_THREADS);
        }
        step_fetch_phase(l, m, i + 1);
        if (p.work == STEP_ATTEND)
            step_attend(p, l, m);
        else
            step_product(p, i, ring, l, m);
        barrier_sync(STEP_BARRIER, STEP_THREADS); // all that this block writes is written
        if (threadIdx.x == 0)
            counter_signal(l.counter);
    }
    if (threadIdx.x == 0) { // the last block to end leaves the counters as it found them
        const unsigned ended = atomicAdd(l.counter + 1, 1u) + 1;
        if (ended == gridDim.x) {
            counter_wait(l.counter, (unsigned)l.n_phases * gridDim.x);
            l.counter[0] = l.counter[1] = 0;
        }
    }
}

static __global__ void __launch_bounds__(STEP_THREADS + 32, 1) step_kernel(const struct step_launch l)
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
        step_reader(l, m);
    else
        step_compute(l, m);
#endif
}

// ------------------------------------------------------------------------------------------ the plan

struct step_kernel_plan {
    struct step_launch launch;
    size_t shared_bytes;
    int n_blocks;
};

static bool type_runs(enum dtype type)
{
    return type == DTYPE_FP16 || type == DTYPE_BF16 || type == DTYPE_Q8 || type == DTYPE_Q4 || type == DTYPE_FP8 ||
           type == DTYPE_FP8_E5M2;
}

static int pack_cols(enum dtype type)
{
    return type == DTYPE_Q4 ? 32 : dtype_sizes[type] == 2 ? 8 : 16;
}

// How a product of `cols` columns is spread; false where no instance is for it. Bulk copies take multiples of 16 bytes from such addresses.
static bool shape_make(struct step_shape *shape, enum dtype type, int cols, int *slot_bytes)
{
    const bool grouped = dtype_group_bytes[type] > 0;
    if (!type_runs(type) || cols % (grouped ? 8 * QUANT_GROUP : pack_cols(type)) != 0)
        return false;
    const int chunk = 32 * pack_cols(type);
    shape->chunks = (cols + chunk - 1) / chunk;
    const int in_warp = (shape->chunks + STEP_WARPS - 1) / STEP_WARPS;
    shape->columns = (shape->chunks + in_warp - 1) / in_warp;
    shape->groups = STEP_WARPS / shape->columns;
    shape->row_bytes = cols / pack_cols(type) * 16;
    shape->scale_bytes = grouped ? cols / QUANT_GROUP * 2 : 0;
    const int row = shape->row_bytes + shape->scale_bytes;
    const int together = step_rows_each(in_warp) * shape->groups;
    shape->rows = together * row < STEP_SLOT ? STEP_SLOT / (together * row) * together : STEP_SLOT > row ? STEP_SLOT / row : 1;
    const int bytes = (int)round_up(shape->rows * row, 128);
    *slot_bytes = bytes > *slot_bytes ? bytes : *slot_bytes;
    return in_warp <= (dtype_sizes[type] == 2 || type == DTYPE_Q8 ? STEP_MOST_CHUNKS<half> : STEP_MOST_CHUNKS<q4>);
}

struct step_planner {
    struct step_phase *phases;
    int n, slot_bytes;
    bool fits;
};

static void add_product(struct step_planner *planner, enum step_work work, const struct product *products, int n_products,
                        const float *x, const float *norm, float eps)
{
    struct step_phase p = {};
    const struct matrix *first = &products[0].w;
    p.work = work;
    p.type = first->dtype;
    p.cols = first->cols;
    p.x = x;
    p.norm = norm;
    p.eps = eps;
    planner->fits = planner->fits && shape_make(&p.shape, p.type, p.cols, &planner->slot_bytes);
    for (int i = 0; i < n_products; i++) {
        const struct matrix *w = &products[i].w;
        planner->fits = planner->fits && w->dtype == p.type && w->cols == p.cols;
        p.w[i] = static_cast<const uint8_t *>(w->data);
        p.bias[i] = products[i].bias;
        p.y[i] = products[i].y;
        p.rows[i] = w->rows;
        p.units += w->rows;
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
    float *attended = static_cast<float *>(s->attended), *gated = static_cast<float *>(s->gated);
    const struct product qkv[] = {{w->q, w->q_bias, s->q}, {w->k, w->k_bias, s->k}, {w->v, w->v_bias, s->v}};
    const struct product o = {w->o, w->o_bias, s->x}, down = {ffn->down, ffn->down_bias, s->x};
    const struct product units[] = {{ffn->gate, ffn->gate_bias, gated}, {ffn->up, ffn->up_bias, NULL}};
    add_product(planner, STEP_STORE, qkv, 3, s->x, w->attention_norm, eps);
    struct step_phase attend = {};
    attend.work = STEP_ATTEND;
    attend.layer = layer;
    planner->phases[planner->n++] = attend;
    add_product(planner, STEP_ADD, &o, 1, attended, NULL, eps);
    add_product(planner, STEP_GATED, units, 2, s->x, w->ffn_norm, eps);
    add_product(planner, STEP_ADD, &down, 1, gated, NULL, eps);
}

int step_most_phases(const struct model_config *config)
{
    return 5 * config->n_layers + 1;
}

// Whether a model and a session are of a kind that the kernel computes.
static bool session_fits(const struct cuda_state *s)
{
    const struct model_config *c = s->config;
    return s->device.capability >= 90 && !s->method && c->n_experts == 0 && s->cache.type == YALM_KV_FP16 &&
           c->head_dim % 8 == 0 && c->head_dim <= ATTENTION_MAX_DIM && !cuda_without("step");
}

void step_take(struct cuda_state *s, struct cuda_blocks *b)
{
    if (!session_fits(s))
        return;
    const size_t numbers = s->config->n_heads, units = numbers + s->device.n_sms; // more than there can be
    take(b, s->step_phases, step_most_phases(s->config), sizeof(struct step_phase));
    take(b, s->step_counters, 2 + numbers, sizeof(unsigned));
    take(b, s->step_part_state, units * STEP_HEADS, sizeof(float2));
    take(b, s->step_part_acc, units * STEP_HEADS * s->config->head_dim, sizeof(float));
}

static yalm_status upload_plan(struct cuda_state *s, const struct step_planner *planner, yalm_error *error)
{
    TRY_CUDA(cudaMemset(s->step_counters, 0, (2 + s->config->n_heads) * sizeof(unsigned)));
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
    l->counter = s->step_counters;
    l->step = s->step;
    l->q = s->q;
    l->k = s->k;
    l->v = s->v;
    l->keys = static_cast<half *>(s->cache.keys);
    l->values = static_cast<half *>(s->cache.values);
    l->policy = s->cache.policy;
    l->rope = s->rope;
    l->n_heads = s->config->n_heads;
    l->n_kv_heads = s->config->n_kv_heads;
    l->head_dim = s->config->head_dim;
    l->attended = static_cast<float *>(s->attended);
    l->part_acc = s->step_part_acc;
    l->part_state = s->step_part_state;
    l->tickets = s->step_counters + 2;
}

yalm_status step_open(struct cuda_state *s, yalm_error *error)
{
    int device = 0, room = 0;
    if (!session_fits(s))
        return YALM_OK;
    TRY_CUDA(cudaGetDevice(&device));
    TRY_CUDA(cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    struct step_planner planner = {};
    planner.fits = true;
    planner.phases = static_cast<struct step_phase *>(calloc(step_most_phases(s->config), sizeof(struct step_phase)));
    if (!planner.phases)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    for (int layer = 0; layer < s->config->n_layers; layer++)
        plan_layer(&planner, s, layer);
    const struct product classifier = {s->weights->weights.classifier, NULL, s->logits};
    add_product(&planner, STEP_STORE, &classifier, 1, s->x, s->weights->weights.norm, s->config->norm_eps);
    const int fixed = (int)step_fixed_bytes(s->config->head_dim) + 256, // and what is static
        slots = planner.slot_bytes > 0 ? (room - fixed) / planner.slot_bytes : 0;
    const int n_slots = slots < STEP_MOST_SLOTS ? slots : STEP_MOST_SLOTS;
    yalm_status status = YALM_OK;
    if (planner.fits && n_slots >= 2) {
        status = upload_plan(s, &planner, error);
        struct step_kernel_plan *plan = static_cast<struct step_kernel_plan *>(calloc(1, sizeof *plan));
        if (status == YALM_OK && !plan)
            status = error_set(error, YALM_NO_MEMORY, "out of memory for a session");
        if (plan) {
            make_launch(s, &plan->launch, &planner, n_slots);
            plan->shared_bytes = (size_t)n_slots * planner.slot_bytes + step_fixed_bytes(s->config->head_dim);
            plan->n_blocks = s->device.n_sms;
            s->step_plan = plan;
        }
    }
    free(planner.phases);
    return status;
}

void step_close(struct cuda_state *s)
{
    free(s->step_plan);
}

bool step_runs(const struct cuda_state *s, int64_t position)
{
    return s->step_plan && !policy_sinks_apart(s->cache.policy, position);
}

yalm_status step_run(struct cuda_state *s, yalm_error *error)
{
    const struct step_kernel_plan *plan = s->step_plan;
    TRY(embed(s->x, &s->weights->weights.embedding, s->tokens, 1, s->stream, error));
    return LAUNCH_TOGETHER(error, step_kernel, plan->n_blocks, STEP_THREADS + 32, plan->shared_bytes, s->stream, plan->launch);
}
