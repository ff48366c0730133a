// See reading.h.
#include "serve/reading.h"

#include <pthread.h>
#include <stdlib.h>

#include "serve/engine.h"
#include "serve/request.h"
#include "serve/server.h"

struct request_reader {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct request *first, **last; // those that wait
    int n;
    struct request *now; // that is under way; NULL
    bool closing;
};

// Who has gone is not read for. That shows at the second look, where a client may only have ended its sending side.
static void look_at_all(const struct request_reader *reading)
{
    for (struct request *request = reading->first; request; request = request->next)
        request_look(request);
}

static void *read_all(void *context)
{
    struct request_reader *reading = context;
    pthread_mutex_lock(&reading->lock);
    for (;;) {
        while (reading->first == NULL && !reading->closing)
            pthread_cond_wait(&reading->wake, &reading->lock);
        struct request *request = reading->first;
        if (request == NULL)
            break;
        look_at_all(reading);
        reading->n--;
        if ((reading->first = request->next) == NULL)
            reading->last = &reading->first;
        const bool closing = reading->closing;
        reading->now = request;
        pthread_mutex_unlock(&reading->lock);
        if (closing)
            request_fail(request, 503, "the server is ending");
        else if (!atomic_load(&request->left))
            request->route->handle(request);
        pthread_mutex_lock(&reading->lock);
        reading->now = NULL;
        request_release(request);
    }
    pthread_mutex_unlock(&reading->lock);
    return NULL;
}

struct request_reader *reading_open(void)
{
    struct request_reader *reading = calloc(1, sizeof *reading);
    if (reading == NULL)
        return NULL;
    pthread_mutex_init(&reading->lock, NULL);
    pthread_cond_init(&reading->wake, NULL);
    reading->last = &reading->first;
    if (pthread_create(&reading->thread, NULL, read_all, reading) == 0)
        return reading;
    free(reading);
    return NULL;
}

void reading_stop(struct request_reader *reading)
{
    if (reading == NULL)
        return;
    pthread_mutex_lock(&reading->lock);
    reading->closing = true;
    pthread_cond_signal(&reading->wake);
    pthread_mutex_unlock(&reading->lock);
    pthread_join(reading->thread, NULL);
}

void reading_close(struct request_reader *reading)
{
    if (reading == NULL)
        return;
    pthread_cond_destroy(&reading->wake);
    pthread_mutex_destroy(&reading->lock);
    free(reading);
}

bool reading_rests(struct request_reader *reading)
{
    pthread_mutex_lock(&reading->lock);
    const bool rests = reading->first == NULL && reading->now == NULL;
    pthread_mutex_unlock(&reading->lock);
    return rests;
}

bool reading_look(struct request_reader *reading)
{
    pthread_mutex_lock(&reading->lock);
    look_at_all(reading);
    if (reading->now)
        request_look(reading->now);
    const bool left = reading->now && atomic_load(&reading->now->left);
    pthread_mutex_unlock(&reading->lock);
    return left;
}

static bool takes_long(const cJSON *body)
{
    for (const char *const *form = (const char *const[]){"response_format", "json_schema", "grammar", "format", "text",
                                                         "output_config", "tools", NULL};
         *form; form++)
        if (cJSON_GetObjectItemCaseSensitive(body, *form))
            return true;
    return false;
}

void reading_handle(struct request_reader *reading, struct request *request)
{
    if (takes_long(request->json))
        reading_queue(reading, request);
    else
        request->route->handle(request);
}

void reading_queue(struct request_reader *reading, struct request *request)
{
    const int most = engine_n_slots(request->server->engine) + request->server->options->queue;
    request->next = NULL;
    pthread_mutex_lock(&reading->lock);
    const bool closed = reading->closing, full = reading->n >= most;
    if (!closed && !full) {
        request_keep(request);
        reading->n++;
        *reading->last = request;
        reading->last = &request->next;
        pthread_cond_signal(&reading->wake);
    }
    pthread_mutex_unlock(&reading->lock);
    if (closed)
        request_fail(request, 503, "the server is ending");
    else if (full)
        request_fail(request, 503, "%d requests with %s are waiting already; please try again later", most,
                     request->route->place == VECTORS ? "texts" : "schemas, grammars, tools or slots");
}
