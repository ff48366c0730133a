// See mask.h.
#include "grammar/mask.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/tree.h"

enum { MAX_MASKS = 256 };

struct masker {
    const struct token_tree *tree;
    const yalm_model *model;
    struct automaton *automaton;
    int state;
    struct mask {
        int state;
        uint64_t *bits; // (n_words), owned
    } masks[MAX_MASKS]; // of the latest states
    int n_masks, turn, generation;
    int count; // of the walk: so many plain characters may come wherever they were taken together
    size_t n_words;
    const int32_t *marks; // (n_marks) control tokens that may come
    int n_marks;
};

struct masker *masker_open(const struct grammar *grammar, const struct token_tree *tree, const yalm_model *model,
                           yalm_error *error)
{
    struct masker *m = calloc(1, sizeof *m);
    if (m == NULL) {
        *error = (yalm_error){YALM_NO_MEMORY, "out of memory for a grammar"};
        return NULL;
    }
    m->tree = tree;
    m->model = model;
    m->n_words = ((size_t)tree->n_vocab + 63) / 64;
    m->automaton = automaton_open(grammar, error);
    if (m->automaton == NULL) {
        masker_close(m);
        return NULL;
    }
    m->state = automaton_start(m->automaton);
    m->generation = automaton_generation(m->automaton);
    return m;
}

void masker_close(struct masker *m)
{
    if (m == NULL)
        return;
    for (int i = 0; i < MAX_MASKS; i++)
        free(m->masks[i].bits);
    automaton_close(m->automaton);
    free(m);
}

static int step_all(struct masker *m, int state, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length && state != STATE_DEAD; i++)
        state = automaton_step(m->automaton, state, (unsigned char)bytes[i]);
    return state;
}

static void set_bit(uint64_t *bits, int32_t token, bool set)
{
    const uint64_t bit = UINT64_C(1) << token % 64;
    bits[token / 64] = set ? bits[token / 64] | bit : bits[token / 64] & ~bit;
}

static void set_all(uint64_t *bits, const struct tree *tree, const struct tree_node *node, bool set)
{
    for (int i = node->tokens; i < node->end; i++)
        set_bit(bits, tree->tokens[i], set);
}

// The byte is the only one that may come.
static bool is_only(struct masker *m, int state, unsigned char byte)
{
    for (int other = 0; other < 256; other++)
        if (other != byte && automaton_step(m->automaton, state, (unsigned char)other) != STATE_DEAD)
            return false;
    return true;
}

// A mark whose text may come here. Where nothing but that text begins with its first byte, tokens that spell it go.
static void add_mark(struct masker *m, uint64_t *mask, int32_t mark)
{
    size_t length = 0;
    const char *bytes = yalm_piece(m->model, mark, &length);
    if (length == 0 || step_all(m, m->state, bytes, length) == STATE_DEAD)
        return;
    const int second = automaton_step(m->automaton, m->state, (unsigned char)bytes[0]);
    if (length > 1 && is_only(m, second, (unsigned char)bytes[1])) {
        const struct tree *tree = &m->tree->all;
        for (int i = 1; i <= tree->nodes[0].n_children; i++)
            if (tree->nodes[i].byte == (unsigned char)bytes[0])
                set_all(mask, tree, &tree->nodes[i], false);
    }
    set_bit(mask, mark, true);
}

// How to walk. Where `filled`, the mask has the tokens that begin with a plain character: all without a tail, and those with a
// tail that may come behind the state `base`. What is wrong among them is mended.
struct way_down {
    const struct tree *tree;
    bool filled, tails; // tails: those without one are right
    int base;
};

// Adds the tokens below the node that lead somewhere from the state.
static void walk_below(struct masker *m, uint64_t *bits, struct way_down how, int node, int state)
{
    const struct tree *tree = how.tree;
    const int end = tree->nodes[node].child + tree->nodes[node].n_children;
    for (int i = tree->nodes[node].child; i < end; i++) {
        const struct tree_node *at = &tree->nodes[i];
        if (how.tails && !at->tails)
            continue;
        const int next = automaton_step(m->automaton, state, at->byte);
        if (next == STATE_DEAD && how.filled)
            set_all(bits, tree, at, false);
        if (next == STATE_DEAD || (next == how.base && at->whole))
            continue;
        const uint64_t *loop = automaton_loop(m->automaton, next);
        if ((at->below[0] & ~loop[0]) == 0 && (at->below[1] & ~loop[1]) == 0) {
            set_all(bits, tree, at, true);
            continue;
        }
        for (int k = at->tokens; k < at->tokens + at->n_tokens; k++)
            set_bit(bits, tree->tokens[k], true);
        struct way_down below = how;
        bool same;
        const int count = how.filled && at->whole ? automaton_plain(m->automaton, next, &same) : 0;
        if (count > TREE_SHORT) {
            below.tails = true;
            m->count = count < m->count ? count : m->count;
        }
        walk_below(m, bits, below, i, next);
    }
}

