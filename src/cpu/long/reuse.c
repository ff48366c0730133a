#include "cpu/long/reuse.h"

#include <string.h>

#include "cpu/long/method.h"
#include "cpu/long/selective.h"

static const struct reuse *reuse_of(const struct cpu_state *s)
{
    return &s->method->selective.reuse;
}

static int every(const struct reuse *r) // so many layers
{
    return r->layers > 1 ? r->layers : 1;
}

void reuse_plan(struct cpu_state *s, int first_layer, int layers, int steps)
{
    s->method->selective.reuse = (struct reuse){.layers = layers, .steps = steps, .first_layer = first_layer};
}

static int n_selecting(const struct cpu_state *s) // layers
{
    const int n = s->config->n_layers - reuse_of(s)->first_layer, each = every(reuse_of(s));
    return n / each + (n % each > 0);
}

void reuse_carve_kept(struct cpu_state *s, struct carver *c)
{
    struct reuse *r = &s->method->selective.reuse;
    if (r->steps <= 1)
        return;
    const size_t n = n_selecting(s), heads = n * s->config->n_kv_heads;
    const int k = s->policy->selector->choice(s, r->first_layer, s->kv.span).k;
    r->room = k < s->kv.span ? k : s->kv.span;
    r->next = carve(c, heads, sizeof *r->next);
    r->rows = carve(c, heads * r->room, sizeof *r->rows);
    r->n_rows = carve(c, heads, sizeof *r->n_rows);
    r->alpha = carve(c, n * s->config->n_heads, sizeof *r->alpha);
}

bool reuse_layer(const struct cpu_state *s, int layer)
{
    const struct reuse *r = reuse_of(s);
    return layer > r->first_layer && (layer - r->first_layer) % every(r) != 0;
}

double reuse_scored(const struct cpu_state *s)
{
    const struct reuse *r = reuse_of(s);
    const int n = s->config->n_layers - r->first_layer;
    return n > 0 ? (double)n_selecting(s) / n / (r->steps > 1 ? r->steps : 1) : 0;
}

static size_t head_index(const struct cpu_state *s, int layer, int kv_head)
{
    const struct reuse *r = reuse_of(s);
    return (size_t)((layer - r->first_layer) / every(r)) * s->config->n_kv_heads + kv_head;
}

static bool keeps(const struct cpu_state *s, int layer)
{
    return reuse_of(s)->steps > 1 && layer >= reuse_of(s)->first_layer && !reuse_layer(s, layer);
}

void reuse_append(const struct cpu_state *s, const struct append *row)
{
    if (!keeps(s, row->layer) || row->token > 0)
        return;
    atomic_llong *next = &reuse_of(s)->next[head_index(s, row->layer, row->kv_head)];
    if (atomic_load_explicit(next, memory_order_relaxed) > row->position)
        atomic_store_explicit(next, 0, memory_order_relaxed);
}

bool reuse_step(const struct cpu_state *s, int layer, int kv_head, int64_t position)
{
    const int steps = reuse_of(s)->steps;
    if (!keeps(s, layer) || position % steps == 0)
        return false;
    const int64_t next = atomic_load_explicit(&reuse_of(s)->next[head_index(s, layer, kv_head)], memory_order_relaxed);
    return next > 0 && next <= position && position - next < steps - 1;
}

void reuse_keep(const struct cpu_state *s, int layer, int kv_head, int64_t position)
{
    if (!keeps(s, layer))
        return;
    const struct reuse *r = reuse_of(s);
    const struct selective *t = &s->method->selective;
    const size_t at = head_index(s, layer, kv_head), group = (size_t)cpu_group(s);
    r->n_rows[at] = t->n_rows[kv_head];
    memcpy(r->rows + at * r->room, t->rows + (size_t)kv_head * t->ld, sizeof(int) * t->n_rows[kv_head]);
    memcpy(r->alpha + at * group, t->alpha + (size_t)kv_head * group, sizeof(float) * group);
    atomic_store_explicit(&r->next[at], position + 1, memory_order_relaxed);
}

void reuse_recall(const struct cpu_state *s, int layer, int kv_head, int64_t position)
{
    const struct reuse *r = reuse_of(s);
    const struct selective *t = &s->method->selective;
    const size_t at = head_index(s, layer, kv_head), group = (size_t)cpu_group(s);
    const int64_t next = atomic_load_explicit(&r->next[at], memory_order_relaxed), from = kv_first_visible(&s->kv, position);
    const int moved = (int)(from - kv_first_visible(&s->kv, next - 1)); // what was number `moved` is number 0 now
    const int n_keys = selective_n_keys(s, position), *kept = r->rows + at * r->room;
    int *rows = t->rows + (size_t)kv_head * t->ld, n = 0;
    for (int i = 0; i < r->n_rows[at]; i++)
        if (kept[i] >= moved)
            rows[n++] = kept[i] - moved;
    for (int j = next > from ? (int)(next - from) : 0; j < n_keys; j++)
        rows[n++] = j;
    t->n_rows[kv_head] = n;
    memcpy(t->alpha + (size_t)kv_head * group, r->alpha + at * group, sizeof(float) * group);
}
