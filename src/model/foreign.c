// Signatures of the files that users give instead of a model.

#include "model/foreign.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define CONVERT "convert its directory with tools/convert.py"

static bool begins(const uint8_t *data, size_t size, const char *signature, size_t length)
{
    return size >= length && !memcmp(data, signature, length);
}

// Markup, behind a byte order mark and white space, in any case.
static bool is_html(const uint8_t *data, size_t size)
{
    static const char *const tags[] = {"<!doctype html", "<html", "<head", "<?xml"};
    size_t at = begins(data, size, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (at < size && at < 1024 && data[at] != 0 && strchr(" \t\r\n", data[at]))
        at++;
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        const size_t length = strlen(tags[i]);
        if (size - at >= length && !strncasecmp((const char *)data + at, tags[i], length))
            return true;
    }
    return false;
}

// A 64-bit length, then JSON.
static bool is_safetensors(const uint8_t *data, size_t size)
{
    uint64_t length;
    if (size < 10)
        return false;
    memcpy(&length, data, sizeof length);
    return length >= 2 && length <= 100000000 && data[8] == '{' && (data[9] == '"' || data[9] == '}' || data[9] == ' ');
}

const char *foreign_file(const uint8_t *data, size_t size)
{
    static const struct {
        const char *signature;
        size_t length;
        const char *what;
    } known[] = {
        {"version https://git-lfs", 23,
         "this is a git-lfs pointer, not the file itself: run `git lfs pull` where it came from"},
        {"GGUF", 4, "this is a GGUF file; make a model file of it first: tools/convert.py MODEL.gguf MODEL.bin"},
        {"PK\3\4", 4, "this is a zip archive (a PyTorch checkpoint?); yalm needs safetensors: " CONVERT},
        {"\x80\2", 2, "this is a Python pickle (a PyTorch checkpoint?); yalm needs safetensors: " CONVERT},
        {"\x1f\x8b", 2, "this is a gzip archive: unpack it first"},
        {"YALM", 4, "damaged: a transfer in text mode changed its bytes; transfer it again in binary mode"},
        {"{", 1, "this is JSON, perhaps a file of a Hugging Face directory: " CONVERT},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (begins(data, size, known[i].signature, known[i].length))
            return known[i].what;
    if (is_html(data, size))
        return "this is an HTML page, not a model: the download went wrong";
    if (is_safetensors(data, size))
        return "this is a safetensors file: " CONVERT;
    return NULL;
}
