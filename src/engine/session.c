// A session: options resolved against the model and the machine, then one timeline of tokens over a backend.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device.h"
#include "engine/session.h"
#include "engine/settings.h"
#include "util/memory.h"

enum { DEFAULT_CONTEXT = 4096, MAX_CONTEXT = 1 << 30 };

// ------------------------------------------------------------------------------------------ opening

static yalm_status resolve(const yalm_model *model, const yalm_session_options *given, yalm_session_options *options,
                           struct device_choice *choice, yalm_error *error)
{
    *options = yalm_session_defaults();
    if (given && error_of_size(given->size, sizeof *given, "yalm_session_options", error) != YALM_OK)
        return YALM_USAGE;
    if (given)
        *options = *given;
    if (!options->isa)
        options->isa = "auto";
    if (!options->attention)
        options->attention = "dense";
    const int trained = model->config.context_length;
    if (options->context == 0)
        options->context = trained < DEFAULT_CONTEXT ? trained : DEFAULT_CONTEXT;
    if (options->context < 1 || options->context > MAX_CONTEXT)
        return error_set(error, YALM_USAGE, "context: found %d, expected 1 to %d", options->context, MAX_CONTEXT);
    if (model->config.learned_positions && options->endless)
        return error_set(
            error, YALM_USAGE,
            "found an endless session, expected one of at most %d tokens: the model has no rows for later positions", trained);
    if (model->config.learned_positions && options->context > trained)
        return error_set(error, YALM_USAGE, "context: found %d, expected 1 to %d: the model has no rows for later positions",
                         options->context, trained);
    const char *const more = model->config.alibi ? "ALiBi" : model->config.rotated_qk_norm ? "norms behind its rotation" : NULL;
    if (more && options->endless) // sinks would stand where no key was, or scores see positions that no text had
        return error_set(error, YALM_USAGE,
                         "endless session: not with a model that has %s: limit the tokens (-n) to the context", more);
    if (options->n_threads < 0)
        return error_set(error, YALM_USAGE, "threads: found %d, expected 1 or more (0: chosen)", options->n_threads);
    if (options->n_threads_batch < 0)
        return error_set(error, YALM_USAGE, "threads for batches: found %d, expected 1 or more (0: chosen)",
                         options->n_threads_batch);
    if (options->chunk < 0)
        return error_set(error, YALM_USAGE, "chunk: found %d, expected 1 or more (0: chosen)", options->chunk);
    if (options->n_sinks < 0 || options->n_sinks > MAX_CONTEXT)
        return error_set(error, YALM_USAGE, "sinks: found %d, expected 0 to %d", options->n_sinks, MAX_CONTEXT);
    if (options->kv != YALM_KV_FP16 && options->kv != YALM_KV_FP32 && options->kv != YALM_KV_INT8)
        return error_set(error, YALM_USAGE, "KV cache type: found %d, expected fp16, fp32 or int8", (int)options->kv);
    if (options->kv == YALM_KV_INT8 && model->config.latent.kv_rank)
        return error_set(
            error, YALM_USAGE,
            "kv: found int8, but this model keeps latents (MLA), whose rows one scale would spoil: use fp16 or fp32");
    if ((int)options->activations < YALM_ACTIVATIONS_AUTO || options->activations > YALM_ACTIVATIONS_FP32)
        return error_set(error, YALM_USAGE, "activations: found %d, expected auto, int16, int8 or fp32",
                         (int)options->activations);
    if ((int)options->mtp < YALM_MTP_OFF || options->mtp > YALM_MTP_ON)
        return error_set(error, YALM_USAGE, "mtp: found %d, expected off, auto or on", (int)options->mtp);
    struct settings settings; // a mistake is one whether the attention method wants them or not
    yalm_status status = settings_read(&settings, options, error);
    status = status ?: exact_check(options, error);
    status = status ?: device_choose(model, options, choice, error);
    return status ?: mtp_resolve(model, choice->backend, options, error);
}

