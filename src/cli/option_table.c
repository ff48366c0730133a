// Every option of the command line, in the order of --help, and the values that they have when not given.
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
    W = 1 << MODE_TOKENIZE,
    I = 1 << MODE_INFO,
    V = 1 << MODE_VERIFY,
    SESSION = C | H | T | P | K | S | B | M, // modes that evaluate
    TEXT = C | P | B | M | W,                // modes that read the user's text
    SAMPLING = C | H | S,                    // of which serve takes these for what requests leave open
    ALL = (1 << MODES) - 1,
};

#define AT(field)  offsetof(struct options, field)
#define DEVICES    "auto,cpu,cuda"
#define ISAS       "auto,scalar,avx2,avxvnni,avx512,avx512vnni,amx,neon,neondot,neoni8mm"
#define ATTENTIONS "dense,sparq,nomad,hybrid"

// clang-format off
const struct option option_table[] = {
    {"Mode", 'm', "mode", "MODE", "completion, chat, serve, throughput, perplexity, passkey, calibrate, importance, tokenize, info or verify", OPTION_NAMED, ALL, 0, 0, 0, NULL},
    {"Mode", 'h', "help", NULL, NULL, OPTION_MODE, ALL, 0, MODE_HELP, 0, NULL},
    {"Mode", 0, "version", NULL, NULL, OPTION_MODE, ALL, 0, MODE_VERSION, 0, NULL},
    {"Mode", 'q', "quiet,no-stats", NULL, NULL, OPTION_FLAG, ALL, AT(quiet), 0, 0, NULL},
    {"Mode", 'v', "verbose", NULL, NULL, OPTION_FLAG, ALL, AT(verbose), 0, 0, NULL},

    {"Input", 'i', "prompt", "TEXT", "the text itself; - is stdin", OPTION_TEXT, TEXT, AT(prompt), 0, 0, NULL},
    {"Input", 'f', "file", "FILE", "text from a file, any bytes; - is stdin", OPTION_TEXT, TEXT, AT(file), 0, 0, NULL},
    {"Input", 0, "tokens", "ID-FILE", NULL, OPTION_TEXT, (SESSION & ~H) | W, AT(tokens), 0, 0, NULL},
    {"Input", 'e', "escapes,escape", NULL, NULL, OPTION_FLAG, TEXT, AT(escapes), 0, 0, NULL},

    {"Machine", 'd', "device", "D", "auto, cpu or cuda", OPTION_WORD, SESSION, AT(device), 0, 0, DEVICES},
    {"Machine", 'T', "ctx,ctx-size,context", "N", "positions to look back on (0: chosen)", OPTION_INT, SESSION, AT(context), 0, INT_MAX / 2, NULL},
    {"Machine", 0, "threads", "N", NULL, OPTION_INT, SESSION, AT(n_threads), 0, 4096, NULL},
    {"Machine", 0, "kv,cache-type", "fp16|fp32|int8", NULL, OPTION_CHOICE, SESSION, AT(kv), 0, 0, "fp16,fp32,int8"},
    {"Machine", 0, "activations", "auto|int16|int8|fp32", NULL, OPTION_CHOICE, SESSION, AT(activations), 0, 0, "auto,int16,int8,fp32"},

    {"Attention", 0, "attention", "A", "dense, sparq, nomad or hybrid", OPTION_WORD, SESSION, AT(attention), 0, 0, ATTENTIONS},
    {"Attention", 0, "attention-ratio", "1/N", NULL, OPTION_RATIO, SESSION, AT(attention_ratio), 0, 1, NULL},
    {"Attention", 0, "codebooks", "FILE", NULL, OPTION_TEXT, SESSION, AT(book), 0, 0, NULL},
    {"Attention", 0, "set", "KEY=VALUE", NULL, OPTION_SET, SESSION | W, AT(settings), 0, 0, NULL},

    {"Completion", 'n', "n-predict,predict", "N", "tokens to generate; -1 is endless", OPTION_INT, C | H, AT(n_predict), -2, INT_MAX / 2, NULL},
    {"Completion", 'r', "stop,reverse-prompt", "TEXT", "end before this text; may be repeated", OPTION_TEXTS, C | H, AT(stops), 0, 0, NULL},
    {"Completion", 't', "temp,temperature", "X", "0 takes the likeliest token", OPTION_FLOAT, SAMPLING, AT(sampling.temperature), 0, 1000, NULL},
    {"Completion", 's', "seed", "N", "same seed, same text; -1 is random", OPTION_SEED, C | H | K | S | B, AT(seed), 0, 0, NULL},
    {"Completion", 0, "top-k", "N", NULL, OPTION_INT, SAMPLING, AT(sampling.top_k), 0, INT_MAX, NULL},
    {"Completion", 0, "top-p", "X", NULL, OPTION_FLOAT, SAMPLING, AT(sampling.top_p), 0, 1, NULL},
    {"Completion", 0, "min-p", "X", NULL, OPTION_FLOAT, SAMPLING, AT(sampling.min_p), 0, 1, NULL},
    {"Completion", 0, "repeat-penalty", "X", NULL, OPTION_FLOAT, SAMPLING, AT(sampling.repeat_penalty), 0.01, 100, NULL},
    {"Completion", 0, "grammar", "FILE", NULL, OPTION_TEXT, C | H, AT(grammar), 0, 0, NULL},
    {"Completion", 0, "no-echo,no-display-prompt", NULL, NULL, OPTION_FLAG, C, AT(no_echo), 0, 0, NULL},
    {"Completion", 0, "speculate", "HOW", NULL, OPTION_TEXT, C | H | T | S, AT(speculate), 0, 0, NULL},

    {"Chat", 0, "system,system-prompt", "TEXT", "what the model is told before the first message", OPTION_TEXT, H, AT(system), 0, 0, NULL},
    {"Chat", 0, "hide-reasoning", NULL, NULL, OPTION_FLAG, H, AT(hide_reasoning), 0, 0, NULL},
    {"Chat", 0, "session,prompt-cache", "FILE", "what has been read stays read (completion too)", OPTION_TEXT, C | H, AT(session), 0, 0, NULL},
    {"Chat", 0, "template-set", "NAME=VALUE", NULL, OPTION_TEXTS, H, AT(variables), 0, 0, NULL},

    {"Throughput", 'p', "n-prompt", "N,…", "prompt lengths to time", OPTION_INTS, T, AT(n_prompt), 0, 1 << 24, NULL},
    {"Throughput", 'n', "n-gen", "N,…", "numbers of tokens to decode", OPTION_INTS, T, AT(n_gen), 0, 1 << 24, NULL},
    {"Throughput", 0, "depth,n-depth", "N,…", "positions in the cache before that", OPTION_INTS, T, AT(depth), 0, 1 << 24, NULL},
    {"Throughput", 'r', "repetitions", "N", NULL, OPTION_INT, T, AT(repetitions), 1, 10000, NULL},
    {"Throughput", 'o', "output", "md|csv|json", NULL, OPTION_CHOICE, T, AT(format), 0, 0, "md,csv,json"},

    {"Perplexity", 0, "max-tokens", "N", "of the text", OPTION_INT, P, AT(max_tokens), 0, INT_MAX, NULL},
    {"Perplexity", 0, "save-logits", "FILE", NULL, OPTION_TEXT, P, AT(save_logits), 0, 0, NULL},
    {"Perplexity", 0, "kl-base", "FILE", NULL, OPTION_TEXT, P, AT(kl_base), 0, 0, NULL},

    {"Passkey", 'n', "junk", "N", "junk lines; -1 is what fits, at most 250", OPTION_INT, K, AT(junk), -1, 1000000, NULL},
    {"Passkey", 0, "trials", "N", NULL, OPTION_INT, K, AT(trials), 1, 100000, NULL},

    {"Serve", 0, "port", "N", "for clients of OpenAI and Anthropic", OPTION_INT, S, AT(port), 0, 65535, NULL},
    {"Serve", 0, "parallel", "N", NULL, OPTION_INT, S, AT(parallel), 1, 256, NULL},
    {"Serve", 0, "host", "H", NULL, OPTION_TEXT, S, AT(host), 0, 0, NULL},
    {"Serve", 0, "api-key-file", "FILE", NULL, OPTION_TEXT, S, AT(key_file), 0, 0, NULL},
    {"Serve", 0, "insecure", NULL, NULL, OPTION_FLAG, S, AT(insecure), 0, 0, NULL},

    {"Calibrate", 'o', "output", "FILE", "learned codebooks (the model's path, .nomad)", OPTION_TEXT, B | M, AT(output_file), 0, 0, NULL},

    {"Tokenize", 0, "pieces", NULL, NULL, OPTION_FLAG, W, AT(pieces), 0, 0, NULL},
    {"Tokenize", 0, "detokenize", NULL, NULL, OPTION_FLAG, W, AT(detokenize), 0, 0, NULL},
    {NULL, 'o', "output", "text|json", NULL, OPTION_CHOICE, I, AT(info_format), 0, 0, "text,json"},

    // By --set alone.
    {NULL, 0, "machine.threads_batch", "N", NULL, OPTION_INT, SESSION, AT(n_threads_batch), 0, 4096, NULL},
    {NULL, 0, "machine.chunk", "N", NULL, OPTION_INT, SESSION, AT(chunk), 0, 65536, NULL},
    {NULL, 0, "machine.isa", "NAME", NULL, OPTION_WORD, SESSION, AT(isa), 0, 0, ISAS},
    {NULL, 0, "machine.pin", "on|off", NULL, OPTION_SWITCH, SESSION, AT(pin), 0, 0, "off,on"},
    {NULL, 0, "machine.mlock", "on|off", NULL, OPTION_SWITCH, SESSION, AT(mlock), 0, 0, "off,on"},
    {NULL, 0, "machine.hugepages", "on|off", NULL, OPTION_SWITCH, SESSION, AT(hugepages), 0, 0, "off,on"},
    {NULL, 0, "machine.wire", "fp32|fp16", NULL, OPTION_CHOICE, SESSION, AT(wire), 0, 0, "fp32,fp16"},
    {NULL, 0, "text.special", "on|off", NULL, OPTION_SWITCH, TEXT | H, AT(special), 0, 0, "off,on"},
    {NULL, 0, "text.bos", "on|off", NULL, OPTION_CHOICE, TEXT, AT(no_bos), 0, 0, "on,off"},
    {NULL, 0, "text.truncate", "on|off", NULL, OPTION_SWITCH, C, AT(truncate_prompt), 0, 0, "off,on"},
    {NULL, 0, "text.ignore_eos", "on|off", NULL, OPTION_SWITCH, C | H, AT(ignore_eos), 0, 0, "off,on"},
    {NULL, 0, "text.sinks", "N", NULL, OPTION_INT, C, AT(n_sinks), 0, 65536, NULL},
    {NULL, 0, "sampling.presence_penalty", "X", NULL, OPTION_FLOAT, SAMPLING, AT(sampling.presence_penalty), -100, 100, NULL},
    {NULL, 0, "sampling.frequency_penalty", "X", NULL, OPTION_FLOAT, SAMPLING, AT(sampling.frequency_penalty), -100, 100, NULL},
    {NULL, 0, "sampling.repeat_last_n", "N", NULL, OPTION_INT, SAMPLING, AT(sampling.penalty_last_n), -1, INT_MAX, NULL},
    {NULL, 0, "sampling.logit_bias", "ID+X|ID-X", NULL, OPTION_BIAS, C | H, AT(sampling.biases), 0, 0, NULL},
    {NULL, 0, "throughput.fill", "prefill|random", NULL, OPTION_CHOICE, T, AT(fill), 0, 0, "prefill,random"},
    {NULL, 0, "throughput.warmup", "on|off", NULL, OPTION_CHOICE, T, AT(cold), 0, 0, "on,off"},
    {NULL, 0, "perplexity.stride", "N", NULL, OPTION_INT, P, AT(stride), 0, INT_MAX, NULL},
    {NULL, 0, "perplexity.decode_from", "N", NULL, OPTION_INT, P, AT(decode_from), 0, INT_MAX, NULL},
    {NULL, 0, "passkey.position", "N", NULL, OPTION_INT, K, AT(position), -1, 1000000, NULL},
    {NULL, 0, "passkey.decode_last", "N", NULL, OPTION_INT, K, AT(decode_last), 0, INT_MAX, NULL},
    {NULL, 0, "calibrate.d_sub", "1|2|4", NULL, OPTION_INT, B, AT(d_sub), 1, 4, NULL},
    {NULL, 0, "calibrate.samples", "N", NULL, OPTION_INT, B, AT(samples), 16, 1 << 24, NULL},
    {NULL, 0, "serve.queue", "N", NULL, OPTION_INT, S, AT(queue), 0, 65536, NULL},
    {NULL, 0, "serve.cache_ram", "MIB", NULL, OPTION_INT, S, AT(cache_ram), 0, 1 << 30, NULL},
    {NULL, 0, "serve.drain", "SECONDS", NULL, OPTION_INT, S, AT(drain), 0, 86400, NULL},
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
