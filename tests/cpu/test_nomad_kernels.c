// NoMAD's kernels: each against its formula in double, and against the scalar one to the bit; see nomad.h.
#include "kernels_testing.h"

struct shape {
    int head_dim, d_sub;
};

static const struct shape shapes[] = {{8, 1},  {20, 2}, {6, 1},  {48, 4},  {64, 1},  {64, 2}, {64, 4},
                                      {80, 1}, {96, 2}, {12, 4}, {128, 1}, {128, 2}, {256, 1}};

enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static const struct nomad_kernels *kernels_of(const struct fixture *f)
{
    return nomad_kernels_select(f->kernels);
}

static struct nomad_book random_book(struct fixture *f, struct shape shape)
{
    return (struct nomad_book){random_floats(f, (size_t)shape.head_dim * NOMAD_CENTROIDS, 2.0), shape.head_dim / shape.d_sub,
                               shape.d_sub};
}

// Random codes of n_blocks blocks; the rows that pad are zero.
static uint8_t *random_codes(struct fixture *f, const struct nomad_book *book, int n_blocks)
{
    const size_t bytes = nomad_block_bytes(book->n_sub);
    uint8_t *codes = guarded(f, bytes * (size_t)n_blocks);
    for (size_t i = 0; i < bytes * (size_t)n_blocks; i++)
        codes[i] = i % bytes < (size_t)book->n_sub * NOMAD_ROW ? (uint8_t)below(f, 256) : 0;
    return codes;
}

static double distance(const struct nomad_book *book, const float *key, int s, int c)
{
    double sum = 0;
    for (int i = 0; i < book->d_sub; i++) {
        const double x = (double)key[s * book->d_sub + i] - book->centroids[(s * book->d_sub + i) * NOMAD_CENTROIDS + c];
        sum += x * x;
    }
    return sum;
}

static void test_encode(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int i = 0; i < N_SHAPES; i++) {
        const struct nomad_book book = random_book(f, shapes[i]);
        uint8_t *codes = guarded(f, (size_t)book.n_sub), *same = guarded(f, (size_t)book.n_sub);
        for (int round = 0; round < 20; round++) {
            const float *key = random_floats(f, (size_t)shapes[i].head_dim, 2.5);
            kernels_of(f)->encode(codes, key, &book);
            nomad_kernels_scalar.encode(same, key, &book);
            assert_memory_equal(codes, same, (size_t)book.n_sub);
            for (int s = 0; s < book.n_sub; s++)
                for (int c = 0; c < NOMAD_CENTROIDS; c++)
                    assert_true(distance(&book, key, s, codes[s]) <= distance(&book, key, s, c) * (1 + 1e-6) + 1e-12);
        }
        release(f);
    }
}

// Equal centroids: the first. Keys that are not numbers, or infinite: 0.
static void test_encode_ties(void **state)
{
    struct fixture *f = fixture_of(state);
    float *centroids = guarded(f, sizeof(float) * 8 * NOMAD_CENTROIDS);
    for (int i = 0; i < 8 * NOMAD_CENTROIDS; i++)
        centroids[i] = i % NOMAD_CENTROIDS < 5 ? -1 : 1;
    float *key = guarded(f, sizeof(float) * 8);
    const float values[] = {1.5f, -1.0f, 0.0f, NAN, INFINITY, -INFINITY, 1e30f, 0.1f};
    const uint8_t expected[] = {5, 0, 0, 0, 0, 0, 0, 5};
    uint8_t codes[8];
    memcpy(key, values, sizeof values);
    kernels_of(f)->encode(codes, key, &(struct nomad_book){centroids, 8, 1});
    assert_memory_equal(codes, expected, 8);
    release(f);
}

