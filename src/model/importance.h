// Which columns of a model's weight matrices matter, by what they read while the model evaluates a text. It is written as a
// safetensors file with a model's tensor names (docs/format.md), for the converter.
#pragma once
#include "model/weights.h"
#include "util/new_file.h"

struct input_sums {
    double *squares; // (cols): the sum over tokens of each column's square
    float
        *products; // (cols, block): of column i's products with its block's columns up to itself, then zeros; NULL: not wanted
    float *turned; // (cols, a batch's tokens): room for them, which may be all inputs'
    int64_t tokens;
    int cols; // 0: the model has no such input
};

// Columns whose products with each other are added up: all of them, or where they are many an equal part, in whole groups.
static inline int importance_block(int cols)
{
    enum { WHOLE = 2048, MOST = 1024, GROUP = 32 };
    const int blocks = cols <= WHOLE ? 1 : (cols + MOST - 1) / MOST;
    return blocks == 1 ? cols : ((cols + blocks - 1) / blocks + GROUP - 1) / GROUP * GROUP;
}

// Inputs of a layer; a scan's C, B, x and z read INPUT_QKV, too. From INPUT_EXPERTS on each expert has two: what gate and up
// read, and what down reads.
enum { INPUT_QKV, INPUT_O, INPUT_FFN, INPUT_DOWN, INPUT_SCAN_O, INPUT_EXPERTS };

// A layer's input among all; the classifier's is the one that follows the last layer's.
static inline int importance_input(const struct model_config *config, int layer, int which)
{
    return layer * (INPUT_EXPERTS + 2 * config->n_experts) + which;
}
static inline int importance_n_inputs(const struct model_config *config)
{
    return importance_input(config, config->n_layers, 0) + 1;
}

// Of experts, which are many and see few tokens each, products are not added up.
static inline bool importance_has_products(const struct model_config *config, int input)
{
    return input % importance_input(config, 1, 0) < INPUT_EXPERTS;
}

// Each matrix that is quantised, in the order of the file: its name, and its input's number.
typedef void importance_visitor(void *context, const char *name, int input, const struct matrix *matrix);
void importance_each(const struct model_config *config, const struct model_weights *weights, importance_visitor *visit,
                     void *context);

// Like codebook_create(), of files of importance.
yalm_status importance_create(struct new_file *file, const char *path, yalm_error *error);
// Takes the disk that the sums will need, before they are made: YALM_FAILED where it is not to be had.
yalm_status importance_reserve(struct new_file *file, const struct input_sums *sums, const struct model_config *config,
                               const struct model_weights *weights, yalm_error *error);
// sums: (importance_n_inputs()). YALM_FAILED where one is not finite.
yalm_status importance_write(struct new_file *file, const struct input_sums *sums, int64_t tokens,
                             const struct container *model, const struct model_config *config,
                             const struct model_weights *weights, yalm_error *error);
