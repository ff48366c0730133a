// Y = X Wᵀ of quantised weights and many tokens by tiles of bytes (AMX-INT8). One instruction multiplies 16 rows of 64 columns
// with 16 tokens and adds to 16 x 16 sums in 32-bit integers: 1,024 multiply-adds a cycle.
//
// Tokens become 16-bit integers with a scale for each DEEP columns. So do the weights of a row: a group's scale over the
// largest of these columns is a 16-bit factor. With x = 256 x₁ + x₂, bytes with sign, and w likewise,
//
//     w · x = 65,536 Σ w₁ x₁ + 256 Σ (w₁ x₂ + w₂ x₁) + Σ w₂ x₂
//
// and the last sum is left out: it is smaller than what rounding to 16 bits has changed. That is three tile products of 64
// columns where two parts of bfloat16 each take six, and half of the bytes.
//
// Bound by arithmetic: 2 rows cols n operations for each product. Blocks: amx/tiles.h. The integer sums of a block of columns
// are stored, scaled and added to float32's in L2 while the next ones' products go on.
#include "cpu/kernels/amx/tiles.h"

#ifdef HAS_TILES
#include "cpu/kernels/vec/quant.h"

enum {
    STEP = 64, // columns of a tile
    DEEP = MATMUL16_BLOCK,
    PARTS = 2,                 // high bytes, low bytes
    LARGEST = 127 * 256 + 127, // as 16 bits: its high byte, rounded, is 127
    QUAD = 4 * SIDE * SIDE,    // sums of a pair of row tiles and a pair of panels
    SUMS_BYTES = TALL * MANY * (int)sizeof(float),
    TILES_BYTES = TALL * DEEP * PARTS,
    INTEGERS_BYTES = 3 * QUAD * (int)sizeof(int32_t),
    SCALES_BYTES = TALL * (int)sizeof(float),
};
_Static_assert((int64_t)127 * 127 * DEEP * 256 + (int64_t)2 * 127 * 128 * DEEP <= INT32_MAX, "sums fit in 32 bits");

// ------------------------------------------------------------------------------------------ tokens

// A panel: scales (blocks, SIDE tokens), in whole tiles' room; then (steps, PARTS) tiles of (SIDE quadruples of columns, SIDE
// tokens, 4).
static ptrdiff_t scales_size(int cols)
{
    const ptrdiff_t bytes = ((ptrdiff_t)cols + DEEP - 1) / DEEP * SIDE * (ptrdiff_t)sizeof(float);
    return (bytes + TILE_BYTES - 1) / TILE_BYTES * TILE_BYTES;
}

static ptrdiff_t panel_bytes(int cols)
{
    return odd_pages(scales_size(cols) + ((ptrdiff_t)cols + STEP - 1) / STEP * PARTS * TILE_BYTES);
}

static size_t tiles_size(int n, int cols)
{
    return (size_t)((n + (ptrdiff_t)PAIR - 1) / PAIR * 2 * panel_bytes(cols));
}

// 16 values of 16 bits, in lanes of 32, as their bytes.
VEC_INLINE __m128i upper_bytes(__m512i x)
{
    return _mm512_cvtepi32_epi8(_mm512_srai_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(128)), 8));
}

