// The server: a model behind HTTP, as the clients of OpenAI's and Anthropic's APIs expect it. It neither prints nor exits.
#pragma once
#include "yalm.h"

struct serve_options {
    const char *host;
    int port;              // 0: any that is free
    const char *key_file;  // one key a line; NULL: none is needed
    bool insecure;         // another host than loopback without keys
    int parallel, queue;   // sessions, and requests that may wait besides
    uint64_t cache_bytes;  // for what sequences have read, beyond the sessions
    const char *cache_dir; // where that is kept when the server ends; NULL: nowhere
    const char *slot_dir;  // where clients may keep sessions; NULL: nowhere
    int drain;             // seconds that running requests have once a signal ends the server
    yalm_session_options session;
    bool speculate;                       // tokens are guessed and evaluated several at once; `draft` does it too: NULL: none
    const yalm_model *draft;              // outlives the server
    yalm_sampling sampling;               // what requests leave open
    uint64_t seed;                        // likewise; UINT64_MAX: another for each
    void (*say)(const char *format, ...); // a line to the user; not NULL
};

// Serves until SIGINT or SIGTERM, of which a second one ends it at once. Blocks both in the calling thread and those it starts.
yalm_status serve(const yalm_model *model, const struct serve_options *options, yalm_error *error);
