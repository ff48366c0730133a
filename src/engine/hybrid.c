#include "engine/hybrid.h"

#include "engine/settings.h"

// Defaults, for quality on real models (docs/attention.md has what they cost).
#define SHARE      (1.0f / 8)
#define MOST_SHARE (3.0f / 16)
enum {
    MIN_KEYS = 64,
    USUAL_KEYS = 768,
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
            .most_share = MOST_SHARE,
            .usual = o->ratio > 0 ? 0 : USUAL_KEYS,
            .min_k = o->min_k ? o->min_k : MIN_KEYS,
            .local = o->local,
            .first = FIRST_KEYS,
            .codes = o->codes,
            .draw = o->draw,
            .from = o->from,
        };
    return status;
}
