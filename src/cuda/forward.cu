// The forward pass: what a Llama does to a batch of tokens, as kernels queued on the session's stream. One token's products read each
// matrix once, as vectors; many tokens' are cuBLASLt's. Position, length and tokens lie in device memory: evaluate.cu brings them there.
#include "cuda/shares.h"
#include "cuda/state.h"

// Whether n tokens' products are vectors' (matvec.cuh): one's, and those of tokens apart (together.cu).
static bool as_vectors(const struct cuda_state *s, int n)
{
    return n == 1 || s->turns;
}

// What a product with these matrices will read.
static struct upcoming upcoming_of(const struct matrix *a, const struct matrix *b = NULL, const struct matrix *c = NULL,
                                   bool side_by_side = false)
{
    const struct matrix *const all[] = {a, b, c};
    struct upcoming next = {};
    next.side_by_side = side_by_side;
    for (int i = 0; i < 3 && all[i]; i++) {
        const struct matrix *m = all[i];
        const size_t group = dtype_group_bytes[m->dtype]; // without its scale: scales lie behind all rows
        next.data[i] = m->data;
        next.bytes[i] = m->rows * (group ? quant_groups(m->cols) * group : m->cols * dtype_sizes[m->dtype]);
    }
    return next;
}

// y_i = w_i rmsnorm(x) + bias_i, or of x itself where norm is NULL. Many tokens' products round their input to 16 bits where the matrix has them; the first n_exact take what that
// loses, too.
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

// branch = w y + bias
static yalm_status project(struct cuda_state *s, const struct matrix *w, const float *bias, const void *y, int n,
                           const struct upcoming *next, yalm_error *error)
{
    const struct product product = {*w, bias, s->branch};
    if (as_vectors(s, n))
        return matvec_norm(&product, 1, static_cast<const float *>(y), NULL, 0, s->stream, error, next, n);
    return matmul_run(s->matmul, s->branch, y, w, bias, n, false, s->stream, error);
}

// x += rmsnorm(w y + bias)
static yalm_status project_normalised(struct cuda_state *s, const struct matrix *w, const float *bias, const void *y,
                                      const float *norm, int n, const struct upcoming *next, yalm_error *error)
{
    TRY(project(s, w, bias, y, n, next, error));
    return add_rmsnorm(s->x, s->branch, norm, s->config->norm_eps, n, w->rows, s->stream, error);
}

// What a block adds to: the residual stream, or what ranks sum for it.
static float *residual(const struct cuda_state *s)
{
    return s->group ? s->branch : s->x;
}

// residual += w y + bias; norm: of a block that has one behind it, else NULL.
static yalm_status project_residual(struct cuda_state *s, const struct matrix *w, const float *bias, const void *y,
                                    const float *norm, int n, const struct upcoming *next, yalm_error *error)
{
    if (norm && !s->group)
        return project_normalised(s, w, bias, y, norm, n, next, error);
    if (as_vectors(s, n))
        return matvec_residual(residual(s), w, bias, static_cast<const float *>(y), s->stream, error, next, n);
    return matmul_run(s->matmul, residual(s), y, w, bias, n, true, s->stream, error);
}

// Where q, k and v of many tokens are one product, which is larger and so runs faster than three: rows of 16 or 32 bits that lie one behind the other,
// and no bias. That of all three; else one without data.
static struct matrix joined_qkv(const struct cuda_state *s, const struct layer_weights *w, int n)
{
    const size_t q_bytes = w->q.rows * dtype_row_bytes(w->q.dtype, w->q.cols),
                 k_bytes = w->k.rows * dtype_row_bytes(w->k.dtype, w->k.cols);
    const char *q = static_cast<const char *>(w->q.data);
    const bool joined = !as_vectors(s, n) && w->q.dtype == w->k.dtype && w->k.dtype == w->v.dtype &&
                        !matrix_is_quantised(&w->q) && w->k.data == q + q_bytes && w->v.data == q + q_bytes + k_bytes &&
                        !w->q_bias && !w->k_bias && !w->v_bias;
    return {joined ? q : NULL, w->q.dtype, w->q.rows + w->k.rows + w->v.rows, w->q.cols};
}

