// What reading a schema works with: memory that is freed at once, bounds on work, sets of numbers that are equal by content,
// and the way out. A refusal leaves by longjmp() to where the reading began, so that no step between has to hand it on.
#pragma once
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>

#include "yalm.h"

enum { POOL_MAX_BYTES = 160 << 20, POOL_MAX_WORK = 4 << 20 };

// Numbers sequences of integers: equal ones get the same number, from 0 on.
struct intern {
    struct interned {
        const int *key; // (n)
        int n;
    } * entries; // (n)
    int n, room;
    int *slots; // (size) open addressing, of numbers + 1
    unsigned size;
};

struct pool {
    struct pool_block *blocks; // the newest first
    size_t bytes;
    long work;              // steps done so far
    struct intern patterns; // see pattern_read(): those that were read, and what they take
    const struct dfa **taken;
    int taken_room;
    jmp_buf refused;
    yalm_error *error;
    // Names the place in the schema that is being read: "/properties/x", or "".
    void (*where)(const struct pool *pool, char *path, size_t size);
};

void *pool_take(struct pool *pool, size_t size); // zeroed; never NULL
// An array of `n` elements with room for one more; what it was before stays in the pool.
void *pool_grow(struct pool *pool, void *array, int n, int *room, size_t size);
void pool_work(struct pool *pool, long steps); // refuses where there were too many
_Noreturn void pool_refuse(struct pool *pool, const char *format, ...) __attribute__((format(printf, 2, 3)));
void pool_free(struct pool *pool);

int intern(struct pool *pool, struct intern *table, const int *key, int n);
int intern_text(struct pool *pool, struct intern *table, const char *text); // of its bytes
