// Y = X Wᵀ for many tokens by tiles of bfloat16 (AMX-BF16). One instruction multiplies 16 rows of 32 columns with 16 tokens and
// adds to 16 x 16 sums in float32: 512 multiply-adds a cycle where a core's registers do 32.
//
// A bfloat16 has 8 bits. What has more is split: x = x₁ + x₂ + x₃, each the rest rounded to bfloat16, which keeps all 24 bits
// of a float32. So is w: bf16 and fp8 have one part, fp16 two, fp32 three. Products of parts i and j with i + j beyond the
// largest number of parts are left out: they are smaller than the rounding of the largest. So float32's accuracy takes 3 tile
// products with bf16 weights, 5 with fp16, 6 with fp32. A quantised weight, scale · q, has 18 bits: it and the tokens are taken
// in two parts each, 16 bits, in 3 products. The instruction takes subnormal numbers for 0.
//
// Bound by arithmetic: 2 rows cols n operations for each product. Blocks: amx/tiles.h; of (TALL, DEEP()) elements of W.
#include "cpu/kernels/amx/tiles.h"

#ifdef HAS_TILES
enum {
    STEP = 2 * SIDE,            // columns of a tile
    MOST_DEEP = MATMUL16_BLOCK, // columns in a block
    MOST_PARTS = 3,
    SUMS_BYTES = TALL * MANY * (int)sizeof(float),
    TILES_BYTES = TALL * MOST_DEEP * MOST_PARTS * (int)sizeof(uint16_t),
};

// Columns in a block where tokens have so many parts: a pair of panels is to stay in L1.
#define DEEP(packed) ((packed) == 1 ? MOST_DEEP : MOST_DEEP / 2)

// A panel of packed tokens, SIDE of them: (steps, parts) tiles of (SIDE pairs of columns, SIDE tokens, 2). There is an even
// number of panels.
static ptrdiff_t panel_bytes(int cols, int parts)
{
    return odd_pages(((ptrdiff_t)cols + STEP - 1) / STEP * parts * TILE_BYTES);
}

VEC_INLINE size_t tiles_size(int parts, int n, int cols)
{
    return (size_t)((n + (ptrdiff_t)PAIR - 1) / PAIR * 2 * panel_bytes(cols, parts));
}

// 32 columns as bfloat16, in their order, in parts: the first is the nearest, each other the rest's.
VEC_INLINE void split(int parts, __m512i part[MOST_PARTS], vec low, vec high)
{
    for (int i = 0; i < parts; i++) {
        part[i] = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        low = vec_sub(low, vec_from_half(DTYPE_BF16, _mm512_castsi512_si256(part[i])));
        high = vec_sub(high, vec_from_half(DTYPE_BF16, _mm512_extracti64x4_epi64(part[i], 1)));
    }
}

// The same of elements at … at + n - 1 of an array, then zeros; n <= 32.
VEC_INLINE void split_elements(enum dtype type, int parts, __m512i part[MOST_PARTS], const void *from, ptrdiff_t at, int n)
{
    if (type == DTYPE_BF16) {
        part[0] = _mm512_maskz_loadu_epi16(n < STEP ? (__mmask32)((1u << n) - 1) : ~(__mmask32)0, (const uint16_t *)from + at);
        return;
    }
    vec low, high;
    if (n >= STEP) {
        low = vec_load_as(type, from, at);
        high = vec_load_as(type, from, at + VEC);
    } else {
        low = vec_load_part_as(type, from, at, n < VEC ? n : VEC);
        high = n <= VEC ? vec_zero() : vec_load_part_as(type, from, at + VEC, n - VEC);
    }
    split(parts, part, low, high);
}

