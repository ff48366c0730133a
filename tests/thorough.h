// Whether a program runs whole, as `make test-all` has it, and who calls it by hand; or, as in `make test`, a part that has
// each case with each other one by turns.
#pragma once
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool thorough(void)
{
    const char *set = getenv("YALM_THOROUGH");
    return !set || strcmp(set, "1") == 0;
}
