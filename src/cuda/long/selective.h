// Attention to selected keys, for one token: what the methods have in common that score all keys cheaply, select some, and
// attend to these exactly (SparQ: Ribar et al., arXiv 2312.04985). A method says how it scores and how many keys it wants; a
// layer's steps are
//
//     rope_append     (kernels.h)       rows of K and V, the queries rotated
//     method->prepare (kv_head)         the token's own copies or codes; what score() wants to know of the queries
//     method->score   (part, kv_head)   approximate scores of all slots, and of each part max and sum
//     weigh           (block, kv_head)  w_j = Σ_group ŝ_j, ŝ the softmax over all keys; a histogram
//     collect         (block, kv_head)  what may be the k-th; the last block finds it
//     place           (block, kv_head)  the selected slots, ascending, and what each stands for where keys are drawn
//     gather          (split, kv_head)  softmax(q · K[rows]ᵀ / √d + bias) · V[rows] in parts; the last one merges them, and
//                                       y = α y + (1 − α) v̄ where the tail is wanted
//
// (weigh, collect and place: select.cu; gather: attention/decode.cu). These are seven launches. All read position and choice
// from the device's struct evaluation: one captured graph serves every step.
// Below the method's length (`from`) decoding is dense, which is another graph: the host knows the position and launches the
// one or the other (evaluate.cu). Batches of several tokens are dense too; they, and dense steps, call method->append.
//
// Keys go by their slot (engine/kv_cache.h). Scores and weights lie where the key lies, so loads are aligned whatever the ring
// does. key_number() (selective.cuh) gives a slot's age: 0 is the oldest key that the token sees, -1 one that it does not see.
// Sinks that stand apart have no number: they are always attended to, and their exact scores belong to ŝ.
#pragma once
#include "cuda/kernels/kernels.h"

enum {
    PART_KEYS = 1024,   // slots that one block scores, weighs and collects from at a time
    SELECT_BINS = 2048, // first digits of weights
};

// Scratch of a session, on the device; all layers use the same. The last dimension of (…, ld) has room for every slot, in whole
// parts. What a part's block writes for slots that the token does not see is -inf for scores.
struct cuda_selective {
    int ld, n_parts; // ld = n_parts * PART_KEYS >= capacity
    int n_blocks;    // that share a KV head's parts when it is selected from, in turns
    float *scores;   // (n_heads, ld): by method->score
    float2 *
        // (n_heads, n_parts): max x and Σ e^(x - max) of a part's visible keys; (-inf, 0) where it has none: by method->score
        part_stats;
    float *
        // (n_heads, n_sinks), exact: by method->score (score_sinks(), selective.cuh); unused where sinks are not apart
        sink_scores;
    float2 *stats;    // (n_heads): of all keys, the sinks' included: by weigh
    float *weights;   // (n_kv_heads, ld): w, or w / u where keys are drawn (engine/hybrid.h); -1 where the token sees no key
    unsigned *digits; // (n_kv_heads, SELECT_BINS): how many weights have it; 0 between launches
    // (n_kv_heads, ld): weights that may be the k-th, the parts in any order; their parts are in rows meanwhile. From `place`
    // on, where keys are drawn: of each row ln max(1, θ / w), which is added to its score.
    float *candidates;
    int *n_candidates; // (n_kv_heads); 0 between launches
    int2 *part_counts; // (n_kv_heads, n_parts): candidates; slots that are selected whatever becomes of these
    int2 *part_places; // (n_kv_heads, n_parts): number of the part's first row; how many are selected that equal the threshold
    float *thresholds; // (n_kv_heads): the k-th weight; θ, the (k + 1)-th, where keys are drawn
    int *rows;         // (n_kv_heads, ld): slots of the selected keys, ascending
    int *n_rows;       // (n_kv_heads)
    unsigned *tickets; // (n_kv_heads): blocks that are done; 0 between launches

    // Kept, where the method has a tail: running sums of the values (mean.cu).
    double *sums;     // (n_layers, n_kv_heads, head_dim): of positions [from, to)
    int64_t *covered; // (n_layers, n_kv_heads, 2): from, to
    bool tail, drawn; // constant for a session
    int from;         // visible keys, below which attention is dense
};

// The kernels' launchers, which know no session; a: of one token.
struct value_sums { // mean.cu
    const struct evaluation *step;
    const struct kv_cache *cache; // host memory
    double *sums;
    int64_t *covered;
};
yalm_status value_sums_cover(const struct value_sums *v, cudaStream_t stream, yalm_error *error);
yalm_status value_sums_forget(const struct value_sums *v, cudaStream_t stream, yalm_error *error);
// first_head: the layer's first KV head, of all heads of all layers counted.
yalm_status select_rows(const struct cuda_selective *t, const struct attention *a, size_t first_head, cudaStream_t stream,
                        yalm_error *error);
