// Which keys do both devices select? A model attends by a method on the CPU and on the GPU, and in every layer and step, by KV head, its selections are
// laid beside each other:
//
//     compare_selections MODEL TOKENS codebooks=FILE [sparq=R,K,LOCAL,COPY,TAIL | hybrid=RATIO,MIN_K,LOCAL,D_SUB,DRAW]...
//
// in an fp32 cache, so that with fp32 weights both have the same queries and keys but for the order of sums. Before a layer of the GPU's selects, this
// program has
//
//  1. its scores, which are the CPU's but for rounding (cpu.c says how much). A key or code that is as near to the middle between two numbers as
//     floats go may be rounded to the one here and to the other there: such keys, whose score differs by more, are counted ("odd") and left out;
//  2. its selection from these, which is the CPU's up to ties: a key that one device has and the other not has there a weight below the least
//     selected one's by no more than what rounding moves weights by. What the CPU does not have is counted ("differing"). Where a share of the
//     softmax is wanted, the share below the cut counts instead;
//  3. its selection from the CPU's scores, which is the CPU's up to ties of the last bits.
//
// Where keys are drawn (cpu/long/priority.h) all this holds for priorities in place of weights. What each drawn key stands for must follow from the
// device's own, and from the CPU's scores be the CPU's.
//
// Then the layer goes on with the CPU's scores and keys, so that the next one begins with the same input again, and what rounding of scores selects
// does not hide what is wrong behind it: logits of the step must be those of the CPU to 1e-5 of their range.
//
// For each method and scenario one line on stdout: both, steps and heads compared, scores and how many odd, the largest difference of a score in units of
// the rounding, keys selected by weight and how many differing, heads whose components tie, the largest difference of two logits. Exits with 1, and
// says on stderr what was found, where anything is beyond its bound.
#include <algorithm>
#include <vector>

#include "../devices_testing.h"
#include "cpu.h"
#include "cuda/long/method.h"

extern "C" {
#include "engine/session.h"
const struct backend *yalm_cuda_backend(yalm_error *error);
}

static constexpr double FLOAT_TIES = 2e-5; // relative, of weights, sums of queries: exponentials and sums in float
static constexpr double LOGITS = 1e-5;     // of a row's range
static constexpr double BIASES = 1e-4;     // of what drawn keys stand for, which is θ over a weight

// The engine would open the CUDA half as a library, whose device memory this program could not read.
extern "C" const struct backend *cuda_open(bool *unfit, yalm_error *error)
{
    *unfit = false;
    return yalm_cuda_backend(error);
}

static struct {
    const struct cuda_method_table *original;
    struct cuda_method_table method;
    long heads, scores, odd, keys, differing, tied_components, wrong;
    double most_rounding, logits;
} watch;

#define WRONG(...)                                                                                                             \
    do {                                                                                                                       \
        if (watch.wrong++ < 20) {                                                                                              \
            fprintf(stderr, __VA_ARGS__);                                                                                      \
            fputc('\n', stderr);                                                                                               \
        }                                                                                                                      \
    } while (0)

// ------------------------------------------------------------------------------------------ one KV head

// One device's scores of a KV head's queries, by age, and what it selected by them.
struct head_selection {
    std::vector<double> weights; // (n_keys): Σ_group ŝ; priorities where keys are drawn
    std::vector<char> taken;     // (n_keys)
    std::vector<float> bias;     // (n_keys): of those that were taken
    double least;                // of the weights that were selected by weight
};

struct place { // for messages
    const char *what;
    int layer, kv_head;
    long long position;
};

static bool always(const struct cpu_selection *c, int key)
{
    return key < c->first || key >= c->n_keys - c->local;
}

// scores(i, j): query i's of key j.
template <class Scores>
static void weigh(struct head_selection *h, const struct cpu_selection *c, int kv_head, int group, Scores scores)
{
    h->weights.assign(c->n_keys, 0);
    h->least = INFINITY;
    for (int i = 0; i < group; i++) {
        const float *sinks = c->sink_scores + (kv_head * group + i) * c->n_sinks;
        double max = -INFINITY, sum = 0;
        for (int j = 0; j < c->n_keys; j++)
            max = fmax(max, (double)scores(i, j));
        for (int j = 0; j < c->n_sinks; j++)
            max = fmax(max, (double)sinks[j]);
        for (int j = 0; j < c->n_keys; j++)
            sum += exp(scores(i, j) - max);
        for (int j = 0; j < c->n_sinks; j++)
            sum += exp(sinks[j] - max);
        for (int j = 0; j < c->n_keys; j++)
            h->weights[j] += exp(scores(i, j) - max) / sum;
    }
    for (int j = 0; j < c->n_keys; j++) {
        h->weights[j] *= c->lifts[(size_t)kv_head * c->n_keys + j];
        if (h->taken[j] && !always(c, j))
            h->least = fmin(h->least, h->weights[j]);
    }
}

