// What a throughput run found, for the writers of its table.
#pragma once
#include "cli/options.h"

struct test {
    int n_prompt, n_gen, depth; // one of the first two is 0
    char time[24];              // when it began, as 2026-01-31T23:59:59Z
    double *seconds;            // (n), owned
    double *attention;          // (n), owned: seconds of these that attention took; NULL: the device does not tell
    int n;                      // repetitions
    double *reads;  // (n_reads), owned: GB/s of plain reading, before each repetition and after the last; NULL: prefill
    int n_reads;    // n + 1, or fewer where the device or its memory does not allow
    yalm_cost cost; // of one repetition
    yalm_attention_cost attention_cost;
};

struct report {
    const char *path; // of the model
    const yalm_model_info *facts;
    yalm_session_options how; // as resolved
    char machine[768];        // that it ran on, in words
    yalm_limits limits;
    struct test *tests; // (n_tests)
    int n_tests;
};

// Nanoseconds and tokens per second: means and standard deviations of the samples.
struct summary {
    double mean_ns, deviation_ns, mean_rate, deviation_rate;
    double gb_per_s, gop_per_s;
    double fraction; // of the limit that binds: bandwidth for decode, arithmetic for prefill
    double reads_gb_per_s, reads_deviation, fraction_of_reads; // plain reading between the repetitions; 0: not measured
    // Attention alone, where it was timed: of a token on average, and of all bandwidth.
    double attention_ns, attention_bytes, dense_attention_bytes;
    double attention_gb_per_s, attention_fraction;
};
struct summary test_summary(const struct report *report, const struct test *test);

yalm_status report_write(const struct report *report, int format, yalm_error *error);
