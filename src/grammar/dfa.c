// See dfa.h.
#include "grammar/dfa.h"

#include <stdlib.h>
#include <string.h>

#include "util/utf8.h"

// ---------------------------------------------------------------- in the making

enum { NFA_MAX_EDGES = 200000 };

int nfa_state(struct nfa *nfa)
{
    nfa->heads = pool_grow(nfa->pool, nfa->heads, nfa->n_states, &nfa->states_room, sizeof *nfa->heads);
    nfa->heads[nfa->n_states] = -1;
    return nfa->n_states++;
}

void nfa_edge(struct nfa *nfa, int from, int to, enum nfa_edge_kind kind, uint32_t first, uint32_t last)
{
    if (nfa->n_edges == NFA_MAX_EDGES)
        pool_refuse(nfa->pool, "its strings need too large an automaton");
    nfa->edges = pool_grow(nfa->pool, nfa->edges, nfa->n_edges, &nfa->edges_room, sizeof *nfa->edges);
    nfa->edges[nfa->n_edges] = (struct nfa_edge){kind, first, last, to, nfa->heads[from]};
    nfa->heads[from] = nfa->n_edges++;
}

void nfa_embed(struct nfa *nfa, const struct dfa *dfa, int from, int to)
{
    const int base = nfa->n_states;
    for (int i = 0; i < dfa->n; i++)
        nfa_state(nfa);
    for (int i = 0; i < dfa->n; i++) {
        const struct dfa_state *state = &dfa->states[i];
        for (int k = 0; k < state->n; k++)
            nfa_edge(nfa, base + i, base + state->edges[k].to, NFA_CHARACTER, state->edges[k].first, state->edges[k].last);
        if (state->accepts)
            nfa_edge(nfa, base + i, to, NFA_FREE, 0, 0);
    }
    if (dfa->n > 0)
        nfa_edge(nfa, from, base, NFA_FREE, 0, 0);
}

// A set of the automaton's states, while it is put together.
struct subset {
    int *states; // (n)
    int n;
    int *seen; // (n_states) the number of the last set that holds the state
    int making;
};

static void subset_add(struct subset *set, int state)
{
    if (set->seen[state] != set->making) {
        set->seen[state] = set->making;
        set->states[set->n++] = state;
    }
}

// Adds what is reached without a character.
static void subset_close(const struct nfa *nfa, struct subset *set, bool at_start, bool at_end)
{
    for (int i = 0; i < set->n; i++)
        for (int e = nfa->heads[set->states[i]]; e >= 0; e = nfa->edges[e].next) {
            const enum nfa_edge_kind kind = nfa->edges[e].kind;
            if (kind == NFA_FREE || (kind == NFA_AT_START && at_start) || (kind == NFA_AT_END && at_end))
                subset_add(set, nfa->edges[e].to);
        }
    pool_work(nfa->pool, set->n);
}

