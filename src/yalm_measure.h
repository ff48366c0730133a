// yalm_measure.h: what evaluating costs, what the machine could do, and what is learned from text about a model's keys and
// columns, and what a converter computes. For benchmarks and converters; a program that only uses a model needs yalm.h alone.

#ifndef YALM_MEASURE_H
#define YALM_MEASURE_H

#include "yalm.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------------------------------- cost

// What the work must cost: each weight and each visible cache row read once; two operations for a multiply-add.
typedef struct yalm_cost {
    double bytes, ops;
} yalm_cost;

// Of evaluating n tokens when `depth` positions are in the cache, with the logits of the last one.
YALM_API yalm_cost yalm_session_cost(const yalm_session *session, int n, int64_t depth);

// Attention's part of those bytes, as its method reads them, and what dense attention would read.
typedef struct yalm_attention_cost {
    double bytes, dense_bytes;
} yalm_attention_cost;
YALM_API yalm_attention_cost yalm_session_attention_cost(const yalm_session *session, int n, int64_t depth);

// From now on attention's part of each layer is timed, or no longer: appending to the cache, scoring, selecting, attending.
// False where the device (a GPU) cannot tell it from the rest.
YALM_API bool yalm_time_attention(yalm_session *session, bool on);
// What it has taken, by the wall clock, of all evaluations since the call above.
YALM_API double yalm_attention_seconds(const yalm_session *session);

// ---------------------------------------------------------------------------------------- limits

// What the machine can do with the session's device, threads and instruction set.
typedef struct yalm_limits {
    double read_gb_per_s; // the best of a grid of access patterns over memory larger than the caches
    double fma_gop_per_s; // float32 multiply-adds from registers, two operations each
    // 8-bit multiply-adds with 32-bit sums, likewise, in tiles where there are: the limit for quantised weights; 0 on the GPU
    double dot_gop_per_s;
    // GPU: bfloat16 matrix products with float32 sums: the limit for all but fp32 weights; 0 on the CPU
    double matrix_gop_per_s;
} yalm_limits;

// Measures for about `seconds` in all.
YALM_API yalm_status yalm_measure_limits(yalm_session *session, double seconds, yalm_limits *limits, yalm_error *error);

// What plain reading of memory larger than the caches gives now, in GB/s on average over about `seconds`. It is to be set
// beside a mean of work timed before and after, as the best moment above cannot be where others use the machine too. The
// first call takes that memory and chooses among the patterns, some half a second more; the session keeps the memory until it
// is closed or memory is short. 0 where it is short, and on a device that has no such measurement (a GPU). The caches are
// empty afterwards.
YALM_API double yalm_measure_reading(yalm_session *session, double seconds);

// Appends n positions whose keys and values are pseudo-random, for timing at depth without a prefill.
YALM_API yalm_status yalm_fill_random(yalm_session *session, int n, uint64_t seed, yalm_error *error);

// ---------------------------------------------------------------------------------------- calibrating

// How the codebooks of NoMAD attention are learned: k-means with 16 centroids in each sub-vector of each KV head's keys.
typedef struct yalm_calibration {
    size_t size;    // of this struct
    int d_sub;      // components in a sub-vector: 1, 2 or 4; 4 bits each
    int samples;    // keys of each KV head that are recorded, at most; 4 bytes * 16 centroids * head_dim are learned from them
    int positions;  // keys are rotated to positions below this; 0: the model's context, or the session's where that is longer
    int iterations; // of k-means
    uint64_t seed;
    bool bos;                                                       // each window of the text stands behind the model's bos
    void (*progress)(void *context, const char *what, double part); // NULL: none; called on the caller's thread
    void *context;
} yalm_calibration;

YALM_API yalm_calibration yalm_calibration_defaults(void);

// Where a model's codebooks are looked for when no file is named: its path with .nomad for the ending. Owned by the model.
YALM_API const char *yalm_codebooks_path(const yalm_model *model);

// Evaluates the tokens in windows of the session's context, learns codebooks from the keys, and writes them to `path`, which is
// bound to the model by its checksum. Takes 2 bytes for each component of each recorded key besides the session. The file
// appears when all is done, or not at all. *samples (NULL is welcome): how many keys of each KV head there were. Leaves the
// session at some position.
YALM_API yalm_status yalm_calibrate(yalm_session *session, const int32_t *tokens, size_t n, const yalm_calibration *how,
                                    const char *path, int *samples, yalm_error *error);

// How text is evaluated for importance.
typedef struct yalm_importance {
    size_t size;                                  // of this struct
    bool bos;                                     // each window of the text stands behind the model's bos
    void (*progress)(void *context, double part); // NULL: none; called on the caller's thread
    void *context;
} yalm_importance;

YALM_API yalm_importance yalm_importance_defaults(void);

// Evaluates the tokens in windows of the session's context, and writes to `path` how large the columns of what each weight
// matrix reads are, and how they go together: sums of squares and products, bound to the model by its checksum, in safetensors
// (docs/format.md). On the CPU alone (YALM_USAGE). Its disk is taken first; the file appears when all is done, or not at all.
// how: NULL for the defaults. Leaves the session at some position.
YALM_API yalm_status yalm_importance_write(yalm_session *session, const int32_t *tokens, size_t n, const yalm_importance *how,
                                           const char *path, yalm_error *error);

// ---------------------------------------------------------------------------------------- converting

// The converter calls these: they do what its numpy does, faster. Those with a grid return false, and do nothing, where that
// has another size than here.
// The integers that a quantised type has.
typedef struct yalm_grid {
    size_t size;           // of this struct
    const int8_t *nearest; // (128) the integer nearest to (i - 64) / 2; NULL: those from `least` to `most`
    float least, most;
    const float *targets; // (n_targets) where the largest value of a group may go
    int n_targets;
    int rounds; // how often the best scale is refined
} yalm_grid;

// scales (n): by which the integers fit n groups of 32 weights best. x, and weights of squared errors or NULL: both groups as
// rows (n, 32), or as columns (32, n).
YALM_API bool yalm_search_scales(float *scales, const yalm_grid *grid, const float *x, const float *weights, bool rows,
                                 size_t n);
// quants: the integers nearest to groups `wanted`, as rows (n, 32); x, feedback and errors are NULL. With feedback (32, 32) all
// are columns (32, n): row j of `wanted` first gets feedback[i][j] errors[i] of each row i before it, and errors[i] = x[i] -
// quants[i] scales.
YALM_API bool yalm_round_groups(int8_t *quants, float *errors, const yalm_grid *grid, const float *wanted, const float *scales,
                                const float *x, const float *feedback, size_t n);

// Splits n blocks of `bytes` with 4-bit codes. A byte's lower four bits are of one part of the block's columns, its upper four
// of the next part. Writes the lower part, then the upper one, two neighbours in a byte; each byte is XORed with `flipped`.
YALM_API void yalm_split_nibbles(uint8_t *to, const uint8_t *from, int bytes, uint8_t flipped, size_t n);

#ifdef __cplusplus
}
#endif
#endif
