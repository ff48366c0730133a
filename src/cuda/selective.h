// Attention to selected keys, for one token: what the methods have in common that score all keys cheaply, select some, and attend to
// these exactly (SparQ: Ribar et al., arXiv 2312.04985). A method says how it scores and how many keys it wants; a layer's steps are
//
//     rope_append     (kernels.h)                 rows of K and V, the queries rotated
//     method->prepare (kv_head)                   the token's own copies or codes; what score() wants to know of the queries
//     method->score   (part, kv_head)             approximate scores of all slots, and of each part max and sum
//     weigh           (block, kv_head)            w_j = Σ_group ŝ_j, ŝ the softmax over all keys; a histogram                  (select.cu)
//     collect         (block, kv_head)            what may be the k-th; the last block finds it                                 (select.cu)
//     place           (block, kv_head)            the selected slots, ascending                                                 (select.cu)
//     gather          (split, kv_head)            softmax(q · K[rows]ᵀ / √d) · V[rows] in parts; the last one merges them, and
//                                                 y = α y + (1 − α) v̄ where the tail is wanted                                  (gather.cu)
//
// so seven launches, all of which read position and choice from the device's struct step: one captured graph serves every step. Below the method's
// length (`from`) decoding is dense, which is another graph: the host knows the position and launches the one or the other (forward.cu).
// Batches of several tokens are dense too; they, and dense steps, call method->append.
//
// Keys go by their slot (engine/kv_cache.h): scores and weights lie where the key lies, so that loads are aligned whatever the
// ring does. key_number() (selective.cuh) gives a slot's age: 0 is the oldest key that the token sees, -1 one that it does not see. Sinks that
// stand apart have no number: they are always attended to, and their exact scores belong to ŝ.
#pragma once
#include "cuda/kernels.h"

struct cuda_state;
struct cuda_blocks;
struct backend_plan;

enum {
    PART_KEYS = 1024,   // slots that one block scores, weighs and collects from at a time
    SELECT_BINS = 2048, // first digits of weights
};

// Scratch of a session, on the device; all layers use the same. The last dimension of (…, ld) has room for every slot, in whole parts.
// What a part's block writes for slots that the token does not see is -inf for scores.
struct selective {
    int ld, n_parts; // ld = n_parts * PART_KEYS >= capacity
    int n_blocks;    // that share a KV head's parts when it is selected from, in turns
    float *scores;   // (n_heads, ld): by method->score
    float2 *
        part_stats; // (n_heads, n_parts): max x and Σ e^(x - max) of a part's visible keys; (-inf, 0) where it has none: by method->score
    float *
        sink_scores; // (n_heads, n_sinks), exact: by method->score (score_sinks(), selective.cuh); unused where sinks are not apart
    float2 *stats;    // (n_heads): of all keys, the sinks' included: by weigh
    float *weights;   // (n_kv_heads, ld); -1 where the token sees no key
    unsigned *digits; // (n_kv_heads, SELECT_BINS): how many weights have it; 0 between launches
    float *
        candidates; // (n_kv_heads, ld): weights that may be the k-th, the parts in any order; their parts are in rows meanwhile
    int *n_candidates; // (n_kv_heads); 0 between launches
    int2 *part_counts; // (n_kv_heads, n_parts): candidates; slots that are selected whatever becomes of these
    int2 *part_places; // (n_kv_heads, n_parts): number of the part's first row; how many are selected that equal the threshold
    float *thresholds; // (n_kv_heads)
    int *rows;         // (n_kv_heads, ld): slots of the selected keys, ascending
    int *n_rows;       // (n_kv_heads)
    unsigned *tickets; // (n_kv_heads): blocks that are done; 0 between launches

    // Kept, where the method has a tail: running sums of the values (mean.cu).
    double *sums;     // (n_layers, n_kv_heads, head_dim): of positions [from, to)
    int64_t *covered; // (n_layers, n_kv_heads, 2): from, to
    bool tail;        // constant for a session
    int from;         // visible keys, below which attention is dense
};

