// Reads argv by the table. Twice: first to find the mode, since a letter such as -n means what the mode says it means;
// then for the values.
#include "cli/options.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/option_table.h"
#include "cli/speculation.h"

// One option or operand of argv.
struct word {
    const char *shown; // as the user wrote it, for messages: "-n", "--n-predict"; cut at '=' by `length`
    int length;
    char letter;      // of a short option
    const char *name; // of a long one: (name_length), not terminated
    size_t name_length;
    const char *value; // "" where there is none
    bool has_value, is_operand;
};

static bool has_name(const struct option *option, const char *name, size_t length)
{
    for (const char *at = option->names; *at;) {
        const size_t n = strcspn(at, ",");
        if (n == length && memcmp(at, name, n) == 0)
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

static bool is_key(const struct option *option) // of --set
{
    return strchr(option->names, '.') != NULL;
}

// The table's next option that `word` names, from index `from` on; -1: none.
static int find_option(const struct word *word, int from)
{
    for (int i = from; i < n_options; i++) {
        const struct option *option = &option_table[i];
        if (word->letter ? strchr(option->letters, word->letter) != NULL
                         : !is_key(option) && has_name(option, word->name, word->name_length))
            return i;
    }
    return -1;
}

// Takes argv[*at] apart, with its value, and moves *at past both.
static yalm_status next_word(struct word *word, int argc, char **argv, int *at, bool *operands_only, yalm_error *error)
{
    const char *arg = argv[(*at)++];
    *word = (struct word){.shown = arg, .length = (int)strlen(arg), .value = ""};
    if (*operands_only || arg[0] != '-' || arg[1] == 0) {
        word->is_operand = true;
        return YALM_OK;
    }
    if (arg[1] == '-') {
        word->name = arg + 2;
        word->name_length = strcspn(word->name, "=");
        word->length = 2 + (int)word->name_length;
        word->has_value = word->name[word->name_length] == '=';
        if (word->has_value)
            word->value = word->name + word->name_length + 1;
        if (word->name_length == 0 && !word->has_value) {
            *operands_only = true;
            return YALM_OK;
        }
    } else if (arg[2] && option_hint(arg)) { // of another program: it is no letter with a value
        return error_set(error, YALM_USAGE, "unknown option '%s' (%s)", arg, option_hint(arg));
    } else {
        word->letter = arg[1];
        word->length = 2;
        word->has_value = arg[2] != 0;
        word->value = arg + 2;
    }
    const int found = find_option(word, 0);
    if (found < 0) {
        char advice[128];
        option_advice(advice, sizeof advice, word->shown);
        return error_set(error, YALM_USAGE, "unknown option '%.*s' (%s)", word->length, word->shown, advice);
    }
    if (option_table[found].argument == NULL && word->has_value)
        return error_set(error, YALM_USAGE, "option '%.*s' takes no value, found '%s'", word->length, word->shown, word->value);
    if (option_table[found].argument && !word->has_value) {
        const char *hint = option_hint(word->shown);
        if (*at >= argc)
            return error_set(error, YALM_USAGE, "option '%.*s' needs a value (%s)%s%s", word->length, word->shown,
                             option_table[found].argument, hint ? "; " : "", hint ? hint : "");
        word->value = argv[(*at)++];
    }
    return YALM_OK;
}

static yalm_status bad_value(const struct word *word, const char *expected, yalm_error *error)
{
    const char *hint = option_hint(word->shown);
    return error_set(error, YALM_USAGE, "option '%.*s': expected %s, found '%s'%s%s", word->length, word->shown, expected,
                     word->value, hint ? "; " : "", hint ? hint : "");
}

static yalm_status read_int(const struct option *option, const struct word *word, const char *text, size_t length, int *value,
                            yalm_error *error)
{
    char *end = NULL;
    const bool plain = isdigit((unsigned char)text[0]) || (text[0] == '-' && isdigit((unsigned char)text[1]));
    const long long number = plain ? strtoll(text, &end, 10) : 0; // saturates: what is too long is out of range too
    if (!plain || end != text + length || number < option->min || number > option->max) {
        char expected[96];
        snprintf(expected, sizeof expected, "an integer from %.0f to %.0f", option->min, option->max);
        return bad_value(word, expected, error);
    }
    *value = (int)number;
    return YALM_OK;
}

static yalm_status read_ints(const struct option *option, const struct word *word, struct int_list *list, yalm_error *error)
{
    struct int_list read = {0};
    for (const char *at = word->value;; at++) {
        const size_t length = strcspn(at, ",");
        if (read.n == MAX_LIST)
            return bad_value(word, "at most 16 numbers", error);
        const yalm_status status = read_int(option, word, at, length, &read.values[read.n++], error);
        if (status != YALM_OK)
            return status;
        at += length;
        if (*at == 0)
            break;
    }
    *list = read;
    return YALM_OK;
}

// A decimal number and nothing else: no blanks, no hexadecimal, no infinity, no NaN.
static bool read_decimal(const char *text, double *value)
{
    if (text[strspn(text, "+-.0123456789eE")] != 0 || isspace((unsigned char)text[0]))
        return false;
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == 0 && isfinite(*value);
}

static yalm_status read_float(const struct option *option, const struct word *word, float *value, yalm_error *error)
{
    double number;
    if (!read_decimal(word->value, &number) || number < option->min || number > option->max) {
        char expected[96];
        snprintf(expected, sizeof expected, "a number from %g to %g", option->min, option->max);
        return bad_value(word, expected, error);
    }
    *value = (float)number;
    return YALM_OK;
}

// 0.125 or 1/8.
static yalm_status read_ratio(const struct option *option, const struct word *word, float *value, yalm_error *error)
{
    char upper[32] = "";
    double number = 0, divisor = 1;
    const size_t n = strcspn(word->value, "/");
    snprintf(upper, sizeof upper, "%.*s", (int)n, word->value);
    const bool read = n < sizeof upper && read_decimal(upper, &number) &&
                      (word->value[n] == 0 || read_decimal(word->value + n + 1, &divisor));
    if (!read || divisor <= 0 || number / divisor < option->min || number / divisor > option->max) {
        char expected[96];
        snprintf(expected, sizeof expected, "a fraction, as 1/8 or 0.125, from %g to %g", option->min, option->max);
        return bad_value(word, expected, error);
    }
    *value = (float)(number / divisor);
    return YALM_OK;
}

static yalm_status read_seed(const struct word *word, uint64_t *value, yalm_error *error)
{
    const char *text = word->value;
    if (strcmp(text, "-1") == 0) {
        *value = UINT64_MAX;
        return YALM_OK;
    }
    uint64_t number = 0;
    const char *at = text;
    for (; isdigit((unsigned char)*at); at++)
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number))
            break;
    if (*at || at == text)
        return bad_value(word, "an integer from 0 to 18446744073709551615, or -1 for a random one", error);
    *value = number;
    return YALM_OK;
}

