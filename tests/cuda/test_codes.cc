// Codes of keys: as the CPU makes them, wherever they lie and in whatever order they come; scores from them against their
// formula, and against double within what rounding to bytes can lose.
#include "attention_testing.h"

#include "cuda/long/codes.cuh"
#include "cuda/long/selective.h"

struct fixture {
    struct attention_fixture attention;
    struct key_codes codes;
    std::vector<float> centroids; // of layer 0's KV heads
};

static size_t code_words(const struct key_codes *c)
{
    return codes_head_words(c) * c->n_kv_heads * c->n_layers;
}

static void fixture_open(struct fixture *f, const struct attention_case &c, int d_sub)
{
    uint64_t seed = (uint64_t)c.position * 7 + c.head_dim + d_sub;
    attention_open(&f->attention, c, seed);
    codes_shape(&f->codes, 1, &f->attention.cache, d_sub);
    f->centroids = random_floats(&seed, (size_t)c.n_kv_heads * c.head_dim * CODES_CENTROIDS, c.range);
    for (int i = 0; i < CODES_CENTROIDS; i++) // a component whose centroids are all the same, and one of huge ones
        f->centroids[i] = 0.25f, f->centroids[(size_t)(c.head_dim - 1) * CODES_CENTROIDS + i] *= 50;
    f->codes.codes = device_copy(std::vector<uint4>(code_words(&f->codes), uint4{0, 0, 0, 0}));
    f->codes.centroids = device_copy(f->centroids);
    f->codes.tables = device_nan<uint4>((size_t)c.n_kv_heads * codes_dims(&f->codes));
    f->codes.ranges = device_nan<float2>((size_t)c.n_kv_heads * codes_dims(&f->codes));
    yalm_error error = {};
    assert_ok(codes_tables(&f->codes, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
}

static void fixture_close(struct fixture *f)
{
    attention_close(&f->attention);
    cudaFree(f->codes.codes);
    cudaFree(f->codes.centroids);
    cudaFree(f->codes.tables);
    cudaFree(f->codes.ranges);
}

static const float *key_of(const struct fixture *f, int kv_head, int slot)
{
    const struct attention_fixture *a = &f->attention;
    return a->keys.data() + ((size_t)kv_head * a->cache.policy.capacity + slot) * a->c.head_dim;
}

static const float *book_of(const struct fixture *f, int kv_head, int sub)
{
    return f->centroids.data() + ((size_t)kv_head * f->codes.head_dim + (size_t)sub * f->codes.d_sub) * CODES_CENTROIDS;
}

// As cpu/kernels/ref/nomad.c has it.
static int expected_code(const struct fixture *f, int kv_head, int sub, const float *key)
{
    const int d_sub = f->codes.d_sub;
    const float *book = book_of(f, kv_head, sub);
    float distances[CODES_CENTROIDS] = {};
    int nearest = 0;
    for (int c = 0; c < CODES_CENTROIDS; c++) {
        for (int i = 0; i < d_sub; i++) {
            const float x = key[sub * d_sub + i] - book[i * CODES_CENTROIDS + c];
            distances[c] = fmaf(x, x, distances[c]);
        }
        nearest = distances[c] < distances[nearest] ? c : nearest;
    }
    return nearest;
}

static int code_at(const struct fixture *f, const std::vector<unsigned> &words, int kv_head, int slot, int sub)
{
    const struct code_place place = code_place(f->codes.rows, slot, sub);
    return (int)(words[kv_head * codes_head_words(&f->codes) * 4 + place.word] >> place.shift & 15);
}

static std::vector<unsigned> host_codes(const struct fixture *f)
{
    return host_copy(reinterpret_cast<const unsigned *>(f->codes.codes), code_words(&f->codes) * 4);
}

// Codes of positions [first, first + n), from the cache or from keys of their own.
static void append(struct fixture *f, int64_t first, int n, const float *keys)
{
    yalm_error error = {};
    struct evaluation *step = device_copy(std::vector<struct evaluation>{{first, n, 0}});
    assert_ok(codes_append(&f->codes, 0, step, keys, &f->attention.cache, 1, n, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    cudaFree(step);
}

// All positions that are in the cache, the sinks too, some at a time; the last `but` of them not.
static void append_all(struct fixture *f, int piece, int but)
{
    const struct kv_policy *policy = &f->attention.cache.policy;
    const int64_t end = f->attention.c.position + 1 - but;
    for (int64_t p = 0; p < end && p < policy->n_sinks; p++)
        append(f, p, 1, NULL);
    int64_t first = end - (policy->capacity - policy->n_sinks);
    for (first = first < 0 ? 0 : first; first < end; first += piece)
        append(f, first, (int)std::min<int64_t>(piece, end - first), NULL);
}

static void assert_codes(const struct fixture *f, const char *what)
{
    const std::vector<unsigned> words = host_codes(f);
    int n_apart;
    for (int slot : visible_slots(&f->attention.cache.policy, f->attention.c.position, &n_apart))
        for (int kv_head = 0; kv_head < f->codes.n_kv_heads; kv_head++)
            for (int sub = 0; sub < f->codes.n_sub; sub++) {
                const int found = code_at(f, words, kv_head, slot, sub);
                const int expected = expected_code(f, kv_head, sub, key_of(f, kv_head, slot));
                if (found != expected)
                    fail_msg("%s: slot %d, kv head %d, sub-quantiser %d: found code %d, expected %d", what, slot, kv_head, sub,
                             found, expected);
            }
}

// ------------------------------------------------------------------------------------------ codes

// No two codes of a tile share a place, and none is left out.
static void places(void **)
{
    for (int rows : {4, 8, 20}) {
        std::vector<unsigned> seen((size_t)2 * rows * CODES_TILE / 8, 0);
        for (int slot = 0; slot < 2 * CODES_TILE; slot++)
            for (int sub = 0; sub < rows; sub++) {
                const struct code_place place = code_place(rows, slot, sub);
                assert_true(place.word < seen.size() && (seen[place.word] >> place.shift & 15) == 0);
                seen[place.word] |= 15u << place.shift;
            }
        for (unsigned word : seen)
            assert_int_equal(word, 0xffffffffu);
    }
}

static void appended(const struct attention_case &c, int d_sub, int piece)
{
    char what[160];
    snprintf(what, sizeof what, "head_dim %d, d_sub %d, kv %d, position %d, context %d, %d at a time", c.head_dim, d_sub,
             (int)c.type, (int)c.position, c.context, piece);
    struct fixture f;
    fixture_open(&f, c, d_sub);
    append_all(&f, piece, 0);
    assert_codes(&f, what);
    append_all(&f, piece + 1, 0); // over themselves
    assert_codes(&f, what);
    fixture_close(&f);
}

static void appends(void **)
{
    static const int dims[][2] = {{8, 1}, {20, 1}, {20, 2}, {20, 4}, {64, 1}, {128, 1}, {128, 4}, {250, 2}, {256, 4}};
    for (auto &d : dims)
        appended({YALM_KV_FP32, 2, 2, d[0], 512, 0, 0, 8, 37, 1, 2.0}, d[1], 16);
    for (int piece : {1, 5, 9}) { // a chunk of nine
        appended({YALM_KV_FP16, 2, 2, 64, 512, 0, 0, 9, 300, 1, 2.0}, 1, piece);
        appended({YALM_KV_FP32, 2, 1, 64, 300, 0, 4, 9, 1000, 1, 2.0}, 2, piece); // round the ring, behind sinks
        appended({YALM_KV_FP32, 2, 1, 64, 400, 270, 0, 9, 350, 1, 2.0}, 1, piece);
    }
}

// Keys that the cache has rounded are encoded as they were before; equal centroids: the lower; keys that are no numbers: 0.
static void own_keys(void **)
{
    struct fixture f;
    fixture_open(&f, {YALM_KV_FP16, 2, 2, 64, 512, 0, 0, 8, 20, 1, 2.0}, 1);
    uint64_t seed = 5;
    std::vector<float> keys = random_floats(&seed, 4 * 2 * 64, 2.5);
    const float odd[] = {NAN, INFINITY, -INFINITY, 1e30f, -1e30f, 0.0f};
    std::copy(odd, odd + 6, keys.begin() + 10);
    for (int i = 8; i < 16; i++)
        f.centroids[20 * CODES_CENTROIDS + i] = f.centroids[20 * CODES_CENTROIDS + i - 8];
    assert_cuda(cudaMemcpy(f.codes.centroids, f.centroids.data(), f.centroids.size() * sizeof(float), cudaMemcpyHostToDevice));
    float *device = device_copy(keys);
    append(&f, 9, 4, device);
    const std::vector<unsigned> words = host_codes(&f);
    for (int t = 0; t < 4; t++)
        for (int kv_head = 0; kv_head < 2; kv_head++)
            for (int sub = 0; sub < 64; sub++)
                assert_int_equal(code_at(&f, words, kv_head, 9 + t, sub),
                                 expected_code(&f, kv_head, sub, keys.data() + (t * 2 + kv_head) * 64));
    assert_int_equal(code_at(&f, words, 0, 9, 10), 0);
    assert_int_equal(code_at(&f, words, 0, 9, 11), 0);
    cudaFree(device);
    fixture_close(&f);
}

// ------------------------------------------------------------------------------------------ scores

struct scores {
    int ld, n_parts;
    std::vector<float> scores, sinks; // (n_heads, ld), (n_heads, n_sinks)
    std::vector<float2> stats;        // (n_heads, n_parts)
};

static struct scores run_scores(struct fixture *f, const float *key, int n_sms)
{
    const struct attention_fixture *a = &f->attention;
    struct scores s;
    s.n_parts = (a->cache.policy.capacity + PART_KEYS - 1) / PART_KEYS;
    s.ld = s.n_parts * PART_KEYS;
    const size_t heads = a->c.n_heads, n_sinks = a->cache.policy.n_sinks;
    float *scores = device_nan<float>(heads * s.ld), *sinks = device_nan<float>(heads * n_sinks + 1);
    float2 *stats = device_nan<float2>(heads * s.n_parts);
    const struct codes_score args = {.step = a->step,
                                     .q = a->attention.q,
                                     .sink_q = a->attention.sink_q,
                                     .key = key,
                                     .cache = &a->cache,
                                     .layer = 0,
                                     .cache_layer = 1,
                                     .n_heads = a->c.n_heads,
                                     .scores = scores,
                                     .part_stats = stats,
                                     .sink_scores = sinks,
                                     .ld = s.ld,
                                     .n_parts = s.n_parts};
    yalm_error error = {};
    assert_ok(codes_score(&f->codes, &args, n_sms, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    s.scores = host_copy(scores, heads * s.ld);
    s.sinks = host_copy(sinks, heads * n_sinks + 1);
    s.stats = host_copy(stats, heads * s.n_parts);
    cudaFree(scores);
    cudaFree(sinks);
    cudaFree(stats);
    return s;
}

// What a query's scores are made of, as codes_score.cu says.
struct linear {
    std::vector<int> query;            // (head_dim)
    std::vector<double> scale, middle; // of the components
    std::vector<float> factor;
    double base, step;
};

static struct linear linear_of(const struct fixture *f, int kv_head, const float *q)
{
    const int d = f->codes.head_dim;
    struct linear l = {std::vector<int>(d), std::vector<double>(d), std::vector<double>(d), std::vector<float>(d), 0, 0};
    float most = 0;
    std::vector<float> scaled(d);
    for (int c = 0; c < d; c++) {
        const float *values = f->centroids.data() + ((size_t)kv_head * d + c) * CODES_CENTROIDS;
        const float low = *std::min_element(values, values + CODES_CENTROIDS);
        const float high = *std::max_element(values, values + CODES_CENTROIDS);
        const float middle = 0.5f * low + 0.5f * high, scale = (high - middle) / 127.0f;
        l.factor[c] = high > middle ? 127.0f / (high - middle) : 0.0f;
        l.scale[c] = scale;
        l.middle[c] = middle;
        scaled[c] = q[c] * scale;
        most = fmaxf(most, fabsf(scaled[c]));
        l.base += (double)q[c] * middle;
    }
    for (int c = 0; c < d; c++)
        l.query[c] = most > 0 ? (int)rintf(scaled[c] * (127.0f / most)) : 0;
    l.step = most / 127.0f;
    return l;
}

// Of one query and key: the formula with bytes; in double; and how far these may be apart.
struct expected {
    double formula, exact, bound;
};

static struct expected expected_score(const struct fixture *f, const struct linear &l, int kv_head, const float *q,
                                      const float *key)
{
    struct expected e = {l.base, 0, 0};
    const int d_sub = f->codes.d_sub;
    for (int sub = 0; sub < f->codes.n_sub; sub++) {
        const int code = expected_code(f, kv_head, sub, key);
        for (int i = 0; i < d_sub; i++) {
            const int c = sub * d_sub + i;
            const double value = book_of(f, kv_head, sub)[i * CODES_CENTROIDS + code];
            const double table = rintf(((float)value - (float)l.middle[c]) * l.factor[c]); // as code_tables_kernel has it
            e.formula += l.step * l.query[c] * table;
            e.exact += (double)q[c] * value;
            e.bound += 0.501 * (fabs((double)q[c]) * l.scale[c] + l.step * fabs(table));
        }
    }
    return e;
}

// Of parts in which nothing is seen, but for the first, nobody reads the scores, and they need not be written.
static void assert_stats(const struct scores &s, int head, const std::vector<bool> &seen, const char *what)
{
    for (int part = 0; part < s.n_parts; part++) {
        const auto first = seen.begin() + (size_t)part * PART_KEYS;
        if (part > 0 && std::find(first, first + PART_KEYS, true) == first + PART_KEYS) {
            const float2 found = s.stats[(size_t)head * s.n_parts + part];
            if (found.x != -INFINITY || found.y != 0)
                fail_msg("%s: head %d, part %d, which is not seen: found (%g, %g)", what, head, part, found.x, found.y);
            continue;
        }
        const float *x = s.scores.data() + (size_t)head * s.ld + (size_t)part * PART_KEYS;
        const float max = *std::max_element(x, x + PART_KEYS);
        double sum = 0;
        for (int j = 0; j < PART_KEYS && max > -INFINITY; j++)
            sum += exp((double)x[j] - max);
        const float2 found = s.stats[(size_t)head * s.n_parts + part];
        if (found.x != max)
            fail_msg("%s: head %d, part %d: found maximum %g, expected %g", what, head, part, found.x, max);
        assert_near(found.y, sum, 1e-5 * sum, what, head, part);
    }
}

static void assert_scores(const struct fixture *f, const struct scores &s, const char *what)
{
    const struct attention_fixture *a = &f->attention;
    const int d = a->c.head_dim, group = a->c.n_heads / a->c.n_kv_heads;
    int n_apart;
    std::vector<int> slots = visible_slots(&a->cache.policy, a->c.position, &n_apart);
    for (int head = 0; head < a->c.n_heads; head++) {
        const float *q = a->q.data() + (size_t)head * d, *x = s.scores.data() + (size_t)head * s.ld;
        const struct linear l = linear_of(f, head / group, q);
        std::vector<bool> seen(s.ld, false);
        for (size_t j = n_apart; j < slots.size(); j++) {
            const struct expected e = expected_score(f, l, head / group, q, key_of(f, head / group, slots[j]));
            assert_near(x[slots[j]], e.formula, 1e-5 * (fabs(l.base) + e.bound) + 1e-6, what, head, slots[j]);
            assert_near(x[slots[j]], e.exact, e.bound + 1e-5 * (1 + fabs(l.base)), what, head, slots[j]);
            seen[slots[j]] = true;
        }
        for (int slot = 0; slot < s.ld; slot++)
            if (!seen[slot] && s.stats[(size_t)head * s.n_parts + slot / PART_KEYS].y > 0 && x[slot] != -INFINITY)
                fail_msg("%s: head %d: slot %d, which is not seen, has score %g", what, head, slot, x[slot]);
        for (int sink = 0; sink < n_apart; sink++) {
            double sum = 0;
            for (int c = 0; c < d; c++)
                sum += (double)a->sink_q[(size_t)head * d + c] * key_of(f, head / group, sink)[c];
            assert_near(s.sinks[(size_t)head * a->cache.policy.n_sinks + sink], sum, 1e-5 * (1 + fabs(sum)), what, head, sink);
        }
        assert_stats(s, head, seen, what);
    }
}

static void scored(const struct attention_case &c, int d_sub, int n_sms)
{
    char what[200];
    snprintf(what, sizeof what, "%d heads, %d kv heads, head_dim %d, d_sub %d, context %d, window %d, sinks %d, position %d",
             c.n_heads, c.n_kv_heads, c.head_dim, d_sub, c.context, c.window, c.n_sinks, (int)c.position);
    struct fixture f;
    fixture_open(&f, c, d_sub);
    append_all(&f, 8, 1);
    std::vector<float> key;
    for (int kv_head = 0; kv_head < c.n_kv_heads; kv_head++) {
        const float *own = key_of(&f, kv_head, kv_slot(&f.attention.cache.policy, c.position));
        key.insert(key.end(), own, own + c.head_dim);
    }
    float *device = device_copy(key);
    const struct scores first = run_scores(&f, device, n_sms);
    assert_scores(&f, first, what);
    assert_codes(&f, what); // its own key's too
    const struct scores again = run_scores(&f, NULL, n_sms + 3);
    for (int head = 0; head < c.n_heads; head++) // whatever the grid
        for (int part = 0; part < first.n_parts; part++) {
            const size_t at = (size_t)head * first.ld + (size_t)part * PART_KEYS;
            assert_memory_equal(&first.stats[(size_t)head * first.n_parts + part],
                                &again.stats[(size_t)head * first.n_parts + part], sizeof(float2));
            if (first.stats[(size_t)head * first.n_parts + part].y > 0)
                assert_memory_equal(first.scores.data() + at, again.scores.data() + at, PART_KEYS * sizeof(float));
        }
    cudaFree(device);
    fixture_close(&f);
}

static void shapes(void **)
{
    static const int dims[][2] = {{8, 1},   {20, 1},  {20, 2},  {20, 4},  {64, 2}, {96, 1},
                                  {128, 1}, {128, 2}, {128, 4}, {250, 1}, {256, 4}};
    for (auto &d : dims)
        scored({YALM_KV_FP32, 4, 2, d[0], 512, 0, 0, 8, 60, 1, 2.0}, d[1], 1);
}

static void groups(void **)
{
    for (int group : {1, 2, 3, 4, 5, 7, 8, 9, 17})
        scored({YALM_KV_FP16, 2 * group, 2, 64, 512, 0, 0, 8, 40, 1, 2.0}, 1, 2);
}

static void lengths(void **)
{
    for (int length : {1, 2, 255, 256, 257, 1023, 1024, 1025, 2500})
        scored({YALM_KV_FP32, 2, 1, 8, 2600, 0, 0, 8, length - 1, 1, 2.0}, 1, length % 3);
}

static void windows_and_rings(void **)
{
    for (int position : {0, 5, 270, 290, 299, 300, 301, 600, 1000003}) {
        scored({YALM_KV_FP16, 4, 2, 16, 4096, 290, 0, 9, position % 4096, 1, 2.0}, 1, 1);
        scored({YALM_KV_FP32, 4, 2, 16, 300, 0, 4, 8, position, 1, 2.0}, 2, 1);
        scored({YALM_KV_FP16, 2, 1, 16, 1100, 0, 3, 40, position, 1, 2.0}, 1, 1);
        scored({YALM_KV_INT8, 4, 2, 16, 300, 0, 4, 8, position, 1, 2.0}, 1, 1);
    }
}

// Queries of zeros, and of which one component is all: scores are the base, or a few steps of it.
static void odd_queries(void **)
{
    struct fixture f;
    fixture_open(&f, {YALM_KV_FP32, 2, 1, 64, 512, 0, 0, 8, 30, 1, 2.0}, 1);
    append_all(&f, 8, 0);
    std::fill(f.attention.q.begin(), f.attention.q.begin() + 64, 0.0f);
    f.attention.q[64 + 9] = 1000;
    assert_cuda(cudaMemcpy(const_cast<float *>(f.attention.attention.q), f.attention.q.data(), 128 * sizeof(float),
                           cudaMemcpyHostToDevice));
    assert_scores(&f, run_scores(&f, NULL, 1), "odd queries");
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places), cmocka_unit_test(appends), cmocka_unit_test(own_keys),          cmocka_unit_test(shapes),
        cmocka_unit_test(groups), cmocka_unit_test(lengths), cmocka_unit_test(windows_and_rings), cmocka_unit_test(odd_queries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
