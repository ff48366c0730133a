// The file as docs/format.md has it: header, metadata, tensor table. Everything here comes from the file, and the file
// lies: nothing is believed before it is checked.
#pragma once
#include <cjson/cJSON.h>

#include "model/dtype.h"
#include "util/error.h"
#include "util/file.h"

enum { MAX_RANK = 4 };

struct tensor {
    const char *name; // owned by the metadata
    enum dtype dtype;
    int rank;
    int64_t shape[MAX_RANK]; // outermost first; 1 beyond rank
    uint64_t offset, length; // bytes, from the start of the file
    uint64_t checksum;       // XXH3-64 of the bytes
    const void *data;        // (length), in the mapping
};

struct container {
    struct mapping mapping;
    cJSON *metadata;
    uint64_t metadata_checksum;
    int n_tensors;
    struct tensor *tensors;  // (n_tensors), in the order of the file
    struct tensor **by_name; // (n_tensors), sorted
};

// Maps `path` (the string is copied), or copies it into huge pages, and checks header, metadata (strict JSON) and table. Reads
// no tensor.
yalm_status container_open(struct container *container, const char *path, bool huge_pages, yalm_error *error);
void container_close(struct container *container);

const struct tensor *container_find(const struct container *container, const char *name); // NULL where absent
// Compares the tensor's bytes with its checksum.
yalm_status container_verify(const struct container *container, const struct tensor *tensor, yalm_error *error);
