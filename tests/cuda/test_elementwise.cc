// Embedding, normalisation, activation, rotation and the cache's append against double; the cache's index arithmetic against
// the engine's.
#include "weights_testing.h"

static const int lengths[] = {1, 2, 31, 32, 33, 47, 255, 256, 257, 1000};

static double rounding(enum dtype type)
{
    return type == DTYPE_FP32 ? 0x1p-23 : type == DTYPE_FP16 ? 0x1p-11 : 0x1p-8;
}

static std::vector<double> values_of(enum dtype type, const void *device, size_t n)
{
    std::vector<double> values(n);
    if (type == DTYPE_FP32) {
        const std::vector<float> x = host_copy(static_cast<const float *>(device), n);
        values.assign(x.begin(), x.end());
    } else if (type == DTYPE_FP16) {
        const std::vector<half> x = host_copy(static_cast<const half *>(device), n);
        for (size_t i = 0; i < n; i++) {
            values[i] = half_value(x[i]);
        }
    } else {
        const std::vector<__nv_bfloat16> x = host_copy(static_cast<const __nv_bfloat16 *>(device), n);
        for (size_t i = 0; i < n; i++) {
            values[i] = bfloat16_value(x[i]);
        }
    }
    return values;
}

static void test_embed(void **)
{
    uint64_t seed = 1;
    for (enum dtype type : weight_types) {
        for (int dim : lengths) {
            const std::vector<int32_t> tokens = {6, 0, 3};
            struct weights w = random_weights(&seed, type, 7, dim);
            int32_t *device_tokens = device_copy(tokens);
            float *x = device_nan<float>(tokens.size() * dim);
            yalm_error error = {};
            assert_ok(embed(x, &w.device, device_tokens, (int)tokens.size(), 0, &error), error);
            assert_cuda(cudaDeviceSynchronize());
            const std::vector<float> found = host_copy(x, tokens.size() * dim);
            for (size_t i = 0; i < found.size(); i++) {
                const double expected = w.at(tokens[i / dim], (int)i % dim);
                assert_near(found[i], (float)expected, 0, dtype_names[type], (int)i / dim, (int)i % dim);
            }
            free_weights(&w);
            cudaFree(device_tokens);
            cudaFree(x);
        }
    }
    yalm_error error = {};
    const struct matrix bytes = {NULL, DTYPE_U8, 7, 32};
    assert_int_equal(embed(NULL, &bytes, NULL, 1, 0, &error), YALM_FAILED);
}

static void test_rmsnorm(void **)
{
    uint64_t seed = 2;
    for (enum dtype type : float_types) {
        for (int dim : lengths) {
            const int n = 3;
            const std::vector<float> x = random_floats(&seed, (size_t)n * dim, 3), weight = random_floats(&seed, dim, 2);
            float *device_x = device_copy(x), *device_weight = device_copy(weight);
            void *y = device_nan<char>(n * dim * dtype_sizes[type]), *parts = device_nan<char>(2 * n * dim * dtype_sizes[type]);
            yalm_error error = {};
            assert_ok(rmsnorm(y, type, device_x, device_weight, 1e-5f, n, dim, 0, &error), error);
            assert_ok(rmsnorm_split(parts, type, device_x, device_weight, 1e-5f, n, dim, 0, &error), error);
            assert_cuda(cudaDeviceSynchronize());
            const std::vector<double> found = values_of(type, y, (size_t)n * dim);
            const std::vector<double> split = values_of(type, parts, (size_t)2 * n * dim);
            const double exact = rounding(type) * rounding(type) + sum_error(dim);
            for (int t = 0; t < n; t++) {
                const std::vector<double> expected = normalised(x.data() + t * dim, weight.data(), 1e-5, dim);
                for (int i = 0; i < dim; i++) {
                    const int at = t * dim + i;
                    assert_near(found[at], expected[i], (rounding(type) + sum_error(dim)) * fabs(expected[i]) + 0x1p-25,
                                "rmsnorm", t, i);
                    assert_true(split[at] == found[at]);
                    assert_near(split[at] + split[n * dim + at], expected[i], exact * fabs(expected[i]) + 0x1p-25,
                                "rmsnorm_split", t, i);
                }
            }
            cudaFree(device_x);
            cudaFree(device_weight);
            cudaFree(y);
            cudaFree(parts);
        }
    }
}

