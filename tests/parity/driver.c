// Evaluates token ids through the public API and writes what the parity tests compare:
//     driver MODEL TOKENS OUT [isa=NAME] [threads=N] [kv=fp16|fp32] [activations=fp32] [chunk=N] [inner=N] [back=P] [greedy=N]
//         [guess=N]
// TOKENS holds int32 ids. `chunk` ids go into each yalm_eval() (0: all); `inner` is the session's own chunk. `back` then rolls
// back to that position and evaluates the rest again, whose logits replace the first ones. OUT gets float32 logits (n,
// vocab_size). With `greedy` it gets as many int32 ids that greedy sampling goes on with. With `guess` the MTP head guesses
// that many ids behind the next token. Then OUT gets, after each yalm_eval() but the last, the int32 position, those ids, and
// the head's logits of the first of them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session.h" // for the head's logits

struct run {
    yalm_session_options options;
    int chunk, back, greedy, guess;
    int32_t *tokens; // (n)
    int n, vocab;
    float *logits; // (n, vocab)
};

static int fail(const char *what)
{
    fprintf(stderr, "driver: %s\n", what);
    return YALM_USAGE;
}

static bool parse(struct run *run, const char *argument)
{
    const char *equals = strchr(argument, '=');
    const size_t length = equals ? (size_t)(equals - argument) : 0;
    const struct {
        const char *name;
        int *value;
    } numbers[] = {{"threads", &run->options.n_threads},
                   {"chunk", &run->chunk},
                   {"inner", &run->options.chunk},
                   {"back", &run->back},
                   {"greedy", &run->greedy},
                   {"guess", &run->guess}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (length == strlen(numbers[i].name) && memcmp(argument, numbers[i].name, length) == 0) {
            *numbers[i].value = atoi(equals + 1);
            return true;
        }
    if (strncmp(argument, "isa=", 4) == 0)
        run->options.isa = argument + 4;
    else if (strcmp(argument, "kv=fp32") == 0)
        run->options.kv = YALM_KV_FP32;
    else if (strcmp(argument, "kv=int8") == 0)
        run->options.kv = YALM_KV_INT8;
    else if (strcmp(argument, "kv=fp16") == 0)
        run->options.kv = YALM_KV_FP16;
    else if (strcmp(argument, "activations=fp32") == 0)
        run->options.activations = YALM_ACTIVATIONS_FP32;
    else
        return false;
    return true;
}

static bool read_tokens(struct run *run, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        return false;
    run->n = (int)(ftell(file) / (long)sizeof(int32_t));
    run->tokens = malloc((size_t)run->n * sizeof(int32_t) + 1);
    rewind(file);
    const bool ok = run->tokens && fread(run->tokens, sizeof(int32_t), (size_t)run->n, file) == (size_t)run->n && run->n > 0;
    fclose(file);
    return ok;
}

static yalm_status evaluate(struct run *run, yalm_session *session, yalm_error *error)
{
    yalm_status status = YALM_OK;
    while (status == YALM_OK && yalm_position(session) < run->n) {
        const int at = (int)yalm_position(session);
        const int n = run->chunk > 0 && run->chunk < run->n - at ? run->chunk : run->n - at;
        status = yalm_eval(session, run->tokens + at, n, YALM_LOGITS_ALL, error);
        for (int i = 0; i < n && status == YALM_OK; i++)
            memcpy(run->logits + (size_t)(at + i) * run->vocab, yalm_logits(session, i), sizeof(float) * (size_t)run->vocab);
    }
    return status;
}

static yalm_status write_logits(struct run *run, yalm_session *session, FILE *out, yalm_error *error)
{
    run->logits = calloc((size_t)run->n * (size_t)run->vocab, sizeof(float));
    yalm_status status = run->logits ? evaluate(run, session, error) : YALM_NO_MEMORY;
    if (status == YALM_OK && run->back >= 0) {
        status = yalm_rollback(session, run->back, error);
        if (status == YALM_OK) {
            memset(run->logits + (size_t)run->back * run->vocab, 0, sizeof(float) * (size_t)(run->n - run->back) * run->vocab);
            status = evaluate(run, session, error);
        }
    }
    if (status == YALM_OK)
        fwrite(run->logits, sizeof(float) * (size_t)run->vocab, (size_t)run->n, out);
    free(run->logits);
    return status;
}

static yalm_status write_greedy(struct run *run, yalm_session *session, FILE *out, yalm_error *error)
{
    yalm_sampling sampling = yalm_sampling_defaults();
    sampling.temperature = 0;
    yalm_status status = yalm_eval(session, run->tokens, run->n, YALM_LOGITS_LAST, error);
    for (int i = 0; i < run->greedy && status == YALM_OK; i++) {
        const int32_t token = yalm_sample(session, &sampling);
        fwrite(&token, sizeof token, 1, out);
        status = yalm_eval(session, &token, 1, YALM_LOGITS_LAST, error);
    }
    return status;
}

// The head is asked twice: what it says must not depend on what it has said.
static yalm_status write_guesses(struct run *run, yalm_session *session, FILE *out, yalm_error *error)
{
    enum { MOST = 8 };
    while (yalm_position(session) < run->n - 1) {
        const int at = (int)yalm_position(session);
        const int n = run->chunk > 0 && run->chunk < run->n - 1 - at ? run->chunk : run->n - 1 - at;
        if (yalm_eval(session, run->tokens + at, n, YALM_LOGITS_LAST, error) != YALM_OK)
            return error->status;
        if (at < run->back && at + n >= run->back) { // once
            const int64_t back = yalm_rollback_point(session, run->back);
            const yalm_status status = yalm_rollback(session, back, error);
            run->back = -1;
            if (status != YALM_OK)
                return status;
            continue;
        }
        int32_t guesses[MOST];
        const int32_t position = (int32_t)yalm_position(session), token = run->tokens[position];
        if (yalm_guess(session, token, guesses, run->guess) != run->guess || yalm_guess(session, token, guesses, 1) != 1)
            return YALM_FAILED;
        float *logits = malloc(sizeof *logits * (size_t)run->vocab);
        memcpy(logits, session->mtp->logits, sizeof *logits * (size_t)run->vocab);
        yalm_guess(session, token, guesses, run->guess);
        fwrite(&position, sizeof position, 1, out);
        fwrite(guesses, sizeof *guesses, (size_t)run->guess, out);
        fwrite(logits, sizeof *logits, (size_t)run->vocab, out);
        free(logits);
    }
    return YALM_OK;
}

int main(int argc, char **argv)
{
    struct run run = {.options = yalm_session_defaults(), .back = -1};
    if (argc < 4 || !read_tokens(&run, argv[2]))
        return fail("usage: driver MODEL TOKENS OUT [NAME=VALUE…], where TOKENS holds int32 ids");
    for (int i = 4; i < argc; i++)
        if (!parse(&run, argv[i]))
            return fail(argv[i]);
    run.options.context = run.n + run.greedy + run.guess;
    run.options.mtp = run.guess ? YALM_MTP_ON : YALM_MTP_OFF;

    yalm_error error = {0};
    yalm_model *model = yalm_model_open(argv[1], NULL, &error);
    yalm_session *session = model ? yalm_session_open(model, &run.options, &error) : NULL;
    FILE *out = fopen(argv[3], "wb");
    if (session && out) {
        run.vocab = yalm_model_facts(model)->vocab_size;
        error.status = (run.guess ? write_guesses : run.greedy ? write_greedy : write_logits)(&run, session, out, &error);
    }
    if (out == NULL || fclose(out) != 0)
        error.status = YALM_FAILED;
    if (error.status != YALM_OK)
        fprintf(stderr, "driver: %s\n", error.text[0] ? error.text : "cannot write the output");
    yalm_session_close(session);
    yalm_model_close(model);
    free(run.tokens);
    return (int)error.status;
}
