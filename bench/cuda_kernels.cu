// Times each function of src/cuda/kernels.h alone, at a model's shapes, beside what the device reads and multiplies:
//
//     cuda_kernels NAME=VALUE…
//     name=TEXT dim=N ffn=N heads=N kv=N head_dim=N vocab=N dtype=fp16|bf16 depths=0,4096 prompts=512,4096
//
// One JSON object a line: first {"limits": …}, then for each kernel its seconds, bytes (what must be read and written once) and operations, both as
// rates and as fractions of the limits. Matrices come from a pool that is larger than the L2 cache, a different one each time, as a model's layers do.
#include "cuda/limits.h"

static const double seconds_each = 0.1; // of timing, for each kernel
enum { MAX_LIST = 8, CHUNK = 2048 };

struct shape {
    const char *name;
    int dim, ffn, heads, kv, head_dim, vocab;
    enum dtype dtype;
    int depths[MAX_LIST], n_depths, prompts[MAX_LIST], n_prompts;
};

struct bench {
    struct shape shape;
    struct cuda_device device;
    cudaStream_t stream;
    struct matmul *matmul;
    yalm_limits limits;
    uint8_t *pool; // (pool_bytes) of weights
    size_t pool_bytes, at;
    struct step *step;
    int32_t *tokens;
    float *x, *y, *z; // (CHUNK, widest)
    void *h;          // likewise, of the weights' type
    float *logits;    // (vocab)
    void *scratch;
    struct kv_cache cache;
    double *inverse_frequency;
};

// Ends the program with the error's line where the call fails.
static void must(yalm_status status, const yalm_error *error)
{
    if (status == YALM_OK)
        return;
    fprintf(stderr, "cuda_kernels: %s\n", error->text);
    exit(status);
}

#define MUST(call)                                                                                                             \
    do {                                                                                                                       \
        yalm_error must_error = {};                                                                                            \
        yalm_error *error = &must_error;                                                                                       \
        must(call, error);                                                                                                     \
    } while (0)
#define MUST_CUDA(call) MUST(cuda_check((call), #call, error))

// ------------------------------------------------------------------------------------------ setting up

template <typename T> static void take(T **pointer, size_t bytes)
{
    MUST_CUDA(cudaMalloc(reinterpret_cast<void **>(pointer), bytes));
    MUST_CUDA(cudaMemset(*pointer, 0, bytes));
}

// Elements of magnitude 2^-6 to 2^-5 with random signs and mantissas, which are fp16 and bf16 numbers of about that size.
static void fill_pool(struct bench *b)
{
    const size_t part = b->pool_bytes < (size_t)64 << 20 ? b->pool_bytes : (size_t)64 << 20;
    uint16_t *noise = static_cast<uint16_t *>(malloc(part));
    uint64_t state = 1;
    for (size_t i = 0; i < part / 2; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        noise[i] = b->shape.dtype == DTYPE_BF16 ? (uint16_t)(((state >> 33) & 0x807f) | (121 << 7))
                                                : (uint16_t)(((state >> 33) & 0x83ff) | (9 << 10));
    }
    for (size_t at = 0; at < b->pool_bytes; at += part)
        MUST_CUDA(
            cudaMemcpy(b->pool + at, noise, part < b->pool_bytes - at ? part : b->pool_bytes - at, cudaMemcpyHostToDevice));
    free(noise);
}

static size_t widest(const struct shape *s)
{
    const int q = s->heads * s->head_dim, most = s->ffn > s->dim ? s->ffn : s->dim;
    return most > q ? most : q;
}

