#include "cpu/shares.h"

#include <math.h>
#include <string.h>

#include "engine/group.h"

// One member's step: x (n) over all ranks.
static void sum(struct cpu_state *s, const struct step *step, int64_t run, struct member *me, float *x, size_t n)
{
    const struct half_conversion halves = {s->kernels->to_fp16, s->kernels->to_fp32[DTYPE_FP16]};
    for (struct span once; team_claim(me, 1, 1, &once);)
        if (group_sum(s->group, &halves, x, n))
            cpu_stop(s, run, step->layer);
}

void shares_join(struct cpu_state *s, const struct step *step, int64_t run, struct member *me, int n)
{
    if (!s->group)
        return;
    const size_t dim = (size_t)s->config->hidden_dim;
    sum(s, step, run, me, s->branch, (size_t)n * dim);
    for (struct span tokens; team_claim(me, n, 1, &tokens);)
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
    const int all_q = s->config->all_heads * s->config->head_dim, all_kv = all_q / cpu_group(s);
    for (struct span tokens; team_claim(me, n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++) {
            s->squares[2 * t] = sum_of_squares(s->q + t * s->q_dim, s->q_dim);
            s->squares[2 * t + 1] = sum_of_squares(s->k + t * s->kv_dim, s->kv_dim);
        }
    sum(s, step, run, me, s->squares, 2 * (size_t)n);
    for (struct span tokens; team_claim(me, n, 1, &tokens);)
        for (ptrdiff_t t = tokens.first; t < tokens.last; t++) {
            scale_by(s->q + t * s->q_dim, step->weights->q_norm, s->squares[2 * t], s->q_dim, all_q, s->config->norm_eps);
            scale_by(s->k + t * s->kv_dim, step->weights->k_norm, s->squares[2 * t + 1], s->kv_dim, all_kv,
                     s->config->norm_eps);
        }
}

void shares_gather(struct cpu_state *s, struct member *me, float *logits, int n)
{
    if (!s->group)
        return;
    for (struct span once; team_claim(me, 1, 1, &once);)
        group_gather(s->group, s->logits, logits, n, s->weights->embedding.rows);
}
