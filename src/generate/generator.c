// See generator.h.
#include "generate/generator.h"

#include <string.h>

#include "util/clock.h"
#include "util/error.h"

static const yalm_model_info *facts_of(const struct generator *g)
{
    return yalm_model_facts(yalm_session_model(g->session));
}

void generator_begin(struct generator *g, bool reuse)
{
    const int64_t held = yalm_position(g->session);
    size_t n = reuse ? yalm_session_common(g->session, g->prompt, g->n_prompt) : 0;
    if (n == g->n_prompt)
        n--; // evaluated in any case, for its logits
    // To the beginning the session goes only when it reads: until then what it holds can be used.
    g->n_read = g->n_cached = (size_t)yalm_rollback_point(g->session, (int64_t)n);
    if (g->n_read > 0)
        yalm_rollback(g->session, (int64_t)g->n_read, NULL);
    if ((int64_t)g->n_read < held)
        speculator_begin(g->speculator);
    g->masking = g->masker && g->how->grammar_after == NULL;
    if (g->how->parts)
        speech_begin(&g->speech, g->how->forms, g->how->reasoning_end, g->how->calls);
    g->began = clock_seconds();
}

bool generator_reads(const struct generator *g)
{
    return g->n_read < g->n_prompt;
}

void generator_skip(struct generator *g, size_t n)
{
    speculator_read(g->speculator, g->prompt + g->n_read, n - g->n_read);
    g->n_cached += n - g->n_read;
    g->n_read = n;
}

// ---------------------------------------------------------------- the text

// The first place from `from` on where a stop string begins: wholly (*which is it), or as far as the text goes (*which is
// NULL). A token looks at no more than what is held back.
static size_t find_stop(const struct generator_options *how, const struct buffer *text, size_t from, const char **which)
{
    size_t partial = text->length;
    *which = NULL;
    for (size_t at = from; at < text->length; at++)
        for (int i = 0; i < how->n_stops; i++) {
            const size_t length = strlen(how->stops[i]), rest = text->length - at;
            if (memcmp(text->at + at, how->stops[i], length < rest ? length : rest) != 0)
                continue;
            if (length <= rest) {
                *which = how->stops[i];
                return at;
            }
            if (partial == text->length)
                partial = at;
        }
    return partial;
}

static void show(struct generator *g, size_t length)
{
    if (g->how->parts && length > g->shown)
        speech_add(&g->speech, g->text.at + g->shown, length - g->shown);
    g->shown = length;
}

static void add_text(struct generator *g, const char *bytes, size_t length)
{
    buffer_add(&g->text, bytes, length);
    const size_t shown = find_stop(g->how, &g->text, g->shown, &g->stop_string);
    if (g->stop_string) {
        g->text.length = shown;
        g->stop = YALM_STOP_STRING;
    }
    show(g, shown);
}

void generator_end(struct generator *g)
{
    char bytes[8];
    if (g->stop_string == NULL)
        add_text(g, bytes, yalm_stream_end(&g->stream, bytes));
    show(g, g->text.length);
    if (g->how->parts)
        speech_end(&g->speech);
    g->ended = clock_seconds();
}

// The grammar holds behind a mark, which may have come since the text was so long.
static void look_for_grammar(struct generator *g, size_t length)
{
    const size_t n = strlen(g->how->grammar_after), from = length < n ? 0 : length - n + 1;
    g->masking = g->text.length > from && memmem(g->text.at + from, g->text.length - from, g->how->grammar_after, n) != NULL;
}

// ---------------------------------------------------------------- drawing

static bool has_all(const struct generator *g)
{
    return g->how->max_tokens >= 0 && (int64_t)g->n_generated >= g->how->max_tokens;
}

// No token can follow the one that was drawn.
static void look_at_limits(struct generator *g)
{
    const yalm_session_options *facts = yalm_session_facts(g->session);
    if (has_all(g))
        g->stop = YALM_STOP_LIMIT;
    else if (!facts->endless && yalm_position(g->session) >= facts->context) // it could not be evaluated
        g->stop = YALM_STOP_CONTEXT;
}

