// Parts of the engine that are shared objects of their own, opened when they are wanted: a program that has this file in it
// starts on machines that have not what they need.
#pragma once
#include <stdbool.h>

#include "yalm.h"

struct library {
    const char *name;    // "libyalm-cuda.so"
    const char *what;    // that errors begin with: "device cuda"
    const char *part;    // "the CUDA half"
    const char *env;     // the environment's name of another file for it
    const char *made_by; // "`make cuda` builds it where …"
    const char *symbol;  // the function that it is opened for
};

// The function; NULL, and why. *unfit (NULL is welcome): the file is there, but cannot be loaded or is not of this program's
// version and commit, which it must be, since both halves share structures. It is looked for beside the file that this code
// is in (the program, or libyalm.so), in ../lib from there, and where the loader looks.
void *library_find(const struct library *library, bool *unfit, yalm_error *error);
