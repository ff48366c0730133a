// Tells the user about a failed CUDA call.
#include "cuda/kernels/cuda.h"

static const char *hint(cudaError_t code)
{
    switch (code) {
    case cudaErrorMemoryAllocation:
        return "; the GPU's memory is taken: a shorter context (-c), a smaller cache (--kv fp16) or a smaller model needs less";
    case cudaErrorNoDevice:
        return "; -d cpu runs without a GPU";
    case cudaErrorInsufficientDriver:
        return "; a newer NVIDIA driver is needed, or -d cpu";
    case cudaErrorNoKernelImageForDevice:
        return "; this build has no code for this GPU";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
        return "; this is a fault of yalm's: the device can be used again by a new process";
    default:
        return "";
    }
}

yalm_status cuda_check(cudaError_t code, const char *call, yalm_error *error)
{
    if (code == cudaSuccess) {
        return YALM_OK;
    }
    cudaGetLastError(); // what can be forgotten is
    yalm_status status = code == cudaErrorMemoryAllocation ? YALM_NO_MEMORY : YALM_FAILED;
    int name = (int)strcspn(call, "(");
    name = name > 0 ? name : (int)strlen(call);
    return error_set(error, status, "CUDA: %.*s: %s (%s)%s", name, call, cudaGetErrorString(code), cudaGetErrorName(code),
                     hint(code));
}

static thread_local enum cuda_overlap overlap_allowed = OVERLAP_ALL;

void cuda_allow_overlap(enum cuda_overlap allowed)
{
    overlap_allowed = allowed;
}

bool cuda_may_overlap(enum cuda_overlap least_that_may)
{
    return overlap_allowed >= least_that_may && !cuda_without("overlap");
}

bool cuda_without(const char *what)
{
    const char *without = getenv("YALM_CUDA_WITHOUT");
    return without && strstr(without, what);
}
