// Chooses the keys to attend to, given a value for each: exactly the k largest, the lower index first where values are equal.
// So the result is a function of the values alone. NaN counts as less than everything.
#pragma once
#include "cpu/kernels/sparse.h"

// Of candidates in ascending order of their index, which n of them are kept in place.
struct candidates {
    int *indices;  // (n)
    float *values; // (n)
    int n;
};

// Keeps the k candidates with the largest values, in ascending order of index. k >= n keeps all.
void select_largest(const struct sparse_kernels *kernels, struct candidates *c, int k);

// indices = the k largest of x[first … last), ascending; returns how many: k, or last - first where that is less. Candidates
// are collected above a threshold that a sample suggests, so that nearly all of x is looked at once. indices, values: room for
// last - first + 16.
int select_top(const struct sparse_kernels *kernels, int *indices, float *values, const float *x, int first, int last, int k);
