#include "cpu/experts.h"

#include <math.h>
#include <string.h>

#include "cpu/matmul.h"
#include "cpu/norms.h"

void gated_units(struct cpu_state *s, const struct expert_weights *w, type_set types, const float *h, int n, struct member *me)
{
    const int ffn_dim = w->gate.rows;
    matmul_pack(s, me, types, h, n, w->gate.cols);
    const int needed = n > 0 ? ffn_dim : 0;
    for (struct span rows; matmul_claim(s, me, &w->gate, needed, n, &rows);) {
        const int n_rows = rows.last - rows.first;
        matmul_rows(s, me, &(struct product){&w->gate, w->gate_bias, s->gate}, rows, h, n);
        const float *up = matmul_rows_here(s, me, &w->up, w->up_bias, rows, h, n);
        for (ptrdiff_t t = 0; t < n; t++)
            s->kernels->activate[s->config->activation](s->gate + t * ffn_dim + rows.first, up + t * n_rows, n_rows);
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

// sum[token] += scale · expert(h[token]) for the n tokens of expert e; steps without items where n = 0.
static void expert(struct cpu_state *s, const struct expert_weights *w, struct expert_types types, int e, int n,
                   struct member *me, struct input_sums *observed, int input)
{
    float *sum = s->expert_sum ? s->expert_sum : cpu_residual(s);
    const int dim = s->config->hidden_dim;
    const int *tokens = s->expert_tokens + (size_t)e * s->chunk;
    const float *scale = s->expert_scale + (size_t)e * s->chunk;
    for (struct span mine; team_claim(me, n, 1, &mine);)
        for (int i = mine.first; i < mine.last; i++)
            memcpy(s->expert_in + (size_t)i * dim, s->h + (size_t)tokens[i] * dim, sizeof(float) * dim);
    matmul_observe(me, observed, input, s->expert_in, n, w->gate.cols);
    gated_units(s, w, types.units, s->expert_in, n, me);
    matmul_observe(me, observed, input + 1, s->gate, n, w->down.cols);
    matmul_pack(s, me, types.down, s->gate, n, w->down.cols);
    const int needed = n > 0 ? dim : 0;
    for (struct span rows; matmul_claim(s, me, &w->down, needed, n, &rows);) {
        const int n_rows = rows.last - rows.first;
        const float *branch = matmul_rows_here(s, me, &w->down, w->down_bias, rows, s->gate, n);
        for (ptrdiff_t i = 0; i < n; i++)
            s->kernels->add_scaled(sum + (size_t)tokens[i] * dim + rows.first, branch + i * n_rows, scale[i], n_rows);
    }
}

// Experts with norms of their own: what they read, and an empty sum. The router has read rmsnorm(x) without weights.
static void begin_sum(struct cpu_state *s, const struct layer_weights *w, int n, struct member *me)
{
    const ptrdiff_t dim = s->config->hidden_dim;
    norm_tokens(s, me, s->h, s->x, w->expert_norm, n);
    for (struct span tokens; team_claim(me, n, 1, &tokens);)
        memset(s->expert_sum + tokens.first * dim, 0, sizeof(float) * (tokens.last - tokens.first) * dim);
}

void experts_block(struct cpu_state *s, const struct layer_weights *w, int n, struct member *me, struct input_sums *observed,
                   int first_input)
{
    const int n_experts = s->config->n_experts;
    const struct expert_types types = types_of(w->experts, n_experts);
    if (w->expert_norm)
        norm_tokens(s, me, s->h, s->x, s->ones, n);
    matmul_shared(s, me, &(struct product){&w->router, w->router_bias, s->router_logits}, 1, s->h, n);
    for (struct span once; team_claim(me, 1, 1, &once);)
        route(s, w, n);
    if (w->expert_norm)
        begin_sum(s, w, n, me);
    // As many rounds as there can be experts with tokens, whatever the routing says: the steps must be the same for all members.
    const int64_t most = (int64_t)n * s->config->n_active_experts;
    for (int i = 0; i < n_experts && i < most; i++) {
        const int e = s->chosen_experts[i];
        const bool repeated = i > 0 && e == 0; // beyond the chosen ones
        expert(s, &w->experts[e], types, e, repeated ? 0 : s->expert_n[e], me, observed, first_input + 2 * e);
    }
    if (w->expert_norm)
        norm_tokens(s, me, s->expert_sum, s->expert_sum, w->expert_post_norm, n);
}
