// The CPU backend: the table of functions that a session calls.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/delta.h"
#include "cpu/learn.h"
#include "cpu/machine/isa.h"
#include "cpu/machine/limits.h"
#include "cpu/open.h"
#include "cpu/rows.h"
#include "cpu/together.h"
#include "util/listing.h"

enum { DEFAULT_CHUNK = 512, MAX_CHUNK = 1 << 16 };

static yalm_status cpu_resolve(const struct model_config *config, const struct model_weights *weights,
                               yalm_session_options *options, yalm_error *error)
{
    const struct cpu_kernels *kernels = cpu_kernels_select(options->isa);
    const struct recipe outline = recipe_outline(config, weights);
    if (!kernels) {
        char names[128] = "";
        struct listing list = {names, sizeof names, 0};
        const bool limited = !*cpu_kernels_usable(); // by an environment that names none of this machine's
        for (const struct cpu_kernels *const *k = limited ? cpu_kernels_of_machine() : cpu_kernels_usable(); *k; k++)
            listing_add(&list, "%s%s", list.length ? ", " : "", (*k)->name);
        return error_set(error, YALM_USAGE, "%s: found '%s', this machine has: %s", limited ? "YALM_ISA" : "isa",
                         limited ? getenv("YALM_ISA") : options->isa, names);
    }
    options->isa = kernels->name;
    if (!policy_find(options->attention)) {
        char known[128] = "";
        struct listing list = {known, sizeof known, 0};
        for (const struct policy *const *p = policies; *p; p++)
            listing_add(&list, "%s%s", list.length ? ", " : "", (*p)->name);
        return error_set(error, YALM_USAGE, "attention: found '%s', the CPU has: %s", options->attention, known);
    }
    if (strcmp(options->attention, policy_dense.name) != 0 && !recipe_selects(&outline))
        return error_set(error, YALM_USAGE, "attention: found %s, but this model's %s: use dense", options->attention,
                         outline.traits & TRAIT_LATENT  ? "tokens keep latents, not keys (MLA)"
                         : outline.traits & TRAIT_ALIBI ? "scores fall with the distance (ALiBi)"
                                                        : "tokens see those behind them, and come together");
    if ((outline.traits & TRAIT_ALIBI) && options->exact) // a query's bits depend on the last token beside it
        return error_set(error, YALM_USAGE, "exact bits: not with a model that has ALiBi: leave serve.exact off");
    const yalm_status status = plan_resolve(&options->activations, outline.types, outline.block_types, error);
    if (status != YALM_OK)
        return status;
    if (options->n_threads == 0)
        options->n_threads = team_default_threads();
    if (options->n_threads_batch == 0)
        options->n_threads_batch = options->n_threads;
    if (options->n_threads > TEAM_MAX || options->n_threads_batch > TEAM_MAX)
        return error_set(error, YALM_USAGE, "threads: found %d, expected 1 to %d",
                         options->n_threads > TEAM_MAX ? options->n_threads : options->n_threads_batch, TEAM_MAX);
    if (options->chunk == 0)
        options->chunk = options->context < DEFAULT_CHUNK || config->bidirectional ? options->context : DEFAULT_CHUNK;
    if (options->chunk > MAX_CHUNK)
        return error_set(error, YALM_USAGE, "chunk: found %d, expected at most %d", options->chunk, MAX_CHUNK);
    return YALM_OK;
}

static yalm_status cpu_memory(const struct backend_plan *plan, yalm_memory *memory, yalm_error *error)
{
    struct cpu_state sizes;
    const yalm_status status = cpu_sizes(&sizes, plan, error);
    if (status == YALM_OK) {
        memory->kv_cache = sizes.kv_bytes;
        memory->attention = sizes.kept_bytes;
        memory->scratch = sizes.scratch_bytes;
        cpu_release(&sizes);
    }
    return status;
}

static void cpu_describe(const void *state, char *text, size_t room)
{
    const struct cpu_state *s = state;
    snprintf(text, room, "%d thread%s, %s", s->n_threads, s->n_threads == 1 ? "" : "s", s->kernels->name);
}

static size_t describe_products(const void *state, char *text, size_t room)
{
    const struct cpu_state *s = state;
    size_t length = plan_text(&s->plan, text, room);
    if (length + 1 < room)
        text[length++] = '\n';
    const size_t used = length < room ? length : room;
    return length + recipe_text(&s->recipe, text + used, room - used);
}

static yalm_status cpu_evaluate(void *state, const struct batch *batch, yalm_error *error)
{
    const yalm_status status = cpu_forward(state, batch);
    return status == YALM_OK ? YALM_OK : error_set(error, status, "interrupted");
}

// A method that selects keys keeps what one token after another leaves.
static int cpu_most_apart(const void *state)
{
    const struct cpu_state *s = state;
    return s->policy != &policy_dense ? 1 : s->chunk < MOST_APART ? s->chunk : MOST_APART;
}

struct random_fill {
    struct cpu_state *s;
    int64_t position;
    int n;
    uint64_t seed;
};

// Uniform in [-1, 1), a function of the element's place alone (splitmix64: Steele, Lea and Flood, 2014).
static float noise(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (float)(int32_t)(z >> 32) * 0x1p-31f;
}

static const float *noise_row(float *x, int n, uint64_t seed, uint64_t index)
{
    for (int i = 0; i < n; i++)
        x[i] = noise(seed, index * n + i);
    return x;
}

