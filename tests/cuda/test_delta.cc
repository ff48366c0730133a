// Recurrent layers' kernels, and the gates, against double: texts in several pieces, whose states go from place to place.
#include "cuda/delta/delta.h"
#include "weights_testing.h"

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

// A layer that has seen some tokens: on the device, and in double.
struct layer {
    struct delta_config config;
    struct layer_weights weights; // device pointers
    std::vector<float> conv, conv_bias, decay_bias, decay_rate, norm, skip;
    std::vector<std::vector<float>> rows;    // of all tokens so far: (delta_channels()), as given
    std::vector<std::vector<double>> states; // (n_value_heads) of (key_dim, value_dim)
    struct carried carried;
    float *kept_states, *kept_inputs;
    struct evaluation *step;
};

enum { LAYERS = 2, LAYER = 1 }; // the one before is never touched: it stays NaN

static struct layer layer_make(uint64_t *seed, struct delta_config c)
{
    struct layer l = {};
    l.config = c;
    l.conv = random_floats(seed, (size_t)c.conv_width * delta_channels(&c), 1);
    l.decay_bias = random_floats(seed, delta_decays(&c), 2);
    l.decay_bias[0] = 30; // beyond where ln(1 + e^x) is x
    l.decay_rate = random_floats(seed, c.n_value_heads, 0.4);
    for (float &rate : l.decay_rate)
        rate = fabsf(rate);
    l.decay_rate[0] = 0.01f;
    l.norm = random_floats(seed, c.scan.there ? delta_values(&c) : c.value_dim, 2);
    if (c.scan.there)
        l.skip = random_floats(seed, c.n_value_heads, 1);
    if (c.scan.conv_bias)
        l.conv_bias = random_floats(seed, delta_channels(&c), 1);
    l.weights.delta.conv = device_copy(l.conv);
    l.weights.delta.decay_bias = device_copy(l.decay_bias);
    l.weights.delta.decay_rate = device_copy(l.decay_rate);
    l.weights.delta.value_norm = device_copy(l.norm);
    l.weights.scan.skip = c.scan.there ? device_copy(l.skip) : NULL;
    l.weights.scan.conv_bias = c.scan.conv_bias ? device_copy(l.conv_bias) : NULL;
    l.states.assign(c.n_value_heads, std::vector<double>((size_t)c.key_dim * c.value_dim, 0.0));
    l.kept_states = device_nan<float>(CARRIED_PLACES * LAYERS * delta_state_floats(&c));
    l.kept_inputs = device_nan<float>(CARRIED_PLACES * LAYERS * delta_input_floats(&c));
    l.step = device_nan<struct evaluation>(1);
    carried_open(&l.carried);
    return l;
}

static void layer_free(struct layer *l)
{
    void *const taken[] = {const_cast<float *>(l->weights.delta.conv),
                           const_cast<float *>(l->weights.delta.decay_bias),
                           const_cast<float *>(l->weights.delta.decay_rate),
                           const_cast<float *>(l->weights.delta.value_norm),
                           const_cast<float *>(l->weights.scan.skip),
                           const_cast<float *>(l->weights.scan.conv_bias),
                           l->kept_states,
                           l->kept_inputs,
                           l->step};
    for (void *p : taken)
        cudaFree(p);
}

// ------------------------------------------------------------------------------------------ in double

// q, k and v of the last token, after the convolution.
static std::vector<double> mixed(const struct layer &l)
{
    const struct delta_config *c = &l.config;
    const int channels = delta_channels(c), n = (int)l.rows.size();
    std::vector<double> x(channels);
    for (int i = 0; i < channels; i++) {
        double sum = c->scan.conv_bias ? l.conv_bias[i] : 0;
        for (int j = 0; j < c->conv_width; j++) {
            const int t = n - c->conv_width + j;
            sum += t < 0 ? 0 : (double)l.conv[(size_t)j * channels + i] * l.rows[t][i];
        }
        x[i] = sum * sigmoid(sum);
    }
    for (int head = 0; head < 2 * c->n_key_heads && !c->scan.there; head++) {
        double squares = 1e-6, *of_head = &x[(size_t)head * c->key_dim];
        for (int i = 0; i < c->key_dim; i++)
            squares += of_head[i] * of_head[i];
        for (int i = 0; i < c->key_dim; i++)
            of_head[i] /= sqrt(squares) * (head < c->n_key_heads ? sqrt(c->key_dim) : 1);
    }
    return x;
}

