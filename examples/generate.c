// Goes on with a text until the model ends it:  generate MODEL TEXT
//     cc -o generate generate.c $(pkg-config --cflags --libs yalm)
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yalm.h>

static bool print(void *context, const yalm_event *event)
{
    return event->kind != YALM_EVENT_TEXT || fwrite(event->text, 1, event->length, context) == event->length;
}

int main(int argc, char **argv)
{
    yalm_error error = {YALM_USAGE, "usage: generate MODEL TEXT"};
    yalm_model *model = argc == 3 ? yalm_model_open(argv[1], NULL, &error) : NULL;
    yalm_session *session = model ? yalm_session_open(model, NULL, &error) : NULL;
    yalm_generation how = yalm_generation_defaults();
    how.take = print;
    how.context = stdout;
    int32_t *tokens = NULL;
    size_t n = 0;
    if (session && yalm_tokenize(model, argv[2], strlen(argv[2]), YALM_TOKENIZE_BOS, &tokens, &n, &error) == YALM_OK)
        error.status = yalm_generate(session, tokens, n, &how, NULL, &error);
    fprintf(error.status ? stderr : stdout, "%s\n", error.status ? error.text : "");
    free(tokens);
    yalm_session_close(session);
    yalm_model_close(model);
    return (int)error.status;
}
