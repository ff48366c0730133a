// Goes through a recipe's steps (recipe.h) with the team. Every member runs all of it, claims its share of each step, and goes
// on when the step is over (team.h); what a step reads, an earlier one has written.
//
// Here stands what concerns every step alike: norms before it, fetching ahead, observation, sums among ranks, the last token
// alone, the clock.

#include <string.h>

#include "cpu/delta.h"
#include "cpu/experts.h"
#include "cpu/matmul.h"
#include "cpu/norms.h"
#include "cpu/ops.h"
#include "cpu/shares.h"
#include "util/clock.h"

// What a step reads: steps that read the same norm of x follow each other, and the first one computes it.
static const float *read(struct walk *k, const struct step *step)
{
    struct cpu_state *s = k->s;
    const float *norm = step->traits & TRAIT_BARE ? s->ones : step->norm;
    if (step->in != BUFFER_X || !norm)
        return walk_buffer(k, step->in);
    if (norm != k->norm)
        norm_tokens(s, k->me, s->h, s->x, norm, step->norm_bias, k->batch.n);
    k->norm = norm;
    return s->h;
}

// What step i multiplies is at hand; while the member waits for others it fetches what the next one will. Which experts that
// are nobody knows yet.
static void fetch_ahead(const struct walk *k, int i)
{
    const struct step *steps = k->s->recipe.steps;
    int next = i + 1;
    while (next < k->end && steps[next].n_w == 0 && steps[next].op != OP_EXPERTS)
        next++;
    if (next == k->end || steps[next].n_w == 0)
        return;
    const struct step *step = &steps[next]; // units are claimed by the rows of their first matrix
    matmul_ahead(k->s, k->me, step->w, step->op == OP_UNITS ? 1 : step->n_w - step->n_narrow,
                 next < k->narrow ? k->batch.n : 1);
}

// Goes on with the batch's last token alone: what is read of it from here on becomes the first's.
static void narrow(struct walk *k)
{
    struct cpu_state *s = k->s;
    const size_t last = (size_t)k->batch.n - 1, dim = s->config->hidden_dim;
    const size_t inputs = (size_t)s->config->n_layers * s->config->layer_input_dim;
    for (struct grains once; team_claim(k->me, 1, 1, &once);) {
        memmove(s->x, s->x + last * dim, sizeof *s->x * dim);
        if (s->inputs)
            memmove(s->inputs, s->inputs + last * inputs, sizeof *s->inputs * inputs);
        for (int i = 0; i < config_n_kinds(s->config); i++) {
            const struct cpu_kind *kind = &s->kinds[i];
            const size_t half = (size_t)kind->rotary / 2;
            if (!config_kind_attends(s->config, i))
                continue;
            memmove(kind->cos, kind->cos + last * half, sizeof *kind->cos * half);
            memmove(kind->sin, kind->sin + last * half, sizeof *kind->sin * half);
        }
    }
    k->batch.position += (int64_t)last;
    k->batch.n = 1;
    k->batch.apart |= k->batch.last_apart;
    k->batch.last_apart = false;
    k->norm = NULL;
}

// What the batch's tokens have become, before the last norm and the classifier.
static void keep_hidden(const struct walk *k)
{
    struct cpu_state *s = k->s;
    const size_t dim = s->config->hidden_dim;
    if (k->batch.hidden && (s->config->mtp.normed || k->batch.normed) && s->weights->norm)
        norm_tokens(s, k->me, k->batch.hidden, s->x, s->weights->norm, s->weights->norm_bias, k->batch.n);
    else if (k->batch.hidden)
        for (struct grains tokens; team_claim(k->me, k->batch.n, 1, &tokens);)
            memcpy(k->batch.hidden + (size_t)tokens.first * dim, s->x + (size_t)tokens.first * dim,
                   sizeof *s->x * dim * (size_t)(tokens.last - tokens.first));
}

// The caller's thread leaves a step when it is over, so between its two looks at the clock lie whole steps.
static void perform_timed(const struct walk *k, const struct step *step, const float *x)
{
    const double begin = clock_seconds();
    walk_perform(k, step, x);
    k->s->attention_seconds += clock_seconds() - begin;
}

