// Quantised weights, what the other tests leave out: many tokens' products by slabs of any size, weights at the ends of fp16's
// range, values that are no numbers. (Embedding, few tokens' products and experts of every type: test_elementwise, test_matvec,
// test_several, test_experts.)
#include "weights_testing.h"

struct product_case {
    enum dtype type;
    int rows, cols, n, slab_rows;
    bool bias, add;
    double scale; // of the weights
    bool split;   // x in two parts
};

// x (parts, n, cols) of fp16, the second part what rounding the first would lose; returns their sums.
static std::vector<double> split_tokens(uint64_t *seed, const struct product_case &c, std::vector<half> *parts)
{
    const size_t count = (size_t)c.n * c.cols;
    std::vector<double> sums(count);
    for (int part = 0; part < (c.split ? 2 : 1); part++) {
        for (size_t i = 0; i < count; i++) {
            parts->push_back(__float2half_rn((float)(uniform(seed) * (part ? 0x1p-11 : 1))));
            sums[i] += __half2float(parts->back());
        }
    }
    return sums;
}

// A slab's weights are rounded to fp16 once more, to 2^-11 of themselves or 2^-39 of what their scales allow; e5m2's are fp16
// as they are.
static void check_product(const struct product_case &c, const struct weights *w, const std::vector<double> &x,
                          const std::vector<float> &bias, const std::vector<float> &y, const std::vector<float> &found)
{
    const double rounding = c.type == DTYPE_FP8_E5M2 ? 0 : 0x1p-11, least = 0x1p-37 * c.scale * c.cols;
    for (int t = 0; t < c.n; t++) {
        const std::vector<double> with(x.begin() + (size_t)t * c.cols, x.begin() + (size_t)(t + 1) * c.cols);
        for (int r = 0; r < c.rows; r++) {
            double magnitude;
            const double expected =
                dot(w, r, with, &magnitude) + (c.bias ? bias[r] : 0) + (c.add ? y[(size_t)t * c.rows + r] : 0);
            const double sums = (c.cols + 4) * 0x1p-24 * (magnitude + 2 * c.scale);
            assert_near(found[(size_t)t * c.rows + r], expected, sums + rounding * magnitude + least, dtype_names[c.type], t,
                        r);
        }
    }
}

static void run_product(struct matmul *matmul, const struct product_case &c)
{
    uint64_t seed = (uint64_t)c.rows * 7919 + c.cols * 31 + c.n;
    const struct weights w = quantised_weights(&seed, c.type, c.rows, c.cols, c.scale);
    std::vector<half> rounded;
    const std::vector<double> x = split_tokens(&seed, c, &rounded);
    const std::vector<float> bias = random_floats(&seed, c.rows, c.scale);
    const std::vector<float> y = random_floats(&seed, (size_t)c.n * c.rows, c.scale);
    const size_t slab_bytes = (size_t)c.slab_rows * c.cols * sizeof(half) + 1; // not quite one row more
    half *device_x = device_copy(rounded);
    float *device_y = c.add ? device_copy(y) : device_nan<float>(y.size()), *device_bias = c.bias ? device_copy(bias) : NULL;
    char *slab = device_nan<char>(slab_bytes);
    matmul_use_slab(matmul, slab, slab_bytes);
    yalm_error error = {};
    if (c.split) {
        assert_ok(matmul_run_split(matmul, device_y, device_x, &w.device, device_bias, c.n, 0, &error), error);
    } else {
        assert_ok(matmul_run(matmul, device_y, device_x, &w.device, device_bias, c.n, c.add, 0, &error), error);
    }
    assert_cuda(cudaDeviceSynchronize());
    check_product(c, &w, x, bias, y, host_copy(device_y, y.size()));
    free_weights(&w);
    for (void *memory : {(void *)device_x, (void *)device_y, (void *)device_bias, (void *)slab}) {
        cudaFree(memory);
    }
}

static struct matmul *open_matmul(void)
{
    yalm_error error = {};
    struct matmul *matmul = NULL;
    assert_ok(matmul_open(&matmul, &error), error);
    return matmul;
}

static void test_products(void **)
{
    struct matmul *matmul = open_matmul();
    for (enum dtype type : quantised_types) {
        int options = 0;
        for (int cols : {1, 2, 31, 33, 47, 64, 100, 264}) {
            run_product(matmul, {type, 37, cols, 19, 37, (options & 1) != 0, (options & 2) != 0, 1, false});
            options++;
        }
        run_product(matmul, {type, 1, 40, 18, 1, true, true, 1, false});
        run_product(matmul, {type, 37, 70, 9, 7, true, false, 1, true});
        run_product(matmul, {type, 600, 24, 17, 600, false, false, 1, false});
        for (int slab_rows : {1, 7, 36, 270, 511, 900}) {
            run_product(matmul, {type, slab_rows < 40 ? 37 : 600, 40, 17, slab_rows, true, slab_rows % 2 == 0, 1, false});
        }
    }
    matmul_close(matmul);
}

