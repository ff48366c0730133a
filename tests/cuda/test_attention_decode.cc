// Decode attention against double: every group size, head_dim, length, window, ring and sinks; any number of splits.
#include "attention_testing.h"

// With q and the weights in two halves each, products are exact to 2^-22 of their magnitudes; values, at most 1, are what is
// averaged.
static double tolerance(const struct attention_case &c)
{
    return (c.type == YALM_KV_FP32 ? 2e-6 : 6e-6) * (1 + c.range * c.range / 8) * c.value_range;
}

static void run_splits(struct attention_fixture *f, int n_sms, const char *what)
{
    yalm_error error = {};
    struct decode_plan plan = attention_decode_plan(&f->cache, f->c.n_heads, n_sms);
    float *attended = device_nan<float>(f->expected.size());
    void *scratch = NULL;
    assert_cuda(cudaMalloc(&scratch, plan.scratch_bytes));
    assert_cuda(cudaMemset(scratch, 0, plan.scratch_bytes));
    for (int repeat = 0; repeat < 2; repeat++) { // the second finds what the first left in the scratch
        assert_cuda(cudaMemset(attended, 0xff, f->expected.size() * sizeof *attended));
        assert_ok(attention_decode(&f->attention, &plan, attended, scratch, 0, &error), error);
        assert_cuda(cudaDeviceSynchronize());
        assert_attended(f, attended, tolerance(f->c), what);
    }
    cudaFree(attended);
    cudaFree(scratch);
}

static void run(const struct attention_case &c, int n_sms)
{
    char what[160];
    snprintf(what, sizeof what,
             "%s, %d heads, %d kv heads, head_dim %d, context %d, window %d, sinks %d, position %d, %d multiprocessors",
             kv_name(c.type), c.n_heads, c.n_kv_heads, c.head_dim, c.context, c.window, c.n_sinks, (int)c.position, n_sms);
    struct attention_fixture f;
    attention_open(&f, c, (uint64_t)c.position * 31 + c.head_dim);
    run_splits(&f, n_sms, what);
    attention_close(&f);
}

static const yalm_kv types[] = {YALM_KV_FP16, YALM_KV_FP32, YALM_KV_INT8};

static void groups(void **)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 32};
    for (yalm_kv type : types) {
        for (int group : sizes) {
            run({type, group * 2, 2, 64, 256, 0, 0, 8, 100, 1, 2.0}, 4);
            run({type, group, 1, 128, 256, 0, 0, 8, 37, 1, 2.0}, 1);
        }
        run({type, 9, 1, 256, 256, 0, 0, 8, 37, 1, 2.0}, 1);
        run({type, 9, 1, 512, 256, 0, 0, 8, 200, 1, 2.0}, 4);
    }
}

static void head_dims(void **)
{
    static const int dims[] = {2, 8, 10, 16, 18, 48, 64, 72, 80, 96, 100, 112, 128, 160, 250, 256, 258, 320, 512};
    for (yalm_kv type : types) {
        for (int dim : dims) {
            run({type, 8, 2, dim, 512, 0, 0, 8, 300, 1, 2.0}, 3);
            run({type, 2, 2, dim, 512, 0, 0, 8, 20, 1, 2.0}, 3);
        }
    }
}

static void lengths(void **)
{
    static const int lengths[] = {1, 2, 15, 16, 17, 31, 33, 127, 128, 129, 257, 1000};
    static const int sms[] = {1, 3, 16, 132};
    for (yalm_kv type : types) {
        for (int length : lengths) {
            for (int n_sms : sms) {
                run({type, 4, 1, 64, 4096, 0, 0, 8, length - 1, 1, 2.0}, n_sms);
            }
        }
    }
}

