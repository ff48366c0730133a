// What rank 0 of a group does for its sessions (ranks.c), and how it is told to the others (follow.c).
#pragma once
#include "engine/backend.h"

// Of ranks that each compute with `own`, the CPU's or the CUDA half's.
const struct backend *ranks_backend(const struct backend *own);

enum { RANKS_MOST_SETTINGS = 64 };

struct ranks_options {
    yalm_session_options options; // its strings lie in what was sent; threads are left to be chosen
    const char *settings[RANKS_MOST_SETTINGS];
};

// Where a rank that follows has its model from.
struct model_source {
    yalm_model *(*open)(const struct model_source *source, yalm_group *group, yalm_error *error);
    void (*close)(yalm_model *model);
    const char *path;
    const yalm_model_options *how;
    const yalm_error *why; // of one that cannot be had
};

// yalm_group_follow() with a model from anywhere.
yalm_status group_follow(yalm_group *group, const struct model_source *source, const yalm_session_options *options,
                         yalm_error *error);

// What is the same on all ranks, as bytes to be freed; NULL where memory ran out.
char *ranks_write_options(const yalm_session_options *options, size_t *length);
// False where the bytes are not whole.
bool ranks_read_options(struct ranks_options *to, const char *bytes, size_t length);
