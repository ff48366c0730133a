// SparQ's second copy of the keys (sparq.h): how its elements are rounded, where they lie, and how scores take them from there.
//
// Of a KV head it is (head_dim, ld): each component of all slots is one run. A run's elements are of COPY: half, int8_t or
// nibble. NIBBLE_GROUP slots of nibbles are NIBBLE_GROUP / 2 bytes: byte j has slot j of the group in its low half and slot j +
// NIBBLE_GROUP / 2 in the high one, each increased by 8. So are the CPU's (cpu/kernels/sparse.h). int8 and 4 bits have a scale
// a key, the largest magnitude being 127 and 7.
#pragma once
#include "cuda/kernels/kv_rows.cuh"
#include "cuda/kernels/reduce.cuh"

enum { NIBBLE_GROUP = 256 };

struct nibble {
    uint8_t biased; // 1 … 15; 0 where nothing has been written
};

// ------------------------------------------------------------------------------------------ rounding

// A key's scale, from this lane's part of it, as the CPU finds it. int8: 0 for keys too small, NaN where something is not
// finite.
template <class COPY> __device__ static inline float key_scale(float largest, bool finite);
template <> __device__ inline float key_scale<int8_t>(float largest, bool finite)
{
    const float scale = warp_max(largest) / 127.0f;
    return !__all_sync(0xffffffffu, finite) ? NAN : scale >= KV_LEAST_SCALE ? scale : 0.0f;
}
template <> __device__ inline float key_scale<nibble>(float largest, bool)
{
    return warp_max(largest) / 7.0f;
}
template <> __device__ inline float key_scale<half>(float, bool)
{
    return 1.0f;
}

// An element of a key with this scale, as the CPU rounds it: int8 by the inverse, 4 bits by division, 0 where that is not
// finite.
template <class COPY> __device__ static inline COPY copy_element(float x, float scale, float inverse);
template <> __device__ inline half copy_element<half>(float x, float, float)
{
    return from_float<half>(x);
}
template <> __device__ inline int8_t copy_element<int8_t>(float x, float, float inverse)
{
    return (int8_t)__float2int_rn(inverse == 0.0f ? 0.0f : x * inverse);
}
template <> __device__ inline nibble copy_element<nibble>(float x, float scale, float)
{
    const float quotient = x / scale;
    return {(uint8_t)(8 + __float2int_rn(scale >= KV_LEAST_SCALE && isfinite(quotient) ? quotient : 0.0f))};
}

// One warp: put(c, element) for each component of the key in `slot`, and its scale, unless COPY has none.
template <class COPY, class T, class Put>
__device__ static inline void copy_key(const struct kv_rows<T> &keys, int slot, float *scales, Put put)
{
    const int lane = (int)threadIdx.x % 32;
    float scale = 1.0f, inverse = 1.0f;
    if (sizeof(COPY) == 1) {
        float largest = 0.0f;
        bool finite = true;
#pragma unroll 2
        for (int c = lane; c < keys.head_dim; c += 32) {
            const float x = kv_element(keys, slot, c);
            largest = fmaxf(largest, fabsf(x));
            finite &= isfinite(x) != 0;
        }
        scale = key_scale<COPY>(largest, finite);
        inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        if (lane == 0)
            scales[slot] = scale;
    }
#pragma unroll 2
    for (int c = lane; c < keys.head_dim; c += 32)
        put(c, copy_element<COPY>(kv_element(keys, slot, c), scale, inverse));
}

// ------------------------------------------------------------------------------------------ places

// Where a slot's elements lie, from the KV head's first run on.
template <class COPY> struct copy_place {
    COPY *at;
    size_t stride;

    __device__ copy_place(char *copied, int ld, int slot) : at(reinterpret_cast<COPY *>(copied) + slot), stride(ld) {}
    __device__ void put(int component, COPY element) const { at[component * stride] = element; }
};

// A word is shared with seven other slots, which threads in other blocks may be writing. Clearing and setting a slot's bits
// touches no others, so the order does not matter, and no thread waits for what was there.
template <> struct copy_place<nibble> {
    unsigned *at;
    size_t stride;
    int shift;

    __device__ copy_place(char *copied, int ld, int slot) : stride(ld / 8)
    {
        const int half = NIBBLE_GROUP / 2, byte = slot / NIBBLE_GROUP * half + slot % half;
        at = reinterpret_cast<unsigned *>(copied) + byte / 4;
        shift = byte % 4 * 8 + slot % NIBBLE_GROUP / half * 4;
    }
    __device__ void put_bits(int component, unsigned mask, unsigned bits) const
    {
        unsigned *word = at + component * stride;
        atomicAnd(word, ~mask);
        atomicOr(word, bits);
    }
    __device__ void put(int component, nibble element) const
    {
        put_bits(component, 15u << shift, (unsigned)element.biased << shift);
    }
};

