// See pool.h.
#include "grammar/pool.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/error.h"

enum { BLOCK = 1 << 16 };

struct pool_block {
    struct pool_block *next;
    size_t used, size;
    max_align_t bytes[];
};

void *pool_take(struct pool *pool, size_t size)
{
    size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    struct pool_block *block = pool->blocks;
    if (block == NULL || block->size - block->used < size) {
        const size_t room = size > BLOCK ? size : BLOCK;
        if (size > POOL_MAX_BYTES || (pool->bytes += room) > POOL_MAX_BYTES)
            pool_refuse(pool, "it outgrows the memory that a schema may take");
        block = calloc(1, sizeof *block + room);
        if (block == NULL) {
            *pool->error = (yalm_error){YALM_NO_MEMORY, "out of memory for a schema"};
            longjmp(pool->refused, 1);
        }
        block->size = room;
        block->next = pool->blocks;
        pool->blocks = block;
    }
    void *taken = (char *)block->bytes + block->used;
    block->used += size;
    return taken;
}

void *pool_grow(struct pool *pool, void *array, int n, int *room, size_t size)
{
    if (n < *room)
        return array;
    *room = *room ? *room * 2 : 8;
    void *grown = pool_take(pool, (size_t)*room * size);
    if (n > 0)
        memcpy(grown, array, (size_t)n * size);
    return grown;
}

void pool_work(struct pool *pool, long steps)
{
    if ((pool->work += steps) > POOL_MAX_WORK)
        pool_refuse(pool, "its conditions outgrow the work that a schema may take");
}

void pool_refuse(struct pool *pool, const char *format, ...)
{
    char what[200], path[160] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (pool->where)
        pool->where(pool, path, sizeof path);
    error_set(pool->error, YALM_USAGE, "schema%s%s: %s", *path ? ", at " : "", path, what);
    longjmp(pool->refused, 1);
}

void pool_free(struct pool *pool)
{
    while (pool->blocks) {
        struct pool_block *block = pool->blocks;
        pool->blocks = block->next;
        free(block);
    }
}

// ---------------------------------------------------------------- equal sequences

static unsigned hash_of(const int *key, int n)
{
    uint64_t hash = (uint64_t)n;
    for (int i = 0; i < n; i++) {
        hash = (hash ^ (uint32_t)key[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return (unsigned)(hash >> 16);
}

static void put(struct intern *table, int index)
{
    unsigned at = hash_of(table->entries[index].key, table->entries[index].n) & (table->size - 1);
    while (table->slots[at])
        at = (at + 1) & (table->size - 1);
    table->slots[at] = index + 1;
}

int intern(struct pool *pool, struct intern *table, const int *key, int n)
{
    if (2 * (unsigned)table->n >= table->size) {
        table->size = table->size ? table->size * 2 : 64;
        table->slots = pool_take(pool, table->size * sizeof *table->slots);
        for (int i = 0; i < table->n; i++)
            put(table, i);
    }
    for (unsigned at = hash_of(key, n) & (table->size - 1); table->slots[at]; at = (at + 1) & (table->size - 1)) {
        const struct interned *entry = &table->entries[table->slots[at] - 1];
        if (entry->n == n && (n == 0 || memcmp(entry->key, key, (size_t)n * sizeof *key) == 0))
            return table->slots[at] - 1;
    }
    table->entries = pool_grow(pool, table->entries, table->n, &table->room, sizeof *table->entries);
    int *copy = pool_take(pool, ((size_t)n + 1) * sizeof *copy);
    if (n > 0)
        memcpy(copy, key, (size_t)n * sizeof *copy);
    table->entries[table->n] = (struct interned){copy, n};
    put(table, table->n);
    return table->n++;
}

int intern_text(struct pool *pool, struct intern *table, const char *text)
{
    const size_t length = strlen(text);
    int buffer[64], n = (int)(length / sizeof *buffer) + 1;
    int *words = length < sizeof buffer ? buffer : pool_take(pool, (size_t)n * sizeof *words);
    words[n - 1] = 0;
    memcpy(words, text, length);
    return intern(pool, table, words, n);
}
