// Selections that are attended to again: by the layers behind the one that selected, and by the tokens behind the one they were selected
// for. Neither scores a key, so that no codes are read.
//
// A layer of the first kind finds rows and α of the layer before in selective.h's scratch. For the second kind each KV head keeps the numbers of its
// keys, and the position at which they were selected; a later token attends to those that it still sees, and to all keys since. What is
// kept is forgotten when a position at or before that one is appended: another text, after a rollback, selects anew.
#pragma once
#include <stdatomic.h>

#include "cpu/policy.h"

struct reuse {
    int layers, steps; // each so many layers, and positions, one selects; 0 or 1: all do
    int first_layer;   // from which layers count

    // Kept where steps > 1, of the layers that select.
    int room; // the most keys that are selected
    atomic_llong *
        next; // (n, n_kv_heads): the position behind that of the selection; 0: there is none. Atomic, since a late member may look
    int *rows;    // (n, n_kv_heads, room): numbers, as the token saw them that they were selected for
    int *n_rows;  // (n, n_kv_heads)
    float *alpha; // (n, n_heads)
};

// For plan(): the layers from first_layer on have the method.
void reuse_plan(struct cpu_state *s, int first_layer, int layers, int steps);
void reuse_carve_kept(struct cpu_state *s, struct carver *c);
// For append(): forgets a selection that a token now appended could have influenced.
void reuse_append(const struct cpu_state *s, const struct append *row);

// True where a layer attends to what the layer before has selected.
bool reuse_layer(const struct cpu_state *s, int layer);
// How much of the scoring is done, on average over layers and positions: 0 to 1.
double reuse_scored(const struct cpu_state *s);

// True where the token at `position` attends to an earlier token's selection. It may be asked outside a claim too.
bool reuse_step(const struct cpu_state *s, int layer, int kv_head, int64_t position);
// From and to the scratch of selective.h, where rows are numbers.
void reuse_keep(const struct cpu_state *s, int layer, int kv_head, int64_t position);
void reuse_recall(const struct cpu_state *s, int layer, int kv_head, int64_t position);
