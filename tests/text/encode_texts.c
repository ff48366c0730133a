// Encodes many texts with one model's tokenizer, for test_golden_tokenizer.py: each text comes on stdin as a u32 flags word,
// a u32 length and its bytes; its ids go to stdout as a u32 count and the ids. Each text is decoded again; one that comes
// back changed gives the count 0xffffffff.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

enum { MAY_CHANGE = 256 }; // a flag of this program: the text cannot come back as it was

static bool comes_back(const struct tokenizer *tokenizer, const char *text, size_t length, const int32_t *ids, size_t n)
{
    yalm_stream stream = {0};
    char out[YALM_MAX_PIECE + 8];
    size_t at = 0;
    for (size_t i = 0; i <= n; i++) {
        size_t bytes;
        if (i < n)
            bytes = tokenizer_stream(tokenizer, &stream, ids[i], true, out);
        else {
            bytes = (size_t)stream.n_pending;
            memcpy(out, stream.pending, bytes);
        }
        if (bytes > length - at || memcmp(text + at, out, bytes) != 0)
            return false;
        at += bytes;
    }
    return at == length;
}

static bool encode(const struct tokenizer *tokenizer)
{
    uint32_t head[2]; // flags, length
    while (fread(head, sizeof head, 1, stdin) == 1) {
        char *text = malloc(head[1] + 1);
        if (!text || fread(text, 1, head[1], stdin) != head[1])
            return false;
        int32_t *ids;
        size_t n;
        yalm_error error;
        if (tokenizer_encode(tokenizer, text, head[1], (int)head[0] & ~MAY_CHANGE, &ids, &n, &error)) {
            fprintf(stderr, "%s\n", error.text);
            return false;
        }
        uint32_t count = (uint32_t)n;
        if (!(head[0] & MAY_CHANGE) && !comes_back(tokenizer, text, head[1], ids, n))
            count = UINT32_MAX;
        fwrite(&count, sizeof count, 1, stdout);
        fwrite(ids, sizeof *ids, count == UINT32_MAX ? 0 : n, stdout);
        free(ids);
        free(text);
    }
    return feof(stdin);
}

int main(int argc, char **argv)
{
    struct container container;
    struct model_config config;
    struct tokenizer *tokenizer = NULL;
    yalm_error error;
    if (argc != 2)
        return YALM_USAGE;
    yalm_status status = container_open(&container, argv[1], false, &error);
    if (!status)
        status = config_read(&config, &container, &error);
    if (!status)
        status = tokenizer_open(&tokenizer, &container, &config, &error);
    if (status) {
        fprintf(stderr, "%s\n", error.text);
        return status;
    }
    const bool done = encode(tokenizer);
    tokenizer_close(tokenizer);
    container_close(&container);
    return done ? YALM_OK : YALM_FAILED;
}
