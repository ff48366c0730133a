// SparQ's scores from an int8 copy of the keys (sparse.h) by dot products of bytes, with AVX-512 (F, BW, DQ, VL) and VNNI.
//
// In float32 the copy's bytes are converted, and 16 of them take a multiply-add for each query: with four queries and 32
// components that is as long as reading. Here the queries become bytes too, q_c ≈ unit · byte_c. Four components' lines are
// interleaved so that a slot's four bytes lie together. An instruction multiplies 64 bytes without sign by 64 with sign and
// adds up fours of products. 128 is added to the copy's, and 128 times the sum of the query's is subtracted; sums are exact.
// Lost is half a unit of each of the query's components, which are its largest, as half a unit of the key's was when it was
// copied.
//
// A block of 1,024 slots goes through 16 components at a time, each a stream with a load instruction of its own. Meanwhile the
// lines of the next 16 are fetched. Between them sums are in the scores' place. (In vec/sparq.h one instruction loads from one
// run after the other.)
#include <string.h>

#include "cpu/kernels/sparse.h"
#include "cpu/kernels/vec/elementwise.h"
#include "cpu/kernels/vnni/fours.h"

enum {
    TILE = 64,    // slots: a line of each component
    BLOCK = 1024, // slots
    WIDE = 16,    // components in a pass, or, of those that are left, …
    NARROW = 4,
    QUERIES = 4, // at a time
};

struct query_bytes {
    int8_t bytes[QUERIES][SPARSE_DIMS + NARROW]; // and zeros up to whole fours
    int offset[QUERIES];                         // −128 Σ bytes
    float unit[QUERIES];
};

// Slots, whole tiles of them, and all components. lines (r + WIDE): of each component the first slot's byte, and then what is
// to be fetched.
struct pairs_run {
    const uint8_t **lines;
    int r, n; // r: whole fours
    const struct query_bytes *q;
    float *scores; // (n_queries, ld)
    ptrdiff_t ld;
    const float *scales;
    bool to_l2;
};

static void query_to_bytes(struct query_bytes *to, const float *q, int r, int n_queries)
{
    for (int i = 0; i < n_queries; i++) {
        int sum = 0;
        to->unit[i] = to_int8(to->bytes[i], q + i * (ptrdiff_t)r, r);
        memset(to->bytes[i] + r, 0, NARROW - 1);
        for (int c = 0; c < r; c++)
            sum += to->bytes[i][c];
        to->offset[i] = -128 * sum;
    }
}

// Lanes l of x[0] … x[3] become x[l]: slots in their order.
VEC_INLINE void turn_lanes(__m512i x[4])
{
    const __m512i a = _mm512_shuffle_i32x4(x[0], x[1], 0x44), b = _mm512_shuffle_i32x4(x[0], x[1], 0xee);
    const __m512i c = _mm512_shuffle_i32x4(x[2], x[3], 0x44), d = _mm512_shuffle_i32x4(x[2], x[3], 0xee);
    x[0] = _mm512_shuffle_i32x4(a, c, 0x88);
    x[1] = _mm512_shuffle_i32x4(a, c, 0xdd);
    x[2] = _mm512_shuffle_i32x4(b, d, 0x88);
    x[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}

VEC_INLINE void store_scores(float *to, __m512i sum[4], const float *scales, float unit)
{
    turn_lanes(sum);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        vec_store(to + j * VEC, vec_mul(_mm512_cvtepi32_ps(sum[j]), vec_mul(vec_load(scales + j * VEC), vec_set(unit))));
}

// Components [c, c + n) of all tiles; n_queries, n, to_l2: constants where this is inlined.
VEC_INLINE void pass(int n_queries, int n, bool to_l2, const struct pairs_run *run, int c)
{
    const uint8_t *const *lines = run->lines + c;
    const struct query_bytes *q = run->q;
    const bool first = c == 0, last = c + n == run->r;
    for (ptrdiff_t at = 0; at < run->n; at += TILE) {
        float *to = run->scores + at;
        __m512i sum[QUERIES][4];
#pragma GCC unroll 4
        for (int i = 0; i < n_queries; i++)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                sum[i][j] = first ? _mm512_set1_epi32(q->offset[i]) : _mm512_loadu_si512(to + i * run->ld + j * VEC);
#pragma GCC unroll 4
        for (int k = 0; k < n; k += 4) {
            __m512i x[4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                fetch_line((const char *)lines[WIDE + k + j] + at, to_l2);
                x[j] = _mm512_xor_si512(_mm512_loadu_si512(lines[k + j] + at), _mm512_set1_epi8(-128));
            }
            interleave_fours(x);
#pragma GCC unroll 4
            for (int i = 0; i < n_queries; i++) {
                const __m512i four = repeat_four(q->bytes[i] + c + k);
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++)
                    sum[i][j] = _mm512_dpbusd_epi32(sum[i][j], x[j], four);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n_queries; i++) {
            float *row = to + i * run->ld;
            if (last)
                store_scores(row, sum[i], run->scales + at, q->unit[i]);
            else
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++)
                    _mm512_storeu_si512(row + j * VEC, sum[i][j]);
        }
    }
}

