#include "cpu/ops.h"

#include <math.h>
#include <string.h>

#include "cpu/attention.h"
#include "cpu/delta.h"
#include "cpu/experts.h"
#include "cpu/inputs.h"
#include "cpu/latents.h"
#include "cpu/matmul.h"
#include "cpu/norms.h"
#include "cpu/shares.h"
#include "model/rope.h"

float *walk_buffer(const struct walk *k, enum recipe_buffer which)
{
    const struct cpu_state *s = k->s;
    float *const all[BUFFERS] = {[BUFFER_X] = s->x,           [BUFFER_Q] = s->q,
                                 [BUFFER_K] = s->k,           [BUFFER_V] = s->v,
                                 [BUFFER_LATENT] = s->latent, [BUFFER_HEADS] = s->heads,
                                 [BUFFER_GATES] = s->gates,   [BUFFER_DECAYS] = s->decays,
                                 [BUFFER_BETAS] = s->betas,   [BUFFER_ATTENDED] = s->attended,
                                 [BUFFER_UNITS] = s->units,   [BUFFER_EXPERT_SUM] = s->expert_sum,
                                 [BUFFER_INPUTS] = s->inputs, [BUFFER_LOGITS] = s->group ? s->logits : k->batch.logits};
    return all[which];
}

static struct turn turn_of(const struct walk *k, int t)
{
    const struct batch *batch = &k->batch;
    return k->pass->n_turns ? k->pass->turns[t] : (struct turn){k->s, batch_position(batch, t), batch->tokens[t]};
}

// x += the rows of a token's position and type.
static void add_rows(const struct walk *k, int64_t position, int t, float *x)
{
    const struct model_weights *w = k->s->weights;
    const int type = k->batch.types ? k->batch.types[t] : 0;
    if (w->token_types.data)
        k->s->kernels->add(x, (const float *)w->token_types.data + (size_t)type * w->token_types.cols, w->token_types.cols);
    if (w->positions.data)
        k->s->kernels->add(x, (const float *)w->positions.data + (size_t)position * w->positions.cols, w->positions.cols);
}

// And the angles of the tokens' positions, for all layers.
static void embed(const struct walk *k, const struct step *step)
{
    struct cpu_state *s = k->s;
    const struct matrix *e = step->table;
    for (struct grains tokens; team_claim(k->me, k->batch.n, 1, &tokens);)
        for (int t = tokens.first; t < tokens.last; t++) {
            const struct turn turn = turn_of(k, t);
            input_row(s, e, turn.token, step->number, s->x + (size_t)t * e->cols);
            if (step->traits & TRAIT_ROWS)
                add_rows(k, turn.position, t, s->x + (size_t)t * e->cols);
            if (s->branch)
                memset(s->branch + (size_t)t * e->cols, 0, sizeof *s->branch * (size_t)e->cols);
            for (int i = 0; i < config_n_kinds(s->config); i++) {
                const struct cpu_kind *kind = &turn.state->kinds[i];
                const size_t row = k->pass->n_turns ? 0 : (size_t)t * (kind->rotary / 2);
                if (config_kind_attends(s->config, i))
                    rope_angles(kind->cos + row, kind->sin + row, kind->inverse_frequency, kind->rope_scale, kind->rotary,
                                turn.position);
            }
        }
}

