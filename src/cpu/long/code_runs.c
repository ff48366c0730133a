#include "cpu/long/code_runs.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "cpu/long/method.h"
#include "cpu/long/select.h"

enum {
    TILE = 32,      // slots of the open block, in each sub-quantiser's …
    ROW = TILE / 2, // … bytes, two slots a byte
    CENTRE = 128,   // of values
};
_Static_assert((int)NOMAD_DIMS <= (int)CODE_MOST, "all components of a head can be listed");

static int multiple(int n, int of)
{
    return (n + of - 1) / of * of;
}

// ------------------------------------------------------------------------------------------ sizes

void code_runs_plan(struct cpu_state *s, float share)
{
    struct code_runs *r = &s->method->code_runs;
    const int d_sub = s->method->nomad.book.d_sub;
    r->n_sub = s->method->nomad.n_sub;
    if (share <= 0)
        share = d_sub == 1 ? 0.5f : 1;
    const int wanted = multiple((int)ceilf(share * (float)r->n_sub), CODE_LIST / d_sub); // what fills the list is read anyway
    r->n_read = wanted < r->n_sub ? wanted : r->n_sub;
    r->n_listed = multiple(r->n_read * d_sub, CODE_LIST);
    r->stride = code_stride(s->kv->capacity);
    r->open_bytes = (size_t)r->n_sub * ROW + CODE_GROUP_BYTES - ROW; // the last row is read as a whole group
}

void code_runs_carve_kept(struct cpu_state *s, struct carver *c)
{
    struct code_runs *r = &s->method->code_runs;
    const size_t heads = (size_t)s->far_layers * s->far->n_kv_heads, components = heads * s->far->head_dim;
    r->runs = carve(c, heads * r->n_sub, (size_t)r->stride);
    r->open = carve(c, heads, r->open_bytes);
    r->open_tile = carve(c, heads, sizeof *r->open_tile);
    r->tables.values = carve(c, components, CODE_VALUES);
    r->tables.scale = carve(c, components, sizeof(float));
    r->tables.middle = carve(c, components, sizeof(float));
    r->tables.mean = carve(c, components, sizeof(float));
}

void code_runs_carve_scratch(struct cpu_state *s, struct carver *c)
{
    struct code_runs *r = &s->method->code_runs;
    const size_t n_heads = s->config->n_heads, n_kv_heads = s->far->n_kv_heads;
    r->run_of = carve(c, n_kv_heads * r->n_listed, sizeof(int));
    r->values = carve(c, n_kv_heads * r->n_listed, CODE_VALUES);
    r->weights = carve(c, n_heads * r->n_listed, 1);
    r->offset = carve(c, n_heads, sizeof(int));
    r->base = carve(c, n_heads, sizeof(float));
    r->step = carve(c, n_heads, sizeof(float));
}

double code_runs_key_bytes(const struct cpu_state *s)
{
    return s->method->code_runs.n_read * (double)CODE_GROUP_BYTES / CODE_GROUP;
}

// ------------------------------------------------------------------------------------------ tables

static size_t head_of(const struct cpu_state *s, int layer, int kv_head)
{
    return cpu_far_place(s, layer) * s->far->n_kv_heads + kv_head;
}

static struct code_tables tables_of(const struct cpu_state *s, size_t head)
{
    const struct code_tables *t = &s->method->code_runs.tables;
    const size_t first = head * s->far->head_dim;
    return (struct code_tables){t->values + first * CODE_VALUES, t->scale + first, t->middle + first, t->mean + first};
}

// Rounds component c's 16 centroids: value = round((x − middle) / scale), scale a 254th of their span.
static void make_table(const struct code_tables *t, int c, const float *x)
{
    float least = x[0], largest = x[0];
    double sum = 0;
    for (int i = 0; i < CODE_VALUES; i++) {
        least = fminf(least, x[i]);
        largest = fmaxf(largest, x[i]);
        sum += (double)x[i];
    }
    const float middle = 0.5f * least + 0.5f * largest, reach = largest - middle;
    const float factor = reach >= 1e-30f ? 127 / reach : 0;
    t->scale[c] = factor > 0 ? reach / 127 : 0;
    t->middle[c] = middle;
    t->mean[c] = (float)(sum / CODE_VALUES);
    for (int i = 0; i < CODE_VALUES; i++)
        t->values[c * CODE_VALUES + i] = (uint8_t)(CENTRE + lrintf((x[i] - middle) * factor));
}

