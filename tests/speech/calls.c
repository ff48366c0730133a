// calls TEMPLATE: the first line of standard input is a model file's metadata with a member "chat", as for tests/chat/render;
// each of the others {"prompt", "text", "tools"}. Tells as lines of JSON what is learnt of the template's calls, and what is
// read of each text. It is read whole, byte by byte, and in two pieces, cut everywhere: "cut" is where something else came out.
#include <stdio.h>
#include <stdlib.h>

#include "chat/chat.h"
#include "model/json.h"
#include "speech/speech.h"

static char *render(void *context, const char *variables)
{
    char *text;
    size_t length;
    return chat_render(context, variables, strlen(variables), &text, &length, NULL) == YALM_OK ? text : NULL;
}

static void tell_form(const struct call_form *form)
{
    static const char *const parts[N_PARTS] = {"opening", "begin",     "lead",    "middle",    "tail",        "end",  "between",
                                               "closing", "key_begin", "key_end", "value_end", "key_between", "quote"};
    static const char *const kinds[] = {"json", "tagged", "literal"};
    struct buffer out = {0};
    buffer_format(&out, "{\"known\": %s, \"arguments\": \"%s\", \"object\": %s, \"as_text\": %s, \"mark\": ",
                  form->known ? "true" : "false", kinds[form->arguments], form->is_object ? "true" : "false",
                  form->as_text ? "true" : "false");
    buffer_json(&out, form->marks[0], strlen(form->marks[0]));
    for (int i = 0; i < N_PARTS; i++)
        if (form->part[i][0]) {
            buffer_format(&out, ", \"%s\": ", parts[i]);
            buffer_json(&out, form->part[i], strlen(form->part[i]));
        }
    printf("%s}\n", out.at);
    buffer_free(&out);
}

struct passed {
    struct told told;
    struct buffer parts[2]; // reasoning, content
    struct buffer names[MAX_CALLS], arguments[MAX_CALLS];
};

static void pass_on(struct passed *passed, const struct speech *speech)
{
    struct piece piece;
    while (speech_news(speech, &passed->told, &piece))
        buffer_add(piece.part == PART_CALL        ? &passed->names[piece.call]
                   : piece.part == PART_ARGUMENTS ? &passed->arguments[piece.call]
                                                  : &passed->parts[piece.part == PART_TEXT],
                   piece.text.at, piece.text.length);
}

static void add(struct speech *speech, struct passed *passed, const char *text, size_t length)
{
    char *piece = strndup(text, length); // whose end AddressSanitizer sees
    speech_add(speech, piece, length);
    free(piece);
    pass_on(passed, speech);
}

// In pieces of `size` behind a first one of `first`.
static void read_text(struct buffer *out, const struct speech_calls *calls, unsigned marks, const char *end, const char *text,
                      size_t first, size_t size)
{
    struct speech speech = {0};
    struct passed passed = {0};
    speech_begin(&speech, marks, end, calls);
    const size_t length = strlen(text);
    for (size_t at = 0, n = first; at < length; at += n, n = size)
        add(&speech, &passed, text + at, n = n < length - at ? n : length - at);
    speech_end(&speech);
    pass_on(&passed, &speech);
    buffer_text(out, "{\"reasoning\": ");
    buffer_json(out, passed.parts[0].at, passed.parts[0].length);
    buffer_text(out, ", \"content\": ");
    buffer_json(out, passed.parts[1].at, passed.parts[1].length);
    buffer_text(out, ", \"calls\": [");
    for (int i = 0; i < passed.told.n_calls; i++) {
        buffer_text(out, i ? ", [" : "[");
        buffer_json(out, passed.names[i].at, passed.names[i].length);
        buffer_text(out, ", ");
        buffer_json(out, passed.arguments[i].at, passed.arguments[i].length);
        buffer_format(out, ", %s]", speech.calls[i].whole ? "true" : "false");
        buffer_free(&passed.names[i]);
        buffer_free(&passed.arguments[i]);
    }
    buffer_text(out, "]");
    for (int i = 0; i < 2; i++)
        buffer_free(&passed.parts[i]);
    speech_free(&speech);
}

static void answer(const struct call_form *form, unsigned marks, const cJSON *line)
{
    const char *prompt = cJSON_GetObjectItem(line, "prompt")->valuestring,
               *text = cJSON_GetObjectItem(line, "text")->valuestring;
    const struct speech_calls calls = {form, cJSON_GetObjectItem(line, "tools"),
                                       speech_call_begun(form, prompt, strlen(prompt)), NULL};
    const char *end = speech_reasoning_end(prompt, strlen(prompt));
    struct buffer whole = {0};
    const size_t length = strlen(text);
    read_text(&whole, &calls, marks, end, text, length ? length : 1, 1);
    long cut = -1;
    for (size_t i = 1; i < length && cut < 0; i++) {
        struct buffer other = {0};
        read_text(&other, &calls, marks, end, text, i, i == 1 ? 1 : length);
        if (other.length != whole.length || memcmp(other.at, whole.at, whole.length) != 0)
            cut = (long)i;
        buffer_free(&other);
    }
    printf("%s, \"cut\": %ld}\n", whole.at, cut);
    buffer_free(&whole);
}

int main(int n_args, char **args)
{
    char *line = NULL;
    size_t room = 0;
    yalm_error error = {0};
    struct container container = {.mapping.path = "chat"};
    struct chat *chat = NULL;
    ssize_t n = getline(&line, &room, stdin);
    if (n_args != 2 || n < 0 || json_parse(&container.metadata, line, (size_t)n, "chat", &error) != YALM_OK ||
        chat_load(&chat, &container, &error) != YALM_OK) {
        fprintf(stderr, "calls: error %d %s\n", error.status, error.text);
        return 1;
    }
    struct call_form form;
    form_learn(&form, args[1], render, chat);
    tell_form(&form);
    while ((n = getline(&line, &room, stdin)) >= 0) {
        cJSON *asked = cJSON_ParseWithLength(line, (size_t)n);
        answer(&form, speech_marks(args[1]), asked);
        cJSON_Delete(asked);
    }
    chat_unload(chat);
    cJSON_Delete(container.metadata);
    free(line);
    return 0;
}
