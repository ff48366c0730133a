// The CUDA half, opened when a session wants it: one build of the library serves both devices. It is not looked for where no
// driver is, unless it was named: with cuBLAS it is hundreds of megabytes to load.

#include <dlfcn.h>
#include <stdlib.h>

#include "engine/backend.h"
#include "engine/library.h"
#include "util/error.h"

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

const struct backend *cuda_open(bool *unfit, yalm_error *error)
{
    static const struct library cuda = {
        .name = "libyalm-cuda.so",
        .what = "device cuda",
        .part = "the CUDA half",
        .env = "YALM_CUDA_LIBRARY",
        .made_by = "`make cuda` builds it where the CUDA toolkit is installed",
        .symbol = "yalm_cuda_backend",
    };
    *unfit = false;
    if (!getenv(cuda.env) && !has_driver()) {
        error_set(error, YALM_FAILED, "device cuda: no NVIDIA driver is installed (the loader finds no libcuda.so.1)");
        return NULL;
    }
    const struct backend *(*open)(yalm_error *) = NULL;
    *(void **)&open = library_find(&cuda, unfit, error);
    return open ? open(error) : NULL;
}
