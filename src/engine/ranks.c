// The backend of a group's rank 0: what a session asks for, every rank does with its share of the model on its own CPU, or GPU.

#include "engine/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/group.h"
#include "util/error.h"

// A session's: this rank's share of it, and its name on the others.
struct ranks_state {
    yalm_group *group;
    const atomic_bool *cancel;
    const struct backend *backend; // this rank's own
    void *own;                     // its state
    int session;
};

// ------------------------------------------------------------------------------------------ options, on their way to other
// ranks

// Numbers, and behind them the strings, each with its terminating zero: device, isa, attention, codebooks ("" where none are
// named), settings.
struct sent_options {
    int32_t context, endless, n_sinks, kv, activations, chunk, pin, exact, n_settings;
    float attention_ratio;
};

static void write_texts(FILE *file, const yalm_session_options *o)
{
    const char *const texts[] = {o->device, o->isa, o->attention, o->codebooks ? o->codebooks : ""};
    for (int i = 0; i < 4; i++)
        fwrite(texts[i], strlen(texts[i]) + 1, 1, file);
    for (int i = 0; i < o->n_settings; i++)
        fwrite(o->settings[i], strlen(o->settings[i]) + 1, 1, file);
}

char *ranks_write_options(const yalm_session_options *o, size_t *length)
{
    char *bytes = NULL;
    FILE *file = open_memstream(&bytes, length);
    if (!file)
        return NULL;
    const struct sent_options sent = {
        .context = o->context,
        .endless = o->endless,
        .n_sinks = o->n_sinks,
        .kv = (int32_t)o->kv,
        .activations = (int32_t)o->activations,
        .chunk = o->chunk,
        .pin = o->pin,
        .exact = o->exact,
        .n_settings = o->n_settings,
        .attention_ratio = o->attention_ratio,
    };
    fwrite(&sent, sizeof sent, 1, file);
    write_texts(file, o);
    if (fclose(file) == 0)
        return bytes;
    free(bytes);
    return NULL;
}

// The next string of what was sent; NULL where it is not whole.
static const char *next_text(const char **at, const char *end)
{
    const char *text = *at, *zero = memchr(text, 0, (size_t)(end - text));
    if (!zero)
        return NULL;
    *at = zero + 1;
    return text;
}

bool ranks_read_options(struct ranks_options *to, const char *bytes, size_t length)
{
    struct sent_options sent;
    if (length < sizeof sent)
        return false;
    memcpy(&sent, bytes, sizeof sent);
    const char *at = bytes + sizeof sent, *end = bytes + length;
    yalm_session_options *o = &to->options;
    *o = yalm_session_defaults();
    o->context = sent.context;
    o->endless = sent.endless;
    o->n_sinks = sent.n_sinks;
    o->kv = (yalm_kv)sent.kv;
    o->activations = (yalm_activations)sent.activations;
    o->chunk = sent.chunk;
    o->pin = sent.pin;
    o->exact = sent.exact;
    o->attention_ratio = sent.attention_ratio;
    o->device = next_text(&at, end);
    o->isa = o->device ? next_text(&at, end) : NULL;
    o->attention = o->isa ? next_text(&at, end) : NULL;
    o->codebooks = o->attention ? next_text(&at, end) : NULL;
    if (!o->codebooks || sent.n_settings < 0 || sent.n_settings > RANKS_MOST_SETTINGS)
        return false;
    if (!o->codebooks[0])
        o->codebooks = NULL;
    for (int i = 0; i < sent.n_settings; i++)
        if (!(to->settings[i] = next_text(&at, end)))
            return false;
    o->settings = to->settings;
    o->n_settings = sent.n_settings;
    return true;
}

// ------------------------------------------------------------------------------------------ the backend

// A command without an answer.
static yalm_status tell(struct ranks_state *s, struct command *command, const void *body, size_t length, yalm_error *error)
{
    command->session = s->session;
    return group_tell(s->group, command, body, length, error);
}

// What this rank computes with: the CUDA half, which is there where a session runs on it, or the CPU.
static const struct backend *own_of(const yalm_session_options *options)
{
    bool unfit;
    return strcmp(options->device, "cuda") == 0 ? cuda_open(&unfit, NULL) : &backend_cpu;
}

