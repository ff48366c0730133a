#include "engine/hybrid.h"

#include "engine/settings.h"

// Defaults, for quality: 1/32 of the keys and the mean value for the rest stay within a quarter of a per cent of dense attention's perplexity on
// the bundled model (docs/attention.md).
#define SHARE (1.0f / 32)
enum {
    MIN_KEYS = 64,
    FIRST_KEYS = 2, // of a text: they draw attention whatever they say (attention sinks: Xiao et al., arXiv 2309.17453)
};

yalm_status hybrid_resolve(struct hybrid *hybrid, const yalm_session_options *options, yalm_error *error)
{
    struct settings settings;
    const yalm_status status = settings_read(&settings, options, error);
    const struct hybrid_settings *o = &settings.hybrid;
    if (status == YALM_OK)
        *hybrid = (struct hybrid){
            .share = o->ratio > 0 ? o->ratio : SHARE,
            .min_k = o->min_k ? o->min_k : MIN_KEYS,
            .local = o->local,
            .first = FIRST_KEYS,
            .mass = o->top_p,
            .tail = o->tail != SWITCH_OFF,
            .codes = o->codes,
            .from = o->from,
        };
    return status;
}