VEC_INLINE void pass_run(int n_queries, bool wide, bool to_l2, const struct pairs_run *run, int c)
{
    if (n_queries == 4)
        wide ? pass(4, WIDE, to_l2, run, c) : pass(4, NARROW, to_l2, run, c);
    else if (n_queries == 3)
        wide ? pass(3, WIDE, to_l2, run, c) : pass(3, NARROW, to_l2, run, c);
    else if (n_queries == 2)
        wide ? pass(2, WIDE, to_l2, run, c) : pass(2, NARROW, to_l2, run, c);
    else
        wide ? pass(1, WIDE, to_l2, run, c) : pass(1, NARROW, to_l2, run, c);
}

static __attribute__((noinline)) void pass_near(int n_queries, bool wide, const struct pairs_run *run, int c)
{
    pass_run(n_queries, wide, false, run, c);
}
static __attribute__((noinline)) void pass_far(int n_queries, bool wide, const struct pairs_run *run, int c)
{
    pass_run(n_queries, wide, true, run, c);
}

// next: how many slots further on is what is read after this.
static void run_scores(int n_queries, const struct pairs_run *run, int next)
{
    for (int i = 0; i < WIDE; i++)
        run->lines[run->r + i] = run->lines[i % run->r] + next;
    for (int c = 0, n; c < run->r; c += n) {
        n = run->r - c >= WIDE ? WIDE : NARROW;
        (run->to_l2 ? pass_far : pass_near)(n_queries, n == WIDE, run, c);
    }
}

// Fewer slots than a tile has, by way of a copy.
static void score_part(int n_queries, const struct pairs_run *run)
{
    _Alignas(64) uint8_t bytes[SPARSE_DIMS][TILE];
    float scores[QUERIES][TILE], scales[TILE];
    const uint8_t *lines[SPARSE_DIMS + WIDE];
    const __mmask64 live = ((__mmask64)1 << run->n) - 1;
    int c = 0;
    do {
        _mm512_store_si512(bytes[c], _mm512_maskz_loadu_epi8(live, run->lines[c]));
        lines[c] = bytes[c];
    } while (++c < run->r);
    memset(scales, 0, sizeof scales);
    memcpy(scales, run->scales, sizeof *scales * (size_t)run->n);
    const struct pairs_run tile = {
        .lines = lines, .r = run->r, .n = TILE, .q = run->q, .scores = scores[0], .ld = TILE, .scales = scales};
    run_scores(n_queries, &tile, 0);
    for (int i = 0; i < n_queries; i++)
        memcpy(run->scores + i * run->ld, scores[i], sizeof *scores[i] * (size_t)run->n);
}

// Up to four queries, from `query` on, of n slots.
static void score_queries(const struct score_args *a, const uint8_t **lines, int r, int at, int n, int query)
{
    const int left = a->n_queries - query, n_queries = left < QUERIES ? left : QUERIES, whole = n / TILE * TILE;
    struct query_bytes q;
    query_to_bytes(&q, a->q + query * (ptrdiff_t)a->r, a->r, n_queries);
    struct pairs_run run = {.lines = lines,
                            .r = r,
                            .n = whole,
                            .q = &q,
                            .scores = a->scores + query * a->ld + at,
                            .ld = a->ld,
                            .scales = a->scales + a->slot + at,
                            .to_l2 = a->to_l2};
    if (whole > 0)
        run_scores(n_queries, &run, left > QUERIES ? 0 : n);
    if (n == whole)
        return;
    const uint8_t *rest[SPARSE_DIMS];
    for (int c = 0; c < r; c++)
        rest[c] = lines[c] + whole;
    run.lines = rest;
    run.n = n - whole;
    run.scores += whole;
    run.scales += whole;
    score_part(n_queries, &run);
}

void avx512vnni_sparq_score(const struct score_args *a)
{
    const int r = (a->r + NARROW - 1) / NARROW * NARROW;
    const uint8_t *lines[SPARSE_DIMS + WIDE];
    for (int at = 0, n; at < a->n; at += n) {
        n = a->n - at < BLOCK ? a->n - at : BLOCK;
        int c = 0;
        do // what is too many has weights of 0
            lines[c] = (const uint8_t *)a->copy + a->components[c < a->r ? c : 0] * a->stride + a->slot + at;
        while (++c < r);
        for (int query = 0; query < a->n_queries; query += QUERIES)
            score_queries(a, lines, r, at, n, query);
    }
}
