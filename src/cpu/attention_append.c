// What comes before attention: queries are rotated, keys and values go into the cache.
#include "cpu/attention.h"
#include "cpu/latents.h"

#include "engine/calibrate.h"

// y = scale x, rotated where there are angles, times the weights where there are any.
static void rotate_query(const struct cpu_state *s, const struct cpu_kind *kind, float *y, const float *x, float scale,
                         const float *weights, const float *cos, const float *sin)
{
    for (int i = 0; i < kind->head_dim; i++)
        y[i] = scale * x[i];
    if (cos)
        s->kernels->rope(y + kind->head_dim - kind->rotary, cos, sin, kind->rotary);
    for (int i = 0; weights && i < kind->head_dim; i++)
        y[i] *= weights[i];
}

// A head of k becomes a slot's key, and one of v its value; of latents the key is that, too.
static void append_key(struct cpu_state *s, const struct batch *batch, int layer, int token, int kv_head, const float *cos,
                       const float *sin)
{
    const struct cpu_kind *kind = cpu_kind_of(s, layer);
    const int d = kind->head_dim;
    const int64_t position = batch_position(batch, token);
    float *k = s->k + (size_t)token * kind->kv_dim + (size_t)kv_head * d;
    if (s->record && cpu_is_far(s, layer)) {
        const size_t row =
            (cpu_far_place(s, layer) * kind->n_kv_heads + kv_head) * s->record->room + s->record->first + position;
        s->kernels->to_fp16(s->record->keys + row * d, k, d);
    }
    if (cos)
        s->kernels->rope(k + d - kind->rotary, cos, sin, kind->rotary);
    const struct policy *policy = cpu_is_far(s, layer) ? s->policy : &policy_dense;
    policy->append(s, &(struct append){
                          .layer = layer,
                          .kv_head = kv_head,
                          .slot = kv_slot(&kind->kv, batch->position + token),
                          .position = position,
                          .token = token,
                          .n = batch->n,
                          .k = k,
                          .v = kind->values == kind->keys ? NULL : s->v + (size_t)token * kind->kv_dim + (size_t)kv_head * d,
                      });
}

static void append_one(struct cpu_state *s, const struct batch *batch, const struct step *step, int token, int kv_head)
{
    const struct cpu_kind *kind = cpu_kind_of(s, step->layer);
    const int d = kind->head_dim, group = kind->group;
    const int64_t position = batch_position(batch, token);
    const bool turns = !(step->traits & TRAIT_UNROTATED);
    const float *cos = turns ? kind->cos + (size_t)token * (kind->rotary / 2) : NULL;
    const float *sin = kind->sin + (size_t)token * (kind->rotary / 2);

    const float scale = query_scale_at(&step->query, position);
    if (latents_expand(s, batch)) {
        latents_query(s, token, scale, cos, sin);
        append_key(s, batch, step->layer, token, kv_head, cos, sin);
        return;
    }
    const float *weights = step->traits & TRAIT_WEIGHTED ? step->weights->q_norm : NULL;
    const float *q = s->q + (size_t)token * kind->q_dim + (size_t)kv_head * group * d;
    const size_t rotated = ((size_t)kv_head * s->chunk + token) * group * d;
    for (int j = 0; j < group; j++)
        rotate_query(s, kind, s->rotated_q + rotated + (size_t)j * d, q + (size_t)j * d, scale, weights, cos, sin);
    if (kv_sinks_apart(&kind->kv, batch->position + batch->n - 1)) {
        const bool apart = kv_sinks_apart(&kind->kv, position);
        for (int j = 0; j < group; j++)
            rotate_query(s, kind, s->sink_q + rotated + (size_t)j * d, q + (size_t)j * d, scale, weights,
                         apart && turns ? kind->sink_cos : cos, apart ? kind->sink_sin : sin);
    }
    if (!(step->traits & TRAIT_OTHERS_KEYS))
        append_key(s, batch, step->layer, token, kv_head, cos, sin);
}

void attention_append(struct cpu_state *s, const struct batch *batch, const struct step *step, struct member *me)
{
    for (struct grains items; team_claim_near(me, batch->n * cpu_kind_of(s, step->layer)->n_kv_heads, 4, &items);) {
        for (int i = items.first; i < items.last; i++)
            append_one(s, batch, step, i % batch->n, i / batch->n);
        if (items.first == 0 && atomic_load_explicit(s->cancel, memory_order_relaxed))
            cpu_stop(s, s->run, step->layer);
    }
    if (s->policy->appended && cpu_is_far(s, step->layer) && !(step->traits & TRAIT_OTHERS_KEYS))
        s->policy->appended(s, batch->position, batch->n, step->layer, me);
}
