// Vectors of texts in the forms of OpenAI, Ollama and llama.cpp, and scores of texts beside a query in Jina's. One request at a
// time, in a thread of their own (reading.h): all its texts are read, then evaluated together.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
#include "serve/generation.h"
#include "util/clock.h"
#include "util/json_write.h"

enum { MAX_TEXTS = 4096 };

struct texts {
    yalm_text *list; // (n), whose tokens are owned
    int n;
    long long n_tokens;   // of all
    int n_cut, first_cut; // to what the context holds; the number of the first of these
    float *values;        // (n, width)
    size_t width;         // as computed, and in the answer
    int dim;              // components of a vector that are asked for; 0: all
};

static void texts_free(struct texts *texts)
{
    for (int i = 0; i < texts->n; i++)
        free((void *)texts->list[i].tokens);
    free(texts->list);
    free(texts->values);
}

// ---------------------------------------------------------------- the request

static bool no_memory(struct request *request)
{
    return request_fail(request, 503, "out of memory for the texts");
}

// cut: a longer text is cut to what the context holds, for those who ask for that.
static bool keep_text(struct request *request, struct texts *texts, int32_t *ids, size_t n, bool cut)
{
    const size_t most = (size_t)yalm_text_most(request->server->vectors);
    if (n > most && !cut) {
        free(ids);
        return request_fail_context(request, "", (long long)n, (long long)most);
    }
    if (n > most) {
        texts->first_cut = texts->n_cut++ ? texts->first_cut : texts->n + 1;
        n = most;
    }
    texts->list[texts->n++] = (yalm_text){ids, (int)n};
    texts->n_tokens += (long long)n;
    return true;
}

static bool add_string(struct request *request, struct texts *texts, const char *text, int flags, bool cut)
{
    int32_t *ids;
    size_t n;
    yalm_error error = {0};
    if (yalm_tokenize(request->server->model, text, strlen(text), flags, &ids, &n, &error) != YALM_OK)
        return request_fail_by(request, &error);
    return keep_text(request, texts, ids, n, cut);
}

// A text as its tokens: what begins one is put before it where it is missing.
static bool add_ids(struct request *request, struct texts *texts, const char *key, const cJSON *list, bool cut)
{
    const yalm_model_info *facts = yalm_model_facts(request->server->model);
    int32_t *ids = malloc(sizeof *ids * ((size_t)cJSON_GetArraySize(list) + 1));
    size_t n = 0;
    const cJSON *item;
    int64_t id = -1;
    if (ids == NULL)
        return no_memory(request);
    cJSON_ArrayForEach(item, list)
    {
        if (!body_is_integer(item, 0, facts->vocab_size - 1, &id)) {
            free(ids);
            return request_fail(request, 400, "'%s': expected a string, token ids from 0 to %d, or a list of either", key,
                                facts->vocab_size - 1);
        }
        if (n == 0 && facts->add_bos && id != facts->bos)
            ids[n++] = facts->bos;
        ids[n++] = (int32_t)id;
    }
    return keep_text(request, texts, ids, n, cut);
}

static bool texts_open(struct request *request, struct texts *texts, const char *key, int n)
{
    if (n < 1 || n > MAX_TEXTS)
        return request_fail(request, 400, "'%s': found %d texts, expected 1 to %d", key, n, MAX_TEXTS);
    texts->list = calloc((size_t)n, sizeof *texts->list);
    return texts->list || no_memory(request);
}

// A string, token ids, or a list of either.
static bool read_input(struct request *request, struct texts *texts, const char *key, bool cut)
{
    const cJSON *input = body_member(request->json, key), *item;
    const bool ids = cJSON_IsArray(input) && cJSON_IsNumber(input->child);
    if (!cJSON_IsString(input) && !cJSON_IsArray(input))
        return request_fail(request, 400, "'%s': expected a string, token ids, or a list of either", key);
    if (!texts_open(request, texts, key, cJSON_IsString(input) || ids ? 1 : cJSON_GetArraySize(input)))
        return false;
    if (cJSON_IsString(input))
        return add_string(request, texts, input->valuestring, YALM_TOKENIZE_BOS, cut);
    if (ids)
        return add_ids(request, texts, key, input, cut);
    cJSON_ArrayForEach(item, input)
    {
        if (!cJSON_IsString(item) && !(cJSON_IsArray(item) && item->child))
            return request_fail(request, 400, "'%s', number %d: expected a string or token ids", key, texts->n + 1);
        if (!(cJSON_IsString(item) ? add_string(request, texts, item->valuestring, YALM_TOKENIZE_BOS, cut)
                                   : add_ids(request, texts, key, item, cut)))
            return false;
    }
    return true;
}

