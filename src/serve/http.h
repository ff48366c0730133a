// HTTP: connections, their limits, keys, and the way of a request to its route.
#pragma once
#include "serve/server.h"

struct http;

enum {
    HTTP_CONNECTIONS = 512,
    HTTP_TIMEOUT = 30,
    HTTP_HEADER_SECONDS = 60,
    HTTP_BODY_SECONDS = 120,
    HTTP_HEADER_BYTES = 32 << 10
};

// Listens. NULL on failure. *port is the one it got.
struct http *http_open(struct server *server, int *port, yalm_error *error);
// Now and then: ends connections that are too slow with their header.
void http_tidy(struct http *http);
void http_stop_accepting(struct http *http);
void http_close(struct http *http); // once no request is in the engine any more
