// See shape.h: the keywords about a document itself.
#include <math.h>
#include <string.h>

#include "grammar/numbers.h"
#include "grammar/pattern.h"
#include "grammar/shape_keywords.h"

_Noreturn void keyword_refuse(struct shapes *s, int schema, const char *key, const char *what)
{
    s->at = schema;
    pool_refuse(&s->pool, "'%s': %s", key, what);
}

// ---------------------------------------------------------------- types and values

static unsigned type_bit(struct shapes *s, int schema, const cJSON *type, bool *integer)
{
    static const struct {
        const char *name;
        unsigned types;
    } names[] = {{"null", 1 << NULL_TYPE},     {"boolean", 1 << FALSE_TYPE | 1 << TRUE_TYPE},
                 {"number", 1 << NUMBER_TYPE}, {"integer", 1 << NUMBER_TYPE},
                 {"string", 1 << STRING_TYPE}, {"array", 1 << ARRAY_TYPE},
                 {"object", 1 << OBJECT_TYPE}};
    if (!cJSON_IsString(type))
        keyword_refuse(s, schema, "type", "expected a name, or a list of names");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, type->valuestring) == 0) {
            *integer |= i == 3;
            return names[i].types | (i == 2 ? 1U << N_TYPES : 0);
        }
    s->at = schema;
    pool_refuse(&s->pool, "'type': found '%.40s'", type->valuestring);
}

unsigned keyword_types(struct shapes *s, int schema, bool *integer)
{
    const cJSON *type = shape_member(s->infos[schema].schema, "type"), *each;
    unsigned types = 0;
    *integer = false;
    if (type == NULL)
        return ALL_TYPES;
    if (cJSON_IsArray(type)) {
        cJSON_ArrayForEach(each, type) types |= type_bit(s, schema, each, integer);
    } else
        types = type_bit(s, schema, type, integer);
    *integer &= !(types >> N_TYPES);
    return types & ALL_TYPES;
}

// The one value as a shape. A list or an object becomes conditions on its parts.
struct part keyword_value(struct shapes *s, int schema, const cJSON *value)
{
    static const enum shape_type types[] = {STRING_TYPE, ARRAY_TYPE, OBJECT_TYPE};
    const enum shape_type type = cJSON_IsNull(value)     ? NULL_TYPE
                                 : cJSON_IsFalse(value)  ? FALSE_TYPE
                                 : cJSON_IsTrue(value)   ? TRUE_TYPE
                                 : cJSON_IsNumber(value) ? NUMBER_TYPE
                                                         : types[cJSON_IsArray(value)    ? 1
                                                                 : cJSON_IsObject(value) ? 2
                                                                                         : 0];
    struct part part = shape_any(s, 1U << type).parts[0];
    const int n = cJSON_GetArraySize(value);
    int *first = pool_take(&s->pool, ((size_t)n + 1) * sizeof *first), i = 0;
    struct property *named = pool_take(&s->pool, ((size_t)n + 1) * sizeof *named);
    if (type == NUMBER_TYPE && !keyword_exact(value->valuedouble))
        keyword_refuse(s, schema, "enum", "a number beyond 2^53 is not held exactly");
    if (type == NUMBER_TYPE)
        part.low = part.high = value->valuedouble;
    if (type == STRING_TYPE)
        part.text = dfa_words(&s->pool, (const char *const[]){value->valuestring}, 1);
    if (type != ARRAY_TYPE && type != OBJECT_TYPE)
        return part;
    for (const cJSON *each = value->child; each; each = each->next, i++) {
        cJSON *made = cJSON_CreateObject();
        cJSON_AddItemReferenceToObject(made, "const", (cJSON *)each);
        first[i] = want_part(s, schema, shape_made(s, made), "const", false);
        if (type == OBJECT_TYPE) {
            struct property *property = property_in(s, named, &part.n_named, each->string);
            *property = property_of(s, each->string, first[i], true); // of a key that comes again the last one counts
        }
    }
    property_end(s, named, part.n_named);
    if (type == ARRAY_TYPE) {
        part.first = first;
        part.n_first = part.least = part.most = n;
    } else {
        part.named = named;
        part.n_cells = 0;
    }
    return part;
}

