// See dialogue.h. Templates know the messages of OpenAI's API, with two differences: content is a string, and a call's
// arguments are an object.
#include "serve/dialogue.h"

#include <stdlib.h>
#include <string.h>

#include "serve/body.h"
#include "speech/speech.h"

static bool refuse(struct request *request, int message, const char *what)
{
    return request_fail(request, 400, "'messages', number %d: %s", message + 1, what);
}

// A string, or parts of type text, written together, as one string; NULL where it is neither.
static cJSON *content_text(const cJSON *content)
{
    if (content == NULL)
        return cJSON_CreateString("");
    if (cJSON_IsString(content))
        return cJSON_CreateString(content->valuestring);
    struct buffer text = {0};
    const cJSON *part;
    bool good = cJSON_IsArray(content);
    cJSON_ArrayForEach(part, content)
    {
        const cJSON *type = body_member(part, "type"), *words = body_member(part, "text");
        good &= cJSON_IsString(type) && strcmp(type->valuestring, "text") == 0 && cJSON_IsString(words);
        if (good)
            buffer_text(&text, words->valuestring);
    }
    cJSON *string = good && !text.failed ? cJSON_CreateString(text.at ? text.at : "") : NULL;
    buffer_free(&text);
    return string;
}

// ---------------------------------------------------------------- OpenAI

// The message's calls with their arguments as objects, where the text of these is one.
static bool open_arguments(cJSON *message)
{
    cJSON *call, *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls");
    if (calls == NULL || cJSON_IsNull(calls))
        return true;
    if (!cJSON_IsArray(calls))
        return false;
    cJSON_ArrayForEach(call, calls)
    {
        cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function");
        const cJSON *name = body_member(function, "name"), *arguments = body_member(function, "arguments");
        if (!cJSON_IsString(name))
            return false;
        const char *text = cJSON_GetStringValue(arguments);
        cJSON *object = text ? body_parse_text(text, strlen(text)) : NULL;
        if (object && !cJSON_ReplaceItemInObjectCaseSensitive(function, "arguments", object))
            cJSON_Delete(object);
    }
    return true;
}

// Whether the template may know the role: those of the APIs, and what it has in quotes.
static bool is_role(const struct request *request, const char *role)
{
    static const char *const common[] = {"system", "developer", "user", "assistant", "tool", "function"};
    const char *template = yalm_model_facts(request->server->model)->chat_template;
    const size_t length = strlen(role);
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (strcmp(common[i], role) == 0)
            return true;
    for (const char *at = template; at && length && (at = strstr(at, role)); at++)
        if (at > template && strchr("'\"", at[-1]) && at[length] == at[-1])
            return true;
    return false;
}

static bool read_message(struct request *request, const cJSON *message, int i, cJSON *messages)
{
    const cJSON *role = body_member(message, "role");
    if (!cJSON_IsString(role))
        return refuse(request, i, "expected an object with a 'role'");
    if (!is_role(request, role->valuestring))
        return request_fail(
            request, 400,
            "'messages', number %d: role '%.40s': expected system, developer, user, assistant or tool, or one that "
            "the model's template names",
            i + 1, role->valuestring);
    if (body_member(message, "content") == NULL && strcmp(role->valuestring, "assistant") != 0)
        return refuse(request, i, "expected a 'content'");
    cJSON *copy = cJSON_Duplicate(message, true), *content = content_text(body_member(message, "content"));
    if (copy == NULL || !cJSON_AddItemToArray(messages, copy)) {
        cJSON_Delete(copy);
        cJSON_Delete(content);
        return refuse(request, i, "out of memory");
    }
    if (content == NULL)
        return refuse(request, i, "'content' is a string, or a list of parts of type text: the model reads nothing else");
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "content");
    cJSON_AddItemToObject(copy, "content", content);
    if (strcmp(role->valuestring, "developer") == 0) // a newer name
        cJSON_ReplaceItemInObjectCaseSensitive(copy, "role", cJSON_CreateString("system"));
    if (!open_arguments(copy))
        return refuse(request, i, "'tool_calls': expected a list of {\"function\": {\"name\", \"arguments\"}}");
    return true;
}

// A name that no form of calls takes for its own marks.
static bool is_name(const cJSON *name)
{
    const char *text = body_text(name);
    const size_t length = strcspn(text, " \t\r\n\"'\\`<>{}[]()=,|");
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            return false;
    return length > 0 && length <= 256 && text[length] == 0;
}

