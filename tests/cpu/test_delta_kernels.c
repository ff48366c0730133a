// What recurrent layers compute between their products: the convolution, the gated delta rule, scans, gates.
#include "kernels_testing.h"

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void test_sigmoid_multiply(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int n = 1; n <= 70; n++) {
        float *x = random_floats(f, (size_t)n, 3), *z = random_floats(f, (size_t)n, n % 2 ? 90 : 5), before[70];
        memcpy(before, x, sizeof *x * (size_t)n);
        f->kernels->sigmoid_multiply(x, z, n);
        for (int i = 0; i < n; i++) {
            const double expected = before[i] * sigmoid(z[i]);
            assert_near(x[i], expected, 3e-6 * fabs(expected) + 1e-35, "sigmoid", i, n);
        }
        release(f);
    }
    float x[2] = {1, 1};
    const float z[2] = {NAN, -1e4f};
    f->kernels->sigmoid_multiply(x, z, 2);
    assert_true(isnan(x[0]) && fabsf(x[1]) < 1e-37f);
}

static void test_convolve(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int n_taps = 2; n_taps <= 6; n_taps++)
        for (int n = 1; n <= 70; n += 3) {
            const int ldt = n + 5;
            float *taps = random_floats(f, (size_t)(n_taps - 1) * (size_t)ldt + (size_t)n, 1),
                  *y = guarded(f, sizeof *y * (size_t)n), *bias = n % 2 ? random_floats(f, (size_t)n, 1) : NULL;
            const float *rows[6];
            for (int j = 0; j < n_taps; j++)
                rows[j] = random_floats(f, (size_t)n, 2);
            f->kernels->convolve(y, rows, taps, bias, ldt, n_taps, n);
            for (int i = 0; i < n; i++) {
                double sum = bias ? bias[i] : 0;
                for (int j = 0; j < n_taps; j++)
                    sum += (double)taps[j * ldt + i] * rows[j][i];
                assert_near(y[i], sum * sigmoid(sum), 4e-6, "convolution", i, n);
            }
            release(f);
        }
}

static void test_convolve_gated(void **state)
{
    struct fixture *f = fixture_of(state);
    for (int n_taps = 2; n_taps <= 6; n_taps++)
        for (int n = 1; n <= 70; n += 3) {
            const int ldt = n + 5;
            const float *taps = random_floats(f, (size_t)(n_taps - 1) * (size_t)ldt + (size_t)n, 1),
                        *gates = random_floats(f, (size_t)n, 2), *bias = n % 2 ? random_floats(f, (size_t)n, 1) : NULL;
            float *y = guarded(f, sizeof *y * (size_t)n);
            const float *rows[6];
            for (int j = 0; j < n_taps; j++)
                rows[j] = random_floats(f, (size_t)n, 2);
            f->kernels->convolve_gated(y, rows, taps, ldt, n_taps, bias, gates, n);
            for (int i = 0; i < n; i++) {
                double sum = bias ? bias[i] : 0;
                for (int j = 0; j < n_taps; j++)
                    sum += (double)taps[j * ldt + i] * rows[j][i];
                assert_near(y[i], gates[i] * sum, 2e-5, "gated convolution", i, n);
            }
            release(f);
        }
}

struct problem {
    int n, key_dim, value_dim, first, last;
    bool scan, channels;
};

static int n_decays(const struct problem *p)
{
    return p->channels ? p->key_dim : 1;
}

// Rows of tokens are (q, k, v) one after another, as in the forward pass.
struct tensors {
    float *before, *after, *x, *decay, *beta, *y;
    int ldx;
};

static struct tensors make(struct fixture *f, const struct problem *p)
{
    const size_t n = (size_t)p->n, state = (size_t)p->key_dim * (size_t)p->value_dim;
    struct tensors t = {.ldx = 2 * p->key_dim + p->value_dim};
    t.before = random_floats(f, state, 1);
    t.after = guarded(f, state * sizeof(float));
    t.x = random_floats(f, n * (size_t)t.ldx, 1);
    t.decay = random_floats(f, n * (size_t)n_decays(p), 1);
    t.beta = random_floats(f, n, 1);
    t.y = guarded(f, n * (size_t)p->value_dim * sizeof(float));
    for (int i = 0; i < p->n * n_decays(p); i++)
        t.decay[i] = fabsf(t.decay[i]);
    for (int i = 0; i < p->n; i++) {
        t.beta[i] = fabsf(t.beta[i]);
        for (int j = 0; j < 2 * p->key_dim; j++) // about as long as they are in earnest
            t.x[i * t.ldx + j] *= 1.5f / sqrtf((float)p->key_dim);
    }
    return t;
}

static void run(const struct fixture *f, const struct problem *p, const struct tensors *t, const float *before, float *after,
                float *y, int first_token, int n)
{
    const float *x = t->x + (ptrdiff_t)first_token * t->ldx;
    f->kernels->delta_rule(&(struct delta_args){.y = y ? y + (ptrdiff_t)first_token * p->value_dim : NULL,
                                                .ldy = p->value_dim,
                                                .before = before,
                                                .after = after,
                                                .q = x,
                                                .k = x + p->key_dim,
                                                .v = x + 2 * (ptrdiff_t)p->key_dim,
                                                .ldx = t->ldx,
                                                .decay = t->decay + (ptrdiff_t)first_token * n_decays(p),
                                                .beta = t->beta + first_token,
                                                .ldd = n_decays(p),
                                                .ldg = 1,
                                                .n = n,
                                                .key_dim = p->key_dim,
                                                .value_dim = p->value_dim,
                                                .first_col = p->first,
                                                .last_col = p->last,
                                                .scan = p->scan,
                                                .channels = p->channels});
}

