#include "cpu/open.h"

#include <math.h>
#include <stdlib.h>

#include "cpu/machine/teams.h"
#include "cpu/places.h"
#include "model/key_offset.h"
#include "model/rope.h"
#include "util/memory.h"

void cpu_release(struct cpu_state *s)
{
    if (s->policy && s->policy->close)
        s->policy->close(s);
    free(s->method);
    recipe_close(&s->recipe);
}

static void release(void *data)
{
    struct cpu_shared *shared = data;
    cpu_close(shared->together);
    teams_close(shared->teams);
    pthread_mutex_destroy(&shared->evaluating);
    free(shared);
}

struct cpu_shared *cpu_shared(struct shared *of_cpu)
{
    pthread_mutex_lock(&of_cpu->lock);
    struct cpu_shared *shared = of_cpu->data;
    if (!shared && (shared = calloc(1, sizeof *shared))) {
        pthread_mutex_init(&shared->evaluating, NULL);
        of_cpu->data = shared;
        of_cpu->release = release;
    }
    pthread_mutex_unlock(&of_cpu->lock);
    return shared;
}

// The model's team of that size; one of its own where threads are pinned, the caller's among them.
static bool join_team(struct cpu_state *s, const struct backend_plan *plan, yalm_error *error)
{
    s->own_team = plan->options->pin || !plan->of_cpu;
    if (s->own_team) {
        s->team = team_open(cpu_most_threads(s), plan->options->pin, error);
        return s->team;
    }
    struct cpu_shared *shared = cpu_shared(plan->of_cpu);
    if (!shared) {
        error_set(error, YALM_NO_MEMORY, "out of memory for a session");
        return false;
    }
    pthread_mutex_lock(&plan->of_cpu->lock);
    s->team = teams_get(&shared->teams, cpu_most_threads(s), error);
    pthread_mutex_unlock(&plan->of_cpu->lock);
    return s->team;
}

static void leave_team(struct cpu_state *s)
{
    if (s->own_team)
        team_close(s->team);
    else if (s->team)
        team_forget(s->team);
}

void cpu_close(void *state)
{
    struct cpu_state *s = state;
    if (!s)
        return;
    leave_team(s); // first: a late member may still look around
    cpu_release(s);
    reader_close(&s->reader);
    memory_pages_free(s->kv_block, s->kv_bytes);
    memory_pages_free(s->kept_block, s->kept_bytes);
    memory_pages_free(s->scratch_block, s->scratch_bytes);
    free(s);
}

// Weights by which an rmsnorm is a division by the length; for queries, which are divided by √key_dim too.
static void prepare_units(struct cpu_kind *kind, int key_dim)
{
    for (int i = 0; i < key_dim; i++) {
        kind->key_units[i] = 1.0f / sqrtf((float)key_dim);
        kind->query_units[i] = 1.0f / (float)key_dim;
    }
}

static void prepare_kind(struct cpu_state *s, int i)
{
    struct cpu_kind *kind = &s->kinds[i];
    const int d = kind->rotary;
    if (config_kind_recurs(s->config, i))
        prepare_units(kind, s->config->kinds[i].delta.key_dim);
    if (!config_kind_attends(s->config, i))
        return;
    kind->rope_scale = rope_frequencies(kind->inverse_frequency, &s->config->kinds[i].rope, d, kind->kv.context);
    rope_angles(kind->sink_cos, kind->sink_sin, kind->inverse_frequency, kind->rope_scale, d, kind->kv.span - 1);
}

void *cpu_open(const struct backend_plan *plan, yalm_error *error)
{
    struct cpu_state *s = calloc(1, sizeof *s);
    if (!s) {
        error_set(error, YALM_NO_MEMORY, "out of memory for a session");
        return NULL;
    }
    if (cpu_sizes(s, plan, error) != YALM_OK) {
        free(s);
        return NULL;
    }
    s->reader.reserved = plan->container->mapping.copied ? 0 : plan->container->mapping.size;
    s->kv_block = memory_pages(s->kv_bytes);
    s->scratch_block = memory_pages(s->scratch_bytes);
    if (s->kept_bytes)
        s->kept_block = memory_pages(s->kept_bytes);
    if (!s->kv_block || !s->scratch_block || (s->kept_bytes && !s->kept_block)) {
        error_set(error, YALM_NO_MEMORY, "the system refused %zu bytes for the KV cache, %zu for attention and %zu for scratch",
                  s->kv_bytes, s->kept_bytes, s->scratch_bytes);
        cpu_close(s);
        return NULL;
    }
    if (!join_team(s, plan, error)) {
        cpu_close(s);
        return NULL;
    }
    cpu_carve(s);
    if (plan->options->pin && plan->container->mapping.copied)
        places_weights(s);
    for (int i = 0; i < config_n_kinds(s->config); i++)
        prepare_kind(s, i);
    for (size_t i = 0; s->ones && i < cpu_n_ones(s); i++)
        s->ones[i] = 1;
    for (int l = 0; s->key_offsets && l < s->config->n_layers; l++) {
        const struct cpu_kind *kind = cpu_kind_of(s, l);
        if (!config_attends(s->config, l))
            continue;
        key_offset(s->key_offsets + (size_t)l * s->kv_dim, s->weights->layers[l].k_bias, s->config,
                   s->config->unrotated_layer[l] ? NULL : kind->inverse_frequency, kind->rope_scale);
    }
    if (s->policy->open && s->policy->open(s, plan, error) != YALM_OK) {
        cpu_close(s);
        return NULL;
    }
    return s;
}
