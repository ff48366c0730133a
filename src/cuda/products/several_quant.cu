// Several vectors' products with quantised weights.
#include "cuda/products/several.cuh"

yalm_status several_quant_run(const struct several *p, enum dtype type, cudaStream_t stream, yalm_error *error)
{
    switch (type) {
        QUANT_CASES(several_launch, p, stream, error)
    default:
        return no_kernel(type, error);
    }
}
