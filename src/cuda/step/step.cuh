// One token's step as one kernel: what its parts share. A block for each multiprocessor stays from the first layer to the
// logits.
//
// Decode reads every weight once, and between two products a device of separate kernels rests: for the tail of one, the
// launch, and until the other has its input. Here one warp of each block is the reader. It copies the block's share of all
// products to a ring in shared memory, one after the other (bulk copies, which need no threads). It waits for places in the
// ring only, never for other blocks: weights depend on nothing. So while blocks wait for each other the ring fills with what
// comes next, 132 * 190 KB on an H100: as much as memory gives in 8 us, longer than any wait. The idea: Spector et al., "Look
// Ma, No Bubbles! Designing a Low-Latency Megakernel for Llama-1B", 2025.
//
// Blocks hand each other what they have computed word by word: each word tells by its lowest bit that it is there (told_wait),
// so that nobody waits for more than he needs, and for no fence. (A release at a phase's end took 1.5 us, since it waited for
// the copies under way.)
#pragma once
#include "cuda/attention/attention.cuh"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/quant_x.cuh"

enum {
    STEP_WARPS = 8,                 // that compute: with the reader's, as many as leave each thread 168 registers
    STEP_THREADS = 32 * STEP_WARPS, // likewise
    STEP_SUMS = 128,                // rows whose sums are in shared memory at a time
    STEP_MOST_SLOTS = 16,           // of the ring
    STEP_SLOT = 37 << 10,           // bytes that a slot has, but where one row is longer
    STEP_HEADS = STEP_WARPS,        // query heads that attend together, at most
    STEP_KEYS = 32,                 // at least, of a split
    STEP_MOST_ACTIVE = 32,          // experts of a token: a lane has one
    STEP_MOST_EXPERTS = 32 * 32,    // of a layer: a lane looks after as many as it has bits
    STEP_BARRIER = 1,               // of the computing warps (barrier_sync)
};

enum step_work {
    STEP_STORE,  // y = w h + bias, of up to three matrices, one below the other; h = rmsnorm(x), or x
    STEP_ADD,    // y = old + w h + bias
    STEP_GATED,  // y = activation(w[0] h + bias[0]) ∘ (w[1] h + bias[1])
    STEP_NARROW, // STEP_STORE of float32 and few rows, a warp for each
    STEP_ATTEND, // y = attention(q, k, v), which it rotates and puts into the cache
    STEP_RECUR,  // y = what a recurrent layer makes of q, k and v, whose states it carries on
    STEP_NORM,   // y = old + rmsnorm(x), or rmsnorm(x)
};

// How a product's columns are spread over the block: a chunk is what a warp reads of a row at a time, 512 bytes. A warp has
// `chunks` of them, one behind the other, and keeps their x in registers; `columns` warps have a row, and `groups` of so many
// warps have rows of their own.
struct step_shape {
    int chunks, columns, groups;
    int rows;                   // of a stage
    int row_bytes, scale_bytes; // of a row in a stage: quants, and the groups' scales
};

// Rows that a warp multiplies at a time: what it has loaded and not yet used takes up to eight packs of registers.
static inline constexpr __host__ __device__ int step_rows_each(int chunks)
{
    return chunks <= 2 ? 4 : chunks <= 4 ? 2 : 1;
}

// Chunks that a warp can have: their x takes about 64 registers of a lane.
template <class T> constexpr int STEP_MOST_CHUNKS = PACK_COLS<T> == 8 ? 8 : 4;
template <> inline constexpr int STEP_MOST_CHUNKS<q8> = 8;

// The parity of words that a phase reads or writes: how often they had been written. Bit 0 is that of a session's first launch;
// bit 1 says that it is another one in every launch, since a launch writes them an odd number of times.
enum step_words { STEP_EVEN, STEP_ODD, STEP_TURNS, STEP_PLAIN = 4 }; // the last: words that tell nothing

__device__ __forceinline__ unsigned step_parity(enum step_words words, unsigned launch)
{
    return ((unsigned)words ^ ((unsigned)words >> 1 & launch)) & 1;
}

// An expert that the token has chosen.
struct step_choice {
    int expert;
    float weight;
};

