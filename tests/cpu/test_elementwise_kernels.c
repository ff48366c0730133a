// Normalisation, rotation, activation and conversions, and the choice among instruction sets.
#include "kernels_testing.h"

static const int lengths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 64, 100, 255, 1000};

enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

static void test_rmsnorm(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int l = 0; l < N_LENGTHS; l++) {
        const int n = lengths[l];
        float *x = random_floats(f, (size_t)n, 3.0), *w = random_floats(f, (size_t)n, 2.0),
              *y = guarded(f, sizeof *y * (size_t)n);
        double squares = 0;
        for (int i = 0; i < n; i++)
            squares += (double)x[i] * x[i];
        const double scale = 1 / sqrt(squares / n + 1e-5);
        f->kernels->rmsnorm(y, x, w, n, 1e-5f);
        for (int i = 0; i < n; i++) {
            const double expected = w[i] * x[i] * scale;
            assert_near(y[i], expected, (sum_error(n) + 4 * 0x1p-24) * fabs(expected), "rmsnorm", i, n);
        }
        f->kernels->rmsnorm(x, x, w, n, 1e-5f); // in place
        assert_memory_equal(x, y, sizeof *x * (size_t)n);
        memset(x, 0, sizeof *x * (size_t)n);
        f->kernels->rmsnorm(y, x, w, n, 1e-5f);
        for (int i = 0; i < n; i++)
            assert_true(y[i] == 0);
        release(f);
    }
}

static void test_layernorm(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int l = 0; l < N_LENGTHS; l++) {
        const int n = lengths[l];
        float *x = random_floats(f, (size_t)n, 3.0), *w = random_floats(f, (size_t)n, 2.0),
              *b = random_floats(f, (size_t)n, 2.0), *y = guarded(f, sizeof *y * (size_t)n);
        double sum = 0, squares = 0;
        for (int i = 0; i < n; i++)
            sum += x[i] += 50; // far from 0: a variance by squares would be noise
        const double mean = sum / n;
        for (int i = 0; i < n; i++)
            squares += (x[i] - mean) * (x[i] - mean);
        const double scale = 1 / sqrt(squares / n + 1e-5), error = 50 * 0x1p-22 * fmax(1, scale);
        for (int biased = 0; biased < 2; biased++) {
            f->kernels->layernorm(y, x, w, biased ? b : NULL, n, 1e-5f);
            for (int i = 0; i < n; i++) {
                const double normal = (x[i] - mean) * scale, expected = w[i] * normal + (biased ? b[i] : 0);
                assert_near(y[i], expected, (error + 1e-5 * fabs(normal)) * fabs(w[i]) + 1e-6, "layernorm", i, n);
            }
        }
        f->kernels->layernorm(x, x, w, b, n, 1e-5f); // in place
        assert_memory_equal(x, y, sizeof *x * (size_t)n);
        release(f);
    }
}

