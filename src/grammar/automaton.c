// See automaton.h. Stacks share their lower parts: one is a node, which names a place in the grammar and the stack below.
// Nodes, and states as sets of nodes, are found by hash, so that equal ones are the same. A node in a bag also names the parts
// that have come, a list from the highest down. Its cells are nodes, too: `place` is the part, `below` the rest of the list.
#include "grammar/stacks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNKNOWN = -2 };

// ---------------------------------------------------------------- making states

static uint32_t state_hash(const struct automaton *a, int state)
{
    const struct stack_set *s = &a->states[state];
    uint32_t hash = s->accepts;
    for (int i = 0; i < s->n; i++)
        hash = table_mix((uint64_t)hash << 32 | (uint32_t)a->stacks[s->first + i]);
    return hash;
}

static bool same_state(const struct automaton *a, int x, int y)
{
    const struct stack_set *s = &a->states[x], *t = &a->states[y];
    return s->n == t->n && s->accepts == t->accepts &&
           memcmp(a->stacks + s->first, a->stacks + t->first, (size_t)s->n * sizeof *a->stacks) == 0;
}

static void begin_state(struct automaton *a)
{
    a->n_found = a->n_work = 0;
    a->accepts = false;
    a->making++;
}

// Follows calls and ends until all stacks begin with a byte.
static void close_state(struct automaton *a)
{
    const struct grammar *g = a->grammar;
    int looked_at = 0;
    while (a->n_work > 0 && !a->failed) {
        const int node = a->work[--a->n_work];
        const struct stack_node at = a->nodes[node];
        const struct element *element = &g->elements[at.place];
        const bool begins = element->kind == ELEMENT_BYTE || element->kind == ELEMENT_BRANCH;
        if (--a->work_left < 0 || ++looked_at > 16 * AUTOMATON_MAX_STACKS || (begins && a->n_found == AUTOMATON_MAX_STACKS)) {
            a->failed = true;
        } else if (begins) {
            a->found[a->n_found++] = node;
        } else if (element->kind == ELEMENT_END && at.below == NO_STACK) {
            a->accepts = true;
        } else if (element->kind == ELEMENT_END) {
            stack_meet(a, at.below);
        } else if (element->kind == ELEMENT_CALL) {
            // A call at a rule's end leaves nothing to come back to: repetition does not deepen the stack.
            stack_meet_rule(a, element->index,
                            element[1].kind == ELEMENT_END ? at.below : stack_make(a, at.place + 1, at.below, NO_STACK));
        } else if (element->kind == ELEMENT_BAG) {
            bag_between(a, at);
        } else if (element->kind == ELEMENT_CHOICE) {
            bag_choice(a, at);
        } else {
            bag_after(a, at);
        }
    }
}

// Whether any GRAMMAR_PLAIN plain characters may come by the stack, which begins with a byte of the first.
static bool leads_on(const struct automaton *a, int node)
{
    const struct grammar *g = a->grammar;
    int place = a->nodes[node].place + 1, below = a->nodes[node].below, back[GRAMMAR_PLAIN], depth = 0, count = 1;
    for (int steps = 0; count < GRAMMAR_PLAIN && steps < 8 * GRAMMAR_PLAIN; steps++) {
        const struct element *at = &g->elements[place];
        if (at->kind == ELEMENT_BYTE || at->kind >= ELEMENT_BAG || (at->kind == ELEMENT_END && depth == 0 && below == NO_STACK))
            return false;
        if (at->kind == ELEMENT_END && depth > 0) {
            place = back[--depth];
        } else if (at->kind == ELEMENT_END) {
            place = a->nodes[below].place;
            below = a->nodes[below].below;
        } else if (g->rules[at->index].plain) {
            count++;
            place++;
        } else { // a repetition begins with what it repeats
            if (at[1].kind != ELEMENT_END && depth == GRAMMAR_PLAIN)
                return false;
            if (at[1].kind != ELEMENT_END)
                back[depth++] = place + 1;
            if (g->rules[at->index].n == 0)
                return false;
            place = g->rules[at->index].alternatives[0];
        }
    }
    return count == GRAMMAR_PLAIN;
}

