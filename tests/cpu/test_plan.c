// Who multiplies: every number of tokens has one multiplier, of tokens apart that of one, and memory is counted for all that
// can come.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/machine/isa.h"
#include "cpu/plan.h"

enum { CHUNK = 512 };

static const type_set all = ((type_set)1 << DTYPE_WEIGHTS) - 1;

// As plan.h says it, looked for among all rows.
static const struct multiplier *last_that_takes(const struct product_plan *plan, enum dtype type, int n)
{
    const struct multiplier *found = &plan->by[type][0];
    for (int i = 1; i < plan->n_by[type]; i++)
        if (plan->by[type][i].least <= n)
            found = &plan->by[type][i];
    return found;
}

static bool has_product(const struct product_plan *plan, const struct multiplier *m, enum dtype type)
{
    const enum dtype unpacked = unpacked_type(type);
    switch (m->form) {
    case TOKENS_FLOAT:
        return plan->kernels->matvec[type];
    case TOKENS_PACKED:
        return plan->kernels->matmul[unpacked];
    case TOKENS_16_BITS:
        return m->matmul16->product[unpacked];
    case TOKENS_QUANTISED:
        return plan->quant->few.product[type] && plan->quant->many.product[type];
    case TOKEN_FORMS:
        break;
    }
    return false;
}

static void check_type(const struct product_plan *plan, enum dtype type)
{
    assert_in_range(plan->n_by[type], 1, MOST_MULTIPLIERS);
    assert_int_equal(plan->by[type][0].least, 1);
    for (int i = 1; i < plan->n_by[type]; i++) {
        assert_true(plan->by[type][i].least <= plan->chunk);
        if (i > 1)
            assert_true(plan->by[type][i].least > plan->by[type][i - 1].least);
    }
    for (int n = 1; n <= plan->chunk; n++) {
        const struct multiplier *m = plan_multiplier(plan, type, n, false);
        assert_ptr_equal(m, last_that_takes(plan, type, n));
        assert_ptr_equal(plan_multiplier(plan, type, n, true), &plan->by[type][0]);
        assert_true(has_product(plan, m, type));
        assert_int_equal(plan_forms(plan, type_bit(type), n, false), 1u << m->form);
        assert_true(plan_all_forms(plan, type_bit(type)) & 1u << m->form);
        assert_true(n <= plan_most(plan, m->form));
        if (m->form == TOKENS_QUANTISED)
            assert_true(plan_quant_form(plan->quant, n)->product[type] &&
                        plan_quant_form(plan->quant, n)->size(n, 256) <= plan_quantised_bytes(plan->quant, plan->chunk, 256));
        if (m->matmul16) {
            assert_true(m->matmul16->most == 0 || n <= m->matmul16->most);
            assert_true(m->matmul16->rows <= plan_16_bits_rows(plan));
            assert_true(m->matmul16->size(n, 256) <= plan_16_bits_bytes(plan, 256) &&
                        m->matmul16->scratch <= plan_scratch(plan));
        }
    }
}

static void every_number_of_tokens(void **state)
{
    (void)state;
    for (const struct cpu_kernels *const *k = cpu_kernels_usable(); *k; k++)
        for (int activations = YALM_ACTIVATIONS_INT16; activations <= YALM_ACTIVATIONS_FP32; activations++)
            for (int chunk = 1; chunk <= CHUNK; chunk = chunk < 70 ? chunk + 1 : CHUNK + (chunk == CHUNK)) {
                const struct product_plan plan = plan_products(*k, (yalm_activations)activations, all, chunk);
                for (int type = 0; type < DTYPE_WEIGHTS; type++)
                    check_type(&plan, (enum dtype)type);
            }
}

// However few tokens there are, or may be, they become what most of them do; those apart what one does.
static void exact(void **state)
{
    (void)state;
    for (const struct cpu_kernels *const *k = cpu_kernels_usable(); *k; k++)
        for (int activations = YALM_ACTIVATIONS_INT16; activations <= YALM_ACTIVATIONS_FP32; activations++)
            for (int chunk = 1; chunk <= CHUNK; chunk = chunk < 40 ? chunk + 1 : CHUNK + (chunk == CHUNK)) {
                const struct product_plan plan = plan_exact(*k, (yalm_activations)activations, all, chunk),
                                          most = plan_exact(*k, (yalm_activations)activations, all, CHUNK);
                for (int type = 0; type < DTYPE_WEIGHTS; type++) {
                    const struct multiplier *m = plan_multiplier(&plan, type, 1, false);
                    assert_ptr_equal(m, plan_multiplier(&plan, type, chunk, false));
                    assert_ptr_equal(plan_multiplier(&plan, type, 1, true), &plan.by[type][0]);
                    assert_true(has_product(&plan, m, type) && plan_most(&plan, m->form) >= chunk);
                    assert_true(plan_most(&plan, plan.by[type][0].form) >= 1);
                    assert_memory_equal(plan.by[type], most.by[type], sizeof *plan.by[type] * (size_t)plan.n_by[type]);
                    assert_true(!m->matmul16 || m->matmul16->most == 0);
                }
                for (int n = 1; n <= chunk; n++) {
                    const struct quant_form *form = plan_quant_form_of(&plan, n, false);
                    assert_ptr_not_equal(form, &plan.quant->few);
                    assert_true(form->size(n, 256) <= plan_quantised_bytes(plan.quant, chunk, 256));
                }
                assert_ptr_equal(plan_quant_form_of(&plan, 1, true), &plan.quant->few);
            }
}

