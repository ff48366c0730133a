// Memory by blocks, each as large as what is asked for, and at least 64 KiB.

#include "chat/arena.h"

#include <stdalign.h>
#include <stdlib.h>

struct arena_block {
    struct arena_block *before;
    size_t room, used;
    alignas(max_align_t) char bytes[];
};

enum { BLOCK = 64 << 10 };

void *arena_take(struct arena *arena, size_t bytes)
{
    const size_t align = alignof(max_align_t);
    if (bytes > arena->limit)
        return NULL;
    bytes = (bytes + align - 1) / align * align;
    struct arena_block *block = arena->blocks;
    if (block == NULL || block->room - block->used < bytes) {
        const size_t room = bytes > BLOCK ? bytes : BLOCK;
        if (room > arena->limit - arena->taken)
            return NULL;
        block = malloc(sizeof *block + room);
        if (block == NULL)
            return NULL;
        *block = (struct arena_block){.before = arena->blocks, .room = room};
        arena->blocks = block;
        arena->taken += room;
    }
    void *taken = block->bytes + block->used;
    block->used += bytes;
    return taken;
}

void arena_free(struct arena *arena)
{
    while (arena->blocks) {
        struct arena_block *block = arena->blocks;
        arena->blocks = block->before;
        free(block);
    }
    arena->taken = 0;
}
