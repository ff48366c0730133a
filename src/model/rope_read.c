// Reads RoPE's settings from the metadata (docs/format.md, "rope").

#include <stdio.h>
#include <string.h>

#include "model/rope.h"

// They only have to keep double arithmetic away from overflow and zero.
static const double max_factor = 1e9, max_theta = 1e18, min_positive = 1e-9;

enum { TYPES = ROPE_LONG + 1, MOST_NUMBERS = 6, MOST_MEMBERS = MOST_NUMBERS + 5 };

static const char *const types[TYPES] = {"default", "linear", "llama3", "yarn", "longrope"};

struct number {
    const char *key; // NULL: no more
    size_t at;       // in struct rope_config
    double min;
};
#define NUMBER(member, min)                                                                                                    \
    {                                                                                                                          \
#member, offsetof(struct rope_config, member), min                                                                     \
    }

static const struct number numbers[TYPES][MOST_NUMBERS] = {
    [ROPE_LINEAR] = {NUMBER(factor, 1)},
    [ROPE_LLAMA3] = {NUMBER(factor, 1), NUMBER(low_freq_factor, 1e-9), NUMBER(high_freq_factor, 1e-9),
                     NUMBER(original_context, 1)},
    [ROPE_YARN] = {NUMBER(factor, 1), NUMBER(original_context, 1), NUMBER(beta_fast, 1e-9), NUMBER(beta_slow, 1e-9),
                   NUMBER(attention_factor, 1e-9)},
    [ROPE_LONG] = {NUMBER(original_context, 1), NUMBER(attention_factor, 1e-9)},
};

static yalm_status refuse(const struct json_object *o, const char *key, double found, const char *expected, yalm_error *error)
{
    return error_set(error, YALM_BAD_MODEL, "%s: metadata: '%s.%s': found %g, expected %s", o->path, o->where, key, found,
                     expected);
}

static yalm_status read_type(struct rope_config *rope, const struct json_object *o, yalm_error *error)
{
    const char *type;
    const yalm_status status = json_get_string(&type, o, "type", error);
    if (status != YALM_OK)
        return status;
    int t = 0;
    while (t < TYPES && strcmp(type, types[t]) != 0)
        t++;
    if (t == TYPES)
        return error_set(error, YALM_BAD_MODEL,
                         "%s: metadata: '%s.type': found '%s', expected default, linear, llama3, yarn or longrope", o->path,
                         o->where, json_show(type).text);
    rope->type = (enum rope_type)t;
    return YALM_OK;
}

static yalm_status only_members(const struct rope_config *rope, const struct json_object *o, yalm_error *error)
{
    const char *members[MOST_MEMBERS] = {"type", "theta", "rotary_dim"};
    int n = 3;
    for (const struct number *m = numbers[rope->type]; m < numbers[rope->type] + MOST_NUMBERS && m->key; m++)
        members[n++] = m->key;
    if (rope->type == ROPE_YARN)
        members[n++] = "truncate";
    if (rope->type == ROPE_LONG) {
        members[n++] = "short_factors";
        members[n++] = "long_factors";
    }
    return json_only(o, members, n, error);
}

// Of longrope: n numbers.
static yalm_status read_factors(double *factors, int n, const struct json_object *o, const char *key, yalm_error *error)
{
    const cJSON *list;
    const yalm_status status = json_get_array(&list, o, key, error);
    if (status != YALM_OK)
        return status;
    int found = 0;
    for (const cJSON *node = list->child; node; node = node->next, found++)
        if (found == n || !cJSON_IsNumber(node) || !(node->valuedouble >= min_positive && node->valuedouble <= max_factor))
            break;
        else
            factors[found] = node->valuedouble;
    if (found != n || cJSON_GetArraySize(list) != n)
        return error_set(error, YALM_BAD_MODEL, "%s: metadata: '%s.%s': expected %d numbers from %g to %g", o->path, o->where,
                         key, n, min_positive, max_factor);
    return YALM_OK;
}

static yalm_status read_rotary_dim(struct rope_config *rope, const struct json_object *o, int head_dim, yalm_error *error)
{
    int64_t dim;
    if (!json_has(o, "rotary_dim"))
        return YALM_OK;
    const yalm_status status = json_get_integer(&dim, o, "rotary_dim", 2, head_dim, error);
    if (status == YALM_OK && dim % 2 != 0)
        return refuse(o, "rotary_dim", (double)dim, "an even number", error);
    rope->rotary_dim = (int)dim;
    return status;
}

static yalm_status read_long(struct rope_config *rope, const struct json_object *o, int head_dim, yalm_error *error)
{
    const int n = (rope->rotary_dim ? rope->rotary_dim : head_dim) / 2;
    if (n > ROPE_MAX_FACTORS)
        return error_set(error, YALM_BAD_MODEL, "%s: metadata: '%s': found longrope of %d components, expected at most %d",
                         o->path, o->where, 2 * n, 2 * ROPE_MAX_FACTORS);
    const yalm_status status = read_factors(rope->short_factors, n, o, "short_factors", error);
    return status ?: read_factors(rope->long_factors, n, o, "long_factors", error);
}

// Checks what no single number tells.
static yalm_status check(const struct rope_config *rope, const struct json_object *o, yalm_error *error)
{
    char least[48];
    snprintf(least, sizeof least, "more than low_freq_factor = %g", rope->low_freq_factor);
    if (rope->type == ROPE_LLAMA3 && rope->high_freq_factor <= rope->low_freq_factor)
        return refuse(o, "high_freq_factor", rope->high_freq_factor, least, error);
    if (rope->type == ROPE_YARN && rope->theta <= 1) // divided by its logarithm
        return refuse(o, "theta", rope->theta, "more than 1 with yarn", error);
    return YALM_OK;
}

yalm_status rope_read(struct rope_config *rope, const struct json_object *parent, const char *where, int head_dim,
                      yalm_error *error)
{
    struct json_object o;
    yalm_status status = json_get_object(&o, parent, "rope", where, error);
    status = status ?: read_type(rope, &o, error);
    status = status ?: only_members(rope, &o, error);
    status = status ?: json_get_number(&rope->theta, &o, "theta", min_positive, max_theta, error);
    status = status ?: read_rotary_dim(rope, &o, head_dim, error);
    if (status != YALM_OK)
        return status;
    for (const struct number *m = numbers[rope->type]; m < numbers[rope->type] + MOST_NUMBERS && m->key; m++) {
        status = json_get_number((double *)((char *)rope + m->at), &o, m->key, m->min, max_factor, error);
        if (status != YALM_OK)
            return status;
    }
    if (rope->type == ROPE_YARN)
        status = json_get_bool(&rope->truncate, &o, "truncate", error);
    if (rope->type == ROPE_LONG)
        status = read_long(rope, &o, head_dim, error);
    return status ?: check(rope, &o, error);
}

bool rope_equal(const struct rope_config *a, const struct rope_config *b)
{
    for (int i = 0; i < ROPE_MAX_FACTORS; i++)
        if (a->short_factors[i] != b->short_factors[i] || a->long_factors[i] != b->long_factors[i])
            return false;
    return a->type == b->type && a->rotary_dim == b->rotary_dim && a->theta == b->theta && a->factor == b->factor &&
           a->low_freq_factor == b->low_freq_factor && a->high_freq_factor == b->high_freq_factor &&
           a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow && a->attention_factor == b->attention_factor &&
           a->truncate == b->truncate && a->original_context == b->original_context;
}
