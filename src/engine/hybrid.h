// Hybrid attention's options, as every backend understands them, and how many keys it attends to. For decoding: every key is
// scored from its 4-bit codes (NoMAD: Zhang et al., arXiv 2403.01273), some keys are drawn by priority by these scores
// (cpu/long/priority.h), and these are attended to exactly, each for those that it stands for.
//
// For each key and KV head the codes are d / (2 d_sub) bytes, of which half are read by default on a CPU where d_sub is 1; of
// the selected ones, key and value are read besides. At d = 128, d_sub = 1, an fp16 cache and 1/8 of the keys that is 32 + 64
// bytes where dense attention reads 512.
//
// What drawing loses depends on how many keys are drawn, hardly on how many there are (docs/attention.md). So their usual
// number is the same at most lengths; short contexts have a share that reads 4 times less than dense attention at d = 64, long
// ones a share at least.
//
// Each key has a number u of its own, by which it is drawn. These are the multiples of the golden ratio, modulo 1, from another
// one on for each head: keys next to each other get unlike ones. No chance is involved, so that the same session gives the same
// bits, and all devices draw alike.
#pragma once
#include <stdbool.h>

#include "yalm.h"

// Of key i, 0 the oldest that a token sees: u = ((i + 1 + phase) * PRIORITY_TURN + 1/2) / 2^32, the product modulo 2^32. head:
// of all heads of all layers counted; phase = head * PRIORITY_APART % PRIORITY_PHASES.
#define PRIORITY_TURN 2654435769u // 2^32 over the golden ratio
enum { PRIORITY_APART = 389, PRIORITY_PHASES = 1024 };

// k keys are selected of n: the greatest of `share` of n, min(usual, most_share of n), and min_k.
struct hybrid {
    float share, most_share;
    int usual; // 0 where a share was asked for
    int min_k;
    int local;   // the most recent, which always belong; 0: a quarter of the selected, 16 at most
    int first;   // the oldest, likewise
    float codes; // of a key's codes, the share that its score reads; 0: the backend's to say
    int draw;    // enum setting_switch: keys are drawn, else the best are taken; auto: on
    int from;    // visible keys: with fewer, attention is dense; 0: the backend's to say
};

// Checks the options, and fills in what they leave open.
yalm_status hybrid_resolve(struct hybrid *hybrid, const yalm_session_options *options, yalm_error *error);

// How many of n keys are selected, at most.
static inline int hybrid_selected(const struct hybrid *h, int n)
{
    const int most = (int)(h->most_share * (float)n), usual = h->usual < most ? h->usual : most,
              share = (int)(h->share * (float)n);
    const int k = share > usual ? share : usual;
    return k > h->min_k ? k : h->min_k;
}
// Of k selected keys, the most recent that always belong. Few do: a recent key that matters is taken anyway.
static inline int hybrid_local(const struct hybrid *h, int k)
{
    return h->local ? h->local : k < 64 ? k / 4 : 16;
}
