#include "engine/settings.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "util/error.h"

#define AT(field) offsetof(struct settings, field)
#define SWITCHES  "auto,on,off"
#define MOST      (INT_MAX / 2)

// clang-format off
const struct setting settings_known[] = {
    {"sparq.r", AT(sparq.r), 65536, NULL, false},
    {"sparq.k", AT(sparq.k), MOST, NULL, false},
    {"sparq.min_k", AT(sparq.min_k), MOST, NULL, false},
    {"sparq.local", AT(sparq.local), MOST, NULL, false},
    {"sparq.from", AT(sparq.from), MOST, NULL, false},
    {"sparq.copy", AT(sparq.copy), 0, "int8,fp16,q4", false},
    {"sparq.tail", AT(sparq.tail), 0, SWITCHES, false},
    {"nomad.skip", AT(nomad.skip), 0.99, NULL, true},
    {"hybrid.min_k", AT(hybrid.min_k), MOST, NULL, false},
    {"hybrid.local", AT(hybrid.local), MOST, NULL, false},
    {"hybrid.from", AT(hybrid.from), MOST, NULL, false},
    {"hybrid.codes", AT(hybrid.codes), 1, NULL, true},
    {"hybrid.draw", AT(hybrid.draw), 0, SWITCHES, false},
};
// clang-format on
const int n_settings_known = sizeof settings_known / sizeof *settings_known;

static const struct setting *find(const char *text, size_t length)
{
    for (int i = 0; i < n_settings_known; i++)
        if (strlen(settings_known[i].key) == length && memcmp(settings_known[i].key, text, length) == 0)
            return &settings_known[i];
    return NULL;
}

static bool read_choice(const struct setting *setting, const char *value, int *to)
{
    const char *at = setting->choices;
    for (int i = 0;; i++, at++) {
        const size_t length = strcspn(at, ",");
        if (strlen(value) == length && memcmp(value, at, length) == 0) {
            *to = i;
            return true;
        }
        at += length;
        if (*at == 0)
            return false;
    }
}

// Decimals and nothing else, or two with a stroke between.
static bool read_number(const char *value, double *number)
{
    double divisor = 1;
    char *end = NULL;
    if (value[0] < '0' || value[0] > '9' || value[strspn(value, "0123456789.e-+/")] != 0)
        return false;
    *number = strtod(value, &end);
    if (*end == '/' && end[1] >= '0' && end[1] <= '9')
        divisor = strtod(end + 1, &end);
    *number /= divisor;
    return *end == 0 && isfinite(*number);
}

static yalm_status read_one(struct settings *settings, const char *text, yalm_error *error)
{
    const char *equals = strchr(text, '=');
    const struct setting *setting = equals ? find(text, (size_t)(equals - text)) : NULL;
    if (!setting)
        return error_set(error, YALM_USAGE, "setting '%s': expected KEY=VALUE with a key that `yalm --set help` lists", text);
    void *field = (char *)settings + setting->offset;
    double number;
    if (setting->choices)
        return read_choice(setting, equals + 1, field)
                   ? YALM_OK
                   : error_set(error, YALM_USAGE, "setting '%s': expected one of %s", text, setting->choices);
    if (!read_number(equals + 1, &number) || number > setting->most || (!setting->is_ratio && number != floor(number)))
        return error_set(error, YALM_USAGE, "setting '%s': expected %s from 0 to %g", text,
                         setting->is_ratio ? "a number or a fraction" : "an integer", setting->most);
    if (setting->is_ratio)
        *(float *)field = (float)number;
    else
        *(int *)field = (int)number;
    return YALM_OK;
}

yalm_status settings_read(struct settings *settings, const yalm_session_options *options, yalm_error *error)
{
    const float ratio = options->attention_ratio;
    memset(settings, 0, sizeof *settings);
    if (!(ratio >= 0 && ratio <= 1))
        return error_set(error, YALM_USAGE, "attention ratio: found %g, expected above 0 to 1 (0: chosen)", (double)ratio);
    settings->sparq.ratio = settings->hybrid.ratio = ratio;
    for (int i = 0; i < options->n_settings; i++) {
        const yalm_status status = read_one(settings, options->settings[i], error);
        if (status != YALM_OK)
            return status;
    }
    return YALM_OK;
}
