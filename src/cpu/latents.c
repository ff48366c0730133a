// What a (query, key) costs a head, in multiply-adds. With latents as keys and values it is 2 · head_dim. With a head's own
// it is 2 · width, and kv_rank (nope_dim + v_dim) for each key that is expanded. A query costs as much as that where it is
// brought to the latents. So DeepSeek's 576 become 192 in a text's first piece, and in later ones of about 170 tokens or more.
//
// Memory is what queries for latents would take: keys and values of `room` positions lie in s->q, sums in s->attended. Longer
// texts are expanded and attended to range by range.
#include "cpu/latents.h"

#include <math.h>
#include <string.h>

#include "cpu/machine/isa.h"
#include "util/round.h"

enum {
    LEAST_TOKENS = 32, // fewer do not pay for turning k_b
    TILE = 128,        // keys that are multiplied together
    GRAIN_KEYS = 512,  // that one claim expands
    QUERIES = 128,     // of a head, attended together, but where the kernel has its own number
};

void latents_plan(struct cpu_state *s, yalm_activations activations)
{
    const struct latent_config *d = &s->config->latent;
    struct expansion *e = &s->expansion;
    if (!d->kv_rank)
        return;
    const int keys = d->nope_dim + d->rope_dim, head_dim = s->config->head_dim;
    e->width = keys > d->v_dim ? keys : d->v_dim;
    e->room = (int)((size_t)s->chunk * head_dim * sizeof(float) / (2 * e->width * kv_sizes[s->kv_type]));
    e->fixed = fixed_attention_select(s->kernels, activations);
    if (e->fixed && (!e->fixed->attend[s->kv_type] || e->width > e->fixed->most_dim || s->recipe.traits & TRAIT_CAPPED))
        e->fixed = NULL;
    e->queries = e->fixed ? e->fixed->queries : QUERIES;
    e->there = !s->plan.exact && e->room >= LEAST_TOKENS && e->width + 2 <= head_dim;
}

// A thread's own.
struct own {
    float *turned; // (nope_dim, kv_rank): a head's k_b
    float *rows;   // (TILE, kv_rank): latents; then (TILE, what a head makes of them)
    float *packed;
    int *first, *last; // (queries)
};

// Returns how many bytes lie at `base`.
static size_t carve_scratch(const struct cpu_state *s, uint8_t *base, struct own *own)
{
    const struct latent_config *d = &s->config->latent;
    const size_t widest = d->kv_rank > s->expansion.width ? d->kv_rank : s->expansion.width;
    const size_t sizes[] = {sizeof(float) * d->nope_dim * d->kv_rank, sizeof(float) * TILE * widest,
                            sizeof(float) * s->kernels->packed_size(TILE, d->kv_rank), sizeof(int) * s->expansion.queries};
    size_t at[5] = {0};
    for (int i = 0; i < 4; i++)
        at[i + 1] = at[i] + round_up(sizes[i], 64);
    if (base)
        *own = (struct own){(float *)base, (float *)(base + at[1]), (float *)(base + at[2]), (int *)(base + at[3]),
                            (int *)(base + at[4])};
    return at[4] + round_up(sizes[3], 64);
}

size_t latents_scratch(const struct cpu_state *s)
{
    return s->expansion.there ? carve_scratch(s, NULL, NULL) : 0;
}

bool latents_expand(const struct cpu_state *s, const struct batch *batch)
{
    const struct latent_config *d = &s->config->latent;
    const struct expansion *e = &s->expansion;
    const struct kv_policy *kv = &s->kinds[0].kv;
    if (!e->there || batch->apart || batch->n < LEAST_TOKENS || kv_sinks_apart(kv, batch->position + batch->n - 1))
        return false;
    const double seen = (double)batch->position + batch->n, more = 2.0 * (s->config->head_dim - e->width);
    return (double)batch->position * d->kv_rank * (d->nope_dim + d->v_dim) < batch->n * seen * more;
}

void latents_query(struct cpu_state *s, int token, float scale, const float *cos, const float *sin)
{
    const struct latent_config *d = &s->config->latent;
    const int width = s->expansion.width, dim = d->nope_dim + d->rope_dim, n_heads = s->config->n_heads;
    for (int head = 0; head < n_heads; head++) {
        const float *x = s->heads + ((size_t)token * n_heads + head) * dim;
        float *y = s->rotated_q + ((size_t)head * s->chunk + token) * width;
        for (int i = 0; i < width; i++)
            y[i] = i < dim ? scale * x[i] : 0;
        if (cos)
            s->kernels->rope(y + d->nope_dim, cos, sin, d->rope_dim);
    }
}

