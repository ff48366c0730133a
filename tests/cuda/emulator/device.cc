// The emulated device: one, whose facts the environment can change. Errors.
#include "runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

std::unique_lock<std::recursive_mutex> runtime_lock(void)
{
    static std::recursive_mutex mutex;
    return std::unique_lock<std::recursive_mutex>(mutex);
}

long long runtime_setting(const char *name, long long otherwise)
{
    const char *value = getenv(name);
    return value ? strtoll(value, nullptr, 10) : otherwise;
}

// ---------------------------------------------------------------------------------------- errors

static thread_local cudaError_t last_error;

cudaError_t runtime_result(cudaError_t code)
{
    if (code != cudaSuccess && code != cudaErrorNotReady) {
        last_error = code;
    }
    return code;
}

cudaError_t runtime_usable(void)
{
    return emulated_faulted() ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t code = emulated_faulted() ? cudaErrorLaunchFailure : last_error;
    last_error = cudaSuccess;
    return code;
}

cudaError_t cudaPeekAtLastError(void)
{
    return emulated_faulted() ? cudaErrorLaunchFailure : last_error;
}

struct error_entry {
    cudaError_t code;
    const char *name, *text;
};
#define ENTRY(code, text)                                                                                                      \
    {                                                                                                                          \
        code, #code, text                                                                                                      \
    }
static const error_entry errors[] = {
    ENTRY(cudaSuccess, "no error"),
    ENTRY(cudaErrorInvalidValue, "invalid argument"),
    ENTRY(cudaErrorMemoryAllocation, "out of memory"),
    ENTRY(cudaErrorInitializationError, "initialization error"),
    ENTRY(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ENTRY(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ENTRY(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    ENTRY(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ENTRY(cudaErrorInvalidDevice, "invalid device ordinal"),
    ENTRY(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    ENTRY(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ENTRY(cudaErrorNotReady, "device not ready"),
    ENTRY(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ENTRY(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    ENTRY(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    ENTRY(cudaErrorLaunchFailure, "unspecified launch failure"),
    ENTRY(cudaErrorNotSupported, "operation not supported"),
    ENTRY(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ENTRY(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ENTRY(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ENTRY(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ENTRY(cudaErrorUnknown, "unknown error"),
};
#undef ENTRY

const char *cudaGetErrorString(cudaError_t code)
{
    for (const error_entry &entry : errors) {
        if (entry.code == code) {
            return entry.text;
        }
    }
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t code)
{
    for (const error_entry &entry : errors) {
        if (entry.code == code) {
            return entry.name;
        }
    }
    return "unrecognized error code";
}

// ---------------------------------------------------------------------------------------- facts

constexpr size_t TOTAL_BYTES = (size_t)16 << 30;
constexpr int N_MULTIPROCESSORS = 3; // few, and no power of two

static void capability(int *major, int *minor)
{
    const char *value = getenv("YALM_EMULATED_CAPABILITY");
    *major = 8;
    *minor = 6; // of those supported, the one with the least shared memory
    if (value) {
        sscanf(value, "%d.%d", major, minor);
    }
}

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
size_t device_shared_limit(void)
{
    int major, minor;
    capability(&major, &minor);
    int kib = major == 8 && minor == 0    ? 163
              : major == 8 && minor == 7  ? 163
              : major == 9 || major == 10 ? 227
              : major < 8                 ? 64
                                          : 99;
    return (size_t)kib << 10;
}

static cudaError_t present(int device)
{
    int count;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaSuccess && (device < 0 || device >= count)) {
        code = runtime_result(cudaErrorInvalidDevice);
    }
    return code;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = (int)runtime_setting("YALM_EMULATED_DEVICES", 1);
    if (runtime_setting("YALM_EMULATED_DRIVER", 13000) < 12000) {
        *count = 0;
        return runtime_result(cudaErrorInsufficientDriver);
    }
    return *count > 0 ? cudaSuccess : runtime_result(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return present(0);
}

cudaError_t cudaSetDevice(int device)
{
    return present(device);
}

cudaError_t cudaSetDeviceFlags(unsigned)
{
    return present(0);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    cudaError_t code = present(device);
    if (code == cudaSuccess) {
        *properties = {};
        strcpy(properties->name, "Emulated GPU");
        capability(&properties->major, &properties->minor);
        properties->totalGlobalMem = TOTAL_BYTES;
        properties->sharedMemPerBlock = 48 << 10;
        properties->sharedMemPerBlockOptin = device_shared_limit();
        properties->sharedMemPerMultiprocessor = device_shared_limit() + 1024;
        properties->regsPerBlock = 65536;
        properties->warpSize = 32;
        properties->maxThreadsPerBlock = 1024;
        properties->maxThreadsPerMultiProcessor = 1536;
        properties->multiProcessorCount = (int)runtime_setting("YALM_EMULATED_MULTIPROCESSORS", N_MULTIPROCESSORS);
        properties->memoryBusWidth = 128;
        properties->l2CacheSize = 1 << 20;
    }
    return code;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp properties;
    cudaError_t code = cudaGetDeviceProperties(&properties, device);
    if (code != cudaSuccess) {
        return code;
    }
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = properties.maxThreadsPerBlock;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = (int)properties.sharedMemPerBlock;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = properties.multiProcessorCount;
        break;
    case cudaDevAttrL2CacheSize:
        *value = properties.l2CacheSize;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = properties.maxThreadsPerMultiProcessor;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = properties.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = properties.minor;
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)properties.sharedMemPerMultiprocessor;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)properties.sharedMemPerBlockOptin;
        break;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = properties.memoryBusWidth;
        break;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
        *value = 1000000;
        break; // kHz
    default:
        return runtime_result(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = (int)runtime_setting("YALM_EMULATED_DRIVER", 13000);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDeviceReset(void)
{
    auto lock = runtime_lock();
    emulated_fault_forget();
    last_error = cudaSuccess;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value)
{
    bool fits = function && value >= 0 &&
                (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || (size_t)value <= device_shared_limit());
    return runtime_result(fits ? cudaSuccess : cudaErrorInvalidValue);
}
