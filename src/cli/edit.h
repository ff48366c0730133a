// Editing of a line on a terminal, by libedit where the program was built with it: history, Tab, and pasted lines as one text.
#pragma once
#include "cli/line.h"

struct editor;

// NULL where there is no libedit, or no memory. `words` (ending in NULL) are what a line that begins with / may begin with.
struct editor *editor_open(const char *const *words);
void editor_close(struct editor *editor);
// *line is the caller's to free.
enum line_result editor_read(struct editor *editor, const char *prompt, char **line);
void editor_remember(struct editor *editor, const char *message);
