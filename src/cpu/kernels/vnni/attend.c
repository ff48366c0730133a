// Attention for many queries (prefill) in 16-bit integers, with AVX-512 (F, BW, DQ, VL) and VNNI.
//
// As vec/attend_many.h: blocks of keys, online softmax. But VNNI multiplies and adds twice as many 16-bit integers as float32
// numbers, so all four factors become such, by vnni/fixed.h's rules. Keys and values have a power of two for a unit, and at
// most 2^14 of them. Of queries, and of the weights e^(score - max), none is beyond 2^15, and any 32 that are summed in
// integers have magnitudes of at most 2^17 together. An int8 cache's keys stay as they are.
//
// A vector has one number of each of 16 queries: a score, a sum, a maximum. So no sum goes across lanes, and the weights
// e^(score - max) are the next product's panel as they come. Keys are the rows of the first product as they lie in the cache.
// Values are turned, so the rows of the second are components; outputs stay (head_dim, queries) until all keys are done.
#include "cpu/kernels/vec/attend.h"

#include "cpu/kernels/vnni/fixed.h"

enum {
    FIXED_QUERIES = 240,    // in a block
    FIXED_KEYS = MANY_COLS, // likewise: one unit of a component's values, and of a query's weights
    FIXED_DIMS = 256,       // components at most
    DIM_BLOCKS = FIXED_DIMS / MANY_COLS,
    PANELS = FIXED_QUERIES / VEC,
    QUERY_PANEL = DIM_BLOCKS * VEC * (MANY_COLS * (int)sizeof(int16_t) + (int)sizeof(float)), // bytes: panel_bytes(FIXED_DIMS)
};

struct fixed_scratch {
    int16_t keys[DIM_BLOCKS][FIXED_KEYS][MANY_COLS];
    float key_units[DIM_BLOCKS][FIXED_KEYS];
    int16_t values[FIXED_DIMS][FIXED_KEYS];
    float value_units[FIXED_DIMS];
    float acc[FIXED_DIMS][FIXED_QUERIES];
    char queries[PANELS * QUERY_PANEL];
    // Of the panels of a tile: scores and then weights, and these as integers, pairs of keys as vnni/fixed.h's columns.
    float scores[QUANT_TILE_VECS][FIXED_KEYS][VEC];
    int16_t weights[QUANT_TILE_VECS][FIXED_KEYS * VEC];
    float weight_units[QUANT_TILE_VECS][VEC];
    float shrink[QUANT_TILE_VECS][VEC]; // what the outputs are to be multiplied by, since the maximum has grown
    // Of a block of values, a vector of components: as numbers, and turned.
    float numbers[FIXED_KEYS][VEC];
    int32_t pairs[FIXED_KEYS / 2][VEC];
    float max[FIXED_QUERIES], sum[FIXED_QUERIES];
    int first[FIXED_QUERIES], last[FIXED_QUERIES]; // of the block's keys, those that a query sees; 0, 0: none
};

// Some queries and a block of keys.
struct fixed_block {
    struct fixed_scratch *s;
    const struct attend_args *a;
    int query, n_queries, key, n_keys;
    struct fetch next_keys, next_values; // of the block after it
    int rate;                            // lines of each to fetch at a tile
};

// ------------------------------------------------------------------------------------------ packing

VEC_INLINE void fixed_key(enum kv_type type, int16_t to[MANY_COLS], float *unit, const void *keys, ptrdiff_t at, int n,
                          float scale)
{
    const int cols = n < MANY_COLS ? (n + QUANT_GROUP - 1) / QUANT_GROUP * QUANT_GROUP : MANY_COLS;
    if (type == KV_FP16) {
        const uint16_t *from = (const uint16_t *)keys + at;
        *unit = half_block(DTYPE_FP16, to, from, n, cols, half_largest(from, n, cols)) * scale;
        return;
    }
    for (int i = 0; i < cols; i += 32) {
        const __mmask32 mask = n - i < 32 ? ~0u >> (32 - (n - i)) : ~0u;
        ivec_store(to + i, _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(mask, (const int8_t *)keys + at + i)));
    }
    *unit = scale;
}

// Rows of zeros fill the last tile.
VEC_INLINE void fixed_keys(enum kv_type type, const struct fixed_block *b)
{
    const int d = b->a->head_dim;
    for (int dim = 0, i = 0; dim < d; dim += MANY_COLS, i++) {
        const int n = d - dim < MANY_COLS ? d - dim : MANY_COLS;
        int j = 0;
        for (; j < b->n_keys; j++)
            fixed_key(type, b->s->keys[i][j], &b->s->key_units[i][j], b->a->k, (b->key + j) * (ptrdiff_t)d + dim, n,
                      type == KV_INT8 ? b->a->k_scales[b->key + j] : 1);
        for (; j % QUANT_GROUP; j++) {
            memset(b->s->keys[i][j], 0, sizeof b->s->keys[i][j]);
            b->s->key_units[i][j] = 0;
        }
    }
}

