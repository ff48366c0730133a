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

struct text_lines {
    yalm_text *texts; // (n), whose tokens are owned
    size_t n;
    int longest; // tokens
};

static void lines_free(struct text_lines *lines)
{
    for (size_t i = 0; i < lines->n; i++)
        free((void *)lines->texts[i].tokens);
    free(lines->texts);
}

static yalm_status read_line(const yalm_model *model, int flags, const char *line, size_t length, struct text_lines *lines,
                             yalm_error *error)
{
    int32_t *ids;
    size_t n;
    yalm_status status = yalm_tokenize(model, line, length, flags, &ids, &n, error);
    if (status != YALM_OK)
        return status;
    const int kept = n < INT32_MAX ? (int)n : INT32_MAX;
    lines->texts[lines->n++] = (yalm_text){ids, kept};
    lines->longest = kept > lines->longest ? kept : lines->longest;
    return YALM_OK;
}

// Lines that are too long are cut, as sentence-transformers does, and named.
static void cut_lines(const yalm_session *session, struct text_lines *lines)
{
    enum { NAMED = 10 };
    const yalm_model_info *model = yalm_model_facts(yalm_session_model(session));
    const yalm_session_options *how = yalm_session_facts(session);
    const char *hint = model->bidirectional && how->chunk < how->context ? "machine.chunk takes more"
                       : how->context < model->context_length            ? "-T N takes more"
                                                                         : "the model was trained for no more";
    const int most = yalm_text_most(session);
    char numbers[NAMED * 24], more[40] = "";
    size_t n_cut = 0, at = 0;
    for (size_t i = 0; i < lines->n; i++) {
        if (lines->texts[i].n <= most)
            continue;
        lines->texts[i].n = most;
        if (n_cut < NAMED)
            at += (size_t)snprintf(numbers + at, sizeof numbers - at, "%s%zu", n_cut ? ", " : "", i + 1);
        n_cut++;
    }
    if (n_cut > NAMED)
        snprintf(more, sizeof more, " and %zu more", n_cut - NAMED);
    if (n_cut)
        say("warning: line%s %s%s: cut to %d tokens (%s)", n_cut > 1 ? "s" : "", numbers, more, most, hint);
}

static yalm_status name_line(size_t number, const yalm_error *why, yalm_error *error)
{
    return why->status == YALM_INTERRUPTED ? error_set(error, why->status, "%s", "")
                                           : error_set(error, why->status, "line %zu: %s", number, why->text);
}

// Each line, without what ends it: "\n", or "\r\n". All of them before the first vector, so that none ends an array in its
// middle.
static yalm_status read_lines(const yalm_model *model, int flags, const struct text *text, struct text_lines *lines,
                              yalm_error *error)
{
    const size_t all = count_lines(text);
    lines->texts = calloc(all + 1, sizeof *lines->texts);
    if (lines->texts == NULL)
        return cli_no_memory(error);
    for (size_t at = 0; at < text->length;) {
        const char *line = text->bytes + at, *end = memchr(line, '\n', text->length - at);
        const size_t length = end ? (size_t)(end - line) : text->length - at;
        yalm_error why = {0};
        if (read_line(model, flags, line, length - (length > 0 && line[length - 1] == '\r'), lines, &why))
            return name_line(lines->n + 1, &why, error);
        at += length + 1;
    }
    return YALM_OK;
}

// As many lines at once as are sure to fill a batch, or one, where it is that one's fault.
static yalm_status embed_lot(yalm_session *session, const struct text_lines *lines, size_t from, size_t n, int dim,
                             float *vectors, yalm_error *error)
{
    yalm_error why = {0};
    if (yalm_embed_texts(session, lines->texts + from, (int)n, vectors, &why) == YALM_OK)
        return YALM_OK;
    for (size_t i = 0; i < n && why.status != YALM_INTERRUPTED; i++)
        if (yalm_embed_texts(session, lines->texts + from + i, 1, vectors + i * (size_t)dim, &why) != YALM_OK)
            return name_line(from + i + 1, &why, error);
    return why.status == YALM_INTERRUPTED ? error_set(error, why.status, "%s", "") : YALM_OK;
}

