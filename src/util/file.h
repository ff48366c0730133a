// A file, mapped read-only.
#pragma once
#include "yalm.h"

struct mapping {
    const char *path;    // borrowed
    const uint8_t *data; // (size)
    uint64_t size;
};

// YALM_FAILED where the file cannot be opened, is a directory, or cannot be mapped; YALM_BAD_MODEL where it is empty.
yalm_status mapping_open(struct mapping *mapping, const char *path, yalm_error *error);
// Keeps its pages in memory. YALM_FAILED where the system's limit forbids it.
yalm_status mapping_lock(const struct mapping *mapping, yalm_error *error);
void mapping_close(struct mapping *mapping);