struct dfa *keyword_strings(struct shapes *s, const cJSON *values)
{
    const char **words = pool_take(&s->pool, ((size_t)cJSON_GetArraySize(values) + 1) * sizeof *words);
    const cJSON *each;
    int n = 0;
    cJSON_ArrayForEach(each, values)
    {
        if (cJSON_IsString(each))
            words[n++] = each->valuestring;
    }
    return n ? dfa_words(&s->pool, words, n) : NULL;
}

static struct shape meet_values(struct shapes *s, int schema, const struct shape *shape, const cJSON *values)
{
    struct shape listed = {0};
    const cJSON *each;
    if (!cJSON_IsArray(values) || values->child == NULL)
        keyword_refuse(s, schema, "enum", "expected a list of values");
    const struct dfa *strings = keyword_strings(s, values);
    if (strings) {
        struct part part = shape_any(s, 1U << STRING_TYPE).parts[0];
        part.text = strings;
        shape_add(s, &listed, part);
    }
    cJSON_ArrayForEach(each, values)
    {
        if (!cJSON_IsString(each))
            shape_add(s, &listed, keyword_value(s, schema, each));
    }
    return shape_meet(s, shape, &listed);
}

// ---------------------------------------------------------------- each type's keywords

void keyword_size(struct shapes *s, int schema, const char *key, int *value)
{
    const cJSON *number = shape_member(s->infos[schema].schema, key);
    if (number == NULL)
        return;
    if (!cJSON_IsNumber(number) || !(number->valuedouble >= 0 && number->valuedouble == floor(number->valuedouble)))
        keyword_refuse(s, schema, key, "expected an integer from 0 to 100000");
    if (number->valuedouble > 100000 && strncmp(key, "max", 3) != 0)
        keyword_refuse(s, schema, key, "expected an integer from 0 to 100000");
    *value = number->valuedouble > 100000 ? 100000 : (int)number->valuedouble;
}

static bool read_number(struct shapes *s, int schema, const char *key, double *value)
{
    const cJSON *number = shape_member(s->infos[schema].schema, key);
    if (number == NULL || cJSON_IsBool(number))
        return false;
    if (!cJSON_IsNumber(number) || !isfinite(number->valuedouble))
        keyword_refuse(s, schema, key, "expected a number that a double holds");
    *value = number->valuedouble;
    if (!keyword_exact(*value)) // what was written may lie beside it: the neighbour within
        *value = nextafter(*value, strstr(key, "ax") ? -INFINITY : INFINITY);
    return true;
}

void keyword_numbers(struct shapes *s, int schema, struct part *part)
{
    const cJSON *json = s->infos[schema].schema;
    double value = 0;
    if (read_number(s, schema, "minimum", &part->low))
        part->low_open = cJSON_IsTrue(shape_member(json, "exclusiveMinimum")); // draft 4
    if (read_number(s, schema, "maximum", &part->high))
        part->high_open = cJSON_IsTrue(shape_member(json, "exclusiveMaximum"));
    if (read_number(s, schema, "exclusiveMinimum", &value) && value >= part->low) {
        part->low = value;
        part->low_open = true;
    }
    if (read_number(s, schema, "exclusiveMaximum", &value) && value <= part->high) {
        part->high = value;
        part->high_open = true;
    }
    if (shape_member(json, "multipleOf")) {
        read_number(s, schema, "multipleOf", &value);
        if (!part->integer || value != 1)
            part->text = numbers_multiples(&s->pool, value);
    }
}

static const struct dfa *read_pattern(struct shapes *s, int schema, const char *key)
{
    const cJSON *text = shape_member(s->infos[schema].schema, key);
    s->at = schema;
    if (text == NULL || (strcmp(key, "format") == 0 && !cJSON_IsString(text)))
        return NULL;
    if (!cJSON_IsString(text))
        keyword_refuse(s, schema, key, "expected a string");
    return *key == 'p' ? pattern_read(&s->pool, text->valuestring) : format_read(&s->pool, text->valuestring);
}

void keyword_text(struct shapes *s, int schema, struct part *part)
{
    const struct dfa *pattern = read_pattern(s, schema, "pattern"), *format = read_pattern(s, schema, "format");
    part->text = pattern && format ? dfa_meet(&s->pool, pattern, format) : pattern ? pattern : format;
    keyword_size(s, schema, "minLength", &part->least);
    keyword_size(s, schema, "maxLength", &part->most);
}

