// A session's memory on the CPU: KV cache, activations, scratch. Sizes are known before anything is taken.
#pragma once
#include "cpu/kernels/kernels.h"
#include "cpu/machine/reading.h"
#include "cpu/machine/team.h"
#include "cpu/plan.h"
#include "cpu/policy.h"
#include "engine/backend.h"
#include "recipe/recipe.h"

// Tokens apart: so many of a session's become, in one batch, what each would in a batch of its own (matmul.h says how).
enum { MOST_APART = 16 };

// Attention's work on one KV head is cut along the keys into at most so many parts (see attention.h).
enum { MAX_KEY_PARTS = 64 };

// What the layers of one kind have for themselves.
struct cpu_kind {
    struct kv_policy kv;
    int head_dim, n_kv_heads;
    int rotary;                          // components of a head, the last ones, that the angles are for
    int group;                           // query heads that share a KV head
    int q_dim, kv_dim;                   // n_heads * head_dim, n_kv_heads * head_dim
    const struct fixed_attention *fixed; // of many queries, where the cache's type and head_dim have it; else NULL
    const struct byte_attention *few;    // of few queries, likewise
    int query_tokens; // most tokens whose queries one attention task takes together where keys are cut into parts
    int block_tokens; // likewise where tokens are cut into blocks
    // KV cache: what the kernels read, where the appends write.
    // Of latents a slot's key is its value as well, and `values` is `keys`.
    void *keys, *values; // (layers of the kind, n_kv_heads, kv.capacity, head_dim); keys: NULL where the policy decodes them
    float *key_scales, *value_scales; // (layers of the kind, n_kv_heads, kv.capacity) of int8; else NULL

    // Of recurrent layers, in each of CARRIED_PLACES (delta.h): (places, layers of the kind, …); all else of such a kind is
    // NULL, but where it attends as well.
    float *states; // (n_value_heads, key_dim, value_dim), in blocks of columns as delta_rule() has them
    float *inputs; // (conv_width - 1, delta_channels())
    // What the last tokens apart brought to each layer (delta.h): (layers of the kind, replay_floats())
    float *replays;
    float *query_units, *key_units; // (key_dim): constants

    double *inverse_frequency; // (rotary / 2)
    double rope_scale;
    float *cos, *sin;           // (chunk, rotary / 2)
    float *sink_cos, *sink_sin; // (rotary / 2) at position span - 1
};

// What recurrent layers carry from token to token lies in several places. An evaluation reads one and writes another: where it
// is interrupted, nothing is spoilt, and the session can go back to where it began. The third keeps where the last batch of
// several tokens began.
enum { CARRIED_PLACES = 3 };
struct carried {
    int64_t at[CARRIED_PLACES]; // the position that each stands before; -1: it holds nothing
    int64_t kept;               // whose place is not written over
    int from, to;               // of the evaluation under way
    int64_t first;              // of n_replays tokens apart: the session may turn out to stand behind any of them
    int n_replays;
};

// Keys and values of heads that are made of latents (latents.h).
struct expansion {
    bool there;
    int width;                           // of a head's keys and of its values: the wider; behind the others stands 0
    int room;                            // positions at once
    int queries;                         // of a head that are attended together
    const struct fixed_attention *fixed; // of many queries; NULL: none
};

struct cpu_state {
    const struct model_config *config;
    const struct model_weights *weights;
    struct recipe recipe; // what an evaluation does
    const struct cpu_kernels *kernels;
    struct product_plan plan; // who multiplies
    struct fetching fetching; // machine_fetching()
    struct team *team;
    bool own_team;                  // else the model's
    int n_threads, n_threads_batch; // for one token, for several
    struct cpu_kind kinds[CONFIG_MAX_KINDS];
    int place[CONFIG_MAX_LAYERS];    // of a layer among those of its kind
    int kv_layer[CONFIG_MAX_LAYERS]; // whose keys and values a layer sees
    struct carried carried;          // by recurrent layers
    const struct cpu_kind *far;      // config_far_kind(), whose layers an attention method serves
    int far_layers;                  // layers of that kind
    const struct kv_policy *kv;      // its
    const struct policy *policy;     // how one token attends to its keys
    struct method *method;           // what that has for itself (long/method.h); NULL of dense attention
    const struct key_record *record; // where keys go that calibration records; else NULL
    struct input_sums *observed;     // where what matrices read goes that is observed (matmul_observe()); else NULL
    const atomic_bool *cancel;
    struct yalm_group *group; // whose ranks have the rest of the model; NULL: none
    int64_t run;              // forward passes so far
    _Atomic int64_t stopped;  // where the last of them ends that was told to: cpu_stop()
    atomic_int cut;           // 1 + the layer whose key or value was finite, and not in fp16's range; 0: none