// Every key's codes come back from where they were put, in any order.
static void test_place(void **state)
{
    struct fixture *f = fixture_of(state);
    enum { N_SUB = 10 };
    uint8_t block[12 * NOMAD_ROW] = {0}, codes[NOMAD_BLOCK][N_SUB];
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < NOMAD_BLOCK; i++) {
            const int j = i * 13 % NOMAD_BLOCK;
            for (int s = 0; s < N_SUB; s++)
                codes[j][s] = (uint8_t)below(f, 16);
            nomad_place(block, j, codes[j], N_SUB, round == 1);
        }
    for (int j = 0; j < NOMAD_BLOCK; j++)
        for (int s = 0; s < N_SUB; s++)
            assert_int_equal(nomad_code(block, j, s), codes[j][s]);
    for (int i = N_SUB * NOMAD_ROW; i < 12 * NOMAD_ROW; i++)
        assert_int_equal(block[i], 0);
}

static void test_decode(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int i = 0; i < N_SHAPES; i++) {
        const struct nomad_book book = random_book(f, shapes[i]);
        const uint8_t *block = random_codes(f, &book, 1);
        float *y = guarded(f, sizeof(float) * (size_t)shapes[i].head_dim * NOMAD_BLOCK);
        kernels_of(f)->decode(y, block, &book);
        for (int c = 0; c < shapes[i].head_dim; c++)
            for (int j = 0; j < NOMAD_BLOCK; j++)
                assert_true(y[j * shapes[i].head_dim + c] ==
                            book.centroids[c * NOMAD_CENTROIDS + nomad_code(block, j, c / book.d_sub)]);
        release(f);
    }
}

// Tables of n queries and what scores are computed from.
struct tables {
    uint8_t *entries;
    float *base, *step;
};

static struct tables make_tables(struct fixture *f, const struct nomad_kernels *k, const struct nomad_book *book,
                                 const float *q, int n)
{
    const size_t bytes = nomad_block_bytes(book->n_sub);
    struct tables t = {guarded_scratch(f, bytes * (size_t)n), guarded(f, sizeof(float) * (size_t)n),
                       guarded(f, sizeof(float) * (size_t)n)};
    float *scratch = guarded_scratch(f, sizeof(float) * (size_t)book->n_sub * NOMAD_CENTROIDS);
    for (int i = 0; i < n; i++)
        k->table(&(struct nomad_table){t.entries + (size_t)i * bytes, t.base + i, t.step + i},
                 q + i * book->n_sub * book->d_sub, book, scratch);
    return t;
}

static void test_tables(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int i = 0; i < N_SHAPES; i++) {
        const struct nomad_book book = random_book(f, shapes[i]);
        const size_t bytes = nomad_block_bytes(book.n_sub);
        const float *q = random_floats(f, (size_t)shapes[i].head_dim * 3, 1.0);
        const struct tables t = make_tables(f, kernels_of(f), &book, q, 3),
                            same = make_tables(f, &nomad_kernels_scalar, &book, q, 3);
        assert_memory_equal(t.entries, same.entries, bytes * 3);
        assert_memory_equal(t.base, same.base, sizeof(float) * 3);
        assert_memory_equal(t.step, same.step, sizeof(float) * 3);
        int largest = 0, total = 0;
        for (int s = 0; s < book.n_sub; s++) {
            int row = 0;
            for (int c = 0; c < NOMAD_CENTROIDS; c++)
                row = t.entries[s * NOMAD_CENTROIDS + c] > row ? t.entries[s * NOMAD_CENTROIDS + c] : row;
            total += row;
            largest = row > largest ? row : largest;
        }
        assert_true(total <= 65535 && (largest == 255 || total > 65000)); // one of the two bounds is reached
        release(f);
    }
}

