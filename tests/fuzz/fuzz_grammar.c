// Fuzzes grammars and schemas: the first byte chooses the notation and how many bytes at the end are a text that the automaton
// reads. Whatever they are, there is a grammar or one line of an error; and what the automaton takes byte by byte leaves it in
// a state of its own.
#include <stdlib.h>
#include <string.h>

#include "grammar/automaton.h"
#include "grammar/schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool true_always)
{
    if (!true_always)
        abort();
}

static struct grammar *read_schema(const char *text, size_t length, yalm_error *error)
{
    cJSON *schema = cJSON_ParseWithLength(text, length);
    char *written;
    if (schema == NULL)
        return NULL;
    const yalm_status status = schema_to_grammar(schema, &written, &length, error);
    cJSON_Delete(schema);
    if (status != YALM_OK) {
        check(error->status == status && error->text[0]);
        return NULL;
    }
    // What the writer writes the parser reads, as far as it is not too much.
    struct grammar *grammar = grammar_parse(written, length, error);
    check(grammar || strstr(error->text, "more than") || strstr(error->text, "longer than") || strstr(error->text, "at most") ||
          strstr(error->text, "UTF-8") || strstr(error->text, "nest deeper"));
    free(written);
    return grammar;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 4096)
        return 0;
    const size_t n_text = (data[0] >> 1) % size, length = size - 1 - n_text;
    yalm_error error = {0};
    struct grammar *grammar = data[0] & 1 ? read_schema((const char *)data + 1, length, &error)
                                          : grammar_parse((const char *)data + 1, length, &error);
    struct automaton *automaton = grammar && grammar->n_elements < 100000 ? automaton_open(grammar, &error) : NULL;
    int state = automaton ? automaton_start(automaton) : STATE_DEAD;
    for (size_t i = 0; i < n_text && state != STATE_DEAD; i++) {
        const unsigned char byte = data[1 + length + i];
        check(!automaton_is_final(automaton, state) || automaton_step(automaton, state, byte) == STATE_DEAD);
        const int next = automaton_step(automaton, state, byte);
        check(automaton_failed(automaton) || next == automaton_step(automaton, state, byte));
        state = next;
    }
    automaton_close(automaton);
    grammar_free(grammar);
    return 0;
}
