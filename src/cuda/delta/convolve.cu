// Short convolutions alone (LFM2: arXiv 2511.23404), of each channel:
// y = q ∘ (bias + Σ_j taps[j] ∘ (k ∘ v)[t - before + j]).
// Bytes: q, k and v are read, k and v by each token that sees them, mostly from the L2 cache; y is written.
#include "cuda/delta/delta.h"
#include "cuda/kernels/vec.cuh"

enum { CONVOLVE_THREADS = 128 };

// struct delta, as the kernel takes it.
struct convolving {
    const struct evaluation *step;
    float *inputs;            // of the layer, in place 0: (before, channels)
    size_t inputs_pitch;      // floats from place to place
    const float *q, *k, *v;   // (n, channels), `pitch` floats from token to token
    const float *taps, *bias; // (before + 1, channels), (channels); bias NULL: none
    float *given;             // (n_given or n, channels): what is convolved of tokens that may be repeated; NULL: none
    int n, pitch, channels, before, n_given;
};

// What is convolved of token t, which stands t tokens behind the batch's first; t may be negative.
__device__ static inline float product_at(const struct convolving &c, int t, int i)
{
    const int among_given = c.n_given + t;
    if (t >= 0)
        return c.k[(size_t)t * c.pitch + i] * c.v[(size_t)t * c.pitch + i];
    if (among_given >= 0)
        return c.given[(size_t)among_given * c.channels + i];
    const float *inputs = c.inputs + c.step->from * c.inputs_pitch;
    return c.step->position > 0 ? inputs[(size_t)(c.before + among_given) * c.channels + i] : 0.0f;
}

// Block (channels, t): token t; or behind the last token, one of the products that are kept.
template <class T> static __global__ void convolve_kernel(void *y, struct convolving c)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int i = (int)(blockIdx.x * CONVOLVE_THREADS + threadIdx.x), t = (int)blockIdx.y;
    if (i >= c.channels)
        return;
    if (t >= c.n) {
        c.inputs[c.step->to * c.inputs_pitch + (size_t)(t - c.n) * c.channels + i] = product_at(c, t - c.before, i);
        return;
    }
    float sum = c.bias ? c.bias[i] : 0.0f;
    for (int j = 0; j <= c.before; j++)
        sum = fmaf(c.taps[(size_t)j * c.channels + i], product_at(c, t + j - c.before, i), sum);
    if (c.given)
        c.given[(size_t)t * c.channels + i] = product_at(c, t, i);
    static_cast<T *>(y)[(size_t)t * c.channels + i] = from_float<T>(c.q[(size_t)t * c.pitch + i] * sum);
}

yalm_status delta_convolve(const struct delta *d, void *y, enum dtype type, int n, cudaStream_t stream, yalm_error *error)
{
    const struct delta_config *config = d->config;
    const size_t floats = delta_input_floats(config);
    const struct convolving c = {d->step,
                                 d->inputs + d->layer * floats,
                                 d->n_layers * floats,
                                 d->q,
                                 d->k,
                                 d->v,
                                 d->w->delta.conv,
                                 d->w->delta.conv_bias,
                                 d->given,
                                 n,
                                 d->pitch ? d->pitch : config->conv_dim,
                                 config->conv_dim,
                                 config->conv_width - 1,
                                 d->n_given};
    const dim3 grid((c.channels + CONVOLVE_THREADS - 1) / CONVOLVE_THREADS, n + c.before);
    return LAUNCH_TYPE(type, error, convolve_kernel, grid, CONVOLVE_THREADS, 0, stream, y, c);
}
