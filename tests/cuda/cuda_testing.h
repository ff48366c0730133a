// What the tests of the CUDA half share. They run in the emulator, or on a device where they are built with nvcc: so the host's
// side goes through the CUDA runtime only, and every buffer is filled with NaN before a kernel writes to it.
#pragma once
#include <cmath>
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

extern "C" {
#include <cmocka.h>
}

#include "cuda/kernels/kernels.h"

static inline double uniform(uint64_t *seed) // in [-1, 1)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(*seed >> 32) * 0x1p-31;
}

static inline std::vector<float> random_floats(uint64_t *seed, size_t n, double range)
{
    std::vector<float> x(n);
    for (float &value : x) {
        value = (float)(range * uniform(seed));
    }
    return x;
}

static inline void assert_ok(yalm_status status, const yalm_error &error)
{
    if (status != YALM_OK) {
        fail_msg("status %d: %s", (int)status, error.text);
    }
}

static inline void assert_cuda(cudaError_t code)
{
    if (code != cudaSuccess) {
        fail_msg("CUDA: %s", cudaGetErrorString(code));
    }
}

// The launch succeeded, and so do its kernels.
#define expect_run(queued)                                                                                                     \
    do {                                                                                                                       \
        assert_int_equal(queued, YALM_OK);                                                                                     \
        assert_cuda(cudaDeviceSynchronize());                                                                                  \
    } while (0)

// Device memory of n elements that nobody has written to; the caller frees it, and what the next two return, with cudaFree().
template <class T> static inline T *device_array(size_t n)
{
    void *memory = NULL;
    assert_cuda(cudaMalloc(&memory, n * sizeof(T)));
    return static_cast<T *>(memory);
}

template <class T> static inline T *device_copy(const std::vector<T> &x)
{
    T *memory = device_array<T>(x.size());
    assert_cuda(cudaMemcpy(memory, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice));
    return memory;
}

// Every bit set: a NaN in every floating-point type.
template <class T> static inline T *device_nan(size_t n)
{
    T *memory = device_array<T>(n);
    assert_cuda(cudaMemset(memory, 0xff, n * sizeof(T)));
    return memory;
}

template <class T> static inline std::vector<T> host_copy(const T *x, size_t n)
{
    std::vector<T> y(n);
    assert_cuda(cudaMemcpy(y.data(), x, n * sizeof(T), cudaMemcpyDeviceToHost));
    return y;
}

static inline void assert_near(double found, double expected, double tolerance, const char *what, int i, int j)
{
    if (!(fabs(found - expected) <= tolerance)) {
        fail_msg("%s at (%d, %d): found %.9g, expected %.9g ± %.3g", what, i, j, found, expected, tolerance);
    }
}
