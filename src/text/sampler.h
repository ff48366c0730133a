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

// Penalties and biases, then temperature, top-k, top-p, min-p, then a draw; temperature 0 takes the largest (the lowest id of
// equals). logits: (n_vocab), left as they are. recent: (n_recent) tokens that penalties look back on, oldest first.
int32_t sampler_draw(struct sampler *sampler, const yalm_sampling *sampling, const float *logits, const int32_t *recent,
                     int n_recent);

yalm_status sampling_check(const yalm_sampling *sampling, int n_vocab, yalm_error *error);
