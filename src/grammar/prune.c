// See build.h: which rules have texts, and which call themselves first. All of it is linear in the grammar.
#include <stdlib.h>
#include <string.h>

#include "grammar/build.h"

static bool is_empty(const struct byte_set *set)
{
    return (set->bits[0] | set->bits[1] | set->bits[2] | set->bits[3]) == 0;
}

// The bag of which the element is.
static const struct bag *bag_of(const struct grammar *g, const struct element *at)
{
    return &g->bags[at->kind == ELEMENT_AFTER ? at[-2 - at->index].index : at->index];
}

// The rule that is called at the element, or in a bag before it; -1: none. must: no text does without it.
static int called(const struct grammar *g, const struct element *at, bool *must)
{
    *must = true;
    if (at->kind == ELEMENT_CALL)
        return at->index;
    if (at->kind == ELEMENT_COUNT) {
        *must = g->counts[at->index].least > 0;
        return g->counts[at->index].rule;
    }
    if (at->kind != ELEMENT_CHOICE && at->kind != ELEMENT_AFTER)
        return -1;
    const struct bag *bag = bag_of(g, at);
    *must = at->kind == ELEMENT_CHOICE ? bag->n_must > 1 || bag->least > 1 : bag->parts[at->index].must;
    return at->kind == ELEMENT_CHOICE ? bag->separator : bag->parts[at->index].rule;
}

// Whether as many parts of a bag hold as have to come; where one may come again, it is enough.
static bool bag_holds(const struct bag *bag, const bool *holds)
{
    int n = 0;
    for (int i = 0; i < bag->n && n < bag->least; i++)
        n = !holds[bag->parts[i].rule] ? n : bag->parts[i].again ? bag->least : n + 1;
    return n >= bag->least;
}

// How many of the things that its alternative lacks are there once the rule that is called at the element holds.
static int n_settled(const struct grammar *g, const struct element *at, int *lacking)
{
    bool must;
    called(g, at, &must);
    if (at->kind != ELEMENT_AFTER)
        return must;
    const struct bag *bag = bag_of(g, at);
    int *lacks = &lacking[bag - g->bags];
    if (*lacks == 0)
        return must;
    *lacks = bag->parts[at->index].again ? 0 : *lacks - 1;
    return must + (*lacks == 0);
}

// Marks the rules of which an alternative holds: all of its elements do. A call does where its rule does, a byte where `bytes`.
static bool mark(const struct grammar *g, bool bytes, bool *holds)
{
    const size_t n_elements = (size_t)g->n_elements, n_rules = (size_t)g->n_rules;
    int *missing = malloc((4 * n_elements + 2 * n_rules + (size_t)g->n_bags + 1) * sizeof *missing), n_waiting = 0;
    if (missing == NULL)
        return false;
    int *firsts = missing + n_elements, *owners = firsts + n_elements; // missing and owners: at an alternative's first element
    int *next = owners + n_elements, *calls = next + n_elements;       // the calls of each rule as a list; -1: no more
    int *waiting = calls + n_rules;                                    // rules that hold, whose callers do not know yet
    int *lacking = waiting + n_rules;                                  // (n_bags) how many parts have to hold, besides
    memset(calls, 0xff, n_rules * sizeof *calls);
    for (int rule = 0; rule < g->n_rules; rule++)
        for (int i = 0; i < g->rules[rule].n; i++) {
            const int first = g->rules[rule].alternatives[i];
            missing[first] = 0;
            owners[first] = rule;
            for (int at = first; g->elements[at].kind != ELEMENT_END; at++) {
                bool must;
                const struct element *element = &g->elements[at];
                const int callee = called(g, element, &must);
                firsts[at] = first;
                if (element->kind == ELEMENT_BYTE)
                    missing[first] += !bytes || is_empty(&g->sets[element->index]);
                else if (element->kind == ELEMENT_BAG)
                    missing[first] += (lacking[element->index] = g->bags[element->index].least) > 0;
                if (callee < 0)
                    continue;
                missing[first] += must;
                next[at] = calls[callee];
                calls[callee] = at;
            }
            if (missing[first] == 0 && !holds[rule]) {
                holds[rule] = true;
                waiting[n_waiting++] = rule;
            }
        }
    while (n_waiting > 0)
        for (int call = calls[waiting[--n_waiting]]; call >= 0; call = next[call]) {
            const int owner = owners[firsts[call]];
            missing[firsts[call]] -= n_settled(g, &g->elements[call], lacking);
            if (missing[firsts[call]] == 0 && !holds[owner]) {
                holds[owner] = true;
                waiting[n_waiting++] = owner; // not read again above: the list of calls is the old rule's
            }
        }
    free(missing);
    return true;
}

