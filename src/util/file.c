#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/error.h"

yalm_status mapping_open(struct mapping *mapping, const char *path, yalm_error *error)
{
    *mapping = (struct mapping){.path = path};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno));
    struct stat info;
    yalm_status status = YALM_OK;
    if (fstat(fd, &info) < 0)
        status = error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = error_set(error, YALM_FAILED, "%s: not a regular file", path);
    else if (info.st_size == 0)
        status = error_set(error, YALM_BAD_MODEL, "%s: the file is empty", path);
    else {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED)
            status = error_set(error, YALM_FAILED, "%s: cannot map: %s", path, strerror(errno));
        else {
            mapping->data = data;
            mapping->size = (uint64_t)info.st_size;
        }
    }
    close(fd);
    return status;
}

yalm_status mapping_lock(const struct mapping *mapping, yalm_error *error)
{
    if (mlock(mapping->data, mapping->size) == 0)
        return YALM_OK;
    return error_set(error, YALM_FAILED, "%s: cannot lock %.2f GB in memory: %s (`ulimit -l` shows how much is allowed)",
                     mapping->path, (double)mapping->size / 1e9, strerror(errno));
}

void mapping_close(struct mapping *mapping)
{
    if (mapping->data)
        munmap((void *)mapping->data, mapping->size);
    *mapping = (struct mapping){0};
}
