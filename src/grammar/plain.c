// See automaton.h: states in which any plain characters may come.
#include "grammar/stacks.h"

#include <limits.h>

enum { COUNTED = 1024 }; // characters are not counted beyond

// Whether the set has bytes of plain characters: all but controls, quotes and backslashes.
static bool has_plain_bytes(const struct byte_set *set)
{
    const uint64_t low = ~UINT64_C(0) << ' ' & ~(UINT64_C(1) << '"'), high = ~(UINT64_C(1) << ('\\' - 64));
    return (set->bits[0] & low) || (set->bits[1] & high) || set->bits[2] || set->bits[3];
}

// Whether the stack goes through a class of all plain characters that has ASCII ones in `other`, and from its beginning.
static bool begins_class(const struct grammar *g, struct stack_node node, struct stack_node other)
{
    const struct element *begin = &g->elements[other.place];
    const uint64_t class = begin->kind == ELEMENT_BYTE ? g->sets[begin->index].class : 0;
    if (class == 0 || !g->rules[class - 1].plain || other.below != node.below)
        return false;
    for (int i = 0; i < g->rules[class - 1].n; i++)
        if (g->rules[class - 1].alternatives[i] == node.place)
            return true;
    return false;
}

// Whether each plain character leads to the state itself: those of one class in all stacks lead to the same state, so one is
// tried.
static bool is_same_behind(struct automaton *a, int state)
{
    for (int i = 0; i < a->states[state].n; i++) {
        const struct stack_node node = a->nodes[a->stacks[a->states[state].first + i]];
        const struct element *begin = &a->grammar->elements[node.place];
        bool found = begin->kind == ELEMENT_BYTE && !has_plain_bytes(&a->grammar->sets[begin->index]);
        for (int k = 0; k < a->states[state].n && !found; k++)
            found = begins_class(a->grammar, node, a->nodes[a->stacks[a->states[state].first + k]]);
        if (!found)
            return false;
    }
    return automaton_step(a, state, 'a') == state;
}

// How many characters a repetition takes, the first of which is the element: part part rest, rest: part rest' | , and so on.
static int count_repeated(const struct grammar *g, const struct element *part)
{
    const struct element *at = part + 1;
    int count = 1;
    while (count < COUNTED && at->kind == ELEMENT_CALL) {
        const struct rule *rest = &g->rules[at->index];
        if (rest->endless)
            return INT_MAX;
        if (at->index != part->index) {
            at = rest->n > 0 ? &g->elements[rest->alternatives[0]] : at;
            if (at->kind != ELEMENT_CALL || at->index != part->index)
                return count;
        }
        count++;
        at++;
    }
    return count;
}

// How many plain characters may come at least, any of them, by the stack. What begins an alternative begins its rule, and the
// other alternatives are there, too.
static int count_plain(const struct automaton *a, int stack)
{
    const struct stack_node node = a->nodes[stack];
    const struct grammar *g = a->grammar;
    const struct element *begin = &g->elements[node.place];
    if (begin->kind != ELEMENT_BYTE || begin->endless)
        return begin->kind == ELEMENT_BYTE ? INT_MAX : 0;
    const uint64_t class = g->sets[begin->index].class;
    if (class == 0 || node.below == NO_STACK)
        return 0;
    const struct element *back = &g->elements[a->nodes[node.below].place], *call = back - 1;
    if (call->kind == ELEMENT_CALL && call->endless && call->index == (int)class - 1)
        return INT_MAX;
    if (!g->rules[class - 1].plain)
        return 0;
    if (back->kind == ELEMENT_CALL && g->rules[back->index].endless)
        return INT_MAX;
    return call->kind == ELEMENT_CALL ? count_repeated(g, call) : 1;
}

int automaton_plain(struct automaton *a, int state, bool *same)
{
    if (a->states[state].plain == UNKNOWN) {
        int most = 0;
        for (int i = 0; i < a->states[state].n; i++) {
            const int count = count_plain(a, a->stacks[a->states[state].first + i]);
            most = count > most ? count : most;
        }
        const bool is_same = most == INT_MAX && is_same_behind(a, state);
        a->states[state].plain = most;
        a->states[state].same = is_same;
    }
    *same = a->states[state].same;
    return a->states[state].plain;
}
