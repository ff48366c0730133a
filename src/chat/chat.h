// A model's chat templates: read from its file, and rendered.
#pragma once
#include "chat/tree.h"
#include "model/container.h"

enum { MAX_SPECIAL_TOKENS = 32 };

struct chat {
    bool found;            // the file has the member "chat"; files of before do not
    const char *refused;   // why the template cannot be rendered; NULL: it can. Owned by the metadata
    struct template main;  // "default"; no nodes: none
    struct template tools; // "tool_use", which is taken where tools are given; no nodes: `main` does that too
    int n_tokens;          // bos_token and the like, as templates know them
    struct value names[MAX_SPECIAL_TOKENS], tokens[MAX_SPECIAL_TOKENS]; // strings of the metadata
};

yalm_status chat_load(struct chat **chat, const struct container *container, yalm_error *error);
void chat_unload(struct chat *chat); // NULL is welcome

// As yalm_chat_render(). The chat has a template.
yalm_status chat_render(const struct chat *chat, const char *variables, size_t n_variables, char **text, size_t *length,
                        yalm_error *error);