static void test_rope(void **state)
{
    struct fixture *f = fixture_of(state);
    static const int dims[] = {2, 8, 20, 48, 62, 64, 80, 96, 128, 256};
    for (int l = 0; l < 10; l++) {
        const int d = dims[l], half = d / 2;
        float *x = random_floats(f, (size_t)d, 2.0), before[256];
        float *c = guarded(f, sizeof *c * (size_t)half), *s = guarded(f, sizeof *s * (size_t)half);
        memcpy(before, x, sizeof *x * (size_t)d);
        for (int i = 0; i < half; i++) {
            const double angle = 3 * uniform(f);
            c[i] = (float)cos(angle);
            s[i] = (float)sin(angle);
        }
        f->kernels->rope(x, c, s, d);
        for (int i = 0; i < half; i++) {
            const double re = before[i], im = before[i + half], tolerance = 3 * 0x1p-24 * (fabs(re) + fabs(im));
            assert_near(x[i], re * c[i] - im * s[i], tolerance, "rope, real", i, d);
            assert_near(x[i + half], re * s[i] + im * c[i], tolerance, "rope, imaginary", i, d);
        }
        release(f);
    }
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void test_silu(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int l = 0; l < N_LENGTHS; l++) {
        const int n = lengths[l];
        float *gate = random_floats(f, (size_t)n, l % 2 ? 90.0 : 5.0), *up = random_floats(f, (size_t)n, 2.0), before[1000];
        memcpy(before, gate, sizeof *gate * (size_t)n);
        f->kernels->activate[ACTIVATION_SILU](gate, up, n);
        for (int i = 0; i < n; i++) {
            const double expected = silu(before[i]) * up[i];
            assert_near(gate[i], expected, 3e-6 * fabs(expected) + 1e-35, "silu", i, n); // e^x within 2e-6, and roundings
        }
        release(f);
    }
    // Far out it is 0 or x, and what is not a number stays none.
    static const float special[] = {-1e4f, -200, -104, -88.5f, -87, 0, 87, 88.5f, 104, 200, 1e4f, 3e38f, -3e38f};
    enum { N_SPECIAL = sizeof special / sizeof *special };
    float gate[N_SPECIAL + 1], up[N_SPECIAL + 1];
    for (int i = 0; i < N_SPECIAL; i++) {
        gate[i] = special[i];
        up[i] = 1;
    }
    gate[N_SPECIAL] = NAN;
    up[N_SPECIAL] = 1;
    f->kernels->activate[ACTIVATION_SILU](gate, up, N_SPECIAL + 1);
    for (int i = 0; i < N_SPECIAL; i++) // e^87.3 is as far as it goes: then x / 8.6e37
        assert_near(gate[i], silu(special[i]), 3e-6 * fabs(silu(special[i])) + fabs(special[i]) * 1.2e-38, "silu of",
                    (int)special[i], 0);
    assert_true(isnan(gate[N_SPECIAL]));
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static double gelu_erf(double x)
{
    return 0.5 * x * erfc(-x / sqrt(2.0));
}

static double clamped(double gate, double up)
{
    gate = fmin(gate, 7);
    return gate / (1 + exp(-1.702 * gate)) * (fmax(fmin(up, 7), -7) + 1);
}

static void test_other_activations(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int l = 0; l < N_LENGTHS; l++) {
        const int n = lengths[l];
        for (int a = ACTIVATION_GELU; a < ACTIVATIONS; a++) {
            float *gate = random_floats(f, (size_t)n, l % 2 ? 90.0 : 5.0), *up = random_floats(f, (size_t)n, 12.0),
                  before[1000];
            memcpy(before, gate, sizeof *gate * (size_t)n);
            f->kernels->activate[a](gate, up, n);
            for (int i = 0; i < n; i++) {
                const double expected = a == ACTIVATION_GELU       ? gelu(before[i]) * up[i]
                                        : a == ACTIVATION_GELU_ERF ? gelu_erf(before[i]) * up[i]
                                        : a == ACTIVATION_RELU2    ? fmax(before[i], 0) * fmax(before[i], 0) * up[i]
                                                                   : clamped(before[i], up[i]);
                // Beside e^x's error, and float's of its argument: far out in the negative that is many units, of next to
                // nothing.
                const double bound = 4e-6 * fabs(expected) + 2e-7 * fabs(up[i]) + 1e-6;
                assert_near(gate[i], expected, bound, "activation", i, n);
            }
            release(f);
        }
    }
    float gate[4] = {NAN, NAN, NAN, NAN}, up[4] = {1, 1, 1, 1};
    f->kernels->activate[ACTIVATION_GELU](gate, up, 1);
    f->kernels->activate[ACTIVATION_CLAMPED](gate + 1, up, 1);
    f->kernels->activate[ACTIVATION_GELU_ERF](gate + 2, up, 1);
    f->kernels->activate[ACTIVATION_RELU2](gate + 3, up, 1);
    assert_true(isnan(gate[0]) && isnan(gate[1]) && isnan(gate[2]) && isnan(gate[3]));
    // Where little is left of it, that is right to a few units: no difference of two large numbers.
    for (float x = -10; x < 0; x += 0.37f) {
        float y = x;
        f->kernels->activate[ACTIVATION_GELU_ERF](&y, up, 1);
        assert_near(y, gelu_erf((double)x), 3e-6 * fabs(gelu_erf((double)x)), "gelu of", (int)(10 * x), 0);
    }
}

