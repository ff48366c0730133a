// Sessions of one small model, for tests of the public API.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/random_model.h"

static struct random_model *the_model;

static inline int set_up(void **state)
{
    (void)state;
    the_model = random_model_make((struct model_config){.n_layers = 2,
                                                        .hidden_dim = 48,
                                                        .ffn_dim = 71,
                                                        .n_heads = 4,
                                                        .n_kv_heads = 2,
                                                        .head_dim = 12,
                                                        .vocab_size = 53,
                                                        .context_length = 100},
                                  DTYPE_FP32, 3);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    random_model_free(the_model);
    return 0;
}

static inline yalm_session *open_with(yalm_session_options options)
{
    yalm_error error = {0};
    yalm_session *session = yalm_session_open(&the_model->model, &options, &error);
    if (!session)
        fail_msg("%s", error.text);
    return session;
}

static inline yalm_session_options small_options(void)
{
    yalm_session_options options = yalm_session_defaults();
    options.context = 40;
    options.n_threads = 2;
    options.chunk = 8;
    options.kv = YALM_KV_FP32;
    return options;
}

static inline void some_tokens(int32_t *tokens, int n, int salt)
{
    for (int i = 0; i < n; i++)
        tokens[i] = (i * 37 + salt * 11 + i * i) % 53;
}

static inline void assert_says(const yalm_error *error, yalm_status status, const char *words)
{
    assert_int_equal(error->status, status);
    if (!strstr(error->text, words))
        fail_msg("'%s' does not say '%s'", error->text, words);
}
