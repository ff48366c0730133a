// A step of the engine: what is evaluated together, and what becomes of it.
#include "serve/engine_state.h"
#include "util/clock.h"

static void add_time(struct engine *engine, bool reading, double seconds, int n)
{
    pthread_mutex_lock(&engine->lock);
    *(reading ? &engine->counts.read_seconds : &engine->counts.write_seconds) += seconds;
    *(reading ? &engine->counts.prompt_tokens : &engine->counts.generated_tokens) += (uint64_t)n;
    pthread_mutex_unlock(&engine->lock);
}

static void fail_request(struct engine *engine, struct request *request, const yalm_error *error)
{
    pthread_mutex_lock(&engine->lock);
    engine->counts.failed++;
    pthread_mutex_unlock(&engine->lock);
    request_fail_by(request, error);
    atomic_store(&request->left, true); // its other tasks end, too
}

static void evaluated(struct engine *engine, struct slot *slot, yalm_status status, const yalm_error *error)
{
    if (status == YALM_OK)
        slot_keep(slot);
    else
        fail_request(engine, slot->task->request, error);
}

// One piece of a prompt.
static void evaluate_piece(struct engine *engine, struct slot *slot)
{
    struct generator *g = &slot->task->generator;
    const double start = clock_seconds();
    yalm_error error = {0};
    const yalm_status status = generator_evaluate(g, &error);
    add_time(engine, true, clock_seconds() - start, g->n_pending);
    evaluated(engine, slot, status, &error);
}

// One token of each of these: the weights are read once for all of them. Where there is one alone, several of its tokens are
// guessed.
static void evaluate_tokens(struct engine *engine, struct slot **due, int n_due)
{
    yalm_session *sessions[MAX_SLOTS];
    int32_t tokens[MAX_SLOTS];
    for (int i = 0; i < n_due; i++) {
        sessions[i] = due[i]->session;
        tokens[i] = due[i]->task->generator.token;
    }
    const double start = clock_seconds();
    yalm_error error = {0};
    yalm_status status =
        n_due == 1 ? generator_evaluate(&due[0]->task->generator, &error) : yalm_eval_each(sessions, tokens, n_due, &error);
    for (int i = 0; i < n_due && n_due > 1 && status == YALM_OK; i++)
        status = generator_evaluated(&due[i]->task->generator, &error);
    add_time(engine, false, clock_seconds() - start, n_due);
    for (int i = 0; i < n_due; i++)
        evaluated(engine, due[i], status, &error);
}

static int wait_for_turn(const struct engine *engine, const struct slot *slot)
{
    return ((int)(slot - engine->slots) - engine->turn + engine->options.n_slots) % engine->options.n_slots;
}

void engine_step(struct engine *engine, struct slot **busy, int n_busy)
{
    struct slot *due[MAX_SLOTS];
    int n_due = 0, read = -1;
    for (int i = 0; i < n_busy; i++) {
        struct slot *slot = busy[i];
        struct task *task = slot->task;
        if (generator_reads(&task->generator)) {
            if (read < 0 || wait_for_turn(engine, slot) < wait_for_turn(engine, busy[read]))
                read = i;
            continue;
        }
        yalm_error error = {0};
        if (slot_next(slot, 1, &error) != YALM_OK) {
            fail_request(engine, task->request, &error);
            continue;
        }
        if (task->finish) {
            task->over = true;
            task->request->n_finished++;
        }
        if (task->generator.n_generated || task->finish)
            task->request->progress(task->request, task);
        if (task->generator.n_pending > 0)
            due[n_due++] = slot;
    }
    if (read >= 0) {
        engine->turn = (int)(busy[read] - engine->slots + 1) % engine->options.n_slots;
        slot_next(busy[read], engine->options.piece, NULL); // cannot fail
        evaluate_piece(engine, busy[read]);
    }
    if (n_due > 0)
        evaluate_tokens(engine, due, n_due);
}
