// The CUDA half is a shared object of its own, opened when a session wants it: a program that has this file in it starts on machines
// that have neither a GPU nor a driver, and one build of the library serves both devices.
//
// libyalm-cuda.so is looked for beside the file that this code is in (the program, or libyalm.so), in ../lib from there, and where the
// loader looks; the environment's YALM_CUDA_LIBRARY names another. It must be of the same version and commit, since both halves share
// structures. It is not looked for where no driver is, unless it was named: with cuBLAS it is hundreds of megabytes to load.

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/backend.h"
#include "util/error.h"

static const char *const library = "libyalm-cuda.so";

// The folder of the file that this code is in, without a slash at its end; false where that is not known.
static bool own_folder(char folder[PATH_MAX])
{
    Dl_info info;
    // A program's name there is what it was started as, which need not be a path.
    const bool found = dladdr(&library, &info) && info.dli_fname && strstr(info.dli_fname, ".so");
    if (!realpath(found ? info.dli_fname : "/proc/self/exe", folder))
        return false;
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    return slash != NULL;
}

// RTLD_NODELETE: the driver keeps threads and handlers of the library's, so that it must never be unmapped. Which is also why nobody
// needs to keep the handle.
static void *open_library(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

// The library that a GPU's driver installs, and that the CUDA half would open. The emulated GPU has none.
static bool has_driver(void)
{
#ifdef YALM_EMULATED_GPU
    return true;
#else
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (driver)
        dlclose(driver);
    return driver != NULL;
#endif
}

// *unfit: there is one, but it cannot be loaded.
static void *find_library(bool *unfit, yalm_error *error)
{
    const char *named = getenv("YALM_CUDA_LIBRARY");
    if (named) {
        void *handle = open_library(named);
        *unfit = handle == NULL;
        if (!handle)
            error_set(error, YALM_FAILED, "device cuda: YALM_CUDA_LIBRARY cannot be loaded: %s", dlerror());
        return handle;
    }
    if (!has_driver()) {
        error_set(error, YALM_FAILED, "device cuda: no NVIDIA driver is installed (the loader finds no libcuda.so.1)");
        return NULL;
    }
    char folder[PATH_MAX], path[PATH_MAX + 32];
    static const char *const beside[] = {"", "/../lib"};
    for (int i = 0; i < 2 && own_folder(folder); i++) {
        snprintf(path, sizeof path, "%s%s/%s", folder, beside[i], library);
        if (access(path, R_OK) != 0)
            continue;
        void *handle = open_library(path);
        *unfit = handle == NULL;
        if (!handle)
            error_set(error, YALM_FAILED, "device cuda: the CUDA half cannot be loaded: %s", dlerror());
        return handle;
    }
    void *handle = open_library(library);
    if (!handle)
        error_set(
            error, YALM_FAILED,
            "device cuda: %s was found neither beside this program nor on the loader's path (`make cuda` builds it where the "
            "CUDA toolkit is installed)",
            library);
    return handle;
}

// "0.1.0 (commit 1a2b3c4": what must be the same in both halves.
static int release_length(const char *version)
{
    return (int)strcspn(version, ",");
}

static bool same_release(const char *ours, const char *theirs)
{
    const int n = release_length(ours);
    return n == release_length(theirs) && memcmp(ours, theirs, (size_t)n) == 0;
}

const struct backend *cuda_open(bool *unfit, yalm_error *error)
{
    *unfit = false;
    void *handle = find_library(unfit, error);
    if (!handle)
        return NULL;
    const char *(*version)(void) = NULL;
    const struct backend *(*open)(yalm_error *) = NULL;
    *(void **)&version = dlsym(handle, "yalm_version"); // POSIX's way to get a function out of dlsym()
    *(void **)&open = dlsym(handle, "yalm_cuda_backend");
    const struct backend *backend = NULL;
    *unfit = !version || !open || !same_release(yalm_version(), version());
    if (!version || !open)
        error_set(error, YALM_FAILED, "device cuda: %s is not yalm's", library);
    else if (*unfit)
        error_set(error, YALM_FAILED, "device cuda: %s is of yalm %.*s), this program of %.*s)", library,
                  release_length(version()), version(), release_length(yalm_version()), yalm_version());
    else
        backend = open(error);
    dlclose(handle);
    return backend;
}