static int compare_ints(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

static bool room_for_state(struct automaton *a)
{
    if (a->n_states == a->states_room) {
        const int room = a->states_room ? a->states_room * 2 : 64;
        struct stack_set *grown = realloc(a->states, (size_t)room * sizeof *grown);
        if (grown == NULL)
            return false;
        a->states = grown;
        a->states_room = room;
    }
    if (a->n_stacks + a->n_found >= a->stacks_room) {
        const int room = 2 * (a->n_stacks + a->n_found) + 1024;
        int *grown = realloc(a->stacks, (size_t)room * sizeof *grown);
        if (grown == NULL)
            return false;
        a->stacks = grown;
        a->stacks_room = room;
    }
    return true;
}

static int end_state(struct automaton *a)
{
    close_state(a);
    if (a->failed || (a->n_found == 0 && !a->accepts))
        return STATE_DEAD;
    if (!room_for_state(a)) {
        a->failed = true;
        return STATE_DEAD;
    }
    qsort(a->found, (size_t)a->n_found, sizeof *a->found, compare_ints);
    struct stack_set *state = &a->states[a->n_states];
    state->first = a->n_stacks;
    state->n = a->n_found;
    state->accepts = a->accepts;
    memcpy(a->stacks + a->n_stacks, a->found, (size_t)a->n_found * sizeof *a->found);
    const int found = table_find(a, &a->state_table, a->n_states, state_hash, same_state);
    if (found == a->n_states) {
        for (int i = 0; i < 256; i++)
            state->next[i] = UNKNOWN;
        state->plain = false;
        for (int i = 0; i < a->n_found && !state->plain; i++) {
            const struct element *begin = &a->grammar->elements[a->nodes[a->found[i]].place];
            state->plain = begin->kind == ELEMENT_BYTE && a->grammar->sets[begin->index].plain && leads_on(a, a->found[i]);
        }
        a->n_stacks += a->n_found;
        a->n_states++;
    }
    return found;
}

int automaton_step(struct automaton *a, int state, unsigned char byte)
{
    const int known = a->states[state].next[byte];
    if (known != UNKNOWN)
        return known;
    begin_state(a);
    a->work_left -= a->states[state].n;
    a->failed |= a->work_left < 0;
    for (int i = 0; i < a->states[state].n && !a->failed; i++) {
        const struct stack_node node = a->nodes[a->stacks[a->states[state].first + i]];
        if (a->grammar->elements[node.place].kind == ELEMENT_BRANCH)
            bag_branch(a, node, byte);
        else if (byte_set_holds(&a->grammar->sets[a->grammar->elements[node.place].index], byte))
            stack_meet(a, stack_make(a, node.place + 1, node.below, NO_STACK));
    }
    const int next = end_state(a);
    if (!a->failed)
        a->states[state].next[byte] = next;
    return next;
}

static int make_start(struct automaton *a, int rule)
{
    begin_state(a);
    stack_meet_rule(a, rule, NO_STACK);
    return end_state(a);
}

// ---------------------------------------------------------------- opening

static void forget(struct automaton *a)
{
    free(a->node_table.slots);
    free(a->state_table.slots);
    a->node_table = a->state_table = (struct table){0};
    a->n_nodes = a->n_states = a->n_stacks = 0;
    a->generation++;
}

struct automaton *automaton_open(const struct grammar *grammar, yalm_error *error)
{
    struct automaton *a = calloc(1, sizeof *a);
    if (a) {
        a->grammar = grammar;
        a->found = malloc(AUTOMATON_MAX_STACKS * sizeof *a->found);
        a->work = malloc(AUTOMATON_MAX_STACKS * sizeof *a->work);
        for (int i = 0; i < grammar->n_bags; i++)
            a->parts_room = bag_room(&grammar->bags[i], a->parts_room);
        a->parts = malloc(((size_t)a->parts_room + 1) * sizeof *a->parts);
    }
    if (a == NULL || a->found == NULL || a->work == NULL || a->parts == NULL) {
        *error = (yalm_error){YALM_NO_MEMORY, "out of memory for a grammar"};
        automaton_close(a);
        return NULL;
    }
    a->work_left = AUTOMATON_MAX_WORK;
    a->start = make_start(a, grammar->root);
    if (!a->failed && a->start != STATE_DEAD)
        return a;
    *error = (yalm_error){.status = YALM_USAGE};
    snprintf(error->text, sizeof error->text, "grammar: %s",
             a->failed ? "there are too many ways to begin a text" : "no text fits it");
    automaton_close(a);
    return NULL;
}

void automaton_close(struct automaton *a)
{
    if (a == NULL)
        return;
    forget(a);
    free(a->nodes);
    free(a->seen);
    free(a->states);
    free(a->stacks);
    free(a->found);
    free(a->work);
    free(a->parts);
    free(a);
}

int automaton_start(const struct automaton *a)
{
    return a->start;
}

bool automaton_accepts(const struct automaton *a, int state)
{
    return a->states[state].accepts;
}

bool automaton_is_plain(const struct automaton *a, int state)
{
    return a->states[state].plain;
}

bool automaton_is_final(const struct automaton *a, int state)
{
    return a->states[state].accepts && a->states[state].n == 0;
}

bool automaton_failed(const struct automaton *a)
{
    return a->failed;
}

int automaton_generation(const struct automaton *a)
{
    return a->generation;
}

// ---------------------------------------------------------------- forgetting

// Makes the stack again among new nodes: its places from the bottom up.
static int copy_stack(struct automaton *a, const struct stack_node *old, int node)
{
    int depth = 0;
    for (int at = node; at != NO_STACK; at = old[at].below)
        depth++;
    int *nodes = malloc(((size_t)depth + 1) * sizeof *nodes), made = NO_STACK;
    if (nodes == NULL) {
        a->failed = true;
        return 0;
    }
    for (int at = node, i = 0; at != NO_STACK; at = old[at].below)
        nodes[i++] = at;
    for (int i = depth; i-- > 0 && !a->failed;)
        made = stack_make(a, old[nodes[i]].place, made, bag_copy(a, old, old[nodes[i]].came));
    free(nodes);
    return made;
}

bool automaton_tidy(struct automaton *a, int *state)
{
    a->work_left = AUTOMATON_MAX_WORK;
    if (a->n_states < AUTOMATON_MAX_STATES && a->n_nodes < 16 * AUTOMATON_MAX_STATES)
        return !a->failed;
    const struct stack_set kept = a->states[*state];
    int *stacks = malloc(((size_t)kept.n + 1) * sizeof *stacks);
    struct stack_node *old = malloc(((size_t)a->n_nodes + 1) * sizeof *old);
    if (stacks && old) {
        memcpy(stacks, a->stacks + kept.first, (size_t)kept.n * sizeof *stacks);
        memcpy(old, a->nodes, (size_t)a->n_nodes * sizeof *old);
        forget(a);
        a->start = make_start(a, a->grammar->root);
        begin_state(a);
        for (int i = 0; i < kept.n && !a->failed; i++)
            stack_meet(a, copy_stack(a, old, stacks[i]));
        a->accepts = kept.accepts;
        *state = end_state(a);
    } else
        a->failed = true;
    free(stacks);
    free(old);
    return !a->failed;
}