// How a token's experts are chosen by their logits: see struct experts.
struct step_router {
    const float *logits; // (n_experts), words
    enum step_words words;
    int n_experts, n_active;
    bool raw;
    float scale;
    const float *choice_bias, *weight_scale;
    float eps;
    bool softmax;
};

// A recurrent layer: see struct delta.
struct step_delta {
    const float *given[3];       // words: q, k (n_key_heads, key_dim), v (n_value_heads, value_dim)
    const float *decays, *betas; // (n_value_heads), words
    enum step_words words[5];
    const float *conv, *decay_bias, *decay_rate, *value_norm;
    float *states, *inputs;             // of the layer, in place 0
    int64_t states_pitch, inputs_pitch; // floats from place to place
    int n_key_heads, n_value_heads, key_dim, value_dim;
    int before; // earlier tokens that the convolution sees
    bool tiled;
};

struct alignas(16) step_phase {
    enum step_work work;
    enum dtype type;
    int layer;
    int spread;            // changes which blocks have one unit more than others
    unsigned turn, launch; // which one of all layers, and of all launches of this session: set on the device
    struct step_shape shape;
    const uint8_t *w[3];
    const float *bias[3]; // (rows[i]); NULL: none
    float *y[3];          // (rows[i]); of STEP_GATED (units)
    const float *old;     // (rows[0]): what is added to; NULL of STEP_NORM: nothing
    int rows[3], units;   // of each; in all, or of STEP_GATED pairs
    int cols;
    const float *x, *norm; // (cols); norm NULL: x as it is
    float eps;
    enum step_words x_words, y_words[3], old_words;
    // Of attention.
    const float *head_norms[3]; // (head_dim) of queries' heads, of keys', of values'; NULL: none
    bool still;                 // nothing is rotated in this layer
    int place;                  // of the layer whose keys are seen in its cache

    // What follows only the whole kernel knows.
    enum activation activation;
    float cap;                // of what is stored, which is logits; 0: none
    const float *scale;       // y is multiplied by this; NULL: by 1
    const float *weigh;       // a word: x is multiplied by 1 / (1 + e^-weigh); NULL: by 1
    int kind;                 // of attention, as what follows; gates also of a recurrence
    const float *gates;       // (n_heads, head_dim), words: y is multiplied by 1 / (1 + e^-gates); NULL: by 1
    const float *sink_logits; // (n_heads); NULL: none
    enum step_words k_words, v_words, more_words; // x_words: of queries; the last: of weigh or gates
    const struct expert_weights *table;           // (n_experts): w are those of chosen experts; NULL: as above
    int slot;                                     // of STEP_ADD: which one of the chosen
    union {
        struct step_router router; // where there is a table
        struct step_delta delta;   // of STEP_RECUR
    };
};

// Attention in layers of one kind.
struct step_heads {
    const float *q, *k, *v; // (n_heads, head_dim), (n_kv_heads, head_dim) twice
    half *keys, *values;    // (layers of this kind, n_kv_heads, capacity, head_dim)
    struct kv_policy policy;
    struct rope rope;
    int n_heads, n_kv_heads, head_dim;
    int turns;     // where its rotations begin
    float scale;   // of scores
    float softcap; // of scores; 0: none
};

// Everything that a launch needs to know.
struct step_launch {
    const struct step_phase *phases; // (n_phases)
    int n_phases, n_layers, n_slots, slot_bytes;
    int n_ahead; // slots that are on their way at a time, at most
    struct step_sizes {
        int x_bytes;   // the longest x as integers
        int head_dim;  // the longest heads
        int turns;     // rotations of all kinds of layers
        int n_experts; // 0: none
    } sizes;           // of what shared memory has room for
    struct matrix embedding;
    float embedding_scale;
    float *embedded; // (hidden_dim)
    enum step_words embedded_words;
    int n_kinds;
    struct step_heads kinds[CONFIG_MAX_KINDS]; // of layers
    float4 *parts;                             // (units, STEP_HEADS, head_dim): sum, max, sum of weights
};

// What changes from launch to launch.
struct step_now {
    int64_t position;
    int32_t token;
    unsigned launch;    // how many there were before
    float query_growth; // what queries are multiplied by at this position
    int from, to;       // places of recurrent states, read and written
};