yalm_status yalm_session_memory(const yalm_model *model, const yalm_session_options *given, yalm_memory *memory,
                                yalm_error *error)
{
    yalm_session_options options;
    struct device_choice choice;
    const yalm_status status = resolve(model, given, &options, &choice, error);
    if (status != YALM_OK)
        return status;
    const struct backend_plan plan = device_plan(model, &options, NULL);
    const yalm_status of_model = device_memory(choice.backend, &plan, memory, error);
    return of_model == YALM_OK ? mtp_memory(model, choice.backend, &options, memory, error) : of_model;
}

static yalm_status allocate(yalm_session *s, yalm_error *error)
{
    const struct backend_plan plan = device_plan(s->model, &s->options, &s->cancel);
    memcpy(s->kv, plan.kv, sizeof s->kv);
    yalm_status status = device_memory(s->backend, &plan, &s->memory, error);
    status = status ?: mtp_memory(s->model, s->backend, &s->options, &s->memory, error);
    status = status ?: device_has_room(s->backend, &plan, &s->memory, error);
    if (status != YALM_OK)
        return status;
    s->last_logits = malloc(sizeof(float) * s->model->config.vocab_size);
    s->history = malloc(sizeof(int32_t) * s->options.context);
    s->recent = malloc(sizeof(int32_t) * s->options.context);
    if (!s->last_logits || !s->history || !s->recent)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    status = sampler_open(&s->sampler, s->model->config.vocab_size, error);
    if (status != YALM_OK)
        return status;
    sampler_seed(&s->sampler, 0);
    s->state = s->backend->open(&plan, error);
    return s->state ? mtp_open(s, error) : error ? error->status : YALM_FAILED;
}

static void describe(yalm_session *s, const char *instead_of)
{
    s->backend->describe(s->state, s->machine, sizeof s->machine);
    if (s->backend->describe_products)
        s->backend->describe_products(s->state, s->products, sizeof s->products);
    const size_t n = strlen(s->machine);
    if (instead_of[0])
        snprintf(s->machine + n, sizeof s->machine - n, " (not %s)", instead_of);
}

yalm_session *yalm_session_open(const yalm_model *model, const yalm_session_options *given, yalm_error *error)
{
    yalm_session *s = calloc(1, sizeof *s);
    if (!s) {
        error_set(error, YALM_NO_MEMORY, "out of memory for a session");
        return NULL;
    }
    s->model = model;
    struct device_choice choice = {0};
    if (resolve(model, given, &s->options, &choice, error) == YALM_OK) {
        s->backend = choice.backend;
        if (allocate(s, error) == YALM_OK) {
            describe(s, choice.instead_of);
            return s;
        }
    }
    yalm_session_close(s);
    return NULL;
}

void yalm_session_close(yalm_session *s)
{
    if (!s)
        return;
    mtp_close(s);
    if (s->state)
        s->backend->close(s->state);
    sampler_close(&s->sampler);
    free(s->last_logits);
    free(s->all_logits);
    free(s->ahead_logits);
    free(s->history);
    free(s->recent);
    free(s);
}

const yalm_session_options *yalm_session_facts(const yalm_session *s)
{
    return &s->options;
}
const char *yalm_session_machine(const yalm_session *s)
{
    return s->machine;
}
const char *yalm_session_products(const yalm_session *s)
{
    return s->products;
}
yalm_memory yalm_session_memory_used(const yalm_session *s)
{
    return s->memory;
}
const yalm_model *yalm_session_model(const yalm_session *s)
{
    return s->model;
}
size_t yalm_session_common(const yalm_session *s, const int32_t *tokens, size_t n)
{
    size_t common = 0;
    if (s->position <= s->options.context)
        while (common < n && common < (size_t)yalm_session_settled(s) && s->history[common] == tokens[common])
            common++;
    return common;
}
size_t yalm_session_tokens(const yalm_session *s, int32_t *tokens, size_t room)
{
    const int64_t known = s->position < s->kv[0].context ? s->position : s->kv[0].context;
    const int64_t n = (uint64_t)known < room ? known : (int64_t)room;
    const int64_t begin = (s->position - n) % s->kv[0].context, to_end = s->kv[0].context - begin;
    const int64_t first = n < to_end ? n : to_end; // the rest is at the ring's beginning
    memcpy(tokens, s->history + begin, (size_t)first * sizeof *tokens);
    memcpy(tokens + first, s->history, (size_t)(n - first) * sizeof *tokens);
    return (size_t)n;
}
int64_t yalm_position(const yalm_session *s)
{
    return s->position;
}
void yalm_session_cancel(yalm_session *s)
{
    atomic_store(&s->cancel, true);
}