static bool has_texts(const struct grammar *g, const struct element *at, const bool *has_text)
{
    bool must;
    const int rule = called(g, at, &must);
    if (at->kind == ELEMENT_BYTE)
        return !is_empty(&g->sets[at->index]);
    if (at->kind == ELEMENT_BAG)
        return bag_holds(&g->bags[at->index], has_text);
    return !must || has_text[rule];
}

// Drops the alternatives that no text fits, so that none is begun.
static void drop_empty(struct grammar *g, const bool *has_text)
{
    for (int i = 0; i < g->n_rules; i++) {
        struct rule *rule = &g->rules[i];
        int kept = 0;
        for (int k = 0; k < rule->n; k++) {
            const struct element *at = &g->elements[rule->alternatives[k]];
            while (at->kind != ELEMENT_END && has_texts(g, at, has_text))
                at++;
            if (at->kind == ELEMENT_END)
                rule->alternatives[kept++] = rule->alternatives[k];
        }
        rule->n = kept;
    }
}

// A rule on the way through the calls that rules begin with.
struct visit {
    int alternative, element; // the one to look at next, counted from the alternative's first
    int number, low;          // in the order of visits from 1 on; the earliest rule that is reached from it
    int group;                // one of the rules that call each other in a circle, itself among them; -1: not known
};

// Whether what stands behind the element may come first, too: in a bag any part may, behind it only where it takes nothing.
static bool lets_on(const struct grammar *g, const struct element *at, const bool *blank)
{
    if (at->kind == ELEMENT_CALL)
        return blank[at->index];
    if (at->kind == ELEMENT_COUNT)
        return g->counts[at->index].least == 0 || blank[g->counts[at->index].rule];
    if (at->kind == ELEMENT_BAG)
        return true;
    if (at->kind != ELEMENT_CHOICE && at->kind != ELEMENT_AFTER)
        return false;
    const struct bag *bag = bag_of(g, at);
    if ((at->kind == ELEMENT_CHOICE ? 0 : at->index + 1) < bag->n)
        return true;
    for (int i = 0; i < bag->n; i++)
        if (bag->parts[i].must && !blank[bag->parts[i].rule])
            return false;
    return bag_holds(bag, blank);
}

// The next of the rule's first calls: all before it may take nothing. tail: nothing stands behind it.
static bool next_call(const struct grammar *g, const bool *blank, int index, struct visit *visit, int *callee, bool *tail)
{
    const struct rule *rule = &g->rules[index];
    while (visit->alternative < rule->n) {
        const struct element *at = &g->elements[rule->alternatives[visit->alternative] + visit->element++];
        bool must;
        const int callee_here = called(g, at, &must);
        if (!lets_on(g, at, blank)) {
            visit->alternative++;
            visit->element = 0;
        }
        if (callee_here >= 0) {
            *callee = callee_here;
            *tail = at->kind == ELEMENT_CALL && at[1].kind == ELEMENT_END;
            return true;
        }
    }
    return false;
}

// Tarjan's strongly connected components of first calls, from `start` on. path, open (n_rules): rules on the way down, and
// those without a group.
static void find_groups(const struct grammar *g, const bool *blank, struct visit *visits, int start, int *path, int *open)
{
    int depth = 0, n_open = 0, count = 0, callee = start;
    bool tail, call = true;
    do {
        if (call && visits[callee].number == 0) {
            visits[callee].number = visits[callee].low = ++count;
            path[depth++] = open[n_open++] = callee;
        } else if (call) {
            struct visit *at = &visits[path[depth - 1]];
            if (visits[callee].group < 0 && visits[callee].number < at->low)
                at->low = visits[callee].number;
        } else {
            const int done = path[--depth];
            if (visits[done].low == visits[done].number)
                do
                    visits[open[--n_open]].group = done;
                while (open[n_open] != done);
            else if (visits[done].low < visits[path[depth - 1]].low)
                visits[path[depth - 1]].low = visits[done].low;
        }
        call = depth > 0 && next_call(g, blank, path[depth - 1], &visits[path[depth - 1]], &callee, &tail);
    } while (depth > 0);
}