// Units, and their inverses, of components whose largest magnitudes these are: powers of two, of which the largest are 2^13 to
// 2^14.
VEC_INLINE struct token_scales value_units(vec most)
{
    const __mmask16 counts = _mm512_cmp_ps_mask(most, vec_set(least_magnitude), _CMP_NLE_UQ),
                    finite = _mm512_cmp_ps_mask(most, vec_set(FLT_MAX), _CMP_LE_OQ);
    const ivec size = ivec_sub(_mm512_and_si512(_mm512_castps_si512(most), ivec_set(0x7f800000)), ivec_set(13 << 23));
    return (struct token_scales){
        .unit = _mm512_maskz_mov_ps(counts, _mm512_mask_mov_ps(most, finite, ivec_as_floats(size))),
        .inverse = _mm512_maskz_mov_ps(counts & finite, ivec_as_floats(ivec_sub(ivec_set(254 << 23), size))),
    };
}

// Components [dim, dim + VEC) of the block's values, and zeros.
VEC_INLINE void fixed_values_of(enum kv_type type, const struct fixed_block *b, int dim)
{
    struct fixed_scratch *s = b->s;
    const int d = b->a->head_dim, left = d - dim, end = (b->n_keys + QUANT_GROUP - 1) / QUANT_GROUP * QUANT_GROUP;
    for (int j = 0; j < end; j++) {
        const ptrdiff_t at = (b->key + j) * (ptrdiff_t)d + dim;
        vec v = vec_zero();
        if (j < b->n_keys)
            v = left >= VEC ? kv_load(type, b->a->v, at) : kv_load_part(type, b->a->v, at, left);
        if (j < b->n_keys && type == KV_INT8)
            v = vec_mul(v, vec_set(b->a->v_scales[b->key + j]));
        vec_store(s->numbers[j], v);
    }
    const struct token_scales units = value_units(largest_of_columns(s->numbers[0], end));
    vec_store(s->value_units + dim, units.unit);
    for (int pair = 0; pair < end / 2; pair++)
        store_pairs((int16_t *)s->pairs[pair], vec_load(s->numbers[pair_first(pair)]), vec_load(s->numbers[pair_second(pair)]),
                    units.inverse);
    transpose((float *)s->values[dim], FIXED_KEYS / 2, (const float *)s->pairs[0], VEC, end / 2, VEC);
}

VEC_INLINE void fixed_values(enum kv_type type, const struct fixed_block *b)
{
    for (int dim = 0; dim < b->a->head_dim; dim += VEC)
        fixed_values_of(type, b, dim);
}

VEC_INLINE void fixed_queries(const struct fixed_block *b)
{
    const int d = b->a->head_dim;
    struct fixed_scratch *s = b->s;
    for (int i = 0; i < b->n_queries; i += VEC) {
        const int n = b->n_queries - i < VEC ? b->n_queries - i : VEC, query = b->query + i;
        for (int dim = 0; dim < d; dim += MANY_COLS)
            quantise_panel(s->queries + i / VEC * (ptrdiff_t)panel_bytes(d), b->a->q + query * (ptrdiff_t)d, d, n, d, dim);
        transpose(&s->acc[0][i], FIXED_QUERIES, b->a->acc + query * (ptrdiff_t)d, d, n, d);
        for (int lane = 0; lane < VEC; lane++) {
            s->max[i + lane] = lane < n ? b->a->max[query + lane] : -INFINITY;
            s->sum[i + lane] = lane < n ? b->a->sum[query + lane] : 0;
        }
    }
}

VEC_INLINE void fixed_results(const struct fixed_block *b)
{
    const int d = b->a->head_dim;
    transpose(b->a->acc + b->query * (ptrdiff_t)d, d, b->s->acc[0], FIXED_QUERIES, d, b->n_queries);
    memcpy(b->a->max + b->query, b->s->max, sizeof(float) * (size_t)b->n_queries);
    memcpy(b->a->sum + b->query, b->s->sum, sizeof(float) * (size_t)b->n_queries);
}

// ------------------------------------------------------------------------------------------ products

