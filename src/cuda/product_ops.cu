// A recipe's products on a GPU (product_ops.h).
#include "cuda/product_ops.h"

bool as_vectors(const struct cuda_state *s, int n)
{
    return n <= SEVERAL || s->turns;
}

// What a step's product will read: the rows that each of its blocks begins with.
static struct upcoming upcoming_of(const struct step *step)
{
    struct upcoming next = {};
    const bool gated = step->op == OP_UNITS && step->n_w == 2;
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

struct upcoming upcoming_after(const struct pass *r, const struct step *step)
{
    const struct recipe *recipe = &r->s->recipe;
    for (int i = (int)(step - recipe->steps) + 1; i < recipe->n; i++)
        if (recipe->steps[i].n_w)
            return upcoming_of(&recipe->steps[i]);
    return {};
}

enum dtype type_for_reader(const struct pass *r, const struct step *step)
{
    const enum recipe_buffer from = step->out[0];
    do
        step++;
    while (step->in != from || !step->n_w);
    return as_vectors(r->s, r->n) || step->op == OP_HEADS ? DTYPE_FP32 : input_type(step->w[0]->dtype);
}

float *residual(const struct cuda_state *s)
{
    return s->group ? s->branch : s->x;
}

float *buffer(const struct pass *r, enum recipe_buffer which)
{
    const struct cuda_state *s = r->s;
    switch (which) {
    case BUFFER_Q:
        return s->q;
    case BUFFER_K:
        return s->k;
    case BUFFER_V:
        return s->v;
    case BUFFER_LATENT:
        return s->latent;
    case BUFFER_HEADS:
        return s->heads;
    case BUFFER_GATES:
        return s->gates;
    case BUFFER_DECAYS:
        return s->decays;
    case BUFFER_BETAS:
        return s->betas;
    case BUFFER_ATTENDED:
        return static_cast<float *>(s->attended);
    case BUFFER_INPUTS:
        return s->layer_inputs;
    case BUFFER_LOGITS:
        return s->group ? s->part_logits : r->logits;
    default:
        return NULL;
    }
}

// ------------------------------------------------------------------------------------------ products

yalm_status normalise(struct cuda_state *s, void *y, enum dtype type, const float *x, const struct norm *norm, int n, int dim,
                      bool split, yalm_error *error)
{
    const float eps = s->config->norm_eps;
    if (norm->weight && s->config->layer_norm)
        return layernorm(y, type, x, norm->weight, norm->bias, eps, n, dim, split, s->stream, error);
    return (split ? rmsnorm_split : rmsnorm)(y, type, x, norm->weight, eps, n, dim, s->stream, error);
}

// Products of vectors begin with RMSNorm themselves. LayerNorm comes before them: *x becomes what it gives, *norm NULL.
static yalm_status begin_vectors(struct cuda_state *s, const float **x, const struct norm *of, const float **norm, int n,
                                 yalm_error *error)
{
    *norm = of->weight;
    if (!of->weight || !s->config->layer_norm)
        return YALM_OK;
    TRY(normalise(s, s->h, DTYPE_FP32, *x, of, n, s->config->hidden_dim, false, error));
    *x = static_cast<const float *>(s->h);
    *norm = NULL;
    return YALM_OK;
}

yalm_status normalised_products(struct cuda_state *s, const struct product *products, int n_products, int n_exact,
                                const float *x, const struct norm *of, int n, yalm_error *error, const struct upcoming *next)
{
    const float eps = s->config->norm_eps, *norm = NULL;
    enum { AT_ONCE = 3 };
    if (as_vectors(s, n)) {
        TRY(begin_vectors(s, &x, of, &norm, n, error));
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
            TRY(normalise(s, s->h, type, x, of, n, w->cols, n_exact > 0 && type != DTYPE_FP32, error));
        if (exact)
            TRY(matmul_run_split(s->matmul, products[i].y, s->h, w, products[i].bias, n, s->stream, error));
        else
            TRY(matmul_run(s->matmul, products[i].y, s->h, w, products[i].bias, n, false, s->stream, error));
    }
    return YALM_OK;
}

// Where q, k and v of many tokens are one product, which is larger and so runs faster than three: rows of 16 or 32 bits that
// lie one behind the other, and no bias. That of all three; else one without data.
static struct matrix joined_qkv(const struct pass *r, const struct matrix *q, const struct matrix *k, const struct matrix *v,
                                const float *bias)
{
    const size_t q_bytes = q->rows * dtype_row_bytes(q->dtype, q->cols), k_bytes = k->rows * dtype_row_bytes(k->dtype, k->cols);
    const char *first = static_cast<const char *>(q->data);
    const bool joined = !as_vectors(r->s, r->n) && q->dtype == k->dtype && k->dtype == v->dtype && !matrix_is_quantised(q) &&
                        k->data == first + q_bytes && v->data == first + q_bytes + k_bytes && !bias;
    return {joined ? first : NULL, q->dtype, q->rows + k->rows + v->rows, q->cols};
}

int pitch_of(const struct pass *r, const struct layer_weights *w)
{
    const struct matrix joined = joined_qkv(r, &w->q, &w->k, &w->v, w->q_bias);
    return joined.data ? joined.rows : 0;
}

yalm_status project(const struct pass *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct upcoming next = upcoming_after(r, step);
    struct product products[STEP_MATRICES];
    if (step->in == BUFFER_UNITS) // of a head that guesses
        return multiply(r, step, s->gated, s->x, error);
    int n = 0, n_exact = step->n_exact, i = 0;
    if (step->n_w >= 3 && step->out[2] == BUFFER_V && step->n_narrow == 0) {
        products[0] = {joined_qkv(r, step->w[0], step->w[1], step->w[2], step->bias[0]), NULL, s->q};
        if (products[0].w.data)
            n = n_exact = 1, i = 3;
    }
    for (; i < step->n_w; i++)
        products[n++] = {*step->w[i], step->bias[i], buffer(r, step->out[i])};
    const struct norm norm = norm_of(step);
    const float *x = step->in == BUFFER_X ? r->x : buffer(r, step->in);
    return normalised_products(s, products, n, n_exact, x, &norm, r->n, error, &next);
}

yalm_status multiply(const struct pass *r, const struct step *step, const void *y, float *to, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct upcoming next = upcoming_after(r, step);
    const struct product product = {*step->w[0], step->bias[0], to};
    if (as_vectors(s, r->n))
        return matvec_norm(&product, 1, static_cast<const float *>(y), NULL, 0, s->stream, error, &next, r->n);
    return matmul_run(s->matmul, to, y, step->w[0], step->bias[0], r->n, false, s->stream, error);
}

// By a head's multiply-adds: to expand each key, or to bring each query to the latents and back.
bool expands(const struct pass *r, const struct step *step)
{
    const struct cuda_state *s = r->s;
    const struct latent_config *d = &s->config->latent;
    const struct latent_weights *w = &s->weights->weights.layers[step->layer].latent;
    const double n = r->n, keys = (double)s->step_host->position + n, brought = (double)d->kv_rank * (d->nope_dim + d->v_dim);
    return s->expanded.n_kv_heads > 0 && !as_vectors(s, r->n) && w->k_b.dtype == DTYPE_FP16 && w->v_b.dtype == DTYPE_FP16 &&
           keys * brought + n * keys * 2 * s->expanded.head_dim < n * brought + n * keys * 2 * s->config->head_dim;
}

yalm_status head_products(const struct pass *r, const struct step *step, yalm_error *error)
{
    if (expands(r, step))
        return YALM_OK;
    const struct per_head *of = &step->heads;
    const enum dtype type = step->out[0] == BUFFER_Q ? DTYPE_FP32 : type_for_reader(r, step);
    return multiply_heads(buffer(r, step->out[0]), type, buffer(r, step->in), of->in, step->w[0], of->n, of->kept, r->n,
                          r->s->stream, error);
}

yalm_status make_branch(const struct pass *r, const struct step *step, const void *y, yalm_error *error)
{
    return multiply(r, step, y, r->s->branch, error);
}

// Ranks normalise their sum, behind the block.
yalm_status add(const struct pass *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct matrix *w = step->w[0];
    const struct upcoming next = upcoming_after(r, step);
    const void *y = step->in == BUFFER_UNITS ? s->gated : buffer(r, step->in);
    if (step->post_norm && !s->group) {
        TRY(make_branch(r, step, y, error));
        return add_rmsnorm(s->x, s->branch, step->post_norm, s->config->norm_eps, r->n, w->rows, s->stream, error);
    }
    if (as_vectors(s, r->n))
        return matvec_residual(residual(s), w, step->bias[0], static_cast<const float *>(y), s->stream, error, &next, r->n);
    return matmul_run(s->matmul, residual(s), y, w, step->bias[0], r->n, true, s->stream, error);
}

// Of the type that down's product takes.
yalm_status make_units(const struct pass *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    const struct upcoming next = upcoming_after(r, step);
    const struct norm norm = norm_of(step);
    const bool gated = !(step->traits & TRAIT_UNGATED), vectors = as_vectors(s, r->n);
    const size_t n_units = (size_t)r->n * step->w[0]->rows;
    if (gated && vectors) {
        const struct expert_weights ffn = {*step->w[0], *step->w[1], {}, step->bias[0], step->bias[1], NULL};
        const float *x = r->x, *weight = NULL;
        TRY(begin_vectors(s, &x, &norm, &weight, r->n, error));
        return matvec_gated(static_cast<float *>(s->gated), &ffn, x, weight, s->config->norm_eps, s->stream, error, &next,
                            step->activation, r->n);
    }
    struct product products[] = {{*step->w[0], step->bias[0], s->gate}, {}};
    if (gated)
        products[1] = {*step->w[1], step->bias[1], s->up};
    TRY(normalised_products(s, products, step->n_w, 0, r->x, &norm, r->n, error, vectors ? &next : NULL));
    const enum dtype type = type_for_reader(r, step);
    if (step->activation == ACTIVATION_XIELU)
        return xielu(s->gated, type, s->gate, step->weights->xielu, n_units, s->stream, error);
    return gate_multiply(s->gated, type, s->gate, gated ? s->up : NULL, n_units, s->stream, error, step->activation);
}
