// The caches of keys and values as pieces of memory, for whoever keeps them elsewhere.

#include "cpu/rows.h"

#include "cpu/delta.h"

_Static_assert((int)CARRIED_COLS == (int)DELTA_COLS, "states are handed over as they lie");

// What is at slots [slot, slot + n), each of `size` bytes.
static yalm_status take_slots(void *cache, int slot, size_t n, size_t size, row_taker *take, void *context)
{
    return cache ? take(context, (uint8_t *)cache + (size_t)slot * size, n * size) : YALM_OK;
}

static yalm_status take_head(struct cpu_state *s, int layer, int kv_head, struct stretch which, row_taker *take, void *context)
{
    const struct kv_policy *kv = &cpu_kind_of(s, layer)->kv;
    yalm_status status = YALM_OK;
    for (int64_t at = which.first, end; at < which.end && status == YALM_OK; at = end) {
        end = kv_run_end(kv, at, which.end);
        const int slot = kv_slot(kv, at);
        const size_t n = (size_t)(end - at);
        status = take_slots(cpu_keys(s, layer, kv_head), slot, n, cpu_row_bytes(s, layer), take, context);
        if (status == YALM_OK && config_cached_rows(s->config) > 1)
            status = take_slots(cpu_values(s, layer, kv_head), slot, n, cpu_row_bytes(s, layer), take, context);
        status = status ?: take_slots(cpu_key_scales(s, layer, kv_head), slot, n, sizeof(float), take, context);
        status = status ?: take_slots(cpu_value_scales(s, layer, kv_head), slot, n, sizeof(float), take, context);
    }
    return status;
}

static yalm_status take_carried(struct cpu_state *s, int layer, int64_t position, row_taker *take, void *context)
{
    const struct delta_config *d = config_delta(s->config, layer);
    const int place = delta_place(s, position);
    const yalm_status status = take(context, delta_state(s, place, layer, 0), delta_state_floats(d) * sizeof(float));
    return status ?: take(context, delta_inputs(s, place, layer), delta_input_floats(d) * sizeof(float));
}

yalm_status cpu_each_row(void *state, const struct stretch *of_kind, enum row_use use, row_taker *take, void *context,
                         yalm_error *error)
{
    (void)use; // pieces are the cache itself
    struct cpu_state *s = state;
    if (s->method)
        return error_set(error, YALM_USAGE,
                         "attention: '%s' keeps more than keys and values: sessions with dense attention can be kept",
                         s->policy->name);
    yalm_status status = YALM_OK;
    for (int layer = 0; layer < s->config->n_layers && status == YALM_OK; layer++) {
        const struct stretch which = of_kind[s->config->kind_of_layer[layer]];
        if (config_is_recurrent(s->config, layer) && which.carried > 0)
            status = take_carried(s, layer, which.carried, take, context);
        const bool keeps = config_kind_keeps(s->config, s->config->kind_of_layer[layer]);
        for (int head = 0; keeps && head < cpu_kind_of(s, layer)->n_kv_heads && status == YALM_OK; head++)
            status = take_head(s, layer, head, which, take, context);
    }
    return status;
}