static bool read_dimensions(struct request *request, struct texts *texts)
{
    const yalm_model *model = request->server->model;
    int64_t wanted = yalm_model_facts(model)->vector_dim;
    yalm_error error = {0};
    if (!body_integer(request, request->json, "dimensions", 1, INT32_MAX, &wanted))
        return false;
    texts->dim = (int)wanted;
    return yalm_cut_vectors(model, NULL, 0, texts->dim, &error) == YALM_OK || request_fail_by(request, &error);
}

// ---------------------------------------------------------------- the engine's part

// query NULL: vectors; else a score of each text beside it. Who finds that the client has gone cancels the session (serve.c).
// That may come too late, and then meets the next request, which begins again.
static yalm_status evaluate_by(struct request *request, yalm_session *session, const struct texts *texts,
                               const yalm_text *query, yalm_error *error)
{
    yalm_status status;
    do {
        status = query ? yalm_score_texts(session, *query, texts->list, texts->n, texts->values, error)
                       : yalm_embed_texts(session, texts->list, texts->n, texts->values, error);
    } while (status == YALM_INTERRUPTED && !atomic_load(&request->left) && !atomic_load(&request->server->ending));
    return status;
}

static void warn_of_cut(struct request *request, const struct texts *texts)
{
    const int most = yalm_text_most(request->server->vectors);
    if (texts->n_cut == 1)
        request_warn(request, "text %d behind its first %d tokens", texts->first_cut, most);
    else
        request_warn(request, "text %d and %d more behind their first %d tokens", texts->first_cut, texts->n_cut - 1, most);
}

static bool evaluate(struct request *request, struct texts *texts, const yalm_text *query)
{
    struct server *server = request->server;
    const bool of_slot = server->vectors == engine_session(server->engine);
    yalm_error error = {0};
    texts->width = query ? 1 : (size_t)yalm_model_facts(server->model)->vector_dim;
    texts->values = malloc(sizeof *texts->values * texts->width * (size_t)texts->n);
    if (texts->values == NULL)
        return no_memory(request);
    if (of_slot)
        engine_take_slot(server->engine, 0, true);
    yalm_status status = evaluate_by(request, server->vectors, texts, query, &error);
    if (of_slot)
        engine_return_slot(server->engine, 0);
    if (status == YALM_OK && texts->dim) {
        status = yalm_cut_vectors(server->model, texts->values, texts->n, texts->dim, &error);
        texts->width = (size_t)texts->dim;
    }
    if (texts->n_cut)
        warn_of_cut(request, texts);
    if (atomic_load(&request->left))
        return false;
    if (status == YALM_INTERRUPTED)
        return request_fail(request, 503, "the server is shutting down");
    return status == YALM_OK || request_fail_by(request, &error);
}

static bool offered(struct request *request, bool scores)
{
    const yalm_model_info *facts = yalm_model_facts(request->server->model);
    if (scores ? facts->scores : facts->pooling != NULL)
        return true;
    return request_fail(request, 501, "%s is not offered: %s", request->route->path,
                        facts->scores ? "the model scores how well two texts go together (/v1/rerank)"
                        : facts->pooling
                            ? "the model makes vectors of texts (/v1/embeddings), and was not trained to compare two"
                        : scores ? "the model generates text, and its files do not say that it compares two (modules.json with "
                                   "LogitScore, or GGUF's cls.output, would)"
                                 : "the model generates text, and was not trained to make embeddings");
}

// ---------------------------------------------------------------- the answers

static void add_base64(struct buffer *out, const char *key, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    json_raw(out, key, "\"");
    for (size_t i = 0; i < n; i += 3) {
        const uint32_t more = (uint32_t)(i + 1 < n ? bytes[i + 1] << 8 : 0) | (i + 2 < n ? bytes[i + 2] : 0);
        const uint32_t three = (uint32_t)bytes[i] << 16 | more;
        const char four[] = {digits[three >> 18], digits[three >> 12 & 63], i + 1 < n ? digits[three >> 6 & 63] : '=',
                             i + 2 < n ? digits[three & 63] : '='};
        buffer_add(out, four, 4);
    }
    buffer_text(out, "\"");
}

