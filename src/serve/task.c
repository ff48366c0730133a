// See task.h.
#include "serve/server.h"

#include <stdlib.h>

void generation_free(struct generation *how)
{
    if (how == NULL)
        return;
    for (int i = 0; i < how->n_prompts; i++)
        free(how->prompts[i].ids);
    free(how->prompts);
    free((void *)how->options.sampling.biases);
    grammar_free(how->grammar);
    free(how);
}

bool tasks_make(struct request *request)
{
    const struct generation *how = request->how;
    const int n = how->n_prompts * how->n_choices;
    request->tasks = calloc((size_t)n, sizeof *request->tasks);
    if (request->tasks == NULL) {
        request_fail(request, 503, "out of memory for %d texts", n);
        return false;
    }
    request->n_tasks = n;
    for (int i = 0; i < n; i++) {
        struct task *task = &request->tasks[i];
        task->request = request;
        task->prompt = i / how->n_choices;
        task->choice = i % how->n_choices;
        struct generator *g = &task->generator;
        g->how = &how->options;
        g->prompt = how->prompts[task->prompt].ids;
        g->n_prompt = how->prompts[task->prompt].n;
        g->stream.started = true;
        yalm_error error;
        if (how->grammar && !(g->masker = masker_open(how->grammar, request->server->tree, request->server->model, &error))) {
            request_fail(request, http_status(error.status), "%s", error.text);
            return false;
        }
        task->next_choice = task->choice + 1 < how->n_choices ? task + 1 : NULL;
    }
    return true;
}

const char *token_bytes(const yalm_model *model, int32_t token, size_t *length)
{
    *length = 0;
    const char *piece = yalm_piece(model, token, length);
    return piece ? piece : "";
}
