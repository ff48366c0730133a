// Fused dense attention over the KV cache (the design's section on attention: online softmax, no score matrix, GQA groups as
// rows of one product, appends already in the layout that the kernels read).
//
// Each function is one or two steps of a run (team.h), and returns when they are over.
#pragma once
#include "cpu/state.h"

// Rows that may be read behind a task's queries in rotated_q.
enum { ATTENTION_MOST_BESIDE = 8 };

// Rotates the batch's queries (state->q) into rotated_q and its keys into the cache, and copies its values there.
// Also where a run looks whether it has been cancelled (state->stopped).
void attention_append(struct cpu_state *state, const struct batch *batch, const struct step *step, struct member *me);

// state->attended = softmax(q Kᵀ / sqrt(head_dim)) V for each token of the batch over the keys that it sees. The
// result does not depend on the number of threads.
void attention_attend(struct cpu_state *state, const struct batch *batch, const struct step *step, struct member *me);

// Parts that the keys of `n_visible` are cut into, for batches of at most state->query_tokens tokens: a function of the length
// alone, so that neither the team's size nor its timing shows in a result.
int attention_key_parts(int n_visible);

// Some of the rows (slots) that one KV head's queries attend to.
struct row_part {
    int kv_head, part; // of n_parts, at most attention_key_parts() of their number
    const int *rows;   // (n)
    const float *bias; // (n): added to their scores; NULL: nothing
    int n;
    bool fetched; // it was the `next` of this member's last part
};

// Pieces of selective_attend(), for a batch of one token. A part of the rows, with the first the sinks that stand apart too;
// `next`, where not NULL, is the part that this member will probably take next. Then query q of the group: alpha times the
// parts' merged result, and
// (1 - alpha) times mean (head_dim), which is not looked at where alpha is 1.
void attention_attend_rows(struct cpu_state *state, const struct batch *batch, const struct step *step, int n_parts,
                           const struct row_part *rows, const struct row_part *next, struct member *me);
void attention_merge(struct cpu_state *state, int n_parts, int kv_head, int q, float alpha, const float *mean);

// Bytes of task_scratch that attention needs for each thread.
size_t attention_task_scratch(const struct cpu_state *state);
