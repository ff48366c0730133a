#include "cpu/long/selective.h"

#include <math.h>
#include <string.h>

#include "cpu/attention.h"
#include "cpu/long/method.h"
#include "cpu/long/priority.h"
#include "cpu/long/select.h"
#include "util/round.h"

enum {
    PART_KEYS = 4096, // a part of the scores is at least so long: each begins without anything fetched
    AT_ONCE = 8,      // queries of a group
};

int selective_n_keys(const struct cpu_state *s, int64_t position)
{
    return (int)(position + 1 - kv_first_visible(s->kv, position));
}

int selective_break_even(const struct cpu_state *s, double (*bytes)(const struct cpu_state *s, int n), double step_bytes)
{
    const double row = 2.0 * cpu_row_traffic(s, s->far->head_dim);
    int n = 256;
    while (n <= s->kv->span && bytes(s, n) + step_bytes >= row * n)
        n += 64;
    return n;
}

static bool grouped(const struct cpu_state *s) // several queries select together, by the sum of their weights
{
    return cpu_group(s) > 1;
}

static int part_count(int n_keys)
{
    const int n = (n_keys + PART_KEYS - 1) / PART_KEYS;
    return n < MAX_KEY_PARTS ? n : MAX_KEY_PARTS;
}

void selective_carve_kept(struct cpu_state *s, struct carver *c)
{
    const size_t heads = (size_t)s->far_layers * s->far->n_kv_heads;
    s->method->selective.sums.sums = carve(c, heads * s->far->head_dim, sizeof(double));
    s->method->selective.sums.covered = carve(c, heads * 2, sizeof(int64_t));
}

void selective_carve_scratch(struct cpu_state *s, struct carver *c, bool drawn)
{
    struct selective *t = &s->method->selective;
    const size_t n_heads = s->config->n_heads, n_kv_heads = s->far->n_kv_heads;
    t->blocks = (s->kv->span + SELECTIVE_BLOCK - 1) / SELECTIVE_BLOCK;
    t->ld = (ptrdiff_t)round_up((size_t)s->kv->span + 16, 16); // whole vectors may be written, and each row begins a cache line
    t->parts = part_count(s->kv->span);
    t->scores = carve(c, n_heads * t->ld, sizeof(float));
    t->part_max = carve(c, n_heads * t->parts, sizeof(float));
    t->part_sum = carve(c, n_heads * t->parts, sizeof(float));
    t->sink_scores = carve(c, n_heads * (s->kv->n_sinks + 1), sizeof(float));
    if (grouped(s)) {
        t->bases = carve(c, n_heads * t->blocks, sizeof(float));
        t->weights = carve(c, n_kv_heads * t->ld, sizeof(float));
    }
    if (drawn) {
        t->lifts = carve(c, t->ld + PRIORITY_PHASES, sizeof(float));
        t->bias = carve(c, n_kv_heads * t->ld, sizeof(float));
    }
    t->rows = carve(c, n_kv_heads * t->ld, sizeof(int));
    t->values = carve(c, n_kv_heads * t->ld, sizeof(float));
    t->n_rows = carve(c, n_kv_heads, sizeof(int));
    t->alpha = carve(c, n_heads, sizeof(float));
    t->mean = carve(c, n_kv_heads * s->far->head_dim, sizeof(float));
}

void selective_open(struct cpu_state *s)
{
    struct selective *t = &s->method->selective;
    priority_lifts(t->lifts, (int)t->ld, !grouped(s));
}

// One token's attention in one layer: arguments that every member has.
struct selective_pass {
    struct cpu_state *s;
    const struct step *step;
    int layer;
    int64_t position, from; // of the token; of key 0
    int n_keys, n_parts;
    int n_sinks, n_apart; // sinks apart; these, and a logit without a key
    int place; // of the scores of this member where it takes whole KV heads; else −1: each KV head's have their own
    struct choice choice;
};

// In which KV head's place its scores, weights and candidates are; times the group, in which head's.
static size_t place_of(const struct selective_pass *p, int kv_head)
{
    return (size_t)(p->place < 0 ? kv_head : p->place);
}

// Of a method that draws keys: by which a KV head's weights are lifted, by number.
static const float *lifts_of(const struct selective_pass *p, int kv_head)
{
    return p->s->method->selective.lifts +
           priority_phase(config_head_number(p->s->config, cpu_far_place(p->s, p->layer), kv_head));
}

static float capped(const struct selective_pass *p, double score)
{
    const double cap = p->step->number;
    return (float)(cap > 0 ? cap * tanh(score / cap) : score);
}

