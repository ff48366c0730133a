#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/error.h"
#include "util/memory.h"

static yalm_status map_file(struct mapping *mapping, int fd, yalm_error *error)
{
    void *data = mmap(NULL, mapping->size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return error_set(error, YALM_FAILED, "%s: cannot map: %s", mapping->path, strerror(errno));
    // A hint: pages that are not in the page cache yet should be read and mapped in pieces of 2 MiB, where the file system can.
    madvise(data, mapping->size, MADV_HUGEPAGE);
    mapping->data = data;
    return YALM_OK;
}

static yalm_status read_all(uint8_t *to, const struct mapping *mapping, int fd, yalm_error *error)
{
    for (uint64_t done = 0; done < mapping->size;) {
        const ssize_t n = pread(fd, to + done, mapping->size - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_set(error, YALM_FAILED, "%s: cannot read at byte %llu: %s", mapping->path, (unsigned long long)done,
                             n < 0 ? strerror(errno) : "the file became shorter");
        done += (uint64_t)n;
    }
    return YALM_OK;
}

static yalm_status copy_file(struct mapping *mapping, int fd, yalm_error *error)
{
    const uint64_t available = memory_available();
    if (available < mapping->size)
        return error_set(error, YALM_NO_MEMORY,
                         "%s: not enough memory for a copy in huge pages: %.2f GB are needed, %.2f GB are available",
                         mapping->path, (double)mapping->size / 1e9, (double)available / 1e9);
    const char *why = "";
    uint8_t *copy = memory_huge_pages(mapping->size, &mapping->copied, &why);
    if (!copy)
        return error_set(error, YALM_FAILED, "%s: no huge pages for a copy of %.2f GB: %s", mapping->path,
                         (double)mapping->size / 1e9, why);
    mapping->data = copy;
    const yalm_status status = read_all(copy, mapping, fd, error);
    mprotect(copy, mapping->copied, PROT_READ); // as the file's own pages would be
    return status;
}

yalm_status mapping_open(struct mapping *mapping, const char *path, bool huge_pages, yalm_error *error)
{
    *mapping = (struct mapping){.path = path};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe is refused, not waited for
    if (fd < 0)
        return error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno));
    struct stat info;
    yalm_status status = YALM_OK;
    if (fstat(fd, &info) < 0)
        status = error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(info.st_mode))
        status = error_set(error, YALM_FAILED, "%s: a directory; make a model file of it first: tools/convert.py %s model.bin",
                           path, path);
    else if (!S_ISREG(info.st_mode))
        status = error_set(error, YALM_FAILED, "%s: not a regular file", path);
    else if (info.st_size == 0)
        status = error_set(error, YALM_BAD_MODEL, "%s: the file is empty", path);
    else {
        mapping->size = (uint64_t)info.st_size;
        status = huge_pages ? copy_file(mapping, fd, error) : map_file(mapping, fd, error);
    }
    close(fd);
    if (status != YALM_OK)
        mapping_close(mapping);
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
        munmap((void *)mapping->data, mapping->copied ? mapping->copied : mapping->size);
    *mapping = (struct mapping){0};
}

FILE *file_open_at_once(const char *path, const char *mode)
{
    const int how = *mode == 'w' ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
    const int fd = open(path, how | O_CLOEXEC | O_NONBLOCK, 0666);
    FILE *file = fd >= 0 && fcntl(fd, F_SETFL, 0) == 0 ? fdopen(fd, mode) : NULL;
    if (file == NULL && fd >= 0) {
        const int code = errno;
        close(fd);
        errno = code;
    }
    return file;
}
