// See share_copy.h.
#include "model/share_copy.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/bf12.h"
#include "util/round.h"

enum { LINE = 64 };

int pieces_length(struct pieces p)
{
    return p.n * (p.span.last - p.span.first);
}

void *copier_take(struct copier *c, size_t bytes)
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

uint8_t *copy_pieces(uint8_t *to, const uint8_t *from, struct pieces p, size_t size)
{
    const size_t bytes = (size_t)(p.span.last - p.span.first) * size;
    for (int i = 0; i < p.n; i++, to += bytes)
        memcpy(to, from + ((size_t)p.span.first + (size_t)i * (size_t)p.apart) * size, bytes);
    return to;
}

struct matrix copy_rows(struct copier *c, const struct matrix *w, struct pieces rows)
{
    const struct row row = row_of(w->dtype, w->cols);
    const size_t n = (size_t)pieces_length(rows), parts[] = {row.elements, row.scales, row.own};
    uint8_t *const data = copier_take(c, n * (row.elements + row.scales + row.own)), *to = data;
    const uint8_t *from = w->data;
    for (int i = 0; to && i < 3; i++) {
        to = copy_pieces(to, from, rows, parts[i]);
        from += (size_t)w->rows * parts[i];
    }
    if (data)
        give_back(c, w);
    return (struct matrix){data, w->dtype, (int)n, w->cols};
}

static void copy_bf12_cols(uint16_t *to, const struct matrix *w, struct pieces cols)
{
    uint16_t row[BF12_MOST_COLS];
    for (int r = 0; r < w->rows; r++) {
        bf12_to_bf16(row, w->data, r, r + 1, w->cols);
        to = (uint16_t *)copy_pieces((uint8_t *)to, (const uint8_t *)row, cols, sizeof *row);
    }
}

// Groups of so many columns, as pieces of a row's groups.
static struct pieces groups_of(struct pieces cols)
{
    const int first = (int)quant_groups(cols.span.first), n = (int)quant_groups(cols.span.last - cols.span.first);
    return (struct pieces){{first, first + n}, cols.n, (int)quant_groups(cols.apart)};
}

// Copies some columns of a row's elements. A type with a plane of high bits has the low bits first, then the plane.
static void copy_elements(uint8_t *to, const uint8_t *from, enum dtype type, int all_cols, struct pieces cols)
{
    const size_t planes[] = {dtype_low_bytes(type), dtype_group_bytes[type] - dtype_low_bytes(type)};
    if (!planes[0]) {
        copy_pieces(to, from, cols, dtype_sizes[type]);
        return;
    }
    for (int i = 0; i < 2; i++) {
        to = copy_pieces(to, from, groups_of(cols), planes[i]);
        from += quant_groups(all_cols) * planes[i];
    }
}

static void copy_plain_cols(uint8_t *to, const struct matrix *w, struct pieces cols)
{
    const struct row row = row_of(w->dtype, pieces_length(cols)), whole = row_of(w->dtype, w->cols);
    const struct row piece = row_of(w->dtype, cols.span.last - cols.span.first);
    const size_t rows = (size_t)w->rows;
    const uint8_t *from = w->data, *scales = from + rows * whole.elements, *own = scales + rows * whole.scales;
    uint8_t *to_scales = to + rows * row.elements;
    for (size_t r = 0; r < rows; r++) {
        copy_elements(to + r * row.elements, from + r * whole.elements, w->dtype, w->cols, cols);
        for (int i = 0; i < cols.n; i++, to_scales += piece.scales)
            memcpy(to_scales, scales + r * whole.scales + row_of(w->dtype, cols.span.first + i * cols.apart).scales,
                   piece.scales);
    }
    memcpy(to_scales, own, rows * row.own); // they are of all columns
}

struct matrix copy_cols(struct copier *c, const struct matrix *w, struct pieces cols)
{
    const enum dtype type = w->dtype == DTYPE_BF12 ? DTYPE_BF16 : w->dtype;
    const int n_cols = pieces_length(cols);
    const struct row row = row_of(type, n_cols);
    uint8_t *to = copier_take(c, (size_t)w->rows * (row.elements + row.scales + row.own));
    if (to && w->dtype == DTYPE_BF12)
        copy_bf12_cols((uint16_t *)to, w, cols);
    else if (to)
        copy_plain_cols(to, w, cols);
    if (to)
        give_back(c, w);
    return (struct matrix){to, type, w->rows, n_cols};
}

const float *copy_floats(struct copier *c, const float *from, struct pieces pieces)
{
    if (!from)
        return NULL;
    float *to = copier_take(c, sizeof *from * (size_t)pieces_length(pieces));
    if (to)
        copy_pieces((uint8_t *)to, (const uint8_t *)from, pieces, sizeof *from);
    return to;
}
