// RoPE against transformers' frequencies and against exact angles.

#include <math.h>

#include "expect.h"
#include "model/rope.h"
#include "rope_golden.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

// transformers computes in float32, of which a frequency keeps about 2^-22 through its few operations. The power alone costs
// some more, since its exponent is rounded first: |ln f| * 2^-24.
static void test_frequencies(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rope_golden); i++) {
        double f[64];
        const double scale = rope_frequencies(f, &rope_golden[i].rope, rope_golden[i].head_dim, rope_golden[i].context);
        assert_true(scale == rope_golden[i].scale);
        const int rotary_dim = rope_golden[i].rope.rotary_dim ? rope_golden[i].rope.rotary_dim : rope_golden[i].head_dim;
        for (int j = rotary_dim / 2; j < rope_golden[i].head_dim / 2; j++)
            assert_true(f[j] == 0);
        for (int j = 0; j < rotary_dim / 2; j++) {
            const double expected = rope_golden[i].frequencies[j];
            if (!(fabs(f[j] - expected) <= 1.5e-6 * expected))
                fail_msg("case %zu, component %d: %.9g, expected %.9g", i, j, f[j], expected);
        }
    }
}

static void test_angles_stay_exact_in_the_millions(void **state)
{
    (void)state;
    const struct rope_config rope = {.type = ROPE_DEFAULT, .theta = 10000};
    double f[32];
    float cosines[32], sines[32];
    assert_true(rope_frequencies(f, &rope, 64, 1000) == 1);
    for (size_t i = 0; i < COUNT(angle_golden); i++) {
        rope_angles(cosines, sines, f, 1, 64, angle_golden[i].position);
        // The angle's own rounding, 2^-53 of it, and the last bit of pow(); then float's.
        const double angle = (double)angle_golden[i].position * f[3], bound = angle * 0x1p-51 + 0x1p-24;
        assert_true(fabs(cosines[3] - angle_golden[i].cos) <= bound);
        assert_true(fabs(sines[3] - angle_golden[i].sin) <= bound);
        for (int j = 0; j < 32; j++)
            assert_true(fabs((double)cosines[j] * cosines[j] + (double)sines[j] * sines[j] - 1) < 1e-6);
    }
}

static void test_scale_multiplies_both(void **state)
{
    (void)state;
    const double f[2] = {1, 0.25}, still[2] = {1, 0};
    float cosines[2], sines[2], scaled_cosines[2], scaled_sines[2];
    rope_angles(cosines, sines, f, 1, 4, 3);
    rope_angles(scaled_cosines, scaled_sines, f, 1.5, 4, 3);
    for (int i = 0; i < 2; i++) {
        assert_true(fabs(cosines[i] - cos(3 * f[i])) < 1e-7 && fabs(sines[i] - sin(3 * f[i])) < 1e-7);
        assert_true(fabs(scaled_cosines[i] - 1.5 * cosines[i]) < 2e-7 && fabs(scaled_sines[i] - 1.5 * sines[i]) < 2e-7);
    }
    rope_angles(cosines, sines, still, 1.5, 4, 3);
    assert_true(cosines[1] == 1 && sines[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_angles_stay_exact_in_the_millions),
        cmocka_unit_test(test_scale_multiplies_both),
    };
    return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
