// See request.h.
#include "serve/request.h"

#include <microhttpd.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "serve/task.h"
#include "util/clock.h"
#include "util/json_write.h"

#define PULSE_SECONDS 1.0 // after which a stream that brings nothing says that it goes on

struct request *request_new(struct server *server, const struct route *route, const char *path,
                            struct MHD_Connection *connection)
{
    struct request *request = calloc(1, sizeof *request);
    if (request == NULL)
        return NULL;
    request->server = server;
    request->route = route;
    request->path = path;
    request->connection = connection;
    request->began = clock_seconds();
    request->status = 200;
    request->type = "application/json";
    pthread_mutex_init(&request->lock, NULL);
    atomic_init(&request->owners, 1);
    atomic_init(&request->left, false);
    return request;
}

void *request_api(struct request *request, size_t size, void (*free_api)(void *api),
                  void (*progress)(struct request *request, struct task *task))
{
    request->api = calloc(1, size);
    request->free_api = free_api;
    request->progress = progress;
    if (request->api == NULL)
        request_fail(request, 503, "out of memory for a request");
    return request->api;
}

void request_keep(struct request *request)
{
    atomic_fetch_add(&request->owners, 1);
}

static void generation_free(struct generation *how)
{
    if (how == NULL)
        return;
    for (int i = 0; i < how->n_prompts; i++)
        free(how->prompts[i].ids);
    free(how->prompts);
    free((void *)how->options.sampling.biases);
    grammar_free(how->grammar);
    calls_release(how->kept);
    free(how);
}

void request_release(struct request *request)
{
    if (atomic_fetch_sub(&request->owners, 1) > 1)
        return;
    for (int i = 0; i < request->n_tasks; i++)
        generator_free(&request->tasks[i].generator);
    free(request->tasks);
    generation_free(request->how);
    if (request->free_api)
        request->free_api(request->api);
    cJSON_Delete(request->json);
    buffer_free(&request->body);
    buffer_free(&request->warning);
    buffer_free(&request->out);
    pthread_mutex_destroy(&request->lock);
    free(request);
}

// Under the lock: the connection's thread comes back for what there is.
static void wake(struct request *request)
{
    if (request->waiting && !atomic_load(&request->left)) {
        request->waiting = false;
        MHD_resume_connection(request->connection);
    }
}

void request_go_out(struct request *request)
{
    pthread_mutex_lock(&request->lock);
    request->goes_out = true;
    wake(request);
    pthread_mutex_unlock(&request->lock);
}

void request_send(struct request *request, struct buffer *out)
{
    pthread_mutex_lock(&request->lock);
    if (!request->finished) {
        buffer_add(&request->out, out->at, out->length);
        request->out.failed |= out->failed;
        request->sent = clock_seconds();
    }
    if (request->streamed)
        wake(request);
    pthread_mutex_unlock(&request->lock);
    buffer_free(out);
}

void request_warn(struct request *request, const char *format, ...)
{
    char text[100];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *at = text; *at; at++)
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\')
            *at = '?';
    pthread_mutex_lock(&request->lock);
    if (!request->finished && request->warning.length < 1000)
        buffer_format(&request->warning, "%s%s", request->warning.length ? ", " : "", text);
    pthread_mutex_unlock(&request->lock);
}

// Blanks before JSON mean nothing, as comments and pings.
static void add_pulse(struct request *request, size_t n_read, size_t n_prompt)
{
    if (request->route->dialect == OLLAMA)
        buffer_text(&request->out, " ");
    else if (request->route->dialect == ANTHROPIC)
        buffer_text(&request->out, "event: ping\ndata: {\"type\": \"ping\"}\n\n");
    else
        buffer_format(&request->out, ": %zu of %zu tokens read\n\n", n_read, n_prompt);
    request->sent = clock_seconds();
    wake(request);
}

void request_pulse(struct request *request, size_t n_read, size_t n_prompt)
{
    pthread_mutex_lock(&request->lock);
    if (request->streamed && !request->finished && clock_seconds() - request->sent >= PULSE_SECONDS)
        add_pulse(request, n_read, n_prompt);
    pthread_mutex_unlock(&request->lock);
}

void request_finish(struct request *request)
{
    pthread_mutex_lock(&request->lock);
    request->finished = true;
    wake(request);
    pthread_mutex_unlock(&request->lock);
}

void request_send_all(struct request *request, struct buffer *out)
{
    if (out->failed)
        request_fail(request, 503, "out of memory for the answer");
    request_send(request, out);
    request_finish(request);
}

int http_status(yalm_status status)
{
    return status == YALM_USAGE ? 400 : status == YALM_NO_MEMORY ? 503 : 500;
}

// Of a path that leads nowhere, too.
static enum dialect dialect_of(const struct request *request)
{
    if (request->route)
        return request->route->dialect;
    return strncmp(request->path, "/api/", 5) == 0            ? OLLAMA
           : strncmp(request->path, "/v1/messages/", 13) == 0 ? ANTHROPIC
                                                              : OPENAI;
}

