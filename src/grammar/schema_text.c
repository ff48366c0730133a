// Rules of strings and numbers.

#include "grammar/numbers.h"
#include "grammar/schema_writer.h"

void schema_write_literal(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 32 || c == 127)
            fprintf(out, "\\x%02x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

// ---------------------------------------------------------------- automata

static void write_point(FILE *out, uint32_t c)
{
    if (c < 0x80 && (c >= 'a' ? c <= 'z' : c >= 'A' ? c <= 'Z' : c >= '0' && c <= '9'))
        fputc((int)c, out);
    else
        fprintf(out, c < 0x80 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
}

static void write_range(FILE *out, uint32_t first, uint32_t last)
{
    if (first >= 0xd800 && first < 0xe000) // surrogates are no characters
        first = 0xe000;
    if (last >= 0xd800 && last < 0xe000)
        last = 0xd7ff;
    if (first > last)
        return;
    write_point(out, first);
    if (first < last) {
        fputc('-', out);
        write_point(out, last);
    }
}

static bool leads(const struct dfa_state *state, uint32_t c, int to)
{
    for (int k = 0; k < state->n; k++)
        if (state->edges[k].first <= c && c <= state->edges[k].last)
            return state->edges[k].to == to;
    return false;
}

// Whether all characters that stand in a string as they are lead to `to`: they have the rule that masks know.
static bool takes_plain(const struct dfa_state *state, int to)
{
    const struct dfa_edge *last = &state->edges[state->n - 1];
    bool all = last->to == to && last->first <= 0x80 && last->last == LAST_CHARACTER;
    for (uint32_t c = 0x20; all && c < 0x80; c++)
        all = c == '"' || c == '\\' || leads(state, c, to);
    return all;
}

// An alternative for the characters of a state's edges to `to` that stand in a string as they are, and then `next`. All beyond
// ASCII have a rule in common.
static void write_plain(FILE *out, const struct dfa_state *state, int to, const char *next, const char **bar)
{
    static const struct dfa_edge plain[] = {{0x20, '"' - 1, 0}, {'"' + 1, '\\' - 1, 0}, {'\\' + 1, LAST_CHARACTER, 0}};
    bool any = false, beyond = false;
    if (takes_plain(state, to)) {
        fprintf(out, "%splain%s", *bar, next);
        *bar = " | ";
        return;
    }
    for (int k = 0; k < state->n; k++) {
        if (state->edges[k].to != to)
            continue;
        const bool all = state->edges[k].first <= 0x80 && state->edges[k].last == LAST_CHARACTER;
        beyond |= all;
        for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
            const uint32_t first = state->edges[k].first > plain[i].first ? state->edges[k].first : plain[i].first;
            uint32_t last = state->edges[k].last < plain[i].last ? state->edges[k].last : plain[i].last;
            last = all && last > 0x7f ? 0x7f : last;
            if (first > last || (first >= 0xd800 && last < 0xe000))
                continue;
            if (!any)
                fprintf(out, "%s[", *bar);
            any = true;
            write_range(out, first, last);
        }
    }
    if (any) {
        fprintf(out, "]%s", next);
        *bar = " | ";
    }
    if (beyond) {
        fprintf(out, "%suni%s", *bar, next);
        *bar = " | ";
    }
}

// Those that must be escaped: each has its short form, or its number.
static void write_escaped(FILE *out, const struct dfa_state *state, int to, const char *next, const char **bar)
{
    static const char *const escapes[] = {
        ['"'] = "\\\"", ['\\'] = "\\\\", ['\n'] = "n", ['\t'] = "t", ['\r'] = "r", ['\f'] = "f", ['\b'] = "b"};
    int n = 0;
    for (uint32_t c = 0; c <= '\\'; c++)
        n += (c < 32 || escapes[c]) && leads(state, c, to);
    if (n == 34) {
        fprintf(out, "%sesc%s", *bar, next);
        *bar = " | ";
        return;
    }
    for (uint32_t c = 0; c <= '\\' && n > 0; c++) {
        if ((c >= 32 && !escapes[c]) || !leads(state, c, to))
            continue;
        if (escapes[c])
            fprintf(out, "%s\"\\\\%s\"%s", *bar, escapes[c], next);
        else
            fprintf(out, "%s\"\\\\u00%x\" [%x%X]%s", *bar, (unsigned)c >> 4, (unsigned)c & 15, (unsigned)c & 15, next);
        *bar = " | ";
    }
}

// Marks the states from which any string is taken: they have the rule of any characters, which masks know.
static bool *find_open(struct pool *pool, const struct dfa *dfa)
{
    bool *open = pool_take(pool, (size_t)dfa->n + 1), changed = true;
    for (int i = 0; i < dfa->n; i++) {
        const struct dfa_state *state = &dfa->states[i];
        open[i] =
            state->accepts && state->n > 0 && state->edges[0].first == 0 && state->edges[state->n - 1].last == LAST_CHARACTER;
        for (int k = 1; k < state->n; k++)
            open[i] &= state->edges[k - 1].last + 1 == state->edges[k].first;
    }
    while (changed) {
        changed = false;
        for (int i = 0; i < dfa->n; i++)
            for (int k = 0; open[i] && k < dfa->states[i].n; k++)
                if (!open[dfa->states[i].edges[k].to]) {
                    open[i] = false;
                    changed = true;
                }
        pool_work(pool, dfa->n);
    }
    return open;
}

static bool have_same_edges(const struct dfa_state *x, const struct dfa_state *y)
{
    bool same = x->n == y->n && x->accepts == y->accepts;
    for (int k = 0; same && k < y->n; k++)
        same =
            x->edges[k].first == y->edges[k].first && x->edges[k].last == y->edges[k].last && y->edges[k].to == y->edges[0].to;
    return same;
}

// States that count: each leads to the next alone, by the same characters. *end: the one behind. Where strings may end at each,
// they must end behind the last. 0: it is no such state.
static int count_chain(const struct dfa *dfa, const int *n_sources, int start, int *end)
{
    const struct dfa_state *first = &dfa->states[start];
    int n = 0, at = start;
    while (dfa->states[at].n > 0 && have_same_edges(first, &dfa->states[at]) && (n == 0 || (n_sources[at] == 1 && at != 0))) {
        at = dfa->states[at].edges[0].to;
        n++;
    }
    *end = at;
    return n < 4 || (first->accepts && (dfa->states[at].n > 0 || !dfa->states[at].accepts)) ? 0 : n;
}

static void write_state(struct schema_writer *w, const struct dfa *dfa, int *met, int i, int name)
{
    const struct dfa_state *state = &dfa->states[i];
    const char *bar = "";
    for (int k = 0; k < state->n; k++) {
        char next[32];
        const int to = state->edges[k].to;
        if (met[to] == i + 1)
            continue;
        met[to] = i + 1;
        snprintf(next, sizeof next, " d%d-%d", name, to);
        write_plain(w->out, state, to, next, &bar);
        write_escaped(w->out, state, to, next, &bar);
    }
    if (state->accepts)
        fprintf(w->out, "%s\"\"", bar);
    else if (!*bar)
        fputs("never", w->out);
}

int schema_write_dfa(struct schema_writer *w, const struct dfa *dfa)
{
    FILE *out = w->out;
    const int name = w->n_dfas++;
    dfa = dfa_minimal(&w->s.pool, dfa);
    const bool *open = find_open(&w->s.pool, dfa);
    int *met = pool_take(&w->s.pool, ((size_t)dfa->n + 1) * sizeof *met);
    int *n_sources = pool_take(&w->s.pool, ((size_t)dfa->n + 1) * sizeof *n_sources);
    bool *within = pool_take(&w->s.pool, (size_t)dfa->n + 1);
    for (int i = 0; i < dfa->n; i++)
        for (int k = 0; k < dfa->states[i].n; k++)
            if (k == 0 || dfa->states[i].edges[k].to != dfa->states[i].edges[0].to)
                n_sources[dfa->states[i].edges[k].to]++;
    for (int i = 0, end; i < dfa->n; i++) {
        const struct dfa_state *state = &dfa->states[i];
        const char *bar = "";
        const int n = within[i] || open[i] ? 0 : count_chain(dfa, n_sources, i, &end);
        if (within[i])
            continue;
        fprintf(out, "d%d-%d ::= ", name, i);
        if (open[i]) {
            fputs("char*", out);
        } else if (n == 0) {
            write_state(w, dfa, met, i, name);
        } else {
            for (int k = 1, at = state->edges[0].to; k < n; k++, at = dfa->states[at].edges[0].to)
                within[at] = true;
            fputc('(', out);
            write_plain(out, state, state->edges[0].to, "", &bar);
            write_escaped(out, state, state->edges[0].to, "", &bar);
            fputs(*bar ? "" : "never", out);
            if (state->accepts)
                fprintf(out, "){0,%d}", n);
            else
                fprintf(out, "){%d} d%d-%d", n, name, end);
        }
        fputc('\n', out);
    }
    pool_work(&w->s.pool, 8L * dfa->n);
    return name;
}

// ---------------------------------------------------------------- rules

// Writes a rule that is there already once more; false where it is new.
static bool write_again(struct schema_writer *w, const struct part *part, int rule)
{
    for (const struct written *old = w->written; old; old = old->next)
        if (old->part.type == part->type && old->part.text == part->text && old->part.integer == part->integer &&
            old->part.low == part->low && old->part.high == part->high && old->part.low_open == part->low_open &&
            old->part.high_open == part->high_open && old->part.least == part->least && old->part.most == part->most) {
            fprintf(w->out, "r%d ::= r%d\n", rule, old->rule);
            return true;
        }
    struct written *new = pool_take(&w->s.pool, sizeof *new);
    *new = (struct written){*part, rule, w->written};
    w->written = new;
    return false;
}

void schema_write_string(struct schema_writer *w, const struct part *part, int rule)
{
    if (part->text == NULL && part->least == 0 && part->most < 0) {
        fprintf(w->out, "r%d ::= string\n", rule);
        return;
    }
    if (write_again(w, part, rule))
        return;
    if (part->text == NULL) {
        fprintf(w->out, "r%d ::= \"\\\"\" char{%d,", rule, part->least);
        if (part->most >= 0)
            fprintf(w->out, "%d", part->most);
        fputs("} \"\\\"\"\n", w->out);
        return;
    }
    fprintf(w->out, "r%d ::= \"\\\"\" d%d-0 \"\\\"\"\n", rule, schema_write_dfa(w, part->text));
}

void schema_write_number(struct schema_writer *w, const struct part *part, int rule)
{
    const bool low = part->low > -1e20, high = part->high < 1e20;
    if (!low && !high && part->text == NULL) {
        fprintf(w->out, "r%d ::= %s\n", rule, part->integer ? "integer" : "number");
        return;
    }
    if (write_again(w, part, rule))
        return;
    const struct dfa *text = numbers_of(&w->s, part);
    if (text->n == 0)
        pool_refuse(&w->s.pool, "no number of at most 20 digits fits its bounds");
    const int name = schema_write_dfa(w, text);
    fprintf(w->out, "r%d ::= d%d-0\n", rule, name);
}
