// Regular expressions of a schema's `pattern`, as sets of strings.
#pragma once
#include "grammar/dfa.h"

// The strings in which the expression is found: ECMA's, in Unicode's characters. It reads characters, `.`, classes, groups, |,
// \d \w \s and their opposites, \xHH \uHHHH \u{H…}, * + ? {n,m}, ^ and $ anywhere, and look-ahead that stands outside of
// groups. All else is refused.
struct dfa *pattern_read(struct pool *pool, const char *pattern);

// The strings of a `format`; NULL where it is one that the standard does not name, a mere annotation.
struct dfa *format_read(struct pool *pool, const char *format);
