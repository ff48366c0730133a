// Times decode attention of one layer at long contexts, kernel by kernel: dense on each type of cache, and by the methods
// that select keys (src/cuda/long/selective.h).
//
//     cuda_methods NAME=VALUE…
//     name=TEXT heads=N kv=N head_dim=N depths=32768,65536,131072
//
// One JSON object a line, as cuda_kernels': "kernel" is "dense fp16", "sparq: score" and so on, "sparq: layer" all of a
// layer's steps together. Bytes are what must be read and written once. Several layers are gone through in turn, as by a
// model, so that the L2 cache holds none of them.
#include "cuda/long/method.h"
#include "cuda_timing.h"
#include "read_arguments.h"

static const double most_bytes = 24e9; // of all layers together, and at most half of what is free

struct bench {
    struct shape_arguments shape;
    struct matmul *matmul;
    yalm_limits limits;
    struct model_config config;
    struct cuda_state s; // as far as attention needs it
    yalm_error error;    // of its blocks
    float *q, *keys, *attended;
    int turn;
};

// ------------------------------------------------------------------------------------------ memory

// Layers whose keys and values, `row` bytes each for every key and KV head, are beyond the L2 cache and within memory. At
// least one.
static int layers_for(const struct bench *b, int n_keys, double row)
{
    size_t available = 0, total = 0;
    MUST_CUDA(cudaMemGetInfo(&available, &total));
    const double layer = 2.0 * n_keys * b->shape.kv * row, room = most_bytes < 0.5 * available ? most_bytes : 0.5 * available;
    const int wanted = enough_layers((size_t)(layer / 8)), fit = (int)(room / layer); // a method may read an eighth
    return fit < 1 ? 1 : wanted < fit ? wanted : fit;
}

static void open_depth(struct bench *b, yalm_kv type, int depth)
{
    struct cuda_state *s = &b->s;
    const struct shape_arguments *shape = &b->shape;
    const double row = shape->head_dim * (type == YALM_KV_INT8 ? 1.0 : 2.0);
    const int n_keys = depth + 1;
    b->turn = 0;
    b->config.n_layers = layers_for(b, n_keys, row);
    s->blocks = {};
    s->blocks.taking = true;
    s->blocks.error = &b->error;
    s->caches[0] = {};
    s->caches[0].type = type;
    s->caches[0].n_layers = b->config.n_layers;
    s->caches[0].n_kv_heads = shape->kv;
    s->caches[0].head_dim = shape->head_dim;
    s->caches[0].policy = {n_keys, false, n_keys, 0, n_keys};
    const size_t rows = (size_t)s->caches[0].n_layers * shape->kv * n_keys;
    take(&s->blocks, s->caches[0].keys, rows, (size_t)row);
    take(&s->blocks, s->caches[0].values, rows, (size_t)row);
    if (type == YALM_KV_INT8) {
        take(&s->blocks, s->caches[0].key_scales, rows, sizeof(float));
        take(&s->blocks, s->caches[0].value_scales, rows, sizeof(float));
    }
    s->attention_plans[0] = attention_decode_plan(&s->caches[0], shape->heads, s->device.n_sms);
    take(&s->blocks, s->attention_scratch, s->attention_plans[0].scratch_bytes, 1);
}

// What was taken is there; the cache is filled.
static void fill_depth(struct bench *b, int depth)
{
    struct cuda_state *s = &b->s;
    must(s->blocks.status, &b->error);
    MUST_CUDA(cudaMemset(s->attention_scratch, 0, s->attention_plans[0].scratch_bytes));
    MUST(fill_noise(&s->caches[0], 0, depth + 1, 1, s->stream, error));
    const struct evaluation step = {depth, 1, 0};
    MUST_CUDA(cudaMemcpy(s->step, &step, sizeof step, cudaMemcpyHostToDevice));
    MUST_CUDA(cudaStreamSynchronize(s->stream));
}

static void close_depth(struct bench *b)
{
    MUST_CUDA(cudaStreamSynchronize(b->s.stream));
    for (int i = 0; i < b->s.blocks.n; i++)
        cudaFree(b->s.blocks.taken[i]);
    method_close(&b->s);
}

static struct attention next_layer(struct bench *b)
{
    return {b->s.step, b->q, NULL, &b->s.caches[0], b->turn++ % b->config.n_layers, b->shape.heads};
}

