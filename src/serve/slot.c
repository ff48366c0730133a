// See slot.h.
#include "serve/slot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

yalm_status slot_open(struct slot *slot, const yalm_model *model, const yalm_session_options *options, yalm_error *error)
{
    *slot = (struct slot){.session = yalm_session_open(model, options, error)};
    if (slot->session == NULL)
        return error->status;
    slot->tokens = malloc((size_t)yalm_session_facts(slot->session)->context * sizeof *slot->tokens);
    if (slot->tokens)
        return YALM_OK;
    slot_close(slot);
    *error = (yalm_error){YALM_NO_MEMORY, "out of memory for a session's tokens"};
    return YALM_NO_MEMORY;
}

yalm_status slot_speculate(struct slot *slot, const yalm_model *draft, yalm_error *error)
{
    if (draft && draft_check_session(slot->session, error) != YALM_OK)
        return error->status;
    slot->draft = draft ? draft_open(draft, yalm_session_facts(slot->session), error) : NULL;
    if (draft && slot->draft == NULL)
        return error->status;
    slot->speculator = speculator_open(slot->draft, NULL);
    if (slot->speculator)
        return YALM_OK;
    *error = (yalm_error){YALM_NO_MEMORY, "out of memory for a session's tokens"};
    return YALM_NO_MEMORY;
}

void slot_close(struct slot *slot)
{
    speculator_close(slot->speculator);
    draft_close(slot->draft);
    yalm_session_close(slot->session);
    free(slot->tokens);
    *slot = (struct slot){0};
}

// ---------------------------------------------------------------- which slot

static size_t common(const struct slot *slot, const struct prompt *prompt)
{
    size_t n = 0;
    while (n < slot->n_tokens && n < prompt->n && slot->tokens[n] == prompt->ids[n])
        n++;
    return n;
}

struct slot *slot_choose(struct slot *slots, int n_slots, const struct prompt *prompt, bool reuse)
{
    struct slot *oldest = NULL, *best = NULL;
    size_t most = 0;
    for (int i = 0; i < n_slots; i++) {
        struct slot *slot = &slots[i];
        if (slot->task)
            continue;
        if (oldest == NULL || slot->used < oldest->used)
            oldest = slot;
        const size_t n = common(slot, prompt);
        if (n > most) {
            most = n;
            best = slot;
        }
    }
    if (best == NULL || !reuse)
        return oldest;
    // What is thrown away belongs to another dialogue, which may go on: a common beginning, such as a system prompt, is not worth that.
    const bool much_of_it = 2 * most >= best->n_tokens, much_of_prompt = 2 * most >= prompt->n && oldest->n_tokens > 0;
    return much_of_it || much_of_prompt ? best : oldest;
}

static bool may_reuse(const struct generation *how)
{
    return how->reuse && !how->score_prompt;
}

// Goes on from what is kept of the prompt, where that is more than the slot's tokens. The last token is evaluated in any case, for the logits.
static void load_kept(struct slot *slot, const struct prompt *prompt)
{
    const void *const *pages;
    const size_t n_pages = prefixes_find(slot->prefixes, prompt->ids, prompt->n - 1, &pages), n = n_pages * PAGE_TOKENS;
    if (n <= slot->n_tokens || yalm_page_load(slot->session, prompt->ids, PAGE_TOKENS, pages, (int)n_pages, NULL) != YALM_OK)
        return;
    memcpy(slot->tokens, prompt->ids, n * sizeof *slot->tokens);
    slot->task->n_cached += n - slot->n_tokens;
    speculator_read(slot->speculator, prompt->ids + slot->n_tokens, n - slot->n_tokens);
    slot->n_tokens = n;
}

void slot_begin(struct slot *slot, struct task *task)
{
    const struct generation *how = task->request->how;
    const struct prompt *prompt = &how->prompts[task->prompt];
    size_t keep = may_reuse(how) ? common(slot, prompt) : 0;
    if (keep == prompt->n)
        keep--;
    const size_t held = slot->n_tokens;
    // Where the session has not what that position saw, it goes back further; to the beginning only when it reads, for load_kept().
    slot->n_tokens = (size_t)yalm_rollback_point(slot->session, (int64_t)keep);
    if (slot->n_tokens > 0)
        yalm_rollback(slot->session, (int64_t)slot->n_tokens, NULL);
    if (slot->n_tokens < held)
        speculator_begin(slot->speculator);
    slot->task = task;
    slot->n_pending = 0;
    slot->due = false;
    yalm_seed(slot->session, how->seed + (uint64_t)task->choice);
    task->n_cached = slot->n_tokens;
    task->state = TASK_READING;
    task->began = monotonic_seconds();
    if (how->score_prompt && !task_add_score(task, prompt->ids[0], NULL, 0))
        task->text.failed = true;
}

