// yalm: run one Llama or Mistral model, fast, on the machine in front of you.
//
// Two nouns. A *model* is a file opened once: immutable, shared by any number of sessions and threads.
// A *session* is one mutable timeline on it: its tokens, its KV cache, its last logits. One verb moves a
// session on: yalm_eval() appends n tokens (n > 1 is prefill, n = 1 is decode) and leaves logits to read
// or to sample from; yalm_rollback() moves it back.
//
//     yalm_error error;
//     yalm_model *model = yalm_model_open("model.bin", NULL, &error);
//     yalm_session *session = yalm_session_open(model, NULL, &error);
//     yalm_eval(session, tokens, n_tokens, YALM_LOGITS_LAST, &error);
//     int32_t next = yalm_sample(session, &sampling);
//
// The library never prints, never exits, and keeps no global state. Each call that can fail returns a
// yalm_status (or NULL) and, where `error` is not NULL, fills it with one line that names the file or
// thing, what was found, and what was expected. A session belongs to one thread at a time; only
// yalm_session_cancel() may be called from another thread or from a signal handler.

#ifndef YALM_H
#define YALM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define YALM_API __attribute__((visibility("default")))

// ---------------------------------------------------------------------------------------- errors

// The values are the exit codes of the command line.
typedef enum yalm_status {
    YALM_OK = 0,
    YALM_FAILED = 1,        // at run time: I/O, a device, a limit of the system
    YALM_USAGE = 2,         // the caller's arguments: out of range, unknown, contradictory
    YALM_BAD_MODEL = 3,     // the file is not a model that this version can run
    YALM_NO_MEMORY = 4,     // said before anything is allocated, where it can be foreseen
    YALM_INTERRUPTED = 130, // yalm_session_cancel()
} yalm_status;

typedef struct yalm_error {
    yalm_status status;
    char text[512]; // one line, UTF-8, no newline at the end
} yalm_error;

// "0.1.0 (commit 1a2b3c4, gcc 12.2.0; cpu: scalar avx2 avxvnni avx512 avx512vnni; cuda: none)". Static.
YALM_API const char *yalm_version(void);

// ---------------------------------------------------------------------------------------- model

typedef struct yalm_model yalm_model;

typedef struct yalm_model_options {
    bool verify; // check every tensor's checksum while opening: reads the whole file
    bool lock;   // keep the file's pages in memory (mlock); YALM_FAILED where the system's limit forbids it
    // Copy the file into huge pages, which spares the processor most look-ups of addresses. Takes memory of the file's size, not shared with other
    // processes: YALM_NO_MEMORY before any is taken where that does not suffice, YALM_FAILED where the system has huge pages turned off.
    bool huge_pages;
    // Whose ranks each compute a share of the model (below); rank 0 opens it so. Neither lock nor huge_pages can be had then (YALM_USAGE). NULL: alone.
    struct yalm_group *group;
} yalm_model_options;

enum { YALM_MAX_EOS = 16 };

// Facts about a model. Strings and arrays are owned by the model.
typedef struct yalm_model_info {
    const char *name;          // of the directory that it was converted from
    const char *architecture;  // as in config.json: "LlamaForCausalLM", …
    const char *weight_dtype;  // of the matrices: "fp16", "q4n", …; of quantised ones: the layers'; "mixed" where they differ
    const char *rope_type;     // "default", "linear", "llama3", "yarn", "longrope"
    const char *tokenizer;     // "spm" (SentencePiece-style BPE), "bpe" (byte-level BPE), or "none"
    const char *chat_template; // Jinja, as stored; NULL where there is none
    int n_layers, hidden_dim, ffn_dim, n_heads, n_kv_heads, head_dim;
    int vocab_size;                  // rows of the embedding; token ids are below it
    int tokenizer_vocab;             // pieces that the tokenizer knows; a text with one from vocab_size on is refused
    int context_length;              // positions that the model was trained for
    int sliding_window;              // the shortest of any layer; 0: none has one
    int n_windowed_layers;           // layers that have one
    int n_recurrent_layers;          // layers that have a recurrent state in attention's place
    int n_experts, n_active_experts; // 0: not a mixture of experts
    int32_t bos;                     // -1: none
    bool add_bos;                    // the tokenizer puts bos before a text
    int n_eos;
    int32_t eos[YALM_MAX_EOS];
    int64_t n_params;
    uint64_t file_bytes, weight_bytes;
    uint64_t checksum; // XXH3-64 of the metadata, which holds each tensor's checksum: names the model
} yalm_model_info;

