// /slots: what the sessions hold and do, and llama.cpp's way to keep one in a file, take it back, or forget it.
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "serve/body.h"
#include "serve/reading.h"
#include "serve/server.h"
#include "util/clock.h"
#include "util/json_write.h"

enum { MAX_NAME = 200 };

void handle_slots(struct request *request)
{
    struct engine *engine = request->server->engine;
    const int n = engine_n_slots(engine);
    struct slot_state *states = calloc((size_t)n, sizeof *states);
    struct buffer out = {.failed = states == NULL};
    if (states)
        engine_look(engine, states);
    json_open(&out, NULL, '[');
    for (int i = 0; states && i < n; i++) {
        const struct slot_state *s = &states[i];
        json_open(&out, NULL, '{');
        json_integer(&out, "id", i);
        json_integer(&out, "n_ctx", engine_context(engine));
        json_integer(&out, "n_tokens", s->n_tokens);
        json_flag(&out, "is_processing", s->busy);
        json_text(&out, "state", !s->busy ? "idle" : s->reading ? "reading" : "writing");
        json_integer(&out, "n_prompt", (long long)s->n_prompt);
        json_integer(&out, "n_generated", (long long)s->n_generated);
        json_close(&out, "}");
    }
    json_close(&out, "]");
    free(states);
    request_send_all(request, &out);
}

// ---------------------------------------------------------------- one of them

struct slot_request {
    int slot;
    enum { SAVE, RESTORE, ERASE, N_ACTIONS } action;
    char *path; // owned; NULL where no file is asked for
};

static void free_slot_request(void *api)
{
    struct slot_request *wanted = api;
    if (wanted)
        free(wanted->path);
    free(wanted);
}

// A name of a file in the folder: nothing that leads out of it, or hides.
static bool read_name(struct request *request, struct slot_request *wanted)
{
    const char *folder = request->server->options->slot_dir, *name = NULL;
    if (folder == NULL)
        return request_fail(request, 501, "no slot is saved or restored here: the server needs --set serve.slot_dir=DIR");
    if (request->json && !body_string(request, request->json, "filename", &name))
        return false;
    bool good = name && *name && *name != '.' && strlen(name) <= MAX_NAME;
    for (const char *c = name; good && *c; c++)
        good = (unsigned char)*c >= ' ' && *c != 0x7f && *c != '/' && *c != '\\';
    if (!good)
        return request_fail(request, 400,
                            "'filename': expected a file's name of 1 to %d bytes, without slashes, that begins with no dot",
                            MAX_NAME);
    if (asprintf(&wanted->path, "%s/%s", folder, name) >= 0)
        return true;
    wanted->path = NULL;
    return request_fail(request, 503, "out of memory for a request");
}

static bool read_request(struct request *request, struct slot_request *wanted)
{
    static const char *const names[N_ACTIONS] = {"save", "restore", "erase"};
    const int n_slots = engine_n_slots(request->server->engine);
    const char *number = request->path + strlen(request->route->path);
    const char *action = MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, "action");
    char *end;
    const long slot = strtol(number, &end, 10);
    if (*number < '0' || *number > '9' || *end || slot >= n_slots)
        return request_fail(request, 404, "/slots/: expected a slot from 0 to %d, found '%.40s'", n_slots - 1, number);
    wanted->slot = (int)slot;
    while (wanted->action < N_ACTIONS && (action == NULL || strcmp(action, names[wanted->action]) != 0))
        wanted->action++;
    if (wanted->action == N_ACTIONS)
        return request_fail(request, 400, "'action': expected ?action=save, restore or erase, found '%.40s'",
                            action ? action : "");
    return wanted->action == ERASE || read_name(request, wanted);
}

static yalm_status act(const struct slot_request *wanted, yalm_session *session, yalm_error *error)
{
    if (wanted->action == SAVE)
        return yalm_session_save(session, wanted->path, error);
    if (wanted->action == RESTORE)
        return yalm_session_load(session, wanted->path, error);
    return yalm_rollback(session, 0, error);
}

static void answer(struct request *request, const struct slot_request *wanted, int64_t n, double seconds)
{
    static const char *const counts[N_ACTIONS] = {"n_saved", "n_restored", "n_erased"};
    struct stat file = {0};
    struct buffer out = {0};
    json_open(&out, NULL, '{');
    json_integer(&out, "id_slot", wanted->slot);
    if (wanted->path)
        json_text(&out, "filename", strrchr(wanted->path, '/') + 1);
    json_integer(&out, counts[wanted->action], n);
    if (wanted->path) {
        stat(wanted->path, &file);
        json_integer(&out, wanted->action == SAVE ? "n_written" : "n_read", file.st_size);
        json_open(&out, "timings", '{');
        json_raw(&out, wanted->action == SAVE ? "save_ms" : "restore_ms", "%.3f", 1000 * seconds);
        json_close(&out, "}");
    }
    json_close(&out, "}");
    request_send_all(request, &out);
}

// A file of that name which no session is in.
static bool is_foreign(const char *path)
{
    char begin[4] = "";
    FILE *file = fopen(path, "rb");
    const bool foreign = file && fread(begin, 1, sizeof begin, file) > 0 && memcmp(begin, "YSES", sizeof begin) != 0;
    if (file)
        fclose(file);
    return foreign;
}

// The reading thread's part: no answer waits for the file, but those that need this slot.
static void act_on_slot(struct request *request)
{
    struct slot_request *wanted = request->api;
    struct engine *engine = request->server->engine;
    struct stat file;
    yalm_error error = {0};
    if (wanted->action == RESTORE && stat(wanted->path, &file) != 0) {
        request_fail(request, 404, "'filename': there is no '%s' in serve.slot_dir", strrchr(wanted->path, '/') + 1);
        return;
    }
    if (wanted->action == SAVE && is_foreign(wanted->path)) {
        request_fail(request, 400, "'filename': '%s' in serve.slot_dir is no session: name another file",
                     strrchr(wanted->path, '/') + 1);
        return;
    }
    yalm_session *session = engine_take_slot(engine, wanted->slot, false);
    if (session == NULL) {
        request_fail(request, 503, "slot %d is at work: please try again later", wanted->slot);
        return;
    }
    const int64_t before = yalm_position(session);
    const double start = clock_seconds();
    const yalm_status status = act(wanted, session, &error);
    const int64_t after = yalm_position(session);
    engine_return_slot(engine, wanted->slot);
    if (status == YALM_OK)
        answer(request, wanted, wanted->action == RESTORE ? after : before, clock_seconds() - start);
    else
        request_fail_by(request, &error);
}

void handle_slot(struct request *request)
{
    if (request->api) {
        act_on_slot(request);
        return;
    }
    struct slot_request *wanted = request_api(request, sizeof *wanted, free_slot_request, NULL);
    if (wanted && read_request(request, wanted))
        reading_queue(request->server->reading, request);
}