static void observe(const struct walk *k, int input, const float *x, int n, int cols)
{
    matmul_observe(k->s, k->me, k->pass->observed, input, x, n, cols);
}

static void run_experts(const struct walk *k, const struct step *step, const float *x)
{
    struct cpu_state *s = k->s;
    const int n = k->batch.n, n_experts = s->config->n_experts;
    // As many rounds as there can be experts with tokens, whatever the routing says: the steps must be the same for all
    // members.
    const int64_t most = (int64_t)n * s->config->n_active_experts;
    struct expert_round round = experts_begin(s, step, n, k->me);
    for (int i = 0; i < n_experts && i < most; i++) {
        experts_gather(s, step, &round, i, x, k->me);
        if (k->batch.last_apart)
            k->me->apart = round.n > 0 && round.last == n - 1;
        const int input = step->observed + 2 * round.number;
        observe(k, input, s->expert_in, round.n, round.w->up.cols);
        experts_units(s, step, &round, k->me);
        observe(k, input + 1, s->expert_units, round.n, round.w->down.cols);
        experts_add(s, step, &round, k->me);
    }
    if (k->batch.last_apart)
        k->me->apart = 1;
    if (step->post_norm)
        norm_tokens(s, k->me, s->expert_sum, s->expert_sum, step->post_norm, NULL, n);
}

static void run_step(struct walk *k, int i)
{
    struct cpu_state *s = k->s;
    const struct step *step = &s->recipe.steps[i];
    const bool attends = step->op == OP_ATTEND || step->op == OP_RECUR || step->op == OP_CONVOLVE;
    const float *x = read(k, step);
    if (step->n_w) {
        if (step->observed != NOT_OBSERVED)
            observe(k, step->observed, x, k->batch.n, step->w[0]->cols);
        fetch_ahead(k, i);
    }
    if (i == s->recipe.classifier && !k->batch.logits) // it was only observed
        return;
    if (step->op == OP_EXPERTS)
        run_experts(k, step, x);
    else
        (attends && k->me->thread == 0 && s->time_attention ? perform_timed : walk_perform)(k, step, x);
    if (step->out[0] == BUFFER_X)
        k->norm = NULL;
    if (step->ends_block)
        shares_join(s, step, k->pass->run, k->me, k->batch.n);
}

static void run_recipe(struct member *me, const void *arguments)
{
    const struct pass *pass = arguments;
    struct cpu_state *s = pass->state;
    const struct recipe *r = &s->recipe;
    const struct batch *batch = &pass->batch;
    struct walk walk = {.s = s, .me = me, .pass = pass, .batch = *batch};
    walk.narrow = batch->all_logits || pass->observed ? r->n : r->tail;
    walk.end = batch->logits ? r->n : pass->observed ? r->classifier + 1 : r->tail;
    me->apart = batch->apart ? batch->n : batch->last_apart;
    for (int i = 0; i < walk.end; i++) {
        if (i == r->tail)
            keep_hidden(&walk);
        if (i == walk.narrow && walk.batch.n > 1)
            narrow(&walk);
        run_step(&walk, i);
        if (r->steps[i].ends_layer && cpu_stops(s, pass->run, r->steps[i].layer))
            return;
    }
    if (walk.end == r->tail)
        keep_hidden(&walk);
    if (batch->logits)
        shares_gather(s, me, batch->logits, walk.batch.n);
}

yalm_status cpu_forward(struct cpu_state *state, const struct batch *batch)
{
    const struct pass pass = {.state = state, .run = ++state->run, .batch = *batch, .observed = state->observed};
    delta_begin(state, batch->position, batch->n, batch->apart);
    const int n_threads = batch->n > 1 && !batch->apart ? state->n_threads_batch : state->n_threads;
    team_run(state->team, n_threads, run_recipe, &pass, offsetof(struct pass, turns));
    const bool stopped = cpu_was_stopped(state, pass.run);
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
    team_run(state->team, state->n_threads, run_recipe, &pass, sizeof pass);
    for (int i = 0; i < n; i++)
        delta_end(turns[i].state, turns[i].position, 1, true);
}
