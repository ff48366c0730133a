#include "engine/kv_cache.h"

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

struct kv_policy kv_policy_make(int context, int sliding_window, bool endless, int n_sinks, int chunk)
{
    struct kv_policy policy = {.context = context, .endless = endless, .span = context};
    if (sliding_window > 0 && sliding_window <= context)
        policy.span = sliding_window; // such a model was trained to lose old keys: it needs no sinks
    else if (endless)
        policy.n_sinks = (int)min64(n_sinks, context - 1);
    const int64_t ring = (int64_t)policy.span + chunk - 1;
    policy.capacity = (int)(endless ? ring : min64(ring, context));
    return policy;
}

void kv_policy_align(struct kv_policy *policy)
{
    policy->capacity = (int)min64((policy->capacity + KV_ALIGNMENT - 1) / KV_ALIGNMENT * KV_ALIGNMENT, policy->context);
}

int kv_slot(const struct kv_policy *policy, int64_t position)
{
    const int sinks = policy->n_sinks;
    return position < sinks ? (int)position : sinks + (int)((position - sinks) % (policy->capacity - sinks));
}

int64_t kv_first_visible(const struct kv_policy *policy, int64_t position)
{
    if (kv_sinks_apart(policy, position))
        return position - (policy->span - policy->n_sinks) + 1;
    return max64(0, position - policy->span + 1);
}

int kv_n_visible(const struct kv_policy *policy, int64_t position)
{
    return (int)min64(position + 1, policy->span);
}

int64_t kv_run_end(const struct kv_policy *policy, int64_t first, int64_t last)
{
    return min64(last, first + policy->capacity - kv_slot(policy, first));
}

bool kv_holds(const struct kv_policy *policy, int64_t position, int64_t high_water)
{
    // The key at position q has been overwritten once q + ring has been written.
    const int ring = policy->capacity - policy->n_sinks;
    return max64(kv_first_visible(policy, position), policy->n_sinks) + ring >= high_water;
}
