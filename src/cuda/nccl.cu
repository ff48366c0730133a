#include "cuda/nccl.h"

#include <dlfcn.h>
#include <pthread.h>

enum { LEAST_VERSION = 21400 }; // 2.14

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl opened;
static bool is_open;

template <typename F> static void find(void *library, const char *name, F *&function, const char **missing)
{
    function = reinterpret_cast<F *>(dlsym(library, name));
    if (!function)
        *missing = name;
}

// The first that is missing, or NULL.
static const char *find_all(void *library, struct nccl *n)
{
    const char *missing = NULL;
    find(library, "ncclGetVersion", n->get_version, &missing);
    find(library, "ncclGetUniqueId", n->get_unique_id, &missing);
    find(library, "ncclCommInitRank", n->comm_init_rank, &missing);
    find(library, "ncclCommAbort", n->comm_abort, &missing);
    find(library, "ncclCommGetAsyncError", n->comm_get_async_error, &missing);
    find(library, "ncclAllReduce", n->all_reduce, &missing);
    find(library, "ncclSend", n->send, &missing);
    find(library, "ncclRecv", n->recv, &missing);
    find(library, "ncclGroupStart", n->group_start, &missing);
    find(library, "ncclGroupEnd", n->group_end, &missing);
    find(library, "ncclGetErrorString", n->get_error_string, &missing);
    find(library, "ncclGetLastError", n->get_last_error, &missing);
    return missing;
}

static yalm_status open_once(yalm_error *error)
{
    const char *named = getenv("YALM_NCCL_LIBRARY"), *name = named ? named : "libnccl.so.2";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return error_set(error, YALM_FAILED,
                         "device cuda: several ranks need NCCL, and the loader finds no %s (the package libnccl2 has it; "
                         "YALM_NCCL_LIBRARY names another)",
                         name);
    struct nccl found = {};
    const char *missing = find_all(library, &found);
    int version = 0;
    if (found.get_version)
        found.get_version(&version);
    if (missing || version < LEAST_VERSION)
        return error_set(error, YALM_FAILED, "device cuda: %s is of NCCL %d.%d, 2.14 or later is needed", name, version / 10000,
                         version % 10000 / 100);
    opened = found;
    is_open = true;
    return YALM_OK;
}

const struct nccl *nccl_open(yalm_error *error)
{
    pthread_mutex_lock(&lock);
    const yalm_status status = is_open ? YALM_OK : open_once(error);
    pthread_mutex_unlock(&lock);
    return status == YALM_OK ? &opened : NULL;
}

yalm_status nccl_check(const struct nccl *nccl, int result, const char *call, nccl_comm comm, yalm_error *error)
{
    if (result == NCCL_SUCCESS)
        return YALM_OK;
    const char *more = nccl->get_last_error(comm);
    return error_set(error, YALM_FAILED, "NCCL: %s: %s%s%.200s%s", call, nccl->get_error_string(result),
                     more && *more ? ": " : "", more ? more : "",
                     result == NCCL_INVALID_USAGE ? "; has each rank a GPU of its own?" : "");
}