// ------------------------------------------------------------------------------------------ shared memory

// Behind the ring. Sums and x are products', and lie where attention has its own.
struct step_memory {
    uint8_t *ring;              // (n_slots, slot_bytes)
    float *sums;                // (2, STEP_WARPS, STEP_SUMS + 1)
    uint8_t *x;                 // (x_bytes)
    float *attention;           // (step_attention_floats)
    float2 *turns;              // (turns)
    struct step_phase *phases;  // (STEP_WARPS): each warp's own copy of the one that it is at
    float *squares;             // (2, STEP_WARPS)
    uint64_t *full, *empty;     // (n_slots)
    struct step_choice *chosen; // (2, STEP_MOST_ACTIVE): as the computing warps know it, and the reader
    float *ratings;             // (2, n_experts): likewise, of experts
};

// Floats of attention: what the warps leave, the queries, the newest key and value.
static inline __host__ __device__ int step_attention_floats(int head_dim)
{
    return (STEP_WARPS + STEP_HEADS + 1) * head_dim + 2 * STEP_WARPS;
}
static inline __host__ __device__ size_t step_sums_bytes(void)
{
    return sizeof(float) * 2 * STEP_WARPS * (STEP_SUMS + 1);
}
static inline __host__ __device__ size_t step_work_bytes(const struct step_launch::step_sizes &of)
{
    const size_t products = step_sums_bytes() + of.x_bytes, attention = sizeof(float) * step_attention_floats(of.head_dim);
    return ((products > attention ? products : attention) + 15) / 16 * 16;
}
static inline __host__ __device__ size_t step_turns_bytes(int turns)
{
    return (sizeof(float2) * turns + 15) / 16 * 16;
}
static inline __host__ __device__ size_t step_fixed_bytes(const struct step_launch::step_sizes &of)
{
    const size_t choosing =
        of.n_experts > 0 ? 2 * (STEP_MOST_ACTIVE * sizeof(struct step_choice) + of.n_experts * sizeof(float)) : 0;
    return step_work_bytes(of) + step_turns_bytes(of.turns) + STEP_WARPS * sizeof(struct step_phase) +
           sizeof(float) * 2 * STEP_WARPS + sizeof(uint64_t) * 2 * STEP_MOST_SLOTS + choosing;
}

__device__ __forceinline__ struct step_memory step_memory_of(uint8_t *shared, const struct step_launch &l)
{
    struct step_memory m;
    m.ring = shared;
    uint8_t *at = shared + l.n_slots * l.slot_bytes;
    m.sums = m.attention = reinterpret_cast<float *>(at);
    m.x = at + step_sums_bytes();
    at += step_work_bytes(l.sizes);
    m.turns = reinterpret_cast<float2 *>(at);
    at += step_turns_bytes(l.sizes.turns);
    m.phases = reinterpret_cast<struct step_phase *>(at);
    at += STEP_WARPS * sizeof(struct step_phase);
    m.squares = reinterpret_cast<float *>(at);
    at += sizeof(float) * 2 * STEP_WARPS;
    m.full = reinterpret_cast<uint64_t *>(at);
    m.empty = m.full + STEP_MOST_SLOTS;
    m.chosen = reinterpret_cast<struct step_choice *>(m.empty + STEP_MOST_SLOTS);
    m.ratings = reinterpret_cast<float *>(m.chosen + 2 * STEP_MOST_ACTIVE);
    return m;
}

// In the kernel that knows all works each phase has a barrier, so that no warp is two phases ahead: what some do is not always
// waited for by others.
__device__ __forceinline__ void step_pass(void)
{
    barrier_sync(STEP_BARRIER, STEP_THREADS);
}

// Where the ring stands: reader and warps go through the same stages in the same order.
struct step_ring {
    int slot;
    unsigned parity; // of the slot's phase: how often the ring has come round
};
__device__ __forceinline__ void step_ring_next(struct step_ring &ring, int n_slots)
{
    if (++ring.slot == n_slots) {
        ring.slot = 0;
        ring.parity ^= 1;
    }
}

// How far the computing warps are.
struct step_progress {
    struct step_ring ring;
    int batches, phase; // batches before this one, and the phase: their sums, and its squares, lie in two places by turns
};

