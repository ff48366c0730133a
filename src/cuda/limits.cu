// Measures what memory and arithmetic can give. Read bandwidth is the best of a grid of patterns: blocks on a multiprocessor,
// threads in a block, loads that each thread has in flight. Matrices are filled with noise: tensor cores run faster on zeros,
// which cost less power.
#include "cuda/limits.h"

enum { CHAINS = 8, ROUNDS = 4096, LEAST_BYTES = 1 << 20 };

static const double least_seconds = 2e-3; // of one timing, so that starting and waiting count little

// Reads n 16-byte words, a multiple of N blockDim.x gridDim.x, each once. *sum gets a value that depends on all of them, in
// vain.
template <int N> static __global__ void read_kernel(const uint4 *data, size_t n, unsigned *sum)
{
    grid_dependency_wait();
    unsigned seen = 0;
    const size_t step = (size_t)blockDim.x * N;
    for (size_t at = blockIdx.x * step + threadIdx.x; at < n; at += gridDim.x * step) {
        uint4 words[N];
        for (int i = 0; i < N; i++)
            words[i] = load_stream(data + at + (size_t)i * blockDim.x);
        for (int i = 0; i < N; i++)
            seen ^= words[i].x ^ words[i].y ^ words[i].z ^ words[i].w;
    }
    if (seen == 0x9e3779b9) // hardly ever, which the compiler cannot know
        atomicExch(sum, seen);
}

// ROUNDS * CHAINS multiply-adds in each thread; x stays near 1.
static __global__ void fma_kernel(float factor, float addend, unsigned *sum)
{
    grid_dependency_wait();
    float x[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        x[i] = 1 + 1e-3f * (float)(threadIdx.x + i);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < CHAINS; i++)
            x[i] = fmaf(x[i], factor, addend);
    float all = 0;
    for (int i = 0; i < CHAINS; i++)
        all += x[i];
    if (all == 12345.0f)
        atomicExch(sum, __float_as_uint(all));
}

// 16-bit words of noise: with each exponent that bfloat16 numbers of magnitude 1/2 to 2 have, either sign, any mantissa.
static __global__ void noise_words_kernel(uint32_t *words, size_t n)
{
    grid_dependency_wait();
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t z = (uint32_t)i * 0x9e3779b9u;
        z = (z ^ (z >> 16)) * 0x85ebca6bu;
        z = (z ^ (z >> 13)) * 0xc2b2ae35u;
        words[i] = ((z ^ (z >> 16)) & 0x80ff80ffu) | 0x3f003f00u;
    }
}

struct measuring {
    const struct cuda_device *device;
    struct matmul *matmul;
    cudaStream_t stream;
    uint8_t *block; // `bytes` bytes of noise
    size_t bytes;
    unsigned *sum;
    // The pattern that is read, or the matrices that are multiplied.
    int blocks_per_sm, threads, loads, size;
};

static yalm_status queue_read(const struct measuring *m, double *amount, yalm_error *error)
{
    const int blocks = m->blocks_per_sm * m->device->n_sms;
    const size_t unit = (size_t)blocks * m->threads * m->loads, words = m->bytes / sizeof(uint4) / unit * unit;
    const uint4 *data = reinterpret_cast<const uint4 *>(m->block);
    *amount = (double)words * sizeof(uint4);
    if (m->loads == 2)
        return LAUNCH(error, (read_kernel<2>), blocks, m->threads, 0, m->stream, data, words, m->sum);
    if (m->loads == 4)
        return LAUNCH(error, (read_kernel<4>), blocks, m->threads, 0, m->stream, data, words, m->sum);
    return LAUNCH(error, (read_kernel<8>), blocks, m->threads, 0, m->stream, data, words, m->sum);
}

static yalm_status queue_fma(const struct measuring *m, double *amount, yalm_error *error)
{
    const int blocks = m->device->n_sms * 8, threads = 256;
    *amount = 2.0 * ROUNDS * CHAINS * blocks * threads;
    return LAUNCH(error, fma_kernel, blocks, threads, 0, m->stream, 0.999f, 0.001f, m->sum);
}

