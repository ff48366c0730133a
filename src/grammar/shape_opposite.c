// See shape.h: the opposites of a schema's keywords.
#include <math.h>

#include "grammar/numbers.h"
#include "grammar/pattern.h"
#include "grammar/shape_keywords.h"

// All values but the listed ones.
static struct shape all_but(struct shapes *s, int schema, const cJSON *values)
{
    unsigned types = ALL_TYPES;
    const cJSON *each;
    const struct dfa *numbers = NULL;
    cJSON_ArrayForEach(each, values)
    {
        const enum shape_type type = keyword_value(s, schema, each).type;
        if (type == ARRAY_TYPE || type == OBJECT_TYPE)
            keyword_refuse(s, schema, "enum", "the opposite of lists and objects is not read here");
        if (type < NUMBER_TYPE)
            types &= ~(1U << type);
        if (type == NUMBER_TYPE) {
            const struct dfa *other = numbers_compare(&s->pool, each->valuedouble, BELOW | ABOVE);
            numbers = numbers ? dfa_meet(&s->pool, numbers, other) : other;
        }
    }
    struct shape shape = shape_any(s, types);
    const struct dfa *strings = keyword_strings(s, values);
    for (int i = 0; i < shape.n; i++) {
        if (shape.parts[i].type == NUMBER_TYPE)
            shape.parts[i].text = numbers;
        if (shape.parts[i].type == STRING_TYPE && strings)
            shape.parts[i].text = dfa_minus(&s->pool, dfa_any(&s->pool), strings);
    }
    return shape;
}

static void add_values(struct shapes *s, struct shape *to, const struct shape from)
{
    for (int i = 0; i < from.n; i++)
        shape_add(s, to, from.parts[i]);
}

static void oppose_strings(struct shapes *s, int schema, struct shape *shape)
{
    struct part read = shape_any(s, 1U << STRING_TYPE).parts[0], part = read;
    keyword_text(s, schema, &read);
    if (read.text) {
        part.text = dfa_minus(&s->pool, dfa_any(&s->pool), read.text);
        if (part.text->n > 0)
            shape_add(s, shape, part);
        part.text = NULL;
    }
    if (read.least > 0) {
        part.most = read.least - 1;
        shape_add(s, shape, part);
        part.most = -1;
    }
    if (read.most >= 0) {
        part.least = read.most + 1;
        shape_add(s, shape, part);
    }
}

static void oppose_numbers(struct shapes *s, int schema, struct shape *shape)
{
    struct part read = shape_any(s, 1U << NUMBER_TYPE).parts[0];
    const struct part number = read;
    keyword_numbers(s, schema, &read);
    if (read.text || !keyword_exact(isfinite(read.low) ? read.low : 0) || !keyword_exact(isfinite(read.high) ? read.high : 0))
        keyword_refuse(s, schema, "multipleOf", "the opposite of it, or of such bounds, is not read here");
    struct part part = number;
    part.high = read.low;
    part.high_open = !read.low_open;
    if (isfinite(read.low))
        shape_add(s, shape, part);
    part = number;
    part.low = read.high;
    part.low_open = !read.high_open;
    if (isfinite(read.high))
        shape_add(s, shape, part);
}

static void oppose_sizes(struct shapes *s, int schema, struct shape *shape, enum shape_type type, const char *low,
                         const char *high)
{
    int least = 0, most = -1;
    keyword_size(s, schema, low, &least);
    keyword_size(s, schema, high, &most);
    struct part part = shape_any(s, 1U << type).parts[0];
    part.most = least - 1;
    if (least > 0)
        shape_add(s, shape, part);
    part.most = -1;
    part.least = most + 1;
    if (most >= 0)
        shape_add(s, shape, part);
}

// Objects without a name that is required, or with a value that is not as it must be.
static void oppose_objects(struct shapes *s, int schema, struct shape *shape)
{
    const cJSON *json = s->infos[schema].schema, *each;
    struct property *named;
    struct part part = shape_any(s, 1U << OBJECT_TYPE).parts[0];
    const cJSON *properties = shape_member(json, "properties");
    if (properties && !cJSON_IsObject(properties))
        keyword_refuse(s, schema, "properties", "expected an object of schemas");
    part.n_named = 1;
    cJSON_ArrayForEach(each, keyword_required(s, schema))
    {
        part.named = named = pool_take(&s->pool, sizeof *named);
        *named = property_of(s, each->valuestring, false_want(s), false);
        shape_add(s, shape, part);
    }
    cJSON_ArrayForEach(each, properties)
    {
        const int want = want_part(s, schema, each, each->string, true);
        if (want_is_impossible(s, want))
            continue;
        part.named = named = pool_take(&s->pool, sizeof *named);
        *named = property_of(s, each->string, want, true);
        shape_add(s, shape, part);
    }
}

struct shape shape_of_opposite(struct shapes *s, int schema)
{
    const cJSON *json = s->infos[schema].schema, *single = shape_member(json, "const");
    bool integer;
    keyword_check(s, schema);
    for (const char *const *key = (const char *const[]){"items", "prefixItems", "additionalItems", "patternProperties",
                                                        "propertyNames", "uniqueItems", NULL};
         *key; key++)
        if (shape_member(json, *key))
            keyword_refuse(s, schema, *key, "its opposite is not read here");
    const cJSON *others = shape_member(json, "additionalProperties");
    if (others && !cJSON_IsTrue(others) && !(cJSON_IsObject(others) && others->child == NULL))
        keyword_refuse(s, schema, "additionalProperties", "its opposite is not read here");
    const unsigned types = keyword_types(s, schema, &integer);
    struct shape shape = shape_any(s, ALL_TYPES & ~types);
    if (integer) {
        struct part part = shape_any(s, 1U << NUMBER_TYPE).parts[0];
        part.text = pattern_read(&s->pool, "^-?(0|[1-9][0-9]*)\\.[0-9]*[1-9][0-9]*$");
        shape_add(s, &shape, part);
    }
    if (single) {
        cJSON *list = cJSON_CreateArray();
        cJSON_AddItemReferenceToArray(list, (cJSON *)single);
        add_values(s, &shape, all_but(s, schema, shape_made(s, list)));
    }
    if (shape_member(json, "enum"))
        add_values(s, &shape, all_but(s, schema, shape_member(json, "enum")));
    oppose_strings(s, schema, &shape);
    oppose_numbers(s, schema, &shape);
    oppose_sizes(s, schema, &shape, ARRAY_TYPE, "minItems", "maxItems");
    oppose_sizes(s, schema, &shape, OBJECT_TYPE, "minProperties", "maxProperties");
    oppose_objects(s, schema, &shape);
    return shape;
}