// A product of some rows of integers with a tile's panels.
struct fixed_tile {
    struct many_tile in; // w, panel, panel_size, groups
    const float *w_units, *panel_units;
    ptrdiff_t panel_units_apart; // floats
    const float *shrink; // (n_vecs, VEC), what `to` is multiplied by before the product is added; NULL: it becomes the product
    float *to;
    ptrdiff_t row, panel; // floats, from one row of `to` to the next, and likewise
};

VEC_INLINE void fixed_product(int n_rows, int n_vecs, const struct fixed_tile *t)
{
    vec f[QUANT_TALL_ROWS][QUANT_TILE_VECS];
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 16
        for (int j = 0; j < n_vecs; j++)
            f[r][j] = vec_zero();
    tile_sums(DTYPE_FP16, n_rows, n_vecs, f, &t->in);
#pragma GCC unroll 16
    for (int j = 0; j < n_vecs; j++) {
        const vec units = vec_load(t->panel_units + j * t->panel_units_apart);
        const vec shrink = t->shrink ? vec_load(t->shrink + (ptrdiff_t)j * VEC) : vec_zero();
#pragma GCC unroll 16
        for (int r = 0; r < n_rows; r++) {
            float *to = t->to + r * t->row + j * t->panel;
            const vec unit = vec_mul(units, vec_set(t->w_units[r]));
            vec_store(to, t->shrink ? vec_fma(vec_load(to), shrink, vec_mul(f[r][j], unit)) : vec_mul(f[r][j], unit));
        }
    }
}

// Not inlined: all registers are for the tile alone.
static __attribute__((noinline)) void fixed_three(const struct fixed_tile *t)
{
    fixed_product(QUANT_TILE_ROWS, QUANT_TILE_VECS, t);
}
static __attribute__((noinline)) void fixed_two(const struct fixed_tile *t)
{
    fixed_product(QUANT_TWO_ROWS, 2, t);
}
static __attribute__((noinline)) void fixed_one(const struct fixed_tile *t)
{
    fixed_product(QUANT_TALL_ROWS, 1, t);
}

// Rows [0, rows) of t, and up to QUANT_TALL_ROWS - 1 more, which must be there.
VEC_INLINE void fixed_rows(struct fixed_block *b, int n_vecs, struct fixed_tile t, int rows)
{
    const int step = n_vecs == 1 ? QUANT_TALL_ROWS : n_vecs == 2 ? QUANT_TWO_ROWS : QUANT_TILE_ROWS;
    for (int r = 0; r < rows; r += step) {
        fetch_lines(&b->next_keys, b->rate);
        fetch_lines(&b->next_values, b->rate);
        if (n_vecs == 3)
            fixed_three(&t);
        else if (n_vecs == 2)
            fixed_two(&t);
        else
            fixed_one(&t);
        t.in.w = (const int16_t *)t.in.w + step * MANY_COLS;
        t.w_units += step;
        t.to += step * t.row;
    }
}

// scores = K q for the block's keys [from, to), whole groups, and the panels from `panel` on.
VEC_INLINE void fixed_scores(struct fixed_block *b, int panel, int n_vecs, int from, int to)
{
    const int d = b->a->head_dim;
    const ptrdiff_t size = (ptrdiff_t)panel_bytes(d);
    const char *queries = b->s->queries + panel * size;
    float ones[QUANT_TILE_VECS][VEC];
    for (int j = 0; j < QUANT_TILE_VECS; j++)
        vec_store(ones[j], vec_set(1));
    for (int dim = 0, i = 0; dim < d; dim += MANY_COLS, i++) {
        const int n = d - dim < MANY_COLS ? d - dim : MANY_COLS;
        const struct fixed_tile t = {
            .in = {.w = b->s->keys[i][from],
                   .panel = queries + (ptrdiff_t)dim * VEC * (ptrdiff_t)sizeof(int16_t),
                   .panel_size = size,
                   .groups = (n + QUANT_GROUP - 1) / QUANT_GROUP},
            .w_units = b->s->key_units[i] + from,
            .panel_units = panel_scales(queries, d) + (ptrdiff_t)i * VEC,
            .panel_units_apart = size / (ptrdiff_t)sizeof(float),
            .to = b->s->scores[0][from],
            .row = VEC,
            .panel = (ptrdiff_t)FIXED_KEYS * VEC,
            .shrink = i > 0 ? ones[0] : NULL,
        };
        fixed_rows(b, n_vecs, t, to - from);
    }
}

