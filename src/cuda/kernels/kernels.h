// The device's functions. Each queues its kernels on `stream` and returns at once: YALM_OK, or why they could not be queued.
//
// Pointers are device memory unless said otherwise, and token-major: (n, width). Sizes are arbitrary: no dimension need be a
// multiple of anything. Tensors begin at multiples of 256 bytes; rows of 16-bit weights are only as aligned as their length
// makes them. Rows of quantised weights lie as docs/format.md says, and behind such a matrix its product_factors. Functions
// that take a `struct evaluation` read position and length from it on the device, so that a captured graph of them serves every
// step.
#pragma once
#include "cuda/kernels/cuda.h"
#include "cuda/kernels/kv_policy.cuh"

// ------------------------------------------------------------------------------------------ what they share

// How many keys of those that a token sees an attention method attends to (selective.h); as on the CPU (cpu/long/selective.h).
struct choice {
    int32_t k;            // those of `first` and `local` among them
    int32_t first, local; // the oldest and the most recent that always belong
};

// A token of a batch of several texts.
struct text_token {
    int32_t first, last; // the batch's tokens [first, last) are what it sees of its text, but for windows
    int32_t type;
};

// All that changes from one evaluation to the next.
struct evaluation {
    int64_t position;          // of the first token
    int32_t n;                 // tokens
    int16_t from = 0, to = 0;  // places of recurrent layers' states (delta/delta.h): that is read, and that is written
    struct choice choice = {}; // of a token that attends by a method
    const struct text_token *texts = NULL; // (n), each text at its own positions from 0 on; `position` is 0. NULL: one text
};

// (n_layers, n_kv_heads, policy.capacity, head_dim), of __half, float or int8_t (kv_rows.cuh).
struct kv_cache {
    yalm_kv type;
    void *keys, *values;
    int n_layers, n_kv_heads, head_dim;
    struct kv_policy policy;
    float *key_scales = NULL, *value_scales = NULL; // (n_layers, n_kv_heads, policy.capacity) of int8, else NULL
    bool latent = false;                            // a row is key and value in one, and `values` is `keys`; never of int8
};

// Of one position's key, or value, of one KV head.
static inline double kv_row_bytes(const struct kv_cache *cache)
{
    return cache->type == YALM_KV_INT8 ? cache->head_dim + 4.0 : cache->head_dim * (cache->type == YALM_KV_FP32 ? 4.0 : 2.0);
}

struct rope {
    const double *inverse_frequency; // (dims / 2), radians a position
    double scale;                    // on cos and sin
    int dims = 0;                    // of a head, the last ones; 0: all
};

// One of the products that a launch computes together: y (rows) = w x + bias.
struct product {
    struct matrix w;
    const float *bias; // (w.rows); NULL: none
    float *y;
};

// Matrices that the next product reads, some rows with each of its blocks. While this product ends and that one begins, the L2
// cache is asked for the first of these rows (matvec.cuh).
struct upcoming {
    const void *data[3]; // NULL: no further one
    size_t bytes[3];     // of all rows
    bool side_by_side;   // a block has rows of each, as of gate and up; else of all of them one after the other
};

// Weights of fewer than 16 bits.
static inline bool matrix_is_quantised(const struct matrix *m)
{
    return m->dtype > DTYPE_BF16 && (int)m->dtype < (int)DTYPE_WEIGHTS;
}

// The type of many tokens' input to products with matrices of `type`.
static inline enum dtype input_type(enum dtype type)
{
    return type > DTYPE_BF16 ? DTYPE_FP16 : type;
}

// ------------------------------------------------------------------------------------------ elementwise (elementwise.cu)

// x (n, dim) = scale embedding[tokens[t]] for t < n.
yalm_status embed(float *x, const struct matrix *embedding, const int32_t *tokens, int n, cudaStream_t stream,
                  yalm_error *error, float scale = 1.0f);

// x[t] += positions[position of token t] + types[type of it], for t < n. Its position is step->position + t, that in its text,
// or of tokens apart step[t].position; without texts all types are 0. x: (n, dim); positions, types: rows of dim, or NULL.
yalm_status add_rows(float *x, const float *positions, const float *types, const struct evaluation *step, bool apart, int n,
                     int dim, cudaStream_t stream, yalm_error *error);