// Products and embeddings of weights that fp16 would not hold, or hold to a few bits. A group's scale is fp16 itself, so the
// smallest ones have lost their own digits already.
static void test_ranges(void **)
{
    struct matmul *matmul = open_matmul();
    const int n = 9;
    for (double scale : {1e-3, 1e-1, 1e3, 1e5, 3e6}) {
        run_product(matmul, {DTYPE_Q8, 9, 70, n, 4, true, true, scale, false});
    }
    for (double scale : {1e-5, 1e-3, 1e3, 1e5}) {
        run_product(matmul, {DTYPE_Q4, 9, 70, n, 4, true, true, scale, false});
    }
    for (enum dtype type : {DTYPE_FP8, DTYPE_Q4N, DTYPE_Q5, DTYPE_Q6}) {
        for (double scale : {1e-30, 1e-9, 1e-4, 1e5, 1e9, 1e30}) {
            run_product(matmul, {type, 9, 70, n, 4, true, true, scale, false});
        }
    }
    for (double scale : {1e-5, 1e-3, 50000.0}) {
        run_product(matmul, {DTYPE_FP8_E5M2, 9, 70, n, 4, true, true, scale, false});
    }
    matmul_close(matmul);
}

// Rows that differ by far in their scales: the small one keeps its digits down to 2^-28 of the large one.
static void test_uneven_rows(void **)
{
    const int cols = 48, rows = 2;
    std::vector<uint8_t> bytes;
    const struct matrix shape = {NULL, DTYPE_FP8, rows, cols};
    bytes.resize(factors_at(&shape) + sizeof(struct product_factors));
    const float scales[] = {0.25f, 0.25f * 0x1p-19f};
    for (int i = 0; i < rows * cols; i++) {
        bytes[i] = (uint8_t)(8 + i % 112);
    }
    memcpy(&bytes[rows * cols], scales, sizeof scales);
    struct matrix m = shape;
    m.data = device_copy(bytes);
    half *slab = device_nan<half>(rows * cols);
    yalm_error error = {};
    assert_ok(product_factors_make(&m, 0, &error), error);
    assert_ok(dequantise(slab, &m, 0, rows, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    const std::vector<half> found = host_copy(slab, rows * cols);
    const double alpha = host_copy(product_factors_of(&m), 1)[0].alpha;
    assert_true(alpha == 0x1p-7); // 0.25 * 512 / 2^14 is the next power of two
    for (int i = 0; i < rows * cols; i++) {
        const double expected = e4m3_value(bytes[i]) * scales[i / cols];
        assert_near(alpha * __half2float(found[i]), expected, 0x1p-11 * expected + alpha * 0x1p-25, "weight", i / cols,
                    i % cols);
    }
    cudaFree(const_cast<void *>(m.data));
    cudaFree(slab);
}

// A NaN or an infinity in x makes its row's results none, as on the CPU; zeros stay zeros.
static void test_no_numbers(void **)
{
    uint64_t seed = 3;
    const int rows = 6, cols = 300;
    for (enum dtype type : quantised_types) {
        const struct weights w = random_weights(&seed, type, rows, cols);
        for (float odd : {NAN, INFINITY, 0.0f, 1e-35f}) {
            std::vector<float> y(cols, odd == odd && odd < 1 ? odd : 1.0f);
            y[200] = odd;
            float *device_y = device_copy(y), *x = device_copy(std::vector<float>(rows, 2.0f));
            yalm_error error = {};
            assert_ok(matvec_residual(x, &w.device, NULL, device_y, 0, &error), error);
            assert_cuda(cudaDeviceSynchronize());
            for (float found : host_copy(x, rows)) {
                assert_true(odd == odd && odd < 1 ? found == 2.0f : !isfinite(found));
            }
            cudaFree(device_y);
            cudaFree(x);
        }
        free_weights(&w);
    }
}

// What the memory statement counts.
static void test_slab_bytes(void **)
{
    struct model_config config = {};
    struct layer_weights layer = {};
    struct expert_weights units = {};
    struct model_weights weights = {};
    config.n_layers = 1;
    weights.layers = &layer;
    layer.experts = &units;
    weights.classifier = {NULL, DTYPE_FP16, 1000, 64};
    assert_int_equal(slab_bytes(&config, &weights), 0);
    layer.q = {NULL, DTYPE_Q4, 50, 64};
    units.gate = {&config, DTYPE_FP16, 64, 100}; // any data: the layer has one
    units.down = {NULL, DTYPE_Q8, 100, 64};
    assert_int_equal(slab_bytes(&config, &weights), 100 * 64 * 2);
    layer.router.data = &config; // any: the layer has experts
    assert_int_equal(slab_bytes(&config, &weights), 50 * 64 * 2);
    layer.delta.gate_b = {NULL, DTYPE_Q8, 60, 64};
    assert_int_equal(slab_bytes(&config, &weights), 60 * 64 * 2);
    layer.scan.x = {NULL, DTYPE_Q4, 70, 64};
    assert_int_equal(slab_bytes(&config, &weights), 70 * 64 * 2);
    weights.classifier = {NULL, DTYPE_FP8, 128000, 4096};
    assert_int_equal(slab_bytes(&config, &weights), 128 << 20);
}

int main(void)
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_ranges),
                                cmocka_unit_test(test_uneven_rows), cmocka_unit_test(test_no_numbers),
                                cmocka_unit_test(test_slab_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
