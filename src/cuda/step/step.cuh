// One token's step as one kernel: what its parts share. A block for each multiprocessor stays from the first layer to the logits.
//
// Decode reads every weight once, and between two products a device of separate kernels rests: for the tail of one, the launch, and until the other
// has its input. Here one warp of each block, the reader, copies the block's share of all products to a ring in shared memory, one after the other
// (bulk copies, which need no threads). It waits for places in the ring only, never for other blocks: weights depend on nothing. So while blocks wait
// for each other the ring fills with what comes next, 132 * 190 KB on an H100: as much as memory gives in 8 us, longer than any wait.
// The idea: Spector et al., "Look Ma, No Bubbles! Designing a Low-Latency Megakernel for Llama-1B", 2025.
//
// Blocks hand each other what they have computed word by word: each word tells by its lowest bit that it is there (told_wait), so that nobody waits for
// more than he needs, and for no fence. (A release at a phase's end took 1.5 us, since it waited for the copies under way.)
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
    STEP_BARRIER = 1,               // of the computing warps (barrier_sync)
};

enum step_work {
    STEP_STORE,  // y = w x + bias, of up to three matrices, one below the other
    STEP_ADD,    // y += w x + bias
    STEP_GATED,  // y = silu(w[0] x + bias[0]) ∘ (w[1] x + bias[1])
    STEP_ATTEND, // attended = attention(q, k, v), which it rotates and puts into the cache
};

// How a product's columns are spread over the block: a chunk is what a warp reads of a row at a time, 512 bytes. A warp has `chunks` of them, one behind
// the other, and keeps their x in registers; `columns` warps have a row, and `groups` of so many warps have rows of their own.
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

// The parity of words that a phase reads or writes: how often they had been written. The residual stream is written twice in a layer, and so has the same
// parity in every layer; what is written once in a layer, or in a launch, has another one every time.
enum step_words { STEP_EVEN, STEP_ODD, STEP_BY_LAYER, STEP_BY_LAUNCH, STEP_PLAIN };

struct alignas(16) step_phase {
    enum step_work work;
    enum dtype type;
    int layer;
    unsigned turn, launch; // which one of all layers, and of all launches of this session: set on the device
    struct step_shape shape;
    const uint8_t *w[3];
    const float *bias[3]; // (rows[i]); NULL: none
    float *y[3];          // (rows[i])
    const float *old;     // (rows[0]): of STEP_ADD, what is added to
    int rows[3], units;   // of each; in all, or of STEP_GATED pairs
    int cols;
    const float *x, *norm; // (cols); norm NULL: x as it is
    float eps;
    const float *head_norms[2]; // of STEP_ATTEND: (head_dim) of queries' heads, of keys'; NULL: none
    bool still;                 // likewise: nothing is rotated in this layer
    enum step_words x_words, y_words, old_words;
};

// Everything that a launch needs to know.
struct step_launch {
    const struct step_phase *phases; // (n_phases)
    int n_phases, n_layers, n_slots, slot_bytes;
    int n_ahead; // slots that are on their way at a time, at most
    int x_bytes; // of shared memory: the longest x as integers
    struct matrix embedding;
    float embedding_scale;
    float *embedded; // (hidden_dim)

    // Attention.
    const float *q, *k, *v; // (n_heads, head_dim), (n_kv_heads, head_dim) twice
    half *keys, *values;    // (n_layers, n_kv_heads, capacity, head_dim)
    struct kv_policy policy;
    struct rope rope;
    int n_heads, n_kv_heads, head_dim;
    float scale;     // of scores
    float *attended; // (n_heads, head_dim)
    float4 *parts;   // (units, STEP_HEADS, head_dim): sum, max, sum of weights
};

// What changes from launch to launch.
struct step_now {
    int64_t position;
    int32_t token;
    unsigned launch; // how many there were before
};

__device__ __forceinline__ unsigned step_parity(enum step_words words, const struct step_phase &p)
{
    return words == STEP_BY_LAYER ? ~p.turn & 1 : words == STEP_BY_LAUNCH ? ~p.launch & 1 : (unsigned)words;
}

