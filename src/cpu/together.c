#include "cpu/together.h"

#include <string.h>

#include "cpu/open.h"

// Activations alone: its own cache is as small as can be.
static struct cpu_state *open_state(const struct backend_plan *of_session, yalm_error *error)
{
    yalm_session_options options = *of_session->options;
    options.chunk = options.context = MOST_TURNS;
    options.attention = "dense";
    options.endless = false;
    static const atomic_bool never;
    struct backend_plan plan = *of_session;
    plan.cancel = &never;
    plan.options = &options;
    plan.together = true;
    for (int kind = 0; kind < config_n_kinds(plan.config); kind++)
        plan.kv[kind] = kv_policy_make(options.context, plan.config->kinds[kind].sliding_window, false, 0, options.chunk);
    return cpu_open(&plan, error);
}

// Whether tokens of a session with state s become the same in the common state.
static bool fits(const struct cpu_state *together, const struct cpu_state *s)
{
    return together->team == s->team && together->n_threads == s->n_threads && together->kernels == s->kernels &&
           together->plan.quant == s->plan.quant;
}

static yalm_status one_by_one(void *const *states, const struct batch *batches, int n, yalm_error *error)
{
    yalm_status status = YALM_OK;
    for (int i = 0; i < n && status == YALM_OK; i++) {
        struct batch batch = batches[i];
        batch.apart = true;
        if (cpu_forward(states[i], &batch) != YALM_OK)
            status = error_set(error, YALM_INTERRUPTED, "interrupted");
    }
    return status;
}

// The common state for sessions like s; NULL where it cannot be had.
static struct cpu_state *state_for(struct cpu_shared *shared, const struct cpu_state *s, const struct backend_plan *plan,
                                   yalm_error *error)
{
    if (shared->together && !fits(shared->together, s)) {
        cpu_close(shared->together);
        shared->together = NULL;
    }
    if (!shared->together)
        shared->together = open_state(plan, error);
    return shared->together;
}

static void evaluate(struct cpu_state *together, void *const *states, const struct batch *batches, int n)
{
    struct turn turns[MOST_TURNS];
    for (int i = 0; i < n; i++)
        turns[i] = (struct turn){states[i], batches[i].position, batches[i].tokens[0]};
    cpu_forward_apart(together, turns, n);
    const float *logits = together->gathered ? together->gathered : together->logits;
    const size_t vocab = (size_t)together->weights->embedding.rows;
    for (int i = 0; i < n; i++)
        memcpy(batches[i].logits, logits + (size_t)i * vocab, sizeof(float) * vocab);
}

yalm_status cpu_evaluate_together(void *const *states, const struct batch *batches, int n, const struct backend_plan *plan,
                                  yalm_error *error)
{
    const struct cpu_state *first = states[0];
    struct cpu_shared *shared = cpu_shared(plan->of_cpu);
    if (!shared || first->own_team)
        return one_by_one(states, batches, n, error);
    pthread_mutex_lock(&shared->evaluating);
    struct cpu_state *together = state_for(shared, first, plan, error);
    bool all_fit = together;
    for (int i = 1; i < n && all_fit; i++)
        all_fit = fits(together, states[i]);
    const int groups = (n + MOST_TURNS - 1) / MOST_TURNS;
    for (int i = 0, next; i < groups && all_fit; i++) {
        const int from = n * i / groups;
        next = n * (i + 1) / groups;
        evaluate(together, states + from, batches + from, next - from);
    }
    pthread_mutex_unlock(&shared->evaluating);
    if (!together)
        return YALM_NO_MEMORY;
    return all_fit ? YALM_OK : one_by_one(states, batches, n, error);
}
