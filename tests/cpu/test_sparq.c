// SparQ attention in the engine's own state, against double precision, step by step: the copy of the keys, the approximate
// scores, which rows they select, the share of the selected, the mean of the values, and the output. Queries, keys and values
// are random here and not rotated; batches of one token and of several, windows, rings that have wrapped, sinks and rollbacks.
#include <sched.h>
#include <stdatomic.h>

#include "cpu/long/method.h"
#include "cpu/machine/isa.h"
#include "sparq_rig.h"

// ------------------------------------------------------------------------------------------ the steps

// The r components with the largest Σ_group |q|, by counting how many are larger; and the temperature's share Σ_i1 |q| / Σ |q|.
static void reference_components(const struct rig *r, int kv_head, bool *chosen)
{
    double sums[MAX_DIM] = {0};
    for (int c = 0; c < r->d; c++)
        for (int i = 0; i < r->group; i++)
            sums[c] += fabs((double)r->s->q[(kv_head * r->group + i) * r->d + c]);
    for (int c = 0; c < r->d; c++) {
        int larger = 0;
        for (int other = 0; other < r->d; other++)
            larger += sums[other] > sums[c];
        chosen[c] = larger < r->s->method->sparq.r;
    }
}

// How far an element of the copy may be from the key's: fp16 rounding; half a step of int8 or of 4 bits.
static double copy_error(const struct rig *r, const double *key)
{
    double largest = 0;
    for (int c = 0; c < r->d; c++)
        largest = fmax(largest, fabs(key[c]));
    return largest * (r->s->method->sparq.copy == COPY_FP16   ? 0x1p-11
                      : r->s->method->sparq.copy == COPY_INT8 ? 0.51 / 127
                                                              : 0.51 / 7);
}

// The approximate score of the i-th visible key in the last layer, as the engine has it; of those that it keeps as e^(score -
// base) too.
static double engine_score(const struct rig *r, int head, int64_t position, int i)
{
    const struct selective *t = &r->s->method->selective;
    const int apart = kv_sinks_apart(&r->kv, position) ? r->kv.n_sinks : 0;
    if (i < apart)
        return (double)t->sink_scores[head * (r->kv.n_sinks + 1) + i];
    const double found = (double)t->scores[head * t->ld + i - apart];
    return r->group == 1 ? found : log(found) + (double)t->bases[head * t->blocks + (i - apart) / SELECTIVE_BLOCK];
}

// What half a unit of each of a query's chosen components does to a key's score, where they become bytes.
static double query_error(const struct rig *r, const float *q, const double *key, const bool *chosen)
{
    double largest = 0, sum = 0;
    const struct sparq *sparq = &r->s->method->sparq;
    const bool bytes = sparq->score != r->s->kernels->sparse->score[sparq->copy];
    for (int c = 0; c < r->d && bytes; c++)
        if (chosen[c]) {
            largest = fmax(largest, fabs((double)q[c]));
            sum += fabs(key[c]) + copy_error(r, key);
        }
    return largest * 0.51 / 127 * sum;
}

// Approximate scores of the last layer, as the engine has them, against the formula: ŝ = q[i1] · K[:, i1]ᵀ / τ.
static void check_scores(const struct rig *r, int head, int64_t position)
{
    const int n = kv_n_visible(&r->kv, position), kv_head = head / r->group;
    const int apart = kv_sinks_apart(&r->kv, position) ? r->kv.n_sinks : 0;
    bool chosen[MAX_DIM];
    const float *q = r->s->q + head * r->d;
    double all = 0, share = 0;
    reference_components(r, kv_head, chosen);
    for (int c = 0; c < r->d; c++) {
        all += fabs((double)q[c]);
        share += chosen[c] ? fabs((double)q[c]) : 0;
    }
    const double tau = sqrt(r->d * share / all);
    for (int i = 0; i < n; i++) {
        const double *key = key_at(r, visible(r, position, i), kv_head);
        double expected = 0;
        for (int c = 0; c < r->d; c++)
            expected += chosen[c] ? (double)q[c] * key[c] / tau : 0;
        expected = capped(r, expected);
        const double tolerance = (share * copy_error(r, key) + query_error(r, q, key, chosen)) / tau + 1e-5;
        const double found = engine_score(r, head, position, i);
        if (i < apart)
            expected = exact_score(r, head, i);
        if (!(fabs(found - expected) <= tolerance))
            fail_msg("position %d, head %d: score of key %d is %.7g, expected %.7g ± %.2g", (int)position, head, i, found,
                     expected, tolerance);
    }
}