// ------------------------------------------------------------------------------------------ evaluating

static yalm_status check_room(const yalm_session *s, int n, yalm_error *error)
{
    if (n < 1)
        return error_set(error, YALM_USAGE, "number of tokens: found %d, expected 1 or more", n);
    if (s->model->config.bidirectional)
        return error_set(error, YALM_USAGE, "the model reads whole texts, and does not go on with them (-m embed, -m serve)");
    if (!s->options.endless && n > s->options.context - s->position)
        return error_set(error, YALM_USAGE, "the context holds %d tokens: %lld are there and %d more were given",
                         s->options.context, (long long)s->position, n);
    return YALM_OK;
}

static yalm_status check_tokens(const yalm_session *s, const int32_t *tokens, int n, yalm_error *error)
{
    for (int i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= s->model->config.vocab_size)
            return error_set(error, YALM_USAGE, "token %d of %d: found id %d, expected 0 to %d", i + 1, n, tokens[i],
                             s->model->config.vocab_size - 1);
    return YALM_OK;
}

static yalm_status room_for_all_logits(yalm_session *s, int n, yalm_error *error)
{
    if ((size_t)n <= s->all_capacity)
        return YALM_OK;
    const uint64_t bytes = (uint64_t)n * s->model->config.vocab_size * sizeof(float);
    const uint64_t available = memory_available();
    free(s->all_logits);
    s->all_capacity = 0;
    s->all_logits = bytes <= available ? malloc(bytes) : NULL;
    if (!s->all_logits)
        return error_set(error, YALM_NO_MEMORY,
                         "not enough memory for the logits of %d tokens: needed %.2f GB, available %.2f GB", n,
                         (double)bytes / 1e9, (double)available / 1e9);
    s->all_capacity = n;
    return YALM_OK;
}

// Whether layers of every kind still hold all that a query at `position` sees.
static bool holds(const yalm_session *s, int64_t position)
{
    if (position == 0) // sees nothing before it
        return true;
    if (position < s->floor)
        return false;
    for (int kind = 0; kind < config_n_kinds(&s->model->config); kind++)
        if (!kv_holds(&s->kv[kind], position, s->high_water))
            return false;
    return !config_recurs(&s->model->config) || s->backend->holds(s->state, position);
}

// Back to where a failed evaluation began; where the ring has already lost what that position saw, the whole pieces stay.
static void undo(yalm_session *s, int64_t position)
{
    if (holds(s, position))
        exact_go_back(s, position);
}

// Recurrent layers can go back to where the last piece began. A conversation comes back to just before its prompt's end,
// where the answer was announced: the last piece is short.
static int next_piece(const yalm_session *s, int left, yalm_logits_of which)
{
    enum { LAST_PIECE = 16 };
    if (exact_alone(s, which) && left > 1 && config_recurs(&s->model->config)) // which go back to it
        left--;
    const int piece = left < s->options.chunk ? left : s->options.chunk;
    const bool divide = which == YALM_LOGITS_LAST && config_recurs(&s->model->config);
    return divide && piece == left && piece >= 4 * LAST_PIECE ? piece - LAST_PIECE : piece;
}