typedef struct yalm_tensor_info {
    const char *name, *dtype;
    int rank;
    int64_t shape[4]; // outermost first
    uint64_t offset, bytes, checksum;
} yalm_tensor_info;

// Maps the file and validates all of it that can be validated without reading the tensors. NULL on failure.
YALM_API yalm_model *yalm_model_open(const char *path, const yalm_model_options *options, yalm_error *error);
YALM_API void yalm_model_close(yalm_model *model); // after its sessions; NULL is welcome
YALM_API const yalm_model_info *yalm_model_facts(const yalm_model *model);

YALM_API int yalm_model_n_tensors(const yalm_model *model);
YALM_API yalm_tensor_info yalm_model_tensor(const yalm_model *model, int index);
// Compares tensor `index` with its checksum: YALM_OK, or YALM_BAD_MODEL.
YALM_API yalm_status yalm_model_verify_tensor(const yalm_model *model, int index, yalm_error *error);

// ---------------------------------------------------------------------------------------- text

enum {
    YALM_TOKENIZE_BOS = 1,     // begin with the model's bos token, where the model wants one
    YALM_TOKENIZE_SPECIAL = 2, // text that spells a special token becomes that token; otherwise it stays text
};

// Ids of text[0..length), any bytes. Returns *n_tokens ids in *tokens, a buffer that the caller frees with free().
YALM_API yalm_status yalm_tokenize(const yalm_model *model, const char *text, size_t length, int flags, int32_t **tokens,
                                   size_t *n_tokens, yalm_error *error);

// The piece's own bytes (not terminated; NUL may be among them); NULL where the model has no tokenizer or the id no piece.
// For control tokens it is their spelling. Owned by the model.
YALM_API const char *yalm_piece(const yalm_model *model, int32_t token, size_t *length);
YALM_API bool yalm_is_control(const yalm_model *model, int32_t token); // spelled only, never part of a text
YALM_API bool yalm_is_eos(const yalm_model *model, int32_t token);

// Turns a stream of tokens back into bytes. Zero-initialise it at the start of a text.
typedef struct yalm_stream {
    unsigned char pending[4]; // the beginning of a UTF-8 character whose rest has not come yet
    int n_pending;
    bool started; // a text's first space, which the tokenizer added, has been dealt with
} yalm_stream;

enum { YALM_MAX_PIECE = 1024 }; // bytes; the loader refuses longer pieces

// Bytes that `token` adds to the text, in out[0..YALM_MAX_PIECE + 8): whole UTF-8 characters where the text has such.
// Control tokens add nothing unless `spell_control`. A stream in the middle of a text (after a prompt) sets `started`.
YALM_API size_t yalm_stream_token(const yalm_model *model, yalm_stream *stream, int32_t token, bool spell_control, char *out);
// What is pending at the end: bytes of a character that never got whole.
YALM_API size_t yalm_stream_end(yalm_stream *stream, char *out);

// Renders the model's chat template. `variables` is a JSON object: "messages", "tools", "add_generation_prompt", and what else the template reads; each
// member is a variable of the template (bos_token and eos_token are the model's). The text is what transformers' apply_chat_template gives, and has
// the model's control tokens spelled: tokenise it with YALM_TOKENIZE_SPECIAL, and without YALM_TOKENIZE_BOS. *text (UTF-8, NUL-terminated, *length
// bytes) is the caller's to free(). YALM_USAGE: the model has no template that can be rendered, or the template refuses the variables (the text has
// its reason and line), or they make it too long. Safe to call from several threads.
YALM_API yalm_status yalm_chat_render(const yalm_model *model, const char *variables, size_t n_variables, char **text,
                                      size_t *length, yalm_error *error);

// ---------------------------------------------------------------------------------------- session

typedef struct yalm_session yalm_session;

