// See shape.h: references, and the keywords that put schemas together.
#include "grammar/shape.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64 };

// ---------------------------------------------------------------- references

static int hexadecimal(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : isxdigit((unsigned char)c) ? (c | 32) - 'a' + 10 : -1;
}

// Follows a pointer such as /$defs/node; *root becomes the schema that the references there begin at.
static const cJSON *follow_pointer(const cJSON *at, const char *pointer, const cJSON **root)
{
    while (at && *pointer == '/') {
        char key[512];
        size_t n = 0;
        for (pointer++; *pointer && *pointer != '/' && n + 1 < sizeof key; pointer++) {
            char c = *pointer;
            if (c == '%' && hexadecimal(pointer[1]) >= 0 && hexadecimal(pointer[2]) >= 0) {
                c = (char)(hexadecimal(pointer[1]) * 16 + hexadecimal(pointer[2]));
                pointer += 2;
            }
            if (c == '~' && (pointer[1] == '0' || pointer[1] == '1'))
                c = *++pointer == '0' ? '~' : '/';
            key[n++] = c;
        }
        key[n] = 0;
        at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, atoi(key)) : shape_member(at, key);
        const cJSON *id = shape_member(at, "$id");
        if (cJSON_IsString(id) && id->valuestring[0] != '#')
            *root = at;
    }
    return *pointer ? NULL : at;
}

static int want_reference(struct shapes *s, int schema, const cJSON *reference, bool negated)
{
    const cJSON *root = s->infos[schema].root, *target = NULL;
    const char *text = cJSON_IsString(reference) ? reference->valuestring : "";
    const cJSON *id = shape_member(root, "$id");
    id = id ? id : shape_member(root, "id");
    if (cJSON_IsString(id)) { // the whole name of what it stands in
        const size_t length = strcspn(id->valuestring, "#");
        if (length > 0 && strncmp(text, id->valuestring, length) == 0 && (text[length] == '#' || text[length] == 0))
            text += length;
    }
    if (*text == '#')
        target = follow_pointer(root, text + 1, &root);
    else if (*text == 0 && cJSON_IsString(reference))
        target = root;
    s->at = schema;
    if (target == NULL)
        pool_refuse(&s->pool, "'$ref': expected a pointer to a part of the schema, as in #/$defs/name");
    if (!cJSON_IsObject(target) && !cJSON_IsBool(target))
        pool_refuse(&s->pool, "'$ref': expected a schema there: an object, true or false");
    return want_of(s, target, root, schema, "$ref", negated);
}

// Up to draft 7 nothing is read beside a reference.
static bool reference_is_alone(const cJSON *root)
{
    const cJSON *draft = shape_member(root, "$schema");
    const char *at = cJSON_IsString(draft) ? strstr(draft->valuestring, "draft-0") : NULL;
    return at && at[7] >= '3' && at[7] <= '7';
}

// ---------------------------------------------------------------- schemas put together

static struct shape meet_want(struct shapes *s, const struct shape *shape, int want)
{
    const struct shape other = shape_of(s, want);
    return shape_meet(s, shape, &other);
}

static void add_all(struct shapes *s, struct shape *to, const struct shape *from)
{
    for (int i = 0; i < from->n; i++)
        shape_add(s, to, from->parts[i]);
}

static struct shape any_of(struct shapes *s, int schema, const struct shape *shape, const cJSON *list, bool one)
{
    const char *key = one ? "oneOf" : "anyOf";
    struct shape sum = {0};
    s->at = schema;
    if (!cJSON_IsArray(list) || list->child == NULL)
        pool_refuse(&s->pool, "'%s': expected a list of schemas", key);
    for (const cJSON *each = list->child; each; each = each->next) {
        const int want = want_part(s, schema, each, key, false);
        struct shape part = meet_want(s, shape, want);
        for (const cJSON *other = list->child; one && other && part.n > 0; other = other->next) {
            if (other == each || meet_want(s, &part, want_part(s, schema, other, key, false)).n == 0)
                continue; // nothing is of both
            part = meet_want(s, &part, want_part(s, schema, other, key, true));
        }
        add_all(s, &sum, &part);
    }
    return sum;
}

static struct shape either(struct shapes *s, const struct shape *shape, int condition, int then, int opposite, int otherwise)
{
    struct shape a = meet_want(s, shape, want_both(s, condition, then));
    const struct shape b = meet_want(s, shape, want_both(s, opposite, otherwise));
    add_all(s, &a, &b);
    return a;
}

static int want_required(struct shapes *s, int schema, const cJSON *names, bool negated)
{
    cJSON *made = cJSON_CreateObject();
    cJSON_AddItemReferenceToObject(made, "required", (cJSON *)names);
    return want_part(s, schema, shape_made(s, made), "required", negated);
}

// Where a key is there, its list of keys, or its schema, holds.
static struct shape depend(struct shapes *s, int schema, struct shape shape, const cJSON *dependencies)
{
    for (const cJSON *each = dependencies ? dependencies->child : NULL; each; each = each->next) {
        cJSON *name = cJSON_CreateArray();
        cJSON_AddItemToArray(name, cJSON_CreateString(each->string));
        shape_made(s, name);
        const int there = want_required(s, schema, name, false); // first: keys come in the order in which they are named
        const int then =
            cJSON_IsArray(each) ? want_required(s, schema, each, false) : want_part(s, schema, each, each->string, false);
        shape = either(s, &shape, there, then, want_required(s, schema, name, true), 0);
    }
    return shape;
}