yalm_status yalm_eval(yalm_session *s, const int32_t *tokens, int n, yalm_logits_of which, yalm_error *error)
{
    yalm_status status = check_room(s, n, error);
    status = status ?: check_tokens(s, tokens, n, error);
    if (status == YALM_OK && which == YALM_LOGITS_ALL)
        status = room_for_all_logits(s, n, error);
    if (status != YALM_OK)
        return status;
    if (n == 1 && which == YALM_LOGITS_LAST && ahead_take(s, tokens[0]))
        return YALM_OK;

    int32_t with_ahead[MOST_AHEAD + 1];
    const int64_t begin = s->position;
    const int n_logits = s->n_logits;
    s->n_logits = 0;
    for (int done = 0, piece; done < n; done += piece) {
        piece = next_piece(s, n - done, which);
        struct batch batch = {.tokens = tokens + done, .n = piece, .position = s->position};
        const bool apart = n - done == piece && exact_alone(s, which);
        batch.apart = apart && piece == 1;
        batch.last_apart = apart && piece > 1;
        if (which == YALM_LOGITS_ALL) {
            batch.logits = s->all_logits + (size_t)done * s->model->config.vocab_size;
            batch.all_logits = true;
        } else if (which == YALM_LOGITS_LAST && done + piece == n)
            batch.logits = s->last_logits;
        if (n == 1 && which == YALM_LOGITS_LAST)
            batch = ahead_batch(s, tokens[0], with_ahead);
        ahead_forget(s);
        batch.normed = s->embedding;
        batch.hidden = s->embedding ? embed_rows(s->embedding) : mtp_rows(s, &batch);
        if (s->position + batch.n > s->high_water)
            s->high_water = s->position + batch.n;
        status = atomic_load(&s->cancel) ? error_set(error, YALM_INTERRUPTED, "interrupted")
                                         : s->backend->evaluate(s->state, &batch, error);
        if (status != YALM_OK) {
            atomic_store(&s->cancel, false);
            undo(s, begin);
            if (s->position == begin && s->logits != s->all_logits) // written only by an evaluation that succeeds
                s->n_logits = n_logits;
            return status;
        }
        for (int i = 0; i < piece; i++)
            s->history[(s->position + i) % s->options.context] = tokens[done + i];
        warn_of_cut(s);
        exact_settle(s, piece - apart);
        s->position += piece;
        if (s->embedding)
            embed_take(s->embedding, piece);
        else
            mtp_take(s, &batch);
        if (batch.n > piece) {
            ahead_keep(s, &batch);
            return YALM_OK;
        }
    }
    s->logits = which == YALM_LOGITS_ALL ? s->all_logits : s->last_logits;
    s->n_logits = which == YALM_LOGITS_ALL ? n : which == YALM_LOGITS_LAST ? 1 : 0;
    return YALM_OK;
}

enum { MOST_SESSIONS = 256 };

static yalm_status check_each(yalm_session *const *sessions, const int32_t *tokens, int n, yalm_error *error)
{
    if (n < 1 || n > MOST_SESSIONS)
        return error_set(error, YALM_USAGE, "number of sessions: found %d, expected 1 to %d", n, MOST_SESSIONS);
    yalm_status status = YALM_OK;
    for (int i = 0; i < n && status == YALM_OK; i++) {
        yalm_session *s = sessions[i];
        for (int j = 0; j < i; j++)
            if (sessions[j] == s)
                return error_set(error, YALM_USAGE, "sessions %d and %d are the same one", j + 1, i + 1);
        if (s->model != sessions[0]->model || s->backend != sessions[0]->backend)
            return error_set(error, YALM_USAGE, "session %d is on another model or device than the first", i + 1);
        status = check_room(s, 1, error);
        status = status ?: check_tokens(s, tokens + i, 1, error);
        if (status == YALM_OK && atomic_exchange(&s->cancel, false))
            status = error_set(error, YALM_INTERRUPTED, "interrupted");
    }
    return status;
}

