// Puts a grammar together, for its parser.
#pragma once
#include "grammar/grammar.h"

struct builder {
    struct grammar *grammar;
    int rooms[7]; // of elements, sets, rules, bags, branches, ways, counts
    bool failed;  // memory ran out, or a limit is reached
};

// Parts of an alternative that is not complete.
struct sequence {
    struct element *elements; // (n) owned
    int n, room;
};

void sequence_add(struct builder *builder, struct sequence *sequence, enum element_kind kind, int index);

int build_rule(struct builder *builder); // a new one, without alternatives
// Adds the sequence, which becomes empty, to the rule.
void build_alternative(struct builder *builder, int rule, struct sequence *sequence);
int build_set(struct builder *builder, const struct byte_set *set);
// Adds the bag, whose parts are the grammar's from then on, to the sequence.
void build_bag(struct builder *builder, struct sequence *sequence, struct bag bag);

int build_branch(struct builder *builder, struct branch branch); // returns the place of its element
void build_way(struct builder *builder, struct way way);
void build_branches(struct builder *builder); // of all bags

// Drops what no text fits, and adds branches. Returns a rule that calls itself before it takes a byte, which would deepen its
// stack without end; or -1.
int build_end(struct builder *builder);

// A range of characters, both ends included.
struct character_range {
    uint32_t first, last;
};
// Adds to the sequence one character of the ranges, or of all others, spelled in UTF-8.
void build_characters(struct builder *builder, struct sequence *sequence, const struct character_range *ranges, int n,
                      bool others);

// Repeats the part from `from` on in the sequence `least` to `most` times; most -1: any number.
void build_repetition(struct builder *builder, struct sequence *sequence, int from, int least, int most);