// y[t] = x[t] / sqrt(mean(x[t]²) + eps) * weight, of `type`; x: (n, dim). weight NULL: x as it is.
yalm_status rmsnorm(void *y, enum dtype type, const float *x, const float *weight, float eps, int n, int dim,
                    cudaStream_t stream, yalm_error *error);
// The same in two parts, y (2, n, dim): the rounded values, and the rounded remainders. Their sum has twice the type's digits.
yalm_status rmsnorm_split(void *y, enum dtype type, const float *x, const float *weight, float eps, int n, int dim,
                          cudaStream_t stream, yalm_error *error);

// y[t] = (x[t] - mean(x[t])) / sqrt(mean((x[t] - mean)²) + eps) * weight + bias, of `type`; x: (n, dim), may be y. bias NULL:
// none. split: in two parts, as rmsnorm_split().
yalm_status layernorm(void *y, enum dtype type, const float *x, const float *weight, const float *bias, float eps, int n,
                      int dim, bool split, cudaStream_t stream, yalm_error *error);

// x[t] += y[t] / sqrt(mean(y[t]²) + eps) * weight; weight NULL: += y[t]. x, y: (n, dim) (head_norm.cu).
yalm_status add_rmsnorm(float *x, const float *y, const float *weight, float eps, int n, int dim, cudaStream_t stream,
                        yalm_error *error);

// y[i] = activation(gate[i]) * up[i], of `type`; up NULL: activation(gate[i]).
yalm_status gate_multiply(void *y, enum dtype type, const float *gate, const float *up, size_t n, cudaStream_t stream,
                          yalm_error *error, enum activation activation = ACTIVATION_SILU);

// y[i] = xielu(x[i]), of `type`. parameters: (3), p, n and b of model/activation.h (gates.cu).
yalm_status xielu(void *y, enum dtype type, const float *x, const float *parameters, size_t n, cudaStream_t stream,
                  yalm_error *error);
// x[i] *= 1 / (1 + e^-gates[i]), x of `type` (gates.cu).
yalm_status sigmoid_multiply(void *x, enum dtype type, const float *gates, size_t n, cudaStream_t stream, yalm_error *error);
// units[t] *= 1 / (1 + e^-(router · h[t])), h = rmsnorm(x) * norm, or x where norm is NULL. units: (n, n_units) of `type`;
// router: (1, dim), fp32.
yalm_status weigh_units(void *units, enum dtype type, int n_units, const struct matrix *router, const float *x,
                        const float *norm, float eps, int n, cudaStream_t stream, yalm_error *error);

// x = cap tanh(x / cap).
yalm_status softcap(float *x, size_t n, float cap, cudaStream_t stream, yalm_error *error);

// Each head of x becomes its own rmsnorm, in place: x (n, n_heads, head_dim), `pitch` floats from token to token
// (head_norm.cu).
yalm_status rmsnorm_heads(float *x, int pitch, const float *weight, float eps, int n, int n_heads, int head_dim,
                          cudaStream_t stream, yalm_error *error);

// y[t] = [rmsnorm(x[t]) norm; rmsnorm(hidden[t]) hidden_norm], of `type`: (n, 2, dim); x, hidden: (n, dim) (inputs.cu).
yalm_status pair_norms(void *y, enum dtype type, const float *x, const float *norm, const float *hidden,
                       const float *hidden_norm, float eps, int n, int dim, cudaStream_t stream, yalm_error *error);

// Inputs of each layer's own (inputs.cu; docs/format.md). Each layer's input: inputs[t][l] = (rmsnorm(shrink inputs[t][l]) norm
// + rows[t][l]) / √2, both (n, n_layers, width).
yalm_status mix_inputs(float *inputs, const float *rows, const float *norm, float shrink, float eps, int n, int n_layers,
                       int width, cudaStream_t stream, yalm_error *error);
// y[t][i] = activation(r gate[t][i]) inputs[t * pitch + i], y (n, width) of `type`. r: √(mean(x[t]²) + eps), of x (n, dim); x
// NULL: 1.
yalm_status gate_inputs(void *y, enum dtype type, const float *gate, const float *inputs, size_t pitch, const float *x,
                        float eps, int dim, int n, int width, enum activation activation, cudaStream_t stream,
                        yalm_error *error);
