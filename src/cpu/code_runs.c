#include "cpu/code_runs.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "cpu/select.h"
#include "cpu/state.h"

enum { TILE = NOMAD_BLOCK };

static int group_size(const struct cpu_state *s)
{
    return s->config->n_heads / s->config->n_kv_heads;
}

static int together(int n) // in whole lists
{
    return (n + NOMAD_TOGETHER - 1) / NOMAD_TOGETHER * NOMAD_TOGETHER;
}

// ------------------------------------------------------------------------------------------ sizes

// Reading one sub-quantiser costs as much as reading none in its place, so all that are listed are read, if there are so many.
void code_runs_plan(struct cpu_state *s, float share)
{
    struct code_runs *r = &s->code_runs;
    r->n_sub = s->nomad.n_sub;
    if (share <= 0)
        share = s->nomad.book.d_sub == 1 ? 0.5f : 1;
    r->n_listed = together((int)ceilf(share * (float)r->n_sub));
    r->n_read = r->n_listed < r->n_sub ? r->n_listed : r->n_sub;
    r->stride = nomad_run_stride(s->kv.capacity);
}

void code_runs_carve_kept(struct cpu_state *s, struct carver *c)
{
    struct code_runs *r = &s->code_runs;
    const size_t heads = (size_t)s->config->n_layers * s->config->n_kv_heads;
    r->runs = carve(c, heads * r->n_sub, (size_t)r->stride);
    r->open = carve(c, heads, nomad_block_bytes(r->n_sub));
    r->open_tile = carve(c, heads, sizeof *r->open_tile);
}

void code_runs_carve_scratch(struct cpu_state *s, struct carver *c)
{
    struct code_runs *r = &s->code_runs;
    nomad_carve_tables(s, c);
    r->subs = carve(c, (size_t)s->config->n_kv_heads * r->n_listed, sizeof(int));
    r->entries = carve(c, (size_t)s->config->n_heads * r->n_listed, NOMAD_ROW);
}

double code_runs_key_bytes(const struct cpu_state *s)
{
    return s->code_runs.n_read * (double)NOMAD_GROUP_BYTES / NOMAD_GROUP;
}

// ------------------------------------------------------------------------------------------ codes

static size_t head_of(const struct cpu_state *s, int layer, int kv_head)
{
    return (size_t)layer * s->config->n_kv_heads + kv_head;
}
static uint8_t *runs_of(const struct cpu_state *s, size_t head)
{
    return s->code_runs.runs + head * s->code_runs.n_sub * s->code_runs.stride;
}
static uint8_t *open_of(const struct cpu_state *s, size_t head)
{
    return s->code_runs.open + head * nomad_block_bytes(s->code_runs.n_sub);
}
static int open_tile(const struct cpu_state *s, size_t head) // -1: none
{
    return atomic_load_explicit(&s->code_runs.open_tile[head], memory_order_relaxed) - 1;
}
static void set_open_tile(struct cpu_state *s, size_t head, int tile)
{
    atomic_store_explicit(&s->code_runs.open_tile[head], tile + 1, memory_order_relaxed);
}

// Slots [first, last) of one tile: from the runs to the block, or back.
static void open_slots(struct cpu_state *s, size_t head, int first, int last)
{
    const struct code_runs *r = &s->code_runs;
    uint8_t codes[NOMAD_DIMS];
    for (int slot = first; slot < last; slot++) {
        for (int i = 0; i < r->n_sub; i++)
            codes[i] = (uint8_t)nomad_run_code(runs_of(s, head), r->stride, slot, i);
        nomad_place(open_of(s, head), slot % TILE, codes, r->n_sub, false);
    }
}
static void close_slots(struct cpu_state *s, size_t head, int first, int last)
{
    const struct code_runs *r = &s->code_runs;
    uint8_t codes[NOMAD_DIMS];
    for (int slot = first; slot < last; slot++) {
        for (int i = 0; i < r->n_sub; i++)
            codes[i] = (uint8_t)nomad_code(open_of(s, head), slot % TILE, i);
        nomad_place_run(runs_of(s, head), r->stride, slot, codes, r->n_sub, false);
    }
}

