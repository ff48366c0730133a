// What DeepSeek's models have (arXiv 2405.04434), as part of reference.h: groups of experts, and attention with latents. Here
// each head's keys and values of every token are made, as section 2.1 writes them; the engine makes none.
#pragma once

// Whether an expert is of one of the groups that are asked. rating: (n_experts), and what is added to each, or NULL.
static bool reference_asked(const struct model_config *c, int expert, const double *rating, const float *more)
{
    double group[64];
    int before = 0;
    const int n = c->n_expert_groups, size = n ? c->n_experts / n : 0;
    for (int g = 0; g < n; g++) {
        group[g] = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; e++)
            for (int f = g * size; f < (g + 1) * size; f++) {
                const double one = rating[e] + (more ? more[e] : 0), other = rating[f] + (more ? more[f] : 0);
                group[g] = fmax(group[g], !more ? one : e == f ? -INFINITY : one + other);
            }
    }
    for (int g = 0; g < n; g++)
        before += group[g] > group[expert / size];
    return n == 0 || before < c->n_active_groups;
}

// What head h's k_b and v_b make of a token's latent: k (nope_dim), v (v_dim).
static void reference_expand(const struct reference *r, int layer, int h, const double *latent, double *k, double *v)
{
    const struct latent_config *d = &r->model->config.latent;
    const struct latent_weights *w = &r->model->weights.layers[layer].latent;
    const double *k_b = matrix_values(&w->k_b) + (size_t)h * d->kv_rank * d->nope_dim,
                 *v_b = matrix_values(&w->v_b) + (size_t)h * d->v_dim * d->kv_rank;
    for (int i = 0; i < d->nope_dim; i++) {
        k[i] = 0;
        for (int j = 0; j < d->kv_rank; j++)
            k[i] += k_b[j * d->nope_dim + i] * latent[j];
    }
    for (int i = 0; i < d->v_dim; i++) {
        v[i] = 0;
        for (int j = 0; j < d->kv_rank; j++)
            v[i] += v_b[i * d->kv_rank + j] * latent[j];
    }
}

// One head: y (v_dim) of q (nope_dim + rope_dim), over latents and what of keys rotates: rows of (kv_rank + rope_dim).
static void reference_latent_head(const struct reference *r, int layer, int h, const double *q, const double *rows, double *y)
{
    const struct model_config *c = &r->model->config;
    const struct latent_config *d = &c->latent;
    double *k = doubles(d->nope_dim), *v = doubles(d->v_dim), sum = 0;
    for (int i = 0; i < d->v_dim; i++)
        y[i] = 0;
    for (int j = 0; j <= r->n; j++) {
        const double *row = rows + (size_t)j * c->head_dim;
        const int distance = reference_distance(&r->kv[0], r->n, j);
        if (distance < 0)
            continue;
        reference_expand(r, layer, h, row, k, v);
        const double growth =
            c->query_growth > 0 ? 1 + c->query_growth * log(1 + floor((double)r->n / c->query_growth_context)) : 1;
        const double score =
            plain_dot(q, k, d->nope_dim) + rotated_dot(q + d->nope_dim, row + d->kv_rank, d->rope_dim, &c->kinds[0].rope,
                                                       c->unrotated_layer[layer] ? 0 : distance);
        const double weight = exp(score * growth * (double)c->attention_scale); // scores are small enough for it
        sum += weight;
        for (int i = 0; i < d->v_dim; i++)
            y[i] += weight * v[i];
    }
    for (int i = 0; i < d->v_dim; i++)
        y[i] /= sum;
    free(k), free(v);
}

// What o reads in a layer with latents: y (n_heads * v_dim).
static void reference_latents(struct reference *r, int layer, const double *h, double *y)
{
    const struct model_config *c = &r->model->config;
    const struct latent_config *d = &c->latent;
    const struct layer_weights *w = &r->model->weights.layers[layer];
    const int q_dim = d->nope_dim + d->rope_dim;
    double *q_latent = doubles(d->q_rank + 1), *q = doubles(c->n_heads * q_dim);
    double *rows = r->keys + (size_t)layer * r->room * c->head_dim, *row = rows + (size_t)r->n * c->head_dim;
    if (d->q_rank) {
        reference_product(q_latent, &w->latent.q_a, NULL, h);
        reference_norm(q_latent, q_latent, w->q_norm, d->q_rank, d->norm_eps);
    }
    reference_product(q, &w->q, NULL, d->q_rank ? q_latent : h);
    reference_product(row, &w->k, NULL, h);
    reference_norm(row, row, w->k_norm, d->kv_rank, d->norm_eps);
    for (int head = 0; head < c->n_heads; head++)
        reference_latent_head(r, layer, head, q + head * q_dim, rows, y + head * d->v_dim);
    free(q_latent), free(q);
}
