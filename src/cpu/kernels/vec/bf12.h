// bf12 (model/bf12.h), for either vector width: decode's products, and rows as bfloat16 for those of many tokens. Included by
// bf12.c.
//
// Decode reads three quarters of what bfloat16 has. With AVX-512 each 16 weights cost a rotation, a shift, a table's
// permutation and one operation that joins them, beside the multiply-adds. That is 4.6 operations for 24 bytes, where bfloat16
// takes 3 for 32.
#pragma once
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vec/vec.h"
#include "model/bf12.h"

enum {
    BF12_AHEAD = 3072, // bytes, in each stream, to L1
    BF12_AHEAD_TO_L2 = 8192,
    BF12_SPLIT = 2,    // chains of additions for one row and token
    BF12_TOGETHER = 4, // tokens whose sums fit in the registers
    BF12_ROWS = VEC == 16 ? 2 : 1,
    BF12_PARTS = 16 / VEC, // vectors of a block's 16 words
};

#ifdef __AVX512F__
typedef __m512i bf12_words;
typedef __m512i bf12_table;     // of codes: the float's exponent, where a float has it
typedef __m512i bf12_exponents; // of 128 columns: their codes

VEC_INLINE bf12_table bf12_table_of(int largest)
{
    const __m512i code = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255);
    const __m512i below = _mm512_max_epi32(_mm512_sub_epi32(_mm512_set1_epi32(largest), code), _mm512_setzero_si512());
    return _mm512_slli_epi32(below, 23);
}

VEC_INLINE bf12_words bf12_signs(const uint32_t *words)
{
    return _mm512_loadu_si512(words);
}
VEC_INLINE bf12_exponents bf12_codes(const uint32_t *words, bf12_table table)
{
    (void)table;
    return _mm512_loadu_si512(words);
}

// The weights of 16 columns: turn = 0 … 3 of the 64 that `signs` holds, place = 0 … 7 of the 128 that `exponents` does;
// constants.
VEC_INLINE vec bf12_weights(bf12_words signs, bf12_exponents exponents, int turn, int place, bf12_table table)
{
    const __m512i bits = turn == 0   ? signs
                         : turn == 1 ? _mm512_rol_epi32(signs, 8)
                         : turn == 2 ? _mm512_rol_epi32(signs, 16)
                                     : _mm512_rol_epi32(signs, 24);
    // The permutation takes the lowest four bits of each code.
    const __m512i codes = place ? _mm512_srli_epi32(exponents, 4 * (unsigned)place) : exponents;
    enum { FIRST_AND_SECOND_OR_THIRD = 0xea };
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(bits, _mm512_set1_epi32((int)0x807f0000),
                                                         _mm512_permutexvar_epi32(codes, table), FIRST_AND_SECOND_OR_THIRD));
}

VEC_INLINE void bf12_store_bf16(uint16_t *to, vec x)
{
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x), 16)));
}
#elif defined __AVX2__
typedef __m256i bf12_words;
typedef __m256i bf12_table; // of codes: the exponent, twice 16 bytes
typedef struct {
    __m256i even, odd; // of 64 columns: byte i is of place 2i, of place 2i + 1
} bf12_exponents;

VEC_INLINE bf12_table bf12_table_of(int largest)
{
    const __m128i code = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, -1);
    return _mm256_broadcastsi128_si256(_mm_subs_epu8(_mm_set1_epi8((char)largest), code)); // not below 0
}

VEC_INLINE bf12_words bf12_signs(const uint32_t *words)
{
    return _mm256_loadu_si256((const __m256i *)words);
}
VEC_INLINE bf12_exponents bf12_codes(const uint32_t *words, bf12_table table)
{
    const __m256i codes = _mm256_loadu_si256((const __m256i *)words), lower = _mm256_set1_epi8(15);
    return (bf12_exponents){_mm256_shuffle_epi8(table, _mm256_and_si256(codes, lower)),
                            _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi32(codes, 4), lower))};
}