// acc += weights V
VEC_INLINE void fixed_outputs(struct fixed_block *b, int panel, int n_vecs, int from, int to)
{
    struct fixed_scratch *s = b->s;
    const struct fixed_tile t = {
        .in = {.w = s->values[0] + from,
               .panel = (const char *)(s->weights[0] + (ptrdiff_t)from * VEC),
               .panel_size = sizeof s->weights[0],
               .groups = (to - from) / QUANT_GROUP},
        .w_units = s->value_units,
        .panel_units = s->weight_units[0],
        .panel_units_apart = VEC,
        .to = &s->acc[0][panel * VEC],
        .row = FIXED_QUERIES,
        .panel = VEC,
        .shrink = s->shrink[0],
    };
    fixed_rows(b, n_vecs, t, b->a->head_dim);
}

// ------------------------------------------------------------------------------------------ softmax

// Which of a panel's queries see key j.
struct lanes {
    ivec first, last;
};
VEC_INLINE __mmask16 sees(bool all, const struct lanes *l, int j)
{
    return all ? 0xffff : _mm512_cmple_epi32_mask(l->first, ivec_set(j)) & _mm512_cmpgt_epi32_mask(l->last, ivec_set(j));
}

VEC_INLINE vec largest_score(bool all, const struct lanes *l, const float scores[FIXED_KEYS][VEC], int from, int to)
{
    vec most[4];
    for (int i = 0; i < 4; i++)
        most[i] = vec_set(-INFINITY);
    for (int j = from; j < to; j += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            most[i] = _mm512_mask_max_ps(most[i], sees(all, l, j + i), vec_load(scores[j + i]), most[i]);
    return vec_max(vec_max(most[0], most[1]), vec_max(most[2], most[3]));
}

// Where the maximum of a panel's queries has grown, their sums and outputs shrink. Returns the maxima.
VEC_INLINE vec fixed_shrink(struct fixed_scratch *s, int panel, int at, vec most)
{
    float *max = s->max + panel * VEC, *sum = s->sum + panel * VEC;
    const vec before = vec_load(max);
    const __mmask16 grew = _mm512_cmp_ps_mask(most, before, _CMP_GT_OQ);
    const vec now = _mm512_mask_mov_ps(before, grew, most);
    const vec shrink = _mm512_mask_mov_ps(vec_set(1), grew, vec_exp(vec_sub(before, now)));
    vec_store(max, now);
    vec_store(sum, vec_mul(shrink, vec_load(sum)));
    vec_store(s->shrink[at], shrink);
    return now;
}

// scores = e^(scores - max); `turns` are the sums of each TURN_COLS / 2 pairs of keys. Returns their sum.
VEC_INLINE vec fixed_exponentials(bool all, const struct lanes *l, float scores[FIXED_KEYS][VEC], vec max,
                                  vec turns[FIXED_KEYS / TURN_COLS], int from, int to)
{
    vec total = vec_zero();
    for (int turn = from / TURN_COLS; turn < to / TURN_COLS; turn++) {
        vec sum = vec_zero();
#pragma GCC unroll 8
        for (int i = 0; i < TURN_COLS; i++) {
            const int pair = turn * (TURN_COLS / 2) + i / 2, j = i % 2 ? pair_second(pair) : pair_first(pair);
            const vec e = _mm512_maskz_mov_ps(sees(all, l, j), exp_below(vec_sub(vec_load(scores[j]), max)));
            vec_store(scores[j], e);
            sum = vec_add(sum, e);
        }
        turns[turn] = sum;
        total = vec_add(total, sum);
    }
    return total;
}

VEC_INLINE void fixed_softmax(bool all, const struct fixed_block *b, int panel, int at, int from, int to)
{
    struct fixed_scratch *s = b->s;
    const struct lanes lanes = {ivec_load(s->first + panel * VEC), ivec_load(s->last + panel * VEC)};
    float(*scores)[VEC] = s->scores[at];
    const vec most = largest_score(all, &lanes, scores, from, to), max = fixed_shrink(s, panel, at, most);
    vec turns[FIXED_KEYS / TURN_COLS], largest = vec_zero();
    const vec total = fixed_exponentials(all, &lanes, scores, max, turns, from, to);
    vec_store(s->sum + panel * VEC, vec_add(vec_load(s->sum + panel * VEC), total));
    for (int i = from / TURN_COLS; i + TURNS <= to / TURN_COLS; i++)
        largest = vec_max(largest, vec_add(vec_add(turns[i], turns[i + 1]), vec_add(turns[i + 2], turns[i + 3])));
    // The largest weight: 0 of queries that see none of these keys.
    const vec weight =
        _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(most, vec_set(-INFINITY), _CMP_GT_OQ), exp_below(vec_sub(most, max)));
    const struct token_scales of_one = scales_to(weight, 1), scales = scales_of_sums(of_one, vec_mul(largest, of_one.inverse));
    vec_store(s->weight_units[at], scales.unit);
    for (int pair = from / 2; pair < to / 2; pair++)
        store_pairs(s->weights[at] + (ptrdiff_t)pair * 2 * VEC, vec_load(scores[pair_first(pair)]),
                    vec_load(scores[pair_second(pair)]), scales.inverse);
}

