// See draft.h.
#include "speculate/draft.h"

#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/error.h"

struct draft {
    yalm_session *session;
    int context;
    int32_t *text, *known; // (context): what the session has evaluated, and what this one has
    double seconds;
};

static const double seconds_weight = 0.2; // of the newest in the average

yalm_status draft_check(const yalm_model *draft, const yalm_model *model, yalm_error *error)
{
    const yalm_model_info *ours = yalm_model_facts(model), *its = yalm_model_facts(draft);
    const bool named = ours->tokenizer_vocab > 0 || its->tokenizer_vocab > 0; // rows beyond the tokenizer's pieces are nobody's
    const int n = named ? ours->tokenizer_vocab : ours->vocab_size, n_its = named ? its->tokenizer_vocab : its->vocab_size;
    if (n != n_its)
        return error_set(error, YALM_USAGE,
                         "draft model %s: found a vocabulary of %d tokens, expected %s's %d: a draft must have the same",
                         its->name, n_its, ours->name, n);
    for (int32_t token = 0; named && token < n; token++) {
        size_t length, its_length;
        const char *piece = yalm_piece(model, token, &length), *its_piece = yalm_piece(draft, token, &its_length);
        if (!piece != !its_piece || (piece && (length != its_length || memcmp(piece, its_piece, length) != 0)))
            return error_set(error, YALM_USAGE,
                             "draft model %s: token %d is another text than %s's: a draft must have the same vocabulary",
                             its->name, token, ours->name);
    }
    return YALM_OK;
}

yalm_status draft_check_session(yalm_session *session, yalm_error *error)
{
    const int32_t any = 0;
    if (yalm_expect(session, &any, 1) == 1) {
        yalm_expect(session, NULL, 0);
        return YALM_OK;
    }
    return error_set(error, YALM_USAGE,
                     "a draft is of no use where tokens are evaluated one by one: found device %s with --attention %s",
                     yalm_session_facts(session)->device, yalm_session_facts(session)->attention);
}

struct draft *draft_open(const yalm_model *model, const yalm_session_options *options, yalm_error *error)
{
    struct draft *d = calloc(1, sizeof *d);
    yalm_session_options how = *options;
    how.several = how.exact = false;         // it guesses one by one, and what it guesses is verified
    how.activations = YALM_ACTIVATIONS_AUTO; // the large model's may concern types that only its weights have
    if (d)
        d->session = yalm_session_open(model, &how, error);
    if (d && d->session) {
        d->context = yalm_session_facts(d->session)->context;
        d->text = malloc(sizeof *d->text * (size_t)d->context);
        d->known = malloc(sizeof *d->known * (size_t)d->context);
        if (d->text && d->known)
            return d;
    }
    if (!d || d->session)
        *error = (yalm_error){YALM_NO_MEMORY, "out of memory for a draft model's session"};
    draft_close(d);
    return NULL;
}

void draft_close(struct draft *d)
{
    if (!d)
        return;
    yalm_session_close(d->session);
    free(d->text);
    free(d->known);
    free(d);
}

double draft_seconds(const struct draft *d)
{
    return d->seconds;
}

// Evaluates what of text (n) the draft's session has not, at least its last token.
static bool catch_up(struct draft *d, size_t n)
{
    const size_t n_known = yalm_session_tokens(d->session, d->known, (size_t)d->context);
    size_t same = 0;
    while (same < n_known && same < n - 1 && d->known[same] == d->text[same])
        same++;
    same = (size_t)yalm_rollback_point(d->session, (int64_t)same);
    yalm_rollback(d->session, (int64_t)same, NULL);
    return yalm_eval(d->session, d->text + same, (int)(n - same), YALM_LOGITS_LAST, NULL) == YALM_OK;
}

int draft_guess(struct draft *d, const yalm_session *session, int32_t token, int32_t *guesses, int n)
{
    static const yalm_sampling likeliest = {.temperature = 0, .top_p = 1, .repeat_penalty = 1};
    const int64_t position = yalm_position(session);
    if (position + n > d->context)
        return 0;
    const size_t n_text = yalm_session_tokens(session, d->text, (size_t)d->context);
    if ((int64_t)n_text != position) // it has forgotten how the text began
        return 0;
    d->text[n_text] = token;
    if (!catch_up(d, n_text + 1))
        return 0;
    for (int i = 0; i < n; i++) {
        const double start = clock_seconds();
        if (i > 0 && yalm_eval(d->session, &guesses[i - 1], 1, YALM_LOGITS_LAST, NULL) != YALM_OK)
            return i;
        guesses[i] = yalm_sample(d->session, &likeliest);
        if (guesses[i] < 0)
            return i;
        if (i > 0)
            d->seconds =
                d->seconds > 0 ? d->seconds + seconds_weight * (clock_seconds() - start - d->seconds) : clock_seconds() - start;
    }
    return n;
}
