// What kernels call: their indices, shared memory, barriers, warp operations, atomics, and the arithmetic that CUDA has names for.
//
// A warp operation (shuffle, vote, reduction, matrix) gathers every lane that its mask names; the last to come computes all lanes' results.
// Lanes that come to different operations, other places in the source or with other masks, and lanes that are missing, are faults.
#pragma once
#include "emulated_types.h"

#include <cmath>
#include <cstring>

// ---------------------------------------------------------------------------------------- indices

struct emulated_thread {
    uint3 index;     // threadIdx
    unsigned linear; // within the block
    bool waited;     // for the grid before this one
};
struct emulated_grid {
    dim3 grid, block;
    uint3 block_index;
};
extern emulated_thread *emulated_self;
extern emulated_grid emulated_shape;

#define threadIdx (emulated_self->index)
#define blockIdx  (emulated_shape.block_index)
#define blockDim  (emulated_shape.block)
#define gridDim   (emulated_shape.grid)
constexpr int warpSize = 32;

#define EMULATED_WHERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// ---------------------------------------------------------------------------------------- shared memory, barriers

void *emulated_shared(const void *key, size_t bytes, const char *name);
void *emulated_shared_dynamic(void);

void emulated_barrier(int id, int n_threads, const char *file, int line);
inline void __syncthreads(EMULATED_WHERE)
{
    emulated_barrier(0, 0, file, line);
}

// ---------------------------------------------------------------------------------------- warp operations

// `complete` sees all 32 lanes' operands (null where the lane is not in the mask) when the last has come, and changes them in place.
void emulated_collective(const char *name, unsigned mask, void *operand, void (*complete)(void *const operands[32]),
                         const char *file, int line);
// A lane asked for the value of one that is not in the mask.
void emulated_inactive(const char *name, int lane, int source);

inline void __syncwarp(unsigned mask = 0xffffffff, EMULATED_WHERE)
{
    emulated_collective("__syncwarp", mask, nullptr, nullptr, file, line);
}

template <class T> struct emulated_shuffle {
    T value;
    int argument, width;
};

