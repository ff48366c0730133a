// See build.h.
#include "grammar/build.h"

#include <stdlib.h>
#include <string.h>

#include "util/utf8.h"

// Room for one more in an array of `n`, which stays where it is when it cannot grow.
static void *grow(struct builder *builder, void *array, int n, int *room, size_t size, int most)
{
    if (n < *room)
        return array;
    const int wanted = *room ? *room * 2 : 16;
    void *grown = n < most ? realloc(array, (size_t)wanted * size) : NULL;
    if (grown == NULL) {
        builder->failed = true;
        return array;
    }
    *room = wanted;
    return grown;
}

void sequence_add(struct builder *builder, struct sequence *sequence, enum element_kind kind, int index)
{
    sequence->elements =
        grow(builder, sequence->elements, sequence->n, &sequence->room, sizeof *sequence->elements, GRAMMAR_MAX_ELEMENTS);
    if (sequence->n < sequence->room)
        sequence->elements[sequence->n++] = (struct element){kind, index, false};
}

int build_rule(struct builder *builder)
{
    struct grammar *g = builder->grammar;
    g->rules = grow(builder, g->rules, g->n_rules, &builder->rooms[2], sizeof *g->rules, GRAMMAR_MAX_RULES);
    if (builder->failed)
        return 0;
    g->rules[g->n_rules] = (struct rule){0};
    return g->n_rules++;
}

static void add_element(struct builder *builder, struct element element)
{
    struct grammar *g = builder->grammar;
    g->elements = grow(builder, g->elements, g->n_elements, &builder->rooms[0], sizeof *g->elements, GRAMMAR_MAX_ELEMENTS);
    if (!builder->failed)
        g->elements[g->n_elements++] = element;
}

void build_alternative(struct builder *builder, int rule, struct sequence *sequence)
{
    struct grammar *g = builder->grammar;
    if (!builder->failed) {
        struct rule *to = &g->rules[rule];
        int *grown = realloc(to->alternatives, ((size_t)to->n + 1) * sizeof *grown);
        builder->failed |= grown == NULL;
        if (grown) {
            to->alternatives = grown;
            grown[to->n++] = g->n_elements;
        }
    }
    for (int i = 0; i < sequence->n; i++)
        add_element(builder, sequence->elements[i]);
    add_element(builder, (struct element){ELEMENT_END, 0, false});
    free(sequence->elements);
    *sequence = (struct sequence){0};
}

int build_set(struct builder *builder, const struct byte_set *set)
{
    struct grammar *g = builder->grammar;
    for (int i = g->n_sets; i-- > 0 && i > g->n_sets - 64;) // most have come before, and not long ago
        if (memcmp(&g->sets[i], set, sizeof *set) == 0)
            return i;
    g->sets = grow(builder, g->sets, g->n_sets, &builder->rooms[1], sizeof *g->sets, GRAMMAR_MAX_ELEMENTS);
    if (builder->failed)
        return 0;
    g->sets[g->n_sets] = *set;
    return g->n_sets++;
}

void build_bag(struct builder *builder, struct sequence *sequence, struct bag bag)
{
    struct grammar *g = builder->grammar;
    g->bags = grow(builder, g->bags, g->n_bags, &builder->rooms[3], sizeof *g->bags, GRAMMAR_MAX_ELEMENTS);
    if (builder->failed) {
        free(bag.parts);
        return;
    }
    g->bags[g->n_bags++] = bag;
    sequence_add(builder, sequence, ELEMENT_BAG, g->n_bags - 1);
    sequence_add(builder, sequence, ELEMENT_CHOICE, g->n_bags - 1);
    for (int i = 0; i < bag.n; i++)
        sequence_add(builder, sequence, ELEMENT_AFTER, i);
}

int build_branch(struct builder *builder, struct branch branch)
{
    struct grammar *g = builder->grammar;
    g->branches = grow(builder, g->branches, g->n_branches, &builder->rooms[4], sizeof *g->branches, GRAMMAR_MAX_ELEMENTS);
    if (!builder->failed)
        g->branches[g->n_branches++] = branch;
    add_element(builder, (struct element){ELEMENT_BRANCH, g->n_branches - 1, false});
    return g->n_elements - 1;
}

