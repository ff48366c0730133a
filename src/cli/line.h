// Lines that a person types, or that a script pipes in.
#pragma once
#include "cli/cli.h"

struct line_reader;

enum line_result {
    LINE_READ,
    LINE_END,         // of the input, or ^D
    LINE_INTERRUPTED, // ^C
    LINE_FAILED,      // memory, or reading
};

// On a terminal, where the program was built with libedit: editing, history, and Tab for `words` (ending in NULL) behind a /.
// Else plain lines, with a prompt on a terminal only. NULL where memory ran out.
struct line_reader *line_open(const char *const *words);
void line_close(struct line_reader *reader);
bool line_on_terminal(const struct line_reader *reader); // somebody is there to read a prompt

// The next line, without its end, in *line, which the reader owns until the next call. Lines that were pasted are one.
enum line_result line_read(struct line_reader *reader, const char *prompt, struct text *line);
// A message as it was sent can be called up again, in later runs too. False where it cannot be kept for these; errno says why.
bool line_remember(struct line_reader *reader, const char *message);

// What is typed from here on waits for the next line_read(), and is not shown before.
void line_hold(struct line_reader *reader);
void line_release(void); // a signal handler may call it
