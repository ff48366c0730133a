// Which backend a session runs on, and what it will take there.
#pragma once
#include "engine/backend.h"
#include "engine/model.h"

struct device_choice {
    const struct backend *backend;
    const struct backend *own; // what this process computes with: another one where it is a group's rank
    char instead_of[sizeof(
        yalm_error)]; // "cuda: why", of a GPU, or a CUDA half, that is there and that "auto" turned down; else empty
};

// Chooses by options->device and lets the backend fill in what is open; all that does not depend on the device is resolved
// already. "auto" is cuda where there is a GPU that can run this model with these options, else cpu.
yalm_status device_choose(const yalm_model *model, yalm_session_options *options, struct device_choice *choice,
                          yalm_error *error);

struct backend_plan device_plan(const yalm_model *model, const yalm_session_options *options, const atomic_bool *cancel);

// What the session will take, and YALM_NO_MEMORY with the numbers where that is not to be had.
yalm_status device_memory(const struct backend *backend, const struct backend_plan *plan, yalm_memory *memory,
                          yalm_error *error);
yalm_status device_has_room(const struct backend *backend, const struct backend_plan *plan, const yalm_memory *memory,
                            yalm_error *error);
