// Keys that clients show.
#pragma once
#include "yalm.h"

struct keys;

// Reads a file of keys: one a line, without blank lines and those that begin with #. NULL on failure, and where it holds none.
struct keys *keys_read(const char *path, yalm_error *error);
void keys_free(struct keys *keys); // NULL is welcome
bool keys_hold(const struct keys *keys, const char *text);