static void print(const struct bench *b, const char *kernel, int depth, double seconds, double bytes)
{
    const double gb = 1e-9 * bytes / seconds;
    printf(
        "{\"model\": \"%s\", \"kernel\": \"%s\", \"phase\": \"attention\", \"length\": %d, \"seconds\": %.4e, \"bytes\": %.6e, "
        "\"ops\": 0, \"gb_per_s\": %.1f, \"of_read\": %.4f, \"gop_per_s\": 0, \"of_matrix\": 0}\n",
        b->shape.name, kernel, depth, seconds, bytes, gb, gb / b->limits.read_gb_per_s);
    fflush(stdout);
}

// ------------------------------------------------------------------------------------------ dense

static void time_dense(struct bench *b, yalm_kv type, int depth)
{
    struct cuda_state *s = &b->s;
    open_depth(b, type, depth);
    fill_depth(b, depth);
    const double t = seconds_of(s->stream, [&](yalm_error *error) {
        const struct attention a = next_layer(b);
        return attention_decode(&a, &s->attention_plans[0], b->attended, s->attention_scratch, s->stream, error);
    });
    print(b, type == YALM_KV_INT8 ? "dense int8" : "dense fp16", depth, t,
          2.0 * (depth + 1) * b->shape.kv * kv_row_bytes(&s->caches[0]));
    close_depth(b);
}

// ------------------------------------------------------------------------------------------ methods

// Memory of a method that is planned, and the cache's content.
static void take_method(struct bench *b, int depth)
{
    struct cuda_state *s = &b->s;
    method_take_kept(s, &s->blocks);
    method_take_scratch(s, &s->blocks);
    fill_depth(b, depth);
    MUST(selective_open(s, error));
}

// The method's copies or codes of all keys.
static void append_all(struct bench *b, int depth)
{
    struct cuda_state *s = &b->s;
    const struct evaluation all = {0, depth + 1, 0};
    MUST_CUDA(cudaMemcpy(s->step, &all, sizeof all, cudaMemcpyHostToDevice));
    for (int layer = 0; layer < b->config.n_layers; layer++) {
        const struct attention a = {s->step, NULL, NULL, &s->caches[0], layer, b->shape.heads};
        MUST(method_append(s, &a, depth + 1, error));
    }
    MUST_CUDA(cudaStreamSynchronize(s->stream));
}

// Steps of a layer one by one, then together. The running sums come to the last token first, as they would be.
static void time_steps(struct bench *b, int depth, double score_bytes)
{
    struct cuda_state *s = &b->s;
    const int n_keys = selective_n_keys(&s->caches[0].policy, depth);
    struct evaluation step = {};
    step.position = depth;
    step.n = 1;
    step.choice = method_choice(s, depth);
    MUST_CUDA(cudaMemcpy(s->step, &step, sizeof step, cudaMemcpyHostToDevice));
    MUST(method_begin(s, true, error));
    const double keys = (double)n_keys * b->shape.kv, scores = 4.0 * n_keys * b->shape.heads;
    const struct {
        const char *name;
        double bytes;
    } steps[] = {
        {"prepare", 4.0 * s->q_dim},
        {"score", keys * score_bytes + scores},
        {"select", scores + 8 * keys}, // weights are written and read
        {"gather", 2.0 * (step.choice.k < n_keys ? step.choice.k : n_keys) * b->shape.kv * kv_row_bytes(&s->caches[0])},
        {"layer", method_bytes(s, depth)},
    };
    for (int i = 0; i < 5; i++) {
        const double t = seconds_of(s->stream, [&](yalm_error *error) {
            const struct attention a = next_layer(b);
            return i == 0   ? s->method->table->prepare(s, &a, error)
                   : i == 1 ? s->method->table->score(s, &a, error)
                   : i == 2 ? selective_select(s, &a, error)
                   : i == 3 ? selective_gather(s, &a, b->attended, error)
                            : method_attend(s, &a, b->attended, error);
        });
        char name[64];
        snprintf(name, sizeof name, "%s: %s", s->method->table->name, steps[i].name);
        print(b, name, depth, t, steps[i].bytes);
    }
}

