// See schema.h: the rules of shapes. schema_text.c has strings and numbers.
#include "grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_writer.h"
#include "util/utf8.h"

// What all documents are made of. Blanks are bounded, so that no model loses itself in them.
static const char common_rules[] =
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,24}\n"
    "hex ::= [0-9a-fA-F]\n"
    "esc ::= \"\\\\\" ([\"\\\\bfnrt] | \"u00\" [01] hex)\n"
    "uni ::= [\\x80-\\U0010ffff]\n"
    "plain ::= [^\"\\\\\\x00-\\x1f]\n"
    "char ::= plain | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" ([0-9abcefABCEF] hex hex hex | [dD] [0-7] hex hex))\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,19})\n"
    "number ::= integer (\".\" [0-9]{1,20})? ([eE] [-+]? [0-9]{1,2})?\n"
    "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
    "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? ws \"}\"\n"
    "comma ::= \",\" ws\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? ws \"]\"\n"
    "never ::= []\n";

// The rule of a want, which is written later where it is new; 0: any value.
static int rule_of(struct schema_writer *w, int want)
{
    struct want_memo *memo = want_memo(&w->s, want);
    if (memo->rule < 0) {
        if (w->n_rules >= SCHEMA_MAX_RULES)
            pool_refuse(&w->s.pool, "more than %d parts", SCHEMA_MAX_RULES);
        memo->rule = w->n_rules++;
        w->waiting = pool_grow(&w->s.pool, w->waiting, w->n_waiting, &w->waiting_room, sizeof *w->waiting);
        w->waiting[w->n_waiting++] = want;
    }
    return memo->rule;
}

static void write_want(struct schema_writer *w, int want, char name[24])
{
    if (want == 0)
        strcpy(name, "value");
    else
        snprintf(name, 24, "r%d", rule_of(w, want));
}

// A rule of the text alone, as JSON spells it.
static void write_key(struct schema_writer *w, const char *key)
{
    cJSON *string = cJSON_CreateString(key);
    char *json = string ? cJSON_PrintUnformatted(string) : NULL;
    schema_write_literal(w->out, json ? json : "");
    free(json);
    cJSON_Delete(string);
}

// ---------------------------------------------------------------- arrays

enum { MAX_VALUES = 500, MAX_LETTERS = 200 };

// Rules of the values that items may have, each in one spelling: from `first` on.
struct values {
    int first, n;
    char text[4 * MAX_LETTERS + 4]; // a string in the making
};

static _Noreturn void refuse_unique(struct schema_writer *w)
{
    pool_refuse(&w->s.pool, "'uniqueItems': it is read where one item may come, or items of at most %d values", MAX_VALUES);
}

static void add_value(struct schema_writer *w, struct values *values)
{
    if (values->n++ == MAX_VALUES)
        refuse_unique(w);
}

// Adds the strings by which the state leads to one that accepts.
static void add_strings(struct schema_writer *w, struct values *values, const struct dfa *dfa, int state, int length,
                        int letters)
{
    if (dfa->states[state].accepts) {
        add_value(w, values);
        values->text[length] = '\0';
        fprintf(w->out, "r%d ::= ", w->n_rules++);
        write_key(w, values->text);
        fputc('\n', w->out);
    }
    for (int k = 0; k < dfa->states[state].n; k++)
        for (uint32_t c = dfa->states[state].edges[k].first; c <= dfa->states[state].edges[k].last; c++) {
            if (letters == MAX_LETTERS || c == 0)
                refuse_unique(w);
            if (c >= 0xd800 && c < 0xe000) // no character
                continue;
            const int size = utf8_write((unsigned char *)values->text + length, (int32_t)c);
            add_strings(w, values, dfa, dfa->states[state].edges[k].to, length + size, letters + 1);
        }
}

static void write_part(struct schema_writer *w, const struct part *part, int rule);

