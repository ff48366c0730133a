// The forward pass: what a Llama does to a batch of tokens. Every member of the team runs it, claims its share of each step, and goes on
// when the step is over (team.h); what a step reads, an earlier one has written.

#include <math.h>
#include <string.h>

#include "cpu/attention.h"
#include "cpu/delta.h"
#include "cpu/experts.h"
#include "cpu/inputs.h"
#include "cpu/matmul.h"
#include "cpu/norms.h"
#include "cpu/shares.h"
#include "model/rope.h"
#include "util/clock.h"

struct pass {
    struct cpu_state *state;
    int64_t run; // its number
    struct batch batch;
    struct input_sums *observed; // NULL: what matrices read is not observed
    int n_turns;                 // 0: the batch is of the state's own session; else its tokens are apart
    struct turn turns[MOST_TURNS];
};

// Token t of the batch.
static struct turn turn_of(const struct pass *pass, int t)
{
    return pass->n_turns ? pass->turns[t] : (struct turn){pass->state, pass->batch.position + t, pass->batch.tokens[t]};
}

// What a block's products read: rmsnorm(x), or x where no norm stands before the block.
static const float *read_stream(struct cpu_state *s, struct member *me, const float *norm, int n)
{
    if (!norm)
        return s->x;
    norm_tokens(s, me, s->h, s->x, norm, n);
    return s->h;
}

// x += rmsnorm(W y + bias)
static void project_normalised(struct cpu_state *s, struct member *me, const struct matrix *w, const float *bias,
                               const float *y, const float *norm, int n)
{
    matmul_shared(s, me, &(struct product){w, bias, s->h}, 1, y, n);
    for (struct span tokens; team_claim(me, n, 1, &tokens);)
        for (int t = tokens.first; t < tokens.last; t++) {
            float *h = s->h + (size_t)t * w->rows;
            s->kernels->rmsnorm(h, h, norm, w->rows, s->config->norm_eps);
            s->kernels->add(s->x + (size_t)t * w->rows, h, w->rows);
        }
}

// x += W y + bias, or what ranks sum for x; norm: of a block that has one behind it, else NULL.
static void project_residual(struct cpu_state *s, struct member *me, const struct matrix *w, const float *bias, const float *y,
                             const float *norm, int n)
{
    if (norm && !s->group) {
        project_normalised(s, me, w, bias, y, norm, n);
        return;
    }
    matmul_pack(s, me, type_bit(w->dtype), y, n, w->cols);
    for (struct span rows; matmul_claim(s, me, w, w->rows, n, &rows);) {
        const int n_rows = rows.last - rows.first;
        const float *branch = matmul_rows_here(s, me, w, bias, rows, y, n);
        for (ptrdiff_t t = 0; t < n; t++)
            s->kernels->add(cpu_residual(s) + t * w->rows + rows.first, branch + t * n_rows, n_rows);
    }
}

// x = the tokens' embeddings; the angles of their positions, for all layers.
static void embed(struct cpu_state *s, const struct pass *pass, struct member *me)
{
    const struct matrix *e = &s->weights->embedding;
    const float scale = s->config->embedding_scale > 0 ? s->config->embedding_scale : 1;
    for (struct span tokens; team_claim(me, pass->batch.n, 1, &tokens);)
        for (int t = tokens.first; t < tokens.last; t++) {
            const struct turn turn = turn_of(pass, t);
            input_row(s, e, turn.token, scale, s->x + (size_t)t * e->cols);
            if (s->branch)
                memset(s->branch + (size_t)t * e->cols, 0, sizeof *s->branch * (size_t)e->cols);
            for (int kind = 0; kind < config_n_kinds(s->config); kind++) {
                const struct cpu_kind *k = &turn.state->kinds[kind];
                const size_t row = pass->n_turns ? 0 : (size_t)t * (k->head_dim / 2);
                if (!config_kind_attends(s->config, kind))
                    continue;
                rope_angles(k->cos + row, k->sin + row, k->inverse_frequency, k->rope_scale, k->head_dim, turn.position);
            }
        }
}

