// Every option of the command line, in the order of --help and the man page, and the values that they have when not given.
#include "cli/option_table.h"

#include <limits.h>
#include <string.h>

#include "yalm_measure.h"

enum {
    C = 1 << MODE_COMPLETION,
    H = 1 << MODE_CHAT,
    T = 1 << MODE_THROUGHPUT,
    P = 1 << MODE_PERPLEXITY,
    K = 1 << MODE_PASSKEY,
    S = 1 << MODE_SERVE,
    B = 1 << MODE_CALIBRATE,
    M = 1 << MODE_IMPORTANCE,
    E = 1 << MODE_EMBED,
    W = 1 << MODE_TOKENIZE,
    I = 1 << MODE_INFO,
    V = 1 << MODE_VERIFY,
    SESSION = C | H | T | P | K | S | B | M | E, // modes that evaluate
    MODEL = (1 << MODE_HELP) - 1,                // modes that need one
    TEXT = C | P | B | M | E | W,                // modes that read the user's text
    SAMPLING = C | H | S,                        // of which serve takes these for what requests leave open
    ALL = (1 << MODES) - 1,
};

#define AT(field)  offsetof(struct options, field)
#define DTYPES     "fp32,fp16,bf16,bf12,fp8,fp8_e5m2,q8,q6,q5,q4,q3,q2"
#define DEVICES    "auto,cpu,cuda"
#define ISAS       "auto,scalar,avx2,avxvnni,avx512,avx512vnni,amx,neon,neondot,neoni8mm"
#define ATTENTIONS "dense,sparq,nomad,hybrid"

