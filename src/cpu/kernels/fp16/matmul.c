// Y = X Wᵀ for many tokens by float16 multiply-adds (AVX512-FP16): 32 lanes in a vector instead of float32's 16.
//
//     y[t, r] = Σ_b Σ_f sx[t, b] sw[r, b] (Σ_k∈f X[t, k] W[r, k]),    X = x / sx, W = w / sw, rounded to float16
//
// over blocks b of DEPTH columns, and runs f of FLUSH columns in them. The inner sums are float16's, the outer ones float32's. sx and sw are
// powers of two that bring a block's largest magnitude below 2^X_TOP and 2^W_TOP, so that FLUSH products of the largest magnitudes stay
// below float16's 65504; what is less than 2^-14 after that, float16's subnormals, loses bits. Scales are undone where sums are carried over.
//
// Bound by arithmetic: 2 rows cols n operations. Blocked as in vec/matmul.h: the block of W, ROW_BLOCK rows, is converted once for
// TOKENS_BLOCK tokens and stays in L2 beside the sums; three panels of 32 tokens stay in L1 while the rows pass over them.
#include "cpu/kernels/kernels.h"

#ifdef __AVX512FP16__
#include "cpu/kernels/avx512/kernels.h"
#include "cpu/kernels/vec/matmul.h"

enum {
    LANES = 32, // tokens in a panel
    FLUSH = 64, // columns summed in float16
    X_TOP = 5,
    W_TOP = 4, // |X| <= 2^5 and |W| <= 2^4: sums of 64 products stay below 2^15
    TILE_TOKENS = TILE_VECS * LANES,
    TOKENS_BLOCK = 6 * TILE_TOKENS,
    BLOCK_PANEL = DEPTH * LANES, // halves of a panel's block
    HALF_SCRATCH = (int)sizeof(float) * (ROW_BLOCK * (DEPTH + TOKENS_BLOCK) + ROW_BLOCK),
};
_Static_assert(DEPTH % FLUSH == 0 && FLUSH << (X_TOP + W_TOP) < 65504, "sums stay finite");

static int blocks_of(int cols)
{
    return (cols + DEPTH - 1) / DEPTH;
}

static ptrdiff_t padded(int n)
{
    return ((ptrdiff_t)n + LANES - 1) / LANES * LANES;
}

// Packed tokens: sx (blocks, padded n), then panels of LANES tokens, each (cols, LANES) halves. An odd number of blocks in a panel
// spreads the panels' blocks over the sets of a cache.
static ptrdiff_t half_panel_size(int cols)
{
    return (ptrdiff_t)(blocks_of(cols) | 1) * BLOCK_PANEL;
}

static size_t half_size(int n, int cols)
{
    return (size_t)padded(n) * blocks_of(cols) * sizeof(float) + (size_t)(padded(n) / LANES * half_panel_size(cols)) * 2;
}

static uint16_t *panels_of(void *packed, int n, int cols)
{
    return (uint16_t *)((float *)packed + padded(n) * blocks_of(cols));
}

// The power of two, and its inverse, that brings magnitudes of the float32 bits `most` below 2^top. Of what is NaN or infinite: 1.
VEC_INLINE __m512 scale_of(__m512i most, int top, __m512 *inverse)
{
    // 2^(e - 126) bounds a magnitude of exponent field e; both scales must be normal.
    __m512i e = _mm512_srli_epi32(most, 23);
    e = _mm512_mask_mov_epi32(e, _mm512_cmpeq_epi32_mask(e, _mm512_set1_epi32(255)), _mm512_set1_epi32(126 + top));
    e = _mm512_max_epi32(e, _mm512_set1_epi32(top));
    const __m512i field = _mm512_sub_epi32(e, _mm512_set1_epi32(top - 1));
    *inverse = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(254), field), 23));
    return _mm512_castsi512_ps(_mm512_slli_epi32(field, 23));
}

