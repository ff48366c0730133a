// The hybrid attention's policy. engine/hybrid.h says what it is, and has its options.

#include "cpu/long/code_runs.h"
#include "cpu/long/method.h"
#include "cpu/long/selective.h"
#include "engine/settings.h"

enum { STEP_BYTES = 3 << 16 }; // what a KV head's further steps cost, in bytes of traffic (measured)

// ------------------------------------------------------------------------------------------ sizes

// Of one position's key and value of one KV head, in the caches.
static double pair_bytes(const struct cpu_state *s)
{
    return 2.0 * cpu_row_traffic(s, s->far->head_dim);
}

// Of one KV head with n keys: codes, keys and values of the selected.
static double selective_bytes(const struct cpu_state *s, int n)
{
    const struct hybrid *h = &s->method->hybrid;
    const double rows = hybrid_selected(h, n);
    return n * code_runs_key_bytes(s) + (rows < n ? rows : n) * pair_bytes(s);
}

static yalm_status hybrid_plan(struct cpu_state *s, const struct backend_plan *plan, yalm_error *error)
{
    yalm_status status = hybrid_resolve(&s->method->hybrid, plan->options, error);
    status = status ?: nomad_open(s, plan, error);
    if (status != YALM_OK)
        return status;
    code_runs_plan(s, s->method->hybrid.codes);
    if (s->method->hybrid.from == 0)
        s->method->hybrid.from = selective_break_even(s, selective_bytes, STEP_BYTES);
    return YALM_OK;
}

static yalm_status hybrid_open(struct cpu_state *s, const struct backend_plan *plan, yalm_error *error)
{
    (void)plan, (void)error;
    code_runs_open(s);
    if (s->method->hybrid.draw != SWITCH_OFF)
        selective_open(s);
    return YALM_OK;
}

static void hybrid_carve_scratch(struct cpu_state *s, struct carver *c, int n_threads)
{
    (void)n_threads;
    code_runs_carve_scratch(s, c);
    selective_carve_scratch(s, c, s->method->hybrid.draw != SWITCH_OFF);
}

// ------------------------------------------------------------------------------------------ attending

static void hybrid_append(struct cpu_state *s, const struct append *row)
{
    cpu_store_key(s, row->layer, row->kv_head, row->slot, row->k);
    cpu_store_value(s, row->layer, row->kv_head, row->slot, row->v);
    code_runs_append(s, row);
}

static struct choice hybrid_choice(const struct cpu_state *s, int layer, int n)
{
    (void)layer;
    const struct hybrid *h = &s->method->hybrid;
    const int k = hybrid_selected(h, n);
    return (struct choice){
        .k = k,
        .first = h->first,
        .local = hybrid_local(h, k),
        .drawn = h->draw != SWITCH_OFF,
    };
}

static bool hybrid_applies(const struct cpu_state *s, int n, int64_t position, int layer)
{
    (void)layer;
    return n == 1 && selective_n_keys(s, position) >= s->method->hybrid.from;
}

static double hybrid_bytes(const struct cpu_state *s, int64_t position)
{
    const int sinks = kv_sinks_apart(s->kv, position) ? s->kv->n_sinks : 0;
    return s->far->n_kv_heads * (selective_bytes(s, selective_n_keys(s, position)) + sinks * pair_bytes(s));
}

static const struct selector selector = {.prepare = code_runs_prepare, .score = code_runs_score, .choice = hybrid_choice};

const struct policy policy_hybrid = {
    .name = "hybrid",
    .method_size = sizeof(struct method),
    .plan = hybrid_plan,
    .carve_kept = code_runs_carve_kept,
    .carve_scratch = hybrid_carve_scratch,
    .open = hybrid_open,
    .close = nomad_close,
    .append = hybrid_append,
    .applies = hybrid_applies,
    .selector = &selector,
    .attend = selective_attend,
    .bytes = hybrid_bytes,
};
