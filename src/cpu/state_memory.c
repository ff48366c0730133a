// The CPU backend's sizes, and where in its memory everything lies.

#include <stdlib.h>

#include "cpu/attention.h"
#include "cpu/delta.h"
#include "cpu/kernels/rows.h"
#include "cpu/latents.h"
#include "cpu/machine/isa.h"
#include "cpu/matmul.h"
#include "cpu/state.h"
#include "model/key_offset.h"

// Queries that one prefill task takes together: enough to use each key many times, few enough that their
// accumulators stay in the L2 cache.
enum { QUERIES_PER_TASK = 64 };

// Between what one thread writes and what the next one does. Kernels go over their scratch in long strides, and the processor
// fetches ahead of them, past the end as well: lines of a neighbour's scratch, who must get them back for each write. So it
// seems, at least: between cores of two chiplets that took a sixth of a prompt's speed (docs/engine.md).
enum { OWN_GAP = 256 << 10 };

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// A state of several sessions' tokens has none of its own: theirs are used.
static void carve_carried(struct cpu_state *s, struct carver *c, int kind)
{
    const struct delta_config *d = &s->config->kinds[kind].delta;
    const size_t layers = s->together ? 0 : (size_t)CARRIED_PLACES * config_n_layers_of(s->config, kind);
    s->kinds[kind].states = carve(c, layers * delta_state_floats(d), sizeof(float));
    s->kinds[kind].inputs = carve(c, layers * delta_input_floats(d), sizeof(float));
    s->kinds[kind].replays = carve(c, layers / CARRIED_PLACES * replay_floats(d), sizeof(float));
}

static void carve_kv(struct cpu_state *s, struct carver *c)
{
    for (int i = 0; i < config_n_kinds(s->config); i++) {
        struct cpu_kind *kind = &s->kinds[i];
        if (config_kind_recurs(s->config, i))
            carve_carried(s, c, i);
        if (!config_kind_keeps(s->config, i))
            continue;
        const size_t rows = (size_t)config_n_layers_of(s->config, i) * kind->n_kv_heads * kind->kv.capacity;
        const size_t row_bytes = kind->head_dim * kv_sizes[s->kv_type];
        const bool has_keys = !s->policy->decode_keys || kind != s->far;
        if (has_keys)
            kind->keys = carve(c, rows, row_bytes);
        kind->values = s->config->latent.kv_rank ? kind->keys : carve(c, rows, row_bytes);
        if (s->kv_type == KV_INT8 && has_keys)
            kind->key_scales = carve(c, rows, sizeof(float));
        if (s->kv_type == KV_INT8)
            kind->value_scales = carve(c, rows, sizeof(float));
    }
}

// Of every kind's layers: angles, or what heads are normalised by.
static void carve_kinds(struct cpu_state *s, struct carver *c)
{
    for (int i = 0; i < config_n_kinds(s->config); i++) {
        struct cpu_kind *kind = &s->kinds[i];
        const size_t half = kind->rotary / 2;
        if (config_kind_recurs(s->config, i)) {
            kind->query_units = carve(c, s->config->kinds[i].delta.key_dim, sizeof(float));
            kind->key_units = carve(c, s->config->kinds[i].delta.key_dim, sizeof(float));
        }
        if (!config_kind_attends(s->config, i))
            continue;
        kind->inverse_frequency = carve(c, half, sizeof(double));
        kind->cos = carve(c, s->chunk * half, sizeof(float));
        kind->sin = carve(c, s->chunk * half, sizeof(float));
        kind->sink_cos = carve(c, half, sizeof(float));
        kind->sink_sin = carve(c, half, sizeof(float));
    }
}

static bool has_sinks(const struct cpu_state *s)
{
    bool any = false;
    for (int i = 0; i < config_n_kinds(s->config); i++)
        any |= s->kinds[i].kv.n_sinks > 0;
    return any;
}

static int longest_span(const struct cpu_state *s)
{
    int span = 0;
    for (int i = 0; i < config_n_kinds(s->config); i++)
        span = s->kinds[i].kv.span > span ? s->kinds[i].kv.span : span;
    return span;
}