// Each word rotated left by `turn` bytes, 1 … 3.
VEC_INLINE __m256i bf12_turned(__m256i x, int turn)
{
    const int word = 0x03020100, turned = (int)((unsigned)word << 8 * turn | (unsigned)word >> (32 - 8 * turn));
    const __m128i bytes = _mm_add_epi32(_mm_set1_epi32(turned), _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(bytes));
}

// The weights of 8 columns: as above.
VEC_INLINE vec bf12_weights(bf12_words signs, bf12_exponents exponents, int turn, int place, bf12_table table)
{
    (void)table;
    const __m256i bytes = place % 2 ? exponents.odd : exponents.even;
    const __m256i moved = place < 6 ? _mm256_slli_epi32(bytes, 23 - place / 2 * 8) : _mm256_srli_epi32(bytes, 1);
    const __m256i exponent = _mm256_and_si256(moved, _mm256_set1_epi32(0x7f800000));
    const __m256i bits = turn ? bf12_turned(signs, turn) : signs;
    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32((int)0x807f0000)), exponent));
}

VEC_INLINE void bf12_store_bf16(uint16_t *to, vec x)
{
    const __m256i upper = _mm256_srli_epi32(_mm256_castps_si256(x), 16);
    _mm_storeu_si128((__m128i *)to, _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1)));
}
#else
typedef struct {
    uint32x4_t low, high;
} bf12_words;
typedef int bf12_table;            // the largest exponent
typedef bf12_words bf12_exponents; // of 64 columns: their codes

VEC_INLINE bf12_table bf12_table_of(int largest)
{
    return largest;
}
VEC_INLINE bf12_words bf12_signs(const uint32_t *words)
{
    return (bf12_words){vld1q_u32(words), vld1q_u32(words + 4)};
}
VEC_INLINE bf12_exponents bf12_codes(const uint32_t *words, bf12_table table)
{
    (void)table;
    return bf12_signs(words);
}

VEC_INLINE float32x4_t bf12_four(uint32x4_t signs, uint32x4_t codes, int turn, int place, bf12_table table)
{
    const uint32x4_t code = vandq_u32(vshlq_u32(codes, vdupq_n_s32(-4 * place)), vdupq_n_u32(15));
    const uint32x4_t below = vqsubq_u32(vdupq_n_u32((uint32_t)table), code); // not below 0
    const uint32x4_t exponent = vbicq_u32(vshlq_n_u32(below, 23), vceqq_u32(code, vdupq_n_u32(15)));
    const uint32x4_t bits = vorrq_u32(vshlq_u32(signs, vdupq_n_s32(8 * turn)), vshlq_u32(signs, vdupq_n_s32(8 * turn - 32)));
    return vreinterpretq_f32_u32(vorrq_u32(vandq_u32(bits, vdupq_n_u32(0x807f0000)), exponent));
}
// The weights of 8 columns: as above.
VEC_INLINE vec bf12_weights(bf12_words signs, bf12_exponents exponents, int turn, int place, bf12_table table)
{
    return (vec){bf12_four(signs.low, exponents.low, turn, place, table),
                 bf12_four(signs.high, exponents.high, turn, place, table)};
}

VEC_INLINE void bf12_store_bf16(uint16_t *to, vec x)
{
    vst1q_u16(to, vshrn_high_n_u32(vshrn_n_u32(vreinterpretq_u32_f32(x.low), 16), vreinterpretq_u32_f32(x.high), 16));
}
#endif

