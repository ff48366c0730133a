// NoMAD's kernels for either vector width, but for the scores (vec/nomad_avx2.h, vec/nomad_avx512.h); included by nomad.c. What
// they compute is in nomad.h. A row of 16 centroids is one vector of AVX-512, two of AVX2.
#pragma once
#include <math.h>

#include "cpu/kernels/nomad.h"
#include "cpu/kernels/vec/vec.h"

enum { PIECES = NOMAD_CENTROIDS / VEC }; // vectors in a row
enum { NOMAD_AHEAD = 4096 };             // bytes of codes that are fetched before they are needed

VEC_INLINE float vec_least(vec x)
{
    return -vec_largest(vec_sub(vec_zero(), x));
}

VEC_INLINE void nomad_encode(int d_sub, uint8_t *codes, const float *key, const struct nomad_book *book)
{
    const float *centroids = book->centroids;
    for (int s = 0; s < book->n_sub; s++, key += d_sub, centroids += d_sub * NOMAD_CENTROIDS) {
        vec distance[PIECES], least = vec_set(INFINITY);
        for (int p = 0; p < PIECES; p++) {
            distance[p] = vec_zero();
            for (int i = 0; i < d_sub; i++) {
                const vec x = vec_sub(vec_set(key[i]), vec_load(centroids + i * NOMAD_CENTROIDS + p * VEC));
                distance[p] = vec_fma(x, x, distance[p]);
            }
            least = vec_min(distance[p], least);
        }
        least = vec_set(vec_least(least));
        unsigned equal = 0;
        for (int p = 0; p < PIECES; p++)
            equal |= vec_equal_bits(distance[p], least) << p * VEC;
        codes[s] = equal ? (uint8_t)__builtin_ctz(equal) : 0;
    }
}

VEC_INLINE void nomad_encode_any(uint8_t *codes, const float *key, const struct nomad_book *book)
{
    if (book->d_sub == 1)
        nomad_encode(1, codes, key, book);
    else if (book->d_sub == 2)
        nomad_encode(2, codes, key, book);
    else
        nomad_encode(4, codes, key, book);
}

VEC_INLINE void nomad_table(const struct nomad_table *table, const float *q, const struct nomad_book *book, float *scratch)
{
    struct nomad_range range = {0};
    const int n_sub = book->n_sub, d_sub = book->d_sub;
    for (int s = 0; s < n_sub; s++) {
        vec row[PIECES], least = vec_set(INFINITY), largest = vec_set(-INFINITY);
        for (int p = 0; p < PIECES; p++) {
            row[p] = vec_zero();
            for (int i = 0; i < d_sub; i++)
                row[p] = vec_fma(vec_set(q[s * d_sub + i]),
                                 vec_load(book->centroids + (s * d_sub + i) * NOMAD_CENTROIDS + p * VEC), row[p]);
            least = vec_min(least, row[p]);
            largest = vec_max(largest, row[p]);
        }
        const float low = vec_least(least);
        nomad_range_add(&range, low, vec_largest(largest));
        for (int p = 0; p < PIECES; p++)
            vec_store(scratch + s * NOMAD_CENTROIDS + p * VEC, vec_sub(row[p], vec_set(low)));
    }
    const float a = nomad_factor(&range, n_sub, table->base, table->step);
    memset(table->entries, 0, nomad_block_bytes(n_sub));
    for (int i = 0; a > 0 && i < n_sub * NOMAD_CENTROIDS; i += VEC)
        vec_store_bytes(table->entries + i, vec_mul(vec_load(scratch + i), vec_set(a)));
}

VEC_INLINE void nomad_decode(float *y, const uint8_t *block, const struct nomad_book *book)
{
    enum { COLUMNS = 16 };
    const int d = book->n_sub * book->d_sub;
    float tile[COLUMNS * NOMAD_BLOCK]; // (components, keys)
    for (int first = 0; first < d; first += COLUMNS) {
        const int n = d - first < COLUMNS ? d - first : COLUMNS;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < NOMAD_BLOCK; j += VEC)
                vec_store(tile + i * NOMAD_BLOCK + j,
                          vec_look_up_16(book->centroids + (first + i) * NOMAD_CENTROIDS,
                                         block + (first + i) / book->d_sub * NOMAD_ROW + j % NOMAD_ROW, j >= NOMAD_ROW));
        transpose(y + first, d, tile, NOMAD_BLOCK, n, NOMAD_BLOCK);
    }
}
