// The CPU's kernels: one table of functions for each instruction set (vec/table.c). Each function works on its
// caller's thread alone; how rows, heads and keys are shared among threads is decided above (cpu/matmul.c, cpu/attention.c).
// No kernel allocates. Sizes are arbitrary: no dimension need be a multiple of anything.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/kernels/fetching.h"
#include "cpu/kernels/nomad.h"
#include "model/activation.h"
#include "model/dtype.h"

// Y = X Wᵀ for a range of W's rows; without the rows' scales where W has any.
struct product_args {
    float *y; // (n, ldy): element (t, r - first_row) gets row r's product with token t
    ptrdiff_t ldy;
    const void *w;   // (rows, cols)
    enum dtype type; // of w: the one that the function is for, or one that shares its kernels
    int rows, cols;
    int first_row, last_row; // of W
    const void *x;           // n tokens of cols values, packed by the function beside the product's
    int n;
    struct fetching fetching; // machine_fetching(), for quantised W and one or two tokens. Results do not depend on it
    void *scratch;            // this thread's own, 64-byte aligned
};

typedef void product_function(const struct product_args *args);

// Quantised W multiplies tokens that are quantised too: to 16-bit integers with a scale for each QUANT_BLOCK columns, or to
// 8-bit ones with a scale for each QUANT_GROUP.
enum { QUANT_BLOCK = 4 * QUANT_GROUP };
// Tokens at most of quant_kernels' `few` and `some`.
enum { QUANT_FEW = 8, QUANT_SOME = 64 };

struct quant_form {
    size_t (*size)(int n, int cols); // bytes of n quantised tokens

    // Quantises tokens, columns [first_col, last_col): both multiples of QUANT_BLOCK, or last_col = cols. x: (n, ldx).
    void (*quantise)(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col);
    product_function *product[DTYPE_WEIGHTS]; // of the quantised types
};

struct quant_kernels {
    struct quant_form few;  // what a token becomes does not depend on how many there are
    struct quant_form some; // all NULL: the instruction set has none
    struct quant_form many; // a token's products are those of `some`, to the bit
    size_t scratch;         // bytes

    double (*dot_loop)(long rounds); // for limits.c: as fma_loop(), of 8-bit multiply-adds with 32-bit sums
};

// Columns of tokens that are packed together by the following.
enum { MATMUL16_BLOCK = 256 };

// Products in 16 bits. Tokens and weights become integers with a scale for each block of columns (vnni/fixed.h), or bytes for
// tiles (amx/quant.c). Or they become bfloat16 for tiles with float32 sums, in several parts where they must lose nothing
// (amx/matmul.c).
struct matmul16 {
    const char *name;                // what tokens and weights become: "16-bit integers"
    size_t (*size)(int n, int cols); // bytes of n packed tokens
    // Packs tokens, columns [first_col, last_col): both multiples of MATMUL16_BLOCK, or last_col = cols. x: (n, ldx).
    void (*pack)(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col);
    product_function *product[DTYPE_WEIGHTS]; // NULL of types that it does not multiply
    size_t scratch;                           // bytes
    int rows;                                 // of W that are multiplied together
    int most;                                 // tokens at most; 0: any number

    double (*fma_loop)(long rounds); // as cpu_kernels' fma_loop(), of these multiply-adds
};

enum matmul16_form {
    MATMUL16_SHORT,       // 16-bit integers, along the columns
    MATMUL16_INTEGERS,    // 16-bit integers, in blocks
    MATMUL16_TILES,       // tiles of bfloat16 in three parts, which lose nothing
    MATMUL16_TILES_ROUND, // tiles of bfloat16 in one part
    MATMUL16_TILES_BYTES, // tiles of bytes: 16-bit integers in two parts
    MATMUL16_FORMS
};