// The largest priority that was not taken: its key, or -1.
static int threshold_key(const struct head_selection &h, const struct cpu_selection *c)
{
    int key = -1;
    for (int j = 0; j < c->n_keys; j++)
        if (!h.taken[j] && (key < 0 || h.weights[j] > h.weights[key]))
            key = j;
    return key;
}

// What each key stands for follows from the device's own weights.
static void check_biases(const struct head_selection &h, const struct cpu_selection *c, const struct place &at)
{
    const int key = threshold_key(h, c);
    for (int j = 0; c->drawn && j < c->n_keys; j++) {
        const double weight = h.weights[j] / c->lifts[(size_t)at.kv_head * c->n_keys + j];
        const double expected = key < 0 || always(c, j) ? 0 : fmax(0, log(h.weights[key] / weight));
        if (h.taken[j] && !(fabs(h.bias[j] - expected) <= BIASES))
            WRONG("%s, layer %d, KV head %d, position %lld: key %d has bias %.6g, expected %.6g", at.what, at.layer, at.kv_head,
                  at.position, j, (double)h.bias[j], expected);
    }
}

static int count_taken(const struct head_selection &h)
{
    return (int)std::count(h.taken.begin(), h.taken.end(), 1);
}

// A device's selection is that of its own weights: nothing that was left out weighs more than what was taken.
static void check_own(const struct head_selection &h, const struct cpu_selection *c, const struct place &at)
{
    for (int j = 0; j < c->n_keys; j++) {
        if (always(c, j) && !h.taken[j])
            WRONG("%s, layer %d, KV head %d, position %lld: key %d always belongs and was left out", at.what, at.layer,
                  at.kv_head, at.position, j);
        if (!h.taken[j] && h.weights[j] > h.least * (1 + FLOAT_TIES))
            WRONG("%s, layer %d, KV head %d, position %lld: key %d of weight %.9g was left out, one of %.9g was taken", at.what,
                  at.layer, at.kv_head, at.position, j, h.weights[j], h.least);
    }
    const int n = count_taken(h);
    if (n != c->k)
        WRONG("%s, layer %d, KV head %d, position %lld: %d keys were taken of %d wanted", at.what, at.layer, at.kv_head,
              at.position, n, c->k);
    check_biases(h, c, at);
}

// What one has and the other not is a tie for the other.
static void check_ties(const struct head_selection &one, const struct head_selection &other, const struct cpu_selection *c,
                       double rounding, const std::vector<char> &odd, const struct place &at)
{
    for (int j = 0; j < c->n_keys; j++) {
        if (!one.taken[j] || other.taken[j] || odd[j])
            continue;
        if (other.weights[j] < other.least * exp(-2 * rounding))
            WRONG(
                "%s, layer %d, KV head %d, position %lld: key %d was taken by one device, and weighs %.9g in the other, where "
                "the least that was taken has %.9g: e^-%.3g, ties go to e^-%.3g",
                at.what, at.layer, at.kv_head, at.position, j, other.weights[j], other.least,
                log(other.least / other.weights[j]), 2 * rounding);
    }
}

// ------------------------------------------------------------------------------------------ the GPU's memory

template <class T> static std::vector<T> fetch(const T *from, size_t n)
{
    std::vector<T> to(n);
    if (cudaMemcpy(to.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost) != cudaSuccess)
        quit("cudaMemcpy from the device", NULL);
    return to;
}

template <class T> static void put(T *to, const std::vector<T> &from)
{
    if (cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice) != cudaSuccess)
        quit("cudaMemcpy to the device", NULL);
}

// What the device has selected, by KV head.
struct device_rows {
    std::vector<int> slots, n; // (n_kv_heads, ld), (n_kv_heads)
    std::vector<float> bias;   // (n_kv_heads, ld)
};