void build_way(struct builder *builder, struct way way)
{
    struct grammar *g = builder->grammar;
    g->ways = grow(builder, g->ways, g->n_ways, &builder->rooms[5], sizeof *g->ways, 2 * GRAMMAR_MAX_ELEMENTS);
    if (!builder->failed)
        g->ways[g->n_ways++] = way;
}

// ---------------------------------------------------------------- characters

static void set_add(struct byte_set *set, int first, int last)
{
    for (int byte = first; byte <= last; byte++)
        set->bits[byte / 64] |= UINT64_C(1) << byte % 64;
}

// first..last are spelled by as many bytes. Where they differ in a byte, all that follow must take all of their values: what is
// left at the two ends is split off.
static void add_range(struct builder *builder, int rule, uint32_t first, uint32_t last)
{
    unsigned char a[4], b[4];
    const int n = utf8_write(a, (int32_t)first);
    utf8_write(b, (int32_t)last);
    for (int i = n - 1; i > 0; i--) {
        const uint32_t low = (UINT32_C(1) << 6 * i) - 1; // what the last i bytes hold
        if ((first & ~low) == (last & ~low))
            continue;
        if (first & low) {
            add_range(builder, rule, first, first | low);
            add_range(builder, rule, (first | low) + 1, last);
            return;
        }
        if ((last & low) != low) {
            add_range(builder, rule, first, (last & ~low) - 1);
            add_range(builder, rule, last & ~low, last);
            return;
        }
    }
    struct sequence bytes = {0};
    for (int i = 0; i < n; i++) {
        struct byte_set set = {0};
        set_add(&set, a[i], b[i]);
        sequence_add(builder, &bytes, ELEMENT_BYTE, build_set(builder, &set));
    }
    build_alternative(builder, rule, &bytes);
}

