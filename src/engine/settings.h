// What only measurements set: "KEY=VALUE" texts in a session's options (docs/attention.md#settings lists them), read by
// whoever plans.
#pragma once
#include <stddef.h>

#include "yalm.h"

enum setting_switch { SWITCH_AUTO, SWITCH_ON, SWITCH_OFF };
enum sparq_copy { SPARQ_COPY_INT8, SPARQ_COPY_FP16, SPARQ_COPY_Q4 };

// Zeros are chosen for the model.
struct sparq_settings {
    float ratio; // of the dense traffic, in elements, which chooses r and k; 0: r = head_dim / 4, k = 1/16 of the keys
    int r, k;    // components, keys; 0: by the ratio
    int min_k;   // where k is by the ratio; 0: 128
    int local;   // the most recent keys, which always belong; 0: k / 4
    int from;    // with fewer visible keys, attention is dense; 0: where reading less begins to pay
    int copy;    // enum sparq_copy: elements of the second copy of the keys, that scores are computed from
    int tail;    // enum setting_switch: the rest counts as its mean value; auto: where each query head has its own keys
};

struct hybrid_settings {
    float ratio; // which share of the keys is attended to; 0: 768 keys, but at most 3/16 and at least 1/8 of them
    int min_k;   // but at least so many, whatever the ratio; 0: 64
    int local;   // the most recent keys, which always belong; 0: a quarter of the selected, 16 at most
    int from;    // with fewer visible positions attention is dense; 0: the length from which on it should be faster
    float codes; // which share of a key's codes its score reads; 0: on the CPU half at d_sub 1, else all
    int draw;    // enum setting_switch: keys are drawn, else the best are taken; auto: on
};

struct nomad_settings {
    // Rows of values whose probability is below skip / (number of keys) are not read: together they have less than `skip`.
    float skip;
};

struct settings {
    struct sparq_settings sparq;
    struct hybrid_settings hybrid;
    struct nomad_settings nomad;
};

// How each is written.
struct setting {
    const char *key;
    size_t offset;       // in struct settings
    double most;         // of numbers, which begin at 0
    const char *choices; // comma between: an int, their index; NULL: a number
    bool is_ratio;       // a float, written as 0.125 or 1/8; else an int
};
extern const struct setting settings_known[];
extern const int n_settings_known;

// All of them, by options->attention_ratio and options->settings, or refuses in one line.
yalm_status settings_read(struct settings *settings, const yalm_session_options *options, yalm_error *error);
