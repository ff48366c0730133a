// One token's step as one kernel (step.cuh): which sessions it runs, its memory, its launch.
#include "cuda/step.h"

#include "cuda/kernels/kv_policy.cuh"
#include "cuda/step/plan.h"

// A layer of more bytes takes so long that more of it on its way costs nothing; of a smaller one blocks wait for each other in
// a larger part of the time, and what they tell each other waits behind the weights under way.
enum { LARGE_LAYER = 200 << 20 };
// Bytes of a layer's keys and values: more than the L2 cache holds are read faster by a kernel of their own, whose blocks have
// all of shared memory.
enum { MOST_KEYS = 48 << 20 };

struct step_kernel_plan {
    const struct step_form *form;
    struct step_launch launch;
    size_t shared_bytes;
    int n_blocks;
    unsigned launches; // before the next one
    struct query_scale query;
};

// A head's norm is summed up by head_dim / 8 neighbouring lanes. A recurrent head lies where sums do.
static bool kind_fits(const struct cuda_state *s, int kind)
{
    const struct kv_cache *cache = &s->caches[kind];
    const struct delta_config *delta = &s->config->kinds[kind].delta;
    if (delta->n_value_heads > 0)
        return 2 * sizeof(float) * (delta->key_dim + delta->value_dim) <= step_sums_bytes();
    const bool norms = s->recipe.ops & 1u << OP_HEAD_NORM && !(s->recipe.traits & TRAIT_WHOLE);
    return cache->type == YALM_KV_FP16 && cache->head_dim % 8 == 0 && cache->head_dim <= ATTENTION_MAX_DIM &&
           !(norms && cache->head_dim & (cache->head_dim - 1));
}

// Whether a model and a session are of a kind that the kernel computes.
static bool session_fits(const struct cuda_state *s)
{
    const struct model_config *c = s->config;
    bool fits = s->device.capability >= 90 && !s->several && !s->method && !s->group && step_knows(&s->recipe, false) &&
                c->hidden_dim % 4 == 0 && c->n_experts <= STEP_MOST_EXPERTS && c->n_active_experts <= STEP_MOST_ACTIVE &&
                !cuda_without("step");
    for (int kind = 0; kind < config_n_kinds(c); kind++)
        fits = fits && kind_fits(s, kind);
    return fits;
}

static int longest_head(const struct cuda_state *s)
{
    int longest = 0;
    for (int kind = 0; kind < config_n_kinds(s->config); kind++)
        longest = s->caches[kind].head_dim > longest ? s->caches[kind].head_dim : longest;
    return longest;
}

// One part for each split of attention: more than there can be.
static size_t n_parts(const struct cuda_state *s)
{
    return (size_t)(s->config->n_heads + s->device.n_sms) * STEP_HEADS * longest_head(s);
}

void step_take(struct cuda_state *s, struct cuda_blocks *b)
{
    if (!session_fits(s))
        return;
    struct step_plan counted = {};
    step_write_phases(&counted, s, NULL);
    s->n_step_words = counted.n_words;
    take(b, s->step_phases, step_most_phases(&s->recipe), sizeof(struct step_phase));
    take(b, s->step_words, counted.n_words, sizeof(float));
    take(b, s->step_parts, n_parts(s), sizeof(float4));
}

static yalm_status upload(struct cuda_state *s, const struct step_plan *plan, yalm_error *error)
{
    TRY_CUDA(cudaMemset(s->step_words, 0, s->n_step_words * sizeof *s->step_words));
    TRY_CUDA(cudaMemset(s->step_parts, 0, n_parts(s) * sizeof *s->step_parts));
    TRY_CUDA(cudaMemcpy(s->step_phases, plan->phases, plan->n * sizeof *plan->phases, cudaMemcpyHostToDevice));
    return YALM_OK;
}

// What launches are of besides phases.
static void fill_launch(struct step_plan *plan, const struct cuda_state *s)
{
    struct step_launch *l = &plan->launch;
    l->phases = s->step_phases;
    l->n_phases = plan->n;
    l->n_layers = s->config->n_layers;
    l->n_ahead = plan->layer_bytes > LARGE_LAYER ? 2 : 1;
    l->slot_bytes = plan->slot_bytes;
    l->n_kinds = config_n_kinds(s->config);
    l->parts = s->step_parts;
    l->sizes.head_dim = longest_head(s);
    l->sizes.n_experts = s->config->n_experts;
    for (int kind = 0; kind < l->n_kinds; kind++)
        l->sizes.turns += s->caches[kind].head_dim / 2;
}

// s->step_plan, where the ring has room, and a block fits each multiprocessor.
static yalm_status make_plan(struct cuda_state *s, struct step_plan *plan, yalm_error *error)
{
    int device = 0, room = 0, fit = 0;
    TRY_CUDA(cudaGetDevice(&device));
    TRY_CUDA(cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    struct step_launch *l = &plan->launch;
    const struct step_form *form = step_knows(&s->recipe, true) ? &step_plain : &step_whole;
    fill_launch(plan, s);
    const size_t fixed = step_fixed_bytes(l->sizes);
    const int slots = plan->slot_bytes > 0 ? (room - (int)fixed - 256) / plan->slot_bytes : 0; // 256: what may be static
    l->n_slots = slots < STEP_MOST_SLOTS ? slots : STEP_MOST_SLOTS;
    if (l->n_slots < 2)
        return YALM_OK;
    const size_t shared = (size_t)l->n_slots * plan->slot_bytes + fixed;
    TRY(form->fits(shared, &fit, error));
    if (fit < 1)
        return YALM_OK;
    TRY(upload(s, plan, error));
    struct step_kernel_plan *kernel = static_cast<struct step_kernel_plan *>(calloc(1, sizeof *kernel));
    if (!kernel)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    *kernel = {form, *l, shared, s->device.n_sms, 0, plan->query};
    s->step_plan = kernel;
    return YALM_OK;
}

yalm_status step_open(struct cuda_state *s, yalm_error *error)
{
    if (!session_fits(s))
        return YALM_OK;
    struct step_plan plan = {};
    plan.phases = static_cast<struct step_phase *>(calloc(step_most_phases(&s->recipe), sizeof(struct step_phase)));
    if (!plan.phases)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    step_write_phases(&plan, s, s->step_words);
    const yalm_status status = plan.fits ? make_plan(s, &plan, error) : YALM_OK;
    free(plan.phases);
    return status;
}

void step_close(struct cuda_state *s)
{
    free(s->step_plan);
}

bool step_runs(const struct cuda_state *s, int64_t position)
{
    if (!s->step_plan)
        return false;
    bool runs = true;
    for (int kind = 0; kind < config_n_kinds(s->config); kind++) {
        const struct kv_cache *cache = &s->caches[kind];
        const double keys = policy_n_visible(cache->policy, position);
        runs = runs && !policy_sinks_apart(cache->policy, position) &&
               keys * 2 * cache->n_kv_heads * kv_row_bytes(cache) <= MOST_KEYS;
    }
    return runs;
}

yalm_status step_run(struct cuda_state *s, int64_t position, int32_t token, yalm_error *error)
{
    struct step_kernel_plan *plan = s->step_plan;
    struct step_now now = {position,         token,
                           plan->launches++, query_scale_at(&plan->query, position) / plan->query.scale,
                           s->carried.from,  s->carried.to};
    return plan->form->start(&plan->launch, &now, plan->n_blocks, plan->shared_bytes, s->stream, error);
}
