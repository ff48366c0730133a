// Times each function of src/cuda/kernels/kernels.h alone, at a model's shapes, beside what the device reads and multiplies:
//
//     cuda_kernels NAME=VALUE…
//     name=TEXT dim=N ffn=N heads=N kv=N head_dim=N vocab=N dtype=fp16|… depths=0,4096 prompts=512,4096
//
// One JSON object a line: first {"limits": …}, then one for each kernel. That has its seconds, bytes (what must be read and
// written once) and operations, both as rates and as fractions of the limits. Matrices come from a pool that is larger than
// the L2 cache, another one each time, as a model's layers do. So do keys and values of one token's attention.
#include "cuda_timing.h"
#include "read_arguments.h"

enum { CHUNK = 2048 };
static const size_t slab_room = (size_t)128 << 20; // of quantised weights as fp16 (dequantise.cu)

struct bench {
    struct shape_arguments shape;
    int n_sms;
    cudaStream_t stream;
    struct matmul *matmul;
    yalm_limits limits;
    uint8_t *pool; // (pool_bytes) of weights
    uint8_t *slab; // (slab_room)
    size_t pool_bytes, at;
    struct evaluation *step;
    int32_t *tokens;
    float *x, *y, *z;      // (CHUNK, widest)
    void *h;               // likewise, of the weights' type
    float *logits;         // (vocab)
    void *scratch;         // sampling's
    struct kv_cache cache; // of one layer, as long as the longest prompt
    double *inverse_frequency;
};

// ------------------------------------------------------------------------------------------ setting up

// Elements of a type, signs and mantissas at random, magnitudes of about 2^-6; 8-bit elements and their scales finite.
static void fill_elements(void *device, size_t bytes, enum dtype type)
{
    uint8_t *words = static_cast<uint8_t *>(device);
    if (type == DTYPE_FP16)
        fill_words(words, bytes, 0x83ff, 9 << 10);
    else if (type == DTYPE_BF16 || type == DTYPE_FP32)
        fill_words(words, bytes, 0x807f, 121 << 7);
    else
        fill_words(words, bytes, 0xbfbf, 0);
}

static size_t widest(const struct shape_arguments *s)
{
    const int q = s->heads * s->head_dim, most = s->ffn > s->dim ? s->ffn : s->dim;
    return most > q ? most : q;
}

static void open_cache(struct bench *b, struct kv_cache *cache, int n_layers, int length)
{
    const size_t bytes = (size_t)n_layers * b->shape.kv * length * b->shape.head_dim * sizeof(half);
    *cache = {};
    cache->type = YALM_KV_FP16;
    cache->n_layers = n_layers;
    cache->n_kv_heads = b->shape.kv;
    cache->head_dim = b->shape.head_dim;
    cache->policy = {length, false, length, 0, length};
    take(reinterpret_cast<uint8_t **>(&cache->keys), bytes);
    take(reinterpret_cast<uint8_t **>(&cache->values), bytes);
    MUST(fill_noise(cache, 0, length, 1, b->stream, error));
    MUST_CUDA(cudaStreamSynchronize(b->stream));
}

static void set_up(struct bench *b)
{
    const struct shape_arguments *s = &b->shape;
    int longest = 1;
    MUST_CUDA(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking));
    MUST(matmul_open(&b->matmul, error));
    b->limits = measure_limits(b->stream, b->matmul, 1.5, &b->n_sms);
    const size_t row = dtype_row_bytes(s->dtype, s->dim), classifier = s->vocab * row, units = 2 * s->ffn * row;
    b->pool_bytes = round_up((classifier > units ? classifier : units) + 6 * l2_bytes(), 256);
    take(&b->pool, b->pool_bytes);
    fill_elements(b->pool, b->pool_bytes, s->dtype);
    take(&b->step, sizeof *b->step);
    take(&b->tokens, CHUNK * sizeof *b->tokens);
    const size_t activations = CHUNK * widest(s) * sizeof(float);
    for (float **buffer : {&b->x, &b->y, &b->z}) {
        take(buffer, activations);
        fill_elements(*buffer, activations, DTYPE_FP32);
    }
    take(reinterpret_cast<uint8_t **>(&b->h), activations);
    take(&b->slab, slab_room);
    matmul_use_slab(b->matmul, b->slab, slab_room);
    take(&b->logits, s->vocab * sizeof(float));
    take(&b->inverse_frequency, s->head_dim / 2 * sizeof(double));
    for (int i = 0; i < s->n_prompts; i++)
        longest = s->prompts[i] > longest ? s->prompts[i] : longest;
    open_cache(b, &b->cache, 1, longest);
    take(reinterpret_cast<uint8_t **>(&b->scratch), sample_scratch_bytes(s->vocab, 64));
}

static void tear_down(struct bench *b)
{
    void *const blocks[] = {b->pool, b->step,       b->tokens,      b->x,       b->y,
                            b->z,    b->h,          b->logits,      b->scratch, b->inverse_frequency,
                            b->slab, b->cache.keys, b->cache.values};
    for (void *block : blocks)
        cudaFree(block);
    matmul_close(b->matmul);
    cudaStreamDestroy(b->stream);
}

