// Which tokens followed, earlier in a text, what the text ends in now: a suffix automaton that grows with the text (Blumer et
// al., 1985).
//
// A state stands for those strings of the text that end at the same places. The longest end of the text that has occurred
// before is that of the last state's link. A token takes some 100 bytes.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct suffix;

struct suffix *
suffix_open(size_t most); // tokens that it keeps: once it has so many it forgets them all, and begins anew; NULL: no memory
void suffix_close(struct suffix *suffix);

void suffix_forget(struct suffix *suffix); // all tokens

// The text goes on by a token, 0 or more, in constant time on average. False where memory ran out: then it knows nothing any
// more, and begins anew.
bool suffix_add(struct suffix *suffix, int32_t token);
// Another text begins: no match goes across. False as above.
bool suffix_break(struct suffix *suffix);

// How long the longest end of the text is that has occurred before, and in *next what followed it there: at most *n tokens,
// which becomes how many there are. Valid until the next token.
size_t suffix_match(const struct suffix *suffix, const int32_t **next, size_t *n);
