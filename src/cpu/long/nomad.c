// NoMAD's policy: one token's attention from codes. Its steps are
//
//     prepare  (kv_head)        the tables of the queries
//     score    (kv_head, part)  scores of all keys; of each part max and sum of e^(score - max)
//     values   (kv_head, part)  Σ e^(score - max) v with the maximum over all keys, which is known by now. Rows with a
//                               probability below skip / n_keys in all heads of the group, at most `skip` in all, are not read
//     merge    (head)
//
// Where KV heads can be shared out evenly, a member takes each of its own through the first three steps. It has one place for
// the scores of all of them, so they stay in its cache, and nobody waits between the steps. The parts are the same, and so are
// the results.
//
// Attention sinks that stand apart (kv_cache.h) are scored by their decoded keys, and always read.

#include "cpu/long/nomad_codes.h"

#include <math.h>
#include <string.h>

#include "cpu/attention.h"
#include "cpu/kernels/sparse.h"
#include "cpu/long/method.h"
#include "engine/settings.h"
#include "util/error.h"
#include "util/round.h"

// Keys in a part. Each part begins without anything fetched ahead, so long ones are better (measured; docs/attention.md), as
// long as all KV heads together have some 64 parts to share out.
enum { PARTS_WANTED = 64, SCORES_LEAST = 1024, SCORES_MOST = 4096, VALUES_LEAST = 256, VALUES_MOST = 2048 };

static int clamp(int64_t x, int least, int most)
{
    return x < least ? least : x > most ? most : (int)x;
}

static int part_count(const struct cpu_state *s, int n_keys, int least, int most)
{
    const int length = clamp((int64_t)n_keys * s->far->n_kv_heads / PARTS_WANTED, least, most);
    return clamp((n_keys + length - 1) / length, 1, MAX_KEY_PARTS);
}

// Within the room of attention's partial results.
static int value_part_count(const struct cpu_state *s, int n_keys)
{
    const int n = part_count(s, n_keys, VALUES_LEAST, VALUES_MOST), most = attention_key_parts(n_keys);
    return n < most ? n : most;
}

static int n_visible(const struct cpu_state *s, int64_t position) // the sinks apart are not among them
{
    return (int)(position + 1 - kv_first_visible(s->kv, position));
}

// ------------------------------------------------------------------------------------------ memory

static yalm_status nomad_plan(struct cpu_state *s, const struct backend_plan *plan, yalm_error *error)
{
    struct settings settings;
    const yalm_status status = settings_read(&settings, plan->options, error);
    if (status != YALM_OK)
        return status;
    s->method->nomad.skip = settings.nomad.skip;
    return nomad_open(s, plan, error);
}

static void nomad_carve_scratch(struct cpu_state *s, struct carver *c, int n_threads)
{
    (void)n_threads;
    struct nomad *m = &s->method->nomad;
    const size_t n_heads = s->config->n_heads;
    nomad_carve_tables(s, c);
    m->ld = (ptrdiff_t)round_up((size_t)s->kv->span + NOMAD_BLOCK, 16); // each row begins a cache line
    m->parts = part_count(s, s->kv->span, SCORES_LEAST, SCORES_LEAST);  // as many as any length has
    m->scores = carve(c, n_heads * m->ld, sizeof(float));
    m->part_max = carve(c, n_heads * m->parts, sizeof(float));
    m->part_sum = carve(c, n_heads * m->parts, sizeof(float));
    m->sink_scores = carve(c, n_heads * (s->kv->n_sinks + 1), sizeof(float));
}

static void nomad_append(struct cpu_state *s, const struct append *row)
{
    nomad_append_key(s, row);
    cpu_store_value(s, row->layer, row->kv_head, row->slot, row->v);
}

