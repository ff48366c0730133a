// See connections.h.
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "serve/connections.h"
#include "serve/request.h"
#include "util/clock.h"

struct seat {
    int socket;
    bool waiting;
    double since;
    struct seat *next, **link; // link: what points here
};

struct connections {
    pthread_mutex_t lock; // held while a socket is ended, so that it is not closed meanwhile, and its number another's
    struct seat *first;
};

struct connections *connections_open(void)
{
    struct connections *connections = calloc(1, sizeof *connections);
    if (connections)
        pthread_mutex_init(&connections->lock, NULL);
    return connections;
}

void connections_close(struct connections *connections)
{
    pthread_mutex_destroy(&connections->lock);
    free(connections);
}

static void add(struct connections *connections, struct MHD_Connection *connection, void **context)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct seat *place = info ? calloc(1, sizeof *place) : NULL;
    *context = place;
    if (place == NULL)
        return;
    *place = (struct seat){.socket = info->connect_fd, .waiting = true, .since = clock_seconds()};
    pthread_mutex_lock(&connections->lock);
    place->next = connections->first;
    place->link = &connections->first;
    if (place->next)
        place->next->link = &place->next;
    connections->first = place;
    pthread_mutex_unlock(&connections->lock);
}

static void drop(struct connections *connections, struct seat *place)
{
    pthread_mutex_lock(&connections->lock);
    *place->link = place->next;
    if (place->next)
        place->next->link = place->link;
    pthread_mutex_unlock(&connections->lock);
    free(place);
}

void connections_notify(void *connections, struct MHD_Connection *connection, void **context,
                        enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        add(connections, connection, context);
    else if (*context)
        drop(connections, *context);
}

void connections_set_waiting(struct connections *connections, struct MHD_Connection *connection, bool waiting)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct seat *place = info ? info->socket_context : NULL;
    if (place == NULL)
        return;
    pthread_mutex_lock(&connections->lock);
    place->waiting = waiting;
    place->since = clock_seconds();
    pthread_mutex_unlock(&connections->lock);
}

void connections_end_waiting(struct connections *connections, double seconds)
{
    const double now = clock_seconds();
    pthread_mutex_lock(&connections->lock);
    for (struct seat *place = connections->first; place; place = place->next)
        if (place->waiting && now - place->since > seconds)
            shutdown(place->socket, SHUT_RDWR);
    pthread_mutex_unlock(&connections->lock);
}
