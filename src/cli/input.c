// Text and token ids from the command line, files and stdin.
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "util/file.h"

enum { MAX_TEXT = 1 << 30 }; // bytes: a pipe without an end must not take the machine's memory

static yalm_status read_stream(struct text *text, FILE *file, const char *name, yalm_error *error)
{
    size_t room = 1 << 16;
    text->bytes = malloc(room);
    text->length = 0;
    errno = 0;
    for (size_t n = 1; text->bytes && n > 0; text->length += n) {
        if (text->length == room) {
            char *grown = room >= MAX_TEXT ? NULL : realloc(text->bytes, room * 2);
            if (grown == NULL) {
                free(text->bytes);
                text->bytes = NULL;
                if (room >= MAX_TEXT)
                    return error_set(error, YALM_USAGE, "%s: longer than the %d bytes that are read at most", name, MAX_TEXT);
                break;
            }
            text->bytes = grown;
            room *= 2;
        }
        n = fread(text->bytes + text->length, 1, room - text->length, file);
    }
    if (text->bytes == NULL)
        return cli_no_memory(error);
    if (ferror(file)) {
        const int code = errno;
        free(text->bytes);
        *text = (struct text){0};
        return error_set(error, YALM_FAILED, "%s: %s", name, strerror(code));
    }
    text->bytes[text->length] = 0; // of the room that the last reading did not need
    return YALM_OK;
}

yalm_status text_read(struct text *text, const char *path, yalm_error *error)
{
    *text = (struct text){0};
    if (strcmp(path, "-") == 0)
        return read_stream(text, stdin, "standard input", error);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno));
    const yalm_status status = read_stream(text, file, path, error);
    fclose(file);
    return status;
}

yalm_status text_read_at_once(struct text *text, const char *path, yalm_error *error)
{
    struct stat facts;
    if (strcmp(path, "-") == 0)
        return text_read(text, path, error);
    *text = (struct text){0};
    FILE *file = file_open_at_once(path, "r");
    if (file == NULL)
        return error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno));
    yalm_status status = read_stream(text, file, path, error);
    if (status == YALM_OK && text->length == 0 && fstat(fileno(file), &facts) == 0 && S_ISFIFO(facts.st_mode)) {
        free(text->bytes);
        *text = (struct text){0};
        status =
            error_set(error, YALM_FAILED, "%s: a pipe that nobody writes to: start its writer first, or name a file", path);
    }
    fclose(file);
    return status;
}

yalm_status tokens_parse(struct tokens *tokens, const char *text, size_t length, int n_vocab, const char *source,
                         yalm_error *error)
{
    *tokens = (struct tokens){0};
    int32_t *ids = malloc((length / 2 + 1) * sizeof *ids); // an id takes a digit and a blank at least
    if (ids == NULL)
        return cli_no_memory(error);
    size_t n = 0;
    for (size_t at = 0; at < length;) {
        if (isspace((unsigned char)text[at])) {
            at++;
            continue;
        }
        size_t end = at;
        int64_t id = 0;
        for (; end < length && isdigit((unsigned char)text[end]); end++)
            id = id > INT32_MAX ? id : id * 10 + (text[end] - '0');
        if (end == at || (end < length && !isspace((unsigned char)text[end]))) {
            const int shown = (int)(length - at < 16 ? length - at : 16);
            free(ids);
            return error_set(error, YALM_USAGE, "%s: byte %zu: expected token ids with blanks between them, found '%.*s'",
                             source, at, shown, text + at);
        }
        if (id >= n_vocab) {
            const int shown = (int)(end - at < 24 ? end - at : 24);
            const yalm_status status = error_set(error, YALM_USAGE, "%s: token %zu is %.*s, expected an id below %d", source, n,
                                                 shown, text + at, n_vocab);
            free(ids);
            return status;
        }
        ids[n++] = (int32_t)id;
        at = end;
    }
    *tokens = (struct tokens){ids, n};
    return YALM_OK;
}

yalm_status tokens_read(struct tokens *tokens, const char *path, int n_vocab, yalm_error *error)
{
    struct text text;
    yalm_status status = text_read(&text, path, error);
    if (status != YALM_OK)
        return status;
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    status = tokens_parse(tokens, text.bytes, text.length, n_vocab, name, error);
    free(text.bytes);
    if (status == YALM_OK && tokens->n == 0) {
        free(tokens->ids);
        *tokens = (struct tokens){0};
        return error_set(error, YALM_USAGE, "%s: no token ids in it", name);
    }
    return status;
}

yalm_status needs_tokenizer(const struct options *options, const yalm_model *model, const char *why, yalm_error *error)
{
    if (strcmp(yalm_model_facts(model)->tokenizer, "none") != 0)
        return YALM_OK;
    return error_set(error, YALM_USAGE, "%s: the model has no tokenizer, so it cannot %s (it takes token ids: --tokens FILE)",
                     options->named, why);
}

yalm_status needs_input(const struct options *options, yalm_error *error)
{
    return error_set(error, YALM_USAGE, "mode %s needs input: -i TEXT, -f FILE or --tokens FILE (FILE may be -)",
                     mode_name(options->mode));
}

// A text that spells the token that begins one, and gets it besides.
static void warn_of_two_bos(const yalm_model *model, const struct tokens *tokens, int flags)
{
    const yalm_model_info *facts = yalm_model_facts(model);
    size_t length;
    if (!facts->add_bos || !(flags & YALM_TOKENIZE_BOS) || tokens->n < 2 || tokens->ids[1] != facts->bos)
        return;
    const char *piece = yalm_piece(model, facts->bos, &length);
    say("warning: the text begins with '%.*s' itself, and a second one is put before it (--set text.bos=off leaves that out)",
        (int)length, piece);
}

yalm_status input_read(struct text *text, struct tokens *tokens, const struct options *options, const yalm_model *model,
                       bool bos, yalm_error *error)
{
    *text = (struct text){0};
    *tokens = (struct tokens){0};
    if (options->tokens)
        return tokens_read(tokens, options->tokens, yalm_model_facts(model)->vocab_size, error);
    yalm_status status = needs_tokenizer(options, model, "read text", error);
    if (status != YALM_OK)
        return status;
    if (options->file) {
        status = text_read(text, options->file, error);
    } else {
        text->length = strlen(options->prompt);
        text->bytes = malloc(text->length + 1);
        if (text->bytes == NULL)
            return cli_no_memory(error);
        memcpy(text->bytes, options->prompt, text->length + 1);
    }
    if (status == YALM_OK && options->piped && text->length == 0) {
        free(text->bytes);
        *text = (struct text){0};
        return needs_input(options, error);
    }
    if (status != YALM_OK)
        return status;
    const int flags = (bos && !options->no_bos ? YALM_TOKENIZE_BOS : 0) | (options->special ? YALM_TOKENIZE_SPECIAL : 0);
    status = yalm_tokenize(model, text->bytes, text->length, flags, &tokens->ids, &tokens->n, error);
    if (status != YALM_OK) {
        free(text->bytes);
        *text = (struct text){0};
    } else if (!options->quiet)
        warn_of_two_bos(model, tokens, flags);
    return status;
}

yalm_status with_text(const struct options *options, const yalm_model *model, text_user *use, yalm_error *error)
{
    struct text text;
    struct tokens tokens;
    yalm_status status = input_read(&text, &tokens, options, model, false, error);
    status = status ?: use(options, model, &tokens, error);
    free(text.bytes);
    free(tokens.ids);
    return status;
}
