// See engine.h.
#include "serve/engine_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/error.h"

#define LOOK_SECONDS 0.2 // between two looks at whether clients are still there

// ---------------------------------------------------------------- the queue

// Under the lock, as all of these.
static void forget_request(struct engine *engine, struct request *request)
{
    struct request **at = &engine->requests;
    while (*at != request)
        at = &(*at)->next;
    *at = request->next;
    engine->n_requests--;
    if (engine->n_requests == 0)
        pthread_cond_broadcast(&engine->idle);
    request_finish(request);
    request_release(request);
}

static void task_over(struct engine *engine, struct task *task)
{
    struct request *request = task->request;
    engine->counts.cached_tokens += task->generator.n_cached;
    if (++request->n_done == request->n_tasks)
        forget_request(engine, request);
}

static void enqueue(struct engine *engine, struct task *task)
{
    struct task **at = &engine->queue;
    while (*at)
        at = &(*at)->next;
    task->next = NULL;
    *at = task;
}

// Tasks whose client has gone leave the queue.
static void drop_left(struct engine *engine)
{
    for (struct task **at = &engine->queue; *at;) {
        struct task *task = *at;
        if (!atomic_load(&task->request->left)) {
            at = &task->next;
            continue;
        }
        *at = task->next;
        for (struct task *each = task, *next; each; each = next) {
            next = each->next_choice;
            task_over(engine, each);
        }
    }
}

// The waiting task whose request has the fewest running, the oldest of these. One that wants a slot waits for that.
static struct task *take_task(struct engine *engine)
{
    struct task **best = NULL;
    for (struct task **at = &engine->queue; *at; at = &(*at)->next)
        if (((*at)->request->how->slot < 0 || slot_is_free(&engine->slots[(*at)->request->how->slot])) &&
            (best == NULL || (*at)->request->n_running < (*best)->request->n_running))
            best = at;
    if (best == NULL)
        return NULL;
    struct task *task = *best;
    *best = task->next;
    return task;
}

static bool any_free(const struct engine *engine)
{
    for (int i = 0; i < engine->options.n_slots; i++)
        if (slot_is_free(&engine->slots[i]))
            return true;
    return false;
}

// Slots whose task is over become free; a further choice of the same prompt begins at once, since its prompt is there.
static void end_tasks(struct engine *engine)
{
    for (int i = 0; i < engine->options.n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        struct task *task = slot->task;
        if (task == NULL)
            continue;
        const bool left = atomic_load(&task->request->left);
        if (!task->over && !left)
            continue;
        slot->task = NULL;
        slot->used = clock_seconds();
        task->request->n_running--;
        struct task *further = task->next_choice;
        if (further && !left) {
            task->request->n_running++;
            slot_begin(slot, further);
        }
        for (struct task *each = left ? further : NULL, *next; each; each = next) {
            next = each->next_choice;
            request_keep(each->request); // until the loop is done with it
            task_over(engine, each);
            request_release(each->request);
        }
        task_over(engine, task);
    }
}

static void begin_tasks(struct engine *engine)
{
    while (engine->queue && any_free(engine)) {
        struct task *task = take_task(engine);
        if (task == NULL)
            return;
        const struct generation *how = task->request->how;
        const struct prompt *prompt = &how->prompts[task->prompt];
        task->request->n_running++;
        slot_begin(how->slot >= 0 ? &engine->slots[how->slot]
                                  : slot_choose(engine->slots, engine->options.n_slots, prompt, how->reuse),
                   task);
    }
}

// Notes the clients that have gone. A suspended connection is not watched by its thread.
static void look_for_clients(struct engine *engine)
{
    if (clock_seconds() - engine->looked < LOOK_SECONDS)
        return;
    engine->looked = clock_seconds();
    for (struct request *request = engine->requests; request; request = request->next) {
        size_t n_read = 0, n_prompt = 0;
        for (int i = 0; i < request->n_tasks; i += request->how->n_choices) {
            n_read += request->tasks[i].generator.n_read;
            n_prompt += request->tasks[i].generator.n_prompt;
        }
        engine->counts.left += request_look(request);
        request_pulse(request, n_read, n_prompt);
    }
}

