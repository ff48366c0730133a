// yalm: run one language model, fast, on the machine in front of you.
//
// Two nouns. A *model* is a file opened once: immutable, shared by any number of sessions and threads. A *session* is one
// mutable timeline on it: its tokens, its KV cache, its last logits. yalm_generate() has a session go on with a text:
//
//     yalm_error error;
//     yalm_model *model = yalm_model_open("model.bin", NULL, &error);
//     yalm_session *session = yalm_session_open(model, NULL, &error);
//     yalm_generate(session, tokens, n_tokens, &how, NULL, &error);
//
// Beneath it, yalm_eval() appends n tokens (n > 1 is prefill, n = 1 is decode) and leaves logits to read, or to draw the next
// token from by yalm_sample(); yalm_rollback() goes back.
//
// The library never prints, never exits, and keeps no global state. Each call that can fail returns a yalm_status (or NULL).
// Where `error` is not NULL it fills it with one line that names the file or thing, what was found, and what was expected.
// A session belongs to one thread at a time; only yalm_session_cancel() may be called from another thread or from a signal
// handler. A struct of options begins with its size, which its ..._defaults() sets: fields can be added to it, and a program
// that was compiled with another one is refused.

#ifndef YALM_H
#define YALM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define YALM_API __attribute__((visibility("default")))

#define YALM_VERSION_MAJOR 0
#define YALM_VERSION_MINOR 2
#define YALM_VERSION_PATCH 0

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

// Of the library: "0.2.0 (commit 1a2b3c4, gcc 12.2.0; cpu: scalar avx2 avxvnni avx512 avx512vnni; cuda: none)". Static.
YALM_API const char *yalm_version(void);

// ---------------------------------------------------------------------------------------- model

typedef struct yalm_model yalm_model;
typedef struct yalm_group yalm_group;

typedef struct yalm_model_options {
    size_t size; // of this struct
    bool verify; // check every tensor's checksum while opening: reads the whole file
    bool lock;   // keep the file's pages in memory (mlock); YALM_FAILED where the system's limit forbids it
    // Copy the file into huge pages, which spares the processor most look-ups of addresses. Takes memory of the file's size,
    // not shared with other processes: YALM_NO_MEMORY before any is taken where that does not suffice, YALM_FAILED where the
    // system has huge pages turned off.
    bool huge_pages;
    // Whose ranks each compute a share of the model (yalm_group.h); rank 0 opens it so. Neither lock nor huge_pages can be had
    // then (YALM_USAGE). NULL: alone.
    yalm_group *group;
} yalm_model_options;

YALM_API yalm_model_options yalm_model_defaults(void); // all off

enum { YALM_MAX_EOS = 16 };

