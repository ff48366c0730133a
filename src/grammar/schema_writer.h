// What the rules of shapes are written with: schema.c and schema_text.c.
#pragma once
#include <stdio.h>

#include "grammar/grammar.h"
#include "grammar/schema.h"
#include "grammar/shape.h"

struct schema_writer {
    struct shapes s;
    FILE *out;
    char *text;
    size_t length;
    bool listed_only; // schema_writer_open()
    int n_rules, n_dfas;
    int *waiting; // (n_waiting) wants that have a rule's number; those from the current one on are not written
    int n_waiting, waiting_room;
    struct written { // rules of strings and numbers that may be asked for again
        struct part part;
        int rule;
        struct written *next;
    } * written;
};

void schema_write_literal(FILE *out, const char *text); // one that spells the text
// Rules for the strings, escaped as within quotes; they begin with the rule d<result>-0.
int schema_write_dfa(struct schema_writer *w, const struct dfa *dfa);
void schema_write_string(struct schema_writer *w, const struct part *part, int rule);
void schema_write_number(struct schema_writer *w, const struct part *part, int rule);