static yalm_status open_on_others(struct ranks_state *s, const yalm_session_options *options, yalm_error *error)
{
    size_t length;
    char *bytes = ranks_write_options(options, &length);
    if (!bytes)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    yalm_status status = tell(s, &(struct command){.kind = COMMAND_OPEN}, bytes, length, error);
    status = status ?: group_answers(s->group, error);
    free(bytes);
    return status;
}

static void close_state(void *state)
{
    struct ranks_state *s = state;
    pthread_mutex_lock(&s->group->lock);
    tell(s, &(struct command){.kind = COMMAND_CLOSE}, NULL, 0, NULL);
    pthread_mutex_unlock(&s->group->lock);
    if (s->own)
        s->backend->close(s->own);
    free(s);
}

static yalm_status join_all(struct ranks_state *s, yalm_error *error)
{
    char invitation[INVITATION_BYTES];
    yalm_error ours = {0};
    yalm_status status = s->backend->invite(invitation, error);
    status = status ?: tell(s, &(struct command){.kind = COMMAND_JOIN}, invitation, sizeof invitation, error);
    if (status != YALM_OK)
        return status;
    s->backend->join(s->own, invitation, &ours); // while they do
    status = group_answers(s->group, error);
    return status == YALM_OK && ours.status != YALM_OK ? error_set(error, ours.status, "%s", ours.text) : status;
}

// All ranks' states meet, where they do by ways of their own.
static yalm_status join(struct ranks_state *s, yalm_error *error)
{
    yalm_status status = YALM_OK;
    pthread_mutex_lock(&s->group->lock);
    if (s->backend->join && !s->group->joined)
        status = join_all(s, error);
    s->group->joined = status == YALM_OK;
    pthread_mutex_unlock(&s->group->lock);
    return status;
}

static void *open_state(const struct backend_plan *plan, yalm_error *error)
{
    static const atomic_bool never; // cancellation is agreed upon in group_sum()
    struct ranks_state *s = calloc(1, sizeof *s);
    if (!s) {
        error_set(error, YALM_NO_MEMORY, "out of memory for a session");
        return NULL;
    }
    s->group = plan->group;
    s->backend = own_of(plan->options);
    s->cancel = plan->cancel;
    pthread_mutex_lock(&s->group->lock);
    s->session = s->group->n_sessions++;
    const yalm_status status = open_on_others(s, plan->options, error);
    pthread_mutex_unlock(&s->group->lock);
    struct backend_plan own = *plan;
    own.cancel = &never;
    if (status == YALM_OK)
        s->own = s->backend->open(&own, error);
    if (s->own && join(s, error) == YALM_OK)
        return s;
    close_state(s);
    return NULL;
}

static yalm_status evaluate(void *state, const struct batch *batch, yalm_error *error)
{
    struct ranks_state *s = state;
    struct command command = {.kind = COMMAND_EVALUATE, .n = batch->n, .token = batch->tokens[0], .position = batch->position};
    command.apart = batch->apart ? 2 : batch->last_apart;
    command.logits = !batch->logits ? 0 : batch->all_logits ? 2 : 1;
    pthread_mutex_lock(&s->group->lock);
    s->group->cancel = s->cancel;
    const size_t body = batch->n > 1 ? sizeof *batch->tokens * (size_t)batch->n : 0;
    yalm_status status = tell(s, &command, batch->tokens, body, error);
    status = status ?: s->backend->evaluate(s->own, batch, error);
    if (s->group->lost)
        status = group_failure(s->group, error);
    pthread_mutex_unlock(&s->group->lock);
    return status;
}

static yalm_status evaluate_together(void *const *states, const struct batch *batches, int n, const struct backend_plan *plan,
                                     yalm_error *error)
{
    struct ranks_state *first = states[0];
    yalm_status status = YALM_OK;
    pthread_mutex_lock(&first->group->lock);
    first->group->cancel = NULL; // looked at before, token by token
    for (int done = 0, some; done < n && status == YALM_OK; done += some) {
        struct group_turn turns[GROUP_AT_ONCE];
        void *own[GROUP_AT_ONCE];
        some = n - done < GROUP_AT_ONCE ? n - done : GROUP_AT_ONCE;
        for (int i = 0; i < some; i++) {
            const struct ranks_state *s = states[done + i];
            const struct batch *batch = &batches[done + i];
            turns[i] = (struct group_turn){s->session, batch->tokens[0], batch->position};
            own[i] = s->own;
        }
        status =
            tell(first, &(struct command){.kind = COMMAND_TOGETHER, .n = some}, turns, sizeof *turns * (size_t)some, error);
        status = status ?: backend_cpu.evaluate_together(own, batches + done, some, plan, error);
    }
    if (first->group->lost)
        status = group_failure(first->group, error);
    pthread_mutex_unlock(&first->group->lock);
    return status;
}

