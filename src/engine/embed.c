// Texts' vectors: what their tokens have become before the classifier, pooled ("pooling" in docs/format.md); and how well two
// texts go together ("score" there).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session.h"
#include "util/error.h"

// What a text that goes alone, piece by piece, leaves.
struct embedding {
    const yalm_model *model;
    enum pooling by;
    float *rows; // (chunk, hidden_dim), of the batch that is evaluated
    double *sum; // (hidden_dim)
};

float *embed_rows(struct embedding *e)
{
    return e->rows;
}

// Adds n rows of x (n, dim) to a text's sum, or what pooling takes in its place.
static void pool(double *sum, enum pooling by, const float *x, int n, int dim)
{
    const int from = by == POOLING_LAST ? n - 1 : 0, to = by == POOLING_FIRST ? 1 : n;
    for (int t = from; t < to; t++)
        for (int i = 0; i < dim; i++)
            sum[i] = (by == POOLING_MEAN ? sum[i] : 0) + (double)x[(size_t)t * (size_t)dim + i];
}

void embed_take(struct embedding *e, int n)
{
    const struct model_config *c = &e->model->config;
    pool(e->sum, e->by, e->rows, n, c->hidden_dim);
}

// y (rows) = w · x + bias, in double: once for a text.
static void multiply(double *y, const struct matrix *w, const float *bias, const double *x)
{
    const float *row = w->data;
    for (int r = 0; r < w->rows; r++, row += w->cols) {
        y[r] = bias ? (double)bias[r] : 0;
        for (int i = 0; i < w->cols; i++)
            y[r] += (double)row[i] * x[i];
    }
}

// Doubles that a vector or a score takes on its way, twice.
static size_t widest(const struct model_config *c)
{
    int most = c->hidden_dim;
    for (int i = 0; i < c->n_dense; i++)
        most = c->dense_dims[i] > most ? c->dense_dims[i] : most;
    return (size_t)most;
}

// x: (2, widest()), the first of which holds the sum.
static yalm_status take_vector(const yalm_model *model, double *x, float *vector, yalm_error *error)
{
    const struct model_config *c = &model->config;
    double *from = x, *to = x + widest(c), squares = 0;
    for (int i = 0; i < c->n_dense; i++) {
        multiply(to, &model->weights.dense[i], NULL, from);
        double *const made = to;
        to = from;
        from = made;
    }
    for (int i = 0; i < config_vector_dim(c); i++)
        squares += from[i] * from[i];
    if (!(squares > 0) || !isfinite(squares))
        return error_set(error, YALM_FAILED, "the text's vector has no finite length");
    for (int i = 0; i < config_vector_dim(c); i++)
        vector[i] = (float)(from[i] / sqrt(squares));
    return YALM_OK;
}

// x = layernorm(gelu(x))
static void norm_score(double *x, const struct model_config *c, const float *weight, const float *bias)
{
    const int dim = c->hidden_dim;
    double mean = 0, squares = 0;
    for (int i = 0; i < dim; i++) {
        x[i] *= 0.5 * (1 + erf(x[i] / sqrt(2)));
        mean += x[i] / dim;
    }
    for (int i = 0; i < dim; i++)
        squares += (x[i] - mean) * (x[i] - mean) / dim;
    for (int i = 0; i < dim; i++)
        x[i] = (x[i] - mean) / sqrt(squares + (double)c->norm_eps) * (double)weight[i] + (bias ? (double)bias[i] : 0);
}

// x: (2, widest()), the first of which holds the first or last token's row, or the sum of n.
static yalm_status take_score(const yalm_model *model, double *x, int n, float *score, yalm_error *error)
{
    const struct model_weights *w = &model->weights;
    const struct model_config *c = &model->config;
    double *made = x + widest(c), out;
    for (int i = 0; i < c->hidden_dim && c->score_by == POOLING_MEAN; i++)
        x[i] /= n;
    if (c->score_by != POOLING_LAST) {
        multiply(made, &w->score_dense, w->score_dense_bias, x);
        if (c->score_normed)
            norm_score(made, c, w->score_norm, w->score_norm_bias);
        for (int i = 0; i < c->hidden_dim && !c->score_normed; i++)
            made[i] = tanh(made[i]);
    }
    multiply(&out, &w->score_out, w->score_out_bias, c->score_by == POOLING_LAST ? x : made);
    *score = (float)out;
    return isfinite(out) ? YALM_OK : error_set(error, YALM_FAILED, "the texts' score is not finite");
}

