#include "cpu/experts.h"

#include <math.h>
#include <string.h>

#include "cpu/matmul.h"

void gated_units(struct cpu_state *s, const struct expert_weights *w, const float *h, int n, int thread)
{
    const int ffn_dim = w->gate.rows;
    matmul_pack(s, thread, h, n, w->gate.cols);
    // The same rows of gate and up: each thread goes on with what it has just computed.
    const struct span rows = team_share(s->team, thread, ffn_dim, 16);
    matmul_rows(s, thread, &(struct product){&w->gate, w->gate_bias, s->gate}, rows, h, n);
    matmul_rows(s, thread, &(struct product){&w->up, w->up_bias, s->up}, rows, h, n);
    for (int t = 0; t < n && rows.first < rows.last; t++) {
        const size_t at = (size_t)t * ffn_dim + rows.first;
        s->kernels->silu_multiply(s->gate + at, s->up + at, rows.last - rows.first);
    }
    team_barrier(s->team);
}

// The n_active largest of a token's router logits (the lower index of equals), in ascending order of index, with the softmax
// over them: the softmax over all, renormalised, is the same.
static void choose_experts(int *chosen, float *weight, const float *logits, int n_experts, int n_active)
{
    int n = 0;
    for (int e = 0; e < n_experts; e++) {
        int rank = 0; // experts that come before e
        for (int other = 0; other < n_experts; other++)
            rank += logits[other] > logits[e] || (logits[other] == logits[e] && other < e);
        if (rank < n_active && n < n_active)
            chosen[n++] = e;
    }
    for (int e = 0; n < n_active; e++) // only where NaN logits compare with nothing
        chosen[n++] = e;
    float max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = fmaxf(max, logits[chosen[i]]);
    for (int i = 0; i < n; i++)
        sum += weight[i] = expf(logits[chosen[i]] - max);
    for (int i = 0; i < n; i++)
        weight[i] /= sum;
}

// Which tokens go to which expert. One thread's work: n * n_experts numbers.
static void route(struct cpu_state *s, int n)
{
    const int n_experts = s->config->n_experts, n_active = s->config->n_active_experts;
    memset(s->expert_n, 0, sizeof *s->expert_n * n_experts);
    for (int t = 0; t < n; t++) {
        int *chosen = s->expert_of + t * n_active;
        float *weight = s->expert_weight + t * n_active;
        choose_experts(chosen, weight, s->router_logits + (size_t)t * n_experts, n_experts, n_active);
        for (int i = 0; i < n_active; i++) {
            const int e = chosen[i], at = s->expert_n[e]++;
            s->expert_tokens[(size_t)e * s->chunk + at] = t;
            s->expert_scale[(size_t)e * s->chunk + at] = weight[i];
        }
    }
}

// x[token] += scale · expert(h[token]) for the tokens of one expert.
static void expert(struct cpu_state *s, const struct expert_weights *w, const int *tokens, const float *scale, int n, int thread)
{
    const int dim = s->config->hidden_dim;
    const struct span mine = team_share(s->team, thread, n, 1);
    for (int i = mine.first; i < mine.last; i++)
        memcpy(s->expert_in + (size_t)i * dim, s->h + (size_t)tokens[i] * dim, sizeof(float) * dim);
    team_barrier(s->team);
    gated_units(s, w, s->expert_in, n, thread);
    matmul_pack(s, thread, s->gate, n, w->down.cols);
    const struct span rows = team_share(s->team, thread, dim, 16);
    matmul_rows(s, thread, &(struct product){&w->down, w->down_bias, s->branch}, rows, s->gate, n);
    for (int i = 0; i < n && rows.first < rows.last; i++)
        s->kernels->add_scaled(s->x + (size_t)tokens[i] * dim + rows.first, s->branch + (size_t)i * dim + rows.first, scale[i],
                               rows.last - rows.first);
    team_barrier(s->team);
}

void experts_block(struct cpu_state *s, const struct layer_weights *w, int n, int thread)
{
    matmul_shared(s, thread, &(struct product){&w->router, NULL, s->router_logits}, 1, s->h, n);
    team_barrier(s->team);
    if (thread == 0)
        route(s, n);
    team_barrier(s->team);
    for (int e = 0; e < s->config->n_experts; e++)
        if (s->expert_n[e] > 0)
            expert(s, &w->experts[e], s->expert_tokens + (size_t)e * s->chunk, s->expert_scale + (size_t)e * s->chunk, s->expert_n[e],
                   thread);
}
