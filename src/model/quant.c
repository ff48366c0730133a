#include "model/quant.h"

#include <math.h>

#include "model/half.h"
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

// Of group i of the eight whose scales are at `eight`: in q4k and q5k two fp16, d and m; then of each group six bits of a scale
// and two of a minimum; then four bits more of each minimum. In q6k one fp16, and bytes with sign for first and second halves;
// in iq4xs for groups. In q4z32 and its likes fp16 scales, then as many bytes, their zero points.
static void scales_in_eight(struct quant_group *to, enum dtype type, const uint8_t *eight, size_t i)
{
    const float d = half_at(eight);
    if (type == DTYPE_IQ4XS) {
        to->scale[0] = to->scale[1] = d * (int8_t)eight[2 + i];
        to->minimum = 0;
        return;
    }
    if (dtype_zeros(type)) {
        const size_t zeros = (size_t)dtype_zeros(type), at = i * zeros / QUANT_EIGHT;
        to->scale[0] = to->scale[1] = half_at(eight + 2 * at);
        to->centre -= eight[2 * zeros + at];
        to->minimum = 0;
        return;
    }
    if (dtype_has_halves(type)) {
        for (int half = 0; half < 2; half++)
            to->scale[half] = d * (int8_t)eight[2 + QUANT_EIGHT * half + i];
        to->minimum = 0;
        return;
    }
    const uint8_t byte = eight[4 + i];
    const int more = eight[4 + QUANT_EIGHT + i / 2] >> (i % 2 * 4) & 15;
    to->scale[0] = to->scale[1] = d * (float)(byte & 63);
    to->minimum = -half_at(eight + 2) * (float)(byte >> 6 | more << 2);
}

static void group_scales(struct quant_group *to, enum dtype type, const void *w, int rows, size_t groups, int row, size_t group)
{
    const uint8_t *scales = row_quants(type, w, groups, rows) + quant_scale_bytes(type, (size_t)row * groups);
    to->centre = dtype_centre(type);
    if (dtype_in_eights(type)) {
        scales_in_eight(to, type, scales + quant_scale_bytes(type, group / QUANT_EIGHT * QUANT_EIGHT), group % QUANT_EIGHT);
        return;
    }
    scales += quant_scale_bytes(type, group);
    if (type == DTYPE_MXFP4) {
        to->scale[0] = to->scale[1] = ldexpf(1, scales[0] - 128);
        to->minimum = 0;
        return;
    }
    to->scale[0] = to->scale[1] = dtype_row_scale[type] ? (float)(int8_t)scales[0] : half_at(scales);
    to->minimum = dtype_is_affine(type) ? half_at(scales + 2) : 0;
}

void quant_read_group(struct quant_group *to, enum dtype type, const void *w, int rows, size_t groups, int row, size_t group)
{
    const size_t low_bytes = dtype_low_bytes(type), high_bytes = dtype_group_bytes[type] - low_bytes;
    const uint8_t *plane = row_quants(type, w, groups, row), *bytes = plane + group * low_bytes;
    if (type == DTYPE_Q8)
        memcpy(to->quants, bytes, QUANT_GROUP);
    else
        for (int i = 0; i < QUANT_GROUP; i++) { // two's complement, the even columns in the low four bits
            const int bits = bytes[i / 2] >> (i % 2 * 4) & 15;
            to->quants[i] = (int8_t)(dtype_is_six_bit(type) || dtype_table(type)
                                         ? six_bit_value(type, bytes, plane + groups * low_bytes + group * high_bytes, i)
                                         : bits - (bits & 8) * 2);
        }
    group_scales(to, type, w, rows, groups, row, group);
}

void quant_group_to_fp32(float values[QUANT_GROUP], const struct quant_group *group)
{
    for (int i = 0; i < QUANT_GROUP; i++)
        values[i] = group->scale[i / (QUANT_GROUP / 2)] * (float)(group->quants[i] + group->centre) + group->minimum;
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
