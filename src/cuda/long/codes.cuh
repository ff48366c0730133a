// Where codes lie, how a sub-vector is encoded, and how codes become bytes of a table.
//
// A tile is 256 slots of one KV head. Its sub-quantisers are taken four at a time. For each four there is one 16-byte word for
// each lane of a warp, so a warp's load is 512 bytes in a row. Lane 4 n + t has of sub-quantiser 4 i + t the codes of 32 keys:
//
//     word r / 2, nibble 4 (r % 2) + x:  key 32 r + 8 (n / 2) + 2 x + n % 2,   r < 8, x < 4
//
// which is how the tensor cores want the second matrix of a product (mma_m16n8k32_s8): n is its column, and four keys x of one
// component take the place of four components of one key (codes_score.cu). The two columns that a lane has in the result are
// neighbours.
#pragma once
#include "cuda/long/codes.h"

// A nibble: a 32-bit word among those of a head, and the bit at which it begins.
struct code_place {
    size_t word;
    int shift;
};

__host__ __device__ static inline struct code_place code_place(int rows, int slot, int sub)
{
    const int key = slot % CODES_TILE, r = key / 32, n = key % 32 / 8 * 2 + key % 2, x = key % 8 / 2;
    const size_t four = (size_t)(slot / CODES_TILE) * (rows / 4) + sub / 4;
    return {(four * 32 + n * 4 + sub % 4) * 4 + r / 2, r % 2 * 16 + x * 4};
}

// The nearest of a sub-quantiser's centroids, (d_sub, 16), to x by L2, the lower one of equals; 0 where no distance is a
// number. To the bit the CPU's (cpu/kernels/nomad.h).
template <int D_SUB> __device__ static inline int nearest_centroid(const float (&x)[D_SUB], const float4 *centroids)
{
    float least = INFINITY;
    int nearest = 0;
#pragma unroll
    for (int four = 0; four < CODES_CENTROIDS / 4; four++) {
        float distances[4] = {};
#pragma unroll
        for (int i = 0; i < D_SUB; i++) {
            const float4 c = __ldg(centroids + i * (CODES_CENTROIDS / 4) + four);
            const float away[4] = {x[i] - c.x, x[i] - c.y, x[i] - c.z, x[i] - c.w};
#pragma unroll
            for (int j = 0; j < 4; j++)
                distances[j] = fmaf(away[j], away[j], distances[j]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            nearest = distances[j] < least ? four * 4 + j : nearest;
            least = fminf(distances[j], least);
        }
    }
    return nearest;
}

// Puts a code into its place. Other threads may be changing other nibbles of the word: this one's changes by what is added, and
// nothing is carried out of it.
__device__ static inline void place_code(unsigned *codes, int rows, int slot, int sub, int code)
{
    const struct code_place place = code_place(rows, slot, sub);
    unsigned *word = codes + place.word;
    const int old = (int)(__ldcg(word) >> place.shift & 15u);
    if (code != old)
        atomicAdd(word, (unsigned)(code - old) << place.shift);
}

// Codes of one key, whose component i is component(i), by some threads: number `thread` of n_threads.
template <int D_SUB, class Component>
__device__ static inline void encode_key(unsigned *codes, const float *centroids, int n_sub, int rows, int slot, int thread,
                                         int n_threads, Component component)
{
    for (int sub = thread; sub < n_sub; sub += n_threads) {
        float x[D_SUB];
#pragma unroll
        for (int i = 0; i < D_SUB; i++)
            x[i] = component(sub * D_SUB + i);
        const float4 *book = reinterpret_cast<const float4 *>(centroids + (size_t)sub * D_SUB * CODES_CENTROIDS);
        place_code(codes, rows, slot, sub, nearest_centroid<D_SUB>(x, book));
    }
}

// The bytes that eight codes stand for in a table of 16, four in each half. Byte x of half h comes from nibble 4 h + x of the
// word. prmt picks four bytes of eight by three bits each, so both halves of the table are asked, and a third one picks by the
// fourth bits.
struct code_picks {
    unsigned low,
        high; // the lower three bits of each code; from the fourth: this half of the table or that, for each of four bytes
};

__device__ static inline struct code_picks code_picks(unsigned codes)
{
    return {codes & 0x77777777u, (codes >> 1 & 0x44444444u) | 0x32103210u};
}

template <int HALF> __device__ static inline unsigned look_up(uint4 table, struct code_picks picks)
{
    const unsigned low = picks.low >> 16 * HALF, high = picks.high >> 16 * HALF;
    return __byte_perm(__byte_perm(table.x, table.y, low), __byte_perm(table.z, table.w, low), high);
}
