// A sorted list of spellings, searched a byte at a time, and what a found one may ask for besides.

#include "text/spellings.h"

#include <stdlib.h>
#include <string.h>

#include "text/unicode.h"

static int compare(const void *a, const void *b)
{
    const struct spelling *p = a, *q = b;
    const int order = memcmp(p->bytes, q->bytes, p->length < q->length ? p->length : q->length);
    if (order)
        return order;
    return p->length != q->length ? (p->length < q->length ? -1 : 1) : (p->id > q->id) - (p->id < q->id);
}

// The pieces' normalised forms, one after the other in one block.
static yalm_status make_forms(struct spellings *s, spelling_maker *make, const void *context, yalm_error *error)
{
    struct bytes all = {0};
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        struct bytes form;
        const yalm_status status = make(context, s->entries[i].bytes, s->entries[i].length, &form, error);
        const bool added = !status && bytes_add(&all, form.data, form.n);
        if (!status)
            free(form.data);
        if (!added) {
            free(all.data);
            return status ? status : error_set(error, YALM_NO_MEMORY, "tokenizer: no memory for %d added tokens", s->n);
        }
        if (form.n) // what normalising leaves nothing of is never found
            s->entries[n++] = (struct spelling){NULL, form.n, s->entries[i].id};
    }
    s->n = n;
    s->made = all.data;
    for (int i = 0, at = 0; i < n; at += (int)s->entries[i++].length)
        s->entries[i].bytes = all.data + at;
    return YALM_OK;
}

// Of equals the token with the lowest id stays, which was added first; but two that are spelled alike in the file are a mistake
// there.
static yalm_status drop_equals(struct spellings *s, bool normalised, const char *path, yalm_error *error)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        const struct spelling *last = n ? &s->entries[n - 1] : NULL, *this = &s->entries[i];
        if (!last || last->length != this->length || memcmp(last->bytes, this->bytes, this->length) != 0)
            s->entries[n++] = *this;
        else if (!normalised)
            return error_set(error, YALM_BAD_MODEL, "%s: tokenizer: tokens %d and %d are spelled alike", path, last->id,
                             this->id);
    }
    s->n = n;
    return YALM_OK;
}

yalm_status spellings_open(struct spellings *spellings, const struct vocabulary *vocabulary, uint32_t kinds, bool normalised,
                           spelling_maker *make, const void *context, const char *path, yalm_error *error)
{
    *spellings = (struct spellings){0};
    spellings->entries = malloc(((size_t)vocabulary->n + 1) * sizeof *spellings->entries);
    if (!spellings->entries)
        return error_set(error, YALM_NO_MEMORY, "tokenizer: no memory for the special tokens of %d", vocabulary->n);
    for (int id = 0; id < vocabulary->n; id++)
        if ((kinds >> vocabulary->kinds[id] & 1) && !(vocabulary_flags(vocabulary, id) & PIECE_NORMALISED) == !normalised) {
            struct spelling *entry = &spellings->entries[spellings->n++];
            entry->id = id;
            entry->bytes = vocabulary_piece(vocabulary, id, &entry->length);
        }
    yalm_status status = normalised ? make_forms(spellings, make, context, error) : YALM_OK;
    if (!status && spellings->n) {
        qsort(spellings->entries, (size_t)spellings->n, sizeof *spellings->entries, compare);
        status = drop_equals(spellings, normalised, path, error);
    }
    for (int i = 0; i < spellings->n && !status; i++)
        spellings->begins_with[spellings->entries[i].bytes[0]] = true;
    return status;
}

void spellings_close(struct spellings *spellings)
{
    free(spellings->entries);
    free(spellings->made);
}

// The longest that text[0..length) begins with; NULL: none. Narrows the sorted range of those that begin with text[0..depth).
static const struct spelling *match(const struct spellings *spellings, const uint8_t *text, size_t length)
{
    const struct spelling *entries = spellings->entries, *found = NULL;
    int low = 0, high = spellings->n;
    for (size_t depth = 0; low < high; depth++) {
        if (entries[low].length == depth) { // it sorts before those that go on
            found = &entries[low++];
            if (low == high)
                break;
        }
        if (depth == length)
            break;
        int bounds[2]; // first one with a byte >= text[depth] there, and > it
        for (int k = 0; k < 2; k++) {
            int from = low, to = high;
            while (from < to) {
                const int middle = from + (to - from) / 2;
                if (entries[middle].bytes[depth] < text[depth] + k)
                    from = middle + 1;
                else
                    to = middle;
            }
            bounds[k] = from;
        }
        low = bounds[0];
        high = bounds[1];
    }
    return found;
}

static bool is_space(const struct spellings *spellings, int32_t c)
{
    return unicode_is_space(c) && !(c == ' ' && spellings->written_spaces);
}

static bool touches_word(const uint8_t *text, size_t length, size_t start, size_t end)
{
    size_t n;
    return (start > 0 && unicode_is_word(unicode_last(text, start, &n))) ||
           (end < length && unicode_is_word(unicode_next(text + end, length - end, &n)));
}

struct spelled spellings_next(const struct spellings *spellings, const struct vocabulary *vocabulary, const uint8_t *text,
                              size_t length, size_t from, size_t taken, size_t *search_from)
{
    for (size_t at = from; at < length && spellings->n; at++) {
        const struct spelling *found = spellings->begins_with[text[at]] ? match(spellings, text + at, length - at) : NULL;
        if (!found)
            continue;
        struct spelled spelled = {found->id, at, at + found->length};
        *search_from = spelled.end;
        const int flags = vocabulary_flags(vocabulary, found->id);
        if ((flags & PIECE_SINGLE_WORD) && touches_word(text, length, spelled.start, spelled.end)) {
            at = spelled.end - 1; // a part of it is not looked at either
            continue;
        }
        size_t n;
        while ((flags & PIECE_LSTRIP) && spelled.start > taken && is_space(spellings, unicode_last(text, spelled.start, &n)))
            spelled.start -= n;
        while ((flags & PIECE_RSTRIP) && spelled.end < length &&
               is_space(spellings, unicode_next(text + spelled.end, length - spelled.end, &n)))
            spelled.end += n;
        return spelled;
    }
    return (struct spelled){.id = -1, .start = length, .end = length};
}
