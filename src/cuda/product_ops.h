// The ops that are products. A few tokens' read each matrix once, as vectors; many tokens' are cuBLASLt's.
#pragma once
#include "cuda/ops.h"

// Whether n tokens' products are vectors' (matvec.cuh, several.cuh): up to SEVERAL, and tokens apart (apart.cu). By cuBLASLt
// eight tokens with a quantised matrix would move 4.6 to 5.1 bytes for each weight instead of 0.56 to 1.06.
bool as_vectors(const struct cuda_state *s, int n);
// The type of what a step leaves: that which the product takes that reads it. Head by head it takes floats.
enum dtype type_for_reader(const struct pass *r, const struct step *step);
// What is multiplied next. Which experts that are nobody knows yet.
struct upcoming upcoming_after(const struct pass *r, const struct step *step);
// What a block adds to: the residual stream, or what ranks sum for it.
float *residual(const struct cuda_state *s);
float *buffer(const struct pass *r, enum recipe_buffer which);
// Floats from token to token of an attending layer's q, k and v where they are one product's; else 0.
int pitch_of(const struct pass *r, const struct layer_weights *w);

// What a step's norm is, LayerNorm where the model has that. weight NULL: none.
struct norm {
    const float *weight, *bias;
};
static inline struct norm norm_of(const struct step *step)
{
    return {step->norm, step->norm_bias};
}
// y = norm(x), of `type`, or x itself; both (n, dim), of which y may be x. split: in two parts (rmsnorm_split()).
yalm_status normalise(struct cuda_state *s, void *y, enum dtype type, const float *x, const struct norm *norm, int n, int dim,
                      bool split, yalm_error *error);
// y_i = w_i norm(x) + bias_i, or of x itself where the norm has no weight. Many tokens' products round their input to 16 bits
// where the matrix has them; the first n_exact take what that loses, too.
yalm_status normalised_products(struct cuda_state *s, const struct product *products, int n_products, int n_exact,
                                const float *x, const struct norm *norm, int n, yalm_error *error,
                                const struct upcoming *next = NULL);
// to = w y + bias; and so the branch
yalm_status multiply(const struct pass *r, const struct step *step, const void *y, float *to, yalm_error *error);
yalm_status make_branch(const struct pass *r, const struct step *step, const void *y, yalm_error *error);

yalm_status project(const struct pass *r, const struct step *step, yalm_error *error);
// Whether heads' keys and values are made of latents for the pass. Else head_products() brings queries to the latents, and what
// attention finds there back to heads.
bool expands(const struct pass *r, const struct step *step);
yalm_status head_products(const struct pass *r, const struct step *step, yalm_error *error);
yalm_status add(const struct pass *r, const struct step *step, yalm_error *error);
yalm_status make_units(const struct pass *r, const struct step *step, yalm_error *error);