static void test_softcap(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int l = 0; l < N_LENGTHS; l++) {
        const int n = lengths[l];
        const float cap = l % 2 ? 30 : 0.5f;
        float *x = random_floats(f, (size_t)n, l % 3 ? 90.0 : 1.0), before[1000];
        memcpy(before, x, sizeof *x * (size_t)n);
        f->kernels->softcap(x, cap, n);
        for (int i = 0; i < n; i++)
            assert_near(x[i], cap * tanh((double)before[i] / cap), 1e-6 * cap, "softcap", i, n);
        release(f);
    }
    float special[4] = {INFINITY, -INFINITY, 3e38f, NAN};
    f->kernels->softcap(special, 30, 4);
    assert_true(special[0] == 30 && special[1] == -30 && special[2] == 30 && isnan(special[3]));
}

static void test_add(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int l = 0; l < N_LENGTHS; l++) {
        const int n = lengths[l];
        float *x = random_floats(f, (size_t)n, 2.0), *y = random_floats(f, (size_t)n, 2.0), before[1000];
        memcpy(before, x, sizeof *x * (size_t)n);
        f->kernels->add(x, y, n);
        for (int i = 0; i < n; i++)
            assert_true(x[i] == before[i] + y[i]);
        memcpy(before, x, sizeof *x * (size_t)n);
        f->kernels->add_scaled(x, y, 0.3f, n);
        for (int i = 0; i < n; i++)
            assert_near(x[i], before[i] + (double)0.3f * y[i], 2 * 0x1p-24 * (fabsf(before[i]) + fabsf(y[i])), "add_scaled", i,
                        n);
        release(f);
    }
}

// All patterns of a short type, in rows of several lengths so that each comes by in whole vectors and in tails.
static void test_to_fp32(void **state)
{
    struct fixture *f = fixture_of(state);
    enum { ALL = 65536 };
    for (int type = 0; type < DTYPE_FLOATS; type++)
        for (int step = 1000; step <= 1037; step += 37) {
            const size_t size = dtype_sizes[type];
            for (int at = 0; at < ALL; at += step) {
                const int n = ALL - at < step ? ALL - at : step;
                void *x = guarded(f, size * (size_t)n);
                float *y = guarded(f, sizeof *y * (size_t)n);
                for (int i = 0; i < n; i++)
                    if (type == DTYPE_FP32)
                        ((uint32_t *)x)[i] = (uint32_t)(at + i) << 16 | 0x1234;
                    else if (size == 1)
                        ((uint8_t *)x)[i] = (uint8_t)((at + i) % 128 == 127 && type == DTYPE_FP8 ? 0 : at + i);
                    else
                        ((uint16_t *)x)[i] = (uint16_t)(at + i);
                f->kernels->to_fp32[type](y, x, n);
                for (int i = 0; i < n; i++) {
                    const double expected = value_of((enum dtype)type, x, (size_t)i);
                    assert_true(isnan(expected) ? isnan(y[i]) : y[i] == expected && !signbit(y[i]) == !signbit(expected));
                }
                release(f);
            }
        }
}