// How far the reader is. landed: the oldest stage that may still be on its way; ahead: how many there are since.
struct step_reading {
    struct step_ring ring, landed;
    int ahead;
};

// ------------------------------------------------------------------------------------------ stages

// A block's share of a product, in batches of at most STEP_SUMS rows, a batch in runs of rows that lie one behind the other, a
// run in stages. With STEP_GATED a batch has rows of the first matrix and then the same of the second. A batch's rows are one
// expert's.
struct step_batch {
    int first, n; // units; n 0: there is none
    int last;     // unit of the block
};
struct step_run {
    int part, row, n; // rows [row, row + n) of matrix `part`
    int at;           // the first one's number in the batch
};

// ALL, here and below: of the kernel that knows all works; else of the one for what a Llama needs, which has their registers
// for itself.
template <bool ALL> __device__ __forceinline__ void step_batch_set(struct step_batch &b, const struct step_phase &p, int first)
{
    const bool gated = p.work == STEP_GATED;
    b.first = first;
    b.n = min(gated ? STEP_SUMS / 2 : STEP_SUMS, b.last - first);
    if (ALL && p.table && gated)
        b.n = min(b.n, p.rows[0] - first % p.rows[0]);
}

// Which of the chosen experts has a batch, and where that begins in its matrix.
__device__ __forceinline__ int step_slot_of(const struct step_phase &p, const struct step_batch &b)
{
    return p.work == STEP_GATED ? b.first / p.rows[0] : p.slot;
}
template <bool ALL> __device__ __forceinline__ int step_row_in(const struct step_phase &p, const struct step_batch &b)
{
    return ALL && p.table ? b.first % p.rows[0] : b.first;
}

template <bool ALL> __device__ __forceinline__ struct step_batch step_first_batch(const struct step_phase &p)
{
    const unsigned block = (blockIdx.x + 61u * (unsigned)p.spread) % gridDim.x;
    struct step_batch b;
    b.last = (int)((unsigned)p.units * (block + 1) / gridDim.x);
    step_batch_set<ALL>(b, p, (int)((unsigned)p.units * block / gridDim.x));
    return b;
}

// A row of the launch: in which matrix, and where there.
__device__ __forceinline__ void step_find_row(const struct step_phase &p, int row, int *part, int *in_part)
{
    *part = 0;
    if (row >= p.rows[0]) {
        row -= p.rows[0];
        *part = 1;
        if (row >= p.rows[1]) {
            row -= p.rows[1];
            *part = 2;
        }
    }
    *in_part = row;
}

// The batch's run that begins with its row `at`.
template <bool ALL>
__device__ __forceinline__ struct step_run step_run_at(const struct step_phase &p, const struct step_batch &b, int at)
{
    struct step_run run;
    run.at = at;
    if (p.work == STEP_GATED) {
        run.part = at >= b.n;
        run.row = step_row_in<ALL>(p, b);
        run.n = b.n;
    } else {
        step_find_row(p, b.first + at, &run.part, &run.row);
        run.n = min(b.n - at, p.rows[run.part] - run.row);
    }
    return run;
}

__device__ __forceinline__ int step_batch_rows(const struct step_phase &p, const struct step_batch &b)
{
    return p.work == STEP_GATED ? 2 * b.n : b.n;
}

// A product's matrix and bias `part`.
template <bool ALL>
__device__ __forceinline__ const uint8_t *step_matrix(const struct step_phase &p, const struct step_choice *chosen,
                                                      const struct step_batch &b, int part)
{
    if (!ALL || !p.table)
        return p.w[part];
    const struct expert_weights *e = p.table + chosen[step_slot_of(p, b)].expert;
    return static_cast<const uint8_t *>(p.work == STEP_ADD ? e->down.data : part == 0 ? e->gate.data : e->up.data);
}
template <bool ALL>
__device__ __forceinline__ const float *step_bias(const struct step_phase &p, const struct step_choice *chosen,
                                                  const struct step_batch &b, int part)
{
    if (!ALL || !p.table)
        return p.bias[part];
    const struct expert_weights *e = p.table + chosen[step_slot_of(p, b)].expert;
    return p.work == STEP_ADD ? e->down_bias : part == 0 ? e->gate_bias : e->up_bias;
}
