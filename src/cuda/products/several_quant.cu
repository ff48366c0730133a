// Several vectors' products with quantised weights.
#include "cuda/products/several.cuh"

template <class T> static yalm_status launch_groups(const struct several *p, cudaStream_t stream, yalm_error *error)
{
    return groups_of(p->q.m.stride) % 8 == 0 ? several_launch<T, true>(*p, stream, error)
                                             : several_launch<T, false>(*p, stream, error);
}

template <class T> static yalm_status launch_floats(const struct several *p, cudaStream_t stream, yalm_error *error)
{
    const struct matvec &m = p->q.m;
    bool aligned = m.stride % 16 == 0 && m.cols % 16 == 0 && reinterpret_cast<uintptr_t>(m.x) % 16 == 0;
    for (const void *w : m.w)
        aligned = aligned && reinterpret_cast<uintptr_t>(w) % 16 == 0;
    return aligned ? several_launch<T, true>(*p, stream, error) : several_launch<T, false>(*p, stream, error);
}

yalm_status several_quant_run(const struct several *p, enum dtype type, cudaStream_t stream, yalm_error *error)
{
    switch (type) {
    case DTYPE_Q8:
        return launch_groups<q8>(p, stream, error);
    case DTYPE_Q4:
        return launch_groups<q4>(p, stream, error);
    case DTYPE_Q4N:
        return launch_groups<q4n>(p, stream, error);
    case DTYPE_Q5:
        return launch_groups<q5>(p, stream, error);
    case DTYPE_Q6:
        return launch_groups<q6>(p, stream, error);
    case DTYPE_FP8:
        return launch_floats<fp8_e4m3>(p, stream, error);
    case DTYPE_FP8_E5M2:
        return launch_floats<fp8_e5m2>(p, stream, error);
    default:
        return no_kernel(type, error);
    }
}
