// Several vectors' products with weights of 16 and 32 bits, and the choice of a kernel by type.
#include "cuda/products/several.cuh"

yalm_status several_run(const struct matvec *m, enum matvec_kind kind, enum dtype type, cudaStream_t stream, yalm_error *error)
{
    const struct several p = {{*m, kind}, 0};
    switch (type) {
    case DTYPE_FP32:
        return several_launch<float>(&p, stream, error);
    case DTYPE_FP16:
        return several_launch<half>(&p, stream, error);
    case DTYPE_BF16:
        return several_launch<__nv_bfloat16>(&p, stream, error);
    default:
        return several_quant_run(&p, type, stream, error);
    }
}
