// Where weights are moved to on a machine of several memory nodes. The test needs none: nodes_of() and nodes_move() are its
// own, and write down what they are asked.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cpu/machine/nodes.h"
#include "cpu/matmul.h"
#include "engine/random_model.h"

enum { THREADS = 6, ON_A_NODE = 3, MOST_MOVES = 4096 };

static struct move {
    const char *at;
    size_t bytes;
    int node;
} moves[MOST_MOVES];
static int n_moves, n_nodes;

void nodes_of(const int *cpus, int n, int *nodes)
{
    for (int i = 0; i < n; i++) {
        assert_true(cpus[i] >= 0);
        nodes[i] = n_nodes > 1 ? i / ON_A_NODE : 0;
    }
}

void nodes_move(const void *at, size_t bytes, int node)
{
    assert_true(n_moves < MOST_MOVES);
    moves[n_moves++] = (struct move){at, bytes, node};
}

static void open_and_close(struct random_model *m)
{
    static atomic_bool cancel;
    static const struct container copied = {.mapping.copied = 1};
    yalm_session_options options = yalm_session_defaults();
    options.device = "cpu", options.isa = "scalar", options.pin = true, options.n_threads = THREADS, options.context = 32;
    const struct backend_plan plan = {.container = &copied,
                                      .config = &m->model.config,
                                      .weights = &m->model.weights,
                                      .options = &options,
                                      .kv = {kv_policy_make(32, 0, false, 0, 32)},
                                      .cancel = &cancel};
    yalm_error error;
    n_moves = 0;
    struct cpu_state *s = backend_cpu.open(&plan, &error);
    if (!s)
        fail_msg("%s", error.text);
    backend_cpu.close(s);
}

// The node that a byte was moved to; each is moved once.
static int node_at(const char *at)
{
    int node = -1;
    for (int i = 0; i < n_moves; i++)
        if (at >= moves[i].at && at < moves[i].at + moves[i].bytes) {
            assert_int_equal(node, -1);
            node = moves[i].node;
        }
    return node;
}

// Of matrices whose rows are claimed as one sequence: a row's elements and its scales lie where its first member is.
static void check_rows(const struct matrix *const *w, int n_w)
{
    int total = 0, row = 0;
    for (int i = 0; i < n_w; i++)
        total += w[i]->rows;
    const int border = matmul_share(w[0], total, ON_A_NODE, THREADS);
    assert_true(border > 0 && border < total);
    for (int i = 0; i < n_w; i++)
        for (int r = 0; r < w[i]->rows; r++, row++) {
            const size_t all = dtype_row_bytes(w[i]->dtype, w[i]->cols), group = dtype_group_bytes[w[i]->dtype],
                         elements = group ? quant_groups(w[i]->cols) * group : all, scales = all - elements;
            const char *data = w[i]->data;
            assert_int_equal(node_at(data + (size_t)r * elements), row >= border);
            assert_int_equal(node_at(data + (size_t)(r + 1) * elements - 1), row >= border);
            if (scales)
                assert_int_equal(node_at(data + (size_t)w[i]->rows * elements + (size_t)r * scales), row >= border);
        }
}

static void check_model(struct model_config config, enum dtype dtype)
{
    struct random_model *m = random_model_make(config, dtype, 3);
    n_nodes = 2;
    open_and_close(m);
    for (int i = 0; i < config.n_layers; i++) {
        const struct layer_weights *l = &m->model.weights.layers[i];
        check_rows((const struct matrix *[]){&l->q, &l->k, &l->v}, 3);
        check_rows((const struct matrix *[]){&l->o}, 1);
        for (int e = 0; e < (config.n_experts ? config.n_experts : 1); e++) {
            check_rows((const struct matrix *[]){&l->experts[e].gate}, 1);
            check_rows((const struct matrix *[]){&l->experts[e].up}, 1);
            check_rows((const struct matrix *[]){&l->experts[e].down}, 1);
        }
    }
    check_rows((const struct matrix *[]){&m->model.weights.classifier}, 1);
    n_nodes = 1;
    open_and_close(m);
    assert_int_equal(n_moves, 0);
    random_model_free(m);
}

static const struct model_config shape = {.n_layers = 2,
                                          .hidden_dim = 512,
                                          .ffn_dim = 1024,
                                          .n_heads = 8,
                                          .n_kv_heads = 4,
                                          .head_dim = 64,
                                          .vocab_size = 997,
                                          .context_length = 64};

static void test_rows_lie_where_they_are_multiplied(void **state)
{
    (void)state;
    check_model(shape, DTYPE_FP16);
    check_model(shape, DTYPE_Q8);
    check_model(shape, DTYPE_Q4N);
}

static void test_so_do_rows_of_experts(void **state)
{
    (void)state;
    struct model_config config = shape;
    config.n_experts = 4, config.n_active_experts = 2;
    check_model(config, DTYPE_Q8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_lie_where_they_are_multiplied),
        cmocka_unit_test(test_so_do_rows_of_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
