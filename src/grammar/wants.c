// See shape.h: sets of schemas that must hold, or must not, by number.
#include <string.h>

#include "grammar/shape.h"

enum { MAX_LEVEL = 4 };

const cJSON *shape_member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

const cJSON *shape_made(struct shapes *s, cJSON *json)
{
    struct made *made = pool_take(&s->pool, sizeof *made);
    *made = (struct made){json, s->made};
    s->made = made;
    if (json == NULL)
        pool_refuse(&s->pool, "out of memory");
    return json;
}

void shapes_free(struct shapes *s)
{
    for (const struct made *made = s->made; made; made = made->next)
        cJSON_Delete(made->json);
    pool_free(&s->pool);
}

// ---------------------------------------------------------------- wants

int want_of(struct shapes *s, const cJSON *schema, const cJSON *root, int parent, const char *key, bool negated)
{
    int pointer[2];
    if (cJSON_IsTrue(schema) && !negated)
        return 0;
    memcpy(pointer, &schema, sizeof pointer);
    const int index = intern(&s->pool, &s->schemas, pointer, 2);
    s->infos = pool_grow(&s->pool, s->infos, index, &s->infos_room, sizeof *s->infos);
    if (index == s->schemas.n - 1 && s->infos[index].schema != schema)
        s->infos[index] = (struct schema_info){schema, root, parent, key};
    const int literal = 2 * index + negated;
    if (s->wants.n == 0)
        intern(&s->pool, &s->wants, NULL, 0); // want 0: no condition
    return intern(&s->pool, &s->wants, &literal, 1);
}

int want_part(struct shapes *s, int schema, const cJSON *part, const char *key, bool negated)
{
    const cJSON *root = s->infos[schema].root;
    if (!cJSON_IsObject(part) && !cJSON_IsBool(part)) {
        s->at = schema;
        pool_refuse(&s->pool, "'%.60s': expected a schema: an object, true or false", key);
    }
    const cJSON *id = shape_member(part, "$id");
    if (cJSON_IsString(id) && id->valuestring[0] != '#')
        root = part;
    return want_of(s, part, root, schema, key, negated);
}

int want_both(struct shapes *s, int a, int b)
{
    if (a == b || b == 0)
        return a;
    if (a == 0)
        return b;
    const struct interned x = s->wants.entries[a], y = s->wants.entries[b];
    int *both = pool_take(&s->pool, (size_t)(x.n + y.n) * sizeof *both), n = 0;
    for (int i = 0, k = 0; i < x.n || k < y.n;) {
        const int next = k == y.n || (i < x.n && x.key[i] <= y.key[k]) ? x.key[i] : y.key[k];
        i += i < x.n && x.key[i] == next;
        k += k < y.n && y.key[k] == next;
        both[n++] = next;
    }
    return intern(&s->pool, &s->wants, both, n);
}

struct want_memo *want_memo(struct shapes *s, int want)
{
    while (s->n_memos <= want) {
        s->memos = pool_grow(&s->pool, s->memos, s->n_memos, &s->memos_room, sizeof *s->memos);
        s->memos[s->n_memos++] = (struct want_memo){.rule = -1};
    }
    return &s->memos[want];
}

bool want_is_impossible(struct shapes *s, int want)
{
    if (want == 0 || s->level >= MAX_LEVEL)
        return false;
    const struct want_memo *memo = want_memo(s, want);
    if (memo->known == 2)
        return memo->shape.n == 0;
    if (memo->known == 1)
        return false;
    const int at = s->at, depth = s->depth;
    s->level++;
    s->depth = 0;
    const bool impossible = s->read(s, want).n == 0;
    s->level--;
    s->depth = depth;
    s->at = at;
    return impossible;
}

// ---------------------------------------------------------------- properties

struct property property_of(struct shapes *s, const char *key, int want, bool required)
{
    const int name = intern_text(&s->pool, &s->names, key);
    while (s->n_places <= name) {
        int room = s->n_places;
        s->places = pool_grow(&s->pool, s->places, s->n_places, &room, sizeof *s->places);
        s->n_places = room;
    }
    return (struct property){key, name, want, required};
}

struct property *property_in(struct shapes *s, struct property *named, int *n, const char *key)
{
    const struct property property = property_of(s, key, 0, false);
    int *place = &s->places[property.name];
    if (*place == 0) {
        named[*n] = property;
        *place = ++*n;
    }
    return &named[*place - 1];
}

void property_end(struct shapes *s, const struct property *named, int n)
{
    for (int i = 0; i < n; i++)
        s->places[named[i].name] = 0;
}
