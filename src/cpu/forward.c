// The forward pass: what a Llama does to a batch of tokens. Every thread of the team runs it, and takes its share of each step;
// barriers stand where a step reads what another thread has written.

#include <math.h>
#include <string.h>

#include "cpu/attention.h"
#include "cpu/experts.h"
#include "cpu/matmul.h"
#include "model/rope.h"

struct pass {
    struct cpu_state *state;
    const struct batch *batch;
};

// y[t] = rmsnorm(x[t]), tokens shared out.
static void normalise(struct cpu_state *s, int thread, float *y, const float *x, const float *weight, int n)
{
    const int dim = s->config->hidden_dim;
    const struct span tokens = team_share(s->team, thread, n, 1);
    for (int t = tokens.first; t < tokens.last; t++)
        s->kernels->rmsnorm(y + (size_t)t * dim, x + (size_t)t * dim, weight, dim, s->config->norm_eps);
    team_barrier(s->team);
}

// x += W y + bias, rows shared out.
static void project_residual(struct cpu_state *s, int thread, const struct matrix *w, const float *bias, const float *y, int n)
{
    const struct product product = {w, bias, s->branch};
    matmul_pack(s, thread, y, n, w->cols);
    const struct span rows = team_share(s->team, thread, w->rows, 16);
    matmul_rows(s, thread, &product, rows, y, n);
    for (int t = 0; t < n && rows.first < rows.last; t++) {
        const size_t at = (size_t)t * w->rows + rows.first;
        s->kernels->add(s->x + at, s->branch + at, rows.last - rows.first);
    }
    team_barrier(s->team);
}

static void embed(struct cpu_state *s, const struct batch *batch, int thread)
{
    const struct matrix *e = &s->weights->embedding;
    const struct span tokens = team_share(s->team, thread, batch->n, 1);
    for (int t = tokens.first; t < tokens.last; t++) {
        const size_t row = (size_t)batch->tokens[t] * e->cols * dtype_sizes[e->dtype];
        s->kernels->to_fp32[e->dtype](s->x + (size_t)t * e->cols, (const uint8_t *)e->data + row, e->cols);
    }
    // Angles of the batch's positions, for all layers.
    const int half = s->config->head_dim / 2;
    for (int t = tokens.first; t < tokens.last; t++)
        rope_angles(s->cos + (size_t)t * half, s->sin + (size_t)t * half, s->inverse_frequency, s->rope_scale, s->config->head_dim,
                    batch->position + t);
    team_barrier(s->team);
}

// x += o · attention(rmsnorm(x))
static void attention_block(struct cpu_state *s, const struct batch *batch, int layer, int thread)
{
    const struct layer_weights *w = &s->weights->layers[layer];
    normalise(s, thread, s->h, s->x, w->attention_norm, batch->n);
    const struct product qkv[] = {{&w->q, w->q_bias, s->q}, {&w->k, w->k_bias, s->k}, {&w->v, w->v_bias, s->v}};
    matmul_shared(s, thread, qkv, 3, s->h, batch->n);
    team_barrier(s->team);
    attention_append(s, batch, layer, thread);
    team_barrier(s->team);
    attention_attend(s, batch, layer, thread);
    team_barrier(s->team);
    project_residual(s, thread, &w->o, w->o_bias, s->attended, batch->n);
}

// x += down · (silu(gate · h) ∘ (up · h)),  h = rmsnorm(x)
static void ffn_block(struct cpu_state *s, const struct batch *batch, int layer, int thread)
{
    const struct layer_weights *w = &s->weights->layers[layer];
    normalise(s, thread, s->h, s->x, w->ffn_norm, batch->n);
    if (w->router.data) {
        experts_block(s, w, batch->n, thread);
        return;
    }
    gated_units(s, &w->experts[0], s->h, batch->n, thread);
    project_residual(s, thread, &w->experts[0].down, w->experts[0].down_bias, s->gate, batch->n);
}

static void classify(struct cpu_state *s, const struct batch *batch, int thread)
{
    if (!batch->logits)
        return;
    const int dim = s->config->hidden_dim;
    const int n = batch->all_logits ? batch->n : 1;
    normalise(s, thread, s->h, s->x + (size_t)(batch->n - n) * dim, s->weights->norm, n);
    matmul_shared(s, thread, &(struct product){&s->weights->classifier, NULL, batch->logits}, 1, s->h, n);
}

static void forward(void *context, int thread)
{
    const struct pass *pass = context;
    struct cpu_state *s = pass->state;
    embed(s, pass->batch, thread);
    for (int layer = 0; layer < s->config->n_layers; layer++) {
        attention_block(s, pass->batch, layer, thread);
        if (thread == 0) // one look for all: the barriers in between carry it to the others
            s->stopped = atomic_load_explicit(s->cancel, memory_order_relaxed);
        ffn_block(s, pass->batch, layer, thread);
        if (s->stopped)
            return;
    }
    classify(s, pass->batch, thread);
}

yalm_status cpu_forward(struct cpu_state *state, const struct batch *batch)
{
    struct pass pass = {state, batch};
    state->stopped = false;
    team_run(state->team, forward, &pass);
    return state->stopped ? YALM_INTERRUPTED : YALM_OK;
}
