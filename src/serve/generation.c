// See generation.h.
#include "serve/generation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "serve/body.h"
#include "util/clock.h"
#include "util/json_write.h"
#include "util/utf8.h"

static bool read_stops(struct request *request, const char *key)
{
    struct generation *how = request->how;
    const cJSON *stop = body_member(request->json, key);
    const int n = stop == NULL ? 0 : cJSON_IsString(stop) ? 1 : cJSON_IsArray(stop) ? cJSON_GetArraySize(stop) : -1;
    if (n < 0 || n > MAX_STOPS)
        return request_fail(request, 400, "'%s': expected a string, or a list of at most %d", key, MAX_STOPS);
    for (int i = 0; i < n; i++) {
        const cJSON *text = cJSON_IsString(stop) ? stop : cJSON_GetArrayItem(stop, i);
        if (!cJSON_IsString(text) || text->valuestring[0] == 0 || strlen(text->valuestring) > BODY_MAX_STOP)
            return request_fail(request, 400, "'%s': expected strings of 1 to %d bytes", key, BODY_MAX_STOP);
        how->stops[how->options.n_stops++] = text->valuestring;
    }
    return true;
}

// All of these come to no more than MAX_BIASES.
static bool add_bias(struct request *request, int32_t token, float bias)
{
    yalm_sampling *sampling = &request->how->options.sampling;
    if (sampling->n_biases == MAX_BIASES)
        return request_fail(request, 400, "'logit_bias': expected at most %d token ids", MAX_BIASES);
    ((yalm_logit_bias *)sampling->biases)[sampling->n_biases++] = (yalm_logit_bias){token, bias};
    return true;
}

// Each of the text's tokens.
static bool add_text_bias(struct request *request, const char *text, float bias)
{
    yalm_error error;
    int32_t *ids;
    size_t n;
    if (yalm_tokenize(request->server->model, text, strlen(text), 0, &ids, &n, &error) != YALM_OK)
        return request_fail_by(request, &error);
    bool added = true;
    for (size_t i = 0; i < n && added; i++)
        added = add_bias(request, ids[i], bias);
    free(ids);
    return added;
}

// "1234": -100, or [1234, -100]; there false, too, bans the token. In the place of an id may stand a text.
static bool read_bias(struct request *request, const cJSON *item, int number)
{
    const cJSON *key = cJSON_IsArray(item) && cJSON_GetArraySize(item) == 2 ? item->child : NULL,
                *value = key ? key->next : item;
    const char *text = item->string ? item->string : cJSON_IsString(key) ? key->valuestring : NULL;
    double id = cJSON_IsNumber(key) ? key->valuedouble : -1;
    if (item->string && item->string[0] && item->string[strspn(item->string, "0123456789")] == 0) {
        id = strtod(item->string, NULL);
        text = NULL;
    }
    const int n_vocab = yalm_model_facts(request->server->model)->vocab_size;
    const bool banned = key && cJSON_IsFalse(value), known = text || (id >= 0 && id < n_vocab && id == floor(id));
    if (!known || !(banned || (cJSON_IsNumber(value) && fabs(value->valuedouble) <= 100)))
        return request_fail(request, 400,
                            "'logit_bias', number %d: expected a token id below %d, or a text, with a number from -100 to 100",
                            number, n_vocab);
    const float bias = banned || value->valuedouble == -100 ? -INFINITY : (float)value->valuedouble;
    return text ? add_text_bias(request, text, bias) : add_bias(request, (int32_t)id, bias);
}

static bool bans_all(const yalm_sampling *sampling, int n_vocab)
{
    bool *banned = sampling->n_biases < n_vocab ? NULL : calloc((size_t)n_vocab, sizeof *banned);
    int n = 0;
    for (int i = 0; banned && i < sampling->n_biases; i++) {
        bool *one = &banned[sampling->biases[i].token];
        n += !*one && sampling->biases[i].bias == -INFINITY;
        *one |= sampling->biases[i].bias == -INFINITY;
    }
    free(banned);
    return n == n_vocab;
}

// {"1234": -100}, or [[1234, -100]] as llama.cpp has it: from -100, which bans the token, to 100.
static bool read_biases(struct request *request)
{
    const cJSON *given = body_member(request->json, "logit_bias"), *item;
    if (given && !(cJSON_IsObject(given) || cJSON_IsArray(given)))
        return request_fail(request, 400, "'logit_bias': expected an object of token ids");
    if (given == NULL || given->child == NULL)
        return true;
    request->how->options.sampling.biases = malloc(MAX_BIASES * sizeof *request->how->options.sampling.biases);
    if (request->how->options.sampling.biases == NULL)
        return request_fail(request, 503, "out of memory for biases");
    int number = 0;
    cJSON_ArrayForEach(item, given)
    {
        if (!read_bias(request, item, ++number))
            return false;
    }
    return !bans_all(&request->how->options.sampling, yalm_model_facts(request->server->model)->vocab_size) ||
           request_fail(request, 400, "'logit_bias': it bans every token");
}

