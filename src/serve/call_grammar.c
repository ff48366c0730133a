// See call_grammar.h.
#include "serve/call_grammar.h"

#include <stdio.h>
#include <string.h>

#include "grammar/schema.h"
#include "util/error.h"

struct writing {
    const struct call_form *form;
    const cJSON *tools;
    bool lenient;  // a schema that cannot be held allows any value
    bool loosened; // this has happened to the tool's
    struct schema_writer *schemas;
    long tried;                // steps that trials of schemas took
    struct buffer rules, call; // further rules, and what follows a call's beginning
    int n_rules;
    yalm_error *error;
};

// ---------------------------------------------------------------- literals and texts

static void add_byte(struct buffer *out, unsigned char c)
{
    if (c == '"' || c == '\\' || c == ']' || c == '[' || c == '^' || c == '-' || c < 32 || c >= 127)
        buffer_format(out, "\\x%02x", c);
    else
        buffer_add(out, &c, 1);
}

static void add_literal(struct buffer *out, const char *text, size_t length)
{
    if (length == 0)
        return;
    buffer_text(out, " \"");
    for (size_t i = 0; i < length; i++)
        if (text[i] == '"' || text[i] == '\\' || (unsigned char)text[i] < 32 || text[i] == 127)
            buffer_format(out, "\\x%02x", (unsigned char)text[i]);
        else
            buffer_add(out, text + i, 1);
    buffer_text(out, "\"");
}

// A part of the frame. What differs from call to call is free; type: what says so of a value.
static void add_part(struct buffer *out, const struct call_form *form, enum form_part part, const char *type)
{
    for (const char *at = form->part[part]; *at;) {
        const size_t n = strcspn(at, "\1\2\3");
        add_literal(out, at, n);
        at += n;
        if (*at == SLOT_ID)
            buffer_text(out, part == OPENING || part == BETWEEN ? " [a-zA-Z0-9_-]{1,64}" : " [a-zA-Z0-9]{9}");
        else if (*at == SLOT_NUMBER)
            buffer_text(out, " [0-9]");
        else if (*at == SLOT_TYPE)
            add_literal(out, type, strlen(type));
        at += *at != 0;
    }
}

static void add_rule_number(struct buffer *out, int rule)
{
    buffer_format(out, " c%d", rule);
}

// How much of the mark the text ends with, once `c` has come behind its first n bytes.
static size_t next_match(const char *mark, size_t n, char c)
{
    char text[FORM_MAX_PART + 1];
    memcpy(text, mark, n);
    text[n++] = c;
    size_t k = n;
    while (k > 0 && (k > strlen(mark) || memcmp(text + n - k, mark, k) != 0))
        k--;
    return k;
}

// A rule for any text up to the mark's first occurrence, which belongs to it.
static int add_text_rule(struct writing *w, const char *mark)
{
    const size_t n = strlen(mark);
    const int first = w->n_rules;
    w->n_rules += (int)n + 1;
    for (size_t i = 0; i < n; i++) {
        buffer_format(&w->rules, "c%d ::=", first + (int)i);
        const char *bar = "";
        for (size_t k = 0; k < n; k++) { // each byte of the mark once
            if (memchr(mark, mark[k], k) != NULL || (unsigned char)mark[k] >= 0x80)
                continue;
            buffer_format(&w->rules, "%s [", bar);
            add_byte(&w->rules, (unsigned char)mark[k]);
            buffer_format(&w->rules, "] c%d", first + (int)next_match(mark, i, mark[k]));
            bar = " |";
        }
        buffer_format(&w->rules, "%s [^", bar);
        for (size_t k = 0; k < n; k++)
            if (memchr(mark, mark[k], k) == NULL && (unsigned char)mark[k] < 0x80)
                add_byte(&w->rules, (unsigned char)mark[k]);
        buffer_format(&w->rules, "] c%d\n", first);
    }
    buffer_format(&w->rules, "c%d ::= \"\"\n", first + (int)n);
    return first;
}

// ---------------------------------------------------------------- members

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static bool may_be_text(const cJSON *schema)
{
    const cJSON *type = member(schema, "type"), *each;
    bool text = cJSON_IsString(type) && strcmp(type->valuestring, "string") == 0;
    cJSON_ArrayForEach(each, type)
    {
        text |= cJSON_IsString(each) && strcmp(each->valuestring, "string") == 0;
    }
    return text;
}

// Whether the schema can be held beside those before it. Many that take long are not all tried: a client may send a thousand.
static bool can_hold(struct writing *w, const cJSON *schema)
{
    enum { MOST_TRIED = 4 * SCHEMA_MAX_WORK };
    yalm_error tried;
    int rule;
    struct schema_writer *trial = w->tried < MOST_TRIED ? schema_writer_open(true, &tried) : NULL;
    if (trial == NULL)
        return false;
    const bool good = schema_writer_add(trial, schema, &rule, &tried) == YALM_OK;
    const long work = schema_writer_work(trial);
    schema_writer_close(trial);
    w->tried += work;
    return good && schema_writer_work(w->schemas) + work < SCHEMA_MAX_WORK;
}

