// OP_RECUR on a GPU, of tokens that follow each other in one session, or of several sessions'. Tokens ahead leave what they
// brought to each layer; where one was wrong, the rule alone is repeated for those before it.
#include "cuda/delta/recur.h"

#include "cuda/product_ops.h"

// A layer's part of the tokens from t on, which are of session s; `by` has the activations.
static struct delta delta_of(const struct cuda_state *by, const struct cuda_state *s, const struct step *step, int t)
{
    const struct delta_config *c = step->delta;
    const struct attending *a = &step->attending;
    const size_t keys = (size_t)t * delta_keys(c), values = (size_t)t * delta_values(c), heads = (size_t)t * c->n_value_heads;
    return {by->step + t,
            c,
            &step->weights->delta,
            a->place,
            a->layers,
            s->states[a->kind],
            s->inputs[a->kind],
            by->q + keys,
            by->k + keys,
            by->v + values,
            by->decays + heads,
            by->betas + heads,
            by->mixed + (size_t)t * delta_channels(c)};
}

// The same of tokens that may be repeated, whose work outlasts the evaluation.
static void outlast(struct delta *d, const struct cuda_state *s, int kind)
{
    const size_t channels = SEVERAL * (size_t)delta_channels(d->config);
    d->mixed = s->replays[kind] + d->layer * replay_floats(d->config);
    d->given = d->mixed + channels;
    d->kept_decays = d->given + channels;
    d->kept_betas = d->kept_decays + (size_t)SEVERAL * d->config->n_value_heads;
}

// How many tokens from t on are one session's; its part of a layer.
static int next_run(const struct pass *r, const struct step *step, int t, struct delta *d)
{
    const struct cuda_state *by = r->s, *s = by->turns ? by->turns[t].s : by;
    const int n = by->turns ? turns_run(by->turns, t, r->n) : r->n;
    *d = delta_of(by, s, step, t);
    if (by->turns && n > 1)
        outlast(d, s, step->attending.kind);
    return n;
}

yalm_status recur(const struct pass *r, const struct step *step, yalm_error *error)
{
    struct cuda_state *s = r->s;
    struct delta d;
    for (int t = 0, n; t < r->n; t += n) {
        n = next_run(r, step, t, &d);
        TRY(delta_mix(&d, n, s->stream, error));
    }
    for (int t = 0, n; t < r->n; t += n) { // into s->q, which nobody reads any more
        n = next_run(r, step, t, &d);
        TRY(delta_rule(&d, s->q + (size_t)t * delta_values(step->delta), n, s->stream, error));
    }
    return delta_gate(&d, s->attended, type_for_reader(r, step), s->q, s->gates, s->config->norm_eps, r->n, s->stream, error);
}

static yalm_status queue_replay(struct cuda_state *s, int n, yalm_error *error)
{
    TRY_CUDA(cudaEventSynchronize(s->copied)); // the last batch's copies are over
    *s->step_host = {s->carried.first, n, (int16_t)s->carried.from, (int16_t)s->carried.to};
    TRY_CUDA(cudaMemcpyAsync(s->step, s->step_host, sizeof *s->step, cudaMemcpyHostToDevice, s->stream));
    TRY_CUDA(cudaEventRecord(s->copied, s->stream));
    for (const struct step *step = s->recipe.steps; step < s->recipe.steps + s->recipe.n; step++) {
        if (step->op != OP_RECUR)
            continue;
        struct delta d = delta_of(s, s, step, 0);
        outlast(&d, s, step->attending.kind);
        TRY(delta_rule(&d, s->q, n, s->stream, error));
        d.n_given = n;
        TRY(delta_mix(&d, 0, s->stream, error));
    }
    return YALM_OK;
}

yalm_status delta_replay(struct cuda_state *s, int64_t position, yalm_error *error)
{
    struct carried *c = &s->carried;
    if (!carried_replays(c, position))
        return YALM_OK;
    const int n = (int)(position - c->first);
    carried_begin_replay(c, position);
    const yalm_status status = queue_replay(s, n, error);
    carried_end(c, c->first, n, status == YALM_OK);
    return status;
}
