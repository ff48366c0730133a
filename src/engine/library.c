#include "engine/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/error.h"

// The folder of the file that this code is in, without a slash at its end; false where that is not known.
static bool own_folder(char folder[PATH_MAX])
{
    static const char here;
    Dl_info info;
    // A program's name there is what it was started as, which need not be a path.
    const bool found = dladdr(&here, &info) && info.dli_fname && strstr(info.dli_fname, ".so");
    if (!realpath(found ? info.dli_fname : "/proc/self/exe", folder))
        return false;
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    return slash != NULL;
}

// RTLD_NODELETE: what such a library is made of keeps threads and handlers, so that it must never be unmapped. Which is also
// why nobody needs to keep the handle.
static void *load(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static void *load_or_say(const struct library *l, const char *path, const char *who, bool *unfit, yalm_error *error)
{
    void *handle = load(path);
    *unfit = handle == NULL;
    if (!handle)
        error_set(error, YALM_FAILED, "%s: %s cannot be loaded: %s", l->what, who, dlerror());
    return handle;
}

static void *find(const struct library *l, bool *unfit, yalm_error *error)
{
    const char *named = getenv(l->env);
    if (named)
        return load_or_say(l, named, l->env, unfit, error);
    char folder[PATH_MAX], path[PATH_MAX + 32];
    static const char *const beside[] = {"", "/../lib"};
    for (int i = 0; i < 2 && own_folder(folder); i++) {
        snprintf(path, sizeof path, "%s%s/%s", folder, beside[i], l->name);
        if (access(path, R_OK) == 0)
            return load_or_say(l, path, l->part, unfit, error);
    }
    void *handle = load(l->name);
    if (!handle)
        error_set(error, YALM_FAILED, "%s: %s was found neither beside this program nor on the loader's path (%s)", l->what,
                  l->name, l->made_by);
    return handle;
}

// "0.2.0 (commit 1a2b3c4": what must be the same in both halves.
static int release_length(const char *version)
{
    return (int)strcspn(version, ",");
}

static bool same_release(const char *ours, const char *theirs)
{
    const int n = release_length(ours);
    return n == release_length(theirs) && memcmp(ours, theirs, (size_t)n) == 0;
}

void *library_find(const struct library *l, bool *unfit, yalm_error *error)
{
    bool unused;
    if (!unfit)
        unfit = &unused;
    *unfit = false;
    void *handle = find(l, unfit, error);
    if (!handle)
        return NULL;
    const char *(*version)(void) = NULL;
    *(void **)&version = dlsym(handle, "yalm_version"); // POSIX's way to get a function out of dlsym()
    void *wanted = dlsym(handle, l->symbol);
    *unfit = !version || !wanted || !same_release(yalm_version(), version());
    if (!version || !wanted)
        error_set(error, YALM_FAILED, "%s: %s is not yalm's", l->what, l->name);
    else if (*unfit)
        error_set(error, YALM_FAILED, "%s: %s is of yalm %.*s), this program of %.*s)", l->what, l->name,
                  release_length(version()), version(), release_length(yalm_version()), yalm_version());
    dlclose(handle);
    return *unfit ? NULL : wanted;
}