static bool holds(const void *state, int64_t position)
{
    return backend_cpu.holds(((const struct ranks_state *)state)->own, position);
}

static int cut_layer(const void *state) // by this rank's heads
{
    return backend_cpu.cut_layer(((const struct ranks_state *)state)->own);
}

static int most_apart(const void *state)
{
    return backend_cpu.most_apart(((const struct ranks_state *)state)->own);
}

static yalm_status fill_random(void *state, int64_t position, int n, uint64_t seed, yalm_error *error)
{
    struct ranks_state *s = state;
    struct command command = {.kind = COMMAND_FILL, .n = n, .position = position, .seed = seed};
    pthread_mutex_lock(&s->group->lock);
    yalm_status status = tell(s, &command, NULL, 0, error);
    status = status ?: s->backend->fill_random(s->own, position, n, seed, error);
    pthread_mutex_unlock(&s->group->lock);
    return status;
}

static yalm_status resolve(const struct model_config *config, const struct model_weights *weights,
                           yalm_session_options *options, yalm_error *error)
{
    return own_of(options)->resolve(config, weights, options, error);
}

static yalm_status memory(const struct backend_plan *plan, yalm_memory *memory, yalm_error *error)
{
    return own_of(plan->options)->memory(plan, memory, error);
}

static void describe(const void *state, char *text, size_t room)
{
    const struct ranks_state *s = state;
    char here[128];
    s->backend->describe(s->own, here, sizeof here);
    snprintf(text, room, "%d ranks, this one with %s", s->group->transport.n, here);
}

// Every rank is taken to read and compute like this one.
static double step_bytes(const void *state, int n, int64_t position)
{
    const struct ranks_state *s = state;
    return s->group->transport.n * s->backend->step_bytes(s->own, n, position);
}

static yalm_status measure_limits(void *state, double seconds, yalm_limits *limits, yalm_error *error)
{
    const struct ranks_state *s = state;
    const yalm_status status = s->backend->measure_limits(s->own, seconds, limits, error);
    limits->read_gb_per_s *= s->group->transport.n;
    limits->fma_gop_per_s *= s->group->transport.n;
    limits->dot_gop_per_s *= s->group->transport.n;
    return status;
}

static double measure_reading(void *state, double seconds)
{
    const struct ranks_state *s = state;
    return s->group->transport.n * backend_cpu.measure_reading(s->own, seconds);
}

static void time_attention(void *state, bool on)
{
    backend_cpu.time_attention(((struct ranks_state *)state)->own, on);
}

static double attention_seconds(const void *state)
{
    return backend_cpu.attention_seconds(((const struct ranks_state *)state)->own);
}

static yalm_status finish(void *state, yalm_error *error)
{
    struct ranks_state *s = state;
    return s->backend->finish(s->own, error);
}

static yalm_status fetch(void *state, int row, float *logits, yalm_error *error)
{
    struct ranks_state *s = state;
    return s->backend->fetch(s->own, row, logits, error);
}

static yalm_status sample(void *state, const struct draw *draw, int32_t *token, float *logit, yalm_error *error)
{
    struct ranks_state *s = state;
    return s->backend->sample(s->own, draw, token, logit, error);
}

#define OF_BOTH                                                                                                                \
    .resolve = resolve, .memory = memory, .open = open_state, .close = close_state, .describe = describe,                      \
    .evaluate = evaluate, .fill_random = fill_random, .step_bytes = step_bytes, .measure_limits = measure_limits

static const struct backend on_cpus = {
    OF_BOTH,
    .name = "cpu",
    .evaluate_together = evaluate_together,
    .most_apart = most_apart,
    .holds = holds,
    .cut_layer = cut_layer,
    .measure_reading = measure_reading,
    .time_attention = time_attention,
    .attention_seconds = attention_seconds,
};

static const struct backend on_gpus = {
    OF_BOTH, .name = "cuda", .own_memory = true, .finish = finish, .fetch = fetch, .sample = sample,
};

const struct backend *ranks_backend(const struct backend *own)
{
    return own == &backend_cpu ? &on_cpus : &on_gpus;
}