// Each layer's own input, of models that have such.
static void make_inputs(struct cpu_state *s, const struct pass *pass, struct member *me)
{
    const int n = pass->batch.n, width = s->config->n_layers * s->config->layer_input_dim;
    matmul_shared(s, me, &(struct product){&s->weights->layer_projection, NULL, s->inputs}, 1, s->x, n);
    for (struct span tokens; team_claim(me, n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++)
            input_mix(s, turn_of(pass, (int)t).token, s->inputs + t * width, s->gate + t * width);
}

static void attend(struct cpu_state *s, const struct batch *batch, int layer, struct member *me)
{
    attention_append(s, batch, layer, me);
    attention_attend(s, batch, layer, me);
}

// Each token to its own session's keys, in that session's memory.
static void attend_apart(struct cpu_state *s, const struct pass *pass, int layer, struct member *me)
{
    const ptrdiff_t q_dim = cpu_kind_of(s, layer)->q_dim, kv_dim = cpu_kind_of(s, layer)->kv_dim;
    for (struct span turns; team_claim(me, pass->n_turns, 1, &turns);)
        for (ptrdiff_t t = turns.first; t < turns.last; t++) {
            const struct cpu_state *own = pass->turns[t].state;
            memcpy(own->q, s->q + t * q_dim, sizeof *s->q * q_dim);
            if (s->kv_layer[layer] != layer)
                continue;
            memcpy(own->k, s->k + t * kv_dim, sizeof *s->k * kv_dim);
            memcpy(own->v, s->v + t * kv_dim, sizeof *s->v * kv_dim);
        }
    for (int t = 0; t < pass->n_turns; t++)
        attend(pass->turns[t].state, &(struct batch){.n = 1, .position = pass->turns[t].position}, layer, me);
    for (struct span turns; team_claim(me, pass->n_turns, 1, &turns);)
        for (ptrdiff_t t = turns.first; t < turns.last; t++)
            memcpy(s->attended + t * q_dim, pass->turns[t].state->attended, sizeof *s->attended * q_dim);
}

// What attention gives, times 1 / (1 + e^-gate).
static void gate_outputs(struct cpu_state *s, int layer, struct member *me, int n)
{
    const int dim = cpu_kind_of(s, layer)->head_dim;
    for (struct span heads; team_claim(me, n * s->config->n_heads, 4, &heads);)
        for (ptrdiff_t i = heads.first; i < heads.last; i++)
            s->kernels->sigmoid_multiply(s->attended + i * dim, s->gates + i * dim, dim);
}

// s->attended = attention(h)
static void attention(struct cpu_state *s, const struct pass *pass, int layer, const float *h, struct member *me)
{
    const struct batch *batch = &pass->batch;
    const struct layer_weights *w = &s->weights->layers[layer];
    const struct product all[] = {{&w->q, w->q_bias, s->q},
                                  {&w->k, w->k_bias, s->k},
                                  {&w->v, w->v_bias, s->v},
                                  {&w->output_gate, w->output_gate_bias, s->gates}};
    struct product products[4];
    int n_products = 0;
    for (int i = 0; i < 4; i++)
        if (all[i].w->data)
            products[n_products++] = all[i];
    matmul_shared(s, me, products, n_products, h, batch->n);
    if (s->squares)
        shares_normalise(s, w, pass->run, me, batch->n);
    else if (w->q_norm || s->config->v_norm)
        norm_heads(s, layer, me, batch->n);
    // The caller's thread leaves a step when it is over, so between its two looks at the clock lie whole steps.
    const bool timed = me->thread == 0 && s->time_attention;
    const double begin = timed ? clock_seconds() : 0;
    if (pass->n_turns)
        attend_apart(s, pass, layer, me);
    else
        attend(s, batch, layer, me);
    if (timed)
        s->attention_seconds += clock_seconds() - begin;
    if (w->output_gate.data)
        gate_outputs(s, layer, me, batch->n);
}

// x += o · attention(rmsnorm(x)), or what a recurrent layer has in its place
static void attention_block(struct cpu_state *s, const struct pass *pass, int layer, struct member *me)
{
    const struct batch *batch = &pass->batch;
    const struct layer_weights *w = &s->weights->layers[layer];
    const bool recurrent = config_is_recurrent(s->config, layer);
    const float *h = read_stream(s, me, w->attention_norm, batch->n);
    matmul_observe(me, pass->observed, importance_input(s->config, layer, INPUT_QKV), h, batch->n, w->q.cols);
    matmul_ahead(s, me, (const struct matrix *[]){&w->o}, 1, batch->n);
    if (recurrent)
        delta_block(s, pass->turns, pass->n_turns, h, batch->n, layer, me);
    else
        attention(s, pass, layer, h, me);
    const float *y = recurrent ? s->gates : s->attended;
    matmul_observe(me, pass->observed, importance_input(s->config, layer, INPUT_O), y, batch->n, w->o.cols);
    matmul_ahead(s, me, (const struct matrix *[]){w->router.data ? &w->router : &w->experts[0].gate}, 1, batch->n);
    project_residual(s, me, &w->o, w->o_bias, y, w->attention_post_norm, batch->n);
    shares_join(s, pass->run, me, w->attention_post_norm, batch->n);
}

// The shared expert's weight, 1 / (1 + e^-logit), is a factor of what its `down` reads.
static void weigh_shared(struct cpu_state *s, const struct layer_weights *w, const float *h, int n, struct member *me)
{
    const int dim = w->shared_router.cols, units = w->shared.down.cols;
    for (struct span tokens; team_claim(me, n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++) {
            float logit;
            s->kernels->matvec[DTYPE_FP32](&logit, 1, w->shared_router.data, 0, 1, dim, h + t * dim, dim, 1, false);
            const float scale = 1.0f / (1.0f + expf(-logit));
            for (int i = 0; i < units; i++)
                s->gate[t * units + i] *= scale;
        }
}

// x += rmsnorm(rmsnorm(down · gate) + what the other experts add), of models whose experts have norms of their own.
static void join_experts(struct cpu_state *s, const struct layer_weights *w, int n, struct member *me)
{
    const int dim = s->config->hidden_dim;
    const float eps = s->config->norm_eps;
    matmul_shared(s, me, &(struct product){&w->shared.down, NULL, s->h}, 1, s->gate, n);
    for (struct span tokens; team_claim(me, n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++) {
            float *h = s->h + t * dim;
            s->kernels->rmsnorm(h, h, w->shared_post_norm, dim, eps);
            s->kernels->add(h, s->expert_sum + t * dim, dim);
            s->kernels->rmsnorm(h, h, w->ffn_post_norm, dim, eps);
            s->kernels->add(s->x + t * dim, h, dim);
        }
}

// What is read after a layer, to be fetched meanwhile.
static void ahead_of_next(struct cpu_state *s, const struct batch *batch, int layer, struct member *me)
{
    const struct matrix *next[4];
    if (layer + 1 < s->config->n_layers)
        matmul_ahead(s, me, next, weights_of_stream(&s->weights->layers[layer + 1], next), batch->n);
    else if (batch->logits)
        matmul_ahead(s, me, (const struct matrix *[]){&s->weights->classifier}, 1, batch->all_logits ? batch->n : 1);
}

// x += down · (activation(gate · h) ∘ (up · h)),  h = rmsnorm(x), or so of the active experts, or both
static void ffn(struct cpu_state *s, const struct pass *pass, int layer, struct member *me)
{
    const struct batch *batch = &pass->batch;
    const int input = importance_input(s->config, layer, 0);
    const struct layer_weights *w = &s->weights->layers[layer];
    if (w->expert_norm) // of x, not of what the shared one reads
        experts_block(s, w, batch->n, me, pass->observed, input + INPUT_EXPERTS);
    const float *h = read_stream(s, me, w->ffn_norm, batch->n);
    if (w->router.data && !w->expert_norm)
        experts_block(s, w, batch->n, me, pass->observed, input + INPUT_EXPERTS);
    if (w->router.data && !w->shared.gate.data)
        return;
    const struct expert_weights *ffn = w->router.data ? &w->shared : &w->experts[0];
    matmul_observe(me, pass->observed, input + INPUT_FFN, h, batch->n, ffn->gate.cols);
    matmul_ahead(s, me, (const struct matrix *[]){&ffn->down}, 1, batch->n);
    gated_units(s, ffn, type_bit(ffn->gate.dtype) | type_bit(ffn->up.dtype), h, batch->n, me);
    if (w->router.data && w->shared_router.data)
        weigh_shared(s, w, h, batch->n, me);
    matmul_observe(me, pass->observed, input + INPUT_DOWN, s->gate, batch->n, ffn->down.cols);
    if (w->input_gate.data)
        matmul_ahead(s, me, (const struct matrix *[]){&w->input_gate}, 1, batch->n);
    else
        ahead_of_next(s, batch, layer, me);
    if (w->expert_norm)
        join_experts(s, w, batch->n, me);
    else
        project_residual(s, me, &ffn->down, ffn->down_bias, s->gate, w->ffn_post_norm, batch->n);
}

static void ffn_block(struct cpu_state *s, const struct pass *pass, int layer, struct member *me)
{
    ffn(s, pass, layer, me);
    shares_join(s, pass->run, me, s->weights->layers[layer].ffn_post_norm, pass->batch.n);
}

// x += rmsnorm(input_projection · (activation(input_gate · x) ∘ the layer's input))
static void input_block(struct cpu_state *s, const struct pass *pass, int layer, struct member *me)
{
    const struct layer_weights *w = &s->weights->layers[layer];
    const int n = pass->batch.n, dim = s->config->layer_input_dim;
    matmul_ahead(s, me, (const struct matrix *[]){&w->input_projection}, 1, n);
    matmul_shared(s, me, &(struct product){&w->input_gate, NULL, s->gate}, 1, s->x, n);
    for (struct span tokens; team_claim(me, n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++)
            s->kernels->activate[s->config->activation](s->gate + t * dim, s->inputs + (t * s->config->n_layers + layer) * dim,
                                                        dim);
    ahead_of_next(s, &pass->batch, layer, me);
    project_normalised(s, me, &w->input_projection, NULL, s->gate, w->input_norm, n);
}

static void scale_stream(struct cpu_state *s, float scale, int n, struct member *me)
{
    const ptrdiff_t dim = s->config->hidden_dim;
    for (struct span tokens; team_claim(me, n, 1, &tokens);)
        for (ptrdiff_t i = tokens.first * dim; i < tokens.last * dim; i++)
            s->x[i] *= scale;
}

static void layer_forward(struct cpu_state *s, const struct pass *pass, int layer, struct member *me)
{
    const struct layer_weights *w = &s->weights->layers[layer];
    attention_block(s, pass, layer, me);
    ffn_block(s, pass, layer, me);
    if (w->input_gate.data)
        input_block(s, pass, layer, me);
    if (w->scale)
        scale_stream(s, *w->scale, pass->batch.n, me);
}

static void cap_logits(struct cpu_state *s, struct member *me, float *logits, int n)
{
    enum { GRAIN = 1024 }; // logits
    const int vocab = s->config->vocab_size, grains = (vocab + GRAIN - 1) / GRAIN;
    for (struct span span; team_claim(me, n * grains, 1, &span);)
        for (int i = span.first; i < span.last; i++) {
            const int first = i % grains * GRAIN;
            s->kernels->softcap(logits + (size_t)(i / grains) * vocab + first, s->config->logits_softcap,
                                vocab - first < GRAIN ? vocab - first : GRAIN);
        }
}

static void classify(struct cpu_state *s, const struct pass *pass, struct member *me)
{
    const struct batch *batch = &pass->batch;
    if (!batch->logits && !pass->observed)
        return;
    const int n = batch->all_logits || !batch->logits ? batch->n : 1;
    norm_tokens(s, me, s->h, s->x + (size_t)(batch->n - n) * s->config->hidden_dim, s->weights->norm, n);
    matmul_observe(me, pass->observed, importance_input(s->config, s->config->n_layers, 0), s->h, n,
                   s->weights->classifier.cols);
    if (!batch->logits)
        return;
    float *logits = s->group ? s->logits : batch->logits;
    matmul_shared(s, me, &(struct product){&s->weights->classifier, NULL, logits}, 1, s->h, n);
    if (s->config->logits_softcap > 0)
        cap_logits(s, me, logits, n);
    shares_gather(s, me, batch->logits, n);
}

// Goes on with the batch's last token alone: what is read of it from here on becomes the first's.
static void narrow(struct pass *pass, struct member *me)
{
    struct cpu_state *s = pass->state;
    const size_t last = (size_t)pass->batch.n - 1, dim = s->config->hidden_dim;
    const size_t inputs = (size_t)s->config->n_layers * s->config->layer_input_dim;
    for (struct span once; team_claim(me, 1, 1, &once);) {
        memmove(s->x, s->x + last * dim, sizeof *s->x * dim);
        if (s->inputs)
            memmove(s->inputs, s->inputs + last * inputs, sizeof *s->inputs * inputs);
        for (int i = 0; i < config_n_kinds(s->config); i++) {
            const struct cpu_kind *kind = &s->kinds[i];
            const size_t half = (size_t)kind->head_dim / 2;
            if (!config_kind_attends(s->config, i))
                continue;
            memmove(kind->cos, kind->cos + last * half, sizeof *kind->cos * half);
            memmove(kind->sin, kind->sin + last * half, sizeof *kind->sin * half);
        }
    }
    pass->batch.position += (int64_t)last;
    pass->batch.n = 1;
}

static void forward(struct member *me, const void *arguments)
{
    struct pass own;
    const struct pass *pass = arguments;
    struct cpu_state *s = pass->state;
    const int tail = pass->batch.all_logits || pass->observed ? s->config->n_layers : config_tail(s->config);
    me->apart = pass->batch.apart;
    embed(s, pass, me);
    if (s->inputs)
        make_inputs(s, pass, me);
    for (int layer = 0; layer < s->config->n_layers; layer++) {
        if (layer == tail && !pass->batch.logits)
            return;
        if (layer == tail && pass->batch.n > 1) {
            own = *pass;
            narrow(&own, me);
            pass = &own;
        }
        layer_forward(s, pass, layer, me);
        if (atomic_load_explicit(&s->stopped, memory_order_relaxed) >=
            pass->run) // written in a step of this layer (attention_append)
            return;
    }
    classify(s, pass, me);
}

yalm_status cpu_forward(struct cpu_state *state, const struct batch *batch)
{
    const struct pass pass = {.state = state, .run = ++state->run, .batch = *batch, .observed = state->observed};
    delta_begin(state, batch->position, batch->n, batch->apart);
    const int n_threads = batch->n > 1 && !batch->apart ? state->n_threads_batch : state->n_threads;
    team_run(state->team, n_threads, forward, &pass, offsetof(struct pass, turns));
    const bool stopped = atomic_load(&state->stopped) == pass.run;
    delta_end(state, batch->position, batch->n, !stopped);
    return stopped ? YALM_INTERRUPTED : YALM_OK;
}

void cpu_forward_apart(struct cpu_state *state, const struct turn *turns, int n)
{
    float *logits = state->gathered ? state->gathered : state->logits;
    const struct batch batch = {.n = n, .logits = logits, .all_logits = true, .apart = true};
    struct pass pass = {.state = state, .run = ++state->run, .batch = batch, .n_turns = n};
    _Static_assert(sizeof pass <= TEAM_ARGUMENT_BYTES, "a pass is small enough to be copied to each member");
    memcpy(pass.turns, turns, sizeof *turns * (size_t)n);
    for (int i = 0; i < n; i++)
        delta_begin(turns[i].state, turns[i].position, 1, false);
    team_run(state->team, state->n_threads, forward, &pass, sizeof pass);
    for (int i = 0; i < n; i++)
        delta_end(turns[i].state, turns[i].position, 1, true);
}