static void windows_and_rings(void **)
{
    static const int positions[] = {0, 5, 16, 17, 24, 25, 40, 41, 42, 60, 1000, 1000003};
    for (yalm_kv type : types) {
        for (int position : positions) {
            run({type, 4, 2, 64, 4096, 17, 0, 9, position % 4096, 1, 2.0}, 4); // a model's window, its ring of 25
            run({type, 4, 2, 64, 40, 0, 4, 8, position, 1, 2.0}, 4);           // sinks
            run({type, 4, 2, 80, 300, 0, 20, 8, position, 1, 2.0}, 8);         // more of them than a tile has
            run({type, 4, 2, 48, 5, 0, 4, 1, position, 1, 2.0}, 2);            // nearly all is sinks
            run({type, 4, 2, 512, 40, 0, 4, 8, position, 1, 2.0}, 4);
            run({type, 4, 2, 64, 4096, 17, 1, 9, position, 1, 2.0}, 4); // endless with a window: no sinks
        }
    }
}

// Scores of ±1e4 neither overflow nor drown the others; where the best comes last, all before it shrinks to nothing.
static void large_scores(void **)
{
    for (yalm_kv type : types) {
        run({type, 4, 1, 64, 512, 0, 0, 8, 299, 1, 60.0}, 3);
        run({type, 4, 1, 512, 512, 0, 0, 8, 299, 1, 60.0}, 3);
    }
}

// Values far beyond fp16's range, far below it, and of all magnitudes in one tile: the weights' scales must not leave it.
static void value_ranges(void **)
{
    for (int dim : {64, 128, 256}) {
        for (double range : {1e-30, 1e-9, 1e-3, 1e7, 1e30}) {
            run({YALM_KV_INT8, 4, 2, dim, 512, 0, 0, 8, 300, 1, 2.0, range}, 3);
        }
        run({YALM_KV_INT8, 4, 2, dim, 512, 0, 0, 8, 300, 1, 2.0, 1.0, true}, 3);
        run({YALM_KV_INT8, 4, 2, dim, 512, 0, 0, 8, 300, 1, 2.0, 1e30, true}, 3);
    }
}

static void slopes(void **)
{
    for (yalm_kv type : types) {
        for (int dim : {64, 80, 128, 250, 320}) {
            run({type, 3, 3, dim, 512, 0, 0, 8, 300, 1, 2.0, 1.0, false, false, 0.5}, 3);
            run({type, 2, 2, dim, 512, 40, 0, 8, 200, 1, 2.0, 1.0, false, false, 0.25}, 3); // in a ring
        }
    }
}

// Rows that are key and value in one: few heads and many, of any rank, in a ring, and beside sinks.
static void latents(void **)
{
    for (yalm_kv type : {YALM_KV_FP16, YALM_KV_FP32}) {
        for (int dim : {10, 24, 130, 320, 576, 640}) {
            run({type, 5, 1, dim, 512, 0, 0, 8, 300, 1, 2.0, 2.0, false, true}, dim == 576 ? 16 : 3);
        }
        run({type, 1, 1, 34, 512, 0, 0, 8, 7, 1, 2.0, 2.0, false, true}, 1);
        run({type, 16, 1, 30, 4096, 17, 0, 9, 60, 1, 2.0, 2.0, false, true}, 4);
        run({type, 6, 1, 30, 40, 0, 4, 8, 1000, 1, 2.0, 2.0, false, true}, 4);
    }
}

static void refusals(void **)
{
    yalm_error error = {};
    struct kv_cache cache = {};
    cache.n_kv_heads = 1;
    cache.head_dim = 514;
    cache.policy = kv_policy_make(16, 0, false, 0, 1);
    const struct attention attention = {NULL, NULL, NULL, &cache, 0, 1};
    const struct decode_plan plan = {1, 0};
    assert_int_equal(attention_decode(&attention, &plan, NULL, NULL, 0, &error), YALM_BAD_MODEL);
    assert_non_null(strstr(error.text, "514"));
    cache.head_dim = 642;
    cache.latent = true;
    assert_int_equal(attention_decode(&attention, &plan, NULL, NULL, 0, &error), YALM_BAD_MODEL);
    assert_non_null(strstr(error.text, "642, expected an even number of at most 640"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups),       cmocka_unit_test(head_dims),
        cmocka_unit_test(lengths),      cmocka_unit_test(windows_and_rings),
        cmocka_unit_test(large_scores), cmocka_unit_test(value_ranges),
        cmocka_unit_test(slopes),       cmocka_unit_test(latents),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