#define AT(member) offsetof(yalm_sampling, member)
static const struct field {
    const char *key;
    bool whole; // an int; else a float
    size_t at;
    double min, max;
} fields[] = {
    {"temperature", false, AT(temperature), 0, 1000},
    {"top_k", true, AT(top_k), -1, INT32_MAX},
    {"top_p", false, AT(top_p), 0, 1},
    {"min_p", false, AT(min_p), 0, 1},
    {"repeat_penalty", false, AT(repeat_penalty), 0.01, 100},
    {"repeat_last_n", true, AT(penalty_last_n), -1, INT32_MAX},
    {"presence_penalty", false, AT(presence_penalty), -100, 100},
    {"frequency_penalty", false, AT(frequency_penalty), -100, 100},
};
#undef AT
enum { N_FIELDS = sizeof fields / sizeof *fields };

static bool read_sampling(struct request *request)
{
    yalm_sampling *s = &request->how->options.sampling;
    for (const struct field *f = fields; f < fields + N_FIELDS; f++) {
        void *const value = (char *)s + f->at;
        int64_t whole = f->whole ? *(int *)value : 0;
        if (!(f->whole ? body_integer(request, request->json, f->key, (int64_t)f->min, (int64_t)f->max, &whole)
                       : body_number(request, request->json, f->key, f->min, f->max, value)))
            return false;
        if (f->whole)
            *(int *)value = (int)whole;
    }
    s->top_k = s->top_k < 0 ? 0 : s->top_k;
    // OpenAI's penalties count what is generated; llama.cpp's, and Ollama's, the last tokens with those of the prompt.
    const bool own = body_member(request->json, "presence_penalty") || body_member(request->json, "frequency_penalty");
    request->how->options.penalise_own = own && s->repeat_penalty == 1 && !body_member(request->json, "repeat_last_n") &&
                                         request->route->dialect != OLLAMA && strncmp(request->route->path, "/v1/", 4) == 0;
    return read_biases(request);
}

void generation_add_sampling(struct buffer *out, const yalm_sampling *sampling)
{
    for (const struct field *f = fields; f < fields + N_FIELDS; f++) {
        const void *const value = (const char *)sampling + f->at;
        json_number(out, f->key, f->whole ? (double)*(const int *)value : (double)*(const float *)value);
    }
}

static bool read_seed(struct request *request)
{
    int64_t seed = -1;
    if (!body_integer(request, request->json, "seed", -1, (int64_t)1 << 53, &seed))
        return false;
    request->how->seed = seed < 0 ? request->server->options->seed : (uint64_t)seed;
    if (request->how->seed != UINT64_MAX)
        return true;
    if (getrandom(&request->how->seed, sizeof request->how->seed, 0) < 0)
        request->how->seed = (uint64_t)(clock_seconds() * 1e9);
    request->how->seed >>= 64 - 53; // so that a client can give it back as a number of JSON
    return true;
}

bool generation_read(struct request *request, const char *stop)
{
    if (yalm_model_facts(request->server->model)->bidirectional)
        return request_fail(request, 501, "%s is not offered: the model reads whole texts, and does not go on with them",
                            request->route->path);
    struct generation *how = calloc(1, sizeof *how);
    if (how == NULL)
        return request_fail(request, 503, "out of memory for a request");
    request->how = how;
    how->options.sampling = request->server->options->sampling;
    how->options.sampling.biases = NULL;
    how->options.sampling.n_biases = 0;
    how->options.stops = how->stops;
    how->options.max_tokens = -1;
    how->options.n_likely = -1;
    how->reuse = true;
    how->slot = -1;
    int64_t n = 1;
    yalm_error error;
    if (!read_sampling(request) || !read_seed(request) || !read_stops(request, stop) ||
        !body_integer(request, request->json, "n", 1, MAX_CHOICES, &n) ||
        !body_integer(request, request->json, "max_tokens", -1, INT32_MAX, &how->options.max_tokens) ||
        !body_bool(request, request->json, "ignore_eos", &how->options.ignore_eos) ||
        !body_bool(request, request->json, "cache_prompt", &how->reuse) ||
        !body_integer(request, request->json, "id_slot", -1, engine_n_slots(request->server->engine) - 1, &how->slot))
        return false;
    how->n_choices = (int)n;
    if (yalm_sampling_check(request->server->model, &how->options.sampling, &error) == YALM_OK)
        return true;
    return request_fail(request, 400, "%s", error.text);
}