// ------------------------------------------------------------------------------------------ several texts at once

// A batch of texts of any lengths, without padding.
struct lot {
    yalm_session *s;
    float *rows;           // (chunk, hidden_dim)
    double *x;             // (2, widest())
    int32_t *tokens;       // (chunk)
    struct extent *texts;  // (chunk)
    uint8_t *types;        // (chunk)
    int n, first, n_texts; // tokens; the first text, and how many there are
    bool scores;
    float *out; // of all texts: (n, vector_dim), or scores (n)
};

static void lot_free(struct lot *lot)
{
    free(lot->rows);
    free(lot->x);
    free(lot->tokens);
    free(lot->texts);
    free(lot->types);
}

static yalm_status lot_open(struct lot *lot, yalm_session *s, bool scores, float *out, yalm_error *error)
{
    const size_t chunk = (size_t)s->options.chunk, dim = (size_t)s->model->config.hidden_dim;
    *lot = (struct lot){.s = s, .scores = scores, .out = out};
    lot->rows = malloc(sizeof *lot->rows * chunk * dim);
    lot->x = malloc(2 * sizeof *lot->x * widest(&s->model->config));
    lot->tokens = malloc(sizeof *lot->tokens * chunk);
    lot->texts = malloc(sizeof *lot->texts * chunk);
    lot->types = malloc(chunk);
    if (lot->rows && lot->x && lot->tokens && lot->texts && lot->types)
        return YALM_OK;
    lot_free(lot);
    error_set(error, YALM_NO_MEMORY, "out of memory for vectors of %zu tokens", chunk);
    return YALM_NO_MEMORY;
}

static void lot_add(struct lot *lot, const int32_t *tokens, int n, int type)
{
    for (int i = 0; i < n; i++, lot->n++) {
        lot->tokens[lot->n] = tokens[i];
        lot->types[lot->n] = (uint8_t)type;
    }
}

// Evaluates it, and begins the next one.
static yalm_status lot_run(struct lot *lot, yalm_error *error)
{
    yalm_session *s = lot->s;
    const struct model_config *c = &s->model->config;
    if (lot->n == 0)
        return YALM_OK;
    const struct batch batch = {.tokens = lot->tokens,
                                .n = lot->n,
                                .hidden = lot->rows,
                                .texts = lot->texts,
                                .types = c->n_token_types > 1 ? lot->types : NULL,
                                .normed = true};
    yalm_status status = atomic_load(&s->cancel) ? error_set(error, YALM_INTERRUPTED, "interrupted")
                                                 : s->backend->evaluate(s->state, &batch, error);
    if (status == YALM_OK)
        warn_of_cut(s);
    else
        atomic_store(&s->cancel, false);
    for (int t = 0, i = lot->first; t < lot->n && status == YALM_OK; t = lot->texts[t].last, i++) {
        const float *x = lot->rows + (size_t)t * (size_t)c->hidden_dim;
        const int n = lot->texts[t].last - t;
        memset(lot->x, 0, sizeof *lot->x * (size_t)c->hidden_dim);
        pool(lot->x, lot->scores ? c->score_by : c->pooling, x, n, c->hidden_dim);
        status = lot->scores ? take_score(s->model, lot->x, n, lot->out + i, error)
                             : take_vector(s->model, lot->x, lot->out + (size_t)i * (size_t)config_vector_dim(c), error);
    }
    lot->first += lot->n_texts;
    lot->n = lot->n_texts = 0;
    return status;
}

static yalm_status lot_end_text(struct lot *lot, int first, yalm_error *error)
{
    for (int t = first; t < lot->n; t++)
        lot->texts[t] = (struct extent){first, lot->n};
    lot->n_texts++;
    return lot->s->options.exact ? lot_run(lot, error) : YALM_OK;
}

// ------------------------------------------------------------------------------------------ the public functions

static yalm_status check(yalm_session *s, bool scores, yalm_error *error)
{
    const struct model_config *c = &s->model->config;
    if (scores && !c->scores)
        return error_set(error, YALM_USAGE, "the model gives no scores: it was not trained to compare two texts");
    if (!scores && c->pooling == POOLING_NONE)
        return error_set(error, YALM_USAGE,
                         c->scores ? "the model makes no vectors of texts: it scores how well two go together"
                                   : "the model makes no vectors of texts: it was trained to go on with them");
    if (s->model->group)
        return error_set(error, YALM_USAGE, "vectors of texts: found several machines, expected one process");
    return yalm_rollback(s, 0, error);
}

