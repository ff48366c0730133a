// What other files of this room need to know of a session.
#pragma once
#include "engine/backend.h"
#include "engine/model.h"

struct session_parts {
    const yalm_model *model;
    const struct backend *backend;
    void *state; // the backend's
    atomic_bool *cancel;
};

struct session_parts session_parts(yalm_session *session);