// ---------------------------------------------------------------- prompts

const char *token_bytes(const yalm_model *model, int32_t token, size_t *length)
{
    *length = 0;
    const char *piece = yalm_piece(model, token, length);
    return piece ? piece : "";
}

bool generation_add_prompt(struct request *request, int32_t *ids, size_t n)
{
    struct generation *how = request->how;
    struct prompt *grown =
        how->n_prompts < MAX_PROMPTS ? realloc(how->prompts, ((size_t)how->n_prompts + 1) * sizeof *grown) : NULL;
    if (grown == NULL || n == 0) {
        free(ids);
        if (n == 0)
            request_fail(request, 400, "the prompt has no tokens, and the model none to begin with");
        else
            request_fail(request, 400, "'prompt': a request has at most %d", MAX_PROMPTS);
        how->prompts = grown ? grown : how->prompts;
        return false;
    }
    how->prompts = grown;
    grown[how->n_prompts++] = (struct prompt){ids, n};
    return true;
}

// Turns a text into tokens, unless its bytes alone say that they are too many: what tokenises is a thread of all
// requests. Normalisers may make a text shorter; four times should do.
static bool tokenize(struct request *request, const char *text, size_t length, int flags, int32_t **ids, size_t *n)
{
    const size_t longest = request->server->longest_piece, context = (size_t)engine_context(request->server->engine);
    yalm_error error;
    if (length / longest / 4 > context)
        return request_fail_context(request, "at least ", (long long)(length / longest), (long long)context);
    if (yalm_tokenize(request->server->model, text, length, flags, ids, n, &error) == YALM_OK)
        return true;
    return request_fail_by(request, &error);
}

bool generation_add_text(struct request *request, const char *text, size_t length, int flags)
{
    const yalm_model *model = request->server->model;
    const yalm_model_info *facts = yalm_model_facts(model);
    int32_t *ids;
    size_t n, bos_length = 0;
    if (strcmp(facts->tokenizer, "none") == 0)
        return request_fail(request, 400, "the model has no tokenizer: expected token ids");
    const char *bos = facts->bos >= 0 ? token_bytes(model, facts->bos, &bos_length) : "";
    const bool begun =
        (flags & YALM_TOKENIZE_SPECIAL) && bos_length && length >= bos_length && memcmp(text, bos, bos_length) == 0;
    if (begun)
        flags &= ~YALM_TOKENIZE_BOS;
    return tokenize(request, text, length, flags, &ids, &n) && generation_add_prompt(request, ids, n);
}

