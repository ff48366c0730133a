// One block of threads at a time: each thread is a fibre, barriers and warp operations are where fibres change.
#pragma once
#include "cuda_runtime.h"

#include <csetjmp>
#include <vector>

// What a kernel or a call did wrong. The first one is kept until cudaDeviceReset(); then the device is of no use, as a GPU would be.
void emulated_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool emulated_faulted(void);

// Runs a kernel's grid to its end or its first fault.
void emulated_run_grid(const emulated_kernel &kernel);

// The pattern of memory that nothing wrote.
constexpr int EMULATED_POISON = 0xFF;
void emulated_poison(void *memory, size_t bytes);
