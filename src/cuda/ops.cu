// What a step's op is on a GPU. One token's products read each matrix once, as vectors; many tokens' are cuBLASLt's. Position,
// length and tokens lie in device memory: evaluate.cu brings them there.
#include "cuda/ops.h"

#include "cuda/shares.h"

// Whether n tokens' products are vectors' (matvec.cuh): one's, and those of tokens apart (together.cu).
static bool as_vectors(const struct cuda_state *s, int n)
{
    return n == 1 || s->turns;
}

// What a step's product will read: the rows that each of its blocks begins with.
static struct upcoming upcoming_of(const struct step *step)
{
    struct upcoming next = {};
    const bool gated = step->op == OP_UNITS;
    if (step->op == OP_ROUTE || (gated && step->w[0]->dtype != step->w[1]->dtype))
        return next;
    next.side_by_side = gated;
    for (int i = 0; i < 3 && i < step->n_w; i++) {
        const struct matrix *m = step->w[i];
        const size_t group = dtype_group_bytes[m->dtype]; // without its scale: scales lie behind all rows
        next.data[i] = m->data;
        next.bytes[i] = m->rows * (group ? quant_groups(m->cols) * group : m->cols * dtype_sizes[m->dtype]);
    }
    return next;
}

// What is multiplied next. Which experts that are nobody knows yet.
static struct upcoming upcoming_after(const struct run *r, const struct step *step)
{
    const struct recipe *recipe = &r->s->recipe;
    for (int i = (int)(step - recipe->steps) + 1; i < recipe->n; i++)
        if (recipe->steps[i].n_w)
            return upcoming_of(&recipe->steps[i]);
    return {};
}

// The type of what a step leaves: that which the product takes that reads it.
static enum dtype type_for_reader(const struct run *r, const struct step *step)
{
    const enum buffer from = step->out[0];
    do
        step++;
    while (step->in != from || !step->n_w);
    return as_vectors(r->s, r->n) ? DTYPE_FP32 : input_type(step->w[0]->dtype);
}

// What a block adds to: the residual stream, or what ranks sum for it.
static float *residual(const struct cuda_state *s)
{
    return s->group ? s->branch : s->x;
}

static float *buffer(const struct run *r, enum buffer which)
{
    const struct cuda_state *s = r->s;
    switch (which) {
    case BUFFER_Q:
        return s->q;
    case BUFFER_K:
        return s->k;
    case BUFFER_V:
        return s->v;
    case BUFFER_GATES:
        return s->gates;
    case BUFFER_DECAYS:
        return s->decays;
    case BUFFER_BETAS:
        return s->betas;
    case BUFFER_INPUTS:
        return s->layer_inputs;
    case BUFFER_LOGITS:
        return s->group ? s->part_logits : r->logits;
    default:
        return NULL;
    }
}

// ------------------------------------------------------------------------------------------ products

// y_i = w_i rmsnorm(x) + bias_i, or of x itself where norm is NULL. Many tokens' products round their input to 16 bits where
// the matrix has them; the first n_exact take what that loses, too.
static yalm_status normalised_products(struct cuda_state *s, const struct product *products, int n_products, int n_exact,
                                       const float *x, const float *norm, int n, yalm_error *error,
                                       const struct upcoming *next = NULL)
{
    const float eps = s->config->norm_eps;
    enum { AT_ONCE = 3 };
    if (as_vectors(s, n)) {
        for (int i = 0, left; (left = n_products - i) > 0; i += AT_ONCE)
            TRY(matvec_norm(products + i, left < AT_ONCE ? left : AT_ONCE, x, norm, eps, s->stream, error,
                            left <= AT_ONCE ? next : NULL, n));
        return YALM_OK;
    }
    for (int i = 0; i < n_products; i++) {
        const struct matrix *w = &products[i].w;
        const enum dtype type = input_type(w->dtype);
        const bool exact = i < n_exact && type != DTYPE_FP32;
        if (i == 0 || type != input_type(products[i - 1].w.dtype))
            TRY((n_exact > 0 && type != DTYPE_FP32 ? rmsnorm_split : rmsnorm)(s->h, type, x, norm, eps, n, w->cols, s->stream,
                                                                              error));
        if (exact)
            TRY(matmul_run_split(s->matmul, products[i].y, s->h, w, products[i].bias, n, s->stream, error));
        else
            TRY(matmul_run(s->matmul, products[i].y, s->h, w, products[i].bias, n, false, s->stream, error));
    }
    return YALM_OK;
}

