#include "cpu/norms.h"

void norm_tokens(struct cpu_state *s, struct member *me, float *y, const float *x, const float *weight, const float *bias,
                 int n)
{
    const int dim = s->config->hidden_dim;
    const float eps = s->config->norm_eps;
    for (struct grains tokens; team_claim(me, n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++) {
            if (s->config->layer_norm)
                s->kernels->layernorm(y + t * dim, x + t * dim, weight, bias, dim, eps);
            else
                s->kernels->rmsnorm(y + t * dim, x + t * dim, weight, dim, eps);
        }
}

void norm_and_add(struct cpu_state *s, struct member *me, float *y, const float *own, const float *sum, const float *weight,
                  int n)
{
    const int dim = s->config->hidden_dim;
    const float eps = s->config->norm_eps;
    for (struct grains tokens; team_claim(me, n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++) {
            float *h = y + t * dim;
            if (own)
                s->kernels->rmsnorm(h, h, own, dim, eps);
            if (sum)
                s->kernels->add(h, sum + t * dim, dim);
            s->kernels->rmsnorm(h, h, weight, dim, eps);
            s->kernels->add(s->x + t * dim, h, dim);
        }
}

// What is normalised of each token: heads of a row, or the whole row as one.
struct heads {
    float *rows; // (n, dim)
    const float *weight;
    int dim, width, n;
};

static struct heads heads_of(float *rows, const float *weight, int dim, int width)
{
    return (struct heads){rows, weight, dim, width, weight ? dim / width : 0};
}

// The latents of queries and of keys; behind the latter stands what of keys rotates.
static void norm_latents(struct cpu_state *s, const struct layer_weights *w, struct member *me, int n)
{
    const struct latent_config *d = &s->config->latent;
    const ptrdiff_t dim = s->config->head_dim;
    for (struct grains tokens; team_claim(me, n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++) {
            s->kernels->rmsnorm(s->k + t * dim, s->k + t * dim, w->k_norm, d->kv_rank, d->norm_eps);
            if (d->q_rank)
                s->kernels->rmsnorm(s->latent + t * d->q_rank, s->latent + t * d->q_rank, w->q_norm, d->q_rank, d->norm_eps);
        }
}

void norm_heads(struct cpu_state *s, const struct step *step, struct member *me, int n)
{
    const struct layer_weights *w = step->weights;
    if (step->traits & TRAIT_LATENT) {
        norm_latents(s, w, me, n);
        return;
    }
    const struct cpu_kind *kind = cpu_kind_of(s, step->layer);
    const bool whole = step->traits & TRAIT_WHOLE, of_v = step->traits & TRAIT_VALUES && w->v.data;
    const bool bare = step->traits & TRAIT_WEIGHTED;
    const float *q_norm = s->squares ? NULL : bare ? s->ones : w->q_norm; // else shares_normalise()'s
    const float *k_norm = s->squares ? NULL : bare ? s->ones : w->k_norm;
    const struct heads heads[] = {heads_of(s->q, q_norm, kind->q_dim, whole ? kind->q_dim : kind->head_dim),
                                  heads_of(s->k, k_norm, kind->kv_dim, whole ? kind->kv_dim : kind->head_dim),
                                  heads_of(s->v, of_v ? s->ones : NULL, kind->kv_dim, kind->head_dim)};
    const int all = heads[0].n + heads[1].n + heads[2].n;
    for (struct grains parts; team_claim(me, n * all, 4, &parts);)
        for (int i = parts.first; i < parts.last; i++) {
            const struct heads *of = heads;
            int part = i % all;
            for (; part >= of->n; of++)
                part -= of->n;
            float *x = of->rows + (size_t)(i / all) * of->dim + (size_t)part * of->width;
            s->kernels->rmsnorm(x, x, of->weight, of->width, s->config->norm_eps);
        }
}
