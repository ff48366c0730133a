// The forward pass: what a Llama does to a batch of tokens, as kernels queued on the session's stream. One token's products read each
// matrix once, as vectors; many tokens' are cuBLASLt's. Position, length and tokens lie in device memory, so that one token's pass is
// captured as a graph, and launched for every step. Where the session has an attention method (selective.h) there are two such graphs, and
// the host, which knows the position, launches the dense one or the other.
#include "cuda/capture.h"
#include "cuda/shares.h"
#include "cuda/state.h"
#include "cuda/step.h"

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

// x += rmsnorm(w y + bias)
static yalm_status project_normalised(struct cuda_state *s, const struct matrix *w, const float *bias, const void *y,
                                      const float *norm, int n, const struct upcoming *next, yalm_error *error)
{
    const struct product product = {*w, bias, s->branch};
    if (as_vectors(s, n))
        TRY(matvec_norm(&product, 1, static_cast<const float *>(y), NULL, 0, s->stream, error, next, n));
    else
        TRY(matmul_run(s->matmul, s->branch, y, w, bias, n, false, s->stream, error));
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
    return {joined ? q : NULL, w->q.dtype, s->q_dim + 2 * s->kv_dim, w->q.cols};
}

// Of models that normalise each head of q and k, or all of them together, before rotation. pitch: floats from token to token where q, k and v are one product's; else 0.
static yalm_status normalise_heads(struct cuda_state *s, const struct layer_weights *w, int pitch, int n, yalm_error *error)
{
    const struct model_config *c = s->config;
    float *k = pitch ? s->q + s->q_dim : s->k;
    if (c->whole_qk_norm && s->group)
        return shares_normalise(s, w, k, pitch ? pitch : s->q_dim, pitch ? pitch : s->kv_dim, n, error);
    const int q_width = c->whole_qk_norm ? s->q_dim : c->head_dim, k_width = c->whole_qk_norm ? s->kv_dim : c->head_dim;
    TRY(rmsnorm_heads(s->q, pitch ? pitch : s->q_dim, w->q_norm, c->norm_eps, n, s->q_dim / q_width, q_width, s->stream,
                      error));
    return rmsnorm_heads(k, pitch ? pitch : s->kv_dim, w->k_norm, c->norm_eps, n, s->kv_dim / k_width, k_width, s->stream,
                         error);
}

// The queries, keys and values of rmsnorm(x), rotated where they are to be.
static yalm_status make_qkv(struct cuda_state *s, int layer, int n, const struct upcoming *next, yalm_error *error)
{
    const struct layer_weights *w = &s->weights->weights.layers[layer];
    const struct product gate = {w->output_gate, w->output_gate_bias, s->gates};
    const struct product qkv[] = {{w->q, w->q_bias, s->q}, {w->k, w->k_bias, s->k}, {w->v, w->v_bias, s->v}, gate};
    const struct product all[] = {{joined_qkv(s, w, n), NULL, s->q}, gate};
    const int n_gates = gate.w.data != NULL;
    const int kind = s->config->kind_of_layer[layer];
    struct rope_append append = {s->step,
                                 s->q,
                                 s->k,
                                 s->v,
                                 s->rotated_q,
                                 s->sink_q,
                                 &s->caches[kind],
                                 s->ropes[kind],
                                 s->place[layer],
                                 s->config->n_heads,
                                 s->unrounded_k};
    append.scale = config_attention_scale(s->config, s->config->head_dim);
    append.growth = s->config->query_growth;
    append.growth_context = s->config->query_growth > 0 ? s->config->query_growth_context : 1;
    append.still = s->config->unrotated_layer[layer];
    append.key_offset = s->key_offsets ? s->key_offsets + (size_t)layer * s->kv_dim : NULL;
    if (all[0].w.data) {
        TRY(normalised_products(s, all, 1 + n_gates, 1, s->x, w->attention_norm, n, error, next));
        append.k = s->q + s->q_dim;
        append.v = append.k + s->kv_dim;
        append.pitch = all[0].w.rows;
    } else {
        TRY(normalised_products(s, qkv, 3 + n_gates, 3, s->x, w->attention_norm, n, error, next));
    }
    if (w->q_norm)
        TRY(normalise_heads(s, w, all[0].w.data ? all[0].w.rows : 0, n, error));
    return s->turns ? turns_append(s, append, layer, n, error) : rope_append(&append, n, s->stream, error);
}