// Where q, k and v of many tokens are one product, which is larger and so runs faster than three: rows of 16 or 32 bits that
// lie one behind the other, and no bias. That of all three; else one without data.
static struct matrix joined_qkv(const struct run *r, const struct matrix *q, const struct matrix *k, const struct matrix *v,
                                const float *bias)
{
    const size_t q_bytes = q->rows * dtype_row_bytes(q->dtype, q->cols), k_bytes = k->rows * dtype_row_bytes(k->dtype, k->cols);
    const char *first = static_cast<const char *>(q->data);
    const bool joined = !as_vectors(r->s, r->n) && q->dtype == k->dtype && k->dtype == v->dtype && !matrix_is_quantised(q) &&
                        k->data == first + q_bytes && v->data == first + q_bytes + k_bytes && !bias;
    return {joined ? first : NULL, q->dtype, q->rows + k->rows + v->rows, q->cols};
}

// Floats from token to token of an attending layer's q, k and v where they are one product's; else 0.
static int pitch_of(const struct run *r, const struct layer_weights *w)
{
    const struct matrix joined = joined_qkv(r, &w->q, &w->k, &w->v, w->q_bias);
    return joined.data ? joined.rows : 0;
}

static yalm_status project(const struct run *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct upcoming next = upcoming_after(r, step);
    struct product products[STEP_MATRICES];
    int n = 0, n_exact = step->n_exact, i = 0;
    if (step->n_w >= 3 && step->out[2] == BUFFER_V && step->n_narrow == 0) {
        products[0] = {joined_qkv(r, step->w[0], step->w[1], step->w[2], step->bias[0]), NULL, s->q};
        if (products[0].w.data)
            n = n_exact = 1, i = 3;
    }
    for (; i < step->n_w; i++)
        products[n++] = {*step->w[i], step->bias[i], buffer(r, step->out[i])};
    return normalised_products(s, products, n, n_exact, r->x, step->norm, r->n, error, &next);
}

// branch = w y + bias
static yalm_status make_branch(const struct run *r, const struct step *step, const void *y, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct upcoming next = upcoming_after(r, step);
    const struct product product = {*step->w[0], step->bias[0], s->branch};
    if (as_vectors(s, r->n))
        return matvec_norm(&product, 1, static_cast<const float *>(y), NULL, 0, s->stream, error, &next, r->n);
    return matmul_run(s->matmul, s->branch, y, step->w[0], step->bias[0], r->n, false, s->stream, error);
}

// Ranks normalise their sum, behind the block.
static yalm_status add(const struct run *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct matrix *w = step->w[0];
    const struct upcoming next = upcoming_after(r, step);
    const void *y = step->in == BUFFER_UNITS ? s->gated : s->attended;
    if (step->post_norm && !s->group) {
        TRY(make_branch(r, step, y, error));
        return add_rmsnorm(s->x, s->branch, step->post_norm, s->config->norm_eps, r->n, w->rows, s->stream, error);
    }
    if (as_vectors(s, r->n))
        return matvec_residual(residual(s), w, step->bias[0], static_cast<const float *>(y), s->stream, error, &next, r->n);
    return matmul_run(s->matmul, residual(s), y, w, step->bias[0], r->n, true, s->stream, error);
}

// ------------------------------------------------------------------------------------------ attention

static yalm_status normalise_heads(const struct run *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct layer_weights *w = step->weights;
    const float eps = s->config->norm_eps;
    const int q_dim = w->q.rows, kv_dim = w->k.rows, dim = q_dim / s->config->n_heads, pitch = pitch_of(r, w),
              q_pitch = pitch ? pitch : q_dim, kv_pitch = pitch ? pitch : kv_dim;
    float *k = pitch ? s->q + q_dim : s->k, *v = pitch ? k + kv_dim : s->v;
    const bool whole = step->traits & TRAIT_WHOLE;
    if (whole && s->group)
        return shares_normalise(s, w, k, q_pitch, kv_pitch, r->n, error);
    const int q_width = whole ? q_dim : dim, k_width = whole ? kv_dim : dim;
    if (w->q_norm)
        TRY(rmsnorm_heads(s->q, q_pitch, w->q_norm, eps, r->n, q_dim / q_width, q_width, s->stream, error));
    if (w->k_norm)
        TRY(rmsnorm_heads(k, kv_pitch, w->k_norm, eps, r->n, kv_dim / k_width, k_width, s->stream, error));
    return step->traits & TRAIT_VALUES && kv_dim > 0
               ? rmsnorm_heads(v, kv_pitch, s->ones, eps, r->n, kv_dim / dim, dim, s->stream, error)
               : YALM_OK;
}