static void nomad_decode_keys(const struct cpu_state *s, int layer, int kv_head, int slot, int n, void *to, float *scales)
{
    const int d = s->far->head_dim;
    if (s->kv_type == KV_FP32) {
        nomad_decode(s, layer, kv_head, slot, n, to);
        return;
    }
    float keys[NOMAD_BLOCK * NOMAD_DIMS];
    for (int done = 0, piece; done < n; done += piece) {
        piece = NOMAD_BLOCK - (slot + done) % NOMAD_BLOCK;
        piece = piece < n - done ? piece : n - done;
        nomad_decode(s, layer, kv_head, slot + done, piece, keys);
        if (s->kv_type == KV_FP16)
            s->kernels->to_fp16((uint16_t *)to + (size_t)done * d, keys, piece * d);
        for (int j = 0; j < piece && s->kv_type == KV_INT8; j++)
            scales[done + j] = s->kernels->to_int8((int8_t *)to + (size_t)(done + j) * d, keys + (size_t)j * d, d);
    }
}

static bool nomad_applies(const struct cpu_state *s, int n, int64_t position, int layer)
{
    (void)s, (void)position, (void)layer;
    return n == 1;
}

static double nomad_bytes(const struct cpu_state *s, int64_t position)
{
    const double value = cpu_row_traffic(s, s->far->head_dim);
    const double codes = (double)nomad_block_bytes(s->method->nomad.n_sub) / NOMAD_BLOCK;
    const int sinks = kv_sinks_apart(s->kv, position) ? s->kv->n_sinks : 0;
    return s->far->n_kv_heads * (n_visible(s, position) + sinks) * (codes + value);
}

// ------------------------------------------------------------------------------------------ attending

// One token's attention in one layer: arguments that every member has.
struct nomad_pass {
    struct cpu_state *s;
    const struct step *step;
    int layer;
    int64_t from;                 // the oldest position that it sees
    int n_keys, n_sinks, n_apart; // n_apart: sinks, and a logit without a key
    int n_parts, n_value_parts;
    int place; // of the scores of this member where it takes whole KV heads; else −1: each KV head's have their own
};

// In which head's place the scores of a KV head's first query are.
static size_t place_of(const struct nomad_pass *p, int kv_head)
{
    return (size_t)(p->place < 0 ? kv_head : p->place) * cpu_group(p->s);
}

static float *sink_scores_of(const struct nomad_pass *p, size_t head)
{
    return p->s->method->nomad.sink_scores + head * (p->s->kv->n_sinks + 1);
}

// And behind them the logit without a key.
static void score_sinks(const struct nomad_pass *p, int kv_head)
{
    const struct cpu_state *s = p->s;
    const int d = s->far->head_dim, group = cpu_group(s);
    float key[NOMAD_DIMS];
    for (int sink = 0; sink < p->n_sinks; sink++) {
        nomad_decode(s, p->layer, kv_head, sink, 1, key);
        for (int i = 0; i < group; i++) {
            const float *q = cpu_rotated_query(s, s->sink_q, kv_head) + (size_t)i * d;
            double sum = 0;
            for (int c = 0; c < d; c++)
                sum += (double)q[c] * (double)key[c];
            sink_scores_of(p, place_of(p, kv_head) + i)[sink] = (float)sum;
        }
    }
    for (int i = 0; i < group && p->step->number > 0; i++)
        s->kernels->softcap(sink_scores_of(p, place_of(p, kv_head) + i), p->step->number, p->n_sinks);
    for (int i = 0; i < group && p->n_apart > p->n_sinks; i++)
        sink_scores_of(p, place_of(p, kv_head) + i)[p->n_sinks] = p->step->weights->sink_logits[kv_head * group + i];
}

static int part_begin(int n_keys, int part, int n_parts) // multiples of 64, but for the end
{
    const int64_t begin = ((int64_t)n_keys * part / n_parts + 63) / 64 * 64;
    return begin < n_keys ? (int)begin : n_keys;
}