// Tokens that a batch has room for. Recurrent layers carry what one text leaves to the next; and with exact bits no text shows
// in another's last ones. Past an endless session's context a token would see the first text's as attention sinks.
static int room(const yalm_session *s)
{
    const struct model_config *c = &s->model->config;
    int room = config_recurs(c) || (s->options.exact && !c->bidirectional) ? 0 : s->options.chunk;
    if (!c->bidirectional && room > s->options.context)
        room = s->options.context;
    for (int kind = 0; kind < config_n_kinds(c); kind++)
        room = s->kv[kind].capacity < room ? s->kv[kind].capacity : room;
    return room;
}

// Of a text, or of two that are compared, with all that is added.
static int most_tokens(const yalm_session *s)
{
    const int at_once = s->model->config.bidirectional ? room(s) : s->options.context;
    return at_once < s->options.context ? at_once : s->options.context;
}

static int n_added(const struct model_config *c, bool scores)
{
    return (scores ? c->n_between : 0) + (c->pooling_end >= 0);
}

static yalm_status check_text(const yalm_session *s, const yalm_text *text, int64_t all, yalm_error *error)
{
    const struct model_config *c = &s->model->config;
    const int most = most_tokens(s);
    if (text->n < 0 || all < 1)
        return error_set(error, YALM_USAGE, "number of tokens: found %lld, expected 1 or more", (long long)all);
    if (all > most)
        return error_set(error, YALM_USAGE, "the text has %lld tokens, and the context holds %d%s", (long long)all, most,
                         most < s->options.context ? ", which are read at once (machine.chunk)" : "");
    for (int i = 0; i < text->n; i++)
        if (text->tokens[i] < 0 || text->tokens[i] >= c->vocab_size)
            return error_set(error, YALM_USAGE, "token %d of %d: found id %d, expected 0 to %d", i + 1, text->n,
                             text->tokens[i], c->vocab_size - 1);
    return YALM_OK;
}

// All of them, before the first is evaluated.
static yalm_status check_texts(const yalm_session *s, const yalm_text *query, const yalm_text *texts, int n, yalm_error *error)
{
    const int64_t more = n_added(&s->model->config, query) + (query ? (int64_t)query->n : 0);
    yalm_error why = {0};
    for (int i = 0; i < n; i++) {
        if ((query && i == 0 && check_text(s, query, texts[i].n + more, &why) != YALM_OK) ||
            check_text(s, &texts[i], texts[i].n + more, &why) != YALM_OK)
            return n == 1 ? error_set(error, why.status, "%s", why.text)
                          : error_set(error, why.status, "text %d of %d: %s", i + 1, n, why.text);
    }
    return YALM_OK;
}

static int32_t *put_tokens(int32_t *to, const int32_t *tokens, int n)
{
    for (int i = 0; i < n; i++)
        *to++ = tokens[i];
    return to;
}

// A text that does not go with others, piece by piece. query: as in add_pair(), for a score; or NULL.
static yalm_status embed_alone(yalm_session *s, const yalm_text *query, const yalm_text *given, float *out, double *x,
                               yalm_error *error)
{
    const struct model_config *c = &s->model->config;
    const size_t all = (size_t)given->n + (size_t)(query ? query->n : 0) + (size_t)n_added(c, query);
    struct embedding e = {.model = s->model,
                          .by = query ? c->score_by : c->pooling,
                          .rows = malloc(sizeof(float) * (size_t)c->hidden_dim * (size_t)s->options.chunk),
                          .sum = x};
    int32_t *text = malloc(sizeof *text * (all + 1));
    yalm_status status = YALM_OK;
    memset(x, 0, sizeof *x * (size_t)c->hidden_dim);
    if (e.rows && text) {
        int32_t *at = text;
        if (query)
            at = put_tokens(put_tokens(at, query->tokens, query->n), c->between, c->n_between);
        put_tokens(put_tokens(at, given->tokens, given->n), &c->pooling_end, c->pooling_end >= 0);
        s->embedding = &e;
        status = yalm_eval(s, text, (int)all, YALM_LOGITS_NONE, error);
        s->embedding = NULL;
        status = status ?: query ? take_score(s->model, x, (int)all, out, error) : take_vector(s->model, x, out, error);
        const yalm_status emptied = yalm_rollback(s, 0, status == YALM_OK ? error : NULL);
        status = status == YALM_OK ? emptied : status;
        mtp_forget(s);
    } else
        status = error_set(error, YALM_NO_MEMORY, "out of memory for a vector of %zu tokens", all);
    free(e.rows);
    free(text);
    return status;
}

