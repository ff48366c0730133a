// Attention to given rows of a cache: gather, then attend. A block of them is copied into a tile, which stays in the
// first-level cache. The kernel for consecutive keys attends to that while it fetches the next block's rows. What the copy
// costs is less than what a kernel loses to rows that each have an address of their own.
#pragma once
#include "cpu/kernels/kernels.h"

// Where the keys are.
struct given_rows {
    const int *rows; // (args.n_keys), of args.k, v and their scales
    bool fetched;    // the first of them have been named as next_rows before
};

// Bytes of a tile for rows of row_bytes each.
size_t attend_rows_tile(size_t row_bytes);

// As attend() of a cache of `type`, with the keys in given rows. args: for at most 8 queries, without first and last. tile:
// 64-byte aligned, this thread's own.
void attend_rows(const struct cpu_kernels *kernels, attend_function *attend, enum kv_type type, const struct attend_args *args,
                 struct given_rows given, void *tile);
