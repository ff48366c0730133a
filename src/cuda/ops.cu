// What a step's op is on a GPU. Position, length and tokens lie in device memory: evaluate.cu brings them there.
#include "cuda/ops.h"

#include "cuda/delta/recur.h"
#include "cuda/product_ops.h"
#include "cuda/shares.h"

// ------------------------------------------------------------------------------------------ attention

// The latents of queries and of keys; behind the latter stands what of keys rotates.
static yalm_status normalise_latents(const struct pass *r, const struct layer_weights *w, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct latent_config *d = &s->config->latent;
    if (d->q_rank)
        TRY(rmsnorm_heads(s->latent, d->q_rank, w->q_norm, d->norm_eps, r->n, 1, d->q_rank, s->stream, error));
    return rmsnorm_heads(s->k, s->config->head_dim, w->k_norm, d->norm_eps, r->n, 1, d->kv_rank, s->stream, error);
}

static yalm_status normalise_heads(const struct pass *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct layer_weights *w = step->weights;
    if (step->traits & TRAIT_LATENT)
        return normalise_latents(r, w, error);
    const float eps = s->config->norm_eps;
    const int q_dim = w->q.rows, kv_dim = w->k.rows, dim = step->attending.head_dim, pitch = pitch_of(r, w),
              q_pitch = pitch ? pitch : q_dim, kv_pitch = pitch ? pitch : kv_dim;
    float *k = pitch ? s->q + q_dim : s->k, *v = pitch ? k + kv_dim : s->v;
    const bool whole = step->traits & TRAIT_WHOLE;
    if (whole && s->group)
        return shares_normalise(s, w, k, q_pitch, kv_pitch, r->n, error);
    const int q_width = whole ? q_dim : dim, k_width = whole ? kv_dim : dim;
    const float *q_norm = step->traits & TRAIT_WEIGHTED ? s->ones : w->q_norm;
    const float *k_norm = step->traits & TRAIT_WEIGHTED ? s->ones : w->k_norm;
    if (q_norm)
        TRY(rmsnorm_heads(s->q, q_pitch, q_norm, eps, r->n, q_dim / q_width, q_width, s->stream, error));
    if (k_norm)
        TRY(rmsnorm_heads(k, kv_pitch, k_norm, eps, r->n, kv_dim / k_width, k_width, s->stream, error));
    return step->traits & TRAIT_VALUES && kv_dim > 0
               ? rmsnorm_heads(v, kv_pitch, s->ones, eps, r->n, kv_dim / dim, dim, s->stream, error)
               : YALM_OK;
}

// What puts a layer's queries, keys and values where they belong.
static struct rope_append append_of(const struct pass *r, const struct step *step)
{
    const struct cuda_state *s = r->s;
    const struct layer_weights *w = step->weights;
    const struct attending *a = &step->attending;
    const int pitch = pitch_of(r, w);
    struct rope_append append = {s->step,
                                 s->q,
                                 pitch ? s->q + w->q.rows : s->k,
                                 pitch ? s->q + w->q.rows + w->k.rows : s->v,
                                 s->rotated_q,
                                 s->sink_q,
                                 &s->caches[a->seen_kind],
                                 s->ropes[a->kind],
                                 a->place,
                                 a->n_heads,
                                 s->unrounded_k,
                                 pitch};
    if (a->seen != step->layer)
        append.k = append.v = NULL;
    if (step->traits & TRAIT_LATENT)
        append.v = NULL;
    append.still = step->traits & TRAIT_UNROTATED;
    append.scale = step->query.scale;
    append.growth = step->query.growth;
    append.growth_context = step->query.growth > 0 ? step->query.context : 1;
    append.weights = step->traits & TRAIT_WEIGHTED ? w->q_norm : NULL;
    append.key_offset = s->key_offsets ? s->key_offsets + (size_t)step->layer * s->kv_dim : NULL;
    return append;
}