// ŝ of one head by the engine's scores: (visible); and behind them that of the logit without a key.
static void shares_of(const struct rig *r, int head, int64_t position, double *shares)
{
    const int n = kv_n_visible(&r->kv, position);
    double max = sink_logit(r, head), sum = 0;
    shares[n] = max;
    for (int i = 0; i < n; i++) {
        shares[i] = engine_score(r, head, position, i);
        max = fmax(max, shares[i]);
    }
    for (int i = 0; i <= n; i++)
        sum += shares[i] = exp(shares[i] - max);
    for (int i = 0; i <= n; i++)
        shares[i] /= sum;
}

// The selected: the sinks, the last `local`, and of the rest those with the largest Σ_group ŝ.
static void check_selection(const struct rig *r, int kv_head, int64_t position, bool *chosen)
{
    const int n = kv_n_visible(&r->kv, position), apart = kv_sinks_apart(&r->kv, position) ? r->kv.n_sinks : 0;
    const struct choice choice = r->s->policy->selector->choice(r->s, 1, n - apart);
    const int k = choice.k < n - apart ? choice.k : n - apart, local = choice.local < k ? choice.local : k;
    double *sums = calloc(n, sizeof *sums), *shares = calloc(n + 1, sizeof *shares);
    for (int i = 0; i < r->group; i++) {
        shares_of(r, kv_head * r->group + i, position, shares);
        for (int j = 0; j < n; j++)
            sums[j] += shares[j];
    }
    memset(chosen, 0, sizeof *chosen * n);
    const int *rows = r->s->method->selective.rows + kv_head * r->s->method->selective.ld;
    assert_int_equal(r->s->method->selective.n_rows[kv_head], k);
    int at = 0;
    for (int j = 0; j < n; j++) { // ascending by age: each once
        const bool here = j >= apart && at < k && rows[at] == kv_slot(&r->kv, visible(r, position, j));
        chosen[j] = here || j < apart;
        at += here;
    }
    assert_int_equal(at, k);
    double least = INFINITY, most = 0; // of the chosen and of the others, between sinks and the most recent
    for (int j = apart; j < n; j++) {
        if (j >= n - local)
            assert_true(chosen[j]);
        else if (chosen[j])
            least = fmin(least, sums[j]);
        else
            most = fmax(most, sums[j]);
    }
    if (!(most <= least * (1 + 2e-5)))
        fail_msg("position %d, head %d: a key of weight %g was left out, one of %g taken", (int)position, kv_head, most, least);
    free(sums);
    free(shares);
}

static void check_mean(const struct rig *r, int kv_head, int64_t position)
{
    float mean[MAX_DIM];
    value_mean(r->s, &r->s->method->selective.sums, 1, kv_head, position, mean);
    const int n = kv_n_visible(&r->kv, position);
    for (int c = 0; c < r->d; c++) {
        double sum = 0;
        for (int i = 0; i < n; i++)
            sum += value_at(r, visible(r, position, i), kv_head)[c];
        if (!(fabs(mean[c] - sum / n) <= 2e-7))
            fail_msg("position %d, head %d: mean value %d is %.9g, expected %.9g", (int)position, kv_head, c, (double)mean[c],
                     sum / n);
    }
}

static void check_step(const struct rig *r, int64_t position)
{
    bool *chosen = calloc(kv_n_visible(&r->kv, position), sizeof *chosen);
    for (int head = 0; head < r->n_heads; head++) {
        const int n = kv_n_visible(&r->kv, position);
        double y[MAX_DIM], *shares = calloc(n + 1, sizeof *shares), alpha = 0;
        check_scores(r, head, position);
        if (head % r->group == 0)
            check_selection(r, head / r->group, position, chosen);
        shares_of(r, head, position, shares);
        alpha = shares[n]; // its value is 0, and is selected
        exact_attention(r, head, position, chosen, y);
        if (r->s->method->sparq.tail) {
            for (int i = 0; i < n; i++)
                alpha += chosen[i] ? shares[i] : 0;
            check_mean(r, head / r->group, position);
            for (int c = 0; c < r->d; c++) {
                double sum = 0;
                for (int i = 0; i < n; i++)
                    sum += value_at(r, visible(r, position, i), head / r->group)[c];
                y[c] = alpha * y[c] + (1 - alpha) * sum / n;
            }
        }
        assert_output(r, head, position, y, 1e-5);
        free(shares);
    }
    free(chosen);
}