// An empty line has no token where the model adds none: known before the first vector is printed. vector: room for one.
static yalm_status try_empty_line(yalm_session *session, const struct text_lines *lines, float *vector, yalm_error *error)
{
    for (size_t i = 0; i < lines->n; i++)
        if (lines->texts[i].n == 0)
            return embed_lot(session, lines, i, 1, 0, vector, error);
    return YALM_OK;
}

// dim: components that are printed of each vector
static yalm_status print_vectors(yalm_session *session, const struct text_lines *lines, int format, int dim, yalm_error *error)
{
    enum { LOT = 512 };
    const yalm_model *model = yalm_session_model(session);
    const int whole = yalm_model_facts(model)->vector_dim;
    float *vectors = malloc(sizeof *vectors * (size_t)whole * LOT);
    if (vectors == NULL)
        return cli_no_memory(error);
    yalm_status status = try_empty_line(session, lines, vectors, error);
    if (format == EMBED_NPY && status == YALM_OK)
        print_npy_header(lines->n, dim);
    for (size_t from = 0; from < lines->n && status == YALM_OK; from += LOT) {
        const size_t n = lines->n - from < LOT ? lines->n - from : LOT;
        status = embed_lot(session, lines, from, n, whole, vectors, error);
        status = status ?: yalm_cut_vectors(model, vectors, (int)n, dim, error);
        for (size_t i = 0; i < n && status == YALM_OK; i++)
            print_vector(vectors + i * (size_t)dim, dim, format);
    }
    free(vectors);
    return status;
}

// Without -T a session has at most 4,096 positions: more where a line needs them, and the model was trained for them.
static yalm_session *open_for(const struct options *options, const yalm_model *model, const struct text_lines *lines,
                              yalm_error *error)
{
    enum { USUAL = 4096, ADDED = 8 }; // what the model wants behind a text is less
    const int trained = yalm_model_facts(model)->context_length;
    yalm_session_options how = session_options(options);
    if (how.context == 0 && lines->longest > USUAL - ADDED)
        how.context = lines->longest < trained - ADDED ? lines->longest + ADDED : trained;
    return open_session(options, model, &how, options->quiet, error);
}

static yalm_status embed_lines(const struct options *options, const yalm_model *model, const struct text *text,
                               yalm_error *error)
{
    struct text_lines lines = {0};
    yalm_session *session = NULL;
    yalm_status status = read_lines(model, options->no_bos ? 0 : YALM_TOKENIZE_BOS, text, &lines, error);
    if (status == YALM_OK && (session = open_for(options, model, &lines, error)) == NULL)
        status = error->status;
    if (status == YALM_OK) {
        cut_lines(session, &lines);
        const int dim = options->dimensions ? options->dimensions : yalm_model_facts(model)->vector_dim;
        status = print_vectors(session, &lines, options->embed_format, dim, error);
        const yalm_status written = output_end(status == YALM_OK ? error : NULL);
        status = status == YALM_OK ? written : status;
        close_session(session);
    }
    lines_free(&lines);
    return status;
}

static yalm_status run(const struct options *options, const yalm_model *model, const struct text *text, yalm_error *error)
{
    if (yalm_model_facts(model)->pooling == NULL)
        return error_set(error, YALM_USAGE, "%s makes no vectors of texts: it was trained to go on with them", options->named);
    yalm_status status = needs_tokenizer(options, model, "turn text into ids", error);
    if (status == YALM_OK && options->dimensions) // before any is made
        status = yalm_cut_vectors(model, NULL, 0, options->dimensions, error);
    return status ?: embed_lines(options, model, text, error);
}

yalm_status run_embed(const struct options *options, const yalm_model *model, yalm_error *error)
{
    struct text text = {0};
    const bool given = options->prompt != NULL; // argv's, which stays
    if (given)
        text = (struct text){(char *)options->prompt, strlen(options->prompt)};
    yalm_status status = given ? YALM_OK : text_read(&text, options->file, error);
    status = status ?: run(options, model, &text, error);
    if (!given)
        free(text.bytes);
    return status;
}