// ---------------------------------------------------------------- the thread

static int find_busy(struct engine *engine, struct slot **busy)
{
    int n = 0;
    for (int i = 0; i < engine->options.n_slots; i++) {
        struct slot *slot = &engine->slots[i];
        const struct task *task = slot->task;
        if (!slot->taken)
            engine->states[i] = (struct slot_state){.n_tokens = yalm_position(slot->session), .busy = task != NULL};
        if (task == NULL)
            continue;
        engine->states[i].reading = generator_reads(&task->generator);
        engine->states[i].n_prompt = task->request->how->prompts[task->prompt].n;
        engine->states[i].n_generated = task->generator.n_generated;
        busy[n++] = slot;
    }
    engine->counts.kept_bytes = prefixes_bytes(engine->prefixes);
    return n;
}

static void *engine_main(void *argument)
{
    struct engine *engine = argument;
    struct slot *busy[MAX_SLOTS];
    pthread_mutex_lock(&engine->lock);
    for (;;) {
        look_for_clients(engine);
        drop_left(engine);
        end_tasks(engine);
        begin_tasks(engine);
        const int n_busy = find_busy(engine, busy);
        if (n_busy == 0 && engine->closing)
            break;
        if (n_busy == 0) {
            pthread_cond_wait(&engine->wake, &engine->lock);
            continue;
        }
        pthread_mutex_unlock(&engine->lock);
        engine_step(engine, busy, n_busy);
        pthread_mutex_lock(&engine->lock);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

// ---------------------------------------------------------------- from outside

struct engine *engine_open(const yalm_model *model, const struct engine_options *options, yalm_error *error)
{
    struct engine *engine = calloc(1, sizeof *engine);
    struct slot *slots = calloc((size_t)options->n_slots, sizeof *slots);
    struct slot_state *states = calloc((size_t)options->n_slots, sizeof *states);
    if (engine == NULL || slots == NULL || states == NULL) {
        *error = (yalm_error){YALM_NO_MEMORY, "out of memory for the engine"};
        free(engine);
        free(slots);
        free(states);
        return NULL;
    }
    engine->model = model;
    engine->options = *options;
    engine->slots = slots;
    engine->states = states;
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->wake, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&engine->idle, &attributes);
    pthread_condattr_destroy(&attributes);
    for (; engine->n_open < options->n_slots; engine->n_open++) {
        yalm_status status = slot_open(&slots[engine->n_open], model, &options->session, error);
        if (status == YALM_OK && options->speculate)
            status = slot_speculate(&slots[engine->n_open], options->draft, error);
        if (status != YALM_OK) {
            engine->n_open += slots[engine->n_open].session != NULL;
            engine_close(engine);
            return NULL;
        }
    }
    engine->prefixes = prefixes_open(slots[0].session, options->cache_bytes);
    for (int i = 0; i < options->n_slots; i++)
        slots[i].prefixes = engine->prefixes;
    snprintf(engine->machine, sizeof engine->machine, "%s: %s", yalm_session_facts(slots[0].session)->device,
             yalm_session_machine(slots[0].session));
    const int failed = pthread_create(&engine->thread, NULL, engine_main, engine);
    engine->started = !failed;
    if (failed) {
        error_set(error, YALM_FAILED, "cannot start the engine's thread: %s", strerror(failed));
        engine_close(engine);
        return NULL;
    }
    return engine;
}

void engine_stop(struct engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->draining = engine->closing = true;
    for (struct request *request = engine->requests; request; request = request->next) {
        request_fail(request, 503, "the server is shutting down");
        atomic_store(&request->left, true);
    }
    pthread_cond_broadcast(&engine->wake);
    pthread_mutex_unlock(&engine->lock);
    if (engine->started)
        pthread_join(engine->thread, NULL);
    engine->started = false;
}

yalm_status engine_load(struct engine *engine, const char *folder, yalm_error *error)
{
    pthread_mutex_lock(&engine->lock);
    const yalm_status status = prefixes_load(engine->prefixes, folder, error);
    engine->counts.kept_bytes = prefixes_bytes(engine->prefixes);
    pthread_mutex_unlock(&engine->lock);
    return status;
}

yalm_status engine_save(struct engine *engine, const char *folder, yalm_error *error)
{
    return prefixes_save(engine->prefixes, folder, error);
}

void engine_close(struct engine *engine)
{
    if (engine == NULL)
        return;
    engine_stop(engine);
    for (int i = 0; i < engine->n_open; i++)
        slot_close(&engine->slots[i]);
    prefixes_close(engine->prefixes);
    pthread_cond_destroy(&engine->idle);
    pthread_cond_destroy(&engine->wake);
    pthread_mutex_destroy(&engine->lock);
    free(engine->slots);
    free(engine->states);
    free(engine);
}

bool engine_drain(struct engine *engine, double seconds)
{
    const struct timespec until = clock_after(seconds);
    pthread_mutex_lock(&engine->lock);
    engine->draining = true;
    int status = 0;
    while (engine->n_requests > 0 && status == 0)
        status = pthread_cond_timedwait(&engine->idle, &engine->lock, &until);
    const bool drained = engine->n_requests == 0;
    pthread_mutex_unlock(&engine->lock);
    return drained;
}

bool engine_submit(struct engine *engine, struct request *request)
{
    pthread_mutex_lock(&engine->lock);
    const bool room = engine->n_requests < engine->options.n_slots + engine->options.n_queue && !engine->draining;
    if (room) {
        request_keep(request);
        struct request **at = &engine->requests;
        while (*at)
            at = &(*at)->next;
        request->next = NULL;
        *at = request;
        engine->n_requests++;
        for (int i = 0; i < request->n_tasks; i++)
            if (request->tasks[i].choice == 0)
                enqueue(engine, &request->tasks[i]);
        engine->counts.requests++;
        pthread_cond_signal(&engine->wake);
    } else
        engine->counts.refused++;
    pthread_mutex_unlock(&engine->lock);
    return room;
}

int engine_context(const struct engine *engine)
{
    return yalm_session_facts(engine->slots[0].session)->context;
}

yalm_session *engine_session(const struct engine *engine)
{
    return engine->slots[0].session;
}

int engine_n_slots(const struct engine *engine)
{
    return engine->options.n_slots;
}

bool engine_keeps(const struct engine *engine)
{
    return engine->prefixes != NULL;
}

const char *engine_machine(const struct engine *engine)
{
    return engine->machine;
}

yalm_session *engine_take_slot(struct engine *engine, int index, bool wait)
{
    struct slot *slot = &engine->slots[index];
    pthread_mutex_lock(&engine->lock);
    while (wait && slot->taken)
        pthread_cond_wait(&engine->idle, &engine->lock);
    const bool free = slot_is_free(slot);
    slot->taken |= free;
    pthread_mutex_unlock(&engine->lock);
    return free ? slot->session : NULL;
}

void engine_return_slot(struct engine *engine, int index)
{
    pthread_mutex_lock(&engine->lock);
    engine->slots[index].taken = false;
    engine->slots[index].used = clock_seconds();
    pthread_cond_signal(&engine->wake);
    pthread_cond_broadcast(&engine->idle);
    pthread_mutex_unlock(&engine->lock);
}

struct engine_counts engine_count(struct engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    struct engine_counts counts = engine->counts;
    for (int i = 0; i < engine->options.n_slots; i++)
        counts.running += engine->slots[i].task != NULL;
    for (const struct task *task = engine->queue; task; task = task->next)
        counts.waiting++;
    pthread_mutex_unlock(&engine->lock);
    return counts;
}

void engine_look(struct engine *engine, struct slot_state *slots)
{
    pthread_mutex_lock(&engine->lock);
    memcpy(slots, engine->states, (size_t)engine->options.n_slots * sizeof *slots);
    for (int i = 0; i < engine->options.n_slots; i++)
        if (engine->slots[i].taken)
            slots[i].busy = slots[i].reading = true;
    pthread_mutex_unlock(&engine->lock);
}