// Facts about a model. Strings and arrays are owned by the model.
typedef struct yalm_model_info {
    const char *name;          // of the directory that it was converted from
    const char *architecture;  // as in config.json: "LlamaForCausalLM", …
    const char *weight_dtype;  // of the matrices: "fp16", "q4n", …; of quantised ones: the layers'; "mixed" where they differ
    const char *rope_type;     // "default", "linear", "llama3", "yarn", "longrope"
    const char *tokenizer;     // "spm" (SentencePiece-style BPE), "bpe" (byte-level BPE), or "none"
    const char *pooling;       // how it makes a vector of a text: "last", "mean" or "first" of its tokens; NULL: not at all
    const char *chat_template; // Jinja, as stored; NULL where there is none
    int n_layers, hidden_dim, ffn_dim, n_heads, n_kv_heads, head_dim;
    int vocab_size;                  // rows of the embedding; token ids are below it
    int tokenizer_vocab;             // pieces that the tokenizer knows; a text with one from vocab_size on is refused
    int context_length;              // positions that the model was trained for
    int sliding_window;              // the shortest of any layer; 0: none has one
    int n_windowed_layers;           // layers that have one
    int n_recurrent_layers;          // layers that have a recurrent state in attention's place, or beside it
    bool bidirectional;              // it reads whole texts, both ways: vectors and scores are all that it gives
    bool scores;                     // it says how well two texts go together: yalm_score_texts()
    int vector_dim;                  // of vectors of texts; 0: it makes none
    int least_vector_dim;            // that they may be cut to: yalm_cut_vectors()
    bool mtp;                        // it has a head that guesses a token further (multi-token prediction)
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
    YALM_TOKENIZE_BEHIND = 4,  // the text goes on behind another: no blank is put before it, as before a text's beginning
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

// Renders the model's chat template. `variables` is a JSON object: "messages", "tools", "add_generation_prompt", and what
// else the template reads; each member is a variable of the template (bos_token and eos_token are the model's). The text is
// what transformers' apply_chat_template gives, and has the model's control tokens spelled: tokenise it with
// YALM_TOKENIZE_SPECIAL, and without YALM_TOKENIZE_BOS. *text (UTF-8, NUL-terminated, *length bytes) is the caller's to
// free(). YALM_USAGE: the model has no template that can be rendered, or the template refuses the variables (the text has its
// reason and line), or they make it too long. Safe to call from several threads.
YALM_API yalm_status yalm_chat_render(const yalm_model *model, const char *variables, size_t n_variables, char **text,
                                      size_t *length, yalm_error *error);

// ---------------------------------------------------------------------------------------- session

typedef struct yalm_session yalm_session;

// Elements of the KV cache. int8: each key and value of a head has a scale of its own, about half the memory of fp16.
typedef enum yalm_kv { YALM_KV_FP16 = 0, YALM_KV_FP32 = 1, YALM_KV_INT8 = 2 } yalm_kv;

// What tokens become where they are multiplied with weights (docs/kernels.md says from how many tokens on, and by which
// instruction sets). int16 loses less than an fp16 cache does. int8 takes half the arithmetic where tokens meet quantised
// weights, and loses more than q8 does. fp32 keeps them in float32, as far as weights are not quantised. Refused where no
// weights are of the types that it concerns. auto: int8 where layers' weights were rounded to 5 bits or fewer, which lost
// many times what it does; else int16.
typedef enum yalm_activations {
    YALM_ACTIVATIONS_AUTO = 0,
    YALM_ACTIVATIONS_INT16 = 1,
    YALM_ACTIVATIONS_INT8 = 2,
    YALM_ACTIVATIONS_FP32 = 3,
} yalm_activations;

// The model's MTP head, which yalm_guess() asks. auto: on where the model has one and the device runs it; on a GPU only with
// yalm_session_options.several.
typedef enum yalm_mtp { YALM_MTP_OFF = 0, YALM_MTP_AUTO = 1, YALM_MTP_ON = 2 } yalm_mtp;

typedef struct yalm_session_options {
    size_t size; // of this struct
    // "cpu"; "cuda", an NVIDIA GPU; "auto": cuda where a GPU can run this model with these options, else cpu
    const char *device;
    const char *isa; // CPU: "auto", "scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "amx"; "neon", "neondot", "neoni8mm"
    int n_threads;   // 0: physical cores in the affinity mask, at most the CPU quota of its control groups
    int n_threads_batch; // for batches of several tokens, which are bound by arithmetic; 0: as n_threads
    // Sessions on one model that have as many threads share them, and take turns.
    bool pin;     // each thread stays on a core of its own, the thread that opens the session too. Such threads are not shared
    int context;  // positions that a token can look back on; 0: the model's, at most 4,096. More than the model was
                  // trained for is allowed (for timing, say), though such positions mean nothing to it
    bool endless; // past the context, go on: the first n_sinks tokens and the most recent ones stay visible
    int n_sinks;  // attention sinks (Xiao et al., arXiv 2309.17453); used when endless and the model has no window
    yalm_kv kv;
    yalm_activations activations; // CPU
    int chunk;                    // prefill is done in pieces of at most so many tokens; 0: chosen
    // yalm_expect() and yalm_eval_each() will be called. Without it a GPU may compute each token by one kernel, which is
    // faster and takes no others with it; its sums have another order, and therefore other last bits.
    bool several;
    // Costs a cache of one layer, and with each evaluated token a part of the head's work. A GPU with a head does not compute
    // a token by one kernel. So there auto is on only with `several`, which gives that up anyway.
    yalm_mtp mtp;
    // CPU, dense attention. The same bits, however a text was cut into pieces. What yalm_eval() reads is a prompt, and is
    // computed alike in pieces of any length; but the last token of a call with YALM_LOGITS_LAST is computed as those are that
    // come one by one. From such tokens no other text goes on: yalm_session_common() counts a prompt's alone.
    bool exact;
    // How a token that is decoded alone attends to a long context: "dense" reads every key and value; "sparq", "nomad" and
    // "hybrid" read less, and differ in what they compute.
    const char *attention;
    float attention_ratio; // sparq: of dense attention's traffic; hybrid: of the keys. 0: chosen
    // Of nomad and hybrid: a file that yalm_calibrate() has written; NULL: yalm_codebooks_path(). Needed until the session is
    // open.
    const char *codebooks;
    const char *const *settings; // "KEY=VALUE", what only measurements need (docs/attention.md#settings). Needed likewise
    int n_settings;
    // Called now and then by yalm_session_open(), where it copies weights to a device: bytes done, and in all. NULL is welcome.
    void (*progress)(void *context, uint64_t done, uint64_t total);
    void *progress_context;
    // Called once, on the thread that evaluates, where a cache of fp16 cuts keys or values to ±65504: a line that says so, and
    // what to do. NULL is welcome. CPU.
    void (*warn)(void *context, const char *text);
    void *warn_context;
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
// callers with long texts come in pieces. On an error or a cancellation position and last logits are as they were before the
// call; only an endless session past its context, whose ring has lost what that position saw, keeps the chunks that were
// finished. YALM_USAGE: an id out of range, or the context is full and the session not endless (the text has both numbers).
// On a GPU a single token's evaluation goes on when this returns: the functions that need its result wait for it.
YALM_API yalm_status yalm_eval(yalm_session *session, const int32_t *tokens, int n, yalm_logits_of which, yalm_error *error);

// Says which tokens the caller expects next, after the one that it appends next: by yalm_eval() of a single token with
// logits. These are then evaluated with it, for little more than its own time, and where they come, one by one, their logits
// are there at once. What comes instead costs no more than ever. Nothing else changes: not a bit, no position. Returns how
// many of n it will take: at most 15 (on a GPU with recurrent layers 7), and 0 where tokens can only be evaluated one by one
// (by an attention method that selects keys; on a GPU by one kernel each, unless yalm_session_options.several). The first call
// takes memory for the logits of 16 tokens.
YALM_API int yalm_expect(yalm_session *session, const int32_t *tokens, int n);

// What the model's MTP head thinks likeliest behind all that the session has evaluated and `token`, token after token: on a CPU
// among the first 32,768 ids alone, where the text has few others. Nothing of the session changes. Returns how many of n it
// has: 0 where no head is open, where expected tokens lie ahead, and where the last token was not evaluated by this session's
// yalm_eval().
YALM_API int yalm_guess(yalm_session *session, int32_t token, int32_t *tokens, int n);

// Appends one token to each of n sessions on one model, with logits, as yalm_eval() would for each, to the bit; the weights
// are read once for up to 8 of them: on a CPU where their threads and activations are alike, on a GPU where yalm_expect()
// takes tokens. On an error no position has changed. YALM_USAGE: also a session given twice, or sessions of several models.
YALM_API yalm_status yalm_eval_each(yalm_session *const *sessions, const int32_t *tokens, int n, yalm_error *error);

// Waits until the device has done what was asked of it, as one does before reading a clock. YALM_FAILED where the device
// failed.
YALM_API yalm_status yalm_finish(yalm_session *session, yalm_error *error);

// (vocab_size) floats for the i-th token of the last yalm_eval(); i = 0 is the only one after YALM_LOGITS_LAST.
// NULL where there are none, or the device failed. Valid until the next call that changes the session.
YALM_API const float *yalm_logits(const yalm_session *session, int i);

// log Σ e^logits[i] over (n) logits, in double precision: token t has the log probability logits[t] - that. NaN where one is
// NaN or +∞, or all are −∞.
YALM_API double yalm_log_sum_exp(const float *logits, int n);

YALM_API int64_t yalm_position(const yalm_session *session); // tokens so far

// Forgets the tokens at `position` and later. YALM_USAGE where the session no longer holds what an earlier position but 0
// could see: past the context or a model's window, by more than a chunk; with recurrent layers anywhere but where the last
// evaluations began.
YALM_API yalm_status yalm_rollback(yalm_session *session, int64_t position, yalm_error *error);
// The last position up to `position` that yalm_rollback() can go to.
YALM_API int64_t yalm_rollback_point(const yalm_session *session, int64_t position);

YALM_API const yalm_model *yalm_session_model(const yalm_session *session);

// How many of tokens[0..n) the session's text begins with; 0 past its context. At most yalm_session_settled().
YALM_API size_t yalm_session_common(const yalm_session *session, const int32_t *tokens, size_t n);
// The tokens that another text with the same beginning can go on from: all, or with options.exact those of its prompt.
YALM_API int64_t yalm_session_settled(const yalm_session *session);

// The session's tokens, of which it knows at most its context's last ones: copies the last `room` of them to `tokens`, and
// returns how many.
YALM_API size_t yalm_session_tokens(const yalm_session *session, int32_t *tokens, size_t room);

// Keeps what the session has evaluated in a file: its tokens, and what its KV cache holds. The file appears when all of it is
// written, or not at all. YALM_USAGE of several ranks, and with an attention method that keeps more than keys and values.
YALM_API yalm_status yalm_session_save(yalm_session *session, const char *path, yalm_error *error);
// The session goes on from where the saved one was, as if it had evaluated those tokens itself; there are no logits until the
// next yalm_eval(). YALM_USAGE where the file is damaged, of another model, of another type of cache or of activations, or
// longer than the context. After a failure the session is at position 0.
YALM_API yalm_status yalm_session_load(yalm_session *session, const char *path, yalm_error *error);

// Pages: what the KV cache holds of n tokens, copied to memory of the caller's and into other sessions on the model with the
// same options. Bytes of one. 0: the session is endless or of several ranks, or its attention method keeps more than keys and
// values.
YALM_API size_t yalm_page_bytes(yalm_session *session, int n);
// Copies what is held of tokens [first, first + n). YALM_USAGE where they are not there, or a window has dropped too much of
// them.
YALM_API yalm_status yalm_page_save(yalm_session *session, int64_t first, int n, void *page, yalm_error *error);
// Pages leave out what recurrent layers carry from token to token. Bytes of that; 0: no layer is recurrent, or there are
// several ranks.
YALM_API size_t yalm_state_bytes(const yalm_session *session);
// Copies what stands behind the session's last token.
YALM_API yalm_status yalm_state_save(yalm_session *session, void *state, yalm_error *error);
// The session goes on behind tokens[0 .. n · n_pages), as if it had evaluated them itself. pages[i] was saved of those from
// i · n on, `state` behind the last of them (NULL where there are no recurrent layers). What the session holds of them already
// is not copied. There are no logits until the next yalm_eval(). YALM_USAGE, and nothing has changed: they are more than the
// context, a token is none of the model's, or the state is missing.
YALM_API yalm_status yalm_page_load(yalm_session *session, const int32_t *tokens, int n, const void *const *pages, int n_pages,
                                    const void *state, yalm_error *error);

// Stops a running or the next yalm_eval() with YALM_INTERRUPTED. Safe in a signal handler.
YALM_API void yalm_session_cancel(yalm_session *session);

// The vector (vector_dim), of length 1, of the text tokens[0..n), by a model that was trained to make such
// (yalm_model_info.pooling). The token that the model wants behind a text is added. The session ends up at position 0.
// YALM_USAGE: the model makes no vectors, the text does not fit the context, or the session is of a group.
YALM_API yalm_status yalm_embed(yalm_session *session, const int32_t *tokens, int n, float *vector, yalm_error *error);

typedef struct yalm_text {
    const int32_t *tokens; // (n)
    int n;
} yalm_text;

// Tokens that such a text may have; of one that is compared, with the query's.
YALM_API int yalm_text_most(const yalm_session *session);
// The vectors (n, vector_dim) of n texts, as many of which are evaluated together as options.chunk holds: short ones then take
// a fraction of the time. All are checked before the first is evaluated.
YALM_API yalm_status yalm_embed_texts(yalm_session *session, const yalm_text *texts, int n, float *vectors, yalm_error *error);
// Cuts n vectors (n, vector_dim) to their first dim components, of length 1 again: (n, dim), in their place. YALM_USAGE, and
// nothing has changed: the model was not trained for so few (yalm_model_info.least_vector_dim).
YALM_API yalm_status yalm_cut_vectors(const yalm_model *model, float *vectors, int n, int dim, yalm_error *error);
// How well each of n texts goes with the query (yalm_model_info.scores): (n), the more the better. The query's tokens are
// YALM_TOKENIZE_BOS's, the texts' are not; what stands between the two, and behind them, is added. Of a model that is not
// bidirectional the query is empty: each text is what yalm_chat_render() makes of messages of the roles query and document.
YALM_API yalm_status yalm_score_texts(yalm_session *session, yalm_text query, const yalm_text *texts, int n, float *scores,
                                      yalm_error *error);

// ---------------------------------------------------------------------------------------- sampling

typedef struct yalm_logit_bias {
    int32_t token;
    float bias; // added; -INFINITY bans the token
} yalm_logit_bias;

typedef struct yalm_sampling {
    size_t size;                               // of this struct
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
// -1 where the session has no logits, where they are not finite (a NaN spreads to all), or where the device failed:
// yalm_finish() says.
YALM_API int32_t yalm_sample(yalm_session *session, const yalm_sampling *sampling);
YALM_API void yalm_seed(yalm_session *session, uint64_t seed);

// ---------------------------------------------------------------------------------------- generating

// Why a text is over.
typedef enum yalm_stop {
    YALM_GOES_ON = 0,
    YALM_STOP_END,     // the model ended it
    YALM_STOP_GRAMMAR, // it is a whole text of the grammar, which nothing can follow
    YALM_STOP_STRING,  // it has come to one of yalm_generation.stops
    YALM_STOP_LIMIT,   // yalm_generation.max_tokens
    YALM_STOP_CONTEXT, // the context is full
    YALM_STOP_CALLER,  // yalm_generation.take() has returned false
} yalm_stop;

typedef struct yalm_event {
    enum yalm_event_kind {
        YALM_EVENT_TOKEN,     // a token was drawn that belongs to the text; what it spells may come later
        YALM_EVENT_REASONING, // what is new of the reasoning, of the text, or of a call's arguments, which are JSON
        YALM_EVENT_TEXT,
        YALM_EVENT_ARGUMENTS,
        YALM_EVENT_CALL, // a call of a tool begins: its name
    } kind;
    const char *text; // (length), UTF-8, not terminated; good until the function returns
    size_t length;
    int call; // the call's number, from 0
    int32_t token;
    float log_probability; // among all tokens, before sampling changes any; NaN unless it is wanted
} yalm_event;

typedef struct yalm_generation {
    size_t size;                   // of this struct
    const yalm_sampling *sampling; // NULL: yalm_sampling_defaults()
    int64_t max_tokens;            // -1: until the context is full; in an endless session for ever
    const char *const *stops;      // (n_stops): the text ends before the first of these strings
    int n_stops;
    const char *grammar;    // that the text follows, in the notation of docs/serving.md; NULL: none
    bool ignore_eos;        // go on where the model would end the text, unless a grammar ends it
    bool parts;             // tell reasoning, text and calls apart, as the model's chat template writes them; else all is text
    bool speculate;         // guess tokens from what the text repeats: the same text, often sooner
    bool log_probabilities; // tell them
    // Called with what is new, after each token. False ends the text. NULL is welcome.
    bool (*take)(void *context, const yalm_event *event);
    void *context;
} yalm_generation;

YALM_API yalm_generation yalm_generation_defaults(void); // max_tokens -1, speculate

typedef struct yalm_generated {
    yalm_stop why;
    int stop_string;  // the one of stops that it came to; -1: none
    int64_t n_tokens; // drawn, with the one that ended the text
    size_t n_cached;  // tokens of the prompt that the session held already
} yalm_generated;

// Reads prompt[0..n), but for what the session's text begins with, and generates a text until there is a reason to stop; how:
// NULL is yalm_generation_defaults(), result: NULL is welcome. Draws as yalm_sample() does, by the seed of yalm_seed(). The
// session then holds the prompt and the text, but for its last token. YALM_USAGE: the prompt is empty or fills more than the
// context; the grammar cannot be read (the text has the line). YALM_INTERRUPTED, by yalm_session_cancel(): what was drawn
// until then has been told.
YALM_API yalm_status yalm_generate(yalm_session *session, const int32_t *prompt, size_t n, const yalm_generation *how,
                                   yalm_generated *result, yalm_error *error);

#ifdef __cplusplus
}
#endif
#endif
