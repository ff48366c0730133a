// A grammar as an automaton over bytes. A stack says where the rules are to go on. There are as many stacks at a time as there
// are ways to read what has come; such a set of stacks is a *state*. States are made when a byte first leads to them, and kept:
// what has been walked once is a look-up.
#pragma once
#include "grammar/grammar.h"

enum { STATE_DEAD = -1, AUTOMATON_MAX_STATES = 1 << 14, AUTOMATON_MAX_STACKS = 1 << 15, AUTOMATON_MAX_WORK = 1 << 25 };

struct automaton;

// NULL on failure: YALM_USAGE where no text fits the grammar, or there are too many ways to begin one.
struct automaton *automaton_open(const struct grammar *grammar, yalm_error *error); // the grammar must outlive it
void automaton_close(struct automaton *automaton);                                  // NULL is welcome

int automaton_start(const struct automaton *automaton);
// The state after a byte; STATE_DEAD where none can follow.
int automaton_step(struct automaton *automaton, int state, unsigned char byte);
// A state from which the same texts of at most GRAMMAR_MANY bytes go on: what may come many more times may come any number of
// times there.
int automaton_near(struct automaton *automaton, int state);
// A bit for each of the bytes 0 to 0x7e that is known to lead to the state itself.
const uint64_t *automaton_loop(const struct automaton *automaton, int state);
bool automaton_accepts(const struct automaton *automaton, int state);  // the text may end here
bool automaton_is_final(const struct automaton *automaton, int state); // and cannot go on

// How many plain characters may come at least, whichever they are; INT_MAX: any number. same: each leads to the state itself.
// Plain are those that a JSON string has unescaped, but U+2028 and U+2029, which no dot of a pattern takes.
int automaton_plain(struct automaton *automaton, int state, bool *same);

// Call it between two tokens: it forgets states where there are many, but the one given, which gets a new number. A token may
// look at AUTOMATON_MAX_WORK stacks, which takes some tenths of a second. Memory stays bounded. False where memory ran out.
bool automaton_tidy(struct automaton *automaton, int *state);
// True once memory ran out, a set of stacks grew too large, or a token took too much work: from then on states may be missing.
bool automaton_failed(const struct automaton *automaton);
// How often states were forgotten: numbers of before mean nothing.
int automaton_generation(const struct automaton *automaton);
