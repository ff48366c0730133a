// OP_RECUR and OP_CONVOLVE on a GPU, of tokens that follow each other in one session, or of several sessions'. Tokens ahead
// leave what they brought to each layer; where one was wrong, the rule alone is repeated for those before it.
#include "cuda/delta/recur.h"

#include "cuda/product_ops.h"

// A layer's part of the tokens from t on, which are of session s; `by` has the activations.
static struct delta delta_of(const struct cuda_state *by, const struct cuda_state *s, const struct step *step, int t)
{
    const struct delta_config *c = step->delta;
    const struct attending *a = &step->attending;
    const size_t at = t, keys = at * (c->conv_dim + delta_keys(c)), values = at * (c->conv_dim + delta_values(c)),
                 heads = at * c->n_value_heads;
    return {by->step + t,
            c,
            step->weights,
            a->place,
            a->layers,
            s->states[a->kind],
            s->inputs[a->kind],
            by->q + keys,
            by->k + keys,
            by->v + values,
            by->decays + at * delta_decays(c),
            by->betas + heads,
            by->mixed + at * delta_channels(c)};
}

// The same of tokens that may be repeated, whose work outlasts the evaluation.
static void outlast(struct delta *d, const struct cuda_state *s, int kind)
{
    const size_t channels = SEVERAL * (size_t)delta_channels(d->config);
    d->mixed = s->replays[kind] + d->layer * replay_floats(d->config);
    d->given = d->config->conv_dim ? d->mixed : d->mixed + channels;
    d->kept_decays = d->given + channels;
    d->kept_betas = d->kept_decays + (size_t)SEVERAL * delta_decays(d->config);
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
    // Either all tokens are one run, or each is its own; then `mixed` of all lies one behind the other.
    next_run(r, step, 0, &d);
    void *to = step->out[0] == BUFFER_UNITS ? s->gated : s->attended;
    return delta_gate(&d, to, type_for_reader(r, step), s->q, s->gates, s->config->norm_eps, r->n, s->stream, error);
}

// Of many tokens q, k and v may be one product (pitch_of()).
yalm_status convolve(const struct pass *r, const struct step *step, yalm_error *error)
{
    const struct cuda_state *s = r->s;
    const size_t dim = step->delta->conv_dim;
    struct delta d;
    for (int t = 0, n; t < r->n; t += n) {
        n = next_run(r, step, t, &d);
        d.pitch = pitch_of(r, step->weights);
        d.k = d.pitch ? d.q + dim : d.k;
        d.v = d.pitch ? d.k + dim : d.v;
        TRY(delta_convolve(&d, static_cast<float *>(s->attended) + t * dim, type_for_reader(r, step), n, s->stream, error));
    }
    return YALM_OK;
}

static yalm_status replay_step(const struct cuda_state *s, const struct step *step, int n, yalm_error *error)
{
    struct delta d = delta_of(s, s, step, 0);
    outlast(&d, s, step->attending.kind);
    if (step->op == OP_RECUR)
        TRY(delta_rule(&d, s->q, n, s->stream, error));
    d.n_given = n;
    return step->op == OP_RECUR ? delta_mix(&d, 0, s->stream, error)
                                : delta_convolve(&d, NULL, DTYPE_FP32, 0, s->stream, error);
}

static yalm_status queue_replay(struct cuda_state *s, int n, yalm_error *error)
{
    TRY_CUDA(cudaEventSynchronize(s->copied)); // the last batch's copies are over
    *s->step_host = {s->carried.first, n, (int16_t)s->carried.from, (int16_t)s->carried.to};
    TRY_CUDA(cudaMemcpyAsync(s->step, s->step_host, sizeof *s->step, cudaMemcpyHostToDevice, s->stream));
    TRY_CUDA(cudaEventRecord(s->copied, s->stream));
    for (const struct step *step = s->recipe.steps; step < s->recipe.steps + s->recipe.n; step++) {
        if (step->op == OP_RECUR || step->op == OP_CONVOLVE)
            TRY(replay_step(s, step, n, error));
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
