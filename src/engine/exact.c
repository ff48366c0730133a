// Exact bits: which tokens another text can go on from, and with which kernels each is evaluated.
//
// Kernels for many tokens and those for one add up in another order. So a session with options.exact says of each token by
// which of the two it goes, whatever else there is to be evaluated. A prompt's tokens go by those of many, however few there
// are. The one whose logits are drawn from (YALM_LOGITS_LAST) goes by those of one, as do those drawn. A prompt that goes on
// behind them would have read them together: they are not settled, and it reads them again.

#include <string.h>

#include "engine/session.h"
#include "util/error.h"

yalm_status exact_check(const yalm_session_options *options, yalm_error *error)
{
    if (options->exact && strcmp(options->attention, "dense") != 0)
        return error_set(error, YALM_USAGE, "exact bits: found attention %s, expected dense", options->attention);
    if (options->exact && options->endless)
        return error_set(error, YALM_USAGE, "exact bits: found an endless session, expected one that ends with its context");
    return YALM_OK;
}

bool exact_alone(const yalm_session *s, yalm_logits_of which)
{
    return s->options.exact && which == YALM_LOGITS_LAST;
}

int64_t yalm_session_settled(const yalm_session *s)
{
    return s->options.exact && s->settled < s->position ? s->settled : s->position;
}

void exact_settle(yalm_session *s, int n)
{
    if (s->settled == s->position)
        s->settled += n;
}

void exact_go_back(yalm_session *s, int64_t position)
{
    s->position = position;
    s->settled = s->settled < position ? s->settled : position;
}
