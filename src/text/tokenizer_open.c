// Reads the metadata's `tokenizer` and what belongs to it. The file is not believed: see docs/format.md for what must hold.

#include <stdlib.h>
#include <string.h>

#include "model/json.h"
#include "text/tokenizer_parts.h"

enum { MAX_PIECES = 1 << 24 };

static yalm_status unknown(const struct json_object *facts, const char *key, const char *found, const char *expected,
                           yalm_error *error)
{
    return error_set(error, YALM_BAD_MODEL, "%s: metadata: 'tokenizer.%s': found '%s', expected %s", facts->path, key,
                     json_show(found).text, expected);
}

// One of choices[0..n), as its index.
static yalm_status get_choice(int *choice, const struct json_object *facts, const char *key, const char *const *choices, int n,
                              const char *expected, yalm_error *error)
{
    const char *found;
    const yalm_status status = json_get_string(&found, facts, key, error);
    if (status)
        return status;
    for (*choice = 0; *choice < n; ++*choice)
        if (!strcmp(found, choices[*choice]))
            return YALM_OK;
    return unknown(facts, key, found, expected, error);
}

static yalm_status read_spm(struct tokenizer *tokenizer, enum merge_order *order, const struct json_object *facts,
                            yalm_error *error)
{
    static const char *const keys[] = {"type",         "n_pieces",          "add_bos",     "ignore_merges", "merge",
                                       "prefix_space", "prefix_if_missing", "split_words", "normalizers",   "unknown"};
    static const char *const merges[] = {"rank", "score", "unigram"}, *const prefixes[] = {"never", "first", "segments"};
    int merge = 0, prefix = 0;
    int64_t unknown = 0;
    yalm_status status = get_choice(&merge, facts, "merge", merges, 3, "rank, score or unigram", error);
    if (!status)
        status = json_only(facts, keys, merge == MERGE_UNIGRAM ? 10 : 9, error);
    if (!status && merge == MERGE_UNIGRAM)
        status = json_get_integer(&unknown, facts, "unknown", 0, MAX_PIECES - 1, error);
    if (!status)
        status = get_choice(&prefix, facts, "prefix_space", prefixes, 3, "never, first or segments", error);
    if (!status)
        status = json_get_bool(&tokenizer->prefix_if_missing, facts, "prefix_if_missing", error);
    if (!status)
        status = json_get_bool(&tokenizer->split_words, facts, "split_words", error);
    *order = (enum merge_order)merge;
    tokenizer->unknown = (int32_t)unknown; // read_unknown() checks it
    tokenizer->prefix_space = (enum prefix_space)prefix;
    return status;
}

// A pattern whose matches alone are words is an object with that member.
static yalm_status read_pattern(struct tokenizer *tokenizer, const cJSON *node, const struct json_object *facts,
                                yalm_error *error)
{
    const struct json_object object = {facts->path, "tokenizer.patterns", node};
    static const char *const keys[] = {"matches"};
    const char *pattern = node->valuestring;
    yalm_status status = YALM_OK;
    if (cJSON_IsObject(node)) {
        status = json_only(&object, keys, 1, error);
        if (!status)
            status = json_get_string(&pattern, &object, "matches", error);
    } else if (!cJSON_IsString(node))
        status = error_set(error, YALM_BAD_MODEL, "%s: metadata: 'tokenizer.patterns': expected strings only", facts->path);
    return status ? status : patterns_add(&tokenizer->patterns, pattern, cJSON_IsObject(node), facts->path, error);
}

static yalm_status read_patterns(struct tokenizer *tokenizer, const struct json_object *facts, yalm_error *error)
{
    const cJSON *patterns, *pattern;
    yalm_status status = json_get_array(&patterns, facts, "patterns", error);
    if (status)
        return status;
    cJSON_ArrayForEach(pattern, patterns)
    {
        status = read_pattern(tokenizer, pattern, facts, error);
        if (status)
            return status;
    }
    return YALM_OK;
}

static yalm_status read_bpe(struct tokenizer *tokenizer, const struct json_object *facts, yalm_error *error)
{
    static const char *const keys[] = {"type", "n_pieces", "add_bos", "ignore_merges", "patterns", "normalizers", "unknown"};
    const yalm_status status = json_only(facts, keys, 7, error);
    return status ? status : read_patterns(tokenizer, facts, error);
}

