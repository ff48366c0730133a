// Folders of the user's where the program keeps things: caches and state, as the XDG base directory specification has them.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// $VARIABLE/yalm, or ~/USUAL/yalm where that variable holds no absolute path. False where there is neither, or it is too long.
bool user_folder(char *path, size_t room, const char *variable, const char *usual);

// Makes the folder and those above it. On failure errno says why, and `path` ends at the one that could not be made.
bool make_folders(char *path);
