// See automaton.h. Stacks share their lower parts: one is a node, which names a place in the grammar and the stack below.
// Nodes, and states as sets of nodes, are found by hash, so that equal ones are the same. A node in a bag also names the parts
// that have come, a list from the highest down. Its cells are nodes, too: `place` is the part, `below` the rest of the list.
#include "grammar/stacks.h"
#include "util/error.h"

#include <stdlib.h>
#include <string.h>

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
        } else if (element->kind == ELEMENT_COUNT) {
            stack_count(a, at);
        } else if (element->kind == ELEMENT_BAG) {
            bag_between(a, at);
        } else if (element->kind == ELEMENT_CHOICE) {
            bag_choice(a, at);
        } else {
            bag_after(a, at);
        }
    }
}

static int compare_ints(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

// An array of `n` with room for `more`, which stays where it is when it cannot grow.
static void *make_room(struct automaton *a, void *array, int n, int more, int *room, size_t size)
{
    if (n + more <= *room)
        return array;
    const int wanted = 2 * (n + more) + 64;
    void *grown = realloc(array, (size_t)wanted * size);
    a->failed |= grown == NULL;
    *room = grown ? wanted : *room;
    return grown ? grown : array;
}

static bool room_for_state(struct automaton *a)
{
    a->states = make_room(a, a->states, a->n_states, 1, &a->states_room, sizeof *a->states);
    a->stacks = make_room(a, a->stacks, a->n_stacks, a->n_found + 1, &a->stacks_room, sizeof *a->stacks);
    a->next = make_room(a, a->next, a->n_next, 256, &a->next_room, sizeof *a->next);
    return !a->failed;
}

// The bytes that may come by the stacks.
static void find_bytes(struct automaton *a, struct stack_set *state)
{
    const struct grammar *g = a->grammar;
    memset(state->bits, 0, sizeof state->bits);
    for (int i = 0; i < state->n; i++) {
        const struct element *begin = &g->elements[a->nodes[a->found[i]].place];
        if (begin->kind == ELEMENT_BYTE) {
            for (int k = 0; k < 4; k++)
                state->bits[k] |= g->sets[begin->index].bits[k];
            continue;
        }
        const struct branch *branch = &g->branches[begin->index];
        for (const struct way *way = g->ways + branch->way; way < g->ways + branch->way + branch->n_ways; way++)
            state->bits[way->byte / 64] |= UINT64_C(1) << way->byte % 64;
    }
    state->next = a->n_next;
    for (int k = 0; k < 4; k++) {
        state->before[k] = (uint8_t)(a->n_next - state->next);
        for (int n = __builtin_popcountll(state->bits[k]); n > 0; n--)
            a->next[a->n_next++] = UNKNOWN;
    }
}

static int end_state(struct automaton *a)
{
    close_state(a);
    if (a->failed || (a->n_found == 0 && !a->accepts))
        return STATE_DEAD;
    if (!room_for_state(a))
        return STATE_DEAD;
    qsort(a->found, (size_t)a->n_found, sizeof *a->found, compare_ints);
    struct stack_set *state = &a->states[a->n_states];
    state->first = a->n_stacks;
    state->n = a->n_found;
    state->accepts = a->accepts;
    memcpy(a->stacks + a->n_stacks, a->found, (size_t)a->n_found * sizeof *a->found);
    const int found = table_find(a, &a->state_table, a->n_states, state_hash, same_state);
    if (found == a->n_states) {
        state->plain = UNKNOWN;
        state->loop[0] = state->loop[1] = 0;
        find_bytes(a, state);
        a->n_stacks += a->n_found;
        a->n_states++;
    }
    return found;
}

// Of a word. Without an instruction for it, which not all builds may use, the compiler's own is a call.
static int count_bits(uint64_t x)
{
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    return (int)(((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u >> 56);
}

static int *next_by(const struct automaton *a, const struct stack_set *state, int byte)
{
    const uint64_t lower = state->bits[byte / 64] & ((UINT64_C(1) << byte % 64) - 1);
    return &a->next[state->next + state->before[byte / 64] + count_bits(lower)];
}

// Goes on by the byte; `alike` keeps of its bits those of the bytes that do the same.
static int make_step(struct automaton *a, int state, unsigned char byte, uint64_t alike[4])
{
    begin_state(a);
    a->work_left -= a->states[state].n;
    a->failed |= a->work_left < 0;
    for (int i = 0; i < a->states[state].n && !a->failed; i++) {
        const struct stack_node node = a->nodes[a->stacks[a->states[state].first + i]];
        const struct element *element = &a->grammar->elements[node.place];
        if (element->kind == ELEMENT_BRANCH) {
            bag_branch(a, node, byte);
            memset(alike, 0, 4 * sizeof *alike);
            continue;
        }
        const struct byte_set *set = &a->grammar->sets[element->index];
        const bool holds = byte_set_holds(set, byte);
        for (int k = 0; k < 4; k++)
            alike[k] &= holds ? set->bits[k] : ~set->bits[k];
        if (holds)
            stack_meet(a, stack_make(a, node.place + 1, node.below, NO_STACK));
    }
    return end_state(a);
}

int automaton_step(struct automaton *a, int state, unsigned char byte)
{
    struct stack_set *from = &a->states[state];
    if ((from->bits[byte / 64] >> byte % 64 & 1) == 0)
        return STATE_DEAD;
    const int known = *next_by(a, from, byte);
    if (known != UNKNOWN)
        return known;
    uint64_t alike[4];
    memcpy(alike, from->bits, sizeof alike);
    const int next = make_step(a, state, byte, alike);
    if (a->failed)
        return next;
    alike[byte / 64] |= UINT64_C(1) << byte % 64;
    from = &a->states[state]; // which may have moved
    for (int k = 0; k < 4; k++)
        for (uint64_t rest = alike[k]; rest; rest &= rest - 1)
            *next_by(a, from, 64 * k + __builtin_ctzll(rest)) = next;
    for (int k = 0; k < 2 && next == state; k++)
        from->loop[k] |= k == 0 ? alike[k] : alike[k] & ~(UINT64_C(1) << 63);
    return next;
}

int automaton_near(struct automaton *a, int state)
{
    bool changed = false;
    begin_state(a);
    for (int i = 0; i < a->states[state].n && !a->failed; i++) {
        const int node = a->stacks[a->states[state].first + i], near = stack_near(a, node);
        stack_meet(a, near);
        changed |= near != node;
    }
    if (!changed)
        return state;
    const int near = end_state(a);
    return near == STATE_DEAD ? state : near;
}

const uint64_t *automaton_loop(const struct automaton *a, int state)
{
    return a->states[state].loop;
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
    a->n_nodes = a->n_states = a->n_stacks = a->n_next = 0;
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
    error_set(error, YALM_USAGE, "grammar: %s", a->failed ? "there are too many ways to begin a text" : "no text fits it");
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
    free(a->next);
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
    for (int i = depth; i-- > 0 && !a->failed;) {
        const struct stack_node at = old[nodes[i]];
        const bool counts = a->grammar->elements[at.place].kind == ELEMENT_COUNT;
        made = stack_make(a, at.place, made, counts ? at.came : bag_copy(a, old, at.came));
    }
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
