#include "recipe/writer.h"

#include "recipe/cost.h"

static void count(struct recipe_writer *out, const struct step *step)
{
    struct cost *cost = &out->to->cost;
    const struct cost own = step_cost(step, out->config);
    const int width = step->in == BUFFER_X ? out->config->hidden_dim : out->config->layer_input_dim;
    if (step->norm && step->norm != out->norm)
        cost->bytes += sizeof *step->norm * (double)width;
    out->norm = step->norm ? step->norm : out->norm;
    cost->bytes += own.bytes;
    cost->ops += own.ops;
}

static void widen(int *width, int n)
{
    *width = *width > n ? *width : n;
}

static void measure(struct recipe *to, const struct step *step)
{
    for (int i = 0; i < step->n_w; i++) {
        widen(&to->width[step->in], step->w[i]->cols);
        widen(&to->width[step->out[i]], step->w[i]->rows);
    }
    if (step->op == OP_HEADS) {
        widen(&to->width[step->in], step->heads.n * step->heads.in);
        widen(&to->width[step->out[0]], step->heads.n * step->heads.out);
    }
    if (step->op == OP_EXPERTS)
        widen(&to->width[step->out[0]], step->weights->experts[0].down.rows);
}

static type_set types_of(const struct step *step, int n_experts)
{
    type_set types = 0;
    for (int i = 0; i < step->n_w - step->n_narrow && step->op != OP_HEADS; i++) // those are of floats
        types |= type_bit(step->w[i]->dtype);
    for (int e = 0; step->op == OP_EXPERTS && e < n_experts; e++) {
        const struct expert_weights *w = &step->weights->experts[e];
        types |= (w->gate.data ? type_bit(w->gate.dtype) : 0) | type_bit(w->up.dtype) | type_bit(w->down.dtype);
    }
    return types;
}

void put_step(struct recipe_writer *out, struct step step)
{
    struct recipe *to = out->to;
    step.layer = out->layer;
    to->ops |= 1u << step.op;
    to->traits |= step.traits;
    to->types |= types_of(&step, out->config->n_experts);
    if (step.observed != NOT_OBSERVED && step.layer < out->config->n_layers)
        to->block_types |= types_of(&step, out->config->n_experts);
    count(out, &step);
    measure(to, &step);
    if (to->steps)
        to->steps[to->n] = step;
    to->n++;
}

void step_multiply(struct step *step, const struct matrix *w, const float *bias, enum recipe_buffer to)
{
    if (!w->data) // the model has none
        return;
    step->w[step->n_w] = w;
    step->bias[step->n_w] = bias;
    step->out[step->n_w++] = to;
}

unsigned step_norm_trait(const struct model_config *c)
{
    return c->layer_norm ? TRAIT_LAYER_NORM : 0u;
}

void step_read_norm(struct step *step, const struct model_config *c, const float *weight, const float *bias)
{
    if (c->post_norm || !weight)
        return;
    step->norm = weight;
    step->norm_bias = bias;
    step->traits |= step_norm_trait(c);
}

int observed_input(const struct recipe_writer *out, int which)
{
    return importance_input(out->config, out->layer, which);
}

void put_add(struct recipe_writer *out, const struct matrix *w, const float *bias, enum recipe_buffer in,
             const float *post_norm, int observed, bool ends_block)
{
    put_step(out, (struct step){.op = OP_ADD,
                                .w = {w},
                                .bias = {bias},
                                .n_w = 1,
                                .in = in,
                                .out = {BUFFER_X},
                                .post_norm = post_norm,
                                .traits = post_norm ? TRAIT_NORM_BEHIND : 0u,
                                .observed = observed,
                                .ends_block = ends_block});
}

struct attending attending_of(const struct recipe_writer *out)
{
    const struct model_config *c = out->config;
    const int layer = out->layer;
    const int seen = config_kv_layer(c, layer);
    return (struct attending){.kind = c->kind_of_layer[layer],
                              .seen = seen,
                              .seen_kind = c->kind_of_layer[seen],
                              .place = config_place(c, seen),
                              .layers = config_n_layers_of(c, c->kind_of_layer[seen]),
                              .n_heads = c->n_heads,
                              .n_kv_heads = config_kv_heads(c, layer),
                              .head_dim = config_head_dim(c, layer)};
}