static void score_part(const struct nomad_pass *p, int kv_head, int part)
{
    const struct cpu_state *s = p->s;
    const struct nomad *m = &s->method->nomad;
    const int group = cpu_group(s), first = part_begin(p->n_keys, part, p->n_parts),
              last = part_begin(p->n_keys, part + 1, p->n_parts);
    const size_t head = place_of(p, kv_head);
    if (part == 0)
        score_sinks(p, kv_head);
    for (int at = first, n; at < last; at += n) {
        n = (int)(kv_run_end(s->kv, p->from + at, p->from + last) - p->from) - at;
        nomad_score(s, p->layer, kv_head, kv_slot(s->kv, p->from + at), n, m->scores + head * m->ld + at, m->ld);
    }
    for (int i = 0; i < group; i++) {
        float *max = &m->part_max[(head + i) * m->parts + part], *sum = &m->part_sum[(head + i) * m->parts + part];
        *max = -INFINITY;
        *sum = 0;
        if (p->step->number > 0)
            s->kernels->softcap(m->scores + (head + i) * m->ld + first, p->step->number, last - first);
        s->kernels->sparse->softmax_stats(m->scores + (head + i) * m->ld + first, last - first, max, sum);
    }
}

// Of all of a head's scores.
static void merge_stats(const struct nomad_pass *p, size_t head, float *max, float *sum)
{
    const struct nomad *m = &p->s->method->nomad;
    *max = -INFINITY;
    for (int part = 0; part < p->n_parts; part++)
        *max = fmaxf(*max, m->part_max[head * m->parts + part]);
    double total = 0;
    for (int part = 0; part < p->n_parts; part++)
        if (m->part_sum[head * m->parts + part] > 0)
            total += (double)m->part_sum[head * m->parts + part] * exp((double)(m->part_max[head * m->parts + part] - *max));
    *sum = (float)total;
    if (p->n_apart > 0)
        p->s->kernels->sparse->softmax_stats(sink_scores_of(p, head), p->n_apart, max, sum);
}

// Values of consecutive slots, for some of the group's queries, from `head` on.
static void add_values(const struct nomad_pass *p, struct nomad_value_args args, int kv_head, int slot)
{
    const struct cpu_state *s = p->s;
    const float *scales = cpu_value_scales(s, p->layer, kv_head);
    const size_t at = (size_t)slot * s->far->head_dim * kv_sizes[s->kv_type];
    args.v = (const uint8_t *)cpu_values(s, p->layer, kv_head) + at;
    args.v_scales = scales ? scales + slot : NULL;
    args.head_dim = s->far->head_dim;
    s->method->nomad.kernels->values[s->kv_type](&args);
}

// Queries [query, query + n) of one KV head against one part of the values.
static void add_part(const struct nomad_pass *p, int kv_head, int part, int query, int n, void *scratch)
{
    enum { AT_ONCE = 8 }; // queries that the kernel takes
    struct cpu_state *s = p->s;
    const struct nomad *m = &s->method->nomad;
    const int d = s->far->head_dim, group = cpu_group(s);
    const size_t head = place_of(p, kv_head) + query;
    const size_t at_part = ((size_t)kv_head * p->n_value_parts + part) * group + query;
    float *max = s->part_max + at_part, inverse_least[AT_ONCE];
    for (int i = 0; i < n; i++) {
        float sum;
        merge_stats(p, head + i, &max[i], &sum);
        inverse_least[i] = (float)(p->n_keys + p->n_sinks) / (m->skip * sum);
    }
    struct nomad_value_args args = {.acc = s->part_acc + at_part * d,
                                    .sum = s->part_sum + at_part,
                                    .max = max,
                                    .n_queries = n,
                                    .fetching = s->fetching,
                                    .scratch = scratch};
    memset(args.acc, 0, sizeof(float) * n * d);
    memset(args.sum, 0, sizeof(float) * n);
    for (int i = 0; i < n && part == 0 && p->n_apart > p->n_sinks; i++) // whose value is 0
        args.sum[i] = expf(sink_scores_of(p, head + i)[p->n_sinks] - max[i]);
    if (part == 0 && p->n_sinks > 0) {
        args.scores = sink_scores_of(p, head);
        args.ld = s->kv->n_sinks + 1;
        args.n_keys = p->n_sinks;
        add_values(p, args, kv_head, 0);
    }
    args.inverse_least = m->skip > 0 ? inverse_least : NULL;
    args.ld = m->ld;
    const int last = part_begin(p->n_keys, part + 1, p->n_value_parts);
    for (int at = part_begin(p->n_keys, part, p->n_value_parts); at < last; at += args.n_keys) {
        args.n_keys = (int)(kv_run_end(s->kv, p->from + at, p->from + last) - p->from) - at;
        args.scores = m->scores + head * m->ld + at;
        add_values(p, args, kv_head, kv_slot(s->kv, p->from + at));
    }
}