static void time_sparq(struct bench *b, int depth)
{
    struct cuda_state *s = &b->s;
    yalm_session_options options = {};
    options.attention = "sparq";
    options.attention_ratio = 0.125f;
    struct backend_plan plan = {};
    plan.config = &b->config;
    plan.options = &options;
    open_depth(b, YALM_KV_FP16, depth);
    MUST(method_plan(s, &plan, error));
    take_method(b, depth);
    append_all(b, depth);
    time_steps(b, depth, s->method->sparq.copy == SPARQ_COPY_INT8 ? s->method->sparq.r + 4.0 : 2.0 * s->method->sparq.r);
    close_depth(b);
}

// With codebooks for keys of noise: centroids evenly spread over [-1, 1].
static void time_hybrid(struct bench *b, int depth)
{
    struct cuda_state *s = &b->s;
    yalm_session_options options = {};
    open_depth(b, YALM_KV_FP16, depth);
    s->method = static_cast<struct cuda_method *>(calloc(1, sizeof *s->method));
    s->method->table = &method_hybrid;
    selective_plan(s);
    struct cuda_hybrid *h = &s->method->hybrid;
    MUST(hybrid_resolve(&h->options, &options, error));
    s->method->selective.drawn = true;
    codes_shape(&h->codes, b->config.n_layers, &s->caches[0], 1);
    take_method(b, depth);
    const size_t heads = (size_t)b->config.n_layers * b->shape.kv, floats = heads * b->shape.head_dim * CODES_CENTROIDS;
    float *centroids = static_cast<float *>(malloc(floats * sizeof *centroids));
    for (size_t i = 0; i < floats; i++)
        centroids[i] = (2.0f * (i % CODES_CENTROIDS) - 15) / 16;
    MUST_CUDA(cudaMemcpy(h->codes.centroids, centroids, floats * sizeof *centroids, cudaMemcpyHostToDevice));
    free(centroids);
    MUST_CUDA(cudaMemset(h->codes.codes, 0, heads * codes_head_words(&h->codes) * sizeof *h->codes.codes));
    MUST_CUDA(cudaMemset(s->unrounded_k, 0,
                         s->kv_dim * sizeof *s->unrounded_k)); // the token's own key, on which the time does not depend
    MUST_CUDA(cudaDeviceSynchronize());                        // the stream does not wait for these
    MUST(codes_tables(&h->codes, s->stream, error));
    append_all(b, depth);
    time_steps(b, depth, codes_key_bytes(&h->codes));
    close_depth(b);
}

// ------------------------------------------------------------------------------------------ main

static void set_up(struct bench *b)
{
    struct cuda_state *s = &b->s;
    const struct shape_arguments *shape = &b->shape;
    const size_t q = (size_t)shape->heads * shape->head_dim;
    MUST_CUDA(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    MUST(matmul_open(&b->matmul, error));
    b->limits = measure_limits(s->stream, b->matmul, 0.6, &s->device.n_sms);
    printf("{\"limits\": {\"read_gb_per_s\": %.1f}}\n", b->limits.read_gb_per_s);
    b->config.n_heads = shape->heads;
    b->config.n_kv_heads = shape->kv;
    b->config.head_dim = shape->head_dim;
    s->config = &b->config;
    s->q_dim = (int)q;
    s->kv_dim = shape->kv * shape->head_dim;
    s->chunk = 1;
    take(&s->step, sizeof *s->step);
    take(&b->attended, q * sizeof(float));
    take(&b->q, q * sizeof(float));
    float *queries = static_cast<float *>(malloc(q * sizeof *queries));
    uint64_t state = 1;
    for (size_t i = 0; i < q; i++)
        queries[i] = 3 * noise_float(&state) / sqrtf((float)shape->head_dim);
    MUST_CUDA(cudaMemcpy(b->q, queries, q * sizeof *queries, cudaMemcpyHostToDevice));
    free(queries);
}

static void tear_down(struct bench *b)
{
    cudaFree(b->s.step);
    cudaFree(b->attended);
    cudaFree(b->q);
    matmul_close(b->matmul);
    cudaStreamDestroy(b->s.stream);
}

int main(int argc, char **argv)
{
    static struct bench b;
    if (!read_arguments(&b.shape, argc, argv, "cuda_methods"))
        return YALM_USAGE;
    set_up(&b);
    for (int i = 0; i < b.shape.n_depths; i++) {
        time_dense(&b, YALM_KV_FP16, b.shape.depths[i]);
        time_dense(&b, YALM_KV_INT8, b.shape.depths[i]);
        time_sparq(&b, b.shape.depths[i]);
        time_hybrid(&b, b.shape.depths[i]);
    }
    tear_down(&b);
    return 0;
}