// Each key of a whole tile, in the copy, against its row.
static void check_copy(const struct rig *r, int64_t position)
{
    const struct cpu_state *s = r->s;
    const int first_open = kv_slot(&r->kv, position) / 32 * 32;
    for (int head = 0; head < r->n_kv_heads; head++)
        for (int64_t p = kv_first_visible(&r->kv, position); p <= position; p++) {
            const int slot = kv_slot(&r->kv, p);
            if (slot >= first_open && slot < first_open + 32)
                continue;
            const size_t heads = (size_t)r->n_kv_heads + head; // layer 1
            for (int c = 0; c < r->d; c++) {
                const uint8_t *run = s->method->sparq.copied + (heads * r->d + c) * s->method->sparq.copy_stride;
                float x = 0;
                if (s->method->sparq.copy == COPY_FP16)
                    s->kernels->to_fp32[DTYPE_FP16](&x, (const uint16_t *)run + slot, 1);
                else
                    x = s->method->sparq.copy_scales[heads * s->method->sparq.copy_slots + slot] *
                        (float)(s->method->sparq.copy == COPY_INT8
                                    ? ((const int8_t *)run)[slot]
                                    : (run[slot / 256 * 128 + slot % 128] >> (slot % 256 < 128 ? 0 : 4) & 15) - 8);
                const double *key = key_at(r, p, head);
                if (!(fabs(x - key[c]) <= copy_error(r, key)))
                    fail_msg("slot %d, component %d: the copy has %g, the key is %g", slot, c, (double)x, key[c]);
                if (s->method->sparq.copy == COPY_FP16 && s->kv_type == KV_FP16)
                    assert_true(x == key[c]);
            }
        }
}

// ------------------------------------------------------------------------------------------ tests

static const struct layout layouts[] = {
    {4, 4, 16, 1500, 0, false, 0, 100},  {6, 2, 12, 1300, 0, false, 0, 64}, {8, 1, 40, 700, 0, false, 0, 33},
    {4, 2, 16, 2000, 333, false, 0, 50}, {4, 4, 16, 301, 0, true, 0, 7},    {6, 3, 20, 430, 0, true, 4, 60},
    {2, 2, 8, 300, 0, true, 5, 1},       {18, 2, 8, 500, 0, false, 0, 16},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

// By turns with the layouts, of which there are others.
static const struct scoring scorings[] = {{0, false}, {2, false}, {0, false}, {0, true}, {3, true}};
enum { N_SCORINGS = sizeof scorings / sizeof *scorings };

static const char *const isas[] = {"scalar", "avx2", "avx512", "avx512vnni", "neon"};

// Tokens one by one and several at a time, with rollbacks, over the ring's end. Every now and then all is checked.
static void go_through(struct rig *r, const struct layout *l)
{
    const int end = l->endless || l->window ? 1200 : l->context;
    int64_t position = 0;
    for (int step = 0; position < end; step++) {
        int n = step % 9 == 0 ? 1 + step * 13 % l->chunk : 1;
        n = position < 200 ? l->chunk : n;
        n = n < end - position ? n : (int)(end - position);
        rig_step(r, position, n);
        position += n;
        if (n == 1 && step % 29 == 1 && position > r->s->method->sparq.from) {
            check_step(r, position - 1);
            check_copy(r, position - 1);
        }
        const int64_t back = position - (step % 3 ? 2 : 45);
        if (step % 67 == 66 && back > 0 && kv_holds(&r->kv, back, position)) {
            position = back;
            r->generation++;
        }
    }
}

static void test_every_step(void **state)
{
    (void)state;
    int run = 0;
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++)
        for (int i = 0; i < N_LAYOUTS && cpu_kernels_select(isas[isa]); i++, run++) {
            const struct sparq_settings sparq = {.r = layouts[i].d / (1 + run % 4),
                                                 .k = run % 3 ? 40 + run : 0,
                                                 .min_k = 30,
                                                 .local = run % 5 == 4 ? 1 : 0,
                                                 .from = 60,
                                                 .copy = run % 3,
                                                 .tail = run % 2 ? SWITCH_ON : SWITCH_OFF};
            const struct scoring scoring = scorings[run % N_SCORINGS];
            struct rig *r =
                rig_open_scoring(&layouts[i], scoring, isas[isa], (yalm_kv)((run + run / 3) % 3), 1 + run % 3, &sparq);
            r->s->method->selective.keep_all = true;
            go_through(r, &layouts[i]);
            rig_close(r);
        }
}

