#include "cpu/experts.h"

#include <math.h>
#include <string.h>

#include "cpu/matmul.h"
#include "cpu/norms.h"

void gated_units(struct cpu_state *s, const struct unit_products *units, const float *h, int n, struct member *me)
{
    const struct matrix *gate = units->gate.w;
    matmul_pack(s, me, units->types, h, n, gate->cols);
    const int needed = n > 0 ? gate->rows : 0;
    for (struct span rows; matmul_claim(s, me, gate, needed, n, &rows);) {
        const int n_rows = rows.last - rows.first;
        matmul_rows(s, me, &units->gate, rows, h, n);
        const float *up = matmul_rows_here(s, me, units->up, units->up_bias, rows, h, n);
        for (ptrdiff_t t = 0; t < n; t++)
            s->kernels->activate[units->activation](units->gate.y + t * gate->rows + rows.first, up + t * n_rows, n_rows);
    }
}

// Of a token: logits become scores, and the active experts' scores their weights. Raw ones are not renormalised to the sum 1.
static void weigh_by_scores(const int *chosen, float *weight, const float *scores, int n, bool raw)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += weight[i] = scores[chosen[i]];
    for (int i = 0; i < n && !raw; i++)
        weight[i] /= sum;
}

// The softmax over the active experts, which is that over all, renormalised; or, where the model wants it raw, that over all.
static void weigh_by_softmax(const int *chosen, float *weight, const float *logits, int n_experts, int n, bool raw)
{
    float max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = fmaxf(max, logits[chosen[i]]);
    for (int i = 0; i < n; i++)
        sum += weight[i] = expf(logits[chosen[i]] - max);
    if (raw) {
        sum = 0;
        for (int e = 0; e < n_experts; e++)
            sum += expf(logits[e] - max);
    }
    for (int i = 0; i < n; i++)
        weight[i] /= sum;
}

// The n_active best of a token's experts by `rating` (the lower index of equals), in ascending order of index.
static void choose_experts(int *chosen, const float *rating, int n_experts, int n_active)
{
    int n = 0;
    for (int e = 0; e < n_experts; e++) {
        int rank = 0; // experts that come before e
        for (int other = 0; other < n_experts; other++)
            rank += rating[other] > rating[e] || (rating[other] == rating[e] && other < e);
        if (rank < n_active && n < n_active)
            chosen[n++] = e;
    }
    for (int e = 0; n < n_active; e++) // only where NaN logits compare with nothing
        chosen[n++] = e;
}

// A token's active experts and their weights, from its router's logits, which are used up. ratings: (n_experts) scratch.
static void route_token(const struct model_config *c, const struct layer_weights *w, float *logits, float *ratings, int *chosen,
                        float *weight)
{
    const float *choice_bias = w->router_choice_bias;
    const int n = c->n_active_experts;
    for (int e = 0; e < c->n_experts && choice_bias; e++) {
        logits[e] = 1.0f / (1.0f + expf(-logits[e]));
        ratings[e] = logits[e] + choice_bias[e];
    }
    choose_experts(chosen, choice_bias ? ratings : logits, c->n_experts, n);
    if (choice_bias)
        weigh_by_scores(chosen, weight, logits, n, c->raw_expert_weights);
    else
        weigh_by_softmax(chosen, weight, logits, c->n_experts, n, c->raw_expert_weights);
    for (int i = 0; i < n && c->expert_scale > 0; i++)
        weight[i] *= c->expert_scale;
    for (int i = 0; i < n && w->router_scale; i++)
        weight[i] *= w->router_scale[chosen[i]];
}

// Which tokens go to which expert.
static void route(struct cpu_state *s, const struct layer_weights *w, int n)
{
    const int n_experts = s->config->n_experts, n_active = s->config->n_active_experts;
    for (int e = 0; e < n_experts; e++)
        s->expert_n[e] = s->chosen_experts[e] = 0;
    for (int t = 0; t < n; t++) {
        int *chosen = s->expert_of + t * n_active;
        float *weight = s->expert_weight + t * n_active;
        route_token(s->config, w, s->router_logits + (size_t)t * n_experts, s->expert_ratings, chosen, weight);
        for (int i = 0; i < n_active; i++) {
            const int e = chosen[i], at = s->expert_n[e]++;
            s->expert_tokens[(size_t)e * s->chunk + at] = t;
            s->expert_scale[(size_t)e * s->chunk + at] = weight[i];
        }
    }
    for (int e = 0, i = 0; e < n_experts; e++)
        if (s->expert_n[e] > 0)
            s->chosen_experts[i++] = e;
}

