// Rows of the KV cache, as its type holds them; and the policy that keeps nothing else.

#include "cpu/state.h"
#include "model/key_offset.h"

#include <math.h>
#include <string.h>

// Whether any of n halves is ±65504, to which conversion cuts, or NaN: by the carry of four at a time.
static bool any_largest(const uint16_t *halves, int n)
{
    uint64_t carry = 0, four = 0;
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        memcpy(&four, halves + i, sizeof four);
        carry |= (four & 0x7fff7fff7fff7fff) + 0x0401040104010401;
    }
    for (; i < n; i++)
        carry |= (uint64_t)(halves[i] & 0x7fff) + 0x0401;
    return carry & 0x8000800080008000;
}

void cpu_to_half(struct cpu_state *s, int layer, int d, uint16_t *to, const float *x)
{
    s->kernels->to_fp16(to, x, d);
    const bool large = any_largest(to, d);
    for (int i = 0; i < d && large; i++)
        if (fabsf(x[i]) > 65504 && fabsf(x[i]) < INFINITY) {
            int none = 0;
            atomic_compare_exchange_strong(&s->cut, &none, layer + 1);
            return;
        }
}

static void store_row(struct cpu_state *s, int layer, void *rows, float *scales, int slot, const float *x)
{
    const int d = cpu_kind_of(s, layer)->head_dim;
    const size_t at = (size_t)slot * d;
    if (s->kv_type == KV_FP32)
        memcpy((float *)rows + at, x, sizeof(float) * d);
    else if (s->kv_type == KV_FP16)
        cpu_to_half(s, layer, d, (uint16_t *)rows + at, x);
    else
        scales[slot] = s->kernels->to_int8((int8_t *)rows + at, x, d);
}

void cpu_store_key(struct cpu_state *s, int layer, int kv_head, int slot, const float *x)
{
    const int d = cpu_kind_of(s, layer)->head_dim;
    float less[KEY_OFFSET_DIMS];
    if (s->key_offsets) {
        const float *offset = s->key_offsets + (size_t)layer * s->kv_dim + (size_t)kv_head * d;
        for (int i = 0; i < d; i++)
            less[i] = x[i] - offset[i];
        x = less;
    }
    store_row(s, layer, cpu_keys(s, layer, kv_head), cpu_key_scales(s, layer, kv_head), slot, x);
}

void cpu_store_value(struct cpu_state *s, int layer, int kv_head, int slot, const float *x)
{
    store_row(s, layer, cpu_values(s, layer, kv_head), cpu_value_scales(s, layer, kv_head), slot, x);
}

static void load_row(const struct cpu_state *s, int d, const void *rows, const float *scales, int slot, float *x)
{
    const size_t at = (size_t)slot * d;
    if (s->kv_type == KV_FP32)
        memcpy(x, (const float *)rows + at, sizeof(float) * d);
    else if (s->kv_type == KV_FP16)
        s->kernels->to_fp32[DTYPE_FP16](x, (const uint16_t *)rows + at, d);
    else
        for (int i = 0; i < d; i++)
            x[i] = scales[slot] * ((const int8_t *)rows)[at + i];
}

void cpu_load_key(const struct cpu_state *s, int layer, int kv_head, int slot, float *x)
{
    load_row(s, cpu_kind_of(s, layer)->head_dim, cpu_keys(s, layer, kv_head), cpu_key_scales(s, layer, kv_head), slot, x);
}

void cpu_load_value(const struct cpu_state *s, int layer, int kv_head, int slot, float *x)
{
    load_row(s, cpu_kind_of(s, layer)->head_dim, cpu_values(s, layer, kv_head), cpu_value_scales(s, layer, kv_head), slot, x);
}

static void dense_append(struct cpu_state *s, const struct append *row)
{
    cpu_store_key(s, row->layer, row->kv_head, row->slot, row->k);
    if (row->v)
        cpu_store_value(s, row->layer, row->kv_head, row->slot, row->v);
}

static bool dense_applies(const struct cpu_state *s, int n, int64_t position, int layer)
{
    (void)s, (void)n, (void)position, (void)layer;
    return false; // what every batch does to which no method applies
}

const struct policy policy_dense = {.name = "dense", .append = dense_append, .applies = dense_applies};
