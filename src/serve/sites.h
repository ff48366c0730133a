// Web pages that may send requests here. A browser sends them for any page that its reader opens; a stranger's page must not
// use the model, nor read what it says to others.
#pragma once
#include <stdbool.h>

// True where a page that came from elsewhere may have sent the request.
// origin: scheme, host and port of the page, as the browser states them. NULL: no page, or the one from here.
// host: the name and port by which the client knows this server, or NULL.
// own: the name that the server was told to listen on. NULL: any name will do.
bool site_is_foreign(const char *origin, const char *host, const char *own);
