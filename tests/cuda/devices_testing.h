// What the programs share that run a model on both devices: their arguments, as C and as C++.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "settings_testing.h"
#include "yalm_measure.h"

static inline void quit(const char *what, const yalm_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error ? error->text : "");
    exit(error && error->status ? (int)error->status : YALM_FAILED);
}

// int32 ids; NULL where there are none.
static inline int32_t *read_tokens(const char *path, int *n)
{
    FILE *file = fopen(path, "rb");
    int32_t *tokens = NULL;
    if (file && fseek(file, 0, SEEK_END) == 0) {
        *n = (int)(ftell(file) / (long)sizeof *tokens);
        tokens = (int32_t *)malloc((size_t)*n * sizeof *tokens + 1);
        rewind(file);
        if (tokens && fread(tokens, sizeof *tokens, (size_t)*n, file) != (size_t)*n)
            *n = 0;
    }
    if (file)
        fclose(file);
    return tokens;
}

// On the CPU with float32's products where the model has any, so that no rounding of its own adds to the GPU's: matrices that
// are all quantised have none, and refuse the option.
static inline yalm_session *open_exact(const yalm_model *model, yalm_session_options options, yalm_error *error)
{
    options.activations = YALM_ACTIVATIONS_FP32;
    yalm_session *session = yalm_session_open(model, &options, error);
    if (session)
        return session;
    options.activations = YALM_ACTIVATIONS_INT16;
    return yalm_session_open(model, &options, error);
}

// Codebooks of the model, from the tokens.
static inline void learn(const yalm_model *model, const int32_t *tokens, int n, int d_sub, const char *path)
{
    yalm_error error = {YALM_OK, ""};
    yalm_session_options options = yalm_session_defaults();
    options.activations = YALM_ACTIVATIONS_INT16; // as a GPU has them
    yalm_calibration how = yalm_calibration_defaults();
    options.device = "cpu";
    options.context = n;
    how.d_sub = d_sub;
    yalm_session *session = yalm_session_open(model, &options, &error);
    if (session == NULL || yalm_calibrate(session, tokens, (size_t)n, &how, path, NULL, &error) != YALM_OK)
        quit("calibration", &error);
    yalm_session_close(session);
}

// One argument: chunk=, kv=, sparq=R,K,LOCAL,COPY,TAIL, hybrid=RATIO,MIN_K,LOCAL,D_SUB,DRAW or codebooks=. The methods
// attend from the first key on.
static inline void read_option(yalm_session_options *options, int *d_sub, const char *text)
{
    struct settings settings;
    memset(&settings, 0, sizeof settings); // C++ warns of {0}
    struct sparq_settings *sparq = &settings.sparq;
    struct hybrid_settings *hybrid = &settings.hybrid;
    if (strncmp(text, "chunk=", 6) == 0) {
        options->chunk = atoi(text + 6);
    } else if (strcmp(text, "kv=fp32") == 0) {
        options->kv = YALM_KV_FP32;
    } else if (strcmp(text, "kv=int8") == 0) {
        options->kv = YALM_KV_INT8;
    } else if (sscanf(text, "sparq=%d,%d,%d,%d,%d", &sparq->r, &sparq->k, &sparq->local, &sparq->copy, &sparq->tail) == 5) {
        options->attention = "sparq";
        sparq->from = 1;
        settings_use(options, &settings);
    } else if (sscanf(text, "hybrid=%f,%d,%d,%d,%d", &options->attention_ratio, &hybrid->min_k, &hybrid->local, d_sub,
                      &hybrid->draw) == 5) {
        options->attention = "hybrid";
        hybrid->from = 1;
        hybrid->codes = 1; // as the GPU's scores
        settings_use(options, &settings);
    } else if (strncmp(text, "codebooks=", 10) == 0) {
        options->codebooks = text + 10;
    } else if (strcmp(text, "kv=fp16") != 0) {
        quit(text, NULL);
    }
}
