// Sets of numbers as automata over the texts that spell them.
#pragma once
#include "grammar/dfa.h"

enum { BELOW = 1, EQUAL = 2, ABOVE = 4 };

// Numbers of at most 20 digits before the point and 20 behind it, without an exponent; integers have no point.
const struct dfa *numbers_all(struct pool *pool, bool integers);
// Texts of numbers that compare with `bound` in one of the ways: BELOW | EQUAL and so on.
struct dfa *numbers_compare(struct pool *pool, double bound, int ways);
// Texts of multiples of `step`, which has few digits.
struct dfa *numbers_multiples(struct pool *pool, double step);