// A text: a string, or an object as llama.cpp's clients wrap one in. NULL where it is none.
static const char *text_of(const cJSON *item)
{
    const cJSON *wrapped = body_member(item, "prompt_string");
    if (wrapped && body_member(item, "multimodal_data") == NULL)
        item = wrapped;
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

bool generation_extend(struct request *request, struct prompt *sequence, const char *text, int flags, size_t room)
{
    int32_t *ids;
    size_t n;
    flags |= sequence->n == 0 ? YALM_TOKENIZE_BOS : 0;
    const long long context = engine_context(request->server->engine);
    if ((long long)sequence->n > context)
        return request_fail_context(request, "at least ", (long long)sequence->n, context);
    if (!tokenize(request, text, strlen(text), flags, &ids, &n))
        return false;
    int32_t *grown = realloc(sequence->ids, (sequence->n + n + room + 1) * sizeof *grown); // of 0 bytes it would be freed
    if (grown) {
        memcpy(grown + sequence->n, ids, n * sizeof *ids);
        sequence->ids = grown;
        sequence->n += n;
    } else
        request_fail(request, 503, "out of memory for a prompt");
    free(ids);
    return grown != NULL;
}

static bool extend_by_id(struct request *request, struct prompt *sequence, const cJSON *id)
{
    const int n_vocab = yalm_model_facts(request->server->model)->vocab_size;
    int64_t token;
    if (!body_is_integer(id, 0, n_vocab - 1, &token))
        return request_fail(request, 400, "'prompt': expected token ids from 0 to %d, or texts among them", n_vocab - 1);
    sequence->ids[sequence->n++] = (int32_t)token;
    return true;
}

// A list of token ids, among which texts may stand, as one prompt.
static bool add_sequence(struct request *request, const cJSON *list)
{
    const size_t n = (size_t)cJSON_GetArraySize(list) + 1;
    struct prompt sequence = {.ids = malloc(n * sizeof *sequence.ids)};
    const cJSON *item;
    bool good = sequence.ids != NULL;
    if (!good)
        request_fail(request, 503, "out of memory for a prompt");
    cJSON_ArrayForEach(item, list)
    {
        const char *text = text_of(item);
        good = good && (text ? generation_extend(request, &sequence, text, YALM_TOKENIZE_SPECIAL, n)
                             : extend_by_id(request, &sequence, item));
    }
    if (good)
        return generation_add_prompt(request, sequence.ids, sequence.n);
    free(sequence.ids);
    return false;
}

bool generation_read_prompts(struct request *request)
{
    const int flags = YALM_TOKENIZE_BOS | YALM_TOKENIZE_SPECIAL;
    const cJSON *prompt = body_member(request->json, "prompt"), *each;
    const char *text = text_of(prompt);
    if (text)
        return generation_add_text(request, text, strlen(text), flags);
    if (!cJSON_IsArray(prompt) || prompt->child == NULL)
        return request_fail(request, 400, "'prompt': expected a string, token ids, or a list of either");
    bool any_ids = false;
    cJSON_ArrayForEach(each, prompt)
    {
        any_ids |= cJSON_IsNumber(each);
    }
    if (any_ids)
        return add_sequence(request, prompt);
    cJSON_ArrayForEach(each, prompt)
    {
        text = text_of(each);
        if (text == NULL && !cJSON_IsArray(each))
            return request_fail(request, 400, "'prompt': expected a list of strings, or of lists of token ids");
        if (!(text ? generation_add_text(request, text, strlen(text), flags) : add_sequence(request, each)))
            return false;
    }
    return true;
}

bool generation_fit(struct request *request)
{
    struct generation *how = request->how;
    const long long context = engine_context(request->server->engine);
    long long longest = 0;
    for (int i = 0; i < how->n_prompts; i++)
        longest = (long long)how->prompts[i].n > longest ? (long long)how->prompts[i].n : longest;
    if (longest > context || (longest == context && how->options.max_tokens != 0))
        return request_fail_context(request, "", longest, context);
    how->fills_context = how->options.max_tokens < 0 || how->options.max_tokens > context - longest;
    if (how->fills_context)
        how->options.max_tokens = context - longest;
    return true;
}

// One for each prompt and choice.
static bool make_tasks(struct request *request)
{
    const struct generation *how = request->how;
    const int n = how->n_prompts * how->n_choices;
    request->tasks = calloc((size_t)n, sizeof *request->tasks);
    if (request->tasks == NULL)
        return request_fail(request, 503, "out of memory for %d texts", n);
    request->n_tasks = n;
    for (int i = 0; i < n; i++) {
        struct task *task = &request->tasks[i];
        task->request = request;
        task->prompt = i / how->n_choices;
        task->choice = i % how->n_choices;
        struct generator *g = &task->generator;
        g->how = &how->options;
        g->prompt = how->prompts[task->prompt].ids;
        g->n_prompt = how->prompts[task->prompt].n;
        g->stream.started = true;
        yalm_error error;
        if (how->grammar && !(g->masker = masker_open(how->grammar, request->server->tree, request->server->model, &error)))
            return request_fail_by(request, &error);
        if (g->masker)
            masker_set_marks(g->masker, how->marks, how->n_marks);
        task->next_choice = task->choice + 1 < how->n_choices ? task + 1 : NULL;
    }
    return true;
}

void generation_start(struct request *request, bool stream)
{
    if (!make_tasks(request))
        return;
    body_warn_of_unread(request);
    if (stream) {
        request->type = request->route->dialect == OLLAMA ? "application/x-ndjson" : "text/event-stream";
        request->streamed = true;
        if (request->begin)
            request->begin(request);
    }
    if (engine_submit(request->server->engine, request)) {
        request_go_out(request);
        return;
    }
    request->streamed = false;
    request->out.length = 0; // nobody has seen it: it has not gone out
    request->type = "application/json";
    request_fail(request, 503, "%d requests are running or waiting already; please try again later",
                 engine_n_slots(request->server->engine) + request->server->options->queue);
}

void token_text(struct buffer *out, const yalm_model *model, int32_t token)
{
    size_t length;
    const char *bytes = token_bytes(model, token, &length);
    if (utf8_whole(bytes, length)) {
        buffer_json(out, bytes, length);
        return;
    }
    buffer_text(out, "\"bytes:");
    for (size_t i = 0; i < length; i++)
        buffer_format(out, "\\\\x%02x", (unsigned char)bytes[i]);
    buffer_text(out, "\"");
}
