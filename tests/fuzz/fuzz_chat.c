// libFuzzer entry: a chat template and its variables. The input is two lines: a syntax tree (the JSON of docs/format.md) and an
// object of variables. A tree that is refused is no finding; with one that is not, and with any variables, rendering ends,
// stays in its memory, and gives UTF-8 or an error.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "chat/chat.h"
#include "model/json.h"

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void render(const struct chat *chat, const char *variables, size_t n)
{
    char *text;
    size_t length;
    yalm_error error = {0};
    const yalm_status status = chat_render(chat, variables, n, &text, &length, &error);
    if (status != YALM_OK) {
        check(text == NULL && error.text[0] && error.status == status);
        return;
    }
    check(strlen(text) <= length);
    for (size_t at = 0; at < length;) {
        utf8proc_int32_t point;
        const utf8proc_ssize_t bytes =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(length - at), &point);
        check(bytes > 0);
        at += (size_t)bytes;
    }
    free(text);
}

// The metadata with a tree in them; NULL where that is no JSON.
static cJSON *wrap(const char *tree, size_t n)
{
    char *text = malloc(n + 64);
    yalm_error error;
    cJSON *metadata = NULL;
    const int length = snprintf(text, n + 64, "{\"chat\":{\"tokens\":{},\"templates\":{\"default\":%.*s}}}", (int)n, tree);
    if (length > 0)
        json_parse(&metadata, text, (size_t)length, "fuzz", &error);
    free(text);
    return metadata;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *end = size ? memchr(text, '\n', size) : NULL;
    const size_t n = end ? (size_t)(end - text) : size;
    struct container container = {.mapping.path = "fuzz", .metadata = wrap(text, n)};
    struct chat *chat = NULL;
    yalm_error error;
    if (!container.metadata)
        return 0;
    if (chat_load(&chat, &container, &error) == YALM_OK) {
        const char *rest = end ? end + 1 : text + size;
        render(chat, rest, size - (size_t)(rest - text));
        chat_unload(chat);
    }
    cJSON_Delete(container.metadata);
    return 0;
}
