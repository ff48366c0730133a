// Answers on a terminal: lines break between words.
#pragma once
#include "cli/cli.h"

// As output(), but a word that does not fit goes to the next line. The last word waits until it is whole. Code between lines of
// ``` keeps its lines.
yalm_status wrap_output(const char *bytes, size_t length, yalm_error *error);
yalm_status wrap_end(yalm_error *error); // of an answer
