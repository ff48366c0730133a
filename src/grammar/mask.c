// See mask.h.
#include "grammar/mask.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/tree.h"

enum { MAX_MASKS = 256 };

struct masker {
    const struct token_tree *tree;
    const yalm_model *model;
    struct automaton *automaton;
    int state;
    int *states; // (depth + 1) of the walk
    struct mask {
        int state;
        uint64_t *bits; // (n_words), owned
        bool any;
    } masks[MAX_MASKS]; // of the latest states
    int n_masks, turn, generation;
    size_t n_words;
    const int32_t *marks; // (n_marks) control tokens that may come
    int n_marks;
};

struct masker *masker_open(const struct grammar *grammar, const struct token_tree *tree, const yalm_model *model,
                           yalm_error *error)
{
    struct masker *m = calloc(1, sizeof *m);
    if (m)
        m->states = malloc(((size_t)tree->all.depth + 1) * sizeof *m->states);
    if (m == NULL || m->states == NULL) {
        free(m);
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
    free(m->states);
    free(m);
}

static int step_all(struct masker *m, int state, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length && state != STATE_DEAD; i++)
        state = automaton_step(m->automaton, state, (unsigned char)bytes[i]);
    return state;
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
static void add_mark(struct masker *m, struct mask *mask, int32_t mark)
{
    size_t length = 0;
    const char *bytes = yalm_piece(m->model, mark, &length);
    if (length == 0 || step_all(m, m->state, bytes, length) == STATE_DEAD)
        return;
    const int second = automaton_step(m->automaton, m->state, (unsigned char)bytes[0]);
    if (length > 1 && is_only(m, second, (unsigned char)bytes[1])) {
        const struct tree *tree = &m->tree->all;
        for (int i = 0; i < tree->n_nodes; i = tree->nodes[i].end)
            if (tree->nodes[i].byte == (unsigned char)bytes[0])
                for (int k = i; k < tree->nodes[i].end; k++)
                    for (int t = 0; t < tree->nodes[k].n_tokens; t++) {
                        const int32_t token = tree->tokens[tree->nodes[k].tokens + t];
                        mask->bits[token / 64] &= ~(UINT64_C(1) << token % 64);
                    }
    }
    mask->bits[mark / 64] |= UINT64_C(1) << mark % 64;
    mask->any = true;
}

// Adds the plain tokens that begin as the node says.
static void add_plain(const struct masker *m, struct mask *mask, const struct tree_node *node)
{
    const struct tree *tree = &m->tree->all;
    const int end = node->end < tree->n_nodes ? tree->nodes[node->end].tokens : tree->n_tokens;
    for (int i = node->tokens; i < end; i++) {
        const int32_t token = tree->tokens[i];
        mask->bits[token / 64] |= m->tree->plain[token / 64] & UINT64_C(1) << token % 64;
    }
}

// Adds the tokens of the nodes from..to - 1 that lead somewhere, by the states above them.
static void walk_nodes(struct masker *m, struct mask *mask, const struct tree *tree, int from, int to)
{
    for (int i = from; i < to;) {
        const struct tree_node *node = &tree->nodes[i];
        const int state = automaton_step(m->automaton, m->states[node->depth - 1], node->byte);
        if (state == STATE_DEAD) {
            i = node->end;
            continue;
        }
        m->states[node->depth] = state;
        for (int k = 0; k < node->n_tokens; k++) {
            const int32_t token = tree->tokens[node->tokens + k];
            mask->bits[token / 64] |= UINT64_C(1) << token % 64;
            mask->any = true;
        }
        i++;
        if (tree != &m->tree->all || i == node->end || !automaton_is_plain(m->automaton, state))
            continue;
        add_plain(m, mask, node);
        if (node->twin >= 0)
            walk_nodes(m, mask, &m->tree->odd, node->twin + 1, m->tree->odd.nodes[node->twin].end);
        mask->any = true; // something stands below the node, or it would have been a leaf
        i = node->end;
    }
}

static void walk(struct masker *m, struct mask *mask)
{
    const struct token_tree *tree = m->tree;
    const bool plain = automaton_is_plain(m->automaton, m->state);
    m->states[0] = m->state;
    mask->any = plain && tree->any_plain;
    if (plain)
        memcpy(mask->bits, tree->plain, m->n_words * sizeof *mask->bits);
    else
        memset(mask->bits, 0, m->n_words * sizeof *mask->bits);
    walk_nodes(m, mask, plain ? &tree->odd : &tree->all, 0, plain ? tree->odd.n_nodes : tree->all.n_nodes);
    for (int i = 0; i < m->n_marks; i++)
        add_mark(m, mask, m->marks[i]);
    if (!automaton_accepts(m->automaton, m->state))
        return;
    const yalm_model_info *facts = yalm_model_facts(m->model);
    for (int i = 0; i < facts->n_eos; i++) {
        mask->bits[facts->eos[i] / 64] |= UINT64_C(1) << facts->eos[i] % 64;
        mask->any = true;
    }
}

const uint64_t *masker_allowed(struct masker *m)
{
    if (m->state == STATE_DEAD || !automaton_tidy(m->automaton, &m->state))
        return NULL;
    if (m->generation != automaton_generation(m->automaton)) {
        m->generation = automaton_generation(m->automaton);
        m->n_masks = m->turn = 0;
    }
    for (int i = 0; i < m->n_masks; i++)
        if (m->masks[i].state == m->state)
            return m->masks[i].any ? m->masks[i].bits : NULL;
    struct mask *mask = &m->masks[m->turn];
    if (mask->bits == NULL)
        mask->bits = malloc(m->n_words * sizeof *mask->bits);
    if (mask->bits == NULL)
        return NULL;
    walk(m, mask);
    if (automaton_failed(m->automaton))
        return NULL;
    mask->state = m->state;
    m->turn = (m->turn + 1) % MAX_MASKS;
    m->n_masks += m->n_masks < MAX_MASKS;
    return mask->any ? mask->bits : NULL;
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
