// What the parts of the emulated runtime share.
#pragma once
#include "block.h"

#include <mutex>

// Held by every call, and so by kernels: there is one device, and it does one thing at a time.
std::unique_lock<std::recursive_mutex> runtime_lock(void);
// Remembers an error for cudaGetLastError().
cudaError_t runtime_result(cudaError_t code);
// cudaSuccess, or that a kernel's fault has made the device unusable.
cudaError_t runtime_usable(void);
void emulated_fault_forget(void);

// An integer from the environment.
long long runtime_setting(const char *name, long long otherwise);

// Shared memory that one block may have, static and dynamic together.
size_t device_shared_limit(void);

enum memory_kind { MEMORY_PAGEABLE, MEMORY_PINNED, MEMORY_DEVICE };
struct memory_range {
    char *begin;
    size_t bytes;
    memory_kind kind;
    bool registered; // the caller's own memory
};
// The range that an address lies in; null: the host's own memory.
const memory_range *memory_find(const void *address);
// Faults where something was written beside an allocation.
void memory_check_guards(void);

// Runs `run` after what is in the stream, when somebody waits for it; or records it where the stream is being captured.
cudaError_t stream_enqueue(cudaStream_t stream, std::function<void()> run);
bool stream_capturing(cudaStream_t stream); // null: any stream
void streams_finish(bool blocking_only);
void stream_finish(cudaStream_t stream);
