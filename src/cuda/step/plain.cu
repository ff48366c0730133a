// One token's step as one kernel (step.cuh): the form for models whose steps are a Llama's.
#include "cuda/step/step_kernel.cuh"

const struct step_form step_plain = {step_fits<false>, step_start<false>};
