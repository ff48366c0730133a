// See shape.h: what two shapes have in common.
#include <math.h>

#include "grammar/numbers.h"
#include "grammar/pattern.h"
#include "grammar/shape.h"

void shape_add(struct shapes *s, struct shape *shape, struct part part)
{
    if (shape->n == SHAPE_MAX_PARTS)
        pool_refuse(&s->pool, "its conditions have more than %d alternatives", SHAPE_MAX_PARTS);
    shape->parts = pool_grow(&s->pool, shape->parts, shape->n, &shape->room, sizeof part);
    shape->parts[shape->n++] = part;
}

struct shape shape_any(struct shapes *s, unsigned types)
{
    static const struct cell all = {NULL, 0};
    struct shape shape = {0};
    for (int type = 0; type < N_TYPES; type++)
        if (types >> type & 1)
            shape_add(s, &shape,
                      (struct part){.type = (enum shape_type)type,
                                    .low = -INFINITY,
                                    .high = INFINITY,
                                    .most = -1,
                                    .cells = &all,
                                    .n_cells = 1});
    return shape;
}

int false_want(struct shapes *s)
{
    static const cJSON never = {.type = cJSON_False};
    return want_of(s, &never, &never, -1, "", false);
}

int cell_want(struct shapes *s, const struct part *part, const char *key)
{
    for (int i = 0; i < part->n_cells; i++)
        if (part->cells[i].keys == NULL || dfa_takes(part->cells[i].keys, key))
            return part->cells[i].want;
    return false_want(s);
}

// The properties of both: those of `a`, and behind them the others of `b`. False where one cannot be that must.
static bool meet_properties(struct shapes *s, const struct part *a, const struct part *b, struct part *out)
{
    struct property *named = pool_take(&s->pool, (size_t)(a->n_named + b->n_named + 1) * sizeof *named);
    int n = 0;
    pool_work(&s->pool, a->n_named + b->n_named);
    for (int i = 0; i < b->n_named; i++)
        s->places[b->named[i].name] = i + 1;
    for (int i = 0; i < a->n_named; i++) {
        int *place = &s->places[a->named[i].name];
        const struct property *other = *place ? &b->named[*place - 1] : NULL;
        *place = 0;
        named[n] = a->named[i];
        named[n].required |= other && other->required;
        named[n].want = want_both(s, named[n].want, other ? other->want : cell_want(s, b, named[n].key));
        n++;
    }
    for (int i = 0; i < b->n_named; i++)
        if (s->places[b->named[i].name]) {
            named[n] = b->named[i];
            named[n].want = want_both(s, named[n].want, cell_want(s, a, named[n].key));
            s->places[named[n++].name] = 0;
        }
    for (int i = 0; i < n; i++)
        if (named[i].want && want_is_impossible(s, named[i].want)) {
            if (named[i].required)
                return false;
            named[i].want = false_want(s);
        }
    out->named = named;
    out->n_named = n;
    return true;
}

static bool meet_objects(struct shapes *s, const struct part *a, const struct part *b, struct part *out)
{
    if (!meet_properties(s, a, b, out))
        return false;
    struct cell *cells = pool_take(&s->pool, ((size_t)a->n_cells * (size_t)b->n_cells + 1) * sizeof *cells);
    out->n_cells = 0;
    for (int i = 0; i < a->n_cells; i++)
        for (int k = 0; k < b->n_cells; k++) {
            const struct dfa *x = a->cells[i].keys, *y = b->cells[k].keys;
            const struct dfa *keys = x && y ? dfa_meet(&s->pool, x, y) : x ? x : y;
            if (keys == NULL || keys->n > 0)
                cells[out->n_cells++] = (struct cell){keys, want_both(s, a->cells[i].want, b->cells[k].want)};
        }
    if (out->n_cells > 64)
        pool_refuse(&s->pool, "more than 64 kinds of keys by their patterns");
    out->listed = a->listed || b->listed;
    out->open = a->open || b->open;
    out->cells = cells;
    return true;
}

