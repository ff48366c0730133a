// Tokens that a session has evaluated past its position, because its caller expects them to come next.
//
// A caller's hint, yalm_expect(), goes with the next token into one batch whose tokens are apart: each gets the bits that it
// would have alone. Where the caller then appends the very token that was expected, its logits are there already. Any other
// call forgets what lies ahead, whose keys and values stand beyond the position, where nobody looks. So nothing shows but the
// time.

#include <stdlib.h>
#include <string.h>

#include "engine/session.h"

static int most_ahead(const yalm_session *s)
{
    const int apart = s->backend->most_apart ? s->backend->most_apart(s->state) : 1;
    return (apart < MOST_AHEAD + 1 ? apart : MOST_AHEAD + 1) - 1;
}

int yalm_expect(yalm_session *s, const int32_t *tokens, int n)
{
    const int vocab = s->model->config.vocab_size, most = most_ahead(s);
    s->n_expected = 0;
    if (most > 0 && n > 0 && !s->ahead_logits)
        s->ahead_logits = malloc(sizeof(float) * (size_t)vocab * (MOST_AHEAD + 1));
    while (s->ahead_logits && s->n_expected < n && s->n_expected < most && tokens[s->n_expected] >= 0 &&
           tokens[s->n_expected] < vocab) {
        s->expected[s->n_expected] = tokens[s->n_expected];
        s->n_expected++;
    }
    return s->n_expected;
}

bool ahead_is(const yalm_session *s, int32_t token)
{
    return s->n_ahead > 0 && s->ahead[0] == token && !atomic_load(&s->cancel);
}

bool ahead_take(yalm_session *s, int32_t token)
{
    if (!ahead_is(s, token))
        return false;
    s->n_ahead--;
    memmove(s->ahead, s->ahead + 1, sizeof *s->ahead * (size_t)s->n_ahead);
    s->history[s->position++ % s->options.context] = token;
    s->logits += s->model->config.vocab_size;
    s->row++;
    s->n_logits = 1;
    s->n_expected = 0;
    return true;
}

struct batch ahead_batch(const yalm_session *s, int32_t token, int32_t tokens[MOST_AHEAD + 1])
{
    const int64_t room = s->options.endless ? MOST_AHEAD : s->options.context - s->position - 1;
    const int n = s->n_expected < room ? s->n_expected : (int)room;
    tokens[0] = token;
    memcpy(tokens + 1, s->expected, sizeof *tokens * (size_t)n);
    return (struct batch){.tokens = tokens,
                          .n = n + 1,
                          .position = s->position,
                          .logits = n ? s->ahead_logits : s->last_logits,
                          .all_logits = n,
                          .apart = n || s->options.exact};
}

void ahead_keep(yalm_session *s, const struct batch *batch)
{
    s->n_ahead = batch->n - 1;
    memcpy(s->ahead, batch->tokens + 1, sizeof *s->ahead * (size_t)s->n_ahead);
    s->logits = batch->logits;
    s->row = 0;
    s->n_logits = 1;
}

bool ahead_has_logits(const yalm_session *s)
{
    return s->ahead_logits && s->logits == s->ahead_logits + (size_t)s->row * s->model->config.vocab_size;
}

void ahead_forget(yalm_session *s)
{
    s->n_ahead = s->n_expected = 0;
}
