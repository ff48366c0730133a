// The forms of templates that describe calls in words, or leave them to the caller, and render none.
#include "speech/learn.h"

static const struct {
    const char *mark; // of the template
    struct call_form form;
} forms[] = {
    {"<tool_call>",
     {.is_object = true,
      .name_key = "name",
      .arguments_key = "arguments",
      .part = {[BEGIN] = "<tool_call>\n",
               [LEAD] = "{\"name\": \"",
               [MIDDLE] = "\", \"arguments\": ",
               [TAIL] = "}",
               [END] = "\n</tool_call>",
               [BETWEEN] = "\n"}}},
    {"[TOOL_CALLS]",
     {.is_object = true,
      .name_key = "name",
      .arguments_key = "arguments",
      .part = {[OPENING] = "[TOOL_CALLS][",
               [LEAD] = "{\"name\": \"",
               [MIDDLE] = "\", \"arguments\": ",
               [TAIL] = "}",
               [BETWEEN] = ", ",
               [CLOSING] = "]"}}},
    {"<|tool_list_start|>",
     {.arguments = ARGUMENTS_LITERAL,
      .part = {[OPENING] = "<|tool_call_start|>[",
               [MIDDLE] = "(",
               [END] = ")",
               [BETWEEN] = ", ",
               [CLOSING] = "]<|tool_call_end|>",
               [KEY_END] = "=",
               [KEY_BETWEEN] = ", ",
               [QUOTE] = "\""}}},
    {"functools[",
     {.is_object = true,
      .name_key = "name",
      .arguments_key = "arguments",
      .part = {[OPENING] = "functools[",
               [LEAD] = "{\"name\": \"",
               [MIDDLE] = "\", \"arguments\": ",
               [TAIL] = "}",
               [BETWEEN] = ", ",
               [CLOSING] = "]"}}},
    {"<｜tool▁calls▁begin｜>",
     {.part = {[OPENING] = "<｜tool▁calls▁begin｜>",
               [BEGIN] = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
               [MIDDLE] = "\n```json\n",
               [END] = "\n```<｜tool▁call▁end｜>",
               [BETWEEN] = "\n",
               [CLOSING] = "<｜tool▁calls▁end｜>"}}},
    {"<|tool_call|>", // Granite 3
     {.is_object = true,
      .name_key = "name",
      .arguments_key = "arguments",
      .part = {[OPENING] = "<|tool_call|>[",
               [LEAD] = "{\"name\": \"",
               [MIDDLE] = "\", \"arguments\": ",
               [TAIL] = "}",
               [BETWEEN] = ", ",
               [CLOSING] = "]"}}},
    {"<|tool|>", // Phi-4-mini
     {.is_object = true,
      .name_key = "name",
      .arguments_key = "arguments",
      .part = {[OPENING] = "<|tool_call|>[",
               [LEAD] = "{\"name\": \"",
               [MIDDLE] = "\", \"arguments\": ",
               [TAIL] = "}",
               [BETWEEN] = ", ",
               [CLOSING] = "]<|/tool_call|>"}}},
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
            *form = forms[i].form;
            form_finish(form);
        }
}
