// What an automaton is made of: stacks.c, bag.c, automaton.c.
#pragma once
#include "grammar/automaton.h"

enum { NO_STACK = -1, UNKNOWN = -2 };

struct stack_node {
    int place; // an element: the one to go through next
    int below; // the node to go on with at the end of its rule; NO_STACK: the text's end
    int came;  // within a bag: what has come; within a count: how many have; NO_STACK: nothing
};

struct stack_set {
    int first, n;      // its stacks, in `stacks`: those that begin with a byte, by number
    bool accepts;      // the text may end here
    bool same;         // automaton_plain()
    int plain;         // the same; UNKNOWN until it is first asked for
    uint64_t bits[4];  // a bit for each byte that may come
    uint64_t loop[2];  // automaton_loop()
    int next;          // the first of as many states in `next`, or of UNKNOWN
    uint8_t before[4]; // how many bits stand in the words before
};

struct table { // open addressing, of indices
    int *slots;
    uint32_t size, used;
};

struct automaton {
    const struct grammar *grammar;
    struct stack_node *nodes;
    int n_nodes, nodes_room;
    struct stack_set *states;
    int n_states, states_room;
    int *stacks;
    int n_stacks, stacks_room;
    int *next;
    int n_next, next_room;
    struct table node_table, state_table;

    // A state in the making.
    int *found, *work; // (AUTOMATON_MAX_STACKS)
    int n_found, n_work;
    bool accepts;
    uint32_t *seen; // (nodes_room) the number of the last making that met the node
    uint32_t making;
    int *parts; // (parts_room) of a bag: what has come
    int parts_room;

    int start, generation;
    int work_left; // until the next automaton_tidy()
    bool failed;
};

// Finds an element equal to the newest, `index`; returns `index` itself where there is none.
typedef uint32_t hash_function(const struct automaton *a, int index);
typedef bool same_function(const struct automaton *a, int x, int y);
int table_find(struct automaton *a, struct table *table, int index, hash_function *hash, same_function *same);
uint32_t table_mix(uint64_t x);

int stack_make(struct automaton *a, int place, int below, int came); // a node
void stack_meet(struct automaton *a, int node);                      // adds a stack to those to be looked at, once
void stack_meet_rule(struct automaton *a, int rule, int back);       // goes on with a rule, and behind it with the node

void stack_count(struct automaton *a, struct stack_node node); // where a count may end, or go on
// A stack by which the same short texts go on: where many more parts of a count may come, any number may.
int stack_near(struct automaton *a, int node);

// The elements of a bag: where it may end or go on, where the next part is chosen, and what follows a part.
void bag_between(struct automaton *a, struct stack_node node);
void bag_choice(struct automaton *a, struct stack_node node);
void bag_branch(struct automaton *a, struct stack_node node, unsigned char byte);
void bag_after(struct automaton *a, struct stack_node node);
int bag_room(const struct bag *bag, int room); // how many parts of it are listed at most, where that is more than `room`
int bag_copy(struct automaton *a, const struct stack_node *old, int came); // the list again, among new nodes