// What puts a layer's queries, keys and values where they belong. pitch: as above.
static struct rope_append append_of(const struct cuda_state *s, int layer, int pitch)
{
    const struct layer_weights *w = &s->weights->weights.layers[layer];
    const struct model_config *c = s->config;
    const int kind = c->kind_of_layer[layer], seen = s->kv_layer[layer];
    struct rope_append append = {s->step,
                                 s->q,
                                 pitch ? s->q + w->q.rows : s->k,
                                 pitch ? s->q + w->q.rows + w->k.rows : s->v,
                                 s->rotated_q,
                                 s->sink_q,
                                 &s->caches[c->kind_of_layer[seen]],
                                 s->ropes[kind],
                                 s->place[seen],
                                 c->n_heads,
                                 s->unrounded_k,
                                 pitch};
    if (seen != layer)
        append.k = append.v = NULL;
    append.still = c->unrotated_layer[layer];
    append.scale = config_attention_scale(c, s->caches[kind].head_dim);
    append.growth = c->query_growth;
    append.growth_context = c->query_growth > 0 ? c->query_growth_context : 1;
    append.key_offset = s->key_offsets ? s->key_offsets + (size_t)layer * s->kv_dim : NULL;
    return append;
}

static yalm_status attend(const struct run *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct layer_weights *w = step->weights;
    const int layer = step->layer, seen = s->kv_layer[layer], kind = s->config->kind_of_layer[seen];
    const struct rope_append append = append_of(s, layer, pitch_of(r, w));
    TRY(s->turns ? turns_append(s, append, layer, r->n, error) : rope_append(&append, r->n, s->stream, error));
    const struct attention attention = {s->step,
                                        s->rotated_q,
                                        s->sink_q,
                                        &s->caches[kind],
                                        s->place[seen],
                                        s->config->n_heads,
                                        s->config->attention_softcap,
                                        w->sink_logits};
    if (s->method && !r->selective)
        TRY(method_append(s, &attention, r->n, error));
    if (r->selective)
        return method_attend(s, &attention, static_cast<float *>(s->attended), error);
    if (s->turns)
        return turns_attend(s, attention, layer, r->n, error);
    if (r->n == 1)
        return attention_decode(&attention, &s->attention_plans[kind], static_cast<float *>(s->attended), s->attention_scratch,
                                s->stream, error);
    return attention_prefill(&attention, r->n, s->attended, type_for_reader(r, step), s->stream, error);
}

static yalm_status recur(const struct run *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const int kind = s->config->kind_of_layer[step->layer];
    const struct delta delta = {s->step,
                                config_delta(s->config, step->layer),
                                &step->weights->delta,
                                s->place[step->layer],
                                config_n_layers_of(s->config, kind),
                                s->states[kind],
                                s->inputs[kind],
                                s->q,
                                s->k,
                                s->v,
                                s->decays,
                                s->betas,
                                s->mixed};
    TRY(delta_mix(&delta, r->n, s->stream, error));
    TRY(delta_rule(&delta, s->q, r->n, s->stream, error)); // which nobody reads any more
    return delta_gate(&delta, s->attended, type_for_reader(r, step), s->q, s->gates, s->config->norm_eps, r->n, s->stream,
                      error);
}

static yalm_status gate_outputs(const struct run *r, const struct step *step, yalm_error *error)
{
    const size_t width = config_head_dim(r->s->config, step->layer) * r->s->config->n_heads;
    return sigmoid_multiply(r->s->attended, type_for_reader(r, step), r->s->gates, r->n * width, r->s->stream, error);
}

// ------------------------------------------------------------------------------------------ feed-forward