// A rule of JSON for a schema, or for part of one: definitions are the whole one's. lenient: any value where it cannot be held.
static bool add_schema(struct writing *w, const cJSON *schema, const cJSON *whole, int *rule)
{
    static const char *const names[] = {"$defs", "definitions"};
    cJSON *own = schema && schema != whole && cJSON_IsObject(schema) ? cJSON_Duplicate(schema, true) : NULL;
    for (int i = 0; own && i < 2; i++)
        if (member(whole, names[i]) && !member(own, names[i]))
            cJSON_AddItemToObject(own, names[i], cJSON_Duplicate(member(whole, names[i]), true));
    const cJSON *asked = own ? own : schema;
    cJSON *any = NULL;
    if (w->lenient && asked && !can_hold(w, asked))
        asked = any = schema == whole ? cJSON_Parse("{\"type\": \"object\"}") : cJSON_CreateTrue();
    w->loosened |= any != NULL;
    const bool good = schema_writer_add(w->schemas, asked, rule, w->error) == YALM_OK;
    cJSON_Delete(any);
    cJSON_Delete(own);
    return good;
}

// What ends a value between marks, without the line before it.
static const char *end_of_value(const struct call_form *form, char end[FORM_MAX_PART])
{
    const struct span text = skip_blanks((struct span){form->part[VALUE_END], strlen(form->part[VALUE_END])});
    memcpy(end, text.at, text.length + 1);
    return end;
}

static void add_words(struct buffer *out, const cJSON *words, const char *before, const char *after)
{
    const cJSON *word;
    const char *bar = " (";
    cJSON_ArrayForEach(word, words)
    {
        buffer_text(out, bar);
        add_literal(out, before, strlen(before));
        add_literal(out, word->valuestring, strlen(word->valuestring));
        add_literal(out, after, strlen(after));
        bar = " |";
    }
    buffer_text(out, ")");
}

static bool all_texts(const cJSON *words)
{
    const cJSON *word;
    bool texts = cJSON_GetArraySize(words) > 0;
    cJSON_ArrayForEach(word, words)
    {
        texts &= cJSON_IsString(word);
    }
    return texts;
}

// A value, and what ends it.
static bool add_value(struct writing *w, struct buffer *out, const cJSON *schema, const cJSON *whole)
{
    const struct call_form *form = w->form;
    const bool tagged = form->arguments == ARGUMENTS_TAGGED, text = may_be_text(schema);
    const char *quote = form->part[QUOTE];
    const cJSON *words = member(schema, "enum");
    int rule;
    add_part(out, form, KEY_END, text ? form->text_type : form->other_type);
    if (text && all_texts(words) && (tagged || quote[1]))
        add_words(out, words, tagged ? "" : quote, tagged ? form->part[VALUE_END] : quote);
    else if (text && tagged) {
        char end[FORM_MAX_PART];
        add_rule_number(out, add_text_rule(w, end_of_value(form, end)));
    } else if (text && quote[1]) {
        add_literal(out, quote, strlen(quote));
        add_rule_number(out, add_text_rule(w, quote));
    } else if (!add_schema(w, schema, whole, &rule)) {
        return false;
    } else {
        buffer_format(out, " r%d", rule);
        if (tagged)
            add_part(out, form, VALUE_END, "");
    }
    return true;
}

static bool is_required(const cJSON *schema, const char *key)
{
    const cJSON *each;
    bool found = false;
    cJSON_ArrayForEach(each, member(schema, "required"))
    {
        found |= cJSON_IsString(each) && strcmp(each->valuestring, key) == 0;
    }
    return found;
}

// Members in the schema's order. Of each there are two rules: with none before it, and behind another.
static bool add_members(struct writing *w, const cJSON *schema, int *rule)
{
    const cJSON *given = member(schema, "properties"), *properties = cJSON_IsObject(given) ? given : NULL, *each;
    const int n = cJSON_GetArraySize(properties), first = w->n_rules;
    int i = first;
    *rule = first;
    w->n_rules += 2 * n + 2;
    cJSON_ArrayForEach(each, properties)
    {
        struct buffer value = {0};
        if (w->form->arguments == ARGUMENTS_TAGGED)
            add_part(&value, w->form, KEY_BEGIN, "");
        add_literal(&value, each->string, strlen(each->string));
        const bool good = add_value(w, &value, each, schema);
        for (int behind = 0; good && behind < 2; behind++) {
            buffer_format(&w->rules, "c%d ::=", i + behind);
            if (behind)
                add_part(&w->rules, w->form, KEY_BETWEEN, "");
            buffer_format(&w->rules, "%s c%d", value.at, i + 3);
            if (!is_required(schema, each->string))
                buffer_format(&w->rules, " | c%d", i + 2 + behind);
            buffer_text(&w->rules, "\n");
        }
        w->rules.failed |= value.failed;
        buffer_free(&value);
        if (!good)
            return false;
        i += 2;
    }
    buffer_format(&w->rules, "c%d ::= \"\"\nc%d ::= \"\"\n", i, i + 1);
    return true;
}

