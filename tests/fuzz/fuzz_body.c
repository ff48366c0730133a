// Fuzzes what a client sends, and what a model says. The input is a body: it becomes JSON, or an error in words that is JSON itself. The same bytes are then taken
// apart as a model's text, longer and longer: what was told of a part never changes.
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
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
    static const struct route route = {"POST", "/", OPENAI, false, NULL};
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

static void read_speech(const char *text, size_t length, const char *end, unsigned forms)
{
    struct speech before = {0}, speech;
    for (size_t n = 0; n <= length; n += 1 + length / 64) {
        speech_read(&speech, text, n, end, forms, false);
        check(speech.reasoning.length >= before.reasoning.length && speech.content.length >= before.content.length);
        check(memcmp(speech.reasoning.at ? speech.reasoning.at : "", before.reasoning.at ? before.reasoning.at : "",
                     before.reasoning.length) == 0);
        check(memcmp(speech.content.at ? speech.content.at : "", before.content.at ? before.content.at : "",
                     before.content.length) == 0);
        check(speech.n_calls <= MAX_CALLS);
        speech_free(&before);
        before = speech;
    }
    speech_read(&speech, text, length, end, forms, true);
    check(speech.reasoning.length >= before.reasoning.length && speech.content.length >= before.content.length);
    for (int i = 0; i < speech.n_calls; i++)
        check(speech.calls[i].name.at >= text && speech.calls[i].name.at + speech.calls[i].name.length <= text + length);
    speech_free(&before);
    speech_free(&speech);
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
