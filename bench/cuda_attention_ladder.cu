// Times the steps of attention_ladder.cuh and the engine's decode attention, each checked against double precision on the
// first and the last head:
//
//     cuda_attention_ladder NAME=VALUE…
//     name=TEXT heads=N kv=N head_dim=N depths=4096,32768
//
// One JSON object a line: first {"limits": …}, then one for each depth and step. That has its seconds; the bytes that must be
// read once (K and V), as a rate and as a fraction of what reading gives; how many times faster than the step before it is;
// and its largest error beside the largest value. Exits with 1 where a step is wrong. Several layers' caches are read in
// turn, as by a model, so that the L2 cache holds none of them.
#include "attention_ladder.cuh"
#include "cuda_timing.h"
#include "read_arguments.h"

static const double most_error = 1e-3; // of the largest value

struct ladder {
    struct shape_arguments shape;
    int n_sms, n_layers, n_keys;
    cudaStream_t stream;
    yalm_limits limits;
    struct kv_cache cache;
    struct decode_plan plan;
    struct evaluation *step;
    float *q, *attended, *scores, *part_acc;
    float2 *part_state;
    void *scratch;
    double *expected; // (2, head_dim), host: of the first and the last head
    int turn;
};

static int layer_of_turn(struct ladder *l)
{
    return l->turn++ % l->n_layers;
}

// Step LADDER_ATTENTION_STEPS is the engine's.
static yalm_status run_step(struct ladder *l, int step, int layer, yalm_error *error)
{
    const struct shape_arguments *s = &l->shape;
    if (step == LADDER_ATTENTION_STEPS) {
        const struct attention a = {l->step, l->q, NULL, &l->cache, layer, s->heads};
        return attention_decode(&a, &l->plan, l->attended, l->scratch, l->stream, error);
    }
    const size_t at = (size_t)layer * s->kv * l->n_keys * s->head_dim;
    struct ladder_attention a = {};
    a.keys = static_cast<const half *>(l->cache.keys) + at;
    a.values = static_cast<const half *>(l->cache.values) + at;
    a.q = l->q;
    a.attended = l->attended;
    a.n_heads = s->heads;
    a.group = s->heads / s->kv;
    a.head_dim = s->head_dim;
    a.capacity = a.n_keys = l->n_keys;
    a.scores = l->scores;
    a.n_splits = ladder_splits(s->heads, l->n_keys, l->n_sms);
    a.part_acc = l->part_acc;
    a.part_state = l->part_state;
    return ladder_attention_run((enum ladder_attention_step)step, &a, l->stream, error);
}

// ------------------------------------------------------------------------------------------ the reference

static void expect(double *expected, const float *q, const uint16_t *keys, const uint16_t *values, int n_keys, int d)
{
    double *scores = static_cast<double *>(calloc(n_keys, sizeof *scores)), max = -INFINITY, sum = 0;
    for (int j = 0; j < n_keys; j++) {
        for (int c = 0; c < d; c++)
            scores[j] += (double)q[c] * __half2float(__ushort_as_half(keys[(size_t)j * d + c]));
        max = fmax(max, scores[j]);
    }
    for (int c = 0; c < d; c++)
        expected[c] = 0;
    for (int j = 0; j < n_keys; j++) {
        const double p = exp(scores[j] - max);
        sum += p;
        for (int c = 0; c < d; c++)
            expected[c] += p * __half2float(__ushort_as_half(values[(size_t)j * d + c]));
    }
    for (int c = 0; c < d; c++)
        expected[c] /= sum;
    free(scores);
}

// Layer 0's, with keys and values as they lie on the device.
static void expect_heads(struct ladder *l, const float *q)
{
    const int d = l->shape.head_dim;
    const size_t head = (size_t)l->n_keys * d;
    uint16_t *rows = static_cast<uint16_t *>(malloc(2 * head * sizeof *rows));
    for (int i = 0; i < 2; i++) {
        const size_t at = i == 0 ? 0 : head * (l->shape.kv - 1), bytes = head * sizeof *rows;
        MUST_CUDA(cudaMemcpy(rows, static_cast<uint16_t *>(l->cache.keys) + at, bytes, cudaMemcpyDeviceToHost));
        MUST_CUDA(cudaMemcpy(rows + head, static_cast<uint16_t *>(l->cache.values) + at, bytes, cudaMemcpyDeviceToHost));
        expect(l->expected + i * d, q + (i == 0 ? 0 : (l->shape.heads - 1) * d), rows, rows + head, l->n_keys, d);
    }
    free(rows);
}

// The largest difference, of the largest value expected; infinite where an output is not a number.
static double error_of(struct ladder *l, int step)
{
    const int d = l->shape.head_dim, n = l->shape.heads * d;
    float *found = static_cast<float *>(malloc(n * sizeof *found));
    MUST_CUDA(cudaMemset(l->attended, 0xff, n * sizeof *found)); // not a number
    MUST(run_step(l, step, 0, error));
    MUST_CUDA(cudaStreamSynchronize(l->stream));
    MUST_CUDA(cudaMemcpy(found, l->attended, n * sizeof *found, cudaMemcpyDeviceToHost));
    double error = 0, largest = 0;
    for (int i = 0; i < 2 * d; i++) {
        const double difference = fabs(found[i < d ? i : n - 2 * d + i] - l->expected[i]);
        error = difference <= error ? error : isnan(difference) ? INFINITY : difference;
        largest = fmax(largest, fabs(l->expected[i]));
    }
    free(found);
    return error / largest;
}

