// Fuzzes what a client sends, and what a model says. The input is a body: it becomes JSON, or an error in words that is JSON
// itself. The same bytes are then taken apart as a model's text, longer and longer: what was told of a part never changes.
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
#include "speech/learn.h"
#include "speech/speech.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool true_always)
{
    if (!true_always)
        abort();
}

static void check_json(const struct buffer *out)
{
    cJSON *json = cJSON_ParseWithLength(out->at, out->length);
    check(json != NULL);
    cJSON_Delete(json);
}

static void read_body(const uint8_t *data, size_t size)
{
    static const struct route route = {.method = "POST", .path = "/", .dialect = OPENAI};
    struct request *request = request_new(NULL, &route, "/", NULL);
    int64_t integer = 5;
    float number = 5;
    bool flag = false;
    const char *text = "";
    if (request == NULL)
        return;
    buffer_add(&request->body, data, size);
    if (body_parse(request) && body_integer(request, request->json, "n", 1, 16, &integer) &&
        body_number(request, request->json, "x", -1, 1, &number) && body_bool(request, request->json, "stream", &flag) &&
        body_string(request, request->json, "text", &text)) {
        check(integer >= 1 && integer <= 16 && (number == 5 || (number >= -1 && number <= 1)) && text);
        struct buffer out = {0};
        buffer_json(&out, text, strlen(text));
        check_json(&out);
        buffer_free(&out);
    } else {
        check(request->finished && request->status == 400);
        check_json(&request->out);
    }
    request_release(request);
}

static void check_same(const struct buffer *a, const struct buffer *b)
{
    check(a->length == b->length && (a->length == 0 || memcmp(a->at, b->at, a->length) == 0));
}

static const struct call_form forms_of_calls[8] = {
    {.known = false},
    {.is_object = true,
     .name_key = "name",
     .arguments_key = "arguments",
     .part = {[BEGIN] = "<tool_call>", [END] = "</tool_call>"}},
    {.is_object = true,
     .name_key = "name",
     .arguments_key = "arguments",
     .part = {[OPENING] = "[TOOL_CALLS][", [BETWEEN] = ", ", [CLOSING] = "]"}},
    {.part = {[BEGIN] = "[TOOL_CALLS]", [MIDDLE] = "[CALL_ID]\1[ARGS]"}},
    {.is_object = true, .name_key = "name", .arguments_key = "arguments"},
    {.arguments = ARGUMENTS_LITERAL,
     .part = {[BEGIN] = "<|tool_call>call:",
              [MIDDLE] = "{",
              [END] = "}<tool_call|>",
              [KEY_END] = ":",
              [KEY_BETWEEN] = ",",
              [QUOTE] = "<|\"|>"}},
    {.arguments = ARGUMENTS_TAGGED,
     .part = {[BEGIN] = "<tool_call>\n<function=",
              [MIDDLE] = ">\n",
              [END] = "\n</function>\n</tool_call>",
              [KEY_BEGIN] = "<parameter=",
              [KEY_END] = ">\n",
              [VALUE_END] = "\n</parameter>",
              [KEY_BETWEEN] = "\n"}},
    {.arguments = ARGUMENTS_LITERAL,
     .part = {[OPENING] = "[", [MIDDLE] = "(", [END] = ")", [BETWEEN] = ", ", [CLOSING] = "]", [KEY_END] = "=", [QUOTE] = "'"}},
};

// In pieces: what has been told of stays, and is the same in the end however the text is cut.
static void read_speech(const char *text, size_t length, const char *end, unsigned forms)
{
    struct speech whole = {0}, pieces = {0};
    struct told told = {0};
    struct piece piece;
    struct call_form form = forms_of_calls[forms >> 3];
    form_finish(&form);
    const struct speech_calls calls = {.form = &form};
    speech_begin(&whole, forms & 7, end, &calls);
    speech_add(&whole, text, length);
    speech_end(&whole);
    speech_begin(&pieces, forms & 7, end, &calls);
    for (size_t at = 0, n; at < length; at += n) {
        n = 1 + (length + at) % 7 < length - at ? 1 + (length + at) % 7 : length - at;
        speech_add(&pieces, text + at, n);
        while (speech_news(&pieces, &told, &piece))
            check(piece.text.length > 0 || piece.part == PART_CALL);
        check(pieces.n_calls <= MAX_CALLS);
    }
    speech_end(&pieces);
    check(pieces.reasoning.length >= told.reasoning && pieces.content.length >= told.content);
    check_same(&pieces.reasoning, &whole.reasoning);
    check_same(&pieces.content, &whole.content);
    check(pieces.n_calls == whole.n_calls && pieces.n_calls >= told.n_calls);
    for (int i = 0; i < whole.n_calls; i++) {
        check_same(&pieces.calls[i].name, &whole.calls[i].name);
        check_same(&pieces.calls[i].arguments, &whole.calls[i].arguments);
    }
    speech_free(&pieces);
    speech_free(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 8192)
        return 0;
    read_body(data + 1, size - 1);
    char *text = malloc(size); // of its own, so that a byte too far is seen
    if (text && size > 1) {
        memcpy(text, data + 1, size - 1);
        read_speech(text, size - 1, data[0] & 1 ? "</think>" : NULL, data[0] >> 1 & 63);
    }
    free(text);
    return 0;
}