// 3 queries, an odd number of blocks: the float tables' sum, within the quantisation's bound; the scalar kernel's, to the bit.
static void test_scores(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int i = 0; i < N_SHAPES; i++)
        for (int n = 1; n <= 9; n += n < 5 ? 1 : 4) {
            const struct nomad_book book = random_book(f, shapes[i]);
            const int n_blocks = 1 + (i + n) % 7, d = shapes[i].head_dim, n_keys = n_blocks * NOMAD_BLOCK;
            const uint8_t *codes = random_codes(f, &book, n_blocks);
            const float *q = random_floats(f, (size_t)(d * n), 1.0);
            const struct tables t = make_tables(f, kernels_of(f), &book, q, n);
            float *scores = guarded(f, sizeof(float) * (size_t)(n * n_keys)),
                  *same = guarded(f, sizeof(float) * (size_t)(n * n_keys));
            struct nomad_score_args args = {.scores = scores,
                                            .ld = n_keys,
                                            .codes = codes,
                                            .entries = t.entries,
                                            .base = t.base,
                                            .step = t.step,
                                            .n_queries = n,
                                            .rows = nomad_rows(book.n_sub),
                                            .n_blocks = n_blocks};
            kernels_of(f)->scores(&args);
            args.scores = same;
            nomad_kernels_scalar.scores(&args);
            assert_memory_equal(scores, same, sizeof(float) * (size_t)(n * n_keys));
            for (int query = 0; query < n; query++)
                for (int j = 0; j < n_keys; j++) {
                    double exact = 0;
                    for (int c = 0; c < d; c++)
                        exact += (double)q[query * d + c] *
                                 book.centroids[c * NOMAD_CENTROIDS +
                                                nomad_code(codes + (size_t)(j / NOMAD_BLOCK) * nomad_block_bytes(book.n_sub),
                                                           j % NOMAD_BLOCK, c / book.d_sub)];
                    assert_near(scores[query * n_keys + j], exact, 0.501 * book.n_sub * t.step[query] + 1e-5, "score", query,
                                j);
                }
            release(f);
        }
}

// 256 rows whose entries are all 255: the largest sums that 16 bits must hold.
static void test_no_overflow(void **state)
{
    struct fixture *f = fixture_of(state);
    enum { ROWS = 256, BLOCKS = 3, KEYS = BLOCKS * NOMAD_BLOCK };
    uint8_t *entries = guarded_scratch(f, ROWS * NOMAD_ROW * 5);
    memset(entries, 255, ROWS * NOMAD_ROW * 5);
    const struct nomad_book book = {NULL, ROWS, 1};
    const uint8_t *codes = random_codes(f, &book, BLOCKS);
    const float base[5] = {0}, step[5] = {1, 1, 1, 1, 1};
    for (int n = 1; n <= 5; n++) {
        float *scores = guarded(f, sizeof(float) * (size_t)n * KEYS);
        kernels_of(f)->scores(&(struct nomad_score_args){scores, KEYS, codes, entries, base, step, n, ROWS, BLOCKS});
        for (int j = 0; j < n * KEYS; j++)
            assert_true(scores[j] == 255 * ROWS);
    }
    release(f);
}

// Runs of random bytes, the last of which ends where memory does; n_groups groups of slots.
static uint8_t *random_runs(struct fixture *f, int n_sub, ptrdiff_t stride, int n_groups)
{
    const size_t bytes = (size_t)(n_sub - 1) * (size_t)stride + (size_t)n_groups * CODE_GROUP_BYTES;
    uint8_t *runs = guarded(f, bytes);
    for (size_t i = 0; i < bytes; i++)
        runs[i] = (uint8_t)below(f, 256);
    return runs;
}

// What a score is, of which the sum is exact.
static double code_score(const struct code_score_args *a, int query, int slot)
{
    double sum = 0;
    for (int c = 0; c < a->n; c++) {
        const uint8_t byte = a->runs[a->run_of[c] * a->stride + slot / 128 * 64 + code_byte(slot)];
        const int code = slot % 128 < 64 ? byte & 15 : byte >> 4;
        sum += a->weights[query * a->n + c] * (a->values[c * CODE_VALUES + code] - 128.0);
    }
    return a->base[query] + a->step[query] * sum;
}

