// Hybrid attention: keys are scored by their codes (codes.h), and selective.h does the rest.
//
// For each key and KV head it reads rows / 2 bytes of codes (64 at d = 128, d_sub = 1), and of selected ones key and value. The
// scores, 4 bytes for each query head, go through the L2 cache, which holds those of a layer at 128k (16.8 MB for 32 heads).
#include "cuda/attention/attention.cuh"
#include "cuda/long/method.h"

// What the further launches of a layer cost, in bytes that each multiprocessor could read meanwhile. On an H100 they take some
// 44 us (docs/attention.md), in which each of 132 could read 1 MB.
enum { STEP_BYTES = 1 << 20 };

// ------------------------------------------------------------------------------------------ sizes

// Of one KV head with n keys.
static double head_bytes(const struct cuda_state *s, int n)
{
    const struct cuda_hybrid *h = &s->method->hybrid;
    const int rows = hybrid_selected(&h->options, n);
    return n * codes_key_bytes(&h->codes) + (rows < n ? rows : n) * 2 * kv_row_bytes(far_cache(s));
}

static double hybrid_bytes(const struct cuda_state *s, int64_t position)
{
    const int sinks = policy_sinks_apart(far_cache(s)->policy, position) ? far_cache(s)->policy.n_sinks : 0;
    return far_cache(s)->n_kv_heads *
           (head_bytes(s, selective_n_keys(&far_cache(s)->policy, position)) + sinks * 2 * kv_row_bytes(far_cache(s)));
}

static yalm_status hybrid_check(const struct model_config *config, const yalm_session_options *options, yalm_error *error)
{
    struct hybrid hybrid;
    TRY(hybrid_resolve(&hybrid, options, error));
    const int d = config_far(config).head_dim;
    if (d > ATTENTION_MAX_DIM)
        return error_set(error, YALM_USAGE, "hybrid attention on the GPU: found heads of %d components, expected at most %d", d,
                         (int)ATTENTION_MAX_DIM);
    if (hybrid.codes > 0 && hybrid.codes < 1)
        return error_set(error, YALM_USAGE, "hybrid.codes: found %g: scores read all codes on the GPU (-d cpu does with fewer)",
                         (double)hybrid.codes);
    return YALM_OK;
}

static yalm_status hybrid_plan(struct cuda_state *s, const struct backend_plan *plan, yalm_error *error)
{
    struct cuda_hybrid *h = &s->method->hybrid;
    TRY(hybrid_resolve(&h->options, plan->options, error));
    TRY(codebook_find(&h->book, plan->options->codebooks, plan->container, s->config, error));
    codes_shape(&h->codes, far_cache(s)->n_layers, far_cache(s), h->book.d_sub);
    s->method->selective.drawn = h->options.draw != SWITCH_OFF;
    const double steps = (double)STEP_BYTES * s->device.n_sms / far_cache(s)->n_kv_heads; // of a KV head
    s->method->selective.from = h->options.from ? h->options.from : selective_break_even(s, head_bytes, steps);
    return YALM_OK;
}

static void take_kept(struct cuda_state *s, struct cuda_blocks *b)
{
    struct key_codes *c = &s->method->hybrid.codes;
    const size_t heads = (size_t)c->n_layers * c->n_kv_heads;
    take(b, c->codes, heads * codes_head_words(c), sizeof *c->codes);
    take(b, c->centroids, heads * c->head_dim * CODES_CENTROIDS, sizeof *c->centroids);
    take(b, c->tables, heads * codes_dims(c), sizeof *c->tables);
    take(b, c->ranges, heads * codes_dims(c), sizeof *c->ranges);
}

static void take_scratch(struct cuda_state *s, struct cuda_blocks *b)
{
    take(b, s->unrounded_k, (size_t)s->chunk * s->kv_dim, sizeof(float));
}

static yalm_status hybrid_open(struct cuda_state *s, const struct backend_plan *plan, yalm_error *error)
{
    (void)plan;
    struct cuda_hybrid *h = &s->method->hybrid;
    const struct key_codes *c = &h->codes;
    const size_t heads = (size_t)c->n_layers * c->n_kv_heads;
    if (heads > 0) {
        const size_t floats =
            (size_t)c->n_kv_heads * c->head_dim * CODES_CENTROIDS; // of a layer; the book has all ranks' heads
        for (int layer = 0; layer < c->n_layers; layer++)
            TRY_CUDA(cudaMemcpy(c->centroids + layer * floats, codebook_of(&h->book, s->config, layer, 0),
                                floats * sizeof(float), cudaMemcpyHostToDevice));
        TRY_CUDA(cudaMemset(c->codes, 0, heads * codes_head_words(c) * sizeof *c->codes));
        TRY_CUDA(cudaDeviceSynchronize());
        TRY(codes_tables(c, s->stream, error));
        TRY_CUDA(cudaStreamSynchronize(s->stream));
    }
    codebook_close(&h->book);
    return YALM_OK;
}

static void hybrid_close(struct cuda_state *s)
{
    codebook_close(&s->method->hybrid.book);
}

// ------------------------------------------------------------------------------------------ attending

static yalm_status hybrid_append(struct cuda_state *s, const struct attention *a, int n, yalm_error *error)
{
    const struct cuda_hybrid *h = &s->method->hybrid;
    return codes_append(&h->codes, a->layer, s->step, a->q ? s->unrounded_k : NULL, far_cache(s), a->layer, n, s->stream,
                        error);
}

// Nothing: the scores' kernel encodes the token's key, and makes its queries' bytes.
static yalm_status hybrid_prepare(struct cuda_state *s, const struct attention *a, yalm_error *error)
{
    (void)s, (void)a, (void)error;
    return YALM_OK;
}

static yalm_status hybrid_score(struct cuda_state *s, const struct attention *a, yalm_error *error)
{
    const struct cuda_hybrid *h = &s->method->hybrid;
    const struct cuda_selective *t = &s->method->selective;
    const struct codes_score score = {
        .step = s->step,
        .q = a->q,
        .sink_q = a->sink_q,
        .key = s->unrounded_k,
        .cache = far_cache(s),
        .layer = a->layer,
        .cache_layer = a->layer,
        .n_heads = a->n_heads,
        .scores = t->scores,
        .part_stats = t->part_stats,
        .sink_scores = t->sink_scores,
        .ld = t->ld,
        .n_parts = t->n_parts,
    };
    return codes_score(&h->codes, &score, s->device.n_sms, s->stream, error);
}

static struct choice hybrid_choice(const struct cuda_state *s, int n_keys)
{
    const struct hybrid *h = &s->method->hybrid.options;
    const int k = hybrid_selected(h, n_keys);
    struct choice choice = {};
    choice.k = k;
    choice.first = h->first;
    choice.local = hybrid_local(h, k);
    return choice;
}

// By name, as the backend's table: functions may come to stand between these.
static struct cuda_method_table make_method(void)
{
    struct cuda_method_table m = {};
    m.name = "hybrid";
    m.check = hybrid_check;
    m.plan = hybrid_plan;
    m.take_kept = take_kept;
    m.take_scratch = take_scratch;
    m.open = hybrid_open;
    m.close = hybrid_close;
    m.append = hybrid_append;
    m.prepare = hybrid_prepare;
    m.score = hybrid_score;
    m.choice = hybrid_choice;
    m.bytes = hybrid_bytes;
    return m;
}

const struct cuda_method_table method_hybrid = make_method();
