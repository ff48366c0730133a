// The table of options; see options.h.
#pragma once
#include "cli/options.h"

enum option_kind {
    OPTION_FLAG,   // bool
    OPTION_SWITCH, // bool: index into `choices`
    OPTION_MODE,   // sets the mode to `min`
    OPTION_NAMED,  // -m: the mode by name
    OPTION_TEXT,   // const char *
    OPTION_TEXTS,  // struct text_list, repeatable
    OPTION_INT,    // int
    OPTION_INTS,   // struct int_list: a,b,c
    OPTION_FLOAT,  // float
    OPTION_RATIO,  // float, written as 0.125 or 1/8
    OPTION_SEED,   // uint64_t; -1 is random
    OPTION_CHOICE, // int: index into `choices`
    OPTION_WORD,   // const char *: one of `choices`
    OPTION_BIAS,   // appended to sampling.biases, repeatable
    OPTION_SET,    // KEY=VALUE, repeatable: a row of this table whose name has a dot, or else a setting of the session
};

struct option {
    const char *group;    // heading in --help, of the first option that has it
    const char *letters;  // "": none; --help shows the first
    const char *names;    // long names, comma between; --help shows the first
    const char *argument; // in --help; NULL: takes none
    const char *help;     // NULL: `manual` alone
    enum option_kind kind;
    unsigned modes;      // bit set of enum mode
    size_t offset;       // of the value in struct options
    double min, max;     // of numbers
    const char *choices; // comma between
    const char *manual;  // what the man page says after `help`; an option has one of them at least
};

// Of a mode below MODE_HELP: what it does.
const char *mode_about(enum mode mode);
// `text` is a mode's name, another program's word for it, or the beginning of one mode's name alone.
yalm_status mode_read(const char *text, enum mode *mode, yalm_error *error);
// Whether -m names a model, as it does for llama.cpp: the word has a dot or a slash, or is a file's name.
bool mode_names_model(const char *text);
// `yalm serve MODEL`, `yalm run MODEL TEXT`: argv[1] is a mode, and no file.
bool mode_comes_first(int argc, char **argv, enum mode *mode);

extern const struct option option_table[];
extern const int n_options;

void options_defaults(struct options *options);

// " (40)" for an option whose value is a number when it is not given; nothing where that says nothing, as 0 does.
void option_default(char *text, size_t room, const struct option *option, const struct options *defaults);

// What to say to somebody who is used to another program's options: the end of a message; NULL where nothing is known.
const char *option_hint(const char *arg);

// What to do instead of an option that the table lacks: `arg` as the user wrote it.
void option_advice(char *text, size_t room, const char *arg);

// "\\n" in the text becomes a line's end, and so on: \n \t \r \\ \" \' and \xHH. In place; what is none of these stays.
void unescape(char *text);
