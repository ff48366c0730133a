// Sessions as the command line opens them, ^C, and small numbers that several modes need.
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/line.h"
#include "cli/speculation.h"

// A signal handler can only reach what is global.
static yalm_session *volatile running;
static volatile sig_atomic_t was_interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    was_interrupted = 1;
    line_release(); // a second ^C ends the program at once
    if (running)
        yalm_session_cancel(running);
}

bool interrupted(void)
{
    return was_interrupted;
}

yalm_status sample_token(yalm_session *session, const yalm_sampling *sampling, int32_t *token, yalm_error *error)
{
    *token = yalm_sample(session, sampling);
    if (*token >= 0)
        return YALM_OK;
    const yalm_status status = yalm_finish(session, error);
    if (status != YALM_OK)
        return status;
    return error_set(error, YALM_FAILED, "the model's logits are not finite after %lld tokens",
                     (long long)yalm_position(session));
}

static void show_upload(void *context, uint64_t done, uint64_t total)
{
    (void)context;
    progress("copying weights to the GPU: %s of %s", human_bytes(done), human_bytes(total));
}

static void show_warning(void *context, const char *text)
{
    (void)context;
    say("warning: %s", text);
}

yalm_model *open_model(const struct options *options, yalm_error *error)
{
    yalm_model_options how = yalm_model_defaults();
    how.lock = options->mlock;
    how.huge_pages = options->hugepages;
    how.group = options->group;
    return yalm_model_open(options->model, &how, error);
}

yalm_session_options session_options(const struct options *options)
{
    yalm_session_options how = yalm_session_defaults();
    how.device = options->device;
    how.isa = options->isa;
    how.n_threads = options->n_threads;
    how.n_threads_batch = options->n_threads_batch;
    how.pin = options->pin;
    how.context = options->context;
    how.n_sinks = options->n_sinks;
    how.kv = (yalm_kv)options->kv;
    how.activations = (yalm_activations)options->activations;
    how.chunk = options->chunk;
    how.exact = options->exact;
    how.several = speculation_named(options) || (options->mode == MODE_SERVE && options->parallel > 1);
    how.mtp = speculation_mtp(options);
    how.attention = options->attention;
    how.attention_ratio = options->attention_ratio;
    how.codebooks = options->book;
    how.settings = options->settings.texts;
    how.n_settings = options->settings.n;
    how.progress = show_upload;
    how.warn = show_warning;
    return how;
}

// So that text and statistics still come out.
void watch_interrupt(yalm_session *session)
{
    running = session;
    was_interrupted = 0;
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

yalm_session *open_session(const struct options *options, const yalm_model *model, yalm_session_options *how, bool quiet,
                           yalm_error *error)
{
    yalm_memory memory;
    if (yalm_session_memory(model, how, &memory, error) != YALM_OK)
        return NULL;
    char kept[64] = "";
    if (memory.attention)
        snprintf(kept, sizeof kept, "%s %s, ", how->attention, human_bytes(memory.attention));
    if (!quiet)
        say("memory: weights %s%s, cache %s, %sscratch %s; %s available", human_bytes(memory.weights),
            options->hugepages ? " (copied into huge pages)" : "", human_bytes(memory.kv_cache), kept,
            human_bytes(memory.scratch), human_bytes(memory.available));
    yalm_session *session = yalm_session_open(model, how, error);
    progress_clear();
    if (session == NULL)
        return NULL;
    const yalm_session_options *facts = yalm_session_facts(session);
    const bool dense = strcmp(facts->attention, "dense") == 0;
    static const char *const activations[] = {[YALM_ACTIVATIONS_INT16] = "", // as ever
                                              [YALM_ACTIVATIONS_INT8] = ", activations int8",
                                              [YALM_ACTIVATIONS_FP32] = ", activations fp32"};
    static const char *const caches[] = {[YALM_KV_FP16] = "fp16", [YALM_KV_FP32] = "fp32", [YALM_KV_INT8] = "int8"};
    if (!quiet)
        say("%s: %s, context %d%s, cache %s%s%s%s", facts->device, yalm_session_machine(session), facts->context,
            facts->endless ? " (endless)" : "", caches[facts->kv], activations[facts->activations], dense ? "" : ", attention ",
            dense ? "" : facts->attention);
    const int trained = yalm_model_facts(model)->context_length;
    if (!quiet && options->context > trained)
        say("warning: a context of %d (-T) is more than the %d positions that the model was trained for: past them it may "
            "write nonsense",
            options->context, trained);
    if (options->verbose && !quiet) {
        say("prefill in pieces of %d tokens; %d attention sinks", facts->chunk, facts->n_sinks);
        if (yalm_session_products(session)[0])
            say("%s", yalm_session_products(session));
    }

    running = session;
    if (!was_interrupted)
        watch_interrupt(session);
    return session;
}

void close_session(yalm_session *session)
{
    running = NULL;
    yalm_session_close(session);
}

void limits_merge(yalm_limits *limits, const yalm_limits *other)
{
    if (other->read_gb_per_s > limits->read_gb_per_s)
        limits->read_gb_per_s = other->read_gb_per_s;
    if (other->fma_gop_per_s > limits->fma_gop_per_s)
        limits->fma_gop_per_s = other->fma_gop_per_s;
    if (other->dot_gop_per_s > limits->dot_gop_per_s)
        limits->dot_gop_per_s = other->dot_gop_per_s;
    if (other->matrix_gop_per_s > limits->matrix_gop_per_s)
        limits->matrix_gop_per_s = other->matrix_gop_per_s;
}

uint64_t logits_hash(const float *logits, int n_vocab)
{
    uint64_t hash = 0xcbf29ce484222325u;
    const unsigned char *bytes = (const unsigned char *)logits;
    for (size_t i = 0; i < (size_t)n_vocab * sizeof *logits; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// Short enough to be typed again.
uint64_t random_seed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t state = (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 32;
    return random_next(&state) >> 32;
}
