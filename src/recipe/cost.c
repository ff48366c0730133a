#include "recipe/cost.h"

static double matrix_bytes(const struct matrix *m)
{
    return m->data ? (double)m->rows * (double)dtype_row_bytes(m->dtype, m->cols) : 0;
}

static double matrix_ops(const struct matrix *m)
{
    return m->data ? 2.0 * m->rows * m->cols : 0;
}

static double vector_bytes(const float *vector, int n)
{
    return vector ? sizeof(float) * (double)n : 0;
}

// Of the mean expert, times those that are active, since their types may differ.
static struct cost experts_cost(const struct step *step, const struct model_config *c)
{
    struct cost all = {0};
    for (int e = 0; e < c->n_experts; e++) {
        const struct expert_weights *w = &step->weights->experts[e];
        all.bytes += matrix_bytes(&w->gate) + matrix_bytes(&w->up) + matrix_bytes(&w->down) +
                     vector_bytes(w->gate_bias, w->gate.rows) + vector_bytes(w->up_bias, w->up.rows) +
                     vector_bytes(w->down_bias, w->down.rows);
        all.ops += matrix_ops(&w->gate) + matrix_ops(&w->up) + matrix_ops(&w->down);
    }
    const double active = (double)c->n_active_experts / c->n_experts;
    return (struct cost){all.bytes * active, all.ops * active};
}

static struct cost recurrence_cost(const struct step *step, const struct delta_config *d)
{
    const struct delta_weights *w = &step->weights->delta;
    const struct scan_weights *scan = &step->weights->scan;
    const int conv = d->conv_width * delta_channels(d), norm = d->scan.there ? delta_values(d) : d->value_dim;
    return (struct cost){vector_bytes(w->conv, conv) + vector_bytes(scan->conv_bias, delta_channels(d)) +
                             vector_bytes(w->decay_bias, delta_decays(d)) + vector_bytes(w->decay_rate, d->n_value_heads) +
                             vector_bytes(scan->skip, d->n_value_heads) + vector_bytes(w->value_norm, norm),
                         2.0 * conv + (d->scan.there ? 5.0 : 7.0) * (double)delta_state_floats(d)};
}

static struct cost convolution_cost(const struct step *step, const struct delta_config *d)
{
    const int taps = d->conv_width * d->conv_dim;
    return (struct cost){vector_bytes(step->weights->delta.conv, taps) +
                             vector_bytes(step->weights->delta.conv_bias, d->conv_dim),
                         2.0 * taps + 2.0 * d->conv_dim}; // and both gates
}

static struct cost head_norm_cost(const struct step *step, int head_dim, const struct latent_config *latent)
{
    const struct layer_weights *w = step->weights;
    if (step->traits & TRAIT_LATENT)
        return (struct cost){vector_bytes(w->q_norm, latent->q_rank) + vector_bytes(w->k_norm, latent->kv_rank), 0};
    const bool whole = step->traits & TRAIT_WHOLE;
    return (struct cost){
        vector_bytes(w->q_norm, whole ? w->q.rows : head_dim) + vector_bytes(w->k_norm, whole ? w->k.rows : head_dim), 0};
}

// What an op reads besides matrices and norms.
static struct cost own_cost(const struct step *step, const struct model_config *c)
{
    const struct layer_weights *w = step->weights;
    switch (step->op) {
    case OP_HEAD_NORM:
        return head_norm_cost(step, config_head_dim(c, step->layer), &c->latent);
    case OP_ATTEND:
        return (struct cost){vector_bytes(w->sink_logits, c->n_heads), 0};
    case OP_RECUR:
        return recurrence_cost(step, config_delta(c, step->layer));
    case OP_CONVOLVE:
        return convolution_cost(step, config_delta(c, step->layer));
    case OP_WEIGH:
        return (struct cost){matrix_bytes(&w->shared_router), matrix_ops(&w->shared_router)};
    case OP_ROUTE:
        return (struct cost){vector_bytes(w->router_choice_bias, c->n_experts) + vector_bytes(w->router_scale, c->n_experts),
                             0};
    case OP_EXPERTS:
        return experts_cost(step, c);
    case OP_JOIN:
        return (struct cost){vector_bytes(w->shared_post_norm, c->hidden_dim), 0};
    case OP_SCALE:
        return (struct cost){sizeof *w->scale, 0};
    default:
        return (struct cost){0};
    }
}

struct cost step_cost(const struct step *step, const struct model_config *config)
{
    struct cost cost = own_cost(step, config);
    for (int i = 0; i < step->n_w; i++) {
        cost.bytes += matrix_bytes(step->w[i]) + vector_bytes(step->bias[i], step->w[i]->rows);
        cost.ops += matrix_ops(step->w[i]);
    }
    cost.bytes += vector_bytes(step->post_norm, config->hidden_dim);
    return cost;
}