// sum[r][t] += a block's products. x: the first token's columns, of which there are `cols`; all constants but that and the
// pointers.
VEC_INLINE void bf12_block(int n_rows, int n_tokens, bool whole, vec sum[BF12_ROWS][BF12_TOGETHER][BF12_SPLIT],
                           const uint32_t *const block[BF12_ROWS], const bf12_table table[BF12_ROWS], const float *x,
                           ptrdiff_t ldx, int cols)
{
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++)
#pragma GCC unroll 2
        for (int part = 0; part < BF12_PARTS; part++) {
            bf12_words signs[BF12_ROWS];
            bf12_exponents exponents[BF12_ROWS];
#pragma GCC unroll 2
            for (int r = 0; r < n_rows; r++) {
                signs[r] = bf12_signs(block[r] + half * 16 + part * VEC);
                exponents[r] = bf12_codes(block[r] + 32 + part * VEC, table[r]);
            }
#pragma GCC unroll 4
            for (int turn = 0; turn < 4; turn++) {
                const int first = half * 64 + turn * 16 + part * VEC, left = cols - first;
                vec w[BF12_ROWS];
#pragma GCC unroll 2
                for (int r = 0; r < n_rows; r++)
                    w[r] = bf12_weights(signs[r], exponents[r], turn, half * 4 + turn, table[r]);
#pragma GCC unroll 4
                for (int t = 0; t < n_tokens; t++) {
                    const float *at = x + t * ldx + first;
                    const vec token = whole ? vec_load(at)
                                            : vec_load_part(left > 0 ? at : x, left < 0     ? 0
                                                                               : left < VEC ? left
                                                                                            : VEC);
#pragma GCC unroll 2
                    for (int r = 0; r < n_rows; r++)
                        sum[r][t][turn % BF12_SPLIT] = vec_fma(w[r], token, sum[r][t][turn % BF12_SPLIT]);
                }
            }
        }
}

// n_rows rows, `apart` rows from one to the next, with n_tokens tokens; both constants.
VEC_INLINE void bf12_tile(int n_rows, int apart, int n_tokens, bool fetch, bool to_l2, float *y, ptrdiff_t ldy, const char *at,
                          int cols, const float *x, ptrdiff_t ldx)
{
    const ptrdiff_t row_bytes = (ptrdiff_t)bf12_row_bytes(cols), ahead = to_l2 ? BF12_AHEAD_TO_L2 : BF12_AHEAD;
    struct bf12_row row[BF12_ROWS];
    const uint32_t *block[BF12_ROWS];
    bf12_table table[BF12_ROWS];
    vec sum[BF12_ROWS][BF12_TOGETHER][BF12_SPLIT];
#pragma GCC unroll 2
    for (int r = 0; r < n_rows; r++) {
        const char *header = at + r * apart * row_bytes;
        row[r] = bf12_row_at(header, cols);
        for (int line = 0; fetch && line < (int)bf12_header_bytes(cols); line += 64)
            fetch_line(header + ahead + line, to_l2);
        block[r] = row[r].blocks;
        table[r] = bf12_table_of(row[r].header.exponent);
#pragma GCC unroll 4
        for (int t = 0; t < n_tokens; t++)
#pragma GCC unroll 2
            for (int i = 0; i < BF12_SPLIT; i++)
                sum[r][t][i] = vec_zero();
    }
    int c = 0;
    for (; c + BF12_BLOCK <= cols; c += BF12_BLOCK) {
        if (fetch) {
#pragma GCC unroll 2
            for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
                for (int line = 0; line < BF12_BLOCK_BYTES; line += 64)
                    fetch_line((const char *)block[r] + ahead + line, to_l2);
        }
        bf12_block(n_rows, n_tokens, true, sum, block, table, x + c, ldx, BF12_BLOCK);
#pragma GCC unroll 2
        for (int r = 0; r < n_rows; r++)
            block[r] += BF12_BLOCK_BYTES / sizeof *block[r];
    }
    if (c < cols)
        bf12_block(n_rows, n_tokens, false, sum, block, table, x + c, ldx, cols - c);
#pragma GCC unroll 2
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int t = 0; t < n_tokens; t++) {
            float all = vec_total(vec_add(sum[r][t][0], sum[r][t][1]));
            for (int i = 0; i < row[r].header.n_exceptions; i++) {
                const struct bf12_exception e = row[r].exceptions[i];
                if (e.col < cols) // of a damaged file it may not be
                    all += bf16_value(e.value) * x[t * ldx + e.col];
            }
            y[t * ldy + (ptrdiff_t)r * apart] = all;
        }
}

