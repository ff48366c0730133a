// One token's products: implements kernels.h by matvec.cuh.
#include "cuda/products/matvec.cuh"

// Products [first, last), which are of one type.
static yalm_status stacked(const struct product *products, int first, int last, const float *x, const float *norm, float eps,
                           const struct upcoming *next, int n, cudaStream_t stream, yalm_error *error)
{
    struct matvec m = {};
    m.tokens = n;
    if (next)
        m.next = *next;
    for (int i = 0; i < last - first; i++) {
        const struct product *p = &products[first + i];
        m.w[i] = p->w.data;
        m.rows[i] = p->w.rows;
        m.bias[i] = p->bias;
        m.y[i] = p->y;
    }
    m.cols = m.stride = m.x_pitch = products[first].w.cols;
    m.x = x;
    m.norm = norm;
    m.eps = eps;
    return matvec_run<MATVEC_STORE, false>(&m, products[first].w.dtype, stream, error);
}

yalm_status matvec_norm(const struct product *products, int n_products, const float *x, const float *norm, float eps,
                        cudaStream_t stream, yalm_error *error, const struct upcoming *next, int n)
{
    for (int first = 0, last; first < n_products; first = last) {
        for (last = first + 1; last < n_products && products[last].w.dtype == products[first].w.dtype;)
            last++;
        TRY(stacked(products, first, last, x, norm, eps, last == n_products ? next : NULL, n, stream, error));
    }
    return YALM_OK;
}

yalm_status matvec_gated(float *y, const struct expert_weights *ffn, const float *x, const float *norm, float eps,
                         cudaStream_t stream, yalm_error *error, const struct upcoming *next, enum activation activation, int n)
{
    struct matvec m = {};
    m.tokens = n;
    m.activation = activation;
    if (next)
        m.next = *next;
    m.w[0] = ffn->gate.data;
    m.w[1] = ffn->up.data;
    m.rows[0] = m.rows[1] = ffn->gate.rows;
    m.bias[0] = ffn->gate_bias;
    m.bias[1] = ffn->up_bias;
    m.y[0] = y;
    m.cols = m.stride = m.x_pitch = ffn->gate.cols;
    m.x = x;
    m.norm = norm;
    m.eps = eps;
    if (ffn->gate.dtype == ffn->up.dtype)
        return matvec_run<MATVEC_GATED, false>(&m, ffn->gate.dtype, stream, error);

    m.rows[1] = 0;
    TRY((matvec_run<MATVEC_STORE, false>(&m, ffn->gate.dtype, stream, error)));
    m.w[0] = ffn->up.data;
    m.bias[0] = ffn->up_bias;
    return matvec_run<MATVEC_UP, false>(&m, ffn->up.dtype, stream, error);
}

yalm_status matvec_residual(float *x, const struct matrix *w, const float *bias, const float *y, cudaStream_t stream,
                            yalm_error *error, const struct upcoming *next, int n)
{
    struct matvec m = {};
    m.tokens = n;
    if (next)
        m.next = *next;
    m.w[0] = w->data;
    m.rows[0] = w->rows;
    m.bias[0] = bias;
    m.y[0] = x;
    m.cols = m.stride = m.x_pitch = w->cols;
    m.x = y;
    return matvec_add<false>(&m, w->dtype, stream, error);
}