// x[i] *= *factor.
yalm_status scale_stream(float *x, const float *factor, size_t n, cudaStream_t stream, yalm_error *error);
// x[t] += rmsnorm(rmsnorm(shared[t]) shared_norm + rmsnorm(sum[t]) sum_norm) norm, and sum becomes 0; all (n, dim). shared
// NULL: the sum alone; shared_norm or sum_norm NULL: as it is.
yalm_status join_experts(float *x, const float *shared, float *sum, const float *shared_norm, const float *sum_norm,
                         const float *norm, float eps, int n, int dim, cudaStream_t stream, yalm_error *error);

// Rotates queries and keys by their positions step->position + t (angles in double: positions run into the millions) and puts
// keys and values into their slots.
struct rope_append {
    const struct evaluation *step;
    const float *q, *k, *v; // (n, n_heads, head_dim), (n, n_kv_heads, head_dim) twice; k NULL: queries only; v: not of latents
    float *rotated_q;       // (n, n_heads, head_dim), times 1 / sqrt(head_dim)
    float *sink_q;          // likewise, rotated to policy.span - 1, where kv_sinks_apart(); NULL where policy.n_sinks == 0
    const struct kv_cache *cache; // host memory
    struct rope rope;
    int layer, n_heads;
    float *rotated_k = NULL; // (n, n_kv_heads, head_dim), as they are before the cache rounds them; NULL: not wanted
    int pitch = 0;           // floats from token to token in each of q, k and v; 0: as many as a token has there
    bool still = false;      // the layer's queries and keys are not rotated
    float scale = 0;         // of queries; 0: 1 / sqrt(head_dim)
    float growth = 0;        // of that scale with position: see query_scale_at() in recipe/recipe.h
    int growth_context = 1;
    const float *key_offset = NULL; // (n_kv_heads, head_dim): what int8 rows of keys are kept less of; NULL: nothing
    const float *weights = NULL;    // (head_dim): what queries are multiplied by, rotated; NULL: by nothing
};
yalm_status rope_append(const struct rope_append *r, int n, cudaStream_t stream, yalm_error *error);

// Fills the slots of positions [position, position + n) with pseudo-random keys and values, the same as the CPU's (noise.cu).
yalm_status fill_noise(const struct kv_cache *cache, int64_t position, int n, uint64_t seed, cudaStream_t stream,
                       yalm_error *error);

// ------------------------------------------------------------------------------------------ one token (matvec.cu)
// Of n tokens, x (n, cols) and y (n, rows), each has the bits that it has alone. Matrices are read once for SEVERAL of them
// (several.cu).

enum { SEVERAL = 8 };

// y_i = w_i h + bias_i, h = rmsnorm(x) * norm, or x where norm is NULL. One launch takes up to three matrices of the same
// `cols`: q, k, v; or the classifier. Reads the matrices once. next: NULL, or what the product after this one reads; as of the
// others.
yalm_status matvec_norm(const struct product *products, int n_products, const float *x, const float *norm, float eps,
                        cudaStream_t stream, yalm_error *error, const struct upcoming *next = NULL, int n = 1);

// y = activation(gate h + gate_bias) ∘ (up h + up_bias), h = rmsnorm(x) * norm, or x where norm is NULL; y: (gate.rows).
yalm_status matvec_gated(float *y, const struct expert_weights *ffn, const float *x, const float *norm, float eps,
                         cudaStream_t stream, yalm_error *error, const struct upcoming *next = NULL,
                         enum activation activation = ACTIVATION_SILU, int n = 1);

// x (w->rows) += w y + bias.
yalm_status matvec_residual(float *x, const struct matrix *w, const float *bias, const float *y, cudaStream_t stream,
                            yalm_error *error, const struct upcoming *next = NULL, int n = 1);

// y[t][h] = [w_h x[t][h]; the last `kept` of x[t][h]], of `type`, for n tokens and `heads` heads (heads.cu). w (heads * rows,
// cols) is of floats, w_h its rows of head h. x: (n, heads, x_dim), of which w_h takes the first cols; y: (n, heads, rows +
// kept).
yalm_status multiply_heads(void *y, enum dtype type, const float *x, int x_dim, const struct matrix *w, int heads, int kept,
                           int n, cudaStream_t stream, yalm_error *error);

// ------------------------------------------------------------------------------------------ experts (experts.cu)

