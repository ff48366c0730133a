// Learns how a model writes calls from what its chat template renders: see form.h.
//
// The rendered calls have names, keys and values that occur nowhere else. What stands between two of them is a part of the
// frame; where a part ends and the next begins, two calls, two members, or a call and a plain answer tell by what they share.
#include "speech/learn.h"

#include <stdio.h>
#include <stdlib.h>

static const char question[] = "Yquestion", answer[] = "Yanswer", value_a[] = "Yvalue1", value_b[] = "Yvalue2",
                  number[] = "70717";
static const char *const names[] = {"Yfirst", "Ysecond"}, *const keys[] = {"ykey1", "ykey2", "ykey3"},
                         *const ids[] = {"callid001", "callid002"}; // nine letters and digits, as Mistral's templates want

// ---------------------------------------------------------------- what the template renders

struct probe {
    int n_calls; // 0: a plain answer
    bool named_ids, as_text, content;
};

static void add_call(struct buffer *out, const struct probe *probe, int i)
{
    char id[48], object[128];
    if (probe->named_ids)
        snprintf(id, sizeof id, "functions.%s:%d", names[i], i);
    else
        snprintf(id, sizeof id, "%s", ids[i]);
    snprintf(object, sizeof object, "{\"%s\": \"%s\", \"%s\": \"%s\", \"%s\": %s}", keys[0], value_a, keys[1], value_b, keys[2],
             number);
    buffer_format(out,
                  "%s{\"id\": \"%s\", \"type\": \"function\", \"function\": {\"name\": \"%s\", \"arguments\": ", i ? "," : "",
                  id, names[i]);
    if (probe->as_text)
        buffer_json(out, object, strlen(object));
    else
        buffer_text(out, object);
    buffer_text(out, "}}");
}

// What was given becomes a slot wherever it stands.
static void make_slots(char *text, const char *given)
{
    for (char *at = text; (at = strstr(at, given)) != NULL; at++) {
        *at = SLOT_ID;
        memmove(at + 1, at + strlen(given), strlen(at + strlen(given)) + 1);
    }
}

// The rendered text behind the question; the caller's to free(). NULL: the template refuses, or a call is not in it.
static char *render_probe(const struct probe *probe, form_render *render, void *context)
{
    struct buffer json = {0};
    buffer_format(&json,
                  "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}, {\"role\": \"assistant\", \"content\": \"%s\"",
                  question, probe->n_calls == 0 || probe->content ? answer : "");
    for (int i = 0; i < probe->n_calls; i++) {
        buffer_text(&json, i ? "" : ", \"tool_calls\": [");
        add_call(&json, probe, i);
    }
    buffer_text(&json, probe->n_calls ? "]}], \"tools\": [" : "}], \"tools\": [");
    for (int i = 0; i < 2; i++)
        buffer_format(
            &json,
            "%s{\"type\": \"function\", \"function\": {\"name\": \"%s\", \"description\": \"\", \"parameters\": {\"type\": "
            "\"object\", \"properties\": {\"%s\": {\"type\": \"string\", \"description\": \"\"}, \"%s\": {\"type\": "
            "\"string\", \"description\": \"\"}, \"%s\": {\"type\": \"integer\", \"description\": \"\"}}, \"required\": []}}}",
            i ? ", " : "", names[i], keys[0], keys[1], keys[2]);
    buffer_text(&json, "]}");
    char *text = json.failed ? NULL : render(context, json.at), *at = NULL, *rest = NULL;
    buffer_free(&json);
    for (char *next = text; next && (next = strstr(next, question)) != NULL;)
        at = next += strlen(question);
    if (at && (probe->n_calls == 0 || strstr(at, names[probe->n_calls - 1])))
        rest = strdup(at);
    for (int i = 0; rest && i < 2; i++)
        make_slots(rest, ids[i]);
    free(text);
    return rest;
}

// ---------------------------------------------------------------- spans in common

static bool put(char *part, struct span text)
{
    const bool fits = text.length < FORM_MAX_PART;
    memcpy(part, text.at, fits ? text.length : 0);
    part[fits ? text.length : 0] = 0;
    return fits;
}

static struct span trimmed(struct span text)
{
    return trim_end(skip_blanks(text));
}

// Numbers of calls differ: 0 and 1, 1 and 2.
static bool alike(char a, char b)
{
    return a == b || (isdigit((unsigned char)a) && b == a + 1);
}

static size_t common_start(struct span a, struct span b)
{
    size_t n = 0;
    while (n < a.length && n < b.length && a.at[n] == b.at[n])
        n++;
    return n;
}