static void read_arrays(struct shapes *s, int schema, struct part *part)
{
    const cJSON *json = s->infos[schema].schema, *items = shape_member(json, "items"), *each,
                *first = shape_member(json, "prefixItems"), *unique = shape_member(json, "uniqueItems");
    const char *rest = "items";
    if (cJSON_IsArray(items)) { // the names of older drafts
        first = items;
        rest = "additionalItems";
        items = shape_member(json, rest);
    }
    if (first && !cJSON_IsArray(first))
        keyword_refuse(s, schema, "prefixItems", "expected a list of schemas");
    int *wants = pool_take(&s->pool, ((size_t)cJSON_GetArraySize(first) + 1) * sizeof *wants);
    cJSON_ArrayForEach(each, first) wants[part->n_first++] = want_part(s, schema, each, "prefixItems", false);
    part->first = wants;
    part->rest = items ? want_part(s, schema, items, rest, false) : 0;
    keyword_size(s, schema, "minItems", &part->least);
    keyword_size(s, schema, "maxItems", &part->most);
    part->unique = cJSON_IsTrue(unique);
}

const cJSON *keyword_required(struct shapes *s, int schema)
{
    const cJSON *names = shape_member(s->infos[schema].schema, "required"), *each;
    if (names && !cJSON_IsArray(names))
        keyword_refuse(s, schema, "required", "expected a list of names");
    cJSON_ArrayForEach(each, names)
    {
        if (!cJSON_IsString(each))
            keyword_refuse(s, schema, "required", "expected a list of names");
    }
    return names;
}

// The keys that the schema does not name, by the patterns that they fit.
static void read_cells(struct shapes *s, int schema, struct part *part)
{
    const cJSON *json = s->infos[schema].schema, *others = shape_member(json, "additionalProperties"), *each;
    const int other = others ? want_part(s, schema, others, "additionalProperties", false) : 0;
    const cJSON *patterns = shape_member(json, "patternProperties");
    const int n_patterns = cJSON_GetArraySize(patterns);
    if (patterns && !cJSON_IsObject(patterns))
        keyword_refuse(s, schema, "patternProperties", "expected an object of schemas");
    if (n_patterns > 6)
        keyword_refuse(s, schema, "patternProperties", "expected at most 6");
    struct cell *cells = pool_take(&s->pool, ((size_t)1 << n_patterns) * sizeof *cells);
    bool matched[64] = {false};
    int n = 1;
    cJSON_ArrayForEach(each, patterns)
    {
        s->at = schema;
        const struct dfa *keys = pattern_read(&s->pool, each->string);
        const int want = want_part(s, schema, each, each->string, false), before = n;
        for (int i = 0; i < before; i++) {
            const struct dfa *all = cells[i].keys ? cells[i].keys : dfa_any(&s->pool);
            const struct dfa *within = dfa_meet(&s->pool, all, keys);
            cells[i].keys = dfa_minus(&s->pool, all, keys);
            matched[n] = true;
            cells[n++] = (struct cell){within, want_both(s, cells[i].want, want)};
        }
    }
    for (int i = 0; i < n; i++)
        if (!matched[i])
            cells[i].want = other;
    part->listed = cJSON_GetArraySize(shape_member(json, "properties")) > 0;
    part->open = others || n_patterns;
    part->cells = cells;
    part->n_cells = 0;
    for (int i = 0; i < n; i++)
        if (cells[i].keys == NULL || cells[i].keys->n > 0)
            cells[part->n_cells++] = cells[i];
}

// Keys whose text the schema of names does not take must not come.
static void meet_names(struct shapes *s, int schema, struct part *part)
{
    const cJSON *names = shape_member(s->infos[schema].schema, "propertyNames");
    if (names == NULL)
        return;
    const struct shape shape = s->read(s, want_part(s, schema, names, "propertyNames", false));
    struct part all = shape_any(s, 1U << OBJECT_TYPE).parts[0], met = *part;
    const struct dfa *keys = NULL;
    int n = 0;
    for (int i = 0; i < shape.n; i++)
        if (shape.parts[i].type == STRING_TYPE && n++ == 0)
            keys = dfa_meet(&s->pool, shape.parts[i].text ? shape.parts[i].text : dfa_any(&s->pool),
                            dfa_lengths(&s->pool, shape.parts[i].least, shape.parts[i].most));
    if (n > 1)
        keyword_refuse(s, schema, "propertyNames", "alternatives are not read here");
    const struct cell cell = {keys, 0};
    struct cell *kept = pool_take(&s->pool, sizeof *kept);
    *kept = cell;
    all.cells = kept;
    all.n_cells = n;
    const struct shape a = {part, 1, 1}, b = {&all, 1, 1}, both = shape_meet(s, &a, &b);
    if (both.n == 0)
        keyword_refuse(s, schema, "propertyNames", "a key that is required is forbidden");
    met = both.parts[0];
    *part = met;
}

