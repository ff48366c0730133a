// What a session tells its caller beside results.

#include <stdio.h>

#include "engine/session.h"

void warn_of_cut(yalm_session *s)
{
    const int layer = s->options.warn && s->backend->cut_layer && !s->warned ? s->backend->cut_layer(s->state) : -1;
    if (layer < 0)
        return;
    char text[128];
    snprintf(text, sizeof text, "the KV cache cuts keys or values of layer %d to 65504, the most that fp16 holds: --kv fp32",
             layer);
    s->warned = true;
    s->options.warn(s->options.warn_context, text);
}