// One member's work on a batch in a layer, and the positions whose keys and values are at hand.
struct expanding {
    struct cpu_state *s;
    const struct batch *batch;
    const struct step *step;
    const struct latent_weights *w;
    struct own own;
    int thread;
    int64_t from, to; // at most `room`
    bool first_range, last_range;
};

// Keys or values of a head: (room, width) of the cache's type.
static uint8_t *of_head(const struct expanding *x, int head, bool values)
{
    const struct expansion *e = &x->s->expansion;
    const size_t of_heads = (size_t)x->s->config->n_heads * values + head;
    return (uint8_t *)x->s->q + of_heads * e->room * e->width * kv_sizes[x->s->kv_type];
}

static void turn_k_b(const struct expanding *x, int head)
{
    const struct latent_config *d = &x->s->config->latent;
    const struct matrix *w = &x->w->k_b;
    const size_t row = (size_t)w->cols * dtype_sizes[w->dtype];
    const uint8_t *rows = (const uint8_t *)w->data + (size_t)head * d->kv_rank * row;
    enum { ROWS = 16 };
    for (int first = 0; first < d->kv_rank; first += ROWS) {
        const int n = d->kv_rank - first < ROWS ? d->kv_rank - first : ROWS;
        for (int i = 0; i < n; i++)
            x->s->kernels->to_fp32[w->dtype](x->own.rows + (ptrdiff_t)i * d->nope_dim, rows + (size_t)(first + i) * row,
                                             d->nope_dim);
        for (int j = 0; j < d->nope_dim; j++)
            for (int i = 0; i < n; i++)
                x->own.turned[(ptrdiff_t)j * d->kv_rank + first + i] = x->own.rows[(ptrdiff_t)i * d->nope_dim + j];
    }
}

// own.rows (n, width): the products of rows [first_row, first_row + n_rows) of a matrix with the packed latents.
static void multiply(const struct expanding *x, const void *w, enum dtype type, int first_row, int n_rows, int n)
{
    const struct cpu_state *s = x->s;
    s->kernels->matmul[type](&(struct product_args){
        .y = x->own.rows,
        .ldy = s->expansion.width,
        .w = w,
        .type = type,
        .rows = first_row + n_rows,
        .cols = s->config->latent.kv_rank,
        .first_row = first_row,
        .last_row = first_row + n_rows,
        .x = x->own.packed,
        .n = n,
        .fetching = s->fetching,
        .scratch = cpu_own(s, s->matmul_scratch, x->thread),
    });
}

static void store(const struct expanding *x, uint8_t *to, const float *row)
{
    struct cpu_state *s = x->s;
    if (s->kv_type == KV_FP16)
        cpu_to_half(s, x->step->layer, s->expansion.width, (uint16_t *)to, row);
    else
        memcpy(to, row, sizeof *row * (size_t)s->expansion.width);
}

// Positions [from, from + n) of a head, n <= TILE: k_b of the latent and what of the key rotates, which all heads have; and
// v_b of the latent.
static void expand_tile(const struct expanding *x, int head, int64_t from, int n)
{
    struct cpu_state *s = x->s;
    const struct latent_config *d = &s->config->latent;
    const struct kv_policy *kv = &s->kinds[0].kv;
    const int width = s->expansion.width, layer = x->step->layer;
    const size_t element = kv_sizes[s->kv_type], row = (size_t)width * element, at = (size_t)(from - x->from) * row;
    const enum dtype type = s->kv_type == KV_FP16 ? DTYPE_FP16 : DTYPE_FP32;
    const uint8_t *latents = cpu_keys(s, layer, 0);
    const size_t latent = cpu_row_bytes(s, layer);
    for (int t = 0; t < n; t++)
        s->kernels->to_fp32[type](x->own.rows + (ptrdiff_t)t * d->kv_rank, latents + kv_slot(kv, from + t) * latent,
                                  d->kv_rank);
    s->kernels->pack_tokens(x->own.packed, x->own.rows, d->kv_rank, n, d->kv_rank, 0, d->kv_rank);
    multiply(x, x->own.turned, DTYPE_FP32, 0, d->nope_dim, n);
    for (int t = 0; t < n; t++) {
        float *key = x->own.rows + (ptrdiff_t)t * width;
        s->kernels->to_fp32[type](key + d->nope_dim, latents + kv_slot(kv, from + t) * latent + d->kv_rank * element,
                                  d->rope_dim);
        memset(key + d->nope_dim + d->rope_dim, 0, sizeof *key * (size_t)(width - d->nope_dim - d->rope_dim));
        store(x, of_head(x, head, false) + at + t * row, key);
    }
    multiply(x, x->w->v_b.data, x->w->v_b.dtype, head * d->v_dim, d->v_dim, n);
    for (int t = 0; t < n; t++) {
        float *value = x->own.rows + (ptrdiff_t)t * width;
        memset(value + d->v_dim, 0, sizeof *value * (size_t)(width - d->v_dim));
        store(x, of_head(x, head, true) + at + t * row, value);
    }
}

