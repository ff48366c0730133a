// Twins of cuda/kernels/ptx.cuh. A copy lands in shared memory only when the thread waits for it, the last moment that the device allows.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

void grid_dependency_wait(void);
inline void grid_dependency_launch(void) {}

inline void barrier_sync(int id, int n_threads, EMULATED_WHERE)
{
    emulated_barrier(id, n_threads, file, line);
}

inline uint4 load_stream(const uint4 *address)
{
    return *address;
}

inline void prefetch_l2(const void *) {}

void emulated_copy_async(const char *name, void *shared, const void *global, int bytes, bool valid, const char *file, int line);
inline void copy_async16(void *shared, const void *global, bool valid = true, EMULATED_WHERE)
{
    emulated_copy_async("copy_async16", shared, global, 16, valid, file, line);
}
template <int BYTES> void copy_async_few(void *shared, const void *global, EMULATED_WHERE)
{
    static_assert(BYTES == 4 || BYTES == 8, "what the instruction has, beside 16");
    emulated_copy_async("copy_async_few", shared, global, BYTES, true, file, line);
}
void copy_async_commit(void);
void emulated_copy_wait(int n_groups_left);
template <int N> void copy_async_wait(void)
{
    emulated_copy_wait(N);
}

struct emulated_ldmatrix {
    const void *row;
    unsigned *fragment;
};
// Faults where a copy has brought these 16 bytes and nothing has made it visible to the warp since.
void emulated_ordered(const char *name, const void *shared);
template <bool transposed> void emulated_ldmatrix_complete(void *const operands[32])
{
    for (int lane = 0; lane < 32; lane++) {
        emulated_ordered("ldmatrix", static_cast<emulated_ldmatrix *>(operands[lane])->row);
    }
    for (int lane = 0; lane < 32; lane++) {
        auto to = static_cast<emulated_ldmatrix *>(operands[lane]);
        for (int matrix = 0; matrix < 4; matrix++) {
            uint16_t pair[2];
            for (int i = 0; i < 2; i++) {
                int row = transposed ? 2 * (lane % 4) + i : lane / 4;
                int column = transposed ? lane / 4 : 2 * (lane % 4) + i;
                pair[i] =
                    static_cast<const uint16_t *>(static_cast<emulated_ldmatrix *>(operands[8 * matrix + row])->row)[column];
            }
            memcpy(&to->fragment[matrix], pair, sizeof(pair));
        }
    }
}
// Faults where the address is no multiple of `bytes`.
void emulated_aligned(const char *name, const void *address, int bytes, const char *file, int line);
inline void ldmatrix_x4(unsigned (&fragment)[4], const void *shared_row, EMULATED_WHERE)
{
    emulated_aligned("ldmatrix_x4", shared_row, 16, file, line);
    emulated_ldmatrix operand = {shared_row, fragment};
    emulated_collective("ldmatrix_x4", 0xffffffff, &operand, emulated_ldmatrix_complete<false>, file, line);
}
inline void ldmatrix_x4_trans(unsigned (&fragment)[4], const void *shared_row, EMULATED_WHERE)
{
    emulated_aligned("ldmatrix_x4_trans", shared_row, 16, file, line);
    emulated_ldmatrix operand = {shared_row, fragment};
    emulated_collective("ldmatrix_x4_trans", 0xffffffff, &operand, emulated_ldmatrix_complete<true>, file, line);
}

struct emulated_mma {
    float *sum;
    const unsigned *a, *b;
};
// Eight columns at once, where the processor can.
using emulated_eight = float __attribute__((vector_size(32)));
// The layout is in cuda/kernels/ptx.cuh. Products of two 16-bit numbers are exact in fp32; the order of the sums is this code's own.
template <class T> void emulated_mma_complete(void *const operands[32])
{
    T halves[16][16], columns[16][8];
    for (int lane = 0; lane < 32; lane++) {
        auto operand = static_cast<const emulated_mma *>(operands[lane]);
        int g = lane / 4, t = lane % 4;
        for (int r = 0; r < 4; r++) {
            memcpy(&halves[g + r % 2 * 8][2 * t + r / 2 * 8], &operand->a[r], sizeof(operand->a[r]));
        }
        for (int r = 0; r < 2; r++) {
            columns[2 * t + r * 8][g].bits = (uint16_t)operand->b[r];
            columns[2 * t + 1 + r * 8][g].bits = (uint16_t)(operand->b[r] >> 16);
        }
    }
    float a[16][16], b[16][8], products[16][8];
    emulated_to_floats(&a[0][0], &halves[0][0], 16 * 16);
    emulated_to_floats(&b[0][0], &columns[0][0], 16 * 8);
    for (int row = 0; row < 16; row++) {
        emulated_eight sum = {};
        for (int k = 0; k < 16; k++) {
            emulated_eight column;
            memcpy(&column, b[k], sizeof(column));
            sum += a[row][k] * column;
        }
        memcpy(products[row], &sum, sizeof(sum));
    }
    for (int lane = 0; lane < 32; lane++) {
        float *sum = static_cast<const emulated_mma *>(operands[lane])->sum;
        for (int r = 0; r < 4; r++) {
            sum[r] += products[lane / 4 + r / 2 * 8][2 * (lane % 4) + r % 2];
        }
    }
}
template <class T> void mma_m16n8k16(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2], EMULATED_WHERE)
{
    emulated_mma operand = {sum, a, b};
    emulated_collective("mma_m16n8k16", 0xffffffff, &operand, emulated_mma_complete<T>, file, line);
}

