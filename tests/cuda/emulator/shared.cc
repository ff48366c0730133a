// Shared memory: arrays of a block in one arena, filled with the pattern of what nothing wrote, red zones between them.
#include <cstdlib>
#include <cstring>

#include "block_state.h"
#include "runtime.h"
#include "sanitizers.h"

void emulated_poison(void *memory, size_t bytes)
{
    memset(memory, EMULATED_POISON, bytes);
    sanitizer_unwritten(memory, bytes);
}

static char *arena_take(size_t bytes)
{
    char *memory = block->arena + block->arena_used;
    size_t rounded = (bytes + 15) / 16 * 16;
    if (block->arena_used + rounded + RED_ZONE > ARENA_BYTES) {
        emulated_fault("%zu bytes of shared memory: at most %zu in all", bytes, device_shared_limit());
    }
    block->arena_used += rounded + RED_ZONE;
    sanitizer_unpoison(memory, rounded + RED_ZONE);
    emulated_poison(memory, bytes);
    memset(memory + bytes, RED_BYTE, rounded + RED_ZONE - bytes);
    sanitizer_poison(memory + bytes, rounded + RED_ZONE - bytes);
    return memory;
}

void *emulated_shared(const void *key, size_t bytes, const char *name)
{
    for (const shared_array &array : block->arrays) {
        if (array.key == key) {
            return array.memory;
        }
    }
    block->shared_bytes += bytes;
    if (block->shared_bytes > device_shared_limit() || block->shared_bytes - block->kernel->shared_bytes > 48 << 10) {
        emulated_fault("%s: %zu bytes of shared memory: at most 48 KiB static, %zu in all", name, block->shared_bytes,
                       device_shared_limit());
    }
    block->arrays.push_back({key, arena_take(bytes), bytes});
    return block->arrays.back().memory;
}

void *emulated_shared_dynamic(void)
{
    if (block->kernel->shared_bytes == 0) {
        emulated_fault("dynamic shared memory, of which the launch has none");
    }
    return block->arena;
}

void shared_check(void)
{
    for (const shared_array &array : block->arrays) {
        char *zone = array.memory + array.bytes;
        size_t bytes = (array.bytes + 15) / 16 * 16 - array.bytes + RED_ZONE;
        sanitizer_unpoison(zone, bytes);
        for (size_t i = 0; i < bytes; i++) {
            if ((unsigned char)zone[i] != RED_BYTE) {
                emulated_fault("block (%u, %u, %u): byte %zu after %zu of shared memory has been overwritten",
                               emulated_shape.block_index.x, emulated_shape.block_index.y, emulated_shape.block_index.z, i,
                               array.bytes);
                return;
            }
        }
    }
}

void shared_begin(void)
{
    if (!block->arena) {
        block->arena = static_cast<char *>(aligned_alloc(256, ARENA_BYTES));
    }
    block->arrays.clear();
    block->arena_used = 0;
    block->shared_bytes = block->kernel->shared_bytes;
    if (block->shared_bytes) {
        block->arrays.push_back({nullptr, arena_take(block->shared_bytes), block->shared_bytes});
    }
}
