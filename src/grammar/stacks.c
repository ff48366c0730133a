// See stacks.h: stacks that share their lower parts. Equal ones are found by hash.
#include "grammar/stacks.h"

#include <stdlib.h>
#include <string.h>

enum { TABLE_MIN = 1 << 10 };

uint32_t table_mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(x >> 32);
}

static uint32_t node_hash(const struct automaton *a, int node)
{
    const struct stack_node *n = &a->nodes[node];
    return table_mix(((uint64_t)(uint32_t)n->place << 32 | (uint32_t)n->below) ^ (uint64_t)(n->came + 1) * 0x9e3779b97f4a7c15u);
}

static bool same_node(const struct automaton *a, int x, int y)
{
    return a->nodes[x].place == a->nodes[y].place && a->nodes[x].below == a->nodes[y].below &&
           a->nodes[x].came == a->nodes[y].came;
}

static bool table_grow(struct automaton *a, struct table *table, hash_function *hash)
{
    const struct table old = *table;
    table->size = old.size ? old.size * 2 : TABLE_MIN;
    table->slots = malloc(table->size * sizeof *table->slots);
    if (table->slots == NULL) {
        *table = old;
        return false;
    }
    memset(table->slots, 0xff, table->size * sizeof *table->slots);
    for (uint32_t i = 0; i < old.size; i++)
        if (old.slots[i] >= 0) {
            uint32_t at = hash(a, old.slots[i]) & (table->size - 1);
            while (table->slots[at] >= 0)
                at = (at + 1) & (table->size - 1);
            table->slots[at] = old.slots[i];
        }
    free(old.slots);
    return true;
}

int table_find(struct automaton *a, struct table *table, int index, hash_function *hash, same_function *same)
{
    if (2 * table->used >= table->size && !table_grow(a, table, hash)) {
        a->failed = true;
        return index;
    }
    uint32_t at = hash(a, index) & (table->size - 1);
    for (; table->slots[at] >= 0; at = (at + 1) & (table->size - 1))
        if (same(a, table->slots[at], index))
            return table->slots[at];
    table->slots[at] = index;
    table->used++;
    return index;
}

static bool grow_nodes(struct automaton *a)
{
    const int room = a->nodes_room ? a->nodes_room * 2 : 1024;
    struct stack_node *nodes = realloc(a->nodes, (size_t)room * sizeof *nodes);
    a->nodes = nodes ? nodes : a->nodes;
    uint32_t *seen = realloc(a->seen, (size_t)room * sizeof *seen);
    a->seen = seen ? seen : a->seen;
    if (nodes == NULL || seen == NULL)
        return false;
    memset(seen + a->nodes_room, 0, (size_t)(room - a->nodes_room) * sizeof *seen);
    a->nodes_room = room;
    return true;
}

int stack_make(struct automaton *a, int place, int below, int came)
{
    if (a->n_nodes == a->nodes_room && !grow_nodes(a)) {
        a->failed = true;
        return 0;
    }
    a->nodes[a->n_nodes] = (struct stack_node){place, below, came};
    const int found = table_find(a, &a->node_table, a->n_nodes, node_hash, same_node);
    if (found == a->n_nodes) {
        a->seen[found] = 0;
        a->n_nodes++;
    }
    return found;
}

void stack_meet(struct automaton *a, int node)
{
    if (a->failed || a->seen[node] == a->making)
        return;
    a->seen[node] = a->making;
    if (a->n_work == AUTOMATON_MAX_STACKS)
        a->failed = true;
    else
        a->work[a->n_work++] = node;
}

void stack_meet_rule(struct automaton *a, int rule, int back)
{
    const struct rule *r = &a->grammar->rules[rule];
    for (int i = 0; i < r->n && !a->failed; i++)
        stack_meet(a, stack_make(a, r->alternatives[i], back, NO_STACK));
}

void stack_count(struct automaton *a, struct stack_node node)
{
    const struct count *count = &a->grammar->counts[a->grammar->elements[node.place].index];
    const int came = node.came == NO_STACK ? 0 : node.came;
    if (came >= count->least)
        stack_meet(a, stack_make(a, node.place + 1, node.below, NO_STACK));
    if (count->most >= 0 && came == count->most)
        return;
    node.came = count->most < 0 && came == count->least ? came : came + 1;
    stack_meet_rule(a, count->rule, stack_make(a, node.place, node.below, node.came));
}

int stack_near(struct automaton *a, int node)
{
    const struct stack_node at = a->nodes[node], below = at.below == NO_STACK ? at : a->nodes[at.below];
    const struct element *back = &a->grammar->elements[below.place];
    if (back->kind != ELEMENT_COUNT || at.below == NO_STACK)
        return node;
    const struct count *count = &a->grammar->counts[back->index];
    int near = at.below;
    if (below.came < count->least - GRAMMAR_MANY) {
        near = stack_make(a, below.place, below.below, count->least - GRAMMAR_MANY - 1);
    } else if (below.came >= count->least && (count->most < 0 || below.came <= count->most - GRAMMAR_MANY)) {
        near = back[1].kind == ELEMENT_END ? below.below : stack_make(a, below.place + 1, below.below, NO_STACK);
        near = stack_make(a, count->rest, near, NO_STACK);
    }
    return stack_make(a, at.place, near, at.came);
}
