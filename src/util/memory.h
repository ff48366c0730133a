// Large blocks, and what the machine can still give.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Zeroed pages straight from the kernel, 64-byte aligned at least, with a hint for huge pages where the block is large.
// Pages are taken on first touch. NULL where the kernel refuses, or for 0 bytes.
void *memory_pages(size_t bytes);
void memory_pages_free(void *block, size_t bytes); // NULL is welcome

// Zeroed memory in transparent huge pages, aligned to them, `taken` bytes of address space that munmap() gives back. NULL where
// the kernel has none, or does not give any; `why` says why.
void *memory_huge_pages(uint64_t bytes, uint64_t *taken, const char **why);

// Bytes that can be taken without swapping: MemAvailable, or less where a control group's limit is nearer.
uint64_t memory_available(void);