// Elements of the KV cache. int8: each key and value of a head has a scale of its own, about half the memory of fp16.
typedef enum yalm_kv { YALM_KV_FP16 = 0, YALM_KV_FP32 = 1, YALM_KV_INT8 = 2 } yalm_kv;

// What tokens become where they are multiplied with weights (docs/kernels.md says from how many tokens on, and by which instruction sets). int16 loses
// less than an fp16 cache does. int8 takes half the arithmetic where tokens meet quantised weights, and loses more than q8 does.
// fp32 keeps them in float32, as far as weights are not quantised. Refused where no weights are of the types that it concerns. auto: int8 where
// layers have weights of 5 bits and fewer, which lose many times what it does; else int16.
typedef enum yalm_activations {
    YALM_ACTIVATIONS_AUTO = 0,
    YALM_ACTIVATIONS_INT16 = 1,
    YALM_ACTIVATIONS_INT8 = 2,
    YALM_ACTIVATIONS_FP32 = 3,
} yalm_activations;

typedef struct yalm_session_options {
    const char
        *device;     // "cpu"; "cuda", an NVIDIA GPU; "auto": cuda where a GPU can run this model with these options, else cpu
    const char *isa; // CPU: "auto", "scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "amx"; "neon", "neondot", "neoni8mm"
    int n_threads;   // 0: physical cores in the affinity mask, at most the CPU quota of its control groups
    int n_threads_batch; // for batches of several tokens, which are bound by arithmetic; 0: as n_threads
    // Sessions on one model that have as many threads share them, and take turns.
    bool
        pin; // each thread stays on a core of its own; the thread that opens the session is the first. Such threads are not shared
    int context;  // positions that a token can look back on; 0: the model's, at most 4,096. More than the model was
                  // trained for is allowed (for timing, say), though such positions mean nothing to it
    bool endless; // past the context, go on: the first n_sinks tokens and the most recent ones stay visible
    int n_sinks;  // attention sinks (Xiao et al., arXiv 2309.17453); used when endless and the model has no window
    yalm_kv kv;
    yalm_activations activations; // CPU
    int chunk;                    // prefill is done in pieces of at most so many tokens; 0: chosen
    // yalm_expect() and yalm_eval_each() will be called. Without it a GPU may compute each token by one kernel, which is faster and takes no others with it;
    // its sums have another order, and therefore other last bits.
    bool several;
    // How a token that is decoded alone attends to a long context: "dense" reads every key and value; "sparq", "nomad" and "hybrid" read less, and differ
    // in what they compute.
    const char *attention;
    float attention_ratio; // sparq: of dense attention's traffic; hybrid: of the keys. 0: chosen
    // Of nomad and hybrid: a file that yalm_calibrate() has written; NULL: yalm_codebooks_path(). Needed until the session is open.
    const char *codebooks;
    const char *const *settings; // "KEY=VALUE", what only measurements need (docs/attention.md#settings). Needed likewise
    int n_settings;
    // Called now and then by yalm_session_open(), where it copies weights to a device: bytes done, and in all. NULL is welcome.
    void (*progress)(void *context, uint64_t done, uint64_t total);
    void *progress_context;
} yalm_session_options;

YALM_API yalm_session_options yalm_session_defaults(void);

typedef struct yalm_memory {
    uint64_t weights; // CPU: mapped from the file, shared between processes; GPU: a copy, shared by the model's sessions
    uint64_t kv_cache;
    uint64_t attention; // what the attention method keeps beside the KV cache
    uint64_t scratch;   // activations, logits, RoPE tables
    uint64_t available; // what the machine (or cgroup), or the GPU, can still give, at this moment; a copy that is there counts
} yalm_memory;

// What a session with these options will take. NULL options are the defaults.
YALM_API yalm_status yalm_session_memory(const yalm_model *model, const yalm_session_options *options, yalm_memory *memory,
                                         yalm_error *error);

// Fails with YALM_NO_MEMORY before allocating, when memory does not suffice. The model must outlive the session.
YALM_API yalm_session *yalm_session_open(const yalm_model *model, const yalm_session_options *options, yalm_error *error);
YALM_API void yalm_session_close(yalm_session *session); // NULL is welcome