// Where no item may come twice: a bag of their values.
static void write_unique(struct schema_writer *w, const struct part *part, int rule)
{
    struct values values = {.first = w->n_rules};
    if (part->n_first > 0 || part->rest == 0)
        refuse_unique(w);
    const struct shape shape = shape_of(&w->s, part->rest);
    for (int i = 0; i < shape.n; i++) {
        const struct part *item = &shape.parts[i];
        if (item->type == STRING_TYPE && item->text) {
            add_strings(w, &values, item->text, 0, 0, 0);
        } else if (item->type <= TRUE_TYPE || (item->type == NUMBER_TYPE && item->low == item->high)) {
            add_value(w, &values);
            write_part(w, item, w->n_rules++);
        } else
            refuse_unique(w);
    }
    fprintf(w->out, "r%d ::= \"[\" ws <{%d,", rule, part->least);
    if (part->most >= 0)
        fprintf(w->out, "%d", part->most);
    fputs("} comma", w->out);
    for (int i = 0; i < values.n; i++)
        fprintf(w->out, " r%d", values.first + i);
    fputs("> ws \"]\"\n", w->out);
}

// After the first items, which have a rule each: x0, x1 and so on.
static void write_array(struct schema_writer *w, const struct part *part, int rule)
{
    FILE *out = w->out;
    char name[24];
    if (part->unique && part->most != 0 && part->most != 1) {
        write_unique(w, part, rule);
        return;
    }
    const int n = part->most >= 0 && part->most < part->n_first ? part->most : part->n_first;
    fprintf(out, "r%d ::= \"[\" ws r%d-x0 ws \"]\"\n", rule, rule);
    for (int i = 0; i < n; i++) {
        write_want(w, part->first[i], name);
        fprintf(out, "r%d-x%d ::= %s%s r%d-x%d%s\n", rule, i, i ? "\",\" ws " : "", name, rule, i + 1,
                i >= part->least ? " | \"\"" : "");
    }
    const int least = part->least > n ? part->least - n : 0, most = part->most < 0 ? -1 : part->most - n;
    fprintf(out, "r%d-x%d ::= %s", rule, n, least ? "" : "\"\"");
    if (most != 0) {
        write_want(w, part->rest, name);
        fprintf(out, "%s%s%s (\",\" ws %s){%d,", least ? "" : " | ", n ? "\",\" ws " : "", name, name, least ? least - 1 : 0);
        if (most > 0)
            fprintf(out, "%d", most - 1);
        fputc('}', out);
    }
    fputc('\n', out);
}

// ---------------------------------------------------------------- objects

// The pairs of keys without a name: rN-f; those with a name and those that are forbidden are taken out. False: there is none.
static bool write_free(struct schema_writer *w, const struct part *part, int rule)
{
    const bool closed = w->listed_only && part->listed && !part->open && part->least <= part->n_named;
    const char **names = pool_take(&w->s.pool, ((size_t)part->n_named + 1) * sizeof *names);
    for (int i = 0; i < part->n_named; i++)
        names[i] = part->named[i].key;
    const struct dfa *words = part->n_named ? dfa_words(&w->s.pool, names, part->n_named) : NULL;
    char body[64 * 64] = "";
    for (int i = 0; i < part->n_cells; i++) {
        const struct cell *cell = &part->cells[i];
        char name[24], alternative[64];
        if (want_is_impossible(&w->s, cell->want) || (closed && cell->keys == NULL && cell->want == 0))
            continue;
        const struct dfa *keys = cell->keys;
        if (words)
            keys = dfa_minus(&w->s.pool, keys ? keys : dfa_any(&w->s.pool), words);
        if (keys && keys->n == 0)
            continue;
        const int text = keys ? schema_write_dfa(w, keys) : -1;
        write_want(w, cell->want, name);
        if (text < 0)
            snprintf(alternative, sizeof alternative, "%sstring \":\" ws %s", *body ? " | " : "", name);
        else
            snprintf(alternative, sizeof alternative, "%s\"\\\"\" d%d-0 \"\\\":\" ws %s", *body ? " | " : "", text, name);
        strcat(body, alternative);
    }
    if (*body)
        fprintf(w->out, "r%d-f ::= %s\n", rule, body);
    return *body != 0;
}

