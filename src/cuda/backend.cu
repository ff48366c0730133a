// The CUDA backend: the device, and the table of functions that a session calls.
#include "cuda/limits.h"
#include "cuda/rows.h"
#include "cuda/shares.h"
#include "cuda/state.h"
#include "cuda/upload.h"

#include <sched.h>

enum {
    LEAST_CAPABILITY = 80, // bfloat16 on tensor cores, asynchronous copies
    DEFAULT_CHUNK = 2048,  // tokens: the products' weights are then read seldom enough not to count
    MAX_CHUNK = 1 << 14,
    MAX_COPY_THREADS = 8,
    MAX_VOCAB = 1 << 18, // of sampling (sample.cu)
};

// What the driver and its contexts want beside a session's own: kernels are loaded when they are first used.
static const size_t reserve = (size_t)256 << 20;

// ------------------------------------------------------------------------------------------ the device

// This machine's first GPU, or of a group's rank its own, which this thread uses from then on. (Rank 0, which alone has
// several, has the first.)
static yalm_status find_device(struct cuda_device *device, const struct yalm_group *group, yalm_error *error)
{
    int driver = 0, runtime = 0, n = 0, gpu = 0, major = 0, minor = 0;
    *device = {};
    TRY_CUDA(cudaRuntimeGetVersion(&runtime));
    TRY_CUDA(cudaDriverGetVersion(&driver));
    if (driver == 0)
        return error_set(error, YALM_FAILED, "device cuda: no NVIDIA driver is installed");
    if (driver / 1000 < runtime / 1000) // within a major version newer programs run on older drivers
        return error_set(error, YALM_FAILED, "device cuda: the NVIDIA driver runs CUDA %d.%d, this build needs %d.0 or later",
                         driver / 1000, driver % 1000 / 10, runtime / 1000);
    const cudaError_t counted = cudaGetDeviceCount(&n);
    if (counted == cudaErrorNoDevice || (counted == cudaSuccess && n == 0))
        return error_set(error, YALM_FAILED, "device cuda: the driver finds no GPU (CUDA_VISIBLE_DEVICES can hide them)");
    TRY_CUDA(counted);
    if (group) {
        TRY(shares_choose_gpu(group, n, &gpu, error));
        TRY_CUDA(cudaSetDevice(gpu));
    }
    cudaDeviceProp properties;
    TRY_CUDA(cudaGetDeviceProperties(&properties, gpu));
    TRY_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu));
    TRY_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu));
    TRY_CUDA(cudaDeviceGetAttribute(&device->n_sms, cudaDevAttrMultiProcessorCount, gpu));
    snprintf(device->name, sizeof device->name, "%s", properties.name);
    device->capability = 10 * major + minor;
    device->driver = driver;
    if (device->capability < LEAST_CAPABILITY)
        return error_set(error, YALM_FAILED, "device cuda: %s has compute capability %d.%d, %d.%d or later is needed",
                         device->name, major, minor, LEAST_CAPABILITY / 10, LEAST_CAPABILITY % 10);
    return YALM_OK;
}

// ------------------------------------------------------------------------------------------ what it can run

static int usable_cores(void)
{
    cpu_set_t set;
    const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < MAX_COPY_THREADS ? n : MAX_COPY_THREADS;
}

// The model's steps; of a rank's share what has been tried with several.
static yalm_status check_steps(const struct model_config *config, const struct model_weights *weights, yalm_error *error)
{
    const unsigned alone = 1u << OP_RECUR | 1u << OP_CONVOLVE | 1u << OP_GATE | 1u << OP_WEIGH | 1u << OP_SCALE |
                           1u << OP_MIX_INPUTS | 1u << OP_HEADS;
    const struct recipe outline = recipe_outline(config, weights);
    if (!config->all_heads || (!(outline.ops & alone) && !(outline.traits & (TRAIT_OTHERS_KEYS | TRAIT_WIDTH | TRAIT_VALUES))))
        return YALM_OK;
    return error_set(error, YALM_USAGE,
                     "device cuda: ranks on GPUs do not share latents, recurrent layers, gated outputs, or layers with heads "
                     "or inputs of their own (-d cpu does)");
}

