// See learn_calls.h.
#include "generate/learn_calls.h"

static char *render(void *context, const char *variables)
{
    char *text;
    size_t length;
    return yalm_chat_render(context, variables, strlen(variables), &text, &length, NULL) == YALM_OK ? text : NULL;
}

void learn_calls(struct call_form *form, const yalm_model *model)
{
    const char *template = yalm_model_facts(model)->chat_template;
    *form = (struct call_form){0};
    if (template)
        form_learn(form, template, render, (void *)model);
}