// Largest magnitude of n values, n <= DEEP, compared as bits: a NaN is larger than any number.
VEC_INLINE float largest(const float *x, int n)
{
    __m512i most = _mm512_setzero_si512();
    for (int i = 0; i < n; i += VEC)
        most = _mm512_max_epi32(most, _mm512_and_si512(_mm512_castps_si512(vec_load_part(x + i, n - i < VEC ? n - i : VEC)),
                                                       _mm512_set1_epi32(0x7fffffff)));
    const int32_t bits = _mm512_reduce_max_epi32(most);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// A block of columns of up to SIDE tokens; the others are zeros.
VEC_INLINE void pack_block(char *tiles, float scales[SIDE], const float *x, ptrdiff_t ldx, int tokens, int cols)
{
    _Alignas(64) float bytes[PARTS][SIDE][SIDE]; // four in each; they are only moved
    float inverse[SIDE];
    for (int t = 0; t < SIDE; t++) {
        scales[t] = t < tokens ? largest(x + t * ldx, cols) / LARGEST : 0;
        inverse[t] = scales[t] >= INT8_LEAST_SCALE ? 1 / scales[t] : 0;
    }
    memset(bytes, 0, sizeof bytes);
    for (int k = 0; k < cols; k += STEP, tiles += PARTS * TILE_BYTES) {
        for (int t = 0; t < tokens; t++)
            for (int i = 0; i < STEP; i += VEC) {
                const int left = cols - k - i;
                const vec part = left >= VEC ? vec_load(x + t * ldx + k + i)
                                 : left > 0  ? vec_load_part(x + t * ldx + k + i, left)
                                             : vec_zero();
                const __m512i q = _mm512_cvtps_epi32(vec_mul(part, vec_set(inverse[t])));
                _mm_store_si128((__m128i *)((char *)bytes[0][t] + i), upper_bytes(q));
                _mm_store_si128((__m128i *)((char *)bytes[1][t] + i), _mm512_cvtepi32_epi8(q));
            }
        for (int p = 0; p < PARTS; p++)
            transpose_tile((float *)(tiles + p * TILE_BYTES), SIDE, bytes[p][0], SIDE, SIDE);
    }
}

static void pack(void *to, const float *x, ptrdiff_t ldx, int n, int cols, int first_col, int last_col)
{
    for (ptrdiff_t t = 0; t < (n + PAIR - 1) / PAIR * PAIR; t += SIDE) {
        char *panel = (char *)to + t / SIDE * panel_bytes(cols), *tiles = panel + scales_size(cols);
        const int tokens = n - t < 0 ? 0 : n - t < SIDE ? (int)(n - t) : SIDE;
        for (int k = first_col; k < last_col; k += DEEP)
            pack_block(tiles + (ptrdiff_t)k / STEP * PARTS * TILE_BYTES, (float *)panel + (ptrdiff_t)k / DEEP * SIDE,
                       x + t * ldx + k, ldx, tokens, last_col - k < DEEP ? last_col - k : DEEP);
    }
}

// ------------------------------------------------------------------------------------------ weights

struct tiles {
    const struct product_args *m;
    float *sums;     // (TALL / SIDE, MANY / SIDE) tiles of (SIDE rows, SIDE tokens)
    char *w;         // (TALL / SIDE, steps, PARTS) tiles of (SIDE rows, STEP columns)
    float *scales;   // (TALL)
    int32_t *middle; // 2 QUADs of integer sums, in turns: of products of a high and a low byte;
    int32_t *high;   // a QUAD: of two high ones
    ptrdiff_t panel, panel_scales;
};

// The largest magnitude of a type's quants; those of most have six bits.
VEC_INLINE int largest_quant(enum dtype type)
{
    switch (dtype_quants[type]) {
    case DTYPE_Q8:
    case DTYPE_IQ4NL:
        return 128;
    case DTYPE_IQ3S:
        return 64;
    case DTYPE_Q4:
        return 8;
    case DTYPE_Q5K:
        return 16;
    case DTYPE_Q3K:
    case DTYPE_Q2K:
        return 4;
    default:
        return 32;
    }
}

// Two groups' quants as 16-bit numbers, 2^15 / largest_quant() for each: of 16 columns, a quarter of a vector, the first eight
// in q[0], the others in q[1].
VEC_INLINE void pair_quants(enum dtype type, __m512i q[2], struct quants_at at, int groups)
{
    const unsigned shift = dtype_quants[type] == DTYPE_Q4 ? 0 : 7 - (unsigned)__builtin_ctz((unsigned)largest_quant(type));
    _Alignas(64) uint8_t bytes[2 * QUANT_GROUP];
    bytes_in_order(type, bytes, at, groups);
    const __m512i quants = _mm512_xor_si512(_mm512_load_si512(bytes), _mm512_set1_epi8(BYTES_PLUS)),
                  zero = _mm512_setzero_si512();
    q[0] = _mm512_slli_epi16(_mm512_unpacklo_epi8(zero, quants), shift);
    q[1] = _mm512_slli_epi16(_mm512_unpackhi_epi8(zero, quants), shift);
}

// Floats as 16-bit integers, twice in each lane.
VEC_INLINE __m512i twice(vec x)
{
    const __m512i q = _mm512_cvtps_epi32(x);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, q, _mm512_slli_epi32(q, 16));
}

