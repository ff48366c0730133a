// What tokens enter the layers with: rows of the embedding, and each layer's own input (docs/format.md, "Inputs of layers").
#pragma once
#include "cpu/state.h"

// x (cols) = a row of a matrix of any type, times `scale`.
void input_row(const struct cpu_state *state, const struct matrix *matrix, int row, float scale, float *x);

// OP_MIX_INPUTS of one token: inputs (n_layers, layer_input_dim). row: scratch of as many floats.
void input_mix(const struct cpu_state *state, const struct step *step, int token, float *inputs, float *row);
