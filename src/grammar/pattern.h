// Regular expressions of a schema's `pattern`, as sets of strings.
#pragma once
#include "grammar/dfa.h"

// The strings in which the expression is found: ECMA's, in Unicode's characters. It reads characters, `.`, classes, groups, |;
// \d \w \s, their opposites, \xHH \uHHHH \u{H…}; * + ? {n,m}. ^ and $ may stand anywhere, look-ahead outside of groups. All
// else is refused. An expression is read once: its automaton stays the pool's.
const struct dfa *pattern_read(struct pool *pool, const char *pattern);

// The strings of a `format`; NULL where formats.c has none, so that it is a mere annotation.
const struct dfa *format_read(struct pool *pool, const char *format);
