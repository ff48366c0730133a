// The attention of tokens apart (apart.cu): each attends by itself to the keys that it would see alone, with its session's
// cache, plan and scratch. Those of one session that come later are in the cache by then, beyond its position.
#include "cuda/state.h"

int turns_run(const struct turn *turns, int first, int n)
{
    int end = first + 1;
    while (end < n && turns[end].s == turns[first].s)
        end++;
    return end - first;
}

yalm_status turns_append(const struct cuda_state *by, struct rope_append append, const struct step *step, int n,
                         yalm_error *error)
{
    const struct attending *a = &step->attending;
    for (int t = 0, run; t < n; t += run) {
        const struct cuda_state *s = by->turns[t].s;
        const size_t q_at = (size_t)t * a->n_heads * a->head_dim, kv_at = (size_t)t * a->n_kv_heads * a->head_dim;
        run = turns_run(by->turns, t, n);
        struct rope_append own = append;
        own.step += t;
        own.q += q_at;
        own.k = append.k ? append.k + kv_at : NULL;
        own.v = append.v ? append.v + kv_at : NULL;
        own.rotated_q += q_at;
        own.sink_q = append.sink_q ? append.sink_q + q_at : NULL;
        own.cache = &s->caches[a->seen_kind];
        own.rope = s->ropes[a->kind];
        own.key_offset = s->key_offsets ? s->key_offsets + (size_t)step->layer * s->kv_dim : NULL;
        TRY(rope_append(&own, run, by->stream, error));
    }
    return YALM_OK;
}

yalm_status turns_attend(const struct cuda_state *by, struct attention attention, const struct step *step, int n,
                         yalm_error *error)
{
    const struct attending *a = &step->attending;
    for (int t = 0; t < n; t++) {
        const struct cuda_state *s = by->turns[t].s;
        const size_t at = (size_t)t * a->n_heads * a->head_dim;
        struct attention own = attention;
        own.step += t;
        own.q += at;
        own.sink_q = attention.sink_q ? attention.sink_q + at : NULL;
        own.cache = &s->caches[a->seen_kind];
        TRY(attention_decode(&own, &s->attention_plans[a->seen_kind], static_cast<float *>(by->attended) + at,
                             s->attention_scratch, by->stream, error));
    }
    return YALM_OK;
}
