// What evaluating costs, by the model's sizes; and what the machine gives, measured.

#include "engine/session.h"

static struct session_parts parts_of(const yalm_session *session)
{
    return session_parts((yalm_session *)session); // nothing here changes it
}

// ------------------------------------------------------------------------------------------ costs

// Of one position's key, or value, of one head.
static double kv_row_bytes(yalm_kv kv, int head_dim)
{
    return kv == YALM_KV_INT8 ? head_dim + 4.0 : head_dim * (kv == YALM_KV_FP32 ? 4.0 : 2.0); // int8: and a float, its scale
}

// Of the cache, that dense attention of a piece must read.
static double dense_bytes(const struct session_parts *s, int n, int64_t depth)
{
    const struct model_config *c = &s->model->config;
    double rows = 0;
    for (int kind = 0; kind < config_n_kinds(c); kind++) {
        const struct kv_policy *kv = &s->kv[kind];
        const int64_t first = kv_first_visible(kv, depth), last = depth + n;
        rows += (double)config_n_layers_of(c, kind) * (double)(last - first + (kv_sinks_apart(kv, last - 1) ? kv->n_sinks : 0));
    }
    return 2.0 * rows * c->n_kv_heads * kv_row_bytes(s->options->kv, c->head_dim);
}

static yalm_attention_cost attention_cost(const struct session_parts *s, int n, int64_t depth)
{
    yalm_attention_cost cost = {0};
    for (int done = 0, piece; done < n; done += piece) { // each piece reads the keys that it sees once
        piece = n - done < s->options->chunk ? n - done : s->options->chunk;
        const double dense = dense_bytes(s, piece, depth + done);
        cost.dense_bytes += dense;
        cost.bytes += s->backend->step_bytes ? s->backend->step_bytes(s->state, piece, depth + done) : dense;
    }
    return cost;
}

yalm_attention_cost yalm_session_attention_cost(const yalm_session *session, int n, int64_t depth)
{
    const struct session_parts parts = parts_of(session);
    return attention_cost(&parts, n, depth);
}

// By one head of a query in all layers together.
static int64_t keys_seen(const struct session_parts *s, int64_t position)
{
    int64_t n = 0;
    for (int kind = 0; kind < config_n_kinds(&s->model->config); kind++)
        n += (int64_t)config_n_layers_of(&s->model->config, kind) * kv_n_visible(&s->kv[kind], position);
    return n;
}

yalm_cost yalm_session_cost(const yalm_session *session, int n, int64_t depth)
{
    const struct session_parts parts = parts_of(session), *s = &parts;
    const struct model_config *c = &s->model->config;
    const struct model_weights *w = &s->model->weights;
    const double classifier_ops = 2.0 * w->classifier.rows * w->classifier.cols;
    yalm_cost cost = {.ops = n * (w->token_ops - classifier_ops) + classifier_ops};
    cost.bytes = attention_cost(s, n, depth).bytes;
    for (int done = 0, piece; done < n; done += piece) { // each piece reads the weights once
        piece = n - done < s->options->chunk ? n - done : s->options->chunk;
        cost.bytes += (double)w->token_bytes;
        for (int i = 0; i < piece; i++)
            cost.ops += 4.0 * c->n_heads * c->head_dim * (double)keys_seen(s, depth + done + i);
    }
    return cost;
}

// ------------------------------------------------------------------------------------------ measuring

yalm_status yalm_measure_limits(yalm_session *session, double seconds, yalm_limits *limits, yalm_error *error)
{
    const struct session_parts s = parts_of(session);
    *limits = (yalm_limits){0};
    return s.backend->measure_limits(s.state, seconds, limits, error);
}

double yalm_measure_reading(yalm_session *session, double seconds)
{
    const struct session_parts s = parts_of(session);
    return s.backend->measure_reading ? s.backend->measure_reading(s.state, seconds) : 0;
}

bool yalm_time_attention(yalm_session *session, bool on)
{
    const struct session_parts s = parts_of(session);
    if (s.backend->time_attention)
        s.backend->time_attention(s.state, on);
    return s.backend->time_attention != NULL;
}

double yalm_attention_seconds(const yalm_session *session)
{
    const struct session_parts s = parts_of(session);
    return s.backend->attention_seconds ? s.backend->attention_seconds(s.state) : 0;
}
