#include "cpu/hybrid.h"

#include <math.h>

#include "cpu/nomad.h"
#include "cpu/selective.h"
#include "cpu/state.h"
#include "util/error.h"

// Defaults, for quality: 1/32 of the keys and the mean value for the rest stay within a quarter of a per cent of dense attention's perplexity on
// the bundled model (docs/attention.md).
#define SHARE (1.0f / 32)
enum {
    MIN_KEYS = 64,
    FIRST_KEYS = 2,       // of a text: they draw attention whatever they say (attention sinks: Xiao et al., arXiv 2309.17453)
    STEP_BYTES = 1 << 15, // what a KV head's further steps cost, in bytes of traffic (as SparQ's: measured)
};

// ------------------------------------------------------------------------------------------ sizes

static int selected(const struct hybrid *h, int n)
{
    const int k = (int)(h->share * (float)n);
    return k > h->min_k ? k : h->min_k;
}

// Of one position's key and value of one KV head, in the caches.
static double row_bytes(const struct cpu_state *s)
{
    return 2.0 * ((double)(s->config->head_dim * kv_sizes[s->kv_type]) + (s->kv_type == KV_INT8 ? sizeof(float) : 0));
}

// Of one KV head with n keys: codes, keys and values of the selected and of those since the selection, the sums that the mean is made of. On
// average over layers and positions where selections are used again.
static double selective_bytes(const struct cpu_state *s, int n)
{
    const struct hybrid *h = &s->hybrid;
    const int steps = s->selective.reuse.steps;
    const double rows = selected(h, n) + (steps > 1 ? (steps - 1) / 2.0 : 0);
    return reuse_scored(s) * n * (double)nomad_block_bytes(s->nomad.n_sub) / NOMAD_BLOCK +
           (rows < n ? rows : n) * row_bytes(s) + (h->tail ? s->config->head_dim * (double)sizeof(double) : 0);
}

// The shortest length at which reading less makes up for the further steps.
static int break_even(const struct cpu_state *s)
{
    int n = 256;
    while (n < s->kv.span && selective_bytes(s, n) + STEP_BYTES >= row_bytes(s) * n)
        n += 64;
    return n;
}

static yalm_status check(const struct cpu_state *s, const yalm_hybrid *o, yalm_error *error)
{
    if (!(o->ratio >= 0 && o->ratio <= 1))
        return error_set(error, YALM_USAGE, "hybrid ratio: found %g, expected above 0 to 1 (0: chosen)", (double)o->ratio);
    if (!(o->top_p >= 0 && o->top_p <= 1))
        return error_set(error, YALM_USAGE, "hybrid top-p: found %g, expected 0 (off) to 1", (double)o->top_p);
    const struct {
        const char *name;
        int value;
    } numbers[] = {{"min k", o->min_k},
                   {"local", o->local},
                   {"from", o->from},
                   {"reuse layers", o->reuse_layers},
                   {"reuse steps", o->reuse_steps}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value < 0)
            return error_set(error, YALM_USAGE, "hybrid %s: found %d, expected 1 or more (0: chosen)", numbers[i].name,
                             numbers[i].value);
    if (o->dense_layers < 0 || o->dense_layers > s->config->n_layers)
        return error_set(error, YALM_USAGE, "hybrid dense layers: found %d, expected 0 to the model's %d", o->dense_layers,
                         s->config->n_layers);
    if (o->tail < YALM_AUTO || o->tail > YALM_OFF)
        return error_set(error, YALM_USAGE, "hybrid tail: found %d, expected auto, on or off", (int)o->tail);
    return YALM_OK;
}

static yalm_status hybrid_plan(struct cpu_state *s, const struct backend_plan *plan, yalm_error *error)
{
    const yalm_hybrid *o = &plan->options->hybrid;
    yalm_status status = check(s, o, error);
    if (status == YALM_OK)
        status = nomad_open(s, plan, error);
    if (status != YALM_OK)
        return status;
    s->hybrid = (struct hybrid){
        .share = o->ratio > 0 ? o->ratio : SHARE,
        .min_k = o->min_k ? o->min_k : MIN_KEYS,
        .local = o->local,
        .first = FIRST_KEYS,
        .mass = o->top_p,
        .tail = o->tail != YALM_OFF,
        .first_layer = o->dense_layers,
    };
    reuse_plan(s, o->dense_layers, o->reuse_layers, o->reuse_steps);
    s->hybrid.from = o->from ? o->from : break_even(s);
    return YALM_OK;
}

static void hybrid_carve_kept(struct cpu_state *s, struct carver *c)
{
    nomad_carve_codes(s, c);
    if (s->hybrid.tail)
        selective_carve_kept(s, c);
    reuse_carve_kept(s, c);
}

static void hybrid_carve_scratch(struct cpu_state *s, struct carver *c, int n_threads)
{
    (void)n_threads;
    nomad_carve_tables(s, c);
    selective_carve_scratch(s, c);
}

// ------------------------------------------------------------------------------------------ attending

static void hybrid_append(struct cpu_state *s, const struct append *row)
{
    cpu_store_key(s, row->layer, row->kv_head, row->slot, row->k);
    if (!reuse_layer(s, row->layer)) // it never scores
        nomad_append_key(s, row);
    reuse_append(s, row);
    value_sums_append(s, &s->selective.sums, row);
}

static void hybrid_score(const struct cpu_state *s, int layer, int kv_head, int64_t position, int slot, int n, float *scores,
                         ptrdiff_t ld)
{
    (void)position;
    nomad_score(s, layer, kv_head, slot, n, scores, ld);
}

static struct choice hybrid_choice(const struct cpu_state *s, int layer, int n)
{
    (void)layer;
    const struct hybrid *h = &s->hybrid;
    const int k = selected(h, n);
    return (struct choice){
        .k = k,
        .first = h->first,
        .local = h->local ? h->local : k / 4,
        .mass = h->mass,
        .least = h->min_k / 2,
        .tail = h->tail,
    };
}

static bool hybrid_applies(const struct cpu_state *s, int n, int64_t position, int layer)
{
    return n == 1 && layer >= s->hybrid.first_layer && selective_n_keys(s, position) >= s->hybrid.from;
}

static double hybrid_bytes(const struct cpu_state *s, int64_t position)
{
    const int sinks = kv_sinks_apart(&s->kv, position) ? s->kv.n_sinks : 0;
    return s->config->n_kv_heads * (selective_bytes(s, selective_n_keys(s, position)) + sinks * row_bytes(s));
}

static const struct selector selector = {.prepare = nomad_prepare, .score = hybrid_score, .choice = hybrid_choice};

const struct policy policy_hybrid = {
    .name = "hybrid",
    .plan = hybrid_plan,
    .carve_kept = hybrid_carve_kept,
    .carve_scratch = hybrid_carve_scratch,
    .close = nomad_close,
    .append = hybrid_append,
    .applies = hybrid_applies,
    .selector = &selector,
    .attend = selective_attend,
    .bytes = hybrid_bytes,
};
