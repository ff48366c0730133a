// What is used of NCCL, which sums between GPUs: opened when ranks have GPUs, so that nothing else needs it. Types and values
// are those of its nccl.h, which stay as they are from version to version.
#pragma once
#include "cuda/kernels/cuda.h"

typedef struct ncclComm *nccl_comm;

struct nccl_id {
    char bytes[INVITATION_BYTES];
};

enum nccl_result { NCCL_SUCCESS = 0, NCCL_INVALID_USAGE = 5, NCCL_IN_PROGRESS = 7 };
enum { NCCL_FLOAT32 = 7, NCCL_SUM = 0 };

// Each is the function nccl… of that name. They return an enum nccl_result, and queue their work on the stream.
struct nccl {
    int (*get_version)(int *version); // 22105 for 2.21.5
    int (*get_unique_id)(nccl_id *id);
    int (*comm_init_rank)(nccl_comm *comm, int n_ranks, nccl_id id, int rank); // waits for all ranks
    int (*comm_abort)(nccl_comm comm);
    int (*comm_get_async_error)(nccl_comm comm, int *result);
    int (*all_reduce)(const void *from, void *to, size_t n, int type, int operation, nccl_comm comm, cudaStream_t stream);
    int (*send)(const void *from, size_t n, int type, int to_rank, nccl_comm comm, cudaStream_t stream);
    int (*recv)(void *to, size_t n, int type, int from_rank, nccl_comm comm, cudaStream_t stream);
    int (*group_start)(void); // what follows, up to the end, is done at once
    int (*group_end)(void);
    const char *(*get_error_string)(int result);
    const char *(*get_last_error)(nccl_comm comm);
};

// NULL, and why, where it is not installed or too old. Constant from then on.
const struct nccl *nccl_open(yalm_error *error);

// YALM_OK, or a line that says which call failed, and how. comm: NULL where there is none.
yalm_status nccl_check(const struct nccl *nccl, int result, const char *call, nccl_comm comm, yalm_error *error);
