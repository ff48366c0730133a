// See conversation.h.
#include "cli/conversation.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "util/json_read.h"
#include "util/new_file.h"
#include "util/utf8.h"

// ---------------------------------------------------------------- messages

static cJSON *new_message(const char *role, const char *content)
{
    cJSON *message = cJSON_CreateObject();
    if (cJSON_AddStringToObject(message, "role", role) && cJSON_AddStringToObject(message, "content", content))
        return message;
    cJSON_Delete(message);
    return NULL;
}

static const char *role_of(const cJSON *message)
{
    const char *role = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "role"));
    return role ? role : "";
}

static bool has_system(const struct conversation *conversation)
{
    return strcmp(role_of(cJSON_GetArrayItem(conversation->messages, 0)), "system") == 0;
}

yalm_status conversation_new(struct conversation *conversation, const char *system, yalm_error *error)
{
    conversation->messages = cJSON_CreateArray();
    if (conversation->messages == NULL)
        return cli_no_memory(error);
    return system ? conversation_set_system(conversation, system, error) : YALM_OK;
}

void conversation_free(struct conversation *conversation)
{
    cJSON_Delete(conversation->messages);
    conversation->messages = NULL;
}

yalm_status conversation_add(struct conversation *conversation, const char *role, const char *content, yalm_error *error)
{
    cJSON *message = new_message(role, content);
    if (message == NULL)
        return cli_no_memory(error);
    cJSON_AddItemToArray(conversation->messages, message);
    return YALM_OK;
}

yalm_status conversation_check_text(const char *what, const char *text, size_t length, yalm_error *error)
{
    for (size_t at = 0, n; at < length; at += n)
        if ((n = (size_t)utf8_character(text + at, length - at)) == 0 || text[at] == 0)
            return error_set(error, YALM_USAGE, "%s: expected UTF-8, found byte 0x%02x at byte %zu", what,
                             (unsigned char)text[at], at);
    return YALM_OK;
}

// A copy that is UTF-8, the caller's to free; NULL: no memory.
static char *readable(const char *text, size_t length)
{
    static const char replacement[] = "\xef\xbf\xbd";
    char *copy = malloc(3 * length + 1), *to = copy;
    for (size_t at = 0; copy && at < length;) {
        const size_t n = text[at] ? (size_t)utf8_character(text + at, length - at) : 0;
        memcpy(to, n ? text + at : replacement, n ? n : 3);
        to += n ? n : 3;
        at += n ? n : 1;
    }
    if (copy)
        *to = '\0';
    return copy;
}

yalm_status conversation_add_answer(struct conversation *conversation, const char *text, size_t length, const char *reasoning,
                                    size_t n_reasoning, yalm_error *error)
{
    char *answer = readable(text, length), *thought = readable(reasoning, n_reasoning);
    cJSON *message = answer && thought ? new_message("assistant", answer) : NULL;
    const bool made = message && (n_reasoning == 0 || cJSON_AddStringToObject(message, "reasoning_content", thought)) &&
                      cJSON_AddItemToArray(conversation->messages, message);
    if (!made)
        cJSON_Delete(message);
    free(answer);
    free(thought);
    return made ? YALM_OK : cli_no_memory(error);
}

int conversation_length(const struct conversation *conversation)
{
    return cJSON_GetArraySize(conversation->messages);
}

const char *conversation_last_role(const struct conversation *conversation)
{
    return role_of(cJSON_GetArrayItem(conversation->messages, conversation_length(conversation) - 1));
}

void conversation_drop_last(struct conversation *conversation)
{
    cJSON_Delete(conversation_take_last(conversation));
}

cJSON *conversation_take_last(struct conversation *conversation)
{
    return cJSON_DetachItemFromArray(conversation->messages, conversation_length(conversation) - 1);
}

void conversation_put_back(struct conversation *conversation, cJSON *message)
{
    cJSON_AddItemToArray(conversation->messages, message);
}