// All codes of a line of a run: each byte has two slots.
static void test_code_places(void **state)
{
    (void)state;
    int seen[64] = {0};
    for (int slot = 256; slot < 384; slot++) {
        assert_true(code_byte(slot) >= 0 && code_byte(slot) < 64 && code_offset(slot) == 128);
        seen[code_byte(slot)] |= code_shift(slot) == 0 ? 1 : code_shift(slot) == 4 ? 2 : 4;
    }
    for (int i = 0; i < 64; i++)
        assert_int_equal(seen[i], 3);
    assert_true(code_stride(1) == 64 && code_stride(129) == 192 && code_stride(257) == 192);
}

// Some of the components, in ascending order, one of them twice; one and several blocks of groups, 1 to 9 queries; the largest
// sums.
static void test_code_scores(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int groups[] = {1, 3, 8, 9, 17}, listed[] = {8, 16, 40, 512};
    enum { N_SUB = 70 };
    for (int round = 0; round < 36; round++) {
        const int n_queries = 1 + round % 9, n_groups = groups[round % 5], n = listed[round % 4],
                  n_slots = n_groups * CODE_GROUP;
        const ptrdiff_t stride = code_stride(n_slots + round % 3 * 128);
        int *run_of = guarded(f, sizeof(int) * (size_t)n), *offset = guarded(f, sizeof(int) * (size_t)n_queries);
        uint8_t *values = guarded_scratch(f, (size_t)n * CODE_VALUES);
        int8_t *weights = guarded(f, (size_t)n_queries * (size_t)n);
        const bool extreme = round % 6 == 5;
        for (int i = 0; i < n; i++)
            run_of[i] = i * N_SUB / n;
        for (int i = 0; i < n * CODE_VALUES; i++)
            values[i] = (uint8_t)(extreme ? 255 - 254 * (round % 4 == 1) : 1 + below(f, 255));
        for (int q = 0; q < n_queries; q++) {
            offset[q] = 0;
            for (int i = 0; i < n; i++) {
                weights[q * n + i] = (int8_t)(extreme ? 127 - 254 * (q % 2) : below(f, 255) - 127);
                offset[q] -= 128 * weights[q * n + i];
            }
        }
        float *scores = guarded(f, sizeof(float) * (size_t)(n_queries * n_slots)),
              *same = guarded(f, sizeof(float) * (size_t)(n_queries * n_slots));
        struct code_score_args args = {.scores = scores,
                                       .ld = n_slots,
                                       .runs = random_runs(f, N_SUB, stride, n_groups),
                                       .stride = stride,
                                       .run_of = run_of,
                                       .values = values,
                                       .weights = weights,
                                       .offset = offset,
                                       .base = random_floats(f, (size_t)n_queries, 5.0),
                                       .step = random_floats(f, (size_t)n_queries, 0.01),
                                       .n_queries = n_queries,
                                       .n = n,
                                       .n_groups = n_groups};
        kernels_of(f)->code_scores(&args);
        for (int q = 0; q < n_queries; q++)
            for (int j = 0; j < n_slots; j++) {
                const double exact = code_score(&args, q, j);
                assert_near(scores[q * n_slots + j], exact, 1e-6 * (fabs(exact) + 5), "score", q, j);
            }
        args.scores = same;
        nomad_kernels_scalar.code_scores(&args);
        assert_memory_equal(scores, same, sizeof(float) * (size_t)(n_queries * n_slots));
        release(f);
    }
}