// The nearest half to x, by search among its neighbours: independent of how the kernels round.
static double nearest_fp16(double x)
{
    const double magnitude = fabs(x);
    if (magnitude >= 65504)
        return x > 0 ? 65504 : -65504;
    int low = 0, high = 0x7bff; // patterns of non-negative halves are in the order of their values
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (fp16_value((uint16_t)middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    const double under = magnitude - fp16_value((uint16_t)low), over = fp16_value((uint16_t)high) - magnitude;
    const int nearest = under < over || (under == over && low % 2 == 0) ? low : high;
    return x < 0 ? -fp16_value((uint16_t)nearest) : fp16_value((uint16_t)nearest);
}

static void check_to_fp16(struct fixture *f, const float *x, int n)
{
    uint16_t *y = guarded(f, sizeof *y * (size_t)n);
    f->kernels->to_fp16(y, x, n);
    for (int i = 0; i < n; i++)
        if (isnan(x[i]) ? !isnan(fp16_value(y[i])) : fp16_value(y[i]) != nearest_fp16(x[i]) || (y[i] >> 15 != !!signbit(x[i])))
            fail_msg("%.9g became 0x%04x", x[i], y[i]);
}

static void test_to_fp16(void **state)
{
    struct fixture *f = fixture_of(state);
    // Each half, the middle to the next one, and that middle's neighbours.
    enum { PER_HALF = 4, HALVES = 0x7c00 };
    float *x = guarded(f, sizeof *x * 2 * PER_HALF * HALVES);
    int n = 0;
    for (int half = 0; half < HALVES; half++)
        for (int sign = -1; sign <= 1; sign += 2) {
            const float value = (float)fp16_value((uint16_t)half);
            const float middle = half + 1 < HALVES ? (value + (float)fp16_value((uint16_t)(half + 1))) / 2 : 65520.0f;
            x[n++] = (float)sign * value;
            x[n++] = (float)sign * middle;
            x[n++] = (float)sign * nextafterf(middle, 0);
            x[n++] = (float)sign * nextafterf(middle, INFINITY);
        }
    check_to_fp16(f, x, n);
    release(f);
    const float special[] = {INFINITY, -INFINITY, NAN,     65504, 65519.99f, 65520,   1e30f,
                             -1e30f,   1e-30f,    -1e-45f, 0,     -0.0f,     0x1p-25f};
    check_to_fp16(f, special, sizeof special / sizeof *special);
    for (int l = 0; l < N_LENGTHS; l++)
        check_to_fp16(f, random_floats(f, (size_t)lengths[l], 1e5), lengths[l]);
}

static void check_to_int8(struct fixture *f, const float *x, int n)
{
    int8_t *y = guarded(f, (size_t)n), *same = guarded(f, (size_t)n);
    const float scale = f->kernels->to_int8(y, x, n);
    float largest = 0;
    bool finite = true;
    for (int i = 0; i < n; i++) {
        largest = fmaxf(largest, fabsf(x[i]));
        finite &= isfinite(x[i]) != 0;
    }
    if (!finite) {
        assert_true(isnan(scale));
        return;
    }
    assert_true(scale == (largest / 127 < INT8_LEAST_SCALE ? 0 : largest / 127));
    for (int i = 0; i < n; i++) { // half a step, and the rounding of scale and product
        assert_in_range(y[i] + 127, 0, 254);
        assert_near((double)y[i] * scale, x[i], scale > 0 ? (0.5 + 1e-4) * scale : 128 * INT8_LEAST_SCALE, "int8", i, n);
    }
    assert_true(cpu_kernels_scalar.to_int8(same, x, n) == scale); // as everywhere, to the bit
    assert_memory_equal(y, same, (size_t)n);
}

static void test_to_int8(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int l = 0; l < N_LENGTHS; l++)
        for (int power = -130; power <= 120; power += 10) {
            check_to_int8(f, random_floats(f, (size_t)lengths[l], ldexp(1, power)), lengths[l]);
            release(f);
        }
    for (int at = 0; at < 37; at++) {
        static const float special[] = {0, NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-45f};
        for (int i = 0; i < (int)(sizeof special / sizeof *special); i++) {
            float *x = random_floats(f, 37, i % 2 ? 1 : 0);
            x[at] = special[i];
            check_to_int8(f, x, 37);
            release(f);
        }
    }
}

static void test_log_sum_exp(void **state)
{
    struct fixture *f = fixture_of(state);
    static const double spreads[] = {0, 1, 30, 400, 1e30}; // the largest's neighbours count; it alone does
    for (int l = 0; l < N_LENGTHS; l++)
        for (int s = 0; s < 5; s++) {
            const int n = lengths[l];
            float *x = random_floats(f, (size_t)n, spreads[s]), largest = x[0];
            for (int i = 1; i < n; i++)
                largest = fmaxf(largest, x[i]);
            double sum = 0;
            for (int i = 0; i < n; i++)
                sum += exp((double)x[i] - (double)largest);
            const double expected = (double)largest + log(sum), found = f->kernels->log_sum_exp(x, n);
            if (!(fabs(found - expected) <= 1e-13 * (1 + fabs(expected))))
                fail_msg("log_sum_exp, n %d, spread %g: %.17g, expected %.17g", n, spreads[s], found, expected);
            x[n / 2] = -INFINITY; // a token that cannot be
            assert_true(n == 1 ? isnan(f->kernels->log_sum_exp(x, n)) : isfinite(f->kernels->log_sum_exp(x, n)));
            for (int at = 0; at < n; at++) {
                const float before = x[at];
                x[at] = at % 2 ? NAN : INFINITY;
                assert_true(isnan(f->kernels->log_sum_exp(x, n)));
                x[at] = before;
            }
            release(f);
        }
    float same[1000]; // e^0 is 1 to the bit, so their logarithm is that of their number
    for (int i = 0; i < 1000; i++)
        same[i] = -3;
    for (int n = 1; n <= 1000; n++)
        assert_true(f->kernels->log_sum_exp(same, n) == -3 + log(n));
}

static void test_limit_loops(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int n_streams = 1; n_streams <= 16; n_streams *= 2) {
        const size_t bytes = 4096 * 16;
        uint64_t *data = guarded(f, bytes);
        memset(data, 0, bytes);
        assert_int_equal(f->kernels->read_streams(data, bytes, n_streams, 1024), 0);
        for (size_t i = 0; i < bytes / 8; i += 61) { // each word counts
            data[i] = 1;
            assert_int_not_equal(f->kernels->read_streams(data, bytes, n_streams, 0), 0);
            data[i] = 0;
        }
        release(f);
    }
    assert_true(f->kernels->fma_loop(1000) == 10 * f->kernels->fma_loop(100));
    assert_true(f->kernels->quant->dot_loop(1000) == 10 * f->kernels->quant->dot_loop(100));
}

