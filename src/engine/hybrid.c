#include "engine/hybrid.h"

#include <stddef.h>

#include "util/error.h"

// Defaults, for quality: 1/32 of the keys and the mean value for the rest stay within a quarter of a per cent of dense attention's perplexity on
// the bundled model (docs/attention.md).
#define SHARE (1.0f / 32)
enum {
    MIN_KEYS = 64,
    FIRST_KEYS = 2, // of a text: they draw attention whatever they say (attention sinks: Xiao et al., arXiv 2309.17453)
};

static yalm_status check(const yalm_hybrid *o, yalm_error *error)
{
    if (!(o->ratio >= 0 && o->ratio <= 1))
        return error_set(error, YALM_USAGE, "hybrid ratio: found %g, expected above 0 to 1 (0: chosen)", (double)o->ratio);
    if (!(o->top_p >= 0 && o->top_p <= 1))
        return error_set(error, YALM_USAGE, "hybrid top-p: found %g, expected 0 (off) to 1", (double)o->top_p);
    if (!(o->codes >= 0 && o->codes <= 1))
        return error_set(error, YALM_USAGE, "hybrid codes: found %g, expected above 0 to 1 (0: chosen)", (double)o->codes);
    const struct {
        const char *name;
        int value;
    } numbers[] = {{"min k", o->min_k}, {"local", o->local}, {"from", o->from}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value < 0)
            return error_set(error, YALM_USAGE, "hybrid %s: found %d, expected 1 or more (0: chosen)", numbers[i].name,
                             numbers[i].value);
    if (o->tail < YALM_AUTO || o->tail > YALM_OFF)
        return error_set(error, YALM_USAGE, "hybrid tail: found %d, expected auto, on or off", (int)o->tail);
    return YALM_OK;
}

yalm_status hybrid_resolve(struct hybrid *hybrid, const yalm_hybrid *o, yalm_error *error)
{
    const yalm_status status = check(o, error);
    if (status == YALM_OK)
        *hybrid = (struct hybrid){
            .share = o->ratio > 0 ? o->ratio : SHARE,
            .min_k = o->min_k ? o->min_k : MIN_KEYS,
            .local = o->local,
            .first = FIRST_KEYS,
            .mass = o->top_p,
            .tail = o->tail != YALM_OFF,
            .codes = o->codes,
            .from = o->from,
        };
    return status;
}
