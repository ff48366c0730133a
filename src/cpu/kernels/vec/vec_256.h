// 256-bit pieces that both vector widths use: rows of 8 floats, and their transposition.
#pragma once
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/dtype.h"

// Kernels are written once as inline functions over a vector width (vec/vec_avx2.h or vec/vec_avx512.h) and an element type; each
// instantiation must be one flat loop, hence the force.
#define VEC_INLINE static inline __attribute__((always_inline))

// fp8 elements become floats by way of halves. E5M2 is a half's upper byte. E4M3's exponent has a bit less and a bias of 7 instead
// of 15: where its bits take a half's places, the half is 2^-8 of the value, subnormals included, and this is what it lacks.
VEC_INLINE float fp8_unit(enum dtype type)
{
    return type == DTYPE_FP8 ? 0x1p8f : 1.0f;
}

// (8, 8) in place: row[i][j] becomes row[j][i].
VEC_INLINE void transpose_8x8(__m256 row[8])
{
    __m256 pair[8], quad[8];
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

// to[c * ldto + r] = from[r * ldfrom + c] for r < rows, c < cols.
static inline void transpose(float *to, ptrdiff_t ldto, const float *from, ptrdiff_t ldfrom, int rows, int cols)
{
    for (ptrdiff_t c = 0; c < cols; c += 8) // in this order, for the rows of `to` may be pages apart
        for (ptrdiff_t r = 0; r < rows; r += 8)
            if (rows - r >= 8 && cols - c >= 8) {
                __m256 row[8];
                for (int i = 0; i < 8; i++)
                    row[i] = _mm256_loadu_ps(from + (r + i) * ldfrom + c);
                transpose_8x8(row);
                for (int i = 0; i < 8; i++)
                    _mm256_storeu_ps(to + (c + i) * ldto + r, row[i]);
            } else {
                for (ptrdiff_t i = r; i < rows && i < r + 8; i++)
                    for (ptrdiff_t j = c; j < cols && j < c + 8; j++)
                        to[j * ldto + i] = from[i * ldfrom + j];
            }
}

// Within each 128 bits: what is left of the sums of a, b, c and d, one after another.
VEC_INLINE __m256 quarter_sums_256(__m256 a, __m256 b, __m256 c, __m256 d)
{
    const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)); // a b a b
    const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    return _mm256_add_ps(_mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(1, 0, 1, 0)),
                         _mm256_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 2, 3, 2)));
}