static void write_object(struct schema_writer *w, const struct part *part, int rule)
{
    char name[24];
    int n_required = 0;
    for (int i = 0; i < part->n_named; i++)
        n_required += part->named[i].required;
    const bool free = write_free(w, part, rule);
    const int least = part->least <= n_required ? 0 : part->least;
    if (least > 1 && free) // the same key may come again
        pool_refuse(&w->s.pool, "'minProperties': expected at most 1 where keys without a name may come");
    for (int i = 0; i < part->n_named; i++) {
        write_want(w, part->named[i].want, name);
        fprintf(w->out, "r%d-p%d ::= ", rule, i);
        write_key(w, part->named[i].key);
        fprintf(w->out, " \":\" ws %s\n", name);
    }
    if (part->most >= 0 && n_required > part->most) {
        fprintf(w->out, "r%d ::= never\n", rule);
        return;
    }
    fprintf(w->out, "r%d ::= \"{\" ws <{%d,", rule, least);
    if (part->most >= 0)
        fprintf(w->out, "%d", part->most);
    fputs("} comma", w->out);
    for (int i = 0; i < part->n_named; i++)
        fprintf(w->out, " r%d-p%d%s", rule, i, part->named[i].required ? "!" : "");
    fprintf(w->out, free ? " r%d-f*> ws \"}\"\n" : "> ws \"}\"\n", rule);
}

// ---------------------------------------------------------------- the whole

static void write_part(struct schema_writer *w, const struct part *part, int rule)
{
    static const char *const constants[] = {"null", "false", "true"};
    if (part->type <= TRUE_TYPE)
        fprintf(w->out, "r%d ::= \"%s\"\n", rule, constants[part->type]);
    else if (part->type == NUMBER_TYPE)
        schema_write_number(w, part, rule);
    else if (part->type == STRING_TYPE)
        schema_write_string(w, part, rule);
    else if (part->type == ARRAY_TYPE)
        write_array(w, part, rule);
    else
        write_object(w, part, rule);
}

// Writes a want's rule: its alternatives have a rule each.
static void write_rule(struct schema_writer *w, int want)
{
    const int rule = want_memo(&w->s, want)->rule;
    const struct interned literals = w->s.wants.entries[want];
    w->s.at = literals.n ? literals.key[0] / 2 : -1;
    const struct shape shape = shape_of(&w->s, want);
    if (shape.n == 1) {
        write_part(w, shape.parts, rule);
        return;
    }
    const int first = w->n_rules;
    w->n_rules += shape.n;
    fprintf(w->out, "r%d ::= %s", rule, shape.n ? "" : "never");
    for (int i = 0; i < shape.n; i++)
        fprintf(w->out, "%sr%d", i ? " | " : "", first + i);
    fputc('\n', w->out);
    for (int i = 0; i < shape.n; i++)
        write_part(w, &shape.parts[i], first + i);
}

static void path_of(const struct pool *pool, char *path, size_t size)
{
    const struct shapes *s = (const struct shapes *)pool; // its first member
    const char *keys[24];
    int n = 0;
    for (int at = s->at; at >= 0 && at < s->schemas.n && s->infos[at].parent >= 0 && n < 24; at = s->infos[at].parent)
        keys[n++] = s->infos[at].key;
    size_t length = 0;
    while (n-- > 0 && length + 2 < size)
        length += (size_t)snprintf(path + length, size - length, "/%s", keys[n]);
}

