// A request: what a client asked for, and the answer on its way back.
//
// Three threads hold it: the one of its connection, the one that reads requests (reading.h) while it does, and the engine's
// while its tasks run. Whoever lets go last frees it. The engine writes the answer; the connection, which sleeps meanwhile,
// takes it as it comes.
#pragma once
#include <cjson/cJSON.h>
#include <pthread.h>
#include <stdatomic.h>

#include "util/buffer.h"
#include "yalm.h"

struct MHD_Connection;
struct request;
struct server;
struct task;

enum { MAX_RENAMED = 3 };
enum dialect { OPENAI, RESPONSES, ANTHROPIC, OLLAMA }; // whose form errors have
// Which thread handles it (reading.h). AT_ONCE: the connection's; a POST's body may be empty. BY_FORM: the connection's, or the
// reading one where the body's form takes long. VECTORS: the one that makes these.
enum place { AT_ONCE, BY_FORM, VECTORS };

struct route {
    const char *method, *path; // the path: whole, or a folder, which ends with a /
    enum dialect dialect;
    bool open; // needs no key
    enum place place;
    void (*handle)(struct request *request);
};

struct request {
    struct server *server;
    const struct route *route;
    const char *path; // as the client has it; libmicrohttpd's, for the connection's thread
    struct MHD_Connection *connection;
    atomic_int owners;
    double began;       // by the monotonic clock
    struct buffer body; // as it arrived
    cJSON *json;        // and parsed; NULL where the route reads none
    struct {
        const char *name, *said; // of a field: by which it is read; in the client's form
    } renamed[MAX_RENAMED];

    // The answer, under the lock.
    pthread_mutex_t lock;
    int status;            // of HTTP
    const char *type;      // of its content
    const char *code;      // of its error, where clients know one; NULL
    const char *id;        // of the answer, in OpenAI's form of responses
    struct buffer warning; // names what the request says and the answer does not follow
    struct buffer out;
    double sent;      // when it last grew
    size_t taken;     // bytes of `out` that the connection has
    bool streamed;    // goes out as it comes
    bool goes_out;    // of one that is streamed: the engine has it, so it may be seen
    bool finished;    // nothing will be added; its connection's thread reads all of these without the lock
    bool waiting;     // the connection is suspended until there is more
    bool preflight;   // a browser asks what a page may send
    bool interim;     // the client takes interim responses: it speaks HTTP/1.1
    bool asked;       // it sends nothing more, and has been written to
    atomic_bool left; // the client has gone
    // The thread of the connection only: read; asked for an answer; a response is queued.
    bool handled, called, answered;

    // What the engine is to do, and how its results become an answer; serve/task.h.
    struct generation *how;                 // owned
    struct task *tasks;                     // (n_tasks), owned
    int n_tasks, n_running, n_finished;     // n_finished: whose last progress() has begun
    int n_done;                             // that the engine has put away
    void (*begin)(struct request *request); // writes what a stream begins with, before anything is read; NULL: nothing
    // Called by the engine's thread after each token of a task, and when it is over.
    void (*progress)(struct request *request, struct task *task);
    void *api; // the route's own, freed by free_api
    void (*free_api)(void *api);
    struct request *next; // in the list of those to be read, then in the engine's
};

// NULL where memory runs out.
struct request *request_new(struct server *server, const struct route *route, const char *path,
                            struct MHD_Connection *connection);
void request_keep(struct request *request);
// The route's own memory, all 0. NULL where the request has been refused, for there is none.
void *request_api(struct request *request, size_t size, void (*free_api)(void *api),
                  void (*progress)(struct request *request, struct task *task));
void request_release(struct request *request);

// The whole answer, or the beginning of a streamed one. Takes the bytes of *out, which becomes empty.
void request_send(struct request *request, struct buffer *out);
// All of the answer at once.
void request_send_all(struct request *request, struct buffer *out);
// Notes what the answer does not follow; a header names it.
void request_warn(struct request *request, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Tells a streamed answer's client that it is being made, where nothing has been sent for a while.
void request_pulse(struct request *request, size_t n_read, size_t n_prompt);
// The engine has it: what is streamed may be seen from now on.
void request_go_out(struct request *request);
// Nothing more will come.
void request_finish(struct request *request);
// Looks whether the client is still there, where its connection sleeps. True where it has gone: once, and the request is
// finished.
bool request_look(struct request *request);
// An error in the client's own form: the answer, or an event where a streamed answer has begun. False, for who reads a request.
bool request_fail(struct request *request, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
// By what the library says.
bool request_fail_by(struct request *request, const yalm_error *error);
// For a prompt that is longer than the context: the numbers are members of the error, too. about: "", or "at least ".
bool request_fail_context(struct request *request, const char *about, long long n_prompt, long long context);
// The status of HTTP for an error of the library.
int http_status(yalm_status status);