void code_runs_open(struct cpu_state *s)
{
    const int d = s->far->head_dim, n_kv_heads = s->far->n_kv_heads;
    for (int i = 0; i < s->far_layers * n_kv_heads; i++) {
        const float *centroids = codebook_of(&s->method->nomad.book, s->config, (size_t)(i / n_kv_heads), i % n_kv_heads);
        const struct code_tables t = tables_of(s, (size_t)i);
        for (int c = 0; c < d; c++)
            make_table(&t, c, centroids + (size_t)c * CODE_VALUES);
    }
}

// ------------------------------------------------------------------------------------------ codes

static uint8_t *runs_of(const struct cpu_state *s, size_t head)
{
    return s->method->code_runs.runs + head * s->method->code_runs.n_sub * s->method->code_runs.stride;
}
static uint8_t *open_of(const struct cpu_state *s, size_t head)
{
    return s->method->code_runs.open + head * s->method->code_runs.open_bytes;
}
static int open_tile(const struct cpu_state *s, size_t head) // -1: none
{
    return atomic_load_explicit(&s->method->code_runs.open_tile[head], memory_order_relaxed) - 1;
}
static void set_open_tile(struct cpu_state *s, size_t head, int tile)
{
    atomic_store_explicit(&s->method->code_runs.open_tile[head], tile + 1, memory_order_relaxed);
}

static uint8_t *place_in_runs(const struct cpu_state *s, size_t head, int slot)
{
    return runs_of(s, head) + code_offset(slot) + code_byte(slot);
}
// In a row byte i has slot i of the tile in its low half, and slot i + ROW in the high one.
static uint8_t *place_in_block(const struct cpu_state *s, size_t head, int slot)
{
    return open_of(s, head) + slot % ROW;
}
static int shift_in_block(int slot)
{
    return slot % TILE < ROW ? 0 : 4;
}

// Slots [first, last) of one tile: from the runs to the block, or back.
static void open_slots(struct cpu_state *s, size_t head, int first, int last)
{
    const struct code_runs *r = &s->method->code_runs;
    uint8_t codes[NOMAD_DIMS];
    for (int slot = first; slot < last; slot++) {
        const uint8_t *from = place_in_runs(s, head, slot);
        for (int i = 0; i < r->n_sub; i++)
            codes[i] = from[i * r->stride] >> code_shift(slot) & 15;
        codes_place(place_in_block(s, head, slot), ROW, shift_in_block(slot), codes, r->n_sub, false);
    }
}
static void close_slots(struct cpu_state *s, size_t head, int first, int last, bool shared)
{
    const struct code_runs *r = &s->method->code_runs;
    uint8_t codes[NOMAD_DIMS];
    for (int slot = first; slot < last; slot++) {
        const uint8_t *from = place_in_block(s, head, slot);
        for (int i = 0; i < r->n_sub; i++)
            codes[i] = from[i * ROW] >> shift_in_block(slot) & 15;
        codes_place(place_in_runs(s, head, slot), r->stride, code_shift(slot), codes, r->n_sub, shared);
    }
}

// Tokens of one batch may be appended at the same time. The first of them sees to it that codes of the tokens before are in the
// runs too.
void code_runs_append(struct cpu_state *s, const struct append *row)
{
    const struct code_runs *r = &s->method->code_runs;
    const size_t head = head_of(s, row->layer, row->kv_head);
    const int slot = row->slot, tile = slot / TILE;
    uint8_t codes[NOMAD_DIMS];
    nomad_encode_key(s, row, codes);
    if (row->n > 1) {
        codes_place(place_in_runs(s, head, slot), r->stride, code_shift(slot), codes, r->n_sub, true);
        if (row->token > 0)
            return;
        if (open_tile(s, head) == tile)
            close_slots(s, head, tile * TILE, slot, true);
        set_open_tile(s, head, -1);
        return;
    }
    if (open_tile(s, head) != tile) { // a new one, or one that a batch, or what a rollback has taken back, has begun
        open_slots(s, head, tile * TILE, slot);
        set_open_tile(s, head, tile);
    }
    codes_place(place_in_block(s, head, slot), ROW, shift_in_block(slot), codes, r->n_sub, false);
    if (slot % TILE == TILE - 1 || slot + 1 == s->kv->capacity) {
        close_slots(s, head, tile * TILE, slot + 1, false);
        set_open_tile(s, head, -1);
    }
}

