// The shape that a bench of the CUDA half times, as NAME=VALUE arguments.
#pragma once
#include "cuda/kernels/cuda.h"

enum { MAX_LIST = 8 };

struct shape_arguments {
    const char *name;
    int dim, ffn, heads, kv, head_dim, vocab;
    enum dtype dtype;
    int depths[MAX_LIST], n_depths, prompts[MAX_LIST], n_prompts;
};

static inline void read_list(int *values, int *n, const char *text)
{
    for (char *end; *text && *n < MAX_LIST; text = *end ? end + 1 : end)
        values[(*n)++] = (int)strtol(text, &end, 10);
}

static inline bool read_dtype(enum dtype *type, const char *text)
{
    for (int i = 0; i < DTYPE_WEIGHTS; i++)
        if (strcmp(text, dtype_names[i]) == 0) {
            *type = (enum dtype)i;
            return true;
        }
    return false;
}

static inline bool read_argument(struct shape_arguments *s, const char *argument)
{
    const char *value = strchr(argument, '=');
    const struct {
        const char *name;
        int *value;
    } numbers[] = {{"dim", &s->dim}, {"ffn", &s->ffn},           {"heads", &s->heads},
                   {"kv", &s->kv},   {"head_dim", &s->head_dim}, {"vocab", &s->vocab}};
    if (!value)
        return false;
    const size_t n = value++ - argument;
    for (const auto &number : numbers)
        if (n == strlen(number.name) && memcmp(argument, number.name, n) == 0)
            return (*number.value = atoi(value)) > 0;
    if (strncmp(argument, "dtype=", 6) == 0)
        return read_dtype(&s->dtype, value);
    if (strncmp(argument, "name=", 5) == 0)
        s->name = value;
    else if (strncmp(argument, "depths=", 7) == 0)
        read_list(s->depths, &s->n_depths, value);
    else if (strncmp(argument, "prompts=", 8) == 0)
        read_list(s->prompts, &s->n_prompts, value);
    else
        return false;
    return true;
}

// False where an argument is not understood, which it says on stderr.
static inline bool read_arguments(struct shape_arguments *s, int argc, char **argv, const char *program)
{
    *s = {"unnamed", 64, 128, 4, 2, 16, 256, DTYPE_FP16, {}, 0, {}, 0};
    for (int i = 1; i < argc; i++)
        if (!read_argument(s, argv[i])) {
            fprintf(stderr, "%s: '%s': expected NAME=VALUE\n", program, argv[i]);
            return false;
        }
    if (s->heads % s->kv != 0)
        fprintf(stderr, "%s: %d heads for %d KV heads: expected a multiple\n", program, s->heads, s->kv);
    return s->heads % s->kv == 0;
}
