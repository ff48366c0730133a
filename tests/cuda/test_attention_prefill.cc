// Prefill attention against double: chunks at any depth, every group size and head_dim, windows, rings and sinks.
#include "attention_testing.h"
#include "thorough.h"

// fp16: queries are as good as in fp32, weights are rounded to 2^-11 of themselves.
static double tolerance(const struct attention_case &c)
{
    const double of_scores = (c.type == YALM_KV_FP32 ? 2e-6 : 6e-6) * (1 + c.range * c.range / 8);
    return c.value_range * (of_scores + (c.type == YALM_KV_FP32 ? 0 : 0x1p-11));
}

static void run(const struct attention_case &c)
{
    char what[160];
    snprintf(
        what, sizeof what, "%s, %d heads, %d kv heads, head_dim %d, context %d, window %d, sinks %d, chunk %d, %d tokens at %d",
        kv_name(c.type), c.n_heads, c.n_kv_heads, c.head_dim, c.context, c.window, c.n_sinks, c.chunk, c.n, (int)c.position);
    struct attention_fixture f;
    yalm_error error = {};
    attention_open(&f, c, (uint64_t)c.position * 31 + c.head_dim + c.n);
    float *attended = device_nan<float>(f.expected.size());
    assert_ok(attention_prefill(&f.attention, c.n, attended, DTYPE_FP32, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    assert_attended(&f, attended, tolerance(c), what);
    cudaFree(attended);
    attention_close(&f);
}

static const yalm_kv types[] = {YALM_KV_FP16, YALM_KV_FP32, YALM_KV_INT8};

// Whether a type of caches has the next case, of those that the short suite gives to one type each. `turn` begins as the type.
static bool has_turn(int *turn)
{
    return thorough() || (*turn)++ % 3 == 0;
}

static void groups(void **)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 24};
    for (yalm_kv type : types) {
        for (int group : sizes) {
            run({type, group * 2, 2, 64, 256, 0, 0, 64, 30, 33, 2.0});
            run({type, group, 1, 128, 256, 0, 0, 64, 0, 17, 2.0});
        }
    }
}

static void head_dims(void **)
{
    static const int dims[] = {2, 8, 10, 16, 48, 64, 72, 80, 96, 100, 128, 160, 250, 256, 258, 320, 512};
    for (yalm_kv type : types) {
        for (int dim : dims) {
            run({type, 4, 2, dim, 256, 0, 0, 64, 70, 40, 2.0});
        }
    }
}

static void lengths(void **)
{
    static const int lengths[] = {1, 2, 31, 33, 63, 64, 65, 127, 128, 129, 257};
    static const int positions[] = {0, 1, 47, 48, 64, 300};
    for (yalm_kv type : types) {
        int turn = type;
        for (int length : lengths) {
            for (int position : positions) {
                if (has_turn(&turn)) {
                    run({type, 2, 1, 64, 1024, 0, 0, 257, position, length, 2.0});
                }
            }
            if (has_turn(&turn)) {
                run({type, 2, 2, 128, 1024, 0, 0, 257, 20, length, 2.0});
            }
        }
    }
}

static void windows_and_rings(void **)
{
    static const int positions[] = {0, 5, 16, 17, 24, 25, 33, 40, 41, 42, 60, 200, 1000003};
    for (yalm_kv type : types) {
        int turn = type;
        for (int position : positions) {
            if (!has_turn(&turn)) {
                continue;
            }
            run({type, 4, 2, 64, 4096, 17, 0, 60, position % 4000, 60, 2.0}); // a model's window, its ring of 76
            run({type, 4, 2, 64, 4096, 90, 0, 20, position % 4000, 20, 2.0}); // whose tiles are seen in part, none or whole
            run({type, 4, 2, 64, 40, 0, 4, 33, position, 33, 2.0});           // sinks, apart for some tokens and not for others
            run({type, 4, 2, 80, 300, 0, 70, 50, position, 50, 2.0});         // more of them than a tile has
            run({type, 4, 2, 48, 5, 0, 4, 9, position, 7, 2.0});              // nearly all is sinks
            run({type, 4, 1, 128, 40, 0, 4, 5, position, 5, 2.0});
            run({type, 4, 2, 512, 40, 0, 4, 33, position, 33, 2.0});
        }
    }
}

static void large_scores(void **)
{
    for (yalm_kv type : types) {
        run({type, 4, 1, 64, 512, 0, 0, 64, 40, 50, 60.0});
        run({type, 4, 1, 128, 512, 0, 0, 64, 40, 50, 200.0}); // scores of thousands
    }
}

