// Layers that carry a state from token to token instead of keys and values.

#include "recipe/states.h"

void put_scan(struct recipe_writer *out, enum recipe_buffer to)
{
    const struct layer_weights *w = out->w;
    const int observed = config_attends(out->config, out->layer) ? NOT_OBSERVED : observed_input(out, INPUT_QKV);
    struct step step = {.op = OP_PROJECT, .in = BUFFER_X, .norm = w->attention_norm, .observed = observed};
    step_multiply(&step, &w->scan.c, NULL, BUFFER_Q);
    step_multiply(&step, &w->scan.b, NULL, BUFFER_K);
    step_multiply(&step, &w->scan.x, NULL, BUFFER_V);
    step.n_exact = 3;
    step_multiply(&step, &w->scan.z, NULL, BUFFER_GATES);
    step_multiply(&step, &w->delta.decay, NULL, BUFFER_DECAYS);
    step.n_narrow = 1;
    put_step(out, step);
    put_step(out, (struct step){.op = OP_RECUR,
                                .out = {to},
                                .weights = w,
                                .attending = attending_of(out),
                                .delta = config_delta(out->config, out->layer),
                                .traits = TRAIT_SCAN});
}

void put_scan_sum(struct recipe_writer *out, enum recipe_buffer from)
{
    put_add(out, &out->w->scan.o, NULL, from, NULL, observed_input(out, INPUT_SCAN_O), true);
}

// q, k and v of rmsnorm(x). A recurrence's have no biases.
static struct step project_qkv(const struct recipe_writer *out)
{
    const struct layer_weights *w = out->w;
    struct step qkv = {.op = OP_PROJECT, .in = BUFFER_X, .norm = w->attention_norm, .observed = observed_input(out, INPUT_QKV)};
    step_multiply(&qkv, &w->q, w->q_bias, BUFFER_Q);
    step_multiply(&qkv, &w->k, w->k_bias, BUFFER_K);
    step_multiply(&qkv, &w->v, w->v_bias, BUFFER_V);
    qkv.n_exact = qkv.n_w;
    return qkv;
}

void put_recurrence(struct recipe_writer *out)
{
    const struct layer_weights *w = out->w;
    if (config_delta(out->config, out->layer)->scan.there) {
        put_scan(out, BUFFER_ATTENDED);
        put_scan_sum(out, BUFFER_ATTENDED);
        return;
    }
    struct step qkv = project_qkv(out);
    step_multiply(&qkv, &w->output_gate, NULL, BUFFER_GATES);
    step_multiply(&qkv, &w->delta.decay, NULL, BUFFER_DECAYS);
    step_multiply(&qkv, &w->delta.beta, NULL, BUFFER_BETAS);
    qkv.n_narrow = 2;
    put_step(out, qkv);
    put_step(out, (struct step){.op = OP_RECUR,
                                .out = {BUFFER_ATTENDED},
                                .weights = w,
                                .attending = attending_of(out),
                                .delta = config_delta(out->config, out->layer)});
    put_add(out, &w->o, NULL, BUFFER_ATTENDED, w->attention_post_norm, observed_input(out, INPUT_O), true);
}

void put_convolution(struct recipe_writer *out)
{
    const struct layer_weights *w = out->w;
    put_step(out, project_qkv(out));
    put_step(out, (struct step){.op = OP_CONVOLVE,
                                .out = {BUFFER_ATTENDED},
                                .weights = w,
                                .attending = attending_of(out),
                                .delta = config_delta(out->config, out->layer)});
    put_add(out, &w->o, w->o_bias, BUFFER_ATTENDED, w->attention_post_norm, observed_input(out, INPUT_O), true);
}
