// See history.h. In the file "\n" stands for a line's end within a message, and "\\" for a backslash.
#include "cli/history.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/folders.h"

enum { MOST = 2000, KEPT = 1000 }; // messages
enum { LONGEST = 64 << 10 };       // bytes: an editor of lines takes seconds for more

static bool path_of(char *path, size_t room, bool make)
{
    char folder[PATH_MAX];
    if (!user_folder(folder, sizeof folder, "XDG_STATE_HOME", ".local/state")) {
        errno = ENOENT;
        return false;
    }
    if (make && !make_folders(folder))
        return false;
    return snprintf(path, room, "%s/history", folder) > 0;
}

// NULL, too, where something else than a file stands there, which might never end.
static FILE *open_file(const char *path, int how, const char *mode)
{
    struct stat facts;
    const int file = open(path, how | O_CLOEXEC | O_NONBLOCK, 0600);
    if (file >= 0 && fstat(file, &facts) == 0 && S_ISREG(facts.st_mode))
        return fdopen(file, mode);
    if (file >= 0) {
        close(file);
        errno = ENOTSUP;
    }
    return NULL;
}

// The newest messages alone, under another name until they are whole.
static void shorten(FILE *file, const char *path, int n)
{
    char fresh[PATH_MAX + 48], *line = NULL;
    size_t room = 0;
    ssize_t length;
    snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid());
    FILE *to = fopen(fresh, "w");
    rewind(file);
    for (int i = 0; to && (length = getline(&line, &room, file)) > 0; i++)
        if (i >= n - KEPT)
            fwrite(line, 1, (size_t)length, to);
    if (to && (chmod(fresh, 0600) != 0 || fclose(to) != 0 || rename(fresh, path) != 0))
        unlink(fresh);
    free(line);
}

void history_read(void (*each)(void *context, const char *message), void *context)
{
    char path[PATH_MAX + 16], *line = NULL;
    size_t room = 0;
    int n = 0;
    FILE *file = path_of(path, sizeof path, false) ? open_file(path, O_RDONLY, "r") : NULL;
    for (; file && getline(&line, &room, file) > 0; n++) {
        char *to = line;
        for (const char *at = line; *at && *at != '\n'; at++)
            *to++ = *at != '\\' || at[1] == 0 ? *at : *++at == 'n' ? '\n' : *at;
        *to = 0;
        if (to - line <= LONGEST)
            each(context, line);
    }
    if (n > MOST)
        shorten(file, path, n);
    if (file)
        fclose(file);
    free(line);
}

bool history_add(const char *message)
{
    char path[PATH_MAX + 16], *line = malloc(2 * strlen(message) + 2), *to = line;
    FILE *file = line && path_of(path, sizeof path, true) ? open_file(path, O_WRONLY | O_APPEND | O_CREAT, "a") : NULL;
    if (file == NULL) {
        free(line);
        return false;
    }
    for (const char *at = message; *at; at++) {
        if (*at == '\n' || *at == '\\')
            *to++ = '\\';
        *to++ = *at == '\n' ? 'n' : *at;
    }
    *to++ = '\n';
    const bool private = fchmod(fileno(file), 0600) == 0;
    const bool written = fwrite(line, 1, (size_t)(to - line), file) == (size_t)(to - line); // by one write(): two may append
    free(line);
    return fclose(file) == 0 && written && private;
}
