// The steps of normalisation, on bytes. The composed and decomposed forms are utf8proc's.

#include "text/normalise.h"

#include <stdlib.h>
#include <string.h>

#include "text/unicode.h"
#include "util/utf8.h"

static yalm_status no_memory(yalm_error *error, size_t length)
{
    return error_set(error, YALM_NO_MEMORY, "tokenizer: no memory to normalise %zu bytes", length);
}

bool bytes_add(struct bytes *bytes, const void *data, size_t n)
{
    if (n > bytes->capacity - bytes->n || !bytes->data) { // an empty one has a pointer, too
        const size_t capacity = 2 * (bytes->n + n) + 64;
        uint8_t *grown = realloc(bytes->data, capacity);
        if (!grown)
            return false;
        bytes->data = grown;
        bytes->capacity = capacity;
    }
    if (n)
        memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
    return true;
}

// ------------------------------------------------------------------------------------ the file's list

static yalm_status read_replace(struct normalise_step *step, const struct json_object *object, yalm_error *error)
{
    const char *pattern;
    const yalm_status status = json_get_string(&pattern, object, "pattern", error);
    if (status)
        return status;
    step->pattern = calloc(1, sizeof *step->pattern);
    if (!step->pattern)
        return no_memory(error, sizeof *step->pattern);
    return patterns_add(step->pattern, pattern, false, object->path, error);
}

static yalm_status read_step(struct normalise_step *step, const struct json_object *object, yalm_error *error)
{
    static const char *const kinds[NORMALISE_KINDS] = {"nfc",           "nfd",   "nfkc",    "nfkd",    "lowercase",
                                                       "strip_accents", "strip", "prepend", "replace", "map"};
    static const char *const keys[] = {"type", "left", "right", "text", "pattern"}, *const of_map[] = {"type", "pairs"};
    const char *type, *text = NULL;
    yalm_status status = json_get_string(&type, object, "type", error);
    if (status)
        return status;
    while (step->kind < NORMALISE_KINDS && strcmp(type, kinds[step->kind]) != 0)
        step->kind++;
    if (step->kind == NORMALISE_KINDS)
        return error_set(error, YALM_BAD_MODEL, "%s: metadata: 'tokenizer.normalizers': unknown type '%s'", object->path,
                         json_show(type).text);
    if (step->kind == NORMALISE_MAP) {
        status = json_only(object, of_map, 2, error);
        return status ? status : char_map_open(&step->map, object, error);
    }
    const bool strips = step->kind == NORMALISE_STRIP, replaces = step->kind == NORMALISE_REPLACE;
    const bool has_text = replaces || step->kind == NORMALISE_PREPEND;
    const char *const wanted[] = {keys[0], keys[strips ? 1 : 3], keys[strips ? 2 : 4]};
    status = json_only(object, wanted, strips || replaces ? 3 : has_text ? 2 : 1, error);
    if (!status && strips)
        status = json_get_bool(&step->left, object, "left", error);
    if (!status && strips)
        status = json_get_bool(&step->right, object, "right", error);
    if (!status && has_text)
        status = json_get_string(&text, object, "text", error);
    if (!status && text && !(step->text = strdup(text)))
        status = no_memory(error, strlen(text));
    return status || !replaces ? status : read_replace(step, object, error);
}

yalm_status normaliser_open(struct normaliser *normaliser, const struct json_object *facts, yalm_error *error)
{
    const cJSON *list, *node;
    if (!json_has(facts, "normalizers"))
        return YALM_OK;
    yalm_status status = json_get_array(&list, facts, "normalizers", error);
    if (status)
        return status;
    cJSON_ArrayForEach(node, list)
    {
        const struct json_object object = {facts->path, "tokenizer.normalizers", node};
        if (normaliser->n == MAX_NORMALISE_STEPS || !cJSON_IsObject(node))
            return error_set(error, YALM_BAD_MODEL, "%s: metadata: 'tokenizer.normalizers': expected at most %d objects",
                             facts->path, MAX_NORMALISE_STEPS);
        status = read_step(&normaliser->steps[normaliser->n++], &object, error);
        if (status)
            return status;
    }
    return YALM_OK;
}

void normaliser_close(struct normaliser *normaliser)
{
    for (int i = 0; i < normaliser->n; i++) {
        free(normaliser->steps[i].text);
        char_map_close(&normaliser->steps[i].map);
        if (normaliser->steps[i].pattern)
            patterns_close(normaliser->steps[i].pattern);
        free(normaliser->steps[i].pattern);
    }
}

// ------------------------------------------------------------------------------------ the steps