// Adds keys to the running softmax of each query (online softmax: Milakov and Gimelshein, 2018; Dao et al., 2022).
// For query i, with s_j = q_i · k_j over the keys j that it sees:
//     max' = max(max, s_j…);  sum' = sum e^(max - max') + Σ e^(s_j - max');  acc' = acc e^(max - max') + Σ e^(s_j - max') v_j
// Start from max = -INFINITY, sum = 0, acc = 0; the output is acc / sum. A query that sees no key is left as it was.
struct attend_args {
    float *acc;                       // (n_queries, head_dim)
    float *max, *sum;                 // (n_queries)
    const float *q;                   // (n_queries, head_dim), already scaled by 1 / sqrt(head_dim)
    const void *k, *v;                // (n_keys, head_dim), of the type that the function is for
    const float *k_scales, *v_scales; // (n_keys): of int8, what a row is to be multiplied by; else NULL
    int n_queries, n_keys, head_dim;
    float softcap;               // 0: none; else each score s becomes softcap tanh(s / softcap)
    const int *first, *last;     // (n_queries): query i sees keys [first[i], last[i]) of these; NULL: all of them
    const void *next_k, *next_v; // that this thread will probably read after these, to be fetched in time; NULL: none
    const int *next_rows;        // (n_next): those of next_k and next_v; NULL: they are consecutive
    int n_next;
    struct fetching
        // machine_fetching(); 2 streams: keys and values are fetched one after the other, 4: together. Results do not depend on
        // it
        fetching;
    const float *bias; // (n_keys): what is added to the scores, at most 80; NULL: nothing. In integers of at most 8 queries
    void *scratch;     // (attend_scratch) bytes, this thread's own, 64-byte aligned
};

// Smaller scales count as 0: their inverses would overflow.
#define INT8_LEAST_SCALE 0x1p-126f

// attend() for many queries in 16-bit integers (vnni/attend.c): queries, keys, weights and values are each rounded once more.
// No softcap.
struct fixed_attention {
    void (*attend[KV_TYPES])(
        const struct attend_args *args); // NULL of types that it does not have: fp32's precision would be in vain
    size_t scratch;                      // bytes
    int most_dim;                        // head_dim at most
    int least, queries;                  // fewer are faster by cpu_kernels' attend(); so many are taken together

    double (*dot_loop)(long rounds); // as cpu_kernels' fma_loop(), of these multiply-adds
};

// attend() of a few queries in integers (vnni/bytes.c): queries and weights are rounded to 16 bits, keys and values are what
// the cache has. No softcap.
struct byte_attention {
    void (*attend[KV_TYPES])(const struct attend_args *args); // NULL of types that it does not have
    size_t scratch;                                           // bytes
    int least, most;                                          // queries
    int dim_step, most_dim;                                   // head_dim is a multiple of the one, and at most the other
};

// The gated delta rule for some columns of a head's state S, token after token, or a scan, which takes in β v as it is:
//     u = β (v - decay Sᵀk), or β v;  S = decay S + k ⊗ u;  y = Sᵀq
// With `channels` each row of S, a channel of k, has a decay of its own: u = β (v - (decay ∘ S)ᵀk).
// Each token becomes what it would in a call of its own. S lies in blocks of DELTA_COLS columns, (key_dim, DELTA_COLS) one
// after another; the last has what is left. Columns do not depend on each other, and one block fits into L1 whatever value_dim:
// rows a power of two apart would fall on few of its sets.
enum { DELTA_COLS = 32 };
struct delta_args {
    float *y; // (n, ldy); NULL: not wanted
    ptrdiff_t ldy;
    const float *before; // S as the tokens before left it
    float *after;        // where it goes; may be `before`
    const float *q, *k;  // (n, ldx): key_dim
    const float *v;      // (n, ldx): value_dim
    ptrdiff_t ldx;
    const float *decay, *beta; // (n, ldd): one, or with `channels` key_dim; (n, ldg): one
    ptrdiff_t ldd, ldg;
    int n, key_dim, value_dim;
    int first_col, last_col; // of S, v and y: the first begins a block, the last ends one
    bool scan, channels;     // at most one of the two
};

typedef void matvec_function(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                             ptrdiff_t ldx, int n, bool to_l2);
typedef void unpack_function(uint16_t *to, const void *w, int first_row, int last_row, int cols);
typedef size_t packed_size_function(int n, int cols);
typedef void pack_function(float *packed, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col);
typedef void attend_function(const struct attend_args *args);

struct cpu_kernels {
    const char *name; // "scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "amx"; "neon", "neondot", "neoni8mm"

    // y[t, r] = W[r] · x[t], without the row's scale where W has any, for r in [first_row, last_row), t < n, n <= matvec_max:
    // decode, and very short prefills. W is read once. y: (n, ldy), indexed by r - first_row as above; x: (n, ldx). Results do
    // not depend on to_l2, which is machine_fetching()'s. Of the quantised types: NULL.
    matvec_function *matvec[DTYPE_WEIGHTS];
    int matvec_max; // at most 8

    // bf12's rows as the bfloat16 numbers that they are, for products of more tokens. to: (last_row - first_row, cols).
    unpack_function *unpack_bf12;