static float *sink_scores_of(const struct selective_pass *p, size_t head)
{
    return p->s->method->selective.sink_scores + head * (p->s->kv->n_sinks + 1);
}

// Exact scores of the sinks, and behind them the logit without a key.
static void score_sinks(const struct selective_pass *p, int kv_head)
{
    const struct cpu_state *s = p->s;
    const int d = s->far->head_dim, group = cpu_group(s);
    float key[SELECTIVE_DIMS];
    for (int sink = 0; sink < p->n_sinks; sink++) {
        cpu_load_key(s, p->layer, kv_head, sink, key);
        for (int i = 0; i < group; i++) {
            const float *q = cpu_rotated_query(s, s->sink_q, kv_head) + (size_t)i * d;
            double sum = 0;
            for (int c = 0; c < d; c++)
                sum += (double)q[c] * (double)key[c];
            sink_scores_of(p, place_of(p, kv_head) * group + i)[sink] = capped(p, sum);
        }
    }
    for (int i = 0; i < group && p->n_apart > p->n_sinks; i++)
        sink_scores_of(p, place_of(p, kv_head) * group + i)[p->n_sinks] = p->step->weights->sink_logits[kv_head * group + i];
}

static int part_begin(const struct selective_pass *p, int part) // multiples of SELECTIVE_BLOCK, but for the end
{
    const int64_t begin = ((int64_t)p->n_keys * part / p->n_parts + SELECTIVE_BLOCK - 1) / SELECTIVE_BLOCK * SELECTIVE_BLOCK;
    return begin < p->n_keys ? (int)begin : p->n_keys;
}

// Of keys [first, last): in two runs where the ring begins again between them.
static void score_keys(const struct selective_pass *p, int kv_head, int first, int last)
{
    const struct cpu_state *s = p->s;
    const struct selective *t = &s->method->selective;
    float *scores = t->scores + place_of(p, kv_head) * cpu_group(s) * t->ld;
    for (int at = first, n; at < last; at += n) {
        n = (int)(kv_run_end(s->kv, p->from + at, p->from + last) - p->from) - at;
        s->policy->selector->score(s, p->layer, kv_head, p->position, kv_slot(s->kv, p->from + at), n, scores + at, t->ld);
    }
    for (int i = 0; i < cpu_group(s) && p->step->number > 0; i++)
        s->kernels->softcap(scores + i * t->ld + first, p->step->number, last - first);
}

// The part's maximum and sum, of all its blocks so far, and, where the group's weights are wanted, the exponentials in place of
// the scores.
static void block_stats(const struct selective_pass *p, size_t head, int part, int first, int n)
{
    const struct selective *t = &p->s->method->selective;
    const struct sparse_kernels *kernels = p->s->kernels->sparse;
    float *scores = t->scores + head * t->ld + first;
    float *max = &t->part_max[head * t->parts + part], *sum = &t->part_sum[head * t->parts + part];
    if (!grouped(p->s)) {
        kernels->softmax_stats(scores, n, max, sum);
        return;
    }
    kernels->softmax_keep(scores, n, max, sum);
    t->bases[head * t->blocks + first / SELECTIVE_BLOCK] = *max;
}

static void score_part(const struct selective_pass *p, int kv_head, int part)
{
    const struct cpu_state *s = p->s;
    const struct selective *t = &s->method->selective;
    const int group = cpu_group(s), last = part_begin(p, part + 1);
    const size_t head = place_of(p, kv_head) * group;
    const bool stats = p->choice.tail || grouped(s);
    for (int i = 0; i < group; i++) {
        t->part_max[(head + i) * t->parts + part] = -INFINITY;
        t->part_sum[(head + i) * t->parts + part] = 0;
    }
    if (part == 0 && p->n_apart > 0)
        score_sinks(p, kv_head);
    for (int at = part_begin(p, part), n; at < last; at += n) {
        n = !stats || last - at < SELECTIVE_BLOCK ? last - at : SELECTIVE_BLOCK;
        score_keys(p, kv_head, at, at + n);
        for (int i = 0; stats && i < group; i++)
            block_stats(p, head + i, part, at, n);
        if (p->choice.drawn && !grouped(s))
            s->kernels->add(t->scores + head * t->ld + at, lifts_of(p, kv_head) + at, n);
    }
}

// Of all of a head's approximate scores.
static void merge_stats(const struct selective_pass *p, size_t head, float *max, float *sum)
{
    const struct selective *t = &p->s->method->selective;
    *max = -INFINITY;
    for (int part = 0; part < p->n_parts; part++)
        *max = fmaxf(*max, t->part_max[head * t->parts + part]);
    double total = 0;
    for (int part = 0; part < p->n_parts; part++)
        if (t->part_sum[head * t->parts + part] > 0)
            total += (double)t->part_sum[head * t->parts + part] * (double)expf(t->part_max[head * t->parts + part] - *max);
    *sum = (float)total;
    if (p->n_apart > 0)
        p->s->kernels->sparse->softmax_stats(sink_scores_of(p, head), p->n_apart, max, sum);
}

