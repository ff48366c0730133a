// Device memory, pinned host memory, copies between them. Every copy is checked against what is allocated.
#include "runtime.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sanitizers.h"
#include "trap.h"

// Without AddressSanitizer, device memory has pages of its own, which end where the allocation does and are closed while the device does
// nothing; the bytes of a pattern on either side show writes that the pages let through.
constexpr bool PAGED = !EMULATED_ASAN;
constexpr size_t PAGE_BYTES = 4096, ALIGNMENT = 256;
constexpr size_t POISONED_BYTES = 2 << 20;
constexpr size_t GUARD_BYTES = EMULATED_ASAN ? 0 : 256;
constexpr unsigned char GUARD = 0xA7;

static std::vector<memory_range> ranges; // by address
static size_t device_bytes;
static int n_open;

static size_t free_setting(void)
{
    return (size_t)runtime_setting("YALM_EMULATED_FREE", (long long)15 << 30);
}

static size_t position_of(const void *address)
{
    auto after = std::upper_bound(ranges.begin(), ranges.end(), address,
                                  [](const void *a, const memory_range &range) { return a < range.begin; });
    return (size_t)(after - ranges.begin());
}

const memory_range *memory_find(const void *address)
{
    size_t i = position_of(address);
    if (i == 0) {
        return nullptr;
    }
    const memory_range *range = &ranges[i - 1];
    return address < range->begin + range->bytes || address == range->begin ? range : nullptr;
}

const memory_range *memory_nearest(const char *address, bool (*is_near)(const memory_range &range, const char *address))
{
    for (const memory_range &range : ranges) {
        if (is_near(range, address)) {
            return &range;
        }
    }
    return nullptr;
}

static void report_leaks(void)
{
    size_t bytes = 0;
    for (const memory_range &range : ranges) {
        bytes += range.bytes;
    }
    if (!ranges.empty() && !emulated_faulted()) {
        fprintf(stderr, "emulated GPU: %zu allocations of %zu bytes were never freed; the first: %zu bytes of %s memory\n",
                ranges.size(), bytes, ranges[0].bytes, ranges[0].kind == MEMORY_DEVICE ? "device" : "pinned");
        _exit(1);
    }
}

