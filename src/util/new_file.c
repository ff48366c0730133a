#include "util/new_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/error.h"

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

yalm_status new_file_create(struct new_file *file, const char *path, new_file_kind *replaceable, const char *what,
                            yalm_error *error)
{
    *file = (struct new_file){.path = path};
    const yalm_status status = check_replaceable(path, replaceable, what, error);
    if (status != YALM_OK)
        return status;
    if (asprintf(&file->temporary, "%s.%ld.tmp", path, (long)getpid()) < 0) {
        file->temporary = NULL;
        return error_set(error, YALM_NO_MEMORY, "%s: no memory", path);
    }
    file->file = fopen(file->temporary, "wbx");
    if (file->file)
        return YALM_OK;
    const int code = errno;
    free(file->temporary);
    file->temporary = NULL;
    return error_set(error, YALM_FAILED, "%s: %s", path, strerror(code));
}

yalm_status new_file_finish(struct new_file *file, yalm_status status, yalm_error *error)
{
    bool failed = false;
    int code = 0;
    if (file->file && fclose(file->file) != 0) {
        failed = true;
        code = errno;
    }
    if (file->temporary && status == YALM_OK && !failed && rename(file->temporary, file->path) != 0) {
        failed = true;
        code = errno;
    }
    if (file->temporary && (failed || status != YALM_OK))
        unlink(file->temporary);
    free(file->temporary);
    const char *path = file->path;
    *file = (struct new_file){0};
    return failed && status == YALM_OK ? error_set(error, YALM_FAILED, "%s: %s", path, strerror(code)) : status;
}