// Brings well-formed text into a Unicode form. utf8proc's own limit is far above what a tokenizer takes.
static bool add_form(struct bytes *out, enum normalise_kind kind, const uint8_t *text, size_t length)
{
    static const int options[] = {[NORMALISE_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
                                  [NORMALISE_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
                                  [NORMALISE_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                                  [NORMALISE_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
    utf8proc_uint8_t *made = NULL;
    const utf8proc_ssize_t n = utf8proc_map(text, (utf8proc_ssize_t)length, &made, (utf8proc_option_t)options[kind]);
    const bool done = n >= 0 && bytes_add(out, made, (size_t)n);
    free(made);
    return done;
}

static bool add_character(struct bytes *out, int32_t point)
{
    uint8_t character[4];
    return bytes_add(out, character, (size_t)utf8_write(character, point));
}

static bool add_lowercase(struct bytes *out, const uint8_t *text, size_t length)
{
    bool done = true;
    for (size_t at = 0, n; at < length && done; at += n) {
        const int32_t point = unicode_next(text + at, length - at, &n);
        if (point == 0x130) // the only character whose small form is two
            done = bytes_add(out, "i\xcc\x87", 3);
        else
            done = add_character(out, unicode_lower(point));
    }
    return done;
}

static bool add_without_marks(struct bytes *out, const uint8_t *text, size_t length)
{
    bool done = true;
    for (size_t at = 0, n; at < length && done; at += n)
        if (!unicode_is_mark(unicode_next(text + at, length - at, &n)))
            done = bytes_add(out, text + at, n);
    return done;
}

// Runs of well-formed characters go through the step. A byte between them that belongs to none stays, and so does a character
// that the forms are too old to know.
static bool add_runs(struct bytes *out, enum normalise_kind kind, const uint8_t *text, size_t length)
{
    bool done = true, ascii = true;
    for (size_t at = 0, start = 0; at <= length && done;) {
        const size_t size = (size_t)utf8_character(text + at, length - at);
        size_t bytes = at < length;
        if (size == 1 || (size && !unicode_is_later(unicode_next(text + at, size, &bytes)))) {
            ascii = ascii && size == 1;
            at += size;
            continue;
        }
        const size_t n = at - start;
        if (kind == NORMALISE_LOWERCASE)
            done = add_lowercase(out, text + start, n);
        else if (ascii)
            done = bytes_add(out, text + start, n);
        else
            done = kind == NORMALISE_STRIP_ACCENTS ? add_without_marks(out, text + start, n)
                                                   : add_form(out, kind, text + start, n);
        if (done)
            done = bytes_add(out, text + at, bytes);
        at += bytes ? bytes : 1;
        start = at;
        ascii = true;
    }
    return done;
}

static bool add_stripped(struct bytes *out, const struct normalise_step *step, const uint8_t *text, size_t length)
{
    size_t first = 0, n;
    while (step->left && first < length && unicode_is_space(unicode_next(text + first, length - first, &n)))
        first += n;
    while (step->right && first < length && unicode_is_space(unicode_last(text + first, length - first, &n)))
        length -= n;
    return bytes_add(out, text + first, length - first);
}

// Bytes of the first cluster of characters that belong together.
static size_t cluster(const uint8_t *text, size_t length)
{
    utf8proc_int32_t state = 0;
    size_t at, n;
    int32_t before = unicode_next(text, length, &at);
    for (; at < length; at += n) {
        const int32_t point = unicode_next(text + at, length - at, &n);
        if (utf8proc_grapheme_break_stateful(before, point, &state))
            break;
        before = point;
    }
    return at;
}

// Short clusters become what they begin with becomes, whatever else they have; of others each character. So it is in
// `tokenizers`.
static bool add_mapped(struct bytes *out, const struct char_map *map, const uint8_t *text, size_t length)
{
    enum { LONG = 6 };
    bool done = true;
    for (size_t at = 0, end; at < length && done; at = end) {
        end = at + cluster(text + at, length - at);
        const char *to = end - at < LONG ? char_map_find(map, text + at, end - at) : NULL;
        if (to)
            done = bytes_add(out, to, strlen(to));
        for (size_t n; !to && at < end && done; at += n) {
            unicode_next(text + at, end - at, &n);
            const char *one = char_map_find(map, text + at, n);
            done = one ? bytes_add(out, one, strlen(one)) : bytes_add(out, text + at, n);
        }
    }
    return done;
}

struct replacing {
    struct bytes *out;
    const uint8_t *text;
    const char *by;
    yalm_error *error;
};

static yalm_status replace_part(void *context, size_t start, size_t length, bool match)
{
    const struct replacing *r = context;
    const bool done = match ? bytes_add(r->out, r->by, strlen(r->by)) : bytes_add(r->out, r->text + start, length);
    return done ? YALM_OK : no_memory(r->error, length);
}

static yalm_status run_step(const struct normalise_step *step, const uint8_t *text, size_t length, struct bytes *out,
                            yalm_error *error)
{
    bool done;
    switch (step->kind) {
    case NORMALISE_STRIP:
        done = add_stripped(out, step, text, length);
        break;
    case NORMALISE_MAP:
        done = add_mapped(out, &step->map, text, length);
        break;
    case NORMALISE_PREPEND:
        done = (length == 0 || bytes_add(out, step->text, strlen(step->text))) && bytes_add(out, text, length);
        break;
    case NORMALISE_REPLACE:
        return patterns_cut(step->pattern, text, length, replace_part, &(struct replacing){out, text, step->text, error},
                            error);
    default:
        done = add_runs(out, step->kind, text, length);
    }
    return done ? YALM_OK : no_memory(error, length);
}

yalm_status normalise(const struct normaliser *normaliser, const uint8_t *text, size_t length, struct bytes *result,
                      yalm_error *error)
{
    *result = (struct bytes){0};
    if (!bytes_add(result, text, length))
        return no_memory(error, length);
    yalm_status status = YALM_OK;
    for (int i = 0; i < normaliser->n && !status; i++) {
        struct bytes next = {0};
        status = bytes_add(&next, "", 0) ? YALM_OK : no_memory(error, length);
        if (!status)
            status = run_step(&normaliser->steps[i], result->data, result->n, &next, error);
        free(result->data);
        *result = next;
        if (!status && result->n >= INT32_MAX)
            status = error_set(error, YALM_USAGE, "tokenizer: normalising makes a text of %zu bytes too long", length);
    }
    if (status) {
        free(result->data);
        *result = (struct bytes){0};
    }
    return status;
}
