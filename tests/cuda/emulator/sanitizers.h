// What the sanitizers are told, where the build has them.
#pragma once
#include <cstddef>

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define EMULATED_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define EMULATED_ASAN 0
#endif
#if __has_feature(memory_sanitizer)
#define EMULATED_MSAN 1
#include <sanitizer/msan_interface.h>
#else
#define EMULATED_MSAN 0
#endif

// Nobody may touch these bytes; they may be touched again.
inline void sanitizer_poison(const void *memory, size_t bytes)
{
#if EMULATED_ASAN
    __asan_poison_memory_region(memory, bytes);
#endif
    (void)memory, (void)bytes;
}
inline void sanitizer_unpoison(const void *memory, size_t bytes)
{
#if EMULATED_ASAN
    __asan_unpoison_memory_region(memory, bytes);
#endif
    (void)memory, (void)bytes;
}
// Nothing has been written here.
inline void sanitizer_unwritten(const void *memory, size_t bytes)
{
#if EMULATED_MSAN
    __msan_poison(memory, bytes);
#endif
    (void)memory, (void)bytes;
}
// Whoever reads these bytes may.
inline void sanitizer_written(const void *memory, size_t bytes)
{
#if EMULATED_MSAN
    __msan_unpoison(memory, bytes);
#endif
    (void)memory, (void)bytes;
}