// A warp, of which lane i puts the element of token i, where i < n. All lanes call put().
template <class COPY> struct copy_writer {
    struct copy_place<COPY> place;
    bool wanted;

    __device__ copy_writer(char *copied, int ld, int slot, int token, int n) : place(copied, ld, slot), wanted(token < n) {}
    __device__ void put(int component, COPY element) const
    {
        if (wanted)
            place.put(component, element);
    }
};

// Neighbours that share a word write it once. Tokens that follow each other have neighbouring slots, but where the ring begins
// again.
template <> struct copy_writer<nibble> {
    struct copy_place<nibble> place;
    unsigned mask;     // of this lane's slot, and of those that follow in the same word
    bool next, second; // belong to it
    bool leads;

    __device__ copy_writer(char *copied, int ld, int slot, int token, int n) : place(copied, ld, slot)
    {
        const int word = token < n ? slot / 4 : -1; // also tells halves apart
        const int before = __shfl_up_sync(0xffffffffu, word, 1);
        next = __shfl_down_sync(0xffffffffu, word, 1) == word && token + 1 < n;
        second = __shfl_down_sync(0xffffffffu, word, 2) == word && token + 2 < n;
        leads = token < n && (token == 0 || before != word);
        mask = joined(token < n ? 15u << place.shift : 0);
    }
    __device__ unsigned joined(unsigned bits) const
    {
        const unsigned one = __shfl_down_sync(0xffffffffu, bits, 1);
        bits |= next ? one : 0;
        const unsigned two = __shfl_down_sync(0xffffffffu, bits, 2);
        return bits | (second ? two : 0);
    }
    __device__ void put(int component, nibble element) const
    {
        const unsigned bits = joined((unsigned)element.biased << place.shift);
        if (leads)
            place.put_bits(component, mask, bits);
    }
};

// ------------------------------------------------------------------------------------------ for scores

// Eight slots of a run: what thread t of a part multiplies at once. The first four are neighbours, and so are the other four,
// APART slots behind these; neighbouring threads have neighbouring packs.
template <class COPY> struct copy_pack;
template <> struct copy_pack<half> {
    enum { APART = 4 };
    uint4 words;
};
template <> struct copy_pack<int8_t> {
    enum { APART = 4 };
    uint2 words;
};
template <> struct copy_pack<nibble> {
    enum { APART = NIBBLE_GROUP / 2 };
    unsigned word;
};

// The first slot of thread t's, from the part's first on.
template <class COPY> __device__ __forceinline__ int pack_slot(int t)
{
    return t * 8;
}
template <> __device__ __forceinline__ int pack_slot<nibble>(int t)
{
    return t / (NIBBLE_GROUP / 8) * NIBBLE_GROUP + t % (NIBBLE_GROUP / 8) * 4;
}

__device__ __forceinline__ void unpack_run(float (&x)[8], const struct copy_pack<half> &pack)
{
    unpack<half>(x, pack.words);
}
// A byte's sign extended, to a float: four at a time.
__device__ __forceinline__ void unpack_run(float (&x)[8], const struct copy_pack<int8_t> &pack)
{
    const unsigned words[2] = {pack.words.x, pack.words.y};
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[i] = (float)(int8_t)(words[i / 4] >> 8 * (i % 4));
}
// Bits p … p + 3 of a mantissa whose last bit counts 1 are 2^23 + 2^p n; times 2^-p, less 2^(23 - p) + 8, in one instruction
// and exactly: n - 8.
__device__ __forceinline__ void unpack_run(float (&x)[8], const struct copy_pack<nibble> &pack)
{
    const unsigned words[2] = {pack.word, pack.word >> 16};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int p = i % 2 * 8 + i / 4 * 4;
        const float raised = __uint_as_float((words[i % 4 / 2] & 15u << p) | 0x4b000000u);
        x[i] = fmaf(raised, 1.0f / (float)(1 << p), -(float)((1 << (23 - p)) + 8));
    }
}

// N neighbouring floats in shared memory, in as few loads as there can be.
template <int N> __device__ __forceinline__ void load_factors(float (&x)[N], const float *from)
{
    if constexpr (N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            const float4 four = *reinterpret_cast<const float4 *>(from + i);
            x[i] = four.x;
            x[i + 1] = four.y;
            x[i + 2] = four.z;
            x[i + 3] = four.w;
        }
    } else if constexpr (N == 2) {
        const float2 two = *reinterpret_cast<const float2 *>(from);
        x[0] = two.x;
        x[1] = two.y;
    } else {
        static_assert(N == 1, "queries at a time");
        x[0] = *from;
    }
}
