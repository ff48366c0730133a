#include "model/share.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/bf12.h"
#include "util/error.h"
#include "util/memory.h"
#include "util/round.h"

enum { LINE = 64 };

// ------------------------------------------------------------------------------------------ who has what

// `n` items in units of `unit`, of which the last may be short: the units that rank `rank` has.
static struct share_span cut(int n, int unit, int rank, int n_ranks)
{
    const int64_t units = (n + unit - 1) / unit;
    const int first = (int)(units * rank / n_ranks) * unit, last = (int)(units * (rank + 1) / n_ranks) * unit;
    return (struct share_span){first, last < n ? last : n};
}

static int greatest_divisor(int a, int b)
{
    return b == 0 ? a : greatest_divisor(b, a % b);
}

// Columns that stay together in a matrix of this type.
static int cols_unit(enum dtype type)
{
    return dtype_in_eights(type) ? QUANT_EIGHT_COLS : dtype_group_bytes[type] ? QUANT_GROUP : 1;
}

// KV heads that stay together, so that their columns of o begin with a group.
static int heads_unit(const struct model_config *c, const struct model_weights *w)
{
    int unit = 1;
    for (int l = 0; l < c->n_layers; l++)
        unit = cols_unit(w->layers[l].o.dtype) > unit ? cols_unit(w->layers[l].o.dtype) : unit;
    return unit / greatest_divisor(c->n_heads / c->n_kv_heads * c->head_dim, unit);
}

// Components between gate and up, and down, that stay together.
static int ffn_unit(const struct model_config *c, const struct model_weights *w)
{
    int unit = QUANT_GROUP;
    for (int l = 0; l < c->n_layers; l++) {
        const struct layer_weights *layer = &w->layers[l];
        const int n_experts = layer->router.data ? c->n_experts : 1;
        for (int e = 0; e < n_experts; e++)
            unit = cols_unit(layer->experts[e].down.dtype) > unit ? QUANT_EIGHT_COLS : unit;
        unit = layer->shared.gate.data && cols_unit(layer->shared.down.dtype) > unit ? QUANT_EIGHT_COLS : unit;
    }
    return unit;
}

static int units_of(int n, int unit)
{
    return (n + unit - 1) / unit;
}

int share_most_ranks(const struct model_config *c, const struct model_weights *w)
{
    const int unit = ffn_unit(c, w);
    int most = units_of(c->n_kv_heads, heads_unit(c, w));
    for (int l = 0; l < c->n_layers; l++) {
        const int ffn = units_of(w->layers[l].experts[0].gate.rows, unit);
        const int shared = w->layers[l].shared.gate.data ? units_of(c->shared_ffn_dim, unit) : ffn;
        most = ffn < most ? ffn : most;
        most = shared < most ? shared : most;
    }
    return c->vocab_size < most ? c->vocab_size : most;
}

// ------------------------------------------------------------------------------------------ copying

// Copies matrices into `base`; where that is NULL, counts the bytes that they need.
struct copier {
    uint8_t *base;
    size_t used;
    bool mapped; // the file's pages can be given back
};

static void *take(struct copier *c, size_t bytes)
{
    const size_t at = c->used;
    c->used += round_up(bytes, LINE);
    return c->base ? c->base + at : NULL;
}

// Bytes of a row in each section of a matrix: all rows' elements, then all groups' scales, then all rows' scales.
struct row {
    size_t elements, scales, own;
};

static struct row row_of(enum dtype type, int cols)
{
    const size_t group = dtype_group_bytes[type];
    if (type == DTYPE_BF12)
        return (struct row){bf12_row_bytes(cols), 0, 0};
    if (group)
        return (struct row){quant_groups(cols) * group, quant_scale_bytes(type, quant_groups(cols)), dtype_row_scale[type]};
    return (struct row){(size_t)cols * dtype_sizes[type], 0, dtype_row_scale[type]};
}

// The matrix has been read: its pages need not stay.
static void give_back(const struct copier *c, const struct matrix *w)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)w->data & ~(page - 1);
    const uintptr_t end = ((uintptr_t)w->data + (size_t)w->rows * dtype_row_bytes(w->dtype, w->cols)) & ~(page - 1);
    if (c->base && c->mapped && end > begin)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

static struct matrix copy_rows(struct copier *c, const struct matrix *w, struct share_span rows)
{
    const struct row row = row_of(w->dtype, w->cols);
    const size_t n = (size_t)(rows.last - rows.first), first = (size_t)rows.first;
    const size_t parts[] = {row.elements, row.scales, row.own};
    uint8_t *const data = take(c, n * (row.elements + row.scales + row.own)), *to = data;
    const uint8_t *from = w->data;
    for (int i = 0; to && i < 3; i++, to += n * parts[i - 1]) {
        memcpy(to, from + first * parts[i], n * parts[i]);
        from += (size_t)w->rows * parts[i];
    }
    if (data)
        give_back(c, w);
    return (struct matrix){data, w->dtype, (int)n, w->cols};
}

