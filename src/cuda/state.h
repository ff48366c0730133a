// A session's memory on the device: KV cache, activations, scratch. Sizes are known before anything is taken.
#pragma once
#include "cuda/delta/delta.h"
#include "cuda/kernels/kernels.h"
#include "cuda/method.h"

extern "C" {
#include "recipe/recipe.h"
}

// A model's weights on the device: the same structure, with device pointers.
struct cuda_weights {
    struct model_weights weights; // its layers and experts are owned
    int n_layers;
    struct shares *shares;          // with other ranks'; NULL: no group
    struct expert_weights *experts; // (n_layers, n_experts) in device memory; NULL where layers are dense
    void *block;                    // what all device pointers lie in
    size_t bytes;
};

struct cuda_device {
    char name[256];
    int capability; // 90 for sm_90
    int n_sms;
    int driver; // the newest CUDA that it runs: 13000 for 13.0
};

// The blocks that a session takes on the device; with `taking` false only their sizes are added up.
struct cuda_blocks {
    bool taking;
    yalm_status status;
    yalm_error *error;
    size_t bytes;
    void *taken[128]; // the most kinds of layers with int8 caches, states and SparQ take some 90
    int n;
};

// A block of its own for each array, so that a checker of memory sees where each one ends.
void *take_block(struct cuda_blocks *b, size_t count, size_t size);
template <typename T> static inline void take(struct cuda_blocks *b, T *&pointer, size_t count, size_t size)
{
    pointer = static_cast<T *>(take_block(b, count, size));
}

// One token's step as it was captured, in a form for each enum cuda_overlap. Which one is fastest differs by GPU and model, by
// a tenth and more, and no rule was found; all give the same bits. So the first steps take turns and are timed, and what was
// fastest stays.
enum { STEP_FORMS = OVERLAP_ALL + 1 };
struct step_forms {
    bool loaded; // it went without a graph once: all its kernels are loaded, which must not happen while capturing
    cudaGraphExec_t graphs[STEP_FORMS]; // NULL: not captured yet
    float least[STEP_FORMS];            // milliseconds of those steps that were timed
    int launched;                       // while they take turns
};

// A token of a pass of several that are apart: its session, and the position there.
struct turn {
    struct cuda_state *s;
    int64_t position;
    int32_t token;
};

// A pass of such tokens as it was captured.
struct several_graph {
    uint64_t sessions[SEVERAL]; // whose tokens
    int passed;                 // how often in a row it has been of these
    cudaGraphExec_t graph;      // NULL: not captured yet
};

struct cuda_state {
    const struct model_config *config;
    const struct cuda_weights *weights;
    struct recipe recipe;     // what an evaluation does
    struct yalm_group *group; // whose ranks have the rest of the model; NULL: none
    struct cuda_device device;
    int q_dim, kv_dim; // n_heads * head_dim, n_kv_heads * head_dim; the most of any kind of layers
    int chunk;         // most tokens in a batch
    int vocab;         // the model's vocabulary; config->vocab_size is this rank's part of it
    size_t slab_bytes; // of quantised weights, see dequantise.cu

    bool several;             // its tokens can be evaluated several at a time (apart.cu); before step_open(): they are to be
    const struct turn *turns; // (n) of the pass that is being queued, where it is of tokens apart; else NULL
    struct several_graph passes[2][SEVERAL + 1]; // of such passes, by their number of tokens; [1]: of a batch's second one
    uint64_t number;                             // no other session's
    cudaStream_t stream;
    struct matmul *matmul;
    struct step_forms decode[2]; // one token's; [1] where it attends by the method
    cudaEvent_t step_began, step_ended;
    float *step_time; // where the last step's time belongs; NULL: nowhere

    int far;                                  // config_far_kind(), whose layers a method serves
    struct kv_cache caches[CONFIG_MAX_KINDS]; // of each kind of layer
    struct rope ropes[CONFIG_MAX_KINDS];
    struct decode_plan attention_plans[CONFIG_MAX_KINDS];
    struct cuda_method *method; // NULL: attention is dense
    // Of kinds of layers that are recurrent, whose cache has no layers (struct delta).
    struct carried carried;
    float *states[CONFIG_MAX_KINDS], *inputs[CONFIG_MAX_KINDS];
    float *replays[CONFIG_MAX_KINDS]; // (n_layers, replay_floats()): of tokens ahead, delta/recur.h

    // What changes from one evaluation to the next: written to pinned memory, copied from there by the evaluation's first
    // operations. Steps are (SEVERAL), one for each token apart; of others the first counts.
    struct evaluation *step_host, *step;   // pinned; device
    int32_t *tokens_host, *tokens;         // (chunk): pinned; device
    struct text_token *texts_host, *texts; // (chunk): likewise, of models that make vectors or scores of texts; else NULL
    cudaEvent_t copied;                    // pinned memory may be written again
    cudaEvent_t passed;                    // what other sessions' streams wait for (together.cu)
    struct sampled *sampled;               // pinned
    const float *last_logits; // (vocab_size), the last token's; of a batch apart the first's, and the others' behind them
    const float *fetched;     // where logits have been copied to last; NULL: nowhere yet