static void set_up(struct bench *b)
{
    const struct shape *s = &b->shape;
    int l2 = 0, deepest = 1;
    MUST_CUDA(cudaDeviceGetAttribute(&b->device.n_sms, cudaDevAttrMultiProcessorCount, 0));
    MUST_CUDA(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, 0));
    MUST_CUDA(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking));
    MUST(matmul_open(&b->matmul, error));
    MUST(limits_measure(&b->device, b->matmul, b->stream, 1.5, &b->limits, error));
    const size_t classifier = (size_t)s->vocab * s->dim * 2, units = (size_t)s->ffn * s->dim * 4;
    const size_t largest = classifier > units ? classifier : units;
    b->pool_bytes = largest + 6 * (size_t)l2;
    take(&b->pool, b->pool_bytes);
    fill_pool(b);
    take(&b->step, sizeof *b->step);
    take(&b->tokens, CHUNK * sizeof *b->tokens);
    take(&b->x, CHUNK * widest(s) * sizeof(float));
    take(&b->y, CHUNK * widest(s) * sizeof(float));
    take(&b->z, CHUNK * widest(s) * sizeof(float));
    take(reinterpret_cast<uint8_t **>(&b->h), CHUNK * widest(s) * sizeof(float));
    take(&b->logits, s->vocab * sizeof(float));
    take(&b->inverse_frequency, s->head_dim / 2 * sizeof(double));
    for (int i = 0; i < s->n_depths; i++)
        deepest = s->depths[i] + 1 > deepest ? s->depths[i] + 1 : deepest;
    for (int i = 0; i < s->n_prompts; i++)
        deepest = s->prompts[i] > deepest ? s->prompts[i] : deepest;
    b->cache.type = YALM_KV_FP16;
    b->cache.n_layers = 1;
    b->cache.n_kv_heads = s->kv;
    b->cache.head_dim = s->head_dim;
    b->cache.policy = {deepest, false, deepest, 0, deepest};
    const size_t cache_bytes = (size_t)s->kv * deepest * s->head_dim * 2;
    take(reinterpret_cast<uint8_t **>(&b->cache.keys), cache_bytes);
    take(reinterpret_cast<uint8_t **>(&b->cache.values), cache_bytes);
    MUST(fill_noise(&b->cache, 0, deepest, 1, b->stream, error));
    size_t scratch = attention_decode_plan(&b->cache, s->heads, b->device.n_sms).scratch_bytes;
    const size_t sampling = sample_scratch_bytes(s->vocab, 64);
    scratch = sampling > scratch ? sampling : scratch;
    take(reinterpret_cast<uint8_t **>(&b->scratch), scratch);
}

static void tear_down(struct bench *b)
{
    void *const blocks[] = {b->pool,       b->step,        b->tokens, b->x,       b->y,
                            b->z,          b->h,           b->logits, b->scratch, b->inverse_frequency,
                            b->cache.keys, b->cache.values};
    for (void *block : blocks)
        cudaFree(block);
    matmul_close(b->matmul);
    cudaStreamDestroy(b->stream);
}

static void set_step(struct bench *b, int64_t position, int n)
{
    const struct step step = {position, n, 0};
    MUST_CUDA(cudaMemcpy(b->step, &step, sizeof step, cudaMemcpyHostToDevice));
}

// The next matrix of the pool.
static struct matrix weights(struct bench *b, int rows, int cols)
{
    const size_t bytes = round_up((size_t)rows * cols * 2, 256);
    if (b->at + bytes > b->pool_bytes)
        b->at = 0;
    const struct matrix m = {b->pool + b->at, b->shape.dtype, rows, cols};
    b->at += bytes;
    return m;
}

// ------------------------------------------------------------------------------------------ timing

