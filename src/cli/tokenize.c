// Mode tokenize: text to ids on one line, or ids back to the exact bytes.
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static yalm_status print_ids(const struct tokens *tokens, yalm_error *error)
{
    for (size_t i = 0; i < tokens->n; i++)
        printf("%s%d", i ? " " : "", tokens->ids[i]);
    putchar('\n');
    return output_end(error);
}

// One line for each token: its id and its bytes, between quotes, in C's escapes where they are not printable ASCII.
static void print_pieces(const yalm_model *model, const struct tokens *tokens)
{
    for (size_t i = 0; i < tokens->n; i++) {
        size_t length = 0;
        const char *piece = yalm_piece(model, tokens->ids[i], &length);
        printf("%d\t", tokens->ids[i]);
        if (piece == NULL) {
            puts("none");
            continue;
        }
        putchar('"');
        for (size_t k = 0; k < length; k++) {
            const unsigned char byte = (unsigned char)piece[k];
            if (byte == '"' || byte == '\\')
                printf("\\%c", byte);
            else if (byte == '\n')
                fputs("\\n", stdout);
            else if (byte >= 32 && byte < 127)
                putchar(byte);
            else
                printf("\\x%02x", byte);
        }
        puts(yalm_is_control(model, tokens->ids[i]) ? "\"\tcontrol" : "\"");
    }
}

static yalm_status detokenize(const struct options *options, const yalm_model *model, const struct tokens *tokens,
                              yalm_error *error)
{
    char bytes[YALM_MAX_PIECE + 8];
    yalm_stream stream = {0};
    for (size_t i = 0; i < tokens->n; i++) {
        const size_t n = yalm_stream_token(model, &stream, tokens->ids[i], options->special, bytes);
        if (fwrite(bytes, 1, n, stdout) != n)
            return output_end(error);
    }
    const size_t n = yalm_stream_end(&stream, bytes);
    fwrite(bytes, 1, n, stdout);
    return output_end(error);
}

// Ids for --detokenize may come from anywhere.
static yalm_status read_ids(struct tokens *tokens, const struct options *options, const yalm_model *model, yalm_error *error)
{
    const int n_vocab = yalm_model_facts(model)->vocab_size;
    if (options->prompt)
        return tokens_parse(tokens, options->prompt, strlen(options->prompt), n_vocab, "-i", error);
    struct text text;
    const char *path = options->file ? options->file : options->tokens;
    yalm_status status = text_read(&text, path, error);
    if (status != YALM_OK)
        return status;
    status = tokens_parse(tokens, text.bytes, text.length, n_vocab, strcmp(path, "-") == 0 ? "standard input" : path, error);
    free(text.bytes);
    return status;
}

yalm_status run_tokenize(const struct options *options, const yalm_model *model, yalm_error *error)
{
    struct text text = {0};
    struct tokens tokens = {0};
    yalm_status status = YALM_OK;
    if (options->detokenize) {
        status = needs_tokenizer(options, model, "turn ids into text", error);
        status = status ?: read_ids(&tokens, options, model, error);
        status = status ?: detokenize(options, model, &tokens, error);
    } else {
        status = input_read(&text, &tokens, options, model, true, error);
        if (status == YALM_OK && options->pieces)
            print_pieces(model, &tokens);
        else if (status == YALM_OK)
            status = print_ids(&tokens, error);
    }
    free(text.bytes);
    free(tokens.ids);
    return status;
}
