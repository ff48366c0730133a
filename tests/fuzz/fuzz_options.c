// Fuzzes the option parser: the input's lines are argv. Whatever they are, the parser returns a status, and on failure one line
// of text.
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

enum { MAX_ARGS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool true_always)
{
    if (!true_always)
        abort();
}

static void check_options(const struct options *options)
{
    check(options->mode < MODES && mode_name(options->mode) != NULL);
    if (options->mode >= MODE_HELP)
        return;
    check(options->model != NULL);
    check((options->prompt != NULL) + (options->file != NULL) + (options->tokens != NULL) <= 1);
    check(options->n_predict >= -2 && options->repetitions >= 1 && options->trials >= 1);
    check(options->sampling.temperature >= 0 && options->sampling.top_p <= 1);
    check(options->n_prompt.n >= 1 && options->n_prompt.n <= MAX_LIST && options->depth.n >= 1 && options->depth.n <= MAX_LIST);
    for (int i = 0; i < options->sampling.n_biases; i++)
        check(options->sampling.biases[i].token >= 0 && options->sampling.biases[i].bias < 2e6f);
    for (int i = 0; i < options->stops.n; i++)
        check(options->stops.texts[i][0] != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *argv[MAX_ARGS + 1] = {(char *)"yalm"};
    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    int argc = 1;
    for (char *at = text; at && argc < MAX_ARGS; argc++) {
        argv[argc] = at;
        at = strchr(at, '\n');
        if (at)
            *at++ = 0;
    }
    struct options options;
    yalm_error error = {0};
    const yalm_status status = options_parse(argc, argv, &options, &error);
    if (status == YALM_OK) {
        check_options(&options);
        options_free(&options);
    } else {
        check(error.status == status && error.text[0] != 0 && strchr(error.text, '\n') == NULL);
    }
    free(text);
    return 0;
}
