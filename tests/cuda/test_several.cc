// Several tokens' products have the bits of one's, whatever the type, the columns and what becomes of the sums: a row of one
// segment, of several whose x fits into shared memory together, of more than that, and of more than one launch has.
#include "weights_testing.h"

static const float eps = 1e-5f;

static void assert_same_bits(const float *several, const std::vector<float *> &alone, int rows, enum dtype type, int cols)
{
    const int n = (int)alone.size();
    const std::vector<float> found = host_copy(several, (size_t)n * rows);
    for (int t = 0; t < n; t++)
        if (memcmp(&found[(size_t)t * rows], host_copy(alone[t], rows).data(), rows * sizeof(float)))
            fail_msg("%s, %d rows, %d columns: token %d of %d has other bits than alone", dtype_names[type], rows, cols, t, n);
}

static std::vector<float *> outputs(uint64_t *seed, int n, int rows, float *all)
{
    std::vector<float *> alone;
    for (int t = 0; t < n; t++) {
        const std::vector<float> old = random_floats(seed, rows, 1);
        alone.push_back(device_copy(old));
        assert_cuda(cudaMemcpy(all + (size_t)t * rows, old.data(), rows * sizeof(float), cudaMemcpyHostToDevice));
    }
    return alone;
}

static void free_all(std::vector<float *> memory)
{
    for (float *m : memory)
        cudaFree(m);
}

// Two matrices of one launch, stored; a third, of a type of its own.
static void run_norm(enum dtype type, enum dtype third, int rows, int cols, int n, bool normalised)
{
    uint64_t seed = (uint64_t)cols * 8 + n;
    float *x = device_copy(random_floats(&seed, (size_t)cols * n, 3)), *norm = device_copy(random_floats(&seed, cols, 2)),
          *bias = device_copy(random_floats(&seed, rows, 1));
    const int all_rows[] = {rows, 3, 2};
    const struct weights w[] = {random_weights(&seed, type, rows, cols), random_weights(&seed, type, 3, cols),
                                random_weights(&seed, third, 2, cols)};
    struct product products[3];
    std::vector<float *> alone[3];
    for (int i = 0; i < 3; i++) {
        products[i] = {w[i].device, i == 0 ? bias : NULL, device_nan<float>((size_t)all_rows[i] * n)};
        alone[i] = outputs(&seed, n, all_rows[i], products[i].y);
    }
    yalm_error error = {};
    assert_ok(matvec_norm(products, 3, x, normalised ? norm : NULL, eps, 0, &error, NULL, n), error);
    for (int t = 0; t < n; t++) {
        struct product one[3];
        for (int i = 0; i < 3; i++)
            one[i] = {w[i].device, products[i].bias, alone[i][t]};
        assert_ok(matvec_norm(one, 3, x + (size_t)t * cols, normalised ? norm : NULL, eps, 0, &error), error);
    }
    assert_cuda(cudaDeviceSynchronize());
    for (int i = 0; i < 3; i++) {
        assert_same_bits(products[i].y, alone[i], all_rows[i], type, cols);
        free_all(alone[i]);
        free_weights(&w[i]);
        cudaFree(products[i].y);
    }
    free_all({x, norm, bias});
}

static void run_gated(enum dtype gate_type, enum dtype up_type, int rows, int cols, int n)
{
    uint64_t seed = (uint64_t)cols * 8 + n;
    float *x = device_copy(random_floats(&seed, (size_t)cols * n, 3)), *norm = device_copy(random_floats(&seed, cols, 2)),
          *bias = device_copy(random_floats(&seed, rows, 1)), *y = device_nan<float>((size_t)rows * n);
    const struct weights gate = random_weights(&seed, gate_type, rows, cols), up = random_weights(&seed, up_type, rows, cols);
    const struct expert_weights ffn = {gate.device, up.device, {}, bias, NULL, NULL};
    const std::vector<float *> alone = outputs(&seed, n, rows, y);
    yalm_error error = {};
    assert_ok(matvec_gated(y, &ffn, x, norm, eps, 0, &error, NULL, ACTIVATION_GELU, n), error);
    for (int t = 0; t < n; t++)
        assert_ok(matvec_gated(alone[t], &ffn, x + (size_t)t * cols, norm, eps, 0, &error, NULL, ACTIVATION_GELU), error);
    assert_cuda(cudaDeviceSynchronize());
    assert_same_bits(y, alone, rows, gate_type, cols);
    free_all(alone);
    free_all({x, norm, bias, y});
    free_weights(&gate);
    free_weights(&up);
}

static void run_residual(enum dtype type, int rows, int cols, int n)
{
    uint64_t seed = (uint64_t)cols * 8 + n;
    float *x = device_copy(random_floats(&seed, (size_t)cols * n, 3)), *bias = device_copy(random_floats(&seed, rows, 1)),
          *y = device_nan<float>((size_t)rows * n);
    const struct weights w = random_weights(&seed, type, rows, cols);
    const std::vector<float *> alone = outputs(&seed, n, rows, y);
    yalm_error error = {};
    assert_ok(matvec_residual(y, &w.device, bias, x, 0, &error, NULL, n), error);
    for (int t = 0; t < n; t++)
        assert_ok(matvec_residual(alone[t], &w.device, bias, x + (size_t)t * cols, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    assert_same_bits(y, alone, rows, type, cols);
    free_all(alone);
    free_all({x, bias, y});
    free_weights(&w);
}

static void test_stored(void **)
{
    for (enum dtype type : weight_types) {
        run_norm(type, type, 35, 33, 2, true);
        run_norm(type, type, 9, 2056, 5, true);
        run_norm(type, DTYPE_FP16, 7, 4096, 8, true);
        run_norm(type, DTYPE_Q4, 3, 1000, 3, false);
    }
}

static void test_gated(void **)
{
    for (enum dtype type : weight_types) {
        run_gated(type, type, 5, 2304, 8);
        run_gated(type, DTYPE_FP32, 3, 72, 2);
    }
}

static void test_added(void **)
{
    for (enum dtype type : weight_types) {
        run_residual(type, 3, 14336, 8); // x of several tokens does not fit
        run_residual(type, 37, 264, 3);
    }
    run_residual(DTYPE_Q4, 3, 120001, 2); // nor does one's
    run_residual(DTYPE_BF16, 2, 120008, 2);
}

// Few columns and so many rows that their sums decide how many blocks there are.
static void test_many_rows(void **)
{
    run_norm(DTYPE_FP16, DTYPE_FP16, 30001, 8, 8, true);
    run_norm(DTYPE_FP8, DTYPE_Q8, 20001, 16, 7, true);
}

int main(void)
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_stored), cmocka_unit_test(test_gated), cmocka_unit_test(test_added),
                                cmocka_unit_test(test_many_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
