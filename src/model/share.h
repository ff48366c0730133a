// A rank's share of a model: KV heads (of latents, heads) with their queries and columns of o, or of recurrent layers key heads
// with their value heads; units of the feed-forward blocks with their columns of down; rows of the classifier. A rank computes
// a narrower model of the same depth, which `config` and `weights` describe. What it adds to the residual stream is a part of a
// sum (engine/group.h). Experts are cut like dense blocks: all ranks then have the same work, whatever the router says.
//
// Columns are cut where groups of quantised weights begin, so that no weight changes; bf12's, which cannot be cut, become
// bfloat16.
#pragma once
#include "model/weights.h"

struct share_span {
    int first, last;
};

// Rank `rank`'s of `rows` rows of the classifier.
static inline struct share_span share_of_rows(int rows, int rank, int n_ranks)
{
    return (struct share_span){(int)((int64_t)rows * rank / n_ranks), (int)((int64_t)rows * (rank + 1) / n_ranks)};
}

struct model_share {
    struct model_config config;
    // All but the embedding, whose rows are read in the file, are copies: a rank keeps no page of other ranks' weights.
    struct model_weights weights;
    void *block; // what they lie in
    size_t bytes;
};

// How many ranks can have a part of everything.
int share_most_ranks(const struct model_config *config, const struct model_weights *weights);

// YALM_NO_MEMORY, before any is taken, where it does not suffice.
yalm_status share_open(struct model_share *share, const struct model_config *config, const struct model_weights *weights,
                       const struct container *container, int rank, int n_ranks, yalm_error *error);
void share_close(struct model_share *share);
