// Hybrid attention's options, as every backend understands them, and how many keys it attends to. For decoding: every key is scored from its
// 4-bit codes (NoMAD: Zhang et al., arXiv 2403.01273), some keys are drawn with chances by these scores (cpu/long/chance.h), and these are attended to
// exactly, each for those that it stands for.
//
// For each key and KV head the codes are d / (2 d_sub) bytes, of which half are read by default on a CPU where d_sub is 1; of the selected ones, key and value are
// read besides. At d = 128, d_sub = 1, an fp16 cache and 1/8 of the keys that is 32 + 64 bytes where dense attention reads 512.
#pragma once
#include <stdbool.h>

#include "yalm.h"

struct hybrid {
    float share; // of the keys, selected …
    int min_k;   // … but at least so many
    int local;   // the most recent, which always belong; 0: a quarter of the selected
    int first;   // the oldest, likewise
    float codes; // of a key's codes, the share that its score reads; 0: the backend's to say
    int draw;    // enum setting_switch; auto: where the backend can
    int from;    // visible keys: with fewer, attention is dense; 0: the backend's to say
};

// Checks the options, and fills in what they leave open.
yalm_status hybrid_resolve(struct hybrid *hybrid, const yalm_session_options *options, yalm_error *error);

// How many of n keys are selected, at most.
static inline int hybrid_selected(const struct hybrid *h, int n)
{
    const int k = (int)(h->share * (float)n);
    return k > h->min_k ? k : h->min_k;
}
// Of k selected keys, the most recent that always belong.
static inline int hybrid_local(const struct hybrid *h, int k)
{
    return h->local ? h->local : k / 4;
}