static void test_select(void **state)
{
    (void)state;
    const struct cpu_kernels *const *usable = cpu_kernels_usable();
    int n = 0;
    for (; usable[n]; n++)
        assert_ptr_equal(cpu_kernels_select(usable[n]->name), usable[n]);
    assert_true(n >= 1);
    assert_ptr_equal(usable[n - 1], &cpu_kernels_scalar);
    assert_ptr_equal(cpu_kernels_select("auto"), usable[0]);
    assert_null(cpu_kernels_select("avx1024"));
    assert_null(cpu_kernels_select(""));
}

int main(void)
{
    static const struct kernel_case cases[] = {
        {"rmsnorm", test_rmsnorm},
        {"layernorm", test_layernorm},
        {"rope", test_rope},
        {"silu", test_silu},
        {"GELU and clamped units", test_other_activations},
        {"softcap", test_softcap},
        {"add and add_scaled", test_add},
        {"every pattern to float32", test_to_fp32},
        {"float32 to fp16, to the nearest", test_to_fp16},
        {"float32 to int8 with a scale", test_to_int8},
        {"log of a sum of exponentials", test_log_sum_exp},
        {"loops that measure limits", test_limit_loops},
    };
    const struct CMUnitTest select_tests[] = {cmocka_unit_test(test_select)};
    const int failed = run_on_every_isa("element-wise kernels", cases, sizeof cases / sizeof *cases);
    return failed + cmocka_run_group_tests_name("choice of kernels", select_tests, NULL, NULL);
}
