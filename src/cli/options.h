// The command line as data: one table says what each option is called, which modes it belongs to and where its value goes.
// The parser, --help and the man page read that table, so that they cannot disagree.
#pragma once
#include "yalm.h"

enum mode {
    MODE_COMPLETION,
    MODE_CHAT,
    MODE_THROUGHPUT,
    MODE_PERPLEXITY,
    MODE_PASSKEY,
    MODE_SERVE,
    MODE_CALIBRATE,
    MODE_IMPORTANCE,
    MODE_EMBED,
    MODE_TOKENIZE,
    MODE_INFO,
    MODE_VERIFY,
    MODE_HELP, // from here on: prints a text, and needs no model
    MODE_KEYS,
    MODE_CACHE,
    MODE_VERSION,
    MODE_MAN,
    MODES
};

// In the order of the choices in the table.
enum format { FORMAT_MD, FORMAT_CSV, FORMAT_JSON };
enum info_format { INFO_TEXT, INFO_JSON };
enum embed_format { EMBED_JSON, EMBED_CSV, EMBED_NPY };
enum fill { FILL_PREFILL, FILL_RANDOM };

enum { MAX_LIST = 16, MAX_OPTIONS = 128 };

struct int_list {
    int n;
    int values[MAX_LIST];
};

struct text_list { // the texts lie in argv; the array is owned
    int n;
    const char **texts;
};

struct options {
    enum mode mode;
    bool given[MAX_OPTIONS]; // the table's i-th option was on the command line

    const char *named; // the model, as the user named it
    const char *model;
    char *converted, *converted_draft; // what stands for the model, and for --speculate; owned
    const char *const *words;          // (n_words): of yalm cache, what follows; argv's
    int n_words;
    const char *dtype, *lora, *calibration; // how it is converted; NULL: as stored, without one, by the usual text
    struct text_list kept;                  // matrices of other types
    float bits;                             // 0: the usual number
    bool check_finite, follow_links;
    const char *prompt, *file, *tokens; // where input comes from: at most one of them is set; "-" is stdin
    bool special, truncate_prompt, escapes;
    bool runs;  // `yalm run MODEL TEXT`: a second operand is the text
    bool piped; // the input is what stdin has, though nobody said so
    int no_bos; // 1: none comes before the text

    int n_predict; // -1: endless, -2: until the context is full
    struct text_list stops;
    bool ignore_eos, no_echo;
    yalm_sampling sampling; // its biases are owned
    uint64_t seed;
    const char *grammar; // file that the text's form is in

    const char *system; // chat's first message; NULL: none
    struct text_list variables;
    bool hide_reasoning;
    const char *session;   // file; NULL: none
    const char *speculate; // auto, off, suffix, mtp or draft=FILE

    const char *device, *isa;
    int n_threads, n_threads_batch, context, chunk, n_sinks;
    bool pin, mlock, hugepages;
    int kv;          // yalm_kv
    int activations; // yalm_activations
    int wire;        // 1: fp16
    const char *attention;
    float attention_ratio;
    const char *book; // codebooks that attention is by
    struct text_list settings;

    struct int_list n_prompt, n_gen, depth;
    int repetitions;
    int cold; // 1: without a warm-up
    int fill, format, info_format, embed_format;
    int dimensions; // of vectors; 0: the model's own

    int stride, max_tokens, decode_from; // 0: off
    const char *save_logits, *kl_base;

    const char *output_file; // of calibrate and importance
    int d_sub, samples;

    int junk, position, trials; // junk, position: -1 is chosen
    int decode_last;

    const char *host, *key_file, *cache_dir, *slot_dir;
    int port, parallel, queue, drain, cache_ram;
    bool exact;
    bool insecure;

    bool pieces, detokenize;
    bool quiet, verbose;

    yalm_group *group; // of processes that mpirun started, which main() joins; NULL: none
};

// Reads argv into *options, whose strings stay owned by argv. Neither prints nor exits. After a failure nothing is to be freed.
yalm_status options_parse(int argc, char **argv, struct options *options, yalm_error *error);
void options_free(struct options *options);

// Has options->model and a draft of --speculate name files that can be opened: a GGUF file or a directory is converted into the
// cache, unless it is there.
yalm_status resolve_models(struct options *options, yalm_error *error);

// True where the user gave the option with this long name.
bool options_given(const struct options *options, const char *name);

const char *mode_name(enum mode mode);

// The text of --help, a string that the caller frees; NULL where memory ran out.
char *options_help(void);

// The list that --set help prints; likewise.
char *options_keys(void);

// The man page, in the language of man(7); likewise.
char *options_man(void);