// Where the tokens do not fit in the registers at once, the rows are read again from L1.
VEC_INLINE void bf12_tokens(int n_rows, int apart, int n_tokens, bool to_l2, float *y, ptrdiff_t ldy, const char *row, int cols,
                            const float *x, ptrdiff_t ldx)
{
    enum { WHOLE = BF12_TOGETHER };
    int t = 0;
    for (; t + WHOLE <= n_tokens; t += WHOLE)
        bf12_tile(n_rows, apart, WHOLE, t == 0, to_l2, y + t * ldy, ldy, row, cols, x + t * ldx, ldx);
    if (n_tokens % WHOLE)
        bf12_tile(n_rows, apart, n_tokens % WHOLE, t == 0, to_l2, y + t * ldy, ldy, row, cols, x + t * ldx, ldx);
}

// In streams, as bfloat16's (vec/matvec.h).
VEC_INLINE void bf12_rows(int n_tokens, float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols,
                          const float *x, ptrdiff_t ldx, bool to_l2)
{
    const ptrdiff_t row_bytes = (ptrdiff_t)bf12_row_bytes(cols);
    const int apart = (last_row - first_row) / BF12_ROWS;
    int r = first_row;
    for (; r < first_row + apart; r++)
        bf12_tokens(BF12_ROWS, apart, n_tokens, to_l2, y + (r - first_row), ldy, (const char *)w + r * row_bytes, cols, x, ldx);
    for (r = first_row + BF12_ROWS * apart; r < last_row; r++)
        bf12_tokens(1, 0, n_tokens, to_l2, y + (r - first_row), ldy, (const char *)w + r * row_bytes, cols, x, ldx);
}

VEC_INLINE void bf12_matvec(float *y, ptrdiff_t ldy, const void *w, int first_row, int last_row, int cols, const float *x,
                            ptrdiff_t ldx, int n, bool to_l2)
{
    to_l2 = to_l2 && (ptrdiff_t)n * cols * (ptrdiff_t)sizeof *x > L1_KEEPS;
    switch (n) {
    case 1:
        return bf12_rows(1, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    case 2:
        return bf12_rows(2, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    case 3:
        return bf12_rows(3, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    case 4:
        return bf12_rows(4, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    case 5:
        return bf12_rows(5, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    case 6:
        return bf12_rows(6, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    case 7:
        return bf12_rows(7, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    case 8:
        return bf12_rows(8, y, ldy, w, first_row, last_row, cols, x, ldx, to_l2);
    default: // no tokens
        return;
    }
}

// A block's 128 columns as bfloat16.
VEC_INLINE void bf12_unpack_block(uint16_t *to, const uint32_t *block, bf12_table table)
{
#pragma GCC unroll 8
    for (int place = 0; place < 8; place++)
#pragma GCC unroll 2
        for (int part = 0; part < BF12_PARTS; part++) {
            const bf12_words signs = bf12_signs(block + place / 4 * 16 + part * VEC);
            const bf12_exponents exponents = bf12_codes(block + 32 + part * VEC, table);
            bf12_store_bf16(to + 16 * place + part * VEC, bf12_weights(signs, exponents, place % 4, place, table));
        }
}

VEC_INLINE void bf12_unpack(uint16_t *to, const void *w, int first_row, int last_row, int cols)
{
    for (int r = first_row; r < last_row; r++, to += cols) {
        const struct bf12_row row = bf12_row_at((const char *)w + r * (ptrdiff_t)bf12_row_bytes(cols), cols);
        const bf12_table table = bf12_table_of(row.header.exponent);
        const uint32_t *block = row.blocks;
        int c = 0;
        for (; c + BF12_BLOCK <= cols; c += BF12_BLOCK, block += BF12_BLOCK_BYTES / sizeof *block)
            bf12_unpack_block(to + c, block, table);
        if (c < cols) {
            uint16_t last[BF12_BLOCK];
            bf12_unpack_block(last, block, table);
            memcpy(to + c, last, (size_t)(cols - c) * sizeof *to);
        }
        bf12_put_exceptions(to, &row, cols);
    }
}