// What both end with. It begins where a mark does: "end><call>" and "all><call>" share "<call>".
static struct span common_end(struct span a, struct span b)
{
    size_t n = 0;
    while (n < a.length && n < b.length && alike(a.at[a.length - 1 - n], b.at[b.length - 1 - n]))
        n++;
    struct span same = rest_of(a, a.length - n);
    const char *mark = n ? memchr(same.at, '<', n) : NULL;
    if (mark && memchr(same.at, '>', (size_t)(mark - same.at)))
        same = rest_of(same, (size_t)(mark - same.at));
    return same;
}

static struct span up_to(const char *from, const char *to)
{
    return (struct span){from, (size_t)(to - from)};
}

// The part, with slots where the same one of another call has another number.
static bool put_numbered(char *part, struct span text, const char *other)
{
    for (size_t i = 0; other && i < text.length; i++)
        if (!alike(text.at[i], other[i]))
            return false;
    if (!put(part, text))
        return false;
    for (size_t i = 0; other && i < text.length; i++)
        if (text.at[i] != other[i])
            part[i] = SLOT_NUMBER;
    return true;
}

// ---------------------------------------------------------------- one call

struct seen_call {
    const char *name, *arguments, *end; // of the name its beginning; of the arguments both
};

// The end of the JSON value that begins there; NULL: it has none.
static const char *end_of_json(const char *at)
{
    int depth = 0;
    bool in_string = false;
    for (; *at; at++) {
        if (in_string && *at == '\\' && at[1])
            at++;
        else if (*at == '"')
            in_string = !in_string;
        else if (!in_string && (*at == '{' || *at == '['))
            depth++;
        else if (!in_string && (*at == '}' || *at == ']') && --depth == 0)
            return at + 1;
    }
    return NULL;
}

// The i-th call behind `from`: its name is the last before the first key.
static bool see_call(struct seen_call *call, struct call_form *form, const char *from, int i)
{
    const char *key = strstr(from, names[i]);
    key = key ? strstr(key, keys[0]) : NULL;
    if (key == NULL)
        return false;
    for (const char *next = from; (next = strstr(next, names[i])) != NULL && next < key; next++)
        call->name = next;
    const char *before = key;
    while (before > call->name && isspace((unsigned char)before[-1]))
        before--;
    form->arguments = ARGUMENTS_TAGGED;
    if (before[-1] == '"') {
        do
            before--;
        while (isspace((unsigned char)before[-1]));
        form->arguments = before[-1] == '{' ? ARGUMENTS_JSON : ARGUMENTS_TAGGED;
    }
    if (form->arguments == ARGUMENTS_JSON) {
        call->arguments = before - 1;
        call->end = end_of_json(call->arguments);
        return call->end != NULL;
    }
    call->arguments = key;
    call->end = strstr(key, number);
    call->end = call->end ? call->end + strlen(number) : NULL;
    return call->end != NULL;
}

static bool put_type(char *type, struct span word)
{
    const bool fits = word.length > 0 && word.length < sizeof((struct call_form *)NULL)->text_type;
    if (fits) {
        memcpy(type, word.at, word.length);
        type[word.length] = 0;
    }
    return fits;
}

// Between a key and a text stands something else than between a key and a number: a quote, or a word that says the type.
static bool learn_types(struct call_form *form, struct span text, struct span other)
{
    size_t from = common_start(text, other), to = 0;
    while (to < text.length - from && to < other.length - from &&
           text.at[text.length - 1 - to] == other.at[other.length - 1 - to])
        to++;
    while (from > 0 && isalpha((unsigned char)text.at[from - 1]))
        from--;
    while (to > 0 && isalpha((unsigned char)text.at[text.length - to]))
        to--;
    if (from + to > text.length || from + to > other.length ||
        !put_type(form->text_type, (struct span){text.at + from, text.length - from - to}) ||
        !put_type(form->other_type, (struct span){other.at + from, other.length - from - to}) ||
        !put(form->part[KEY_END], text))
        return false;
    char *slot = form->part[KEY_END] + from;
    *slot = SLOT_TYPE;
    memmove(slot + 1, text.at + text.length - to, to);
    slot[1 + to] = 0;
    return true;
}