// A row's block of columns: `groups` groups, as 16-bit integers, into tiles; returns their scale. Products are counted in 256.
VEC_INLINE float convert_row(enum dtype type, char *to, struct quants_at at, const struct group_scales s, int groups)
{
    const vec most = ivec_as_floats(ivec_larger(_mm512_castps_si512(vec_abs(s.scale[0])), vec_abs(s.scale[1])));
    const vec lifts = ivec_as_floats(ivec_larger(_mm512_castps_si512(vec_abs(s.lift[0])), vec_abs(s.lift[1])));
    const vec whole = vec_set((float)largest_quant(type)), reach = vec_fma(most, whole, lifts);
    const float largest = largest_magnitude(&reach, 1),
                fit = dtype_is_affine(type) ? LARGEST - 2 : LARGEST; // two roundings more
    const vec unit = vec_set(largest > 0 ? fit / largest : 0), factor = vec_mul(whole, unit);
    const __m512i first = twice(vec_mul(s.scale[0], factor)), second = twice(vec_mul(s.scale[1], factor)),
                  lift = twice(vec_mul(s.lift[0], unit)), second_lift = twice(vec_mul(s.lift[1], unit));
    const __m512i half = _mm512_setr_epi32(0, 0, 0, 0, 16, 16, 16, 16, 1, 1, 1, 1, 17, 17, 17, 17),
                  group = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    for (int g = 0; g < groups; g += 2, to += PARTS * TILE_BYTES) {
        const __m512i at_half = _mm512_add_epi32(half, _mm512_set1_epi32(g)),
                      at_group = _mm512_add_epi32(group, _mm512_set1_epi32(g));
        const __m512i f = dtype_has_halves(type) ? _mm512_permutex2var_epi32(first, at_half, second)
                                                 : _mm512_permutexvar_epi32(at_group, first);
        const __m512i more = dtype_has_halves(type) ? _mm512_permutex2var_epi32(lift, at_half, second_lift)
                                                    : _mm512_permutexvar_epi32(at_group, lift);
        __m512i q[2], high[2], low[2];
        pair_quants(type, q, groups_on(type, at, g), groups - g < 2 ? 1 : 2);
        for (int i = 0; i < 2; i++) {
            q[i] = _mm512_mulhrs_epi16(q[i], f);
            if (dtype_is_affine(type))
                q[i] = _mm512_add_epi16(q[i], more);
            high[i] = _mm512_srai_epi16(_mm512_add_epi16(q[i], _mm512_set1_epi16(128)), 8);
            low[i] = _mm512_and_si512(q[i], _mm512_set1_epi16(255));
        }
        _mm512_store_si512(to, _mm512_packs_epi16(high[0], high[1]));
        _mm512_store_si512(to + TILE_BYTES, _mm512_packus_epi16(low[0], low[1]));
    }
    return largest / fit * 256;
}

// Columns [k, k + depth) of rows [r0, r0 + rows). Rows of zeros fill the last pair.
VEC_INLINE void convert_tiles(enum dtype type, const struct tiles *a, int r0, int rows, int k, int depth)
{
    enum { AHEAD = 8 }; // rows, of which what fetch_tiles() has left out is fetched
    const struct product_args *m = a->m;
    const int tiles = (depth + STEP - 1) / STEP * PARTS, group = k / QUANT_GROUP;
    for (int r = 0; r < (rows + PAIR - 1) / PAIR * PAIR; r++) {
        char *to = a->w + r / SIDE * (ptrdiff_t)(tiles * TILE_BYTES) + r % SIDE * 64;
        if (r + AHEAD < rows) {
            __builtin_prefetch(quants_of_row(type, m, r0 + r + AHEAD, group).high);
            __builtin_prefetch(scales_of_row(type, m, r0 + r + AHEAD, group));
        }
        if (r < rows) {
            const uint8_t *scales = scales_of_row(type, m, r0 + r, group);
            a->scales[r] =
                convert_row(type, to, quants_of_row(type, m, r0 + r, group),
                            load_scales(type, quants_of_row(type, m, r0 + r, group), scales, (int)quant_groups(depth)),
                            (int)quant_groups(depth));
            continue;
        }
        a->scales[r] = 0;
        for (int i = 0; i < tiles; i++)
            _mm512_store_si512(to + (ptrdiff_t)i * TILE_BYTES, _mm512_setzero_si512());
    }
}

// ------------------------------------------------------------------------------------------ tiles

// A pair of row tiles, a pair of panels, a block of columns.
struct quad {
    const char *w[2], *x[2]; // (steps, PARTS) tiles
    const float *w_scales;   // (PAIR)
    vec x_scales[2];         // of the tokens of each panel
    int32_t *middle;         // (QUAD)
    float *sums[2];          // of each row tile: its first token tile; the second follows
    bool add;                // to the sums, else they begin with this block
    float *y;                // (tokens, ldy), where the sums go after the last block; else NULL
    int rows, tokens;        // of y; may be more than a PAIR
};