// Of the type that down's product takes.
static yalm_status make_units(const struct run *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct upcoming next = upcoming_after(r, step);
    const struct expert_weights ffn = {*step->w[0], *step->w[1], {}, step->bias[0], step->bias[1], NULL};
    if (as_vectors(s, r->n))
        return matvec_gated(static_cast<float *>(s->gated), &ffn, r->x, step->norm, s->config->norm_eps, s->stream, error,
                            &next, step->activation, r->n);
    const struct product both[] = {{ffn.gate, ffn.gate_bias, s->gate}, {ffn.up, ffn.up_bias, s->up}};
    TRY(normalised_products(s, both, 2, 0, r->x, step->norm, r->n, error));
    return gate_multiply(s->gated, type_for_reader(r, step), s->gate, s->up, (size_t)r->n * ffn.gate.rows, s->stream, error,
                         step->activation);
}

static yalm_status weigh(const struct run *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    return weigh_units(s->gated, type_for_reader(r, step), step->weights->shared.gate.rows, &step->weights->shared_router, r->x,
                       step->norm, s->config->norm_eps, r->n, s->stream, error);
}

// And where each token goes to, for which OP_ROUTE does nothing.
static yalm_status run_experts(const struct run *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct layer_weights *w = step->weights;
    const struct model_config *c = s->config;
    const bool apart = step->out[0] == BUFFER_EXPERT_SUM; // from the residual stream
    float *to = apart ? s->expert_sum : residual(s);
    const struct experts experts = {step->norm,
                                    c->norm_eps,
                                    w->router,
                                    w->experts,
                                    s->weights->experts + (size_t)step->layer * c->n_experts,
                                    c->n_experts,
                                    c->n_active_experts,
                                    c->raw_expert_weights,
                                    w->router_bias,
                                    step->activation,
                                    w->router_choice_bias,
                                    c->expert_scale,
                                    apart ? s->ones : NULL,
                                    w->router_scale};
    const int at_once = s->turns ? 1 : r->n; // apart each reads its own
    for (int t = 0; t < r->n; t += at_once) {
        const size_t at = (size_t)t * c->hidden_dim;
        TRY(experts_run(to + at, r->x + at, &experts, at_once, s->experts_scratch, s->stream, error));
    }
    return YALM_OK;
}

static yalm_status join(const struct run *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct layer_weights *w = step->weights;
    TRY(make_branch(r, step, s->gated, error));
    return join_experts(s->x, s->branch, s->expert_sum, w->shared_post_norm, w->expert_post_norm, w->ffn_post_norm,
                        s->config->norm_eps, r->n, step->w[0]->rows, s->stream, error);
}

// ------------------------------------------------------------------------------------------ the rest

static yalm_status begin(const struct run *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    if (s->method)
        TRY(method_begin(s, r->selective, error));
    return embed(s->x, step->table, s->tokens, r->n, s->stream, error, step->number);
}

static yalm_status mix(const struct run *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const int width = s->config->layer_input_dim;
    TRY(embed(s->gate, step->table, s->tokens, r->n, s->stream, error, sqrtf((float)width)));
    return mix_inputs(s->layer_inputs, s->gate, step->norm, 1.0f / sqrtf((float)s->config->hidden_dim), s->config->norm_eps,
                      r->n, s->config->n_layers, width, s->stream, error);
}

// Many tokens' products may have 16 bits for x, which nobody keeps from being long: they read it normalised, and its length
// comes in behind them.
static yalm_status gate_input(const struct run *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct model_config *c = s->config;
    const size_t width = c->layer_input_dim;
    const bool whole = as_vectors(s, r->n);
    const struct product gate = {*step->w[0], NULL, s->gate};
    const struct upcoming next = upcoming_after(r, step);
    TRY(normalised_products(s, &gate, 1, 0, r->x, whole ? NULL : s->ones, r->n, error, &next));
    return gate_inputs(s->gated, type_for_reader(r, step), s->gate, s->layer_inputs + step->layer * width, c->n_layers * width,
                       whole ? NULL : r->x, c->norm_eps, c->hidden_dim, r->n, (int)width, step->activation, s->stream, error);
}

yalm_status queue_step(const struct run *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    switch (step->op) {
    case OP_EMBED:
        return begin(r, step, error);
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