static yalm_status read_wordpiece(struct tokenizer *tokenizer, const struct json_object *facts, yalm_error *error)
{
    static const char *const keys[] = {"type",        "n_pieces", "add_bos",    "ignore_merges", "patterns",
                                       "normalizers", "unknown",  "continuing", "longest_word"};
    const char *continuing;
    int64_t longest = 0, unknown = 0;
    yalm_status status = json_only(facts, keys, 9, error);
    if (!status)
        status = json_get_string(&continuing, facts, "continuing", error);
    if (!status && strlen(continuing) >= sizeof tokenizer->continuing)
        status = error_set(error, YALM_BAD_MODEL, "%s: metadata: 'tokenizer.continuing': found '%s', expected at most %d bytes",
                           facts->path, json_show(continuing).text, WORDPIECE_CONTINUING - 1);
    if (!status)
        status = json_get_integer(&longest, facts, "longest_word", 1, 1 << 20, error);
    if (!status)
        status = json_get_integer(&unknown, facts, "unknown", 0, MAX_PIECES - 1, error);
    if (status)
        return status;
    memcpy(tokenizer->continuing, continuing, strlen(continuing) + 1);
    tokenizer->longest_word = (int)longest;
    tokenizer->unknown = (int32_t)unknown; // read_unknown() checks it
    return read_patterns(tokenizer, facts, error);
}

static yalm_status check_tensor_names(const struct container *container, const char *const *expected, int n, yalm_error *error)
{
    for (int i = 0; i < container->n_tensors; i++) {
        const char *name = container->tensors[i].name;
        bool known = strncmp(name, "tokenizer.", 10) != 0;
        for (int k = 0; k < n && !known; k++)
            known = !strcmp(name + 10, expected[k]);
        if (!known)
            return error_set(error, YALM_BAD_MODEL, "%s: tensor '%s' is not expected with this tokenizer",
                             container->mapping.path, json_show(name).text);
    }
    return YALM_OK;
}

static yalm_status check_ids(const struct tokenizer *tokenizer, const struct json_object *facts,
                             const struct model_config *config, yalm_error *error)
{
    const int n = tokenizer->vocabulary.n;
    if (tokenizer->add_bos && (config->bos < 0 || config->bos >= n))
        return error_set(error, YALM_BAD_MODEL,
                         "%s: metadata: 'config.bos': found %d, but the tokenizer adds it and has %d pieces", facts->path,
                         config->bos, n);
    if (config->bos >= config->vocab_size)
        return error_set(error, YALM_BAD_MODEL, "%s: metadata: 'config.bos': found %d, expected less than vocab_size, %d",
                         facts->path, config->bos, config->vocab_size);
    for (int i = 0; i < config->n_eos; i++)
        if (config->eos[i] < 0 || config->eos[i] >= config->vocab_size)
            return error_set(error, YALM_BAD_MODEL, "%s: metadata: 'config.eos': found %d, expected 0 to %d", facts->path,
                             config->eos[i], config->vocab_size - 1);
    return YALM_OK;
}

// The token of a byte that the vocabulary lacks; without one such a byte is left out.
static yalm_status read_unknown(struct tokenizer *tokenizer, const struct json_object *facts, yalm_error *error)
{
    int64_t id = -1;
    yalm_status status = YALM_OK;
    if (json_has(facts, "unknown"))
        status = json_get_integer(&id, facts, "unknown", -1, tokenizer->vocabulary.n - 1, error);
    for (int byte = 0; byte < 256 && !status; byte++)
        if (tokenizer->vocabulary.byte_ids[byte] < 0)
            tokenizer->vocabulary.byte_ids[byte] = (int32_t)id;
    return status;
}

static yalm_status make_spelling(const void *context, const uint8_t *text, size_t length, struct bytes *result,
                                 yalm_error *error)
{
    return tokenizer_normalise(context, text, length, true, result, error);
}

