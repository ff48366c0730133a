// See sites.h.
#include "serve/sites.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_LENGTH = 255 };

// The name in "name:port" or "[address]:port". False where it is longer than names are.
static bool read_name(const char *host, char name[NAME_MAX_LENGTH + 1])
{
    const bool bracketed = *host == '[';
    host += bracketed;
    const size_t length = strcspn(host, bracketed ? "]" : ":");
    if (length > NAME_MAX_LENGTH)
        return false;
    memcpy(name, host, length);
    name[length] = '\0';
    return true;
}

// Names that lead to this machine whatever a name server says.
static bool is_local_name(const char *name)
{
    static const char local[] = "localhost";
    const size_t length = strlen(name), n = sizeof local - 1;
    return length >= n && strcasecmp(name + length - n, local) == 0 && (length == n || name[length - n - 1] == '.');
}

static bool is_address(const char *name)
{
    struct in6_addr address;
    return inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1;
}

static bool is_local_address(const char *name)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, name, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, name, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

bool site_is_foreign(const char *origin, const char *host, const char *own)
{
    char name[NAME_MAX_LENGTH + 1];
    // Whoever owns a name can have it lead to this machine. To the browser a page of that name is then a page from here.
    if (host && own && (!read_name(host, name) || !(is_local_name(name) || is_address(name) || strcasecmp(name, own) == 0)))
        return true;
    if (origin == NULL)
        return false;
    const char *at = strstr(origin, "://");
    if (at == NULL)
        return true;
    if (host && strcasecmp(at + 3, host) == 0)
        return false;
    // What another program of this machine shows may ask: that program could, too.
    return !read_name(at + 3, name) || !(is_local_name(name) || is_local_address(name));
}