// Values far beyond fp16's range, far below it, and of all magnitudes in one tile: the weights' scales must not leave it.
static void value_ranges(void **)
{
    for (int dim : {64, 80, 128, 256}) {
        for (double range : {1e-30, 1e-9, 1e7, 1e30}) {
            run({YALM_KV_INT8, 4, 2, dim, 256, 0, 0, 64, 70, 40, 2.0, range});
        }
        run({YALM_KV_INT8, 4, 2, dim, 256, 0, 0, 64, 70, 40, 2.0, 1.0, true});
    }
    run({YALM_KV_INT8, 4, 2, 512, 256, 0, 0, 64, 70, 40, 2.0, 1.0, true});
}

static void slopes(void **)
{
    for (yalm_kv type : types) {
        for (int dim : {64, 80, 128, 250, 320}) {
            run({type, 3, 3, dim, 256, 0, 0, 64, 70, 40, 2.0, 1.0, false, false, 0.5});
            run({type, 2, 2, dim, 256, 40, 0, 64, 70, 40, 2.0, 1.0, false, false, 0.25}); // in a ring
        }
    }
}

static void latents(void **)
{
    for (yalm_kv type : {YALM_KV_FP16, YALM_KV_FP32}) {
        run({type, 5, 1, 24, 256, 0, 0, 64, 70, 21, 2.0, 2.0, false, true});
        run({type, 3, 1, 576, 256, 0, 0, 64, 20, 6, 2.0, 2.0, false, true});
        run({type, 4, 1, 30, 40, 0, 4, 9, 39, 9, 2.0, 2.0, false, true}); // sinks, apart for some tokens
    }
}

// Several texts in one batch, of which a block's rows have more than one, or one that is longer than a tile.
static void texts(void **)
{
    for (yalm_kv type : types) {
        int turn = type;
        for (int length : {1, 3, 29, 75, 150}) {
            for (bool both_ways : {true, false}) {
                for (int window : {0, 24}) {
                    if (has_turn(&turn)) {
                        run({type, 2, 2, 64, 256, window, 0, 150, 0, 150, 2.0, 1.0, false, false, 0, length, both_ways});
                    }
                }
            }
        }
        run({type, 4, 1, 128, 256, 17, 0, 90, 0, 90, 2.0, 1.0, false, false, 0, 40, true});
        run({type, 2, 1, 256, 256, 17, 0, 90, 0, 90, 2.0, 1.0, false, false, 0, 40, true});
    }
}

// Heads' keys and values of latents: products beside those in double, behind them what rotates, or zeros; no slot beyond n.
static void run_expanded(const struct latent_config &d, int capacity, int n)
{
    enum { HEADS = 3 };
    uint64_t seed = 3;
    const int head_dim = d.kv_rank + d.rope_dim, width = d.nope_dim + d.rope_dim;
    std::vector<float> rows = random_floats(&seed, (size_t)2 * capacity * head_dim, 1),
                       k_b = random_floats(&seed, (size_t)HEADS * d.kv_rank * d.nope_dim, 1),
                       v_b = random_floats(&seed, (size_t)HEADS * d.kv_rank * d.v_dim, 1);
    uint16_t *latents = device_copy(to_halves(&rows)), *device_k = device_copy(to_halves(&k_b)),
             *device_v = device_copy(to_halves(&v_b));
    const size_t expanded = (size_t)HEADS * capacity * width;
    const struct kv_policy policy = kv_policy_make(capacity, 0, false, 0, 1);
    const struct kv_cache from = {YALM_KV_FP16, latents, latents, 2, 1, head_dim, policy};
    const struct kv_cache to = {YALM_KV_FP16, device_nan<half>(expanded), device_nan<half>(expanded), 1, HEADS, width, policy};
    yalm_error error = {};
    assert_ok(
        expand_latents(&to, &from, 1, &d, reinterpret_cast<half *>(device_k), reinterpret_cast<half *>(device_v), n, 0, &error),
        error);
    assert_cuda(cudaDeviceSynchronize());
    const std::vector<half> keys = host_copy(static_cast<const half *>(to.keys), expanded),
                            values = host_copy(static_cast<const half *>(to.values), expanded);
    for (size_t i = 0; i < expanded; i++) {
        const int h = (int)(i / width / capacity), slot = (int)(i / width % capacity), c = (int)(i % width);
        const float *row = &rows[((size_t)capacity + slot) * head_dim];
        double key = c < d.nope_dim ? 0 : row[d.kv_rank + c - d.nope_dim], value = 0;
        for (int j = 0; j < d.kv_rank; j++) {
            key += c < d.nope_dim ? (double)row[j] * k_b[((size_t)h * d.kv_rank + j) * d.nope_dim + c] : 0;
            value += c < d.v_dim ? (double)row[j] * v_b[((size_t)h * d.v_dim + c) * d.kv_rank + j] : 0;
        }
        if (slot < n) {
            assert_near(__half2float(keys[i]), key, 0x1p-11 * fabs(key) + 1e-5, "key", slot, c);
            assert_near(__half2float(values[i]), value, 0x1p-11 * fabs(value) + 1e-5, "value", slot, c);
        } else {
            assert_true(isnan(__half2float(keys[i])) && isnan(__half2float(values[i])));
        }
    }
    for (void *memory : {(void *)latents, (void *)device_k, (void *)device_v, to.keys, to.values}) {
        cudaFree(memory);
    }
}