// The types of a layer's experts: which expert a round is for is not known for good, so each has the steps of all.
struct expert_types {
    type_set units, down;
};

static struct expert_types types_of(const struct expert_weights *experts, int n)
{
    struct expert_types types = {0};
    for (int e = 0; e < n; e++) {
        types.units |= type_bit(experts[e].gate.dtype) | type_bit(experts[e].up.dtype);
        types.down |= type_bit(experts[e].down.dtype);
    }
    return types;
}

// What all of a step's experts have in common.
struct round {
    const struct step *step;
    struct expert_types types;
    const float *h; // (n, hidden_dim)
    float *sum;     // (n, hidden_dim)
    struct input_sums *observed;
};

// sum[token] += scale · expert(h[token]) for the n tokens of expert e; steps without items where n = 0.
static void expert(struct cpu_state *s, const struct round *round, int e, int n, struct member *me)
{
    const struct expert_weights *w = &round->step->weights->experts[e];
    const int dim = s->config->hidden_dim, input = round->step->observed + 2 * e;
    const int *tokens = s->expert_tokens + (size_t)e * s->chunk;
    const float *scale = s->expert_scale + (size_t)e * s->chunk;
    for (struct span mine; team_claim(me, n, 1, &mine);)
        for (int i = mine.first; i < mine.last; i++)
            memcpy(s->expert_in + (size_t)i * dim, round->h + (size_t)tokens[i] * dim, sizeof(float) * dim);
    matmul_observe(me, round->observed, input, s->expert_in, n, w->gate.cols);
    const struct unit_products units = {
        {&w->gate, w->gate_bias, s->expert_units}, &w->up, w->up_bias, round->types.units, round->step->activation};
    gated_units(s, &units, s->expert_in, n, me);
    matmul_observe(me, round->observed, input + 1, s->expert_units, n, w->down.cols);
    matmul_pack(s, me, round->types.down, s->expert_units, n, w->down.cols);
    const int needed = n > 0 ? dim : 0;
    for (struct span rows; matmul_claim(s, me, &w->down, needed, n, &rows);) {
        const int n_rows = rows.last - rows.first;
        const float *branch = matmul_rows_here(s, me, &w->down, w->down_bias, rows, s->expert_units, n);
        for (ptrdiff_t i = 0; i < n; i++)
            s->kernels->add_scaled(round->sum + (size_t)tokens[i] * dim + rows.first, branch + i * n_rows, scale[i], n_rows);
    }
}

void experts_route(struct cpu_state *s, const struct step *step, const float *h, int n, struct member *me)
{
    matmul_shared(s, me, &(struct product){step->w[0], step->bias[0], s->router_logits}, 1, h, n);
    for (struct span once; team_claim(me, 1, 1, &once);)
        route(s, step->weights, n);
}

void experts_run(struct cpu_state *s, const struct step *step, const float *h, int n, struct member *me,
                 struct input_sums *observed)
{
    const int n_experts = s->config->n_experts;
    const ptrdiff_t dim = s->config->hidden_dim;
    const bool apart = step->out[0] == BUFFER_EXPERT_SUM; // from the residual stream
    const struct round round = {step, types_of(step->weights->experts, n_experts), h, apart ? s->expert_sum : cpu_residual(s),
                                observed};
    if (apart)
        for (struct span tokens; team_claim(me, n, 1, &tokens);)
            memset(s->expert_sum + tokens.first * dim, 0, sizeof(float) * (tokens.last - tokens.first) * dim);
    // As many rounds as there can be experts with tokens, whatever the routing says: the steps must be the same for all members.
    const int64_t most = (int64_t)n * s->config->n_active_experts;
    for (int i = 0; i < n_experts && i < most; i++) {
        const int e = s->chosen_experts[i];
        const bool repeated = i > 0 && e == 0; // beyond the chosen ones
        expert(s, &round, e, repeated ? 0 : s->expert_n[e], me);
    }
    if (step->post_norm)
        norm_tokens(s, me, s->expert_sum, s->expert_sum, step->post_norm, n);
}
