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

static struct tree_node *add_node(struct tree *tree)
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
static bool add_tokens(struct tree *tree, const struct spelled_token *all, int n)
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
            *node = (struct tree_node){
                .byte = (unsigned char)all[i].bytes[depth], .depth = (uint16_t)(depth + 1), .tokens = i, .twin = -1};
        }
        tree->nodes[path[depth - 1]].n_tokens++;
        tree->tokens[i] = all[i].token;
        if ((int)depth > tree->depth)
            tree->depth = (int)depth;
    }
    for (size_t k = 0; k < depth; k++)
        tree->nodes[path[k]].end = tree->n_nodes;
    return true;
}

static bool is_plain(const struct spelled_token *token)
{
    int n = 0;
    for (size_t at = 0, size; at < token->length; at += size, n++) {
        const unsigned char c = (unsigned char)token->bytes[at];
        size = (size_t)utf8_character(token->bytes + at, token->length - at);
        if (size == 0 || c < 0x20 || c == '"' || c == '\\')
            return false;
    }
    return n <= GRAMMAR_PLAIN;
}

// Finds the twin of each node among those below its parent's.
static void find_twins(struct tree *all, const struct tree *odd)
{
    int path[YALM_MAX_PIECE + 1]; // twins of the nodes above
    for (int i = 0; i < all->n_nodes; i++) {
        struct tree_node *node = &all->nodes[i];
        const int above = node->depth > 1 ? path[node->depth - 1] : -1;
        const int end = node->depth == 1 ? odd->n_nodes : above < 0 ? 0 : odd->nodes[above].end;
        for (int k = above + 1; k < end && node->twin < 0; k = odd->nodes[k].end)
            if (odd->nodes[k].byte == node->byte)
                node->twin = k;
        path[node->depth] = node->twin;
    }
}

// Splits the sorted tokens: the odd ones have a tree of their own.
static bool make_trees(struct token_tree *tree, struct spelled_token *sorted, int n)
{
    int n_odd = 0;
    if (!add_tokens(&tree->all, sorted, n))
        return false;
    for (int i = 0; i < n; i++)
        if (is_plain(&sorted[i]))
            tree->plain[sorted[i].token / 64] |= UINT64_C(1) << sorted[i].token % 64;
        else
            sorted[n_odd++] = sorted[i];
    tree->any_plain = n_odd < n;
    tree->all.n_tokens = n;
    tree->odd.n_tokens = n_odd;
    if (!add_tokens(&tree->odd, sorted, n_odd))
        return false;
    find_twins(&tree->all, &tree->odd);
    return true;
}

struct token_tree *token_tree_open(const yalm_model *model)
{
    const int n_vocab = yalm_model_facts(model)->vocab_size;
    struct token_tree *tree = calloc(1, sizeof *tree);
    struct spelled_token *all = malloc((size_t)n_vocab * sizeof *all);
    if (tree) {
        tree->n_vocab = n_vocab;
        tree->all.tokens = malloc((size_t)n_vocab * sizeof *tree->all.tokens);
        tree->odd.tokens = malloc((size_t)n_vocab * sizeof *tree->odd.tokens);
        tree->plain = calloc(((size_t)n_vocab + 63) / 64, sizeof *tree->plain);
    }
    bool made = tree && all && tree->all.tokens && tree->odd.tokens && tree->plain;
    int n = 0;
    for (int32_t token = 0; made && token < n_vocab; token++) {
        size_t length = 0;
        const char *bytes = yalm_piece(model, token, &length);
        if (bytes && length > 0 && !yalm_is_control(model, token) && !yalm_is_eos(model, token))
            all[n++] = (struct spelled_token){bytes, length, token};
    }
    if (made) {
        qsort(all, (size_t)n, sizeof *all, compare_spelled);
        made = make_trees(tree, all, n);
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
    free(tree->all.nodes);
    free(tree->all.tokens);
    free(tree->odd.nodes);
    free(tree->odd.tokens);
    free(tree->plain);
    free(tree);
}