// Four products. With `start` the sums until then go there, and the tiles begin anew: one by one, so that others' products go
// on meanwhile. (With all four stored after a product and set to zero before the next one, products took 1.14 to 1.28 times as
// long.)
VEC_INLINE void pair_products(const char *w0, const char *w1, const char *x0, const char *x1, int32_t *start)
{
    MEMORY_BARRIER();
    _tile_loadd(4, w0, 64);
    _tile_loadd(6, x0, 64);
    if (start) {
        _tile_stored(0, start, 64);
        _tile_zero(0);
    }
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, x1, 64);
    if (start) {
        _tile_stored(1, start + SIDE * SIDE, 64);
        _tile_zero(1);
    }
    _tile_dpbssd(1, 4, 7);
    _tile_loadd(5, w1, 64);
    if (start) {
        _tile_stored(2, start + 2 * SIDE * SIDE, 64);
        _tile_zero(2);
    }
    _tile_dpbssd(2, 5, 6);
    if (start) {
        _tile_stored(3, start + 3 * SIDE * SIDE, 64);
        _tile_zero(3);
    }
    _tile_dpbssd(3, 5, 7);
    MEMORY_BARRIER();
}

// Tile i, of four, of the quad's sums = or += the integers, scaled; and on to y.
VEC_INLINE void add_tile(const struct quad *q, int i, const int32_t *high, ptrdiff_t ldy)
{
    const float *scales = q->w_scales + i / 2 * SIDE;
    float *sums = q->sums[i / 2] + i % 2 * SIDE * SIDE;
    for (int r = 0; r < SIDE; r++) {
        const ptrdiff_t at = i * SIDE * SIDE + r * SIDE;
        const __m512i sum =
            _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(high + at), 8), _mm512_load_si512(q->middle + at));
        const vec scale = vec_mul(vec_set(scales[r]), q->x_scales[i % 2]), value = _mm512_cvtepi32_ps(sum);
        vec_store(sums + r * SIDE, q->add ? vec_fma(value, scale, vec_load(sums + r * SIDE)) : vec_mul(value, scale));
    }
    if (q->y)
        store_tile(q->y, ldy, i, sums, q->rows, q->tokens);
}

// The products of a quad, and between them what is still to be done of the one before, if any.
VEC_INLINE void quad_products(const struct quad *q, int steps, const struct quad *before, int32_t *high, ptrdiff_t ldy,
                              const struct fetches *fetches)
{
    int done = before ? 0 : 4;
    for (int s = 0; s < 2 * steps; s++) { // a high byte and a low one
        const ptrdiff_t at = s / 2 * (PARTS * TILE_BYTES), w = at + s % 2 * TILE_BYTES, x = at + (1 - s % 2) * TILE_BYTES;
        pair_products(q->w[0] + w, q->w[1] + w, q->x[0] + x, q->x[1] + x, s == 0 ? high : NULL);
        if (s % 2 == 0)
            fetch_step(fetches, s / 2);
        if (s > 0 && done < 4)
            add_tile(before, done++, high, ldy);
    }
    for (int s = 0; s < steps; s++) { // two high ones
        const ptrdiff_t at = s * (ptrdiff_t)(PARTS * TILE_BYTES);
        pair_products(q->w[0] + at, q->w[1] + at, q->x[0] + at, q->x[1] + at, s == 0 ? q->middle : NULL);
        if (done < 4)
            add_tile(before, done++, high, ldy);
    }
    while (done < 4)
        add_tile(before, done++, high, ldy);
}

// The last quad's sums.
VEC_INLINE void end_products(const struct quad *q, int32_t *high, ptrdiff_t ldy)
{
    MEMORY_BARRIER();
    _tile_stored(0, high, 64);
    _tile_stored(1, high + SIDE * SIDE, 64);
    _tile_stored(2, high + 2 * SIDE * SIDE, 64);
    _tile_stored(3, high + 3 * SIDE * SIDE, 64);
    MEMORY_BARRIER();
    for (int i = 0; i < 4; i++)
        add_tile(q, i, high, ldy);
}