    // Prefill. Tokens are packed once for all threads, each thread taking columns [first_col, last_col).
    packed_size_function *packed_size; // floats
    pack_function *pack_tokens;
    product_function *matmul[DTYPE_FLOATS];
    size_t matmul_scratch; // bytes

    const struct quant_kernels *quant, *quant8; // tokens as 16-bit integers; as 8-bit ones
    const struct nomad_kernels *nomad; // those that every machine with this instruction set runs: see nomad_kernels_select()

    attend_function *attend[KV_TYPES];
    size_t attend_scratch; // bytes

    const struct sparse_kernels *sparse; // of attention methods that select keys (sparse.h)

    void (*rmsnorm)(float *y, const float *x, const float *w, int n, float eps); // y may be x
    // y = w ∘ (x - mean) / sqrt(variance + eps) + bias; y may be x, bias NULL
    void (*layernorm)(float *y, const float *x, const float *w, const float *bias, int n, float eps);
    void (*rope)(float *x, const float *cos, const float *sin, int head_dim); // rotates one head by halves, in place
    void (*activate[ACTIVATIONS])(float *gate, const float *up, int n);       // gate = activation(gate) * up, as the enum says
    void (*softcap)(float *x, float cap, int n);                              // x = cap * tanh(x / cap)
    void (*add)(float *x, const float *y, int n);                             // x += y
    void (*add_scaled)(float *x, const float *y, float scale, int n);         // x += scale * y
    void (*to_fp32[DTYPE_FLOATS])(float *y, const void *x, int n);
    void (*sigmoid_multiply)(float *x, const float *z, int n); // x *= 1 / (1 + e^-z)
    // y = silu(bias + Σ_j taps[j] ∘ rows[j]), j < n_taps; taps: (n_taps, ldt), rows[j]: (n), bias: (n) or NULL. y is none of
    // the rows.
    void (*convolve)(float *y, const float *const *rows, const float *taps, const float *bias, ptrdiff_t ldt, int n_taps,
                     int n);
    // y = gates ∘ (bias + Σ_j taps[j] ∘ rows[j]), likewise
    void (*convolve_gated)(float *y, const float *const *rows, const float *taps, ptrdiff_t ldt, int n_taps, const float *bias,
                           const float *gates, int n);
    void (*delta_rule)(const struct delta_args *args);
    void (*to_fp16)(uint16_t *y, const float *x, int n); // to nearest even; beyond ±65504: ±65504, NaN stays
    // x ≈ scale * y with y in [-127, 127], to nearest; returns scale = max |x| / 127. All zero: 0; where any x is NaN or
    // infinite: NaN.
    float (*to_int8)(int8_t *y, const float *x, int n);
    // log Σ e^x, within 1e-13 (1 + its magnitude); NaN where any x is NaN or +∞, or all are −∞.
    double (*log_sum_exp)(const float *x, int n);

    // For limits.c and reading.c. read_streams() reads `bytes` (a multiple of 4096 * n_streams) as n_streams interleaved
    // streams, fetched `ahead` bytes ahead (0: not at all). It returns a value that depends on all of them. fma_loop() does
    // `rounds` rounds of independent multiply-adds on registers and returns the number of operations.
    uint64_t (*read_streams)(const void *data, size_t bytes, int n_streams, int ahead);
    double (*fma_loop)(long rounds);
};

extern const struct cpu_kernels cpu_kernels_scalar, cpu_kernels_avx2, cpu_kernels_avxvnni, cpu_kernels_avx512,
    cpu_kernels_avx512vnni, cpu_kernels_amx, cpu_kernels_neon, cpu_kernels_neondot, cpu_kernels_neoni8mm;
extern const struct quant_kernels quant_kernels_scalar, quant_kernels_avx2, quant_kernels_avxvnni, quant_kernels_avx512,
    quant_kernels_avx512vnni, quant_kernels_neon, quant_kernels_neondot;
extern const struct quant_kernels quant8_kernels_scalar, quant8_kernels_avx2, quant8_kernels_avxvnni, quant8_kernels_avx512,
    quant8_kernels_avx512vnni, quant8_kernels_neon, quant8_kernels_neondot, quant8_kernels_neoni8mm;

extern const struct fixed_attention fixed_attention_avx512vnni;
extern const struct byte_attention byte_attention_avx512vnni;
extern const struct matmul16 matmul16_short, matmul16_integers;
// Without products where the compiler has no AMX.
extern const struct matmul16 matmul16_tiles, matmul16_tiles_round, matmul16_tiles_bytes;
