// See http.h. The threads of libmicrohttpd read requests, tokenize, and hand over to the engine; none of them ever waits for
// it, and what takes long to read has a thread of its own. A connection whose answer is not there yet is suspended, and resumed
// by whoever answers. libmicrohttpd polls all others, so a slow client holds nothing but its connection.
#include "serve/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "serve/body.h"
#include "serve/connections.h"
#include "serve/keys.h"
#include "serve/reading.h"
#include "serve/sites.h"
#include "util/clock.h"
#include "util/error.h"

struct http {
    struct MHD_Daemon *daemon;
    struct server *server;
    int listener; // the daemon's
};

// ---------------------------------------------------------------- whence it comes

static const char *header(const struct request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

// Where keys are needed, the page of any site may ask that has one.
static bool is_foreign(const struct request *request)
{
    const struct serve_options *options = request->server->options;
    return !request->server->keys &&
           site_is_foreign(header(request, "Origin"), header(request, "Host"), options->insecure ? NULL : options->host);
}

// ---------------------------------------------------------------- answers

// Gives the connection what there is; suspends it where that is nothing yet.
static ssize_t read_answer(void *context, uint64_t position, char *buffer, size_t most)
{
    struct request *request = context;
    (void)position;
    pthread_mutex_lock(&request->lock);
    ssize_t n = (ssize_t)(request->out.length - request->taken);
    if (n > (ssize_t)most)
        n = (ssize_t)most;
    if (n > 0) {
        memcpy(buffer, request->out.at + request->taken, (size_t)n);
        request->taken += (size_t)n;
        if (request->taken == request->out.length)
            request->taken = request->out.length = 0;
    } else if (request->finished) {
        n = request->out.failed ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        request->waiting = true;
        MHD_suspend_connection(request->connection);
    }
    pthread_mutex_unlock(&request->lock);
    return n;
}

// Lets the page that asks read the answer, and tells its browser beforehand what it may send.
static void add_permission(struct request *request, struct MHD_Response *response)
{
    const char *origin = header(request, "Origin"), *headers = header(request, "Access-Control-Request-Headers");
    if (origin == NULL || is_foreign(request))
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Vary", "Origin");
    if (!request->preflight)
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    if (headers)
        MHD_add_response_header(response, "Access-Control-Allow-Headers", headers);
    MHD_add_response_header(response, "Access-Control-Max-Age", "600");
}

static enum MHD_Result queue(struct request *request, struct MHD_Response *response)
{
    if (response == NULL)
        return MHD_NO;
    add_permission(request, response);
    MHD_add_response_header(response, "Content-Type", request->type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Content-Security-Policy", // the page talks to nobody else
                            "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
                            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    if (request->warning.length) {
        struct buffer text = {0};
        buffer_format(&text, "299 yalm \"not followed: %s\"", request->warning.at);
        MHD_add_response_header(response, "Warning", text.at ? text.at : "");
        buffer_free(&text);
    }
    if (request->status == 503)
        MHD_add_response_header(response, "Retry-After", "1");
    if (request->status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (request->status == 405 || request->preflight)
        MHD_add_response_header(response, "Allow", request->route ? request->route->method : "GET, POST");
    request->answered = true;
    const enum MHD_Result queued = MHD_queue_response(request->connection, (unsigned)request->status, response);
    MHD_destroy_response(response);
    return queued;
}

// Called again and again until there is an answer. A connection that is suspended by the very call that brought the request's
// end is read from when it is resumed, and closed if the client has closed its sending side (libmicrohttpd 0.9.75); one that
// is suspended by the next call is not.
static enum MHD_Result answer(struct request *request)
{
    pthread_mutex_lock(&request->lock);
    const bool ready = (request->goes_out && request->streamed) || request->finished, again = request->called;
    request->called = true;
    if (!ready && again) {
        request->waiting = true;
        MHD_suspend_connection(request->connection);
    }
    pthread_mutex_unlock(&request->lock);
    if (!ready)
        return MHD_YES;
    if (request->streamed)
        return queue(request, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, read_answer, request, NULL));
    if (request->out.failed)
        return MHD_NO;
    return queue(request, MHD_create_response_from_buffer(request->out.length, request->out.at, MHD_RESPMEM_PERSISTENT));
}

// ---------------------------------------------------------------- requests

static bool is_path(const char *route, const char *path)
{
    const size_t length = strlen(route);
    const bool folder = length > 1 && route[length - 1] == '/'; // with anything in it
    return folder ? strncmp(route, path, length) == 0 : strcmp(route, path) == 0;
}

// Some clients leave the version out: /chat/completions.
static bool leads_to(const char *path, const struct route *route)
{
    return is_path(route->path, path) || (strncmp(route->path, "/v1/", 4) == 0 && is_path(route->path + 3, path));
}

static const struct route *find_route(const char *path, const char *method, bool *path_known)
{
    if (strcmp(method, "HEAD") == 0)
        method = "GET";
    const struct route *found = NULL;
    *path_known = false;
    for (int i = 0; i < n_routes; i++)
        if (leads_to(path, &routes[i])) {
            *path_known = true;
            if (found == NULL || strcmp(routes[i].method, method) == 0)
                found = &routes[i];
        }
    return found;
}

static bool has_key(const struct request *request)
{
    const char *bearer = header(request, "Authorization"), *key = header(request, "x-api-key");
    if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0 && keys_hold(request->server->keys, bearer + 7))
        return true;
    return key && keys_hold(request->server->keys, key);
}

static bool is_preflight(const char *method)
{
    return strcmp(method, "OPTIONS") == 0;
}

struct found {
    int n_hosts;
    bool strange; // a name that is none
};

static enum MHD_Result look_at_header(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct found *found = context;
    (void)kind, (void)value;
    found->n_hosts += strcasecmp(name, "Host") == 0;
    found->strange |= *name == '\0' || name[strcspn(name, " \t\r\n")] != '\0';
    return MHD_YES;
}

// What HTTP/1.1 wants of a request (RFC 9112). False where it has been refused; what a body of an unknown coding is, nobody
// knows.
static bool check_form(struct request *request)
{
    struct found found = {0};
    const char *coding = header(request, "Transfer-Encoding");
    MHD_get_connection_values(request->connection, MHD_HEADER_KIND, look_at_header, &found);
    if (found.n_hosts > 1 || (found.n_hosts == 0 && request->interim))
        return request_fail(request, 400, "expected one Host header, found %d", found.n_hosts);
    if (found.strange)
        return request_fail(request, 400, "a header's name is empty, or has a blank in it");
    if (coding && strcasecmp(coding, "chunked") != 0)
        return request_fail(request, 501, "Transfer-Encoding: expected chunked, found %.40s", coding);
    return true;
}

// A path that holds a NUL keeps it spelled, and leads nowhere.
static size_t unescape(void *context, struct MHD_Connection *connection, char *text)
{
    (void)context, (void)connection;
    return strstr(text, "%00") ? strlen(text) : MHD_http_unescape(text);
}

// What can be said before the body is there.
static void check_header(struct request *request, const char *path, const char *method, bool path_known)
{
    const char *length = header(request, "Content-Length");
    if (!path_known)
        request_fail(request, 404, "there is nothing at %.100s: OpenAI's API is at /v1, Anthropic's at /v1/messages", path);
    else if (is_foreign(request))
        request_fail(request, 403,
                     "requests from the pages of other sites, or to another name than localhost, need a key (--api-key-file)");
    else if (is_preflight(method)) { // whether it may ask, a page's browser asks without a key
        request->preflight = true;
        request_finish(request);
    } else if (strcmp(request->route->method, strcmp(method, "HEAD") ? method : "GET") != 0)
        request_fail(request, 405, "%.100s takes %s, found %.20s", path, request->route->method, method);
    else if (request->server->keys && !request->route->open && !has_key(request))
        request_fail(request, 401, "a key is needed: 'Authorization: Bearer KEY' or 'x-api-key: KEY'");
    else if (length && strtoull(length, NULL, 10) > BODY_MAX)
        request_fail(request, 413, "the body has %.20s bytes, and at most %d are read", length, BODY_MAX);
}

// False: the connection is closed without an answer.
static bool receive(struct request *request, const char *data, size_t length)
{
    if (clock_seconds() - request->began > HTTP_BODY_SECONDS)
        return false;
    if (request->finished) // refused: nobody will read it
        return (request->taken += length) <= 4 * (size_t)BODY_MAX;
    if (request->body.length + length > BODY_MAX)
        request_fail(request, 413, "the body is longer than the %d bytes that are read", BODY_MAX);
    else
        buffer_add(&request->body, data, length);
    return true;
}

static void handle(struct request *request)
{
    const struct route *route = request->route;
    const bool has_body = strcmp(route->method, "POST") == 0 && (request->body.length || route->place != AT_ONCE);
    if (request->body.failed)
        request_fail(request, 503, "out of memory for the body");
    else if (has_body && !body_parse(request))
        return;
    else if (route->place == AT_ONCE)
        route->handle(request);
    else if (route->place == BY_FORM)
        reading_handle(request->server->reading, request);
    else
        reading_queue(request->server->embedding, request);
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *path, const char *method,
                                  const char *version, const char *data, size_t *length, void **kept)
{
    struct request *request = *kept;
    if (request == NULL) {
        bool path_known;
        const struct route *route = find_route(path, method, &path_known);
        *kept = request = request_new(context, route, path, connection);
        if (request == NULL)
            return MHD_NO;
        request->interim = strcmp(version, MHD_HTTP_VERSION_1_1) == 0;
        atomic_fetch_add(&request->server->n_open, 1);
        connections_set_waiting(request->server->connections, connection, false);
        if (!check_form(request))
            return answer(request);
        check_header(request, path, method, path_known);
        return MHD_YES; // the answer comes after the body, since many clients read none before
    }
    if (*length) {
        const bool go_on = receive(request, data, *length);
        *length = 0;
        return go_on ? MHD_YES : MHD_NO;
    }
    if (request->answered)
        return MHD_YES;
    if (!request->handled) {
        request->handled = true;
        if (!request->finished)
            handle(request);
    }
    return answer(request);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **kept, enum MHD_RequestTerminationCode why)
{
    struct request *request = *kept;
    (void)context, (void)why;
    if (request == NULL)
        return;
    connections_set_waiting(request->server->connections, connection, true);
    pthread_mutex_lock(&request->lock);
    atomic_store(&request->left, true);
    request->waiting = false;
    pthread_mutex_unlock(&request->lock);
    atomic_fetch_sub(&request->server->n_open, 1);
    request_release(request);
    *kept = NULL;
}

// ---------------------------------------------------------------- listening

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static yalm_status set_error(yalm_error *error, yalm_status status, const struct serve_options *options, const char *text)
{
    return error_set(error, status, "%s, port %d: %s", options->host, options->port, text);
}

static yalm_status bind_socket(const struct addrinfo *found, const struct serve_options *options, int *listener,
                               yalm_error *error)
{
    if (!is_loopback(found->ai_addr) && options->key_file == NULL && !options->insecure)
        return set_error(error, YALM_USAGE, options,
                         "other machines could use the model: --api-key-file FILE asks them for a key, --insecure lets them");
    const int on = 1;
    *listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*listener >= 0 && setsockopt(*listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(*listener, found->ai_addr, found->ai_addrlen) == 0 && listen(*listener, 128) == 0)
        return YALM_OK;
    set_error(error, YALM_FAILED, options, strerror(errno));
    if (*listener >= 0)
        close(*listener);
    return YALM_FAILED;
}

static yalm_status open_listener(const struct serve_options *options, int *listener, yalm_error *error)
{
    char port[16];
    snprintf(port, sizeof port, "%d", options->port);
    struct addrinfo *found = NULL;
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    const int failed = getaddrinfo(options->host, port, &wanted, &found);
    if (failed)
        return set_error(error, YALM_USAGE, options, gai_strerror(failed));
    const yalm_status status = bind_socket(found, options, listener, error);
    freeaddrinfo(found);
    return status;
}

static int port_of(int listener)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    if (getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

static void be_quiet(void *context, const char *format, va_list args)
{
    (void)context, (void)format, (void)args;
}

struct http *http_open(struct server *server, int *port, yalm_error *error)
{
    int listener = -1;
    if (open_listener(server->options, &listener, error) != YALM_OK)
        return NULL;
    struct http *http = calloc(1, sizeof *http);
    server->connections = connections_open();
    *port = port_of(listener);
    if (http && server->connections) {
        http->server = server;
        http->listener = listener;
        http->daemon =
            MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, server, //
                             MHD_OPTION_EXTERNAL_LOGGER, be_quiet, NULL, MHD_OPTION_LISTEN_SOCKET, listener,              //
                             MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, connections_notify,
                             server->connections, MHD_OPTION_THREAD_POOL_SIZE, 2u, //
                             MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                             (unsigned)HTTP_TIMEOUT, MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,
                             MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_HEADER_BYTES, MHD_OPTION_END);
    }
    if (http && http->daemon)
        return http;
    set_error(error, YALM_FAILED, server->options, "the HTTP server does not start");
    close(listener);
    if (server->connections)
        connections_close(server->connections);
    free(http);
    return NULL;
}

void http_tidy(struct http *http)
{
    connections_end_waiting(http->server->connections, HTTP_HEADER_SECONDS);
}

// Not by MHD_quiesce_daemon(): it and the daemon's threads both take the socket out of these threads' epoll sets, and to who
// comes second that is fatal. A socket that does not listen takes the number instead, and the other one leaves all sets.
void http_stop_accepting(struct http *http)
{
    const int deaf = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (deaf < 0 || dup2(deaf, http->listener) < 0)
        shutdown(http->listener, SHUT_RDWR); // refuses as well, but wakes the threads again and again
    if (deaf >= 0)
        close(deaf);
}

void http_close(struct http *http)
{
    if (http == NULL)
        return;
    // Answers that are there still have to go out.
    for (int i = 0; i < 200 && atomic_load(&http->server->n_open) > 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    MHD_stop_daemon(http->daemon);
    connections_close(http->server->connections);
    free(http);
}