// In place, each head by itself; what lies between the heads of two tokens stays.
static void test_rmsnorm_heads(void **)
{
    uint64_t seed = 8;
    for (int dim : {2, 30, 32, 34, 64, 80, 128, 256}) {
        const int n = 3, heads = 5, pitch = heads * dim + 7;
        const std::vector<float> x = random_floats(&seed, (size_t)n * pitch, 3), weight = random_floats(&seed, dim, 2);
        float *device_x = device_copy(x), *device_weight = device_copy(weight);
        yalm_error error = {};
        assert_ok(rmsnorm_heads(device_x, pitch, device_weight, 1e-5f, n, heads, dim, 0, &error), error);
        assert_cuda(cudaDeviceSynchronize());
        const std::vector<float> found = host_copy(device_x, x.size());
        for (int t = 0; t < n; t++) {
            for (int h = 0; h < heads; h++) {
                const size_t at = (size_t)t * pitch + (size_t)h * dim;
                const std::vector<double> expected = normalised(x.data() + at, weight.data(), 1e-5, dim);
                for (int i = 0; i < dim; i++) {
                    assert_near(found[at + i], expected[i], (0x1p-23 + sum_error(dim)) * fabs(expected[i]) + 0x1p-25,
                                "rmsnorm_heads", h, i);
                }
            }
            for (int i = heads * dim; i < pitch; i++) {
                assert_true(found[(size_t)t * pitch + i] == x[(size_t)t * pitch + i]);
            }
        }
        cudaFree(device_x);
        cudaFree(device_weight);
    }
}

static void test_silu(void **)
{
    uint64_t seed = 3;
    for (enum dtype type : float_types) {
        for (int n : lengths) {
            std::vector<float> gate = random_floats(&seed, n, 10);
            const std::vector<float> up = random_floats(&seed, n, 3);
            gate[0] = -200; // e^200 is infinite as a float
            float *device_gate = device_copy(gate), *device_up = device_copy(up);
            void *y = device_nan<char>(n * dtype_sizes[type]);
            yalm_error error = {};
            assert_ok(gate_multiply(y, type, device_gate, device_up, n, 0, &error), error);
            assert_cuda(cudaDeviceSynchronize());
            const std::vector<double> found = values_of(type, y, n);
            for (int i = 0; i < n; i++) {
                const double expected = silu_of(gate[i]) * up[i];
                assert_near(found[i], expected, (rounding(type) + 0x1p-20) * fabs(expected) + 0x1p-25, "silu", i, n);
            }
            cudaFree(device_gate);
            cudaFree(device_up);
            cudaFree(y);
        }
    }
}

struct rope_case {
    yalm_kv type;
    int n_heads, n_kv_heads, head_dim;
    struct kv_policy policy;
    int64_t position;
    int n;
};

// What is expected of components i and i + half.
static void turned(double *re, double *im, const float *x, int i, int half_dim, double angle, double scale)
{
    *re = scale * (x[i] * cos(angle) - x[i + half_dim] * sin(angle));
    *im = scale * (x[i] * sin(angle) + x[i + half_dim] * cos(angle));
}

static void assert_turned(const float *found, const float *x, int head_dim, const std::vector<double> &frequency,
                          int64_t position, double scale, const char *what)
{
    const int half_dim = head_dim / 2;
    for (int i = 0; i < half_dim; i++) {
        double re, im;
        turned(&re, &im, x, i, half_dim, (double)position * frequency[i], scale);
        const double tolerance = 6 * 0x1p-24 * scale * (fabs(x[i]) + fabs(x[i + half_dim])) + 1e-30;
        assert_near(found[i], re, tolerance, what, (int)position, i);
        assert_near(found[i + half_dim], im, tolerance, what, (int)position, i + half_dim);
    }
}

