#include "cuda/state.h"

#include "cuda/delta/recur.h"
#include "cuda/kernels/kv_rows.cuh"
#include "cuda/shares.h"
#include "cuda/step.h"
#include "cuda/upload.h"

#include <atomic>

enum { GRANULE = 512 }; // bytes that every block is rounded up to: the driver's own alignment

void *take_block(struct cuda_blocks *b, size_t count, size_t size)
{
    const size_t bytes = round_up(count * size, GRANULE);
    b->bytes += bytes;
    if (!b->taking || b->status != YALM_OK || bytes == 0)
        return NULL;
    void *block = NULL;
    b->status = cuda_check(cudaMalloc(&block, count * size), "cudaMalloc", b->error);
    if (b->status == YALM_OK)
        b->taken[b->n++] = block;
    return block;
}

static void take_kv(struct cuda_state *s, struct cuda_blocks *b)
{
    for (int kind = 0; kind < config_n_kinds(s->config); kind++) {
        const struct delta_config *delta = &s->config->kinds[kind].delta;
        const size_t carried = (size_t)CARRIED_PLACES * config_n_layers_of(s->config, kind);
        if (config_kind_recurs(s->config, kind)) {
            take(b, s->states[kind], carried * delta_state_floats(delta), sizeof(float));
            take(b, s->inputs[kind], carried * delta_input_floats(delta), sizeof(float));
            take(b, s->replays[kind], config_n_layers_of(s->config, kind) * replay_floats(delta), sizeof(float));
        }
        if (!config_kind_attends(s->config, kind))
            continue;
        struct kv_cache *c = &s->caches[kind];
        const size_t rows = (size_t)c->n_layers * c->n_kv_heads * c->policy.capacity, size = kv_element_bytes(c->type);
        take(b, c->keys, rows * c->head_dim, size);
        if (c->latent)
            c->values = c->keys;
        else
            take(b, c->values, rows * c->head_dim, size);
        if (c->type == YALM_KV_INT8) {
            take(b, c->key_scales, rows, sizeof(float));
            take(b, c->value_scales, rows, sizeof(float));
        }
    }
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

// What attention or a recurrent layer works on.
static void take_blocks(struct cuda_state *s, struct cuda_blocks *b)
{
    const int *width = s->recipe.width;
    const size_t chunk = s->chunk, q = chunk * width[BUFFER_Q], k = chunk * width[BUFFER_K], v = chunk * width[BUFFER_V];
    take(b, s->q, q + k + v, sizeof(float));
    s->k = s->q ? s->q + q : NULL;
    s->v = s->k ? s->k + k : NULL;
    take(b, s->rotated_q, chunk * s->q_dim, sizeof(float));
    take(b, s->attended, chunk * width[BUFFER_ATTENDED], sizeof(float));
    take(b, s->gates, chunk * width[BUFFER_GATES], sizeof(float));
    const auto mixed = [](const struct delta_config *d) { return delta_channels(d) - d->conv_dim; };
    take(b, s->mixed, chunk * config_most_of(s->config, mixed), sizeof(float));
    take(b, s->decays, chunk * width[BUFFER_DECAYS], sizeof(float));
    take(b, s->latent, chunk * width[BUFFER_LATENT], sizeof(float));
    take(b, s->heads, chunk * width[BUFFER_HEADS], sizeof(float));
    const size_t expanded = (size_t)s->expanded.n_kv_heads * s->expanded.policy.capacity * s->expanded.head_dim;
    take(b, s->expanded.keys, expanded, sizeof(half));
    take(b, s->expanded.values, expanded, sizeof(half));
    const auto heads = [](const struct delta_config *d) { return d->n_value_heads; };
    take(b, s->betas, chunk * config_most_of(s->config, heads), sizeof(float));
}

static int longest_half(const struct cuda_state *s)
{
    int longest = 0;
    for (int kind = 0; kind < config_n_kinds(s->config); kind++)
        longest = s->caches[kind].head_dim > longest ? s->caches[kind].head_dim : longest;
    return longest / 2;
}

static size_t n_ones(const struct cuda_state *s)
{
    return s->q_dim > s->config->hidden_dim ? s->q_dim : s->config->hidden_dim;
}

static void take_scratch(struct cuda_state *s, struct cuda_blocks *b)
{
    const struct model_config *c = s->config;
    const int *width = s->recipe.width;
    const size_t chunk = s->chunk, dim = c->hidden_dim, units = chunk * width[BUFFER_UNITS],
                 inputs = chunk * width[BUFFER_INPUTS];
    take(b, s->step, SEVERAL, sizeof *s->step);
    take(b, s->tokens, chunk, sizeof *s->tokens);
    if (c->pooling != POOLING_NONE || c->scores)
        take(b, s->texts, chunk, sizeof *s->texts);
    take(b, s->inverse_frequency, config_n_kinds(c) * (size_t)longest_half(s), sizeof(double));
    take(b, s->x, chunk * dim, sizeof(float));
    take(b, s->h, chunk * largest(dim, largest(width[BUFFER_LATENT], width[BUFFER_HEADS])), sizeof(float));
    if (s->recipe.traits & TRAIT_NORM_BEHIND || s->recipe.ops & 1u << OP_JOIN || s->group)
        take(b, s->branch, chunk * dim, sizeof(float));
    take_blocks(s, b);
    bool sinks = false;
    for (int kind = 0; kind < config_n_kinds(c); kind++)
        sinks |= s->caches[kind].policy.n_sinks > 0;
    if (sinks)
        take(b, s->sink_q, chunk * s->q_dim, sizeof(float));
    if (s->caches[0].type == YALM_KV_INT8 && key_offset_has(c, s->caches[s->far].policy.n_sinks))
        take(b, s->key_offsets, (size_t)c->n_layers * s->kv_dim, sizeof(float));
    if (c->guesses)
        take(b, s->given, chunk * dim, sizeof(float));
    take(b, s->gate, largest(units, inputs), sizeof(float));
    take(b, s->up, units, sizeof(float));
    take(b, s->gated, units, sizeof(float));
    take(b, s->layer_inputs, inputs, sizeof(float));
    if (s->recipe.ops & 1u << OP_JOIN)
        take(b, s->expert_sum, chunk * dim, sizeof(float));
    if (s->recipe.traits & (TRAIT_BARE | TRAIT_VALUES | TRAIT_WEIGHTED) || s->recipe.ops & 1u << OP_GATE_INPUT)
        take(b, s->ones, n_ones(s), sizeof(float));
    take(b, s->logits, s->vocab, sizeof(float));
    take(b, s->many_logits, (size_t)LOGITS_AT_ONCE * s->vocab, sizeof(float));
    shares_take(s, b);
    take(b, s->attention_scratch, s->attention_bytes, 1);
    if (c->n_experts)
        take(b, s->experts_scratch, experts_scratch_bytes(c, s->chunk), 1);
    take(b, s->sample_scratch, sample_scratch_bytes(s->vocab, s->caches[0].policy.context), 1);
    take(b, s->slab, s->slab_bytes, 1);
    take(b, s->sampled_token, 1, sizeof *s->sampled_token);
    step_take(s, b);
    if (s->method)
        method_take_scratch(s, b);
}

static void shape_kind(struct cuda_state *s, const struct backend_plan *plan, int kind)
{
    struct kv_cache *cache = &s->caches[kind];
    cache->type = plan->options->kv;
    cache->n_layers = config_kind_keeps(s->config, kind) ? config_n_layers_of(s->config, kind) : 0;
    cache->n_kv_heads = config_kind_kv_heads(s->config, kind);
    cache->head_dim = config_kind_head_dim(s->config, kind);
    cache->latent = s->config->latent.kv_rank > 0;
    cache->policy = plan->kv[kind];
    s->attention_plans[kind] = attention_decode_plan(cache, s->config->n_heads, s->device.n_sms);
    const size_t bytes = s->attention_plans[kind].scratch_bytes;
    s->attention_bytes = bytes > s->attention_bytes ? bytes : s->attention_bytes;
    const int q_dim = s->config->n_heads * cache->head_dim, kv_dim = cache->n_kv_heads * cache->head_dim;
    s->q_dim = q_dim > s->q_dim ? q_dim : s->q_dim;
    s->kv_dim = kv_dim > s->kv_dim ? kv_dim : s->kv_dim;
}

// Heads whose keys and values are made of latents together; none where that takes too much, or no pass would do it.
static void shape_expanded(struct cuda_state *s)
{
    static const size_t most_bytes = (size_t)256 << 20;
    const struct latent_config *d = &s->config->latent;
    const int width = d->nope_dim + d->rope_dim;
    if (!d->kv_rank || s->chunk <= SEVERAL || s->caches[0].type != YALM_KV_FP16 || d->v_dim > width || width % 2 ||
        width > ATTENTION_MAX_DIM)
        return;
    const size_t heads = most_bytes / (2 * sizeof(half) * width * s->caches[0].policy.capacity), all = s->config->n_heads;
    if (heads > 0)
        s->expanded = {YALM_KV_FP16, NULL, NULL, 1, (int)(heads < all ? heads : all), width, s->caches[0].policy};
}

// Everything but memory.
static yalm_status state_shape(struct cuda_state *s, const struct backend_plan *plan, const struct cuda_device *device,
                               yalm_error *error)
{
    const struct model_config *c = plan->config;
    static std::atomic<uint64_t> opened;
    *s = {};
    s->number = ++opened;
    s->config = c;
    s->group = plan->group;
    s->vocab = plan->weights->embedding.rows;
    s->device = *device;
    s->chunk = plan->options->chunk;
    s->several = plan->options->several || plan->options->mtp == YALM_MTP_ON; // whose hidden states one kernel does not keep
    carried_open(&s->carried);
    s->slab_bytes = s->chunk > 1 ? slab_bytes(c, plan->weights) : 0;
    s->far = config_far_kind(c);
    for (int kind = 0; kind < config_n_kinds(c); kind++)
        shape_kind(s, plan, kind);
    shape_expanded(s);
    if (!recipe_open(&s->recipe, c, plan->weights))
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    return method_plan(s, plan, error);
}

yalm_status cuda_state_bytes(const struct backend_plan *plan, const struct cuda_device *device, yalm_memory *memory,
                             yalm_error *error)
{
    struct cuda_state s;
    struct cuda_blocks kv = {}, kept = {}, scratch = {};
    const yalm_status status = state_shape(&s, plan, device, error);
    if (status == YALM_OK) {
        take_kv(&s, &kv);
        if (s.method)
            method_take_kept(&s, &kept);
        take_scratch(&s, &scratch);
        memory->kv_cache = kv.bytes;
        memory->attention = kept.bytes;
        memory->scratch = scratch.bytes + matmul_workspace_bytes();
    }
    method_close(&s);
    recipe_close(&s.recipe);
    return status;
}

// The model's weights, which the first session copies.
static yalm_status share_weights(struct cuda_state *s, const struct backend_plan *plan, yalm_error *error)
{
    pthread_mutex_lock(&plan->weights_copy->lock);
    yalm_status status = YALM_OK;
    if (!plan->weights_copy->data) {
        struct cuda_weights *weights = NULL;
        status = weights_upload(&weights, plan, error);
        plan->weights_copy->data = weights;
        plan->weights_copy->release = weights_release;
    }
    s->weights = static_cast<const struct cuda_weights *>(plan->weights_copy->data);
    pthread_mutex_unlock(&plan->weights_copy->lock);
    return status;
}

// key_offset() of all layers. frequencies: (kinds, head_dim / 2)
static yalm_status fill_key_offsets(struct cuda_state *s, const struct model_weights *weights, const double *frequencies,
                                    yalm_error *error)
{
    const struct model_config *c = s->config;
    const size_t n = (size_t)c->n_layers * s->kv_dim;
    float *offsets = static_cast<float *>(malloc(n * sizeof(float)));
    if (!offsets)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    for (int layer = 0; layer < c->n_layers; layer++) {
        const int kind = c->kind_of_layer[layer];
        if (!config_kind_attends(c, kind))
            continue;
        key_offset(offsets + (size_t)layer * s->kv_dim, weights->layers[layer].k_bias, c,
                   c->unrotated_layer[layer] ? NULL : frequencies + kind * (c->head_dim / 2), s->ropes[kind].scale);
    }
    const cudaError_t copied = cudaMemcpy(s->key_offsets, offsets, n * sizeof(float), cudaMemcpyHostToDevice);
    free(offsets);
    return cuda_check(copied, "cudaMemcpy", error);
}

static yalm_status fill_ones(struct cuda_state *s, yalm_error *error)
{
    const size_t n = n_ones(s);
    float *ones = static_cast<float *>(malloc(n * sizeof(float)));
    if (!ones)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    const cudaError_t copied = cudaMemcpy(s->ones, ones, n * sizeof(float), cudaMemcpyHostToDevice);
    free(ones);
    return cuda_check(copied, "cudaMemcpy", error);
}

static yalm_status state_fill(struct cuda_state *s, const struct model_weights *weights, yalm_error *error)
{
    const int half = longest_half(s), kinds = config_n_kinds(s->config);
    double *inverse_frequency = static_cast<double *>(malloc(kinds * half * sizeof(double)));
    if (!inverse_frequency)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    for (int kind = 0; kind < kinds; kind++) {
        s->ropes[kind].dims = config_kind_rotary(s->config, kind);
        s->ropes[kind].scale = rope_frequencies(inverse_frequency + kind * half, &s->config->kinds[kind].rope,
                                                s->ropes[kind].dims, s->caches[kind].policy.context);
        s->ropes[kind].inverse_frequency = s->inverse_frequency + kind * half;
    }
    const cudaError_t copied =
        cudaMemcpy(s->inverse_frequency, inverse_frequency, kinds * half * sizeof(double), cudaMemcpyHostToDevice);
    const yalm_status filled = s->key_offsets ? fill_key_offsets(s, weights, inverse_frequency, error) : YALM_OK;
    free(inverse_frequency);
    TRY(filled);
    TRY_CUDA(copied);
    TRY_CUDA(cudaMemset(s->attention_scratch, 0, s->attention_bytes));
    TRY_CUDA(cudaMemset(s->sample_scratch, 0, sample_scratch_bytes(s->vocab, s->caches[0].policy.context)));
    if (s->group)
        TRY_CUDA(cudaMemset(s->branch, 0, (size_t)s->chunk * s->config->hidden_dim * sizeof *s->branch));
    if (s->expert_sum)
        TRY_CUDA(cudaMemset(s->expert_sum, 0, (size_t)s->chunk * s->config->hidden_dim * sizeof *s->expert_sum));
    if (s->ones)
        TRY(fill_ones(s, error));
    TRY(step_open(s, error));
    TRY_CUDA(cudaDeviceSynchronize()); // the session's stream does not wait for these
    return YALM_OK;
}

static yalm_status state_take(struct cuda_state *s, const struct backend_plan *plan, yalm_error *error)
{
    TRY(share_weights(s, plan, error));
    recipe_close(&s->recipe); // which was the host's weights'
    if (!recipe_open(&s->recipe, s->config, &s->weights->weights))
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    TRY_CUDA(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    TRY_CUDA(cudaEventCreateWithFlags(&s->copied, cudaEventDisableTiming));
    TRY_CUDA(cudaEventCreateWithFlags(&s->passed, cudaEventDisableTiming));
    TRY_CUDA(cudaEventCreate(&s->step_began));
    TRY_CUDA(cudaEventCreate(&s->step_ended));
    TRY(matmul_open(&s->matmul, error));
    s->blocks.taking = true;
    s->blocks.error = error;
    take_kv(s, &s->blocks);
    if (s->method)
        method_take_kept(s, &s->blocks);
    take_scratch(s, &s->blocks);
    s->blocks.error = NULL;
    TRY(s->blocks.status);
    matmul_use_slab(s->matmul, s->slab, s->slab_bytes);
    TRY_CUDA(cudaHostAlloc(reinterpret_cast<void **>(&s->step_host), SEVERAL * sizeof *s->step_host, cudaHostAllocDefault));
    TRY_CUDA(
        cudaHostAlloc(reinterpret_cast<void **>(&s->tokens_host), s->chunk * sizeof *s->tokens_host, cudaHostAllocDefault));
    if (s->texts)
        TRY_CUDA(
            cudaHostAlloc(reinterpret_cast<void **>(&s->texts_host), s->chunk * sizeof *s->texts_host, cudaHostAllocDefault));
    TRY_CUDA(cudaHostAlloc(reinterpret_cast<void **>(&s->sampled), sizeof *s->sampled, cudaHostAllocDefault));
    TRY(state_fill(s, plan->weights, error));
    s->several = !s->method && !s->step_plan && !plan->group;
    return s->method ? method_open(s, plan, error) : YALM_OK;
}

yalm_status cuda_state_open(struct cuda_state **state, const struct backend_plan *plan, const struct cuda_device *device,
                            yalm_error *error)
{
    struct cuda_state *s = static_cast<struct cuda_state *>(malloc(sizeof *s));
    if (!s)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    yalm_status status = state_shape(s, plan, device, error);
    if (status == YALM_OK)
        status = state_take(s, plan, error);
    if (status == YALM_OK)
        *state = s;
    else
        cuda_state_close(s);
    return status;
}

void cuda_state_close(struct cuda_state *s)
{
    if (!s)
        return;
    if (s->stream)
        cudaStreamSynchronize(s->stream); // what is under way still uses what is freed here
    for (const struct step_forms &forms : s->decode)
        for (cudaGraphExec_t graph : forms.graphs)
            if (graph)
                cudaGraphExecDestroy(graph);
    turns_close(s);
    method_close(s);
    step_close(s);
    recipe_close(&s->recipe);
    matmul_close(s->matmul);
    for (int i = 0; i < s->blocks.n; i++)
        cudaFree(s->blocks.taken[i]);
    void *const pinned[] = {s->step_host, s->tokens_host, s->texts_host, s->sampled};
    for (void *p : pinned)
        if (p)
            cudaFreeHost(p);
    const cudaEvent_t events[] = {s->copied, s->passed, s->step_began, s->step_ended};
    for (cudaEvent_t event : events)
        if (event)
            cudaEventDestroy(event);
    if (s->stream)
        cudaStreamDestroy(s->stream);
    free(s);
}
