// One block of threads at a time: each thread is a fibre, barriers and warp operations are where fibres change.
#pragma once
#include "cuda_runtime.h"

#include <vector>

// What a kernel or a call did wrong. The first one is kept until cudaDeviceReset(); then the device is of no use, as a GPU would be.
void emulated_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool emulated_faulted(void);

// Runs a kernel's grid to its end or its first fault.
void emulated_run_grid(const emulated_kernel &kernel);
// Before the kernel ahead of it in the stream runs: one block, up to its grid_dependency_wait(). Then that kernel, then this one's grid.
void emulated_begin_early(const emulated_kernel &kernel);
// What runs: "kernel, block (x, y, z), thread (x, y, z): " or nothing.
void emulated_where(char *text, size_t room);

// The pattern of memory that nothing wrote.
constexpr int EMULATED_POISON = 0xFF;
void emulated_poison(void *memory, size_t bytes);
