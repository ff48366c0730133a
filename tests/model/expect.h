// Assertions that the tests of this room share.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/weights.h"
#include "model_builder.h"

// All that is read of a file without its tokenizer.
struct opened {
    struct container container;
    struct model_config config;
    struct model_weights weights;
};

static inline yalm_status open_all(struct opened *o, const void *data, size_t size, yalm_error *error)
{
    char path[64];
    const int fd = file_of(data, size, path);
    memset(o, 0, sizeof *o);
    yalm_status status = container_open(&o->container, path, false, error);
    if (status == YALM_OK)
        status = config_read(&o->config, &o->container, error);
    if (status == YALM_OK)
        status = weights_bind(&o->weights, &o->config, &o->container, error);
    close(fd); // the mapping keeps the file
    return status;
}

static inline void close_all(struct opened *o)
{
    weights_free(&o->weights);
    container_close(&o->container);
}

// The bytes are refused with this status, by one line that names the file and has `words` in it.
static inline void refused(const void *data, size_t size, yalm_status expected, const char *words)
{
    struct opened o;
    yalm_error error = {.status = YALM_OK};
    const yalm_status status = open_all(&o, data, size, &error);
    close_all(&o);
    if (status != expected || !strstr(error.text, words))
        fail_msg("status %d, '%s': expected %d and '%s'", (int)status, error.text, (int)expected, words);
    assert_int_equal(error.status, expected);
    assert_int_equal(strncmp(error.text, "/proc/self/fd/", 14), 0);
    assert_null(strchr(error.text, '\n'));
}

static inline void accepted(struct opened *o, const struct built *file)
{
    yalm_error error = {.text = ""};
    if (open_all(o, file->data, file->size, &error) != YALM_OK)
        fail_msg("refused: %s", error.text);
}

// One edit of the metadata of a valid file, and the words of its refusal.
struct damage {
    const char *from, *to, *words;
};

static inline void each_refused(const struct build_options *options, const struct damage *damages, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct built file = build(options);
        edit(&file, damages[i].from, damages[i].to);
        refused(file.data, file.size, YALM_BAD_MODEL, damages[i].words);
        built_free(&file);
    }
}