static void copy_bf12_cols(uint16_t *to, const struct matrix *w, struct share_span cols)
{
    uint16_t row[BF12_MOST_COLS];
    const size_t n = (size_t)(cols.last - cols.first);
    for (int r = 0; r < w->rows; r++) {
        bf12_to_bf16(row, w->data, r, r + 1, w->cols);
        memcpy(to + (size_t)r * n, row + cols.first, n * sizeof *row);
    }
}

// Copies some columns of a row's elements. A type with a plane of high bits has the low bits first, then the plane.
static void copy_elements(uint8_t *to, const uint8_t *from, enum dtype type, int all_cols, struct share_span cols)
{
    const size_t planes[] = {dtype_low_bytes(type), dtype_group_bytes[type] - dtype_low_bytes(type)};
    if (!planes[0]) {
        const size_t size = dtype_sizes[type];
        memcpy(to, from + (size_t)cols.first * size, (size_t)(cols.last - cols.first) * size);
        return;
    }
    const size_t first = quant_groups(cols.first), n = quant_groups(cols.last - cols.first);
    for (int i = 0; i < 2; i++) {
        memcpy(to, from + first * planes[i], n * planes[i]);
        to += n * planes[i];
        from += quant_groups(all_cols) * planes[i];
    }
}

static void copy_plain_cols(uint8_t *to, const struct matrix *w, struct share_span cols)
{
    const struct row row = row_of(w->dtype, cols.last - cols.first), whole = row_of(w->dtype, w->cols);
    const size_t rows = (size_t)w->rows, before = row_of(w->dtype, cols.first).scales;
    const uint8_t *from = w->data, *scales = from + rows * whole.elements, *own = scales + rows * whole.scales;
    uint8_t *to_scales = to + rows * row.elements;
    for (size_t r = 0; r < rows; r++) {
        copy_elements(to + r * row.elements, from + r * whole.elements, w->dtype, w->cols, cols);
        memcpy(to_scales + r * row.scales, scales + r * whole.scales + before, row.scales);
    }
    memcpy(to_scales + rows * row.scales, own, rows * row.own); // they are of all columns
}

static struct matrix copy_cols(struct copier *c, const struct matrix *w, struct share_span cols)
{
    const enum dtype type = w->dtype == DTYPE_BF12 ? DTYPE_BF16 : w->dtype;
    const int n_cols = cols.last - cols.first;
    const struct row row = row_of(type, n_cols);
    uint8_t *to = take(c, (size_t)w->rows * (row.elements + row.scales + row.own));
    if (to && w->dtype == DTYPE_BF12)
        copy_bf12_cols((uint16_t *)to, w, cols);
    else if (to)
        copy_plain_cols(to, w, cols);
    if (to)
        give_back(c, w);
    return (struct matrix){to, type, w->rows, n_cols};
}

static const float *copy_floats(struct copier *c, const float *from, struct share_span span)
{
    if (!from)
        return NULL;
    const size_t bytes = sizeof *from * (size_t)(span.last - span.first);
    float *to = take(c, bytes);
    if (to)
        memcpy(to, from + span.first, bytes);
    return to;
}

// ------------------------------------------------------------------------------------------ a model's parts

struct divider {
    struct copier copier;
    const struct model_config *config; // the whole's
    int rank, n_ranks, ffn_unit;
    struct share_span heads; // KV heads
};

static struct share_span all(int n)
{
    return (struct share_span){0, n};
}

static struct share_span times(struct share_span span, int n)
{
    return (struct share_span){span.first * n, span.last * n};
}

// A bias of what all ranks together add is one rank's.
static const float *once(struct divider *c, const float *bias)
{
    return c->rank == 0 ? copy_floats(&c->copier, bias, all(c->config->hidden_dim)) : NULL;
}

static void cut_attention(struct divider *c, struct layer_weights *part, const struct layer_weights *w)
{
    const struct model_config *config = c->config;
    const struct share_span kv = times(c->heads, config->head_dim), q = times(kv, config->n_heads / config->n_kv_heads);
    struct copier *to = &c->copier;
    part->q = copy_rows(to, &w->q, q);
    part->k = copy_rows(to, &w->k, kv);
    part->v = copy_rows(to, &w->v, kv);
    part->o = copy_cols(to, &w->o, q);
    part->q_bias = copy_floats(to, w->q_bias, q);
    part->k_bias = copy_floats(to, w->k_bias, kv);
    part->v_bias = copy_floats(to, w->v_bias, kv);
    part->o_bias = once(c, w->o_bias);
    part->q_norm = copy_floats(to, w->q_norm, config->whole_qk_norm ? q : all(config->head_dim));
    part->k_norm = copy_floats(to, w->k_norm, config->whole_qk_norm ? kv : all(config->head_dim));
    part->sink_logits = copy_floats(to, w->sink_logits, times(c->heads, config->n_heads / config->n_kv_heads));
}

