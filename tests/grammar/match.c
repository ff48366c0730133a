// For test_grammar.py: does a grammar take a text, and does a mask hold the tokens that it should?
//
// usage: match grammar|schema FILE            reads texts from stdin, each ended by a NUL; says yes, no, or more (a beginning
//                                             of one that it takes)
//        match grammar|schema FILE MODEL      says for each text, token by token, whether the mask holds what the automaton
//                                             takes byte by byte
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/mask.h"
#include "grammar/schema.h"

static char *read_all(FILE *file, size_t *length)
{
    char *text = NULL;
    FILE *memory = open_memstream(&text, length);
    for (int c; memory && (c = getc(file)) != EOF;)
        putc(c, memory);
    if (memory == NULL || fclose(memory) != 0)
        exit(4);
    return text;
}

static struct grammar *read_grammar(const char *kind, const char *path, yalm_error *error)
{
    FILE *file = fopen(path, "rb");
    size_t length;
    if (file == NULL)
        exit(2);
    char *text = read_all(file, &length);
    fclose(file);
    if (strcmp(kind, "schema") == 0) {
        cJSON *schema = cJSON_ParseWithLength(text, length);
        free(text);
        const yalm_status status = schema_to_grammar(schema, &text, &length, error);
        cJSON_Delete(schema);
        if (status != YALM_OK)
            return NULL;
    }
    struct grammar *grammar = grammar_parse(text, length, error);
    free(text);
    return grammar;
}

static const char *match(struct automaton *automaton, const char *text, size_t length)
{
    int state = automaton_start(automaton);
    for (size_t i = 0; i < length && state != STATE_DEAD; i++)
        state = automaton_tidy(automaton, &state) ? automaton_step(automaton, state, (unsigned char)text[i]) : STATE_DEAD;
    return automaton_failed(automaton)           ? "failed"
           : state == STATE_DEAD                 ? "no"
           : automaton_accepts(automaton, state) ? "yes"
                                                 : "more";
}

// The number of tokens about which the mask is wrong.
static int n_wrong(struct masker *masker, struct automaton *automaton, int state, const yalm_model *model)
{
    const uint64_t *allowed = masker_allowed(masker);
    int wrong = 0;
    for (int32_t token = 0; token < yalm_model_facts(model)->vocab_size; token++) {
        size_t length = 0;
        const char *bytes = yalm_piece(model, token, &length);
        int after = length && !yalm_is_control(model, token) ? state : STATE_DEAD;
        for (size_t i = 0; i < length && after != STATE_DEAD; i++)
            after = automaton_step(automaton, after, (unsigned char)bytes[i]);
        const bool may = yalm_is_eos(model, token) ? automaton_accepts(automaton, state) : after != STATE_DEAD;
        wrong += may != (allowed && allowed[token / 64] >> token % 64 & 1);
    }
    return wrong;
}

static int32_t longest_token(const yalm_model *model, const char *text)
{
    int32_t best = -1;
    size_t most = 0, length = 0;
    for (int32_t token = 0; token < yalm_model_facts(model)->vocab_size; token++) {
        const char *bytes = yalm_piece(model, token, &length);
        if (bytes && !yalm_is_control(model, token) && length > most && strncmp(text, bytes, length) == 0) {
            best = token;
            most = length;
        }
    }
    return best;
}

static void check_masks(const struct grammar *grammar, const struct token_tree *tree, const yalm_model *model, const char *text)
{
    yalm_error error;
    struct masker *masker = masker_open(grammar, tree, model, &error);
    struct automaton *automaton = automaton_open(grammar, &error);
    int n = 0, wrong = 0;
    if (masker == NULL || automaton == NULL)
        exit(3);
    for (int state = automaton_start(automaton);; n++) {
        wrong += n_wrong(masker, automaton, state, model);
        const int32_t token = *text ? longest_token(model, text) : -1;
        if (token < 0 || !masker_take(masker, token))
            break;
        size_t length;
        yalm_piece(model, token, &length);
        for (size_t k = 0; k < length; k++)
            state = automaton_step(automaton, state, (unsigned char)*text++);
    }
    printf("%d tokens, %d wrong, %s\n", n, wrong, masker_accepts(masker) ? "whole" : "open");
    automaton_close(automaton);
    masker_close(masker);
}

int main(int argc, char **argv)
{
    yalm_error error = {0};
    if (argc < 3)
        return 2;
    struct grammar *grammar = read_grammar(argv[1], argv[2], &error);
    struct automaton *automaton = grammar ? automaton_open(grammar, &error) : NULL;
    if (automaton == NULL) {
        printf("%s\n", error.text);
        grammar_free(grammar);
        return error.status;
    }
    yalm_model *model = argc > 3 ? yalm_model_open(argv[3], NULL, &error) : NULL;
    struct token_tree *tree = model ? token_tree_open(model) : NULL;
    size_t length;
    char *texts = read_all(stdin, &length);
    for (char *at = texts; at < texts + length; at += strlen(at) + 1) {
        if (tree)
            check_masks(grammar, tree, model, at);
        else
            puts(match(automaton, at, strlen(at)));
    }
    free(texts);
    token_tree_close(tree);
    yalm_model_close(model);
    automaton_close(automaton);
    grammar_free(grammar);
    return 0;
}