// What the device selects from the scores that it has now.
static yalm_status select_now(struct cuda_state *s, const struct attention *a, struct device_rows *rows, yalm_error *error)
{
    const struct cuda_selective *t = &s->method->selective;
    const size_t n = (size_t)a->cache->n_kv_heads * t->ld;
    TRY(selective_select(s, a, error));
    TRY_CUDA(cudaStreamSynchronize(s->stream));
    rows->slots = fetch(t->rows, n);
    rows->n = fetch(t->n_rows, a->cache->n_kv_heads);
    rows->bias = t->drawn ? fetch(t->candidates, n) : std::vector<float>(n);
    return YALM_OK;
}

// A KV head's rows, which are slots, as keys that were taken.
static void take_rows(struct head_selection *h, const struct cpu_selection *c, const struct device_rows &all, int ld,
                      const struct place &at)
{
    const int *rows = all.slots.data() + (size_t)at.kv_head * ld;
    h->taken.assign(c->n_keys, 0);
    h->bias.assign(c->n_keys, 0);
    for (int i = 0; i < all.n[at.kv_head]; i++) {
        const int j = (int)(std::find(c->slots, c->slots + c->n_keys, rows[i]) - c->slots);
        if (j == c->n_keys || h->taken[j])
            WRONG("%s, layer %d, KV head %d, position %lld: slot %d was selected, which has no key that is seen, or twice",
                  at.what, at.layer, at.kv_head, at.position, rows[i]);
        else
            h->taken[j] = 1, h->bias[j] = all.bias[(size_t)at.kv_head * ld + i];
        if (i > 0 && rows[i] <= rows[i - 1])
            WRONG("%s, layer %d, KV head %d, position %lld: slots do not ascend", at.what, at.layer, at.kv_head, at.position);
    }
}

// The CPU's scores in place of the device's. moved(kv_head, key): what is added to a key's.
template <class Moved>
static void put_cpu_scores(const struct cuda_state *s, const struct cpu_selection *c, int n_heads, int n_kv_heads, Moved moved)
{
    const struct cuda_selective *t = &s->method->selective;
    std::vector<float> scores((size_t)n_heads * t->ld, -INFINITY), sinks((size_t)n_heads * s->caches[0].policy.n_sinks, 0.0f);
    std::vector<float2> stats((size_t)n_heads * t->n_parts, make_float2(-INFINITY, 0.0f));
    for (int h = 0; h < n_heads; h++) {
        const float *from = c->scores + (size_t)h * c->n_keys;
        float max = -INFINITY;
        double sum = 0;
        for (int j = 0; j < c->n_keys; j++)
            max = fmaxf(max, from[j]);
        for (int j = 0; j < c->n_keys; j++) {
            sum += exp((double)from[j] - max);
            scores[(size_t)h * t->ld + c->slots[j]] = from[j] + moved(h / (n_heads / n_kv_heads), j);
        }
        stats[(size_t)h * t->n_parts] = make_float2(max, (float)sum);
        for (int i = 0; i < c->n_sinks; i++)
            sinks[h * s->caches[0].policy.n_sinks + i] = c->sink_scores[h * c->n_sinks + i];
    }
    put(t->scores, scores);
    put(t->part_stats, stats);
    if (c->n_sinks > 0)
        put(t->sink_scores, sinks);
}

// What leaves the device no choice but the CPU's: scores of keys that it did not take are -inf. Where keys are drawn these count, for θ: only ties with it
// are parted.
static float settled(const struct head_selection &cpu, const struct cpu_selection *c, int key)
{
    if (!c->drawn)
        return cpu.taken[key] ? 0.0f : -INFINITY;
    const int threshold = threshold_key(cpu, c);
    if (threshold < 0 || key == threshold || fabs(cpu.weights[key] / cpu.weights[threshold] - 1) > FLOAT_TIES)
        return 0.0f;
    return (float)(cpu.taken[key] ? 2 * FLOAT_TIES : -2 * FLOAT_TIES);
}

// ------------------------------------------------------------------------------------------ a layer

// True where both devices score by the same components. Of a KV head where not, the sums must tie.
static bool same_components(const struct cuda_state *s, const struct cpu_selection *c, const struct place &at)
{
    const int r = c->r, d = s->caches[0].head_dim;
    if (r == 0)
        return true;
    const std::vector<int> theirs = fetch(s->method->sparq.components + at.kv_head * r, r);
    const int *ours = c->components + at.kv_head * r;
    if (std::equal(theirs.begin(), theirs.end(), ours))
        return true;
    const double *sums = c->sums + at.kv_head * d;
    double least = INFINITY;
    for (int i = 0; i < r; i++)
        least = fmin(least, sums[ours[i]]);
    for (int component : theirs)
        if (component < 0 || component >= d || sums[component] < least * (1 - FLOAT_TIES))
            WRONG("%s, layer %d, KV head %d, position %lld: component %d is not among the %d largest", at.what, at.layer,
                  at.kv_head, at.position, component, r);
    watch.tied_components++;
    return false;
}