// to[t] += Σ_e weight_e expert_e(rmsnorm(x[t])), to may be x, over the n_active best of the router's choice (the rules of
// cpu/experts.c), for n tokens. Only chosen experts are read, each once; the host takes no part.
struct experts {
    const float *norm; // (hidden_dim); NULL: x as it is
    float eps;
    struct matrix router;                 // (n_experts, hidden_dim)
    const struct expert_weights *experts; // (n_experts), host memory; without a gate the one matrix is `gate`, up.dtype U8
    const struct expert_weights *table;   // the same in device memory
    int n_experts, n_active;
    bool raw_weights = false;        // the softmax's over all experts, not over the active ones
    const float *router_bias = NULL; // (n_experts); NULL: none
    enum activation activation = ACTIVATION_SILU;
    const float *choice_bias =
        NULL;        // (n_experts): experts are chosen by score and this, and have scores for weights; NULL: by softmax
    float scale = 0; // of the active experts' weights; 0: 1
    const float *router_norm = NULL;  // (hidden_dim), of what the router reads; NULL: norm
    const float *weight_scale = NULL; // (n_experts), of their weights; NULL: 1
    // Experts are chosen of the n_active_groups best of n_groups. A group's best expert tells how good it is; with choice_bias
    // its best two together.
    int n_groups = 0, n_active_groups = 0; // 0: among all
    float eps_of_sum = 0;                  // is added to the sum that weights are divided by, with choice_bias
    bool softmax_scores = false; // with choice_bias: scores are the softmax, not sigmoids; eps_of_sum is the least sum
};
size_t experts_scratch_bytes(const struct model_config *config, int most_tokens);
yalm_status experts_run(float *to, const float *x, const struct experts *e, int n, void *scratch, cudaStream_t stream,
                        yalm_error *error);

// ------------------------------------------------------------------------------------------ attention (attention_*.cu)

// Most components of a head: for fast kernels and methods; for any; of a latent with what rotates.
enum { ATTENTION_MAX_DIM = 256, ATTENTION_LONG_DIM = 512, ATTENTION_LATENT_DIM = 640 };
static inline int attention_most_dim(bool latent)
{
    return latent ? ATTENTION_LATENT_DIM : ATTENTION_LONG_DIM;
}

// softmax(q Kᵀ) V, per query head over the keys that its token sees (engine/kv_cache.h), the sinks apart with sink_q.
struct attention {
    const struct evaluation *step;
    const float *q;               // (n, n_heads, head_dim), as rope_append() leaves it
    const float *sink_q;          // likewise; NULL where policy.n_sinks == 0
    const struct kv_cache *cache; // host memory
    int layer, n_heads;
    float softcap = 0;               // of scores; 0: none
    const float *sink_logits = NULL; // (n_heads): counted in each head's softmax beside the keys' scores; NULL: none
    // (n_heads): by how much scores fall with each key of distance (ALiBi), of heads with keys of their own, without sinks
    // apart or sink_logits; NULL: not.
    const float *slopes = NULL;
    int row_heads = 0; // heads of a token in q, sink_q and what is attended, of which these are the first; 0: n_heads
};

// One token, its keys split over blocks (flash decoding).
struct decode_plan {
    int n_splits;         // ranges that a KV head's keys are cut into, at most
    size_t scratch_bytes; // partial results and tickets
};
struct decode_plan attention_decode_plan(const struct kv_cache *cache, int n_heads, int n_sms);
// attended: (n_heads, head_dim). scratch: plan->scratch_bytes, all zero before the first call; each call leaves what the next
// one needs.
yalm_status attention_decode(const struct attention *a, const struct decode_plan *plan, float *attended, void *scratch,
                             cudaStream_t stream, yalm_error *error);

// Selected keys of a layer.
struct gathered {
    const int *rows;   // (n_kv_heads, ld): their slots; the sinks apart are not among them
    const int *n_rows; // (n_kv_heads)
    const float *bias; // (n_kv_heads, ld): what is added to the rows' scores; NULL: nothing
    int ld;
    // y = α y + (1 - α) v̄, v̄ the mean of the values of all keys that the token sees; NULL sums: no tail.
    const double
        *sums; // (n_kv_heads, head_dim): of all positions before the token that it sees, the sinks apart not among them
    const float *scores;      // (n_heads, ld): α = Σ e^(score - max) / sum over rows and sinks
    const float *sink_scores; // (n_heads, n_sinks)
    const float2 *stats;      // (n_heads): max, 1 / sum
};
// One token that attends to these keys only, otherwise as attention_decode(), whose plan and scratch it takes.
yalm_status attention_gather(const struct attention *a, const struct gathered *keys, const struct decode_plan *plan,
                             float *attended, void *scratch, cudaStream_t stream, yalm_error *error);

