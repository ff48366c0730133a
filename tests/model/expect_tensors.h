// Assertions of tensors by name, and what a token costs, which the tests of weights share.
#pragma once
#include "expect.h"
#include "recipe/recipe.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { Q = TINY_HEADS * TINY_HEAD_DIM, KV = TINY_KV_HEADS * TINY_HEAD_DIM, D = TINY_HIDDEN, F = TINY_FFN, V = TINY_VOCAB };

static inline void expect_matrix(const struct opened *o, const struct matrix *m, const char *name, int rows, int cols,
                                 enum dtype dtype)
{
    const struct tensor *t = container_find(&o->container, name);
    assert_non_null(t);
    assert_ptr_equal(m->data, t->data);
    assert_int_equal(m->rows, rows);
    assert_int_equal(m->cols, cols);
    assert_int_equal(m->dtype, dtype);
}

static inline void expect_vector(const struct opened *o, const float *v, const char *name)
{
    const struct tensor *t = container_find(&o->container, name);
    assert_non_null(t);
    assert_ptr_equal(v, t->data);
}

// Of a token.
static inline struct cost cost_of(const struct opened *o)
{
    return recipe_outline(&o->config, &o->weights).cost;
}