static void pair(const struct walk *k, const struct step *step, const float *x)
{
    struct cpu_state *s = k->s;
    const ptrdiff_t dim = s->config->hidden_dim;
    for (struct grains tokens; team_claim(k->me, k->batch.n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++) {
            float *to = s->units + 2 * t * dim;
            memcpy(to, x + t * dim, sizeof *to * dim);
            s->kernels->rmsnorm(to + dim, k->batch.given + t * dim, step->post_norm, (int)dim, s->config->norm_eps);
        }
}

static void project(const struct walk *k, const struct step *step, const float *x)
{
    struct product products[STEP_MATRICES];
    const int n_wide = step->n_w - step->n_narrow;
    for (int i = 0; i < step->n_w; i++)
        products[i] = (struct product){step->w[i], step->bias[i], walk_buffer(k, step->out[i])};
    if (k->batch.n_logits && step->out[0] == BUFFER_LOGITS) {
        matmul_pack(k->s, k->me, type_bit(step->w[0]->dtype), x, k->batch.n, step->w[0]->cols);
        for (struct grains rows; matmul_claim(k->s, k->me, step->w[0], k->batch.n_logits, k->batch.n, &rows);)
            matmul_rows(k->s, k->me, products, rows, x, k->batch.n);
        return;
    }
    matmul_shared(k->s, k->me, products, n_wide, x, k->batch.n);
    if (step->n_narrow)
        matmul_narrow(k->s, k->me, products + n_wide, step->n_narrow, x, k->batch.n);
}

static void mix_inputs(const struct walk *k, const struct step *step)
{
    const ptrdiff_t width = step->table->cols;
    for (struct grains tokens; team_claim(k->me, k->batch.n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++)
            input_mix(k->s, step, turn_of(k, (int)t).token, k->s->inputs + t * width, k->s->units + t * width);
}

static void attend(struct cpu_state *s, const struct batch *batch, const struct step *step, struct member *me)
{
    attention_append(s, batch, step, me);
    (latents_expand(s, batch) ? latents_attend : attention_attend)(s, batch, step, me);
}

// Each token to its own session's keys, in that session's memory.
static void attend_apart(const struct walk *k, const struct step *step)
{
    struct cpu_state *s = k->s;
    const struct pass *pass = k->pass;
    const ptrdiff_t q_dim = cpu_kind_of(s, step->layer)->q_dim, kv_dim = cpu_kind_of(s, step->layer)->kv_dim;
    for (struct grains turns; team_claim(k->me, pass->n_turns, 1, &turns);)
        for (ptrdiff_t t = turns.first; t < turns.last; t++) {
            const struct cpu_state *own = pass->turns[t].state;
            memcpy(own->q, s->q + t * q_dim, sizeof *s->q * q_dim);
            if (step->traits & TRAIT_OTHERS_KEYS)
                continue;
            memcpy(own->k, s->k + t * kv_dim, sizeof *s->k * kv_dim);
            if (!(step->traits & TRAIT_LATENT))
                memcpy(own->v, s->v + t * kv_dim, sizeof *s->v * kv_dim);
        }
    for (int t = 0; t < pass->n_turns; t++)
        attend(pass->turns[t].state, &(struct batch){.n = 1, .position = pass->turns[t].position, .apart = true}, step, k->me);
    for (struct grains turns; team_claim(k->me, pass->n_turns, 1, &turns);)
        for (ptrdiff_t t = turns.first; t < turns.last; t++)
            memcpy(s->attended + t * q_dim, pass->turns[t].state->attended, sizeof *s->attended * q_dim);
}

static void gate_outputs(const struct walk *k, int layer)
{
    struct cpu_state *s = k->s;
    const int dim = cpu_kind_of(s, layer)->head_dim;
    for (struct grains heads; team_claim(k->me, k->batch.n * s->config->n_heads, 4, &heads);)
        for (ptrdiff_t i = heads.first; i < heads.last; i++)
            s->kernels->sigmoid_multiply(s->attended + i * dim, s->gates + i * dim, dim);
}

// What is added goes by s->h where it is normalised first: by ranks together, behind the block.
static void add(const struct walk *k, const struct step *step, const float *x)
{
    struct cpu_state *s = k->s;
    const struct matrix *w = step->w[0];
    const int n = k->batch.n;
    if (step->post_norm && !(s->group && step->ends_block)) {
        matmul_shared(s, k->me, &(struct product){w, step->bias[0], s->h}, 1, x, n);
        norm_and_add(s, k->me, s->h, NULL, NULL, step->post_norm, n);
        return;
    }
    matmul_pack(s, k->me, type_bit(w->dtype), x, n, w->cols);
    for (struct grains rows; matmul_claim(s, k->me, w, w->rows, n, &rows);) {
        const int n_rows = rows.last - rows.first;
        const float *branch = matmul_rows_here(s, k->me, w, step->bias[0], rows, x, n);
        for (ptrdiff_t t = 0; t < n; t++)
            s->kernels->add(cpu_residual(s) + t * w->rows + rows.first, branch + t * n_rows, n_rows);
    }
}

// Among ranks experts have added to the block's sum already. It is normalised behind the block, when ranks have summed it up.
static void join(const struct walk *k, const struct step *step, const float *x)
{
    struct cpu_state *s = k->s;
    if (step->n_w && s->group) {
        add(k, step, x);
    } else if (step->n_w) {
        matmul_shared(s, k->me, &(struct product){step->w[0], step->bias[0], s->h}, 1, x, k->batch.n);
        norm_and_add(s, k->me, s->h, step->weights->shared_post_norm, s->expert_sum, step->post_norm, k->batch.n);
    } else if (!s->group) {
        norm_and_add(s, k->me, s->expert_sum, NULL, NULL, step->post_norm, k->batch.n);
    }
}

static void make_units(const struct walk *k, const struct step *step, const float *x)
{
    if (step->traits & TRAIT_UNGATED) {
        plain_units(k->s, &(struct product){step->w[0], step->bias[0], k->s->units}, type_bit(step->w[0]->dtype),
                    step->activation, step->weights ? step->weights->xielu : NULL, x, k->batch.n, k->me);
        return;
    }
    const struct unit_products units = {{step->w[0], step->bias[0], k->s->units},
                                        step->w[1],
                                        step->bias[1],
                                        type_bit(step->w[0]->dtype) | type_bit(step->w[1]->dtype),
                                        step->activation};
    gated_units(k->s, &units, x, k->batch.n, k->me);
}

static void weigh_units(const struct walk *k, const struct step *step, const float *x)
{
    struct cpu_state *s = k->s;
    const struct matrix *router = &step->weights->shared_router;
    const int units = step->weights->shared.down.cols;
    for (struct grains tokens; team_claim(k->me, k->batch.n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++) {
            float logit;
            s->kernels->matvec[DTYPE_FP32](&logit, 1, router->data, 0, 1, router->cols, x + t * router->cols, router->cols, 1,
                                           false);
            const float scale = 1.0f / (1.0f + expf(-logit));
            for (int i = 0; i < units; i++)
                s->units[t * units + i] *= scale;
        }
}

static void gate_input(const struct walk *k, const struct step *step, const float *x)
{
    struct cpu_state *s = k->s;
    const int dim = step->w[0]->rows;
    matmul_shared(s, k->me, &(struct product){step->w[0], NULL, s->units}, 1, x, k->batch.n);
    for (struct grains tokens; team_claim(k->me, k->batch.n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++)
            s->kernels->activate[step->activation](s->units + t * dim,
                                                   s->inputs + (t * s->config->n_layers + step->layer) * dim, dim);
}

static void scale_stream(const struct walk *k, float scale)
{
    const ptrdiff_t dim = k->s->config->hidden_dim;
    for (struct grains tokens; team_claim(k->me, k->batch.n, 1, &tokens);)
        for (ptrdiff_t i = tokens.first * dim; i < tokens.last * dim; i++)
            k->s->x[i] *= scale;
}

static void cap_logits(const struct walk *k, float *logits, float cap)
{
    enum { GRAIN = 1024 }; // logits
    const int vocab = k->s->config->vocab_size, grains = (vocab + GRAIN - 1) / GRAIN;
    for (struct grains span; team_claim(k->me, k->batch.n * grains, 1, &span);)
        for (int i = span.first; i < span.last; i++) {
            const int first = i % grains * GRAIN;
            k->s->kernels->softcap(logits + (size_t)(i / grains) * vocab + first, cap,
                                   vocab - first < GRAIN ? vocab - first : GRAIN);
        }
}

void walk_perform(const struct walk *k, const struct step *step, const float *x)
{
    struct cpu_state *s = k->s;
    const struct pass *pass = k->pass;
    const int n = k->batch.n;
    switch (step->op) {
    case OP_EMBED:
        embed(k, step);
        break;
    case OP_PAIR:
        pair(k, step, x);
        break;
    case OP_PROJECT:
        project(k, step, x);
        break;
    case OP_MIX_INPUTS:
        mix_inputs(k, step);
        break;
    case OP_HEAD_NORM:
        if (s->squares)
            shares_normalise(s, step, pass->run, k->me, n);
        norm_heads(s, step, k->me, n);
        break;
    case OP_HEADS:
        if (!latents_expand(s, &k->batch))
            matmul_heads(s, k->me, step->w[0], &step->heads, x, walk_buffer(k, step->out[0]), n);
        break;
    case OP_ATTEND:
        if (pass->n_turns)
            attend_apart(k, step);
        else
            attend(s, &k->batch, step, k->me);
        break;
    case OP_RECUR:
        delta_recur(s, pass->turns, pass->n_turns, n, step->layer, walk_buffer(k, step->out[0]), k->me);
        break;
    case OP_CONVOLVE:
        delta_convolve(s, pass->turns, pass->n_turns, n, step->layer, k->me);
        break;
    case OP_GATE:
        gate_outputs(k, step->layer);
        break;
    case OP_ADD:
        add(k, step, x);
        break;
    case OP_UNITS:
        make_units(k, step, x);
        break;
    case OP_WEIGH:
        weigh_units(k, step, x);
        break;
    case OP_ROUTE:
        experts_route(s, step, x, n, k->me);
        break;
    case OP_EXPERTS:
        break; // of several parts: run.c
    case OP_JOIN:
        join(k, step, x);
        break;
    case OP_GATE_INPUT:
        gate_input(k, step, x);
        break;
    case OP_SCALE:
        scale_stream(k, *step->weights->scale);
        break;
    case OP_NORM:
        norm_tokens(s, k->me, s->x, s->x, step->post_norm, step->norm_bias, n);
        break;
    case OP_CAP:
        cap_logits(k, walk_buffer(k, BUFFER_LOGITS), step->number);
        break;
    }
}
