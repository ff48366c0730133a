// Reads the chat templates of a model file, and renders one with a caller's variables.

#include "chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "chat/evaluate.h"
#include "chat/print.h"
#include "model/json.h"

// ------------------------------------------------------------------------------------------ reading

static yalm_status read_tokens(struct chat *chat, const struct json_object *root, yalm_error *error)
{
    struct json_object tokens;
    const yalm_status status = json_get_object(&tokens, root, "tokens", "chat.tokens", error);
    if (status != YALM_OK)
        return status;
    for (const cJSON *c = tokens.node->child; c; c = c->next) {
        if (!cJSON_IsString(c) || chat->n_tokens == MAX_SPECIAL_TOKENS)
            return error_set(error, YALM_BAD_MODEL, "%s: metadata: 'chat.tokens': expected at most %d strings", tokens.path,
                             MAX_SPECIAL_TOKENS);
        chat->names[chat->n_tokens] = string_of(c->string);
        chat->tokens[chat->n_tokens++] = string_of(c->valuestring);
    }
    return YALM_OK;
}

static yalm_status read_templates(struct chat *chat, const struct json_object *root, yalm_error *error)
{
    static const char *const names[] = {"default", "tool_use"};
    struct json_object templates;
    yalm_status status = json_get_object(&templates, root, "templates", "chat.templates", error);
    status = status ?: json_only(&templates, names, 2, error);
    for (int i = 0; i < 2 && status == YALM_OK; i++) {
        const cJSON *list = NULL;
        if (i == 1 && !json_has(&templates, names[i]))
            break;
        status = json_get_array(&list, &templates, names[i], error);
        if (status == YALM_OK)
            status = template_read(i ? &chat->tools : &chat->main, list, root->path,
                                   i ? "chat.templates.tool_use" : "chat.templates.default", error);
    }
    return status;
}

static yalm_status read_chat(struct chat *chat, const struct container *container, yalm_error *error)
{
    static const char *const members[] = {"tokens", "templates", "refused"};
    const struct json_object root = {container->mapping.path, "", container->metadata};
    struct json_object member;
    chat->found = json_has(&root, "chat");
    if (!chat->found)
        return YALM_OK;
    yalm_status status = json_get_object(&member, &root, "chat", "chat", error);
    status = status ?: json_only(&member, members, 3, error);
    status = status ?: read_tokens(chat, &member, error);
    if (status == YALM_OK && json_has(&member, "refused"))
        status = json_get_string(&chat->refused, &member, "refused", error);
    else if (status == YALM_OK)
        status = read_templates(chat, &member, error);
    return status;
}

yalm_status chat_load(struct chat **chat, const struct container *container, yalm_error *error)
{
    *chat = calloc(1, sizeof **chat);
    if (!*chat)
        return error_set(error, YALM_NO_MEMORY, "%s: no memory", container->mapping.path);
    const yalm_status status = read_chat(*chat, container, error);
    if (status != YALM_OK) {
        chat_unload(*chat);
        *chat = NULL;
    }
    return status;
}

void chat_unload(struct chat *chat)
{
    if (!chat)
        return;
    template_free(&chat->main);
    template_free(&chat->tools);
    free(chat);
}

// ------------------------------------------------------------------------------------------ variables

// The names that a message's reasoning may have; templates read the first, some the second.
static const char *const reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};

// A message as transformers hands it to a template: without members that are null, and with its reasoning under both names.
static struct value prepare_message(struct run *run, struct value message)
{
    const struct dict *from = message.dict;
    const struct value *reasoning = NULL;
    for (int i = 0; i < 3 && reasoning == NULL; i++) {
        reasoning = dict_find_text(run, from, reasoning_names[i]);
        if (reasoning && reasoning->kind == V_NONE)
            reasoning = NULL;
    }
    const struct value made = new_dict(run, V_DICT);
    if (reasoning)
        dict_set(run, made.dict, string_of("thinking"), *reasoning);
    for (size_t i = 0; i < from->n && !failed(run); i++)
        if (from->entries[i].value.kind != V_NONE)
            dict_set(run, made.dict, from->entries[i].key, from->entries[i].value);
    if (reasoning)
        dict_set(run, made.dict, string_of("reasoning_content"), *reasoning);
    return made;
}

static void prepare_messages(struct run *run, struct value *messages)
{
    if (messages->kind != V_LIST || messages->list->n == 0) {
        run_fail(run, "'messages' must be a list of at least one message");
        return;
    }
    for (size_t i = 0; i < messages->list->n && !failed(run); i++) {
        struct value *message = &messages->list->items[i];
        if (message->kind != V_DICT)
            run_fail(run, "message %zu: found %s, expected an object", i, type_name(*message));
        else
            *message = prepare_message(run, *message);
    }
}

static struct scope read_variables(struct run *run, const struct chat *chat, const char *text, size_t length)
{
    const struct value names = new_dict(run, V_DICT);
    for (int i = 0; i < chat->n_tokens && !failed(run); i++)
        dict_set(run, names.dict, chat->names[i], chat->tokens[i]);
    static const char *const absent[] = {"tools", "documents"}; // these are None, not undefined
    for (int i = 0; i < 2 && !failed(run); i++)
        dict_set(run, names.dict, string_of(absent[i]), none());
    dict_set(run, names.dict, string_of("add_generation_prompt"), boolean(false));

    const struct value given = read_json(run, text, length, "variables");
    if (!failed(run) && given.kind != V_DICT)
        run_fail(run, "variables: found %s, expected an object", type_name(given));
    for (size_t i = 0; !failed(run) && i < given.dict->n; i++)
        dict_set(run, names.dict, given.dict->entries[i].key, given.dict->entries[i].value);
    struct value *messages = failed(run) ? NULL : dict_find_text(run, names.dict, "messages");
    if (messages)
        prepare_messages(run, messages);
    else
        run_fail(run, "variables: 'messages' is missing");
    return (struct scope){.names = failed(run) ? NULL : names.dict};
}

// ------------------------------------------------------------------------------------------ rendering

static yalm_status copy_out(const struct writer *writer, char **text, size_t *length, yalm_error *error)
{
    *text = malloc(writer->n + 1);
    if (*text == NULL)
        return error_set(error, YALM_NO_MEMORY, "no memory for a rendered text of %zu bytes", writer->n);
    if (writer->n)
        memcpy(*text, writer->bytes, writer->n);
    (*text)[writer->n] = '\0';
    *length = writer->n;
    return YALM_OK;
}

yalm_status chat_render(const struct chat *chat, const char *variables, size_t n_variables, char **text, size_t *length,
                        yalm_error *error)
{
    struct run run = {.arena = {.limit = RUN_MAX_MEMORY}, .steps_left = RUN_MAX_STEPS, .error = error};
    struct writer writer = {0};
    *text = NULL;
    *length = 0;
    struct scope scope = read_variables(&run, chat, variables, n_variables);
    if (!failed(&run)) {
        const struct value *tools = dict_find_text(&run, scope.names, "tools");
        const bool with_tools = tools && tools->kind != V_NONE && chat->tools.n > 0;
        const struct template *template = with_tools ? &chat->tools : &chat->main;
        execute(&run, &scope, &template->nodes[template->n - 1].groups[0], &writer);
    }
    const yalm_status status = failed(&run) ? run.status : copy_out(&writer, text, length, error);
    arena_free(&run.arena);
    return status;
}
