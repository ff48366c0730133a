// See mask.h.
#include "grammar/mask.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_MASKS = 256 };

// The tree's nodes in the order of a walk: one that leads nowhere is left for the node at `end`.
struct tree_node {
    unsigned char byte;
    uint16_t depth; // bytes from the root, its own counted
    int32_t end;    // the first node that is not below it
    int32_t tokens; // that end here: first in `tokens`; -1: none
    int32_t n_tokens;
};

struct token_tree {
    struct tree_node *nodes; // (n_nodes)
    int n_nodes, room;
    int32_t *tokens; // (n_tokens) sorted by their bytes
    int n_tokens, depth;
    int n_vocab;
};

// ---------------------------------------------------------------- the tree

struct spelled_token {
    const char *bytes;
    size_t length;
    int32_t token;
};

static int compare_spelled(const void *a, const void *b)
{
    const struct spelled_token *x = a, *y = b;
    const int order = memcmp(x->bytes, y->bytes, x->length < y->length ? x->length : y->length);
    if (order)
        return order;
    if (x->length != y->length)
        return x->length < y->length ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

static struct tree_node *add_node(struct token_tree *tree)
{
    if (tree->n_nodes == tree->room) {
        const int room = tree->room ? tree->room * 2 : 4096;
        struct tree_node *grown = realloc(tree->nodes, (size_t)room * sizeof *grown);
        if (grown == NULL)
            return NULL;
        tree->nodes = grown;
        tree->room = room;
    }
    return &tree->nodes[tree->n_nodes++];
}

// Nodes for sorted tokens: each token adds those below what it has in common with the one before.
static bool add_tokens(struct token_tree *tree, const struct spelled_token *all, int n)
{
    int path[YALM_MAX_PIECE + 1] = {0}; // the nodes of the token before
    size_t depth = 0;
    for (int i = 0; i < n; i++) {
        size_t common = 0;
        if (i > 0)
            while (common < depth && common < all[i].length && all[i - 1].bytes[common] == all[i].bytes[common])
                common++;
        for (size_t k = common; k < depth; k++)
            tree->nodes[path[k]].end = tree->n_nodes;
        for (depth = common; depth < all[i].length; depth++) {
            path[depth] = tree->n_nodes;
            struct tree_node *node = add_node(tree);
            if (node == NULL)
                return false;
            *node =
                (struct tree_node){.byte = (unsigned char)all[i].bytes[depth], .depth = (uint16_t)(depth + 1), .tokens = -1};
        }
        struct tree_node *last = &tree->nodes[path[depth - 1]];
        if (last->n_tokens++ == 0)
            last->tokens = i;
        tree->tokens[i] = all[i].token;
        if ((int)depth > tree->depth)
            tree->depth = (int)depth;
    }
    for (size_t k = 0; k < depth; k++)
        tree->nodes[path[k]].end = tree->n_nodes;
    return true;
}

struct token_tree *token_tree_open(const yalm_model *model)
{
    const int n_vocab = yalm_model_facts(model)->vocab_size;
    struct token_tree *tree = calloc(1, sizeof *tree);
    struct spelled_token *all = malloc((size_t)n_vocab * sizeof *all);
    if (tree)
        tree->tokens = malloc((size_t)n_vocab * sizeof *tree->tokens);
    bool made = tree && all && tree->tokens;
    for (int32_t token = 0; made && token < n_vocab; token++) {
        size_t length = 0;
        const char *bytes = yalm_piece(model, token, &length);
        if (bytes && length > 0 && !yalm_is_control(model, token) && !yalm_is_eos(model, token))
            all[tree->n_tokens++] = (struct spelled_token){bytes, length, token};
    }
    if (made) {
        tree->n_vocab = n_vocab;
        qsort(all, (size_t)tree->n_tokens, sizeof *all, compare_spelled);
        made = add_tokens(tree, all, tree->n_tokens);
    }
    free(all);
    if (made)
        return tree;
    token_tree_close(tree);
    return NULL;
}

void token_tree_close(struct token_tree *tree)
{
    if (tree == NULL)
        return;
    free(tree->nodes);
    free(tree->tokens);
    free(tree);
}

// ---------------------------------------------------------------- masks

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
        m->states = malloc(((size_t)tree->depth + 1) * sizeof *m->states);
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
        const struct token_tree *tree = m->tree;
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

static void walk(struct masker *m, struct mask *mask)
{
    const struct token_tree *tree = m->tree;
    const struct tree_node *nodes = tree->nodes;
    memset(mask->bits, 0, m->n_words * sizeof *mask->bits);
    mask->any = false;
    m->states[0] = m->state;
    for (int i = 0; i < tree->n_nodes;) {
        const struct tree_node *node = &nodes[i];
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
    }
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
