// What the benches of the CUDA half share: checked calls, memory, noise, timing.
#pragma once
#include "cuda/limits.h"

static const double seconds_each = 0.1; // of timing, for each kernel

// Ends the program with the error's line where the call fails.
static void must(yalm_status status, const yalm_error *error)
{
    if (status == YALM_OK)
        return;
    fprintf(stderr, "%s\n", error->text);
    exit(status);
}

#define MUST(call)                                                                                                             \
    do {                                                                                                                       \
        yalm_error must_error = {};                                                                                            \
        yalm_error *error = &must_error;                                                                                       \
        must(call, error);                                                                                                     \
    } while (0)
#define MUST_CUDA(call) MUST(cuda_check((call), #call, error))

// Zeros.
template <typename T> static void take(T **pointer, size_t bytes)
{
    MUST_CUDA(cudaMalloc(reinterpret_cast<void **>(pointer), bytes));
    MUST_CUDA(cudaMemset(*pointer, 0, bytes));
}

static inline uint64_t noise_next(uint64_t *state)
{
    return *state = *state * 6364136223846793005u + 1442695040888963407u;
}

// In [-1, 1).
static inline float noise_float(uint64_t *state)
{
    return (float)(int32_t)(noise_next(state) >> 32) * 0x1p-31f;
}

// 16-bit elements with random signs and mantissas: of the bits `random` any, beside those of `fixed`. In runs of 64 MiB.
static inline void fill_words(uint8_t *device, size_t bytes, uint16_t random, uint16_t fixed)
{
    const size_t run = bytes < (size_t)64 << 20 ? bytes : (size_t)64 << 20;
    uint16_t *noise = static_cast<uint16_t *>(malloc(run));
    uint64_t state = 1;
    for (size_t i = 0; i < run / 2; i++)
        noise[i] = (uint16_t)((noise_next(&state) >> 33 & random) | fixed);
    for (size_t at = 0; at < bytes; at += run)
        MUST_CUDA(cudaMemcpy(device + at, noise, run < bytes - at ? run : bytes - at, cudaMemcpyHostToDevice));
    free(noise);
}

static inline size_t l2_bytes(void)
{
    int l2 = 0;
    MUST_CUDA(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, 0));
    return (size_t)l2;
}

// How many blocks of `bytes` to go through in turn, so that none is still in the L2 cache when it is read again: as a model's
// layers.
static inline int enough_layers(size_t bytes)
{
    const size_t n = 1 + 4 * l2_bytes() / (bytes > 0 ? bytes : 1);
    return n < 32 ? (int)n : 32;
}

// Seconds of one call: the shortest mean of several rows of calls, each row queued without a pause.
template <typename Launch> static double seconds_of(cudaStream_t stream, Launch launch)
{
    cudaEvent_t begin, end;
    MUST_CUDA(cudaEventCreateWithFlags(&begin, cudaEventDefault));
    MUST_CUDA(cudaEventCreateWithFlags(&end, cudaEventDefault));
    const double stop = clock_seconds() + seconds_each;
    double best = INFINITY;
    for (int round = 0, n = 1; round < 3 || clock_seconds() < stop; round++) {
        float milliseconds = 0;
        MUST_CUDA(cudaEventRecord(begin, stream));
        for (int i = 0; i < n; i++)
            MUST(launch(error));
        MUST_CUDA(cudaEventRecord(end, stream));
        MUST_CUDA(cudaStreamSynchronize(stream));
        MUST_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
        if (round > 0 && 1e-3 * milliseconds / n < best) // the first one loads the kernel
            best = 1e-3 * milliseconds / n;
        if (milliseconds < 5 && n < 256)
            n *= 4;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return best;
}

// What the device can give, measured; needs room for 16 times its L2 cache.
static inline yalm_limits measure_limits(cudaStream_t stream, struct matmul *matmul, double seconds, int *n_sms)
{
    struct cuda_device device = {};
    yalm_limits limits = {};
    MUST_CUDA(cudaDeviceGetAttribute(&device.n_sms, cudaDevAttrMultiProcessorCount, 0));
    MUST(limits_measure(&device, matmul, stream, seconds, &limits, error));
    *n_sms = device.n_sms;
    return limits;
}
