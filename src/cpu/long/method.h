// An attention method's own state (state->method): its options, and pointers into the memory that it carved. One struct serves
// all, since the hybrid is made of the others' parts.
#pragma once
#include "cpu/long/code_runs.h"
#include "cpu/long/nomad_codes.h"
#include "cpu/long/selective.h"
#include "cpu/long/sparq.h"
#include "cpu/policy.h"
#include "cpu/state.h"
#include "engine/hybrid.h"

struct method {
    struct selective selective; // of those that select
    struct sparq sparq;
    struct nomad nomad; // of those that keep codes
    struct code_runs code_runs;
    struct hybrid hybrid;
};

extern const struct policy policy_sparq, policy_nomad, policy_hybrid;
