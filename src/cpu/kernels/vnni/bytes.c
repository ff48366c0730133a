// Attention of a few queries (decode) to an int8 cache by dot products of bytes, with AVX-512 (F, BW, DQ, VL) and VNNI.
//
// As vec/attend_dense.h: blocks of keys, online softmax, the next block fetched evenly. But an int8 cache has half the bytes of
// an fp16 one and as much arithmetic. In float32, with a conversion of each element, this takes longer than reading from 4
// queries on. Here keys and values are factors as they lie in the cache. Queries, and each block's weights e^(score - max)
// times the values' scales, become 16-bit integers with a unit for the whole row: 256 high + low, so that a product of two
// integers is two of bytes, and sums stay exact:
//     Σ x k = 256 Σ high (k + 128) + Σ low (k + 128) - 128 Σ x
// (of the instruction's two factors, one has no sign). Both products are one: `lanes` of 16 keys, or of 16 components, times
// the bytes of each query, four components, or four keys, to a step. For that, keys are turned by fours of components, and of
// values four rows are interleaved.
#include "cpu/kernels/vec/attend_dense.h"
#include "cpu/kernels/vec/quant_avx512.h"

enum {
    BYTES_DIMS = 256, // components at most
    DIM_STEP = 64,    // of which head_dim is a multiple: bytes of a vector
    BYTES_KEYS = 128, // in a block, at most: so that it stays in L1 beside its lanes
    LANES = 4,        // vectors of lanes that are prepared together
    LANE_BYTES =
        BYTES_DIMS * VEC + 64, // of one, at most, and a line, so that they do not all lie in the same sets of the cache
    BYTES_MOST = 127 * 256,    // of a query's, or of a weight's integers
};
_Static_assert((int)BYTES_KEYS <= (int)BYTES_DIMS, "a block's weights have room");

// 16-bit integers of a few rows, as bytes, and what is subtracted from their products: 128 Σ x.
struct byte_rows {
    int8_t bytes[FEW_QUERIES][2][BYTES_DIMS]; // high, low
    int32_t less[FEW_QUERIES];
    float units[FEW_QUERIES];
};

struct bytes_scratch {
    float scores[FEW_QUERIES][BYTES_KEYS];            // and then weights times values' scales
    float k_scales[BYTES_KEYS], v_scales[BYTES_KEYS]; // of a block, with zeros up to whole vectors; likewise
    float bias[BYTES_KEYS];
    struct byte_rows queries, weights;
    uint8_t lanes[LANES][LANE_BYTES]; // (depth / 4, VEC, 4)
    int32_t products[FEW_QUERIES][LANES * VEC];
};

// Fetches the next block meanwhile, in pairs of lines: half of it while products are computed, the rest wherever something else
// is done. So memory never rests.
struct byte_fetch {
    struct dense_fetch next;
    ptrdiff_t row_bytes;
};
VEC_INLINE void fetch_pairs(struct byte_fetch *f, int n)
{
    dense_fetch_step(&f->next, f->row_bytes, n * DENSE_PAIR, 0);
}

// ------------------------------------------------------------------------------------------ integers

// Row `row` of `to`: x (n), whose largest magnitude is `largest`, in whole steps of 64.
VEC_INLINE void to_bytes(struct byte_rows *to, int row, const float *x, int n, float largest)
{
    // Packing goes by 128 bits: this is the way back to the order of x.
    const ivec order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const vec inverse = vec_set(largest > 1e-30f ? BYTES_MOST / largest : 0); // NaN or infinite: the unit is
    ivec sum = ivec_zero();
    for (int i = 0; i < n; i += DIM_STEP) {
        ivec words[2];
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const float *from = x + i + half * 2 * VEC;
            words[half] = _mm512_packs_epi32(ivec_round(vec_mul(vec_load(from), inverse)),
                                             ivec_round(vec_mul(vec_load(from + VEC), inverse)));
            sum = ivec_dot(sum, words[half], _mm512_set1_epi16(1));
        }
        const ivec round = _mm512_set1_epi16(128), low = _mm512_set1_epi16(255);
        const ivec high = _mm512_packs_epi16(_mm512_srai_epi16(_mm512_add_epi16(words[0], round), 8),
                                             _mm512_srai_epi16(_mm512_add_epi16(words[1], round), 8));
        ivec_store(to->bytes[row][0] + i, _mm512_permutexvar_epi32(order, high));
        ivec_store(to->bytes[row][1] + i,
                   _mm512_permutexvar_epi32(
                       order, _mm512_packus_epi16(_mm512_and_si512(words[0], low), _mm512_and_si512(words[1], low))));
    }
    to->less[row] = 128 * _mm512_reduce_add_epi32(sum);
    to->units[row] = largest / BYTES_MOST;
}