// clang-format off
const struct option option_table[] = {
    {"Mode", "m", "mode,model", "MODE", "a mode's name or its beginning; a model's file, too",
     OPTION_NAMED, ALL, 0, 0, 0, NULL, NULL},
    {"Mode", "h", "help", NULL, NULL, OPTION_MODE, ALL, 0, MODE_HELP, 0, NULL,
     "prints this"},
    {"Mode", "", "version", NULL, NULL, OPTION_MODE, ALL, 0, MODE_VERSION, 0, NULL,
     "prints version, commit, compiler and instruction sets"},
    {"Mode", "", "man", NULL, NULL, OPTION_MODE, ALL, 0, MODE_MAN, 0, NULL,
     "prints this page, for man -l - or groff"},
    {"Mode", "q", "quiet,no-stats", NULL, NULL, OPTION_FLAG, ALL, AT(quiet), 0, 0, NULL,
     "says nothing on stderr but errors"},
    {"Mode", "v", "verbose", NULL, NULL, OPTION_FLAG, ALL, AT(verbose), 0, 0, NULL,
     "says more on stderr: which kernels multiply, and how a chat was read"},

    {"Input", "ip", "prompt", "TEXT", "the text itself; - is stdin", OPTION_TEXT, TEXT | H, AT(prompt), 0, 0, NULL, NULL},
    {"Input", "f", "file", "FILE", "text from a file, any bytes; - is stdin",
     OPTION_TEXT, TEXT | H, AT(file), 0, 0, NULL, NULL},
    {"Input", "", "tokens", "ID-FILE", NULL, OPTION_TEXT, (SESSION & ~H & ~S & ~E) | W, AT(tokens), 0, 0, NULL,
     "token ids from a file in place of text; - is stdin"},
    {"Input", "e", "escapes,escape", NULL, NULL, OPTION_FLAG, TEXT | H, AT(escapes), 0, 0, NULL,
     "\\n \\t \\r \\\\ \\\" \\' and \\xHH in a TEXT stand for these bytes"},

    {"Conversion", "", "dtype", "TYPE", NULL, OPTION_WORD, MODEL, AT(dtype), 0, 0, DTYPES,
     "weights that a GGUF file or a directory is converted to: q8, q6, q5, q4, bf16, … (as stored)"},
    {"Conversion", "", "bits", "N", NULL, OPTION_FLOAT, MODEL, AT(bits), 2.25, 8.5, NULL,
     "with --dtype q4: bits a weight on average, from 2.25 to 8.5"},
    {"Conversion", "", "keep", "NAME=TYPE", NULL, OPTION_TEXTS, MODEL, AT(kept), 0, 0, NULL,
     "another type for matrices of this name, as '*.down=q8'; may be repeated"},
    {"Conversion", "", "lora", "DIR", NULL, OPTION_TEXT, MODEL, AT(lora), 0, 0, NULL,
     "adds an adapter of PEFT's to the weights"},
    {"Conversion", "", "calibration", "FILE|none", NULL, OPTION_TEXT, MODEL, AT(calibration), 0, 0, NULL,
     "text by which q4, q5 and q6 are rounded (one that comes with yalm); none: faster"},
    {"Conversion", "", "check-finite", NULL, NULL, OPTION_FLAG, MODEL, AT(check_finite), 0, 0, NULL,
     "refuses weights that are NaN or infinite"},
    {"Conversion", "", "follow-links", NULL, NULL, OPTION_FLAG, MODEL, AT(follow_links), 0, 0, NULL,
     "reads through links that leave the directory: your own, not a stranger's"},

    {"Machine", "d", "device", "auto|cpu|cuda", "where it is computed", OPTION_WORD, SESSION, AT(device), 0, 0, DEVICES, NULL},
    {"Machine", "Tc", "ctx,ctx-size,context", "N", "positions to look back on (0: chosen)",
     OPTION_INT, SESSION, AT(context), 0, INT_MAX / 2, NULL, NULL},
    {"Machine", "t", "threads", "N", NULL, OPTION_INT, SESSION, AT(n_threads), 1, 4096, NULL,
     "threads that compute (chosen: one for each physical core)"},
    {"Machine", "", "kv,cache-type", "fp16|fp32|int8", NULL, OPTION_CHOICE, SESSION, AT(kv), 0, 0, "fp16,fp32,int8",
     "type of the KV cache"},
    {"Machine", "", "activations", "auto|int16|int8|fp32", NULL,
     OPTION_CHOICE, SESSION, AT(activations), 0, 0, "auto,int16,int8,fp32",
     "form of tokens beside quantised weights; auto: int8 beside weights rounded to 5 bits or fewer, else int16"},

    {"Attention", "", "attention", "dense|sparq|nomad|hybrid", "what of a long text is read again for each token",
     OPTION_WORD, SESSION, AT(attention), 0, 0, ATTENTIONS, NULL},
    {"Attention", "", "attention-ratio", "1/N", NULL, OPTION_RATIO, SESSION, AT(attention_ratio), 0, 1, NULL,
     "how much sparq and hybrid read: of dense attention's bytes, or of the keys (chosen)"},
    {"Attention", "", "codebooks", "FILE", NULL, OPTION_TEXT, SESSION, AT(book), 0, 0, NULL,
     "codebooks of nomad and hybrid (the model's path, .nomad)"},
    {"Attention", "", "set", "KEY=VALUE", NULL, OPTION_SET, SESSION | W, AT(settings), 0, 0, NULL,
     "a setting by its key, as often as wanted; --set help lists the keys"},

    {"Completion", "n", "n-predict,predict", "N", "tokens to generate; -1 is endless",
     OPTION_INT, C | H, AT(n_predict), -2, INT_MAX / 2, NULL, NULL},
    {"Completion", "r", "stop,reverse-prompt", "TEXT", "end before this text; may be repeated",
     OPTION_TEXTS, C | H, AT(stops), 0, 0, NULL, NULL},
    {"Completion", "", "temp,temperature", "X", "0 takes the likeliest token",
     OPTION_FLOAT, SAMPLING, AT(sampling.temperature), 0, 1000, NULL, NULL},
    {"Completion", "s", "seed", "N", "same seed, same text; -1 is random",
     OPTION_SEED, C | H | K | S | B, AT(seed), 0, 0, NULL, NULL},
    {"Completion", "", "top-k", "N", NULL, OPTION_INT, SAMPLING, AT(sampling.top_k), 0, INT_MAX, NULL,
     "draws among the N likeliest tokens; 0: among all"},
    {"Completion", "", "top-p", "X", NULL, OPTION_FLOAT, SAMPLING, AT(sampling.top_p), 0, 1, NULL,
     "draws among the likeliest tokens that have this probability together; 1: among all"},
    {"Completion", "", "min-p", "X", NULL, OPTION_FLOAT, SAMPLING, AT(sampling.min_p), 0, 1, NULL,
     "draws among tokens of at least this probability, relative to the likeliest's; 0: among all"},
    {"Completion", "", "repeat-penalty", "X", NULL, OPTION_FLOAT, SAMPLING, AT(sampling.repeat_penalty), 0.01, 100, NULL,
     "makes recent tokens less likely by this factor of the logit; 1: off"},
    {"Completion", "", "grammar", "FILE", NULL, OPTION_TEXT, C | H, AT(grammar), 0, 0, NULL,
     "allows only texts of this grammar, in GBNF"},
    {"Completion", "", "no-echo,no-display-prompt", NULL, NULL, OPTION_FLAG, C, AT(no_echo), 0, 0, NULL,
     "leaves the prompt out of the output"},
    {"Completion", "", "speculate", "HOW", NULL, OPTION_TEXT, C | H | T | S, AT(speculate), 0, 0, NULL,
     "evaluates guesses along with each token: auto, off, suffix, mtp or draft=FILE; the text stays the same"},

    {"Chat", "", "system,system-prompt", "TEXT", "what the model is told before the first message",
     OPTION_TEXT, H, AT(system), 0, 0, NULL, NULL},
    {"Chat", "", "hide-reasoning", NULL, NULL, OPTION_FLAG, H, AT(hide_reasoning), 0, 0, NULL,
     "does not show a model's reasoning"},
    {"Chat", "", "session,prompt-cache", "FILE", "what has been read stays read (completion too)",
     OPTION_TEXT, C | H, AT(session), 0, 0, NULL, NULL},
    {"Chat", "", "template-set", "NAME=VALUE", NULL, OPTION_TEXTS, H, AT(variables), 0, 0, NULL,
     "sets a variable of the chat template, as enable_thinking=false; may be repeated"},

    {"Throughput", "p", "n-prompt", "N,…", "prompt lengths to time", OPTION_INTS, T, AT(n_prompt), 0, 1 << 24, NULL, NULL},
    {"Throughput", "n", "n-gen", "N,…", "numbers of tokens to decode", OPTION_INTS, T, AT(n_gen), 0, 1 << 24, NULL, NULL},
    {"Throughput", "", "depth,n-depth", "N,…", "positions in the cache before that",
     OPTION_INTS, T, AT(depth), 0, 1 << 24, NULL, NULL},
    {"Throughput", "r", "repetitions", "N", NULL, OPTION_INT, T, AT(repetitions), 1, 10000, NULL,
     "how often each test is measured"},
    {"Throughput", "o", "output", "md|csv|json", NULL, OPTION_CHOICE, T, AT(format), 0, 0, "md,csv,json",
     "form of the table"},

    {"Perplexity", "", "max-tokens", "N", "of the text", OPTION_INT, P, AT(max_tokens), 0, INT_MAX, NULL, NULL},
    {"Perplexity", "", "save-logits", "FILE", NULL, OPTION_TEXT, P, AT(save_logits), 0, 0, NULL,
     "writes every position's logits, for --kl-base"},
    {"Perplexity", "", "kl-base", "FILE", NULL, OPTION_TEXT, P, AT(kl_base), 0, 0, NULL,
     "compares with logits that --save-logits wrote"},

    {"Passkey", "n", "junk", "N", "junk lines; -1 is what fits, at most 250", OPTION_INT, K, AT(junk), -1, 1000000, NULL, NULL},
    {"Passkey", "", "trials", "N", NULL, OPTION_INT, K, AT(trials), 1, 100000, NULL,
     "keys to hide"},

    {"Serve", "", "port", "N", "port to listen at; 0: any free one", OPTION_INT, S, AT(port), 0, 65535, NULL, NULL},
    {"Serve", "", "parallel", "N", NULL, OPTION_INT, S, AT(parallel), 1, 256, NULL,
     "requests that are answered at a time"},
    {"Serve", "", "host", "H", NULL, OPTION_TEXT, S, AT(host), 0, 0, NULL,
     "address to listen at"},
    {"Serve", "", "api-key-file", "FILE", NULL, OPTION_TEXT, S, AT(key_file), 0, 0, NULL,
     "keys, one a line, of which a request must bring one"},
    {"Serve", "", "insecure", NULL, NULL, OPTION_FLAG, S, AT(insecure), 0, 0, NULL,
     "allows an address beyond this machine without keys"},

    {"Calibrate", "o", "output", "FILE", "learned codebooks (the model's path, .nomad)",
     OPTION_TEXT, B | M, AT(output_file), 0, 0, NULL, NULL},

    {"Embed", "o", "output", "json|csv|npy", NULL, OPTION_CHOICE, E, AT(embed_format), 0, 0, "json,csv,npy",
     "form of the vectors (json: an array for each line)"},
    {"Embed", "", "dimensions", "N", "components of a vector, of a model that was trained for fewer (all)",
     OPTION_INT, E, AT(dimensions), 1, INT_MAX, NULL, NULL},

    {"Tokenize", "", "pieces", NULL, NULL, OPTION_FLAG, W, AT(pieces), 0, 0, NULL,
     "shows the bytes of each token"},
    {"Tokenize", "", "detokenize", NULL, NULL, OPTION_FLAG, W, AT(detokenize), 0, 0, NULL,
     "text of token ids; implies -m tokenize"},
    {NULL, "o", "output", "text|json", NULL, OPTION_CHOICE, I, AT(info_format), 0, 0, "text,json",
     "form of the output"},

    // By --set alone.
    {NULL, "", "machine.threads_batch", "N", NULL, OPTION_INT, SESSION, AT(n_threads_batch), 0, 4096, NULL,
     "threads for prompts (as --threads)"},
    {NULL, "", "machine.chunk", "N", NULL, OPTION_INT, SESSION, AT(chunk), 0, 65536, NULL,
     "tokens of a prompt read at a time (chosen); served, between two steps of those who write (64)"},
    {NULL, "", "machine.isa", "NAME", NULL, OPTION_WORD, SESSION, AT(isa), 0, 0, ISAS,
     "the instruction set"},
    {NULL, "", "machine.pin", "on|off", NULL, OPTION_SWITCH, SESSION, AT(pin), 0, 0, "off,on",
     "on: each thread stays on a processor; with hugepages its weights lie near it"},
    {NULL, "", "machine.mlock", "on|off", NULL, OPTION_SWITCH, SESSION, AT(mlock), 0, 0, "off,on",
     "on: weights stay in memory"},
    {NULL, "", "machine.hugepages", "on|off", NULL, OPTION_SWITCH, SESSION, AT(hugepages), 0, 0, "off,on",
     "on: a copy of the weights in pages of 2 MiB"},
    {NULL, "", "machine.wire", "fp32|fp16", NULL, OPTION_CHOICE, SESSION, AT(wire), 0, 0, "fp32,fp16",
     "fp16 or fp32 sums between ranks"},
    {NULL, "", "text.special", "on|off", NULL, OPTION_SWITCH, TEXT | H, AT(special), 0, 0, "off,on",
     "on: special tokens' names are these"},
    {NULL, "", "text.bos", "on|off", NULL, OPTION_CHOICE, TEXT, AT(no_bos), 0, 0, "on,off",
     "off: none comes first"},
    {NULL, "", "text.truncate", "on|off", NULL, OPTION_SWITCH, C, AT(truncate_prompt), 0, 0, "off,on",
     "on: of a long prompt, its end"},
    {NULL, "", "text.ignore_eos", "on|off", NULL, OPTION_SWITCH, C | H, AT(ignore_eos), 0, 0, "off,on",
     "on: never ends"},
    {NULL, "", "text.sinks", "N", NULL, OPTION_INT, C, AT(n_sinks), 0, 65536, NULL,
     "first positions that stay visible"},
    {NULL, "", "sampling.presence_penalty", "X", NULL, OPTION_FLOAT, SAMPLING, AT(sampling.presence_penalty), -100, 100, NULL,
     "taken once from the logit of each recent token"},
    {NULL, "", "sampling.frequency_penalty", "X", NULL, OPTION_FLOAT, SAMPLING, AT(sampling.frequency_penalty), -100, 100, NULL,
     "taken from a recent token's logit for each time that it occurred"},
    {NULL, "", "sampling.repeat_last_n", "N", NULL, OPTION_INT, SAMPLING, AT(sampling.penalty_last_n), -1, INT_MAX, NULL,
     "recent tokens that the penalties see; -1: all"},
    {NULL, "", "sampling.logit_bias", "ID+X|ID-X", NULL, OPTION_BIAS, C | H, AT(sampling.biases), 0, 0, NULL,
     "added to the logit of token ID; may be repeated"},
    {NULL, "", "throughput.fill", "prefill|random", NULL, OPTION_CHOICE, T, AT(fill), 0, 0, "prefill,random",
     "what the positions before a measurement hold"},
    {NULL, "", "throughput.warmup", "on|off", NULL, OPTION_CHOICE, T, AT(cold), 0, 0, "on,off",
     "off: no first run"},
    {NULL, "", "perplexity.stride", "N", NULL, OPTION_INT, P, AT(stride), 0, INT_MAX, NULL,
     "a window of --ctx every so many tokens (--ctx)"},
    {NULL, "", "perplexity.decode_from", "N", NULL, OPTION_INT, P, AT(decode_from), 0, INT_MAX, NULL,
     "of a window, tokens that are a prompt; others come one by one"},
    {NULL, "", "passkey.position", "N", NULL, OPTION_INT, K, AT(position), -1, 1000000, NULL,
     "lines before the key (random)"},
    {NULL, "", "passkey.decode_last", "N", NULL, OPTION_INT, K, AT(decode_last), 0, INT_MAX, NULL,
     "last tokens of a prompt, fed one by one (0)"},
    {NULL, "", "calibrate.d_sub", "1|2|4", NULL, OPTION_INT, B, AT(d_sub), 1, 4, NULL,
     "components for a code"},
    {NULL, "", "calibrate.samples", "N", NULL, OPTION_INT, B, AT(samples), 16, 1 << 24, NULL,
     "keys of each KV head to learn from"},
    {NULL, "", "serve.queue", "N", NULL, OPTION_INT, S, AT(queue), 0, 65536, NULL,
     "requests that may wait; beyond that the answer is 503"},
    {NULL, "", "serve.cache_ram", "MIB", NULL, OPTION_INT, S, AT(cache_ram), 0, 1 << 30, NULL,
     "MiB for what was read before, beyond the sessions; at most half of what is free"},
    {NULL, "", "serve.cache_dir", "DIR", NULL, OPTION_TEXT, S, AT(cache_dir), 0, 0, NULL,
     "what was read before outlives the server: in a file of this folder, for each model and its settings"},
    {NULL, "", "serve.slot_dir", "DIR", NULL, OPTION_TEXT, S, AT(slot_dir), 0, 0, NULL,
     "where clients may save sessions, and restore them: POST /slots/0?action=save, as llama.cpp has it"},
    {NULL, "", "serve.drain", "SECONDS", NULL, OPTION_INT, S, AT(drain), 0, 86400, NULL,
     "seconds that running requests have after SIGINT or SIGTERM; a second signal ends them at once"},
    {NULL, "", "serve.exact", "on|off", NULL, OPTION_SWITCH, S, AT(exact), 0, 0, "off,on",
     "on: a seed gives the same text whatever else goes on; prompts take longer (docs/serving.md)"},
};
// clang-format on

const int n_options = sizeof option_table / sizeof option_table[0];
_Static_assert(sizeof option_table / sizeof option_table[0] <= MAX_OPTIONS, "struct options has a place for each");

void options_defaults(struct options *options)
{
    const yalm_session_options session = yalm_session_defaults();
    memset(options, 0, sizeof *options);
    options->mode = MODE_COMPLETION;
    options->n_predict = 256;
    options->sampling = yalm_sampling_defaults();
    options->device = "auto";
    options->isa = "auto";
    options->kv = session.kv;
    options->activations = session.activations;
    options->attention = session.attention;
    options->n_sinks = session.n_sinks;
    options->speculate = "auto";
    options->n_prompt = (struct int_list){1, {512}};
    options->n_gen = (struct int_list){1, {128}};
    options->depth = (struct int_list){1, {0}};
    options->repetitions = 5;
    options->junk = -1;
    options->position = -1;
    options->trials = 20;
    options->host = "127.0.0.1";
    options->port = 8080;
    options->parallel = 4;
    options->queue = 64;
    options->drain = 30;
    options->cache_ram = 2048;
    options->d_sub = yalm_calibration_defaults().d_sub;
    options->samples = yalm_calibration_defaults().samples;
}
