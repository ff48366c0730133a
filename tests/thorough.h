// Whether a program runs whole, as `make test-all` and who calls it by hand have it, or, in `make test`, a part that covers each
// case with each other by turns.
#pragma once
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool thorough(void)
{
    const char *set = getenv("YALM_THOROUGH");
    return !set || strcmp(set, "1") == 0;
}