// ------------------------------------------------------------------------------------------ blocks

// The panels of a tile from `panel` on.
VEC_INLINE void fixed_panels(struct fixed_block *b, int panel, int n_vecs)
{
    struct fixed_scratch *s = b->s;
    struct view views[QUANT_TILE_VECS * VEC];
    for (int i = 0; i < n_vecs * VEC; i++) {
        const int query = panel * VEC + i;
        views[i] = query < b->n_queries ? view_of(b->a, b->query + query, b->key, b->n_keys) : (struct view){0, 0};
        s->first[query] = views[i].first;
        s->last[query] = views[i].last;
    }
    const struct view seen = view_union(views, n_vecs * VEC);
    if (seen.last == 0)
        return;
    const int from = seen.first / QUANT_GROUP * QUANT_GROUP, to = (seen.last + QUANT_GROUP - 1) / QUANT_GROUP * QUANT_GROUP;
    fixed_scores(b, panel, n_vecs, from, to);
    for (int j = 0; j < n_vecs; j++) {
        bool all = true;
        for (int i = 0; i < VEC; i++)
            all &= views[j * VEC + i].first <= from && views[j * VEC + i].last == to;
        if (all)
            fixed_softmax(true, b, panel + j, j, from, to);
        else
            fixed_softmax(false, b, panel + j, j, from, to);
    }
    fixed_outputs(b, panel, n_vecs, from, to);
}

// The block after this one is fetched while this one's tiles are multiplied.
VEC_INLINE void fixed_next(enum kv_type type, struct fixed_block *b, int last)
{
    const ptrdiff_t row_bytes = b->a->head_dim * (ptrdiff_t)kv_sizes[type];
    const int after = b->key + b->n_keys, n = last - after < FIXED_KEYS ? last - after : FIXED_KEYS;
    const int tiles =
        (b->n_keys + b->a->head_dim + QUANT_TILE_ROWS - 1) / QUANT_TILE_ROWS * ((b->n_queries + MANY_TILE - 1) / MANY_TILE);
    b->next_keys = fetch_make(b->a->k, NULL, after, n, row_bytes);
    b->next_values = fetch_make(b->a->v, NULL, after, n, row_bytes);
    b->rate = fetch_rate(&b->next_keys, tiles);
}

VEC_INLINE void fixed_attend(enum kv_type type, const struct attend_args *a)
{
    struct fixed_block b = {.s = a->scratch, .a = a};
    for (; b.query < a->n_queries; b.query += FIXED_QUERIES) {
        b.n_queries = a->n_queries - b.query < FIXED_QUERIES ? a->n_queries - b.query : FIXED_QUERIES;
        struct view views[FIXED_QUERIES];
        for (int i = 0; i < b.n_queries; i++)
            views[i] = view_of(a, b.query + i, 0, a->n_keys);
        const struct view seen = view_union(views, b.n_queries);
        fixed_queries(&b);
        for (b.key = seen.first; b.key < seen.last; b.key += FIXED_KEYS) {
            b.n_keys = seen.last - b.key < FIXED_KEYS ? seen.last - b.key : FIXED_KEYS;
            fixed_next(type, &b, seen.last);
            fixed_keys(type, &b);
            fixed_values(type, &b);
            const int panels = (b.n_queries + VEC - 1) / VEC;
            for (int panel = 0, n_vecs; panel < panels; panel += n_vecs) {
                n_vecs = panels - panel == 4 ? 2 : panels - panel < QUANT_TILE_VECS ? panels - panel : QUANT_TILE_VECS;
                fixed_panels(&b, panel, n_vecs);
            }
        }
        fixed_results(&b);
    }
}

static void fixed_fp16(const struct attend_args *args)
{
    fixed_attend(KV_FP16, args);
}
static void fixed_int8(const struct attend_args *args)
{
    fixed_attend(KV_INT8, args);
}
static double fixed_dot_loop(long rounds)
{
    return dot_loop(rounds) / 2;
}

const struct fixed_attention fixed_attention_avx512vnni = {
    .attend = {[KV_FP16] = fixed_fp16, [KV_INT8] = fixed_int8},
    .scratch = sizeof(struct fixed_scratch),
    .most_dim = FIXED_DIMS,
    .least = VEC,
    .queries = FIXED_QUERIES,
    .dot_loop = fixed_dot_loop,
};