// The options as resolved: no zeros, no "auto".
YALM_API const yalm_session_options *yalm_session_facts(const yalm_session *session);
YALM_API yalm_memory yalm_session_memory_used(const yalm_session *session);
// "2 threads, avx512", or the GPU's name; and in parentheses why "auto" did not take a GPU that is there. Owned by the session.
YALM_API const char *yalm_session_machine(const yalm_session *session);
// CPU: what tokens become where weights of each type multiply them, and from how many tokens on; a line for each kind of
// weights. And the steps of an evaluation, a line for each sort of layers. Else "".
YALM_API const char *yalm_session_products(const yalm_session *session);

typedef enum yalm_logits_of { YALM_LOGITS_NONE, YALM_LOGITS_LAST, YALM_LOGITS_ALL } yalm_logits_of;

// Appends tokens[0..n) at the session's position. YALM_LOGITS_ALL keeps n * vocab_size floats until the next call, so
// callers with long texts come in pieces. On an error or a cancellation position and last logits are as they were before the call; only an
// endless session past its context, whose ring has lost what that position saw, keeps the chunks that were finished.
// YALM_USAGE: an id out of range, or the context is full and the session not endless (the text has both numbers).
// On a GPU a single token's evaluation goes on when this returns: the functions that need its result wait for it.
YALM_API yalm_status yalm_eval(yalm_session *session, const int32_t *tokens, int n, yalm_logits_of which, yalm_error *error);

// Says which tokens the caller expects next, after the one that it appends next: by yalm_eval() of a single token with logits. These are then
// evaluated with it, for little more than its own time, and where they come, one by one, their logits are there at once. What comes instead costs no more than
// ever. Nothing else changes: not a bit, no position. Returns how many of n it will take: at most 15, and 0 where tokens can only be evaluated one by one
// (by an attention method that selects keys; on a GPU by one kernel each, unless yalm_session_options.several). The first call takes memory for the
// logits of 16 tokens.
YALM_API int yalm_expect(yalm_session *session, const int32_t *tokens, int n);

// Appends one token to each of n sessions on one model, with logits, as yalm_eval() would for each, to the bit; the weights are read once for up to
// 8 of them: on a CPU where their threads and activations are alike, on a GPU where yalm_expect() takes tokens. On an error no position has changed.
// YALM_USAGE: also a session given twice, or sessions of several models.
YALM_API yalm_status yalm_eval_each(yalm_session *const *sessions, const int32_t *tokens, int n, yalm_error *error);

// Waits until the device has done what was asked of it, as one does before reading a clock. YALM_FAILED where the device failed.
YALM_API yalm_status yalm_finish(yalm_session *session, yalm_error *error);

// (vocab_size) floats for the i-th token of the last yalm_eval(); i = 0 is the only one after YALM_LOGITS_LAST.
// NULL where there are none, or the device failed. Valid until the next call that changes the session.
YALM_API const float *yalm_logits(const yalm_session *session, int i);

// log Σ e^logits[i] over (n) logits, in double precision: token t has the log probability logits[t] - that. NaN where one is NaN or +∞, or all are −∞.
YALM_API double yalm_log_sum_exp(const float *logits, int n);

YALM_API int64_t yalm_position(const yalm_session *session); // tokens so far

// Forgets the tokens at `position` and later. YALM_USAGE where the session no longer holds what an earlier position but 0 could see: past the context
// or a model's window, by more than a chunk; with recurrent layers anywhere but where the last evaluations began.
YALM_API yalm_status yalm_rollback(yalm_session *session, int64_t position, yalm_error *error);
// The last position up to `position` that yalm_rollback() can go to.
YALM_API int64_t yalm_rollback_point(const yalm_session *session, int64_t position);

// The session's tokens, of which it knows at most its context's last ones: copies the last `room` of them to `tokens`, and returns how many.
YALM_API size_t yalm_session_tokens(const yalm_session *session, int32_t *tokens, size_t room);

// Keeps what the session has evaluated in a file: its tokens, and what its KV cache holds. The file appears when all of it is written, or not at all.
// YALM_USAGE where the device or the attention method cannot give it (the CPU's dense attention can).
YALM_API yalm_status yalm_session_save(yalm_session *session, const char *path, yalm_error *error);
// The session goes on from where the saved one was, as if it had evaluated those tokens itself; there are no logits until the next yalm_eval().
// YALM_USAGE where the file is damaged, of another model, of another type of cache or of activations, or longer than the context. After a failure
// the session is at position 0.
YALM_API yalm_status yalm_session_load(yalm_session *session, const char *path, yalm_error *error);

