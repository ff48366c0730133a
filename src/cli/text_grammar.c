// See text_grammar.h.
#include "cli/text_grammar.h"

#include <stdlib.h>

#include "cli/cli.h"

yalm_status text_grammar_open(struct text_grammar *grammar, const struct options *options, const yalm_model *model,
                              yalm_error *error)
{
    struct text text;
    if (options->grammar == NULL)
        return YALM_OK;
    const yalm_status status = text_read_at_once(&text, options->grammar, error);
    if (status != YALM_OK)
        return status;
    grammar->grammar = grammar_parse(text.bytes, text.length, error);
    free(text.bytes);
    if (grammar->grammar == NULL)
        return error->status;
    grammar->tree = token_tree_open(model);
    return grammar->tree ? YALM_OK : cli_no_memory(error);
}

yalm_status text_grammar_begin(const struct text_grammar *grammar, const yalm_model *model, struct masker **masker,
                               yalm_error *error)
{
    *masker = grammar->grammar ? masker_open(grammar->grammar, grammar->tree, model, error) : NULL;
    return grammar->grammar && *masker == NULL ? error->status : YALM_OK;
}

void text_grammar_close(struct text_grammar *grammar)
{
    token_tree_close(grammar->tree);
    grammar_free(grammar->grammar);
    *grammar = (struct text_grammar){0};
}
