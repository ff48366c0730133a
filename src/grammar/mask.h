// Which tokens may come next in a text of a grammar: the vocabulary as a tree of bytes, walked together with the automaton.
#pragma once
#include "grammar/automaton.h"

struct token_tree;

// The tree of a model's tokens, without control tokens. Shared by any number of texts and threads. NULL where memory ran out.
struct token_tree *token_tree_open(const yalm_model *model);
void token_tree_close(struct token_tree *tree); // NULL is welcome

// A text in the making.
struct masker;

// NULL on failure, as automaton_open(). The grammar and the tree must outlive it.
struct masker *masker_open(const struct grammar *grammar, const struct token_tree *tree, const yalm_model *model,
                           yalm_error *error);
void masker_close(struct masker *masker); // NULL is welcome

// The tokens that may come: bit t % 64 of word t / 64 for token t. An end-of-text token is among them where the text may end.
// NULL where none may come, or memory ran out. Valid until the next call.
const uint64_t *masker_allowed(struct masker *masker);
// The token has come. False where it was not allowed.
bool masker_take(struct masker *masker, int32_t token);
// Bytes have come that are not a whole token. False where they were not allowed.
bool masker_take_bytes(struct masker *masker, const char *bytes, size_t length);
// Control tokens that may stand for their text, wherever the grammar allows that text. The array stays the caller's.
void masker_set_marks(struct masker *masker, const int32_t *marks, int n_marks);
bool masker_is_over(const struct masker *masker); // the text is whole, and cannot go on
bool masker_accepts(const struct masker *masker); // it is whole
