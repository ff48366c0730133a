// Where a session's memory lies: what each thread writes for itself is nobody else's, and far from what the next one writes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/attention.h"
#include "cpu/matmul.h"
#include "cpu/state.h"
#include "engine/random_model.h"

enum {
    THREADS = 5,
    APART = 128 << 10, // bytes: as far as processors were seen to reach past the end of what they were reading
};

static struct cpu_state *open_state(struct random_model *m, yalm_session_options *options, const char *isa, int chunk)
{
    static atomic_bool cancel;
    static const struct container no_file;
    *options = yalm_session_defaults();
    options->isa = isa, options->device = "cpu", options->kv = YALM_KV_INT8;
    options->n_threads = 2, options->n_threads_batch = THREADS;
    options->context = 300, options->chunk = chunk;
    const struct backend_plan plan = {.container = &no_file,
                                      .config = &m->model.config,
                                      .weights = &m->model.weights,
                                      .options = options,
                                      .kv = {kv_policy_make(300, 0, false, 0, chunk)},
                                      .cancel = &cancel};
    yalm_error error;
    struct cpu_state *s = backend_cpu.open(&plan, &error);
    if (!s)
        fail_msg("%s", error.text);
    return s;
}

// Of a thread's own memory: a run of bytes.
struct run {
    const char *begin, *end;
};

static struct run run_of(const struct cpu_state *s, void *of_first, size_t bytes, int thread)
{
    const char *begin = cpu_own(s, of_first, thread);
    assert_int_equal((uintptr_t)begin % 64, 0);
    return (struct run){begin, begin + bytes};
}

static void check_apart(struct cpu_state *s)
{
    const size_t matmul =
        s->kernels->matmul_scratch > s->plan.quant->scratch ? s->kernels->matmul_scratch : s->plan.quant->scratch;
    const char *block = s->scratch_block, *before = (const char *)(s->part_sum + 1);
    for (int t = 0; t < THREADS; t++) {
        const struct run runs[] = {
            run_of(s, s->matmul_scratch, matmul, t),
            run_of(s, s->rows_here, matmul_rows_here_floats(s) * sizeof(float), t),
            run_of(s, s->attend_scratch, s->kernels->attend_scratch, t),
            run_of(s, s->task_scratch, attention_task_scratch(s), t),
        };
        for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
            assert_true(runs[i].begin >= before + (i == 0 ? APART : 0));
            before = runs[i].end;
        }
    }
    assert_true(before <= block + s->scratch_bytes);
}

static void test_threads_lie_apart(void **state)
{
    (void)state;
    static const char *const isas[] = {"scalar", "auto"};
    static const int chunks[] = {1, 100};
    const struct model_config config = {.n_layers = 1,
                                        .hidden_dim = 64,
                                        .ffn_dim = 96,
                                        .n_heads = 4,
                                        .n_kv_heads = 2,
                                        .head_dim = 16,
                                        .vocab_size = 11,
                                        .context_length = 512};
    static const enum dtype types[] = {DTYPE_FP32, DTYPE_FP16, DTYPE_Q8};
    for (int i = 0; i < 2 * 2 * 3; i++) {
        struct random_model *m = random_model_make(config, types[i / 4], 7);
        yalm_session_options options;
        struct cpu_state *s = open_state(m, &options, isas[i % 2], chunks[i / 2 % 2]);
        check_apart(s);
        backend_cpu.close(s);
        random_model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_lie_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
