// Sets of strings as deterministic automata over characters: they can be met, subtracted and asked.
#pragma once
#include <stdint.h>

#include "grammar/pool.h"

enum { LAST_CHARACTER = 0x10ffff, DFA_MAX_STATES = 20000 };

struct dfa_edge {
    uint32_t first, last; // characters, both included
    int to;
};

struct dfa { // state 0 is the start; without states it takes nothing
    struct dfa_state {
        struct dfa_edge *edges; // (n) sorted, apart from each other; other characters lead nowhere
        int n;
        bool accepts;
    } * states; // (n) each of them leads to one that accepts
    int n;
};

// An automaton in the making, of which several edges may be taken at a time.
enum nfa_edge_kind { NFA_CHARACTER, NFA_FREE, NFA_AT_START, NFA_AT_END }; // the last three take no character
struct nfa {
    struct pool *pool;
    struct nfa_edge {
        enum nfa_edge_kind kind;
        uint32_t first, last;
        int to, next; // next: of the same state; -1: none
    } * edges;        // (n_edges)
    int n_edges, edges_room;
    int *heads; // (n_states) each state's newest edge, or -1
    int n_states, states_room;
};
int nfa_state(struct nfa *nfa);
void nfa_edge(struct nfa *nfa, int from, int to, enum nfa_edge_kind kind, uint32_t first, uint32_t last);
// A copy of the automaton between two states.
void nfa_embed(struct nfa *nfa, const struct dfa *dfa, int from, int to);
// What leads from `start` to `accept`. at_start: a text begins there.
struct dfa *nfa_determine(struct nfa *nfa, int start, int accept, bool at_start);

struct dfa *dfa_words(struct pool *pool, const char *const *words, int n);
struct dfa *dfa_meet(struct pool *pool, const struct dfa *a, const struct dfa *b);
struct dfa *dfa_minus(struct pool *pool, const struct dfa *a, const struct dfa *b);
struct dfa *dfa_any(struct pool *pool);                          // all strings
struct dfa *dfa_lengths(struct pool *pool, int least, int most); // most -1: no limit
// Drops the states that lead to none that accepts.
struct dfa *dfa_trim(struct pool *pool, struct dfa *dfa);
// The smallest automaton of the same strings.
const struct dfa *dfa_minimal(struct pool *pool, const struct dfa *dfa);
bool dfa_takes(const struct dfa *dfa, const char *text);
