// A grammar of texts: rules over bytes, from a notation that people write (GBNF) or a JSON schema.
//
//     root ::= "yes" | "no" reason?
//     reason ::= ", " [a-z ]{1,40}
//
// A name, "::=", alternatives between "|". Parts: "literals" and [classes] of characters (\n \t \r \\ \" \] \xHH \uHHHH
// \UHHHHHHHH; [^…] is all others), `.` for any character, names of rules, groups in parentheses, and after any part * + ? {n}
// {n,} {n,m}. # begins a comment. The text is what `root` spells. Besides, parts of which the order is free:
//
//     root ::= "{" <{1,4} comma name! age tag*> "}"
//
// Rules between < and >: the first one separates the others. A part with ! must come, one with * may come again, others come at
// most once. {n,m}, which may be left out, says how many there are in all.
#pragma once
#include "yalm.h"

enum {
    GRAMMAR_MAX_TEXT = 8 << 20,     // bytes of the notation
    GRAMMAR_MAX_ELEMENTS = 1 << 20, // after short repetitions have been written out
    GRAMMAR_MAX_RULES = 1 << 18,
    GRAMMAR_MAX_DEPTH = 128, // of parentheses
    GRAMMAR_MANY = 16,       // repetitions of more parts are counted
};

// A part of an alternative: a set of bytes of which one comes, a rule that is gone through, once or as often as is counted, or
// the alternative's end. A bag of n parts is 2 + n elements: where it may end, where the next part is chosen, and what follows
// each part.
enum element_kind {
    ELEMENT_END,
    ELEMENT_BYTE,
    ELEMENT_CALL,
    ELEMENT_COUNT,
    ELEMENT_BAG,
    ELEMENT_CHOICE,
    ELEMENT_AFTER,
    ELEMENT_BRANCH
};
struct element {
    enum element_kind kind;
    int index;    // of the set, the rule, the count or the bag; of ELEMENT_AFTER the part's
    bool endless; // it begins an alternative of an endless rule
};

struct byte_set {
    uint64_t bits[4];
    uint64_t class; // 1 + the rule of the class of which these are the characters of one byte; 0: there is none
};

// A rule that comes several times.
struct count {
    int rule, least, most; // most -1: any number
    int rest;              // the place where any number of them is called
};

// Parts in any order.
struct bag {
    int separator, least, most; // a rule; how many parts come, most -1: any number
    struct bag_part {
        int rule;
        bool must, again; // it has to come; it may come more than once
    } * parts;            // (n) owned
    int n, n_must;
    // Those that begin with literal bytes, sorted by them: see branches.c.
    int n_sorted, root; // root: the place of the first ELEMENT_BRANCH
    int *ranks;         // (n) of each part among the sorted ones; -1: it is not there. Owned
    int *musts;         // (n + 1) how many of the sorted parts before one must come. Owned
};

// Where the sorted parts of a bag go on with other bytes.
struct branch {
    int bag;             // the place of its ELEMENT_BAG
    int first, n, depth; // the parts that begin as those bytes, and how many bytes these are
    int way, n_ways;
};
struct way {
    unsigned char byte;
    int first, n; // the parts that go on so
    int part;     // the first of them, by its number in the bag
    int place;    // where they go on: of one part its next element, of several an ELEMENT_BRANCH
};

struct grammar {
    struct element *elements; // (n_elements) all alternatives, each up to its end
    int n_elements;
    struct byte_set *sets; // (n_sets)
    int n_sets;
    struct count *counts; // (n_counts)
    int n_counts;
    struct bag *bags; // (n_bags)
    int n_bags;
    struct branch *branches; // (n_branches)
    int n_branches;
    struct way *ways; // (n_ways)
    int n_ways;
    struct rule {
        int *alternatives; // (n) where each begins in `elements`, owned
        int n;
        bool plain, beyond; // it takes any plain character; any of them beyond ASCII
        bool endless;       // it takes any plain characters, any number of them
    } * rules;              // (n_rules)
    int n_rules;
    int root;
};

// NULL on failure: YALM_USAGE says the line and what is wrong there.
struct grammar *grammar_parse(const char *text, size_t length, yalm_error *error);
void grammar_free(struct grammar *grammar); // NULL is welcome

// The plain characters of ASCII: all but controls, quotes and backslashes. A bit for each.
static const uint64_t grammar_plain[2] = {~UINT64_C(0) << ' ' & ~(UINT64_C(1) << '"'), ~(UINT64_C(1) << ('\\' - 64))};

static inline bool byte_set_holds(const struct byte_set *set, unsigned char byte)
{
    return set->bits[byte / 64] >> byte % 64 & 1;
}
