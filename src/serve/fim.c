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

// Appends a text, or a mark. A mark that a text spells stays text: files may speak of them.
static bool add(struct request *request, struct prompt *prompt, const char *text, bool is_mark)
{
    const int flags = (is_mark ? YALM_TOKENIZE_SPECIAL : 0) | (prompt->n ? YALM_TOKENIZE_BEHIND : 0);
    return *text == 0 || generation_extend(request, prompt, text, flags, 0);
}

// A file: the mark, its name, a line break, its text.
static bool add_file(struct request *request, struct prompt *prompt, const char *mark, const char *name, const char *words)
{
    struct buffer text = {0};
    buffer_format(&text, "%s\n", name);
    buffer_format(&text, "%s\n", words);
    const bool good = text.failed ? request_fail(request, 503, "out of memory for the prompt")
                                  : add(request, prompt, mark, true) && add(request, prompt, text.at, false);
    buffer_free(&text);
    return good;
}

static bool add_files(struct request *request, struct prompt *prompt, const char *mark, const cJSON *extra)
{
    const cJSON *file;
    if (extra && !cJSON_IsArray(extra))
        return request_fail(request, 400, "'input_extra': expected a list of {\"filename\", \"text\"}");
    cJSON_ArrayForEach(file, extra)
    {
        const cJSON *name = body_member(file, "filename"), *words = body_member(file, "text");
        if (!cJSON_IsString(words) || (name && !cJSON_IsString(name)))
            return request_fail(request, 400, "'input_extra': expected a list of {\"filename\", \"text\"}");
        if (!add_file(request, prompt, mark, name ? name->valuestring : "file", words->valuestring))
            return false;
    }
    return extra == NULL || extra->child == NULL || add(request, prompt, mark, true);
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
    struct prompt prompt = {0};
    bool good = add_files(request, &prompt, find_token(model, s->file) >= 0 ? s->file : "", extra);
    for (size_t i = 0; good && i < sizeof pieces / sizeof *pieces; i++)
        good = add(request, &prompt, pieces[i], i % 2 == 0);
    if (good)
        return generation_add_prompt(request, prompt.ids, prompt.n);
    free(prompt.ids);
    return false;
}