// Tokens of one batch may be appended at the same time.
void code_runs_append(struct cpu_state *s, const struct append *row)
{
    const struct code_runs *r = &s->code_runs;
    const size_t head = head_of(s, row->layer, row->kv_head);
    const int slot = row->slot, tile = slot / TILE;
    uint8_t codes[NOMAD_DIMS];
    nomad_encode_key(s, row, codes);
    if (row->n > 1) {
        nomad_place_run(runs_of(s, head), r->stride, slot, codes, r->n_sub, true);
        set_open_tile(s, head, -1);
        return;
    }
    if (open_tile(s, head) != tile) { // a new one, or one that a rollback or a batch has left half full
        open_slots(s, head, tile * TILE, slot);
        set_open_tile(s, head, tile);
    }
    nomad_place(open_of(s, head), slot % TILE, codes, r->n_sub, false);
    if (slot % TILE == TILE - 1 || slot + 1 == s->kv.capacity) {
        close_slots(s, head, tile * TILE, slot + 1);
        set_open_tile(s, head, -1);
    }
}

int code_runs_code(const struct cpu_state *s, int layer, int kv_head, int newest, int slot, int sub)
{
    const size_t head = head_of(s, layer, kv_head);
    const int tile = open_tile(s, head);
    if (tile >= 0 && slot / TILE == tile && slot <= newest)
        return nomad_code(open_of(s, head), slot % TILE, sub);
    return nomad_run_code(runs_of(s, head), s->code_runs.stride, slot, sub);
}

// ------------------------------------------------------------------------------------------ scores

// subs: the n_read sub-quantisers in which Σ_group span² is largest, ascending, and as often as it takes the last of them.
static void choose_subs(const struct cpu_state *s, int kv_head, int *subs)
{
    const struct code_runs *r = &s->code_runs;
    const int group = group_size(s), n_sub = r->n_sub;
    float spans[NOMAD_DIMS];
    int indices[NOMAD_DIMS];
    struct candidates c = {indices, spans, n_sub};
    for (int i = 0; i < n_sub; i++) {
        indices[i] = i;
        spans[i] = 0;
    }
    for (int j = 0; j < group; j++) {
        const struct nomad_products p = nomad_products_of(s, kv_head * group + j);
        for (int i = 0; i < n_sub; i++) {
            const float span = p.largest[i] - p.least[i];
            spans[i] += span * span;
        }
    }
    for (int i = 0; i < n_sub; i++) // no NaN: exactly so many are wanted
        spans[i] = spans[i] < FLT_MAX ? spans[i] : FLT_MAX;
    select_largest(s->kernels->sparse, &c, r->n_read);
    for (int i = 0; i < r->n_listed; i++)
        subs[i] = indices[i < r->n_read ? i : r->n_read - 1];
}

// Σ over the sub-quantisers that are not among subs[0 … n_read) of the mean of their products.
static float mean_of_others(const struct code_runs *r, const struct nomad_products *p, const int *subs)
{
    double total = 0;
    for (int i = 0, next = 0; i < r->n_sub; i++) {
        if (next < r->n_read && subs[next] == i) {
            next++;
            continue;
        }
        float sum = 0;
        for (int c = 0; c < NOMAD_CENTROIDS; c++)
            sum += p->rows[i * NOMAD_CENTROIDS + c];
        total += (double)sum / NOMAD_CENTROIDS;
    }
    return (float)total;
}

// Tables twice: of the listed sub-quantisers for the runs, and by row, zeros where a sub-quantiser is not read, for the block.
void code_runs_prepare(struct cpu_state *s, int layer, int kv_head, const float *q)
{
    const struct code_runs *r = &s->code_runs;
    const struct nomad *m = &s->nomad;
    const int group = group_size(s);
    const size_t block_bytes = nomad_block_bytes(r->n_sub);
    int *subs = r->subs + (size_t)kv_head * r->n_listed;
    nomad_multiply(s, layer, kv_head, q);
    choose_subs(s, kv_head, subs);
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
        const struct nomad_products p = nomad_products_of(s, head);
        uint8_t *entries = r->entries + (size_t)head * r->n_listed * NOMAD_ROW, *by_row = m->entries + head * block_bytes;
        const float a = nomad_factor(&p, subs, r->n_read, &m->base[head], &m->step[head]);
        m->base[head] += mean_of_others(r, &p, subs);
        m->kernels->entries(entries, r->n_listed, &p, subs, r->n_read, a);
        memset(by_row, 0, block_bytes);
        for (int i = 0; i < r->n_read; i++)
            memcpy(by_row + (size_t)subs[i] * NOMAD_ROW, entries + (size_t)i * NOMAD_ROW, NOMAD_ROW);
    }
}

