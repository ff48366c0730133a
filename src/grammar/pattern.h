// Regular expressions of a schema's `pattern`, as a part of a grammar.
#pragma once
#include <stdio.h>

#include "yalm.h"

// Writes a part of a grammar that spells the inside of a JSON string: each text that the pattern takes, escaped. It reads
// characters, `.`, classes, \d \w \s and their opposites, groups, |, * + ? {n,m}, and ^ and $ at the two ends. Without ^ or $
// anything may stand before or behind. YALM_USAGE: anything else.
yalm_status pattern_write(FILE *out, const char *pattern, yalm_error *error);