static void expanded(void **)
{
    run_expanded({.q_rank = 0, .kv_rank = 24, .nope_dim = 10, .rope_dim = 6, .v_dim = 13, .norm_eps = 0}, 70, 67);
    run_expanded({.q_rank = 0, .kv_rank = 64, .nope_dim = 16, .rope_dim = 8, .v_dim = 24, .norm_eps = 0}, 9, 9);
    run_expanded({.q_rank = 0, .kv_rank = 136, .nope_dim = 72, .rope_dim = 8, .v_dim = 80, .norm_eps = 0}, 70, 65);
    run_expanded({.q_rank = 0, .kv_rank = 130, .nope_dim = 71, .rope_dim = 4, .v_dim = 66, .norm_eps = 0}, 20, 1);
}

// Some heads of more than the cache has: the others' queries and outputs are left alone.
static void some_heads(void **)
{
    struct attention_fixture f;
    yalm_error error = {};
    attention_open(&f, {YALM_KV_FP16, 5, 5, 40, 256, 0, 0, 64, 30, 20, 2.0}, 9);
    const size_t n = f.expected.size(), of_head = (size_t)f.cache.policy.capacity * 40;
    float *whole = device_nan<float>(n), *parts = device_nan<float>(n);
    assert_ok(attention_prefill(&f.attention, 20, whole, DTYPE_FP32, 0, &error), error);
    for (int first = 0, heads; first < 5; first += heads) {
        heads = first ? 2 : 3;
        struct kv_cache cache = f.cache; // of one layer, which is the second
        cache.keys = static_cast<half *>(cache.keys) + (5 + first) * of_head;
        cache.values = static_cast<half *>(cache.values) + (5 + first) * of_head;
        cache.n_kv_heads = heads;
        struct attention attention = {f.step, f.attention.q + first * 40, NULL, &cache, 0, heads};
        attention.row_heads = 5;
        assert_ok(attention_prefill(&attention, 20, parts + first * 40, DTYPE_FP32, 0, &error), error);
    }
    assert_cuda(cudaDeviceSynchronize());
    assert_true(host_copy(whole, n) == host_copy(parts, n));
    cudaFree(whole);
    cudaFree(parts);
    attention_close(&f);
}

// Outputs of 16 bits are those of fp32, rounded.
static void types_of_outputs(void **)
{
    for (yalm_kv type : types) {
        struct attention_fixture f;
        yalm_error error = {};
        attention_open(&f, {type, 6, 2, 80, 256, 0, 0, 64, 30, 33, 2.0}, 5);
        const size_t n = f.expected.size();
        float *plain = device_nan<float>(n);
        half *halves = device_nan<half>(n);
        __nv_bfloat16 *bfloats = device_nan<__nv_bfloat16>(n);
        assert_ok(attention_prefill(&f.attention, 33, plain, DTYPE_FP32, 0, &error), error);
        assert_ok(attention_prefill(&f.attention, 33, halves, DTYPE_FP16, 0, &error), error);
        assert_ok(attention_prefill(&f.attention, 33, bfloats, DTYPE_BF16, 0, &error), error);
        const std::vector<float> x = host_copy(plain, n);
        const std::vector<half> h = host_copy(halves, n);
        const std::vector<__nv_bfloat16> b = host_copy(bfloats, n);
        for (size_t i = 0; i < n; i++) {
            assert_true(__half2float(h[i]) == __half2float(__float2half_rn(x[i])));
            assert_true(__bfloat162float(b[i]) == __bfloat162float(__float2bfloat16_rn(x[i])));
        }
        cudaFree(plain);
        cudaFree(halves);
        cudaFree(bfloats);
        attention_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups),           cmocka_unit_test(head_dims),
        cmocka_unit_test(lengths),          cmocka_unit_test(windows_and_rings),
        cmocka_unit_test(large_scores),     cmocka_unit_test(value_ranges),
        cmocka_unit_test(types_of_outputs), cmocka_unit_test(slopes),
        cmocka_unit_test(latents),          cmocka_unit_test(expanded),
        cmocka_unit_test(some_heads),       cmocka_unit_test(texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