static yalm_status read_choice(const struct option *option, const struct word *word, int *index, yalm_error *error)
{
    *index = 0;
    for (const char *at = option->choices;; (*index)++) {
        const size_t n = strcspn(at, ",");
        if (strlen(word->value) == n && memcmp(at, word->value, n) == 0)
            return YALM_OK;
        if (at[n] == 0)
            break;
        at += n + 1;
    }
    char expected[96];
    snprintf(expected, sizeof expected, "one of %s", option->choices);
    return bad_value(word, expected, error);
}

// ID+X, ID-X or ID-inf.
static yalm_status read_bias(const struct word *word, yalm_sampling *sampling, yalm_error *error)
{
    const char *sign = word->value + strspn(word->value, "0123456789");
    double bias = -INFINITY;
    if (sign == word->value || sign - word->value > 9 || (*sign != '+' && *sign != '-') ||
        (strcmp(sign, "-inf") != 0 && (!read_decimal(sign, &bias) || fabs(bias) > 1e6)))
        return bad_value(word, "a token id, a sign and a number, as in 29871-2.5 or 29871-inf", error);
    yalm_logit_bias *grown = realloc((void *)sampling->biases, ((size_t)sampling->n_biases + 1) * sizeof *grown);
    if (grown == NULL)
        return error_set(error, YALM_NO_MEMORY, "out of memory");
    grown[sampling->n_biases++] = (yalm_logit_bias){(int32_t)strtol(word->value, NULL, 10), (float)bias};
    sampling->biases = grown;
    return YALM_OK;
}

