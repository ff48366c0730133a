// WordPiece (Schuster and Nakajima, 2012; as BERT cuts words): the longest piece that a word begins with, then the longest that
// goes on with what is left. A word that cannot be cut so is the unknown token, whole.
#include "text/wordpiece.h"

#include <string.h>

#include "util/utf8.h"

// Bytes of the character at `at`; a byte that belongs to none is one.
static size_t character(const uint8_t *word, size_t length, size_t at)
{
    const int n = utf8_character(word + at, length - at);
    return n > 0 ? (size_t)n : 1;
}

// The piece that begins at word[at], and where it ends; -1: none.
static int32_t longest_piece(const struct tokenizer *t, const uint8_t *word, size_t length, size_t at, size_t *end)
{
    uint8_t bytes[YALM_MAX_PIECE + WORDPIECE_CONTINUING];
    const size_t before = at > 0 ? strlen(t->continuing) : 0, room = t->vocabulary.longest;
    int32_t found = -1;
    memcpy(bytes, t->continuing, before);
    for (size_t to = at; to < length;) {
        const size_t n = character(word, length, to);
        if (before + to + n - at > room)
            break;
        memcpy(bytes + before + (to - at), word + to, n);
        to += n;
        const int32_t id = vocabulary_find(&t->vocabulary, bytes, before + to - at);
        if (id >= 0) {
            found = id;
            *end = to;
        }
    }
    return found;
}

static bool too_long(const struct tokenizer *t, const uint8_t *word, size_t length)
{
    int n = 0;
    for (size_t at = 0; at < length && n <= t->longest_word; n++)
        at += character(word, length, at);
    return n > t->longest_word;
}

bool wordpiece_word(struct ids *ids, const struct tokenizer *t, const uint8_t *word, size_t length)
{
    const size_t begin = ids->n;
    if (too_long(t, word, length))
        return ids_push(ids, t->unknown);
    for (size_t at = 0, end = 0; at < length; at = end) {
        const int32_t id = longest_piece(t, word, length, at, &end);
        if (id < 0) {
            ids->n = begin;
            return ids_push(ids, t->unknown);
        }
        if (!ids_push(ids, id))
            return false;
    }
    return true;
}