static void expand(const struct expanding *x, struct member *me)
{
    const int blocks = (int)((x->to - x->from + GRAIN_KEYS - 1) / GRAIN_KEYS);
    int turned = -1;
    for (struct grains span; team_claim_near(me, x->s->config->n_heads * blocks, 1, &span);)
        for (int i = span.first; i < span.last; i++) {
            const int head = i / blocks;
            const int64_t from = x->from + (int64_t)(i % blocks) * GRAIN_KEYS;
            const int64_t to = from + GRAIN_KEYS < x->to ? from + GRAIN_KEYS : x->to;
            if (head != turned)
                turn_k_b(x, head);
            turned = head;
            for (int64_t at = from; at < to; at += TILE)
                expand_tile(x, head, at, to - at < TILE ? (int)(to - at) : TILE);
        }
}

// Queries of `n` tokens of a head: their sums so far, or at the end what they have seen, (n, n_heads, v_dim).
static void attend_block(const struct expanding *x, int head, int token, int n)
{
    struct cpu_state *s = x->s;
    const struct expansion *e = &s->expansion;
    const size_t heads = (size_t)s->config->n_heads, row = (size_t)head * s->chunk + token;
    const int v_dim = s->config->latent.v_dim;
    float *acc = s->attended + row * e->width, *max = s->attended + heads * s->chunk * e->width + row;
    float *sum = max + heads * s->chunk;
    const int64_t position = x->batch->position + token;
    const int n_keys = (int)((position + n < x->to ? position + n : x->to) - x->from);
    bool masked = false;
    if (x->first_range)
        memset(acc, 0, sizeof *acc * (size_t)n * e->width);
    for (int i = 0; i < n; i++) {
        const int64_t first = kv_first_visible(&s->kinds[0].kv, position + i) - x->from, last = position + i + 1 - x->from;
        x->own.first[i] = (int)(first < 0 ? 0 : first < n_keys ? first : n_keys);
        x->own.last[i] = (int)(last < 0 ? 0 : last < n_keys ? last : n_keys);
        masked |= x->own.first[i] > 0 || x->own.last[i] < n_keys;
        if (x->first_range) {
            max[i] = -INFINITY;
            sum[i] = 0;
        }
    }
    if (n_keys > 0)
        (e->fixed && n >= e->fixed->least ? e->fixed->attend : s->kernels->attend)[s->kv_type](&(struct attend_args){
            .acc = acc,
            .max = max,
            .sum = sum,
            .q = s->rotated_q + row * e->width,
            .k = of_head(x, head, false),
            .v = of_head(x, head, true),
            .n_queries = n,
            .n_keys = n_keys,
            .head_dim = e->width,
            .softcap = x->step->number,
            .first = masked ? x->own.first : NULL,
            .last = masked ? x->own.last : NULL,
            .fetching = s->fetching,
            .scratch = cpu_own(s, s->attend_scratch, x->thread),
        });
    for (int i = 0; i < n && x->last_range; i++)
        for (int c = 0; c < v_dim; c++)
            s->heads[((size_t)(token + i) * heads + head) * v_dim + c] = acc[(size_t)i * e->width + c] / sum[i];
}

void latents_attend(struct cpu_state *s, const struct batch *batch, const struct step *step, struct member *me)
{
    const struct expansion *e = &s->expansion;
    const int n_heads = s->config->n_heads;
    const int64_t begin = kv_first_visible(&s->kinds[0].kv, batch->position), end = batch->position + batch->n;
    const int blocks = (batch->n + e->queries - 1) / e->queries, tokens = (batch->n + blocks - 1) / blocks;
    struct expanding x = {.s = s, .batch = batch, .step = step, .thread = me->thread};
    x.w = &s->weights->layers[step->layer].latent;
    carve_scratch(s, cpu_own(s, s->expand_scratch, me->thread), &x.own);
    for (x.from = begin; x.from < end; x.from = x.to) {
        x.to = x.from + e->room < end ? x.from + e->room : end;
        x.first_range = x.from == begin;
        x.last_range = x.to == end;
        expand(&x, me);
        for (struct grains span; team_claim_near(me, n_heads * blocks, 1, &span);)
            for (int i = span.first; i < span.last; i++) {
                const int token = (blocks - 1 - i % blocks) * tokens, left = batch->n - token;
                if (left > 0)
                    attend_block(&x, i / blocks, token, left < tokens ? left : tokens);
            }
    }
}
