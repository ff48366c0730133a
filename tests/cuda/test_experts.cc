// Mixture of experts against double: one token and many, every type and mixtures of them, ties, experts that nobody chooses.
#include <algorithm>

#include "weights_testing.h"

static const float eps = 1e-5f;

struct experts_case {
    enum dtype gate, up, down;
    int n, n_experts, n_active, dim, ffn_dim;
    bool biased, tied;  // tied: all rows of the router are equal
    bool apart = false; // the router reads x by a norm of its own, and experts' weights have factors
    int n_groups = 0, n_active_groups = 0;
    bool scored = false; // chosen by sigmoids and biases, whose weights are divided by their sum and 0.25
    bool ungated = false;
};

struct expert {
    struct weights gate, up, down;
    std::vector<float> biases[3];
};

// The rule of cpu/experts.c, without its handling of NaN.
static std::vector<int> chosen_of(const std::vector<double> &logits, int n_active)
{
    std::vector<int> order(logits.size());
    for (size_t e = 0; e < order.size(); e++) {
        order[e] = (int)e;
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
    order.resize(n_active);
    std::sort(order.begin(), order.end());
    return order;
}

// What experts are chosen by, in the best groups alone. bias NULL: by logits.
static std::vector<double> ratings_of(const struct experts_case &c, std::vector<double> ratings, const float *bias)
{
    for (int e = 0; e < c.n_experts && bias; e++) {
        ratings[e] = 1 / (1 + exp(-ratings[e])) + bias[e];
    }
    const int size = c.n_groups ? c.n_experts / c.n_groups : 0;
    std::vector<double> best(c.n_groups);
    for (int g = 0; g < c.n_groups; g++) {
        std::vector<double> group(ratings.begin() + g * size, ratings.begin() + (g + 1) * size);
        std::sort(group.rbegin(), group.rend());
        best[g] = group[0] + (bias && size > 1 ? group[1] : 0);
    }
    const std::vector<int> kept = chosen_of(best, c.n_active_groups);
    for (int e = 0; e < c.n_experts && c.n_groups; e++) {
        if (std::find(kept.begin(), kept.end(), e / size) == kept.end()) {
            ratings[e] = -INFINITY;
        }
    }
    return ratings;
}

static double rounding(enum dtype type)
{
    return type == DTYPE_FP32 ? 0 : type == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
}

// y = expert(h), and how far a result may be from it: weights are as stored; of several tokens, inputs are rounded to the
// weights' type, of quantised ones to fp16, and of one token as input_error() says.
static void expected_expert(const struct experts_case &c, const struct expert &e, const std::vector<double> &h,
                            std::vector<double> *y, std::vector<double> *tolerance)
{
    const bool rounded = c.n > 1;
    std::vector<double> gated(c.ffn_dim), gated_tolerance(c.ffn_dim);
    for (int r = 0; r < c.ffn_dim; r++) {
        double gate_magnitude, up_magnitude;
        const double g = dot(&e.gate, r, h, &gate_magnitude) + (c.biased ? e.biases[0][r] : 0);
        const double own_u = dot(&e.up, r, h, &up_magnitude) + (c.biased ? e.biases[1][r] : 0), u = c.ungated ? 1 : own_u;
        gated[r] = silu_of(g) * u;
        const double error = 3 * sum_error(c.dim);
        const double gate_error =
            (gate_magnitude + 1) * (error + rounded * rounding(c.gate)) + !rounded * input_error(&e.gate, r, h);
        const double up_error = (up_magnitude + 1) * (error + rounded * rounding(c.up)) + !rounded * input_error(&e.up, r, h);
        gated_tolerance[r] = gate_error * 1.1 * (fabs(u) + up_error) + up_error * (fabs(silu_of(g)) + 1e-3);
    }
    y->assign(c.dim, 0);
    tolerance->assign(c.dim, 0);
    for (int r = 0; r < c.dim; r++) {
        double magnitude;
        (*y)[r] = dot(&e.down, r, gated, &magnitude) + (c.biased ? e.biases[2][r] : 0);
        (*tolerance)[r] = (magnitude + 1) * (sum_error(c.ffn_dim) + rounded * rounding(c.down));
        (*tolerance)[r] += !rounded * 1.1 * input_error(&e.down, r, gated);
        for (int i = 0; i < c.ffn_dim; i++) {
            (*tolerance)[r] += fabs(e.down.at(r, i)) * gated_tolerance[i];
        }
    }
}

static void run(const struct experts_case &c)
{
    uint64_t seed = (uint64_t)c.n * 1000 + c.dim;
    std::vector<struct expert> experts(c.n_experts);
    std::vector<struct expert_weights> table(c.n_experts);
    std::vector<void *> taken;
    for (int e = 0; e < c.n_experts; e++) {
        struct expert *expert = &experts[e];
        expert->gate = random_weights(&seed, c.gate, c.ffn_dim, c.dim);
        expert->up = random_weights(&seed, c.up, c.ffn_dim, c.dim);
        expert->down = random_weights(&seed, c.down, c.dim, c.ffn_dim);
        const int rows[] = {c.ffn_dim, c.ffn_dim, c.dim};
        float *biases[3] = {};
        for (int i = 0; i < 3; i++) {
            expert->biases[i] = random_floats(&seed, rows[i], 1);
            biases[i] = c.biased ? device_copy(expert->biases[i]) : NULL;
            taken.push_back(biases[i]);
        }
        table[e] = {expert->gate.device, expert->up.device, expert->down.device, biases[0], biases[1], biases[2]};
        if (c.ungated) {
            table[e].up = {NULL, DTYPE_U8, 0, 0};
        }
    }
    std::vector<float> router = random_floats(&seed, (size_t)c.n_experts * c.dim, 1);
    for (size_t i = c.dim; c.tied && i < router.size(); i++) {
        router[i] = router[i - c.dim];
    }
    const std::vector<float> x = random_floats(&seed, (size_t)c.n * c.dim, 2), norm = random_floats(&seed, c.dim, 1);
    const std::vector<float> other_norm = random_floats(&seed, c.dim, 1), factors = random_floats(&seed, c.n_experts, 2);
    const std::vector<float> choice_bias = random_floats(&seed, c.n_experts, 0.5);
    float *device_other = device_copy(other_norm), *device_factors = device_copy(factors),
          *device_bias = device_copy(choice_bias);
    float *device_x = device_copy(x), *device_norm = device_copy(norm), *device_router = device_copy(router);
    struct expert_weights *device_table = device_copy(table);
    struct model_config config = {};
    config.n_experts = c.n_experts;
    config.n_active_experts = c.n_active;
    config.hidden_dim = c.dim;
    config.ffn_dim = c.ffn_dim;
    void *scratch = device_nan<char>(experts_scratch_bytes(&config, c.n));
    struct experts run = {device_norm, eps,       {device_router, DTYPE_FP32, c.n_experts, c.dim}, table.data(), device_table,
                          c.n_experts, c.n_active};
    run.router_norm = c.apart ? device_other : NULL;
    run.weight_scale = c.apart ? device_factors : NULL;
    run.choice_bias = c.scored ? device_bias : NULL;
    run.n_groups = c.n_groups;
    run.n_active_groups = c.n_active_groups;
    run.eps_of_sum = 0.25f;
    yalm_error error = {};
    assert_ok(experts_run(device_x, device_x, &run, c.n, scratch, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());

    const std::vector<float> found = host_copy(device_x, x.size());
    for (int t = 0; t < c.n; t++) {
        const std::vector<double> h = normalised(&x[(size_t)t * c.dim], norm.data(), eps, c.dim);
        const std::vector<double> routed = c.apart ? normalised(&x[(size_t)t * c.dim], other_norm.data(), eps, c.dim) : h;
        std::vector<double> logits(c.n_experts), expected(c.dim), tolerance(c.dim), y, y_tolerance;
        for (int e = 0; e < c.n_experts; e++) {
            for (int i = 0; i < c.dim; i++) {
                logits[e] += routed[i] * router[(size_t)e * c.dim + i];
            }
        }
        const std::vector<int> chosen = chosen_of(ratings_of(c, logits, c.scored ? choice_bias.data() : NULL), c.n_active);
        const auto share = [&](int e) { return c.scored ? 1 / (1 + exp(-logits[e])) : exp(logits[e] - logits[chosen[0]]); };
        double sum = c.scored ? 0.25 : 0;
        for (int e : chosen) {
            sum += share(e);
        }
        for (int e : chosen) {
            const double weight = share(e) / sum * (c.apart ? factors[e] : 1);
            expected_expert(c, experts[e], h, &y, &y_tolerance);
            for (int i = 0; i < c.dim; i++) {
                expected[i] += weight * y[i];
                tolerance[i] += fabs(weight) * (y_tolerance[i] + 1e-5 * fabs(y[i]));
            }
        }
        for (int i = 0; i < c.dim; i++) {
            assert_near(found[(size_t)t * c.dim + i], x[(size_t)t * c.dim + i] + expected[i], tolerance[i] + 1e-6,
                        dtype_names[c.gate], t, i);
        }
    }
    for (struct expert &expert : experts) {
        free_weights(&expert.gate);
        free_weights(&expert.up);
        free_weights(&expert.down);
    }
    taken.insert(taken.end(),
                 {device_x, device_norm, device_other, device_factors, device_bias, device_router, device_table, scratch});
    for (void *memory : taken) {
        cudaFree(memory);
    }
}

static void test_one(void **)
{
    for (enum dtype type : weight_types) {
        run({type, type, type, 1, 8, 2, 64, 96, false, false});
        run({type, type, type, 1, 3, 3, 33, 47, true, false});
        run({type, type, type, 1, 4, 1, 1, 31, true, false});
        run({type, type, type, 1, 8, 2, 32, 40, false, true});
        run({type, type, type, 1, 1, 1, 48, 1, false, false});
    }
}

static void test_many(void **)
{
    for (enum dtype type : weight_types) {
        run({type, type, type, 2, 8, 2, 64, 96, true, false});
        run({type, type, type, 3, 4, 3, 33, 47, true, false});
        run({type, type, type, 40, 5, 2, 31, 65, false, false});
        run({type, type, type, 131, 2, 1, 72, 136, true, false});
        run({type, type, type, 67, 4, 2, 40, 64, false, true}); // all tokens choose experts 0 and 1
    }
}

static void test_mixed_types(void **)
{
    for (int n : {1, 5}) {
        run({DTYPE_FP16, DTYPE_BF16, DTYPE_FP32, n, 4, 2, 64, 48, true, false});
        run({DTYPE_FP32, DTYPE_FP16, DTYPE_BF16, n, 4, 2, 33, 31, false, false});
        run({DTYPE_BF16, DTYPE_BF16, DTYPE_FP16, n, 4, 2, 40, 72, true, false});
        run({DTYPE_Q4, DTYPE_Q8, DTYPE_FP8, n, 4, 2, 40, 72, true, false});
        run({DTYPE_FP8_E5M2, DTYPE_FP16, DTYPE_Q8, n, 4, 2, 33, 31, false, false});
        run({DTYPE_FP16, DTYPE_FP8, DTYPE_Q4, n, 4, 2, 64, 48, true, false});
    }
}

static void test_apart(void **)
{
    for (enum dtype type : {DTYPE_FP32, DTYPE_FP16, DTYPE_Q4}) {
        run({type, type, type, 1, 6, 3, 64, 96, false, false, true});
        run({type, type, type, 5, 6, 3, 33, 47, false, false, true});
    }
}

static void test_groups(void **)
{
    const enum dtype type = DTYPE_FP32;
    for (int n : {1, 7}) {
        for (bool scored : {false, true}) {
            run({type, type, type, n, 12, 3, 48, 40, false, false, false, 4, 2, scored});
            run({type, type, type, n, 6, 2, 33, 31, false, false, false, 6, 3, scored}); // of one expert each
            run({type, type, type, n, 80, 4, 32, 16, false, false, false, 40, 2, scored});
            run({type, type, type, n, 8, 2, 32, 40, false, true, false, 4, 2, scored});
            run({type, type, type, n, 5, 2, 40, 24, false, false, false, 0, 0, scored});
        }
    }
}

static void test_ungated(void **)
{
    for (enum dtype type : {DTYPE_FP32, DTYPE_BF16, DTYPE_Q8}) {
        for (int n : {1, 9}) {
            run({type, type, type, n, 5, 2, 33, 47, true, false, false, 0, 0, false, true});
        }
    }
}

int main(void)
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_one),   cmocka_unit_test(test_many),   cmocka_unit_test(test_mixed_types),
                                cmocka_unit_test(test_apart), cmocka_unit_test(test_groups), cmocka_unit_test(test_ungated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
