// Sessions of one small random model, for tests of how a token attends: opened through the public API, fed a text, compared;
// and codebooks, calibrated with the model into a directory of their own.
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/kinds.h"
#include "engine/random_model.h"

enum { HEADS = 6, KV_HEADS = 2, VOCAB = 53 };

static struct random_model *the_model;
static const char *sessions_device = "cpu";
static char directory[] = "/tmp/yalm-sessions-XXXXXX";

static inline struct model_config small_config(int n_layers, int head_dim, int context_length)
{
    return (struct model_config){.n_layers = n_layers,
                                 .hidden_dim = 48,
                                 .ffn_dim = 71,
                                 .n_heads = HEADS,
                                 .n_kv_heads = KV_HEADS,
                                 .head_dim = head_dim,
                                 .vocab_size = VOCAB,
                                 .context_length = context_length,
                                 .bos = -1};
}

static inline struct random_model *small_model(int n_layers, int head_dim, int context_length)
{
    return random_model_make(small_config(n_layers, head_dim, context_length), DTYPE_FP32, 3);
}

// One whose layers are of four kinds.
static inline struct random_model *model_of_kinds(int head_dim, int context_length)
{
    struct model_config config = small_config(1, head_dim, context_length);
    give_kinds(&config);
    return random_model_make(config, DTYPE_FP32, 3);
}

static inline struct random_model *model_of_latents(int context_length)
{
    struct model_config config = small_config(2, 8, context_length);
    give_latents(&config);
    return random_model_make(config, DTYPE_FP32, 3);
}

static inline yalm_session_options small_options(const char *attention, int context)
{
    yalm_session_options options = yalm_session_defaults();
    options.device = sessions_device;
    options.context = context;
    options.n_threads = 2;
    options.chunk = 16;
    options.kv = YALM_KV_FP32;
    options.attention = attention;
    return options;
}

static inline yalm_session *open_with(yalm_session_options options)
{
    yalm_error error = {0};
    yalm_session *session = yalm_session_open(&the_model->model, &options, &error);
    if (!session)
        fail_msg("%s", error.text);
    return session;
}

static inline int32_t token_at(int i)
{
    return (int32_t)(((int64_t)i * 37 + (int64_t)i * i) % VOCAB);
}

// Tokens [from, from + n) of a text, in one batch.
static inline void eval(yalm_session *session, int from, int n)
{
    int32_t tokens[512];
    yalm_error error = {0};
    assert_in_range(n, 1, sizeof tokens / sizeof *tokens);
    for (int i = 0; i < n; i++)
        tokens[i] = token_at(from + i);
    if (yalm_eval(session, tokens, n, YALM_LOGITS_LAST, &error) != YALM_OK)
        fail_msg("%s", error.text);
}

static inline void fill(yalm_session *session, int n)
{
    yalm_error error = {0};
    if (yalm_fill_random(session, n, 7, &error) != YALM_OK)
        fail_msg("%s", error.text);
}

static inline void assert_same(const yalm_session *a, const yalm_session *b)
{
    assert_memory_equal(yalm_logits(a, 0), yalm_logits(b, 0), sizeof(float) * VOCAB);
}

// The largest difference of the last logits, in parts of b's largest.
static inline double distance(const yalm_session *a, const yalm_session *b)
{
    const float *x = yalm_logits(a, 0), *y = yalm_logits(b, 0);
    double most = 0, range = 0;
    for (int i = 0; i < VOCAB; i++) {
        most = fmax(most, fabs((double)x[i] - (double)y[i]));
        range = fmax(range, fabs((double)y[i]));
    }
    return most / range;
}

// ---------------------------------------------------------------------------------------- codebooks

// The model gets a name, for what is said of its codebooks, and these a directory. The test's own paths lie in it.
static inline int make_directory(void)
{
    the_model->model.container.mapping.path = "the model";
    return mkdtemp(directory) ? 0 : 1;
}

static inline void calibrate(int context, int d_sub, const char *path)
{
    enum { N = 600 };
    int32_t tokens[N];
    for (int i = 0; i < N; i++)
        tokens[i] = token_at(3 * i);
    yalm_session *session = open_with(small_options("dense", context));
    yalm_calibration how = yalm_calibration_defaults();
    how.d_sub = d_sub;
    yalm_error error = {0};
    int samples = 0;
    if (yalm_calibrate(session, tokens, N, &how, path, &samples, &error) != YALM_OK)
        fail_msg("%s", error.text);
    assert_int_equal(samples, N);
    yalm_session_close(session);
}

// The directory must be empty.
static inline int end_sessions(void)
{
    random_model_free(the_model);
    return rmdir(directory);
}