// The kernels' launchers, which know no session; a: of one token.
struct value_sums { // mean.cu
    const struct step *step;
    const struct kv_cache *cache; // host memory
    double *sums;
    int64_t *covered;
};
yalm_status value_sums_cover(const struct value_sums *v, cudaStream_t stream, yalm_error *error);
yalm_status value_sums_forget(const struct value_sums *v, cudaStream_t stream, yalm_error *error);
yalm_status select_rows(const struct selective *t, const struct attention *a, cudaStream_t stream, yalm_error *error);
// scratch: as of attention_decode(), whose plan it is too.
yalm_status attention_gather(const struct attention *a, const struct selective *t, const struct decode_plan *plan,
                             float *attended, void *scratch, cudaStream_t stream, yalm_error *error);

// The state's `method`: NULL where attention is dense. All of them run on the host; what they launch goes to s->stream.
struct cuda_method {
    const char *name;

    // What this backend refuses of the options, in one line, before anything is planned (cuda_resolve).
    yalm_status (*check)(const struct model_config *config, const yalm_session_options *options, yalm_error *error);
    // Options into the state (which has config, cache.policy, cache.type, device): sets selective.tail, selective.from and its own sizes. Also
    // called where only sizes are wanted.
    yalm_status (*plan)(struct cuda_state *s, const struct backend_plan *plan, yalm_error *error);
    void (*take_kept)(struct cuda_state *s, struct cuda_blocks *b);    // beside the cache: yalm_memory.attention
    void (*take_scratch)(struct cuda_state *s, struct cuda_blocks *b); // its own; struct selective's is taken besides
    // Once the memory is there. NULL: nothing to do.
    yalm_status (*open)(struct cuda_state *s, const struct backend_plan *plan, yalm_error *error);
    void (*close)(struct cuda_state *s); // what plan() and open() took on the host; NULL: nothing

    // n tokens whose rows rope_append() (or fill_noise(), then a->q is NULL) has put into the cache, positions step->position …: their further copies
    // or codes.
    yalm_status (*append)(struct cuda_state *s, const struct attention *a, int n, yalm_error *error);
    // One token that attends by the method: what append() does for it, and what score() wants of its queries.
    yalm_status (*prepare)(struct cuda_state *s, const struct attention *a, yalm_error *error);
    // selective.scores, part_stats and sink_scores. grid: (n_parts, n_kv_heads).
    yalm_status (*score)(struct cuda_state *s, const struct attention *a, yalm_error *error);

    // Of a token with n_keys to select from: put into struct step by the host, so the same function as the CPU's.
    struct choice (*choice)(const struct cuda_state *s, int n_keys);
    // Bytes of the cache and of what the method keeps that one token at `position` must read in one layer.
    double (*bytes)(const struct cuda_state *s, int64_t position);
};

extern const struct cuda_method method_sparq;

// By name: dense has none. *method NULL, and YALM_USAGE, where the GPU has no such method.
yalm_status cuda_method_find(const struct cuda_method **method, const char *name, yalm_error *error);

// Keys that the token at `position` selects from: the sinks apart are not among them.
int selective_n_keys(const struct kv_policy *policy, int64_t position);
// True where a batch attends by the session's method.
bool selective_applies(const struct cuda_state *s, int n, int64_t position);

// The least number of keys, to 64, at which bytes() of one KV head and what its further steps cost are less than dense attention's; beyond the keys
// that a token ever sees where none is. As on the CPU.
int selective_break_even(const struct cuda_state *s, double (*bytes)(const struct cuda_state *s, int n), double step_bytes);
void selective_plan(struct cuda_state *s);
void selective_take_kept(struct cuda_state *s, struct cuda_blocks *b); // the running sums, where selective.tail
void selective_take_scratch(struct cuda_state *s, struct cuda_blocks *b);
yalm_status selective_open(struct cuda_state *s, yalm_error *error); // what must be 0 before the first call

// Before a batch writes to the cache, once for all layers: the running sums come to what the token at step->position sees of the past (`applies`), or
// forget what the batch may overwrite.
yalm_status selective_begin(struct cuda_state *s, int n, bool applies, yalm_error *error);
// Weigh and collect: selective.rows and n_rows from the scores.
yalm_status selective_select(struct cuda_state *s, const struct attention *a, yalm_error *error);
// attended (n_heads, head_dim) from the rows.
yalm_status selective_gather(struct cuda_state *s, const struct attention *a, float *attended, yalm_error *error);
// All of a layer's steps after rope_append(), for one token.
yalm_status selective_attend(struct cuda_state *s, const struct attention *a, float *attended, yalm_error *error);