// Seconds of one call: the shortest mean of several rows of calls, each row queued without a pause.
template <typename Launch> static double seconds_of(struct bench *b, Launch launch)
{
    cudaEvent_t begin, end;
    MUST_CUDA(cudaEventCreateWithFlags(&begin, cudaEventDefault));
    MUST_CUDA(cudaEventCreateWithFlags(&end, cudaEventDefault));
    const double stop = clock_seconds() + seconds_each;
    double best = INFINITY;
    for (int round = 0, n = 1; round < 3 || clock_seconds() < stop; round++) {
        float milliseconds = 0;
        MUST_CUDA(cudaEventRecord(begin, b->stream));
        for (int i = 0; i < n; i++)
            MUST(launch(error));
        MUST_CUDA(cudaEventRecord(end, b->stream));
        MUST_CUDA(cudaStreamSynchronize(b->stream));
        MUST_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
        if (round > 0 && 1e-3 * milliseconds / n < best) // the first one loads the kernel
            best = 1e-3 * milliseconds / n;
        if (milliseconds < 5 && n < 256)
            n *= 4;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return best;
}

static void print(const struct bench *b, const char *kernel, const char *phase, int length, double seconds, double bytes,
                  double ops)
{
    const double gb = 1e-9 * bytes / seconds, gop = 1e-9 * ops / seconds;
    printf("{\"model\": \"%s\", \"kernel\": \"%s\", \"phase\": \"%s\", \"length\": %d, \"seconds\": %.4e, \"bytes\": %.6e, "
           "\"ops\": %.6e, "
           "\"gb_per_s\": %.1f, \"of_read\": %.4f, \"gop_per_s\": %.1f, \"of_matrix\": %.4f}\n",
           b->shape.name, kernel, phase, length, seconds, bytes, ops, gb, gb / b->limits.read_gb_per_s, gop,
           gop / b->limits.matrix_gop_per_s);
    fflush(stdout);
}

// ------------------------------------------------------------------------------------------ one token

static void time_vectors(struct bench *b)
{
    const struct shape *s = &b->shape;
    const int q = s->heads * s->head_dim, kv = s->kv * s->head_dim;
    const float *norm = b->z;
    const double row = 2.0 * s->dim;
    double t = seconds_of(b, [&](yalm_error *error) {
        const struct product qkv[] = {{weights(b, q, s->dim), NULL, b->y},
                                      {weights(b, kv, s->dim), NULL, b->y + q},
                                      {weights(b, kv, s->dim), NULL, b->y + q + kv}};
        return matvec_norm(qkv, 3, b->x, norm, 1e-5f, b->stream, error);
    });
    print(b, "qkv", "decode", 1, t, row * (q + 2 * kv), row * (q + 2 * kv));
    t = seconds_of(b, [&](yalm_error *error) {
        const struct matrix w = weights(b, s->dim, q);
        return matvec_residual(b->x, &w, NULL, b->y, b->stream, error);
    });
    print(b, "o", "decode", 1, t, row * q, row * q);
    t = seconds_of(b, [&](yalm_error *error) {
        struct expert_weights units = {};
        units.gate = weights(b, s->ffn, s->dim);
        units.up = weights(b, s->ffn, s->dim);
        return matvec_gated(b->y, &units, b->x, norm, 1e-5f, b->stream, error);
    });
    print(b, "gate-up", "decode", 1, t, 2 * row * s->ffn, 2 * row * s->ffn);
    t = seconds_of(b, [&](yalm_error *error) {
        const struct matrix w = weights(b, s->dim, s->ffn);
        return matvec_residual(b->x, &w, NULL, b->y, b->stream, error);
    });
    print(b, "down", "decode", 1, t, row * s->ffn, row * s->ffn);
    t = seconds_of(b, [&](yalm_error *error) {
        const struct product classifier = {weights(b, s->vocab, s->dim), NULL, b->logits};
        return matvec_norm(&classifier, 1, b->x, norm, 1e-5f, b->stream, error);
    });
    print(b, "classifier", "decode", 1, t, row * s->vocab, row * s->vocab);
}

static void time_append(struct bench *b, int n)
{
    const struct shape *s = &b->shape;
    const double heads = (double)n * s->head_dim;
    struct rope_append r = {
        b->step, b->x, b->y, b->z, static_cast<float *>(b->h), NULL, &b->cache, {b->inverse_frequency, 1}, 0, s->heads};
    set_step(b, 0, n);
    const double t = seconds_of(b, [&](yalm_error *error) { return rope_append(&r, n, b->stream, error); });
    print(b, "rope-append", n == 1 ? "decode" : "prefill", n, t, heads * (8 * s->heads + 12 * s->kv), 6 * heads * s->heads);
}

static void time_attention(struct bench *b, int depth)
{
    const struct shape *s = &b->shape;
    const struct decode_plan plan = attention_decode_plan(&b->cache, s->heads, b->device.n_sms);
    const struct attention a = {b->step, b->x, NULL, &b->cache, 0, s->heads};
    set_step(b, depth, 1);
    MUST_CUDA(cudaMemset(b->scratch, 0, plan.scratch_bytes));
    const double t =
        seconds_of(b, [&](yalm_error *error) { return attention_decode(&a, &plan, b->y, b->scratch, b->stream, error); });
    const double keys = depth + 1.0;
    print(b, "attention", "decode", depth, t, keys * s->kv * s->head_dim * 4, keys * s->heads * s->head_dim * 4);
}

static void time_sampling(struct bench *b)
{
    yalm_sampling sampling = {};
    sampling.temperature = 0.8f;
    sampling.top_k = 40;
    sampling.top_p = 0.95f;
    sampling.min_p = 0.05f;
    sampling.repeat_penalty = 1;
    const struct draw draw = {&sampling, NULL, 0, 0.5};
    float *noise = static_cast<float *>(malloc(b->shape.vocab * sizeof *noise)); // as logits are: few stand out
    for (int i = 0; i < b->shape.vocab; i++)
        noise[i] = -3 * logf((float)((i * 2654435761u >> 8 & 0xffff) + 1) / 65537);
    MUST_CUDA(cudaMemcpy(b->logits, noise, b->shape.vocab * sizeof *noise, cudaMemcpyHostToDevice));
    free(noise);
    struct sampled *sampled;
    MUST_CUDA(cudaHostAlloc(reinterpret_cast<void **>(&sampled), sizeof *sampled, cudaHostAllocDefault));
    const double t = seconds_of(b, [&](yalm_error *error) {
        return sample(&draw, b->logits, b->shape.vocab, b->scratch, b->tokens, sampled, b->stream, error);
    });
    print(b, "sample", "decode", 1, t, 4.0 * b->shape.vocab, b->shape.vocab);
    cudaFreeHost(sampled);
}

// ------------------------------------------------------------------------------------------ many tokens

static void time_product(struct bench *b, const char *kernel, int rows, int cols, int n, bool add)
{
    const double t = seconds_of(b, [&](yalm_error *error) {
        const struct matrix w = weights(b, rows, cols);
        return matmul_run(b->matmul, b->y, b->h, &w, NULL, n, add, b->stream, error);
    });
    print(b, kernel, "prefill", n, t, 2.0 * rows * cols + n * (2.0 * cols + (add ? 8.0 : 4.0) * rows), 2.0 * n * rows * cols);
}

static void time_prefill(struct bench *b, int length)
{
    const struct shape *s = &b->shape;
    const int q = s->heads * s->head_dim, kv = s->kv * s->head_dim, n = length < CHUNK ? length : CHUNK;
    MUST_CUDA(cudaMemset(b->h, 0x2c, (size_t)n * widest(s) * 2)); // 0x2c2c: 0.065 in fp16
    time_product(b, "q", q, s->dim, n, false);
    time_product(b, "k", kv, s->dim, n, false);
    time_product(b, "o", s->dim, q, n, true);
    time_product(b, "gate", s->ffn, s->dim, n, false);
    time_product(b, "down", s->dim, s->ffn, n, true);
    double t = seconds_of(
        b, [&](yalm_error *error) { return rmsnorm(b->h, s->dtype, b->x, b->z, 1e-5f, n, s->dim, b->stream, error); });
    print(b, "rmsnorm", "prefill", n, t, 6.0 * n * s->dim, 4.0 * n * s->dim);
    t = seconds_of(
        b, [&](yalm_error *error) { return silu_multiply(b->h, s->dtype, b->x, b->y, (size_t)n * s->ffn, b->stream, error); });
    print(b, "silu-multiply", "prefill", n, t, 10.0 * n * s->ffn, 6.0 * n * s->ffn);
    time_append(b, n);
    // The last chunk, which sees the most.
    const struct attention a = {b->step, b->x, NULL, &b->cache, 0, s->heads};
    set_step(b, length - n, n);
    t = seconds_of(b, [&](yalm_error *error) { return attention_prefill(&a, n, b->h, s->dtype, b->stream, error); });
    const double pairs = (double)n * (length - n) + 0.5 * n * (n + 1.0);
    print(b, "attention", "prefill", length, t, 4.0 * length * kv + 6.0 * n * q, 4.0 * pairs * q);
}

// ------------------------------------------------------------------------------------------ main

static void read_list(int *values, int *n, const char *text)
{
    for (char *end; *text && *n < MAX_LIST; text = *end ? end + 1 : end)
        values[(*n)++] = (int)strtol(text, &end, 10);
}

static bool read_argument(struct shape *s, const char *argument)
{
    const char *value = strchr(argument, '=');
    const struct {
        const char *name;
        int *value;
    } numbers[] = {{"dim", &s->dim}, {"ffn", &s->ffn},           {"heads", &s->heads},
                   {"kv", &s->kv},   {"head_dim", &s->head_dim}, {"vocab", &s->vocab}};
    if (!value)
        return false;
    const size_t n = value++ - argument;
    for (const auto &number : numbers)
        if (n == strlen(number.name) && memcmp(argument, number.name, n) == 0)
            return (*number.value = atoi(value)) > 0;
    if (strncmp(argument, "name=", 5) == 0)
        s->name = value;
    else if (strncmp(argument, "dtype=", 6) == 0)
        s->dtype = strcmp(value, "bf16") == 0 ? DTYPE_BF16 : DTYPE_FP16;
    else if (strncmp(argument, "depths=", 7) == 0)
        read_list(s->depths, &s->n_depths, value);
    else if (strncmp(argument, "prompts=", 8) == 0)
        read_list(s->prompts, &s->n_prompts, value);
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    struct bench b = {};
    b.shape = {"unnamed", 64, 128, 4, 2, 16, 256, DTYPE_FP16, {}, 0, {}, 0};
    for (int i = 1; i < argc; i++)
        if (!read_argument(&b.shape, argv[i])) {
            fprintf(stderr, "cuda_kernels: '%s': expected NAME=VALUE\n", argv[i]);
            return YALM_USAGE;
        }
    set_up(&b);
    const double copied = 1e-9 * b.pool_bytes / 2 * 2; // read and written
    const double copying = seconds_of(&b, [&](yalm_error *error) {
        return cuda_check(
            cudaMemcpyAsync(b.pool, b.pool + b.pool_bytes / 2, b.pool_bytes / 2, cudaMemcpyDeviceToDevice, b.stream),
            "cudaMemcpyAsync", error);
    });
    printf("{\"limits\": {\"copy_gb_per_s\": %.1f, \"read_gb_per_s\": %.1f, \"fma_gop_per_s\": %.1f, \"matrix_gop_per_s\": "
           "%.1f}}\n",
           copied / copying, b.limits.read_gb_per_s, b.limits.fma_gop_per_s, b.limits.matrix_gop_per_s);
    time_vectors(&b);
    time_append(&b, 1);
    for (int i = 0; i < b.shape.n_depths; i++)
        time_attention(&b, b.shape.depths[i]);
    time_sampling(&b);
    for (int i = 0; i < b.shape.n_prompts; i++)
        time_prefill(&b, b.shape.prompts[i]);
    tear_down(&b);
    return 0;
}