static void set_step(struct bench *b, int64_t position, int n)
{
    const struct evaluation step = {position, n, 0};
    MUST_CUDA(cudaMemcpy(b->step, &step, sizeof step, cudaMemcpyHostToDevice));
}

// The next matrix of the pool.
static struct matrix weights(struct bench *b, int rows, int cols)
{
    const struct matrix shape = {NULL, b->shape.dtype, rows, cols};
    const size_t own = matrix_is_quantised(&shape) ? factors_at(&shape) + sizeof(struct product_factors) : factors_at(&shape);
    const size_t bytes = round_up(own, 256);
    if (b->at + bytes > b->pool_bytes)
        b->at = 0;
    const struct matrix m = {b->pool + b->at, b->shape.dtype, rows, cols};
    b->at += bytes;
    return m;
}

// ------------------------------------------------------------------------------------------ timing

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

// Of `rows` rows of `cols` columns.
static void print_product(const struct bench *b, const char *kernel, int rows, int cols, double seconds)
{
    const double bytes = (double)rows * dtype_row_bytes(b->shape.dtype, cols);
    print(b, kernel, "decode", 1, seconds, bytes, 2.0 * rows * cols);
}

static void time_vectors(struct bench *b)
{
    const struct shape_arguments *s = &b->shape;
    const int q = s->heads * s->head_dim, kv = s->kv * s->head_dim;
    const float *norm = b->z;
    double t = seconds_of(b->stream, [&](yalm_error *error) {
        const struct product qkv[] = {{weights(b, q, s->dim), NULL, b->y},
                                      {weights(b, kv, s->dim), NULL, b->y + q},
                                      {weights(b, kv, s->dim), NULL, b->y + q + kv}};
        return matvec_norm(qkv, 3, b->x, norm, 1e-5f, b->stream, error);
    });
    print_product(b, "qkv", q + 2 * kv, s->dim, t);
    t = seconds_of(b->stream, [&](yalm_error *error) {
        const struct matrix w = weights(b, s->dim, q);
        return matvec_residual(b->x, &w, NULL, b->y, b->stream, error);
    });
    print_product(b, "o", s->dim, q, t);
    t = seconds_of(b->stream, [&](yalm_error *error) {
        struct expert_weights units = {};
        units.gate = weights(b, s->ffn, s->dim);
        units.up = weights(b, s->ffn, s->dim);
        return matvec_gated(b->y, &units, b->x, norm, 1e-5f, b->stream, error);
    });
    print_product(b, "gate-up", 2 * s->ffn, s->dim, t);
    t = seconds_of(b->stream, [&](yalm_error *error) {
        const struct matrix w = weights(b, s->dim, s->ffn);
        return matvec_residual(b->x, &w, NULL, b->y, b->stream, error);
    });
    print_product(b, "down", s->dim, s->ffn, t);
    t = seconds_of(b->stream, [&](yalm_error *error) {
        const struct product classifier = {weights(b, s->vocab, s->dim), NULL, b->logits};
        return matvec_norm(&classifier, 1, b->x, norm, 1e-5f, b->stream, error);
    });
    print_product(b, "classifier", s->vocab, s->dim, t);
}

static void time_append(struct bench *b, int n)
{
    const struct shape_arguments *s = &b->shape;
    const double heads = (double)n * s->head_dim;
    struct rope_append r = {
        b->step, b->x, b->y, b->z, static_cast<float *>(b->h), NULL, &b->cache, {b->inverse_frequency, 1}, 0, s->heads};
    set_step(b, 0, n);
    const double t = seconds_of(b->stream, [&](yalm_error *error) { return rope_append(&r, n, b->stream, error); });
    print(b, "rope-append", n == 1 ? "decode" : "prefill", n, t, heads * (8 * s->heads + 12 * s->kv), 6 * heads * s->heads);
}

static void time_attention(struct bench *b, int depth)
{
    const struct shape_arguments *s = &b->shape;
    const double keys = depth + 1.0, bytes = keys * s->kv * s->head_dim * 4;
    struct kv_cache cache;
    void *scratch = NULL;
    open_cache(b, &cache, enough_layers((size_t)bytes), depth + 1);
    const struct decode_plan plan = attention_decode_plan(&cache, s->heads, b->n_sms);
    take(reinterpret_cast<uint8_t **>(&scratch), plan.scratch_bytes);
    set_step(b, depth, 1);
    int turn = 0;
    const double t = seconds_of(b->stream, [&](yalm_error *error) {
        const struct attention a = {b->step, b->x, NULL, &cache, turn++ % cache.n_layers, s->heads};
        return attention_decode(&a, &plan, b->y, scratch, b->stream, error);
    });
    print(b, "attention", "decode", depth, t, bytes, keys * s->heads * s->head_dim * 4);
    cudaFree(cache.keys);
    cudaFree(cache.values);
    cudaFree(scratch);
}

