// Connections that wait for a request's header. libmicrohttpd ends those that send nothing for a while; one that sends a byte
// now and then would keep its place for ever, and there is only so much room.
#pragma once
#include <microhttpd.h>
#include <stdbool.h>

struct connections;

struct connections *connections_open(void); // NULL where memory ran out
void connections_close(struct connections *connections);

// For MHD_OPTION_NOTIFY_CONNECTION.
void connections_notify(void *connections, struct MHD_Connection *connection, void **context,
                        enum MHD_ConnectionNotificationCode code);
// A request's header is there, or its answer is out.
void connections_set_waiting(struct connections *connections, struct MHD_Connection *connection, bool waiting);
// Ends those that have been waiting for longer.
void connections_end_waiting(struct connections *connections, double seconds);
