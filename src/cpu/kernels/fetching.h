// How a core of this machine fastest reads what it reads once: weights, keys and values.
#pragma once
#include <stdbool.h>

// Bytes of tokens, used row after row, that an L1 of 32 KiB keeps while weights are fetched into it. A Zen 4's kept 8 KB and
// not 11.
enum { L1_KEEPS = 10 << 10 };

struct fetching {
    int streams;     // at a time: 2 or 4
    bool to_l2;      // keys and values, and weights beside more than L1_KEEPS of tokens, are fetched to L2 and no nearer
    bool runs_to_l2; // so is what lies in many runs, read some hundred bytes of each in turn: the hybrid's codes, SparQ's copy
};

// Rows far from each other: keys and then values into L1, or both together into L2.
static inline bool rows_to_l1(struct fetching fetching)
{
    return fetching.streams == 2 && !fetching.to_l2;
}