// residual += o · attention(rmsnorm(x))
static yalm_status attention_block(struct cuda_state *s, int layer, int n, bool selective, yalm_error *error)
{
    const struct layer_weights *w = &s->weights->weights.layers[layer];
    const int n_heads = s->config->n_heads, kind = s->config->kind_of_layer[layer];
    const struct expert_weights *ffn = &w->experts[0];
    const struct upcoming o = upcoming_of(&w->o), units = upcoming_of(&ffn->gate, &ffn->up, NULL, true);
    TRY(make_qkv(s, layer, n, &o, error));
    const struct attention attention = {
        s->step,       s->rotated_q, s->sink_q, &s->caches[kind], s->place[layer], n_heads, s->config->attention_softcap,
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
                             (size_t)n * s->q_dim, s->stream, error));
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
    if (w->router.data) {
        const int n_experts = s->config->n_experts;
        const struct experts experts = {w->ffn_norm,
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
                                        s->config->expert_scale};
        const int at_once = s->turns ? 1 : n; // apart each reads its own
        for (int t = 0; t < n; t += at_once) {
            const size_t at = (size_t)t * s->config->hidden_dim;
            TRY(experts_run(residual(s) + at, s->x + at, &experts, at_once, s->experts_scratch, s->stream, error));
        }
    }
    if (!ffn->gate.data)
        return YALM_OK;
    const struct layer_weights *following = w + 1;
    const struct upcoming next = layer + 1 < s->config->n_layers ? upcoming_of(&following->q, &following->k, &following->v)
                                                                 : upcoming_of(&s->weights->weights.classifier);
    return project_residual(s, &ffn->down, ffn->down_bias, s->gated, w->ffn_post_norm, n, &next, error);
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

// From tokens to the residual stream that the classifier reads. selective: attention goes by the session's method.
yalm_status cuda_layers(struct cuda_state *s, int n, bool selective, yalm_error *error)
{
    if (s->method)
        TRY(method_begin(s, selective, error));
    const float scale = s->config->embedding_scale;
    TRY(embed(s->x, &s->weights->weights.embedding, s->tokens, n, s->stream, error, scale > 0 ? scale : 1.0f));
    for (int layer = 0; layer < s->config->n_layers; layer++) {
        TRY(config_is_recurrent(s->config, layer) ? recurrent_block(s, layer, n, error)
                                                  : attention_block(s, layer, n, selective, error));
        TRY(end_block(s, s->weights->weights.layers[layer].attention_post_norm, n, error));
        TRY(ffn_block(s, layer, n, error));
        TRY(end_block(s, s->weights->weights.layers[layer].ffn_post_norm, n, error));
        TRY(shares_keep_up(s, layer, error));
    }
    return YALM_OK;
}

static yalm_status one_token(struct cuda_state *s, bool selective, yalm_error *error)
{
    TRY(cuda_layers(s, 1, selective, error));
    return cuda_classify(s, s->logits, s->x, 1, error);
}

// ------------------------------------------------------------------------------------------ queueing

// The last step's time, where it has ended.
static void take_time(struct cuda_state *s)
{
    float milliseconds = 0.0f;
    if (!s->step_time)
        return;
    if (cudaEventElapsedTime(&milliseconds, s->step_began, s->step_ended) != cudaSuccess)
        cudaGetLastError();
    else if (*s->step_time == 0.0f || milliseconds < *s->step_time)
        *s->step_time = milliseconds;
    s->step_time = NULL;
}