// Scores of a KV head beside the CPU's. Returns how far rounding may move the logarithm of a weight.
static double compare_scores(const struct cpu_selection *c, const float *scores, int ld, int group, int kv_head,
                             std::vector<char> *odd)
{
    double most = 0;
    odd->assign(c->n_keys, 0);
    for (int i = 0; i < group; i++)
        for (int j = 0; j < c->n_keys; j++) {
            const size_t at = (size_t)(kv_head * group + i) * c->n_keys + j;
            const double off = fabs((double)scores[(size_t)i * ld + c->slots[j]] - (double)c->scores[at]);
            most = fmax(most, c->rounding[at]);
            watch.scores++;
            if (off <= c->rounding[at]) {
                watch.most_rounding = fmax(watch.most_rounding, off / c->rounding[at]);
            } else {
                watch.odd++;
                (*odd)[j] = 1;
            }
        }
    return group > 1 ? 2 * most : most; // of several queries, sums of weights: their totals move too
}

static yalm_status compare_layer(struct cuda_state *s, const struct attention *a, const struct cpu_selection *c,
                                 yalm_error *error)
{
    const int n_kv_heads = a->cache->n_kv_heads, group = a->n_heads / n_kv_heads, ld = s->method->selective.ld;
    struct device_rows rows, again;
    std::vector<struct head_selection> cpus(n_kv_heads);
    TRY(select_now(s, a, &rows, error));
    const std::vector<float> scores = fetch(s->method->selective.scores, (size_t)a->n_heads * ld);
    put_cpu_scores(s, c, a->n_heads, n_kv_heads, [](int, int) { return 0.0f; });
    TRY(select_now(s, a, &again, error));
    for (int h = 0; h < n_kv_heads; h++) {
        const struct place at = {"its own scores", a->layer, h, (long long)c->position},
                           with = {"the CPU's scores", a->layer, h, (long long)c->position};
        const float *theirs = scores.data() + (size_t)h * group * ld, *ours = c->scores + (size_t)h * group * c->n_keys;
        const auto of_cpu = [&](int i, int j) { return (double)ours[i * c->n_keys + j]; };
        const auto of_gpu = [&](int i, int j) { return (double)theirs[(size_t)i * ld + c->slots[j]]; };
        struct head_selection &cpu = cpus[h], gpu, same;
        std::vector<char> odd;
        cpu.taken.assign(c->taken + (size_t)h * c->n_keys, c->taken + (size_t)(h + 1) * c->n_keys);
        cpu.bias.assign(c->bias + (size_t)h * c->n_keys, c->bias + (size_t)(h + 1) * c->n_keys);
        take_rows(&gpu, c, rows, ld, at);
        take_rows(&same, c, again, ld, with);
        weigh(&cpu, c, h, group, of_cpu);
        weigh(&gpu, c, h, group, of_gpu);
        weigh(&same, c, h, group, of_cpu);
        watch.heads++;
        check_own(cpu, c, {"the CPU", a->layer, h, (long long)c->position});
        check_own(gpu, c, at);
        check_own(same, c, with);
        check_ties(cpu, same, c, FLOAT_TIES, std::vector<char>(c->n_keys), with);
        if (!same_components(s, c, at))
            continue;
        const double rounding = compare_scores(c, theirs, ld, group, h, &odd);
        check_ties(cpu, gpu, c, rounding, odd, at);
        check_ties(gpu, cpu, c, rounding, odd, at);
        for (int j = 0; j < c->n_keys; j++) {
            watch.keys += gpu.taken[j] && !always(c, j);
            watch.differing += gpu.taken[j] && !cpu.taken[j];
        }
    }
    put_cpu_scores(s, c, a->n_heads, n_kv_heads, [&](int h, int j) { return settled(cpus[h], c, j); });
    return YALM_OK;
}

