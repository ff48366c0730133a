// One token's products against double: every type, rows and columns of any number, biases or none.
#include "weights_testing.h"

static const int columns[] = {1, 2, 8, 31, 33, 47, 64, 100, 255, 256, 264, 1000, 2048, 2050, 4104, 14336};
static const float eps = 1e-5f;

static void run_norm(enum dtype type, const int *rows, int n, int cols, bool biased)
{
    uint64_t seed = (uint64_t)cols * 8 + n;
    struct weights w[3];
    std::vector<float> bias[3];
    struct product products[3];
    std::vector<float> x = random_floats(&seed, cols, 3), norm = random_floats(&seed, cols, 2);
    float *device_x = device_copy(x), *device_norm = device_copy(norm);
    for (int i = 0; i < n; i++) {
        w[i] = random_weights(&seed, type, rows[i], cols);
        bias[i] = random_floats(&seed, rows[i], 1);
        products[i] = {w[i].device, biased ? device_copy(bias[i]) : NULL, device_nan<float>(rows[i])};
    }
    yalm_error error = {};
    assert_ok(matvec_norm(products, n, device_x, device_norm, eps, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    const std::vector<double> h = normalised(x.data(), norm.data(), eps, cols);
    for (int i = 0; i < n; i++) {
        const std::vector<float> y = host_copy(products[i].y, rows[i]);
        for (int r = 0; r < rows[i]; r++) {
            double magnitude;
            const double expected = dot(&w[i], r, h, &magnitude) + (biased ? bias[i][r] : 0);
            assert_near(y[r], expected, 3 * sum_error(cols) * (magnitude + 1) + input_error(&w[i], r, h), dtype_names[type], r,
                        cols);
        }
        free_weights(&w[i]);
        cudaFree(const_cast<float *>(products[i].bias));
        cudaFree(products[i].y);
    }
    cudaFree(device_x);
    cudaFree(device_norm);
}

static void test_norm(void **)
{
    for (enum dtype type : weight_types) {
        for (int cols : columns) {
            const int rows[] = {cols > 4000 ? 5 : 33, 7, 1};
            run_norm(type, rows, 3, cols, cols % 2 == 0);
            run_norm(type, rows + 1, 1, cols, cols % 2 != 0);
        }
        const int vocabulary[] = {3001};
        run_norm(type, vocabulary, 1, 40, false);
    }
}

static void run_gated(enum dtype gate_type, enum dtype up_type, int rows, int cols, bool biased)
{
    uint64_t seed = (uint64_t)cols * 8 + rows;
    const struct weights gate = random_weights(&seed, gate_type, rows, cols), up = random_weights(&seed, up_type, rows, cols);
    const std::vector<float> x = random_floats(&seed, cols, 3), norm = random_floats(&seed, cols, 2);
    const std::vector<float> gate_bias = random_floats(&seed, rows, 1), up_bias = random_floats(&seed, rows, 1);
    float *device_x = device_copy(x), *device_norm = device_copy(norm), *y = device_nan<float>(rows);
    float *biases[] = {biased ? device_copy(gate_bias) : NULL, biased ? device_copy(up_bias) : NULL};
    struct expert_weights ffn = {gate.device, up.device, {}, biases[0], biases[1], NULL};
    yalm_error error = {};
    assert_ok(matvec_gated(y, &ffn, device_x, device_norm, eps, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    const std::vector<double> h = normalised(x.data(), norm.data(), eps, cols);
    const std::vector<float> found = host_copy(y, rows);
    for (int r = 0; r < rows; r++) {
        double gate_magnitude, up_magnitude;
        const double g = dot(&gate, r, h, &gate_magnitude) + (biased ? gate_bias[r] : 0);
        const double u = dot(&up, r, h, &up_magnitude) + (biased ? up_bias[r] : 0);
        const double gate_error = 3 * sum_error(cols) * (gate_magnitude + 1) + input_error(&gate, r, h);
        const double up_error = 3 * sum_error(cols) * (up_magnitude + 1) + input_error(&up, r, h);
        const double tolerance = gate_error * 1.1 * (fabs(u) + up_error) + up_error * fabs(g);
        assert_near(found[r], silu_of(g) * u, tolerance, dtype_names[gate_type], r, cols);
    }
    free_weights(&gate);
    free_weights(&up);
    for (float *memory : {device_x, device_norm, y, biases[0], biases[1]}) {
        cudaFree(memory);
    }
}

static void test_gated(void **)
{
    for (enum dtype type : weight_types) {
        for (int cols : {1, 31, 33, 47, 64, 256, 2048, 2056}) {
            run_gated(type, type, cols > 1000 ? 9 : 47, cols, cols % 2 == 0);
        }
        run_gated(type, type, 1, 100, true);
        run_gated(type, DTYPE_FP16, 31, 72, true);
        run_gated(DTYPE_FP32, type, 31, 72, false);
    }
}

static void run_residual(enum dtype type, int rows, int cols, bool biased)
{
    uint64_t seed = (uint64_t)cols * 8 + rows;
    const struct weights w = random_weights(&seed, type, rows, cols);
    const std::vector<float> x = random_floats(&seed, rows, 3), y = random_floats(&seed, cols, 2),
                             bias = random_floats(&seed, rows, 1);
    float *device_x = device_copy(x), *device_y = device_copy(y), *device_bias = biased ? device_copy(bias) : NULL;
    yalm_error error = {};
    assert_ok(matvec_residual(device_x, &w.device, device_bias, device_y, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    const std::vector<float> found = host_copy(device_x, rows);
    const std::vector<double> with(y.begin(), y.end());
    for (int r = 0; r < rows; r++) {
        double magnitude;
        const double expected = dot(&w, r, with, &magnitude) + x[r] + (biased ? bias[r] : 0);
        assert_near(found[r], expected, sum_error(cols) * (magnitude + 4) + input_error(&w, r, with), dtype_names[type], r,
                    cols);
    }
    free_weights(&w);
    for (float *memory : {device_x, device_y, device_bias}) {
        cudaFree(memory);
    }
}

static void test_residual(void **)
{
    for (enum dtype type : weight_types) {
        for (int cols : columns) {
            run_residual(type, cols > 4000 ? 5 : 37, cols, cols % 2 == 0);
        }
        run_residual(type, 3, 28672, true);
        run_residual(type, 2, 120001, true); // more than shared memory holds
        run_residual(type, 2, 120008, true);
    }
}

// A weight matrix whose rows do not begin at multiples of 16 bytes, though its columns are as many as packs need.
static void test_unaligned(void **)
{
    uint64_t seed = 5;
    for (enum dtype type : float_types) {
        const int cols = 64, rows = 20, skipped = 1;
        struct weights w = random_weights(&seed, type, rows + 1, cols);
        struct matrix inner = {static_cast<const char *>(w.device.data) + skipped * dtype_sizes[type], type, rows, cols};
        const std::vector<float> y = random_floats(&seed, cols, 2);
        const std::vector<float> zeros(rows, 0.0f);
        float *device_y = device_copy(y), *x = device_copy(zeros);
        yalm_error error = {};
        assert_ok(matvec_residual(x, &inner, NULL, device_y, 0, &error), error);
        assert_cuda(cudaDeviceSynchronize());
        const std::vector<float> found = host_copy(x, rows);
        for (int r = 0; r < rows; r++) {
            double expected = 0;
            for (int c = 0; c < cols; c++) {
                expected += w.values[(size_t)r * cols + c + skipped] * y[c];
            }
            assert_near(found[r], expected, sum_error(cols) * 2 * cols, dtype_names[type], r, cols);
        }
        free_weights(&w);
        cudaFree(device_y);
        cudaFree(x);
    }
}

// Of each head its rows, of its part of x; each of several tokens with the bits that it has alone.
static void run_heads(enum dtype type, int heads, int rows, int cols, int x_dim, int kept, int n, enum dtype y_type)
{
    uint64_t seed = (uint64_t)cols * 8 + rows;
    const int y_dim = rows + kept;
    const struct weights w = random_weights(&seed, type, heads * rows, cols);
    const std::vector<float> x = random_floats(&seed, (size_t)n * heads * x_dim, 2);
    float *device_x = device_copy(x), *y = device_nan<float>((size_t)n * heads * y_dim);
    yalm_error error = {};
    assert_ok(multiply_heads(y, y_type, device_x, x_dim, &w.device, heads, kept, n, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    const size_t floats = (size_t)n * heads * y_dim;
    const std::vector<float> found = y_type == DTYPE_FP32 ? host_copy(y, floats) : std::vector<float>();
    const std::vector<half> halves =
        y_type == DTYPE_FP16 ? host_copy(reinterpret_cast<const half *>(y), floats) : std::vector<half>();
    for (int i = 0; i < n * heads; i++) {
        const std::vector<double> own(x.begin() + (size_t)i * x_dim, x.begin() + (size_t)i * x_dim + cols);
        for (int r = 0; r < y_dim; r++) {
            double magnitude = 0;
            const double expected =
                r < rows ? dot(&w, i % heads * rows + r, own, &magnitude) : x[(size_t)i * x_dim + x_dim - y_dim + r];
            const size_t at = (size_t)i * y_dim + r;
            const double rounding = y_type == DTYPE_FP16 ? 0x1p-11 * fabs(expected) : 0;
            assert_near(y_type == DTYPE_FP16 ? __half2float(halves[at]) : found[at], expected,
                        sum_error(cols) * (magnitude + 1) + rounding, dtype_names[type], i, r);
        }
    }
    float *alone = device_nan<float>((size_t)heads * y_dim);
    const size_t last = (size_t)(n - 1) * heads;
    assert_ok(multiply_heads(alone, DTYPE_FP32, device_x + last * x_dim, x_dim, &w.device, heads, kept, 1, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    const std::vector<float> of_last = host_copy(alone, (size_t)heads * y_dim);
    assert_true(y_type != DTYPE_FP32 || std::equal(of_last.begin(), of_last.end(), found.begin() + last * y_dim));
    free_weights(&w);
    for (float *memory : {device_x, y, alone}) {
        cudaFree(memory);
    }
}

static void test_heads(void **)
{
    for (enum dtype type : float_types) {
        run_heads(type, 3, 40, 24, 40, 16, 1, DTYPE_FP32); // queries to latents
        run_heads(type, 2, 17, 33, 35, 2, 11, DTYPE_FP32);
        run_heads(type, 4, 20, 40, 56, 0, 9, DTYPE_FP16); // what comes out, to heads
        run_heads(type, 1, 1, 1, 1, 0, 2, DTYPE_FP32);
        run_heads(type, 2, 64, 512, 576, 0, 8, DTYPE_FP32);
    }
}

static void test_refusals(void **)
{
    yalm_error error = {};
    float memory = 0;
    const struct product bytes = {{&memory, DTYPE_U8, 1, 1}, NULL, &memory};
    assert_int_equal(matvec_norm(&bytes, 1, &memory, &memory, eps, 0, &error), YALM_FAILED);
    assert_string_equal(error.text, "CUDA: found u8 elements, which this kernel is not made for");
    for (enum dtype type : {DTYPE_FP16, DTYPE_Q8, DTYPE_Q4, DTYPE_FP8}) {
        const struct product wide = {{&memory, type, 1, 100000}, NULL, &memory};
        assert_int_equal(matvec_norm(&wide, 1, &memory, &memory, eps, 0, &error), YALM_FAILED);
        assert_non_null(strstr(error.text, "CUDA: found a product of 100000 columns, "));
        assert_non_null(strstr(error.text, "expected at most "));
    }
}

int main(void)
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_norm),     cmocka_unit_test(test_gated),
                                cmocka_unit_test(test_residual), cmocka_unit_test(test_unaligned),
                                cmocka_unit_test(test_heads),    cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
