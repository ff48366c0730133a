// What the server tells of itself and its model, and the tokenizer.
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
#include "serve/generation.h"
#include "serve/server.h"
#include "util/json_write.h"
#include "util/utf8.h"

void handle_health(struct request *request)
{
    struct buffer out = {0};
    json_open(&out, NULL, '{');
    json_text(&out, "status", "ok");
    json_close(&out, "}");
    request_send_all(request, &out);
}

static void add_model(const struct request *request, struct buffer *out)
{
    const yalm_model_info *facts = yalm_model_facts(request->server->model);
    json_open(out, NULL, '{');
    json_text(out, "id", facts->name);
    json_text(out, "object", "model");
    json_integer(out, "created", request->server->created);
    json_text(out, "owned_by", "yalm");
    json_open(out, "meta", '{');
    json_integer(out, "n_vocab", facts->vocab_size);
    json_integer(out, "n_ctx", engine_context(request->server->engine));
    json_integer(out, "n_ctx_train", facts->context_length);
    json_integer(out, "n_embd", facts->hidden_dim);
    json_integer(out, "n_params", facts->n_params);
    json_integer(out, "size", (long long)facts->weight_bytes);
    json_flag(out, "chat_template", facts->chat_template);
    json_close(out, "}}");
}

void handle_models(struct request *request)
{
    struct buffer out = {0};
    json_open(&out, NULL, '{');
    json_text(&out, "object", "list");
    json_open(&out, "data", '[');
    add_model(request, &out);
    json_close(&out, "]}");
    request_send_all(request, &out);
}

// The one of the name that the path ends with, if that is ours.
void handle_model(struct request *request)
{
    const char *ours = yalm_model_facts(request->server->model)->name, *name = strstr(request->path, "/models/") + 8;
    struct buffer out = {0};
    if (strcmp(name, ours) == 0) {
        add_model(request, &out);
        request_send_all(request, &out);
        return;
    }
    request->code = "model_not_found";
    request_fail(request, 404, "there is one model here, '%.100s'; found '%.100s'", ours, name);
}

void handle_props(struct request *request)
{
    const yalm_model_info *facts = yalm_model_facts(request->server->model);
    struct buffer out = {0};
    json_open(&out, NULL, '{');
    json_open(&out, "default_generation_settings", '{');
    json_integer(&out, "n_ctx", engine_context(request->server->engine));
    json_open(&out, "params", '{');
    generation_add_sampling(&out, &request->server->options->sampling);
    const uint64_t seed = request->server->options->seed;
    json_integer(&out, "seed", seed == UINT64_MAX ? -1 : (long long)seed);
    json_close(&out, "}}");
    json_integer(&out, "total_slots", engine_n_slots(request->server->engine));
    json_text(&out, "model_path", facts->name);
    json_text(&out, "chat_template", facts->chat_template ? facts->chat_template : "");
    size_t length = 0;
    const char *bos = facts->bos >= 0 ? token_bytes(request->server->model, facts->bos, &length) : "";
    json_bytes(&out, "bos_token", bos, length);
    length = 0;
    const char *eos = facts->n_eos > 0 ? token_bytes(request->server->model, facts->eos[0], &length) : "";
    json_bytes(&out, "eos_token", eos, length);
    json_raw(&out, "modalities", "{\"vision\":false,\"audio\":false}");
    json_text(&out, "build_info", yalm_version());
    json_close(&out, "}");
    request_send_all(request, &out);
}

void handle_metrics(struct request *request)
{
    const struct engine_counts c = engine_count(request->server->engine);
    const struct {
        const char *name, *type, *help;
        double value;
    } metrics[] = {
        {"requests_total", "counter", "Requests that were accepted.", (double)c.requests},
        {"requests_refused_total", "counter", "Requests for which there was no room.", (double)c.refused},
        {"requests_left_total", "counter", "Requests whose client went before their end.", (double)c.left},
        {"requests_failed_total", "counter", "Requests that ended by an error.", (double)c.failed},
        {"prompt_tokens_total", "counter", "Tokens of prompts that were evaluated.", (double)c.prompt_tokens},
        {"cached_tokens_total", "counter", "Tokens of prompts that a session held already.", (double)c.cached_tokens},
        {"generated_tokens_total", "counter", "Tokens that were evaluated one by one.", (double)c.generated_tokens},
        {"prompt_seconds_total", "counter", "Time spent on evaluating prompts.", c.read_seconds},
        {"generation_seconds_total", "counter", "Time spent on evaluating single tokens.", c.write_seconds},
        {"tasks_running", "gauge", "Sequences that are being read or written.", c.running},
        {"tasks_waiting", "gauge", "Sequences that wait for a session.", c.waiting},
        {"kept_bytes", "gauge", "Memory that holds what sequences have read, beyond the sessions.", (double)c.kept_bytes},
        {"sessions", "gauge", "Sessions, each for one sequence at a time.", engine_n_slots(request->server->engine)},
    };
    struct buffer out = {0};
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        buffer_format(&out, "# HELP yalm_%s %s\n# TYPE yalm_%s %s\nyalm_%s %.10g\n", metrics[i].name, metrics[i].help,
                      metrics[i].name, metrics[i].type, metrics[i].name, metrics[i].value);
    request->type = "text/plain; version=0.0.4; charset=utf-8";
    request_send_all(request, &out);
}