// Sᵀq of a head after the last token's update.
static std::vector<double> update(struct layer *l, const std::vector<double> &x, int head, const float *decay_logits,
                                  double beta_logit)
{
    const struct delta_config *c = &l->config;
    const int key_head = c->tiled ? head % c->n_key_heads : head * c->n_key_heads / c->n_value_heads, keys = delta_keys(c);
    const double *q = &x[(size_t)key_head * c->key_dim], *k = q + keys, *v = &x[(size_t)2 * keys + (size_t)head * c->value_dim];
    std::vector<double> decays(c->key_dim);
    double dt = 0;
    for (int i = c->key_dim - 1; i >= 0; i--) { // one for all rows, or each has its own
        const int which = c->kda_rank ? i : 0;
        dt = fmax(log1p(exp(decay_logits[which] + l->decay_bias[head * delta_head_decays(c) + which])), c->scan.dt_min);
        dt = c->scan.dt_max > 0 ? fmin(dt, c->scan.dt_max) : dt;
        decays[i] = exp(-l->decay_rate[head] * dt);
    }
    const double beta = c->scan.there ? dt : sigmoid(beta_logit);
    std::vector<double> &s = l->states[head], y(c->value_dim);
    for (int col = 0; col < c->value_dim; col++) {
        double recalled = 0;
        for (int i = 0; i < c->key_dim; i++)
            recalled += c->scan.there ? 0 : k[i] * decays[i] * s[(size_t)i * c->value_dim + col];
        for (int i = 0; i < c->key_dim; i++) {
            double &at = s[(size_t)i * c->value_dim + col];
            at = decays[i] * at + k[i] * (v[col] - recalled) * beta;
            y[col] += q[i] * at;
        }
    }
    return y;
}

// What y of all heads becomes, of a scan whose convolution gave x.
static void gate_scan(const struct layer &l, std::vector<double> *y, const double *x, const float *gates)
{
    const struct delta_config *c = &l.config;
    const int values = delta_values(c), width = values / (c->scan.norm_groups ? c->scan.norm_groups : 1);
    for (int first = 0; first < values; first += width) {
        double squares = 0;
        for (int i = first; i < first + width; i++) {
            (*y)[i] += l.skip[i / c->value_dim] * x[i];
            (*y)[i] *= c->scan.norm_first ? 1 : gates[i] * sigmoid(gates[i]);
            squares += (*y)[i] * (*y)[i];
        }
        for (int i = first; i < first + width && c->scan.norm_groups; i++)
            (*y)[i] *=
                l.norm[i] / sqrt(squares / width + c->scan.norm_eps) * (c->scan.norm_first ? gates[i] * sigmoid(gates[i]) : 1);
    }
}

// What a head's y becomes.
static void gate(const struct layer &l, std::vector<double> *y, const float *gates)
{
    double squares = 0;
    for (double value : *y)
        squares += value * value;
    for (size_t i = 0; i < y->size(); i++)
        (*y)[i] *=
            l.norm[i] / sqrt(squares / (double)y->size() + 1e-5) * (l.config.kda_rank ? 1 : gates[i]) * sigmoid(gates[i]);
}

// ------------------------------------------------------------------------------------------ on the device