static bool check_tool(const cJSON *tool)
{
    const cJSON *function = body_member(tool, "function"), *parameters = body_member(function, "parameters");
    const cJSON *type = body_member(parameters, "type");
    return is_name(body_member(function, "name")) && (parameters == NULL || cJSON_IsObject(parameters)) &&
           (!cJSON_IsString(type) || strcmp(type->valuestring, "object") == 0);
}

static cJSON *find_tool(const struct dialogue *dialogue, const char *name)
{
    cJSON *tool;
    cJSON_ArrayForEach(tool, dialogue->tools)
    {
        if (strcmp(body_member(body_member(tool, "function"), "name")->valuestring, name) == 0)
            return tool;
    }
    return NULL;
}

// {"type": "allowed_tools", "mode", "tools"}, or in conversations "allowed_tools": {"mode", "tools"}; else NULL.
static const cJSON *allowed_tools(const cJSON *choice)
{
    const cJSON *type = body_member(choice, "type"), *inner = body_member(choice, "allowed_tools");
    const bool allows = cJSON_IsString(type) && strcmp(type->valuestring, "allowed_tools") == 0;
    return !allows ? NULL : inner ? inner : choice;
}

// The template goes on to show all tools, so what was read of it before stays read.
static bool allow_tools(struct request *request, struct dialogue *dialogue, const cJSON *tools)
{
    const cJSON *each;
    const int n = cJSON_IsArray(tools) ? cJSON_GetArraySize(tools) : 0;
    if (n == 0 || n > MAX_TOOLS)
        return request_fail(request, 400, "'tool_choice' allows %d tools: expected a list of 1 to %d", n, MAX_TOOLS);
    dialogue->allowed = cJSON_CreateArray();
    cJSON_ArrayForEach(each, tools)
    {
        const cJSON *function = body_member(each, "function"), *name = body_member(function ? function : each, "name");
        cJSON *tool = cJSON_IsString(name) ? find_tool(dialogue, name->valuestring) : NULL;
        if (tool == NULL)
            return request_fail(request, 400, "'tool_choice' allows '%.100s', which is not among the 'tools'", body_text(name));
        cJSON_AddItemReferenceToArray(dialogue->allowed, tool);
    }
    dialogue->tools = dialogue->allowed;
    return true;
}

static bool read_choice(struct request *request, struct dialogue *dialogue)
{
    const cJSON *choice = body_member(request->json, "tool_choice");
    if (choice == NULL)
        return true;
    const cJSON *name = body_member(body_member(choice, "function"), "name"), *allowed = allowed_tools(choice);
    if (allowed)
        choice = body_member(allowed, "mode"); // auto, or required
    if (cJSON_IsString(choice) && strcmp(choice->valuestring, "auto") == 0)
        dialogue->choice = TOOLS_AUTO;
    else if (cJSON_IsString(choice) && strcmp(choice->valuestring, "none") == 0)
        dialogue->choice = TOOLS_NONE;
    else if (cJSON_IsString(choice) && strcmp(choice->valuestring, "required") == 0)
        dialogue->choice = TOOLS_REQUIRED;
    else if (cJSON_IsString(name)) {
        dialogue->choice = TOOLS_REQUIRED;
        dialogue->chosen = name->valuestring;
    } else
        return request_fail(request, 400,
                            "'tool_choice': expected \"auto\", \"none\", \"required\", {\"function\": {\"name\": …}}, or "
                            "{\"type\": \"allowed_tools\", \"mode\": \"auto\" or \"required\", \"tools\": […]}");
    return true;
}

