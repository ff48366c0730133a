// The attention methods that a session can be opened with.

#include "cpu/long/method.h"

const struct policy *const policies[] = {&policy_dense, &policy_sparq, &policy_nomad, &policy_hybrid, NULL};