// Whole groups from the one of `slot` on, queries [first, first + n_queries) of the KV head's.
static void score_groups(const struct cpu_state *s, int layer, int kv_head, int slot, int n_groups, int first, int n_queries,
                         float *scores, ptrdiff_t ld)
{
    const struct code_runs *r = &s->code_runs;
    const size_t head = (size_t)kv_head * group_size(s) + first;
    s->nomad.kernels->run_scores(&(struct nomad_run_args){
        .scores = scores,
        .ld = ld,
        .runs = runs_of(s, head_of(s, layer, kv_head)) + nomad_run_offset(slot),
        .stride = r->stride,
        .subs = r->subs + (size_t)kv_head * r->n_listed,
        .entries = r->entries + head * r->n_listed * NOMAD_ROW,
        .base = s->nomad.base + head,
        .step = s->nomad.step + head,
        .n_queries = n_queries,
        .n_subs = r->n_listed,
        .n_groups = n_groups,
    });
}

enum { AT_ONCE = 8 }; // queries whose scores of a group, or block, of which only some slots are wanted, are computed

static void score_some(const struct cpu_state *s, int layer, int kv_head, int slot, int n, float *scores, ptrdiff_t ld)
{
    float part[AT_ONCE * NOMAD_GROUP];
    const int group = group_size(s);
    for (int first = 0; first < group; first += AT_ONCE) {
        const int n_queries = group - first < AT_ONCE ? group - first : AT_ONCE;
        score_groups(s, layer, kv_head, slot, 1, first, n_queries, part, NOMAD_GROUP);
        for (int i = 0; i < n_queries; i++)
            memcpy(scores + (first + i) * ld, part + (size_t)i * NOMAD_GROUP + slot % NOMAD_GROUP, sizeof(float) * n);
    }
}

// Slots of the tile that is open: from its block.
static void score_open(const struct cpu_state *s, int layer, int kv_head, int slot, int n, float *scores, ptrdiff_t ld)
{
    float part[AT_ONCE * NOMAD_BLOCK];
    const struct nomad *m = &s->nomad;
    const int group = group_size(s);
    for (int first = 0; first < group; first += AT_ONCE) {
        const size_t head = (size_t)kv_head * group + first;
        const int n_queries = group - first < AT_ONCE ? group - first : AT_ONCE;
        m->kernels->scores(&(struct nomad_score_args){
            .scores = part,
            .ld = NOMAD_BLOCK,
            .codes = open_of(s, head_of(s, layer, kv_head)),
            .entries = m->entries + head * nomad_block_bytes(m->n_sub),
            .base = m->base + head,
            .step = m->step + head,
            .n_queries = n_queries,
            .rows = nomad_rows(m->n_sub),
            .n_blocks = 1,
        });
        for (int i = 0; i < n_queries; i++)
            memcpy(scores + (first + i) * ld, part + (size_t)i * NOMAD_BLOCK + slot % TILE, sizeof(float) * n);
    }
}

void code_runs_score(const struct cpu_state *s, int layer, int kv_head, int64_t position, int slot, int n, float *scores,
                     ptrdiff_t ld)
{
    for (int done = 0, piece; done < n; done += piece) {
        const int at = (slot + done) % NOMAD_GROUP, left = n - done;
        piece = at == 0 && left >= NOMAD_GROUP   ? left / NOMAD_GROUP * NOMAD_GROUP
                : NOMAD_GROUP - at < left        ? NOMAD_GROUP - at
                                                 : left;
        if (at == 0 && left >= NOMAD_GROUP)
            score_groups(s, layer, kv_head, slot + done, piece / NOMAD_GROUP, 0, group_size(s), scores + done, ld);
        else
            score_some(s, layer, kv_head, slot + done, piece, scores + done, ld);
    }
    const int newest = kv_slot(&s->kv, position), tile = open_tile(s, head_of(s, layer, kv_head));
    const int first = tile * TILE > slot ? tile * TILE : slot, last = newest + 1 < slot + n ? newest + 1 : slot + n;
    if (tile >= 0 && first < last)
        score_open(s, layer, kv_head, first, last - first, scores + (first - slot), ld);
}
