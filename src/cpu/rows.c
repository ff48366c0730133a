// The caches of keys and values as stretches of memory, for whoever keeps them in a file.

#include "cpu/rows.h"

static size_t used(const struct kv_policy *kv, int64_t n) // slots that positions below n have been written to
{
    return n < kv->capacity ? (size_t)n : (size_t)kv->capacity;
}

static yalm_status take_head(struct cpu_state *s, int layer, int kv_head, int64_t n, row_taker *take, void *context)
{
    const size_t slots = used(&cpu_kind_of(s, layer)->kv, n);
    float *key_scales = cpu_key_scales(s, layer, kv_head), *value_scales = cpu_value_scales(s, layer, kv_head);
    yalm_status status = take(context, cpu_keys(s, layer, kv_head), slots * cpu_row_bytes(s));
    if (status == YALM_OK)
        status = take(context, cpu_values(s, layer, kv_head), slots * cpu_row_bytes(s));
    if (status == YALM_OK && key_scales)
        status = take(context, key_scales, slots * sizeof *key_scales);
    if (status == YALM_OK && value_scales)
        status = take(context, value_scales, slots * sizeof *value_scales);
    return status;
}

yalm_status cpu_each_row(void *state, int64_t n, row_taker *take, void *context, yalm_error *error)
{
    struct cpu_state *s = state;
    if (s->method)
        return error_set(error, YALM_USAGE,
                         "attention: '%s' keeps more than keys and values: sessions with dense attention can be kept in a file",
                         s->policy->name);
    yalm_status status = YALM_OK;
    for (int layer = 0; layer < s->config->n_layers; layer++)
        for (int head = 0; head < s->config->n_kv_heads && status == YALM_OK; head++)
            status = take_head(s, layer, head, n, take, context);
    return status;
}
