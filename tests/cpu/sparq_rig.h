// The engine's own state over random queries, keys and values that are not rotated, run through attention alone, and the same
// attention in double precision from what the cache then has: what test_sparq.c looks at step by step.
#pragma once
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/attention.h"
#include "cpu/long/select.h"
#include "cpu/state.h"
#include "engine/random_model.h"
#include "settings_testing.h"

enum { HISTORY = 5400, MAX_DIM = 64, MAX_HEADS = 18 };

struct rig {
    struct random_model *model;
    yalm_session_options options;
    struct kv_policy kv;
    struct cpu_state *s;
    atomic_bool cancel;
    int d, n_heads, n_kv_heads, group;
    double *k, *v; // (HISTORY, n_kv_heads, d): as the cache has them
    int generation;
};

struct layout {
    int heads, kv_heads, d, context, window;
    bool endless;
    int n_sinks, chunk;
};

// What scores are besides.
struct scoring {
    float cap;        // 0: none
    bool sink_logits; // each head has a logit without a key
};

static double uniform_at(uint64_t seed)
{
    seed = (seed + 1) * 0x9e3779b97f4a7c15u;
    seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9u;
    seed = (seed ^ seed >> 27) * 0x94d049bb133111ebu;
    return (double)(int32_t)((seed ^ seed >> 31) >> 32) * 0x1p-31;
}

static struct rig *rig_open_scoring(const struct layout *l, struct scoring scoring, const char *isa, yalm_kv kv, int threads,
                                    const struct sparq_settings *sparq)
{
    struct rig *r = calloc(1, sizeof *r);
    const struct model_config config = {.n_layers = 2,
                                        .hidden_dim = 16,
                                        .ffn_dim = 16,
                                        .n_heads = l->heads,
                                        .n_kv_heads = l->kv_heads,
                                        .head_dim = l->d,
                                        .vocab_size = 11,
                                        .context_length = 8192,
                                        .attention_softcap = scoring.cap,
                                        .sink_logits = scoring.sink_logits,
                                        .kinds[0].sliding_window = l->window};
    r->model = random_model_make(config, DTYPE_FP32, 3);
    r->options = yalm_session_defaults();
    r->options.isa = isa, r->options.device = "cpu", r->options.n_threads = r->options.n_threads_batch = threads;
    r->options.context = l->context, r->options.chunk = l->chunk, r->options.kv = kv;
    r->options.attention = "sparq", settings_use(&r->options, &(struct settings){.sparq = *sparq});
    r->kv = kv_policy_make(l->context, l->window, l->endless, l->n_sinks, l->chunk);
    const struct container no_file = {0};
    const struct backend_plan plan = {.container = &no_file,
                                      .config = &r->model->model.config,
                                      .weights = &r->model->model.weights,
                                      .options = &r->options,
                                      .kv = {r->kv},
                                      .cancel = &r->cancel};
    yalm_error error;
    r->s = backend_cpu.open(&plan, &error);
    if (!r->s)
        fail_msg("%s", error.text);
    r->d = l->d, r->n_heads = l->heads, r->n_kv_heads = l->kv_heads, r->group = l->heads / l->kv_heads;
    r->k = calloc((size_t)HISTORY * r->n_kv_heads * r->d, sizeof(double));
    r->v = calloc((size_t)HISTORY * r->n_kv_heads * r->d, sizeof(double));
    return r;
}

static inline struct rig *rig_open(const struct layout *l, const char *isa, yalm_kv kv, int threads,
                                   const struct sparq_settings *sparq)
{
    return rig_open_scoring(l, (struct scoring){0}, isa, kv, threads, sparq);
}

static void rig_close(struct rig *r)
{
    backend_cpu.close(r->s);
    random_model_free(r->model);
    free(r->k);
    free(r->v);
    free(r);
}

static void attention_pass(struct member *me, const void *arguments)
{
    struct {
        struct cpu_state *s;
        struct batch batch;
    } pass;
    memcpy(&pass, arguments, sizeof pass);
    const struct recipe *recipe = &pass.s->recipe;
    for (const struct step *step = recipe->steps; step < recipe->steps + recipe->n; step++)
        if (step->op == OP_ATTEND) {
            attention_append(pass.s, &pass.batch, step, me);
            attention_attend(pass.s, &pass.batch, step, me);
        }
}