// More sub-quantisers than 16 bits hold at 255 each: the tables' scale gives way.
static void test_long_keys(void **state)
{
    struct fixture *f = fixture_of(state);
    enum { D = 600 };
    float *centroids = guarded(f, sizeof(float) * D * NOMAD_CENTROIDS), *q = guarded(f, sizeof(float) * D);
    for (int i = 0; i < D; i++) {
        q[i] = i % 2 ? -1 : 1;
        for (int c = 0; c < NOMAD_CENTROIDS; c++)
            centroids[i * NOMAD_CENTROIDS + c] = q[i] * (float)(c == 15) * 3;
    }
    const struct nomad_book book = {centroids, D, 1};
    uint8_t *codes = guarded(f, nomad_block_bytes(D));
    memset(codes, 0xff, nomad_block_bytes(D));
    const struct tables t = make_tables(f, kernels_of(f), &book, q, 1);
    float *scores = guarded(f, sizeof(float) * NOMAD_BLOCK);
    kernels_of(f)->scores(
        &(struct nomad_score_args){scores, NOMAD_BLOCK, codes, t.entries, t.base, t.step, 1, nomad_rows(D), 1});
    for (int j = 0; j < NOMAD_BLOCK; j++)
        assert_near(scores[j], 3.0 * D, 0.5 * D * t.step[0] + 1e-3, "score", 0, j);
    release(f);
}

// Queries without a span, of zeros, and with NaN: scores that are all the same, and NaN.
static void test_no_span(void **state)
{
    struct fixture *f = fixture_of(state);
    const struct nomad_book book = random_book(f, (struct shape){64, 1});
    const uint8_t *codes = random_codes(f, &book, 1);
    float *q = guarded(f, sizeof(float) * 64 * 2), scores[2 * NOMAD_BLOCK];
    memset(q, 0, sizeof(float) * 64 * 2);
    q[70] = NAN;
    const struct tables t = make_tables(f, kernels_of(f), &book, q, 2);
    kernels_of(f)->scores(&(struct nomad_score_args){scores, NOMAD_BLOCK, codes, t.entries, t.base, t.step, 2, 64, 1});
    for (int j = 0; j < NOMAD_BLOCK; j++) {
        assert_true(scores[j] == 0);
        assert_false(isfinite(scores[NOMAD_BLOCK + j]));
    }
    release(f);
}

// n_keys values of a type, and what they stand for.
static double value_at(enum kv_type type, const void *v, const float *scales, int head_dim, int j, int c)
{
    const size_t i = (size_t)j * head_dim + c;
    return type == KV_INT8 ? (double)scales[j] * ((const int8_t *)v)[i]
                           : value_of(type == KV_FP32 ? DTYPE_FP32 : DTYPE_FP16, v, i);
}

enum leave_out { NONE, LITTLE, FIRST };