struct emulated_mma_s8 {
    int *sum;
    const unsigned *a, *b;
};
inline void emulated_mma_s8_complete(void *const operands[32])
{
    int a[16][32], b[32][8];
    for (int lane = 0; lane < 32; lane++) {
        auto operand = static_cast<const emulated_mma_s8 *>(operands[lane]);
        int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++) {
            for (int r = 0; r < 4; r++) {
                a[g + r % 2 * 8][4 * t + i + r / 2 * 16] = (int8_t)(operand->a[r] >> 8 * i);
            }
            for (int r = 0; r < 2; r++) {
                b[4 * t + i + r * 16][g] = (int8_t)(operand->b[r] >> 8 * i);
            }
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        int *sum = static_cast<const emulated_mma_s8 *>(operands[lane])->sum;
        for (int r = 0; r < 4; r++) {
            int row = lane / 4 + r / 2 * 8, column = 2 * (lane % 4) + r % 2;
            for (int k = 0; k < 32; k++) {
                sum[r] += a[row][k] * b[k][column];
            }
        }
    }
}
inline void mma_m16n8k32_s8(int (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2], EMULATED_WHERE)
{
    emulated_mma_s8 operand = {sum, a, b};
    emulated_collective("mma_m16n8k32_s8", 0xffffffff, &operand, emulated_mma_s8_complete, file, line);
}

// Barriers that copies arrive at, and words of other blocks (arrivals.cc).
void emulated_arrivals_init(uint64_t *barrier, unsigned n_arrivals, const char *file, int line);
void emulated_arrivals_arrive(uint64_t *barrier, const char *file, int line);
void emulated_arrivals_expect(uint64_t *barrier, unsigned bytes, const char *file, int line);
void emulated_arrivals_wait(uint64_t *barrier, unsigned parity, const char *file, int line);
void emulated_copy_bulk(void *shared, const void *global, unsigned bytes, uint64_t *barrier, const char *file, int line);
void emulated_words_wait(bool (*told)(const void *news), const void *news, const char *file, int line);

inline void arrivals_init(uint64_t *barrier, unsigned n_arrivals, EMULATED_WHERE)
{
    emulated_arrivals_init(barrier, n_arrivals, file, line);
}
inline void arrivals_arrive(uint64_t *barrier, EMULATED_WHERE)
{
    emulated_arrivals_arrive(barrier, file, line);
}
inline void arrivals_expect(uint64_t *barrier, unsigned bytes, EMULATED_WHERE)
{
    emulated_arrivals_expect(barrier, bytes, file, line);
}
inline void arrivals_wait(uint64_t *barrier, unsigned parity, EMULATED_WHERE)
{
    emulated_arrivals_wait(barrier, parity, file, line);
}
inline void copy_bulk(void *shared, const void *global, unsigned bytes, uint64_t *barrier, EMULATED_WHERE)
{
    emulated_copy_bulk(shared, global, bytes, barrier, file, line);
}

struct emulated_words {
    const float *const *from;
    int n, each; // `each` words from every one that is not null
    unsigned parity;
};
inline bool emulated_words_told(const void *news)
{
    auto words = static_cast<const emulated_words *>(news);
    for (int i = 0; i < words->n; i++) {
        for (int j = 0; words->from[i] && j < words->each; j++) {
            if ((__float_as_uint(words->from[i][j]) & 1) != words->parity) {
                return false;
            }
        }
    }
    return true;
}
inline void told_store(float *to, float value, unsigned parity)
{
    *to = __uint_as_float((__float_as_uint(value) & ~1u) | parity);
}
inline float told_wait(const float *from, unsigned parity, EMULATED_WHERE)
{
    emulated_words words = {&from, 1, 1, parity};
    emulated_words_wait(emulated_words_told, &words, file, line);
    return *from;
}
template <int N> void told_wait_fours(float4 (&to)[N], const float *const (&from)[N], unsigned parity, EMULATED_WHERE)
{
    emulated_words words = {from, N, 4, parity};
    emulated_words_wait(emulated_words_told, &words, file, line);
    for (int i = 0; i < N; i++) {
        to[i] = from[i] ? float4{from[i][0], from[i][1], from[i][2], from[i][3]} : float4{0, 0, 0, 0};
    }
}

struct emulated_parts {
    const float4 *from;
    size_t stride;
    int n;
    unsigned number;
};
inline bool emulated_parts_told(const void *news)
{
    auto parts = static_cast<const emulated_parts *>(news);
    for (int i = 0; i < parts->n; i++) {
        if (__float_as_uint(parts->from[i * parts->stride].w) != parts->number) {
            return false;
        }
    }
    return true;
}
inline void told_store_part(float4 *to, float a, float b, float c, unsigned number)
{
    *to = {a, b, c, __uint_as_float(number)};
}
template <int N>
void told_wait_parts(float4 (&to)[N], const float4 *from, size_t stride, int n, unsigned number, EMULATED_WHERE)
{
    emulated_parts parts = {from, stride, n < N ? n : N, number};
    emulated_words_wait(emulated_parts_told, &parts, file, line);
    for (int i = 0; i < N; i++) {
        to[i] = i < n ? float4{from[i * stride].x, from[i * stride].y, from[i * stride].z, 0} : float4{0, 0, 0, 0};
    }
}