// Of models that normalise each head of q, k and v, or all of q's and k's together, before rotation. pitch: floats from token to token where q, k and v are one product's; else 0.
static yalm_status normalise_heads(struct cuda_state *s, const struct layer_weights *w, int pitch, int n, yalm_error *error)
{
    const struct model_config *c = s->config;
    const int q_dim = w->q.rows, kv_dim = w->k.rows, dim = q_dim / c->n_heads, q_pitch = pitch ? pitch : q_dim,
              kv_pitch = pitch ? pitch : kv_dim;
    float *k = pitch ? s->q + q_dim : s->k, *v = pitch ? k + kv_dim : s->v;
    if (c->whole_qk_norm && s->group)
        return shares_normalise(s, w, k, q_pitch, kv_pitch, n, error);
    const int q_width = c->whole_qk_norm ? q_dim : dim, k_width = c->whole_qk_norm ? kv_dim : dim;
    if (w->q_norm)
        TRY(rmsnorm_heads(s->q, q_pitch, w->q_norm, c->norm_eps, n, q_dim / q_width, q_width, s->stream, error));
    if (w->k_norm)
        TRY(rmsnorm_heads(k, kv_pitch, w->k_norm, c->norm_eps, n, kv_dim / k_width, k_width, s->stream, error));
    return c->v_norm && kv_dim > 0 ? rmsnorm_heads(v, kv_pitch, s->ones, c->norm_eps, n, kv_dim / dim, dim, s->stream, error)
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

// The queries, keys and values of rmsnorm(x), rotated where they are to be.
static yalm_status make_qkv(struct cuda_state *s, int layer, int n, const struct upcoming *next, yalm_error *error)
{
    const struct layer_weights *w = &s->weights->weights.layers[layer];
    const struct product gate = {w->output_gate, w->output_gate_bias, s->gates};
    const struct product qkv[] = {{w->q, w->q_bias, s->q}, {w->k, w->k_bias, s->k}, {w->v, w->v_bias, s->v}, gate};
    const struct product queries[] = {qkv[0], gate}; // where keys are another layer's
    const struct product all[] = {{joined_qkv(s, w, n), NULL, s->q}, gate};
    const int n_gates = gate.w.data != NULL;
    if (all[0].w.data)
        TRY(normalised_products(s, all, 1 + n_gates, 1, s->x, w->attention_norm, n, error, next));
    else if (!w->k.data)
        TRY(normalised_products(s, queries, 1 + n_gates, 1, s->x, w->attention_norm, n, error, next));
    else
        TRY(normalised_products(s, qkv, 3 + n_gates, 3, s->x, w->attention_norm, n, error, next));
    const int pitch = all[0].w.data ? all[0].w.rows : 0;
    if (w->q_norm || s->config->v_norm)
        TRY(normalise_heads(s, w, pitch, n, error));
    const struct rope_append append = append_of(s, layer, pitch);
    return s->turns ? turns_append(s, append, layer, n, error) : rope_append(&append, n, s->stream, error);
}

// residual += o · attention(rmsnorm(x))
static yalm_status attention_block(struct cuda_state *s, int layer, int n, bool selective, yalm_error *error)
{
    const struct layer_weights *w = &s->weights->weights.layers[layer];
    const int n_heads = s->config->n_heads, seen = s->kv_layer[layer], kind = s->config->kind_of_layer[seen];
    const struct expert_weights *ffn = &w->experts[0];
    const struct upcoming o = upcoming_of(&w->o), units = upcoming_of(&ffn->gate, &ffn->up, NULL, true);
    TRY(make_qkv(s, layer, n, &o, error));
    const struct attention attention = {
        s->step,       s->rotated_q, s->sink_q, &s->caches[kind], s->place[seen], n_heads, s->config->attention_softcap,
        w->sink_logits};
    if (s->method && !selective)
        TRY(method_append(s, &attention, n, error));
    if (selective)
        TRY(method_attend(s, &attention, static_cast<float *>(s->attended), error));
    else if (s->turns)
        TRY(turns_attend(s, attention, layer, n, error));
    else if (n == 1)
        TRY(attention_decode(&attention, &s->attention_plans[kind], static_cast<float *>(s->attended), s->attention_scratch,
                             s->stream, error));
    else
        TRY(attention_prefill(&attention, n, s->attended, input_type(w->o.dtype), s->stream, error));
    if (w->output_gate.data)
        TRY(sigmoid_multiply(s->attended, as_vectors(s, n) ? DTYPE_FP32 : input_type(w->o.dtype), s->gates,
                             (size_t)n * w->o.cols, s->stream, error));
    const bool next = !w->router.data && ffn->gate.dtype == ffn->up.dtype;
    return project_residual(s, &w->o, w->o_bias, s->attended, w->attention_post_norm, n, next ? &units : NULL, error);
}

// residual += o · what the layer's recurrence makes of rmsnorm(x)
static yalm_status recurrent_block(struct cuda_state *s, int layer, int n, yalm_error *error)
{
    const struct layer_weights *w = &s->weights->weights.layers[layer];
    const struct delta_config *c = config_delta(s->config, layer);
    const int kind = s->config->kind_of_layer[layer];
    const enum dtype type = as_vectors(s, n) ? DTYPE_FP32 : input_type(w->o.dtype);
    float *k = s->q + (size_t)n * delta_keys(c), *v = k + (size_t)n * delta_keys(c);
    const struct product products[] = {{w->q, NULL, s->q},
                                       {w->k, NULL, k},
                                       {w->v, NULL, v},
                                       {w->output_gate, NULL, s->gates},
                                       {w->delta.decay, NULL, s->decays},
                                       {w->delta.beta, NULL, s->betas}};
    const struct upcoming o = upcoming_of(&w->o);
    const struct delta delta = {s->step,
                                c,
                                &w->delta,
                                s->place[layer],
                                config_n_layers_of(s->config, kind),
                                s->states[kind],
                                s->inputs[kind],
                                s->q,
                                k,
                                v,
                                s->decays,
                                s->betas,
                                s->mixed};
    TRY(normalised_products(s, products, 6, 3, s->x, w->attention_norm, n, error, &o));
    TRY(delta_mix(&delta, n, s->stream, error));
    TRY(delta_rule(&delta, s->q, n, s->stream, error)); // which nobody reads any more
    TRY(delta_gate(&delta, s->attended, type, s->q, s->gates, s->config->norm_eps, n, s->stream, error));
    return project_residual(s, &w->o, NULL, s->attended, w->attention_post_norm, n, NULL, error);
}

// activation(gate · h) ∘ (up · h), h = rmsnorm(x), of the type that down's product takes
static yalm_status gated_units(struct cuda_state *s, const struct layer_weights *w, const struct expert_weights *ffn, int n,
                               yalm_error *error)
{
    const struct upcoming down = upcoming_of(&ffn->down);
    if (as_vectors(s, n))
        return matvec_gated(static_cast<float *>(s->gated), ffn, s->x, w->ffn_norm, s->config->norm_eps, s->stream, error,
                            &down, s->config->activation, n);
    const struct product both[] = {{ffn->gate, ffn->gate_bias, s->gate}, {ffn->up, ffn->up_bias, s->up}};
    TRY(normalised_products(s, both, 2, 0, s->x, w->ffn_norm, n, error));
    return gate_multiply(s->gated, input_type(ffn->down.dtype), s->gate, s->up, (size_t)n * ffn->gate.rows, s->stream, error,
                         s->config->activation);
}

// What the active experts add.
static yalm_status run_experts(struct cuda_state *s, int layer, int n, yalm_error *error)
{
    const struct layer_weights *w = &s->weights->weights.layers[layer];
    const int n_experts = s->config->n_experts;
    float *to = w->expert_norm ? s->expert_sum : residual(s);
    const struct experts experts = {w->expert_norm ? w->expert_norm : w->ffn_norm,
                                    s->config->norm_eps,
                                    w->router,
                                    w->experts,
                                    s->weights->experts + (size_t)layer * n_experts,
                                    n_experts,
                                    s->config->n_active_experts,
                                    s->config->raw_expert_weights,
                                    w->router_bias,
                                    s->config->activation,
                                    w->router_choice_bias,
                                    s->config->expert_scale,
                                    w->expert_norm ? s->ones : NULL,
                                    w->router_scale};
    const int at_once = s->turns ? 1 : n; // apart each reads its own
    for (int t = 0; t < n; t += at_once) {
        const size_t at = (size_t)t * s->config->hidden_dim;
        TRY(experts_run(to + at, s->x + at, &experts, at_once, s->experts_scratch, s->stream, error));
    }
    return YALM_OK;
}

// What is read after a layer.
static struct upcoming upcoming_after(const struct cuda_state *s, int layer)
{
    const struct layer_weights *next = &s->weights->weights.layers[layer + 1];
    if (layer + 1 == s->config->n_layers)
        return upcoming_of(&s->weights->weights.classifier);
    return next->k.data ? upcoming_of(&next->q, &next->k, &next->v) : upcoming_of(&next->q);
}

// residual += down · (activation(gate · h) ∘ (up · h)), h = rmsnorm(x), or so of the active experts, or both
static yalm_status ffn_block(struct cuda_state *s, int layer, int n, yalm_error *error)
{
    const struct layer_weights *w = &s->weights->weights.layers[layer];
    const struct expert_weights *ffn = w->router.data ? &w->shared : &w->experts[0];
    if (ffn->gate.data)
        TRY(gated_units(s, w, ffn, n, error)); // before the experts, which add to x
    if (ffn->gate.data && w->router.data && w->shared_router.data)
        TRY(weigh_units(s->gated, as_vectors(s, n) ? DTYPE_FP32 : input_type(ffn->down.dtype), ffn->gate.rows,
                        &w->shared_router, s->x, w->ffn_norm, s->config->norm_eps, n, s->stream, error));
    if (w->router.data)
        TRY(run_experts(s, layer, n, error));
    if (!ffn->gate.data)
        return YALM_OK;
    const struct upcoming next = w->input_gate.data ? upcoming_of(&w->input_gate) : upcoming_after(s, layer);
    if (!w->expert_norm)
        return project_residual(s, &ffn->down, ffn->down_bias, s->gated, w->ffn_post_norm, n, &next, error);
    TRY(project(s, &ffn->down, ffn->down_bias, s->gated, n, &next, error));
    return join_experts(s->x, s->branch, s->expert_sum, w->shared_post_norm, w->expert_post_norm, w->ffn_post_norm,
                        s->config->norm_eps, n, ffn->down.rows, s->stream, error);
}

// Each layer's own input, of models that have such.
static yalm_status make_inputs(struct cuda_state *s, int n, yalm_error *error)
{
    const struct model_weights *w = &s->weights->weights;
    const int width = s->config->layer_input_dim;
    const struct product product = {w->layer_projection, NULL, s->layer_inputs};
    TRY(normalised_products(s, &product, 1, 1, s->x, NULL, n, error));
    TRY(embed(s->gate, &w->layer_embedding, s->tokens, n, s->stream, error, sqrtf((float)width)));
    return mix_inputs(s->layer_inputs, s->gate, w->layer_projection_norm, 1.0f / sqrtf((float)s->config->hidden_dim),
                      s->config->norm_eps, n, s->config->n_layers, width, s->stream, error);
}

// x += rmsnorm(input_projection · (activation(input_gate · x) ∘ the layer's input)). Many tokens' products may have 16 bits for x, which nobody
// keeps from being long: they read it normalised, and its length comes in behind them.
static yalm_status input_block(struct cuda_state *s, int layer, int n, yalm_error *error)
{
    const struct layer_weights *w = &s->weights->weights.layers[layer];
    const struct model_config *c = s->config;
    const size_t width = c->layer_input_dim;
    const bool whole = as_vectors(s, n);
    const struct product gate = {w->input_gate, NULL, s->gate};
    const struct upcoming projection = upcoming_of(&w->input_projection), next = upcoming_after(s, layer);
    TRY(normalised_products(s, &gate, 1, 0, s->x, whole ? NULL : s->ones, n, error, &projection));
    TRY(gate_inputs(s->gated, whole ? DTYPE_FP32 : input_type(w->input_projection.dtype), s->gate,
                    s->layer_inputs + layer * width, c->n_layers * width, whole ? NULL : s->x, c->norm_eps, c->hidden_dim, n,
                    c->layer_input_dim, c->activation, s->stream, error));
    return project_normalised(s, &w->input_projection, NULL, s->gated, w->input_norm, n, &next, error);
}

// logits (n, s->vocab), of a group's rank 0, of the n tokens whose x begins there
yalm_status cuda_classify(struct cuda_state *s, float *logits, const float *x, int n, yalm_error *error)
{
    const struct product classifier = {s->weights->weights.classifier, NULL, s->group ? s->part_logits : logits};
    const float cap = s->config->logits_softcap;
    TRY(normalised_products(s, &classifier, 1, 0, x, s->weights->weights.norm, n, error));
    if (cap > 0)
        TRY(softcap(classifier.y, (size_t)n * s->config->vocab_size, cap, s->stream, error));
    return s->group ? shares_gather(s, logits, n, error) : YALM_OK;
}

static yalm_status end_block(struct cuda_state *s, const float *norm, int n, yalm_error *error)
{
    return s->group ? shares_end_block(s, norm, n, error) : YALM_OK;
}

// What the first layer reads.
static yalm_status begin(struct cuda_state *s, int n, bool selective, yalm_error *error)
{
    if (s->method)
        TRY(method_begin(s, selective, error));
    const float scale = s->config->embedding_scale;
    TRY(embed(s->x, &s->weights->weights.embedding, s->tokens, n, s->stream, error, scale > 0 ? scale : 1.0f));
    return s->layer_inputs ? make_inputs(s, n, error) : YALM_OK;
}

yalm_status cuda_layers(struct cuda_state *s, int first, int last, int n, bool selective, yalm_error *error)
{
    if (first == 0)
        TRY(begin(s, n, selective, error));
    for (int layer = first; layer < last; layer++) {
        const struct layer_weights *w = &s->weights->weights.layers[layer];
        TRY(config_is_recurrent(s->config, layer) ? recurrent_block(s, layer, n, error)
                                                  : attention_block(s, layer, n, selective, error));
        TRY(end_block(s, w->attention_post_norm, n, error));
        TRY(ffn_block(s, layer, n, error));
        TRY(end_block(s, w->ffn_post_norm, n, error));
        if (w->input_gate.data)
            TRY(input_block(s, layer, n, error));
        if (w->scale)
            TRY(scale_stream(s->x, w->scale, (size_t)n * s->config->hidden_dim, s->stream, error));
        TRY(shares_keep_up(s, layer, error));
    }
    return YALM_OK;
}
