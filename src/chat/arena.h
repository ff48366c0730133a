// The memory of one rendering: blocks that are freed together when it ends. Values point into it and are never freed alone.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks; // the newest first
    size_t taken, limit;        // bytes in all blocks, and how many there may be
};

// Aligned for any type; not zeroed. NULL where the limit or the machine's memory is reached.
void *arena_take(struct arena *arena, size_t bytes);
void arena_free(struct arena *arena);