static void time_sampling(struct bench *b)
{
    yalm_sampling sampling = {};
    sampling.temperature = 0.8f;
    sampling.top_k = 40;
    sampling.top_p = 0.95f;
    sampling.min_p = 0.05f;
    sampling.repeat_penalty = 1;
    const struct draw draw = {0, &sampling, NULL, 0, 0.5};
    float *noise = static_cast<float *>(malloc(b->shape.vocab * sizeof *noise)); // as logits are: few stand out
    for (int i = 0; i < b->shape.vocab; i++)
        noise[i] = -3 * logf((float)((i * 2654435761u >> 8 & 0xffff) + 1) / 65537);
    MUST_CUDA(cudaMemcpy(b->logits, noise, b->shape.vocab * sizeof *noise, cudaMemcpyHostToDevice));
    free(noise);
    struct sampled *sampled;
    MUST_CUDA(cudaHostAlloc(reinterpret_cast<void **>(&sampled), sizeof *sampled, cudaHostAllocDefault));
    const double t = seconds_of(b->stream, [&](yalm_error *error) {
        return sample(&draw, b->logits, b->shape.vocab, b->scratch, b->tokens, sampled, b->stream, error);
    });
    print(b, "sample", "decode", 1, t, 4.0 * b->shape.vocab, b->shape.vocab);
    cudaFreeHost(sampled);
}

// ------------------------------------------------------------------------------------------ many tokens

static void time_product(struct bench *b, const char *kernel, int rows, int cols, int n, bool add)
{
    const double t = seconds_of(b->stream, [&](yalm_error *error) {
        const struct matrix w = weights(b, rows, cols);
        return matmul_run(b->matmul, b->y, b->h, &w, NULL, n, add, b->stream, error);
    });
    print(b, kernel, "prefill", n, t,
          (double)rows * dtype_row_bytes(b->shape.dtype, cols) + n * (2.0 * cols + (add ? 8.0 : 4.0) * rows),
          2.0 * n * rows * cols);
}

// A few tokens, whose products are bound by reading the weights.
static void time_few(struct bench *b, int n)
{
    const struct shape_arguments *s = &b->shape;
    fill_elements(b->h, (size_t)n * widest(s) * sizeof(half), input_type(s->dtype));
    time_product(b, "q", s->heads * s->head_dim, s->dim, n, false);
    time_product(b, "k", s->kv * s->head_dim, s->dim, n, false);
    time_product(b, "gate", s->ffn, s->dim, n, false);
    time_product(b, "down", s->dim, s->ffn, n, true);
}

static void time_prefill(struct bench *b, int length)
{
    const struct shape_arguments *s = &b->shape;
    const int q = s->heads * s->head_dim, kv = s->kv * s->head_dim, n = length < CHUNK ? length : CHUNK;
    const enum dtype type = input_type(s->dtype);
    fill_elements(b->h, (size_t)n * widest(s) * sizeof(half), type); // not zeros, on which tensor cores run faster
    time_product(b, "q", q, s->dim, n, false);
    time_product(b, "k", kv, s->dim, n, false);
    time_product(b, "o", s->dim, q, n, true);
    time_product(b, "gate", s->ffn, s->dim, n, false);
    time_product(b, "down", s->dim, s->ffn, n, true);
    double t = seconds_of(
        b->stream, [&](yalm_error *error) { return rmsnorm(b->h, type, b->x, b->z, 1e-5f, n, s->dim, b->stream, error); });
    print(b, "rmsnorm", "prefill", n, t, 6.0 * n * s->dim, 4.0 * n * s->dim);
    t = seconds_of(b->stream, [&](yalm_error *error) {
        return gate_multiply(b->h, type, b->x, b->y, (size_t)n * s->ffn, b->stream, error);
    });
    print(b, "silu-multiply", "prefill", n, t, 10.0 * n * s->ffn, 6.0 * n * s->ffn);
    time_append(b, n);
    // The last chunk, which sees the most.
    const struct attention a = {b->step, b->x, NULL, &b->cache, 0, s->heads};
    set_step(b, length - n, n);
    t = seconds_of(b->stream, [&](yalm_error *error) { return attention_prefill(&a, n, b->h, type, b->stream, error); });
    const double pairs = (double)n * (length - n) + 0.5 * n * (n + 1.0);
    print(b, "attention", "prefill", length, t, 4.0 * length * kv + 6.0 * n * q, 4.0 * pairs * q);
}

// ------------------------------------------------------------------------------------------ main

int main(int argc, char **argv)
{
    struct bench b = {};
    if (!read_arguments(&b.shape, argc, argv, "cuda_kernels"))
        return YALM_USAGE;
    set_up(&b);
    const double copied = 1e-9 * b.pool_bytes / 2 * 2; // read and written
    const double copying = seconds_of(b.stream, [&](yalm_error *error) {
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
    for (int n : {2, 8})
        time_few(&b, n);
    for (int i = 0; i < b.shape.n_prompts; i++)
        time_prefill(&b, b.shape.prompts[i]);
    tear_down(&b);
    return 0;
}
