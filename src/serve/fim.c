// See fim.h. How models spell the tokens, and in which order they stand: Bavarian et al., arXiv 2207.14255.
#include "serve/fim.h"

#include <stdlib.h>
#include <string.h>

#include "serve/body.h"

static const struct spelling {
    const char *prefix, *suffix, *middle; // middle "": what is behind comes first, and the text goes on
    const char *file;                     // before another file's name; NULL: none
} spellings[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"}, // Qwen, CodeGemma, Granite
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>"},         // StarCoder, SantaCoder's successors
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", NULL},                 // SantaCoder
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", NULL},           // DeepSeek
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", NULL},        // GLM
    {"▁<PRE>", "▁<SUF>", "▁<MID>", NULL},                                   // Code Llama
    {"[PREFIX]", "[SUFFIX]", "", NULL},                                     // Codestral
};

// The token that is spelled so; -1 where the vocabulary has none.
static int32_t find_token(const yalm_model *model, const char *spelling)
{
    int32_t *ids, id = -1;
    size_t n, length = 0;
    yalm_error error;
    if (spelling == NULL || *spelling == 0 || strcmp(yalm_model_facts(model)->tokenizer, "none") == 0)
        return -1;
    if (yalm_tokenize(model, spelling, strlen(spelling), YALM_TOKENIZE_SPECIAL, &ids, &n, &error) != YALM_OK)
        return -1;
    if (n == 1 && yalm_piece(model, ids[0], &length) && length == strlen(spelling))
        id = ids[0];
    free(ids);
    return id;
}

static const struct spelling *find_spelling(const yalm_model *model)
{
    for (const struct spelling *s = spellings; s < spellings + sizeof spellings / sizeof *spellings; s++)
        if (find_token(model, s->prefix) >= 0 && find_token(model, s->suffix) >= 0 &&
            (*s->middle == 0 || find_token(model, s->middle) >= 0))
            return s;
    return NULL;
}

bool fim_is_known(const yalm_model *model)
{
    return find_spelling(model) != NULL;
}

static bool add_files(struct request *request, struct buffer *text, const char *mark, const cJSON *extra)
{
    const cJSON *file;
    if (extra && !cJSON_IsArray(extra))
        return request_fail(request, 400, "'input_extra': expected a list of {\"filename\", \"text\"}");
    cJSON_ArrayForEach(file, extra)
    {
        const cJSON *name = body_member(file, "filename"), *words = body_member(file, "text");
        if (!cJSON_IsString(words) || (name && !cJSON_IsString(name)))
            return request_fail(request, 400, "'input_extra': expected a list of {\"filename\", \"text\"}");
        buffer_format(text, "%s%s\n", mark, name ? name->valuestring : "file");
        buffer_text(text, words->valuestring);
        buffer_text(text, "\n");
    }
    buffer_text(text, extra && extra->child ? mark : "");
    return true;
}

bool fim_prompt(struct request *request, const char *before, const char *behind, const char *begun, const cJSON *extra)
{
    const yalm_model *model = request->server->model;
    const struct spelling *s = find_spelling(model);
    if (s == NULL)
        return request_fail(request, 400, "the model's vocabulary has no tokens for text in the middle of a text");
    const bool behind_first = *s->middle == 0;
    const char *const pieces[] = {behind_first ? s->suffix : s->prefix,
                                  behind_first ? behind : before,
                                  behind_first ? s->prefix : s->suffix,
                                  behind_first ? before : behind,
                                  s->middle,
                                  begun};
    struct buffer text = {0};
    bool good = add_files(request, &text, find_token(model, s->file) >= 0 ? s->file : "", extra);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        buffer_text(&text, pieces[i]);
    if (good && text.failed)
        good = request_fail(request, 503, "out of memory for the prompt");
    good = good && generation_add_text(request, text.at, text.length, YALM_TOKENIZE_BOS | YALM_TOKENIZE_SPECIAL);
    buffer_free(&text);
    return good;
}