static yalm_status open_spellings(struct tokenizer *tokenizer, const char *path, yalm_error *error)
{
    static const uint32_t kinds[] = {1u << PIECE_USER_DEFINED,
                                     1u << PIECE_USER_DEFINED | 1u << PIECE_CONTROL | 1u << PIECE_UNKNOWN};
    yalm_status status = YALM_OK;
    for (int special = 0; special < 2 && !status; special++) {
        status = spellings_open(&tokenizer->as_given[special], &tokenizer->vocabulary, kinds[special], false, NULL, NULL, path,
                                error);
        if (!status)
            status = spellings_open(&tokenizer->normalised[special], &tokenizer->vocabulary, kinds[special], true,
                                    make_spelling, tokenizer, path, error);
        tokenizer->normalised[special].written_spaces = tokenizer->kind == TOKENIZER_SPM && !tokenizer->prefix_if_missing;
    }
    return status;
}

static yalm_status read_facts(struct tokenizer *tokenizer, const struct json_object *facts, const struct container *container,
                              const struct model_config *config, yalm_error *error)
{
    int64_t n_pieces = 0;
    enum merge_order order = MERGE_BY_RANK;
    yalm_status status = json_get_integer(&n_pieces, facts, "n_pieces", 1, MAX_PIECES, error);
    if (!status)
        status = json_get_bool(&tokenizer->add_bos, facts, "add_bos", error);
    if (!status)
        status = json_get_bool(&tokenizer->ignore_merges, facts, "ignore_merges", error);
    if (!status)
        status = tokenizer->kind == TOKENIZER_SPM   ? read_spm(tokenizer, &order, facts, error)
                 : tokenizer->kind == TOKENIZER_BPE ? read_bpe(tokenizer, facts, error)
                                                    : read_wordpiece(tokenizer, facts, error);
    if (status)
        return status;
    tokenizer->vocabulary.n = (int)n_pieces;
    tokenizer->bos = config->bos;
    tokenizer->n_known = config->vocab_size;
    status = normaliser_open(&tokenizer->normaliser, facts, error);
    if (!status)
        status = check_ids(tokenizer, facts, config, error);
    const bool merges = tokenizer->kind != TOKENIZER_WORDPIECE;
    const char *const names[] = {"bytes", "offsets", "kinds", "flags", order == MERGE_BY_RANK ? "merges" : "scores"};
    if (!status)
        status = check_tensor_names(container, names, merges ? 5 : 4, error);
    if (!status)
        status = vocabulary_open(&tokenizer->vocabulary, container,
                                 tokenizer->kind == TOKENIZER_SPM && order != MERGE_UNIGRAM ? PIECE_BYTE : PIECE_NORMAL, error);
    if (!status)
        status = read_unknown(tokenizer, facts, error);
    if (!status && merges)
        status = merges_open(&tokenizer->merges, order, &tokenizer->vocabulary, container, error);
    return status ? status : open_spellings(tokenizer, facts->path, error);
}

yalm_status tokenizer_open(struct tokenizer **tokenizer, const struct container *container, const struct model_config *config,
                           yalm_error *error)
{
    static const char *const types[] = {"spm", "bpe", "wordpiece", "none"}, *const only_type[] = {"type"};
    *tokenizer = NULL;
    const struct json_object root = {container->mapping.path, "", container->metadata};
    struct json_object facts;
    int type = 0;
    yalm_status status = json_get_object(&facts, &root, "tokenizer", "tokenizer", error);
    if (!status)
        status = get_choice(&type, &facts, "type", types, 4, "spm, bpe, wordpiece or none", error);
    if (!status && type == 3) {
        status = json_only(&facts, only_type, 1, error);
        return status ? status : check_tensor_names(container, NULL, 0, error);
    }
    if (status)
        return status;
    struct tokenizer *opened = calloc(1, sizeof *opened);
    if (!opened)
        return error_set(error, YALM_NO_MEMORY, "tokenizer: no memory");
    opened->kind = (enum tokenizer_kind)type;
    status = read_facts(opened, &facts, container, config, error);
    if (status)
        tokenizer_close(opened);
    else
        *tokenizer = opened;
    return status;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    vocabulary_close(&tokenizer->vocabulary);
    merges_close(&tokenizer->merges);
    patterns_close(&tokenizer->patterns);
    normaliser_close(&tokenizer->normaliser);
    for (int special = 0; special < 2; special++) {
        spellings_close(&tokenizer->as_given[special]);
        spellings_close(&tokenizer->normalised[special]);
    }
    free(tokenizer);
}
