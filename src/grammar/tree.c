// See tree.h.
#include "grammar/tree.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/mask.h"
#include "util/utf8.h"

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

static int compare_lengths(const void *a, const void *b)
{
    const struct spelled_token *x = a, *y = b;
    return x->length != y->length ? (x->length > y->length ? -1 : 1) : x->token < y->token ? -1 : x->token > y->token;
}

// Bytes of the plain characters that the text begins with.
static size_t plain_length(const char *bytes, size_t length)
{
    size_t at = 0;
    for (int size = 1; at < length && size > 0; at += (size_t)size) {
        const unsigned char c = (unsigned char)bytes[at];
        size = c < 0x20 || c == '"' || c == '\\' ? 0 : utf8_character(bytes + at, length - at);
        if (size == 3 && (utf8_point(bytes + at, 3) | 1) == 0x2029) // no `.` of a pattern
            size = 0;
    }
    return at;
}

static bool add_node(struct tree *tree, struct tree_node node)
{
    if (tree->n_nodes == tree->room) {
        const int room = tree->room ? tree->room * 2 : 4096;
        struct tree_node *grown = realloc(tree->nodes, (size_t)room * sizeof *grown);
        if (grown == NULL)
            return false;
        tree->nodes = grown;
        tree->room = room;
    }
    tree->nodes[tree->n_nodes++] = node;
    return true;
}

// What stands below a node, from what stands below its children.
static void find_below(const struct tree *tree, struct tree_node *node)
{
    for (const struct tree_node *at = tree->nodes + node->child; at < tree->nodes + node->child + node->n_children; at++) {
        const int bit = at->byte < 0x7f ? at->byte : 0x7f;
        node->below[bit / 64] |= UINT64_C(1) << bit % 64;
        for (int k = 0; k < 2; k++)
            node->below[k] |= at->below[k];
    }
}

// The tree of sorted tokens, level by level.
static bool make_tree(struct tree *tree, const struct spelled_token *sorted, int n)
{
    size_t depth = 0;
    tree->tokens = malloc(((size_t)n + 1) * sizeof *tree->tokens);
    if (tree->tokens == NULL || !add_node(tree, (struct tree_node){.end = n, .whole = true}))
        return false;
    for (int i = 0; i < n; i++)
        tree->tokens[i] = sorted[i].token;
    tree->n_tokens = n;
    for (int i = 0, level_end = 1; i < tree->n_nodes; i++) {
        if (i == level_end) {
            level_end = tree->n_nodes;
            depth++;
        }
        const struct tree_node node = tree->nodes[i];
        const int child = tree->n_nodes;
        int at = node.tokens;
        while (at < node.end && sorted[at].length == depth)
            at++;
        tree->nodes[i].n_tokens = at - node.tokens;
        while (at < node.end) {
            const char *bytes = sorted[at].bytes;
            struct tree_node next = {.tokens = at, .byte = (unsigned char)bytes[depth]};
            next.whole = plain_length(bytes, depth + 1) == depth + 1;
            for (; at < node.end && sorted[at].bytes[depth] == bytes[depth]; at++)
                next.tails |= plain_length(sorted[at].bytes, sorted[at].length) < sorted[at].length;
            next.end = at;
            if (!add_node(tree, next))
                return false;
        }
        tree->nodes[i].child = child;
        tree->nodes[i].n_children = tree->n_nodes - child;
    }
    for (int i = tree->n_nodes; i-- > 0;)
        find_below(tree, &tree->nodes[i]);
    return true;
}

// Makes both trees of the tokens, which end as what follows their plain characters, and lists the long ones.
static bool make_trees(struct token_tree *tree, struct spelled_token *all, int n)
{
    int n_tails = 0;
    qsort(all, (size_t)n, sizeof *all, compare_lengths);
    while (tree->n_longest < n && all[tree->n_longest].length > TREE_SHORT)
        tree->n_longest++;
    tree->longest = malloc(((size_t)tree->n_longest + 1) * sizeof *tree->longest);
    if (tree->longest == NULL)
        return false;
    for (int i = 0; i < tree->n_longest; i++)
        tree->longest[i] = all[i].token;
    qsort(all, (size_t)n, sizeof *all, compare_spelled);
    if (!make_tree(&tree->all, all, n))
        return false;
    for (int i = 0; i < n; i++) {
        const size_t plain = plain_length(all[i].bytes, all[i].length);
        const uint64_t bit = UINT64_C(1) << all[i].token % 64;
        tree->known[all[i].token / 64] |= bit;
        tree->begin[all[i].token / 64] |= plain ? bit : 0;
        tree->plain[all[i].token / 64] |= plain == all[i].length ? bit : 0;
        if (plain < all[i].length)
            all[n_tails++] = (struct spelled_token){all[i].bytes + plain, all[i].length - plain, all[i].token};
    }
    qsort(all, (size_t)n_tails, sizeof *all, compare_spelled);
    return make_tree(&tree->tails, all, n_tails);
}

struct token_tree *token_tree_open(const yalm_model *model)
{
    const int n_vocab = yalm_model_facts(model)->vocab_size;
    struct token_tree *tree = calloc(1, sizeof *tree);
    struct spelled_token *all = malloc(((size_t)n_vocab + 1) * sizeof *all);
    if (tree) {
        tree->n_vocab = n_vocab;
        tree->known = calloc(((size_t)n_vocab + 63) / 64, sizeof *tree->known);
        tree->plain = calloc(((size_t)n_vocab + 63) / 64, sizeof *tree->plain);
        tree->begin = calloc(((size_t)n_vocab + 63) / 64, sizeof *tree->begin);
    }
    bool made = tree && all && tree->known && tree->plain && tree->begin;
    int n = 0;
    for (int32_t token = 0; made && token < n_vocab; token++) {
        size_t length = 0;
        const char *bytes = yalm_piece(model, token, &length);
        if (bytes && length > 0 && !yalm_is_control(model, token) && !yalm_is_eos(model, token))
            all[n++] = (struct spelled_token){bytes, length, token};
    }
    made = made && make_trees(tree, all, n);
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
    free(tree->all.nodes);
    free(tree->all.tokens);
    free(tree->tails.nodes);
    free(tree->tails.tokens);
    free(tree->longest);
    free(tree->known);
    free(tree->plain);
    free(tree->begin);
    free(tree);
}
