// Mode embed: a vector of each line of a text, as JSON, CSV or a NumPy array.
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static size_t count_lines(const struct text *text)
{
    size_t n = 0;
    for (size_t at = 0; at < text->length; at++)
        n += text->bytes[at] == '\n' || at + 1 == text->length;
    return n;
}

// NumPy's format 1.0: a header of 128 bytes, then (lines, dim) little-endian float32.
static void print_npy_header(size_t lines, int dim)
{
    char header[128];
    const int length =
        snprintf(header, sizeof header, "\x93NUMPY\x01%c%c%c{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %d), }", 0,
                 118, 0, lines, dim);
    memset(header + length, ' ', sizeof header - (size_t)length);
    header[sizeof header - 1] = '\n';
    fwrite(header, 1, sizeof header, stdout);
}

static void print_vector(const float *vector, int dim, int format)
{
    if (format == EMBED_NPY) {
        fwrite(vector, sizeof *vector, (size_t)dim, stdout);
        return;
    }
    for (int i = 0; i < dim; i++)
        printf("%s%.9g", i ? "," : format == EMBED_JSON ? "[" : "", (double)vector[i]);
    puts(format == EMBED_JSON ? "]" : "");
}

struct embedding_run {
    yalm_session *session;
    int flags, format, dim;
    float *vector; // (dim); NULL: lines are only looked at
};

static yalm_status embed_line(const struct embedding_run *run, const char *line, size_t length, yalm_error *error)
{
    int32_t *ids;
    size_t n;
    yalm_status status = yalm_tokenize(yalm_session_model(run->session), line, length, run->flags, &ids, &n, error);
    if (status != YALM_OK)
        return status;
    const size_t context = (size_t)yalm_session_facts(run->session)->context;
    if (n > context)
        status = cli_error(error, YALM_USAGE, "%zu tokens, and the context holds %zu: -T takes more", n, context);
    else if (run->vector && (status = yalm_embed(run->session, ids, (int)n, run->vector, error)) == YALM_OK)
        print_vector(run->vector, run->dim, run->format);
    free(ids);
    return status;
}

// Each line, without what ends it: "\n", or "\r\n".
static yalm_status each_line(const struct embedding_run *run, const struct text *text, yalm_error *error)
{
    yalm_status status = YALM_OK;
    size_t number = 1;
    for (size_t at = 0; at < text->length && status == YALM_OK; number++) {
        const char *line = text->bytes + at, *end = memchr(line, '\n', text->length - at);
        const size_t length = end ? (size_t)(end - line) : text->length - at;
        yalm_error why = {0};
        status = embed_line(run, line, length - (length > 0 && line[length - 1] == '\r'), &why);
        if (status == YALM_INTERRUPTED)
            cli_error(error, status, "%s", "");
        else if (status != YALM_OK)
            cli_error(error, status, "line %zu: %s", number, why.text);
        at += length + 1;
    }
    return status;
}

// All lines are looked at first, so that one that is too long does not end an array in its middle.
static yalm_status embed_lines(const struct options *options, yalm_session *session, const struct text *text, yalm_error *error)
{
    struct embedding_run run = {session, options->no_bos ? 0 : YALM_TOKENIZE_BOS, options->embed_format,
                                yalm_model_facts(yalm_session_model(session))->hidden_dim, NULL};
    yalm_status status = each_line(&run, text, error);
    if (status != YALM_OK)
        return status;
    run.vector = malloc(sizeof *run.vector * (size_t)run.dim);
    if (run.vector == NULL)
        return cli_no_memory(error);
    if (run.format == EMBED_NPY)
        print_npy_header(count_lines(text), run.dim);
    status = each_line(&run, text, error);
    free(run.vector);
    const yalm_status written = output_end(status == YALM_OK ? error : NULL);
    return status == YALM_OK ? written : status;
}

static yalm_status run(const struct options *options, const yalm_model *model, const struct text *text, yalm_error *error)
{
    if (yalm_model_facts(model)->pooling == NULL)
        return cli_error(error, YALM_USAGE, "%s makes no vectors of texts: it was trained to go on with them", options->named);
    yalm_status status = needs_tokenizer(options, model, "turn text into ids", error);
    if (status != YALM_OK)
        return status;
    yalm_session_options how = session_options(options);
    if (strcmp(how.device, "auto") == 0)
        how.device = "cpu"; // which alone can
    yalm_session *session = open_session(options, model, &how, options->quiet, error);
    if (session == NULL)
        return error->status;
    status = embed_lines(options, session, text, error);
    close_session(session);
    return status;
}

yalm_status run_embed(const struct options *options, yalm_error *error)
{
    struct text text = {0};
    const bool given = options->prompt != NULL; // argv's, which stays
    if (given)
        text = (struct text){(char *)options->prompt, strlen(options->prompt)};
    yalm_status status = given ? YALM_OK : text_read(&text, options->file, error);
    yalm_model *model = status == YALM_OK ? open_model(options, error) : NULL;
    if (status == YALM_OK)
        status = model ? run(options, model, &text, error) : error->status;
    if (!given)
        free(text.bytes);
    yalm_model_close(model);
    return status;
}