// Pages: what the KV cache holds of n tokens, copied to memory of the caller's and into other sessions on the model with the same options. Bytes of one;
// 0 where there are none: on a GPU, where the attention method or a recurrent layer keeps more than keys and values, in an endless session.
YALM_API size_t yalm_page_bytes(yalm_session *session, int n);
// Copies what is held of tokens [first, first + n). YALM_USAGE where they are not there, or a window has dropped too much of them.
YALM_API yalm_status yalm_page_save(yalm_session *session, int64_t first, int n, void *page, yalm_error *error);
// The session goes on behind tokens[0 .. n · n_pages), as if it had evaluated them itself; pages[i] was saved of those from i · n on. What the session
// holds of them already is not copied. There are no logits until the next yalm_eval(). YALM_USAGE, and nothing has changed, where they are more than
// the context, or a token is none of the model's.
YALM_API yalm_status yalm_page_load(yalm_session *session, const int32_t *tokens, int n, const void *const *pages, int n_pages,
                                    yalm_error *error);

// Stops a running or the next yalm_eval() with YALM_INTERRUPTED. Safe in a signal handler.
YALM_API void yalm_session_cancel(yalm_session *session);

// Appends n positions whose keys and values are pseudo-random, for timing at depth without a prefill.
YALM_API yalm_status yalm_fill_random(yalm_session *session, int n, uint64_t seed, yalm_error *error);

// ---------------------------------------------------------------------------------------- calibrating

