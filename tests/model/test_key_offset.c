// What an int8 cache's keys are kept less of, against the sum that it is the mean of, and which models have one.
#include <math.h>
#include <string.h>

#include "expect.h"
#include "model/key_offset.h"

enum { HEADS = 2, DIM = 16, CONTEXT = 4096, POSITIONS = 1024 };

static void test_mean_of_the_rotated_bias(void **state)
{
    (void)state;
    const struct model_config config = {.n_kv_heads = HEADS, .head_dim = DIM, .context_length = CONTEXT};
    double frequency[DIM / 2];
    float bias[HEADS * DIM], offset[HEADS * DIM];
    const double scale = 1.25;
    for (int i = 0; i < DIM / 2; i++)
        frequency[i] = i == DIM / 2 - 1 ? 0 : pow(1e7, -i / 8.0); // the last does not rotate
    for (int i = 0; i < HEADS * DIM; i++)
        bias[i] = (float)(i % 5 * 30 - 50);
    key_offset(offset, bias, &config, frequency, scale);
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < DIM / 2; i++) {
            const double x = (double)bias[h * DIM + i], y = (double)bias[h * DIM + DIM / 2 + i];
            const double by = frequency[i] > 0 ? scale : 1;
            double sums[2] = {0};
            for (int p = 0; p < POSITIONS; p++) {
                sums[0] += by * (x * cos(p * frequency[i]) - y * sin(p * frequency[i])) / POSITIONS;
                sums[1] += by * (y * cos(p * frequency[i]) + x * sin(p * frequency[i])) / POSITIONS;
            }
            assert_true(fabs((double)offset[h * DIM + i] - sums[0]) <
                        0.15); // a sum and an integral: half of the ends' difference over POSITIONS
            assert_true(fabs((double)offset[h * DIM + DIM / 2 + i] - sums[1]) < 0.15);
        }
    key_offset(offset, bias, &config, NULL, 1);
    assert_memory_equal(offset, bias, sizeof bias);
}

static void test_which_models(void **state)
{
    (void)state;
    struct model_config config = {.n_kv_heads = HEADS, .head_dim = DIM, .context_length = CONTEXT, .qkv_bias = true};
    assert_true(key_offset_has(&config, 0));
    assert_false(key_offset_has(&config, 4)); // sinks are seen by a query of their own
    config.attention_softcap = 30;
    assert_false(key_offset_has(&config, 0));
    config.attention_softcap = 0;
    config.sink_logits = true;
    assert_false(key_offset_has(&config, 0));
    config.sink_logits = false;
    config.qk_norm = true; // behind the bias
    assert_false(key_offset_has(&config, 0));
    config.qk_norm = false;
    config.head_dim = 2 * KEY_OFFSET_DIMS;
    assert_false(key_offset_has(&config, 0));
    config.head_dim = DIM;
    config.qkv_bias = false;
    assert_false(key_offset_has(&config, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean_of_the_rotated_bias),
        cmocka_unit_test(test_which_models),
    };
    return cmocka_run_group_tests_name("key offsets", tests, NULL, NULL);
}
