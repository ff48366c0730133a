#include "cpu/long/sparq.h"
#include "cpu/machine/isa.h"

#include <math.h>
#include <string.h>

#include "cpu/long/method.h"
#include "cpu/long/select.h"
#include "engine/settings.h"
#include "util/round.h"

enum {
    TILE = 32,            // slots that are copied together: a cache line of fp16
    MIN_KEYS = 128,       // selected, unless asked for fewer
    STEP_BYTES = 4 << 16, // what a KV head's further steps cost, in bytes of traffic (measured)
};

#define MOST_HALF 65504.0f // of fp16

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

// ------------------------------------------------------------------------------------------ sizes

static int selected(const struct sparq *p, int n)
{
    return p->k ? p->k : max_int(p->min_k, (int)(p->share * n));
}

// Of one KV head with n keys: the runs that scores are computed from, keys and values of the selected.
static double selective_bytes(const struct cpu_state *s, int n)
{
    const struct sparq *p = &s->method->sparq;
    const int k = selected(p, n) < n ? selected(p, n) : n;
    const double element = (double)copy_offset(p->copy, COPY_GROUP) / COPY_GROUP,
                 copy_scale = p->copy == COPY_FP16 ? 0 : sizeof(float);
    return n * (p->r * element + copy_scale) + 2.0 * k * cpu_row_traffic(s, s->far->head_dim) +
           (p->tail ? s->far->head_dim * (double)sizeof(double) : 0);
}

// Traffic in elements is S r + 2 k d of the dense 2 S d. Each term gets half of the wanted ratio: r = ratio d and k = ratio S /
// 2.
static yalm_status sparq_plan(struct cpu_state *s, const struct backend_plan *plan, yalm_error *error)
{
    struct settings settings;
    const yalm_status status = settings_read(&settings, plan->options, error);
    if (status != YALM_OK)
        return status;
    const struct sparq_settings *o = &settings.sparq;
    struct sparq *p = &s->method->sparq;
    const int d = s->far->head_dim;
    if (d > SELECTIVE_DIMS)
        return error_set(error, YALM_USAGE, "sparq attention: found heads of %d components, expected at most %d", d,
                         SELECTIVE_DIMS);
    if (o->r > d)
        return error_set(error, YALM_USAGE, "sparq.r: found %d, expected at most the model's head_dim, %d", o->r, d);
    p->copy = (enum copy_type)o->copy;
    p->score = score_select(s->kernels, plan->options->activations, p->copy);
    p->r = o->r ? o->r : max_int(1, o->ratio > 0 ? (int)lrintf(o->ratio * (float)d) : d / 4);
    p->share = o->ratio > 0 ? (double)o->ratio / 2 : 1.0 / 16;
    p->k = o->k;
    p->min_k = o->min_k ? o->min_k : MIN_KEYS;
    p->local = o->local;
    p->tail = o->tail == SWITCH_ON || (o->tail == SWITCH_AUTO && cpu_group(s) == 1);
    p->from = o->from ? o->from : selective_break_even(s, selective_bytes, STEP_BYTES);
    p->copy_slots = (int)round_up((size_t)s->kv->capacity, COPY_GROUP);
    p->copy_stride = copy_stride(p->copy, p->copy_slots);
    return YALM_OK;
}

static void sparq_carve_kept(struct cpu_state *s, struct carver *c)
{
    struct sparq *p = &s->method->sparq;
    const size_t heads = (size_t)s->far_layers * s->far->n_kv_heads;
    p->copied = carve(c, heads * s->far->head_dim, (size_t)p->copy_stride);
    if (p->copy != COPY_FP16)
        p->copy_scales = carve(c, heads * p->copy_slots, sizeof(float));
    if (p->tail)
        selective_carve_kept(s, c);
}

static void sparq_carve_scratch(struct cpu_state *s, struct carver *c, int n_threads)
{
    (void)n_threads;
    struct sparq *p = &s->method->sparq;
    selective_carve_scratch(s, c, false);
    p->components = carve(c, (size_t)s->far->n_kv_heads * p->r, sizeof(int));
    p->q = carve(c, (size_t)s->config->n_heads * p->r, sizeof(float));
}

// ------------------------------------------------------------------------------------------ the copy

static size_t head_slots(const struct cpu_state *s, int layer, int kv_head) // before this head's first
{
    return (cpu_far_place(s, layer) * s->far->n_kv_heads + kv_head) * s->method->sparq.copy_slots;
}

static uint8_t *copy_of(const struct cpu_state *s, int layer, int kv_head)
{
    return s->method->sparq.copied +
           (cpu_far_place(s, layer) * s->far->n_kv_heads + kv_head) * s->far->head_dim * s->method->sparq.copy_stride;
}

