// The ladders of bench/ against double precision: every step computes what the engine's kernel does.
#include "../../bench/attention_ladder.cuh"
#include "../../bench/matvec_ladder.cuh"
#include "attention_testing.h"

// ------------------------------------------------------------------------------------------ attention

static void run_attention_steps(const struct attention_case &c, int n_sms)
{
    struct attention_fixture f;
    yalm_error error = {};
    attention_open(&f, c, 7);
    const int n_keys = (int)c.position + 1, capacity = f.cache.policy.capacity;
    const size_t layer = (size_t)c.n_kv_heads * capacity * c.head_dim;
    struct ladder_attention a = {};
    a.keys = static_cast<const half *>(f.cache.keys) + layer;
    a.values = static_cast<const half *>(f.cache.values) + layer;
    a.q = f.attention.q;
    a.attended = device_nan<float>(f.expected.size());
    a.n_heads = c.n_heads;
    a.group = c.n_heads / c.n_kv_heads;
    a.head_dim = c.head_dim;
    a.capacity = capacity;
    a.n_keys = n_keys;
    a.scores = device_nan<float>((size_t)c.n_heads * n_keys);
    a.n_splits = ladder_splits(c.n_heads, n_keys, n_sms);
    a.part_acc = device_nan<float>((size_t)c.n_heads * a.n_splits * c.head_dim);
    a.part_state = device_nan<float2>((size_t)c.n_heads * a.n_splits);
    for (int step = 0; step < LADDER_ATTENTION_STEPS; step++) {
        assert_cuda(cudaMemset(a.attended, 0xff, f.expected.size() * sizeof(float)));
        assert_ok(ladder_attention_run((enum ladder_attention_step)step, &a, 0, &error), error);
        assert_cuda(cudaDeviceSynchronize());
        assert_attended(&f, a.attended, 1e-5 * (1 + c.range * c.range / 8), ladder_attention_names[step]);
    }
    cudaFree(a.attended);
    cudaFree(a.scores);
    cudaFree(a.part_acc);
    cudaFree(a.part_state);
    attention_close(&f);
}

static void attention_steps(void **)
{
    for (int d : {8, 16, 64, 80, 128, 256})
        run_attention_steps({YALM_KV_FP16, 4, 2, d, 128, 0, 0, 8, 70, 1, 2.0}, 3);
    for (int position : {0, 1, 30, 31, 32, 63, 64, 200})
        run_attention_steps({YALM_KV_FP16, 3, 1, 64, 256, 0, 0, 8, position, 1, 2.0}, 16);
    run_attention_steps({YALM_KV_FP16, 2, 2, 64, 128, 0, 0, 8, 99, 1, 40.0}, 4); // scores far apart
}

// ------------------------------------------------------------------------------------------ products

static void run_matvec_steps(int rows, int cols)
{
    uint64_t seed = (uint64_t)rows * 1000 + cols;
    yalm_error error = {};
    std::vector<float> w = random_floats(&seed, (size_t)rows * cols, 1.0), x = random_floats(&seed, cols, 1.0);
    uint16_t *device_w = device_copy(to_halves(&w));
    float *device_x = device_copy(x), *y = device_nan<float>(rows);
    const struct ladder_matvec m = {reinterpret_cast<const half *>(device_w), device_x, y, rows, cols};
    for (int step = 0; step < LADDER_MATVEC_STEPS; step++) {
        assert_cuda(cudaMemset(y, 0xff, rows * sizeof *y));
        assert_ok(ladder_matvec_run((enum ladder_matvec_step)step, &m, 0, &error), error);
        assert_cuda(cudaDeviceSynchronize());
        const std::vector<float> found = host_copy(y, rows);
        for (int r = 0; r < rows; r++) {
            double expected = 0;
            for (int c = 0; c < cols; c++)
                expected += (double)w[(size_t)r * cols + c] * x[c];
            assert_near(found[r], expected, 1e-6 * cols, ladder_matvec_names[step], r, cols);
        }
    }
    cudaFree(device_w);
    cudaFree(device_x);
    cudaFree(y);
}

static void matvec_steps(void **)
{
    for (int cols : {8, 64, 248, 256, 264, 1024, 1032, 2056})
        for (int rows : {1, 7, 8, 257})
            run_matvec_steps(rows, cols);
}

static void refusals(void **)
{
    yalm_error error = {};
    struct ladder_attention a = {};
    a.head_dim = 12;
    assert_int_equal(ladder_attention_run(LADDER_SPLIT_KEYS, &a, 0, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "found 12"));
    const struct ladder_matvec m = {NULL, NULL, NULL, 1, 9};
    assert_int_equal(ladder_matvec_run(LADDER_PACKS, &m, 0, &error), YALM_USAGE);
    assert_non_null(strstr(error.text, "found 9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention_steps), cmocka_unit_test(matvec_steps),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