// key value key value key number, whatever stands between them. `rest` is behind the number, before: between name and key.
static bool learn_members(struct call_form *form, struct span before, const char *other_before, const char *key,
                          struct span rest)
{
    const char *at[6];
    const char *const wanted[] = {keys[0], value_a, keys[1], value_b, keys[2], number};
    for (int i = 0; i < 6; i++, key += strlen(wanted[i - 1]))
        if ((key = at[i] = strstr(key, wanted[i])) == NULL)
            return false;
    char parts[5][FORM_MAX_PART];
    struct span gap[5];
    for (int i = 0; i < 5; i++) {
        if (!put(parts[i], up_to(at[i] + strlen(wanted[i]), at[i + 1])))
            return false;
        make_slots(parts[i], keys[i / 2]);
        gap[i] = (struct span){parts[i], strlen(parts[i])};
    }
    const struct span text = gap[0], next = gap[1], other = gap[4];
    if (gap[2].length != text.length || gap[3].length != next.length || memcmp(gap[2].at, text.at, text.length) != 0)
        return false;
    if (other.length < text.length && begins(text, (char[]){other.length ? *other.at : 0, 0}) &&
        common_start(text, other) == other.length) {
        const struct span quote = rest_of(text, other.length);
        form->arguments = ARGUMENTS_LITERAL;
        return common_start(next, quote) == quote.length && put(form->part[QUOTE], quote) && put(form->part[KEY_END], other) &&
               put(form->part[KEY_BETWEEN], rest_of(next, quote.length)) && put(form->part[MIDDLE], before);
    }
    const struct span begin = common_end(before, next), behind = {next.at, next.length - begin.length};
    char last[FORM_MAX_PART];
    put(last, (struct span){rest.at, rest.length < FORM_MAX_PART ? rest.length : FORM_MAX_PART - 1});
    make_slots(last, keys[2]);
    const size_t end = common_start(behind, (struct span){last, strlen(last)});
    const bool same = text.length == other.length && memcmp(text.at, other.at, text.length) == 0;
    return end > 0 && (same ? put(form->part[KEY_END], text) : learn_types(form, text, other)) &&
           put(form->part[KEY_BEGIN], begin) &&
           put_numbered(form->part[MIDDLE], (struct span){before.at, before.length - begin.length}, other_before) &&
           put(form->part[VALUE_END], trim_end((struct span){behind.at, end})) &&
           put(form->part[KEY_BETWEEN], rest_of(behind, strlen(form->part[VALUE_END])));
}

// ---------------------------------------------------------------- around calls

// Behind reasoning, which a template puts before a call, too.
static struct span skip_thoughts(struct span text)
{
    for (size_t i = 0; i < text.length; i++) {
        if (text.at[i] != '<' && text.at[i] != '[')
            continue;
        const char close = text.at[i] == '<' ? '>' : ']';
        size_t end = i;
        bool thinks = false;
        while (end < text.length && text.at[end] != close)
            thinks |= strncasecmp(text.at + end++, "think", 5) == 0;
        if (thinks && end < text.length)
            return skip_thoughts(rest_of(text, end + 1));
    }
    return skip_blanks(text);
}

// What begins calls: `before` stands between a question and the first call's name, `behind` between text and name where a
// template shows both, `plain` is an answer of text alone.
static struct span opening_of(struct span before, struct span behind, const char *plain)
{
    const char *said = plain ? strstr(plain, answer) : NULL;
    size_t n = said ? common_start(before, up_to(plain, said)) : 0;
    for (size_t back = n; back > 0 && before.at[back - 1] != '>'; back--) // no half of a mark
        if (before.at[back - 1] == '<')
            n = back - 1;
    const bool in_word = n < before.length && in_slot(before.at[n]);
    while (in_word && n > 0 && !strchr(" \n>]", before.at[n - 1]))
        n--; // nor of a word
    const struct span opening = skip_thoughts(rest_of(before, n)), other = skip_blanks(common_end(before, behind));
    return behind.at && (other.length < opening.length || opening.length == 0) ? other : opening;
}

// The turn ends there.
static struct span before_turn(struct span text, const char *plain)
{
    const char *said = plain ? strstr(plain, answer) : NULL;
    struct span end = said ? trimmed((struct span){said + strlen(answer), strlen(said + strlen(answer))}) : (struct span){0};
    const char *found = end.length ? memmem(text.at, text.length, end.at, end.length) : NULL;
    return trim_end(found ? up_to(text.at, found) : text);
}

static bool learn_ends(struct call_form *form, struct span between, struct span rest)
{
    size_t value = strlen(form->part[VALUE_END]);
    value += strchr(form->part[VALUE_END], SLOT_ID) ? strlen(keys[2]) - 1 : 0;
    rest = rest_of(rest, value < rest.length ? value : rest.length);
    if (between.at == NULL)
        return put(form->part[END], rest);
    between = rest_of(between, value < between.length ? value : between.length);
    const struct span end = trim_end((struct span){between.at, common_start(between, rest)});
    struct span closing = skip_blanks(rest_of(rest, end.length));
    for (size_t i = 0; i < closing.length; i++) // whatever follows it ends the turn
        if (isspace((unsigned char)closing.at[i]) || (closing.at[i] == '<' && i > 0 && closing.at[i - 1] == '>'))
            closing.length = i;
    return put(form->part[END], end) && put(form->part[BETWEEN], rest_of(between, end.length)) &&
           (form->part[OPENING][0] == 0 || put(form->part[CLOSING], closing));
}

