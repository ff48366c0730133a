// The steps of small models, as they are listed, and who asks for which of them.

#include "model/expect.h"
#include "recipe/recipe.h"

static void expect_recipe(const struct build_options *options, const char *expected)
{
    struct built file = build(options);
    struct opened o;
    struct recipe recipe;
    char text[1024];
    accepted(&o, &file);
    assert_true(recipe_open(&recipe, &o.config, &o.weights));
    const size_t length = recipe_text(&recipe, text, sizeof text);
    if (strcmp(text, expected) != 0)
        fail_msg("found:\n%s\nexpected:\n%s", text, expected);
    assert_int_equal(length, strlen(expected));
    char little[8];
    assert_int_equal(recipe_text(&recipe, little, sizeof little), length); // what has room is kept
    assert_memory_equal(little, expected, sizeof little - 1);
    recipe_close(&recipe);
    close_all(&o);
    built_free(&file);
}

static void test_listings(void **state)
{
    (void)state;
    expect_recipe(&(struct build_options){0}, "embed\n"
                                              "layers 0 to 1: project 3 of norm, attend, add, units of norm, add\n"
                                              "project of norm");
    expect_recipe(&(struct build_options){.norms_after = true, .qk_norm = true},
                  "embed\n"
                  "layers 0 to 1: project 3, head norm, attend, add (norm), units, add (norm)\n"
                  "project of norm");
    expect_recipe(&(struct build_options){.recurrent = true, .output_gate = true},
                  "embed\n"
                  "layers 0: project 6 of norm, recur, add, units of norm, add\n"
                  "layers 1: project 4 of norm, attend, gate, add, units of norm, add\n"
                  "project of norm");
    expect_recipe(&(struct build_options){.convolves = true}, "embed\n"
                                                              "layers 0: project 3 of norm, convolve, add, units of norm, add\n"
                                                              "layers 1: project 3 of norm, attend, add, units of norm, add\n"
                                                              "project of norm");
    // What reads the residual stream comes before what adds to it.
    expect_recipe(
        &(struct build_options){.n_experts = 3, .first_dense = true, .shared_ffn = 7, .shared_gate = true},
        "embed\n"
        "layers 0: project 3 of norm, attend, add, units of norm, add\n"
        "layers 1: project 3 of norm, attend, add, units of norm, weigh of norm, route of norm, experts of norm, add\n"
        "project of norm");
    expect_recipe(&(struct build_options){.shared_keys = true, .layer_scale = true, .v_norm = true, .layer_input = 6},
                  "embed, project, mix inputs\n"
                  "layers 0: project 3 of norm, head norm (and values), attend, add, units of norm, add, gate input, add "
                  "(norm), scale\n"
                  "layers 1: project of norm, head norm (and values), attend (others' keys), add, units of norm (own width), "
                  "add, gate input, add (norm), scale\n"
                  "project of norm");
}

// The outline has all but the steps; the tail is where keys are no longer made; each layer says where it ends.
static void check_marks(const struct build_options *options, int tail_layer)
{
    struct built file = build(options);
    struct opened o;
    struct recipe recipe;
    accepted(&o, &file);
    const struct recipe outline = recipe_outline(&o.config, &o.weights);
    assert_true(recipe_open(&recipe, &o.config, &o.weights));
    assert_null(outline.steps);
    assert_true(outline.n == recipe.n && outline.ops == recipe.ops && outline.traits == recipe.traits);
    assert_true(outline.tail == recipe.tail && outline.classifier == recipe.classifier);
    assert_int_equal(recipe.steps[recipe.tail].layer, tail_layer);
    assert_true(recipe.tail == 0 || recipe.steps[recipe.tail - 1].layer < tail_layer);
    assert_true(recipe.steps[recipe.classifier].out[0] == BUFFER_LOGITS);
    for (int i = 0; i + 1 < recipe.n; i++) {
        const int layer = recipe.steps[i].layer;
        assert_int_equal(recipe.steps[i].ends_layer, layer >= 0 && recipe.steps[i + 1].layer != layer);
    }
    recipe_close(&recipe);
    close_all(&o);
    built_free(&file);
}

static void test_marks(void **state)
{
    (void)state;
    check_marks(&(struct build_options){0}, TINY_LAYERS);
    check_marks(&(struct build_options){.shared_keys = true, .layer_input = 6}, 1);
    check_marks(&(struct build_options){.n_experts = 4, .norms_around = false, .output_gate = true}, TINY_LAYERS);
}

// The router is float32 and not observed; what few rows read is not counted.
static void test_types(void **state)
{
    (void)state;
    const struct build_options options = {
        .n_experts = 3, .first_dense = true, .recurrent = true, .shared_ffn = 7, .shared_gate = true, .weights = "bf16"};
    struct built file = build(&options);
    struct opened o;
    accepted(&o, &file);
    const struct recipe outline = recipe_outline(&o.config, &o.weights);
    assert_int_equal(outline.types, type_bit(DTYPE_BF16) | type_bit(DTYPE_FP32));
    assert_int_equal(outline.block_types, type_bit(DTYPE_BF16));
    close_all(&o);
    built_free(&file);
}

// 1 + growth ln(1 + whole contexts before the position)
static void test_query_scale(void **state)
{
    (void)state;
    const struct query_scale grows = {0.5f, 0.5f, 8}, stays = {.scale = 0.5f};
    assert_true(query_scale_at(&grows, 7) == 0.5f && query_scale_at(&stays, 700) == 0.5f);
    assert_true(fabsf(query_scale_at(&grows, 17) - 0.5f * (1 + 0.5f * logf(3))) < 1e-6f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listings),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_query_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
