// Codebooks of product-quantised keys (NoMAD-Attention): a file beside the model's, written by calibration and bound to the
// model by its checksum. docs/format.md has it byte by byte. It is validated as if it were hostile, and mapped: nothing is
// copied.
#pragma once
#include "model/config.h"
#include "util/file.h"
#include "util/new_file.h"

enum { CODEBOOK_CENTROIDS = 16, MAX_D_SUB = 4 }; // d_sub is 1, 2 or 4

struct codebook {
    struct mapping mapping;
    char *path;             // owned
    int d_sub;              // components in a sub-vector
    int positions, samples; // keys were turned to positions below `positions`; so many for each KV head
    const float *centroids; // (far layers, all their KV heads, head_dim / d_sub, d_sub, 16), 64-byte aligned, all finite
};

// Floats in one KV head's part, whatever d_sub is.
static inline size_t codebook_head_floats(const struct model_config *config)
{
    return (size_t)config_far(config).head_dim * CODEBOOK_CENTROIDS;
}

// place: of the layer, config_far_place(). A rank that has some of a model's heads reads the whole model's codebooks.
static inline const float *codebook_of(const struct codebook *book, const struct model_config *config, size_t place,
                                       int kv_head)
{
    return book->centroids + config_head_number(config, place, kv_head) * codebook_head_floats(config);
}

// The file that belongs to a model where none is named: its path with .nomad for the ending (or after it, where there is none).
// Owned by the caller; NULL where memory ran out.
char *codebook_default_path(const char *model_path);

// YALM_FAILED where the file cannot be read, YALM_BAD_MODEL where it is no codebook file, damaged, or another model's.
yalm_status codebook_open(struct codebook *book, const char *path, const struct container *model,
                          const struct model_config *config, yalm_error *error);
// The same of the file `named`, or where that is NULL of the model's own (codebook_default_path()); one that is missing is
// answered with how to learn it.
yalm_status codebook_find(struct codebook *book, const char *named, const struct container *model,
                          const struct model_config *config, yalm_error *error);
void codebook_close(struct codebook *book);

// Writing: new_file_finish() keeps the file. A file of another kind that has the name already is not replaced (YALM_FAILED):
// never a model, or the text that it learns from.
yalm_status codebook_create(struct new_file *writer, const char *path, yalm_error *error);
// What the file says, with book->centroids in place of a mapping.
yalm_status codebook_write(struct new_file *writer, const struct codebook *book, const struct container *model,
                           const struct model_config *config, yalm_error *error);