// Puts the tools among the variables, and says whether calls may come.
static bool settle_tools(struct request *request, struct dialogue *dialogue, cJSON *tools, bool to_show)
{
    const int n = cJSON_GetArraySize(tools);
    if (dialogue->choice == TOOLS_REQUIRED && n == 0) {
        cJSON_Delete(tools);
        return request_fail(request, 400, "'tool_choice' wants a call, and there are no 'tools'");
    }
    const char *template = yalm_model_facts(request->server->model)->chat_template;
    dialogue->forms = speech_marks(template);
    if (n == 0 || dialogue->choice == TOOLS_NONE) {
        cJSON_Delete(tools);
        return true;
    }
    cJSON_AddItemToObject(dialogue->variables, "tools", tools);
    dialogue->tools = tools;
    if (dialogue->chosen && !find_tool(dialogue, dialogue->chosen))
        return request_fail(request, 400, "'tool_choice' names '%.100s', which is not among the 'tools'", dialogue->chosen);
    const cJSON *allowed = allowed_tools(body_member(request->json, "tool_choice"));
    if (allowed && !allow_tools(request, dialogue, body_member(allowed, "tools")))
        return false;
    if (request->server->calls.form.known || to_show)
        return true;
    return request_fail(request, 400,
                        "'tools': the model's chat template knows no form of calls that is read here (see docs/serving.md)");
}

static bool read_tools(struct request *request, struct dialogue *dialogue, bool to_show)
{
    const cJSON *tools = body_member(request->json, "tools"), *tool;
    int number = 0;
    if (tools && (!cJSON_IsArray(tools) || cJSON_GetArraySize(tools) > MAX_TOOLS))
        return request_fail(request, 400, "'tools': expected a list of at most %d", MAX_TOOLS);
    cJSON_ArrayForEach(tool, tools)
    {
        number++;
        if (!check_tool(tool))
            return request_fail(
                request, 400,
                "'tools', number %d: expected {\"type\": \"function\", \"function\": {\"name\", \"parameters\"}}, "
                "whose name has no blank, quote or bracket and whose parameters are an object",
                number);
    }
    cJSON *copy = tools ? cJSON_Duplicate(tools, true) : cJSON_CreateArray();
    return settle_tools(request, dialogue, copy, to_show);
}

// An object with the variables that all templates read, and what the request adds; and its list of messages.
static cJSON *begin_variables(struct request *request, struct dialogue *dialogue)
{
    const cJSON *more = body_member(request->json, "chat_template_kwargs");
    if (more && !cJSON_IsObject(more)) {
        request_fail(request, 400, "'chat_template_kwargs': expected an object");
        return NULL;
    }
    dialogue->variables = more ? cJSON_Duplicate(more, true) : cJSON_CreateObject();
    for (const char *const *key = (const char *const[]){"messages", "tools", "add_generation_prompt", NULL}; *key; key++)
        cJSON_DeleteItemFromObjectCaseSensitive(dialogue->variables, *key);
    bool answer = true, goes_on = false;
    if (!body_bool(request, request->json, "add_generation_prompt", &answer) ||
        !body_bool(request, request->json, "continue_final_message", &goes_on))
        return NULL;
    if (goes_on && answer && body_member(request->json, "add_generation_prompt")) {
        request_fail(request, 400, "'add_generation_prompt' begins an answer, and 'continue_final_message' goes on with one");
        return NULL;
    }
    dialogue->goes_on = answer || goes_on;
    dialogue->cuts = goes_on;
    cJSON_AddBoolToObject(dialogue->variables, "add_generation_prompt", answer || goes_on);
    cJSON *messages = cJSON_AddArrayToObject(dialogue->variables, "messages");
    if (messages == NULL)
        request_fail(request, 503, "out of memory for the messages");
    return messages;
}

// Whether the template reads a variable of this name, which is no member of another value.
static bool reads_variable(const char *template, const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    const size_t length = strlen(name);
    for (const char *at = template; at && (at = strstr(at, name)); at += length)
        if (strchr(letters, at[length]) == NULL &&
            (at == template || (strchr(letters, at[-1]) == NULL && strchr(".'\"", at[-1]) == NULL)))
            return true;
    return false;
}

// Sets a variable that the template reads and the request has not set itself. False where the template does not read it.
static bool set_variable(struct request *request, struct dialogue *dialogue, const char *name, cJSON *value)
{
    const bool reads = reads_variable(yalm_model_facts(request->server->model)->chat_template, name);
    if (!reads || cJSON_HasObjectItem(dialogue->variables, name) || !cJSON_AddItemToObject(dialogue->variables, name, value))
        cJSON_Delete(value);
    return reads;
}