int code_runs_code(const struct cpu_state *s, int layer, int kv_head, int newest, int slot, int sub)
{
    const size_t head = head_of(s, layer, kv_head);
    if (slot / TILE == open_tile(s, head) && slot <= newest)
        return place_in_block(s, head, slot)[sub * ROW] >> shift_in_block(slot) & 15;
    return place_in_runs(s, head, slot)[sub * s->method->code_runs.stride] >> code_shift(slot) & 15;
}

// ------------------------------------------------------------------------------------------ queries

// subs: the n_read sub-quantisers to read, ascending.
static void choose_subs(const struct cpu_state *s, const struct code_tables *t, const float *q, int subs[NOMAD_DIMS])
{
    const struct code_runs *r = &s->method->code_runs;
    const int group = cpu_group(s), d = s->far->head_dim, d_sub = s->method->nomad.book.d_sub;
    float parts[NOMAD_DIMS] = {0}; // of components, then of sub-quantisers
    struct candidates c = {subs, parts, r->n_sub};
    for (int j = 0; j < group; j++)
        for (int i = 0; i < d; i++) {
            const float part = q[j * d + i] * t->scale[i];
            parts[i] += part * part;
        }
    for (int i = 0; i < r->n_sub; i++) {
        float sum = 0;
        for (int j = 0; j < d_sub; j++)
            sum += parts[i * d_sub + j];
        parts[i] = sum < FLT_MAX ? sum : FLT_MAX; // no NaN: exactly n_read are wanted
        subs[i] = i;
    }
    select_largest(s->kernels->sparse, &c, r->n_read);
}

// Makes one query's integers for n listed components. centre (head_dim): what the integers are offsets from, or the mean of
// what is not read.
static void weigh_query(struct cpu_state *s, const struct code_tables *t, int head, const float *q, const int *listed, int n,
                        const float *centre)
{
    const struct code_runs *r = &s->method->code_runs;
    const int d = s->far->head_dim;
    int8_t *weights = r->weights + (size_t)head * r->n_listed;
    float scaled[NOMAD_DIMS];
    double base = 0;
    int total = 0;
    for (int c = 0; c < d; c++)
        base += (double)(q[c] * centre[c]);
    for (int i = 0; i < n; i++)
        scaled[i] = q[listed[i]] * t->scale[listed[i]];
    r->step[head] = s->kernels->to_int8(weights, scaled, n);
    memset(weights + n, 0, (size_t)(r->n_listed - n));
    for (int i = 0; i < n; i++)
        total += weights[i];
    r->offset[head] = -CENTRE * total;
    r->base[head] = (float)base;
}

void code_runs_prepare(struct cpu_state *s, int layer, int kv_head, const float *q)
{
    const struct code_runs *r = &s->method->code_runs;
    const struct code_tables t = tables_of(s, head_of(s, layer, kv_head));
    const int group = cpu_group(s), d = s->far->head_dim, d_sub = s->method->nomad.book.d_sub, n = r->n_read * d_sub;
    int subs[NOMAD_DIMS] = {0}, listed[NOMAD_DIMS] = {0};
    float centre[NOMAD_DIMS];
    int *run_of = r->run_of + (size_t)kv_head * r->n_listed;
    uint8_t *values = r->values + (size_t)kv_head * r->n_listed * CODE_VALUES;
    choose_subs(s, &t, q, subs);
    memcpy(centre, t.mean, sizeof(float) * (size_t)d);
    for (int i = 0; i < r->n_listed; i++) {
        const int sub = subs[(i < n ? i : n - 1) / d_sub], c = sub * d_sub + i % d_sub;
        run_of[i] = sub;
        memcpy(values + (size_t)i * CODE_VALUES, t.values + (size_t)c * CODE_VALUES, CODE_VALUES);
        if (i < n) {
            listed[i] = c;
            centre[c] = t.middle[c];
        }
    }
    for (int i = 0; i < group; i++)
        weigh_query(s, &t, kv_head * group + i, q + (size_t)i * d, listed, n, centre);
}