// The same of a group of quants. Of q4 there are 16 possible weights: these are split, and each column takes its own.
VEC_INLINE void split_group(enum dtype type, int parts, __m512i part[MOST_PARTS], const uint8_t *quants, vec scale)
{
    if (type == DTYPE_Q8) {
        split(parts, part, vec_mul(vec_load_int8((const int8_t *)quants), scale),
              vec_mul(vec_load_int8((const int8_t *)quants + VEC), scale));
        return;
    }
    vec rest = vec_mul(scale, _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1));
    __m512i column =
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)quants)); // a byte is two columns, the low four bits first
    column = _mm512_and_si512(_mm512_or_si512(column, _mm512_slli_epi32(column, 12)), _mm512_set1_epi16(15));
    for (int i = 0; i < parts; i++) {
        const __m256i bits = (__m256i)_mm512_cvtneps_pbh(rest);
        rest = vec_sub(rest, vec_from_half(DTYPE_BF16, bits));
        part[i] = _mm512_permutexvar_epi16(column, _mm512_castsi256_si512(bits));
    }
}

// ------------------------------------------------------------------------------------------ tokens

VEC_INLINE void pack_parts(int parts, void *packed, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    _Alignas(64) float pairs[MOST_PARTS][SIDE][SIDE]; // of bfloat16; they are only moved
    for (ptrdiff_t t = 0; t < (n + PAIR - 1) / PAIR * PAIR; t += SIDE) {
        char *panel = (char *)packed + t / SIDE * panel_bytes(cols, parts);
        const int tokens = n - t < 0 ? 0 : n - t < SIDE ? (int)(n - t) : SIDE;
        memset(pairs, 0, sizeof pairs);
        for (int k = first_col; k < last_col; k += STEP) {
            for (int i = 0; i < tokens; i++) {
                __m512i part[MOST_PARTS];
                split_elements(DTYPE_FP32, parts, part, x + (t + i) * ldx + k, 0, last_col - k < STEP ? last_col - k : STEP);
                for (int p = 0; p < parts; p++)
                    _mm512_store_si512(pairs[p][i], part[p]);
            }
            for (int p = 0; p < parts; p++)
                transpose_tile((float *)(panel + ((ptrdiff_t)k / STEP * parts + p) * TILE_BYTES), SIDE, pairs[p][0], SIDE,
                               SIDE);
        }
    }
}

// ------------------------------------------------------------------------------------------ weights

// One product, and the scratch by name.
struct tiles {
    const struct product_args *m;
    float *sums; // (TALL / SIDE, MANY / SIDE) tiles of (SIDE rows, SIDE tokens)
    char *w;     // (TALL / SIDE, steps, parts) tiles of (SIDE rows, STEP columns)
    ptrdiff_t panel;
};

// Columns [col, col + n) of a row, n <= STEP, in parts.
VEC_INLINE void split_weights(enum dtype type, int parts, __m512i part[MOST_PARTS], const struct product_args *m, ptrdiff_t row,
                              int col, int n)
{
    if (!dtype_group_bytes[type]) {
        split_elements(type, parts, part, m->w, row * m->cols + col, n);
        return;
    }
    const ptrdiff_t groups = (ptrdiff_t)quant_groups(m->cols), group = row * groups + col / QUANT_GROUP,
                    bytes = (ptrdiff_t)dtype_group_bytes[type];
    const uint8_t *quants = m->w;
    const uint16_t *scales = (const uint16_t *)(quants + m->rows * groups * bytes);
    split_group(type, parts, part, quants + group * bytes, vec_set(_cvtsh_ss(scales[group])));
}

// Columns [k, k + depth) of rows [r0, r0 + rows). Rows of zeros fill the last pair.
VEC_INLINE void convert_tiles(enum dtype type, int parts, const struct tiles *a, int r0, int rows, int k, int depth)
{
    char *to = a->w;
    for (int r = 0; r < (rows + PAIR - 1) / PAIR * PAIR; r += SIDE)
        for (int c = 0; c < depth; c += STEP, to += parts * TILE_BYTES)
            for (int i = 0; i < SIDE; i++) {
                __m512i part[MOST_PARTS];
                if (r + i < rows)
                    split_weights(type, parts, part, a->m, r0 + r + i, k + c, depth - c < STEP ? depth - c : STEP);
                for (int p = 0; p < parts; p++)
                    _mm512_store_si512(to + p * TILE_BYTES + i * 64, r + i < rows ? part[p] : _mm512_setzero_si512());
            }
}

// ------------------------------------------------------------------------------------------ tiles