static yalm_status read_text(const struct word *word, struct text_list *list, yalm_error *error)
{
    if (*word->value == 0)
        return bad_value(word, "a text that is not empty", error);
    const char **grown = realloc((void *)list->texts, ((size_t)list->n + 1) * sizeof *grown);
    if (grown == NULL)
        return error_set(error, YALM_NO_MEMORY, "out of memory");
    grown[list->n++] = word->value;
    list->texts = grown;
    return YALM_OK;
}

static yalm_status set_operand(struct options *options, const char *text, yalm_error *error)
{
    if (strcmp(text, "-") == 0 && options->file == NULL)
        options->file = text;
    else if (options->model == NULL && strcmp(text, "-") != 0)
        options->model = text;
    else if (options->runs && options->prompt == NULL)
        options->prompt = text;
    else if (options->model && access(options->model, F_OK) != 0 && option_hint(options->model))
        return error_set(error, YALM_USAGE, "'%s' is no file (%s)", options->model, option_hint(options->model));
    else
        return error_set(error, YALM_USAGE, "'%s' is one argument too many (the model is '%s'; text comes after -i)", text,
                         options->model ? options->model : "not given");
    return YALM_OK;
}

static yalm_status set_value(struct options *options, const struct option *option, const struct word *word, yalm_error *error);

// What is no key of the table is the session's to judge.
static yalm_status read_setting(struct options *options, const struct word *word, yalm_error *error)
{
    const size_t length = strcspn(word->value, "=");
    for (int i = 0; i < n_options && word->value[length]; i++) {
        const struct option *option = &option_table[i];
        if (!is_key(option) || !has_name(option, word->value, length))
            continue;
        if (!(option->modes >> options->mode & 1))
            return error_set(error, YALM_USAGE, "setting '%s' does not belong to mode %s", word->value,
                             mode_name(options->mode));
        const struct word setting = {.shown = word->value, .length = (int)length, .value = word->value + length + 1};
        options->given[i] = true;
        return set_value(options, option, &setting, error);
    }
    if (options->mode == MODE_TOKENIZE)
        return error_set(error, YALM_USAGE, "setting '%s': mode tokenize has none of that name", word->value);
    return read_text(word, &options->settings, error);
}

static yalm_status set_value(struct options *options, const struct option *option, const struct word *word, yalm_error *error)
{
    void *field = (char *)options + option->offset;
    int index;
    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return YALM_OK;
    case OPTION_SWITCH:
        if (read_choice(option, word, &index, error) != YALM_OK)
            return YALM_USAGE;
        *(bool *)field = index;
        return YALM_OK;
    case OPTION_TEXT:
        *(const char **)field = word->value;
        return YALM_OK;
    case OPTION_TEXTS:
        return read_text(word, field, error);
    case OPTION_INT:
        return read_int(option, word, word->value, strlen(word->value), field, error);
    case OPTION_INTS:
        return read_ints(option, word, field, error);
    case OPTION_FLOAT:
        return read_float(option, word, field, error);
    case OPTION_RATIO:
        return read_ratio(option, word, field, error);
    case OPTION_SEED:
        return read_seed(word, field, error);
    case OPTION_CHOICE:
        return read_choice(option, word, field, error);
    case OPTION_WORD:
        *(const char **)field = word->value;
        return read_choice(option, word, &index, error);
    case OPTION_SET:
        return read_setting(options, word, error);
    case OPTION_BIAS:
        return read_bias(word, &options->sampling, error);
    case OPTION_NAMED:
        return mode_names_model(word->value) ? set_operand(options, word->value, error) : YALM_OK;
    case OPTION_MODE:
        break; // the first reading saw to it
    }
    return YALM_OK;
}