// n = step->n tokens, whose keys and values are in the cache. attended: (n, n_heads, head_dim) of `type`.
yalm_status attention_prefill(const struct attention *a, int n, void *attended, enum dtype type, cudaStream_t stream,
                              yalm_error *error);

// Prompts of layers that keep latents (expand.cu). In slots [0, n) of `to`, of fp16, both (heads, capacity, width): keys, k_b
// (heads, kv_rank, nope_dim) times the layer's latents, then what rotates; and values, v_b (heads, v_dim, kv_rank) times the
// latents, then zeros up to width. Latents are in from's slots of the same numbers.
yalm_status expand_latents(const struct kv_cache *to, const struct kv_cache *from, int layer, const struct latent_config *d,
                           const half *k_b, const half *v_b, int n, cudaStream_t stream, yalm_error *error);
// y (n, dim) = the first dim of each of x (n, width), both of `type`.
yalm_status narrow_heads(void *y, const void *x, enum dtype type, int dim, int width, size_t n, cudaStream_t stream,
                         yalm_error *error);

// ------------------------------------------------------------------------------------------ many tokens (matmul.cu)

// The factor of products with a quantised matrix's fp16 form (dequantise.cu), and others that must lie in device memory beside
// it.
struct product_factors {
    float alpha, zero, one, pad;
};

// Where they lie: bytes from the matrix's beginning, behind all of its own.
static inline size_t factors_at(const struct matrix *m)
{
    return round_up((size_t)m->rows * dtype_row_bytes(m->dtype, m->cols), 16);
}
const struct product_factors *product_factors_of(const struct matrix *m);
yalm_status product_factors_make(const struct matrix *m, cudaStream_t stream,
                                 yalm_error *error); // once, when the matrix is there

// to (n_rows, cols) of fp16 = rows [first_row, first_row + n_rows) of a quantised matrix / alpha.
yalm_status dequantise(void *to, const struct matrix *m, int first_row, int n_rows, cudaStream_t stream, yalm_error *error);
// Bytes of the slab that products with these weights need; 0 where none is quantised.
size_t slab_bytes(const struct model_config *config, const struct model_weights *weights);

struct matmul; // cuBLASLt's handle, workspace and plans: one for each stream
yalm_status matmul_open(struct matmul **matmul, yalm_error *error);
void matmul_close(struct matmul *matmul); // NULL is welcome
size_t matmul_workspace_bytes(void);      // that matmul_open() takes on the device

// Device memory of slab_bytes(), which stays the caller's: without it quantised matrices are refused.
void matmul_use_slab(struct matmul *matmul, void *slab, size_t bytes);

// y (n, w->rows) = x wᵀ + bias, or y += that where `add`. x: (n, w->cols) of input_type(w->dtype).
yalm_status matmul_run(struct matmul *matmul, float *y, const void *x, const struct matrix *w, const float *bias, int n,
                       bool add, cudaStream_t stream, yalm_error *error);
// y = (x[0] + x[1]) wᵀ + bias; x: (2, n, w->cols), as rmsnorm_split() leaves it.
yalm_status matmul_run_split(struct matmul *matmul, float *y, const void *x, const struct matrix *w, const float *bias, int n,
                             cudaStream_t stream, yalm_error *error);

// ------------------------------------------------------------------------------------------ sampling (sample.cu)

struct sampled {
    int32_t token;
    float logit; // as evaluated, before biases and penalties
};

// Draws as text/sampler.h says, with draw->uniform. logits: (n_vocab), left as they are. draw and what it points to are host
// memory, and free to change when this returns. *token (device) and *sampled (pinned host memory) get the result. scratch is
// all zero before the first call; each call leaves what the next one needs.
size_t sample_scratch_bytes(int n_vocab, int context);
yalm_status sample(const struct draw *draw, const float *logits, int n_vocab, void *scratch, int32_t *token,
                   struct sampled *sampled, cudaStream_t stream, yalm_error *error);