    // Activations, token-major.
    float *x; // (chunk, hidden_dim), the residual stream
    void *h;  // (2, chunk, w) of 16 bits or (chunk, w) of 32, normalised; w: hidden_dim, or a latent's rank if larger
    // (chunk, hidden_dim), what a block adds, where a norm stands behind it or ranks sum it; else NULL. Then zero between
    // blocks.
    float *branch;
    float *key_offsets; // (n_layers, kv_dim): model/key_offset.h; NULL: none
    // (chunk, q_dim), (chunk, kv_dim) twice of the layer's kind, as all that follows; or all in one, in q: (chunk, q_dim + 2
    // kv_dim).
    float *q, *k, *v;
    float *rotated_q;   // (chunk, q_dim), scaled by 1 / sqrt(head_dim)
    float *unrounded_k; // (chunk, kv_dim): the keys, rotated, before the cache rounds them; NULL: no method asks for them
    float *sink_q;      // likewise, as the sinks see them; NULL where there are none
    void *attended;     // (chunk, q_dim or delta_values()) of the next matrix's type
    float *gates;       // (chunk, columns of attended): output_gate's; NULL: no layer has such
    float *mixed, *decays, *betas; // of recurrent layers (struct delta), whose q, k and v lie in `q`; NULL: there are none
    // (chunk, width): with latents what queries are made of, and what is multiplied head by head; of KDA what decays and gates
    // are made of. NULL: there is none.
    float *latent, *heads;
    struct kv_cache expanded; // keys and values of some heads for prompts, made of latents; no heads: none are
    float *given; // (chunk, hidden_dim): of a head that guesses, the hidden states that it reads; NULL: it is a model
    // (chunk, ffn_dim); NULL where layers have experts. gate is also, before the first layer, (chunk, n_layers,
    // layer_input_dim).
    float *gate, *up;
    float *layer_inputs;     // (chunk, n_layers, layer_input_dim); NULL where layers have no inputs
    float *expert_sum;       // (chunk, hidden_dim): the experts' sum, where it is normalised; zero between blocks. Else NULL
    float *ones;             // weights of norms that have none: (hidden_dim or q_dim, whichever is more). NULL where all have
    void *gated;             // (chunk, ffn_dim) of the next matrix's type
    float *logits;           // (vocab), the last token's
    float *many_logits;      // (LOGITS_AT_ONCE, vocab); also those of tokens apart
    float *part_logits;      // (LOGITS_AT_ONCE, config->vocab_size), this rank's; NULL without a group
    float *squares;          // (chunk, 2) of ranks that normalise q and k together
    void *attention_scratch; // (attention_bytes): of whichever kind's plan needs most
    size_t attention_bytes;
    void *experts_scratch, *sample_scratch;
    void *slab; // (slab_bytes)
    int32_t *sampled_token;

    struct step_kernel_plan *step_plan; // NULL: a step is many kernels
    struct step_phase *step_phases;     // what it does, one thing after the other
    float *step_words;                  // (n_step_words): what its blocks hand each other (step/writer.h)
    size_t n_step_words;
    float4 *step_parts; // likewise, of attention

    double *inverse_frequency; // (kinds, head_dim / 2) of the longest heads

    struct cuda_blocks blocks;
};

enum { LOGITS_AT_ONCE = 64 }; // rows, where the logits of many tokens are wanted

// Bytes that a session takes on the device: its KV cache, what the attention method keeps, scratch.
yalm_status cuda_state_bytes(const struct backend_plan *plan, const struct cuda_device *device, yalm_memory *memory,
                             yalm_error *error);
yalm_status cuda_state_open(struct cuda_state **state, const struct backend_plan *plan, const struct cuda_device *device,
                            yalm_error *error);
void cuda_state_close(struct cuda_state *state); // NULL is welcome

// An evaluation (evaluate.cu): queued when it returns, but for logits of all tokens, which are there.
yalm_status cuda_forward(struct cuda_state *state, const struct batch *batch, yalm_error *error);
// Steps [first, last) of the recipe (run.cu), none of which is the classifier, for n tokens: attention goes by the session's
// method where `selective`. And from the residual stream, x (n, hidden_dim), to logits (n, vocab_size).
yalm_status cuda_steps(struct cuda_state *state, int first, int last, int n, bool selective, yalm_error *error);
yalm_status cuda_classify(struct cuda_state *state, float *logits, const float *x, int n, yalm_error *error);
// Copies the n tokens of the residual stream to where the batch wants its hidden states from `first` on, and waits.
yalm_status cuda_keep_hidden(struct cuda_state *state, const struct batch *batch, int first, int n, yalm_error *error);
// Around an evaluation, of recurrent layers' states.
yalm_status cuda_begin(struct cuda_state *state, const struct batch *batch, yalm_error *error);
void cuda_end(struct cuda_state *state, const struct batch *batch, yalm_status status);

// Tokens apart, queued: a batch of one session's (apart.cu); and one token of each of n sessions (together.cu).
yalm_status cuda_forward_apart(struct cuda_state *state, const struct batch *batch, yalm_error *error);
yalm_status cuda_forward_together(void *const *states, const struct batch *batches, int n, yalm_error *error);
int cuda_most_apart(const struct cuda_state *state);
// A pass of n turns, n <= SEVERAL, on `by`: logits into rows [first, first + n) of by->many_logits; first: 0 or SEVERAL.
yalm_status turns_pass(struct cuda_state *by, const struct turn *turns, int first, int n, yalm_error *error);
// How many turns from `first` on are of one session, whose positions follow each other.
int turns_run(const struct turn *turns, int first, int n);
// Of n turns' queries, keys and values, rotates and appends each where it belongs; and lets each attend as it would alone. Both
// as of one session.
yalm_status turns_append(const struct cuda_state *by, struct rope_append append, const struct step *step, int n,
                         yalm_error *error);
yalm_status turns_attend(const struct cuda_state *by, struct attention attention, const struct step *step, int n,
                         yalm_error *error);
void turns_close(struct cuda_state *state);
// Noise instead of n positions' keys and values (noise.cu), and what the attention method makes of them.
yalm_status cuda_fill(struct cuda_state *state, int64_t position, int n, uint64_t seed, yalm_error *error);
