// What an evaluation must cost, and what the machine could do.
#include "engine/session.h"
#include "recipe/recipe.h"

// Of one position's key, or value, of one head.
static double kv_row_bytes(yalm_kv kv, int head_dim)
{
    return kv == YALM_KV_INT8 ? head_dim + 4.0 : head_dim * (kv == YALM_KV_FP32 ? 4.0 : 2.0); // int8: and a float, its scale
}

// Of the cache, that dense attention of a piece must read, and of what recurrent layers carry.
static double dense_bytes(const yalm_session *s, int n, int64_t depth)
{
    const struct model_config *c = &s->model->config;
    double bytes = 0;
    for (int kind = 0; kind < config_n_kinds(c); kind++) {
        const struct kv_policy *kv = &s->kv[kind];
        if (config_kind_recurs(c, kind))
            bytes += config_n_layers_of(c, kind) * delta_bytes(&c->kinds[kind].delta);
        if (!config_kind_attends(c, kind))
            continue;
        const int64_t first = kv_first_visible(kv, depth), last = depth + n;
        const double rows = (double)(last - first + (kv_sinks_apart(kv, last - 1) ? kv->n_sinks : 0));
        bytes += config_cached_rows(c) * rows * config_n_layers_of(c, kind) * config_kind_kv_heads(c, kind) *
                 kv_row_bytes(s->options.kv, config_kind_head_dim(c, kind));
    }
    return bytes;
}

yalm_attention_cost yalm_session_attention_cost(const yalm_session *s, int n, int64_t depth)
{
    yalm_attention_cost cost = {0};
    for (int done = 0, piece; done < n; done += piece) { // each piece reads the keys that it sees once
        piece = n - done < s->options.chunk ? n - done : s->options.chunk;
        const double dense = dense_bytes(s, piece, depth + done);
        cost.dense_bytes += dense;
        cost.bytes += s->backend->step_bytes ? s->backend->step_bytes(s->state, piece, depth + done) : dense;
    }
    return cost;
}

// Components of keys, by one head of a query in all layers together; last: also in those that only the last token goes through.
static int64_t components_seen(const yalm_session *s, int64_t position, bool last)
{
    int64_t n = 0;
    for (int kind = 0; kind < config_n_kinds(&s->model->config); kind++)
        if (config_kind_attends(&s->model->config, kind) && (last || config_kind_keeps(&s->model->config, kind)))
            n += (int64_t)config_n_layers_of(&s->model->config, kind) * kv_n_visible(&s->kv[kind], position) *
                 config_kind_head_dim(&s->model->config, kind);
    return n;
}

yalm_cost yalm_session_cost(const yalm_session *s, int n, int64_t depth)
{
    const struct model_config *c = &s->model->config;
    const struct recipe outline = recipe_outline(c, &s->model->weights);
    const double once_ops = outline.tail_cost.ops; // for the last token
    yalm_cost cost = {.ops = n * (outline.cost.ops - once_ops) + once_ops};
    cost.bytes = yalm_session_attention_cost(s, n, depth).bytes;
    for (int done = 0, piece; done < n; done += piece) { // each piece reads the weights once
        piece = n - done < s->options.chunk ? n - done : s->options.chunk;
        cost.bytes += outline.cost.bytes;
        for (int i = 0; i < piece; i++)
            cost.ops += 4.0 * c->n_heads * (double)components_seen(s, depth + done + i, done + i == n - 1);
    }
    return cost;
}

yalm_status yalm_measure_limits(yalm_session *s, double seconds, yalm_limits *limits, yalm_error *error)
{
    *limits = (yalm_limits){0};
    return s->backend->measure_limits(s->state, seconds, limits, error);
}

double yalm_measure_reading(yalm_session *s, double seconds)
{
    return s->backend->measure_reading ? s->backend->measure_reading(s->state, seconds) : 0;
}

bool yalm_time_attention(yalm_session *s, bool on)
{
    if (s->backend->time_attention)
        s->backend->time_attention(s->state, on);
    return s->backend->time_attention != NULL;
}

double yalm_attention_seconds(const yalm_session *s)
{
    return s->backend->attention_seconds ? s->backend->attention_seconds(s->state) : 0;
}
