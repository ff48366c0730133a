// Sampling on the device against the CPU's sampler: for the same logits, options and random number the same token.
#include "cuda_testing.h"

extern "C" {
#include "text/sampler.h"
}

struct sample_fixture {
    int n_vocab, context;
    struct sampler sampler;
    void *scratch;
    int32_t *token;
    struct sampled *sampled; // pinned
};

static void fixture_open(struct sample_fixture *f, int n_vocab, int context)
{
    yalm_error error = {};
    f->n_vocab = n_vocab;
    f->context = context;
    assert_ok(sampler_open(&f->sampler, n_vocab, &error), error);
    f->scratch = device_nan<char>(sample_scratch_bytes(n_vocab, context));
    assert_cuda(cudaMemset(f->scratch, 0, sample_scratch_bytes(n_vocab, context)));
    f->token = device_nan<int32_t>(1);
    void *pinned = NULL;
    assert_cuda(cudaMallocHost(&pinned, sizeof *f->sampled));
    f->sampled = static_cast<struct sampled *>(pinned);
}

static void fixture_close(struct sample_fixture *f)
{
    sampler_close(&f->sampler);
    cudaFree(f->scratch);
    cudaFree(f->token);
    cudaFreeHost(f->sampled);
}

static void compare(struct sample_fixture *f, const std::vector<float> &logits, const yalm_sampling *sampling,
                    const std::vector<int32_t> &recent, int draws)
{
    yalm_error error = {};
    float *device_logits = device_copy(logits);
    for (int i = 0; i < draws; i++) {
        struct sampler ahead = f->sampler;
        const struct draw draw = {0, sampling, recent.data(), (int)recent.size(), sampler_uniform(&ahead)};
        const int32_t expected = sampler_draw(&f->sampler, sampling, logits.data(), recent.data(), (int)recent.size());
        assert_ok(sample(&draw, device_logits, f->n_vocab, f->scratch, f->token, f->sampled, 0, &error), error);
        assert_cuda(cudaDeviceSynchronize());
        if (f->sampled->token != expected || host_copy(f->token, 1)[0] != expected) {
            fail_msg(
                "%d tokens, temperature %g, top-k %d, top-p %g, min-p %g, %d recent, %d biases, u %.17g: found token %d of "
                "logit %.9g, expected %d of %.9g",
                f->n_vocab, sampling->temperature, sampling->top_k, sampling->top_p, sampling->min_p, (int)recent.size(),
                sampling->n_biases, draw.uniform, f->sampled->token, logits[f->sampled->token], expected, logits[expected]);
        }
        assert_memory_equal(&f->sampled->logit, &logits[expected], sizeof(float));
    }
    const std::vector<float> after = host_copy(device_logits, logits.size());
    assert_memory_equal(after.data(), logits.data(), logits.size() * sizeof(float));
    cudaFree(device_logits);
}

static const int vocabularies[] = {1, 2, 31, 33, 47, 1000, 1025, 5003};

static yalm_sampling options(float temperature, int top_k, float top_p, float min_p)
{
    yalm_sampling s = {};
    s.temperature = temperature;
    s.top_k = top_k;
    s.top_p = top_p;
    s.min_p = min_p;
    s.repeat_penalty = 1;
    s.penalty_last_n = -1;
    return s;
}

// Logits as a model's are, of few different values (many equals), and with infinite and undefined ones among them.
static std::vector<float> logits_of(uint64_t *seed, int n, int kind)
{
    std::vector<float> logits = random_floats(seed, n, kind == 0 ? 12 : 4);
    for (float &x : logits) {
        if (kind == 1) {
            x = rintf(x) / 2;
        } else if (kind == 2) {
            const double which = uniform(seed);
            x = which < -0.6 ? NAN : which < -0.2 ? -INFINITY : which > 0.9 ? 0.0f : which > 0.8 ? -0.0f : x;
        }
    }
    return logits;
}

static void test_draws(void **)
{
    static const yalm_sampling cases[] = {
        options(0, 40, 0.9f, 0.1f), options(1, 0, 1, 0),       options(0.7f, 0, 1, 0),      options(1.5f, 0, 1, 0.05f),
        options(1, 1, 1, 0),        options(0.8f, 40, 1, 0),   options(1, 1024, 1, 0.001f), options(1, 0, 0.9f, 0),
        options(2, 0, 0.5f, 0),     options(1, 0, 0, 0),       options(1, 0, 0.999f, 0),    options(0.8f, 40, 0.95f, 0.05f),
        options(100, 7, 0.3f, 0),   options(0.01f, 900, 1, 0), options(1, 0, 1, 1),         options(3, 2000, 0.8f, 0.02f),
    };
    for (int n_vocab : vocabularies) {
        uint64_t seed = n_vocab;
        struct sample_fixture f;
        fixture_open(&f, n_vocab, 8);
        for (int kind = 0; kind < 3; kind++) {
            for (const yalm_sampling &s : cases) {
                compare(&f, logits_of(&seed, n_vocab, kind), &s, {}, 6);
            }
        }
        fixture_close(&f);
    }
}