static void error_json(struct buffer *out, const struct request *request, int status, const char *text)
{
    const enum dialect dialect = dialect_of(request);
    if (dialect == OLLAMA) {
        json_open(out, NULL, '{');
        json_text(out, "error", text);
        json_close(out, "}");
        return;
    }
    const bool theirs = status < 500; // the client's mistake
    const char *type = status == 401   ? "authentication_error"
                       : status == 404 ? "not_found_error"
                       : status == 503 ? "overloaded_error"
                       : theirs        ? "invalid_request_error"
                                       : (dialect == ANTHROPIC ? "api_error" : "server_error");
    json_open(out, NULL, '{');
    if (dialect == ANTHROPIC)
        json_text(out, "type", "error");
    json_open(out, "error", '{');
    json_text(out, "type", type);
    if (dialect != ANTHROPIC) {
        json_raw(out, "param", "null");
        json_text(out, "code", request->code);
    }
    json_text(out, "message", text);
    json_close(out, "}}");
}

// Takes the bytes of *json.
static bool fail_with(struct request *request, int status, struct buffer *json)
{
    struct buffer out = {0};
    const char *text = json->at ? json->at : "{}";
    if (request->streamed && request->route->dialect == OLLAMA)
        buffer_format(&out, "%s\n", text);
    else if (request->streamed && request->route->dialect == RESPONSES) // the error is the last member of the response
        buffer_format(&out,
                      "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":"
                      "{\"id\":\"%s\",\"object\":\"response\",\"status\":\"failed\",\"output\":[],%s}\n\n",
                      request->id, text + 1);
    else if (request->streamed)
        buffer_format(&out, "%sdata: %s\n\n", request->route->dialect == ANTHROPIC ? "event: error\n" : "", text);
    else {
        pthread_mutex_lock(&request->lock);
        request->status = request->finished ? request->status : status;
        pthread_mutex_unlock(&request->lock);
        buffer_add(&out, json->at, json->length);
    }
    buffer_free(json);
    request_send(request, &out);
    request_finish(request);
    return false;
}

bool request_fail(struct request *request, int status, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct buffer json = {0};
    error_json(&json, request, status, text);
    return fail_with(request, status, &json);
}

bool request_fail_by(struct request *request, const yalm_error *error)
{
    return request_fail(request, http_status(error->status), "%s", error->text);
}

// OpenAI's clients look at the code, those of llama.cpp at the type and the numbers, and some at the words.
bool request_fail_context(struct request *request, const char *about, long long n_prompt, long long context)
{
    if (request->route->dialect == ANTHROPIC || request->route->dialect == OLLAMA)
        return request_fail(request, 400, "prompt is too long: %s%lld tokens > %lld maximum, which is the context", about,
                            n_prompt, context);
    struct buffer json = {0};
    char text[200];
    snprintf(text, sizeof text,
             "the prompt has %s%lld tokens and exceeds the available context size, which is %lld (-T N makes it larger)", about,
             n_prompt, context);
    json_open(&json, NULL, '{');
    json_open(&json, "error", '{');
    json_text(&json, "type", "exceed_context_size_error");
    json_raw(&json, "param", "null");
    json_text(&json, "code", "context_length_exceeded");
    json_integer(&json, "n_prompt_tokens", n_prompt);
    json_integer(&json, "n_ctx", context);
    json_text(&json, "message", text);
    json_close(&json, "}}");
    return fail_with(request, 400, &json);
}

// A client that sends nothing more may still read; but a connection that is half closed looks like one that is closed until
// it is written to, by which a closed one is reset. So it is: with a comment where a stream has begun, which readers pass
// over, else with an interim response, as HTTP/1.1 allows before any other. HTTP/1.0 has no such thing. Its clients count as
// gone, so that nobody computes for minutes for one that is. False: it has gone.
static bool ask(struct request *request, int socket)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n", comment[] = ":\n\n";
    request->asked = true;
    if (request->streamed) {
        buffer_text(&request->out, request->route->dialect == OLLAMA ? " " : comment);
        wake(request);
    } else if (request->interim) {
        return send(socket, interim, strlen(interim), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
    } else {
        request->status = 400;
        error_json(&request->out, request, request->status,
                   "the client has closed its side of the connection before the answer: keep it open, or ask by HTTP/1.1");
        return false;
    }
    return true;
}

bool request_look(struct request *request)
{
    bool gone = false;
    pthread_mutex_lock(&request->lock);
    const union MHD_ConnectionInfo *info = NULL;
    if (request->waiting && !atomic_load(&request->left))
        info = MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info) {
        struct pollfd look = {.fd = info->connect_fd, .events = POLLRDHUP};
        poll(&look, 1, 0);
        gone = look.revents & (POLLERR | POLLHUP | POLLNVAL) ||
               (look.revents & POLLRDHUP && !request->asked && !ask(request, look.fd));
    }
    if (gone) {
        atomic_store(&request->left, true);
        request->finished = true;
        request->waiting = false;
        MHD_resume_connection(request->connection); // so that its thread sees it, too
    }
    pthread_mutex_unlock(&request->lock);
    return gone;
}
