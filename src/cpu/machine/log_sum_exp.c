// yalm_log_sum_exp(), by the best kernels of this machine, whatever a session runs on.
#include "cpu/machine/isa.h"

double yalm_log_sum_exp(const float *logits, int n)
{
    const struct cpu_kernels *kernels = cpu_kernels_select("auto");
    return (kernels ? kernels : &cpu_kernels_scalar)->log_sum_exp(logits, n);
}