// By which the exponentials of a block become weights ŝ, given the head's maximum and sum; 0 where nothing in the block counts.
static float block_factor(const struct selective_pass *p, size_t head, int first, float max, float sum)
{
    const float base = p->s->method->selective.bases[head * p->s->method->selective.blocks + first / SELECTIVE_BLOCK];
    return base > -INFINITY ? expf(base - max) / sum : 0;
}

static void weigh_part(const struct selective_pass *p, int kv_head, int part)
{
    const struct cpu_state *s = p->s;
    const struct selective *t = &s->method->selective;
    const int group = cpu_group(s), first = part_begin(p, part), last = part_begin(p, part + 1);
    const size_t head = place_of(p, kv_head) * group;
    float max[AT_ONCE], sum[AT_ONCE], factor[AT_ONCE];
    for (int i = 0; i < group; i += AT_ONCE) {
        const int m = group - i < AT_ONCE ? group - i : AT_ONCE;
        for (int j = 0; j < m; j++)
            merge_stats(p, head + i + j, &max[j], &sum[j]);
        // Beyond eight queries: into `values`, which nobody needs yet, and added.
        float *w = t->weights + place_of(p, kv_head) * t->ld, *to = i == 0 ? w : t->values + place_of(p, kv_head) * t->ld;
        for (int at = first, n; at < last; at += n) {
            n = last - at < SELECTIVE_BLOCK ? last - at : SELECTIVE_BLOCK;
            for (int j = 0; j < m; j++)
                factor[j] = block_factor(p, head + i + j, at, max[j], sum[j]);
            s->kernels->sparse->weighted_sum(to + at, t->scores + (head + i) * t->ld + at, t->ld, m, n, factor);
        }
        if (i > 0)
            s->kernels->add(w + first, to + first, last - first);
    }
    float *w = t->weights + place_of(p, kv_head) * t->ld;
    const float *lifts = p->choice.drawn ? lifts_of(p, kv_head) : NULL;
    for (int j = first; lifts && j < last; j++)
        w[j] *= lifts[j];
}