VEC_INLINE float largest_of(const float *x, int n)
{
    ivec most = ivec_zero();
    for (int i = 0; i < n; i += VEC)
        most = ivec_larger(most, vec_abs(vec_load(x + i)));
    return ivec_most(most);
}

// In each 128 bits a square of (4, 4) numbers of 32 bits, in place: row[i][j] becomes row[j][i].
VEC_INLINE void transpose_quarters(ivec row[4])
{
    const ivec ab = _mm512_unpacklo_epi32(row[0], row[1]), ab2 = _mm512_unpackhi_epi32(row[0], row[1]);
    const ivec cd = _mm512_unpacklo_epi32(row[2], row[3]), cd2 = _mm512_unpackhi_epi32(row[2], row[3]);
    row[0] = _mm512_unpacklo_epi64(ab, cd);
    row[1] = _mm512_unpackhi_epi64(ab, cd);
    row[2] = _mm512_unpacklo_epi64(ab2, cd2);
    row[3] = _mm512_unpackhi_epi64(ab2, cd2);
}

// 16 bytes from each of four keys: one instruction loads and inserts them, which two units can do; to shuffle there is but one.
VEC_INLINE ivec load_quarters(const char *const keys[VEC], int at)
{
    ivec x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(keys[0] + at)));
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(keys[4] + at)), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(keys[8] + at)), 2);
    return _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)(keys[12] + at)), 3);
}

// Where some keys are, from key j of n on.
VEC_INLINE void bytes_rows(int count, const char *to[VEC], const char *base, int j, int n, ptrdiff_t row_bytes)
{
    if (j + count <= n) {
#pragma GCC unroll 16
        for (int i = 0; i < count; i++)
            to[i] = base + (j + i) * row_bytes;
        return;
    }
    for (int i = 0; i < count; i++) {
        const int key = j + i < n ? j + i : n - 1; // past the last, that again: its weight is 0, and its score is not looked at
        to[i] = base + key * row_bytes;
    }
}

// Without sign, 128 added.
VEC_INLINE void store_lanes(uint8_t *to, ivec bytes)
{
    ivec_store(to, _mm512_xor_si512(bytes, _mm512_set1_epi8(-128)));
}

// 16 keys, which become the lanes.
VEC_INLINE void lanes_of_keys(uint8_t *to, const char *const keys[VEC], int head_dim, struct byte_fetch *fetch)
{
    for (int c = 0; c < head_dim; c += 16, to += 16 * VEC) {
        ivec key[4];
        fetch_pairs(fetch, 1);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            key[i] = load_quarters(keys + i, c);
        transpose_quarters(key);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            store_lanes(to + i * 4 * VEC, key[i]);
    }
}