static void add_vector(struct buffer *out, const char *key, const struct texts *texts, int i)
{
    const float *vector = texts->values + (size_t)i * texts->width;
    json_open(out, key, '[');
    for (size_t k = 0; k < texts->width; k++)
        json_raw(out, NULL, "%.9g", (double)vector[k]);
    json_close(out, "]");
}

static void add_usage(struct buffer *out, long long n)
{
    json_open(out, "usage", '{');
    json_integer(out, "prompt_tokens", n);
    json_integer(out, "total_tokens", n);
    json_close(out, "}");
}

void handle_embeddings(struct request *request)
{
    const char *format = "float";
    struct texts texts = {0};
    struct buffer out = {0};
    if (!offered(request, false) || !body_string(request, request->json, "encoding_format", &format) ||
        !read_dimensions(request, &texts))
        return;
    const bool base64 = strcmp(format, "base64") == 0;
    if (!base64 && strcmp(format, "float") != 0) {
        request_fail(request, 400, "'encoding_format': found '%.40s', expected float or base64", format);
        return;
    }
    if (read_input(request, &texts, "input", false) && evaluate(request, &texts, NULL)) {
        body_warn_of_unread(request);
        json_open(&out, NULL, '{');
        json_text(&out, "object", "list");
        json_text(&out, "model", yalm_model_facts(request->server->model)->name);
        json_open(&out, "data", '[');
        for (int i = 0; i < texts.n; i++) {
            json_open(&out, NULL, '{');
            json_text(&out, "object", "embedding");
            json_integer(&out, "index", i);
            if (base64)
                add_base64(&out, "embedding", (const uint8_t *)(texts.values + (size_t)i * texts.width),
                           sizeof *texts.values * texts.width);
            else
                add_vector(&out, "embedding", &texts, i);
            json_close(&out, "}");
        }
        json_close(&out, "]");
        add_usage(&out, texts.n_tokens);
        json_close(&out, "}");
        request_send_all(request, &out);
    }
    texts_free(&texts);
}

void handle_ollama_embed(struct request *request)
{
    struct texts texts = {0};
    struct buffer out = {0};
    const bool one = strcmp(request->route->path, "/api/embeddings") == 0; // the older form
    bool cut = true;
    if (!offered(request, false) || !read_dimensions(request, &texts) || !body_bool(request, request->json, "truncate", &cut))
        return;
    if (read_input(request, &texts, one ? "prompt" : "input", cut) && evaluate(request, &texts, NULL)) {
        body_warn_of_unread(request);
        json_open(&out, NULL, '{');
        if (!one)
            json_text(&out, "model", yalm_model_facts(request->server->model)->name);
        if (!one)
            json_open(&out, "embeddings", '[');
        for (int i = 0; i < texts.n; i++)
            add_vector(&out, one ? "embedding" : NULL, &texts, i);
        json_close(&out, one ? "" : "]");
        if (!one) {
            json_integer(&out, "total_duration", (long long)((clock_seconds() - request->began) * 1e9));
            json_integer(&out, "load_duration", 0);
            json_integer(&out, "prompt_eval_count", texts.n_tokens);
        }
        json_close(&out, "}");
        request_send_all(request, &out);
    }
    texts_free(&texts);
}

// llama.cpp's: a list of vectors for each text, of which there is one.
void handle_embedding(struct request *request)
{
    struct texts texts = {0};
    struct buffer out = {0};
    body_rename(request, "content", "input");
    if (!offered(request, false))
        return;
    if (read_input(request, &texts, "input", false) && evaluate(request, &texts, NULL)) {
        json_open(&out, NULL, '[');
        for (int i = 0; i < texts.n; i++) {
            json_open(&out, NULL, '{');
            json_integer(&out, "index", i);
            json_open(&out, "embedding", '[');
            add_vector(&out, NULL, &texts, i);
            json_close(&out, "]}");
        }
        json_close(&out, "]");
        request_send_all(request, &out);
    }
    texts_free(&texts);
}

// ---------------------------------------------------------------- reranking

static const char *document_text(const cJSON *item)
{
    const cJSON *text = cJSON_IsObject(item) ? body_member(item, "text") : item;
    return cJSON_IsString(text) ? text->valuestring : NULL;
}

