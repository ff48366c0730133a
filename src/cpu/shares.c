#include "cpu/shares.h"

#include <math.h>
#include <string.h>

#include "engine/group.h"

// One member's step: x (n) over all ranks.
static void sum(struct cpu_state *s, const struct step *step, int64_t run, struct member *me, float *x, size_t n)
{
    const struct half_conversion halves = {s->kernels->to_fp16, s->kernels->to_fp32[DTYPE_FP16]};
    for (struct grains once; team_claim(me, 1, 1, &once);)
        if (group_sum(s->group, &halves, x, n))
            cpu_stop(s, run, step->layer);
}

void shares_join(struct cpu_state *s, const struct step *step, int64_t run, struct member *me, int n)
{
    if (!s->group)
        return;
    const size_t dim = (size_t)s->config->hidden_dim;
    sum(s, step, run, me, s->branch, (size_t)n * dim);
    for (struct grains tokens; team_claim(me, n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++) {
            float *branch = s->branch + (size_t)t * dim;
            if (step->post_norm)
                s->kernels->rmsnorm(branch, branch, step->post_norm, (int)dim, s->config->norm_eps);
            s->kernels->add(s->x + (size_t)t * dim, branch, (int)dim);
            memset(branch, 0, dim * sizeof *branch); // the next block's begins
        }
}

static float sum_of_squares(const float *x, int n)
{
    double total = 0;
    for (int i = 0; i < n; i++)
        total += (double)x[i] * x[i];
    return (float)total;
}

static void scale_by(float *x, const float *weight, float squares, int n, int n_all, float eps)
{
    const double scale = 1.0 / sqrt((double)squares / n_all + (double)eps);
    for (int i = 0; i < n; i++)
        x[i] = (float)(weight[i] * (x[i] * scale));
}

void shares_normalise(struct cpu_state *s, const struct step *step, int64_t run, struct member *me, int n)
{
    const struct cpu_kind *kind = cpu_kind_of(s, step->layer);
    const int all_q = s->config->all_heads * kind->head_dim, q_dim = kind->q_dim;
    const float *q_norm = step->weights->q_norm, *k_norm = step->weights->k_norm;
    const float eps = s->config->norm_eps;
    const int kv_dim = k_norm ? kind->kv_dim : 0; // else another layer's keys are seen
    for (struct grains tokens; team_claim(me, n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++) {
            s->squares[2 * t] = sum_of_squares(s->q + t * q_dim, q_dim);
            s->squares[2 * t + 1] = sum_of_squares(s->k + t * kv_dim, kv_dim);
        }
    sum(s, step, run, me, s->squares, 2 * (size_t)n);
    for (struct grains tokens; team_claim(me, n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++) {
            scale_by(s->q + t * q_dim, q_norm, s->squares[2 * t], q_dim, all_q, eps);
            scale_by(s->k + t * kv_dim, k_norm, s->squares[2 * t + 1], kv_dim, all_q / kind->group, eps);
        }
}

void shares_gather(struct cpu_state *s, struct member *me, float *logits, int n)
{
    if (!s->group)
        return;
    for (struct grains once; team_claim(me, 1, 1, &once);)
        group_gather(s->group, s->logits, logits, n, s->weights->embedding.rows);
}