static void test_penalties(void **)
{
    for (int n_vocab : vocabularies) {
        uint64_t seed = n_vocab + 1;
        struct sample_fixture f;
        fixture_open(&f, n_vocab, 600);
        std::vector<int32_t> recent;
        for (int i = 0; i < 600; i++) {
            recent.push_back((int32_t)((uniform(&seed) + 1) / 2 * (n_vocab < 50 ? n_vocab : 50)));
        }
        recent[599] = n_vocab; // not in the vocabulary
        recent[598] = -1;
        std::vector<yalm_logit_bias> biases = {{0, 3.25f}, {n_vocab - 1, 0.7f}, {n_vocab / 2, -INFINITY}};
        biases.push_back({0, -1.1f}); // once more
        biases.resize(n_vocab < 4 ? n_vocab : 4);
        for (float temperature : {0.0f, 1.0f}) {
            for (int last_n : {-1, 0, 1, 64, 1000}) {
                yalm_sampling s = options(temperature, last_n == 64 ? 30 : 0, last_n == 1 ? 0.8f : 1, 0);
                s.repeat_penalty = 1.3f;
                s.presence_penalty = 0.1f;
                s.frequency_penalty = 0.37f;
                s.penalty_last_n = last_n;
                compare(&f, logits_of(&seed, n_vocab, 0), &s, recent, 4);
                s.biases = biases.data();
                s.n_biases = (int)biases.size();
                compare(&f, logits_of(&seed, n_vocab, 1), &s, recent, 4);
                s.repeat_penalty = 1;
                s.presence_penalty = s.frequency_penalty = 0;
                compare(&f, logits_of(&seed, n_vocab, 1), &s, recent, 4);
            }
        }
        fixture_close(&f);
    }
}

// Nothing to take; one thing; only the infinite; a whole large vocabulary.
static void test_extremes(void **)
{
    struct sample_fixture f;
    fixture_open(&f, 300, 1);
    const yalm_sampling cases[] = {options(0, 0, 1, 0), options(1, 0, 1, 0), options(1, 5, 0.5f, 0.1f), options(1, 299, 1, 0)};
    for (const yalm_sampling &s : cases) {
        std::vector<float> logits(300, -INFINITY);
        compare(&f, logits, &s, {}, 2);
        logits[7] = NAN;
        compare(&f, logits, &s, {}, 2);
        logits[211] = -1e30f;
        compare(&f, logits, &s, {}, 2);
        logits[13] = logits[14] = INFINITY;
        compare(&f, logits, &s, {}, 8);
        std::fill(logits.begin(), logits.end(), -2.5f);
        compare(&f, logits, &s, {}, 8);
    }
    fixture_close(&f);

    uint64_t seed = 9;
    fixture_open(&f, 262144, 1);
    for (const yalm_sampling &s :
         {options(0, 0, 1, 0), options(1, 0, 1, 0), options(0.8f, 40, 0.95f, 0.05f), options(1, 0, 0.999f, 0)}) {
        compare(&f, logits_of(&seed, 262144, 0), &s, {}, 1);
    }
    fixture_close(&f);
}

static void test_refusals(void **)
{
    yalm_error error = {};
    float logit = 0;
    int32_t token;
    struct sampled sampled;
    yalm_sampling s = options(0, 0, 1, 0);
    const struct draw draw = {0, &s, NULL, 0, 0};
    assert_int_equal(sample(&draw, &logit, 262145, &logit, &token, &sampled, 0, &error), YALM_FAILED);
    assert_string_equal(error.text, "CUDA: found a vocabulary of 262145, expected at most 262144");
    const yalm_logit_bias biases[] = {{0, 1}, {0, 1}};
    s.biases = biases;
    s.n_biases = 2;
    assert_int_equal(sample(&draw, &logit, 1, &logit, &token, &sampled, 0, &error), YALM_USAGE);
    assert_string_equal(error.text, "logit biases: found 2, expected at most one for each of 1 tokens");
}

int main(void)
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_draws), cmocka_unit_test(test_penalties), cmocka_unit_test(test_extremes),
                                cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