// Four tiles of sums = or += a pair of row tiles times a pair of panels. Strides in bytes.
struct quad {
    float *sums[2]; // of each row tile: its first token tile; the second follows
    bool add;
    const char *w[2]; // (steps, parts) tiles
    const char *x[2]; // (steps, packed parts) tiles
    ptrdiff_t x_step;
    int steps;
};

VEC_INLINE void quad_products(int w_parts, int x_parts, const struct quad *q, const struct fetches *fetches)
{
    const int most = w_parts > x_parts ? w_parts : x_parts;
    MEMORY_BARRIER();
    if (q->add) {
        _tile_loadd(0, q->sums[0], 64);
        _tile_loadd(1, q->sums[0] + SIDE * SIDE, 64);
        _tile_loadd(2, q->sums[1], 64);
        _tile_loadd(3, q->sums[1] + SIDE * SIDE, 64);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int s = 0; s < q->steps; s++) {
        const ptrdiff_t w = s * (ptrdiff_t)(w_parts * TILE_BYTES), x = s * q->x_step;
        fetch_step(fetches, s);
#pragma GCC unroll 3
        for (int i = 0; i < w_parts; i++) {
            _tile_loadd(4, q->w[0] + w + i * TILE_BYTES, 64);
            _tile_loadd(5, q->w[1] + w + i * TILE_BYTES, 64);
#pragma GCC unroll 3
            for (int j = 0; j < (x_parts < most - i ? x_parts : most - i); j++) {
                _tile_loadd(6, q->x[0] + x + j * TILE_BYTES, 64);
                _tile_dpbf16ps(0, 4, 6);
                _tile_loadd(7, q->x[1] + x + j * TILE_BYTES, 64);
                _tile_dpbf16ps(1, 4, 7);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
    }
    _tile_stored(0, q->sums[0], 64);
    _tile_stored(1, q->sums[0] + SIDE * SIDE, 64);
    _tile_stored(2, q->sums[1], 64);
    _tile_stored(3, q->sums[1] + SIDE * SIDE, 64);
    MEMORY_BARRIER();
}

// Rows [r0, r0 + rows), tokens [t0, t0 + tokens), columns [k, k + depth). x_parts of the `packed` parts are used.
VEC_INLINE void tiles_block(enum dtype type, int w_parts, int x_parts, int packed, const struct tiles *a, int r0, int rows,
                            int t0, int tokens, int k, int depth)
{
    const struct product_args *m = a->m;
    const int steps = (depth + STEP - 1) / STEP, row_pairs = (rows + PAIR - 1) / PAIR, token_pairs = (tokens + PAIR - 1) / PAIR;
    const bool ends = k + depth == m->cols;
    const ptrdiff_t tall = (ptrdiff_t)steps * w_parts * TILE_BYTES;
    const char *first = (const char *)m->x + t0 / SIDE * a->panel, *panels = first + (ptrdiff_t)k / STEP * packed * TILE_BYTES;
    const struct block block = {
        .m = m,
        .r0 = r0,
        .rows = rows,
        .t0 = t0,
        .tokens = tokens,
        .ends = ends,
        .steps = steps,
        .step_lines = packed * TILE_BYTES / 64,
        .panel = a->panel,
        .x = panels,
        .x_after = ends ? first : panels + steps * packed * TILE_BYTES,
    };
    convert_tiles(type, w_parts, a, r0, rows, k, depth);
    struct block_fetch next = fetch_tiles(type, m, r0, rows, k, depth, DEEP(packed), row_pairs * token_pairs * steps);
    for (int t = 0; t < token_pairs; t++) {
        const char *x = panels + 2 * t * a->panel;
        for (int r = 0; r < row_pairs; r++) {
            float *sums = a->sums + 2 * (r * (ptrdiff_t)(MANY / SIDE) + t) * SIDE * SIDE;
            const struct quad quad = {
                .sums = {sums, sums + MANY / SIDE * SIDE * SIDE},
                .add = k > 0,
                .w = {a->w + 2 * r * tall, a->w + (2 * r + 1) * tall},
                .x = {x, x + a->panel},
                .x_step = packed * TILE_BYTES,
                .steps = steps,
            };
            const struct fetches fetches = block_fetches(&block, &next, t, r);
            quad_products(w_parts, x_parts, &quad, &fetches);
            for (int i = 0; ends && i < 4; i++)
                store_tile(fetches.y, m->ldy, i, quad.sums[i / 2] + i % 2 * SIDE * SIDE, rows - r * PAIR, tokens - t * PAIR);
        }
    }
}

VEC_INLINE void tiles_matmul(enum dtype type, int w_parts, int x_parts, int packed, const struct product_args *m)
{
    const struct tiles a = {
        .m = m,
        .sums = m->scratch,
        .w = (char *)m->scratch + SUMS_BYTES,
        .panel = panel_bytes(m->cols, packed),
    };
    configure_tiles();
    const int per_block = tokens_a_block(m->n), tall = rows_a_block(m->n);
    for (int t = 0; t < m->n; t += per_block)
        for (int r = m->first_row; r < m->last_row; r += tall)
            for (int k = 0; k < m->cols; k += DEEP(packed))
                tiles_block(type, w_parts, x_parts, packed, &a, r, m->last_row - r < tall ? m->last_row - r : tall, t,
                            m->n - t < per_block ? m->n - t : per_block, k,
                            m->cols - k < DEEP(packed) ? m->cols - k : DEEP(packed));
    _tile_release();
}

TILES_LOOP(_tile_dpbf16ps)

// ------------------------------------------------------------------------------------------ forms

#define PRODUCT(form, type, dtype, w_parts, x_parts, packed)                                                                   \
    static void form##_##type(const struct product_args *args)                                                                 \
    {                                                                                                                          \
        tiles_matmul(dtype, w_parts, x_parts, packed, args);                                                                   \
    }
#define PACK(form, parts)                                                                                                      \
    static size_t form##_size(int n, int cols)                                                                                 \
    {                                                                                                                          \
        return tiles_size(parts, n, cols);                                                                                     \
    }                                                                                                                          \
    static void form##_pack(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)             \
    {                                                                                                                          \
        pack_parts(parts, to, x, ldx, n, cols, first_col, last_col);                                                           \
    }

// Tokens in three parts: whatever the weights have, nothing is lost. Two of them are multiplied with quantised weights.
PACK(three, 3)
PRODUCT(three, fp32, DTYPE_FP32, 3, 3, 3)
PRODUCT(three, fp16, DTYPE_FP16, 2, 3, 3)
PRODUCT(three, bf16, DTYPE_BF16, 1, 3, 3)
PRODUCT(three, fp8, DTYPE_FP8, 1, 3, 3)
PRODUCT(three, fp8_e5m2, DTYPE_FP8_E5M2, 1, 3, 3)
PRODUCT(three, q8, DTYPE_Q8, 2, 2, 3)
PRODUCT(three, q4, DTYPE_Q4, 2, 2, 3)

const struct matmul16 matmul16_tiles = {
    .name = "tiles of three bfloat16 parts",
    .size = three_size,
    .pack = three_pack,
    .product = {three_fp32, three_fp16, three_bf16, three_fp8, three_fp8_e5m2, three_q8, three_q4},
    .scratch = SUMS_BYTES + TILES_BYTES,
    .rows = TALL,
    .fma_loop = tiles_loop,
};

// Where tokens would be bytes, and there alone. Both factors are rounded to bfloat16, which together loses less
// (docs/quantisation.md).
PACK(one, 1)
PRODUCT(one, q8, DTYPE_Q8, 1, 1, 1)
PRODUCT(one, q4, DTYPE_Q4, 1, 1, 1)

const struct matmul16 matmul16_tiles_round = {
    .name = "tiles of bfloat16",
    .size = one_size,
    .pack = one_pack,
    .product = {[DTYPE_Q8] = one_q8, [DTYPE_Q4] = one_q4},
    .scratch = SUMS_BYTES + TILES_BYTES,
    .rows = TALL,
    .fma_loop = tiles_loop,
};
#else
const struct matmul16 matmul16_tiles, matmul16_tiles_round;
#endif