static void end_together(yalm_session *s, int32_t token, yalm_status status)
{
    s->logits = s->last_logits;
    s->n_logits = status == YALM_OK;
    if (s->position + 1 > s->high_water)
        s->high_water = s->position + 1;
    if (status == YALM_OK) {
        warn_of_cut(s);
        s->history[s->position++ % s->options.context] = token;
        mtp_forget(s);
    } else if (status == YALM_INTERRUPTED)
        atomic_store(&s->cancel, false); // as yalm_eval() leaves it
}

yalm_status yalm_eval_each(yalm_session *const *sessions, const int32_t *tokens, int n, yalm_error *error)
{
    yalm_status status = check_each(sessions, tokens, n, error);
    const struct backend *backend = status == YALM_OK ? sessions[0]->backend : NULL;
    if (status == YALM_OK && (n == 1 || !backend->evaluate_together)) {
        for (int i = 0; i < n && status == YALM_OK; i++)
            status = yalm_eval(sessions[i], tokens + i, 1, YALM_LOGITS_LAST, error);
        return status;
    }
    if (status != YALM_OK)
        return status;
    void *states[MOST_SESSIONS];
    struct batch batches[MOST_SESSIONS];
    yalm_session *evaluated[MOST_SESSIONS]; // all but those that are ahead
    int n_evaluated = 0;
    for (int i = 0; i < n; i++) {
        yalm_session *s = sessions[i];
        if (ahead_is(s, tokens[i]))
            continue;
        ahead_forget(s);
        states[n_evaluated] = s->state;
        batches[n_evaluated] = (struct batch){.tokens = &tokens[i], .n = 1, .position = s->position, .logits = s->last_logits};
        evaluated[n_evaluated++] = s;
    }
    const struct backend_plan plan = device_plan(sessions[0]->model, &sessions[0]->options, &sessions[0]->cancel);
    if (n_evaluated > 0)
        status = backend->evaluate_together(states, batches, n_evaluated, &plan, error);
    for (int i = 0; i < n_evaluated; i++)
        end_together(evaluated[i], batches[i].tokens[0], status);
    for (int i = 0; i < n && status == YALM_OK; i++)
        ahead_take(sessions[i], tokens[i]);
    return status;
}

yalm_status yalm_finish(yalm_session *s, yalm_error *error)
{
    return s->backend->finish ? s->backend->finish(s->state, error) : YALM_OK;
}

int64_t yalm_rollback_point(const yalm_session *s, int64_t position)
{
    position = position < s->position ? position : s->position;
    while (position > 0 && !holds(s, position))
        position--;
    return position > 0 ? position : 0;
}

yalm_status yalm_rollback(yalm_session *s, int64_t position, yalm_error *error)
{
    if (position < 0 || position > s->position)
        return error_set(error, YALM_USAGE, "roll back: found position %lld, expected 0 to %lld", (long long)position,
                         (long long)s->position);
    if (!holds(s, position))
        return error_set(error, YALM_USAGE,
                         "roll back to %lld: the session no longer holds what that position saw (%lld written)",
                         (long long)position, (long long)s->high_water);
    exact_go_back(s, position);
    s->n_logits = 0;
    ahead_forget(s);
    if (position == 0)
        s->high_water = s->floor = 0;
    return YALM_OK;
}

yalm_status yalm_fill_random(yalm_session *s, int n, uint64_t seed, yalm_error *error)
{
    yalm_status status = check_room(s, n, error);
    ahead_forget(s);
    for (int done = 0, piece; status == YALM_OK && done < n; done += piece) {
        piece = n - done < s->options.chunk ? n - done : s->options.chunk;
        status = s->backend->fill_random(s->state, s->position, piece, seed, error);
        if (status != YALM_OK)
            break;
        for (int i = 0; i < piece; i++)
            s->history[(s->position + i) % s->options.context] = 0;
        s->position += piece;
        if (s->position > s->high_water)
            s->high_water = s->position;
    }
    s->n_logits = 0;
    mtp_forget(s);
    return status;
}