// 64 components of 4 values, which become lanes, four vectors of them: vector r's lane 4 l + i is component 16 l + 4 r + i
// (natural_order()).
VEC_INLINE void lanes_of_values(uint8_t *to, const char *const values[VEC])
{
    ivec value[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        value[i] = ivec_load(values[i]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++, to += 2 * LANE_BYTES) {
        const ivec ab = half ? _mm512_unpackhi_epi8(value[0], value[1]) : _mm512_unpacklo_epi8(value[0], value[1]);
        const ivec cd = half ? _mm512_unpackhi_epi8(value[2], value[3]) : _mm512_unpacklo_epi8(value[2], value[3]);
        store_lanes(to, _mm512_unpacklo_epi16(ab, cd));
        store_lanes(to + LANE_BYTES, _mm512_unpackhi_epi16(ab, cd));
    }
}

// Between the components' order and that of lanes_of_values(): of each 64, the pieces of four are turned as a square of 4 by 4.
VEC_INLINE void natural_order(float *x, int n)
{
    for (int c = 0; c < n; c += DIM_STEP) {
        vec piece[4];
        for (int i = 0; i < 4; i++)
            piece[i] = vec_load(x + c + i * VEC);
        const vec ab = _mm512_shuffle_f32x4(piece[0], piece[1], 0x44), ab2 = _mm512_shuffle_f32x4(piece[0], piece[1], 0xee);
        const vec cd = _mm512_shuffle_f32x4(piece[2], piece[3], 0x44), cd2 = _mm512_shuffle_f32x4(piece[2], piece[3], 0xee);
        vec_store(x + c, _mm512_shuffle_f32x4(ab, cd, 0x88));
        vec_store(x + c + VEC, _mm512_shuffle_f32x4(ab, cd, 0xdd));
        vec_store(x + c + 2 * VEC, _mm512_shuffle_f32x4(ab2, cd2, 0x88));
        vec_store(x + c + 3 * VEC, _mm512_shuffle_f32x4(ab2, cd2, 0xdd));
    }
}

// ------------------------------------------------------------------------------------------ products

// Of some of a scratch's lanes with a tile's queries, or weights. The next block is fetched meanwhile.
struct byte_product {
    const uint8_t *lanes;         // the first vector's
    const struct byte_rows *rows; // from row `row` on
    int row, depth;               // components, or keys
    int32_t *to;                  // (queries, LANES * VEC)
    struct byte_fetch *fetch;
};

// sum += lanes times the four bytes at p.
VEC_INLINE ivec dot_four(ivec sum, ivec lanes, const int8_t *p)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(lanes), "m"(*(const int32_t *)p));
    return sum;
}

VEC_INLINE void byte_product(int n_queries, int n_vecs, const struct byte_product *p)
{
    ivec high[SUMS], low[SUMS];
#pragma GCC unroll 16
    for (int i = 0; i < n_queries * n_vecs; i++)
        high[i] = low[i] = ivec_zero();
    const uint8_t *lanes = p->lanes;
    const int8_t *bytes = p->rows->bytes[p->row][0];
#pragma GCC unroll 1
    for (int c = 0; c < p->depth; c += 4) {
        if (c / 4 % (4 / n_vecs) == 0)
            fetch_pairs(p->fetch, 1);
        ivec lane[LANES];
#pragma GCC unroll 4
        for (int i = 0; i < n_vecs; i++)
            lane[i] = ivec_load(lanes + i * LANE_BYTES + c * VEC);
#pragma GCC unroll 16
        for (int s = 0; s < n_queries; s++)
#pragma GCC unroll 4
            for (int i = 0; i < n_vecs; i++) {
                high[s * n_vecs + i] = dot_four(high[s * n_vecs + i], lane[i], bytes + s * 2 * BYTES_DIMS + c);
                low[s * n_vecs + i] = dot_four(low[s * n_vecs + i], lane[i], bytes + (s * 2 + 1) * BYTES_DIMS + c);
            }
    }
#pragma GCC unroll 16
    for (int s = 0; s < n_queries; s++)
#pragma GCC unroll 4
        for (int i = 0; i < n_vecs; i++) {
            const ivec both = _mm512_add_epi32(_mm512_slli_epi32(high[s * n_vecs + i], 8), low[s * n_vecs + i]);
            ivec_store(p->to + s * (LANES * VEC) + i * VEC, ivec_sub(both, ivec_set(p->rows->less[p->row + s])));
        }
}

// 8 queries times one vector of lanes, 4 or 3 times two, 2 or 1 times four: up to 16 sums. Not inlined: all registers are for
// these alone.
static __attribute__((noinline)) void product_8(const struct byte_product *p)
{
    byte_product(8, 1, p);
}
static __attribute__((noinline)) void product_4(const struct byte_product *p)
{
    byte_product(4, 2, p);
}
static __attribute__((noinline)) void product_3(const struct byte_product *p)
{
    byte_product(3, 2, p);
}
static __attribute__((noinline)) void product_2(const struct byte_product *p)
{
    byte_product(2, 4, p);
}
static __attribute__((noinline)) void product_1(const struct byte_product *p)
{
    byte_product(1, 4, p);
}