// x to 4 bits and a scale: the largest becomes ± 7.
static float to_q4(int8_t *y, const float *x, int n)
{
    float largest = 0;
    for (int i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    const float scale = largest / 7;
    for (int i = 0; i < n; i++)
        y[i] = scale >= INT8_LEAST_SCALE && isfinite(x[i] / scale) ? (int8_t)lrintf(x[i] / scale) : 0;
    return scale;
}

static void copy_key(const struct cpu_state *s, int layer, int kv_head, int slot)
{
    const struct sparq *p = &s->method->sparq;
    const int d = s->far->head_dim;
    uint8_t *to = copy_of(s, layer, kv_head) + copy_offset(p->copy, slot);
    float key[SELECTIVE_DIMS];
    uint16_t halves[SELECTIVE_DIMS];
    int8_t bytes[SELECTIVE_DIMS];
    cpu_load_key(s, layer, kv_head, slot, key);
    if (p->copy == COPY_FP16) {
        for (int c = 0; c < d; c++) // of a cache in fp32
            key[c] = key[c] > MOST_HALF ? MOST_HALF : key[c] < -MOST_HALF ? -MOST_HALF : key[c];
        s->kernels->to_fp16(halves, key, d);
        for (int c = 0; c < d; c++)
            *(uint16_t *)(to + c * p->copy_stride) = halves[c];
        return;
    }
    p->copy_scales[head_slots(s, layer, kv_head) + slot] =
        p->copy == COPY_INT8 ? s->kernels->to_int8(bytes, key, d) : to_q4(bytes, key, d);
    const bool low = slot % COPY_GROUP < COPY_GROUP / 2;
    for (int c = 0; c < d; c++, to += p->copy_stride)
        if (p->copy == COPY_INT8)
            *to = (uint8_t)bytes[c];
        else
            *to = (uint8_t)(low ? (*to & 0xf0) | (bytes[c] + 8) : (*to & 15) | (bytes[c] + 8) << 4);
}

static bool ends_tile(const struct cpu_state *s, int slot)
{
    return (slot + 1) % TILE == 0 || slot + 1 == s->kv->capacity;
}

// Copies those keys of a group whose tile has been written to, whole tiles: some of them may have waited there.
static void copy_tiles(struct cpu_state *s, int layer, int kv_head, int group, int64_t position, int n)
{
    for (int tile = group * COPY_GROUP; tile < (group + 1) * COPY_GROUP && tile < s->kv->capacity; tile += TILE) {
        const int end = tile + TILE < s->kv->capacity ? tile + TILE : s->kv->capacity;
        bool written = false;
        for (int64_t at = position; at < position + n && !written;) {
            const int64_t run = kv_run_end(s->kv, at, position + n);
            const int slot = kv_slot(s->kv, at);
            written = slot < end && slot + (run - at) > tile;
            at = run;
        }
        for (int slot = tile; written && slot < end; slot++)
            copy_key(s, layer, kv_head, slot);
    }
}

// A single token: nothing until it completes a tile. A larger batch: each group of slots on its own, since 4-bit elements of
// one group share bytes.
static void sparq_appended(struct cpu_state *s, int64_t position, int n, int layer, struct member *me)
{
    const int n_kv_heads = s->far->n_kv_heads, slot = kv_slot(s->kv, position);
    if (n == 1 && !ends_tile(s, slot))
        return;
    const int first = n == 1 ? slot / COPY_GROUP : 0, n_groups = n == 1 ? 1 : s->method->sparq.copy_slots / COPY_GROUP;
    for (struct grains span; team_claim(me, n_kv_heads * n_groups, 1, &span);)
        for (int i = span.first; i < span.last; i++)
            copy_tiles(s, layer, i / n_groups, first + i % n_groups, position, n);
}

static void sparq_append(struct cpu_state *s, const struct append *row)
{
    cpu_store_key(s, row->layer, row->kv_head, row->slot, row->k);
    value_sums_append(s, &s->method->selective.sums, row);
}

// ------------------------------------------------------------------------------------------ scores

// The r components i1 in which Σ_group |q| is largest, and each query's q[i1] / sqrt(Σ_i1 |q_i| / Σ |q_i|). With its factor 1 /
// √d that is q[i1] / τ, τ = sqrt(d Σ_i1 |q_i| / Σ |q_i|).
static void sparq_prepare(struct cpu_state *s, int layer, int kv_head, const float *q)
{
    (void)layer;
    const int d = s->far->head_dim, group = cpu_group(s), r = s->method->sparq.r;
    float sums[SELECTIVE_DIMS];
    int indices[SELECTIVE_DIMS];
    struct candidates c = {indices, sums, d};
    for (int i = 0; i < d; i++) {
        sums[i] = 0;
        indices[i] = i;
        for (int j = 0; j < group; j++)
            sums[i] += fabsf(q[(size_t)j * d + i]);
    }
    select_largest(s->kernels->sparse, &c, r);
    memcpy(s->method->sparq.components + (size_t)kv_head * r, indices, sizeof(int) * r);
    for (int j = 0; j < group; j++) {
        float *to = s->method->sparq.q + ((size_t)kv_head * group + j) * r;
        double all = 0, chosen = 0;
        for (int i = 0; i < d; i++)
            all += (double)fabsf(q[(size_t)j * d + i]);
        for (int i = 0; i < r; i++)
            chosen += (double)fabsf(q[(size_t)j * d + indices[i]]);
        const float factor = chosen > 0 ? (float)sqrt(all / chosen) : 1;
        for (int i = 0; i < r; i++)
            to[i] = factor * q[(size_t)j * d + indices[i]];
    }
}

// The same scores from the rows, of keys that wait to be copied.
static void score_rows(const struct cpu_state *s, int layer, int kv_head, int slot, int n, float *scores, ptrdiff_t ld)
{
    const int group = cpu_group(s), r = s->method->sparq.r;
    const int *components = s->method->sparq.components + (size_t)kv_head * r;
    float key[SELECTIVE_DIMS];
    for (int j = 0; j < n; j++) {
        cpu_load_key(s, layer, kv_head, slot + j, key);
        for (int i = 0; i < group; i++) {
            const float *q = s->method->sparq.q + ((size_t)kv_head * group + i) * r;
            float sum = 0;
            for (int c = 0; c < r; c++)
                sum += q[c] * key[components[c]];
            scores[i * ld + j] = sum;
        }
    }
}

static void score_copied(const struct cpu_state *s, int layer, int kv_head, int slot, int n, float *scores, ptrdiff_t ld)
{
    const struct sparq *p = &s->method->sparq;
    p->score(&(struct score_args){
        .scores = scores,
        .ld = ld,
        .copy = copy_of(s, layer, kv_head),
        .stride = p->copy_stride,
        .scales = p->copy_scales ? p->copy_scales + head_slots(s, layer, kv_head) : NULL,
        .q = p->q + (size_t)kv_head * cpu_group(s) * p->r,
        .components = p->components + (size_t)kv_head * p->r,
        .n_queries = cpu_group(s),
        .r = p->r,
        .slot = slot,
        .n = n,
        .to_l2 = s->fetching.runs_to_l2,
    });
}

static void sparq_score(const struct cpu_state *s, int layer, int kv_head, int64_t position, int slot, int n, float *scores,
                        ptrdiff_t ld)
{
    const int newest = kv_slot(s->kv, position), tile = newest / TILE * TILE;
    const bool open = !ends_tile(s, newest) && slot <= newest && slot + n > tile; // some of these wait to be copied
    const int before = !open ? n : tile > slot ? tile - slot : 0;
    const int through = !open ? n : newest + 1 < slot + n ? newest + 1 - slot : n;
    if (before > 0)
        score_copied(s, layer, kv_head, slot, before, scores, ld);
    if (through > before)
        score_rows(s, layer, kv_head, slot + before, through - before, scores + before, ld);
    if (n > through)
        score_copied(s, layer, kv_head, slot + through, n - through, scores + through, ld);
}

static struct choice sparq_choice(const struct cpu_state *s, int layer, int n)
{
    (void)layer;
    const struct sparq *p = &s->method->sparq;
    const int k = selected(p, n);
    return (struct choice){.k = k, .local = p->local ? p->local : k / 4, .tail = p->tail};
}

static bool sparq_applies(const struct cpu_state *s, int n, int64_t position, int layer)
{
    (void)layer;
    return n == 1 && selective_n_keys(s, position) >= s->method->sparq.from;
}

static double sparq_bytes(const struct cpu_state *s, int64_t position)
{
    return s->far->n_kv_heads * selective_bytes(s, selective_n_keys(s, position));
}

static const struct selector selector = {.prepare = sparq_prepare, .score = sparq_score, .choice = sparq_choice};

const struct policy policy_sparq = {
    .name = "sparq",
    .method_size = sizeof(struct method),
    .plan = sparq_plan,
    .carve_kept = sparq_carve_kept,
    .carve_scratch = sparq_carve_scratch,
    .append = sparq_append,
    .appended = sparq_appended,
    .applies = sparq_applies,
    .selector = &selector,
    .attend = selective_attend,
    .bytes = sparq_bytes,
};