// Whether to think, in Ollama's form or Anthropic's; 1, 0, or -1 where neither says.
static int wants_thinking(struct request *request, const cJSON *think)
{
    const cJSON *thinking = body_member(request->json, "thinking"), *type = body_member(thinking, "type");
    const char *word = body_text(type);
    if (body_member(thinking, "budget_tokens"))
        request_warn(request, "thinking.budget_tokens");
    if (cJSON_IsBool(think))
        return cJSON_IsTrue(think);
    return strcmp(word, "enabled") == 0 ? 1 : strcmp(word, "disabled") == 0 ? 0 : -1;
}

// reasoning_effort, or whether to think at all: by what the template reads.
static bool read_thinking(struct request *request, struct dialogue *dialogue)
{
    const cJSON *think = body_member(request->json, "think");
    const char *effort = cJSON_IsString(think) ? think->valuestring : NULL;
    if (!body_string(request, request->json, "reasoning_effort", &effort))
        return false;
    if (think && !cJSON_IsString(think) && !cJSON_IsBool(think))
        return request_fail(request, 400, "'think': expected true, false, or an effort");
    const cJSON *thinking = body_member(request->json, "thinking");
    if (thinking && !cJSON_IsObject(thinking))
        return request_fail(request, 400, "'thinking': expected {\"type\": \"enabled\"} or \"disabled\"");
    const int wants = wants_thinking(request, think);
    if (effort == NULL && wants < 0)
        return true;
    const bool on = effort ? strcmp(effort, "none") != 0 : wants;
    const bool graded = effort && set_variable(request, dialogue, "reasoning_effort", cJSON_CreateString(effort));
    const bool switched = set_variable(request, dialogue, "enable_thinking", cJSON_CreateBool(on)) ||
                          set_variable(request, dialogue, "thinking", cJSON_CreateBool(on));
    if (!graded && !switched)
        request_warn(request, "%s", think ? "think" : effort ? "reasoning_effort" : "thinking");
    return true;
}

static const cJSON *find_messages(struct request *request)
{
    const cJSON *given = body_member(request->json, "messages");
    const int n = cJSON_IsArray(given) ? cJSON_GetArraySize(given) : 0;
    if (n >= 1 && n <= MAX_MESSAGES)
        return given;
    request_fail(request, 400, "'%s': expected a list of 1 to %d", body_said(request, "messages"), MAX_MESSAGES);
    return NULL;
}

bool dialogue_read_openai(struct request *request, struct dialogue *dialogue, bool to_show)
{
    *dialogue = (struct dialogue){0};
    const cJSON *given = find_messages(request), *message;
    cJSON *messages = given ? begin_variables(request, dialogue) : NULL;
    if (messages == NULL || !read_thinking(request, dialogue) || !read_choice(request, dialogue))
        return false;
    int i = 0;
    cJSON_ArrayForEach(message, given)
    {
        if (!read_message(request, message, i++, messages))
            return false;
    }
    return read_tools(request, dialogue, to_show);
}

// ---------------------------------------------------------------- rendering

void dialogue_free(struct dialogue *dialogue)
{
    cJSON_Delete(dialogue->allowed);
    cJSON_Delete(dialogue->variables);
    *dialogue = (struct dialogue){0};
}

// A last message of the assistant, without calls, is the beginning of the answer: it goes behind the rendered prompt. NULL
// where there is none.
static cJSON *detach_beginning(struct dialogue *dialogue)
{
    cJSON *messages = cJSON_GetObjectItemCaseSensitive(dialogue->variables, "messages");
    const int n = cJSON_GetArraySize(messages);
    const cJSON *last = cJSON_GetArrayItem(messages, n - 1), *content = body_member(last, "content");
    if (!dialogue->goes_on || n < 2 || strcmp(body_member(last, "role")->valuestring, "assistant") != 0 ||
        body_member(last, "tool_calls") || content->valuestring[0] == 0)
        return NULL;
    return cJSON_DetachItemFromArray(messages, n - 1);
}

static bool append(struct request *request, const cJSON *message, char **text, size_t *length)
{
    struct buffer whole = {0};
    buffer_add(&whole, *text, *length);
    buffer_text(&whole, body_member(message, "content")->valuestring);
    free(*text);
    *text = whole.at;
    *length = whole.length;
    if (!whole.failed)
        return true;
    free(whole.at);
    return request_fail(request, 503, "out of memory for the messages");
}

