// The caches of keys and values, and what recurrent layers carry, as pieces of memory, for whoever keeps them elsewhere: the
// server's pages, a session's file. Those lie in host memory, where there is more of it. One layer at a time comes there, by a
// copy for each array. Pieces have the CPU's order and form (cpu/rows.c), so what one device kept the other reads.
#include "cuda/rows.h"

#include "cuda/delta/recur.h"
#include "cuda/kernels/kv_rows.cuh"

struct taking {
    struct cuda_state *s;
    enum row_use use;
    row_taker *take;
    void *context;
    uint8_t *host; // (room)
    size_t room;
    yalm_error *error;
};

static yalm_status make_room(struct taking *t, size_t bytes)
{
    if (t->use == ROWS_MEASURED || bytes <= t->room)
        return YALM_OK;
    free(t->host);
    t->host = static_cast<uint8_t *>(malloc(bytes));
    t->room = t->host ? bytes : 0;
    return t->host ? YALM_OK : error_set(t->error, YALM_NO_MEMORY, "out of memory for a copy of a layer's keys and values");
}

// `rows` times `width` bytes between the host and the device, in the direction that the use asks for.
static yalm_status copy(const struct taking *t, uint8_t *host, size_t host_pitch, void *device, size_t pitch, size_t width,
                        size_t rows)
{
    yalm_error *error = t->error;
    if (width == 0) // of a convolution's states
        return YALM_OK;
    if (t->use == ROWS_READ)
        TRY_CUDA(cudaMemcpy2DAsync(host, host_pitch, device, pitch, width, rows, cudaMemcpyDeviceToHost, t->s->stream));
    if (t->use == ROWS_WRITTEN)
        TRY_CUDA(cudaMemcpy2DAsync(device, pitch, host, host_pitch, width, rows, cudaMemcpyHostToDevice, t->s->stream));
    return YALM_OK;
}

// Takes pieces, between the copies that their use asks for.
template <class Copy, class Take> static yalm_status take_between(const struct taking *t, Copy copy_all, Take take_all)
{
    yalm_error *error = t->error;
    if (t->use == ROWS_READ)
        TRY(copy_all());
    TRY_CUDA(cudaStreamSynchronize(t->s->stream));
    TRY(take_all());
    if (t->use == ROWS_WRITTEN)
        TRY(copy_all());
    TRY_CUDA(cudaStreamSynchronize(t->s->stream));
    return YALM_OK;
}

// ------------------------------------------------------------------------------------------ keys and values

// Of a layer, for all KV heads: keys, values, and of int8 their scales.
struct row_array {
    uint8_t *device; // (n_kv_heads, capacity)
    size_t size;     // bytes of a row
    uint8_t *host;   // (n_kv_heads, n)
};

static yalm_status take_layer(struct taking *t, const struct kv_cache *cache, int place, struct stretch which)
{
    const struct kv_layer layer = kv_layer_of(cache, place);
    const size_t row = cache->head_dim * kv_element_bytes(cache->type), heads = cache->n_kv_heads;
    const size_t capacity = cache->policy.capacity, n = which.end - which.first;
    struct row_array arrays[] = {{static_cast<uint8_t *>(layer.keys), row, NULL},
                                 {static_cast<uint8_t *>(layer.values), row, NULL},
                                 {reinterpret_cast<uint8_t *>(layer.key_scales), sizeof(float), NULL},
                                 {reinterpret_cast<uint8_t *>(layer.value_scales), sizeof(float), NULL}};
    const int n_arrays = cache->latent ? 1 : layer.key_scales ? 4 : 2;
    TRY(make_room(t, heads * n * 2 * (row + sizeof(float))));
    for (int i = 0; t->host && i < n_arrays; i++)
        arrays[i].host = i == 0 ? t->host : arrays[i - 1].host + heads * n * arrays[i - 1].size;
    const auto each_run = [&](auto use_run) -> yalm_status { // slots that follow each other
        for (int64_t at = which.first, end; at < which.end; at = end) {
            end = kv_run_end(&cache->policy, at, which.end);
            TRY(use_run((size_t)(at - which.first), (size_t)(end - at), (size_t)kv_slot(&cache->policy, at)));
        }
        return YALM_OK;
    };
    const auto copy_all = [&]() {
        return each_run([&](size_t first, size_t rows, size_t slot) -> yalm_status {
            for (int i = 0; i < n_arrays; i++) {
                const struct row_array *a = &arrays[i];
                TRY(copy(t, a->host + first * a->size, n * a->size, a->device + slot * a->size, capacity * a->size,
                         rows * a->size, heads));
            }
            return YALM_OK;
        });
    };
    const auto take_all = [&]() -> yalm_status {
        for (size_t head = 0; head < heads; head++)
            TRY(each_run([&](size_t first, size_t rows, size_t) -> yalm_status {
                for (int i = 0; i < n_arrays; i++)
                    TRY(t->take(t->context, arrays[i].host ? arrays[i].host + (head * n + first) * arrays[i].size : NULL,
                                rows * arrays[i].size));
                return YALM_OK;
            }));
        return YALM_OK;
    };
    return n == 0 ? YALM_OK : t->use == ROWS_MEASURED ? take_all() : take_between(t, copy_all, take_all);
}