static bool meet_arrays(struct shapes *s, const struct part *a, const struct part *b, struct part *out)
{
    const int n = a->n_first > b->n_first ? a->n_first : b->n_first;
    int *first = pool_take(&s->pool, ((size_t)n + 1) * sizeof *first);
    for (int i = 0; i < n; i++)
        first[i] = want_both(s, i < a->n_first ? a->first[i] : a->rest, i < b->n_first ? b->first[i] : b->rest);
    out->first = first;
    out->n_first = n;
    out->rest = want_both(s, a->rest, b->rest);
    for (int i = 0; i < n && i < out->least; i++)
        if (want_is_impossible(s, first[i]))
            return false;
    return true;
}

static bool meet_numbers(const struct part *a, const struct part *b, struct part *out)
{
    out->integer = a->integer || b->integer;
    const struct part *low = a->low > b->low || (a->low == b->low && a->low_open) ? a : b;
    const struct part *high = a->high < b->high || (a->high == b->high && a->high_open) ? a : b;
    out->low = low->low;
    out->low_open = low->low_open;
    out->high = high->high;
    out->high_open = high->high_open;
    if (out->integer && isfinite(out->low) && (out->low != ceil(out->low) || out->low_open)) {
        out->low = floor(out->low) + 1;
        out->low_open = false;
    }
    if (out->integer && isfinite(out->high) && (out->high != floor(out->high) || out->high_open)) {
        out->high = ceil(out->high) - 1;
        out->high_open = false;
    }
    return out->low < out->high || (out->low == out->high && !out->low_open && !out->high_open);
}

// The texts of a part that is numbers.
const struct dfa *numbers_of(struct shapes *s, const struct part *part)
{
    struct pool *pool = &s->pool;
    const struct dfa *text = numbers_all(pool, part->integer);
    if (part->low > -1e20)
        text = dfa_meet(pool, text, numbers_compare(pool, part->low, part->low_open ? ABOVE : ABOVE | EQUAL));
    if (part->high < 1e20)
        text = dfa_meet(pool, text, numbers_compare(pool, part->high, part->high_open ? BELOW : BELOW | EQUAL));
    if (part->low == part->high) // one number: without zeros that say nothing, but the first behind the point
        text = dfa_meet(pool, text, pattern_read(pool, "^-?\\d+(\\.0|\\.\\d*[1-9])?$"));
    return part->text ? dfa_meet(pool, text, part->text) : text;
}

static bool meet_parts(struct shapes *s, const struct part *a, const struct part *b, struct part *out)
{
    *out = *a;
    out->least = a->least > b->least ? a->least : b->least;
    out->most = a->most < 0 || (b->most >= 0 && b->most < a->most) ? b->most : a->most;
    out->unique |= b->unique;
    if (out->most >= 0 && out->most < out->least)
        return false;
    out->text = a->text && b->text && a->text != b->text ? dfa_meet(&s->pool, a->text, b->text) : a->text ? a->text : b->text;
    if (out->text && out->text->n == 0)
        return false;
    if (a->type == NUMBER_TYPE)
        return meet_numbers(a, b, out) && (out->text == NULL || numbers_of(s, out)->n > 0);
    if (a->type == STRING_TYPE && out->text && (out->least > 0 || out->most >= 0)) {
        out->text = dfa_meet(&s->pool, out->text, dfa_lengths(&s->pool, out->least, out->most));
        out->least = 0;
        out->most = -1;
        return out->text->n > 0;
    }
    if (a->type == ARRAY_TYPE)
        return meet_arrays(s, a, b, out);
    return a->type != OBJECT_TYPE || meet_objects(s, a, b, out);
}

struct shape shape_meet(struct shapes *s, const struct shape *a, const struct shape *b)
{
    struct shape met = {0};
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++) {
            struct part part;
            pool_work(&s->pool, 1);
            if (a->parts[i].type == b->parts[k].type && meet_parts(s, &a->parts[i], &b->parts[k], &part))
                shape_add(s, &met, part);
        }
    return met;
}
