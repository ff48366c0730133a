// A grammar of texts: rules over bytes, from a notation that people write (GBNF) or a JSON schema.
//
//     root ::= "yes" | "no" reason?
//     reason ::= ", " [a-z ]{1,40}
//
// A name, "::=", alternatives between "|". Parts: "literals" and [classes] of characters (\n \t \r \\ \" \] \xHH \uHHHH
// \UHHHHHHHH; [^…] is all others), `.` for any character, names of rules, groups in parentheses, and after any part * + ? {n}
// {n,} {n,m}. # begins a comment. The text is what `root` spells.
#pragma once
#include "yalm.h"

enum {
    GRAMMAR_MAX_TEXT = 8 << 20,     // bytes of the notation
    GRAMMAR_MAX_ELEMENTS = 1 << 20, // after repetitions have been written out
    GRAMMAR_MAX_RULES = 1 << 18,
    GRAMMAR_MAX_DEPTH = 128, // of parentheses
    GRAMMAR_PLAIN = 16,      // plain characters, which a JSON string has unescaped, that are looked at together
};

// A part of an alternative: a set of bytes of which one comes, a rule that is gone through, or the alternative's end.
enum element_kind { ELEMENT_END, ELEMENT_BYTE, ELEMENT_CALL };
struct element {
    enum element_kind kind;
    int index; // of the set, or of the rule
};

struct byte_set {
    uint64_t bits[4];
    uint64_t plain; // 1: of a class that takes any plain character, it has those of one byte
};

struct grammar {
    struct element *elements; // (n_elements) all alternatives, each up to its end
    int n_elements;
    struct byte_set *sets; // (n_sets)
    int n_sets;
    struct rule {
        int *alternatives; // (n) where each begins in `elements`, owned
        int n;
        bool plain; // it takes any plain character
    } * rules;      // (n_rules)
    int n_rules;
    int root;
};

// NULL on failure: YALM_USAGE says the line and what is wrong there.
struct grammar *grammar_parse(const char *text, size_t length, yalm_error *error);
void grammar_free(struct grammar *grammar); // NULL is welcome

static inline bool byte_set_holds(const struct byte_set *set, unsigned char byte)
{
    return set->bits[byte / 64] >> byte % 64 & 1;
}