static bool is_input(const struct option *option)
{
    return option->offset == offsetof(struct options, prompt) || option->offset == offsetof(struct options, file) ||
           option->offset == offsetof(struct options, tokens);
}

// First reading: the mode. --help, --version and --set help end it. Where none is named and no text is given, a user at a
// terminal wants to talk.
static yalm_status find_mode(int argc, char **argv, struct options *options, yalm_error *error)
{
    bool operands_only = false, named = mode_comes_first(argc, argv, &options->mode), fed = false;
    for (int at = named ? 2 : 1; at < argc;) {
        struct word word;
        yalm_status status = next_word(&word, argc, argv, &at, &operands_only, error);
        if (status != YALM_OK)
            return status;
        fed |= word.is_operand && strcmp(word.shown, "-") == 0;
        if (word.is_operand || (word.letter == 0 && word.name_length == 0))
            continue;
        const struct option *option = &option_table[find_option(&word, 0)];
        fed |= is_input(option);
        if (option->kind == OPTION_MODE) {
            options->mode = (enum mode)option->min;
        } else if (option->kind == OPTION_SET && strcmp(word.value, "help") == 0) {
            options->mode = MODE_KEYS;
        } else if (option->kind == OPTION_NAMED && !mode_names_model(word.value)) {
            status = mode_read(word.value, &options->mode, error);
            named = true;
        } else if (has_name(option, "detokenize", strlen("detokenize"))) {
            options->mode = MODE_TOKENIZE;
            named = true;
        }
        if (status != YALM_OK || options->mode >= MODE_HELP)
            return status;
    }
    if (!named && !fed && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        options->mode = MODE_CHAT;
    return YALM_OK;
}

static yalm_status wrong_mode(const struct options *options, const struct word *word, yalm_error *error)
{
    char modes[128] = "";
    size_t length = 0;
    unsigned set = 0;
    for (int i = find_option(word, 0); i >= 0; i = find_option(word, i + 1))
        set |= option_table[i].modes;
    for (int mode = 0; mode < MODE_HELP; mode++)
        if (set >> mode & 1)
            length +=
                (size_t)snprintf(modes + length, sizeof modes - length, "%s%s", *modes ? ", " : "", mode_name((enum mode)mode));
    const char *hint = option_hint(word->shown);
    return error_set(error, YALM_USAGE, "option '%.*s' does not belong to mode %s (only to %s)%s%s", word->length, word->shown,
                     mode_name(options->mode), modes, hint ? "; " : "", hint ? hint : "");
}

// What no option can say alone.
static yalm_status check_together(struct options *options, yalm_error *error)
{
    if (options->mode >= MODE_HELP)
        return YALM_OK;
    if (options->model == NULL)
        return error_set(error, YALM_USAGE, "no model: yalm MODEL [options] (yalm --help shows examples)");
    const char *hint = option_hint(options->model);
    if (hint && access(options->model, F_OK) != 0)
        return error_set(error, YALM_USAGE, "'%s' is no file (%s)", options->model, hint);
    if ((options->prompt != NULL) + (options->file != NULL) + (options->tokens != NULL) > 1)
        return error_set(error, YALM_USAGE, "input comes from one place: -i TEXT, -f FILE or --tokens FILE");
    const bool reads_text = options->mode == MODE_COMPLETION || options->mode == MODE_PERPLEXITY ||
                            options->mode == MODE_CALIBRATE || options->mode == MODE_IMPORTANCE ||
                            options->mode == MODE_EMBED || options->mode == MODE_TOKENIZE;
    if (reads_text && !options->prompt && !options->file && !options->tokens && !isatty(STDIN_FILENO)) {
        options->file = "-";
        options->piped = true;
    }
    if (reads_text && !options->prompt && !options->file && !options->tokens)
        return needs_input(options, error);
    if (options->file && !reads_text && options->mode != MODE_CHAT)
        return error_set(error, YALM_USAGE, "mode %s reads no text", mode_name(options->mode));
    if (options->prompt && strcmp(options->prompt, "-") == 0) {
        options->prompt = NULL;
        options->file = "-";
    }
    if (options->mode == MODE_PASSKEY && options->junk >= 0 && options->position > options->junk)
        return error_set(error, YALM_USAGE, "setting 'passkey.position': %d is past the %d junk lines", options->position,
                         options->junk);
    for (int i = 0; i < options->variables.n; i++) {
        const char *variable = options->variables.texts[i], *value = strchr(variable, '=');
        if (value == NULL || value == variable)
            return error_set(error, YALM_USAGE, "option '--template-set': expected NAME=VALUE, found '%s'", variable);
    }
    if (options->bits > 0 && (options->dtype == NULL || strcmp(options->dtype, "q4") != 0))
        return error_set(error, YALM_USAGE, "option '--bits': needs --dtype q4");
    if (speculation_check(options, error) != YALM_OK)
        return YALM_USAGE;
    if (options->stride && options->context && options->stride > options->context)
        return error_set(error, YALM_USAGE, "setting 'perplexity.stride': %d is longer than the window (--ctx %d)",
                         options->stride, options->context);
    return YALM_OK;
}

static yalm_status read_values(int argc, char **argv, struct options *options, yalm_error *error)
{
    enum mode mode;
    bool operands_only = false;
    yalm_status status = YALM_OK;
    const bool named = mode_comes_first(argc, argv, &mode);
    options->runs = named && strcmp(argv[1], "run") == 0;
    for (int at = named ? 2 : 1; at < argc && status == YALM_OK;) {
        struct word word;
        next_word(&word, argc, argv, &at, &operands_only, error); // succeeded in the first reading
        if (word.is_operand) {
            status = set_operand(options, word.shown, error);
            continue;
        }
        if (word.letter == 0 && word.name_length == 0)
            continue;
        int found = find_option(&word, 0);
        while (found >= 0 && !(option_table[found].modes >> options->mode & 1))
            found = find_option(&word, found + 1);
        if (found < 0)
            return wrong_mode(options, &word, error);
        options->given[found] = true;
        status = set_value(options, &option_table[found], &word, error);
    }
    return status;
}

yalm_status options_parse(int argc, char **argv, struct options *options, yalm_error *error)
{
    options_defaults(options);
    if (argc > 1 && strcmp(argv[1], "cache") == 0) {
        options->mode = MODE_CACHE;
        options->words = (const char *const *)argv + 2;
        options->n_words = argc - 2;
        return YALM_OK;
    }
    yalm_status status = find_mode(argc, argv, options, error);
    if (status == YALM_OK && options->mode < MODE_HELP)
        status = read_values(argc, argv, options, error);
    status = status ?: check_together(options, error);
    for (int i = 0; status == YALM_OK && options->escapes && i < options->stops.n; i++)
        unescape((char *)options->stops.texts[i]); // argv's
    if (status == YALM_OK && options->escapes && options->prompt)
        unescape((char *)options->prompt);
    if (status != YALM_OK)
        options_free(options);
    return status;
}

void options_free(struct options *options)
{
    free((void *)options->sampling.biases);
    free((void *)options->stops.texts);
    free((void *)options->settings.texts);
    free((void *)options->variables.texts);
    free((void *)options->kept.texts);
    free(options->converted);
    free(options->converted_draft);
    options->converted = options->converted_draft = NULL;
    options->sampling.biases = NULL;
    options->sampling.n_biases = 0;
    options->stops = options->settings = options->variables = options->kept = (struct text_list){0};
}

bool options_given(const struct options *options, const char *name)
{
    for (int i = 0; i < n_options; i++)
        if (options->given[i] && has_name(&option_table[i], name, strlen(name)))
            return true;
    return false;
}