static int compare_ints(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

static int compare_points(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void add_edge(struct pool *pool, struct dfa_state *state, int *room, struct dfa_edge edge)
{
    if (state->n > 0 && state->edges[state->n - 1].to == edge.to && state->edges[state->n - 1].last + 1 == edge.first) {
        state->edges[state->n - 1].last = edge.last;
        return;
    }
    state->edges = pool_grow(pool, state->edges, state->n, room, sizeof *state->edges);
    state->edges[state->n++] = edge;
}

// The edges of one set of states: the characters are split wherever the states that they lead to change.
static void follow(struct nfa *nfa, struct intern *sets, const struct interned *from, struct subset *set,
                   struct dfa_state *state)
{
    uint32_t *points = NULL;
    int n = 0, room = 0, edges_room = 0;
    for (int i = 0; i < from->n; i++)
        for (int e = nfa->heads[from->key[i]]; e >= 0; e = nfa->edges[e].next)
            if (nfa->edges[e].kind == NFA_CHARACTER) {
                points = pool_grow(nfa->pool, points, n, &room, sizeof *points); // by twos: there is room for another
                points[n++] = nfa->edges[e].first;
                points[n++] = nfa->edges[e].last + 1;
            }
    if (n > 0)
        qsort(points, (size_t)n, sizeof *points, compare_points);
    for (int p = 0; p + 1 < n; p++) {
        if (points[p] == points[p + 1])
            continue;
        set->n = 0;
        set->making++;
        pool_work(nfa->pool, from->n);
        for (int i = 0; i < from->n; i++)
            for (int e = nfa->heads[from->key[i]]; e >= 0; e = nfa->edges[e].next)
                if (nfa->edges[e].kind == NFA_CHARACTER && nfa->edges[e].first <= points[p] && points[p] <= nfa->edges[e].last)
                    subset_add(set, nfa->edges[e].to);
        if (set->n == 0)
            continue;
        subset_close(nfa, set, false, false);
        qsort(set->states, (size_t)set->n, sizeof *set->states, compare_ints);
        const int to = intern(nfa->pool, sets, set->states, set->n);
        add_edge(nfa->pool, state, &edges_room, (struct dfa_edge){points[p], points[p + 1] - 1, to});
    }
}

struct dfa *nfa_determine(struct nfa *nfa, int start, int accept, bool at_start)
{
    struct pool *pool = nfa->pool;
    struct intern sets = {0};
    struct dfa *dfa = pool_take(pool, sizeof *dfa);
    struct subset set = {pool_take(pool, (size_t)nfa->n_states * sizeof(int)), 0,
                         pool_take(pool, (size_t)nfa->n_states * sizeof(int)), 1};
    int room = 0;
    subset_add(&set, start);
    subset_close(nfa, &set, at_start, false);
    qsort(set.states, (size_t)set.n, sizeof *set.states, compare_ints);
    intern(pool, &sets, set.states, set.n);
    for (; dfa->n < sets.n; dfa->n++) {
        if (dfa->n == DFA_MAX_STATES)
            pool_refuse(pool, "its strings need too large an automaton");
        dfa->states = pool_grow(pool, dfa->states, dfa->n, &room, sizeof *dfa->states);
        struct dfa_state *state = &dfa->states[dfa->n];
        *state = (struct dfa_state){0};
        const struct interned from = sets.entries[dfa->n];
        follow(nfa, &sets, &from, &set, state);
        set.n = 0;
        set.making++;
        for (int i = 0; i < from.n; i++)
            subset_add(&set, from.key[i]);
        subset_close(nfa, &set, at_start && dfa->n == 0, true);
        state->accepts = set.seen[accept] == set.making;
    }
    return dfa_trim(pool, dfa);
}

// ---------------------------------------------------------------- whole ones

struct dfa *dfa_trim(struct pool *pool, struct dfa *dfa)
{
    int *number = pool_take(pool, ((size_t)dfa->n + 1) * sizeof *number);
    bool changed = true;
    for (int i = 0; i < dfa->n; i++)
        number[i] = dfa->states[i].accepts;
    while (changed) {
        changed = false;
        for (int i = dfa->n; i-- > 0;)
            for (int k = 0; k < dfa->states[i].n && !number[i]; k++)
                if (number[dfa->states[i].edges[k].to])
                    number[i] = changed = true;
        pool_work(pool, dfa->n);
    }
    struct dfa *kept = pool_take(pool, sizeof *kept);
    if (dfa->n == 0 || !number[0])
        return kept;
    kept->states = pool_take(pool, (size_t)dfa->n * sizeof *kept->states);
    for (int i = 0; i < dfa->n; i++)
        if (number[i]) {
            kept->states[kept->n] = dfa->states[i];
            number[i] = ++kept->n;
        }
    for (int i = 0; i < kept->n; i++) {
        struct dfa_state *state = &kept->states[i];
        int n = 0;
        for (int k = 0; k < state->n; k++)
            if (number[state->edges[k].to]) {
                state->edges[n] = state->edges[k];
                state->edges[n++].to = number[state->edges[k].to] - 1;
            }
        state->n = n;
    }
    return kept;
}

// Both at a time: states are pairs. Behind a character that `b` does not take, its half is -1.
static struct dfa *product(struct pool *pool, const struct dfa *a, const struct dfa *b, bool minus)
{
    struct dfa *dfa = pool_take(pool, sizeof *dfa);
    struct intern pairs = {0};
    int room = 0;
    if (a->n == 0 || (b->n == 0 && !minus))
        return dfa;
    intern(pool, &pairs, (const int[]){0, b->n ? 0 : -1}, 2);
    for (; dfa->n < pairs.n; dfa->n++) {
        if (dfa->n == DFA_MAX_STATES)
            pool_refuse(pool, "its strings need too large an automaton");
        dfa->states = pool_grow(pool, dfa->states, dfa->n, &room, sizeof *dfa->states);
        struct dfa_state *state = &dfa->states[dfa->n];
        const struct dfa_state none = {0}, *x = &a->states[pairs.entries[dfa->n].key[0]],
                               *y = pairs.entries[dfa->n].key[1] < 0 ? &none : &b->states[pairs.entries[dfa->n].key[1]];
        *state = (struct dfa_state){.accepts = x->accepts && y->accepts != minus};
        int edges_room = 0, k = 0;
        for (int i = 0; i < x->n; i++)
            for (uint32_t at = x->edges[i].first, last; at <= x->edges[i].last; at = last + 1) {
                while (k < y->n && y->edges[k].last < at)
                    k++;
                const bool both = k < y->n && y->edges[k].first <= at;
                last = both ? y->edges[k].last : k < y->n ? y->edges[k].first - 1 : LAST_CHARACTER;
                last = last < x->edges[i].last ? last : x->edges[i].last;
                if (!both && !minus)
                    continue;
                const int to = intern(pool, &pairs, (const int[]){x->edges[i].to, both ? y->edges[k].to : -1}, 2);
                add_edge(pool, state, &edges_room, (struct dfa_edge){at, last, to});
            }
        pool_work(pool, 1 + state->n);
    }
    return dfa_trim(pool, dfa);
}

struct dfa *dfa_meet(struct pool *pool, const struct dfa *a, const struct dfa *b)
{
    return product(pool, a, b, false);
}

struct dfa *dfa_minus(struct pool *pool, const struct dfa *a, const struct dfa *b)
{
    return product(pool, a, b, true);
}

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// A tree. In alphabetical order a word shares with those before it what leads to each state's latest edge.
struct dfa *dfa_words(struct pool *pool, const char *const *words, int n)
{
    struct dfa *dfa = pool_take(pool, sizeof *dfa);
    const char **sorted = pool_take(pool, ((size_t)n + 1) * sizeof *sorted);
    size_t n_states = 1;
    for (int i = 0; i < n; i++) {
        sorted[i] = words[i];
        n_states += strlen(words[i]);
    }
    qsort(sorted, (size_t)n, sizeof *sorted, compare_words);
    dfa->states = pool_take(pool, n_states * sizeof *dfa->states);
    int *rooms = pool_take(pool, n_states * sizeof *rooms);
    dfa->n = 1;
    for (int i = 0; i < n; i++) {
        struct dfa_state *state = dfa->states;
        for (const char *at = sorted[i]; *at;) {
            const int size = utf8_character(at, strlen(at));
            if (size == 0)
                pool_refuse(pool, "a string that is not UTF-8");
            const uint32_t c = (uint32_t)utf8_point(at, size);
            if (state->n == 0 || state->edges[state->n - 1].first != c)
                add_edge(pool, state, &rooms[state - dfa->states], (struct dfa_edge){c, c, dfa->n++});
            state = &dfa->states[state->edges[state->n - 1].to];
            at += size;
        }
        state->accepts = true;
    }
    if (dfa->n > DFA_MAX_STATES)
        pool_refuse(pool, "its strings need too large an automaton");
    pool_work(pool, dfa->n);
    return dfa;
}

struct dfa *dfa_lengths(struct pool *pool, int least, int most)
{
    struct dfa *dfa = pool_take(pool, sizeof *dfa);
    dfa->n = (most < 0 ? least : most) + 1;
    if (dfa->n > DFA_MAX_STATES)
        pool_refuse(pool, "a length beside other conditions: expected at most %d", DFA_MAX_STATES - 1);
    dfa->states = pool_take(pool, (size_t)dfa->n * sizeof *dfa->states);
    for (int i = 0; i < dfa->n; i++) {
        const bool last = i == dfa->n - 1;
        struct dfa_state *state = &dfa->states[i];
        state->accepts = i >= least;
        state->n = !last || most < 0;
        state->edges = pool_take(pool, sizeof *state->edges);
        state->edges[0] = (struct dfa_edge){0, LAST_CHARACTER, last ? i : i + 1};
    }
    return dfa;
}

struct dfa *dfa_any(struct pool *pool)
{
    return dfa_lengths(pool, 0, -1);
}

bool dfa_takes(const struct dfa *dfa, const char *text)
{
    int state = dfa->n ? 0 : -1;
    while (state >= 0 && *text) {
        const int size = utf8_character(text, strlen(text));
        const uint32_t c = size ? (uint32_t)utf8_point(text, size) : UINT32_MAX;
        const struct dfa_state *from = &dfa->states[state];
        state = -1;
        for (int i = 0; i < from->n && state < 0; i++)
            if (from->edges[i].first <= c && c <= from->edges[i].last)
                state = from->edges[i].to;
        text += size ? size : 1;
    }
    return state >= 0 && dfa->states[state].accepts;
}