// One block of one panel: x (tokens, ldx), depth columns.
static void pack_block(uint16_t *to, float *scales, const float *x, ptrdiff_t ldx, int tokens, int depth)
{
    float column[DEPTH][LANES];
    if (tokens < LANES)
        memset(column, 0, sizeof column);
    transpose(column[0], LANES, x, ldx, tokens, depth);
    __m512i most[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (int k = 0; k < depth; k++)
        for (int i = 0; i < 2; i++)
            most[i] = _mm512_max_epi32(most[i], _mm512_castps_si512(vec_abs(vec_load(column[k] + i * VEC))));
    vec inverse[2];
    for (int i = 0; i < 2; i++)
        vec_store(scales + i * VEC, scale_of(most[i], X_TOP, &inverse[i]));
    for (int k = 0; k < depth; k++)
        for (int i = 0; i < 2; i++)
            vec_store_fp16(to + k * LANES + i * VEC, vec_mul(vec_load(column[k] + i * VEC), inverse[i]));
}

static void half_pack(void *packed, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    uint16_t *panels = panels_of(packed, n, cols);
    for (int k = first_col; k < last_col; k += DEPTH)
        for (ptrdiff_t t = 0; t < n; t += LANES)
            pack_block(panels + t / LANES * half_panel_size(cols) + (ptrdiff_t)k * LANES,
                       (float *)packed + k / DEPTH * padded(n) + t, x + t * ldx + k, ldx, n - t < LANES ? (int)(n - t) : LANES,
                       last_col - k < DEPTH ? last_col - k : DEPTH);
}

// ---------------------------------------------------------------------------------------- weights

VEC_INLINE int largest_of_16bit(__m512i x) // unsigned
{
    const __m256i a = _mm256_max_epu16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    const __m128i b = _mm_max_epu16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    return 0xffff - _mm_extract_epi16(_mm_minpos_epu16(_mm_xor_si128(b, _mm_set1_epi16(-1))), 0);
}

// 32 elements from `at` on, n of them and zeros, as they are; fp8 as halves, see fp8_unit().
VEC_INLINE __m512i load_bits(enum dtype type, const void *w, ptrdiff_t at, int n)
{
    const __mmask32 live = n < LANES ? (__mmask32)((1u << n) - 1) : ~(__mmask32)0;
    if (dtype_sizes[type] == 2)
        return _mm512_maskz_loadu_epi16(live, (const uint16_t *)w + at);
    const __m256i bytes = _mm256_maskz_loadu_epi8(live, (const uint8_t *)w + at);
    if (type == DTYPE_FP8_E5M2)
        return _mm512_slli_epi16(_mm512_cvtepu8_epi16(bytes), 8);
    return _mm512_and_si512(_mm512_slli_epi16(_mm512_cvtepi8_epi16(bytes), 7), _mm512_set1_epi16((short)0xbfff));
}

VEC_INLINE float power_of_two(int n) // of a normal float
{
    return (union {
               uint32_t bits;
               float value;
           }){(uint32_t)(n + 127) << 23}
        .value;
}

// A row's block to halves, each written twice, one beside the other: broadcasting 32 bits from memory takes a load alone, 16 a shuffle too.
// Returns sw.
VEC_INLINE float convert_row(enum dtype type, uint32_t *to, const void *w, ptrdiff_t at, int depth)
{
    enum { N = DEPTH / LANES };
    __m512i bits[N], most = _mm512_setzero_si512();
    for (int i = 0; i < N; i++) {
        const int left = depth - i * LANES;
        bits[i] = load_bits(type, w, at + i * LANES, left < 0 ? 0 : left);
        most = _mm512_max_epu16(most, _mm512_and_si512(bits[i], _mm512_set1_epi16(0x7fff)));
    }
    const __m512i low = _mm512_set_epi16(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4, 4, 3,
                                         3, 2, 2, 1, 1, 0, 0),
                  high = _mm512_or_si512(low, _mm512_set1_epi16(16));
    const int bias = type == DTYPE_BF16 ? 127 : 15, all = 2 * bias + 1;
    int e = largest_of_16bit(most) >> (type == DTYPE_BF16 ? 7 : 10); // magnitudes are below 2^(e - bias + 1)
    if (e == all)
        e = bias - 1 + W_TOP;           // NaN or infinite: as they are
    e = e < W_TOP + 1 ? W_TOP + 1 : e;  // scales must be normal
    const int n = e - bias + 1 - W_TOP; // sw = 2^n
    for (int i = 0; i < N; i++) {
        __m512i halves;
        if (type == DTYPE_BF16) {
            const vec inverse = vec_set(power_of_two(-n));
            const __m256i a = vec_to_fp16(vec_mul(vec_from_half(type, _mm512_castsi512_si256(bits[i])), inverse)),
                          b = vec_to_fp16(vec_mul(vec_from_half(type, _mm512_extracti64x4_epi64(bits[i], 1)), inverse));
            halves = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
        } else {
            const __m512h inverse = _mm512_castsi512_ph(_mm512_set1_epi16((short)((15 - n) << 10)));
            halves = _mm512_castph_si512(_mm512_mul_ph(_mm512_castsi512_ph(bits[i]), inverse));
        }
        _mm512_storeu_si512(to + i * LANES, _mm512_permutexvar_epi16(low, halves));
        _mm512_storeu_si512(to + i * LANES + 16, _mm512_permutexvar_epi16(high, halves));
    }
    return power_of_two(n) * fp8_unit(type);
}

// to (rows, DEPTH), scales (rows) = a block of w; rows of zeros fill the last tile.
VEC_INLINE void half_block(enum dtype type, uint32_t *to, float *scales, const void *w, ptrdiff_t at, int rows, int cols,
                           int depth)
{
    for (int r = 0; r < rows; r++)
        scales[r] = convert_row(type, to + r * DEPTH, w, at + r * (ptrdiff_t)cols, depth);
    for (int r = rows; r % TILE_ROWS; r++) {
        memset(to + r * DEPTH, 0, sizeof *to * DEPTH);
        scales[r] = 0;
    }
}

// ---------------------------------------------------------------------------------------- products

// run (TILE_ROWS, n_vecs * LANES) = the sums of a tile over n columns. w: (TILE_ROWS, DEPTH); x: n_vecs panels, `panel` halves apart.
VEC_INLINE void half_sums(int n_vecs, uint16_t *run, const uint32_t *w, const uint16_t *x, ptrdiff_t panel, int n)
{
    __m512h sum[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 8
        for (int j = 0; j < TILE_VECS && j < n_vecs; j++)
            sum[r][j] = _mm512_setzero_ph();
#pragma GCC unroll 4
    for (ptrdiff_t k = 0; k < n; k++) {
        __m512h column[TILE_VECS];
#pragma GCC unroll 8
        for (int j = 0; j < TILE_VECS && j < n_vecs; j++)
            column[j] = _mm512_loadu_ph(x + j * panel + k * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < TILE_ROWS; r++) {
            const __m512h weight = _mm512_castsi512_ph(_mm512_set1_epi32((int)w[r * DEPTH + k]));
#pragma GCC unroll 8
            for (int j = 0; j < TILE_VECS && j < n_vecs; j++)
                sum[r][j] = _mm512_fmadd_ph(weight, column[j], sum[r][j]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++)
#pragma GCC unroll 8
        for (int j = 0; j < TILE_VECS && j < n_vecs; j++)
            _mm512_storeu_ph(run + (r * n_vecs + j) * LANES, sum[r][j]);
}

// c (TILE_ROWS, n_vecs * LANES) += the products of a tile, with the scales of its rows and tokens. The sums go through memory, from where
// half a vector is converted without a shuffle.
VEC_INLINE void half_tile(int n_vecs, float *c, const uint32_t *w, const float *sw, const uint16_t *x, ptrdiff_t panel,
                          const float *sx, int depth)
{
    _Alignas(64) uint16_t run[TILE_ROWS * TILE_VECS * LANES];
    for (ptrdiff_t first = 0; first < depth; first += FLUSH) {
        half_sums(n_vecs, run, w + first, x + first * LANES, panel, depth - first < FLUSH ? (int)(depth - first) : FLUSH);
        for (ptrdiff_t r = 0; r < TILE_ROWS; r++) {
            const vec scale = vec_set(sw[r]);
#pragma GCC unroll 8
            for (int j = 0; j < 2 * n_vecs; j++) {
                float *to = c + r * TOKENS_BLOCK + j * VEC;
                const vec part = vec_load_unit(DTYPE_FP16, run, r * n_vecs * LANES + j * VEC);
                vec_store(to, vec_fma(part, vec_mul(scale, vec_load(sx + j * VEC)), vec_load(to)));
            }
        }
    }
}

// c (rows, TOKENS_BLOCK) += the block's product; x: the first panel, at the block's first column.
VEC_INLINE void half_multiply(float *c, const uint32_t *w, const float *sw, int rows, const uint16_t *x, ptrdiff_t panel,
                              const float *sx, int tokens, int depth, struct block_fetch *next)
{
    for (int t = 0, vecs; t < tokens; t += vecs * LANES) {
        const int left = (tokens - t + LANES - 1) / LANES;
        vecs = left == 4 ? 2 : left < TILE_VECS ? left : TILE_VECS; // two by two rather than three and one
        const uint16_t *b = x + t / LANES * panel;
        for (ptrdiff_t r = 0; r < rows; r += TILE_ROWS) {
            float *to = c + r * TOKENS_BLOCK + t;
            fetch_block(next, next->rate);
            if (vecs == 3)
                half_tile(3, to, w + r * DEPTH, sw + r, b, panel, sx + t, depth);
            else if (vecs == 2)
                half_tile(2, to, w + r * DEPTH, sw + r, b, panel, sx + t, depth);
            else
                half_tile(1, to, w + r * DEPTH, sw + r, b, panel, sx + t, depth);
        }
    }
}

// Rows [r0, r0 + rows), tokens [t0, t0 + tokens).
VEC_INLINE void half_rows(enum dtype type, const struct matmul_args *m, int r0, int rows, int t0, int tokens)
{
    float *c = m->scratch, *sw = c + (ptrdiff_t)ROW_BLOCK * TOKENS_BLOCK;
    uint32_t *w = (uint32_t *)(sw + ROW_BLOCK);
    const ptrdiff_t panel = half_panel_size(m->cols);
    const float *scales = m->packed;
    const uint16_t *panels = panels_of((void *)(uintptr_t)m->packed, m->n, m->cols) + t0 / LANES * panel;
    const int n_tiles = (rows + TILE_ROWS - 1) / TILE_ROWS * ((tokens + TILE_TOKENS - 1) / TILE_TOKENS);
    memset(c, 0, sizeof *c * TOKENS_BLOCK * (size_t)((rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS));
    for (int k = 0; k < m->cols; k += DEPTH) {
        const int depth = m->cols - k < DEPTH ? m->cols - k : DEPTH;
        half_block(type, w, sw, m->w, (ptrdiff_t)r0 * m->cols + k, rows, m->cols, depth);
        struct block_fetch next = fetch_after(type, m, r0, rows, k, depth, DEPTH);
        next.rate = n_tiles > 0 ? (int)(next.rows * ((next.bytes + 63) / 64) + n_tiles - 1) / n_tiles : 0;
        half_multiply(c, w, sw, rows, panels + (ptrdiff_t)k * LANES, panel, scales + k / DEPTH * padded(m->n) + t0, tokens,
                      depth, &next);
    }
    transpose(m->y + t0 * m->ldy + (r0 - m->first_row), m->ldy, c, TOKENS_BLOCK, rows, tokens);
}

VEC_INLINE void half_matmul(enum dtype type, const struct matmul_args *m)
{
    // Token blocks of about equal size, in whole panels.
    const int n_blocks = (m->n + TOKENS_BLOCK - 1) / TOKENS_BLOCK, panels = (m->n + LANES - 1) / LANES;
    const int per_block = n_blocks ? (panels + n_blocks - 1) / n_blocks * LANES : 0;
    for (int t = 0; t < m->n; t += per_block)
        for (int r = m->first_row; r < m->last_row; r += ROW_BLOCK)
            half_rows(type, m, r, m->last_row - r < ROW_BLOCK ? m->last_row - r : ROW_BLOCK, t,
                      m->n - t < per_block ? m->n - t : per_block);
}

static void half_matmul_fp16(const struct matmul_args *args)
{
    half_matmul(DTYPE_FP16, args);
}
static void half_matmul_bf16(const struct matmul_args *args)
{
    half_matmul(DTYPE_BF16, args);
}
static void half_matmul_fp8(const struct matmul_args *args)
{
    half_matmul(DTYPE_FP8, args);
}
static void half_matmul_fp8_e5m2(const struct matmul_args *args)
{
    half_matmul(DTYPE_FP8_E5M2, args);
}

static double half_fma_loop(long rounds)
{
    enum { CHAINS = 16 };
    __m512h sum[CHAINS];
    const __m512h a = _mm512_castsi512_ph(_mm512_set1_epi16(0x3bff)), b = _mm512_castsi512_ph(_mm512_set1_epi16(1));
    for (int i = 0; i < CHAINS; i++)
        sum[i] = _mm512_castsi512_ph(_mm512_set1_epi16((short)i));
    for (long i = 0; i < rounds; i++)
#pragma GCC unroll 16
        for (int j = 0; j < CHAINS; j++)
            sum[j] = _mm512_fmadd_ph(sum[j], a, b);
    for (int i = 1; i < CHAINS; i++)
        sum[0] = _mm512_add_ph(sum[0], sum[i]);
    volatile double sink = (double)_mm512_reduce_add_ph(sum[0]); // so that it is not in vain
    (void)sink;
    return 2.0 * LANES * CHAINS * (double)rounds;
}

static const struct half_kernels kernels = {
    .size = half_size,
    .pack = half_pack,
    .product = {[DTYPE_FP16] = half_matmul_fp16,
                [DTYPE_BF16] = half_matmul_bf16,
                [DTYPE_FP8] = half_matmul_fp8,
                [DTYPE_FP8_E5M2] = half_matmul_fp8_e5m2},
    .scratch = HALF_SCRATCH,
    .least = LANES,
    .few = &half_kernels_avx512vnni,
    .rows = ROW_BLOCK,
    .fma_loop = half_fma_loop,
};

const struct half_kernels *const half_kernels_avx512fp16 = &kernels;
#else
const struct half_kernels *const half_kernels_avx512fp16 = NULL;
#endif