// The next step's form. Each one's first step, which brings its graph to the device, is not timed.
static enum cuda_overlap next_form(struct cuda_state *s, struct step_forms *forms)
{
    enum { TURNS = 6 };
    if (s->device.capability < 90 || cuda_without("overlap"))
        return OVERLAP_NONE;
    if (cuda_without("turns"))
        return cuda_without("products") ? OVERLAP_OTHERS : OVERLAP_ALL;
    int form = forms->launched % STEP_FORMS;
    if (forms->launched < TURNS * STEP_FORMS) {
        s->step_time = forms->launched++ < STEP_FORMS ? NULL : &forms->least[form];
        return (enum cuda_overlap)form;
    }
    form = 0;
    for (int i = 1; i < STEP_FORMS; i++)
        form = forms->least[i] < forms->least[form] ? i : form;
    return (enum cuda_overlap)form;
}

// The first token goes kernel by kernel, which loads them; the next ones as a graph.
static yalm_status decode(struct cuda_state *s, bool selective, yalm_error *error)
{
    struct step_forms *forms = &s->decode[selective];
    if (!forms->loaded || cuda_without("graph")) {
        TRY(one_token(s, selective, error));
        forms->loaded = true;
        return YALM_OK;
    }
    take_time(s);
    const enum cuda_overlap form = next_form(s, forms);
    if (!forms->graphs[form])
        TRY(capture(
            &forms->graphs[form], s->stream, form, [=]() { return one_token(s, selective, error); }, error));
    const bool timed = s->step_time != NULL;
    if (timed)
        TRY_CUDA(cudaEventRecord(s->step_began, s->stream));
    TRY_CUDA(cudaGraphLaunch(forms->graphs[form], s->stream));
    if (timed)
        TRY_CUDA(cudaEventRecord(s->step_ended, s->stream));
    return YALM_OK;
}

// What the kernels read, on its way to the device before them.
static yalm_status copy_step(struct cuda_state *s, const struct batch *batch, yalm_error *error)
{
    TRY_CUDA(cudaEventSynchronize(s->copied)); // the last batch's copies are over
    *s->step_host = {batch->position, batch->n, (int16_t)s->carried.from, (int16_t)s->carried.to};
    if (method_applies(s, batch->n, batch->position))
        s->step_host->choice = method_choice(s, batch->position);
    TRY_CUDA(cudaMemcpyAsync(s->step, s->step_host, sizeof *s->step, cudaMemcpyHostToDevice, s->stream));
    if (batch->tokens) {
        memcpy(s->tokens_host, batch->tokens, batch->n * sizeof *batch->tokens);
        TRY_CUDA(cudaMemcpyAsync(s->tokens, s->tokens_host, batch->n * sizeof *s->tokens, cudaMemcpyHostToDevice, s->stream));
    }
    TRY_CUDA(cudaEventRecord(s->copied, s->stream));
    return YALM_OK;
}

// Of a group rank 0 alone.
static bool has_logits(const struct cuda_state *s)
{
    return !s->group || s->group->transport.rank == 0;
}

// Logits of all tokens, some rows at a time, to the host.
static yalm_status classify_all(struct cuda_state *s, const struct batch *batch, yalm_error *error)
{
    const size_t vocab = s->vocab, dim = s->config->hidden_dim;
    for (int t = 0, n; t < batch->n; t += n) {
        n = batch->n - t < LOGITS_AT_ONCE ? batch->n - t : LOGITS_AT_ONCE;
        TRY(cuda_classify(s, s->many_logits, s->x + t * dim, n, error));
        TRY(shares_wait(s, error)); // a copy to memory that is not pinned would, but for ever
        if (!has_logits(s))
            continue;
        TRY_CUDA(cudaMemcpyAsync(batch->logits + t * vocab, s->many_logits, n * vocab * sizeof(float), cudaMemcpyDeviceToHost,
                                 s->stream));
    }
    TRY_CUDA(cudaStreamSynchronize(s->stream));
    return YALM_OK;
}