// Attention of many tokens by keys and values that are made of latents, some heads at a time.
static yalm_status attend_expanded(const struct pass *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct attending *a = &step->attending;
    const struct latent_config *d = &s->config->latent;
    const struct latent_weights *w = &step->weights->latent;
    const struct kv_cache *latents = &s->caches[a->seen_kind];
    const int width = s->expanded.head_dim, capacity = latents->policy.capacity;
    const int64_t end = s->step_host->position + r->n;
    struct kv_cache heads = s->expanded;
    struct rope_append append = append_of(r, step);
    append.n_heads = 0; // the key alone
    TRY(rope_append(&append, r->n, s->stream, error));
    heads.n_kv_heads = append.n_heads = a->n_heads;
    append.q = s->heads;
    append.k = NULL;
    append.cache = &heads;
    TRY(rope_append(&append, r->n, s->stream, error));
    const enum dtype type = type_for_reader(r, step + 1);
    for (int h = 0; h < a->n_heads; h += s->expanded.n_kv_heads) {
        const int left = a->n_heads - h, at = h * width;
        heads.n_kv_heads = left < s->expanded.n_kv_heads ? left : s->expanded.n_kv_heads;
        TRY(expand_latents(&heads, latents, a->place, d,
                           static_cast<const half *>(w->k_b.data) + (size_t)h * d->kv_rank * d->nope_dim,
                           static_cast<const half *>(w->v_b.data) + (size_t)h * d->v_dim * d->kv_rank,
                           (int)(end < capacity ? end : capacity), s->stream, error));
        struct attention attention = {s->step, s->rotated_q + at, s->sink_q ? s->sink_q + at : NULL, &heads,
                                      0,       heads.n_kv_heads};
        attention.row_heads = a->n_heads;
        TRY(attention_prefill(&attention, r->n, static_cast<char *>(s->attended) + at * dtype_sizes[type], type, s->stream,
                              error));
    }
    return narrow_heads(s->heads, s->attended, type, d->v_dim, width, (size_t)r->n * a->n_heads, s->stream, error);
}

static yalm_status attend(const struct pass *r, const struct step *step, yalm_error *error)
{
    if (step->traits & TRAIT_LATENT && expands(r, step))
        return attend_expanded(r, step, error);
    struct cuda_state *s = r->s;
    const struct attending *a = &step->attending;
    const struct rope_append append = append_of(r, step);
    TRY(s->turns ? turns_append(s, append, step, r->n, error) : rope_append(&append, r->n, s->stream, error));
    const struct attention attention = {s->step,
                                        s->rotated_q,
                                        s->sink_q,
                                        &s->caches[a->seen_kind],
                                        a->place,
                                        a->n_heads,
                                        step->number,
                                        step->weights->sink_logits,
                                        s->weights->weights.alibi_slopes};
    const bool served = s->method && a->seen_kind == s->far && a->seen == step->layer;
    if (served && !r->selective)
        TRY(method_append(s, &attention, r->n, error));
    if (served && r->selective)
        return method_attend(s, &attention, static_cast<float *>(s->attended), error);
    if (s->turns)
        return turns_attend(s, attention, step, r->n, error);
    if (r->n == 1)
        return attention_decode(&attention, &s->attention_plans[a->seen_kind], static_cast<float *>(s->attended),
                                s->attention_scratch, s->stream, error);
    return attention_prefill(&attention, r->n, s->attended, type_for_reader(r, step), s->stream, error);
}

static yalm_status gate_outputs(const struct pass *r, const struct step *step, yalm_error *error)
{
    const size_t width = step->attending.head_dim * step->attending.n_heads;
    return sigmoid_multiply(r->s->attended, type_for_reader(r, step), r->s->gates, r->n * width, r->s->stream, error);
}

// ------------------------------------------------------------------------------------------ feed-forward

static yalm_status weigh(const struct pass *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    return weigh_units(s->gated, type_for_reader(r, step), step->weights->shared.down.cols, &step->weights->shared_router, r->x,
                       step->norm, s->config->norm_eps, r->n, s->stream, error);
}

// And where each token goes to, for which OP_ROUTE does nothing.
static yalm_status run_experts(const struct pass *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct layer_weights *w = step->weights;
    const int width = s->config->hidden_dim;
    const bool apart = step->out[0] == BUFFER_EXPERT_SUM && !s->group; // from the residual stream
    float *to = apart ? s->expert_sum : residual(s);
    const struct experts experts = {step->norm,
                                    s->config->norm_eps,
                                    w->router,
                                    w->experts,
                                    s->weights->experts + (size_t)step->layer * step->n_experts,
                                    step->n_experts,
                                    step->n_active,
                                    step->raw_weights,
                                    w->router_bias,
                                    step->activation,
                                    w->router_choice_bias,
                                    step->number,
                                    w->expert_norm ? s->ones : NULL,
                                    w->router_scale,
                                    s->config->n_expert_groups,
                                    s->config->n_active_groups,
                                    s->config->expert_eps,
                                    s->config->softmax_choice_bias};
    const int at_once = s->turns ? 1 : r->n; // apart each reads its own
    for (int t = 0; t < r->n; t += at_once) {
        const size_t at = (size_t)t * width;
        TRY(experts_run(to + at, r->x + at, &experts, at_once, s->experts_scratch, s->stream, error));
    }
    return YALM_OK;
}

