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

enum memory_kind { MEMORY_PAGEABLE, MEMORY_PINNED, MEMORY_REGISTERED, MEMORY_DEVICE };
struct memory_range {
    char *begin;
    size_t bytes;
    memory_kind kind;
    size_t before, after; // bytes of a pattern on either side
    char *pages;          // what is mapped for it, of page_bytes; null: it is not
    size_t page_bytes;
};
constexpr size_t CLOSED_BYTES = 64 << 10; // before and after the pages of an allocation
// The range that an address lies in; null: the host's own memory.
const memory_range *memory_find(const void *address);
// The first range of which `is_near` says so.
const memory_range *memory_nearest(const char *address, bool (*is_near)(const memory_range &range, const char *address));
// Faults where something was written beside an allocation.
void memory_check_guards(void);
// Between them device memory may be touched. They nest.
void memory_open(void);
void memory_close(void);

// Runs `run` after what is in the stream, when somebody waits for it; or records it where the stream is being captured.
cudaError_t stream_enqueue(cudaStream_t stream, emulated_call<void> run);
bool stream_capturing(cudaStream_t stream); // null: any stream
cudaError_t stream_spoil(cudaStream_t stream);
void streams_finish(bool blocking_only);
void stream_finish(cudaStream_t stream);