static void protect(const memory_range &range, bool open)
{
    if (range.pages && mprotect(range.pages, range.page_bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
        abort();
    }
}

static void add(const memory_range &range)
{
    static bool watching;
    if (!watching) {
        watching = true;
        atexit(report_leaks);
    }
    ranges.insert(ranges.begin() + (ptrdiff_t)position_of(range.begin), range);
}

// Pages that hold the pattern of what nothing wrote, and become the allocation's own when they are written: most of a large one is never touched.
static int poisoned_file(void)
{
    static int file = -1;
    if (file < 0) {
        std::vector<char> pattern(POISONED_BYTES, (char)EMULATED_POISON);
        file = memfd_create("unwritten", 0);
        if (file < 0 || write(file, pattern.data(), POISONED_BYTES) != (ssize_t)POISONED_BYTES) {
            abort();
        }
    }
    return file;
}

static void poison_range(const memory_range &range)
{
    size_t at = 0;
    for (; range.pages && range.page_bytes - at >= POISONED_BYTES; at += POISONED_BYTES) {
        if (mmap(range.pages + at, POISONED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, poisoned_file(), 0) ==
            MAP_FAILED) {
            abort();
        }
    }
    char *rest = at > range.before ? range.pages + at : range.begin;
    if (rest < range.begin + range.bytes) {
        memset(rest, EMULATED_POISON, (size_t)(range.begin + range.bytes - rest));
    }
    sanitizer_unwritten(range.begin, range.bytes);
}

// [closed pages] [pattern, allocation, pattern to the page's end] [closed pages]
static bool map_range(memory_range *range, size_t bytes)
{
    size_t used = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, open = (used + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    void *pages = mmap(nullptr, open + 2 * CLOSED_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
        return false;
    }
    char *first = static_cast<char *>(pages) + CLOSED_BYTES, *begin = first + open - used;
    *range = {begin, bytes, MEMORY_DEVICE, (size_t)(begin - first), used - bytes, first, open};
    protect(*range, true);
    return true;
}

static bool allocate_range(memory_range *range, size_t bytes)
{
    void *whole = nullptr;
    if (posix_memalign(&whole, ALIGNMENT, GUARD_BYTES + bytes + GUARD_BYTES) != 0) {
        return false;
    }
    *range = {static_cast<char *>(whole) + GUARD_BYTES, bytes, MEMORY_PINNED, GUARD_BYTES, GUARD_BYTES, nullptr, 0};
    return true;
}

static cudaError_t allocate(void **memory, size_t bytes, memory_kind kind)
{
    auto lock = runtime_lock();
    if (runtime_usable() != cudaSuccess) {
        return runtime_usable();
    }
    if (!memory) {
        return runtime_result(cudaErrorInvalidValue);
    }
    if (stream_capturing(nullptr)) {
        return stream_spoil(nullptr);
    }
    *memory = nullptr;
    if (bytes == 0) {
        return cudaSuccess;
    }
    if (kind == MEMORY_DEVICE && (bytes > free_setting() || device_bytes > free_setting() - bytes)) {
        return runtime_result(cudaErrorMemoryAllocation);
    }
    memory_range range;
    if (!(PAGED && kind == MEMORY_DEVICE ? map_range(&range, bytes) : allocate_range(&range, bytes))) {
        return runtime_result(cudaErrorMemoryAllocation);
    }
    range.kind = kind;
    poison_range(range);
    memset(range.begin - range.before, GUARD, range.before);
    memset(range.begin + bytes, GUARD, range.after);
    trap_prepare();
    protect(range, n_open > 0);
    add(range);
    device_bytes += kind == MEMORY_DEVICE ? bytes : 0;
    *memory = range.begin;
    return cudaSuccess;
}

void memory_open(void)
{
    trap_prepare();
    if (n_open++ == 0) {
        for (const memory_range &range : ranges) {
            protect(range, true);
        }
    }
}

void memory_close(void)
{
    if (--n_open == 0) {
        for (const memory_range &range : ranges) {
            protect(range, false);
        }
    }
}

static bool all_guard(const char *bytes, size_t n)
{
    return n == 0 || ((unsigned char)*bytes == GUARD && memcmp(bytes, bytes + 1, n - 1) == 0);
}

static bool guards_whole(const memory_range &range)
{
    return all_guard(range.begin - range.before, range.before) && all_guard(range.begin + range.bytes, range.after);
}

void memory_check_guards(void)
{
    for (const memory_range &range : ranges) {
        if (!guards_whole(range)) {
            emulated_fault("something was written before or after an allocation of %zu bytes", range.bytes);
            return;
        }
    }
}

static cudaError_t release(void *memory, memory_kind kind, const char *call)
{
    auto lock = runtime_lock();
    if (!memory) {
        return cudaSuccess;
    }
    if (stream_capturing(nullptr)) {
        return stream_spoil(nullptr);
    }
    streams_finish(false);
    const memory_range *range = memory_find(memory);
    if (!range || range->begin != memory || range->kind != kind) {
        emulated_fault("%s(%p): no such allocation, or freed before", call, memory);
        return runtime_result(cudaErrorInvalidValue);
    }
    memory_open();
    if (!guards_whole(*range)) {
        emulated_fault("%s(%p): something was written before or after an allocation of %zu bytes", call, memory, range->bytes);
    }
    device_bytes -= kind == MEMORY_DEVICE ? range->bytes : 0;
    memory_range gone = *range;
    ranges.erase(ranges.begin() + (range - ranges.data()));
    if (gone.pages) {
        munmap(gone.pages - CLOSED_BYTES, gone.page_bytes + 2 * CLOSED_BYTES);
    } else {
        free(gone.begin - gone.before);
    }
    memory_close();
    return runtime_usable();
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    return allocate(memory, bytes, MEMORY_DEVICE);
}
cudaError_t cudaFree(void *memory)
{
    return release(memory, MEMORY_DEVICE, "cudaFree");
}
cudaError_t cudaMallocHost(void **memory, size_t bytes, unsigned)
{
    return allocate(memory, bytes, MEMORY_PINNED);
}
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    return allocate(memory, bytes, MEMORY_PINNED);
}
cudaError_t cudaFreeHost(void *memory)
{
    return release(memory, MEMORY_PINNED, "cudaFreeHost");
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned)
{
    auto lock = runtime_lock();
    if (!memory || bytes == 0) {
        return runtime_result(cudaErrorInvalidValue);
    }
    if (memory_find(memory) || memory_find(static_cast<char *>(memory) + bytes - 1)) {
        return runtime_result(cudaErrorHostMemoryAlreadyRegistered);
    }
    add({static_cast<char *>(memory), bytes, MEMORY_REGISTERED, 0, 0, nullptr, 0});
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    auto lock = runtime_lock();
    streams_finish(false);
    const memory_range *range = memory_find(memory);
    if (!range || range->begin != memory || range->kind != MEMORY_REGISTERED) {
        return runtime_result(cudaErrorHostMemoryNotRegistered);
    }
    ranges.erase(ranges.begin() + (range - ranges.data()));
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
    auto lock = runtime_lock();
    const memory_range *range = memory_find(host);
    *device = host;
    return runtime_result(range && range->kind != MEMORY_DEVICE ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer)
{
    auto lock = runtime_lock();
    const memory_range *range = memory_find(pointer);
    void *address = const_cast<void *>(pointer);
    *attributes = {};
    if (range) {
        bool on_device = range->kind == MEMORY_DEVICE;
        attributes->type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
        attributes->devicePointer = address;
        attributes->hostPointer = on_device ? nullptr : address;
    }
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    auto lock = runtime_lock();
    cudaDeviceProp properties;
    cudaError_t code = cudaGetDeviceProperties(&properties, 0);
    if (code == cudaSuccess) {
        size_t limit = free_setting();
        *free_bytes = limit > device_bytes ? limit - device_bytes : 0;
        *total_bytes = properties.totalGlobalMem > limit ? properties.totalGlobalMem : limit;
    }
    return code;
}

// ---------------------------------------------------------------------------------------- copies

struct copy {
    char *to;
    const char *from; // null: a value is set
    size_t to_pitch, from_pitch, width, height;
    int value;
    cudaMemcpyKind kind;
    const char *call;
};

static bool range_allows(const copy &c, const char *address, size_t pitch, bool on_device, const char *role)
{
    const memory_range *range = memory_find(address);
    memory_kind kind = range ? range->kind : MEMORY_PAGEABLE;
    if (c.kind != cudaMemcpyDefault && on_device != (kind == MEMORY_DEVICE) && !(on_device && kind != MEMORY_PAGEABLE)) {
        emulated_fault("%s: the %s %p is %s memory, not %s", c.call, role, static_cast<const void *>(address),
                       kind == MEMORY_DEVICE ? "device" : "host", on_device ? "device" : "host");
        return false;
    }
    size_t bytes = pitch * (c.height - 1) + c.width;
    if (range && bytes > (size_t)(range->begin + range->bytes - address)) {
        emulated_fault("%s: %zu bytes at the %s run past the end of an allocation of %zu bytes", c.call, bytes, role,
                       range->bytes);
        return false;
    }
    return true;
}

static bool copy_allowed(const copy &c)
{
    bool to_device = c.kind == cudaMemcpyHostToDevice || c.kind == cudaMemcpyDeviceToDevice;
    bool from_device = c.kind == cudaMemcpyDeviceToHost || c.kind == cudaMemcpyDeviceToDevice;
    return range_allows(c, c.to, c.to_pitch, to_device, "destination") &&
           (!c.from || range_allows(c, c.from, c.from_pitch, from_device, "source"));
}

static void copy_run(const copy &c)
{
    if (!copy_allowed(c)) {
        return;
    }
    for (size_t row = 0; row < c.height; row++) {
        if (c.from) {
            memmove(c.to + row * c.to_pitch, c.from + row * c.from_pitch, c.width);
        } else {
            memset(c.to + row * c.to_pitch, c.value, c.width);
        }
    }
}

static bool pageable(const char *address)
{
    return address && !memory_find(address);
}

static cudaError_t copy_begin(const copy &c, cudaStream_t stream, bool wait)
{
    auto lock = runtime_lock();
    if (runtime_usable() != cudaSuccess) {
        return runtime_usable();
    }
    if (c.width == 0 || c.height == 0) {
        return cudaSuccess;
    }
    if (!c.to || c.to_pitch < c.width || (c.from && c.from_pitch < c.width)) {
        return runtime_result(cudaErrorInvalidValue);
    }
    // Pageable memory is read or written before the call returns; so a graph cannot hold such a copy.
    wait = wait || pageable(c.to) || pageable(c.from);
    if (wait && stream_capturing(stream)) {
        return stream_spoil(stream);
    }
    if (!copy_allowed(c)) {
        return cudaErrorLaunchFailure;
    }
    cudaError_t code = stream_enqueue(stream, [c] { copy_run(c); });
    if (code == cudaSuccess && wait) {
        stream_finish(stream);
        code = runtime_usable();
    }
    return code;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream)
{
    if (!from && width && height) {
        return runtime_result(cudaErrorInvalidValue);
    }
    copy c = {static_cast<char *>(to), static_cast<const char *>(from), to_pitch, from_pitch, width, height, 0, kind,
              "cudaMemcpyAsync"};
    return copy_begin(c, stream, false);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind)
{
    if (!from && width && height) {
        return runtime_result(cudaErrorInvalidValue);
    }
    copy c = {
        static_cast<char *>(to), static_cast<const char *>(from), to_pitch, from_pitch, width, height, 0, kind, "cudaMemcpy"};
    return copy_begin(c, nullptr, true);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    return cudaMemcpy2D(to, bytes, from, bytes, bytes, 1, kind);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    copy c = {static_cast<char *>(memory), nullptr, bytes, bytes, bytes, 1, value, cudaMemcpyHostToDevice, "cudaMemsetAsync"};
    return copy_begin(c, stream, false);
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    copy c = {static_cast<char *>(memory), nullptr, bytes, bytes, bytes, 1, value, cudaMemcpyHostToDevice, "cudaMemset"};
    return copy_begin(c, nullptr, false);
}
