// See automaton.h: states in which any plain characters may come.
#include "grammar/stacks.h"

#include <limits.h>

// Whether the set has bytes of plain characters: all but controls, quotes and backslashes.
static bool has_plain_bytes(const struct byte_set *set)
{
    return (set->bits[0] & grammar_plain[0]) || (set->bits[1] & grammar_plain[1]) || set->bits[2] || set->bits[3];
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
    const struct stack_node below = a->nodes[node.below];
    const struct element *back = &g->elements[below.place], *call = back - 1;
    if (call->kind == ELEMENT_CALL && call->endless && call->index == (int)class - 1)
        return INT_MAX;
    if (!g->rules[class - 1].plain)
        return 0;
    if (back->kind == ELEMENT_CALL && g->rules[back->index].endless)
        return INT_MAX;
    if (back->kind != ELEMENT_COUNT)
        return 1;
    const struct count *count = &g->counts[back->index];
    return count->most < 0 ? INT_MAX : count->most - below.came + 1;
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
