// See task.h.
#include "serve/server.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void generation_free(struct generation *how)
{
    if (how == NULL)
        return;
    for (int i = 0; i < how->n_prompts; i++)
        free(how->prompts[i].ids);
    free(how->prompts);
    free((void *)how->sampling.biases);
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
        task->stream.started = true;
        yalm_error error;
        if (how->grammar &&
            !(task->masker = masker_open(how->grammar, request->server->tree, request->server->model, &error))) {
            request_fail(request, http_status(error.status), "%s", error.text);
            return false;
        }
        task->masking = how->grammar && how->grammar_after == NULL;
        task->next_choice = task->choice + 1 < how->n_choices ? task + 1 : NULL;
    }
    return true;
}

void task_free(struct task *task)
{
    buffer_free(&task->text);
    free(task->scores);
    free(task->likely);
    masker_close(task->masker);
}

// The first place from `from` on where a stop string begins, wholly (*which is it) or as far as the text goes (*which is NULL).
static size_t find_stop(const struct generation *how, const struct buffer *text, size_t from, const char **which)
{
    size_t partial = text->length;
    *which = NULL;
    for (size_t at = from; at < text->length; at++)
        for (int i = 0; i < how->n_stops; i++) {
            const size_t length = strlen(how->stops[i]), rest = text->length - at;
            if (memcmp(text->at + at, how->stops[i], length < rest ? length : rest) != 0)
                continue;
            if (length <= rest) {
                *which = how->stops[i];
                return at;
            }
            if (partial == text->length)
                partial = at;
        }
    return partial;
}

static void add_text(struct task *task, const char *bytes, size_t length)
{
    buffer_add(&task->text, bytes, length);
    task->shown = find_stop(task->request->how, &task->text, task->shown, &task->stop);
    if (task->stop) {
        task->text.length = task->shown;
        task->finish = "stop";
    }
}

void task_add_token(struct task *task, const yalm_model *model, int32_t token)
{
    char bytes[YALM_MAX_PIECE + 8];
    const bool spell = task->request->how->spell_control;
    add_text(task, bytes, yalm_stream_token(model, &task->stream, token, spell, bytes));
}

void task_end_text(struct task *task)
{
    char bytes[8];
    if (task->stop == NULL)
        add_text(task, bytes, yalm_stream_end(&task->stream, bytes));
    task->shown = task->text.length;
}

// ---------------------------------------------------------------- log probabilities

// The n likeliest of all, the likeliest first; of equals the lower id.
static void find_likely(struct score *likely, int n, const float *logits, int n_vocab, double sum)
{
    int found = 0;
    for (int id = 0; n > 0 && id < n_vocab; id++) {
        const float value = (float)(logits[id] - sum);
        if (isnan(value) || (found == n && value <= likely[n - 1].log_probability))
            continue;
        int at = found < n ? found++ : n - 1;
        for (; at > 0 && likely[at - 1].log_probability < value; at--)
            likely[at] = likely[at - 1];
        likely[at] = (struct score){id, value};
    }
    for (; found < n; found++)
        likely[found] = (struct score){-1, NAN};
}

bool task_add_score(struct task *task, int32_t token, const float *logits, int n_vocab)
{
    const int n_top = task->request->how->n_top;
    if (task->n_scores == task->scores_room) {
        const size_t room = task->scores_room ? task->scores_room * 2 : 64;
        struct score *scores = realloc(task->scores, room * sizeof *scores);
        task->scores = scores ? scores : task->scores;
        struct score *likely = n_top > 0 ? realloc(task->likely, room * (size_t)n_top * sizeof *likely) : NULL;
        task->likely = likely ? likely : task->likely;
        if (scores == NULL || (n_top > 0 && likely == NULL))
            return false;
        task->scores_room = room;
    }
    struct score *likely = n_top > 0 ? task->likely + task->n_scores * (size_t)n_top : NULL;
    struct score *score = &task->scores[task->n_scores++];
    *score = (struct score){token, NAN};
    if (logits) {
        const double sum = yalm_log_sum_exp(logits, n_vocab);
        score->log_probability = (float)(logits[token] - sum);
        find_likely(likely, n_top, logits, n_vocab, sum);
    } else
        for (int i = 0; i < n_top; i++)
            likely[i] = (struct score){-1, NAN};
    return true;
}

const char *token_bytes(const yalm_model *model, int32_t token, size_t *length)
{
    *length = 0;
    const char *piece = yalm_piece(model, token, length);
    return piece ? piece : "";
}