static void fill_position(void *context, int i)
{
    const struct random_fill *f = context;
    struct cpu_state *s = f->s;
    float *k = s->k + (size_t)i * s->kv_dim, *v = s->v + (size_t)i * s->kv_dim; // this position's own, free between evaluations
    for (int layer = 0; layer < s->config->n_layers; layer++) {
        const int kind = s->config->kind_of_layer[layer], n_kv_heads = s->kinds[kind].n_kv_heads, d = s->kinds[kind].head_dim;
        const int n_heads = config_n_layers_of(s->config, kind) * n_kv_heads;
        if (!config_kind_keeps(s->config, kind))
            continue;
        for (int h = 0; h < n_kv_heads; h++) {
            const int head = s->place[layer] * n_kv_heads + h;
            const uint64_t row = ((uint64_t)(f->position + i) * n_heads + head) * 2, seed = f->seed + kind;
            noise_row(k, d, seed, row);
            if (s->key_offsets) // so that rows are the noise, as on a GPU
                s->kernels->add(k, s->key_offsets + (size_t)layer * s->kv_dim + (size_t)h * d, d);
            (cpu_is_far(s, layer) ? s->policy : &policy_dense)
                ->append(s, &(struct append){
                                .layer = layer,
                                .kv_head = h,
                                .slot = kv_slot(&s->kinds[kind].kv, f->position + i),
                                .position = f->position + i,
                                .token = i,
                                .n = f->n,
                                .k = k,
                                .v = config_cached_rows(s->config) > 1 ? noise_row(v, d, seed, row + 1) : NULL,
                            });
        }
    }
}

static void fill_end(struct member *me, const void *arguments)
{
    const struct random_fill *f = arguments;
    for (int layer = 0; layer < f->s->config->n_layers; layer++)
        if (cpu_kind_of(f->s, layer) == f->s->far)
            f->s->policy->appended(f->s, f->position, f->n, layer, me);
}

static yalm_status cpu_fill_random(void *state, int64_t position, int n, uint64_t seed, yalm_error *error)
{
    (void)error;
    struct cpu_state *s = state;
    const struct random_fill fill = {s, position, n, seed};
    team_for(s->team, n, fill_position, (void *)&fill);
    delta_skip(s, position, n);
    if (s->policy->appended)
        team_run(s->team, team_size(s->team), fill_end, &fill, sizeof fill);
    return YALM_OK;
}

static yalm_status cpu_measure_limits(void *state, double seconds, yalm_limits *limits, yalm_error *error)
{
    struct cpu_state *s = state;
    return limits_measure(s->team, s->kernels, seconds, &s->reader, limits, error);
}

static double cpu_measure_reading(void *state, double seconds)
{
    struct cpu_state *s = state;
    return reader_measure(&s->reader, s->team, s->kernels, seconds);
}

static void cpu_time_attention(void *state, bool on)
{
    struct cpu_state *s = state;
    s->time_attention = on;
    s->attention_seconds = 0;
}

static double cpu_attention_seconds(const void *state)
{
    return ((const struct cpu_state *)state)->attention_seconds;
}

static void cpu_record(void *state, const struct key_record *record)
{
    struct cpu_state *s = state;
    s->record = record;
}

static void cpu_observe(void *state, struct input_sums *sums)
{
    struct cpu_state *s = state;
    s->observed = sums;
}

static yalm_status cpu_learn(void *state, const struct learning *how, float *centroids, yalm_error *error)
{
    return learn_codebooks(state, how, centroids, error);
}

// Bytes of one KV head's cache in a layer that dense attention of n tokens from `position` on reads: each row that any of them
// sees, once.
static double dense_bytes(const struct cpu_state *s, int n, int64_t position, int layer)
{
    const struct kv_policy *kv = &cpu_kind_of(s, layer)->kv;
    const int64_t last = position + n;
    const int64_t rows = last - kv_first_visible(kv, position) + (kv_sinks_apart(kv, last - 1) ? kv->n_sinks : 0);
    return config_cached_rows(s->config) * (double)rows * cpu_row_traffic(s, cpu_kind_of(s, layer)->head_dim);
}

static double seen_bytes(const struct cpu_state *s, int n, int64_t position, int layer)
{
    if (cpu_selects(s, n, position, layer))
        return s->policy->bytes(s, position);
    if (cpu_decodes(s, layer))
        return s->policy->bytes(s, position + n - 1);
    return (double)cpu_kind_of(s, layer)->n_kv_heads * dense_bytes(s, n, position, layer);
}

static double cpu_step_bytes(const void *state, int n, int64_t position)
{
    const struct cpu_state *s = state;
    double bytes = 0;
    for (int layer = 0; layer < s->config->n_layers; layer++)
        bytes += (config_is_recurrent(s->config, layer) ? delta_bytes(config_delta(s->config, layer)) : 0) +
                 (config_attends(s->config, layer) ? seen_bytes(s, n, position, layer) : 0);
    return bytes;
}

static bool cpu_holds(const void *state, int64_t position)
{
    return delta_holds(state, position);
}

static int cpu_cut_layer(const void *state)
{
    return atomic_load_explicit(&((const struct cpu_state *)state)->cut, memory_order_relaxed) - 1;
}

const struct backend backend_cpu = {
    .name = "cpu",
    .resolve = cpu_resolve,
    .memory = cpu_memory,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .describe_products = describe_products,
    .evaluate = cpu_evaluate,
    .evaluate_together = cpu_evaluate_together,
    .most_apart = cpu_most_apart,
    .holds = cpu_holds,
    .cut_layer = cpu_cut_layer,
    .fill_random = cpu_fill_random,
    .each_row = cpu_each_row,
    .step_bytes = cpu_step_bytes,
    .measure_limits = cpu_measure_limits,
    .measure_reading = cpu_measure_reading,
    .time_attention = cpu_time_attention,
    .attention_seconds = cpu_attention_seconds,
    .record = cpu_record,
    .learn = cpu_learn,
    .observe = cpu_observe,
};