// The session stands before `position`, and sees n tokens.
static void evaluate(struct layer *l, uint64_t *seed, int64_t position, int n)
{
    const struct delta_config *c = &l->config;
    const int keys = delta_keys(c), values = delta_values(c), heads = c->n_value_heads;
    const std::vector<float> q = random_floats(seed, (size_t)n * keys, 2), k = random_floats(seed, (size_t)n * keys, 2),
                             v = random_floats(seed, (size_t)n * values, 2),
                             decays = random_floats(seed, (size_t)n * delta_decays(c), 3),
                             betas = random_floats(seed, (size_t)n * heads, 3),
                             gates = random_floats(seed, (size_t)n * values, 4);
    carried_begin(&l->carried, position, n, false);
    const struct evaluation step = {position, n, (int16_t)l->carried.from, (int16_t)l->carried.to};
    assert_cuda(cudaMemcpy(l->step, &step, sizeof step, cudaMemcpyHostToDevice));
    float *const given[] = {device_copy(q), device_copy(k), device_copy(v), device_copy(decays), device_copy(betas)};
    float *x = device_nan<float>((size_t)n * delta_channels(c)), *y = device_nan<float>((size_t)n * values),
          *out = device_nan<float>((size_t)n * values), *device_gates = device_copy(gates);
    const struct delta d = {l->step,  c,        &l->weights, LAYER,    LAYERS, l->kept_states, l->kept_inputs, given[0],
                            given[1], given[2], given[3],    given[4], x};
    yalm_error error = {};
    assert_ok(delta_mix(&d, n, 0, &error), error);
    assert_ok(delta_rule(&d, y, n, 0, &error), error);
    assert_ok(delta_gate(&d, out, DTYPE_FP32, y, device_gates, 1e-5f, n, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    carried_end(&l->carried, position, n, true);
    const std::vector<float> found = host_copy(out, (size_t)n * values);
    for (int t = 0; t < n; t++) {
        std::vector<float> row(q.begin() + t * keys, q.begin() + (t + 1) * keys);
        row.insert(row.end(), k.begin() + t * keys, k.begin() + (t + 1) * keys);
        row.insert(row.end(), v.begin() + t * values, v.begin() + (t + 1) * values);
        l->rows.push_back(row);
        const std::vector<double> own = mixed(*l);
        std::vector<double> expected;
        for (int head = 0; head < heads; head++) {
            std::vector<double> of_head =
                update(l, own, head, &decays[((size_t)t * heads + head) * delta_head_decays(c)], betas[t * heads + head]);
            if (!c->scan.there)
                gate(*l, &of_head, &gates[(size_t)t * values + (size_t)head * c->value_dim]);
            expected.insert(expected.end(), of_head.begin(), of_head.end());
        }
        if (c->scan.there)
            gate_scan(*l, &expected, &own[2 * keys], &gates[(size_t)t * values]);
        for (int i = 0; i < values; i++)
            assert_near(found[(size_t)t * values + i], expected[i], 2e-4 * (1 + fabs(expected[i])), "y", t, i);
    }
    for (float *p : given)
        cudaFree(p);
    for (float *p : {x, y, out, device_gates})
        cudaFree(p);
}

static void test_layers(void **)
{
    const struct delta_config configs[] = {
        {2, 4, 20, 36, 4, false, 0, false, 0, {}},
        {2, 4, 32, 5, 2, true, 0, false, 0, {}},
        {1, 1, 1, 1, 3, false, 0, false, 0, {}},
        {1, 3, 128, 17, 4, true, 0, false, 0, {}},
        {2, 2, 130, 9, 7, false, 0, false, 0, {}},
        {1, 2, 512, 33, 4, false, 0, false, 0, {}},
        // scans: a norm of groups of heads, or of parts of them, before the gate and behind it; none; bounds of dt
        {2, 6, 20, 36, 4, false, 0, false, 0, {true, true, 3, false, 1e-5f, 0.1f, 0}},
        {1, 2, 130, 9, 2, false, 0, false, 0, {true, false, 1, true, 1e-3f, 0, 0.9f}},
        {1, 3, 16, 8, 4, false, 0, false, 0, {true, true, 0, false, 0, 0.2f, 0.7f}},
        {2, 2, 33, 150, 4, false, 0, false, 0, {true, true, 1, false, 1e-5f, 0, 0}},
        // KDA
        {3, 3, 20, 36, 4, false, 0, false, 12, {}},
        {1, 1, 33, 5, 2, false, 0, false, 1, {}},
        {2, 2, 144, 9, 3, false, 0, false, 7, {}}};
    uint64_t seed = 5;
    for (const struct delta_config &config : configs) {
        struct layer l = layer_make(&seed, config);
        int64_t position = 0;
        for (int n : {3, 1, 1, 6, 1, 12, 1, 1}) {
            evaluate(&l, &seed, position, n);
            position += n;
        }
        l.rows.clear(); // a text begins anew
        for (std::vector<double> &state : l.states)
            state.assign(state.size(), 0.0);
        evaluate(&l, &seed, 0, 1);
        evaluate(&l, &seed, 1, 2);
        layer_free(&l);
    }
}

// Convolutions alone, with and without a bias: token by token and several at once; then the last tokens again, as if the
// session had gone back behind the first of these.
static void check_convolution(uint64_t *seed, int dim, int width, bool bias, enum dtype type)
{
    enum { N = 12, APART = 5 };
    static const int pieces[] = {1, 3, 1, 2, APART}; // the last ones may be repeated
    const struct delta_config config = {0, 0, 0, 0, width, false, dim, bias, 0, {}};
    const int pitch = 3 * dim + 1; // q, k and v of a token one behind the other
    const std::vector<float> taps = random_floats(seed, (size_t)width * dim, 1), biases = random_floats(seed, dim, 1),
                             given = random_floats(seed, (size_t)N * pitch, 2);
    std::vector<double> expected((size_t)N * dim), products((size_t)N * dim);
    for (int t = 0; t < N; t++)
        for (int i = 0; i < dim; i++) {
            const float *q = &given[(size_t)t * pitch + i];
            products[(size_t)t * dim + i] = (double)q[dim] * q[2 * dim];
            double sum = bias ? biases[i] : 0;
            for (int j = 0; j < width; j++)
                sum += t + j < width - 1 ? 0 : taps[(size_t)j * dim + i] * products[(size_t)(t + j - width + 1) * dim + i];
            expected[(size_t)t * dim + i] = q[0] * sum;
        }
    struct layer_weights weights = {};
    weights.delta.conv = device_copy(taps);
    weights.delta.conv_bias = bias ? device_copy(biases) : NULL;
    struct evaluation step = {0, 0, 0, 0}, *device_step = device_nan<struct evaluation>(1);
    float *inputs = device_nan<float>(CARRIED_PLACES * LAYERS * delta_input_floats(&config)), *x = device_copy(given),
          *kept = device_nan<float>((size_t)APART * dim), *y = device_nan<float>((size_t)N * dim);
    yalm_error error = {};
    const auto run = [&](int n, int n_given, float *outlasting) {
        step.n = n;
        assert_cuda(cudaMemcpy(device_step, &step, sizeof step, cudaMemcpyHostToDevice));
        const float *q = x + step.position * pitch;
        struct delta d = {device_step, &config, &weights,    LAYER, LAYERS, NULL, inputs,
                          q,           q + dim, q + 2 * dim, NULL,  NULL,   NULL};
        d.given = outlasting;
        d.n_given = n_given;
        d.pitch = pitch;
        assert_ok(delta_convolve(&d, y, type, n_given ? 0 : n, 0, &error), error);
        assert_cuda(cudaDeviceSynchronize());
    };
    const auto check = [&](int n) {
        const std::vector<float> floats = host_copy(y, (size_t)N * dim);
        const half *halves = reinterpret_cast<const half *>(floats.data());
        for (int i = 0; i < n * dim; i++) {
            const double found = type == DTYPE_FP32 ? floats[i] : half_value(halves[i]);
            const double wanted = expected[(size_t)step.position * dim + i];
            assert_near(found, wanted, (type == DTYPE_FP32 ? 1e-5 : 1e-3) * (1 + fabs(wanted)), "y", (int)step.position, i);
        }
    };
    for (int n : pieces) {
        step.to = (int16_t)(1 - step.from);
        run(n, 0, n == APART ? kept : NULL);
        check(n);
        step.position += n;
        step.from = step.to;
    }
    step = {N - APART, 0, (int16_t)(1 - step.from), 2}; // behind two of the last ones, and the next one once more
    run(0, 2, kept);
    step = {N - APART + 2, 0, 2, step.from};
    run(1, 0, NULL);
    check(1);
    for (const void *p : {(const void *)weights.delta.conv, (const void *)weights.delta.conv_bias, (const void *)device_step,
                          (const void *)inputs, (const void *)x, (const void *)kept, (const void *)y})
        cudaFree(const_cast<void *>(p));
}

static void test_convolutions(void **)
{
    uint64_t seed = 31;
    check_convolution(&seed, 130, 3, false, DTYPE_FP32);
    check_convolution(&seed, 40, 5, true, DTYPE_FP16);
    check_convolution(&seed, 1, 2, true, DTYPE_FP32);
    check_convolution(&seed, 3, 9, false, DTYPE_FP32); // more taps than tokens in any piece
}

// An evaluation is taken back, or fails: what it began with is there still.
static void test_places(void **)
{
    struct carried c;
    carried_open(&c);
    assert_true(carried_holds(&c, 0) && !carried_holds(&c, 1));
    carried_begin(&c, 0, 10, false);
    carried_end(&c, 0, 10, true);
    carried_begin(&c, 10, 5, false);
    const int before = c.from;
    assert_int_not_equal(c.from, c.to);
    carried_end(&c, 10, 5, true);
    for (int64_t at = 15; at < 20; at++) { // the state before the prompt's last piece outlives the tokens after it
        carried_begin(&c, at, 1, false);
        assert_true(c.from != c.to && c.to != before);
        carried_end(&c, at, 1, at < 19);
    }
    assert_true(carried_holds(&c, 19) && !carried_holds(&c, 20) && !carried_holds(&c, 16) && carried_holds(&c, 10));
    carried_begin(&c, 10, 1, false);
    assert_int_equal(c.from, before);
    carried_end(&c, 10, 1, true);
    assert_true(carried_holds(&c, 10) && carried_holds(&c, 11) && !carried_holds(&c, 15) && !carried_holds(&c, 19));
    assert_int_not_equal(carried_skip(&c, 11, 7), before);
    assert_true(carried_holds(&c, 18) && !carried_holds(&c, 11));
    carried_begin(&c, 0, 1, false);
    assert_true(carried_holds(&c, 0) && !carried_holds(&c, 10));
}

// Behind any of a batch's tokens apart, until the next evaluation.
static void test_places_of_tokens_apart(void **)
{
    struct carried c;
    carried_open(&c);
    carried_begin(&c, 0, 10, false);
    carried_end(&c, 0, 10, true);
    carried_begin(&c, 10, 4, true);
    carried_end(&c, 10, 4, true);
    assert_true(carried_replays(&c, 12) && carried_holds(&c, 12) && !carried_replays(&c, 14) && !carried_holds(&c, 15));
    carried_begin_replay(&c, 12);
    assert_true(c.from != c.to && c.at[c.from] == 10);
    carried_end(&c, 10, 2, true);
    assert_true(!carried_replays(&c, 12) && carried_holds(&c, 12) && carried_holds(&c, 10));
    carried_begin(&c, 12, 1, false);
    assert_true(!carried_holds(&c, 11) && !carried_holds(&c, 13));
}

// Values as stored, in double.
template <class T> static void check_gates(enum dtype type, double (*value)(T), T (*stored)(float), double rounding)
{
    uint64_t seed = 9;
    enum { N = 3, UNITS = 70, DIM = 130 };
    const std::vector<float> x = random_floats(&seed, N * UNITS, 3), gates = random_floats(&seed, N * UNITS, 6),
                             stream = random_floats(&seed, N * DIM, 2), norm = random_floats(&seed, DIM, 2),
                             row = random_floats(&seed, DIM, 0.3);
    std::vector<T> units(N * UNITS);
    for (size_t i = 0; i < units.size(); i++)
        units[i] = stored(x[i]);
    float *device_gates = device_copy(gates), *device_stream = device_copy(stream), *device_norm = device_copy(norm),
          *device_row = device_copy(row);
    const struct matrix router = {device_row, DTYPE_FP32, 1, DIM};
    yalm_error error = {};
    for (int which = 0; which < 3; which++) { // gates; a weight for each token, with a norm and without
        T *y = device_copy(units);
        assert_ok(which == 0 ? sigmoid_multiply(y, type, device_gates, N * UNITS, 0, &error)
                             : weigh_units(y, type, UNITS, &router, device_stream, which == 1 ? device_norm : NULL, 1e-5f, N, 0,
                                           &error),
                  error);
        assert_cuda(cudaDeviceSynchronize());
        const std::vector<T> found = host_copy(y, N * UNITS);
        for (int t = 0; t < N; t++) {
            double squares = 0, logit = 0;
            for (int i = 0; i < DIM; i++) {
                squares += (double)stream[t * DIM + i] * stream[t * DIM + i];
                logit += (double)stream[t * DIM + i] * row[i] * (which == 1 ? norm[i] : 1);
            }
            logit /= which == 1 ? sqrt(squares / DIM + 1e-5) : 1;
            for (int i = t * UNITS; i < (t + 1) * UNITS; i++) {
                const double expected = value(units[i]) * sigmoid(which == 0 ? gates[i] : logit);
                assert_near(value(found[i]), expected, (rounding + 2e-6) * fabs(expected) + 0x1p-25, dtype_names[type], which,
                            i);
            }
        }
        cudaFree(y);
    }
    for (float *p : {device_gates, device_stream, device_norm, device_row})
        cudaFree(p);
}

static void test_gates(void **)
{
    check_gates<float>(
        DTYPE_FP32, [](float x) { return (double)x; }, [](float x) { return x; }, 0x1p-23);
    check_gates<half>(
        DTYPE_FP16, [](half x) { return (double)half_value(x); }, [](float x) { return __float2half_rn(x); }, 0x1p-11);
    check_gates<__nv_bfloat16>(
        DTYPE_BF16, [](__nv_bfloat16 x) { return (double)bfloat16_value(x); }, [](float x) { return __float2bfloat16_rn(x); },
        0x1p-8);
}

int main(void)
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_layers), cmocka_unit_test(test_convolutions),
                                cmocka_unit_test(test_places), cmocka_unit_test(test_places_of_tokens_apart),
                                cmocka_unit_test(test_gates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