// Some templates take arguments as the API has them, and refuse objects.
static void close_arguments(cJSON *messages)
{
    const cJSON *message, *call;
    cJSON_ArrayForEach(message, messages)
    {
        cJSON_ArrayForEach(call, body_member(message, "tool_calls"))
        {
            cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function");
            const cJSON *arguments = body_member(function, "arguments");
            char *text = cJSON_IsObject(arguments) ? cJSON_PrintUnformatted(arguments) : NULL;
            if (text)
                cJSON_ReplaceItemInObjectCaseSensitive(function, "arguments", cJSON_CreateString(text));
            free(text);
        }
    }
}

static bool render(struct request *request, struct dialogue *dialogue, char **text, size_t *length)
{
    if (request->server->calls.form.as_text)
        close_arguments(cJSON_GetObjectItemCaseSensitive(dialogue->variables, "messages"));
    yalm_error error;
    char *json = cJSON_PrintUnformatted(dialogue->variables);
    if (json == NULL)
        return request_fail(request, 503, "out of memory for the messages");
    const yalm_status status = yalm_chat_render(request->server->model, json, strlen(json), text, length, &error);
    free(json);
    if (status == YALM_OK)
        return true;
    return request_fail_by(request, &error);
}

// The prompt up to where the last message's text ends, as transformers cuts it: with the blanks at that end if the template
// shows them.
static bool cut(struct request *request, const char *content, char *text, size_t *length)
{
    static const char blanks[] = " \t\r\n";
    content += strspn(content, blanks);
    size_t n = strlen(content);
    const size_t with_blanks = n;
    while (n > 0 && strchr(blanks, content[n - 1]))
        n--;
    for (size_t at = *length >= n ? *length - n + 1 : 0; at-- > 0;) {
        if (memcmp(text + at, content, n) != 0)
            continue;
        *length = at + (strncmp(text + at, content, with_blanks) == 0 ? with_blanks : n);
        text[*length] = '\0';
        return true;
    }
    free(text);
    return request_fail(request, 400, "'continue_final_message': the template does not show the last message's text");
}

bool dialogue_render(struct request *request, struct dialogue *dialogue, char **text, size_t *length)
{
    const cJSON *messages = body_member(dialogue->variables, "messages");
    const cJSON *last = cJSON_GetArrayItem(messages, cJSON_GetArraySize(messages) - 1);
    const cJSON *content = body_member(last, "content");
    if (dialogue->cuts && content->valuestring[0] && !body_member(last, "tool_calls")) {
        cJSON_ReplaceItemInObjectCaseSensitive(dialogue->variables, "add_generation_prompt", cJSON_CreateFalse());
        return render(request, dialogue, text, length) && cut(request, content->valuestring, *text, length);
    }
    cJSON *beginning = detach_beginning(dialogue);
    const bool rendered =
        render(request, dialogue, text, length) && (beginning == NULL || append(request, beginning, text, length));
    cJSON_Delete(beginning);
    return rendered;
}

// The tool that must be called; "": one of several; NULL: none must.
static const char *must_call(const struct dialogue *dialogue)
{
    const cJSON *only = cJSON_GetArraySize(dialogue->tools) == 1 ? body_member(dialogue->tools->child, "function") : NULL;
    if (dialogue->choice != TOOLS_REQUIRED)
        return NULL;
    return dialogue->chosen ? dialogue->chosen : only ? body_member(only, "name")->valuestring : "";
}

bool dialogue_prompt(struct request *request, struct dialogue *dialogue)
{
    char *text;
    size_t length;
    if (!dialogue_render(request, dialogue, &text, &length))
        return false;
    struct generator_options *options = &request->how->options;
    options->parts = true;
    options->forms = dialogue->forms;
    options->reasoning_end = speech_reasoning_end(text, length);
    if (dialogue->tools) {
        const struct call_form *form = &request->server->calls.form;
        request->how->calls =
            (struct speech_calls){form, dialogue->tools, speech_call_begun(form, text, length), must_call(dialogue)};
        options->calls = &request->how->calls;
    }
    options->spell_control = dialogue->forms || dialogue->tools; // a model's marks are control tokens
    options->grammar_after = dialogue->choice == TOOLS_REQUIRED ? options->reasoning_end
                                                                : speech_answer_mark(dialogue->forms, options->reasoning_end);
    const bool added = generation_add_text(request, text, length, YALM_TOKENIZE_SPECIAL);
    free(text);
    return added && dialogue_hold_calls(request, dialogue);
}