static yalm_status add_text(struct lot *lot, const yalm_text *text, yalm_error *error)
{
    const struct model_config *c = &lot->s->model->config;
    const int64_t all = (int64_t)text->n + n_added(c, false);
    yalm_status status = lot->n + all > room(lot->s) ? lot_run(lot, error) : YALM_OK;
    if (status != YALM_OK)
        return status;
    if (all > room(lot->s)) {
        status = embed_alone(lot->s, NULL, text, lot->out + (size_t)lot->first * (size_t)config_vector_dim(c), lot->x, error);
        lot->first++;
        return status;
    }
    const int first = lot->n;
    lot_add(lot, text->tokens, text->n, 0);
    lot_add(lot, &c->pooling_end, c->pooling_end >= 0, 0);
    return lot_end_text(lot, first, error);
}

// The query, what stands between, the text, and what ends it.
static yalm_status add_pair(struct lot *lot, const yalm_text *query, const yalm_text *text, yalm_error *error)
{
    const struct model_config *c = &lot->s->model->config;
    const int64_t all = (int64_t)query->n + text->n + n_added(c, true);
    yalm_status status = lot->n + all > room(lot->s) ? lot_run(lot, error) : YALM_OK;
    if (status != YALM_OK)
        return status;
    if (all > room(lot->s)) // of a model whose tokens see those before them alone
        return embed_alone(lot->s, query, text, lot->out + lot->first++, lot->x, error);
    const int first = lot->n, type = c->n_token_types > 1;
    lot_add(lot, query->tokens, query->n, 0);
    lot_add(lot, c->between, c->n_between, 0);
    lot_add(lot, text->tokens, text->n, type);
    lot_add(lot, &c->pooling_end, c->pooling_end >= 0, type);
    return lot_end_text(lot, first, error);
}

static yalm_status run(yalm_session *s, const yalm_text *query, const yalm_text *texts, int n, float *out, yalm_error *error)
{
    struct lot lot;
    yalm_status status = check(s, query, error);
    status = status ?: check_texts(s, query, texts, n, error);
    status = status ?: lot_open(&lot, s, query, out, error);
    if (status != YALM_OK)
        return status;
    for (int i = 0; i < n && status == YALM_OK; i++)
        status = query ? add_pair(&lot, query, &texts[i], error) : add_text(&lot, &texts[i], error);
    status = status ?: lot_run(&lot, error);
    lot_free(&lot);
    return status;
}

int yalm_text_most(const yalm_session *s)
{
    const int most = most_tokens(s) - n_added(&s->model->config, s->model->config.scores);
    return most > 0 ? most : 0;
}

yalm_status yalm_embed_texts(yalm_session *s, const yalm_text *texts, int n, float *vectors, yalm_error *error)
{
    return run(s, NULL, texts, n, vectors, error);
}

yalm_status yalm_score_texts(yalm_session *s, yalm_text query, const yalm_text *texts, int n, float *scores, yalm_error *error)
{
    return run(s, &query, texts, n, scores, error);
}

yalm_status yalm_embed(yalm_session *s, const int32_t *tokens, int n, float *vector, yalm_error *error)
{
    return run(s, NULL, &(yalm_text){tokens, n}, 1, vector, error);
}

yalm_status yalm_cut_vectors(const yalm_model *model, float *vectors, int n, int dim, yalm_error *error)
{
    const struct model_config *c = &model->config;
    const int whole = config_vector_dim(c), least = c->matryoshka ? c->matryoshka : whole;
    if (c->pooling == POOLING_NONE || dim < least || dim > whole)
        return error_set(error, YALM_USAGE,
                         c->matryoshka ? "dimensions: found %d, expected %d to %d"
                                       : "dimensions: found %d, and vectors of %d alone are what the model's files say that it "
                                         "was trained for (\"matryoshka_dimensions\" in config.json would say of fewer)",
                         dim, least, whole);
    for (int v = 0; v < n && dim < whole; v++) {
        const float *from = vectors + (size_t)v * (size_t)whole;
        float *to = vectors + (size_t)v * (size_t)dim;
        double squares = 0;
        for (int i = 0; i < dim; i++)
            squares += (double)from[i] * (double)from[i];
        for (int i = 0; i < dim; i++)
            to[i] = (float)((double)from[i] / sqrt(squares > 0 ? squares : 1));
    }
    return YALM_OK;
}