// ---------------------------------------------------------------- calls

// A call's arguments are an object, whether the schema says so or not; where there is none, an empty one.
static bool add_arguments(struct writing *w, const cJSON *schema, int *rule)
{
    if (w->form->arguments != ARGUMENTS_JSON)
        return add_members(w, schema, rule);
    const bool none = !cJSON_IsObject(schema);
    if (!none && member(schema, "type"))
        return add_schema(w, schema, schema, rule);
    cJSON *object = none ? cJSON_CreateObject() : cJSON_Duplicate(schema, true);
    cJSON_AddStringToObject(object, "type", "object");
    if (none)
        cJSON_AddFalseToObject(object, "additionalProperties");
    const bool good = add_schema(w, object, object, rule);
    cJSON_Delete(object);
    return good;
}

static bool add_tool(struct writing *w, const cJSON *function, const char *bar)
{
    const char *name = member(function, "name")->valuestring;
    struct buffer json = {0};
    int rule;
    if (!add_arguments(w, member(function, "parameters"), &rule))
        return false;
    buffer_text(&w->call, bar);
    buffer_json(&json, name, strlen(name));
    add_literal(&w->call, w->form->is_object ? json.at + 1 : name, w->form->is_object ? json.length - 2 : strlen(name));
    buffer_free(&json);
    add_part(&w->call, w->form, MIDDLE, "");
    buffer_format(&w->call, " %c%d", w->form->arguments == ARGUMENTS_JSON ? 'r' : 'c', rule);
    return true;
}

static bool add_tools(struct writing *w, const struct call_wish *wish, struct buffer *loosened)
{
    enum { MOST_NAMED = 60 }; // bytes, since a header names them
    const cJSON *tool;
    const char *bar = " (";
    int n_loosened = 0, n_named = 0;
    cJSON_ArrayForEach(tool, w->tools)
    {
        const cJSON *function = member(tool, "function");
        const char *name = member(function, "name")->valuestring;
        if (wish->chosen && strcmp(wish->chosen, name) != 0)
            continue;
        w->lenient = !(wish->required && cJSON_IsTrue(member(function, "strict")));
        w->loosened = false;
        if (!add_tool(w, function, bar)) {
            char text[sizeof w->error->text];
            memcpy(text, w->error->text, sizeof text);
            snprintf(w->error->text, sizeof text, "'tools', '%.60s': %.400s", name, text);
            return false;
        }
        n_loosened += w->loosened;
        if (w->loosened && (n_named == 0 || loosened->length + strlen(name) < MOST_NAMED))
            buffer_format(loosened, "%s%s", n_named++ ? ", " : "", name);
        bar = " |";
    }
    if (n_loosened > n_named)
        buffer_format(loosened, "%s%d more", n_named ? " and " : "", n_loosened - n_named);
    buffer_text(&w->call, ")");
    add_part(&w->call, w->form, TAIL, "");
    add_part(&w->call, w->form, END, "");
    return true;
}

static void add_root(struct buffer *root, const struct writing *w, const struct call_wish *wish)
{
    const struct call_form *form = w->form;
    const bool section = form->part[OPENING][0] != 0;
    add_part(root, form, OPENING, "");
    buffer_text(root, wish->begun ? " named" : " call");
    if (wish->several && (section || wish->required)) {
        buffer_text(root, " (");
        add_part(root, form, BETWEEN, "");
        buffer_text(root, " call){0,7}");
    }
    add_part(root, form, CLOSING, "");
    buffer_text(root, "\ncall ::=");
    add_part(root, form, BEGIN, "");
    add_part(root, form, LEAD, "");
    buffer_format(root, " named\nnamed ::=%s\n%s", w->call.at, w->rules.at ? w->rules.at : "");
}

yalm_status call_grammar_write(const struct call_form *form, const cJSON *tools, const struct call_wish *wish,
                               struct buffer *loosened, char **text, size_t *length, yalm_error *error)
{
    struct writing w = {.form = form, .tools = tools, .error = error};
    struct buffer root = {0};
    yalm_status status = YALM_OK;
    w.schemas = schema_writer_open(true, error);
    if (w.schemas == NULL)
        return error->status;
    if (!add_tools(&w, wish, loosened))
        status = error->status;
    else
        add_root(&root, &w, wish);
    if (status == YALM_OK && (root.failed || w.call.failed || w.rules.failed))
        status = error_set(error, YALM_NO_MEMORY, "out of memory for the tools");
    if (status == YALM_OK)
        status = schema_writer_end(w.schemas, root.at, text, length, error);
    else
        schema_writer_close(w.schemas);
    buffer_free(&root);
    buffer_free(&w.call);
    buffer_free(&w.rules);
    return status;
}