// How the codebooks of NoMAD attention are learned: k-means with 16 centroids in each sub-vector of each KV head's keys.
typedef struct yalm_calibration {
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
// bound to the model by its checksum. Takes 2 bytes for each component of each recorded key besides the session. The file appears when all
// is done, or not at all. *samples (NULL is welcome): how many keys of each KV head there were. Leaves the session at some position.
YALM_API yalm_status yalm_calibrate(yalm_session *session, const int32_t *tokens, size_t n, const yalm_calibration *how,
                                    const char *path, int *samples, yalm_error *error);

// How text is evaluated for importance.
typedef struct yalm_importance {
    bool bos;                                     // each window of the text stands behind the model's bos
    void (*progress)(void *context, double part); // NULL: none; called on the caller's thread
    void *context;
} yalm_importance;

// Evaluates the tokens in windows of the session's context, and writes to `path` how large the columns of what each weight matrix reads
// are: sums of squares, bound to the model by its checksum, in safetensors (docs/format.md). On the CPU alone (YALM_USAGE). The file appears
// when all is done, or not at all. how: NULL for zeros. Leaves the session at some position.
YALM_API yalm_status yalm_importance_write(yalm_session *session, const int32_t *tokens, size_t n, const yalm_importance *how,
                                           const char *path, yalm_error *error);

// ---------------------------------------------------------------------------------------- sampling

typedef struct yalm_logit_bias {
    int32_t token;
    float bias; // added; -INFINITY bans the token
} yalm_logit_bias;

typedef struct yalm_sampling {
    float temperature;                         // 0: greedy
    int top_k;                                 // 0: off
    float top_p;                               // 1: off
    float min_p;                               // 0: off; keeps tokens of at least min_p times the largest probability
    float repeat_penalty;                      // 1: off
    float presence_penalty, frequency_penalty; // 0: off
    int penalty_last_n;                        // tokens that the penalties look back on; -1: the context
    const yalm_logit_bias *biases;             // (n_biases), owned by the caller
    int n_biases;
    const uint64_t *allowed; // bit t % 64 of word t / 64: token t may be drawn; owned by the caller. NULL: all may
} yalm_sampling;

YALM_API yalm_sampling yalm_sampling_defaults(void); // temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalties
// YALM_USAGE where a value is out of its range; called once, so that yalm_sample() cannot fail.
YALM_API yalm_status yalm_sampling_check(const yalm_model *model, const yalm_sampling *sampling, yalm_error *error);

// Draws a token from the last logits (which stay as they are). Same seed, same options, same text: same tokens.
// -1 where the session has no logits, where they are not finite (a NaN spreads to all), or where the device failed: yalm_finish() says.
YALM_API int32_t yalm_sample(yalm_session *session, const yalm_sampling *sampling);
YALM_API void yalm_seed(yalm_session *session, uint64_t seed);

// ---------------------------------------------------------------------------------------- several machines

// Processes on several machines that compute one model together, each with its share of the weights and of the caches (docs/machines.md). Rank 0 opens the
// model and its sessions, and uses them as if it were alone; each other rank follows it. Sessions run on the CPUs, or with device "cuda" on a GPU a rank.
// They cannot be kept in files.
typedef struct yalm_group yalm_group;

// The processes that mpirun started together with this one; *group NULL, and YALM_OK, where it is alone. YALM_FAILED: libyalm-mpi.so or MPI itself fails.
YALM_API yalm_status yalm_group_join(yalm_group **group, yalm_error *error);
YALM_API int yalm_group_rank(const yalm_group *group); // 0 … size - 1
YALM_API int yalm_group_size(const yalm_group *group);
// Whether this rank is the one to tell people what happens: rank 0, or rank 1 where that was lost.
YALM_API bool yalm_group_speaks(const yalm_group *group);

// On the other ranks: opens this machine's copy of the file when rank 0 opens its own, and does its share of all that rank 0's sessions do, until rank 0 leaves
// (YALM_OK) or a rank is lost (YALM_FAILED). Of `options` threads and pin count; the others are those of rank 0's sessions.
YALM_API yalm_status yalm_group_follow(yalm_group *group, const char *path, const yalm_model_options *how,
                                       const yalm_session_options *options, yalm_error *error);

// From the next model on that rank 0 opens: what is summed goes over the wire as fp16, in half of the bytes. Each sum is then rounded to 11 bits of its
// largest. Of CPUs only.
YALM_API void yalm_group_use_fp16(yalm_group *group, bool on);

// What this rank has sent so far, but through NCCL, and how long it has been at sums and at gathering logits, waiting included.
typedef struct yalm_traffic {
    uint64_t messages, bytes;
    double seconds;
} yalm_traffic;
YALM_API yalm_traffic yalm_group_traffic(const yalm_group *group);

// After its models are closed; NULL is welcome. On rank 0 it ends the following of all others.
YALM_API void yalm_group_leave(yalm_group *group);

// ---------------------------------------------------------------------------------------- measuring

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

// From now on attention's part of each layer is timed, or no longer: appending to the cache, scoring, selecting, attending. False where the device
// (a GPU) cannot tell it from the rest.
YALM_API bool yalm_time_attention(yalm_session *session, bool on);
// What it has taken, by the wall clock, of all evaluations since the call above.
YALM_API double yalm_attention_seconds(const yalm_session *session);

// What the machine can do with the session's device, threads and instruction set.
typedef struct yalm_limits {
    double read_gb_per_s; // the best of a grid of access patterns over memory larger than the caches
    double fma_gop_per_s; // float32 multiply-adds from registers, two operations each
    double dot_gop_per_s; // 8-bit multiply-adds with 32-bit sums, likewise: the limit for quantised weights; 0 on the GPU
    double
        matrix_gop_per_s; // GPU: bfloat16 matrix products with float32 sums: the limit for all but fp32 weights; 0 on the CPU
} yalm_limits;

// Measures for about `seconds` in all.
YALM_API yalm_status yalm_measure_limits(yalm_session *session, double seconds, yalm_limits *limits, yalm_error *error);

// What plain reading of memory larger than the caches gives now, in GB/s on average over about `seconds`: to be set beside a mean of work timed
// before and after, as the best moment above cannot be where others use the machine too. The first call takes that memory and chooses
// among the patterns, some half a second more; the session keeps the memory until it is closed or memory is short. 0 where it is short,
// and on a device that has no such measurement (a GPU). What the caches held is gone afterwards.
YALM_API double yalm_measure_reading(yalm_session *session, double seconds);

#ifdef __cplusplus
}
#endif
#endif