// One token's logits: as one kernel where the session has it, else as a graph.
static yalm_status generate(struct cuda_state *s, const struct batch *batch, bool selective, yalm_error *error)
{
    s->last_logits = s->logits;
    s->fetched = NULL;
    if (step_runs(s, batch->position)) {
        TRY(step_run(s, batch->position, batch->tokens[0], error));
    } else {
        TRY(copy_step(s, batch, error));
        TRY(decode(s, selective, error));
    }
    if (!batch->all_logits || !has_logits(s))
        return YALM_OK;
    TRY(shares_wait(s, error));
    TRY_CUDA(cudaMemcpyAsync(batch->logits, s->logits, s->vocab * sizeof(float), cudaMemcpyDeviceToHost, s->stream));
    TRY_CUDA(cudaStreamSynchronize(s->stream));
    return YALM_OK;
}

static yalm_status forward(struct cuda_state *s, const struct batch *batch, yalm_error *error)
{
    if (batch->apart)
        return cuda_forward_apart(s, batch, error);
    const bool last = batch->logits && !batch->all_logits, selective = method_applies(s, batch->n, batch->position);
    if (batch->n == 1 && batch->logits)
        return generate(s, batch, selective, error);
    TRY(copy_step(s, batch, error));
    if (last) {
        s->last_logits = s->logits;
        s->fetched = NULL;
    }
    TRY(cuda_layers(s, batch->n, selective, error));
    if (last)
        return cuda_classify(s, s->logits, s->x + (size_t)(batch->n - 1) * s->config->hidden_dim, 1, error);
    return batch->logits ? classify_all(s, batch, error) : YALM_OK;
}

yalm_status cuda_forward(struct cuda_state *s, const struct batch *batch, yalm_error *error)
{
    carried_begin(&s->carried, batch->position, batch->n);
    const yalm_status status = forward(s, batch, error);
    carried_end(&s->carried, batch->position, batch->n, status == YALM_OK);
    return status;
}

// A recurrent layer's states stay what they are: what is in them costs no time.
static yalm_status skip(struct cuda_state *s, int64_t position, int kind, yalm_error *error)
{
    const struct delta_config *c = &s->config->kinds[kind].delta;
    const size_t layers = config_n_layers_of(s->config, kind), states = layers * delta_state_floats(c),
                 inputs = layers * delta_input_floats(c);
    const int place = s->carried.from;
    if (position > 0)
        return YALM_OK;
    TRY_CUDA(cudaMemsetAsync(s->states[kind] + place * states, 0, states * sizeof(float), s->stream));
    TRY_CUDA(cudaMemsetAsync(s->inputs[kind] + place * inputs, 0, inputs * sizeof(float), s->stream));
    return YALM_OK;
}

yalm_status cuda_fill(struct cuda_state *s, int64_t position, int n, uint64_t seed, yalm_error *error)
{
    struct batch batch = {};
    batch.n = n;
    batch.position = position;
    if (s->method) {
        TRY(copy_step(s, &batch, error));
        TRY(method_begin(s, false, error));
    }
    s->carried.from = carried_skip(&s->carried, position, n);
    for (int kind = 0; kind < config_n_kinds(s->config); kind++)
        if (!config_kind_attends(s->config, kind))
            TRY(skip(s, position, kind, error));
        else
            TRY(fill_noise(&s->caches[kind], position, n, seed + kind, s->stream, error));
    for (int layer = 0; s->method && layer < s->config->n_layers; layer++) {
        const struct attention attention = {s->step,       NULL,  NULL,
                                            &s->caches[0], layer, s->config->n_heads}; // there are rows only
        TRY(method_append(s, &attention, n, error));
    }
    return YALM_OK;
}
