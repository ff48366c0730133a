// A file, mapped read-only, or a copy of it in huge pages; files that are opened without waiting.
#pragma once
#include <stdio.h>

#include "yalm.h"

struct mapping {
    const char *path;    // borrowed
    const uint8_t *data; // (size)
    uint64_t size;
    uint64_t copied; // bytes of address space that a copy takes; 0: mapped
};

// YALM_FAILED where the file cannot be opened, is a directory, or cannot be mapped; YALM_BAD_MODEL where it is empty. With
// `huge_pages` the file is read into memory of its own: YALM_NO_MEMORY, before any is taken, where it does not suffice,
// YALM_FAILED where the system has no huge pages to give.
yalm_status mapping_open(struct mapping *mapping, const char *path, bool huge_pages, yalm_error *error);
// Keeps its pages in memory. YALM_FAILED where the system's limit forbids it.
yalm_status mapping_lock(const struct mapping *mapping, yalm_error *error);
void mapping_close(struct mapping *mapping);

// As fopen() does for "r" and "w", but a named pipe with nobody at its other end is not waited for. Where nobody reads it the
// error is ENXIO; where nobody writes to it, it is empty.
FILE *file_open_at_once(const char *path, const char *mode);