static yalm_status no_token(yalm_error *error)
{
    return error_set(error, YALM_FAILED,
                     "no token of the vocabulary continues a text of the grammar, or finding them takes too much work");
}

static yalm_status no_logits(const struct generator *g, yalm_error *error)
{
    yalm_error own;
    error = error ? error : &own;
    if (yalm_finish(g->session, error) != YALM_OK)
        return error->status;
    return error_set(error, YALM_FAILED, "the model's logits are not finite after %lld tokens",
                     (long long)yalm_position(g->session));
}

// Behind a call the text is free.
static void leave_call(struct generator *g)
{
    masker_close(g->masker);
    g->masker = NULL;
    g->masking = g->in_call = false;
}

// A call has begun: from here on it follows the grammar, unless it went its own way in the token that began it.
static void look_for_call(struct generator *g)
{
    struct span begun[2];
    if (!speech_call_begins(&g->speech, begun)) {
        g->looked_at_call = false;
        return;
    }
    if (g->looked_at_call)
        return;
    g->looked_at_call = true;
    const struct held_calls *held = g->how->held;
    yalm_error error;
    g->masker = masker_open(held->grammar, held->tree, yalm_session_model(g->session), &error);
    if (g->masker == NULL)
        return;
    masker_set_marks(g->masker, held->marks, held->n_marks);
    g->in_call = g->masking = masker_take_bytes(g->masker, begun[0].at, begun[0].length) &&
                              masker_take_bytes(g->masker, begun[1].at, begun[1].length);
    if (!g->in_call || masker_is_over(g->masker))
        leave_call(g);
}

static yalm_status draw(struct generator *g, yalm_error *error)
{
    yalm_sampling sampling = g->how->sampling;
    if (g->in_call && (sampling.allowed = masker_allowed(g->masker)) == NULL)
        leave_call(g);
    if (g->how->penalise_own)
        sampling.penalty_last_n = (int)g->n_generated;
    if (g->masking && (sampling.allowed = masker_allowed(g->masker)) == NULL) {
        g->stop = masker_accepts(g->masker) ? YALM_STOP_GRAMMAR : YALM_GOES_ON;
        return g->stop ? YALM_OK : no_token(error);
    }
    g->token = yalm_sample(g->session, &sampling);
    if (g->token < 0)
        return no_logits(g, error);
    if (g->n_generated++ == 0)
        g->first_token = clock_seconds();
    if (yalm_is_eos(yalm_session_model(g->session), g->token) && (g->masking || !g->how->ignore_eos))
        g->stop = YALM_STOP_END;
    g->added = !g->stop;
    return YALM_OK;
}

static bool add_token(struct generator *g)
{
    const bool wanted = g->how->n_likely >= 0;
    if ((wanted || g->how->list_tokens) &&
        !scores_add(&g->scores, g->how->n_likely, g->token,
                    wanted ? yalm_logits(g->session, g->which == YALM_LOGITS_ALL ? g->n_pending - 1 : 0) : NULL,
                    facts_of(g)->vocab_size))
        return false;
    char bytes[YALM_MAX_PIECE + 8];
    add_text(g, bytes, yalm_stream_token(yalm_session_model(g->session), &g->stream, g->token, g->how->spell_control, bytes));
    return true;
}

static yalm_status follow_grammar(struct generator *g, size_t length, yalm_error *error)
{
    if (g->masking && !masker_take(g->masker, g->token))
        return no_token(error);
    if (g->masking && !g->stop && masker_is_over(g->masker)) {
        if (g->in_call)
            leave_call(g);
        else
            g->stop = YALM_STOP_GRAMMAR;
    }
    if (g->how->held && !g->stop && g->masker == NULL)
        look_for_call(g);
    if (g->masker && !g->masking)
        look_for_grammar(g, length);
    return YALM_OK;
}

