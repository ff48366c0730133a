// See folders.h.
#include "cli/folders.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool user_folder(char *path, size_t room, const char *variable, const char *usual)
{
    const char *named = getenv(variable), *home = getenv("HOME");
    int n = -1;
    if (named && *named == '/') // a relative one is to be ignored, says the specification
        n = snprintf(path, room, "%s/yalm", named);
    else if (home && *home == '/')
        n = snprintf(path, room, "%s/%s/yalm", home, usual);
    return n > 0 && (size_t)n < room;
}

bool make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = 0;
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return false;
        if (slash == NULL)
            return true;
        *slash = '/';
    }
}
