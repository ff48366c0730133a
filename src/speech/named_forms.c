// The forms of templates that describe calls in words, or leave them to the caller, and render none.
#include "speech/learn.h"

static const struct {
    const char *mark; // of the template
    const char *opening, *begin, *end, *between, *closing;
    enum { OBJECTS, FENCED, PYTHON } kind;
} forms[] = {
    {"<tool_call>", "", "<tool_call>\n", "\n</tool_call>", "\n", "", OBJECTS},
    {"[TOOL_CALLS]", "[TOOL_CALLS][", "", "", ", ", "]", OBJECTS},
    {"functools[", "functools[", "", "", ", ", "]", OBJECTS},
    {"<|tool_call|>", "<|tool_call|>[", "", "", ", ", "]", OBJECTS},          // Granite 3
    {"<|tool|>", "<|tool_call|>[", "", "", ", ", "]<|/tool_call|>", OBJECTS}, // Phi-4-mini
    {"<|tool_list_start|>", "<|tool_call_start|>[", "", ")", ", ", "]<|tool_call_end|>", PYTHON},
    {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     "\n```<｜tool▁call▁end｜>", "\n", "<｜tool▁calls▁end｜>", FENCED},
};

// What all of a kind have.
static const struct call_form kinds[] = {
    [OBJECTS] = {.is_object = true,
                 .name_key = "name",
                 .arguments_key = "arguments",
                 .part = {[LEAD] = "{\"name\": \"", [MIDDLE] = "\", \"arguments\": ", [TAIL] = "}"}},
    [FENCED] = {.part = {[MIDDLE] = "\n```json\n"}},
    [PYTHON] = {.arguments = ARGUMENTS_LITERAL,
                .part = {[MIDDLE] = "(", [KEY_END] = "=", [KEY_BETWEEN] = ", ", [QUOTE] = "\""}},
};

// The text up to where the frame may vary: a tag, or a word.
static void set_mark(char *mark, const char *text)
{
    size_t n = strcspn(text, *text == '<' ? ">{ \n\1\2\3" : *text == '[' ? "]{ \n\1\2\3" : "{ \n\1\2\3");
    n += text[n] == '>' || text[n] == ']';
    memcpy(mark, text, n);
    mark[n] = 0;
}

void form_finish(struct call_form *form)
{
    const bool whole = form->part[OPENING][0] != 0;
    set_mark(form->marks[0], form->part[whole ? OPENING : BEGIN]);
    set_mark(form->marks[1], whole ? form->part[BEGIN] : "");
    if (strstr(form->part[OPENING], form->marks[1]))
        form->marks[1][0] = 0;
    form->known = form->marks[0][0] || form->is_object;
}

bool form_of_channels(struct call_form *form, const char *chat_template)
{
    if (chat_template == NULL || !strstr(chat_template, "<|channel|>") || !strstr(chat_template, "<|message|>"))
        return false;
    *form = (struct call_form){
        .known = true,
        .part = {
            [BEGIN] = "<|channel|>commentary to=functions.", [MIDDLE] = " <|constrain|>json<|message|>", [END] = "<|call|>"}};
    return true;
}

void form_by_name(struct call_form *form, const char *chat_template)
{
    *form = (struct call_form){0};
    for (size_t i = 0; chat_template && i < sizeof forms / sizeof *forms && !form->known; i++)
        if (strstr(chat_template, forms[i].mark)) {
            *form = kinds[forms[i].kind];
            strcpy(form->part[OPENING], forms[i].opening);
            strcpy(form->part[BEGIN], forms[i].begin);
            strcpy(form->part[END], forms[i].end);
            strcpy(form->part[BETWEEN], forms[i].between);
            strcpy(form->part[CLOSING], forms[i].closing);
            form_finish(form);
        }
}
