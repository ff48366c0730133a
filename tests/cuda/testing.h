// What the tests of the CUDA half share: cmocka for C++, device arrays.
#pragma once
#include "cuda/cuda.h"

#include <csetjmp>
#include <cstdarg>
#include <vector>

extern "C" {
#include <cmocka.h>
}

template <class T> static T *device_array(size_t n)
{
    T *array = nullptr;
    assert_int_equal(cudaMalloc(reinterpret_cast<void **>(&array), n * sizeof(T)), cudaSuccess);
    return array;
}

template <class T> static T *to_device(const std::vector<T> &host)
{
    T *array = device_array<T>(host.size());
    assert_int_equal(cudaMemcpy(array, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
    return array;
}

template <class T> static std::vector<T> to_host(const T *array, size_t n)
{
    std::vector<T> host(n);
    assert_int_equal(cudaMemcpy(host.data(), array, n * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return host;
}

// The launch succeeded, and so do its kernels.
#define expect_run(queued)                                                                                                     \
    do {                                                                                                                       \
        assert_int_equal(queued, YALM_OK);                                                                                     \
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);                                                                \
    } while (0)
