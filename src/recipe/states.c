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

// One product, which no other step shares its input with. Rounding decays costs the most, for they are powers.
static void put_product(struct recipe_writer *out, const struct matrix *w, enum recipe_buffer in, enum recipe_buffer to)
{
    struct step step = {.op = OP_PROJECT, .in = in, .observed = NOT_OBSERVED, .n_exact = 1};
    step_multiply(&step, w, NULL, to);
    put_step(out, step);
}

// Decays and gates by way of their latents.
static void put_latent_gates(struct recipe_writer *out)
{
    const struct delta_weights *w = &out->w->delta;
    struct step latents = {.op = OP_PROJECT, .in = BUFFER_X, .norm = out->w->attention_norm, .observed = NOT_OBSERVED};
    step_multiply(&latents, &w->decay_a, NULL, BUFFER_LATENT);
    step_multiply(&latents, &w->gate_a, NULL, BUFFER_HEADS);
    latents.n_exact = latents.n_w;
    put_step(out, latents);
    put_product(out, &w->decay_b, BUFFER_LATENT, BUFFER_DECAYS);
    put_product(out, &w->gate_b, BUFFER_HEADS, BUFFER_GATES);
}

void put_recurrence(struct recipe_writer *out)
{
    const struct layer_weights *w = out->w;
    const struct delta_config *d = config_delta(out->config, out->layer);
    if (d->scan.there) {
        put_scan(out, BUFFER_ATTENDED);
        put_scan_sum(out, BUFFER_ATTENDED);
        return;
    }
    struct step qkv = project_qkv(out);
    step_multiply(&qkv, &w->output_gate, NULL, BUFFER_GATES);
    step_multiply(&qkv, &w->delta.decay, NULL, BUFFER_DECAYS);
    step_multiply(&qkv, &w->delta.beta, NULL, BUFFER_BETAS);
    qkv.n_narrow = d->kda_rank ? 1 : 2;
    put_step(out, qkv);
    if (d->kda_rank)
        put_latent_gates(out);
    put_step(out, (struct step){.op = OP_RECUR,
                                .out = {BUFFER_ATTENDED},
                                .weights = w,
                                .attending = attending_of(out),
                                .delta = d,
                                .traits = d->kda_rank ? TRAIT_CHANNELS : 0u});
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
