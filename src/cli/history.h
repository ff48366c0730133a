// What was typed in chats, kept between runs: $XDG_STATE_HOME/yalm/history or ~/.local/state/yalm/history, one message a line.
#pragma once
#include "cli/cli.h"

// Tells `each` of every message, the oldest first.
void history_read(void (*each)(void *context, const char *message), void *context);
// Appends one. False where it cannot be kept; errno says why.
bool history_add(const char *message);