// A rule that comes back to itself by a call with something behind it; -1 where there is none.
static bool find_loop(const struct grammar *g, const bool *blank, int *loop)
{
    struct visit *visits = calloc((size_t)g->n_rules + 1, sizeof *visits);
    int *path = malloc((2 * (size_t)g->n_rules + 1) * sizeof *path), callee;
    bool tail;
    for (int i = 0; visits && path && i < g->n_rules; i++)
        visits[i].group = -1;
    for (int i = 0; visits && path && i < g->n_rules; i++) {
        if (visits[i].number == 0)
            find_groups(g, blank, visits, i, path, path + g->n_rules);
        visits[i].alternative = visits[i].element = 0;
        while (*loop < 0 && next_call(g, blank, i, &visits[i], &callee, &tail))
            if (!tail && visits[callee].group == visits[i].group)
                *loop = visits[i].group;
    }
    const bool looked = visits && path;
    free(visits);
    free(path);
    return looked;
}

static void add_ascii(const struct grammar *g, const struct element *at, enum element_kind next, struct byte_set *set)
{
    for (int k = 0; at->kind == ELEMENT_BYTE && at[1].kind == next && k < 2; k++)
        set->bits[k] |= g->sets[at->index].bits[k];
}

// Whether the rule takes any plain character and goes on with an endless rule. Several alternatives may share the characters.
static bool goes_on(const struct grammar *g, const struct rule *rule, bool by_call)
{
    struct byte_set all = {0};
    bool beyond = false;
    for (int i = 0; i < rule->n; i++) {
        const struct element *at = &g->elements[rule->alternatives[i]];
        const struct rule *first = &g->rules[at->kind == ELEMENT_CALL ? at->index : 0];
        if (by_call && at->kind == ELEMENT_CALL && first->endless && goes_on(g, first, false))
            return true;
        if (at->kind == ELEMENT_END || at[1].kind != ELEMENT_CALL || !g->rules[at[1].index].endless)
            continue;
        if (at->kind == ELEMENT_CALL && first->plain)
            return true;
        beyond |= at->kind == ELEMENT_CALL && first->beyond;
        for (int k = 0; at->kind == ELEMENT_CALL && k < first->n; k++)
            add_ascii(g, &g->elements[first->alternatives[k]], ELEMENT_END, &all);
        add_ascii(g, at, ELEMENT_CALL, &all);
    }
    return beyond && (all.bits[0] | ~grammar_plain[0]) == ~UINT64_C(0) && (all.bits[1] | ~grammar_plain[1]) == ~UINT64_C(0);
}

// Finds the endless rules: all are held for such until they are seen not to be. Where that takes long, none is.
static void find_endless(struct grammar *g)
{
    bool changed = true;
    for (int i = 0; i < g->n_rules; i++) {
        for (int k = 0; k < g->rules[i].n; k++) {
            const struct element *at = &g->elements[g->rules[i].alternatives[k]];
            const bool hands_on = at->kind == ELEMENT_CALL && at[1].kind == ELEMENT_END;
            g->rules[i].plain |= hands_on && g->rules[at->index].plain;
            g->rules[i].beyond |= hands_on && g->rules[at->index].beyond;
        }
        g->rules[i].endless = true;
    }
    for (int turn = 0; turn < 16 && changed; turn++) {
        changed = false;
        for (int i = 0; i < g->n_rules; i++)
            if (g->rules[i].endless && !goes_on(g, &g->rules[i], true))
                changed = !(g->rules[i].endless = false);
    }
    for (int i = 0; i < g->n_rules; i++) {
        struct rule *rule = &g->rules[i];
        rule->endless &= !changed;
        for (int k = 0; k < rule->n; k++)
            g->elements[rule->alternatives[k]].endless = rule->endless;
    }
}

int build_end(struct builder *builder)
{
    struct grammar *g = builder->grammar;
    bool *has_text = calloc((size_t)g->n_rules + 1, sizeof *has_text), *blank = calloc((size_t)g->n_rules + 1, sizeof *blank);
    int loop = -1;
    bool good = has_text && blank && mark(g, true, has_text);
    if (good)
        drop_empty(g, has_text);
    find_endless(g);
    good = good && mark(g, false, blank) && find_loop(g, blank, &loop);
    builder->failed |= !good;
    if (good && loop < 0)
        build_branches(builder);
    free(has_text);
    free(blank);
    return loop;
}