// ------------------------------------------------------------------------------------------ recurrent layers

// A layer's states, of which a column lies in one piece here (rule.cu), in the form of struct stretch's pieces; or back.
static void turn_states(float *handed, float *own, const struct delta_config *c, bool back)
{
    const int keys = c->key_dim, values = c->value_dim;
    for (int head = 0; head < c->n_value_heads; head++, handed += (size_t)keys * values, own += (size_t)keys * values)
        for (int col = 0; col < values; col++) {
            const int first = col / CARRIED_COLS * CARRIED_COLS, left = values - first;
            const int width = left < CARRIED_COLS ? left : CARRIED_COLS;
            for (int row = 0; row < keys; row++) {
                float *there = handed + (size_t)first * keys + (size_t)row * width + col - first;
                float *here = own + (size_t)col * keys + row;
                *(back ? here : there) = *(back ? there : here);
            }
        }
}

static yalm_status take_carried(struct taking *t, int layer, int place)
{
    struct cuda_state *s = t->s;
    const struct delta_config *c = config_delta(s->config, layer);
    const int kind = s->config->kind_of_layer[layer];
    const size_t at = (size_t)place * config_n_layers_of(s->config, kind) + config_place(s->config, layer);
    const size_t floats = delta_state_floats(c), inputs = delta_input_floats(c);
    TRY(make_room(t, (2 * floats + inputs) * sizeof(float)));
    float *handed = reinterpret_cast<float *>(t->host), *own = handed + floats, *last = own + floats;
    const auto copy_all = [&]() -> yalm_status {
        if (t->use == ROWS_WRITTEN)
            turn_states(handed, own, c, true);
        const size_t state_bytes = floats * sizeof(float), input_bytes = inputs * sizeof(float);
        TRY(copy(t, reinterpret_cast<uint8_t *>(own), state_bytes, s->states[kind] + at * floats, state_bytes, state_bytes, 1));
        return copy(t, reinterpret_cast<uint8_t *>(last), input_bytes, s->inputs[kind] + at * inputs, input_bytes, input_bytes,
                    1);
    };
    const auto take_all = [&]() -> yalm_status {
        if (t->use == ROWS_READ)
            turn_states(handed, own, c, false);
        TRY(t->take(t->context, handed, floats * sizeof(float)));
        return t->take(t->context, last, inputs * sizeof(float));
    };
    return take_between(t, copy_all, take_all);
}

static yalm_status take_all_layers(struct taking *t, const struct stretch *of_kind)
{
    struct cuda_state *s = t->s;
    const struct model_config *c = s->config;
    for (int layer = 0; layer < c->n_layers; layer++) {
        const int kind = c->kind_of_layer[layer];
        const struct stretch which = of_kind[kind];
        if (config_is_recurrent(c, layer) && which.carried > 0) {
            TRY(delta_replay(s, which.carried, t->error));
            TRY(take_carried(t, layer, carried_place(&s->carried, which.carried)));
        }
        if (config_kind_keeps(c, kind))
            TRY(take_layer(t, &s->caches[kind], config_place(c, layer), which));
    }
    return YALM_OK;
}

yalm_status cuda_each_row(void *state, const struct stretch *of_kind, enum row_use use, row_taker *take, void *context,
                          yalm_error *error)
{
    struct taking t = {static_cast<struct cuda_state *>(state), use, take, context, NULL, 0, error};
    if (t.s->method)
        return error_set(error, YALM_USAGE,
                         "an attention method keeps more than keys and values: sessions with dense attention can be kept");
    const yalm_status status = take_all_layers(&t, of_kind);
    free(t.host);
    return status;
}
