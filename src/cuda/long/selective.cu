// What all methods have in common, on the host's side: sizes, scratch, and the two steps that follow a method's scores.
#include "cuda/long/method.h"

int selective_n_keys(const struct kv_policy *policy, int64_t position)
{
    return (int)(position + 1 - policy_first_visible(*policy, position));
}

int selective_break_even(const struct cuda_state *s, double (*bytes)(const struct cuda_state *s, int n), double step_bytes)
{
    int n = 256;
    while (n <= far_cache(s)->policy.span && bytes(s, n) + step_bytes >= 2.0 * kv_row_bytes(far_cache(s)) * n)
        n += 64;
    return n;
}

// ------------------------------------------------------------------------------------------ memory

void selective_plan(struct cuda_state *s)
{
    s->method->selective.n_parts = (far_cache(s)->policy.capacity + PART_KEYS - 1) / PART_KEYS;
    s->method->selective.ld = s->method->selective.n_parts * PART_KEYS;
    // As many as are resident at once: each begins with an empty histogram and with all parts' statistics.
    const int resident = 4 * s->device.n_sms / far_cache(s)->n_kv_heads;
    s->method->selective.n_blocks = resident < 1                              ? 1
                                    : resident < s->method->selective.n_parts ? resident
                                                                              : s->method->selective.n_parts;
}

void selective_take_kept(struct cuda_state *s, struct cuda_blocks *b)
{
    const size_t heads = (size_t)far_cache(s)->n_layers * far_cache(s)->n_kv_heads;
    if (!s->method->selective.tail)
        return;
    take(b, s->method->selective.sums, heads * far_cache(s)->head_dim, sizeof(double));
    take(b, s->method->selective.covered, heads * 2, sizeof(int64_t));
}

void selective_take_scratch(struct cuda_state *s, struct cuda_blocks *b)
{
    struct cuda_selective *t = &s->method->selective;
    const size_t n_heads = s->config->n_heads, n_kv_heads = far_cache(s)->n_kv_heads, ld = t->ld, parts = t->n_parts;
    take(b, t->scores, n_heads * ld, sizeof(float));
    take(b, t->part_stats, n_heads * parts, sizeof(float2));
    take(b, t->sink_scores, n_heads * far_cache(s)->policy.n_sinks, sizeof(float));
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
    const size_t heads = (size_t)far_cache(s)->n_layers * far_cache(s)->n_kv_heads;
    TRY_CUDA(cudaMemset(s->method->selective.tickets, 0, far_cache(s)->n_kv_heads * sizeof(unsigned)));
    TRY_CUDA(cudaMemset(s->method->selective.n_candidates, 0, far_cache(s)->n_kv_heads * sizeof(int)));
    TRY_CUDA(cudaMemset(s->method->selective.digits, 0, (size_t)far_cache(s)->n_kv_heads * SELECT_BINS * sizeof(unsigned)));
    if (s->method->selective.tail) {
        TRY_CUDA(cudaMemset(s->method->selective.sums, 0, heads * far_cache(s)->head_dim * sizeof(double)));
        TRY_CUDA(cudaMemset(s->method->selective.covered, 0, heads * 2 * sizeof(int64_t)));
    }
    TRY_CUDA(cudaDeviceSynchronize()); // the session's stream does not wait for these
    return YALM_OK;
}

// ------------------------------------------------------------------------------------------ a step's parts

yalm_status selective_select(struct cuda_state *s, const struct attention *a, yalm_error *error)
{
    return select_rows(&s->method->selective, a, config_head_number(s->config, a->layer, 0), s->stream, error);
}

yalm_status selective_gather(struct cuda_state *s, const struct attention *a, float *attended, yalm_error *error)
{
    const struct cuda_selective *t = &s->method->selective;
    struct gathered keys = {};
    keys.rows = t->rows;
    keys.n_rows = t->n_rows;
    keys.bias = t->drawn ? t->candidates : NULL;
    keys.ld = t->ld;
    if (t->tail)
        keys.sums = t->sums + (size_t)a->layer * a->cache->n_kv_heads * a->cache->head_dim;
    keys.scores = t->scores;
    keys.sink_scores = t->sink_scores;
    keys.stats = t->stats;
    return attention_gather(a, &keys, &s->attention_plans[s->far], attended, s->attention_scratch, s->stream, error);
}