// ---------------------------------------------------------------- moving on

static void limit_reached(struct task *task)
{
    if (task->finish == NULL && (int64_t)task->n_generated >= task->request->how->max_tokens)
        task->finish = "length";
}

static yalm_status no_token(yalm_error *error)
{
    *error = (yalm_error){YALM_FAILED,
                          "no token of the vocabulary continues a text of the grammar, or finding them takes too much work"};
    return YALM_FAILED;
}

yalm_status slot_write(struct slot *slot, const yalm_model *model, yalm_error *error)
{
    struct task *task = slot->task;
    const struct generation *how = task->request->how;
    const int n_vocab = yalm_model_facts(model)->vocab_size;
    limit_reached(task);
    if (task->finish)
        return YALM_OK;
    yalm_sampling sampling = how->sampling;
    if (task->masking && (sampling.allowed = masker_allowed(task->masker)) == NULL) {
        task->finish = masker_accepts(task->masker) ? "stop" : NULL;
        return task->finish ? YALM_OK : no_token(error);
    }
    const int32_t token = yalm_sample(slot->session, &sampling);
    if (token < 0) {
        const yalm_status status = yalm_finish(slot->session, error);
        if (status != YALM_OK)
            return status;
        snprintf(error->text, sizeof error->text, "the model's logits are not finite after %zu tokens", slot->n_tokens);
        return error->status = YALM_FAILED;
    }
    if (task->n_generated++ == 0)
        task->first_token = monotonic_seconds();
    if (yalm_is_eos(model, token) && (task->masking || !how->ignore_eos)) {
        task->finish = "stop";
        return YALM_OK;
    }
    if (how->n_top >= 0 || how->list_tokens) {
        const int last = slot->which == YALM_LOGITS_ALL ? slot->n_pending - 1 : 0;
        if (!task_add_score(task, token, how->n_top >= 0 ? yalm_logits(slot->session, last) : NULL, n_vocab))
            task->text.failed = true;
    }
    task_add_token(task, model, token);
    if (task->masking && !masker_take(task->masker, token))
        return no_token(error);
    if (task->masking && !task->finish && masker_is_over(task->masker))
        task->finish = "stop";
    if (task->masker && !task->masking && task->text.at)
        task->masking = strstr(task->text.at, how->grammar_after) != NULL;
    limit_reached(task);
    if (task->finish)
        return YALM_OK;
    slot->token = token;
    slot->pending = &slot->token;
    slot->n_pending = 1;
    slot->which = YALM_LOGITS_LAST;
    slot->due = true;
    return YALM_OK;
}

void slot_read(struct slot *slot, int piece)
{
    const struct generation *how = slot->task->request->how;
    const struct prompt *prompt = &how->prompts[slot->task->prompt];
    if (may_reuse(how))
        load_kept(slot, prompt);
    yalm_rollback(slot->session, (int64_t)slot->n_tokens,
                  NULL); // to the beginning, where slot_begin() could go to no other place
    const size_t left = prompt->n - slot->n_tokens;
    slot->pending = prompt->ids + slot->n_tokens;
    slot->n_pending = left < (size_t)piece ? (int)left : piece;
    const bool last = (size_t)slot->n_pending == left;
    slot->which = how->score_prompt ? YALM_LOGITS_ALL : last ? YALM_LOGITS_LAST : YALM_LOGITS_NONE;
    slot->due = true;
}

yalm_status slot_evaluated(struct slot *slot, const yalm_model *model, yalm_error *error)
{
    struct task *task = slot->task;
    const struct generation *how = task->request->how;
    const struct prompt *prompt = &how->prompts[task->prompt];
    for (int i = 0; i < slot->n_pending; i++)
        slot->tokens[slot->n_tokens + (size_t)i] = slot->pending[i];
    if (task->state == TASK_READING && how->score_prompt)
        for (int i = 0; i < slot->n_pending && slot->n_tokens + (size_t)i + 1 < prompt->n; i++) {
            const float *logits = yalm_logits(slot->session, i);
            if (logits == NULL)
                return yalm_finish(slot->session, error) != YALM_OK ? error->status : YALM_FAILED;
            if (!task_add_score(task, slot->pending[i + 1], logits, yalm_model_facts(model)->vocab_size))
                task->text.failed = true;
        }
    const size_t before = slot->n_tokens;
    slot->n_tokens += (size_t)slot->n_pending;
    slot->due = false;
    if (slot->n_tokens / PAGE_TOKENS > before / PAGE_TOKENS)
        prefixes_keep(slot->prefixes, slot->session, slot->tokens, slot->n_tokens);
    if (slot->n_tokens >= prompt->n)
        task->state = TASK_WRITING;
    return YALM_OK;
}