static int compare_ranges(const void *a, const void *b)
{
    const struct character_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

// Writes the ranges between the (n) ranges to `out` (n + 1); returns how many there are.
static int complement(struct character_range *ranges, int n, struct character_range *out)
{
    int n_out = 0;
    uint32_t next = 0;
    qsort(ranges, (size_t)n, sizeof *ranges, compare_ranges);
    for (int i = 0; i < n; i++) {
        if (ranges[i].first > next)
            out[n_out++] = (struct character_range){next, ranges[i].first - 1};
        if (ranges[i].last + 1 > next)
            next = ranges[i].last + 1;
    }
    if (next <= 0x10ffff)
        out[n_out++] = (struct character_range){next, 0x10ffff};
    return n_out;
}

// Splits where the number of bytes changes, and leaves out surrogates, which no text spells.
static void add_characters(struct builder *builder, int rule, struct character_range range, struct byte_set *ascii)
{
    static const struct character_range lengths[] = {
        {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const uint32_t first = range.first > lengths[i].first ? range.first : lengths[i].first;
        const uint32_t last = range.last < lengths[i].last ? range.last : lengths[i].last;
        if (first > last)
            continue;
        if (i == 0)
            set_add(ascii, (int)first, (int)last);
        else
            add_range(builder, rule, first, last);
    }
}

static bool hold_range(const struct character_range *ranges, int n, uint32_t first, uint32_t last)
{
    for (int i = 0; i < n; i++)
        if (ranges[i].first <= first && last <= ranges[i].last)
            return true;
    return false;
}

// Whether the sorted ranges hold all plain characters; all beyond ASCII.
static void find_plain(const struct character_range *ranges, int n, struct rule *rule)
{
    rule->beyond = hold_range(ranges, n, 0x80, 0x2027) && hold_range(ranges, n, 0x202a, 0x10ffff);
    rule->plain = rule->beyond && hold_range(ranges, n, ' ', '"' - 1) && hold_range(ranges, n, '"' + 1, '\\' - 1) &&
                  hold_range(ranges, n, '\\' + 1, 0x80);
}

void build_characters(struct builder *builder, struct sequence *sequence, const struct character_range *ranges, int n,
                      bool others)
{
    struct character_range *copy = malloc((2 * (size_t)n + 1) * sizeof *copy);
    if (copy == NULL) {
        builder->failed = true;
        return;
    }
    if (n > 0)
        memcpy(copy, ranges, (size_t)n * sizeof *copy);
    const struct character_range *chosen = copy;
    if (others) {
        chosen = copy + n;
        n = complement(copy, n, copy + n);
    }
    struct byte_set ascii = {0};
    bool beyond = false;
    for (int i = 0; i < n; i++)
        beyond |= chosen[i].last > 0x7f;
    const int rule = beyond ? build_rule(builder) : -1;
    for (int i = 0; i < n && !builder->failed; i++)
        add_characters(builder, rule, chosen[i], &ascii);
    if (beyond && !builder->failed)
        find_plain(chosen, n, &builder->grammar->rules[rule]);
    const bool any_ascii = ascii.bits[0] | ascii.bits[1];
    if (beyond && any_ascii) {
        struct sequence one = {0};
        ascii.class = (uint64_t)rule + 1;
        sequence_add(builder, &one, ELEMENT_BYTE, build_set(builder, &ascii));
        build_alternative(builder, rule, &one);
    }
    if (beyond)
        sequence_add(builder, sequence, ELEMENT_CALL, rule);
    else
        sequence_add(builder, sequence, ELEMENT_BYTE, build_set(builder, &ascii)); // which may be empty: then nothing comes
    free(copy);
}

// ---------------------------------------------------------------- repetition

// Makes a rule: the part and then the rule `rest`, or itself; or nothing.
static int build_rest(struct builder *builder, struct element part, int rest, bool again)
{
    const int rule = build_rule(builder);
    struct sequence more = {0}, nothing = {0};
    sequence_add(builder, &more, part.kind, part.index);
    if (again || rest >= 0)
        sequence_add(builder, &more, ELEMENT_CALL, again ? rule : rest);
    build_alternative(builder, rule, &more);
    build_alternative(builder, rule, &nothing);
    return rule;
}

// A rule of what stands in the sequence from `from` on.
static int build_group(struct builder *builder, const struct sequence *sequence, int from)
{
    struct sequence body = {0};
    for (int i = from; i < sequence->n; i++)
        sequence_add(builder, &body, sequence->elements[i].kind, sequence->elements[i].index);
    const int rule = build_rule(builder);
    build_alternative(builder, rule, &body);
    return rule;
}

static void build_count(struct builder *builder, struct sequence *sequence, struct count count)
{
    struct grammar *g = builder->grammar;
    g->counts = grow(builder, g->counts, g->n_counts, &builder->rooms[6], sizeof *g->counts, GRAMMAR_MAX_ELEMENTS);
    if (builder->failed)
        return;
    count.rest = g->n_elements + 1;
    build_rest(builder, (struct element){ELEMENT_CALL, count.rule, false}, -1, true);
    g->counts[g->n_counts++] = count;
    sequence_add(builder, sequence, ELEMENT_COUNT, g->n_counts - 1);
}

void build_repetition(struct builder *builder, struct sequence *sequence, int from, int least, int most)
{
    const bool many = least > GRAMMAR_MANY || most > GRAMMAR_MANY;
    struct element part = {ELEMENT_END, 0, false};
    if (sequence->n - from == 1 && (!many || sequence->elements[from].kind == ELEMENT_CALL))
        part = sequence->elements[from];
    else
        part = (struct element){ELEMENT_CALL, build_group(builder, sequence, from), false};
    sequence->n = from;
    if (many) {
        build_count(builder, sequence, (struct count){part.index, least, most, 0});
        return;
    }
    for (int i = 0; i < least && !builder->failed; i++)
        sequence_add(builder, sequence, part.kind, part.index);
    // Any number: rest ::= part rest | . Up to so many: rest ::= part rest' | , rest' ::= part rest'' | , and so on.
    int rest = -1;
    for (int i = most < 0 ? 1 : most - least; i > 0 && !builder->failed; i--)
        rest = build_rest(builder, part, rest, most < 0);
    if (rest >= 0)
        sequence_add(builder, sequence, ELEMENT_CALL, rest);
}
