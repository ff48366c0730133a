// yalm_log_sum_exp(), by the best kernels of this machine, whatever a session runs on.
#include "cpu/machine/isa.h"

double yalm_log_sum_exp(const float *logits, int n)
{
    return cpu_kernels_select("auto")->log_sum_exp(logits, n);
}
