// The cache of converted models: $XDG_CACHE_HOME/yalm or ~/.cache/yalm. A hash of what was read, and how, names each file.
#pragma once
#include <limits.h>

#include "cli/cli.h"

enum { CACHE_ID = 16 }; // hex digits

struct cache_entry {
    char id[CACHE_ID + 1];
    char folder[PATH_MAX], file[PATH_MAX + 32];
};

// Names the file that stands for `source`, a GGUF file or a directory, as the converter in folder `converter` makes it with
// `how`. Reads samples of the source, not all of it. Creates nothing.
yalm_status cache_find(struct cache_entry *entry, const char *source, const char *converter, const char *how,
                       yalm_error *error);

// Whether the entry's file is there and whole, by its header; then it counts as used now.
bool cache_holds(const struct cache_entry *entry);

// Makes the folder and waits until no other process converts for this entry. The lock lasts until the descriptor is closed by
// this process and by those it starts.
yalm_status cache_lock(const struct cache_entry *entry, int *lock, yalm_error *error);
void cache_unlock(const struct cache_entry *entry, int lock);