static void carve_experts(struct cpu_state *s, struct carver *c)
{
    const size_t chunk = s->chunk, experts = s->config->n_experts, active = s->config->n_active_experts;
    s->router_logits = carve(c, chunk * experts, sizeof(float));
    s->expert_ratings = carve(c, experts, sizeof(float));
    s->expert_of = carve(c, chunk * active, sizeof(int));
    s->expert_weight = carve(c, chunk * active, sizeof(float));
    s->expert_in = carve(c, chunk * s->config->hidden_dim, sizeof(float));
    s->expert_units = carve(c, chunk * config_expert_ffn(s->config), sizeof(float));
    s->expert_tokens = carve(c, experts * chunk, sizeof(int));
    s->expert_scale = carve(c, experts * chunk, sizeof(float));
    s->chosen_experts = carve(c, experts, sizeof *s->chosen_experts);
    s->expert_n = carve(c, experts, sizeof *s->expert_n);
    s->expert_last = carve(c, experts, sizeof *s->expert_last);
    if (s->recipe.width[BUFFER_EXPERT_SUM])
        s->expert_sum = carve(c, chunk * s->config->hidden_dim, sizeof(float));
}

static int delta_heads(const struct delta_config *delta)
{
    return delta->n_value_heads;
}

static void carve_recurrence(struct cpu_state *s, struct carver *c)
{
    const size_t chunk = s->chunk;
    s->mixed = carve(c, chunk * config_most_of(s->config, delta_channels), sizeof(float));
    s->decays = carve(c, chunk * config_most_of(s->config, delta_decays), sizeof(float));
    s->betas =
        carve(c, chunk * config_most_of(s->config, delta_heads), sizeof(float)); // though no step of a scan's writes them
}

// The most of any kind: of its queries that are in parts at once, and of their components.
static size_t most_of_kinds(const struct cpu_state *s, size_t (*of)(const struct cpu_kind *kind))
{
    size_t most = 0;
    for (int i = 0; i < config_n_kinds(s->config); i++)
        most = max_size(most, of(&s->kinds[i]));
    return most;
}
static size_t kind_queries(const struct cpu_kind *kind)
{
    return (size_t)kind->n_kv_heads * kind->group * kind->query_tokens;
}
static size_t kind_query_floats(const struct cpu_kind *kind)
{
    return kind_queries(kind) * kind->head_dim;
}

static size_t kind_integers(const struct cpu_kind *kind)
{
    return max_size(kind->fixed ? kind->fixed->scratch : 0, kind->few ? kind->few->scratch : 0);
}

// What any product reads.
static size_t widest_input(const struct cpu_state *s)
{
    const int *width = s->recipe.width;
    const size_t of_experts = s->config->n_experts ? config_expert_ffn(s->config) : 0;
    const size_t of_heads = max_size(width[BUFFER_LATENT], width[BUFFER_HEADS]);
    return max_size(max_size(max_size(width[BUFFER_X], width[BUFFER_ATTENDED]), of_heads),
                    max_size(width[BUFFER_UNITS], of_experts));
}

static void carve_activations(struct cpu_state *s, struct carver *c)
{
    const size_t chunk = s->chunk, dim = s->config->hidden_dim;
    const int *width = s->recipe.width;
    carve_kinds(s, c);
    if (width[BUFFER_INPUTS])
        s->inputs = carve(c, chunk * width[BUFFER_INPUTS], sizeof(float));
    if (s->recipe.traits & (TRAIT_BARE | TRAIT_VALUES | TRAIT_UNGATED | TRAIT_WEIGHTED))
        s->ones = carve(c, cpu_n_ones(s), sizeof(float));
    s->x = carve(c, chunk * dim, sizeof(float));
    s->h = carve(c, chunk * dim, sizeof(float));
    s->q = carve(c, chunk * width[BUFFER_Q], sizeof(float));
    s->k = carve(c, chunk * max_size(s->kv_dim, width[BUFFER_K]), sizeof(float)); // fill_position() uses kv_dim of each
    s->v = carve(c, chunk * max_size(s->kv_dim, width[BUFFER_V]), sizeof(float));
    s->rotated_q = carve(c, (chunk + (s->plan.exact ? ATTENTION_MOST_BESIDE : 0)) * s->q_dim, sizeof(float));
    if (has_sinks(s))
        s->sink_q = carve(c, chunk * s->q_dim, sizeof(float));
    s->attended = carve(c, chunk * width[BUFFER_ATTENDED], sizeof(float));
    if (width[BUFFER_LATENT])
        s->latent = carve(c, chunk * width[BUFFER_LATENT], sizeof(float));
    if (width[BUFFER_HEADS])
        s->heads = carve(c, chunk * width[BUFFER_HEADS], sizeof(float));
    if (width[BUFFER_GATES])
        s->gates = carve(c, chunk * width[BUFFER_GATES], sizeof(float));
    if (s->recipe.ops & (1u << OP_RECUR | 1u << OP_CONVOLVE))
        carve_recurrence(s, c);
    s->units = carve(c, chunk * max_size(width[BUFFER_UNITS], width[BUFFER_INPUTS]), sizeof(float));
    if (s->together || s->group)
        s->logits = carve(c, chunk * s->config->vocab_size, sizeof(float));
    if (s->together && s->group)
        s->gathered = carve(c, chunk * s->weights->embedding.rows, sizeof(float));
    if (s->group)
        s->branch = carve(c, chunk * dim + 1, sizeof(float));
    if (s->group && s->recipe.traits & TRAIT_WHOLE)
        s->squares = carve(c, chunk * 2 + 1, sizeof(float));
    const size_t widest = widest_input(s);
    const int packed = plan_most(&s->plan, TOKENS_PACKED), quantised = plan_most(&s->plan, TOKENS_QUANTISED);
    if (packed)
        s->packed = carve(c, s->kernels->packed_size(packed, (int)widest), sizeof(float));
    if (plan_most(&s->plan, TOKENS_16_BITS))
        s->halves = carve(c, plan_16_bits_bytes(&s->plan, (int)widest), 1);
    if (quantised) {
        const size_t size = plan_quantised_bytes(s->plan.quant, quantised, (int)widest);
        const int apart = s->chunk < MOST_APART ? s->chunk : MOST_APART;
        s->quantised = carve(c, max_size(size, matmul_groups_bytes(s, apart, (int)widest)), 1);
        if (s->plan.exact)
            s->quantised_last = carve(c, matmul_groups_bytes(s, 1, (int)widest), 1);
    }
}

