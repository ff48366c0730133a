// NoMAD's codes of keys: writes, scores and decodes them. See nomad_codes.h.

#include <string.h>

#include "cpu/long/method.h"
#include "cpu/long/nomad_codes.h"
#include "cpu/machine/isa.h"
#include "util/error.h"

yalm_status nomad_open(struct cpu_state *s, const struct backend_plan *plan, yalm_error *error)
{
    struct nomad *m = &s->method->nomad;
    const int d = s->far->head_dim;
    if (d > NOMAD_DIMS)
        return error_set(error, YALM_USAGE, "attention by codes: found heads of %d components, expected at most %d", d,
                         NOMAD_DIMS);
    const yalm_status status = codebook_find(&m->book, plan->options->codebooks, plan->container, s->config, error);
    if (status != YALM_OK)
        return status;
    m->kernels = nomad_kernels_select(s->kernels);
    m->n_sub = d / m->book.d_sub;
    m->head_bytes = ((size_t)s->kv->capacity + NOMAD_BLOCK - 1) / NOMAD_BLOCK * nomad_block_bytes(m->n_sub);
    return YALM_OK;
}

void nomad_close(struct cpu_state *s)
{
    codebook_close(&s->method->nomad.book);
}

void nomad_carve_codes(struct cpu_state *s, struct carver *c)
{
    s->method->nomad.codes = carve(c, (size_t)s->far_layers * s->far->n_kv_heads, s->method->nomad.head_bytes);
}

void nomad_carve_tables(struct cpu_state *s, struct carver *c)
{
    struct nomad *m = &s->method->nomad;
    const size_t n_heads = s->config->n_heads;
    m->entries = carve(c, n_heads, nomad_block_bytes(m->n_sub));
    m->base = carve(c, n_heads, sizeof(float));
    m->step = carve(c, n_heads, sizeof(float));
    m->tables = carve(c, n_heads * m->n_sub * NOMAD_CENTROIDS, sizeof(float));
}

static struct nomad_book book_of(const struct cpu_state *s, int layer, int kv_head)
{
    return (struct nomad_book){codebook_of(&s->method->nomad.book, s->config, cpu_far_place(s, layer), kv_head),
                               s->method->nomad.n_sub, s->method->nomad.book.d_sub};
}

static uint8_t *block_of(const struct cpu_state *s, int layer, int kv_head, int block)
{
    return s->method->nomad.codes + (cpu_far_place(s, layer) * s->far->n_kv_heads + kv_head) * s->method->nomad.head_bytes +
           block * nomad_block_bytes(s->method->nomad.n_sub);
}

void nomad_encode_key(const struct cpu_state *s, const struct append *row, uint8_t *codes)
{
    const struct nomad_book book = book_of(s, row->layer, row->kv_head);
    s->method->nomad.kernels->encode(codes, row->k, &book);
}

void nomad_append_key(struct cpu_state *s, const struct append *row)
{
    uint8_t codes[NOMAD_DIMS];
    nomad_encode_key(s, row, codes);
    nomad_place(block_of(s, row->layer, row->kv_head, row->slot / NOMAD_BLOCK), row->slot % NOMAD_BLOCK, codes,
                s->method->nomad.n_sub, row->n > 1);
}

void nomad_prepare(struct cpu_state *s, int layer, int kv_head, const float *q)
{
    const struct nomad *m = &s->method->nomad;
    const int group = cpu_group(s);
    const struct nomad_book book = book_of(s, layer, kv_head);
    for (int i = 0; i < group; i++) {
        const size_t head = (size_t)kv_head * group + i;
        m->kernels->table(
            &(struct nomad_table){m->entries + head * nomad_block_bytes(m->n_sub), m->base + head, m->step + head},
            q + (size_t)i * s->far->head_dim, &book, m->tables + head * m->n_sub * NOMAD_CENTROIDS);
    }
}

// Whole blocks, queries [first, first + n_queries) of the group.
static void score_blocks(const struct cpu_state *s, int layer, int kv_head, int block, int n_blocks, int first, int n_queries,
                         float *scores, ptrdiff_t ld)
{
    const struct nomad *m = &s->method->nomad;
    const size_t head = (size_t)kv_head * cpu_group(s) + first;
    m->kernels->scores(&(struct nomad_score_args){
        .scores = scores,
        .ld = ld,
        .codes = block_of(s, layer, kv_head, block),
        .entries = m->entries + head * nomad_block_bytes(m->n_sub),
        .base = m->base + head,
        .step = m->step + head,
        .n_queries = n_queries,
        .rows = nomad_rows(m->n_sub),
        .n_blocks = n_blocks,
    });
}

void nomad_score(const struct cpu_state *s, int layer, int kv_head, int slot, int n, float *scores, ptrdiff_t ld)
{
    enum { AT_ONCE = 8 };
    const int group = cpu_group(s);
    float part[AT_ONCE * NOMAD_BLOCK]; // of a block at either end, of which some slots are wanted
    for (int done = 0, piece; done < n; done += piece) {
        const int at = (slot + done) % NOMAD_BLOCK, block = (slot + done) / NOMAD_BLOCK, left = n - done;
        if (at == 0 && left >= NOMAD_BLOCK) {
            piece = left / NOMAD_BLOCK * NOMAD_BLOCK;
            score_blocks(s, layer, kv_head, block, left / NOMAD_BLOCK, 0, group, scores + done, ld);
            continue;
        }
        piece = NOMAD_BLOCK - at < left ? NOMAD_BLOCK - at : left;
        for (int first = 0; first < group; first += AT_ONCE) {
            const int n_queries = group - first < AT_ONCE ? group - first : AT_ONCE;
            score_blocks(s, layer, kv_head, block, 1, first, n_queries, part, NOMAD_BLOCK);
            for (int i = 0; i < n_queries; i++)
                memcpy(scores + (first + i) * ld + done, part + (size_t)i * NOMAD_BLOCK + at, sizeof(float) * piece);
        }
    }
}

void nomad_decode(const struct cpu_state *s, int layer, int kv_head, int slot, int n, float *to)
{
    const int d = s->far->head_dim;
    const struct nomad_book book = book_of(s, layer, kv_head);
    float keys[NOMAD_BLOCK * NOMAD_DIMS];
    for (int done = 0, piece; done < n; done += piece) {
        const int at = (slot + done) % NOMAD_BLOCK;
        const uint8_t *block = block_of(s, layer, kv_head, (slot + done) / NOMAD_BLOCK);
        piece = NOMAD_BLOCK - at < n - done ? NOMAD_BLOCK - at : n - done;
        const bool whole = piece == NOMAD_BLOCK;
        s->method->nomad.kernels->decode(whole ? to + (size_t)done * d : keys, block, &book);
        if (!whole)
            memcpy(to + (size_t)done * d, keys + (size_t)at * d, sizeof(float) * piece * d);
    }
}
