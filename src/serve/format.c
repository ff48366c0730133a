// The forms that a request may ask for: a JSON object, a document of a schema, a text of a grammar.
#include <stdlib.h>
#include <string.h>

#include "grammar/schema.h"
#include "serve/body.h"
#include "serve/generation.h"

static bool parse(struct request *request, const char *text, size_t length)
{
    yalm_error error;
    request->how->grammar = grammar_parse(text, length, &error);
    if (request->how->grammar == NULL)
        request_fail_by(request, &error);
    return request->how->grammar != NULL;
}

bool generation_set_grammar(struct request *request, char *text, size_t length)
{
    const bool parsed = parse(request, text, length);
    free(text);
    return parsed;
}

static bool set_schema(struct request *request, const cJSON *schema)
{
    char *text;
    size_t length;
    yalm_error error;
    if (schema_to_listed_grammar(schema, &text, &length, &error) == YALM_OK)
        return generation_set_grammar(request, text, length);
    return request_fail_by(request, &error);
}

static bool read_response_format(struct request *request, const cJSON *format)
{
    const cJSON *type = body_member(format, "type"), *wrapped = body_member(format, "json_schema");
    const char *word = body_text(type);
    if (strcmp(word, "text") == 0)
        return true;
    if (strcmp(word, "json_object") == 0)
        return set_schema(request, body_member(format, "schema"));
    const cJSON *schema = body_member(wrapped, "schema");
    if (strcmp(word, "json_schema") == 0 && schema)
        return set_schema(request, schema);
    return request_fail(
        request, 400,
        "'%s': expected the type text, json_object, or json_schema with a \"schema\", in OpenAI's conversations within "
        "\"json_schema\"",
        body_said(request, "response_format"));
}

bool generation_read_format(struct request *request)
{
    const cJSON *format = body_member(request->json, "response_format"), *schema = body_member(request->json, "json_schema");
    const char *grammar = NULL;
    if (!body_string(request, request->json, "grammar", &grammar))
        return false;
    if (grammar && *grammar == '\0') // as clients say that there is none
        grammar = NULL;
    if ((format != NULL) + (schema != NULL) + (grammar != NULL) > 1)
        return request_fail(request, 400, "'response_format', 'json_schema' and 'grammar' exclude each other");
    if (request->how->grammar)
        return true;
    if (format)
        return read_response_format(request, format);
    if (schema)
        return set_schema(request, schema);
    return grammar == NULL || parse(request, grammar, strlen(grammar));
}
