// yalm_group.h: one model on several machines (docs/machines.md).
//
// Processes compute one model together, each with its share of the weights and of the caches. Rank 0 opens the model and its
// sessions, and uses them as if it were alone; each other rank follows it. Sessions run on the CPUs, or with device "cuda" on
// a GPU a rank. They cannot be kept in files.

#ifndef YALM_GROUP_H
#define YALM_GROUP_H

#include "yalm.h"

#ifdef __cplusplus
extern "C" {
#endif

// The processes that mpirun started together with this one; *group NULL, and YALM_OK, where it is alone. YALM_FAILED:
// libyalm-mpi.so or MPI itself fails.
YALM_API yalm_status yalm_group_join(yalm_group **group, yalm_error *error);
YALM_API int yalm_group_rank(const yalm_group *group); // 0 … size - 1
YALM_API int yalm_group_size(const yalm_group *group);
// Whether this rank is the one to tell people what happens: rank 0, or rank 1 where that was lost.
YALM_API bool yalm_group_speaks(const yalm_group *group);

// On the other ranks: opens this machine's copy of the file when rank 0 opens its own. Then it does its share of all that rank
// 0's sessions do, until rank 0 leaves (YALM_OK) or a rank is lost (YALM_FAILED). Of `options` threads and pin count; the
// others are those of rank 0's sessions.
YALM_API yalm_status yalm_group_follow(yalm_group *group, const char *path, const yalm_model_options *how,
                                       const yalm_session_options *options, yalm_error *error);

// On another rank that cannot follow, in place of it: when rank 0 opens its model, that fails for this reason.
YALM_API yalm_status yalm_group_refuse(yalm_group *group, const yalm_error *why, yalm_error *error);

// From the next model on that rank 0 opens: what is summed goes over the wire as fp16, in half of the bytes. Each sum is then
// rounded to 11 bits of its largest. Of CPUs only.
YALM_API void yalm_group_use_fp16(yalm_group *group, bool on);

// What this rank has sent so far, but through NCCL, and how long it has been at sums and at gathering logits, waiting included.
typedef struct yalm_traffic {
    uint64_t messages, bytes;
    double seconds;
} yalm_traffic;
YALM_API yalm_traffic yalm_group_traffic(const yalm_group *group);

// After its models are closed; NULL is welcome. On rank 0 it ends the following of all others.
YALM_API void yalm_group_leave(yalm_group *group);

#ifdef __cplusplus
}
#endif
#endif