// ------------------------------------------------------------------------------------------ one depth

static void depth_open(struct ladder *l, int depth)
{
    const struct shape_arguments *s = &l->shape;
    const size_t row = (size_t)s->kv * s->head_dim * sizeof(half);
    const int q = s->heads * s->head_dim, splits = ladder_splits(s->heads, depth + 1, l->n_sms);
    l->n_keys = depth + 1;
    l->n_layers = enough_layers(2 * row * l->n_keys);
    l->turn = 0;
    l->cache = {};
    l->cache.type = YALM_KV_FP16;
    l->cache.n_layers = l->n_layers;
    l->cache.n_kv_heads = s->kv;
    l->cache.head_dim = s->head_dim;
    l->cache.policy = {l->n_keys, false, l->n_keys, 0, l->n_keys};
    take(reinterpret_cast<uint8_t **>(&l->cache.keys), l->n_layers * row * l->n_keys);
    take(reinterpret_cast<uint8_t **>(&l->cache.values), l->n_layers * row * l->n_keys);
    MUST(fill_noise(&l->cache, 0, l->n_keys, 1, l->stream, error));
    l->plan = attention_decode_plan(&l->cache, s->heads, l->n_sms);
    take(reinterpret_cast<uint8_t **>(&l->scratch), l->plan.scratch_bytes);
    take(&l->scores, (size_t)s->heads * l->n_keys * sizeof(float));
    take(&l->part_acc, (size_t)q * splits * sizeof(float));
    take(&l->part_state, (size_t)s->heads * splits * sizeof(float2));
    const struct evaluation step = {depth, 1, 0};
    MUST_CUDA(cudaMemcpy(l->step, &step, sizeof step, cudaMemcpyHostToDevice));
    MUST_CUDA(cudaStreamSynchronize(l->stream));

    float *queries = static_cast<float *>(malloc(q * sizeof *queries));
    uint64_t state = (uint64_t)depth;
    for (int i = 0; i < q; i++)
        queries[i] = 3 * noise_float(&state) / sqrtf((float)s->head_dim);
    MUST_CUDA(cudaMemcpy(l->q, queries, q * sizeof *queries, cudaMemcpyHostToDevice));
    expect_heads(l, queries);
    free(queries);
}

static void depth_close(struct ladder *l)
{
    void *const blocks[] = {l->cache.keys, l->cache.values, l->scratch, l->scores, l->part_acc, l->part_state};
    for (void *block : blocks)
        MUST_CUDA(cudaFree(block));
}

// Number of steps that were wrong.
static int time_depth(struct ladder *l, int depth)
{
    int wrong = 0;
    double before = 0;
    depth_open(l, depth);
    const double bytes = 4.0 * l->n_keys * l->shape.kv * l->shape.head_dim;
    for (int step = 0; step <= LADDER_ATTENTION_STEPS; step++) {
        const double error = error_of(l, step);
        const double t = seconds_of(l->stream, [&](yalm_error *error) { return run_step(l, step, layer_of_turn(l), error); });
        wrong += !(error <= most_error);
        printf("{\"ladder\": \"attention\", \"model\": \"%s\", \"step\": \"%s\", \"length\": %d, \"seconds\": %.4e, \"bytes\": "
               "%.6e, "
               "\"gb_per_s\": %.1f, \"of_read\": %.4f, \"gain\": %.3f, \"error\": %.2e}\n",
               l->shape.name, step < LADDER_ATTENTION_STEPS ? ladder_attention_names[step] : "the engine's", depth, t, bytes,
               1e-9 * bytes / t, 1e-9 * bytes / t / l->limits.read_gb_per_s, step > 0 ? before / t : 1.0,
               isfinite(error) ? error : 1e9);
        fflush(stdout);
        before = t;
    }
    depth_close(l);
    return wrong;
}

int main(int argc, char **argv)
{
    struct ladder l = {};
    if (!read_arguments(&l.shape, argc, argv, "cuda_attention_ladder"))
        return YALM_USAGE;
    const size_t q = (size_t)l.shape.heads * l.shape.head_dim;
    struct matmul *matmul = NULL;
    MUST_CUDA(cudaStreamCreateWithFlags(&l.stream, cudaStreamNonBlocking));
    MUST(matmul_open(&matmul, error));
    l.limits = measure_limits(l.stream, matmul, 0.6, &l.n_sms);
    printf("{\"limits\": {\"read_gb_per_s\": %.1f}}\n", l.limits.read_gb_per_s);
    take(&l.step, sizeof *l.step);
    take(&l.q, q * sizeof(float));
    take(&l.attended, q * sizeof(float));
    l.expected = static_cast<double *>(malloc(2 * l.shape.head_dim * sizeof *l.expected));
    int wrong = 0;
    for (int i = 0; i < l.shape.n_depths; i++)
        wrong += time_depth(&l, l.shape.depths[i]);
    free(l.expected);
    cudaFree(l.step);
    cudaFree(l.q);
    cudaFree(l.attended);
    matmul_close(matmul);
    cudaStreamDestroy(l.stream);
    return wrong > 0;
}