    // Only the caller's thread, member 0 of the team, looks at these.
    bool time_attention;
    double attention_seconds;
    struct reader reader;

    int q_dim, kv_dim; // the most of any kind
    struct expansion expansion;
    int chunk;     // most tokens in a batch
    bool together; // its tokens are of several sessions (together.c)
    int key_parts; // most parts that one task's keys are cut into

    enum kv_type kv_type;

    // Activations, token-major.
    float *x;              // (chunk, hidden_dim), the residual stream
    float *h;              // (chunk, hidden_dim), normalised
    float *q;              // (chunk, q_dim) of the layer's kind, as all that follows
    float *k, *v;          // (chunk, kv_dim)
    float *rotated_q;      // (n_kv_heads, chunk, group, head_dim), scaled by 1 / sqrt(head_dim)
    float *sink_q;         // likewise, as the sinks see them; NULL where there are no sinks
    float *attended;       // (chunk, q_dim)
    float *latent, *heads; // (chunk, width[BUFFER_LATENT]), (chunk, width[BUFFER_HEADS]), with latents or KDA; else NULL
    float *gates;          // (chunk, o's columns), of models that gate what o reads; else NULL
    float *mixed;          // (chunk, delta_channels()), q, k and v of recurrent layers; else NULL
    float *decays, *betas; // (chunk, delta_decays()), (chunk, n_value_heads), likewise
    float *logits;         // (chunk, vocab_size), of several sessions' tokens (together.c), or a rank's; else NULL
    float *gathered;       // (chunk, the whole vocabulary): logits of all ranks, of tokens of several sessions; else NULL
    float *branch;   // (chunk, hidden_dim) and one more: what a block adds to x, to be summed over ranks; NULL without a group
    float *squares;  // (chunk, 2) and one more: of q and k, that ranks normalise as a whole; else NULL
    float *units;    // (chunk, ffn_dim), or before the first layer (chunk, n_layers, layer_input_dim)
    float *inputs;   // (chunk, n_layers, layer_input_dim); NULL where layers have none
    float *ones;     // weights of norms that have none, and what units without a gate are multiplied by: (hidden_dim, q_dim or
                     // ffn_dim, whichever is most)
    float *packed;   // kernels->packed_size() for the widest product
    void *halves;    // half->size() for the widest product; NULL where no matrix is multiplied so
    void *quantised; // quant_kernels' size() for the widest product; NULL where no matrix is quantised
    void *quantised_last; // of the one that is apart behind others

    // Mixture of experts.
    float *expert_sum;     // (chunk, hidden_dim): the experts' sum, where it is normalised; else NULL
    float *router_logits;  // (chunk, n_experts)
    float *expert_ratings; // (n_experts), scratch of the member that routes
    int *expert_of;        // (chunk, n_active_experts), ascending in each row
    float *expert_weight;  // (chunk, n_active_experts)
    float *expert_in;      // (chunk, hidden_dim), the tokens of one expert
    float *expert_units;   // (chunk, an expert's ffn_dim)
    int *expert_tokens;    // (n_experts, chunk): which tokens those are
    float *expert_scale;   // (n_experts, chunk): and with which weight
    // How many those are, the last of them, and which experts have any, in ascending order and 0 beyond. Atomic, since a late
    // member may look.
    atomic_int *expert_n;       // (n_experts)
    atomic_int *expert_last;    // (n_experts)
    atomic_int *chosen_experts; // (n_experts)

    // Attention's partial results: of task (head, part), when keys are cut into parts.
    float *part_acc;            // (n_kv_heads, key_parts, group * query_tokens, head_dim)
    float *part_max, *part_sum; // (n_kv_heads, key_parts, group * query_tokens)

