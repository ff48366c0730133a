// See slot.h.
#include "serve/slot.h"

#include "util/error.h"

// Between checkpoints, in tokens.
enum {
    AT_LEAST = 48,  // with a page's tokens less one, 63: so many are read again before a message that has changed
    AT_MOST = 1024, // where no message begins for long
    OF_ANSWERS = 32,
};

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
    return error_set(error, YALM_NO_MEMORY, "out of memory for a session's tokens");
}

void slot_close(struct slot *slot)
{
    speculator_close(slot->speculator);
    draft_close(slot->draft);
    yalm_session_close(slot->session);
    *slot = (struct slot){0};
}

// ---------------------------------------------------------------- which slot

// Tokens of the prompt that the slot need not read, where `kept` of them lie in pages. What the session has of these is not
// copied.
static size_t held_by(const struct slot *slot, const struct prompt *prompt, size_t kept)
{
    const size_t common = yalm_session_common(slot->session, prompt->ids, prompt->n);
    const size_t own = (size_t)yalm_rollback_point(slot->session, (int64_t)common), shared = common < kept ? common : kept;
    return own > shared ? own : shared;
}

bool slot_is_free(const struct slot *slot)
{
    return slot->task == NULL && !slot->taken;
}

struct slot *slot_choose(struct slot *slots, int n_slots, const struct prompt *prompt, bool reuse)
{
    const size_t kept = PAGE_TOKENS * prefixes_find(slots->prefixes, prompt->ids, prompt->n).n_pages;
    struct slot *oldest = NULL, *best = NULL;
    size_t most = 0;
    for (int i = 0; i < n_slots; i++) {
        struct slot *slot = &slots[i];
        if (!slot_is_free(slot))
            continue;
        if (oldest == NULL || slot->used < oldest->used)
            oldest = slot;
        const size_t n = held_by(slot, prompt, kept);
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
    if (!prefixes_has_more(slot->prefixes, &slot->kept, g->prompt, g->n_prompt - 1))
        return;
    const struct prefix prefix = prefixes_find(slot->prefixes, g->prompt, g->n_prompt - 1);
    const size_t n = prefix.n_pages * PAGE_TOKENS;
    if (n > slot->checkpoints.last)
        slot->checkpoints.last = n;
    if (n > g->n_read &&
        yalm_page_load(slot->session, g->prompt, PAGE_TOKENS, prefix.pages, (int)prefix.n_pages, prefix.state, NULL) == YALM_OK)
        generator_skip(g, n);
}

void slot_begin(struct slot *slot, struct task *task)
{
    const struct generation *how = task->request->how;
    slot->task = task;
    slot->kept = (struct prefix_place){0};
    slot->checkpoints = (struct checkpoints){0};
    yalm_seed(slot->session, how->seed + (uint64_t)task->choice);
    task->generator.session = slot->session;
    task->generator.speculator = slot->speculator;
    generator_begin(&task->generator, how->reuse && !how->options.score_prompt);
}

// ---------------------------------------------------------------- moving on

// Where to stop in the next `piece` tokens of the prompt for a checkpoint: before a message, which a control token begins,
// before the prompt's end, or where there was none for long. A whole number of pages; 0: nowhere.
static size_t next_checkpoint(const struct slot *slot, size_t piece)
{
    const struct generator *g = &slot->task->generator;
    const yalm_model *model = yalm_session_model(slot->session);
    if (!prefixes_need_states(slot->prefixes))
        return 0;
    size_t at = g->n_read / PAGE_TOKENS * PAGE_TOKENS + PAGE_TOKENS;
    if (at < slot->checkpoints.last + AT_LEAST)
        at = (slot->checkpoints.last + AT_LEAST + PAGE_TOKENS - 1) / PAGE_TOKENS * PAGE_TOKENS;
    for (; at < g->n_prompt && at <= g->n_read + piece; at += PAGE_TOKENS) {
        bool wanted = at + PAGE_TOKENS >= g->n_prompt || at >= slot->checkpoints.last + AT_MOST;
        for (size_t i = at; i < at + PAGE_TOKENS && !wanted; i++)
            wanted = yalm_is_control(model, g->prompt[i]);
        if (wanted)
            return at;
    }
    return 0;
}

yalm_status slot_next(struct slot *slot, int piece, yalm_error *error)
{
    struct generator *g = &slot->task->generator;
    const struct generation *how = slot->task->request->how;
    if (generator_reads(g)) {
        if (how->reuse && !how->options.score_prompt)
            load_kept(slot); // other slots may have read them meanwhile
        slot->checkpoints.next = next_checkpoint(slot, (size_t)piece);
        if (slot->checkpoints.next)
            piece = (int)(slot->checkpoints.next - g->n_read);
    }
    const yalm_status status = generator_next(g, piece, error);
    if (g->stop)
        slot->task->finish = g->stop == YALM_STOP_LIMIT || g->stop == YALM_STOP_CONTEXT ? "length" : "stop";
    return status;
}

// One of an answer takes the place of the one before.
static void keep_checkpoint(struct slot *slot, size_t position)
{
    struct checkpoints *c = &slot->checkpoints;
    const struct generator *g = &slot->task->generator;
    const bool answer = position > g->n_prompt;
    if (answer ? position < c->last + OF_ANSWERS : position != c->next)
        return;
    if (!prefixes_keep_state(slot->prefixes, &slot->kept, slot->session, &c->moving))
        return;
    c->last = position;
    if (answer)
        c->moving = slot->kept;
}

void slot_keep(struct slot *slot)
{
    const int64_t position = yalm_position(slot->session), before = position - slot->task->generator.n_pending;
    if (position / PAGE_TOKENS == before / PAGE_TOKENS)
        return;
    prefixes_keep(slot->prefixes, &slot->kept, slot->session, before);
    if (position % PAGE_TOKENS == 0)
        keep_checkpoint(slot, (size_t)position);
}