static void attend_part(const struct nomad_pass *p, int kv_head, int part, const struct member *me)
{
    enum { AT_ONCE = 8 };
    const int group = cpu_group(p->s);
    void *scratch = cpu_own(p->s, p->s->attend_scratch, me->thread);
    for (int query = 0; query < group; query += AT_ONCE)
        add_part(p, kv_head, part, query, group - query < AT_ONCE ? group - query : AT_ONCE, scratch);
}

static void attend_by_heads(const struct nomad_pass *p, struct member *me)
{
    struct cpu_state *s = p->s;
    for (struct grains span; team_claim_share(me, s->far->n_kv_heads, 1, &span);)
        for (int i = span.first; i < span.last; i++) {
            nomad_prepare(s, p->layer, i, cpu_rotated_query(s, s->rotated_q, i));
            for (int part = 0; part < p->n_parts; part++)
                score_part(p, i, part);
            for (int part = 0; part < p->n_value_parts; part++)
                attend_part(p, i, part, me);
        }
}

// The same steps, each shared among all members.
static void attend_by_parts(const struct nomad_pass *p, struct member *me)
{
    struct cpu_state *s = p->s;
    const int n_kv_heads = s->far->n_kv_heads;
    struct grains span;
    while (team_claim_share(me, n_kv_heads, 1, &span))
        for (int i = span.first; i < span.last; i++)
            nomad_prepare(s, p->layer, i, cpu_rotated_query(s, s->rotated_q, i));
    while (team_claim_share(me, n_kv_heads * p->n_parts, 1, &span))
        for (int i = span.first; i < span.last; i++)
            score_part(p, i / p->n_parts, i % p->n_parts);
    while (team_claim_share(me, n_kv_heads * p->n_value_parts, 1, &span))
        for (int i = span.first; i < span.last; i++)
            attend_part(p, i / p->n_value_parts, i % p->n_value_parts, me);
}

static void nomad_attend(struct cpu_state *s, const struct batch *batch, const struct step *step, struct member *me)
{
    const int group = cpu_group(s);
    struct nomad_pass p = {.s = s, .step = step, .layer = step->layer, .from = kv_first_visible(s->kv, batch->position)};
    p.n_keys = n_visible(s, batch->position);
    p.n_sinks = kv_sinks_apart(s->kv, batch->position) ? s->kv->n_sinks : 0;
    p.n_apart = p.n_sinks + (step->weights->sink_logits != NULL);
    p.n_parts = part_count(s, p.n_keys, SCORES_LEAST, SCORES_MOST);
    p.n_value_parts = value_part_count(s, p.n_keys);
    p.place = team_shares_evenly(me, s->far->n_kv_heads) ? team_share(me, s->far->n_kv_heads, 1) : -1;
    if (p.place >= 0)
        attend_by_heads(&p, me);
    else
        attend_by_parts(&p, me);
    for (struct grains span; team_claim_share(me, s->config->n_heads, 4, &span);)
        for (int i = span.first; i < span.last; i++)
            attention_merge(s, p.n_value_parts, i / group, i % group, 1, NULL);
}

const struct policy policy_nomad = {
    .name = "nomad",
    .method_size = sizeof(struct method),
    .plan = nomad_plan,
    .carve_kept = nomad_carve_codes,
    .carve_scratch = nomad_carve_scratch,
    .close = nomad_close,
    .append = nomad_append,
    .decode_keys = nomad_decode_keys,
    .applies = nomad_applies,
    .attend = nomad_attend,
    .bytes = nomad_bytes,
};
