// From logits to a token.
#pragma once
#include "yalm.h"

struct sampler {
    uint64_t rng[4]; // xoshiro256** (Blackman and Vigna, 2018)
    int n_vocab;
    // Scratch for one draw, owned.
    float *logits;       // (n_vocab)
    int32_t *candidates; // (n_vocab)
};

yalm_status sampler_open(struct sampler *sampler, int n_vocab, yalm_error *error);
void sampler_close(struct sampler *sampler);
void sampler_seed(struct sampler *sampler, uint64_t seed);
double sampler_uniform(struct sampler *sampler); // the next random number, in [0, 1): each draw at a temperature uses one

// The steps, in llama.cpp's order:
//   biases are added; the repeat penalty divides positive and multiplies negative logits of tokens in `recent`, then the
//   frequency penalty times their count and the presence penalty once are subtracted; what is not allowed becomes -inf;
//   temperature 0 takes the largest logit, and of equals the lowest id; otherwise
//   top-k keeps the k largest (of equals the lower ids); top-p the fewest largest of these whose probabilities reach p of
//   theirs; min-p those at least min_p times as probable as the largest; all three at temperature 1;
//   temperature divides what is left, and one is drawn: the first at which the sum of probabilities exceeds the random number,
//   by id where neither top-k nor top-p is on, else the least probable first (of equals the highest id).
// NaN counts as -inf, which is never taken; where nothing else is there, the token is 0. Where a logit is +inf, only such are
// taken. logits: (n_vocab), left as they are. recent: (n_recent) tokens that penalties look back on, oldest first; the last
// penalty_last_n of them count, all where that is -1.
int32_t sampler_draw(struct sampler *sampler, const yalm_sampling *sampling, const float *logits, const int32_t *recent,
                     int n_recent);

// YALM_USAGE names the value that is out of its range.
yalm_status sampling_check(const yalm_sampling *sampling, int n_vocab, yalm_error *error);