// The products of the first n_lanes vectors, and perhaps of some more, with n_queries rows.
VEC_INLINE void lanes_product(int n_queries, int n_lanes, struct byte_product p)
{
    const int n_vecs = n_queries == 8 ? 1 : n_queries >= 3 ? 2 : 4;
    for (int i = 0; i < n_lanes; i += n_vecs, p.lanes += n_vecs * LANE_BYTES, p.to += n_vecs * VEC)
        (n_queries == 8   ? product_8
         : n_queries == 4 ? product_4
         : n_queries == 3 ? product_3
         : n_queries == 2 ? product_2
                          : product_1)(&p);
}

// ------------------------------------------------------------------------------------------ blocks

// A block of keys.
struct byte_block {
    const struct attend_args *a;
    struct bytes_scratch *s;
    const char *k, *v;
    int at, n;
    struct byte_fetch fetch;
};

// The product of the prepared lanes with the queries, or weights, of a tile.
VEC_INLINE struct byte_product block_product(struct byte_block *b, const struct byte_rows *rows, int row, int depth)
{
    return (struct byte_product){
        .lanes = b->s->lanes[0], .rows = rows, .row = row, .depth = depth, .to = b->s->products[0], .fetch = &b->fetch};
}

// The scales of the block's keys, or values.
VEC_INLINE void block_scales(float to[BYTES_KEYS], const struct byte_block *b, const float *scales)
{
    for (int j = 0; j < b->n; j += VEC)
        vec_store(to + j, vec_load_part(scales + b->at + j, b->n - j < VEC ? b->n - j : VEC));
}

// scores = q Kᵀ
VEC_INLINE void byte_scores(struct byte_block *b)
{
    struct bytes_scratch *s = b->s;
    const int d = b->a->head_dim, n_queries = b->a->n_queries;
    const bool biased = b->a->bias;
    for (int j = 0; j < b->n; j += LANES * VEC) {
        const int left = (b->n - j + VEC - 1) / VEC, n_lanes = left < LANES ? left : LANES;
        for (int i = 0; i < n_lanes; i++) {
            const char *keys[VEC];
            bytes_rows(VEC, keys, b->k, j + i * VEC, b->n, d);
            lanes_of_keys(s->lanes[i], keys, d, &b->fetch);
        }
        for (int q = 0, tile; q < n_queries; q += tile) {
            tile = few_tile(n_queries - q);
            lanes_product(tile, n_lanes, block_product(b, &s->queries, q, d));
            for (int c = 0; c < n_lanes * VEC; c += VEC) {
                const vec scale = vec_load(s->k_scales + j + c), bias = biased ? vec_load(s->bias + j + c) : vec_zero();
                for (int i = 0; i < tile; i++) {
                    const vec score =
                        vec_mul(vec_mul(vec_set(s->queries.units[q + i]), scale), ivec_to_float(ivec_load(s->products[i] + c)));
                    vec_store(s->scores[q + i] + j + c, biased ? vec_add(score, bias) : score);
                }
            }
        }
    }
}

// Scores become weights times values' scales, and these integers. As softmax_rows(), step by step for all queries.
VEC_INLINE void byte_weights(bool all, struct byte_block *b)
{
    const struct attend_args *a = b->a;
    struct bytes_scratch *s = b->s;
    struct view views[FEW_QUERIES];
    float largest[FEW_QUERIES];
    const int pairs = (VEC * a->head_dim / 4 / DENSE_PAIR + a->n_queries - 1) / a->n_queries; // a quarter of the values
    for (int q = 0; q < a->n_queries; q++) {
        vec most = vec_set(a->max[q]);
        views[q] = view_of(a, q, b->at, b->n);
        for (int j = 0; j < b->n; j += VEC) {
            const vec scores = vec_load(s->scores[q] + j);
            most = vec_max(all ? scores : seen_scores(scores, vec_set(-INFINITY), views[q], j), most);
        }
        largest[q] = vec_largest(most);
    }
    softmax_shrink(a->n_queries, largest, a->acc, a->head_dim, a->max, a->sum);
    for (int q = 0; q < a->n_queries; q++) {
        const vec max = vec_set(largest[q]);
        vec total = vec_zero();
        ivec most = ivec_zero();
        for (int j = 0; j < b->n; j += VEC) {
            vec e = exp_below(vec_sub(vec_load(s->scores[q] + j), max));
            e = all ? e : seen_scores(e, vec_zero(), views[q], j);
            total = vec_add(total, e);
            e = vec_mul(e, vec_load(s->v_scales + j));
            most = ivec_larger(most, vec_abs(e));
            vec_store(s->scores[q] + j, e);
            fetch_pairs(&b->fetch, pairs);
        }
        for (int j = (b->n + VEC - 1) / VEC * VEC; j % DIM_STEP; j += VEC)
            vec_store(s->scores[q] + j, vec_zero());
        a->sum[q] += vec_total(total);
        largest[q] = ivec_most(most);
    }
    for (int q = 0; q < a->n_queries; q++)
        to_bytes(&s->weights, q, s->scores[q], b->n, largest[q]);
}

