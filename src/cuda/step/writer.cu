// Words and phases (writer.h).
#include "cuda/step/writer.h"

static struct word_use *span_of(struct step_writer *w, int buffer, int width)
{
    for (int i = 0; i < w->n_spans; i++)
        if (w->spans[i].buffer == buffer && w->spans[i].width == width)
            return &w->spans[i];
    if (w->n_spans == 4 * WORDS) {
        w->to->fits = false;
        return w->spans;
    }
    struct word_use *span = &w->spans[w->n_spans++];
    *span = {buffer, width, w->to->n_words, 0, 0};
    w->to->n_words += round_up(width, 4); // words are read by fours
    return span;
}

static struct words words_of(const struct step_writer *w, const struct word_use *span)
{
    return {w->words ? w->words + span->at : NULL, (enum step_words)((span->written & 1) | (span->total & 1) * STEP_TURNS)};
}

struct words reading(const struct step_writer *w, int buffer)
{
    return words_of(w, w->latest[buffer]);
}
struct words writing(struct step_writer *w, int buffer, int width)
{
    struct word_use *span = span_of(w, buffer, width);
    span->written++;
    w->latest[buffer] = span;
    return words_of(w, span);
}

// ------------------------------------------------------------------------------------------ phases

struct step_phase *last(struct step_writer *w)
{
    return w->to->phases ? &w->to->phases[w->to->n - 1] : &w->counted;
}

void put(struct step_writer *w, const struct step_phase &phase)
{
    const int number = w->to->n++;
    *last(w) = phase;
    last(w)->spread = number;
}

static bool type_runs(enum dtype type)
{
    return type == DTYPE_FP16 || type == DTYPE_BF16 || type == DTYPE_FP8 || type == DTYPE_FP8_E5M2 ||
           dtype_group_bytes[type] > 0;
}

static int pack_cols(enum dtype type)
{
    const bool nibbles = dtype_group_bytes[type] > 0 && type != DTYPE_Q8;
    return nibbles ? 32 : dtype_sizes[type] == 2 ? 8 : 16;
}

// How a product is spread; false where no instance is for it. Bulk copies take multiples of 16 bytes from such addresses.
static bool shape_make(struct step_shape *shape, enum dtype type, int cols, struct step_plan *plan)
{
    const int scale = (int)quant_scale_bytes(type, 1);
    if (!type_runs(type) || cols % (scale > 0 ? 8 * QUANT_GROUP : pack_cols(type)) != 0)
        return false;
    const int chunk = 32 * pack_cols(type);
    shape->chunks = (cols + chunk - 1) / chunk;
    const int in_warp = (shape->chunks + STEP_WARPS - 1) / STEP_WARPS;
    shape->columns = (shape->chunks + in_warp - 1) / in_warp;
    shape->groups = STEP_WARPS / shape->columns;
    shape->scale_bytes = cols / QUANT_GROUP * scale;
    shape->row_bytes = scale > 0 ? cols / QUANT_GROUP * (int)dtype_group_bytes[type] : cols / pack_cols(type) * 16;
    const int row = shape->row_bytes + shape->scale_bytes;
    const int together = step_rows_each(in_warp) * shape->groups;
    shape->rows = together * row < STEP_SLOT ? STEP_SLOT / (together * row) * together : STEP_SLOT > row ? STEP_SLOT / row : 1;
    const int bytes = (int)round_up(shape->rows * row + (shape->scale_bytes % 16 ? 32 : 0), 128); // step_scales_skew()
    plan->slot_bytes = bytes > plan->slot_bytes ? bytes : plan->slot_bytes;
    const int x = scale > 0 ? (int)x_bytes<q8>(shape->chunks * chunk) : 0; // of all types with groups
    int *most_x = &plan->launch.sizes.x_bytes;
    *most_x = x > *most_x ? x : *most_x;
    return in_warp <= (dtype_sizes[type] == 2 || type == DTYPE_Q8 ? STEP_MOST_CHUNKS<half> : STEP_MOST_CHUNKS<q4>);
}

struct step_phase phase_of(const struct step_writer *w, const struct step *step, enum step_work work, const struct words &x)
{
    struct step_phase p = {};
    p.work = work;
    p.layer = step->layer;
    p.x = x.at;
    p.x_words = x.words;
    p.norm = step->norm;
    p.eps = w->s->config->norm_eps;
    return p;
}

void add_matrix(struct step_phase *p, const struct matrix *m, const float *bias, const struct words &y)
{
    const int i = p->rows[1] ? 2 : p->rows[0] ? 1 : 0;
    p->type = m->dtype;
    p->cols = m->cols;
    p->w[i] = static_cast<const uint8_t *>(m->data);
    p->bias[i] = bias;
    p->y[i] = y.at;
    p->y_words[i] = y.words;
    p->rows[i] = m->rows;
    p->units += m->rows;
}

void put_product(struct step_writer *w, struct step_phase p)
{
    if (p.work == STEP_NARROW)
        w->to->fits = w->to->fits && p.type == DTYPE_FP32 && p.cols % 4 == 0;
    else
        w->to->fits = w->to->fits && shape_make(&p.shape, p.type, p.cols, w->to);
    if (p.layer == 0)
        w->to->layer_bytes += (size_t)p.units * dtype_row_bytes(p.type, p.cols);
    if (p.work == STEP_GATED)
        p.units /= 2; // pairs of rows
    put(w, p);
}