    float *key_offsets; // (n_layers, kv_dim): what rows of keys are kept less of (model/key_offset.h); NULL: nothing

    // Each thread's own, 64-byte aligned: here the first one's; cpu_own() finds the others'.
    void *matmul_scratch, *attend_scratch, *task_scratch;
    float *rows_here;      // matmul_rows_here()
    uint16_t *unpacked;    // rows of bf12 as bfloat16, matmul_most_rows() of the widest matrix; NULL: not needed
    void *decoded_keys;    // (KEY_TILE, head_dim) of kv_type, for dense attention; NULL where the policy decodes none
    float *decoded_scales; // (KEY_TILE)
    void *expand_scratch;  // latents_scratch() bytes
    void *rows_tile;       // attend_rows()'s; NULL where the policy selects none
    size_t own_bytes;      // from a thread's to the next one's

    void *kv_block, *kept_block, *scratch_block; // what the pointers above, and the policy's, lie in
    size_t kv_bytes, kept_bytes, scratch_bytes;
};

// Everything of `s` but its memory, team, and what the policy opens, and how much memory it wants (state_memory.c). After
// YALM_OK the caller must call policy->close() and free the method.
yalm_status cpu_sizes(struct cpu_state *s, const struct backend_plan *plan, yalm_error *error);
// Pointers into its blocks.
void cpu_carve(struct cpu_state *s);

static inline int cpu_most_threads(const struct cpu_state *s)
{
    return s->n_threads > s->n_threads_batch ? s->n_threads : s->n_threads_batch;
}

// A thread's own memory, given the first one's.
static inline void *cpu_own(const struct cpu_state *s, void *of_first, int thread)
{
    return (uint8_t *)of_first + (size_t)thread * s->own_bytes;
}

// Query heads that share a KV head, where an attention method is at work.
static inline int cpu_group(const struct cpu_state *s)
{
    return s->far->group;
}
static inline size_t cpu_n_ones(const struct cpu_state *s)
{
    const size_t wide = (size_t)config_expert_ffn(s->config), layer = (size_t)s->recipe.width[BUFFER_UNITS];
    const size_t units = wide > layer ? wide : layer, dim = (size_t)s->config->hidden_dim, q = (size_t)s->q_dim;
    return units > dim ? (units > q ? units : q) : dim > q ? dim : q;
}
// What a block's results are added to.
static inline float *cpu_residual(const struct cpu_state *s)
{
    return s->branch ? s->branch : s->x;
}
// Of a KV head's rotated queries, those of the batch's first token: (group, head_dim).
static inline const float *cpu_rotated_query(const struct cpu_state *s, const float *q, int kv_head)
{
    return q + (size_t)kv_head * s->chunk * cpu_group(s) * s->far->head_dim;
}

// Goes through the recipe (run.c): YALM_OK, or YALM_INTERRUPTED.
yalm_status cpu_forward(struct cpu_state *state, const struct batch *batch);

// One token of a session that is evaluated together with others'.
struct turn {
    struct cpu_state *state; // the session's
    int64_t position;
    int32_t token;
};
enum { MOST_TURNS = 8 };
// Their logits are in state->logits (n, vocab_size) then. `state` is of several sessions' tokens, and of the turns' team.
void cpu_forward_apart(struct cpu_state *state, const struct turn *turns, int n);

// A pass that is told to stop, in a step of a layer, ends with that layer for every member. One that is still in an earlier
// layer when another tells it must not end there: the steps that it left out would pass for the next pass's.
enum { STOPPED_LAYER_BITS = 16 };
static inline void cpu_stop(struct cpu_state *s, int64_t run, int layer)
{
    atomic_store_explicit(&s->stopped, run << STOPPED_LAYER_BITS | (layer + 1), memory_order_relaxed);
}
static inline bool cpu_was_stopped(const struct cpu_state *s, int64_t run)
{
    return atomic_load_explicit(&s->stopped, memory_order_relaxed) >> STOPPED_LAYER_BITS == run;
}
// Whether pass `run` ends with this layer. A late member may ask when a later pass has been stopped.
static inline bool cpu_stops(const struct cpu_state *s, int64_t run, int layer)
{
    const int64_t stopped = atomic_load_explicit(&s->stopped, memory_order_relaxed), in = stopped >> STOPPED_LAYER_BITS;
    return in > run || (in == run && (stopped & ((1 << STOPPED_LAYER_BITS) - 1)) <= layer + 1);
}