// Each of two members takes one, and waits for the other: so both have left whatever went before.
static void meet(void *context, int i)
{
    (void)i;
    atomic_int *arrived = context;
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < 2)
        sched_yield();
}

// More keys than a part of the scores has, and parts of several blocks, the last of them short; also where the ring begins
// again within one.
static void test_several_parts(void **state)
{
    (void)state;
    static const struct layout long_ones[] = {
        {4, 2, 16, 5300, 0, false, 0, 440}, {2, 2, 16, 5300, 0, false, 0, 440}, {4, 1, 8, 5300, 4300, false, 0, 440}};
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        if (!cpu_kernels_select(isas[isa]))
            continue;
        const struct layout *l = &long_ones[isa % 3]; // one for each: what is looked at here is the same code
        const struct sparq_settings sparq = {.r = l->d / 2, .k = 300, .min_k = 30, .from = 60, .tail = SWITCH_ON};
        struct rig *r = rig_open(l, isas[isa], YALM_KV_FP16, 2, &sparq);
        int64_t position = 0;
        for (; position + l->chunk < 5290; position += l->chunk)
            rig_step(r, position, l->chunk);
        r->s->method->selective.keep_all = true;
        rig_step(r, position, 1);
        check_step(r, position);
        float attended[MAX_HEADS * MAX_DIM]; // the same token once more, by a member that takes whole KV heads
        memcpy(attended, r->s->attended, sizeof(float) * (size_t)r->s->q_dim);
        atomic_int arrived = 0;
        team_for(r->s->team, 2, meet, &arrived); // a late member may still look at what changes now
        r->s->method->selective.keep_all = false;
        r->options.n_threads = 1;
        rig_step(r, position, 1);
        assert_memory_equal(attended, r->s->attended, sizeof(float) * (size_t)r->s->q_dim);
        rig_close(r);
    }
}

// r = d and k >= S: whatever is approximated, all is attended to.
static void test_all_keys_are_dense_attention(void **state)
{
    (void)state;
    static const int groups[] = {1, 2, 3, 4, 5, 8, 9, 16};
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++)
        for (size_t g = 0; g < sizeof groups / sizeof *groups && cpu_kernels_select(isas[isa]); g++) {
            const struct layout l = {groups[g], 1, 24, 600, 0, false, 0, 100};
            const struct sparq_settings sparq = {.r = 24, .k = 5000, .from = 1, .tail = g % 2 ? SWITCH_ON : SWITCH_OFF};
            struct rig *r = rig_open(&l, isas[isa], YALM_KV_FP32, 2, &sparq);
            rig_step(r, 0, 1); // alone
            for (int64_t position = 1; position < 561; position += 100 + (position == 501))
                rig_step(r, position, position == 501 ? 60 : 100);
            rig_step(r, 561, 1);
            for (int head = 0; head < r->n_heads; head++) {
                double y[MAX_DIM];
                exact_attention(r, head, 561, NULL, y);
                assert_output(r, head, 561, y, 1e-5);
            }
            rig_close(r);
        }
}

