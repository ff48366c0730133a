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
    for (struct grains rows; matmul_claim(s, me, gate, needed, n, &rows);) {
        const int n_rows = rows.last - rows.first;
        matmul_rows(s, me, &units->gate, rows, h, n);
        const float *up = matmul_rows_here(s, me, units->up, units->up_bias, rows, h, n);
        for (ptrdiff_t t = 0; t < n; t++)
            s->kernels->activate[units->activation](units->gate.y + t * gate->rows + rows.first, up + t * n_rows, n_rows);
    }
}

// Of (n) units; parameters: (3), as weights.h has them.
static void activate_xielu(float *x, const float *parameters, int n)
{
    const float p = parameters[0], below = parameters[1], b = parameters[2];
    for (int i = 0; i < n; i++)
        x[i] = b * x[i] + (x[i] > 0 ? p * x[i] * x[i] : below * (expm1f(x[i]) - x[i]));
}

void plain_units(struct cpu_state *s, const struct product *up, type_set types, enum activation activation, const float *xielu,
                 const float *h, int n, struct member *me)
{
    const struct matrix *w = up->w;
    matmul_pack(s, me, types, h, n, w->cols);
    for (struct grains rows; matmul_claim(s, me, w, n > 0 ? w->rows : 0, n, &rows);) {
        matmul_rows(s, me, up, rows, h, n);
        for (ptrdiff_t t = 0; t < n; t++) {
            float *y = up->y + t * w->rows + rows.first;
            if (xielu)
                activate_xielu(y, xielu, rows.last - rows.first);
            else
                s->kernels->activate[activation](y, s->ones, rows.last - rows.first);
        }
    }
}

// Logits become scores: sigmoids, or the softmax.
static void score_experts(float *logits, int n_experts, bool softmax)
{
    float max = -INFINITY, sum = 0;
    for (int e = 0; e < n_experts; e++)
        max = fmaxf(max, logits[e]);
    for (int e = 0; e < n_experts; e++)
        sum += logits[e] = softmax ? expf(logits[e] - max) : 1.0f / (1.0f + expf(-logits[e]));
    for (int e = 0; e < n_experts && softmax; e++)
        logits[e] /= sum;
}

// The active experts' scores become their weights. Raw ones are not renormalised to the sum 1. eps is added to the sum; with
// `least` the sum is at least eps instead.
static void weigh_by_scores(const int *chosen, float *weight, const float *scores, int n, bool raw, float eps, bool least)
{
    float sum = least ? 0 : eps;
    for (int i = 0; i < n; i++)
        sum += weight[i] = scores[chosen[i]];
    if (least)
        sum = fmaxf(sum, eps);
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

// Experts outside the best groups rate lowest; of equals the first group is better. pair: a group's rating is that of its best
// two together; else its best one's.
static void keep_groups(float *ratings, const struct model_config *c, bool pair)
{
    enum { MOST = 1 << 10 };
    const int n = c->n_expert_groups, size = n ? c->n_experts / n : 0;
    float best[MOST];
    for (int g = 0; g < n; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; e++) {
            second = fmaxf(second, fminf(first, ratings[e]));
            first = fmaxf(first, ratings[e]);
        }
        best[g] = pair && size > 1 ? first + second : first;
    }
    for (int g = 0; g < n; g++) {
        int rank = 0; // groups that come before g
        for (int other = 0; other < n; other++)
            rank += best[other] > best[g] || (best[other] == best[g] && other < g);
        for (int e = g * size; e < (g + 1) * size && rank >= c->n_active_groups; e++)
            ratings[e] = -INFINITY;
    }
}

// A token's active experts and their weights, from its router's logits, which are used up.
static void route_token(const struct cpu_state *s, const struct step *step, float *logits, int *chosen, float *weight)
{
    const float *choice_bias = step->weights->router_choice_bias, *scale = step->weights->router_scale;
    float *ratings = s->expert_ratings;
    const int n_experts = s->config->n_experts, n = s->config->n_active_experts;
    const bool softmax = s->config->softmax_choice_bias;
    if (choice_bias)
        score_experts(logits, n_experts, softmax);
    for (int e = 0; e < n_experts; e++)
        ratings[e] = choice_bias ? logits[e] + choice_bias[e] : logits[e];
    keep_groups(ratings, s->config, choice_bias);
    choose_experts(chosen, ratings, n_experts, n);
    if (choice_bias)
        weigh_by_scores(chosen, weight, logits, n, step->raw_weights, s->config->expert_eps, softmax);
    else
        weigh_by_softmax(chosen, weight, logits, n_experts, n, step->raw_weights);
    for (int i = 0; i < n && step->number > 0; i++)
        weight[i] *= step->number;
    for (int i = 0; i < n && scale; i++)
        weight[i] *= scale[chosen[i]];
}

