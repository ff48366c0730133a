#include "cpu/attention_parts.h"

#include <math.h>

#include "cpu/attention.h"
#include "util/round.h"

int attention_key_parts(int n_visible)
{
    const int length = (int)round_up((size_t)(n_visible + MAX_KEY_PARTS - 1) / MAX_KEY_PARTS, 64);
    const int part = length < 256 ? 256 : length;
    return (n_visible + part - 1) / part;
}

float *attention_write(struct cpu_state *s, const struct cpu_kind *kind, int kv_head, int first_token, int i, const float *acc,
                       float scale)
{
    const int d = kind->head_dim, group = kind->group;
    float *y = s->attended + (size_t)(first_token + i / group) * kind->q_dim + ((size_t)kv_head * group + i % group) * d;
    for (int c = 0; c < d; c++)
        y[c] = scale * acc[c];
    return y;
}

float *attention_merge_query(struct cpu_state *s, const struct cpu_kind *kind, size_t begin, int n_parts, int n_queries,
                             int kv_head, int first_token, int q, float alpha)
{
    const int d = kind->head_dim;
    const size_t base = (begin + (size_t)kv_head * n_parts) * n_queries + q; // and n_queries further for each part
    float max = -INFINITY, sum = 0;
    for (int part = 0; part < n_parts; part++)
        max = fmaxf(max, s->part_max[base + (size_t)part * n_queries]);
    float *total = s->part_acc + base * d; // part 0's, scaled in place
    for (int part = 0; part < n_parts; part++) {
        const size_t at = base + (size_t)part * n_queries;
        const float scale = s->part_sum[at] > 0 ? expf(s->part_max[at] - max) : 0.0f;
        sum += scale * s->part_sum[at];
        const float *acc = s->part_acc + at * d;
        for (int c = 0; c < d; c++)
            total[c] = part == 0 ? scale * acc[c] : total[c] + scale * acc[c];
    }
    return attention_write(s, kind, kv_head, first_token, q, total, sum > 0 ? alpha / sum : 0.0f);
}

int64_t attention_part_start(int64_t from, int64_t to, int part, int n_parts)
{
    enum { UNIT = 64 };
    const int64_t units = (to - from + UNIT - 1) / UNIT, start = from + units * part / n_parts * UNIT;
    return start < to ? start : to;
}

int attention_run_parts(const struct cpu_kind *kind, int n_visible)
{
    enum { KEYS = 1024, PIECES = 64 };
    const int long_parts = (n_visible + KEYS - 1) / KEYS, wanted = (PIECES + kind->n_kv_heads - 1) / kind->n_kv_heads;
    const int n = long_parts > wanted ? long_parts : wanted, most = attention_key_parts(n_visible);
    return n < most ? n : most;
}

void attention_merge(struct cpu_state *s, int n_parts, int kv_head, int q, float alpha, const float *mean)
{
    float *y = attention_merge_query(s, s->far, 0, n_parts, cpu_group(s), kv_head, 0, q, alpha);
    if (alpha < 1)
        s->kernels->add_scaled(y, mean, 1 - alpha, s->far->head_dim);
}