// n tokens from `position` on; what they are depends on position and generation, so that tokens after a rollback are others.
static void rig_step(struct rig *r, int64_t position, int n)
{
    struct cpu_state *s = r->s;
    for (int t = 0; t < n; t++) {
        const uint64_t seed = (uint64_t)((position + t) * 1000003 + r->generation) << 16;
        for (int i = 0; i < s->q_dim; i++) // some components of some tokens' queries stand out
            s->q[t * s->q_dim + i] = (float)((i % 7 == 0 ? 4 : 1) * uniform_at(seed + i));
        for (int i = 0; i < s->kv_dim; i++) {
            s->k[t * s->kv_dim + i] = (float)(2 * uniform_at(seed + 20000 + i));
            s->v[t * s->kv_dim + i] = (float)(0.5 + uniform_at(seed + 40000 + i));
        }
        for (int i = 0; i < r->d / 2; i++) {
            s->kinds[0].cos[t * (r->d / 2) + i] = s->kinds[0].sink_cos[i] = 1;
            s->kinds[0].sin[t * (r->d / 2) + i] = s->kinds[0].sink_sin[i] = 0;
        }
    }
    const struct {
        struct cpu_state *s;
        struct batch batch;
    } pass = {s, {.n = n, .position = position}};
    team_run(s->team, r->options.n_threads, attention_pass, &pass, sizeof pass);
    for (int t = 0; t < n; t++)
        for (int head = 0; head < r->n_kv_heads; head++) {
            float row[MAX_DIM];
            const size_t at = (((size_t)position + t) * r->n_kv_heads + head) * r->d;
            cpu_load_key(s, 1, head, kv_slot(&r->kv, position + t), row);
            for (int c = 0; c < r->d; c++)
                r->k[at + c] = row[c];
            cpu_load_value(s, 1, head, kv_slot(&r->kv, position + t), row);
            for (int c = 0; c < r->d; c++)
                r->v[at + c] = row[c];
        }
}

// The position of the i-th key that the token sees: the sinks that stand apart, then by age.
static int64_t visible(const struct rig *r, int64_t position, int i)
{
    const int apart = kv_sinks_apart(&r->kv, position) ? r->kv.n_sinks : 0;
    return i < apart ? i : kv_first_visible(&r->kv, position) + i - apart;
}

static const double *key_at(const struct rig *r, int64_t position, int head)
{
    return r->k + ((size_t)position * r->n_kv_heads + head) * r->d;
}
static const double *value_at(const struct rig *r, int64_t position, int head)
{
    return r->v + ((size_t)position * r->n_kv_heads + head) * r->d;
}

static double capped(const struct rig *r, double score)
{
    const double cap = (double)r->s->config->attention_softcap;
    return cap > 0 ? cap * tanh(score / cap) : score;
}

static double exact_score(const struct rig *r, int head, int64_t position)
{
    double sum = 0;
    for (int c = 0; c < r->d; c++)
        sum += (double)r->s->q[head * r->d + c] * key_at(r, position, head / r->group)[c];
    return capped(r, sum / sqrt(r->d));
}

// The last layer's logit of a head without a key; -inf: it has none.
static double sink_logit(const struct rig *r, int head)
{
    const float *logits = r->s->weights->layers[1].sink_logits;
    return logits ? (double)logits[head] : -INFINITY;
}

// y = softmax(exact scores) V over those of the token's n visible keys that are `chosen`; NULL: all of them.
static void exact_attention(const struct rig *r, int head, int64_t position, const bool *chosen, double *y)
{
    const int n = kv_n_visible(&r->kv, position);
    double max = sink_logit(r, head), sum = 0;
    memset(y, 0, sizeof *y * r->d);
    for (int i = 0; i < n; i++)
        if (!chosen || chosen[i])
            max = fmax(max, exact_score(r, head, visible(r, position, i)));
    sum = exp(sink_logit(r, head) - max);
    for (int i = 0; i < n; i++)
        if (!chosen || chosen[i]) {
            const double p = exp(exact_score(r, head, visible(r, position, i)) - max);
            sum += p;
            for (int c = 0; c < r->d; c++)
                y[c] += p * value_at(r, visible(r, position, i), head / r->group)[c];
        }
    for (int c = 0; c < r->d; c++)
        y[c] /= sum;
}

static void assert_output(const struct rig *r, int head, int64_t position, const double *y, double tolerance)
{
    for (int c = 0; c < r->d; c++)
        if (!(fabs(r->s->attended[head * r->d + c] - y[c]) <= tolerance))
            fail_msg("position %d, head %d: output %d is %.9g, expected %.9g", (int)position, head, c,
                     (double)r->s->attended[head * r->d + c], y[c]);
}