struct schema_writer *schema_writer_open(bool listed_only, yalm_error *error)
{
    struct schema_writer *w = calloc(1, sizeof *w);
    if (w)
        w->out = open_memstream(&w->text, &w->length);
    if (w && w->out) {
        w->listed_only = listed_only;
        w->s.pool.where = path_of;
        w->s.read = shape_of;
        fputs(common_rules, w->out);
        return w;
    }
    free(w);
    *error = (yalm_error){YALM_NO_MEMORY, "out of memory for a schema"};
    return NULL;
}

static void add_schema(struct schema_writer *w, const cJSON *schema, int *rule)
{
    if (!cJSON_IsObject(schema) && !cJSON_IsBool(schema))
        pool_refuse(&w->s.pool, "expected a schema: an object, true or false");
    schema = shape_made(&w->s, cJSON_Duplicate(schema, true)); // wants know schemas by where they lie
    const int want = want_of(&w->s, schema, schema, -1, "", false);
    const int first = w->n_waiting;
    w->s.at = -1;
    if (want == 0)
        fprintf(w->out, "r%d ::= value\n", *rule = w->n_rules++);
    else
        *rule = rule_of(w, want);
    for (int i = first; i < w->n_waiting; i++) {
        write_rule(w, w->waiting[i]);
        if (ftell(w->out) > GRAMMAR_MAX_TEXT)
            pool_refuse(&w->s.pool, "its grammar is longer than %d bytes", GRAMMAR_MAX_TEXT);
    }
    if (want && want_memo(&w->s, want)->shape.n == 0)
        pool_refuse(&w->s.pool, "no document fits it");
}

yalm_status schema_writer_add(struct schema_writer *w, const cJSON *schema, int *rule, yalm_error *error)
{
    w->s.pool.error = error;
    w->s.at = -1;
    w->s.level = w->s.depth = 0;
    if (schema == NULL) {
        fprintf(w->out, "r%d ::= object\n", *rule = w->n_rules++);
        return YALM_OK;
    }
    if (setjmp(w->s.pool.refused))
        return error->status;
    add_schema(w, schema, rule);
    return YALM_OK;
}

_Static_assert((int)SCHEMA_MAX_WORK == (int)POOL_MAX_WORK, "what pool_work() refuses");

long schema_writer_work(const struct schema_writer *w)
{
    return w->s.pool.work;
}

yalm_status schema_writer_end(struct schema_writer *w, const char *root, char **text, size_t *length, yalm_error *error)
{
    fprintf(w->out, "root ::= %s\n", root);
    const bool written = !ferror(w->out) && fclose(w->out) == 0;
    w->out = NULL;
    *text = w->text;
    *length = w->length;
    if (written)
        w->text = NULL;
    else
        *error = (yalm_error){YALM_NO_MEMORY, "out of memory for a schema"};
    schema_writer_close(w);
    return written ? YALM_OK : YALM_NO_MEMORY;
}

void schema_writer_close(struct schema_writer *w)
{
    if (w == NULL)
        return;
    if (w->out)
        fclose(w->out);
    free(w->text);
    shapes_free(&w->s);
    free(w);
}

static yalm_status to_grammar(const cJSON *schema, bool listed_only, char **text, size_t *length, yalm_error *error)
{
    struct schema_writer *w = schema_writer_open(listed_only, error);
    int rule;
    if (w == NULL)
        return error->status;
    const yalm_status status = schema_writer_add(w, schema, &rule, error);
    if (status != YALM_OK) {
        schema_writer_close(w);
        return status;
    }
    char root[24];
    snprintf(root, sizeof root, "r%d", rule);
    return schema_writer_end(w, root, text, length, error);
}

yalm_status schema_to_grammar(const cJSON *schema, char **text, size_t *length, yalm_error *error)
{
    return to_grammar(schema, false, text, length, error);
}

yalm_status schema_to_listed_grammar(const cJSON *schema, char **text, size_t *length, yalm_error *error)
{
    return to_grammar(schema, true, text, length, error);
}
