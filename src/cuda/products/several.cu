// Several vectors' products with weights of 16 and 32 bits, and which kernel is whose.
#include "cuda/products/several.cuh"

template <class T> static yalm_status launch(const struct several *p, cudaStream_t stream, yalm_error *error)
{
    const struct matvec &m = p->q.m;
    bool aligned = m.stride * sizeof(T) % 16 == 0 && m.cols * sizeof(T) % 16 == 0 && reinterpret_cast<uintptr_t>(m.x) % 16 == 0;
    for (const void *w : m.w)
        aligned = aligned && reinterpret_cast<uintptr_t>(w) % 16 == 0;
    return aligned ? several_launch<T, true>(*p, stream, error) : several_launch<T, false>(*p, stream, error);
}

yalm_status several_run(const struct matvec *m, enum matvec_kind kind, enum dtype type, cudaStream_t stream, yalm_error *error)
{
    const struct several p = {{*m, kind}, 0};
    switch (type) {
    case DTYPE_FP32:
        return launch<float>(&p, stream, error);
    case DTYPE_FP16:
        return launch<half>(&p, stream, error);
    case DTYPE_BF16:
        return launch<__nv_bfloat16>(&p, stream, error);
    default:
        return several_quant_run(&p, type, stream, error);
    }
}