static void assert_appended(const struct rope_case &c, const struct kv_cache *cache, int layer,
                            const std::vector<double> &frequency, double rope_scale, const std::vector<float> &k,
                            const std::vector<float> &v)
{
    const enum dtype type = c.type == YALM_KV_FP32 ? DTYPE_FP32 : DTYPE_FP16;
    const int d = c.head_dim, half_dim = d / 2;
    const size_t n = (size_t)cache->n_layers * c.n_kv_heads * c.policy.capacity * d;
    const std::vector<double> keys = values_of(type, cache->keys, n), values = values_of(type, cache->values, n);
    std::vector<bool> written(n);
    for (int t = 0; t < c.n; t++) {
        for (int head = 0; head < c.n_kv_heads; head++) {
            const int64_t position = c.position + t;
            const size_t from = ((size_t)t * c.n_kv_heads + head) * d;
            const size_t to =
                (((size_t)layer * c.n_kv_heads + head) * c.policy.capacity + kv_slot(&c.policy, position)) * (size_t)d;
            for (int i = 0; i < half_dim; i++) {
                double re, im;
                turned(&re, &im, &k[from], i, half_dim, (double)position * frequency[i], rope_scale);
                const double tolerance = rounding(type) * 4 + 0x1p-20;
                assert_near(keys[to + i], re, tolerance, "key", (int)position, i);
                assert_near(keys[to + i + half_dim], im, tolerance, "key", (int)position, i + half_dim);
            }
            for (int i = 0; i < d; i++) {
                assert_near(values[to + i], v[from + i], rounding(type) * fabs(v[from + i]), "value", (int)position, i);
                written[to + i] = true;
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        assert_true(written[i] || (isnan(keys[i]) && isnan(values[i]))); // nothing else was touched
    }
}

// Of latents the last `rotary` components rotate, what stands before them is only scaled in queries; and there are no values.
static void run_latents(yalm_kv type, int rank, int rotary, const struct kv_policy &policy, int64_t position)
{
    enum { N = 3, HEADS = 5 };
    uint64_t seed = 7;
    const int d = rank + rotary;
    const double rope_scale = 1.25, scale = 0.3;
    const std::vector<float> q = random_floats(&seed, (size_t)N * HEADS * d, 3), k = random_floats(&seed, (size_t)N * d, 2);
    std::vector<double> frequency(rotary / 2);
    for (int i = 0; i < rotary / 2; i++) {
        frequency[i] = pow(10000, -2.0 * i / rotary);
    }
    const size_t n_cached = (size_t)policy.capacity * d;
    struct kv_cache cache = {type, device_nan<float>(n_cached), NULL, 1, 1, d, policy};
    cache.values = cache.keys;
    cache.latent = true;
    struct rope_append r = {};
    struct evaluation *step = device_copy(std::vector<struct evaluation>{{position, N, 0}});
    double *device_frequency = device_copy(frequency);
    float *device_q = device_copy(q), *device_k = device_copy(k), *queries = device_nan<float>(q.size()),
          *sinks = device_nan<float>(q.size());
    r.step = step, r.q = device_q, r.k = device_k, r.rotated_q = queries, r.sink_q = sinks, r.cache = &cache;
    r.rope = {device_frequency, rope_scale, rotary};
    r.n_heads = HEADS;
    r.scale = (float)scale;
    yalm_error error = {};
    assert_ok(rope_append(&r, N, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    const std::vector<double> keys = values_of(type == YALM_KV_FP32 ? DTYPE_FP32 : DTYPE_FP16, cache.keys, n_cached);
    const std::vector<float> found = host_copy(queries, q.size()), found_sink = host_copy(sinks, q.size());
    for (int i = 0; i < N * HEADS; i++) {
        const int64_t at = position + i / HEADS, furthest = policy.span - 1;
        const float *from = &q[(size_t)i * d];
        const std::vector<float> *const all[] = {&found, &found_sink};
        for (int which = 0; which < (policy.n_sinks > 0 ? 2 : 1); which++) {
            const float *to = &(*all[which])[(size_t)i * d];
            for (int c = 0; c < rank; c++) {
                assert_near(to[c], scale * from[c], 1e-6, "latent of a query", i, c);
            }
            assert_turned(to + rank, from + rank, rotary, frequency, which && at > furthest ? furthest : at, rope_scale * scale,
                          "query");
        }
    }
    for (int t = 0; t < N; t++) {
        const size_t slot = kv_slot(&policy, position + t);
        std::vector<float> row(keys.begin() + slot * d, keys.begin() + (slot + 1) * d);
        for (int c = 0; c < rank; c++) {
            assert_near(row[c], k[(size_t)t * d + c], type == YALM_KV_FP32 ? 0 : 0x1p-10, "latent", t, c);
        }
        for (int i = 0; i < rotary / 2; i++) {
            double re, im;
            turned(&re, &im, &k[(size_t)t * d + rank], i, rotary / 2, (double)(position + t) * frequency[i], rope_scale);
            assert_near(row[rank + i], re, 0x1p-9, "key", t, i);
            assert_near(row[rank + rotary / 2 + i], im, 0x1p-9, "key", t, i);
        }
    }
    for (void *memory : {cache.keys, (void *)step, (void *)device_frequency, (void *)device_q, (void *)device_k,
                         (void *)queries, (void *)sinks}) {
        cudaFree(memory);
    }
}

static void test_latents(void **)
{
    for (yalm_kv type : {YALM_KV_FP16, YALM_KV_FP32}) {
        run_latents(type, 24, 6, kv_policy_make(9, 0, false, 0, 4), 5);
        run_latents(type, 512, 64, kv_policy_make(9, 0, false, 0, 4), 0);
        run_latents(type, 33, 2, kv_policy_make(10, 0, true, 4, 3), 8); // past the span, with sinks
    }
}

// One row of a cache of int8 against what should be in it, to `tolerance` of its largest component. exact: to the bit, for what
// was only rounded.
static void assert_integers(const int8_t *row, float scale, const std::vector<double> &expected, double tolerance, bool exact,
                            int position)
{
    double largest = 0;
    for (double x : expected) {
        largest = fmax(largest, fabs(x));
    }
    assert_near(scale, largest / 127, exact ? 0x1p-24 * largest / 127 : tolerance * largest, "scale", position, 0);
    for (size_t i = 0; i < expected.size(); i++) {
        if (exact) {
            assert_int_equal(row[i], lrintf((float)expected[i] * (1 / scale)));
        }
        assert_near((double)scale * row[i], expected[i], scale * 0.5001 + tolerance * largest, "integer", position, (int)i);
    }
}

static void assert_appended_integers(const struct rope_case &c, const struct kv_cache *cache, int layer,
                                     const std::vector<double> &frequency, double rope_scale, const std::vector<float> &k,
                                     const std::vector<float> &v)
{
    const int d = c.head_dim, half_dim = d / 2;
    const size_t n = (size_t)cache->n_layers * c.n_kv_heads * c.policy.capacity;
    const std::vector<int8_t> keys = host_copy(static_cast<const int8_t *>(cache->keys), n * d);
    const std::vector<int8_t> values = host_copy(static_cast<const int8_t *>(cache->values), n * d);
    const std::vector<float> key_scales = host_copy(cache->key_scales, n), value_scales = host_copy(cache->value_scales, n);
    std::vector<bool> written(n);
    for (int i = 0; i < c.n * c.n_kv_heads; i++) {
        const int64_t position = c.position + i / c.n_kv_heads;
        const float *from_k = &k[(size_t)i * d], *from_v = &v[(size_t)i * d];
        const size_t slot =
            ((size_t)layer * c.n_kv_heads + i % c.n_kv_heads) * c.policy.capacity + kv_slot(&c.policy, position);
        std::vector<double> key(d), value(from_v, from_v + d);
        for (int j = 0; j < half_dim; j++) {
            turned(&key[j], &key[j + half_dim], from_k, j, half_dim, (double)position * frequency[j], rope_scale);
        }
        assert_integers(&keys[slot * d], key_scales[slot], key, 0x1p-20, false, (int)position);
        assert_integers(&values[slot * d], value_scales[slot], value, 0, true, (int)position);
        written[slot] = true;
    }
    for (size_t i = 0; i < n * d; i++) { // nothing else was touched
        assert_true(written[i / d] ||
                    (keys[i] == -1 && values[i] == -1 && isnan(key_scales[i / d]) && isnan(value_scales[i / d])));
    }
}

static void run_rope(const struct rope_case &c)
{
    uint64_t seed = (uint64_t)c.position + c.head_dim;
    const int d = c.head_dim, n_layers = 2, layer = 1;
    const double rope_scale = 1.25;
    const bool sinks = c.policy.n_sinks > 0;
    const std::vector<float> q = random_floats(&seed, (size_t)c.n * c.n_heads * d, 3);
    const std::vector<float> k = random_floats(&seed, (size_t)c.n * c.n_kv_heads * d, 2);
    const std::vector<float> v = random_floats(&seed, (size_t)c.n * c.n_kv_heads * d, 2);
    std::vector<double> frequency(d / 2);
    for (int i = 0; i < d / 2; i++) {
        frequency[i] = pow(10000, -2.0 * i / d);
    }
    const bool integers = c.type == YALM_KV_INT8;
    const size_t rows = (size_t)n_layers * c.n_kv_heads * c.policy.capacity;
    const size_t bytes = rows * d * (c.type == YALM_KV_FP32 ? 4 : integers ? 1 : 2);
    struct kv_cache cache = {c.type, device_nan<char>(bytes), device_nan<char>(bytes), n_layers, c.n_kv_heads, d, c.policy};
    if (integers) {
        cache.key_scales = device_nan<float>(rows);
        cache.value_scales = device_nan<float>(rows);
    }
    struct evaluation *step = device_copy(std::vector<struct evaluation>{{c.position, c.n, 0}});
    double *device_frequency = device_copy(frequency);
    float *device_q = device_copy(q), *device_k = device_copy(k), *device_v = device_copy(v);
    float *rotated = device_nan<float>(q.size()), *sink = sinks ? device_nan<float>(q.size()) : NULL;
    float *rotated_k = device_nan<float>(k.size());
    const struct rope_append r = {step,  device_q,  device_k, device_v, rotated, sink, &cache, {device_frequency, rope_scale},
                                  layer, c.n_heads, rotated_k};
    yalm_error error = {};
    assert_ok(rope_append(&r, c.n, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());

    const std::vector<float> found = host_copy(rotated, q.size());
    const std::vector<float> found_sink = sinks ? host_copy(sink, q.size()) : std::vector<float>();
    for (int i = 0; i < c.n * c.n_heads; i++) {
        const int64_t position = c.position + i / c.n_heads, furthest = c.policy.span - 1;
        assert_turned(&found[(size_t)i * d], &q[(size_t)i * d], d, frequency, position, rope_scale / sqrt(d), "query");
        if (sinks) {
            assert_turned(&found_sink[(size_t)i * d], &q[(size_t)i * d], d, frequency,
                          position < furthest ? position : furthest, rope_scale / sqrt(d), "query for the sinks");
        }
    }
    const std::vector<float> found_k = host_copy(rotated_k, k.size());
    for (int i = 0; i < c.n * c.n_kv_heads; i++) {
        assert_turned(&found_k[(size_t)i * d], &k[(size_t)i * d], d, frequency, c.position + i / c.n_kv_heads, rope_scale,
                      "key");
    }
    struct rope_append queries = r; // which leaves the cache as it is
    queries.k = queries.v = NULL;
    queries.rotated_q = device_nan<float>(q.size());
    assert_ok(rope_append(&queries, c.n, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    assert_true(host_copy(queries.rotated_q, q.size()) == found);
    cudaFree(queries.rotated_q);
    (integers ? assert_appended_integers : assert_appended)(c, &cache, layer, frequency, rope_scale, k, v);
    for (void *memory : {cache.keys, cache.values, (void *)cache.key_scales, (void *)cache.value_scales, (void *)step,
                         (void *)device_frequency, (void *)device_q, (void *)device_k, (void *)device_v, (void *)rotated,
                         (void *)sink, (void *)rotated_k}) {
        cudaFree(memory);
    }
}

static void test_rope(void **)
{
    for (yalm_kv type : {YALM_KV_FP16, YALM_KV_FP32, YALM_KV_INT8}) {
        for (int d : {2, 20, 48, 62, 64, 80, 96, 128, 256}) {
            run_rope({type, 6, 2, d, kv_policy_make(9, 0, false, 0, 4), 5, 3});
        }
        run_rope({type, 4, 4, 48, kv_policy_make(10, 0, true, 4, 3), 8, 3});        // past the span, with sinks
        run_rope({type, 4, 1, 128, kv_policy_make(10, 0, true, 4, 1), 1000003, 1}); // far past it
        run_rope({type, 32, 1, 64, kv_policy_make(20, 7, true, 4, 2), 1000003, 2}); // with a window, which needs none
    }
}

// Values and keys beyond fp16's range stay finite, as on the CPU.
static void test_saturation(void **)
{
    const struct kv_policy policy = kv_policy_make(1, 0, false, 0, 1);
    struct kv_cache cache = {YALM_KV_FP16, device_nan<half>(2), device_nan<half>(2), 1, 1, 2, policy};
    struct evaluation *step = device_copy(std::vector<struct evaluation>{{0, 1, 0}});
    double *frequency = device_copy(std::vector<double>{1.0});
    float *q = device_copy(std::vector<float>{1, 1}), *k = device_copy(std::vector<float>{1e30f, -1e5f});
    float *v = device_copy(std::vector<float>{-70000, NAN}), *rotated = device_nan<float>(2);
    const struct rope_append r = {step, q, k, v, rotated, NULL, &cache, {frequency, 1}, 0, 1};
    yalm_error error = {};
    assert_ok(rope_append(&r, 1, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    const std::vector<double> keys = values_of(DTYPE_FP16, cache.keys, 2), values = values_of(DTYPE_FP16, cache.values, 2);
    assert_true(keys[0] == 65504 && keys[1] == -65504 && values[0] == -65504 && isnan(values[1]));
    for (void *memory :
         {cache.keys, cache.values, (void *)step, (void *)frequency, (void *)q, (void *)k, (void *)v, (void *)rotated}) {
        cudaFree(memory);
    }
}

// Rows that cannot be scaled by their largest magnitude: what is not finite makes the scale NaN, what is too small counts as 0.
static void test_odd_rows(void **)
{
    const std::vector<std::vector<float>> rows = {{0, 0},          {1e-37f, -1e-38f}, {1, NAN}, {-INFINITY, 2},
                                                  {3e38f, -3e38f}, {127, 2.5f},       {-254, 7}};
    const float scales[] = {0, 0, NAN, NAN, 3e38f / 127, 1, 2};
    const int8_t integers[][2] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}, {127, -127}, {127, 2}, {-127, 4}};
    for (size_t i = 0; i < rows.size(); i++) {
        struct kv_cache cache = {
            YALM_KV_INT8,         device_nan<int8_t>(2), device_nan<int8_t>(2), 1, 1, 2, kv_policy_make(1, 0, false, 0, 1),
            device_nan<float>(1), device_nan<float>(1)};
        struct evaluation *step = device_copy(std::vector<struct evaluation>{{0, 1, 0}});
        double *frequency = device_copy(std::vector<double>{1.0});
        float *q = device_copy(std::vector<float>{1, 1}), *x = device_copy(rows[i]), *rotated = device_nan<float>(2);
        const struct rope_append r = {step, q, x, x, rotated, NULL, &cache, {frequency, 1}, 0, 1};
        yalm_error error = {};
        assert_ok(rope_append(&r, 1, 0, &error), error);
        assert_cuda(cudaDeviceSynchronize());
        for (float scale : {host_copy(cache.key_scales, 1)[0], host_copy(cache.value_scales, 1)[0]}) {
            assert_true(scale == scales[i] || (isnan(scale) && isnan(scales[i])));
        }
        for (void *row : {cache.keys, cache.values}) {
            const std::vector<int8_t> found = host_copy(static_cast<const int8_t *>(row), 2);
            assert_true(found[0] == integers[i][0] && found[1] == integers[i][1]);
        }
        for (void *memory : {cache.keys, cache.values, (void *)cache.key_scales, (void *)cache.value_scales, (void *)step,
                             (void *)frequency, (void *)q, (void *)x, (void *)rotated}) {
            cudaFree(memory);
        }
    }
}

static void test_policy(void **)
{
    const struct kv_policy policies[] = {kv_policy_make(9, 0, false, 0, 4),  kv_policy_make(10, 0, true, 4, 3),
                                         kv_policy_make(64, 7, false, 0, 5), kv_policy_make(64, 7, true, 4, 5),
                                         kv_policy_make(1, 0, true, 4, 1),   kv_policy_make(100, 0, true, 99, 2)};
    for (const struct kv_policy &policy : policies) {
        for (int64_t position = 0; position < (policy.endless ? 1000 : policy.context); position++) {
            assert_int_equal(policy_slot(policy, position), kv_slot(&policy, position));
            assert_int_equal(policy_first_visible(policy, position), kv_first_visible(&policy, position));
            assert_int_equal(policy_n_visible(policy, position), kv_n_visible(&policy, position));
            assert_int_equal(policy_sinks_apart(policy, position), kv_sinks_apart(&policy, position));
        }
    }
}

int main(void)
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_embed),    cmocka_unit_test(test_rmsnorm), cmocka_unit_test(test_silu),
        cmocka_unit_test(test_rope),     cmocka_unit_test(test_latents), cmocka_unit_test(test_saturation),
        cmocka_unit_test(test_odd_rows), cmocka_unit_test(test_policy),  cmocka_unit_test(test_rmsnorm_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