// source(lane, argument, width) is the lane whose value `lane` gets.
template <class T, int (*source)(int, int, int)> void emulated_shuffle_complete(void *const operands[32])
{
    T values[32];
    for (int lane = 0; lane < 32; lane++) {
        if (operands[lane]) {
            values[lane] = static_cast<emulated_shuffle<T> *>(operands[lane])->value;
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        auto operand = static_cast<emulated_shuffle<T> *>(operands[lane]);
        if (operand) {
            int from = source(lane, operand->argument, operand->width);
            if (!operands[from]) {
                emulated_inactive("shuffle", lane, from);
                return;
            }
            operand->value = values[from];
        }
    }
}

inline int emulated_from_index(int lane, int index, int width)
{
    return (lane & ~(width - 1)) | (index & (width - 1));
}
inline int emulated_from_xor(int lane, int bits, int width)
{
    int last = lane | (width - 1);
    return (lane ^ bits) <= last ? (lane ^ bits) & 31 : lane;
}
inline int emulated_from_up(int lane, int delta, int width)
{
    return lane - delta >= (lane & ~(width - 1)) ? lane - delta : lane;
}
inline int emulated_from_down(int lane, int delta, int width)
{
    return lane + delta <= (lane | (width - 1)) ? lane + delta : lane;
}

template <int (*source)(int, int, int), class T>
T emulated_shuffle_run(const char *name, unsigned mask, T value, int argument, int width, const char *file, int line)
{
    emulated_shuffle<T> operand = {value, argument, width};
    emulated_collective(name, mask, &operand, emulated_shuffle_complete<T, source>, file, line);
    return operand.value;
}
template <class T> T __shfl_sync(unsigned mask, T value, int index, int width = 32, EMULATED_WHERE)
{
    return emulated_shuffle_run<emulated_from_index>("__shfl_sync", mask, value, index, width, file, line);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, EMULATED_WHERE)
{
    return emulated_shuffle_run<emulated_from_xor>("__shfl_xor_sync", mask, value, bits, width, file, line);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, EMULATED_WHERE)
{
    return emulated_shuffle_run<emulated_from_up>("__shfl_up_sync", mask, value, (int)delta, width, file, line);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, EMULATED_WHERE)
{
    return emulated_shuffle_run<emulated_from_down>("__shfl_down_sync", mask, value, (int)delta, width, file, line);
}

// What shuffles over FIRST, FIRST / 2 … LAST lanes give (fold_by_shuffles of cuda/kernels/reduce.cuh), in the same order.
template <int FIRST, int LAST, class F> void emulated_fold_complete(void *const operands[32])
{
    float now[32], next[32];
    for (int lane = 0; lane < 32; lane++) {
        now[lane] = *static_cast<float *>(operands[lane]);
    }
    for (int step = FIRST; step >= LAST; step /= 2) {
        for (int lane = 0; lane < 32; lane++) {
            next[lane] = F()(now[lane], now[lane ^ step]);
        }
        memcpy(now, next, sizeof(now));
    }
    for (int lane = 0; lane < 32; lane++) {
        *static_cast<float *>(operands[lane]) = now[lane];
    }
}
template <int FIRST, int LAST, class F> float emulated_fold(float x, F, EMULATED_WHERE)
{
    emulated_collective("warp fold", 0xffffffff, &x, emulated_fold_complete<FIRST, LAST, F>, file, line);
    return x;
}

inline void emulated_ballot_complete(void *const operands[32])
{
    unsigned set = 0;
    for (int lane = 0; lane < 32; lane++) {
        set |= operands[lane] && *static_cast<unsigned *>(operands[lane]) ? 1u << lane : 0;
    }
    for (int lane = 0; lane < 32; lane++) {
        if (operands[lane]) {
            *static_cast<unsigned *>(operands[lane]) = set;
        }
    }
}
inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATED_WHERE)
{
    unsigned operand = predicate != 0;
    emulated_collective("__ballot_sync", mask, &operand, emulated_ballot_complete, file, line);
    return operand;
}
inline int __any_sync(unsigned mask, int predicate, EMULATED_WHERE)
{
    return __ballot_sync(mask, predicate, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMULATED_WHERE)
{
    return __ballot_sync(mask, predicate, file, line) == mask;
}

// The lanes whose value is this one's.
inline void emulated_match_complete(void *const operands[32])
{
    unsigned values[32] = {};
    for (int lane = 0; lane < 32; lane++) {
        if (operands[lane]) {
            values[lane] = *static_cast<unsigned *>(operands[lane]);
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        unsigned same = 0;
        for (int other = 0; operands[lane] && other < 32; other++) {
            same |= operands[other] && values[other] == values[lane] ? 1u << other : 0;
        }
        if (operands[lane]) {
            *static_cast<unsigned *>(operands[lane]) = same;
        }
    }
}
inline unsigned __match_any_sync(unsigned mask, unsigned value, EMULATED_WHERE)
{
    emulated_collective("__match_any_sync", mask, &value, emulated_match_complete, file, line);
    return value;
}

template <class T, T (*combine)(T, T)> void emulated_reduce_complete(void *const operands[32])
{
    bool any = false;
    T total = 0;
    for (int lane = 0; lane < 32; lane++) {
        if (operands[lane]) {
            T value = *static_cast<T *>(operands[lane]);
            total = any ? combine(total, value) : value;
            any = true;
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        if (operands[lane]) {
            *static_cast<T *>(operands[lane]) = total;
        }
    }
}
template <class T> T emulated_add(T a, T b)
{
    return (T)((unsigned)a + (unsigned)b);
}
template <class T> T emulated_min(T a, T b)
{
    return b < a ? b : a;
}
template <class T> T emulated_max(T a, T b)
{
    return a < b ? b : a;
}
inline unsigned emulated_and(unsigned a, unsigned b)
{
    return a & b;
}
inline unsigned emulated_or(unsigned a, unsigned b)
{
    return a | b;
}
inline unsigned emulated_exclusive_or(unsigned a, unsigned b)
{
    return a ^ b;
}
#define EMULATED_REDUCE(name, type, combine)                                                                                   \
    inline type name(unsigned mask, type value, EMULATED_WHERE)                                                                \
    {                                                                                                                          \
        emulated_collective(#name, mask, &value, emulated_reduce_complete<type, combine>, file, line);                         \
        return value;                                                                                                          \
    }
EMULATED_REDUCE(__reduce_add_sync, unsigned, emulated_add<unsigned>)
EMULATED_REDUCE(__reduce_min_sync, unsigned, emulated_min<unsigned>)
EMULATED_REDUCE(__reduce_max_sync, unsigned, emulated_max<unsigned>)
EMULATED_REDUCE(__reduce_add_sync, int, emulated_add<int>)
EMULATED_REDUCE(__reduce_min_sync, int, emulated_min<int>)
EMULATED_REDUCE(__reduce_max_sync, int, emulated_max<int>)
EMULATED_REDUCE(__reduce_and_sync, unsigned, emulated_and)
EMULATED_REDUCE(__reduce_or_sync, unsigned, emulated_or)
EMULATED_REDUCE(__reduce_xor_sync, unsigned, emulated_exclusive_or)
#undef EMULATED_REDUCE

// ---------------------------------------------------------------------------------------- atomics, fences

template <class T, class F> T emulated_atomic(T *address, F next)
{
    T old;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    for (;;) {
        T value = next(old);
        if (__atomic_compare_exchange(address, &old, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            return old;
        }
    }
}
#define EMULATED_ATOMIC(type)                                                                                                  \
    inline type atomicExch(type *address, type value)                                                                          \
    {                                                                                                                          \
        return emulated_atomic(address, [=](type) { return value; });                                                          \
    }                                                                                                                          \
    inline type atomicAdd(type *address, type value)                                                                           \
    {                                                                                                                          \
        return emulated_atomic(address, [=](type old) { return (type)(old + value); });                                        \
    }
#define EMULATED_ATOMIC_INTEGER(type)                                                                                          \
    EMULATED_ATOMIC(type)                                                                                                      \
    inline type atomicSub(type *address, type value)                                                                           \
    {                                                                                                                          \
        return emulated_atomic(address, [=](type old) { return (type)(old - value); });                                        \
    }                                                                                                                          \
    inline type atomicMin(type *address, type value)                                                                           \
    {                                                                                                                          \
        return emulated_atomic(address, [=](type old) { return value < old ? value : old; });                                  \
    }                                                                                                                          \
    inline type atomicMax(type *address, type value)                                                                           \
    {                                                                                                                          \
        return emulated_atomic(address, [=](type old) { return old < value ? value : old; });                                  \
    }                                                                                                                          \
    inline type atomicOr(type *address, type value)                                                                            \
    {                                                                                                                          \
        return emulated_atomic(address, [=](type old) { return old | value; });                                                \
    }                                                                                                                          \
    inline type atomicAnd(type *address, type value)                                                                           \
    {                                                                                                                          \
        return emulated_atomic(address, [=](type old) { return old & value; });                                                \
    }                                                                                                                          \
    inline type atomicCAS(type *address, type compare, type value)                                                             \
    {                                                                                                                          \
        return emulated_atomic(address, [=](type old) { return old == compare ? value : old; });                               \
    }
EMULATED_ATOMIC(float)
EMULATED_ATOMIC(double)
EMULATED_ATOMIC_INTEGER(int)
EMULATED_ATOMIC_INTEGER(unsigned)
EMULATED_ATOMIC_INTEGER(unsigned long long)
#undef EMULATED_ATOMIC
#undef EMULATED_ATOMIC_INTEGER
// Wraps to 0 after `last`.
inline unsigned atomicInc(unsigned *address, unsigned last)
{
    return emulated_atomic(address, [=](unsigned old) { return old >= last ? 0 : old + 1; });
}

inline void __threadfence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block(void)
{
    __threadfence();
}
inline void __threadfence_system(void)
{
    __threadfence();
}

#include "emulated_math.h"
