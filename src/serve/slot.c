// See slot.h.
#include "serve/slot.h"

yalm_status slot_open(struct slot *slot, const yalm_model *model, const yalm_session_options *options, yalm_error *error)
{
    *slot = (struct slot){.session = yalm_session_open(model, options, error)};
    return slot->session ? YALM_OK : error->status;
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
    *slot = (struct slot){0};
}

// ---------------------------------------------------------------- which slot

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
        const size_t n = yalm_session_common(slot->session, prompt->ids, prompt->n);
        if (n > most) {
            most = n;
            best = slot;
        }
    }
    if (best == NULL || !reuse)
        return oldest;
    // The tokens dropped here belong to another conversation that may continue: a common beginning, such as a system prompt,
    // is not worth that.
    const bool much_of_it = 2 * most >= (size_t)yalm_position(best->session);
    const bool much_of_prompt = 2 * most >= prompt->n && yalm_position(oldest->session) > 0;
    return much_of_it || much_of_prompt ? best : oldest;
}

// Goes on from what is kept of the prompt, where that is more than the session holds.
static void load_kept(struct slot *slot)
{
    struct generator *g = &slot->task->generator;
    const void *const *pages;
    if (!prefixes_has_more(slot->prefixes, &slot->kept, g->prompt, g->n_prompt - 1))
        return;
    const size_t n_pages = prefixes_find(slot->prefixes, g->prompt, g->n_prompt - 1, &pages), n = n_pages * PAGE_TOKENS;
    if (n > g->n_read && yalm_page_load(slot->session, g->prompt, PAGE_TOKENS, pages, (int)n_pages, NULL) == YALM_OK)
        generator_skip(g, n);
}

void slot_begin(struct slot *slot, struct task *task)
{
    const struct generation *how = task->request->how;
    slot->task = task;
    slot->kept = (struct prefix_place){0};
    yalm_seed(slot->session, how->seed + (uint64_t)task->choice);
    task->generator.session = slot->session;
    task->generator.speculator = slot->speculator;
    generator_begin(&task->generator, how->reuse && !how->options.score_prompt);
}

// ---------------------------------------------------------------- moving on

yalm_status slot_next(struct slot *slot, int piece, yalm_error *error)
{
    struct generator *g = &slot->task->generator;
    const struct generation *how = slot->task->request->how;
    if (generator_reads(g) && how->reuse && !how->options.score_prompt)
        load_kept(slot); // other slots may have read them meanwhile
    const yalm_status status = generator_next(g, piece, error);
    if (g->stop)
        slot->task->finish = g->stop == YALM_STOP_LIMIT || g->stop == YALM_STOP_CONTEXT ? "length" : "stop";
    return status;
}

void slot_keep(struct slot *slot)
{
    const int64_t position = yalm_position(slot->session), before = position - slot->task->generator.n_pending;
    if (position / PAGE_TOKENS > before / PAGE_TOKENS)
        prefixes_keep(slot->prefixes, &slot->kept, slot->session, before);
}