// What is each thread's own: the first one's, then as much again for each of the others.
static void carve_own(struct cpu_state *s, struct carver *c, int n_threads)
{
    const size_t of_latents = s->expansion.fixed ? s->expansion.fixed->scratch : 0;
    const size_t of_integers = max_size(most_of_kinds(s, kind_integers), of_latents);
    carve(c, OWN_GAP, 1);
    const size_t begin = c->used;
    s->matmul_scratch = carve(c, plan_scratch(&s->plan), 1);
    s->rows_here = carve(c, matmul_rows_here_floats(s), sizeof *s->rows_here);
    if (s->plan.types & type_bit(DTYPE_BF12) && (int)s->chunk > s->plan.most_few)
        s->unpacked = carve(c, matmul_most_rows(s) * widest_input(s), sizeof *s->unpacked);
    s->attend_scratch = carve(c, max_size(s->kernels->attend_scratch, of_integers), 1);
    s->task_scratch = carve(c, attention_task_scratch(s), 1);
    if (s->expansion.there)
        s->expand_scratch = carve(c, latents_scratch(s), 1);
    if (s->policy->decode_keys) {
        s->decoded_keys = carve(c, KEY_TILE * s->far->head_dim, kv_sizes[s->kv_type]);
        s->decoded_scales = carve(c, KEY_TILE, sizeof(float));
    }
    if (s->policy->selector)
        s->rows_tile = carve(c, attend_rows_tile(s->far->head_dim * kv_sizes[s->kv_type]), 1);
    carve(c, OWN_GAP, 1);
    s->own_bytes = c->used - begin;
    carve(c, n_threads - 1, s->own_bytes);
}

static void carve_scratch(struct cpu_state *s, struct carver *c)
{
    carve_activations(s, c);
    if (s->config->n_experts)
        carve_experts(s, c);
    const size_t parts = s->key_parts * most_of_kinds(s, kind_queries);
    s->part_acc = carve(c, s->key_parts * most_of_kinds(s, kind_query_floats), sizeof(float));
    s->part_max = carve(c, parts, sizeof(float));
    s->part_sum = carve(c, parts, sizeof(float));
    if (s->kv_type == KV_INT8 && key_offset_has(s->config, s->kv->n_sinks))
        s->key_offsets = carve(c, (size_t)s->config->n_layers * s->kv_dim, sizeof(float));
    carve_own(s, c, cpu_most_threads(s));
    if (s->policy->carve_scratch)
        s->policy->carve_scratch(s, c, cpu_most_threads(s));
}

static yalm_status policy_open(struct cpu_state *s, const struct backend_plan *plan, yalm_error *error)
{
    s->policy = policy_find(plan->options->attention);
    if (!s->policy->plan)
        return YALM_OK;
    s->method = calloc(1, s->policy->method_size);
    if (!s->method)
        return error_set(error, YALM_NO_MEMORY, "out of memory for an attention method");
    const yalm_status status = s->policy->plan(s, plan, error);
    if (status != YALM_OK)
        free(s->method);
    return status;
}