// ---------------------------------------------------------------- the tokenizer

static bool has_tokenizer(struct request *request)
{
    if (strcmp(yalm_model_facts(request->server->model)->tokenizer, "none") != 0)
        return true;
    return request_fail(request, 400, "the model has no tokenizer");
}

// A string, or where the token is not whole characters a list of its bytes, so that nothing is lost. NULL: a token without any.
static void add_piece(struct buffer *out, const char *piece, size_t length)
{
    if (piece == NULL || utf8_whole(piece, length)) {
        json_bytes(out, "piece", piece, length);
        return;
    }
    json_open(out, "piece", '[');
    for (size_t i = 0; i < length; i++)
        json_integer(out, NULL, (unsigned char)piece[i]);
    json_close(out, "]");
}

void handle_tokenize(struct request *request)
{
    const char *content = NULL;
    bool add_special = false, parse_special = true, with_pieces = false;
    if (!has_tokenizer(request) || !body_string(request, request->json, "content", &content) ||
        !body_bool(request, request->json, "add_special", &add_special) ||
        !body_bool(request, request->json, "parse_special", &parse_special) ||
        !body_bool(request, request->json, "with_pieces", &with_pieces))
        return;
    if (content == NULL) {
        request_fail(request, 400, "'content': expected a string");
        return;
    }
    const yalm_model *model = request->server->model;
    yalm_error error;
    int32_t *ids;
    size_t n, length;
    const int flags = (add_special ? YALM_TOKENIZE_BOS : 0) | (parse_special ? YALM_TOKENIZE_SPECIAL : 0);
    if (yalm_tokenize(model, content, strlen(content), flags, &ids, &n, &error) != YALM_OK) {
        request_fail_by(request, &error);
        return;
    }
    struct buffer out = {0};
    json_open(&out, NULL, '{');
    json_open(&out, "tokens", '[');
    for (size_t i = 0; i < n; i++) {
        if (!with_pieces) {
            json_integer(&out, NULL, ids[i]);
            continue;
        }
        const char *piece = yalm_piece(model, ids[i], &length);
        json_open(&out, NULL, '{');
        json_integer(&out, "id", ids[i]);
        add_piece(&out, piece, piece ? length : 0);
        json_close(&out, "}");
    }
    json_close(&out, "]}");
    free(ids);
    request_send_all(request, &out);
}

void handle_detokenize(struct request *request)
{
    const cJSON *tokens = body_member(request->json, "tokens"), *id;
    const yalm_model *model = request->server->model;
    const int n_vocab = yalm_model_facts(model)->vocab_size;
    if (!has_tokenizer(request))
        return;
    if (!cJSON_IsArray(tokens)) {
        request_fail(request, 400, "'tokens': expected a list of token ids");
        return;
    }
    struct buffer text = {0}, out = {0};
    yalm_stream stream = {.started = true};
    char bytes[YALM_MAX_PIECE + 8];
    cJSON_ArrayForEach(id, tokens)
    {
        int64_t token;
        if (!body_is_integer(id, 0, n_vocab - 1, &token)) {
            request_fail(request, 400, "'tokens': expected ids from 0 to %d", n_vocab - 1);
            buffer_free(&text);
            return;
        }
        buffer_add(&text, bytes, yalm_stream_token(model, &stream, (int32_t)token, true, bytes));
    }
    buffer_add(&text, bytes, yalm_stream_end(&stream, bytes));
    json_open(&out, NULL, '{');
    json_bytes(&out, "content", text.at, text.length);
    json_close(&out, "}");
    out.failed |= text.failed;
    buffer_free(&text);
    request_send_all(request, &out);
}