// Which tokens go to which expert.
static void route(struct cpu_state *s, const struct step *step, int n)
{
    const int n_experts = s->config->n_experts, n_active = s->config->n_active_experts;
    for (int e = 0; e < n_experts; e++)
        s->expert_n[e] = s->chosen_experts[e] = 0;
    for (int t = 0; t < n; t++) {
        int *chosen = s->expert_of + t * n_active;
        float *weight = s->expert_weight + t * n_active;
        route_token(s, step, s->router_logits + (size_t)t * n_experts, chosen, weight);
        for (int i = 0; i < n_active; i++) {
            const int e = chosen[i], at = s->expert_n[e]++;
            s->expert_tokens[(size_t)e * s->chunk + at] = t;
            s->expert_scale[(size_t)e * s->chunk + at] = weight[i];
            s->expert_last[e] = t;
        }
    }
    for (int e = 0, i = 0; e < n_experts; e++)
        if (s->expert_n[e] > 0)
            s->chosen_experts[i++] = e;
}

void experts_route(struct cpu_state *s, const struct step *step, const float *h, int n, struct member *me)
{
    matmul_shared(s, me, &(struct product){step->w[0], step->bias[0], s->router_logits}, 1, h, n);
    for (struct grains once; team_claim(me, 1, 1, &once);)
        route(s, step, n);
}

// Whether the experts' sum has memory of its own. Else it is added at once to the residual stream, or a rank's part of it.
static bool sums_apart(const struct cpu_state *s, const struct step *step)
{
    return step->out[0] == BUFFER_EXPERT_SUM && !s->group;
}

struct expert_round experts_begin(struct cpu_state *s, const struct step *step, int n, struct member *me)
{
    const ptrdiff_t dim = s->config->hidden_dim;
    if (sums_apart(s, step))
        for (struct grains tokens; team_claim(me, n, 1, &tokens);)
            memset(s->expert_sum + tokens.first * dim, 0, sizeof(float) * (tokens.last - tokens.first) * dim);
    struct expert_round round = {0};
    for (int e = 0; e < s->config->n_experts; e++) {
        const struct expert_weights *w = &step->weights->experts[e];
        round.unit_types |= (w->gate.data ? type_bit(w->gate.dtype) : 0) | type_bit(w->up.dtype);
        round.down_types |= type_bit(w->down.dtype);
    }
    return round;
}

void experts_gather(struct cpu_state *s, const struct step *step, struct expert_round *round, int i, const float *h,
                    struct member *me)
{
    const ptrdiff_t dim = s->config->hidden_dim;
    const int e = s->chosen_experts[i];
    const bool repeated = i > 0 && e == 0; // beyond the chosen ones
    const int *tokens = s->expert_tokens + (size_t)e * s->chunk;
    round->number = e;
    round->n = repeated ? 0 : s->expert_n[e];
    round->last = s->expert_last[e];
    round->w = &step->weights->experts[e];
    for (struct grains mine; team_claim(me, round->n, 1, &mine);)
        for (ptrdiff_t t = mine.first; t < mine.last; t++)
            memcpy(s->expert_in + t * dim, h + tokens[t] * dim, sizeof(float) * dim);
}

void experts_units(struct cpu_state *s, const struct step *step, const struct expert_round *round, struct member *me)
{
    const struct expert_weights *w = round->w;
    if (step->traits & TRAIT_UNGATED) {
        plain_units(s, &(struct product){&w->up, w->up_bias, s->expert_units}, round->unit_types, step->activation, NULL,
                    s->expert_in, round->n, me);
        return;
    }
    const struct unit_products units = {
        {&w->gate, w->gate_bias, s->expert_units}, &w->up, w->up_bias, round->unit_types, step->activation};
    gated_units(s, &units, s->expert_in, round->n, me);
}

void experts_add(struct cpu_state *s, const struct step *step, const struct expert_round *round, struct member *me)
{
    const struct matrix *down = &round->w->down;
    const ptrdiff_t dim = s->config->hidden_dim;
    const int n = round->n;
    const int *tokens = s->expert_tokens + (size_t)round->number * s->chunk;
    const float *scale = s->expert_scale + (size_t)round->number * s->chunk;
    float *sum = sums_apart(s, step) ? s->expert_sum : cpu_residual(s);
    matmul_pack(s, me, round->down_types, s->expert_units, n, down->cols);
    for (struct grains rows; matmul_claim(s, me, down, n > 0 ? (int)dim : 0, n, &rows);) {
        const int n_rows = rows.last - rows.first;
        const float *branch = matmul_rows_here(s, me, down, round->w->down_bias, rows, s->expert_units, n);
        for (ptrdiff_t i = 0; i < n; i++)
            s->kernels->add_scaled(sum + tokens[i] * dim + rows.first, branch + i * n_rows, scale[i], n_rows);
    }
}
