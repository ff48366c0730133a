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

// With libedit, where the program was built with it and both ends are a terminal: editing and history. Else plain lines, with
// a prompt on a terminal only. NULL where memory ran out.
struct line_reader *line_open(void);
void line_close(struct line_reader *reader);
bool line_on_terminal(const struct line_reader *reader); // somebody is there to read a prompt

// The next line, without its end, in *line, which the reader owns until the next call.
enum line_result line_read(struct line_reader *reader, const char *prompt, struct text *line);
// A message as it was sent can be called up again.
void line_remember(struct line_reader *reader, const char *message);
