// Every file of the CUDA half includes this first: the engine's headers, the toolkit's, checked calls, launches, shared memory.
// Without nvcc the toolkit's are the emulator's of the same names in tests/cuda/emulator/. One source has two compilers: nvcc
// for the device, g++ or clang++ for the emulator. The emulator runs each thread of a block as a fibre and is strict where a
// GPU is lenient.
//
// Rules that keep both alike: shared memory only through SHARED_ARRAY and SHARED_DYNAMIC, launches only through LAUNCH, PTX
// only in cuda/kernels/ptx.cuh; no cooperative groups, managed memory, textures, __activemask.
#pragma once
#include <cuda_runtime.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cfloat>
#include <cmath>

#include "cuda/kernels/c_headers.h"
#include "cuda/kernels/ptx.cuh"

// YALM_OK, or a line that says which call failed, how, and what to do about it.
yalm_status cuda_check(cudaError_t code, const char *call, yalm_error *error);

// True where the environment's YALM_CUDA_WITHOUT names `what`. "step": a token is a graph, not one kernel. "graph": its kernels
// are launched one by one. "overlap": each kernel starts when the one before it has ended. "turns": all overlap, or all but
// "products" where that is named too, without measuring what is faster. For measuring what these are worth.
bool cuda_without(const char *what);

// Which kernels may start before those before them have ended; by default all. Vectors' products fill a device, others do not.
enum cuda_overlap { OVERLAP_NONE, OVERLAP_OTHERS, OVERLAP_ALL, ALL_TOGETHER };
void cuda_allow_overlap(enum cuda_overlap allowed); // of those that this thread launches from now on
bool cuda_may_overlap(
    enum cuda_overlap least_that_may); // at least so many are allowed to, and YALM_CUDA_WITHOUT does not name "overlap"

// Leaves the enclosing function, whose yalm_error * is called `error`, where the call fails.
#define TRY_CUDA(call)                                                                                                         \
    do {                                                                                                                       \
        yalm_status try_status = cuda_check((call), #call, error);                                                             \
        if (try_status != YALM_OK) {                                                                                           \
            return try_status;                                                                                                 \
        }                                                                                                                      \
    } while (0)

// Leaves it where a function's yalm_status, which has filled *error itself, is not YALM_OK.
#define TRY(call)                                                                                                              \
    do {                                                                                                                       \
        yalm_status try_status = (call);                                                                                       \
        if (try_status != YALM_OK) {                                                                                           \
            return try_status;                                                                                                 \
        }                                                                                                                      \
    } while (0)

// LAUNCH(error, kernel, grid, block, shared_bytes, stream, arguments...) → yalm_status. A kernel may start before the one
// before it in the stream has ended (programmatic dependent launch, compute capability 9.0 and later). So every thread of every
// kernel calls grid_dependency_wait() before it reads what an earlier kernel wrote, before it writes anything at all, and
// before it returns. What no kernel writes (weights) may be read before. A template's instance goes in parentheses:
// LAUNCH(error, (kernel<float, 4>), …).
#define LAUNCH(error, kernel, grid, block, shared_bytes, stream, ...)                                                          \
    launch_kernel(OVERLAP_OTHERS, error, #kernel, kernel, dim3(grid), dim3(block), shared_bytes, stream, ##__VA_ARGS__)
// The same of a vector's product.
#define LAUNCH_PRODUCT(error, kernel, grid, block, shared_bytes, stream, ...)                                                  \
    launch_kernel(OVERLAP_ALL, error, #kernel, kernel, dim3(grid), dim3(block), shared_bytes, stream, ##__VA_ARGS__)

// The same of a grid whose blocks wait for each other (told_wait and its like): the launch fails where not all of them can be
// there at once.
#define LAUNCH_TOGETHER(error, kernel, grid, block, shared_bytes, stream, ...)                                                 \
    launch_kernel(ALL_TOGETHER, error, #kernel, kernel, dim3(grid), dim3(block), shared_bytes, stream, ##__VA_ARGS__)

// Shared memory, the only ways to have it. SHARED_ARRAY(float, sums, 32): float sums[32], 16-byte aligned.
// SHARED_DYNAMIC(float, rows): float *rows, the launch's shared_bytes.
#ifdef __CUDACC__
#define SHARED_ARRAY(type, name, count) __shared__ __align__(16) type name[count]
#define SHARED_DYNAMIC(type, name)                                                                                             \
    extern __shared__ __align__(16) unsigned char shared_dynamic_bytes[];                                                      \
    type *const name = reinterpret_cast<type *>(shared_dynamic_bytes)

template <class... Parameters, class... Arguments>
static yalm_status launch_kernel(enum cuda_overlap overlaps, yalm_error *error, const char *name, void (*kernel)(Parameters...),
                                 dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, Arguments... arguments)
{
    int device = 0, major = 0;
    cudaError_t code = cudaGetDevice(&device);
    if (code == cudaSuccess) {
        code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    }
    if (code == cudaSuccess && shared_bytes > 48 << 10) { // more must be asked for
        code = cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)shared_bytes);
    }
    if (code == cudaSuccess) {
        const bool together = overlaps == ALL_TOGETHER;
        cudaLaunchAttribute attribute = {};
        attribute.id = together ? cudaLaunchAttributeCooperative : cudaLaunchAttributeProgrammaticStreamSerialization;
        if (together)
            attribute.val.cooperative = 1;
        else
            attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = shared_bytes;
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = together || (major >= 9 && cuda_may_overlap(overlaps));
        code = cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
    }
    return cuda_check(code, name, error);
}
#else
#define SHARED_ARRAY(type, name, count)                                                                                        \
    static char name##_key;                                                                                                    \
    type(&name)[count] = *static_cast<type(*)[count]>(emulated_shared(&name##_key, sizeof(type[count]), #name))
#define SHARED_DYNAMIC(type, name) type *const name = static_cast<type *>(emulated_shared_dynamic())

template <class... Parameters, class... Arguments>
static yalm_status launch_kernel(enum cuda_overlap overlaps, yalm_error *error, const char *name, void (*kernel)(Parameters...),
                                 dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, Arguments... arguments)
{
    return cuda_check(emulated_launch(name, kernel, overlaps == ALL_TOGETHER, grid, block, shared_bytes, stream,
                                      static_cast<Parameters>(arguments)...),
                      name, error);
}
#endif