static void cut_units(struct divider *c, struct expert_weights *part, const struct expert_weights *w)
{
    if (!w->gate.data)
        return;
    const struct share_span units = cut(w->gate.rows, c->ffn_unit, c->rank, c->n_ranks);
    part->gate = copy_rows(&c->copier, &w->gate, units);
    part->up = copy_rows(&c->copier, &w->up, units);
    part->down = copy_cols(&c->copier, &w->down, units);
    part->gate_bias = copy_floats(&c->copier, w->gate_bias, units);
    part->up_bias = copy_floats(&c->copier, w->up_bias, units);
    part->down_bias = once(c, w->down_bias);
}

static void cut_layer(struct divider *c, struct layer_weights *part, const struct layer_weights *w)
{
    const int dim = c->config->hidden_dim, n_experts = w->router.data ? c->config->n_experts : 1;
    part->attention_norm = copy_floats(&c->copier, w->attention_norm, all(dim));
    part->attention_post_norm = copy_floats(&c->copier, w->attention_post_norm, all(dim));
    part->ffn_norm = copy_floats(&c->copier, w->ffn_norm, all(dim));
    part->ffn_post_norm = copy_floats(&c->copier, w->ffn_post_norm, all(dim));
    cut_attention(c, part, w);
    if (w->router.data)
        part->router = copy_rows(&c->copier, &w->router, all(n_experts));
    part->router_bias = copy_floats(&c->copier, w->router_bias, all(n_experts));
    part->router_choice_bias = copy_floats(&c->copier, w->router_choice_bias, all(n_experts));
    for (int e = 0; e < n_experts; e++)
        cut_units(c, &part->experts[e], &w->experts[e]);
    cut_units(c, &part->shared, &w->shared);
}

static void cut_weights(struct divider *c, struct model_weights *part, const struct model_weights *w)
{
    part->embedding = w->embedding;
    for (int l = 0; l < c->config->n_layers; l++)
        cut_layer(c, &part->layers[l], &w->layers[l]);
    part->norm = copy_floats(&c->copier, w->norm, all(c->config->hidden_dim));
    part->classifier = copy_rows(&c->copier, &w->classifier, share_of_rows(c->config->vocab_size, c->rank, c->n_ranks));
}

static void cut_config(struct model_config *part, const struct divider *c)
{
    const struct model_config *whole = c->config;
    const int group = whole->n_heads / whole->n_kv_heads;
    *part = *whole;
    part->first_kv_head = c->heads.first;
    part->all_kv_heads = whole->n_kv_heads;
    part->n_kv_heads = c->heads.last - c->heads.first;
    part->n_heads = part->n_kv_heads * group;
    int *const widths[] = {&part->ffn_dim, &part->expert_ffn_dim, &part->shared_ffn_dim};
    for (int i = 0; i < 3; i++) {
        const struct share_span units = cut(*widths[i], c->ffn_unit, c->rank, c->n_ranks);
        *widths[i] = units.last - units.first;
    }
    const struct share_span rows = share_of_rows(whole->vocab_size, c->rank, c->n_ranks);
    part->vocab_size = rows.last - rows.first;
}

// Pointers for the parts, all empty.
static bool open_layers(struct model_weights *part, const struct model_config *config)
{
    const size_t n_layers = (size_t)config->n_layers, n_experts = (size_t)(config->n_experts ? config->n_experts : 1);
    part->layers = calloc(n_layers, sizeof *part->layers);
    struct expert_weights *experts = calloc(n_layers * n_experts, sizeof *experts);
    if (!part->layers || !experts) {
        free(experts);
        return false;
    }
    part->layers[0].experts = experts; // weights_free()'s
    for (size_t l = 1; l < n_layers; l++)
        part->layers[l].experts = experts + l * n_experts;
    return true;
}

yalm_status share_open(struct model_share *share, const struct model_config *config, const struct model_weights *weights,
                       const struct container *container, int rank, int n_ranks, yalm_error *error)
{
    *share = (struct model_share){0};
    struct divider c = {.config = config, .rank = rank, .n_ranks = n_ranks, .ffn_unit = ffn_unit(config, weights)};
    c.heads = cut(config->n_kv_heads, heads_unit(config, weights), rank, n_ranks);
    if (!open_layers(&share->weights, config)) {
        share_close(share);
        return error_set(error, YALM_NO_MEMORY, "no memory for the pointers of %d layers", config->n_layers);
    }
    cut_config(&share->config, &c);
    cut_weights(&c, &share->weights, weights);
    share->bytes = c.copier.used;
    const uint64_t available = memory_available();
    if (share->bytes <= available)
        share->block = memory_pages(share->bytes);
    if (!share->block) {
        const double needed = (double)share->bytes / 1e9;
        share_close(share);
        return error_set(error, YALM_NO_MEMORY,
                         "not enough memory for 1 of %d shares of the weights: needed %.2f GB, available %.2f GB", n_ranks,
                         needed, (double)available / 1e9);
    }
    c.copier = (struct copier){.base = share->block, .mapped = container->mapping.data && !container->mapping.copied};
    cut_weights(&c, &share->weights, weights);
    share->weights.bytes = share->bytes;
    return YALM_OK;
}

void share_close(struct model_share *share)
{
    memory_pages_free(share->block, share->bytes);
    weights_free(&share->weights);
    *share = (struct model_share){0};
}
