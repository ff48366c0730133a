// One token's step as one kernel: what its parts share. A block for each multiprocessor stays from the first layer to the logits.
//
// Decode reads every weight once, and between two products a device of separate kernels rests: for the tail of one, the launch, and until the other
// has its input. Here one warp of each block, the reader, copies the block's share of all products to a ring in shared memory, one after the other
// (bulk copies, which need no threads). It waits for places in the ring only, never for other blocks: weights depend on nothing. So while blocks wait
// for each other the ring fills with what comes next, 132 * 190 KB on an H100: as much as memory gives in 8 us, longer than any wait.
// The idea: Spector et al., "Look Ma, No Bubbles! Designing a Low-Latency Megakernel for Llama-1B", 2025.
//
// Blocks order their work by one counter in global memory: each adds 1 when it has ended a phase, and begins the next one when all have.
#pragma once
#include "cuda/attention.cuh"
#include "cuda/kernels.h"
#include "cuda/vec_quant.cuh"

enum {
    STEP_WARPS = 8,                          // that compute: with the reader's, as many as leave each thread 168 registers
    STEP_THREADS = 32 * STEP_WARPS,          // likewise
    STEP_SUMS = 128,                         // rows whose sums are in shared memory at a time
    STEP_MOST_SLOTS = 16,                    // of the ring
    STEP_SLOT = 37 << 10,                    // bytes that a slot has, but where one row is longer
    STEP_HEADS = 4,                          // query heads that attend together
    STEP_KEYS = 128,                         // at least, of a split
    STEP_BARRIER = 1, STEP_BARRIER_SUMS = 2, // of the block (barrier_sync)
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

struct alignas(16) step_phase {
    enum step_work work;
    enum dtype type;
    struct step_shape shape;
    const uint8_t *w[3];
    const float *bias[3]; // (rows[i]); NULL: none
    float *y[3];          // (rows[i])
    int rows[3], units;   // of each; in all, or of STEP_GATED pairs
    int cols;
    const float *x, *norm; // (cols); norm NULL: x as it is
    float eps;
    int layer; // of STEP_ATTEND
};

// Everything that a launch needs to know.
struct step_launch {
    const struct step_phase *phases; // (n_phases)
    int n_phases, n_slots, slot_bytes;
    unsigned *counter; // phases that blocks have ended, and then blocks that have ended; 0 between launches
    const struct step *step;

    // Attention.
    const float *q, *k, *v; // (n_heads, head_dim), (n_kv_heads, head_dim) twice
    half *keys, *values;    // (n_layers, n_kv_heads, capacity, head_dim)
    struct kv_policy policy;
    struct rope rope;
    int n_heads, n_kv_heads, head_dim;
    float *attended;    // (n_heads, head_dim)
    float *part_acc;    // (units, STEP_HEADS, head_dim)
    float2 *part_state; // (units, STEP_HEADS)
    unsigned *tickets;  // (n_kv_heads * groups of heads); 0 between launches
};

// ------------------------------------------------------------------------------------------ shared memory

// Behind the ring. `work` is the sums' of products, and attention's.
struct step_memory {
    uint8_t *ring; // (n_slots, slot_bytes)
    float *work;
    float2 *turns;             // (head_dim / 2)
    struct step_phase *phases; // (2): this one, the next one
    float *squares;            // (2, STEP_WARPS)
    uint64_t *full, *empty;    // (n_slots)
};

// Floats of attention: what the warps leave, the queries, the newest key and value.
static inline __host__ __device__ int step_attention_floats(int head_dim)
{
    const int heads = head_dim > 128 ? STEP_HEADS / 2 : STEP_HEADS;
    return STEP_WARPS * heads * (head_dim + 2) + heads * head_dim + 2 * head_dim;
}
static inline __host__ __device__ size_t step_work_bytes(int head_dim)
{
    const size_t sums = sizeof(float) * 2 * STEP_WARPS * (STEP_SUMS + 1);
    const size_t attention = sizeof(float) * step_attention_floats(head_dim);
    return ((sums > attention ? sums : attention) + 15) / 16 * 16;
}
static inline __host__ __device__ size_t step_fixed_bytes(int head_dim)
{
    return step_work_bytes(head_dim) + (sizeof(float2) * (head_dim / 2) + 15) / 16 * 16 + 2 * sizeof(struct step_phase) +
           sizeof(float) * 2 * STEP_WARPS + sizeof(uint64_t) * 2 * STEP_MOST_SLOTS;
}

__device__ static inline struct step_memory step_memory_of(uint8_t *shared, const struct step_launch &l) {
    struct step_memory m;
    m.ring = shared;
    uint8_t *at = shared + (size_t)l.n_slots * l.slot_bytes;
    m.work = reinterpret_cast<float *>(at);
    at += step_work_bytes(l.head_dim);
    m.turns = reinterpret_cast<float2 *>(at);
    at += (sizeof(float2) * (l.head_dim / 2) + 15) / 16 * 16;
    m.phases = reinterpret_cast<struct step_phase *>(at);
    at += 2 * sizeof(struct step_phase);
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
__device__ static inline void step_ring_next(struct step_ring &ring, int n_slots)
{
    if (++ring.slot == n_slots) {
        ring.slot = 0;
        ring.parity ^= 1;
    }
}

// ------------------------------------------------------------------------------------------ stages

// A block's share of a product, in batches of at most STEP_SUMS rows, in stages of rows that lie one behind the other. With STEP_GATED a batch has rows of
// the first matrix and then the same of the second.
struct step_stages {
    int first, n;   // the batch's units
    int last;       // unit of the block
    int at, n_rows; // the batch's row that is next; how many it has
};
struct step_stage {
    int part, row, n; // rows [row, row + n) of matrix `part`
    int at;           // the first one's number in the batch
};

__device__ static inline void step_batch(struct step_stages &s, bool gated)
{
    const int most = gated ? STEP_SUMS / 2 : STEP_SUMS;
    s.n = min(most, s.last - s.first);
    s.n_rows = gated ? 2 * s.n : s.n;
    s.at = 0;
}

// Which blocks have one unit more than others changes from phase to phase.
__device__ static inline struct step_stages step_stages_of(const struct step_phase &p, int number) {
    const int64_t block = (blockIdx.x + 61u * (unsigned)number) % gridDim.x;
    struct step_stages s;
    s.first = (int)(p.units * block / gridDim.x);
    s.last = (int)(p.units * (block + 1) / gridDim.x);
    step_batch(s, p.work == STEP_GATED);
    return s;
}

// A row of the launch: in which matrix, and where there.
__device__ static inline void step_find_row(const struct step_phase &p, int row, int *part, int *in_part)
{
    *part = 0;
    while (*part < 2 && row >= p.rows[*part]) {
        row -= p.rows[*part];
        ++*part;
    }
    *in_part = row;
}

// The batch's next stage; there is one where at < n_rows.
__device__ static inline struct step_stage step_next_stage(const struct step_phase &p, struct step_stages &s) {
    struct step_stage stage;
    int left = s.n_rows - s.at;
    if (p.work == STEP_GATED) {
        stage.part = s.at >= s.n;
        const int within = stage.part ? s.at - s.n : s.at;
        stage.row = s.first + within;
        left = s.n - within;
    } else {
        step_find_row(p, s.first + s.at, &stage.part, &stage.row);
        left = min(left, p.rows[stage.part] - stage.row);
    }
    stage.n = min(left, p.shape.rows);
    stage.at = s.at;
    s.at += stage.n;
    return stage;
}

