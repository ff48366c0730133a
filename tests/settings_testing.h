// Settings of sessions, for tests that have them as numbers.
#pragma once
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "engine/settings.h"
#ifdef __cplusplus
}
#endif

__attribute__((unused)) static struct settings the_settings; // what SET() has set

// A text for each setting: the ratio apart, which is an option of its own. The texts last until seven more calls.
static inline void settings_use(yalm_session_options *options, const struct settings *s)
{
    static char texts[8][32][64];
    static const char *pointers[8][32];
    static int turn;
    turn = (turn + 1) % 8;
    options->settings = pointers[turn];
    options->n_settings = n_settings_known;
    for (int i = 0; i < n_settings_known; i++) {
        const struct setting *known = &settings_known[i];
        const char *field = (const char *)s + known->offset, *choice = known->choices;
        char *text = texts[turn][i];
        pointers[turn][i] = text;
        for (int n = choice ? *(const int *)field : 0; n > 0 && choice; n--)
            choice = strchr(choice, ',') ? strchr(choice, ',') + 1 : NULL;
        if (known->choices)
            snprintf(text, 64, "%s=%.*s", known->key, choice ? (int)strcspn(choice, ",") : 1, choice ? choice : "?");
        else if (known->is_ratio)
            snprintf(text, 64, "%s=%.9g", known->key, (double)*(const float *)field);
        else
            snprintf(text, 64, "%s=%d", known->key, *(const int *)field);
    }
}

// SET(options, hybrid.from, 1): that, and all that was set before.
#define SET(options, field, value) ((the_settings.field = (value)), settings_use(&(options), &the_settings))
#define SET_NONE(options)          (memset(&the_settings, 0, sizeof the_settings), settings_use(&(options), &the_settings))