// The first of n ascending rows that is at least `least`.
static int first_from(const int *rows, int n, int least)
{
    int low = 0;
    for (int high = n; low < high;) {
        const int middle = low + (high - low) / 2;
        if (rows[middle] < least)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// share[i] = which share of ŝ the selected keys have, for n_queries queries from `head` on with these maxima and sums: of a
// group's kept exponentials, block by block.
static void kept_shares(const struct selective_pass *p, size_t head, int n_queries, const int *rows, int n, const float *max,
                        const float *sum, float *share)
{
    const struct selective *t = &p->s->method->selective;
    for (int i = 0; i < n_queries; i++)
        share[i] = 0;
    for (int at = 0, m; at < n; at += m) {
        const int first = rows[at] / SELECTIVE_BLOCK * SELECTIVE_BLOCK;
        m = first_from(rows + at, n - at < SELECTIVE_BLOCK ? n - at : SELECTIVE_BLOCK, first + SELECTIVE_BLOCK);
        for (int i = 0; i < n_queries; i++)
            share[i] += block_factor(p, head + i, first, max[i], sum[i]) *
                        p->s->kernels->sparse->sum_at(t->scores + (head + i) * t->ld, rows + at, m);
    }
}

// Of one head, given its maximum and sum: from scores. scratch: (n)
static float scored_share(const struct selective_pass *p, size_t head, const int *rows, int n, float max, float sum,
                          float *scratch)
{
    const struct selective *t = &p->s->method->selective;
    const float *scores = t->scores + head * t->ld;
    float selected_max = -INFINITY, selected_sum = 0;
    for (int i = 0; i < n; i++)
        scratch[i] = scores[rows[i]];
    p->s->kernels->sparse->softmax_stats(scratch, n, &selected_max, &selected_sum);
    return expf(selected_max - max) * selected_sum / sum;
}

// The share that the sinks have, and the logit without a key.
static float sinks_share(const struct selective_pass *p, size_t head, float max, float sum)
{
    const struct cpu_state *s = p->s;
    float sink_max = -INFINITY, sink_sum = 0;
    if (p->n_apart == 0)
        return 0;
    s->kernels->sparse->softmax_stats(sink_scores_of(p, head), p->n_apart, &sink_max, &sink_sum);
    return expf(sink_max - max) * sink_sum / sum;
}

// α of a KV head's queries: which share of ŝ the selected keys and the sinks have. scratch: (n)
static void selected_shares(const struct selective_pass *p, int kv_head, const int *rows, int n, float *scratch)
{
    const int group = cpu_group(p->s);
    const size_t first = place_of(p, kv_head) * group;
    float *alpha = p->s->method->selective.alpha + (size_t)kv_head * group, max[AT_ONCE], sum[AT_ONCE];
    for (int i = 0; i < group; i += AT_ONCE) {
        const int m = group - i < AT_ONCE ? group - i : AT_ONCE;
        for (int j = 0; j < m; j++)
            merge_stats(p, first + i + j, &max[j], &sum[j]);
        if (grouped(p->s))
            kept_shares(p, first + i, m, rows, n, max, sum, alpha + i);
        else
            alpha[0] = scored_share(p, first, rows, n, max[0], sum[0], scratch);
        for (int j = 0; j < m; j++) {
            const float share = alpha[i + j] + sinks_share(p, first + i + j, max[j], sum[j]);
            alpha[i + j] = share < 1 ? share : 1;
        }
    }
}

// Of keys [first, last), which are not always taken, k are drawn; bias: what each of them stands for.
static void draw_keys(const struct selective_pass *p, int kv_head, struct candidates *c, const float *x, int first, int last,
                      int k, float *bias)
{
    const bool all = k >= last - first;
    c->n = select_top(p->s->kernels->sparse, c->indices, c->values, x, first, last, all || k <= 0 ? k : k + 1);
    memset(bias, 0, sizeof *bias * (size_t)c->n);
    if (!all && k > 0) {
        const float threshold = priority_take(c);
        priority_biases(bias, c, threshold, lifts_of(p, kv_head), !grouped(p->s));
    }
}

// Numbers of the selected keys, and α.
static void select_keys(const struct selective_pass *p, int kv_head)
{
    const struct cpu_state *s = p->s;
    const struct selective *t = &s->method->selective;
    const int n = p->n_keys, k = p->choice.k < n ? p->choice.k : n;
    const int local = p->choice.local < k ? p->choice.local : k;
    const int first = p->choice.first < k - local ? p->choice.first : k - local;
    const float *x = (grouped(s) ? t->weights : t->scores) + place_of(p, kv_head) * t->ld;
    int *rows = t->rows + (size_t)kv_head * t->ld;
    float *values = t->values + place_of(p, kv_head) * t->ld;
    for (int j = 0; j < first; j++)
        rows[j] = j;
    struct candidates c = {rows + first, values + first, 0};
    if (p->choice.drawn) {
        float *bias = t->bias + (size_t)kv_head * t->ld;
        memset(bias, 0, sizeof *bias * (size_t)first);
        draw_keys(p, kv_head, &c, x, first, n - local, k - first - local, bias + first);
        memset(bias + first + c.n, 0, sizeof *bias * (size_t)local);
    } else {
        c.n = select_top(s->kernels->sparse, c.indices, c.values, x, first, n - local, k - first - local);
    }
    int n_rows = first + c.n;
    for (int j = n - local; j < n; j++)
        rows[n_rows++] = j;
    if (p->choice.tail)
        selected_shares(p, kv_head, rows, n_rows, values);
    t->n_rows[kv_head] = n_rows;
}

// Numbers become slots: the ring begins again at most once.
static void rows_to_slots(const struct selective_pass *p, int kv_head)
{
    const struct cpu_state *s = p->s;
    const struct selective *t = &s->method->selective;
    int *rows = t->rows + (size_t)kv_head * t->ld;
    const int slot = kv_slot(s->kv, p->from), before = (int)(kv_run_end(s->kv, p->from, p->from + p->n_keys) - p->from);
    const int again = before < p->n_keys ? kv_slot(s->kv, p->from + before) - before : 0;
    for (int i = 0; i < t->n_rows[kv_head]; i++)
        rows[i] += rows[i] < before ? slot : again;
}

// The rows, α and v̄.
static void select_rows(const struct selective_pass *p, int kv_head)
{
    struct cpu_state *s = p->s;
    struct selective *t = &s->method->selective;
    select_keys(p, kv_head);
    rows_to_slots(p, kv_head);
    if (p->choice.tail)
        value_mean(s, &t->sums, p->layer, kv_head, p->position, t->mean + (size_t)kv_head * s->far->head_dim);
}

// Part i of all KV heads' selected rows.
static struct row_part part_of_rows(const struct cpu_state *s, int i, int n_parts)
{
    const int kv_head = i / n_parts, part = i % n_parts, n = s->method->selective.n_rows[kv_head];
    const int from = (int)((int64_t)n * part / n_parts), to = (int)((int64_t)n * (part + 1) / n_parts);
    const struct selective *t = &s->method->selective;
    const size_t at = (size_t)kv_head * t->ld + from;
    return (struct row_part){
        .kv_head = kv_head, .part = part, .rows = t->rows + at, .bias = t->bias ? t->bias + at : NULL, .n = to - from};
}

// Members take consecutive parts, so that each fetches the first rows of its next part while it still works on the last one.
static void gather(const struct selective_pass *p, const struct batch *batch, int n_parts, struct member *me)
{
    const int n = p->s->far->n_kv_heads * n_parts;
    int fetched = -1;
    for (struct grains span; team_claim_share(me, n, 1, &span);)
        for (int i = span.first; i < span.last; i++) {
            struct row_part rows = part_of_rows(p->s, i, n_parts), next;
            rows.fetched = i == fetched;
            fetched = i + 1;
            if (fetched < n)
                next = part_of_rows(p->s, fetched, n_parts);
            attention_attend_rows(p->s, batch, p->step, n_parts, &rows, fetched < n ? &next : NULL, me);
        }
}

// The steps up to the selection, each shared among all members.
static void select_by_parts(const struct selective_pass *p, struct member *me)
{
    struct cpu_state *s = p->s;
    const int n_kv_heads = s->far->n_kv_heads;
    struct grains span;
    while (team_claim_share(me, n_kv_heads, 1, &span))
        for (int i = span.first; i < span.last; i++)
            s->policy->selector->prepare(s, p->layer, i, cpu_rotated_query(s, s->rotated_q, i));
    while (team_claim_share(me, n_kv_heads * p->n_parts, 1, &span))
        for (int i = span.first; i < span.last; i++)
            score_part(p, i / p->n_parts, i % p->n_parts);
    if (grouped(s))
        while (team_claim_share(me, n_kv_heads * p->n_parts, 1, &span))
            for (int i = span.first; i < span.last; i++)
                weigh_part(p, i / p->n_parts, i % p->n_parts);
    while (team_claim_share(me, n_kv_heads, 1, &span))
        for (int i = span.first; i < span.last; i++)
            select_rows(p, i);
}

// The same steps, each member with whole KV heads. What is written for one is overwritten for the next and, as far as it fits,
// never leaves the cache. Otherwise 4 bytes for each score of a head would be fetched, written back and read again: with four
// queries a quarter of the codes' bytes.
static void select_by_heads(const struct selective_pass *p, struct member *me)
{
    struct cpu_state *s = p->s;
    for (struct grains span; team_claim_share(me, s->far->n_kv_heads, 1, &span);)
        for (int i = span.first; i < span.last; i++) {
            s->policy->selector->prepare(s, p->layer, i, cpu_rotated_query(s, s->rotated_q, i));
            for (int part = 0; part < p->n_parts; part++)
                score_part(p, i, part);
            for (int part = 0; grouped(s) && part < p->n_parts; part++)
                weigh_part(p, i, part);
            select_rows(p, i);
        }
}

void selective_attend(struct cpu_state *s, const struct batch *batch, const struct step *step, struct member *me)
{
    const int group = cpu_group(s);
    struct selective_pass p = {.s = s, .step = step, .layer = step->layer, .position = batch->position};
    p.from = kv_first_visible(s->kv, p.position);
    p.n_keys = selective_n_keys(s, p.position);
    p.n_parts = part_count(p.n_keys);
    p.n_sinks = kv_sinks_apart(s->kv, p.position) ? s->kv->n_sinks : 0;
    p.n_apart = p.n_sinks + (step->weights->sink_logits != NULL);
    p.choice = s->policy->selector->choice(s, step->layer, p.n_keys);
    p.place = !s->method->selective.keep_all && team_shares_evenly(me, s->far->n_kv_heads)
                  ? team_share(me, s->far->n_kv_heads, 1)
                  : -1;
    const int n_gather = attention_key_parts(p.choice.k < p.n_keys ? p.choice.k : p.n_keys);
    struct grains span;

    if (p.place >= 0)
        select_by_heads(&p, me);
    else
        select_by_parts(&p, me);
    gather(&p, batch, n_gather, me);
    while (team_claim_share(me, s->config->n_heads, 4, &span))
        for (int i = span.first; i < span.last; i++)
            attention_merge(s, n_gather, i / group, i % group, p.choice.tail ? s->method->selective.alpha[i] : 1,
                            s->method->selective.mean + (size_t)(i / group) * s->far->head_dim);
}
