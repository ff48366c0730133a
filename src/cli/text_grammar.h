// --grammar FILE: the form that texts have.
#pragma once
#include "cli/options.h"
#include "grammar/mask.h"

struct text_grammar {
    struct grammar *grammar; // NULL: none
    struct token_tree *tree;
};

// Reads the option's file, where it is given.
yalm_status text_grammar_open(struct text_grammar *grammar, const struct options *options, const yalm_model *model,
                              yalm_error *error);
// For one text; *masker NULL: there is no grammar.
yalm_status text_grammar_begin(const struct text_grammar *grammar, const yalm_model *model, struct masker **masker,
                               yalm_error *error);
void text_grammar_close(struct text_grammar *grammar);