static void size_kind(struct cpu_state *s, const struct backend_plan *plan, int i)
{
    const struct model_config *config = plan->config;
    const yalm_activations activations = plan->options->activations;
    const int head_dim = config_kind_head_dim(config, i), n_kv_heads = config_kind_kv_heads(config, i);
    const int group = config->n_heads / n_kv_heads, n_queries = group < QUERIES_PER_TASK ? QUERIES_PER_TASK / group : 1;
    struct cpu_kind *kind = &s->kinds[i];
    *kind = (struct cpu_kind){.kv = plan->kv[i], .head_dim = head_dim, .n_kv_heads = n_kv_heads, .group = group};
    kind->rotary = config_kind_rotary(config, i);
    kind->q_dim = config->n_heads * head_dim;
    kind->kv_dim = n_kv_heads * head_dim;
    kind->query_tokens = (int)min64(n_queries, s->chunk);
    kind->fixed = fixed_attention_select(s->kernels, activations);
    kind->few = byte_attention_select(s->kernels, activations, s->kv_type, head_dim);
    if (kind->fixed && (!kind->fixed->attend[s->kv_type] || head_dim > kind->fixed->most_dim))
        kind->fixed = NULL;
    if (s->plan.exact) // its units are those of the keys that stand together
        kind->fixed = NULL;
    if (s->recipe.traits & (TRAIT_CAPPED | TRAIT_ALIBI)) { // which only the kernels in floats have
        kind->fixed = NULL;
        kind->few = NULL;
    }
    kind->block_tokens = kind->query_tokens;
    if (kind->fixed)
        kind->block_tokens = (int)min64(max_size(kind->fixed->queries / group, kind->query_tokens), s->chunk);
    s->q_dim = (int)max_size(s->q_dim, kind->q_dim);
    s->kv_dim = (int)max_size(s->kv_dim, kind->kv_dim);
}

yalm_status cpu_sizes(struct cpu_state *s, const struct backend_plan *plan, yalm_error *error)
{
    const struct model_config *config = plan->config;
    *s = (struct cpu_state){.config = config, .weights = plan->weights, .cancel = plan->cancel, .group = plan->group};
    s->carried = (struct carried){.at = {-1, -1, -1}, .kept = -1};
    const int far = config_far_kind(config);
    s->far = &s->kinds[far];
    s->far_layers = config_n_layers_of(config, far);
    s->kv = &s->far->kv;
    for (int l = 0; l < config->n_layers; l++) {
        s->place[l] = config_place(config, l);
        s->kv_layer[l] = config_kv_layer(config, l);
    }
    s->kernels = cpu_kernels_select(plan->options->isa);
    if (!s->kernels)
        return error_set(error, YALM_USAGE, "instruction set '%s' is not one that this machine has", plan->options->isa);
    s->together = plan->together;
    s->fetching = machine_fetching();
    s->chunk = plan->options->chunk;
    s->n_threads = plan->options->n_threads;
    s->n_threads_batch = plan->options->n_threads_batch;
    s->kv_type = (enum kv_type)plan->options->kv;
    if (!recipe_open(&s->recipe, config, s->weights))
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    s->plan = (plan->options->exact ? plan_exact : plan_products)(s->kernels, plan->options->activations, s->recipe.types,
                                                                  plan->options->chunk);
    int query_tokens = 0;
    for (int i = 0; i < config_n_kinds(config); i++) {
        size_kind(s, plan, i);
        query_tokens = s->kinds[i].query_tokens > query_tokens ? s->kinds[i].query_tokens : query_tokens;
    }
    latents_plan(s, plan->options->activations);
    // A length's parts are at least 256 keys long, and at most MAX_KEY_PARTS (attention_key_parts).
    s->key_parts = (int)min64(MAX_KEY_PARTS, ((int64_t)longest_span(s) + query_tokens + 255) / 256);

    const yalm_status status = policy_open(s, plan, error);
    if (status != YALM_OK) {
        recipe_close(&s->recipe);
        return status;
    }
    struct carver kv = {0}, kept = {0}, scratch = {0};
    carve_kv(s, &kv);
    if (s->policy->carve_kept)
        s->policy->carve_kept(s, &kept);
    carve_scratch(s, &scratch);
    s->kv_bytes = kv.used;
    s->kept_bytes = kept.used;
    s->scratch_bytes = scratch.used;
    return YALM_OK;
}

void cpu_carve(struct cpu_state *s)
{
    carve_kv(s, &(struct carver){.base = s->kv_block});
    if (s->kept_bytes)
        s->policy->carve_kept(s, &(struct carver){.base = s->kept_block});
    carve_scratch(s, &(struct carver){.base = s->scratch_block});
}
