// Attention methods on the host's side: which there are, what all of them take, and a token's steps in one layer.
#include "cuda/selective.h"

#include "cuda/state.h"

static const struct cuda_method *const methods[] = {&method_sparq, &method_hybrid};

yalm_status cuda_method_find(const struct cuda_method **method, const char *name, yalm_error *error)
{
    char names[64] = "dense";
    *method = NULL;
    if (strcmp(name, "dense") == 0)
        return YALM_OK;
    for (const struct cuda_method *m : methods) {
        if (strcmp(m->name, name) == 0) {
            *method = m;
            return YALM_OK;
        }
        strncat(names, ", ", sizeof names - strlen(names) - 1);
        strncat(names, m->name, sizeof names - strlen(names) - 1);
    }
    return error_set(error, YALM_USAGE, "device cuda: %s attention does not run on the GPU, only %s (-d cpu runs it)", name,
                     names);
}

int selective_n_keys(const struct kv_policy *policy, int64_t position)
{
    return (int)(position + 1 - policy_first_visible(*policy, position));
}

bool selective_applies(const struct cuda_state *s, int n, int64_t position)
{
    return s->method && n == 1 && selective_n_keys(&s->caches[0].policy, position) >= s->selective.from;
}

int selective_break_even(const struct cuda_state *s, double (*bytes)(const struct cuda_state *s, int n), double step_bytes)
{
    int n = 256;
    while (n <= s->caches[0].policy.span && bytes(s, n) + step_bytes >= 2.0 * kv_row_bytes(&s->caches[0]) * n)
        n += 64;
    return n;
}

// ------------------------------------------------------------------------------------------ memory

void selective_plan(struct cuda_state *s)
{
    s->selective.n_parts = (s->caches[0].policy.capacity + PART_KEYS - 1) / PART_KEYS;
    s->selective.ld = s->selective.n_parts * PART_KEYS;
    // As many as are resident at once: each begins with an empty histogram and with all parts' statistics.
    const int resident = 4 * s->device.n_sms / s->caches[0].n_kv_heads;
    s->selective.n_blocks = resident < 1 ? 1 : resident < s->selective.n_parts ? resident : s->selective.n_parts;
}

void selective_take_kept(struct cuda_state *s, struct cuda_blocks *b)
{
    const size_t heads = (size_t)s->config->n_layers * s->config->n_kv_heads;
    if (!s->selective.tail)
        return;
    take(b, s->selective.sums, heads * s->config->head_dim, sizeof(double));
    take(b, s->selective.covered, heads * 2, sizeof(int64_t));
}

void selective_take_scratch(struct cuda_state *s, struct cuda_blocks *b)
{
    struct selective *t = &s->selective;
    const size_t n_heads = s->config->n_heads, n_kv_heads = s->config->n_kv_heads, ld = t->ld, parts = t->n_parts;
    take(b, t->scores, n_heads * ld, sizeof(float));
    take(b, t->part_stats, n_heads * parts, sizeof(float2));
    take(b, t->sink_scores, n_heads * s->caches[0].policy.n_sinks, sizeof(float));
    take(b, t->stats, n_heads, sizeof(float2));
    take(b, t->weights, n_kv_heads * ld, sizeof(float));
    take(b, t->digits, n_kv_heads * SELECT_BINS, sizeof(unsigned));
    take(b, t->candidates, n_kv_heads * ld, sizeof(float));
    take(b, t->n_candidates, n_kv_heads, sizeof(int));
    take(b, t->part_counts, n_kv_heads * parts, sizeof(int2));
    take(b, t->part_places, n_kv_heads * parts, sizeof(int2));
    take(b, t->thresholds, n_kv_heads, sizeof(float));
    take(b, t->rows, n_kv_heads * ld, sizeof(int));
    take(b, t->n_rows, n_kv_heads, sizeof(int));
    take(b, t->tickets, n_kv_heads, sizeof(unsigned));
}

yalm_status selective_open(struct cuda_state *s, yalm_error *error)
{
    const size_t heads = (size_t)s->config->n_layers * s->config->n_kv_heads;
    TRY_CUDA(cudaMemset(s->selective.tickets, 0, s->config->n_kv_heads * sizeof(unsigned)));
    TRY_CUDA(cudaMemset(s->selective.n_candidates, 0, s->config->n_kv_heads * sizeof(int)));
    TRY_CUDA(cudaMemset(s->selective.digits, 0, (size_t)s->config->n_kv_heads * SELECT_BINS * sizeof(unsigned)));
    if (s->selective.tail) {
        TRY_CUDA(cudaMemset(s->selective.sums, 0, heads * s->config->head_dim * sizeof(double)));
        TRY_CUDA(cudaMemset(s->selective.covered, 0, heads * 2 * sizeof(int64_t)));
    }
    TRY_CUDA(cudaDeviceSynchronize()); // the session's stream does not wait for these
    return YALM_OK;
}

// ------------------------------------------------------------------------------------------ steps

yalm_status selective_begin(struct cuda_state *s, int n, bool applies, yalm_error *error)
{
    (void)n;
    if (!s->selective.tail)
        return YALM_OK;
    const struct value_sums sums = {s->step, &s->caches[0], s->selective.sums, s->selective.covered};
    return applies ? value_sums_cover(&sums, s->stream, error) : value_sums_forget(&sums, s->stream, error);
}

yalm_status selective_select(struct cuda_state *s, const struct attention *a, yalm_error *error)
{
    return select_rows(&s->selective, a, s->stream, error);
}

yalm_status selective_gather(struct cuda_state *s, const struct attention *a, float *attended, yalm_error *error)
{
    return attention_gather(a, &s->selective, &s->attention_plans[0], attended, s->attention_scratch, s->stream, error);
}

yalm_status selective_attend(struct cuda_state *s, const struct attention *a, float *attended, yalm_error *error)
{
    TRY(s->method->prepare(s, a, error));
    TRY(s->method->score(s, a, error));
    TRY(selective_select(s, a, error));
    return selective_gather(s, a, attended, error);
}
