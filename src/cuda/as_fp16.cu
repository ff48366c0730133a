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

static yalm_status matrix_as_fp16(struct matrix *m, unsigned *most, cudaStream_t stream, yalm_error *error)
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

// What becomes of a matrix when it is on the device.
static yalm_status convert_matrix(struct matrix *m, unsigned *most, cudaStream_t stream, yalm_error *error)
{
    return matrix_is_quantised(m) ? product_factors_make(m, stream, error) : matrix_as_fp16(m, most, stream, error);
}

// Those of them that the layer has.
template <int N>
static yalm_status convert_all(struct matrix *const (&matrices)[N], unsigned *most, cudaStream_t stream, yalm_error *error)
{
    for (struct matrix *m : matrices)
        if (m->data)
            TRY(convert_matrix(m, most, stream, error));
    return YALM_OK;
}

static yalm_status convert_ends(struct model_weights *w, unsigned *most, cudaStream_t stream, yalm_error *error)
{
    const bool tied = w->classifier.data == w->embedding.data;
    TRY(convert_matrix(&w->embedding, most, stream, error));
    if (tied)
        w->classifier.dtype = w->embedding.dtype;
    else
        TRY(convert_matrix(&w->classifier, most, stream, error));
    if (w->layer_embedding.data) {
        TRY(convert_matrix(&w->layer_embedding, most, stream, error));
        TRY(convert_matrix(&w->layer_projection, most, stream, error));
    }
    return YALM_OK;
}

// All matrices as float16 where they can be; the factors of quantised ones.
yalm_status matrices_convert(struct model_weights *w, const struct model_config *c, unsigned *most, cudaStream_t stream,
                             yalm_error *error)
{
    TRY(c->guesses ? convert_matrix(&w->mtp_projection, most, stream, error) : convert_ends(w, most, stream, error));
    for (int i = 0; i < c->n_layers; i++) {
        struct layer_weights *l = &w->layers[i];
        struct delta_weights *d = &l->delta;
        struct scan_weights *scan = &l->scan;
        struct matrix *const attention[] = {&l->q, &l->k, &l->v, &l->output_gate, &l->o};
        struct matrix *const latents[] = {&l->latent.q_a, &l->latent.k_b, &l->latent.v_b};
        struct matrix *const states[] = {&d->decay_a, &d->decay_b, &d->gate_a, &d->gate_b, &scan->c,
                                         &scan->b,    &scan->x,    &scan->z,   &scan->o};
        struct matrix *const others[] = {&l->shared.gate, &l->shared.up, &l->shared.down, &l->input_gate, &l->input_projection};
        TRY(convert_all(attention, most, stream, error));
        TRY(convert_all(latents, most, stream, error));
        TRY(convert_all(states, most, stream, error));
        TRY(convert_all(others, most, stream, error));
        for (int e = 0; e < (l->router.data ? c->n_experts : 1); e++) {
            struct matrix *const units[] = {&l->experts[e].gate, &l->experts[e].up, &l->experts[e].down};
            TRY(convert_all(units, most, stream, error));
        }
    }
    TRY_CUDA(cudaStreamSynchronize(stream));
    return YALM_OK;
}