// Both as the model's own template has them.
static bool add_prompt(struct request *request, struct texts *texts, const char *query, const char *text)
{
    struct buffer variables = {0};
    const char *const messages[][2] = {{"query", query}, {"document", text}};
    char *prompt = NULL;
    size_t length;
    yalm_error error = {0};
    json_open(&variables, NULL, '{');
    json_open(&variables, "messages", '[');
    for (int i = 0; i < 2; i++) {
        json_open(&variables, NULL, '{');
        json_text(&variables, "role", messages[i][0]);
        json_text(&variables, "content", messages[i][1]);
        json_close(&variables, "}");
    }
    json_close(&variables, "]}");
    if (variables.failed) {
        buffer_free(&variables);
        return no_memory(request);
    }
    const yalm_status status =
        yalm_chat_render(request->server->model, variables.at, variables.length, &prompt, &length, &error);
    buffer_free(&variables);
    if (status != YALM_OK)
        return request_fail_by(request, &error);
    const bool added = add_string(request, texts, prompt, YALM_TOKENIZE_SPECIAL, false);
    free(prompt);
    return added;
}

// query: NULL where the texts are read beside it.
static bool read_documents(struct request *request, struct texts *texts, const cJSON *documents, const char *query)
{
    const cJSON *item;
    if (!cJSON_IsArray(documents))
        return request_fail(request, 400, "'documents': expected a list of strings");
    if (!texts_open(request, texts, "documents", cJSON_GetArraySize(documents)))
        return false;
    cJSON_ArrayForEach(item, documents)
    {
        const char *text = document_text(item);
        if (text == NULL)
            return request_fail(request, 400, "'documents', number %d: expected a string, or an object with a 'text'",
                                texts->n + 1);
        if (!(query ? add_prompt(request, texts, query, text) : add_string(request, texts, text, YALM_TOKENIZE_BEHIND, false)))
            return false;
    }
    return true;
}

struct ranked {
    int index;
    float score;
};

static int better_first(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->score > y->score ? -1 : x->score < y->score ? 1 : x->index - y->index;
}

static void add_results(struct request *request, const struct texts *texts, const cJSON *documents, int n, bool with_texts)
{
    struct buffer out = {0};
    struct ranked *order = malloc(sizeof *order * (size_t)texts->n);
    if (order == NULL) {
        no_memory(request);
        return;
    }
    for (int i = 0; i < texts->n; i++)
        order[i] = (struct ranked){i, texts->values[i]};
    qsort(order, (size_t)texts->n, sizeof *order, better_first);
    json_open(&out, NULL, '{');
    json_text(&out, "object", "list");
    json_text(&out, "model", yalm_model_facts(request->server->model)->name);
    add_usage(&out, texts->n_tokens);
    json_open(&out, "results", '[');
    for (int i = 0; i < n; i++) {
        json_open(&out, NULL, '{');
        json_integer(&out, "index", order[i].index);
        json_raw(&out, "relevance_score", "%.9g", 1 / (1 + exp(-(double)order[i].score)));
        if (with_texts) {
            json_open(&out, "document", '{');
            json_text(&out, "text", document_text(cJSON_GetArrayItem(documents, order[i].index)));
            json_close(&out, "}");
        }
        json_close(&out, "}");
    }
    json_close(&out, "]}");
    free(order);
    request_send_all(request, &out);
}

void handle_rerank(struct request *request)
{
    struct texts query = {0}, texts = {0};
    const char *asked = NULL;
    int64_t most = MAX_TEXTS;
    bool with_texts = false;
    const cJSON *documents = body_member(request->json, "documents");
    if (!offered(request, true) || !body_string(request, request->json, "query", &asked) ||
        !body_integer(request, request->json, "top_n", 1, INT32_MAX, &most) ||
        !body_bool(request, request->json, "return_documents", &with_texts))
        return;
    if (asked == NULL) {
        request_fail(request, 400, "'query': expected a string");
        return;
    }
    const bool beside = yalm_model_facts(request->server->model)->bidirectional; // else both are in one prompt
    if (texts_open(request, &query, "query", 1) && (!beside || add_string(request, &query, asked, YALM_TOKENIZE_BOS, false)) &&
        read_documents(request, &texts, documents, beside ? NULL : asked) && evaluate(request, &texts, query.list)) {
        body_warn_of_unread(request);
        texts.n_tokens += query.n_tokens * texts.n; // which is read beside each
        add_results(request, &texts, documents, most < texts.n ? (int)most : texts.n, with_texts);
    }
    texts_free(&query);
    texts_free(&texts);
}