// ------------------------------------------------------------------------------------------ scores

// Whole groups of these runs, queries [first, first + n_queries) of the KV head's.
static void score_groups(const struct cpu_state *s, int kv_head, const uint8_t *runs, ptrdiff_t stride, int n_groups, int first,
                         int n_queries, float *scores, ptrdiff_t ld)
{
    const struct code_runs *r = &s->method->code_runs;
    const size_t head = (size_t)kv_head * cpu_group(s) + first;
    s->method->nomad.kernels->code_scores(&(struct code_score_args){
        .scores = scores,
        .ld = ld,
        .runs = runs,
        .stride = stride,
        .run_of = r->run_of + (size_t)kv_head * r->n_listed,
        .values = r->values + (size_t)kv_head * r->n_listed * CODE_VALUES,
        .weights = r->weights + head * r->n_listed,
        .offset = r->offset + head,
        .base = r->base + head,
        .step = r->step + head,
        .n_queries = n_queries,
        .n = r->n_listed,
        .n_groups = n_groups,
        .to_l2 = s->fetching.runs_to_l2,
    });
}

enum { AT_ONCE = 8 }; // queries whose scores of a group are computed where only some slots are wanted

// n slots of one group.
static void score_some(const struct cpu_state *s, int kv_head, const uint8_t *runs, int slot, int n, float *scores,
                       ptrdiff_t ld)
{
    float part[AT_ONCE * CODE_GROUP];
    const int group = cpu_group(s);
    for (int first = 0; first < group; first += AT_ONCE) {
        const int n_queries = group - first < AT_ONCE ? group - first : AT_ONCE;
        score_groups(s, kv_head, runs, s->method->code_runs.stride, 1, first, n_queries, part, CODE_GROUP);
        for (int i = 0; i < n_queries; i++)
            memcpy(scores + (first + i) * ld, part + (size_t)i * CODE_GROUP + slot % CODE_GROUP, sizeof(float) * n);
    }
}

// Scores n slots of the open tile. Its rows are read as if each were a whole group, whose first 16 bytes count; code_byte()
// says where their scores are.
static void score_open(const struct cpu_state *s, size_t head, int kv_head, int slot, int n, float *scores, ptrdiff_t ld)
{
    float part[AT_ONCE * CODE_GROUP];
    const int group = cpu_group(s);
    for (int first = 0; first < group; first += AT_ONCE) {
        const int n_queries = group - first < AT_ONCE ? group - first : AT_ONCE;
        score_groups(s, kv_head, open_of(s, head), ROW, 1, first, n_queries, part, CODE_GROUP);
        for (int j = 0; j < n; j++) {
            const int byte = (slot + j) % ROW, at = byte / 4 * 16 + byte % 4 + (shift_in_block(slot + j) ? CODE_GROUP / 2 : 0);
            for (int i = 0; i < n_queries; i++)
                scores[(first + i) * ld + j] = part[i * CODE_GROUP + at];
        }
    }
}

void code_runs_score(const struct cpu_state *s, int layer, int kv_head, int64_t position, int slot, int n, float *scores,
                     ptrdiff_t ld)
{
    const size_t head = head_of(s, layer, kv_head);
    for (int done = 0, piece; done < n; done += piece) {
        const uint8_t *runs = runs_of(s, head) + code_offset(slot + done);
        const int at = (slot + done) % CODE_GROUP, left = n - done;
        if (at == 0 && left >= CODE_GROUP) {
            piece = left / CODE_GROUP * CODE_GROUP;
            score_groups(s, kv_head, runs, s->method->code_runs.stride, piece / CODE_GROUP, 0, cpu_group(s), scores + done, ld);
        } else {
            piece = CODE_GROUP - at < left ? CODE_GROUP - at : left;
            score_some(s, kv_head, runs, slot + done, piece, scores + done, ld);
        }
    }
    const int newest = kv_slot(s->kv, position), tile = open_tile(s, head);
    const int first = tile * TILE > slot ? tile * TILE : slot, last = newest + 1 < slot + n ? newest + 1 : slot + n;
    if (tile >= 0 && first < last)
        score_open(s, head, kv_head, first, last - first, scores + (first - slot), ld);
}
