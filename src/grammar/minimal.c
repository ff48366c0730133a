// See dfa.h: states that take the same strings become one. They are classes, which are split until the states of each one have
// the same edges between classes; a split is looked at again only in the states that lead to it.
#include <string.h>

#include "grammar/dfa.h"

struct classes {
    int *of, *edges; // (n states) of each state: its class, and the number of its edges
    int *sizes;      // (n)
    int *known;      // (n) the number of the edges of its states
    int n;
    int *parts; // (n states) of the parts that classes are being split into: each one's class, or 0
};

// The states that lead to each: those of state i are froms[first[i]] to froms[first[i + 1] - 1].
struct sources {
    int *first, *froms;
};

static struct sources find_sources(struct pool *pool, const struct dfa *dfa)
{
    size_t n_edges = 0;
    for (int i = 0; i < dfa->n; i++)
        n_edges += (size_t)dfa->states[i].n;
    struct sources sources = {pool_take(pool, ((size_t)dfa->n + 2) * sizeof(int)),
                              pool_take(pool, (n_edges + 1) * sizeof(int))};
    for (int i = 0; i < dfa->n; i++)
        for (int k = 0; k < dfa->states[i].n; k++)
            sources.first[dfa->states[i].edges[k].to + 2]++;
    for (int i = 1; i <= dfa->n; i++)
        sources.first[i + 1] += sources.first[i];
    for (int i = 0; i < dfa->n; i++)
        for (int k = 0; k < dfa->states[i].n; k++)
            sources.froms[sources.first[dfa->states[i].edges[k].to + 1]++] = i;
    return sources;
}

// Writes the edges to states of other numbers as ranges and numbers: (at most 3 a piece). Returns how many integers these are.
static int write_edges(const struct dfa_state *state, const int *numbers, int *out)
{
    int n = 0;
    for (int k = 0; k < state->n; k++) {
        const struct dfa_edge edge = state->edges[k];
        if (n > 0 && out[n - 1] == numbers[edge.to] && (uint32_t)out[n - 2] + 1 == edge.first) {
            out[n - 2] = (int)edge.last;
            continue;
        }
        out[n++] = (int)edge.first;
        out[n++] = (int)edge.last;
        out[n++] = numbers[edge.to];
    }
    return n;
}

// Splits the classes of the (n) states, whose edges may have changed. Puts those that changed their class first; returns how
// many they are.
static int split(struct pool *pool, struct classes *c, int *states, int n)
{
    struct intern parts = {0};
    int n_changed = 0;
    for (int i = 0; i < n; i++)
        c->sizes[c->of[states[i]]]--; // what is left does not change
    for (int i = 0; i < n; i++) {
        const int state = states[i], class = c->of[state];
        if (c->sizes[class] == 0)
            c->known[class] = c->edges[state];
        if (c->known[class] != c->edges[state]) {
            const int part = intern(pool, &parts, (const int[]){class, c->edges[state]}, 2);
            if (c->parts[part] == 0) {
                c->parts[part] = c->n++;
                c->known[c->parts[part]] = c->edges[state];
            }
            c->of[state] = c->parts[part];
            states[n_changed++] = state;
        }
        c->sizes[c->of[state]]++;
    }
    if (parts.n > 0)
        memset(c->parts, 0, (size_t)parts.n * sizeof *c->parts);
    return n_changed;
}

static struct classes find_classes(struct pool *pool, const struct dfa *dfa)
{
    const size_t room = ((size_t)dfa->n + 2) * sizeof(int);
    struct classes c = {pool_take(pool, room), pool_take(pool, room), pool_take(pool, room), pool_take(pool, room), 2,
                        pool_take(pool, room)};
    const struct sources sources = find_sources(pool, dfa);
    struct intern edges = {0};
    int *look = pool_take(pool, room), *next = pool_take(pool, room), *met = pool_take(pool, room), n = dfa->n, most = 0;
    for (int i = 0; i < dfa->n; i++) {
        c.sizes[c.of[i] = dfa->states[i].accepts]++;
        most = dfa->states[i].n > most ? dfa->states[i].n : most;
        look[i] = i;
    }
    int *key = pool_take(pool, (3 * (size_t)most + 1) * sizeof *key);
    for (int turn = 1; n > 0; turn++) {
        for (int i = 0; i < n; i++) {
            const struct dfa_state *state = &dfa->states[look[i]];
            c.edges[look[i]] = intern(pool, &edges, key, write_edges(state, c.of, key));
            pool_work(pool, 1 + state->n / 8);
        }
        const int n_changed = split(pool, &c, look, n);
        n = 0;
        for (int i = 0; i < n_changed; i++)
            for (int k = sources.first[look[i]]; k < sources.first[look[i] + 1]; k++)
                if (met[sources.froms[k]] != turn) {
                    met[sources.froms[k]] = turn;
                    next[n++] = sources.froms[k];
                }
        int *const looked = look;
        look = next;
        next = looked;
    }
    return c;
}

const struct dfa *dfa_minimal(struct pool *pool, const struct dfa *dfa)
{
    const struct classes c = find_classes(pool, dfa);
    struct dfa *least = pool_take(pool, sizeof *least);
    int *numbers = pool_take(pool, ((size_t)dfa->n + 2) * sizeof *numbers); // of classes, in the order of their first states
    least->states = pool_take(pool, ((size_t)dfa->n + 1) * sizeof *least->states);
    for (int i = 0; i < dfa->n; i++)
        if (numbers[c.of[i]] == 0) {
            least->states[least->n] = dfa->states[i];
            numbers[c.of[i]] = ++least->n;
        }
    if (least->n == dfa->n)
        return dfa;
    for (int i = 0; i < dfa->n; i++)
        c.edges[i] = numbers[c.of[i]] - 1;
    for (int i = 0; i < least->n; i++) {
        struct dfa_state *state = &least->states[i];
        int *key = pool_take(pool, (3 * (size_t)state->n + 1) * sizeof *key);
        const int n = write_edges(state, c.edges, key);
        state->edges = pool_take(pool, ((size_t)n / 3 + 1) * sizeof *state->edges);
        state->n = n / 3;
        for (int k = 0; k < state->n; k++)
            state->edges[k] = (struct dfa_edge){(uint32_t)key[3 * k], (uint32_t)key[3 * k + 1], key[3 * k + 2]};
    }
    return least;
}