static void read_objects(struct shapes *s, int schema, struct part *part)
{
    const cJSON *json = s->infos[schema].schema, *properties = shape_member(json, "properties"), *each;
    const cJSON *required = keyword_required(s, schema);
    if (properties && !cJSON_IsObject(properties))
        keyword_refuse(s, schema, "properties", "expected an object of schemas");
    struct property *named = pool_take(
        &s->pool, ((size_t)cJSON_GetArraySize(properties) + (size_t)cJSON_GetArraySize(required) + 1) * sizeof *named);
    read_cells(s, schema, part);
    cJSON_ArrayForEach(each, properties)
    {
        int want = want_part(s, schema, each, each->string, false);
        for (int i = 0; i < part->n_cells && part->n_cells > 1; i++) // the patterns that it fits hold, too
            if (part->cells[i].keys && cJSON_GetArraySize(shape_member(json, "patternProperties")) > 0 &&
                dfa_takes(part->cells[i].keys, each->string)) {
                const cJSON *pattern;
                cJSON_ArrayForEach(pattern, shape_member(json, "patternProperties"))
                {
                    if (dfa_takes(pattern_read(&s->pool, pattern->string), each->string))
                        want = want_both(s, want, want_part(s, schema, pattern, pattern->string, false));
                }
            }
        property_in(s, named, &part->n_named, each->string)->want = want;
    }
    part->named = named;
    cJSON_ArrayForEach(each, required)
    {
        const int before = part->n_named;
        struct property *property = property_in(s, named, &part->n_named, each->valuestring);
        property->required = true;
        if (part->n_named > before)
            property->want = cell_want(s, part, each->valuestring);
    }
    property_end(s, named, part->n_named);
    keyword_size(s, schema, "minProperties", &part->least);
    keyword_size(s, schema, "maxProperties", &part->most);
    meet_names(s, schema, part);
}

// ---------------------------------------------------------------- the whole

void keyword_check(struct shapes *s, int schema)
{
    static const char *const unread[] = {
        "contains",      "minContains", "maxContains", "unevaluatedItems", "$dynamicRef", "unevaluatedProperties",
        "$recursiveRef", "divisibleBy", "disallow",    "extends"};
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        if (shape_member(s->infos[schema].schema, unread[i])) {
            s->at = schema;
            pool_refuse(&s->pool, "the keyword '%s' is not read here", unread[i]);
        }
}

struct shape shape_of_keywords(struct shapes *s, int schema)
{
    const cJSON *json = s->infos[schema].schema, *single = shape_member(json, "const");
    bool integer;
    keyword_check(s, schema);
    struct shape any = shape_any(s, keyword_types(s, schema, &integer)), shape = {0};
    for (int i = 0; i < any.n; i++) {
        struct part *part = &any.parts[i];
        part->integer = integer;
        s->at = schema;
        if (part->type == NUMBER_TYPE)
            keyword_numbers(s, schema, part);
        else if (part->type == STRING_TYPE)
            keyword_text(s, schema, part);
        else if (part->type == ARRAY_TYPE)
            read_arrays(s, schema, part);
        else if (part->type == OBJECT_TYPE)
            read_objects(s, schema, part);
        const struct shape one = {part, 1, 1}, met = shape_meet(s, &one, &one); // drops what cannot be
        if (met.n > 0)
            shape_add(s, &shape, met.parts[0]);
    }
    if (single) {
        cJSON *list = cJSON_CreateArray();
        cJSON_AddItemReferenceToArray(list, (cJSON *)single);
        shape = meet_values(s, schema, &shape, shape_made(s, list));
    }
    if (shape_member(json, "enum"))
        shape = meet_values(s, schema, &shape, shape_member(json, "enum"));
    return shape;
}
