// Texts that must be calls of tools: a grammar with the tools' schemas, in the form of calls that the model knows.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema.h"
#include "serve/body.h"
#include "serve/dialogue.h"
#include "speech/speech.h"

struct call_notation {
    enum call_form form;
    const char *before, *middle, *after; // around a name and arguments, as literals of a grammar
    bool again;                          // several may follow each other
};

static const struct call_notation notations[] = {
    {CALLS_HERMES, "<tool_call>\\n{\\\"name\\\": \\\"", "\\\", \\\"arguments\\\": ", "}\\n</tool_call>", true},
    {CALLS_MISTRAL, "[TOOL_CALLS][{\\\"name\\\": \\\"", "\\\", \\\"arguments\\\": ", "}]", false},
    {SPEECH_HARMONY, "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "", false},
    {SPEECH_GEMMA, "<|tool_call>call:", "", "<tool_call|>", true},
    {CALLS_BARE, "{\\\"name\\\": \\\"", "\\\", \\\"parameters\\\": ", "}", false},
};

// The name within a JSON string within a literal of the grammar.
static void add_name(struct buffer *out, const char *name)
{
    struct buffer json = {0};
    buffer_json(&json, name, strlen(name));
    for (size_t i = 1; i + 1 < json.length; i++) {
        if (json.at[i] == '"' || json.at[i] == '\\')
            buffer_text(out, "\\");
        buffer_add(out, json.at + i, 1);
    }
    buffer_free(&json);
}

static bool add_tools(struct request *request, const struct dialogue *dialogue, const struct call_notation *notation,
                      struct schema_writer *writer, struct buffer *root)
{
    const cJSON *tool;
    yalm_error error;
    const char *bar = "(";
    cJSON_ArrayForEach(tool, dialogue->tools)
    {
        const cJSON *function = body_member(tool, "function");
        const char *name = body_member(function, "name")->valuestring;
        int rule;
        if (dialogue->chosen && strcmp(dialogue->chosen, name) != 0)
            continue;
        if (schema_writer_add(writer, body_member(function, "parameters"), &rule, &error) != YALM_OK)
            return request_fail(request, http_status(error.status), "'tools', '%.60s': %s", name, error.text);
        buffer_format(root, "%s\"%s", bar, notation->before);
        add_name(root, name);
        buffer_format(root, "%s\" r%d \"%s\"", notation->middle, rule, notation->after);
        bar = " | ";
    }
    buffer_text(root, ")");
    return true;
}

bool dialogue_force_call(struct request *request, const struct dialogue *dialogue)
{
    if (dialogue->choice != TOOLS_REQUIRED)
        return true;
    const struct call_notation *notation = notations;
    while (!(dialogue->forms & notation->form))
        notation++;
    yalm_error error;
    struct buffer root = {0};
    struct schema_writer *writer = schema_writer_open(&error);
    bool several = notation->again && dialogue->chosen == NULL, made = false;
    if (writer == NULL)
        request_fail(request, 503, "%s", error.text);
    else if (body_bool(request, request->json, "parallel_tool_calls", &several))
        made = add_tools(request, dialogue, notation, writer, &root);
    if (!made || root.failed) {
        schema_writer_close(writer);
        buffer_free(&root);
        return false;
    }
    struct buffer whole = {0};
    buffer_text(&whole, "call");
    buffer_text(&whole, several && notation->again ? " (\"\\n\" call){0,7}" : "");
    buffer_format(&whole, "\ncall ::= %s", root.at);
    char *text;
    size_t length;
    const yalm_status status = schema_writer_end(writer, whole.at, &text, &length, &error);
    buffer_free(&root);
    buffer_free(&whole);
    if (status == YALM_OK)
        return generation_set_grammar(request, text, length);
    return request_fail(request, http_status(status), "%s", error.text);
}