static inline const struct cpu_kind *cpu_kind_of(const struct cpu_state *s, int layer)
{
    return &s->kinds[s->config->kind_of_layer[layer]];
}
// Where the keys and values are that a layer sees.
static inline const struct cpu_kind *cpu_keeper_of(const struct cpu_state *s, int layer)
{
    return cpu_kind_of(s, s->kv_layer[layer]);
}
// The first slot of its KV head there.
static inline size_t cpu_first_slot(const struct cpu_state *s, int layer, int kv_head)
{
    const struct cpu_kind *kind = cpu_keeper_of(s, layer);
    return ((size_t)s->place[s->kv_layer[layer]] * kind->n_kv_heads + kv_head) * kind->kv.capacity;
}
// Where the attention method is at work, and the place of the seen layer among those of which it keeps something.
static inline bool cpu_is_far(const struct cpu_state *s, int layer)
{
    return cpu_keeper_of(s, layer) == s->far && config_attends(s->config, layer);
}
static inline size_t cpu_far_place(const struct cpu_state *s, int layer)
{
    return (size_t)s->place[s->kv_layer[layer]];
}
// Whether the method has the layer's keys, not the cache.
static inline bool cpu_decodes(const struct cpu_state *s, int layer)
{
    return s->policy->decode_keys && cpu_is_far(s, layer);
}
// Whether a batch attends by the method in this layer; else it is dense.
static inline bool cpu_selects(const struct cpu_state *s, int n, int64_t position, int layer)
{
    return cpu_is_far(s, layer) && s->policy->applies(s, n, position, layer);
}
static inline size_t cpu_row_bytes(const struct cpu_state *s, int layer) // of a key, or a value, without its scale
{
    return cpu_kind_of(s, layer)->head_dim * kv_sizes[s->kv_type];
}
// Of a key, or a value, with its scale.
static inline double cpu_row_traffic(const struct cpu_state *s, int head_dim)
{
    return (double)(head_dim * kv_sizes[s->kv_type]) + (s->kv_type == KV_INT8 ? sizeof(float) : 0);
}
static inline void *cpu_keys(const struct cpu_state *s, int layer, int kv_head)
{
    return (uint8_t *)cpu_keeper_of(s, layer)->keys + cpu_first_slot(s, layer, kv_head) * cpu_row_bytes(s, layer);
}
static inline void *cpu_values(const struct cpu_state *s, int layer, int kv_head)
{
    return (uint8_t *)cpu_keeper_of(s, layer)->values + cpu_first_slot(s, layer, kv_head) * cpu_row_bytes(s, layer);
}
static inline float *cpu_key_scales(const struct cpu_state *s, int layer, int kv_head) // NULL where there are none
{
    float *scales = cpu_keeper_of(s, layer)->key_scales;
    return scales ? scales + cpu_first_slot(s, layer, kv_head) : NULL;
}
static inline float *cpu_value_scales(const struct cpu_state *s, int layer, int kv_head) // likewise
{
    float *scales = cpu_keeper_of(s, layer)->value_scales;
    return scales ? scales + cpu_first_slot(s, layer, kv_head) : NULL;
}

// to (d) = x in the cache's fp16; what is cut is noted in s->cut.
void cpu_to_half(struct cpu_state *s, int layer, int d, uint16_t *to, const float *x);

// x (head_dim) becomes the key, or the value, of a slot.
void cpu_store_key(struct cpu_state *s, int layer, int kv_head, int slot, const float *x);
void cpu_store_value(struct cpu_state *s, int layer, int kv_head, int slot, const float *x);

// x (head_dim) = the key, or the value, of a slot, as the cache has it.
void cpu_load_key(const struct cpu_state *s, int layer, int kv_head, int slot, float *x);
void cpu_load_value(const struct cpu_state *s, int layer, int kv_head, int slot, float *x);