// In place of the method's.
static yalm_status watched_score(struct cuda_state *s, const struct attention *a, yalm_error *error)
{
    const struct cpu_selection *c = cpu_selection(a->layer);
    TRY(watch.original->score(s, a, error));
    if (c == NULL || (long long)c->position != (long long)s->step_host->position)
        WRONG("layer %d: the GPU selects where the CPU does not", a->layer);
    else
        TRY(compare_layer(s, a, c, error));
    return YALM_OK;
}

// ------------------------------------------------------------------------------------------ scenarios

static void compare_logits(yalm_session *sessions[2], int vocab)
{
    const float *cpu = yalm_logits(sessions[0], 0), *gpu = yalm_logits(sessions[1], 0);
    double low = INFINITY, high = -INFINITY, worst = 0;
    if (cpu == NULL || gpu == NULL)
        quit("no logits", NULL);
    for (int i = 0; i < vocab; i++) {
        low = fmin(low, (double)cpu[i]);
        high = fmax(high, (double)cpu[i]);
        worst = std::isfinite(cpu[i]) && std::isfinite(gpu[i]) ? fmax(worst, fabs((double)gpu[i] - cpu[i])) : INFINITY;
    }
    watch.logits = fmax(watch.logits, worst / (high - low));
}

// `many` tokens at once, then all others one by one.
static void run(const char *name, const yalm_model *model, yalm_session_options options, const int32_t *tokens, int n, int many)
{
    yalm_session *sessions[2];
    yalm_error error = {YALM_OK, ""};
    for (int i = 0; i < 2; i++) {
        options.device = i == 0 ? "cpu" : "cuda";
        sessions[i] = i == 0 ? open_exact(model, options, &error) : yalm_session_open(model, &options, &error);
        if (sessions[i] == NULL || yalm_eval(sessions[i], tokens, many, YALM_LOGITS_NONE, &error) != YALM_OK)
            quit(options.device, &error);
    }
    struct cuda_state *s = static_cast<struct cuda_state *>(sessions[1]->state);
    watch = {};
    watch.original = s->method->table;
    watch.method = *s->method->table;
    watch.method.score = watched_score;
    s->method->table = &watch.method;
    cpu_watch(sessions[0]);
    for (int at = many; at < n; at++)
        for (int i = 0; i < 2; i++) {
            if (yalm_eval(sessions[i], tokens + at, 1, YALM_LOGITS_LAST, &error) != YALM_OK)
                quit(i == 0 ? "cpu" : "cuda", &error);
            if (i == 1)
                compare_logits(sessions, yalm_model_facts(model)->vocab_size);
        }
    s->method->table = watch.original;
    cpu_watch_end();
    if (watch.heads == 0)
        WRONG("nothing was selected");
    if (watch.logits > LOGITS)
        WRONG("logits differ by %.3g of their range", watch.logits);
    printf("%s %s %ld %ld %ld %.3f %ld %ld %ld %.3e\n", options.attention, name, watch.heads, watch.scores, watch.odd,
           watch.most_rounding, watch.keys, watch.differing, watch.tied_components, watch.logits);
    for (yalm_session *session : sessions)
        yalm_session_close(session);
    if (watch.wrong > 0)
        quit("devices differ", NULL);
}

int main(int argc, char **argv)
{
    yalm_session_options options = yalm_session_defaults();
    yalm_error error = {YALM_OK, ""};
    int n = 0, d_sub = 1;
    int32_t *tokens = argc > 4 ? read_tokens(argv[2], &n) : NULL;
    if (tokens == NULL || n < 24)
        quit(
            "usage: compare_selections MODEL TOKENS codebooks=FILE sparq=…|hybrid=… …, where TOKENS holds 24 int32 ids or more",
            NULL);
    setenv("YALM_CUDA_WITHOUT", "graph", 1); // which would launch kernels without asking the method
    yalm_model *model = yalm_model_open(argv[1], NULL, &error);
    if (model == NULL)
        quit(argv[1], &error);
    options.kv = YALM_KV_FP32;
    options.n_threads = 1;
    for (int i = 3; i < argc; i++) {
        read_option(&options, &d_sub, argv[i]);
        if (strncmp(argv[i], "codebooks=", 10) == 0)
            continue;
        if (strcmp(options.attention, "hybrid") == 0)
            learn(model, tokens, n, d_sub, options.codebooks);
        options.context = n;
        options.endless = false;
        run("context", model, options, tokens, n, n - 5);
        options.context = n / 2;
        options.endless = true; // sinks and the ring, or the model's own window
        run("endless", model, options, tokens, n, n - 5);
    }
    yalm_model_close(model);
    free(tokens);
    return 0;
}
