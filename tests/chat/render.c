// render: the first line of standard input is a model file's metadata with a member "chat", each of the others a JSON object of
// variables. Answers each with a line, "ok N" and N bytes of text after it, or "error STATUS TEXT".
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/chat.h"
#include "model/json.h"

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    yalm_error error = {0};
    struct container container = {.mapping.path = "chat"};
    struct chat *chat = NULL;
    ssize_t n = getline(&line, &room, stdin);
    if (n < 0 || json_parse(&container.metadata, line, (size_t)n, "chat", &error) != YALM_OK ||
        chat_load(&chat, &container, &error) != YALM_OK) {
        printf("error %d %s\n", error.status, error.text);
        free(line);
        cJSON_Delete(container.metadata);
        return 0;
    }
    if (chat->refused)
        printf("refused %s\n", chat->refused);
    while (!chat->refused && (n = getline(&line, &room, stdin)) >= 0) {
        char *text;
        size_t length;
        if (chat_render(chat, line, (size_t)n, &text, &length, &error) == YALM_OK) {
            printf("ok %zu\n", length);
            fwrite(text, 1, length, stdout);
            printf("\n");
        } else
            printf("error %d %s\n", error.status, error.text);
        free(text);
    }
    chat_unload(chat);
    cJSON_Delete(container.metadata);
    free(line);
    return 0;
}
