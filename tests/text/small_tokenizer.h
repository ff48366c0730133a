// A small tokenizer built by hand, as a container that holds nothing else.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/vocabulary.h"

enum { SMALL_PIECES = 512, SMALL_BYTES = 8192, SMALL_MERGES = 256 };

struct small_tokenizer {
    struct container container;
    struct model_config config;
    char metadata[4096];
    struct tensor tensors[7];
    struct tensor *by_name[7];
    uint8_t bytes[SMALL_BYTES];
    uint32_t offsets[SMALL_PIECES + 1];
    uint8_t kinds[SMALL_PIECES], flags[SMALL_PIECES];
    bool flagged; // the file has the flags
    float scores[SMALL_PIECES];
    uint32_t merges[SMALL_MERGES][2];
    int n_pieces, n_merges;
};

static inline int small_add(struct small_tokenizer *small, const char *bytes, size_t length, enum piece_kind kind)
{
    const int id = small->n_pieces++;
    memcpy(small->bytes + small->offsets[id], bytes, length);
    small->offsets[id + 1] = small->offsets[id] + (uint32_t)length;
    small->kinds[id] = kind;
    return id;
}

static inline int small_id(const struct small_tokenizer *small, const char *bytes, size_t length)
{
    for (int id = 0; id < small->n_pieces; id++)
        if (small->offsets[id + 1] - small->offsets[id] == length && small->kinds[id] == PIECE_NORMAL &&
            !memcmp(small->bytes + small->offsets[id], bytes, length))
            return id;
    return -1;
}

// Adds the pieces that are not there yet and the merge of both. The score falls with each new piece.
static inline void small_merge(struct small_tokenizer *small, const char *left, const char *right)
{
    char joined[256];
    snprintf(joined, sizeof joined, "%s%s", left, right);
    const char *const parts[3] = {left, right, joined};
    int ids[3];
    for (int i = 0; i < 3; i++) {
        ids[i] = small_id(small, parts[i], strlen(parts[i]));
        if (ids[i] < 0) {
            ids[i] = small_add(small, parts[i], strlen(parts[i]), PIECE_NORMAL);
            small->scores[ids[i]] = -(float)ids[i];
        }
    }
    small->merges[small->n_merges][0] = (uint32_t)ids[0];
    small->merges[small->n_merges++][1] = (uint32_t)ids[1];
}

// <unk> 0, <s> 1, </s> 2, then the bytes; or for bpe the bytes 0 to 255, then <s>. Both with <user> and <user>> found always.
static inline void small_begin(struct small_tokenizer *small, bool spm)
{
    memset(small, 0, sizeof *small);
    if (spm) {
        small_add(small, "<unk>", 5, PIECE_UNKNOWN);
        small_add(small, "<s>", 3, PIECE_CONTROL);
        small_add(small, "</s>", 4, PIECE_CONTROL);
    }
    for (int byte = 0; byte < 256; byte++)
        small_add(small, (char[]){(char)byte}, 1, spm ? PIECE_BYTE : PIECE_NORMAL);
    if (!spm)
        small_add(small, "<s>", 3, PIECE_CONTROL);
    small_add(small, "<user>", 6, PIECE_USER_DEFINED);
    small_add(small, "<user>>", 7, PIECE_USER_DEFINED);
    small_add(small, "", 0, PIECE_UNUSED);
    small->config.bos = spm ? 1 : 256;
    small->config.n_eos = spm;
    small->config.eos[0] = 2;
}

static inline void small_tensor(struct small_tokenizer *small, const char *name, enum dtype dtype, int64_t rows, int64_t cols,
                                const void *data)
{
    const uint64_t length = (uint64_t)rows * (uint64_t)(cols ? cols : 1) * dtype_sizes[dtype];
    const int i = small->container.n_tensors++;
    small->tensors[i] = (struct tensor){.name = name,
                                        .dtype = dtype,
                                        .rank = cols ? 2 : 1,
                                        .shape = {rows, cols ? cols : 1, 1, 1},
                                        .length = length,
                                        .data = data};
    small->by_name[i] = &small->tensors[i];
}

// Writes the tensor table, in the order of the names. small->metadata is the caller's.
static inline void small_finish(struct small_tokenizer *small, bool scores)
{
    small->container.mapping.path = "small.bin";
    small->container.tensors = small->tensors;
    small->container.by_name = small->by_name;
    small->container.n_tensors = 0;
    small->config.vocab_size = small->n_pieces;
    small_tensor(small, "tokenizer.bytes", DTYPE_U8, small->offsets[small->n_pieces], 0, small->bytes);
    if (small->flagged)
        small_tensor(small, "tokenizer.flags", DTYPE_U8, small->n_pieces, 0, small->flags);
    small_tensor(small, "tokenizer.kinds", DTYPE_U8, small->n_pieces, 0, small->kinds);
    if (!scores)
        small_tensor(small, "tokenizer.merges", DTYPE_U32, small->n_merges, 2, small->merges);
    small_tensor(small, "tokenizer.offsets", DTYPE_U32, small->n_pieces + 1, 0, small->offsets);
    if (scores)
        small_tensor(small, "tokenizer.scores", DTYPE_FP32, small->n_pieces, 0, small->scores);
}