// ------------------------------------------------------------------------------------------ shared memory

// Behind the ring. Sums and x are products', and lie where attention has its own.
struct step_memory {
    uint8_t *ring;             // (n_slots, slot_bytes)
    float *sums;               // (2, STEP_WARPS, STEP_SUMS + 1)
    uint8_t *x;                // (x_bytes)
    float *attention;          // (step_attention_floats)
    float2 *turns;             // (head_dim / 2)
    struct step_phase *phases; // (STEP_WARPS): each warp's own copy of the one that it is at
    float *squares;            // (2, STEP_WARPS)
    uint64_t *full, *empty;    // (n_slots)
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
static inline __host__ __device__ size_t step_work_bytes(int head_dim, int x_bytes)
{
    const size_t products = step_sums_bytes() + x_bytes, attention = sizeof(float) * step_attention_floats(head_dim);
    return ((products > attention ? products : attention) + 15) / 16 * 16;
}
static inline __host__ __device__ size_t step_turns_bytes(int head_dim)
{
    return (sizeof(float2) * (head_dim / 2) + 15) / 16 * 16;
}
static inline __host__ __device__ size_t step_fixed_bytes(int head_dim, int x_bytes)
{
    return step_work_bytes(head_dim, x_bytes) + step_turns_bytes(head_dim) + STEP_WARPS * sizeof(struct step_phase) +
           sizeof(float) * 2 * STEP_WARPS + sizeof(uint64_t) * 2 * STEP_MOST_SLOTS;
}

__device__ __forceinline__ struct step_memory step_memory_of(uint8_t *shared, const struct step_launch &l)
{
    struct step_memory m;
    m.ring = shared;
    uint8_t *at = shared + l.n_slots * l.slot_bytes;
    m.sums = m.attention = reinterpret_cast<float *>(at);
    m.x = at + step_sums_bytes();
    at += step_work_bytes(l.head_dim, l.x_bytes);
    m.turns = reinterpret_cast<float2 *>(at);
    at += step_turns_bytes(l.head_dim);
    m.phases = reinterpret_cast<struct step_phase *>(at);
    at += STEP_WARPS * sizeof(struct step_phase);
    m.squares = reinterpret_cast<float *>(at);
    at += sizeof(float) * 2 * STEP_WARPS;
    m.full = reinterpret_cast<uint64_t *>(at);
    m.empty = m.full + STEP_MOST_SLOTS;
    return m;
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

// ------------------------------------------------------------------------------------------ stages

// A block's share of a product, in batches of at most STEP_SUMS rows, a batch in runs of rows that lie one behind the other, a run in stages. With
// STEP_GATED a batch has rows of the first matrix and then the same of the second.
struct step_batch {
    int first, n; // units; n 0: there is none
    int last;     // unit of the block
};
struct step_run {
    int part, row, n; // rows [row, row + n) of matrix `part`
    int at;           // the first one's number in the batch
};

__device__ __forceinline__ void step_batch_set(struct step_batch &b, int first, bool gated)
{
    b.first = first;
    b.n = min(gated ? STEP_SUMS / 2 : STEP_SUMS, b.last - first);
}

// Which blocks have one unit more than others changes from phase to phase.
__device__ __forceinline__ struct step_batch step_first_batch(const struct step_phase &p, int number)
{
    const unsigned block = (blockIdx.x + 61u * (unsigned)number) % gridDim.x;
    struct step_batch b;
    b.last = (int)((unsigned)p.units * (block + 1) / gridDim.x);
    step_batch_set(b, (int)((unsigned)p.units * block / gridDim.x), p.work == STEP_GATED);
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
__device__ __forceinline__ struct step_run step_run_at(const struct step_phase &p, const struct step_batch &b, int at)
{
    struct step_run run;
    run.at = at;
    if (p.work == STEP_GATED) {
        run.part = at >= b.n;
        run.row = b.first;
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
