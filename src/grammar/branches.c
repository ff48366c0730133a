// See build.h: the parts of a bag as a tree of the bytes that they begin with. So a hundred keys that may come next are one
// stack instead of a hundred.
#include <stdlib.h>

#include "grammar/build.h"

// What a part begins with: bytes of which each is the only one there.
struct beginning {
    const struct grammar *grammar;
    int place, part;
};

// The byte that must come at the element; -1 where there is a choice.
static int only_byte(const struct grammar *g, const struct element *at)
{
    int only = -1;
    for (int i = 0; at->kind == ELEMENT_BYTE && i < 4; i++) {
        const uint64_t bits = g->sets[at->index].bits[i];
        if (bits && (only >= 0 || bits & (bits - 1)))
            return -1;
        only = bits ? 64 * i + __builtin_ctzll(bits) : only;
    }
    return only;
}

static int byte_at(const struct beginning *beginning, int depth)
{
    return only_byte(beginning->grammar, &beginning->grammar->elements[beginning->place + depth]);
}

static int compare_beginnings(const void *a, const void *b)
{
    for (int i = 0;; i++) {
        const int x = byte_at(a, i), y = byte_at(b, i);
        if (x != y || x < 0)
            return x < y ? -1 : x > y;
    }
}

// Whether no part begins with all of another one's bytes.
static bool are_apart(const struct beginning *sorted, int n)
{
    for (int i = 1, depth; i < n; i++) {
        for (depth = 0; byte_at(&sorted[i - 1], depth) == byte_at(&sorted[i], depth); depth++)
            if (byte_at(&sorted[i], depth) < 0)
                return false;
        if (byte_at(&sorted[i - 1], depth) < 0) // sorted before what goes on
            return false;
    }
    return n > 1;
}

// The ways from a branch. What branches again is added behind the branches that there are.
static void add_ways(struct builder *builder, int index, const struct beginning *all)
{
    struct grammar *g = builder->grammar;
    const struct branch from = g->branches[index];
    const int end = from.first + from.n;
    g->branches[index].way = g->n_ways;
    for (int i = from.first, first; i < end && !builder->failed; g->branches[index].n_ways++) {
        const int byte = byte_at(&all[i], from.depth);
        for (first = i; i < end && byte_at(&all[i], from.depth) == byte; i++)
            ;
        struct way way = {(unsigned char)byte, first, i - first, all[first].part, 0};
        if (way.n == 1)
            way.place = all[first].place + from.depth + 1;
        else
            way.place = build_branch(builder, (struct branch){from.bag, first, way.n, from.depth + 1, 0, 0});
        build_way(builder, way);
    }
}

static void add_branches(struct builder *builder, int place)
{
    struct grammar *g = builder->grammar;
    struct bag *bag = &g->bags[g->elements[place].index];
    struct beginning *all = malloc(((size_t)bag->n + 1) * sizeof *all);
    bag->ranks = malloc(((size_t)bag->n + 1) * sizeof *bag->ranks);
    bag->musts = calloc((size_t)bag->n + 1, sizeof *bag->musts);
    builder->failed |= all == NULL || bag->ranks == NULL || bag->musts == NULL;
    for (int i = 0; i < bag->n && !builder->failed; i++) {
        const struct rule *rule = &g->rules[bag->parts[i].rule];
        bag->ranks[i] = -1;
        if (rule->n == 1 && !bag->parts[i].again && only_byte(g, &g->elements[rule->alternatives[0]]) >= 0)
            all[bag->n_sorted++] = (struct beginning){g, rule->alternatives[0], i};
    }
    if (!builder->failed && bag->n_sorted > 0)
        qsort(all, (size_t)bag->n_sorted, sizeof *all, compare_beginnings);
    if (builder->failed || !are_apart(all, bag->n_sorted))
        bag->n_sorted = 0;
    for (int i = 0; i < bag->n_sorted; i++) {
        bag->ranks[all[i].part] = i;
        bag->musts[i + 1] = bag->musts[i] + bag->parts[all[i].part].must;
    }
    if (bag->n_sorted > 0) {
        const int first = g->n_branches;
        bag->root = build_branch(builder, (struct branch){place, 0, bag->n_sorted, 0, 0, 0});
        for (int i = first; i < g->n_branches && !builder->failed; i++)
            add_ways(builder, i, all);
    }
    free(all);
}

void build_branches(struct builder *builder)
{
    const int n = builder->grammar->n_elements;
    for (int place = 0; place < n && !builder->failed; place++)
        if (builder->grammar->elements[place].kind == ELEMENT_BAG)
            add_branches(builder, place);
}
