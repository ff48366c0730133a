// Ids back to text, one at a time: bytes come out as soon as they can no longer be the first half of a character.

#include <string.h>

#include "text/tokenizer_parts.h"
#include "util/utf8.h"

// A token that was found as it is spelled had no space put before it. What follows it is a segment of its own, if segments get
// a space. If only the text's start gets one, that is past, unless the token is bos, which stands before the start.
static void after_spelled(const struct tokenizer *tokenizer, yalm_stream *stream, int32_t token)
{
    if (tokenizer->prefix_space == PREFIX_SEGMENTS)
        stream->started = false;
    else if (token != tokenizer->bos)
        stream->started = true;
}

size_t tokenizer_stream(const struct tokenizer *tokenizer, yalm_stream *stream, int32_t token, bool spell_control, char *out)
{
    size_t length;
    const char *piece = tokenizer_piece(tokenizer, token, &length);
    if (!piece)
        return 0;
    const bool control = tokenizer_is_control(tokenizer, token);
    if (control || tokenizer->vocabulary.kinds[token] == PIECE_USER_DEFINED)
        after_spelled(tokenizer, stream, token);
    else {
        if (!stream->started && tokenizer->prefix_space != PREFIX_NEVER && piece[0] == ' ') {
            piece++;
            length--;
        }
        stream->started = true;
    }
    if (control && !spell_control)
        return 0;
    size_t n = (size_t)stream->n_pending;
    memcpy(out, stream->pending, n);
    memcpy(out + n, piece, length);
    n += length;
    const int held = utf8_unfinished((const uint8_t *)out, n);
    memcpy(stream->pending, out + n - held, (size_t)held);
    stream->n_pending = held;
    return n - (size_t)held;
}