// Where element (i, c) of a state lies.
static int place_of(const struct problem *p, int i, int c)
{
    const int block = c / DELTA_COLS * DELTA_COLS, left = p->value_dim - block;
    return block * p->key_dim + i * (left < DELTA_COLS ? left : DELTA_COLS) + c - block;
}

// The rule in double precision, column by column; what is outside the columns stays as it was.
static void check(const struct problem *p, const struct tensors *t)
{
    double *s = malloc(sizeof *s * (size_t)p->key_dim);
    for (int c = 0; c < p->value_dim; c++) {
        const bool inside = c >= p->first && c < p->last;
        for (int i = 0; i < p->key_dim; i++)
            s[i] = t->before[place_of(p, i, c)];
        for (int at = 0; at < p->n; at++) {
            const float *q = t->x + (ptrdiff_t)at * t->ldx, *k = q + p->key_dim, *v = k + p->key_dim;
            double news = v[c], y = 0;
            for (int i = 0; i < p->key_dim; i++) {
                s[i] *= t->decay[p->channels ? at * p->key_dim + i : at];
                news -= p->scan ? 0 : s[i] * k[i];
            }
            for (int i = 0; i < p->key_dim; i++)
                y += (s[i] += t->beta[at] * news * k[i]) * q[i];
            if (inside)
                assert_near(t->y[at * p->value_dim + c], y, 3e-5, "delta rule, output", c, p->value_dim);
            else
                assert_true(isnan(t->y[at * p->value_dim + c])); // nobody wrote there
        }
        for (int i = 0; i < p->key_dim; i++)
            if (inside)
                assert_near(t->after[place_of(p, i, c)], s[i], 3e-5, "delta rule, state", c, p->value_dim);
            else
                assert_true(isnan(t->after[place_of(p, i, c)]));
    }
    free(s);
}

static const struct problem problems[] = {
    {1, 1, 1, 0, 1, false, false},       {3, 5, 7, 0, 7, false, false},       {2, 16, 16, 0, 16, false, false},
    {5, 33, 31, 0, 31, false, false},    {4, 128, 128, 0, 128, false, false}, {4, 128, 128, 32, 64, false, false},
    {7, 24, 100, 32, 100, false, false}, {3, 130, 47, 32, 47, false, false},  {9, 64, 33, 32, 33, false, false},
    {2, 7, 65, 0, 32, false, false},     {1, 1, 1, 0, 1, true, false},        {5, 33, 31, 0, 31, true, false},
    {4, 128, 64, 0, 64, true, false},    {7, 24, 100, 32, 100, true, false},  {9, 130, 33, 32, 33, true, false},
    {1, 1, 1, 0, 1, false, true},        {5, 33, 31, 0, 31, false, true},     {4, 128, 128, 0, 128, false, true},
    {7, 24, 100, 32, 100, false, true},  {9, 130, 33, 32, 33, false, true},
};

static void test_delta_rule(void **state)
{
    struct fixture *f = fixture_of(state);
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const struct problem *p = &problems[i];
        const struct tensors t = make(f, p);
        run(f, p, &t, t.before, t.after, t.y, 0, p->n);
        check(p, &t);
        release(f);
    }
}

// Tokens one by one, the state in place, and columns cut otherwise: the same bits.
static void test_delta_rule_is_the_same_however_it_is_cut(void **state)
{
    struct fixture *f = fixture_of(state);
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        struct problem p = problems[i];
        const struct tensors t = make(f, &p);
        const size_t floats = (size_t)p.key_dim * (size_t)p.value_dim, out = (size_t)p.n * (size_t)p.value_dim;
        p.first = 0;
        p.last = p.value_dim;
        run(f, &p, &t, t.before, t.after, t.y, 0, p.n);
        float *in_place = guarded(f, sizeof(float) * floats), *y = guarded(f, sizeof(float) * out);
        memcpy(in_place, t.before, sizeof(float) * floats);
        for (int at = 0; at < p.n; at++)
            for (p.first = 0; p.first < p.value_dim; p.first = p.last) {
                p.last = p.first + 32 < p.value_dim ? p.first + 32 : p.value_dim;
                run(f, &p, &t, in_place, in_place, y, at, 1);
            }
        assert_memory_equal(in_place, t.after, sizeof(float) * floats);
        p.first = 0;
        memcpy(in_place, t.before, sizeof(float) * floats);
        run(f, &p, &t, in_place, in_place, NULL, 0, p.n); // without what comes out
        assert_memory_equal(in_place, t.after, sizeof(float) * floats);
        assert_memory_equal(y, t.y, sizeof(float) * out);
        release(f);
    }
}

int main(void)
{
    static const struct kernel_case cases[] = {
        {"sigmoid", test_sigmoid_multiply},
        {"convolution", test_convolve},
        {"gated convolution", test_convolve_gated},
        {"delta rule", test_delta_rule},
        {"delta rule, cut", test_delta_rule_is_the_same_however_it_is_cut},
    };
    return run_on_every_isa("recurrent layers' kernels", cases, sizeof cases / sizeof *cases);
}