static yalm_status join(const struct pass *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct layer_weights *w = step->weights;
    if (s->group) // ranks normalise their sum, behind the block
        return step->n_w ? add(r, step, error) : YALM_OK;
    if (step->n_w)
        TRY(make_branch(r, step, s->gated, error));
    return join_experts(s->x, step->n_w ? s->branch : NULL, s->expert_sum, w->shared_post_norm, w->expert_post_norm,
                        step->post_norm, s->config->norm_eps, r->n, s->config->hidden_dim, s->stream, error);
}

// ------------------------------------------------------------------------------------------ the rest

static yalm_status begin(const struct pass *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    if (s->method)
        TRY(method_begin(s, r->selective, error));
    TRY(embed(s->x, step->table, s->tokens, r->n, s->stream, error, step->number));
    const struct model_weights *w = &s->weights->weights;
    return step->traits & TRAIT_ROWS
               ? add_rows(s->x, static_cast<const float *>(w->positions.data), static_cast<const float *>(w->token_types.data),
                          s->step, s->turns, r->n, step->table->cols, s->stream, error)
               : YALM_OK;
}

static yalm_status norm_stream(const struct pass *r, const struct step *step, yalm_error *error)
{
    const struct norm norm = {step->post_norm, step->norm_bias};
    return normalise(r->s, r->s->x, DTYPE_FP32, r->s->x, &norm, r->n, r->s->config->hidden_dim, false, error);
}

// Of a head that guesses.
static yalm_status pair(const struct pass *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    return pair_norms(s->gated, type_for_reader(r, step), s->x, step->norm, s->given, step->post_norm, s->config->norm_eps,
                      r->n, s->config->hidden_dim, s->stream, error);
}

static yalm_status mix(const struct pass *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const int width = s->config->layer_input_dim;
    TRY(embed(s->gate, step->table, s->tokens, r->n, s->stream, error, sqrtf((float)width)));
    return mix_inputs(s->layer_inputs, s->gate, step->norm, 1.0f / sqrtf((float)s->config->hidden_dim), s->config->norm_eps,
                      r->n, s->config->n_layers, width, s->stream, error);
}

// Many tokens' products may have 16 bits for x, which nobody keeps from being long: they read it normalised, and its length
// comes in behind them.
static yalm_status gate_input(const struct pass *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct model_config *c = s->config;
    const size_t width = c->layer_input_dim;
    const bool whole = as_vectors(s, r->n);
    const struct product gate = {*step->w[0], NULL, s->gate};
    const struct upcoming next = upcoming_after(r, step);
    const struct norm norm = {whole ? NULL : s->ones, NULL};
    TRY(normalised_products(s, &gate, 1, 0, r->x, &norm, r->n, error, &next));
    return gate_inputs(s->gated, type_for_reader(r, step), s->gate, s->layer_inputs + step->layer * width, c->n_layers * width,
                       whole ? NULL : r->x, c->norm_eps, c->hidden_dim, r->n, (int)width, step->activation, s->stream, error);
}

yalm_status queue_step(const struct pass *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    switch (step->op) {
    case OP_EMBED:
        return begin(r, step, error);
    case OP_PAIR:
        return pair(r, step, error);
    case OP_NORM:
        return norm_stream(r, step, error);
    case OP_HEADS:
        return head_products(r, step, error);
    case OP_PROJECT:
        return project(r, step, error);
    case OP_MIX_INPUTS:
        return mix(r, step, error);
    case OP_HEAD_NORM:
        return normalise_heads(r, step, error);
    case OP_ATTEND:
        return attend(r, step, error);
    case OP_RECUR:
        return recur(r, step, error);
    case OP_CONVOLVE:
        return convolve(r, step, error);
    case OP_GATE:
        return gate_outputs(r, step, error);
    case OP_ADD:
        return add(r, step, error);
    case OP_UNITS:
        return make_units(r, step, error);
    case OP_WEIGH:
        return weigh(r, step, error);
    case OP_ROUTE:
        return YALM_OK;
    case OP_EXPERTS:
        return run_experts(r, step, error);
    case OP_JOIN:
        return join(r, step, error);
    case OP_GATE_INPUT:
        return gate_input(r, step, error);
    case OP_SCALE:
        return scale_stream(s->x, step->weights->scale, (size_t)r->n * s->config->hidden_dim, s->stream, error);
    case OP_CAP:
        return softcap(buffer(r, BUFFER_LOGITS), (size_t)r->n * s->config->vocab_size, step->number, s->stream, error);
    }
    return YALM_OK;
}
