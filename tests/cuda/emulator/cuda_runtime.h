// The part of the CUDA runtime that yalm uses, run by the CPU: the emulator's header of the toolkit's name.
//
// Memory of the "device" is the host's, filled with a pattern that is a NaN in every floating type. Streams are lazy: an operation runs
// when something waits for it (a synchronisation, a copy to or from pageable memory, an event), so that a missing wait shows. A fault
// of a kernel's (see block.h) is printed, and every later call returns cudaErrorLaunchFailure, as on a device.
//
// Environment, for tests: YALM_EMULATED_DEVICES=0 (count), _DRIVER=12020 (version), _CAPABILITY=7.5, _FREE=bytes, _SEED=n (order of threads
// and blocks), _LAZY=0 (operations run at once).
#pragma once
#include "emulated_call.h"
#include "emulated_types.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n)      alignas(n)
#define __CUDA_EMULATED__ 1

// ---------------------------------------------------------------------------------------- errors

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureUnjoined = 904,
    cudaErrorIllegalState = 401,
    cudaErrorUnknown = 999,
};
const char *cudaGetErrorString(cudaError_t code);
const char *cudaGetErrorName(cudaError_t code);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

// ---------------------------------------------------------------------------------------- device

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int regsPerBlock, warpSize, maxThreadsPerBlock, major, minor, multiProcessorCount, memoryBusWidth, l2CacheSize;
    int maxThreadsPerMultiProcessor, persistingL2CacheMaxSize;
};

enum {
    cudaDeviceScheduleAuto = 0,
    cudaDeviceScheduleSpin = 1,
    cudaDeviceScheduleYield = 2,
    cudaDeviceScheduleBlockingSync = 4
};

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void); // forgets a kernel's fault, too

// ---------------------------------------------------------------------------------------- memory

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4 };
enum { cudaHostRegisterDefault = 0, cudaHostRegisterReadOnly = 8 };
enum cudaMemoryType { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2 };
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};

using cudaStream_t = struct emulated_stream *;
using cudaEvent_t = struct emulated_event *;
using cudaGraph_t = struct emulated_graph *;
using cudaGraphExec_t = struct emulated_graph_exec *;

cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMallocHost(void **memory, size_t bytes, unsigned flags = 0);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *memory);
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer);
template <class T> cudaError_t cudaMalloc(T **memory, size_t bytes)
{
    return cudaMalloc(reinterpret_cast<void **>(memory), bytes);
}
template <class T> cudaError_t cudaMallocHost(T **memory, size_t bytes, unsigned flags = 0)
{
    return cudaMallocHost(reinterpret_cast<void **>(memory), bytes, flags);
}
template <class T> cudaError_t cudaHostAlloc(T **memory, size_t bytes, unsigned flags)
{
    return cudaHostAlloc(reinterpret_cast<void **>(memory), bytes, flags);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void *memory, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream = nullptr);

// ---------------------------------------------------------------------------------------- streams, events, graphs

enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2,
};

cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *data);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

// ---------------------------------------------------------------------------------------- launches

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value);
template <class F> cudaError_t cudaFuncSetAttribute(F *function, cudaFuncAttribute attribute, int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(function), attribute, value);
}
template <class F> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, F *, int threads, size_t)
{
    *blocks = threads < 1 || threads > 1024 ? 0 : 2048 / ((threads + 31) / 32 * 32);
    return cudaSuccess;
}

// A kernel with its arguments, once for each thread.
struct emulated_kernel {
    const char *name;
    dim3 grid, block;
    size_t shared_bytes;
    bool together; // blocks wait for each other
    emulated_call<void> run;
};
cudaError_t emulated_enqueue(const emulated_kernel &kernel, cudaStream_t stream);
// Runs something of the host's in its turn, once `ready` says that it can: what waits for another device (nccl.cc).
__attribute__((visibility("default"))) cudaError_t emulated_enqueue_when(cudaStream_t stream, emulated_call<bool> ready,
                                                                         emulated_call<void> run);

template <class... Parameters>
cudaError_t emulated_launch(const char *name, void (*kernel)(Parameters...), bool together, dim3 grid, dim3 block,
                            size_t shared_bytes, cudaStream_t stream, Parameters... arguments)
{
    return emulated_enqueue({name, grid, block, shared_bytes, together, [=] { kernel(arguments...); }}, stream);
}

// For tests: the last fault's line ("" where there was none), and whether faults are printed.
const char *emulated_fault_text(void);
void emulated_fault_quiet(bool quiet);

#include "emulated_device.h"
