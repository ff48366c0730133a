// See serve.h.
#include "serve/serve.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "serve/http.h"
#include "serve/keys.h"
#include "serve/reading.h"
#include "serve/store.h"
#include "util/clock.h"
#include "util/error.h"

enum { PIECE = 64 }; // tokens of a prompt between two steps of those that write

// Vectors whose client has gone are not gone on with.
static void look_at_vectors(struct server *server)
{
    if (reading_look(server->embedding) && server->vectors)
        yalm_session_cancel(server->vectors);
}

// Waits for the signal that ends the server, lets running requests end, and takes a second signal for haste.
static void serve_until_signal(struct server *server, struct http *http, const sigset_t *signals)
{
    while (sigtimedwait(signals, NULL, &(struct timespec){.tv_nsec = 200000000}) < 0) {
        http_tidy(http);
        look_at_vectors(server);
    }
    server->options->say("ending: running requests have %d s (a second signal ends them)", server->options->drain);
    http_stop_accepting(http);
    const double until = clock_seconds() + server->options->drain;
    while (clock_seconds() < until && !(engine_drain(server->engine, 0.05) && reading_rests(server->embedding))) {
        if (sigtimedwait(signals, NULL, &(struct timespec){.tv_nsec = 20000000}) > 0)
            break;
        look_at_vectors(server);
    }
}

static size_t find_longest_piece(const yalm_model *model)
{
    size_t longest = 1;
    for (int32_t token = 0; token < yalm_model_facts(model)->vocab_size; token++) {
        size_t length = 0;
        yalm_piece(model, token, &length);
        longest = length > longest ? length : longest;
    }
    return longest;
}

// What an earlier server has kept; where that cannot be used it is said, and this one begins with nothing.
static yalm_status load_kept(struct server *server, yalm_error *error)
{
    const struct serve_options *options = server->options;
    if (!engine_keeps(server->engine))
        return error_set(error, YALM_USAGE,
                         "serve.cache_dir: nothing is kept beyond sessions where there are several machines, this "
                         "--attention, or too little memory (serve.cache_ram): leave it out");
    if (access(options->cache_dir, W_OK | X_OK) != 0)
        return error_set(error, YALM_USAGE, "serve.cache_dir: %s: %s: name a folder that can be written to", options->cache_dir,
                         strerror(errno));
    yalm_error damage;
    if (engine_load(server->engine, options->cache_dir, &damage) != YALM_OK)
        options->say("%s", damage.text);
    options->say("%llu MiB of what was read before come from %s",
                 (unsigned long long)engine_count(server->engine).kept_bytes >> 20, options->cache_dir);
    return YALM_OK;
}

static yalm_status save_kept(struct server *server, yalm_error *error)
{
    return server->options->cache_dir ? engine_save(server->engine, server->options->cache_dir, error) : YALM_OK;
}

// A model that reads whole texts alone leaves the engine's session to its vectors; another one has a session for them besides.
static bool open_vectors(struct server *server, yalm_error *error)
{
    const yalm_model_info *facts = yalm_model_facts(server->model);
    if (facts->pooling == NULL && !facts->scores)
        return true;
    server->vectors = facts->bidirectional ? engine_session(server->engine)
                                           : yalm_session_open(server->model, &server->options->session, error);
    return server->vectors;
}

static yalm_status run(struct server *server, const sigset_t *signals, yalm_error *error)
{
    const struct serve_options *options = server->options;
    const struct engine_options how = {
        options->session,     options->parallel,  options->queue, options->session.chunk ? options->session.chunk : PIECE,
        options->cache_bytes, options->speculate, options->draft};
    server->engine = engine_open(server->model, &how, error);
    if (server->engine == NULL)
        return error->status;
    if (options->cache_dir && load_kept(server, error) != YALM_OK) {
        engine_close(server->engine);
        return error->status;
    }
    if (options->slot_dir && access(options->slot_dir, W_OK | X_OK) != 0) {
        error_set(error, YALM_USAGE, "serve.slot_dir: %s: %s: name a folder that can be written to", options->slot_dir,
                  strerror(errno));
        engine_close(server->engine);
        return error->status;
    }
    int port;
    const bool started = (server->reading = reading_open()) && (server->embedding = reading_open());
    if (!started)
        *error = (yalm_error){YALM_FAILED, "cannot start the threads that read requests"};
    struct http *http = started && open_vectors(server, error) ? http_open(server, &port, error) : NULL;
    if (http) {
        char kept[64] = "";
        if (engine_keeps(server->engine))
            snprintf(kept, sizeof kept, ", at most %llu MiB of what was read before",
                     (unsigned long long)options->cache_bytes >> 20);
        options->say("%s, %d sessions of %d tokens each%s", engine_machine(server->engine), options->parallel,
                     engine_context(server->engine), kept);
        const bool six = strchr(options->host, ':') != NULL; // an address of IPv6, which a URL has in brackets
        options->say("listening on http://%s%s%s:%d", six ? "[" : "", options->host, six ? "]" : "", port);
        serve_until_signal(server, http, signals);
    }
    atomic_store(&server->ending, true);
    if (server->vectors)
        yalm_session_cancel(server->vectors);
    reading_stop(server->embedding);
    reading_stop(server->reading);
    engine_stop(server->engine); // answers what still runs
    http_close(http);
    const yalm_status status = http ? save_kept(server, error) : error->status;
    reading_close(server->reading);
    reading_close(server->embedding);
    if (server->vectors != engine_session(server->engine))
        yalm_session_close(server->vectors);
    engine_close(server->engine);
    return status;
}

yalm_status serve(const yalm_model *model, const struct serve_options *options, yalm_error *error)
{
    struct server server = {
        .model = model, .options = options, .longest_piece = find_longest_piece(model), .created = (long)time(NULL)};
    if (options->key_file && (server.keys = keys_read(options->key_file, error)) == NULL)
        return error->status;
    server.tree = token_tree_open(model);
    server.store = store_open();
    if (server.tree == NULL || server.store == NULL) {
        token_tree_close(server.tree);
        store_close(server.store);
        keys_free(server.keys);
        return error_set(error, YALM_NO_MEMORY, "out of memory for the vocabulary's tree");
    }
    calls_open(&server.calls, model);
    sigset_t signals, before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    const yalm_status status = run(&server, &signals, error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    calls_close(&server.calls);
    token_tree_close(server.tree);
    store_close(server.store);
    keys_free(server.keys);
    return status;
}
