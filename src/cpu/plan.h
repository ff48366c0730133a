// Who multiplies: for each type of weights, from how many tokens on, which kernels, and what the tokens become for them. Made
// once for a session; all that is chosen by type or number of tokens is chosen here.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "cpu/kernels/kernels.h"
#include "model/weights.h"
#include "yalm.h"

enum token_form {
    TOKENS_FLOAT,     // as they are: cpu_kernels.matvec, of few tokens
    TOKENS_PACKED,    // floats in the order of cpu_kernels.matmul
    TOKENS_16_BITS,   // packed by matmul16
    TOKENS_QUANTISED, // by quant_kernels
    TOKEN_FORMS
};

struct multiplier {
    int least; // of so many tokens, and more
    enum token_form form;
    const struct matmul16 *matmul16; // of TOKENS_16_BITS
};

enum { MOST_MULTIPLIERS = 5 };

struct product_plan {
    const struct cpu_kernels *kernels;
    const struct quant_kernels *quant; // of the kernels, by what activations are
    type_set types;                    // that the model's matrices have
    int chunk;                         // most tokens
    int most_few; // up to so many tokens are few: their products read a matrix as decode's do, in long claims
    bool exact;   // tokens that are not apart have the kernels of many, however few they are
    // Ascending; the first one is of a single token, and of tokens apart. None begins beyond `chunk`.
    struct multiplier by[DTYPE_WEIGHTS][MOST_MULTIPLIERS];
    int n_by[DTYPE_WEIGHTS];
};

// What the kernels of many tokens multiply instead of a type: bf12's rows are unpacked for them.
static inline enum dtype unpacked_type(enum dtype type)
{
    return type == DTYPE_BF12 ? DTYPE_BF16 : type;
}

struct product_plan plan_products(const struct cpu_kernels *kernels, yalm_activations activations, type_set types, int chunk);

// By which what a token becomes depends on whether it is apart, and not on how many there are, or may be.
struct product_plan plan_exact(const struct cpu_kernels *kernels, yalm_activations activations, type_set types, int chunk);

// What the options leave open. YALM_USAGE where matrices of these types are not multiplied with such tokens at all.
yalm_status plan_resolve(yalm_activations *activations, type_set types, type_set of_layers, yalm_error *error);

// What multiplies n tokens; where they are apart, each as if it were alone.
const struct multiplier *plan_multiplier(const struct product_plan *plan, enum dtype type, int n, bool apart);

// As bits (1 << enum token_form): what n tokens become for matrices of these types; and whatever they become for some number of
// tokens.
unsigned plan_forms(const struct product_plan *plan, type_set types, int n, bool apart);
unsigned plan_all_forms(const struct product_plan *plan, type_set types);

// What n tokens become for quantised matrices, by their number and in a plan, and the most bytes that up to n of them take.
const struct quant_form *plan_quant_form(const struct quant_kernels *quant, int n);
const struct quant_form *plan_quant_form_of(const struct product_plan *plan, int n, bool apart);
size_t plan_quantised_bytes(const struct quant_kernels *quant, int n, int cols);

// Most tokens that any of the model's matrices takes in this form; 0: it is not used.
int plan_most(const struct product_plan *plan, enum token_form form);
// Bytes that the tokens of a session take at most in TOKENS_16_BITS, what its kernels want as scratch, and the most rows that
// they multiply together in that form.
size_t plan_16_bits_bytes(const struct product_plan *plan, int cols);
size_t plan_scratch(const struct product_plan *plan);
int plan_16_bits_rows(const struct product_plan *plan);

// "q4 and q8: 16-bit integers; from 33 tokens on tiles of bytes": a line for those types of the model that are multiplied
// alike. Returns the length that the text has, as snprintf() does.
size_t plan_text(const struct product_plan *plan, char *text, size_t room);