// Only what the model has is counted.
static void of_the_types_there_are(void **state)
{
    (void)state;
    const struct cpu_kernels *scalar = cpu_kernels_select("scalar");
    const struct product_plan q8 = plan_products(scalar, YALM_ACTIVATIONS_INT16, type_bit(DTYPE_Q8), CHUNK);
    assert_int_equal(plan_most(&q8, TOKENS_QUANTISED), CHUNK);
    assert_int_equal(plan_most(&q8, TOKENS_PACKED), 0);
    const struct product_plan few = plan_products(scalar, YALM_ACTIVATIONS_INT16, all, scalar->matvec_max);
    assert_int_equal(plan_most(&few, TOKENS_PACKED), 0);
    assert_int_equal(plan_most(&few, TOKENS_FLOAT), scalar->matvec_max);
}

// Of a model whose layers have two types.
static yalm_status resolve(yalm_activations *activations, enum dtype q, enum dtype others, enum dtype classifier)
{
    const type_set of_layers = type_bit(q) | type_bit(others);
    yalm_error error;
    return plan_resolve(activations, of_layers | type_bit(classifier), of_layers, &error);
}

static void refused_where_nothing_is_multiplied_so(void **state)
{
    (void)state;
    yalm_activations int8 = YALM_ACTIVATIONS_INT8, fp32 = YALM_ACTIVATIONS_FP32;
    assert_int_equal(resolve(&int8, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16), YALM_USAGE);
    assert_int_equal(resolve(&fp32, DTYPE_Q8, DTYPE_Q8, DTYPE_Q8), YALM_USAGE);
    assert_int_equal(resolve(&int8, DTYPE_BF16, DTYPE_Q4, DTYPE_BF16), YALM_OK);
    assert_int_equal(resolve(&int8, DTYPE_BF16, DTYPE_BF16, DTYPE_Q8), YALM_OK);
}

// The coarsest tokens whose loss is small beside that of the layers' weights.
static void chosen_by_the_weights(void **state)
{
    (void)state;
    const struct {
        enum dtype q, others, classifier;
        yalm_activations want;
    } cases[] = {
        {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, YALM_ACTIVATIONS_INT16}, {DTYPE_Q8, DTYPE_Q8, DTYPE_Q8, YALM_ACTIVATIONS_INT16},
        {DTYPE_Q8, DTYPE_Q8, DTYPE_Q4, YALM_ACTIVATIONS_INT16},       {DTYPE_Q8, DTYPE_Q4, DTYPE_Q8, YALM_ACTIVATIONS_INT8},
        {DTYPE_Q4, DTYPE_Q8, DTYPE_Q8, YALM_ACTIVATIONS_INT8},        {DTYPE_Q4K, DTYPE_Q6K, DTYPE_Q6K, YALM_ACTIVATIONS_INT16},
        {DTYPE_Q5U, DTYPE_Q5A, DTYPE_Q4A, YALM_ACTIVATIONS_INT16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        yalm_activations activations = YALM_ACTIVATIONS_AUTO;
        assert_int_equal(resolve(&activations, cases[i].q, cases[i].others, cases[i].classifier), YALM_OK);
        assert_int_equal(activations, cases[i].want);
    }
}

static void as_text(void **state)
{
    (void)state;
    char text[200];
    const struct product_plan plan = plan_products(cpu_kernels_select("scalar"), YALM_ACTIVATIONS_INT8,
                                                   type_bit(DTYPE_FP32) | type_bit(DTYPE_Q8) | type_bit(DTYPE_BF16), CHUNK);
    const size_t length = plan_text(&plan, text, sizeof text);
    assert_string_equal(text, "fp32, bf16: tokens as float32\nq8: tokens as 8-bit integers");
    assert_int_equal(length, strlen(text));
    char little[10]; // is not overrun, and the length is as before
    assert_int_equal(plan_text(&plan, little, sizeof little), length);
    assert_string_equal(little, "fp32, bf1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_tokens), cmocka_unit_test(exact),
        cmocka_unit_test(of_the_types_there_are), cmocka_unit_test(refused_where_nothing_is_multiplied_so),
        cmocka_unit_test(chosen_by_the_weights),  cmocka_unit_test(as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