// "key": at its end; false: it has none.
static bool key_at_end(char *key, struct span text, size_t *begins_at)
{
    text = trim_end(text);
    if (text.length == 0 || text.at[text.length - 1] != ':')
        return false;
    text.length--;
    text = trim_end(text);
    size_t from = text.length ? text.length - 1 : 0;
    if (text.length < 3 || text.at[from] != '"')
        return false;
    const size_t to = from;
    while (from > 0 && text.at[from - 1] != '"')
        from--;
    if (from == 0 || to - from >= FORM_MAX_KEY)
        return false;
    memcpy(key, text.at + from, to - from);
    key[to - from] = 0;
    *begins_at = from - 1;
    return true;
}

// Where the name is a member of a JSON object, its ends move from the frame's parts to LEAD and TAIL.
static void find_object(struct call_form *form)
{
    char *begin = form->part[BEGIN], *end = form->part[END];
    const size_t n = strlen(begin);
    size_t at;
    if (form->arguments != ARGUMENTS_JSON || n == 0 || begin[n - 1] != '"' ||
        !key_at_end(form->name_key, (struct span){begin, n - 1}, &at) ||
        !key_at_end(form->arguments_key, (struct span){form->part[MIDDLE], strlen(form->part[MIDDLE])}, &at))
        return;
    char *brace = strrchr(begin, '{'), *closes = strchr(end, '}');
    if (brace == NULL || closes == NULL)
        return;
    form->is_object = true;
    strcpy(form->part[LEAD], brace);
    *brace = 0;
    put(form->part[TAIL], up_to(end, closes + 1));
    memmove(end, closes + 1, strlen(closes + 1) + 1);
}

// ---------------------------------------------------------------- the whole

struct shown {
    char *one, *two, *after, *plain; // what a call, two, text and a call, and text alone are rendered as; owned
};

static bool learn_calls(struct call_form *form, const struct shown *shown)
{
    struct seen_call first, second, later;
    const char *text = shown->two ? shown->two : shown->one;
    if (!see_call(&first, form, text, 0) || (shown->two && !see_call(&second, form, first.end, 1)))
        return false;
    struct span behind = {0}, between = {0};
    const char *said = shown->after ? strstr(shown->after, answer) : NULL;
    if (said && see_call(&later, form, said, 0))
        behind = up_to(said + strlen(answer), later.name);
    const struct span opening = opening_of(up_to(text, first.name), behind, shown->plain);
    struct span begin = opening;
    const struct seen_call *last = shown->two ? &second : &first;
    const struct span rest = before_turn((struct span){last->end, strlen(last->end)}, shown->plain);
    if (shown->two) {
        between = up_to(first.end, second.name);
        begin = skip_blanks(common_end(up_to(text, first.name), between));
        if (begin.length > opening.length && opening.length > 0)
            begin = opening;
    }
    const struct span middle = up_to(first.name + strlen(names[0]), first.arguments);
    const char *other = shown->two ? second.name + strlen(names[1]) : NULL;
    if (begin.length <= opening.length && !put(form->part[OPENING], (struct span){opening.at, opening.length - begin.length}))
        return false;
    if (!put_numbered(form->part[BEGIN], begin, shown->two ? second.name - begin.length : NULL))
        return false;
    if (shown->two)
        between.length -= begin.length;
    if (form->arguments == ARGUMENTS_JSON ? !put_numbered(form->part[MIDDLE], middle, other)
                                          : !learn_members(form, middle, other, first.arguments, rest))
        return false;
    return learn_ends(form, between, rest);
}

void form_learn(struct call_form *form, const char *chat_template, form_render *render, void *context)
{
    *form = (struct call_form){0};
    if (form_of_channels(form, chat_template))
        return;
    for (int way = 0; render && way < 4 && !form->known; way++) {
        struct probe probe = {.as_text = way & 1, .named_ids = way & 2};
        struct shown shown = {0};
        *form = (struct call_form){.as_text = probe.as_text};
        for (probe.n_calls = 2; probe.n_calls >= 0; probe.n_calls--)
            *(probe.n_calls == 2 ? &shown.two
              : probe.n_calls    ? &shown.one
                                 : &shown.plain) = render_probe(&probe, render, context);
        probe.n_calls = 1;
        probe.content = true;
        shown.after = render_probe(&probe, render, context);
        if ((shown.one || shown.two) && learn_calls(form, &shown)) {
            for (int i = 0; i < 2; i++) {
                make_slots(form->part[OPENING], names[i]);
                make_slots(form->part[BETWEEN], names[i]);
            }
            find_object(form);
            form_finish(form);
        }
        free(shown.one);
        free(shown.two);
        free(shown.after);
        free(shown.plain);
    }
    if (!form->known)
        form_by_name(form, chat_template);
}