static struct shape positive(struct shapes *s, int schema)
{
    const cJSON *json = s->infos[schema].schema, *each, *reference = shape_member(json, "$ref"),
                *condition = shape_member(json, "if");
    if (reference && reference_is_alone(s->infos[schema].root))
        return shape_of(s, want_reference(s, schema, reference, false));
    struct shape shape = shape_of_keywords(s, schema);
    if (reference)
        shape = meet_want(s, &shape, want_reference(s, schema, reference, false));
    cJSON_ArrayForEach(each, shape_member(json, "allOf")) shape =
        meet_want(s, &shape, want_part(s, schema, each, "allOf", false));
    if (shape_member(json, "not"))
        shape = meet_want(s, &shape, want_part(s, schema, shape_member(json, "not"), "not", true));
    if (shape_member(json, "anyOf"))
        shape = any_of(s, schema, &shape, shape_member(json, "anyOf"), false);
    if (shape_member(json, "oneOf"))
        shape = any_of(s, schema, &shape, shape_member(json, "oneOf"), true);
    const cJSON *then = shape_member(json, "then"), *otherwise = shape_member(json, "else");
    if (condition && (then || otherwise))
        shape = either(s, &shape, want_part(s, schema, condition, "if", false),
                       then ? want_part(s, schema, then, "then", false) : 0, want_part(s, schema, condition, "if", true),
                       otherwise ? want_part(s, schema, otherwise, "else", false) : 0);
    shape = depend(s, schema, shape, shape_member(json, "dependencies"));
    shape = depend(s, schema, shape, shape_member(json, "dependentRequired"));
    return depend(s, schema, shape, shape_member(json, "dependentSchemas"));
}

static struct shape negative(struct shapes *s, int schema)
{
    const cJSON *json = s->infos[schema].schema, *each, *reference = shape_member(json, "$ref");
    if (reference && reference_is_alone(s->infos[schema].root))
        return shape_of(s, want_reference(s, schema, reference, true));
    for (const char *const *key =
             (const char *const[]){"oneOf", "if", "dependencies", "dependentRequired", "dependentSchemas", NULL};
         *key; key++)
        if (shape_member(json, *key)) {
            s->at = schema;
            pool_refuse(&s->pool, "the opposite of '%s' is not read here", *key);
        }
    struct shape shape = shape_of_opposite(s, schema), part;
    if (reference) {
        part = shape_of(s, want_reference(s, schema, reference, true));
        add_all(s, &shape, &part);
    }
    cJSON_ArrayForEach(each, shape_member(json, "allOf"))
    {
        part = shape_of(s, want_part(s, schema, each, "allOf", true));
        add_all(s, &shape, &part);
    }
    if (shape_member(json, "anyOf")) {
        part = shape_any(s, (1U << N_TYPES) - 1);
        cJSON_ArrayForEach(each, shape_member(json, "anyOf")) part =
            meet_want(s, &part, want_part(s, schema, each, "anyOf", true));
        add_all(s, &shape, &part);
    }
    if (shape_member(json, "not")) {
        part = shape_of(s, want_part(s, schema, shape_member(json, "not"), "not", false));
        add_all(s, &shape, &part);
    }
    return shape;
}

static struct shape shape_of_literal(struct shapes *s, int literal)
{
    const cJSON *json = s->infos[literal / 2].schema;
    if (cJSON_IsBool(json))
        return cJSON_IsTrue(json) != (literal & 1) ? shape_any(s, (1U << N_TYPES) - 1) : (struct shape){0};
    return literal & 1 ? negative(s, literal / 2) : positive(s, literal / 2);
}

struct shape shape_of(struct shapes *s, int want)
{
    struct want_memo *memo = want_memo(s, want);
    if (memo->known == 2)
        return memo->shape;
    if (memo->known == 1 && memo->level == s->level)
        pool_refuse(&s->pool, "'$ref' leads back to itself before anything is read");
    if (s->depth >= MAX_DEPTH)
        pool_refuse(&s->pool, "conditions lie deeper within each other than %d", MAX_DEPTH);
    const int known = memo->known, level = memo->level, at = s->at;
    memo->known = 1;
    memo->level = s->level;
    s->depth++;
    const struct interned literals = s->wants.entries[want];
    struct shape shape;
    if (literals.n == 1) {
        s->at = literals.key[0] / 2;
        shape = shape_of_literal(s, literals.key[0]);
    } else {
        shape = shape_any(s, (1U << N_TYPES) - 1);
        for (int i = 0; i < literals.n && shape.n > 0; i++)
            shape = meet_want(s, &shape, intern(&s->pool, &s->wants, &literals.key[i], 1));
    }
    s->depth--;
    s->at = at;
    memo = want_memo(s, want); // it may have moved
    memo->known = known == 1 ? 1 : 2;
    memo->level = level;
    memo->shape = shape;
    return shape;
}
