// One token's step as one kernel (step.cuh): the form that knows all phases.
#include "cuda/step/step_kernel.cuh"

const struct step_form step_whole = {step_fits<true>, step_start<true>};
