#include "model/quant.h"

#include <math.h>

#include "model/half.h"
#include "model/quant_grids.h"
#include "model/quant_values.h"

// A row's first plane, and where all groups' scales begin.
static const uint8_t *row_quants(enum dtype type, const void *w, size_t groups, int row)
{
    return (const uint8_t *)w + (size_t)row * groups * dtype_group_bytes[type];
}

static float half_at(const uint8_t *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return fp16_to_float(half);
}

static void same_halves(struct quant_group *to, float scale, float minimum)
{
    to->scale[0] = to->scale[1] = scale;
    to->minimum[0] = to->minimum[1] = minimum;
}

// Of group i of the eight whose scales are at `eight`, types whose groups have two: after fp16 numbers, in q6k a byte with sign
// for each first half, then for each second one. In q3k four bits for each half, then for all first halves two bits more, then
// for all second ones. In q2k a byte for each half, scale and minimum.
static void scales_of_halves(struct quant_group *to, enum dtype type, const uint8_t *eight, size_t i)
{
    const float d = half_at(eight);
    same_halves(to, 0, 0);
    for (size_t half = 0; half < 2; half++)
        if (type == DTYPE_Q6K) {
            to->scale[half] = d * (int8_t)eight[2 + QUANT_EIGHT * half + i];
        } else if (type == DTYPE_Q3K) {
            const int low = eight[2 + i] >> (4 * half) & 15, high = eight[10 + 2 * half + i / 4] >> (i % 4 * 2) & 3;
            to->scale[half] = d * (float)((low | high << 4) - 32);
        } else {
            const uint8_t byte = eight[4 + QUANT_EIGHT * half + i];
            to->scale[half] = d * (float)(byte & 15);
            to->minimum[half] = -half_at(eight + 2) * (float)(byte >> 4);
        }
}

// The others: in q4k and q5k two fp16, d and m; then of each group six bits of a scale and two of a minimum; then four bits
// more of each minimum. In iq4xs one fp16, and bytes with sign. In q4z32 and its likes fp16 scales, then as many bytes, their
// zero points.
static void scales_in_eight(struct quant_group *to, enum dtype type, const uint8_t *eight, size_t i)
{
    const float d = half_at(eight);
    if (type == DTYPE_IQ4XS) {
        same_halves(to, d * (int8_t)eight[2 + i], 0);
    } else if (dtype_zeros(type)) {
        const size_t zeros = (size_t)dtype_zeros(type), at = i * zeros / QUANT_EIGHT;
        same_halves(to, half_at(eight + 2 * at), 0);
        to->centre -= eight[2 * zeros + at];
    } else if (dtype_has_halves(type)) {
        scales_of_halves(to, type, eight, i);
    } else {
        const uint8_t byte = eight[4 + i];
        const int more = eight[4 + QUANT_EIGHT + i / 2] >> (i % 2 * 4) & 15;
        same_halves(to, d * (float)(byte & 63), -half_at(eight + 2) * (float)(byte >> 6 | more << 2));
    }
}

// Of grids: four bits s for each group of iq3s; for each half of iq2s and iq2xs; and of the others beside the group's signs.
static void scales_of_grid(struct quant_group *to, enum dtype type, const uint8_t *eight, size_t i, const uint8_t *high)
{
    const float unit = half_at(eight) * (type == DTYPE_IQ3S ? 1 : type == DTYPE_IQ3XXS ? 0.25f : 0.125f);
    int first, second;
    if (type == DTYPE_IQ2S || type == DTYPE_IQ2XS)
        first = eight[2 + i] & 15, second = eight[2 + i] >> 4;
    else
        first = second = type == DTYPE_IQ3S ? eight[2 + i / 2] >> (i % 2 * 4) & 15 : grid_scale(high);
    same_halves(to, unit * (float)(2 * first + 1), 0);
    to->scale[1] = unit * (float)(2 * second + 1);
}

static void group_scales(struct quant_group *to, enum dtype type, const void *w, int rows, size_t groups, int row, size_t group,
                         const uint8_t *high)
{
    const uint8_t *scales = row_quants(type, w, groups, rows) + quant_scale_bytes(type, (size_t)row * groups);
    to->centre = dtype_centre(type);
    if (dtype_is_grid(type)) {
        scales_of_grid(to, type, scales + quant_scale_bytes(type, group / QUANT_EIGHT * QUANT_EIGHT), group % QUANT_EIGHT,
                       high);
        return;
    }
    if (dtype_in_eights(type)) {
        scales_in_eight(to, type, scales + quant_scale_bytes(type, group / QUANT_EIGHT * QUANT_EIGHT), group % QUANT_EIGHT);
        return;
    }
    scales += quant_scale_bytes(type, group);
    if (type == DTYPE_MXFP4)
        same_halves(to, ldexpf(1, scales[0] - 128), 0);
    else
        same_halves(to, dtype_row_scale[type] ? (float)(int8_t)scales[0] : half_at(scales),
                    dtype_is_affine(type) ? half_at(scales + 2) : 0);
}

void quant_read_group(struct quant_group *to, enum dtype type, const void *w, int rows, size_t groups, int row, size_t group)
{
    const size_t low_bytes = dtype_low_bytes(type), high_bytes = dtype_group_bytes[type] - low_bytes;
    const uint8_t *plane = row_quants(type, w, groups, row), *bytes = plane + group * low_bytes,
                  *high = plane + groups * low_bytes + group * high_bytes;
    if (type == DTYPE_Q8)
        memcpy(to->quants, bytes, QUANT_GROUP);
    else if (dtype_is_grid(type))
        for (int i = 0; i < QUANT_GROUP; i++) {
            const int magnitude = (int)(grid_eight(type, bytes, high, i / 8) >> (i % 8 * 8) & 255);
            to->quants[i] = (int8_t)(grid_signs(type, high) >> i & 1 ? -magnitude : magnitude);
        }
    else if (dtype_is_six_bit(type) || dtype_table(type))
        for (int i = 0; i < QUANT_GROUP; i++)
            to->quants[i] = (int8_t)six_bit_value(type, bytes, high, i);
    else
        for (int i = 0; i < QUANT_GROUP; i++) { // two's complement, the even columns in the low four bits
            const int bits = bytes[i / 2] >> (i % 2 * 4) & 15;
            to->quants[i] = (int8_t)(bits - (bits & 8) * 2);
        }
    group_scales(to, type, w, rows, groups, row, group, high);
}

void quant_group_to_fp32(float values[QUANT_GROUP], const struct quant_group *group)
{
    for (int i = 0; i < QUANT_GROUP; i++)
        values[i] = group->scale[i / (QUANT_GROUP / 2)] * (float)(group->quants[i] + group->centre) +
                    group->minimum[i / (QUANT_GROUP / 2)];
}

void quant_row_to_fp32(float *y, enum dtype type, const void *w, int rows, int cols, int row)
{
    for (int c = 0; c < cols; c += QUANT_GROUP) {
        struct quant_group group;
        float values[QUANT_GROUP];
        quant_read_group(&group, type, w, rows, quant_groups(cols), row, (size_t)(c / QUANT_GROUP));
        quant_group_to_fp32(values, &group);
        for (int i = 0; i < QUANT_GROUP && c + i < cols; i++)
            y[c + i] = values[i];
    }
}