yalm_status conversation_set_system(struct conversation *conversation, const char *text, yalm_error *error)
{
    const yalm_status status = conversation_check_text("the system message", text, strlen(text), error);
    if (status != YALM_OK)
        return status;
    cJSON *message = *text ? new_message("system", text) : NULL;
    if (*text && message == NULL)
        return cli_no_memory(error);
    if (has_system(conversation))
        cJSON_DeleteItemFromArray(conversation->messages, 0);
    if (message)
        cJSON_InsertItemInArray(conversation->messages, 0, message);
    return YALM_OK;
}

void conversation_reset(struct conversation *conversation)
{
    const int kept = has_system(conversation);
    while (conversation_length(conversation) > kept)
        conversation_drop_last(conversation);
}

// ---------------------------------------------------------------- files

static yalm_status write_whole(const char *path, const char *text, yalm_error *error)
{
    struct new_file made;
    yalm_status status = new_file_create(&made, path, NULL, NULL, error);
    if (status == YALM_OK && (fputs(text, made.file) < 0 || fputc('\n', made.file) == EOF || fflush(made.file) != 0))
        status = error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno));
    return new_file_finish(&made, status, error);
}

yalm_status conversation_save(const struct conversation *conversation, const char *path, yalm_error *error)
{
    cJSON *root = cJSON_CreateObject();
    if (root == NULL || !cJSON_AddItemReferenceToObject(root, "messages", conversation->messages)) {
        cJSON_Delete(root);
        return cli_no_memory(error);
    }
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    const yalm_status status = text ? write_whole(path, text, error) : cli_no_memory(error);
    free(text);
    return status;
}

static bool is_message(const cJSON *message)
{
    return cJSON_IsString(cJSON_GetObjectItemCaseSensitive(message, "role")) &&
           cJSON_IsString(cJSON_GetObjectItemCaseSensitive(message, "content"));
}

yalm_status conversation_load(struct conversation *conversation, const char *path, yalm_error *error)
{
    struct text text;
    const yalm_status status = text_read_at_once(&text, path, error);
    if (status != YALM_OK)
        return status;
    struct json_fault fault;
    cJSON *root = json_tree(text.bytes, text.length, JSON_DEEPEST, 0, &fault);
    free(text.bytes);
    if (root == NULL)
        return fault.what ? error_set(error, YALM_USAGE, "%s: not JSON: %s, at byte %zu", path, fault.what, fault.at)
                          : cli_no_memory(error);
    cJSON *messages = cJSON_DetachItemFromObjectCaseSensitive(root, "messages");
    cJSON_Delete(root);
    bool good = cJSON_IsArray(messages);
    for (const cJSON *m = good ? messages->child : NULL; m; m = m->next)
        good = good && is_message(m);
    if (!good) {
        cJSON_Delete(messages);
        return error_set(error, YALM_USAGE,
                         "%s: expected {\"messages\": [{\"role\": …, \"content\": …}, …]}, as /save writes it", path);
    }
    cJSON_Delete(conversation->messages);
    conversation->messages = messages;
    return YALM_OK;
}

// ---------------------------------------------------------------- variables

static bool add_own(cJSON *root, const char *text)
{
    const size_t length = strcspn(text, "=");
    char *name = strndup(text, length);
    const char *value = text[length] ? text + length + 1 : "";
    struct json_fault fault;
    cJSON *item = json_tree(value, strlen(value), JSON_DEEPEST, 0, &fault);
    if (item == NULL)
        item = cJSON_CreateString(value);
    if (name)
        cJSON_DeleteItemFromObjectCaseSensitive(root, name);
    const bool added = name && item && cJSON_AddItemToObject(root, name, item);
    if (!added)
        cJSON_Delete(item);
    free(name);
    return added;
}

char *conversation_variables(const struct conversation *conversation, const struct text_list *own)
{
    cJSON *root = cJSON_CreateObject();
    bool made = root && cJSON_AddItemReferenceToObject(root, "messages", conversation->messages) &&
                cJSON_AddTrueToObject(root, "add_generation_prompt");
    for (int i = 0; i < own->n && made; i++)
        made = add_own(root, own->texts[i]);
    char *text = made ? cJSON_PrintUnformatted(root) : NULL;
    cJSON_Delete(root);
    return text;
}
