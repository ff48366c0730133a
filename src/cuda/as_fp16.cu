// Matrices of bfloat16 become float16 on the device, where that loses nothing that counts. Products of many tokens take inputs
// of the matrix's type: float16 rounds these to 11 bits, bfloat16 to 8, which alone would move the logits by 1 % of their
// range.
//
// A bfloat16 number from 2^-14 to 65504 is a float16 number; smaller ones come out within 2^-25. So a matrix is converted where
// its largest magnitude is from 2^-9 to 65504: what is lost is then below 2^-16 of that. Others stay as they are.
#include "cuda/upload.h"

enum { THREADS = 256, BLOCKS = 1024 };

// *most = the largest of the magnitudes' bits, which are ordered as the magnitudes are; NaN and infinity are above all. *most
// starts as 0.
static __global__ void most_kernel(const uint16_t *w, size_t n, unsigned *most)
{
    grid_dependency_wait();
    unsigned mine = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        mine = max(mine, (unsigned)(w[i] & 0x7fff));
    mine = __reduce_max_sync(0xffffffff, mine);
    if (threadIdx.x % 32 == 0)
        atomicMax(most, mine);
}

static __global__ void convert_kernel(uint16_t *w, size_t n)
{
    grid_dependency_wait();
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        w[i] = __half_as_ushort(__float2half_rn(__uint_as_float((unsigned)w[i] << 16)));
}

yalm_status matrix_as_fp16(struct matrix *m, unsigned *most, cudaStream_t stream, yalm_error *error)
{
    static const unsigned least = (127 - 9) << 7, limit = 0x477f; // bits of bfloat16: 2^-9, and the largest below 65504
    uint16_t *w = static_cast<uint16_t *>(const_cast<void *>(m->data));
    const size_t n = (size_t)m->rows * m->cols;
    unsigned found = 0;
    if (m->dtype != DTYPE_BF16)
        return YALM_OK;
    TRY_CUDA(cudaMemsetAsync(most, 0, sizeof *most, stream));
    TRY(LAUNCH(error, most_kernel, BLOCKS, THREADS, 0, stream, w, n, most));
    TRY_CUDA(cudaMemcpyAsync(&found, most, sizeof found, cudaMemcpyDeviceToHost, stream));
    TRY_CUDA(cudaStreamSynchronize(stream));
    if (found < least || found > limit)
        return YALM_OK;
    TRY(LAUNCH(error, convert_kernel, BLOCKS, THREADS, 0, stream, w, n));
    m->dtype = DTYPE_FP16;
    return YALM_OK;
}