// Rows [r0, r0 + rows), tokens [t0, t0 + tokens), columns [k, k + depth).
VEC_INLINE void tiles_block(enum dtype type, const struct tiles *a, int r0, int rows, int t0, int tokens, int k, int depth)
{
    const struct product_args *m = a->m;
    const int steps = (depth + STEP - 1) / STEP, row_pairs = (rows + PAIR - 1) / PAIR, token_pairs = (tokens + PAIR - 1) / PAIR;
    const ptrdiff_t tall = (ptrdiff_t)steps * PARTS * TILE_BYTES;
    const char *panels = (const char *)m->x + t0 / SIDE * a->panel, *first = panels + a->panel_scales,
               *x0 = first + (ptrdiff_t)k / STEP * PARTS * TILE_BYTES;
    convert_tiles(type, a, r0, rows, k, depth);
    const struct block block = {
        .m = m,
        .r0 = r0,
        .rows = rows,
        .t0 = t0,
        .tokens = tokens,
        .ends = k + depth == m->cols,
        .steps = steps,
        .step_lines = PARTS * TILE_BYTES / 64,
        .panel = a->panel,
        .x = x0,
        .x_after = k + depth == m->cols ? first : x0 + tall,
    };
    struct block_fetch next =
        fetch_tiles(planes_of(type, m->type), m, r0, rows, k, depth, DEEP, row_pairs * token_pairs * steps);
    struct quad quads[2]; // this one and the one before, in turns
    const struct quad *before = NULL;
    int turn = 0;
    for (int t = 0; t < token_pairs; t++) {
        const char *x = x0 + 2 * t * a->panel;
        const float *x_scales = (const float *)(panels + 2 * t * a->panel) + (ptrdiff_t)k / DEEP * SIDE;
        for (int r = 0; r < row_pairs; r++, turn ^= 1) {
            float *sums = a->sums + 2 * (r * (ptrdiff_t)(MANY / SIDE) + t) * SIDE * SIDE;
            const struct fetches fetches = block_fetches(&block, &next, t, r);
            quads[turn] = (struct quad){
                .w = {a->w + 2 * r * tall, a->w + (2 * r + 1) * tall},
                .x = {x, x + a->panel},
                .w_scales = a->scales + r * PAIR,
                .x_scales = {vec_load(x_scales), vec_load((const float *)((const char *)x_scales + a->panel))},
                .middle = a->middle + turn * QUAD,
                .sums = {sums, sums + MANY / SIDE * SIDE * SIDE},
                .add = k > 0,
                .y = block.ends ? fetches.y : NULL,
                .rows = rows - r * PAIR,
                .tokens = tokens - t * PAIR,
            };
            quad_products(&quads[turn], steps, before, a->high, m->ldy, &fetches);
            before = &quads[turn];
        }
    }
    if (before)
        end_products(before, a->high, m->ldy);
}

VEC_INLINE void tiles_matmul(enum dtype type, const struct product_args *m)
{
    char *scratch = m->scratch;
    const struct tiles a = {
        .m = m,
        .sums = (float *)scratch,
        .w = scratch + SUMS_BYTES,
        .middle = (int32_t *)(scratch + SUMS_BYTES + TILES_BYTES),
        .high = (int32_t *)(scratch + SUMS_BYTES + TILES_BYTES) + 2 * QUAD,
        .scales = (float *)(scratch + SUMS_BYTES + TILES_BYTES + INTEGERS_BYTES),
        .panel = panel_bytes(m->cols),
        .panel_scales = scales_size(m->cols),
    };
    configure_tiles();
    const int per_block = tokens_a_block(m->n), tall = rows_a_block(m->n);
    for (int t = 0; t < m->n; t += per_block)
        for (int r = m->first_row; r < m->last_row; r += tall)
            for (int k = 0; k < m->cols; k += DEEP)
                tiles_block(type, &a, r, m->last_row - r < tall ? m->last_row - r : tall, t,
                            m->n - t < per_block ? m->n - t : per_block, k, m->cols - k < DEEP ? m->cols - k : DEEP);
    _tile_release();
}

#define PRODUCT(TYPE, type, form)                                                                                              \
    static void form##_##type(const struct product_args *args)                                                                 \
    {                                                                                                                          \
        tiles_matmul(DTYPE_##TYPE, args);                                                                                      \
    }
#define PRODUCT_ENTRY(TYPE, type, form) [DTYPE_##TYPE] = form##_##type,
QUANT_KERNELS(PRODUCT, product)

TILES_LOOP(_tile_dpbssd)

const struct matmul16 matmul16_tiles_bytes = {
    .name = "tiles of bytes, as 16-bit integers",
    .size = tiles_size,
    .pack = pack,
    .product = {QUANT_TYPES(PRODUCT_ENTRY, product)},
    .scratch = SUMS_BYTES + TILES_BYTES + INTEGERS_BYTES + SCALES_BYTES,
    .rows = TALL,
    .fma_loop = tiles_loop,
};
#else
const struct matmul16 matmul16_tiles_bytes;
#endif