static yalm_status write_on(struct generator *g, yalm_error *error)
{
    const size_t length = g->text.length;
    yalm_status status = YALM_OK;
    if (has_all(g))
        g->stop = YALM_STOP_LIMIT; // of no tokens at all
    else
        status = draw(g, error);
    if (status == YALM_OK && g->added) {
        if (!add_token(g))
            return error_set(error, YALM_NO_MEMORY, "out of memory for the answer");
        status = follow_grammar(g, length, error);
        if (!g->stop)
            look_at_limits(g);
    }
    if (status == YALM_OK && g->stop)
        generator_end(g);
    return status == YALM_OK && (g->text.failed || (g->how->parts && speech_failed(&g->speech)))
               ? error_set(error, YALM_NO_MEMORY, "out of memory for the answer")
               : status;
}

// ---------------------------------------------------------------- evaluating

yalm_status generator_next(struct generator *g, int piece, yalm_error *error)
{
    g->added = false;
    if (generator_reads(g)) {
        if (yalm_position(g->session) > (int64_t)g->n_read)
            yalm_rollback(g->session, (int64_t)g->n_read, NULL);
        const size_t left = g->n_prompt - g->n_read;
        const bool last = left <= (size_t)piece;
        g->pending = g->prompt + g->n_read;
        g->n_pending = last ? (int)left : piece;
        g->which = g->how->score_prompt ? YALM_LOGITS_ALL : last ? YALM_LOGITS_LAST : YALM_LOGITS_NONE;
        if (g->how->score_prompt && last && yalm_session_facts(g->session)->exact) { // where the last token goes alone
            g->n_pending -= left > 1;
            g->which = left > 1 ? YALM_LOGITS_ALL : YALM_LOGITS_LAST;
        }
        return YALM_OK;
    }
    const yalm_status status = write_on(g, error);
    g->pending = &g->token;
    g->n_pending = status == YALM_OK && !g->stop;
    g->which = YALM_LOGITS_LAST;
    return status;
}

static yalm_status score_piece(struct generator *g, yalm_error *error)
{
    if (g->n_read == 0 && !scores_add(&g->scores, g->how->n_likely, g->prompt[0], NULL, 0))
        return error_set(error, YALM_NO_MEMORY, "out of memory for the answer");
    for (int i = 0; i < g->n_pending && g->n_read + (size_t)i + 1 < g->n_prompt; i++) {
        const float *logits = yalm_logits(g->session, i);
        if (logits == NULL)
            return yalm_finish(g->session, error) != YALM_OK ? error->status : YALM_FAILED;
        if (!scores_add(&g->scores, g->how->n_likely, g->pending[i + 1], logits, facts_of(g)->vocab_size))
            return error_set(error, YALM_NO_MEMORY, "out of memory for the answer");
    }
    return YALM_OK;
}

static yalm_status take_note(struct generator *g, yalm_error *error)
{
    if (!generator_reads(g))
        return YALM_OK;
    const yalm_status status = g->how->score_prompt ? score_piece(g, error) : YALM_OK;
    g->n_read += (size_t)g->n_pending;
    return status;
}

yalm_status generator_evaluated(struct generator *g, yalm_error *error)
{
    speculator_read(g->speculator, g->pending, (size_t)g->n_pending);
    return take_note(g, error);
}

yalm_status generator_evaluate(struct generator *g, yalm_error *error)
{
    if (!generator_reads(g))
        return speculator_eval(g->speculator, g->session, g->token, error);
    return yalm_eval(g->session, g->pending, g->n_pending, g->which, error) ?: generator_evaluated(g, error);
}

void generator_free(struct generator *g)
{
    buffer_free(&g->text);
    speech_free(&g->speech);
    scores_free(&g->scores);
    masker_close(g->masker);
    *g = (struct generator){0};
}