// Square matrices of bfloat16, with sums in float32.
static yalm_status queue_product(const struct measuring *m, double *amount, yalm_error *error)
{
    const size_t matrix = (size_t)m->size * m->size * sizeof(uint16_t);
    const struct matrix w = {m->block, DTYPE_BF16, m->size, m->size};
    *amount = 2.0 * m->size * m->size * m->size;
    return matmul_run(m->matmul, reinterpret_cast<float *>(m->block + 2 * matrix), m->block + matrix, &w, NULL, m->size, false,
                      m->stream, error);
}

typedef yalm_status queue_work(const struct measuring *m, double *amount, yalm_error *error);

// Amount a second of `n` in a row.
static yalm_status time_work(const struct measuring *m, queue_work *work, int n, double *seconds, double *rate,
                             yalm_error *error)
{
    double amount = 0;
    const double start = clock_seconds();
    for (int i = 0; i < n; i++)
        TRY(work(m, &amount, error));
    TRY_CUDA(cudaStreamSynchronize(m->stream));
    *seconds = clock_seconds() - start;
    *rate = n * amount / *seconds;
    return YALM_OK;
}

// The fastest of as many timings as `seconds` have room for, at least two: the first one also loads the kernel.
static yalm_status best_rate(const struct measuring *m, queue_work *work, double seconds, double *best, yalm_error *error)
{
    const double end = clock_seconds() + seconds;
    int n = 1;
    double took, rate;
    for (int i = 0; i < 2 || clock_seconds() < end; i++) {
        TRY(time_work(m, work, n, &took, &rate, error));
        if (i > 0 && rate > *best)
            *best = rate;
        if (took < least_seconds && n < 1 << 12)
            n *= 2;
    }
    return YALM_OK;
}

static yalm_status measure_read(struct measuring *m, double seconds, double *best, yalm_error *error)
{
    static const int blocks[] = {1, 2, 4}, threads[] = {256, 512}, loads[] = {2, 4, 8};
    for (int b : blocks)
        for (int t : threads)
            for (int l : loads) {
                m->blocks_per_sm = b;
                m->threads = t;
                m->loads = l;
                TRY(best_rate(m, queue_read, seconds / 18, best, error));
            }
    return YALM_OK;
}

static yalm_status measure_all(struct measuring *m, double seconds, yalm_limits *limits, yalm_error *error)
{
    double read = 0, fma = 0, product = 0;
    TRY_CUDA(cudaMalloc(reinterpret_cast<void **>(&m->sum), sizeof *m->sum));
    TRY_CUDA(cudaMalloc(reinterpret_cast<void **>(&m->block), m->bytes));
    TRY(LAUNCH(error, noise_words_kernel, m->device->n_sms * 4, 256, 0, m->stream, reinterpret_cast<uint32_t *>(m->block),
               m->bytes / sizeof(uint32_t)));
    TRY(measure_read(m, 0.6 * seconds, &read, error));
    TRY(best_rate(m, queue_fma, 0.1 * seconds, &fma, error));
    TRY(best_rate(m, queue_product, 0.3 * seconds, &product, error));
    *limits = (yalm_limits){1e-9 * read, 1e-9 * fma, 0, 1e-9 * product};
    return YALM_OK;
}

yalm_status limits_measure(const struct cuda_device *device, struct matmul *matmul, cudaStream_t stream, double seconds,
                           yalm_limits *limits, yalm_error *error)
{
    struct measuring m = {};
    m.device = device;
    m.matmul = matmul;
    m.stream = stream;
    int cache = 0;
    size_t available = 0, total = 0;
    TRY_CUDA(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, 0));
    TRY_CUDA(cudaMemGetInfo(&available, &total));
    m.bytes = LEAST_BYTES;
    while (m.bytes < 16 * (size_t)cache && 4 * m.bytes < available) // far more than the cache holds
        m.bytes *= 2;
    // Two matrices of 2-byte elements and one of 4-byte ones, as large as the device is.
    for (m.size = 64; m.size < 64 * device->n_sms && 8 * (size_t)(2 * m.size) * (2 * m.size) <= m.bytes;)
        m.size *= 2;
    const yalm_status status = measure_all(&m, seconds, limits, error);
    if (m.block)
        cudaFree(m.block);
    if (m.sum)
        cudaFree(m.sum);
    return status;
}
