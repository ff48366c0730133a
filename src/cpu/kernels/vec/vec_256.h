// 256-bit pieces that both of x86's vector widths use: rows of 8 floats, and their transposition; cache lines.
#pragma once
#include <immintrin.h>

#include "cpu/kernels/vec/common.h"

typedef __m256 float8;

VEC_INLINE float8 float8_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
VEC_INLINE void float8_store(float *p, float8 x)
{
    _mm256_storeu_ps(p, x);
}

// (8, 8) in place: row[i][j] becomes row[j][i].
VEC_INLINE void transpose_8x8(float8 row[8])
{
    float8 pair[8], quad[8];
    for (int i = 0; i < 8; i += 2) {
        pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            quad[i + 2 * j] = _mm256_shuffle_ps(pair[i + j], pair[i + j + 2], _MM_SHUFFLE(1, 0, 1, 0));
            quad[i + 2 * j + 1] = _mm256_shuffle_ps(pair[i + j], pair[i + j + 2], _MM_SHUFFLE(3, 2, 3, 2));
        }
    for (int i = 0; i < 4; i++) {
        row[i] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20);
        row[i + 4] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31);
    }
}

#include "cpu/kernels/vec/transpose.h"

// Within each 128 bits: what is left of the sums of a, b, c and d, one after another.
VEC_INLINE __m256 quarter_sums_256(__m256 a, __m256 b, __m256 c, __m256 d)
{
    const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)); // a b a b
    const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    return _mm256_add_ps(_mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(1, 0, 1, 0)),
                         _mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 2, 3, 2)));
}

// What is read of cache lines, so that it is not read in vain.
struct lines {
    __m256i low, high;
};
VEC_INLINE void lines_add(struct lines *lines, const char *line)
{
    lines->low = _mm256_xor_si256(lines->low, _mm256_loadu_si256((const __m256i *)line));
    lines->high = _mm256_add_epi64(lines->high, _mm256_loadu_si256((const __m256i *)(line + 32)));
}
VEC_INLINE uint64_t lines_value(const struct lines *lines)
{
    uint64_t words[4];
    _mm256_storeu_si256((__m256i *)words, _mm256_xor_si256(lines->low, lines->high));
    return words[0] ^ words[1] ^ words[2] ^ words[3];
}