static inline yalm_status small_open(struct small_tokenizer *small, struct tokenizer **tokenizer, yalm_error *error)
{
    *tokenizer = NULL;
    small->container.metadata = cJSON_Parse(small->metadata);
    if (!small->container.metadata)
        return error_set(error, YALM_FAILED, "small.bin: metadata is not JSON");
    const yalm_status status = tokenizer_open(tokenizer, &small->container, &small->config, error);
    cJSON_Delete(small->container.metadata); // a tokenizer keeps nothing of it
    small->container.metadata = NULL;
    return status;
}

// A vocabulary of each type with a few merges, ready to open. prefix and merge are facts of spm.
static inline void small_spm(struct small_tokenizer *small, const char *merge, const char *prefix, bool if_missing, bool split)
{
    small_begin(small, true);
    static const char *const pairs[][2] = {{"a", "b"},  {"b", "c"},        {"a", "a"}, {"aa", "aa"},   {"ab", "c"},
                                           {" ", "a"},  {"\xc3\xa9", "x"}, {" ", " "}, {" a", "b"},    {"h", "o"},
                                           {"ho", "u"}, {"hou", "se"},     {"s", "e"}, {" ", "house"}, {" ", "h"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        small_merge(small, pairs[i][0], pairs[i][1]);
    // Two characters that are no pieces, and the two together, which is one.
    small->scores[small_add(small, "\xe2\x82\xac\xe2\x82\xac", 6, PIECE_NORMAL)] = -1000;
    snprintf(
        small->metadata, sizeof small->metadata,
        "{\"tokenizer\": {\"type\": \"spm\", \"n_pieces\": %d, \"add_bos\": true, \"ignore_merges\": false, \"merge\": \"%s\", "
        "\"prefix_space\": \"%s\", \"prefix_if_missing\": %s, \"split_words\": %s}}",
        small->n_pieces, merge, prefix, if_missing ? "true" : "false", split ? "true" : "false");
    small_finish(small, !strcmp(merge, "score"));
}

// patterns: a JSON array.
static inline void small_bpe(struct small_tokenizer *small, const char *patterns, bool ignore_merges)
{
    small_begin(small, false);
    static const char *const pairs[][2] = {{"a", "b"}, {"b", "c"}, {"a", "a"}, {"aa", "aa"}, {"ab", "c"}, {"\xc3", "\xa9"},
                                           {"1", "2"}, {" ", " "}, {"'", "s"}, {" ", "h"},   {"o", "u"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        small_merge(small, pairs[i][0], pairs[i][1]);
    small_add(small, "bcbc", 4, PIECE_NORMAL); // no merge leads to it
    snprintf(
        small->metadata, sizeof small->metadata,
        "{\"tokenizer\": {\"type\": \"bpe\", \"n_pieces\": %d, \"add_bos\": true, \"ignore_merges\": %s, \"patterns\": %s}}",
        small->n_pieces, ignore_merges ? "true" : "false", patterns);
    small_finish(small, false);
}

// Puts members into the tokenizer's facts: "\"normalizers\": [...]".
static inline void small_facts(struct small_tokenizer *small, const char *members)
{
    char text[sizeof small->metadata];
    char *at = strstr(small->metadata, "\"add_bos\"");
    snprintf(text, sizeof text, "%.*s%s, %s", (int)(at - small->metadata), small->metadata, members, at);
    memcpy(small->metadata, text, sizeof text);
}

// Gives the pieces their flags: <user> (and <user>>) those of `flags`.
static inline void small_flags(struct small_tokenizer *small, uint8_t flags)
{
    for (int id = 0; id < small->n_pieces; id++)
        if (small->kinds[id] == PIECE_USER_DEFINED)
            small->flags[id] = flags;
    small->flagged = true;
    small_finish(small, small->container.n_tensors &&
                            !strcmp(small->tensors[small->container.n_tensors - 1].name, "tokenizer.scores"));
}

// The decoded bytes, freed by the caller.
static inline char *small_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t n, size_t *length)
{
    yalm_stream stream = {0};
    char *out = malloc((n + 1) * (YALM_MAX_PIECE + 8));
    *length = 0;
    for (size_t i = 0; out && i < n; i++)
        *length += tokenizer_stream(tokenizer, &stream, ids[i], true, out + *length);
    if (out)
        memcpy(out + *length, stream.pending, (size_t)stream.n_pending);
    *length += (size_t)stream.n_pending;
    return out;
}