// Sharp softmaxes over more keys than a block has. LITTLE: rows of little weight are left out, which may be all of a block;
// FIRST: the first 300 have little weight and none after them has, so that of three blocks of 256 nothing, some and all is
// kept.
static void check_values(struct fixture *f, enum kv_type type, int n_queries, int n_keys, int head_dim, enum leave_out out,
                         int streams)
{
    const ptrdiff_t ld = n_keys + 3;
    float *scores = random_floats(f, (size_t)(n_queries * ld), 12.0), *max = guarded(f, sizeof(float) * (size_t)n_queries);
    float *least = guarded(f, sizeof(float) * (size_t)n_queries), *scales = random_floats(f, (size_t)n_keys, 0.01);
    float *acc = guarded(f, sizeof(float) * (size_t)(n_queries * head_dim)),
          *sum = guarded(f, sizeof(float) * (size_t)n_queries);
    int8_t *bytes = guarded(f, (size_t)(n_keys * head_dim));
    for (int i = 0; i < n_keys * head_dim; i++)
        bytes[i] = (int8_t)(below(f, 255) - 127);
    const void *v = type == KV_INT8
                        ? (const void *)bytes
                        : random_elements(f, type == KV_FP32 ? DTYPE_FP32 : DTYPE_FP16, (size_t)(n_keys * head_dim));
    for (int i = 0; i < n_queries; i++) {
        max[i] = 12;
        least[i] = (float)exp(1 + i % 3); // 1 / least
        for (int j = 0; j < n_keys; j++)  // none near the limit, where one rounding decides
            if (out == FIRST)
                scores[i * ld + j] = 11.5f + scores[i * ld + j] / 48;
            else if (fabs(scores[i * ld + j] - max[i] + 1 + i % 3) < 1e-3)
                scores[i * ld + j] += 0.01f;
        sum[i] = 0;
    }
    for (int j = 0; j < n_keys && j < 300; j++) // nothing to keep in the first block
        for (int i = 0; i < n_queries; i++)
            scores[i * ld + j] -= 6;
    memset(acc, 0, sizeof(float) * (size_t)(n_queries * head_dim));
    kernels_of(f)->values[type](&(struct nomad_value_args){.acc = acc,
                                                           .sum = sum,
                                                           .scores = scores,
                                                           .ld = ld,
                                                           .max = max,
                                                           .inverse_least = out ? least : NULL,
                                                           .v = v,
                                                           .v_scales = type == KV_INT8 ? scales : NULL,
                                                           .n_queries = n_queries,
                                                           .n_keys = n_keys,
                                                           .head_dim = head_dim,
                                                           .fetching = {.streams = streams, .to_l2 = n_keys % 2},
                                                           .scratch = guarded_scratch(f, f->kernels->attend_scratch)});
    double *exact = calloc((size_t)(n_queries * head_dim), sizeof *exact), sums[16] = {0};
    for (int j = 0; j < n_keys; j++) {
        bool kept = out == NONE;
        for (int i = 0; i < n_queries; i++)
            kept = kept || exp(scores[i * ld + j] - max[i]) * least[i] >= 1;
        for (int i = 0; i < n_queries && kept; i++) {
            const double w = exp(scores[i * ld + j] - max[i]);
            sums[i] += w;
            for (int c = 0; c < head_dim; c++)
                exact[i * head_dim + c] += w * value_at(type, v, scales, head_dim, j, c);
        }
    }
    for (int i = 0; i < n_queries; i++) {
        assert_near(sum[i], sums[i], (1e-5 + sum_error(n_keys)) * sums[i], "sum", i, 0);
        for (int c = 0; c < head_dim; c++)
            assert_near(acc[i * head_dim + c], exact[i * head_dim + c], (1e-5 + n_keys * 0x1p-24) * (sums[i] * 1.3 + 1e-6),
                        "output", i, c);
    }
    free(exact);
    release(f);
}

// Rows are left out where none of up to 8 queries wants them. Some and most of a block's are left out, in either way of
// fetching.
static void test_values(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int dims[] = {8, 20, 33, 64, 128};
    for (int type = 0; type < KV_TYPES; type++)
        for (int i = 0; i < 5; i++)
            for (int streams = 2; streams <= 4; streams += 2) {
                check_values(f, (enum kv_type)type, 1, 1 + 217 * i, dims[i], LITTLE, streams);
                for (int n = 2; n <= 8; n++)
                    check_values(f, (enum kv_type)type, n, 700, dims[i], LITTLE, streams);
                check_values(f, (enum kv_type)type, 1 + i % 2, 1000, dims[i], FIRST, streams);
                for (int n = 1; n <= 9; n++)
                    check_values(f, (enum kv_type)type, n, 1 + 97 * i, dims[i], NONE, streams);
            }
}

int main(void)
{
    static const struct kernel_case cases[] = {
        {"encode: the nearest centroid", test_encode},
        {"encode: ties, NaN and infinity", test_encode_ties},
        {"codes come back from their places", test_place},
        {"decode: the centroids", test_decode},
        {"tables reach their bounds, the same on every instruction set", test_tables},
        {"scores: within the bound, the same to the bit on every instruction set", test_scores},
        {"no overflow with 256 rows of 255", test_no_overflow},
        {"each slot has half a byte of its run", test_code_places},
        {"scores from runs: exact sums, the same to the bit on every instruction set", test_code_scores},
        {"more rows than 16 bits hold", test_long_keys},
        {"queries without a span", test_no_span},
        {"values, all rows and those of some weight", test_values},
    };
    return run_on_every_isa("NoMAD's kernels", cases, sizeof cases / sizeof *cases);
}
