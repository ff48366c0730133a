#include "util/new_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/error.h"
#include "util/file.h"

static yalm_status check_replaceable(const char *path, new_file_kind *replaceable, const char *what, yalm_error *error)
{
    struct stat found;
    if (stat(path, &found) != 0 || (S_ISREG(found.st_mode) && found.st_size == 0))
        return YALM_OK;
    if (!S_ISREG(found.st_mode))
        return error_set(error, YALM_FAILED, "%s: not a regular file", path);
    FILE *file = fopen(path, "rb");
    const bool may = file && replaceable(file);
    if (file)
        fclose(file);
    return may ? YALM_OK : error_set(error, YALM_FAILED, "%s: found a file that holds no %s; it is not replaced", path, what);
}

yalm_status new_file_create(struct new_file *made, const char *path, new_file_kind *replaceable, const char *what,
                            yalm_error *error)
{
    struct stat found;
    *made = (struct new_file){.path = path};
    if (!replaceable && stat(path, &found) == 0 && !S_ISREG(found.st_mode)) {
        made->file = file_open_at_once(path, "w");
        if (!made->file && errno == ENXIO)
            return error_set(error, YALM_FAILED, "%s: a pipe that nobody reads: start its reader first, or name a file", path);
        return made->file ? YALM_OK : error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno));
    }
    const yalm_status status = replaceable ? check_replaceable(path, replaceable, what, error) : YALM_OK;
    if (status != YALM_OK)
        return status;
    if (asprintf(&made->temporary, "%s.%ld.tmp", path, (long)getpid()) < 0) {
        made->temporary = NULL;
        return error_set(error, YALM_NO_MEMORY, "%s: no memory", path);
    }
    made->file = fopen(made->temporary, "wbx");
    if (made->file)
        return YALM_OK;
    const int code = errno;
    free(made->temporary);
    made->temporary = NULL;
    return error_set(error, YALM_FAILED, "%s: %s", path, strerror(code));
}

yalm_status new_file_finish(struct new_file *made, yalm_status status, yalm_error *error)
{
    bool failed = false;
    int code = 0;
    if (made->file && fclose(made->file) != 0) {
        failed = true;
        code = errno;
    }
    if (made->temporary && status == YALM_OK && !failed && rename(made->temporary, made->path) != 0) {
        failed = true;
        code = errno;
    }
    if (made->temporary && (failed || status != YALM_OK))
        unlink(made->temporary);
    free(made->temporary);
    const char *path = made->path;
    *made = (struct new_file){0};
    return failed && status == YALM_OK ? error_set(error, YALM_FAILED, "%s: %s", path, strerror(code)) : status;
}
