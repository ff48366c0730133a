// Which positions the KV cache holds, where, and who sees them. Index arithmetic only: the backends own the memory.
//
// A query at position p sees the last `span` positions, itself among them. An endless session keeps n_sinks of the span for
// the first tokens of the text (attention sinks: Xiao et al., arXiv 2309.17453):
//
//     p <  span:  0 … p
//     p >= span:  0 … n_sinks - 1, and p - (span - n_sinks) + 1 … p
//
// A sink then stands, to the query, right before the oldest recent key, as if it were at most span - 1 positions away. Since
// rotary scores depend on distances only, rotating the *query* to position min(p, span - 1) for the sinks does that, and no
// cached key is ever rotated again.
//
// Slots: the sinks have slots 0 … n_sinks - 1, all other positions share a ring behind them. The ring is larger than the
// span by one chunk less one, so that a whole chunk can be appended before its first token attends.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct kv_policy {
    int context; // positions; the session's end unless endless
    bool endless;
    int span;     // positions that a query sees: context, or the model's sliding window where that is shorter
    int n_sinks;  // 0 where there are none to keep
    int capacity; // slots
};

// `context` positions of a layer with this window; 0: none.
struct kv_policy kv_policy_make(int context, int sliding_window, bool endless, int n_sinks, int chunk);

// Makes the ring longer, so that it ends at positions that are multiples of KV_ALIGNMENT, whatever `chunk` is. Of a session
// that ends with its context.
enum { KV_ALIGNMENT = 192 };
void kv_policy_align(struct kv_policy *policy);

int kv_slot(const struct kv_policy *policy, int64_t position);

// First position of the run that ends in `position` and that its query sees, the sinks not counted once they are apart.
int64_t kv_first_visible(const struct kv_policy *policy, int64_t position);

// True where the query at `position` sees the sinks apart from its recent keys.
static inline bool kv_sinks_apart(const struct kv_policy *policy, int64_t position)
{
    return policy->n_sinks > 0 && position >= policy->span;
}

int kv_n_visible(const struct kv_policy *policy, int64_t position); // keys that the query at `position` sees

// Positions [first, last) cut into runs of consecutive slots: returns the end of the run that begins at `first`.
int64_t kv_run_end(const struct kv_policy *policy, int64_t first, int64_t last);

// True where, after positions below `high_water` have been written, all that a query at `position` sees is still there.
bool kv_holds(const struct kv_policy *policy, int64_t position, int64_t high_water);