// acc += weights V, in the order of lanes_of_values().
VEC_INLINE void byte_outputs(struct byte_block *b)
{
    struct bytes_scratch *s = b->s;
    const int d = b->a->head_dim, n_queries = b->a->n_queries;
    for (int c = 0; c < d; c += DIM_STEP) {
        for (int j = 0; j < b->n; j += 4) {
            const char *values[VEC];
            bytes_rows(4, values, b->v + c, j, b->n, d);
            lanes_of_values(s->lanes[0] + j * VEC, values);
            if (j % 8 == 0)
                fetch_pairs(&b->fetch, 1);
        }
        for (int q = 0, tile; q < n_queries; q += tile) {
            tile = few_tile(n_queries - q);
            lanes_product(tile, LANES, block_product(b, &s->weights, q, b->n));
            for (int i = 0; i < tile; i++) {
                const vec unit = vec_set(s->weights.units[q + i]);
                float *acc = b->a->acc + (q + i) * (ptrdiff_t)d + c;
                for (int lane = 0; lane < DIM_STEP; lane += VEC)
                    vec_store(acc + lane, vec_fma(unit, ivec_to_float(ivec_load(s->products[i] + lane)), vec_load(acc + lane)));
            }
        }
    }
}

VEC_INLINE void bytes_block(struct byte_block *b)
{
    const struct attend_args *a = b->a;
    block_scales(b->s->k_scales, b, a->k_scales);
    block_scales(b->s->v_scales, b, a->v_scales);
    for (int j = 0; a->bias && j < b->n; j += VEC)
        vec_store(b->s->bias + j, vec_load_part(a->bias + b->at + j, b->n - j < VEC ? b->n - j : VEC));
    byte_scores(b);
    if (!a->first && b->n % VEC == 0)
        byte_weights(true, b);
    else
        byte_weights(false, b);
    byte_outputs(b);
}

static void bytes_attend(const struct attend_args *a)
{
    const ptrdiff_t d = a->head_dim;
    struct byte_block b = {.a = a, .s = a->scratch};
    struct view views[FEW_QUERIES];
    for (int i = 0; i < a->n_queries; i++) {
        views[i] = view_of(a, i, 0, a->n_keys);
        to_bytes(&b.s->queries, i, a->q + i * d, a->head_dim, largest_of(a->q + i * d, a->head_dim));
        natural_order(a->acc + i * d, a->head_dim);
    }
    const struct view seen = view_union(views, a->n_queries);
    const int most = dense_keys(d), block = most < BYTES_KEYS ? most : BYTES_KEYS;
    for (b.at = seen.first; b.at < seen.last; b.at += b.n) {
        b.n = few_block_keys(seen.last - b.at, block);
        const int after = b.at + b.n, n_after = few_block_keys(seen.last - after, block);
        b.fetch = (struct byte_fetch){dense_next(a, d, block, after, n_after), d};
        b.k = (const char *)a->k + b.at * d;
        b.v = (const char *)a->v + b.at * d;
        bytes_block(&b);
    }
    for (int i = 0; i < a->n_queries; i++)
        natural_order(a->acc + i * d, a->head_dim);
}

const struct byte_attention byte_attention_avx512vnni = {
    .attend = {[KV_INT8] = bytes_attend},
    .scratch = sizeof(struct bytes_scratch),
    .least = 3,
    .most = FEW_QUERIES,
    .dim_step = DIM_STEP,
    .most_dim = BYTES_DIMS,
};
