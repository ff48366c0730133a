// The cache of converted models: $XDG_CACHE_HOME/yalm or ~/.cache/yalm. A hash of what was read, and how, names each file.
#pragma once
#include <limits.h>

#include "cli/convert.h"

enum { CACHE_ID = 16 }; // hex digits

struct cache_entry {
    char id[CACHE_ID + 1];
    char folder[PATH_MAX], file[PATH_MAX + 32];
};

// Where the cache is.
yalm_status cache_folder(struct cache_entry *entry, yalm_error *error);

// Names the file that stands for `origin`, as the converter in folder `converter` makes it. Reads samples of the source, not
// all of it. Creates nothing.
yalm_status cache_find(struct cache_entry *entry, const struct origin *origin, const char *converter, yalm_error *error);

// Whether the entry's file is there and whole, by its header; then it counts as used now.
bool cache_holds(const struct cache_entry *entry);

// Makes the folder and waits until no other process converts for this entry. The lock lasts until the descriptor is closed by
// this process and by those it starts.
yalm_status cache_lock(const struct cache_entry *entry, int *lock, yalm_error *error);
void cache_unlock(const struct cache_entry *entry, int lock);
bool cache_is_being_made(const struct cache_entry *entry);

// Beside each copy a small file says what it was made of, so that one that is stale is known.
void cache_remember(const struct cache_entry *entry, const struct origin *origin);
// What is known of it: length 0 where that is nothing. The bytes are the caller's to free.
struct origin cache_recall(const struct cache_entry *entry);
// Removes the other copies of that origin: the source, or the converter, was another one then. True where there was one.
bool cache_replace(const struct cache_entry *entry, const struct origin *origin);

// The model's 16 digits that a file's name there begins with, behind a dot where it is not whole yet; NULL: it has none.
const char *cache_id(const char *name);