// Whether most of the plain characters lead to where many may follow. *base: the first such state that none of them changes.
static bool find_base(struct masker *m, int state, int *base)
{
    int n = 0, found = STATE_DEAD;
    bool same;
    for (int c = ' '; c < 0x7f; c++) {
        const int next = c == '"' || c == '\\' ? STATE_DEAD : automaton_step(m->automaton, state, (unsigned char)c);
        if (next == STATE_DEAD || automaton_plain(m->automaton, next, &same) <= TREE_SHORT)
            continue;
        if (found == STATE_DEAD && same)
            found = next;
        n++;
    }
    const bool most = n > (0x7f - ' ') / 2;
    *base = most ? found : STATE_DEAD;
    return most;
}

static uint64_t *mask_of(struct masker *m, int state);

// Looks at the long tokens one by one, but where fewer than `count` plain characters have been taken together.
static void walk_longest(struct masker *m, uint64_t *bits, int state, int count, bool plain)
{
    const struct token_tree *tree = m->tree;
    for (int i = 0; i < tree->n_longest; i++) {
        const int32_t token = tree->longest[i];
        size_t length = 0;
        const char *bytes = yalm_piece(m->model, token, &length);
        if (length < (size_t)count && (tree->plain[token / 64] >> token % 64 & 1) >= plain)
            continue;
        set_bit(bits, token, step_all(m, state, bytes, length) != STATE_DEAD);
    }
}

// The tokens that lead somewhere from the state.
static bool walk(struct masker *m, uint64_t *bits, int state)
{
    const struct token_tree *tree = m->tree;
    bool same;
    struct way_down how = {.tree = &tree->tails, .base = STATE_DEAD};
    const int count = automaton_plain(m->automaton, state, &same);
    const bool plain = count > TREE_SHORT && same; // as all bases are, which so have no other mask behind theirs
    const int near = plain ? state : automaton_near(m->automaton, state);
    if (near != state) {
        const uint64_t *from = mask_of(m, near);
        if (from == NULL)
            return false;
        for (size_t i = 0; i < m->n_words; i++)
            bits[i] = from[i] & tree->known[i];
        walk_longest(m, bits, state, count, true);
        return true;
    }
    if (plain) {
        memcpy(bits, tree->plain, m->n_words * sizeof *bits);
    } else {
        how.tree = &tree->all;
        how.tails = count > TREE_SHORT;
        how.filled = find_base(m, state, &how.base) || how.tails;
        const uint64_t *from = how.base == STATE_DEAD ? tree->plain : mask_of(m, how.base);
        if (from == NULL)
            return false;
        for (size_t i = 0; i < m->n_words; i++)
            bits[i] = how.filled ? from[i] & tree->begin[i] : 0;
    }
    m->count = how.tails ? count : INT_MAX;
    walk_below(m, bits, how, 0, state);
    if (m->count < INT_MAX)
        walk_longest(m, bits, state, m->count, false);
    return true;
}

// The mask of a state, without what stands outside the trees; NULL where memory ran out.
static uint64_t *mask_of(struct masker *m, int state)
{
    for (int i = 0; i < m->n_masks; i++)
        if (m->masks[i].state == state)
            return m->masks[i].bits;
    struct mask *mask = &m->masks[m->turn];
    if (mask->bits == NULL)
        mask->bits = malloc(m->n_words * sizeof *mask->bits);
    if (mask->bits == NULL)
        return NULL;
    mask->state = STATE_DEAD;
    m->turn = (m->turn + 1) % MAX_MASKS;
    m->n_masks += m->n_masks < MAX_MASKS;
    if (!walk(m, mask->bits, state))
        return NULL;
    mask->state = state;
    return mask->bits;
}

const uint64_t *masker_allowed(struct masker *m)
{
    if (m->state == STATE_DEAD || !automaton_tidy(m->automaton, &m->state))
        return NULL;
    if (m->generation != automaton_generation(m->automaton)) {
        m->generation = automaton_generation(m->automaton);
        m->n_masks = m->turn = 0;
    }
    uint64_t *bits = mask_of(m, m->state), any = 0;
    if (bits == NULL || automaton_failed(m->automaton))
        return NULL;
    for (int i = 0; i < m->n_marks; i++)
        add_mark(m, bits, m->marks[i]);
    const yalm_model_info *facts = yalm_model_facts(m->model);
    for (int i = 0; i < facts->n_eos && automaton_accepts(m->automaton, m->state); i++)
        set_bit(bits, facts->eos[i], true);
    for (size_t i = 0; i < m->n_words; i++)
        any |= bits[i];
    return any ? bits : NULL;
}

bool masker_take(struct masker *m, int32_t token)
{
    size_t length = 0;
    const char *bytes = yalm_piece(m->model, token, &length);
    return masker_take_bytes(m, bytes, length);
}

bool masker_take_bytes(struct masker *m, const char *bytes, size_t length)
{
    m->state = step_all(m, m->state, bytes, length);
    return m->state != STATE_DEAD && !automaton_failed(m->automaton);
}

void masker_set_marks(struct masker *m, const int32_t *marks, int n_marks)
{
    m->marks = marks;
    m->n_marks = n_marks;
}

bool masker_is_over(const struct masker *m)
{
    return m->state != STATE_DEAD && automaton_is_final(m->automaton, m->state);
}

bool masker_accepts(const struct masker *m)
{
    return m->state != STATE_DEAD && automaton_accepts(m->automaton, m->state);
}