static yalm_status cuda_resolve(const struct model_config *config, const struct model_weights *weights,
                                yalm_session_options *options, yalm_error *error)
{
    if (strcmp(options->isa, "auto") != 0 && strcmp(options->isa, "cuda") != 0)
        return error_set(error, YALM_USAGE, "isa: found '%s': instruction sets are the CPU's (-d cpu)", options->isa);
    if (options->activations > YALM_ACTIVATIONS_INT16)
        return error_set(error, YALM_USAGE, "device cuda: activations %s are the CPU's (-d cpu)",
                         options->activations == YALM_ACTIVATIONS_INT8 ? "int8" : "fp32");
    if (options->exact)
        return error_set(error, YALM_USAGE, "device cuda: exact bits are the CPU's (-d cpu)");
    TRY(check_steps(config, weights, error));
    for (int kind = 0; kind < config_n_kinds(config); kind++)
        if (config->kinds[kind].delta.key_dim > MAX_KEY_DIM)
            return error_set(error, YALM_USAGE,
                             "device cuda: recurrent layers whose heads have keys of %d do not run on the GPU, only up to %d "
                             "(-d cpu runs them)",
                             config->kinds[kind].delta.key_dim, MAX_KEY_DIM);
    for (int kind = 0; kind < config_n_kinds(config); kind++)
        if (config_kind_head_dim(config, kind) > attention_most_dim(config->latent.kv_rank))
            return error_set(error, YALM_USAGE,
                             "device cuda: heads of %d components do not run on the GPU, only up to %d (-d cpu runs them)",
                             config_kind_head_dim(config, kind), attention_most_dim(config->latent.kv_rank));
    TRY(method_check(config, weights, options, error));
    const int vocab = weights->embedding.rows; // of all ranks
    if (vocab > MAX_VOCAB)
        return error_set(error, YALM_USAGE,
                         "device cuda: a vocabulary of %d does not run on the GPU, only up to %d (-d cpu runs it)", vocab,
                         MAX_VOCAB);
    options->isa = "cuda";
    options->activations = YALM_ACTIVATIONS_INT16;
    if (options->n_threads == 0)
        options->n_threads = usable_cores();
    if (options->n_threads_batch == 0)
        options->n_threads_batch = options->n_threads;
    const int most = config->bidirectional ? MAX_CHUNK : DEFAULT_CHUNK; // such texts are read at once
    if (config->bidirectional && options->chunk == 0 && options->context > most)
        return error_set(error, YALM_USAGE,
                         "context: found %d, but the GPU reads texts of up to %d tokens (-d cpu reads longer ones)",
                         options->context, most);
    if (options->chunk == 0)
        options->chunk = options->context < most ? options->context : most;
    if (options->chunk > MAX_CHUNK)
        return error_set(error, YALM_USAGE, "chunk: found %d, expected at most %d on the GPU", options->chunk, MAX_CHUNK);
    return YALM_OK;
}

static yalm_status cuda_memory(const struct backend_plan *plan, yalm_memory *memory, yalm_error *error)
{
    struct cuda_device device;
    size_t available = 0, total = 0;
    TRY(find_device(&device, plan->group, error));
    TRY_CUDA(cudaMemGetInfo(&available, &total));
    TRY(cuda_state_bytes(plan, &device, memory, error));
    memory->weights = weights_bytes(plan->config, plan->weights);
    const size_t kept = plan->group ? 2 * reserve : reserve; // NCCL has buffers, too
    memory->available = available > kept ? available - kept : 0;
    pthread_mutex_lock(&plan->weights_copy->lock);
    if (plan->weights_copy->data)
        memory->available += memory->weights;
    pthread_mutex_unlock(&plan->weights_copy->lock);
    return YALM_OK;
}

// ------------------------------------------------------------------------------------------ sessions

static void *open_state(const struct backend_plan *plan, yalm_error *error)
{
    struct cuda_device device;
    struct cuda_state *state = NULL;
    if (find_device(&device, plan->group, error) != YALM_OK || cuda_state_open(&state, plan, &device, error) != YALM_OK)
        return NULL;
    return state;
}

static void close_state(void *state)
{
    cuda_state_close(static_cast<struct cuda_state *>(state));
}

static void cuda_describe(const void *state, char *text, size_t room)
{
    const struct cuda_state *s = static_cast<const struct cuda_state *>(state);
    const struct cuda_device *d = &s->device;
    snprintf(text, room, "%s, sm_%d, driver for CUDA %d.%d%s", d->name, d->capability, d->driver / 1000, d->driver % 1000 / 10,
             s->step_plan ? ", one kernel a token" : "");
}

static yalm_status cuda_evaluate(void *state, const struct batch *batch, yalm_error *error)
{
    struct cuda_state *s = static_cast<struct cuda_state *>(state);
    yalm_status status = cuda_forward(s, batch, error);
    if (status == YALM_OK)
        status = shares_wait(s, error);
    if (status != YALM_OK)
        shares_give_up(s);
    return status;
}

// Not of a group's ranks, whose table (engine/ranks.c) has no such function.
static yalm_status cuda_evaluate_together(void *const *states, const struct batch *batches, int n, const struct backend_plan *,
                                          yalm_error *error)
{
    return cuda_forward_together(states, batches, n, error);
}