// r = d, k < S: dense attention to those k keys whose true scores are largest.
static void test_all_components_select_the_true_top(void **state)
{
    (void)state;
    enum { K = 50, LENGTH = 900 };
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        if (!cpu_kernels_select(isas[isa]))
            continue;
        const struct layout l = {3, 3, 32, LENGTH, 0, false, 0, 300};
        const struct sparq_settings sparq = {
            .r = 32, .k = K, .local = 1, .from = 1, .copy = SPARQ_COPY_FP16, .tail = SWITCH_OFF};
        struct rig *r = rig_open(&l, isas[isa], YALM_KV_FP16, 2, &sparq);
        for (int64_t position = 0; position < LENGTH - 1; position += 899 / 29)
            rig_step(r, position, 31);
        rig_step(r, LENGTH - 1, 1);
        for (int head = 0; head < 3; head++) {
            bool chosen[LENGTH];
            double y[MAX_DIM];
            for (int i = 0; i < LENGTH; i++) {
                int larger = 0;
                for (int j = 0; j < LENGTH - 1; j++)
                    larger += exact_score(r, head, j) > exact_score(r, head, i);
                chosen[i] = i == LENGTH - 1 || larger < K - 1;
            }
            exact_attention(r, head, LENGTH - 1, chosen, y);
            assert_output(r, head, LENGTH - 1, y, 1e-5);
        }
        rig_close(r);
    }
}

static void test_scaling_a_query_changes_no_component(void **state)
{
    (void)state;
    const struct layout l = {6, 2, 40, 100, 0, false, 0, 10};
    const struct sparq_settings sparq = {.r = 11, .from = 1};
    struct rig *r = rig_open(&l, "auto", YALM_KV_FP32, 1, &sparq);
    for (int round = 0; round < 50; round++) {
        float q[3 * 40], scaled[3 * 40];
        int components[11];
        for (int i = 0; i < 3 * 40; i++)
            q[i] = (float)uniform_at((uint64_t)(round * 1000 + i));
        r->s->policy->selector->prepare(r->s, 0, 1, q);
        memcpy(components, r->s->method->sparq.components + 11, sizeof components);
        for (float factor = 1e-3f; factor < 1e4f; factor *= 7) {
            for (int i = 0; i < 3 * 40; i++)
                scaled[i] = factor * q[i];
            r->s->policy->selector->prepare(r->s, 0, 1, scaled);
            assert_memory_equal(components, r->s->method->sparq.components + 11, sizeof components);
        }
    }
    rig_close(r);
}

static void test_threads_do_not_change_a_bit(void **state)
{
    (void)state;
    for (int i = 0; i < N_LAYOUTS; i++) {
        float outputs[2][MAX_HEADS * MAX_DIM];
        const struct sparq_settings sparq = {.r = 4, .k = 60, .from = 60, .tail = SWITCH_ON};
        for (int threads = 1; threads <= 5; threads += 2) {
            struct rig *r = rig_open(&layouts[i], "auto", YALM_KV_FP16, threads, &sparq);
            for (int64_t position = 0; position < 280; position++)
                rig_step(r, position, 1);
            memcpy(outputs[threads > 1], r->s->attended, sizeof(float) * (size_t)r->s->q_dim);
            if (threads > 1)
                assert_memory_equal(outputs[0], outputs[1], sizeof(float) * (size_t)r->s->q_dim);
            rig_close(r);
        }
    }
}

// Not a number in, not a number out; no crash, and the next token is as if nothing had been.
static void test_nan_passes(void **state)
{
    (void)state;
    const struct layout l = {4, 2, 16, 400, 0, false, 0, 20};
    const struct sparq_settings sparq = {.r = 4, .k = 40, .from = 60, .tail = SWITCH_ON};
    struct rig *r = rig_open(&l, "auto", YALM_KV_FP16, 2, &sparq);
    for (int64_t position = 0; position < 200; position++)
        rig_step(r, position, 1);
    struct cpu_state *s = r->s;
    for (int i = 0; i < s->q_dim; i++)
        s->q[i] = NAN;
    const struct {
        struct cpu_state *s;
        struct batch batch;
    } pass = {s, {.n = 1, .position = 200}};
    team_run(s->team, 2, attention_pass, &pass, sizeof pass);
    assert_true(isnan(s->attended[0]));
    rig_step(r, 200, 1);
    check_step(r, 200);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_step),
        cmocka_unit_test(test_several_parts),
        cmocka_unit_test(test_all_keys_are_dense_attention),
        cmocka_unit_test(test_all_components_select_the_true_top),
        cmocka_unit_test(test_scaling_a_query_changes_no_component),
        cmocka_unit_test(test_threads_do_not_change_a_bit),
        cmocka_unit_test(test_nan_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
