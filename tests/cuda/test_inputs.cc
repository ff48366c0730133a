// What some models have besides, against double: Gemma 4's layers, a head that guesses (src/cuda/kernels/inputs.cu); LayerNorm,
// learned positions, activations with or without a gate (elementwise.cu, gates.cu).
#include "weights_testing.h"

static const int widths[] = {1, 2, 31, 33, 128, 257, 600};

static double unit_length(const float *x, int n, double shrink, double eps)
{
    double squares = 0;
    for (int i = 0; i < n; i++) {
        squares += shrink * x[i] * shrink * x[i];
    }
    return sqrt(squares / n + eps);
}

static void test_mix(void **)
{
    uint64_t seed = 1;
    const double eps = 1e-6, shrink = 0.125;
    for (int width : widths) {
        const int n = 3, layers = 5;
        const size_t all = (size_t)n * layers * width;
        const std::vector<float> u = random_floats(&seed, all, 20), rows = random_floats(&seed, all, 4),
                                 norm = random_floats(&seed, width, 2);
        float *device_u = device_copy(u), *device_rows = device_copy(rows), *device_norm = device_copy(norm);
        yalm_error error = {};
        assert_ok(mix_inputs(device_u, device_rows, device_norm, (float)shrink, (float)eps, n, layers, width, 0, &error),
                  error);
        assert_cuda(cudaDeviceSynchronize());
        const std::vector<float> found = host_copy(device_u, all);
        for (size_t i = 0; i < all; i++) {
            const size_t at = i / width * width;
            const double normal = shrink * u[i] / unit_length(u.data() + at, width, shrink, eps) * norm[i - at];
            assert_near(found[i], sqrt(0.5) * (normal + rows[i]), (0x1p-22 + sum_error(width)) * (fabs(normal) + fabs(rows[i])),
                        "mix_inputs", (int)(i / width), (int)(i - at));
        }
        cudaFree(device_u);
        cudaFree(device_rows);
        cudaFree(device_norm);
    }
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// of_x: the gate is of x normalised.
static void check_gate(uint64_t *seed, int width, bool of_x)
{
    const int n = 4, layers = 3, dim = 70, pitch = layers * width;
    const double eps = 1e-6;
    const std::vector<float> gate = random_floats(seed, (size_t)n * width, 3),
                             inputs = random_floats(seed, (size_t)n * pitch, 2), x = random_floats(seed, (size_t)n * dim, 3);
    float *device_gate = device_copy(gate), *device_inputs = device_copy(inputs), *device_x = device_copy(x),
          *y = device_nan<float>(gate.size());
    half *halves = device_nan<half>(gate.size());
    for (int type = 0; type < 2; type++) {
        yalm_error error = {};
        assert_ok(gate_inputs(type == 0 ? (void *)y : (void *)halves, type == 0 ? DTYPE_FP32 : DTYPE_FP16, device_gate,
                              device_inputs + width, pitch, of_x ? device_x : NULL, (float)eps, dim, n, width, ACTIVATION_GELU,
                              0, &error),
                  error);
    }
    assert_cuda(cudaDeviceSynchronize());
    const std::vector<float> found = host_copy(y, gate.size());
    const std::vector<half> rounded = host_copy(halves, gate.size());
    for (size_t i = 0; i < gate.size(); i++) {
        const size_t t = i / width;
        const double length = of_x ? unit_length(x.data() + t * dim, dim, 1, eps) : 1,
                     expected = gelu(length * gate[i]) * inputs[t * pitch + width + i % width];
        assert_near(found[i], expected, 2e-6 * (fabs(expected) + 1), "gate_inputs", (int)t, (int)(i % width));
        assert_near(half_value(rounded[i]), expected, 0x1p-11 * fabs(expected) + 4e-6, "gate_inputs", (int)t, (int)(i % width));
    }
    cudaFree(device_gate);
    cudaFree(device_inputs);
    cudaFree(device_x);
    cudaFree(y);
    cudaFree(halves);
}

static void test_gate(void **)
{
    uint64_t seed = 2;
    for (int width : widths) {
        check_gate(&seed, width, false);
        check_gate(&seed, width, true);
    }
}

static void test_scale(void **)
{
    uint64_t seed = 3;
    for (int n : widths) {
        const std::vector<float> x = random_floats(&seed, n, 3), factor = {0.37f};
        float *device_x = device_copy(x), *device_factor = device_copy(factor);
        yalm_error error = {};
        assert_ok(scale_stream(device_x, device_factor, n, 0, &error), error);
        assert_cuda(cudaDeviceSynchronize());
        const std::vector<float> found = host_copy(device_x, n);
        for (int i = 0; i < n; i++) {
            assert_true(found[i] == x[i] * factor[0]);
        }
        cudaFree(device_x);
        cudaFree(device_factor);
    }
}

// Of a head that guesses: a token's row of the embedding and a hidden state, each normalised, side by side.
static void test_pair(void **)
{
    uint64_t seed = 5;
    const double eps = 1e-6;
    for (int dim : widths) {
        const int n = 3;
        std::vector<float> rows[2], norms[2];
        float *device_rows[2], *device_norms[2], *y = device_nan<float>(2 * (size_t)n * dim);
        for (int side = 0; side < 2; side++) {
            rows[side] = random_floats(&seed, (size_t)n * dim, 3);
            norms[side] = random_floats(&seed, dim, 2);
            device_rows[side] = device_copy(rows[side]);
            device_norms[side] = device_copy(norms[side]);
        }
        yalm_error error = {};
        assert_ok(pair_norms(y, DTYPE_FP32, device_rows[0], device_norms[0], device_rows[1], device_norms[1], (float)eps, n,
                             dim, 0, &error),
                  error);
        assert_cuda(cudaDeviceSynchronize());
        const std::vector<float> found = host_copy(y, 2 * (size_t)n * dim);
        for (int t = 0; t < 2 * n; t++) {
            const std::vector<double> right =
                normalised(rows[t % 2].data() + (size_t)(t / 2) * dim, norms[t % 2].data(), eps, dim);
            for (int i = 0; i < dim; i++)
                assert_near(found[(size_t)t * dim + i], right[i], (0x1p-22 + sum_error(dim)) * fabs(right[i]), "pair_norms", t,
                            i);
        }
        for (int side = 0; side < 2; side++) {
            cudaFree(device_rows[side]);
            cudaFree(device_norms[side]);
        }
        cudaFree(y);
    }
}

static void test_join(void **)
{
    uint64_t seed = 4;
    const double eps = 1e-6;
    for (int dim : widths) {
        const int n = 3;
        const size_t all = (size_t)n * dim;
        const std::vector<float> x = random_floats(&seed, all, 3), shared = random_floats(&seed, all, 30),
                                 sum = random_floats(&seed, all, 2);
        std::vector<float> norms[3];
        float *device_norms[3];
        for (int i = 0; i < 3; i++) {
            norms[i] = random_floats(&seed, dim, 2);
            device_norms[i] = device_copy(norms[i]);
        }
        float *device_x = device_copy(x), *device_shared = device_copy(shared), *device_sum = device_copy(sum);
        yalm_error error = {};
        assert_ok(join_experts(device_x, device_shared, device_sum, device_norms[0], device_norms[1], device_norms[2],
                               (float)eps, n, dim, 0, &error),
                  error);
        assert_cuda(cudaDeviceSynchronize());
        const std::vector<float> found = host_copy(device_x, all), left = host_copy(device_sum, all);
        for (int t = 0; t < n; t++) {
            const float *own_shared = shared.data() + (size_t)t * dim, *own_sum = sum.data() + (size_t)t * dim;
            const std::vector<double> a = normalised(own_shared, norms[0].data(), eps, dim),
                                      b = normalised(own_sum, norms[1].data(), eps, dim);
            double squares = 0;
            for (int i = 0; i < dim; i++) {
                squares += (a[i] + b[i]) * (a[i] + b[i]);
            }
            const double length = sqrt(squares / dim + eps);
            for (int i = 0; i < dim; i++) {
                const size_t at = (size_t)t * dim + i;
                const double added = (a[i] + b[i]) / length * norms[2][i];
                assert_near(found[at], x[at] + added,
                            (0x1p-21 + 3 * sum_error(dim)) * (fabs(x[at]) + (fabs(a[i]) + fabs(b[i])) / length * 2),
                            "join_experts", t, i);
                assert_true(left[at] == 0);
            }
        }
        for (float *norm : device_norms) {
            cudaFree(norm);
        }
        cudaFree(device_x);
        cudaFree(device_shared);
        cudaFree(device_sum);
    }
}

// As of fp32, `plain`, but rounded, with what that loses behind it.
static void assert_parts(const std::vector<half> &parts, const std::vector<float> &plain)
{
    for (size_t i = 0; i < plain.size(); i++) {
        const float rounded = __half2float(__float2half_rn(plain[i]));
        assert_true(__half2float(parts[i]) == rounded);
        assert_true(__half2float(parts[plain.size() + i]) == __half2float(__float2half_rn(plain[i] - rounded)));
    }
}

// x stands far from 0, where sums of squares would lose what is left of it.
static void check_layernorm(uint64_t *seed, int dim, bool biased)
{
    const int n = 3;
    const double eps = 1e-5;
    std::vector<float> x = random_floats(seed, (size_t)n * dim, 3);
    for (float &value : x) {
        value += 40;
    }
    const std::vector<float> weight = random_floats(seed, dim, 2), bias = random_floats(seed, dim, 2);
    float *device_x = device_copy(x), *device_weight = device_copy(weight), *device_bias = device_copy(bias);
    const float *with = biased ? device_bias : NULL;
    half *parts = device_nan<half>(2 * x.size());
    yalm_error error = {};
    assert_ok(layernorm(parts, DTYPE_FP16, device_x, device_weight, with, (float)eps, n, dim, true, 0, &error), error);
    assert_ok(layernorm(device_x, DTYPE_FP32, device_x, device_weight, with, (float)eps, n, dim, false, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    const std::vector<float> found = host_copy(device_x, x.size());
    for (int t = 0; t < n; t++) {
        double mean = 0, square = 0;
        for (int i = 0; i < dim; i++) {
            mean += x[t * dim + i] / (double)dim;
        }
        for (int i = 0; i < dim; i++) {
            square += (x[t * dim + i] - mean) * (x[t * dim + i] - mean) / dim;
        }
        for (int i = 0; i < dim; i++) {
            const double scale = weight[i] / sqrt(square + eps), expected = (x[t * dim + i] - mean) * scale;
            const double error_of_mean = 40 * sum_error(dim) * fabs(scale);
            assert_near(found[t * dim + i], expected + (biased ? bias[i] : 0),
                        error_of_mean * 2 + (0x1p-21 + sum_error(dim)) * (fabs(expected) + fabs(bias[i])), "layernorm", dim, i);
        }
    }
    assert_parts(host_copy(parts, 2 * x.size()), found);
    for (void *memory : {(void *)device_x, (void *)device_weight, (void *)device_bias, (void *)parts}) {
        cudaFree(memory);
    }
}

static void test_layernorm(void **)
{
    uint64_t seed = 7;
    for (int dim : widths) {
        check_layernorm(&seed, dim, true);
        check_layernorm(&seed, dim, false);
    }
}

// Rows of positions of tokens that follow each other, or of tokens apart.
static void test_positions(void **)
{
    uint64_t seed = 8;
    const int n = 3;
    const std::vector<struct evaluation> steps = {{4, 1}, {0, 1}, {6, 1}};
    struct evaluation *step = device_copy(steps);
    for (int dim : widths) {
        const std::vector<float> rows = random_floats(&seed, 7 * (size_t)dim, 2), x = random_floats(&seed, n * (size_t)dim, 2);
        float *device_rows = device_copy(rows);
        for (bool apart : {false, true}) {
            float *device_x = device_copy(x);
            yalm_error error = {};
            assert_ok(add_rows(device_x, device_rows, NULL, step, apart, n, dim, 0, &error), error);
            assert_cuda(cudaDeviceSynchronize());
            const std::vector<float> found = host_copy(device_x, x.size());
            for (size_t i = 0; i < x.size(); i++) {
                const size_t t = i / dim, position = apart ? steps[t].position : steps[0].position + t;
                assert_true(found[i] == x[i] + rows[position * dim + i % dim]);
            }
            cudaFree(device_x);
        }
        cudaFree(device_rows);
    }
    cudaFree(step);
}

// Rows of types, beside positions in each token's text or without them.
static void test_types(void **)
{
    uint64_t seed = 9;
    const int n = 5;
    const std::vector<struct text_token> texts = {{0, 2, 1}, {0, 2, 0}, {2, 5, 2}, {2, 5, 0}, {2, 5, 1}};
    struct text_token *device_texts = device_copy(texts);
    std::vector<struct evaluation> steps = {{0, n}, {0, n}};
    steps[1].texts = device_texts;
    struct evaluation *step = device_copy(steps);
    for (int dim : widths) {
        const std::vector<float> rows = random_floats(&seed, n * (size_t)dim, 2), x = random_floats(&seed, n * (size_t)dim, 2);
        float *types = device_copy(rows);
        for (int form = 0; form < 4; form++) {
            const bool of_texts = form & 1, positions = form & 2;
            float *device_x = device_copy(x);
            yalm_error error = {};
            assert_ok(add_rows(device_x, positions ? types : NULL, types, step + of_texts, false, n, dim, 0, &error), error);
            assert_cuda(cudaDeviceSynchronize());
            const std::vector<float> found = host_copy(device_x, x.size());
            for (size_t i = 0; i < x.size(); i++) {
                const size_t t = i / dim, type = of_texts ? texts[t].type : 0, at = of_texts ? t - texts[t].first : t;
                const float sum = x[i] + rows[type * dim + i % dim];
                assert_true(found[i] == (positions ? sum + rows[at * dim + i % dim] : sum));
            }
            cudaFree(device_x);
        }
        cudaFree(types);
    }
    cudaFree(step);
    cudaFree(device_texts);
}

static double activated(enum activation activation, double x)
{
    return activation == ACTIVATION_GELU       ? gelu(x)
           : activation == ACTIVATION_GELU_ERF ? 0.5 * x * (1 + erf(x / sqrt(2)))
           : activation == ACTIVATION_RELU2    ? fmax(x, 0) * fmax(x, 0)
                                               : silu_of(x);
}

static void test_activations(void **)
{
    uint64_t seed = 9;
    const float numbers[] = {0.7f, 0.3f, 0.5f};
    float *device_numbers = device_copy(std::vector<float>(numbers, numbers + 3));
    for (int n : widths) {
        std::vector<float> x = random_floats(&seed, n, 6);
        const std::vector<float> up = random_floats(&seed, n, 3);
        x[0] = -200;
        float *device_x = device_copy(x), *device_up = device_copy(up), *y = device_nan<float>(n), *own = device_nan<float>(n);
        yalm_error error = {};
        for (enum activation activation : {ACTIVATION_SILU, ACTIVATION_GELU, ACTIVATION_GELU_ERF, ACTIVATION_RELU2}) {
            assert_ok(gate_multiply(y, DTYPE_FP32, device_x, device_up, n, 0, &error, activation), error);
            assert_ok(gate_multiply(own, DTYPE_FP32, device_x, NULL, n, 0, &error, activation), error);
            assert_cuda(cudaDeviceSynchronize());
            const std::vector<float> found = host_copy(y, n), alone = host_copy(own, n);
            for (int i = 0; i < n; i++) {
                const double expected = activated(activation, x[i]),
                             error_of_x = 0x1p-20 * (fabs(expected) + 0.25 * fabs(x[i]));
                assert_near(found[i], expected * up[i], error_of_x * fabs(up[i]), "gated", (int)activation, i);
                assert_near(alone[i], expected, error_of_x, "not gated", (int)activation, i);
            }
        }
        assert_ok(xielu(y, DTYPE_FP32, device_x, device_numbers, n, 0, &error), error);
        assert_cuda(cudaDeviceSynchronize());
        const std::vector<float> found = host_copy(y, n);
        for (int i = 0; i < n; i++) {
            const double v = x[i], of_sign = v > 0 ? numbers[0] * v * v : numbers[1] * (expm1(v) - v);
            assert_near(found[i], of_sign + numbers[2] * v, 0x1p-20 * (fabs(of_sign) + fabs(v)), "xielu", n, i);
        }
        for (float *memory : {device_x, device_up, y, own}) {
            cudaFree(memory);
        }
    }
    cudaFree(device_numbers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mix),       cmocka_unit_test(test_gate),  cmocka_unit_test(test_scale),
        cmocka_unit_test(test_pair),      cmocka_unit_test(test_join),  cmocka_unit_test(test_layernorm),
        cmocka_unit_test(test_positions), cmocka_unit_test(test_types), cmocka_unit_test(test_activations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