static int most_apart(const void *state)
{
    return cuda_most_apart(static_cast<const struct cuda_state *>(state));
}

static bool cuda_holds(const void *state, int64_t position)
{
    return carried_holds(&static_cast<const struct cuda_state *>(state)->carried, position);
}

static yalm_status cuda_fill_random(void *state, int64_t position, int n, uint64_t seed, yalm_error *error)
{
    return cuda_fill(static_cast<struct cuda_state *>(state), position, n, seed, error);
}

static double cuda_step_bytes(const void *state, int n, int64_t position)
{
    const struct cuda_state *s = static_cast<const struct cuda_state *>(state);
    const bool selects = method_applies(s, n, position);
    double bytes = selects ? s->caches[s->far].n_layers * method_bytes(s, position) : 0;
    for (int kind = 0; kind < config_n_kinds(s->config); kind++) {
        const struct kv_cache *cache = &s->caches[kind];
        if (config_kind_recurs(s->config, kind))
            bytes += config_n_layers_of(s->config, kind) * delta_bytes(&s->config->kinds[kind].delta);
        if (!config_kind_attends(s->config, kind))
            continue;
        if (selects && kind == s->far)
            continue;
        const int64_t first = policy_first_visible(cache->policy, position), last = position + n;
        const int sinks = policy_sinks_apart(cache->policy, last - 1) ? cache->policy.n_sinks : 0;
        bytes += (double)config_cached_rows(s->config) * config_n_layers_of(s->config, kind) * cache->n_kv_heads *
                 kv_row_bytes(cache) * (double)(last - first + sinks);
    }
    return bytes;
}

static yalm_status cuda_measure_limits(void *state, double seconds, yalm_limits *limits, yalm_error *error)
{
    const struct cuda_state *s = static_cast<struct cuda_state *>(state);
    return limits_measure(&s->device, s->matmul, s->stream, seconds, limits, error);
}

static yalm_status cuda_finish(void *state, yalm_error *error)
{
    TRY_CUDA(cudaStreamSynchronize(static_cast<struct cuda_state *>(state)->stream));
    return YALM_OK;
}

static yalm_status cuda_fetch(void *state, int row, float *logits, yalm_error *error)
{
    struct cuda_state *s = static_cast<struct cuda_state *>(state);
    if (s->fetched == logits)
        return YALM_OK;
    TRY_CUDA(cudaMemcpyAsync(logits, s->last_logits + (size_t)row * s->vocab, s->vocab * sizeof(float), cudaMemcpyDeviceToHost,
                             s->stream));
    TRY_CUDA(cudaStreamSynchronize(s->stream));
    s->fetched = logits;
    return YALM_OK;
}

static yalm_status cuda_sample(void *state, const struct draw *draw, int32_t *token, float *logit, yalm_error *error)
{
    struct cuda_state *s = static_cast<struct cuda_state *>(state);
    TRY(sample(draw, s->last_logits + (size_t)draw->row * s->vocab, s->vocab, s->sample_scratch, s->sampled_token, s->sampled,
               s->stream, error));
    TRY_CUDA(cudaStreamSynchronize(s->stream));
    *token = s->sampled->token;
    *logit = s->sampled->logit;
    return YALM_OK;
}

static yalm_status cuda_join(void *state, const void *invitation, yalm_error *error)
{
    return shares_join(static_cast<struct cuda_state *>(state), invitation, error);
}

// By name: the table grows. Functions that stay NULL belong to what this backend refuses or has no use for.
static struct backend make_backend(void)
{
    struct backend b = {};
    b.name = "cuda";
    b.own_memory = true;
    b.resolve = cuda_resolve;
    b.memory = cuda_memory;
    b.open = open_state;
    b.close = close_state;
    b.describe = cuda_describe;
    b.evaluate = cuda_evaluate;
    b.evaluate_together = cuda_evaluate_together;
    b.most_apart = most_apart;
    b.holds = cuda_holds;
    b.fill_random = cuda_fill_random;
    b.each_row = cuda_each_row;
    b.step_bytes = cuda_step_bytes;
    b.measure_limits = cuda_measure_limits;
    b.finish = cuda_finish;
    b.fetch = cuda_fetch;
    b.sample = cuda_sample;
    b.invite = shares_invite;
    b.join = cuda_join;
    return b;
}

static const struct backend backend_cuda = make_backend();

// What the engine looks up in this library (engine/cuda_open.c): the backend, or why this machine cannot run it.
extern "C" YALM_API const struct backend *yalm_cuda_backend(yalm_error *error)
{
    struct cuda_device device;
    return find_device(&device, NULL, error) == YALM_OK ? &backend_cuda : NULL;
}
