// Calibration: a text goes through the model in windows, the keys of all layers are recorded before their rotation, and the
// codebooks are learned from them by the backend.

#include "engine/calibrate.h"

#include <math.h>

#include "engine/session.h"
#include "util/checked.h"
#include "util/error.h"
#include "util/memory.h"

enum { DEFAULT_ITERATIONS = 25, DEFAULT_SAMPLES = 8192, MAX_ITERATIONS = 1000 };

struct calibration {
    yalm_session *session;
    const yalm_calibration *how;
    const int32_t *tokens;
    int n_tokens, n_samples; // samples: the windows' bos tokens count
    int window;
    int positions; // keys are rotated to positions below

    struct key_record record;
    int32_t *targets; // (n_samples)
    float *centroids;
    void *block;
    size_t bytes;
};

yalm_calibration yalm_calibration_defaults(void)
{
    return (yalm_calibration){
        .size = sizeof(yalm_calibration), .d_sub = 1, .samples = DEFAULT_SAMPLES, .iterations = DEFAULT_ITERATIONS};
}

static bool has_bos(const struct calibration *c)
{
    return c->how->bos && c->session->model->config.bos >= 0;
}

static yalm_status check(struct calibration *c, size_t n, yalm_error *error)
{
    const struct model_config *config = &c->session->model->config;
    const struct far_shape far = config_far(config);
    const yalm_calibration *how = c->how;
    const yalm_session_options *options = yalm_session_facts(c->session);
    if (error_of_size(how->size, sizeof *how, "yalm_calibration", error) != YALM_OK)
        return YALM_USAGE;
    if (!c->session->backend->record || !c->session->backend->learn)
        return error_set(error, YALM_USAGE, "calibration: found device %s, expected cpu", options->device);
    if (config->latent.kv_rank)
        return error_set(error, YALM_USAGE,
                         "calibration: this model keeps latents (MLA), which no attention method but dense serves");
    if ((how->d_sub != 1 && how->d_sub != 2 && how->d_sub != 4) || far.head_dim % how->d_sub != 0)
        return error_set(error, YALM_USAGE, "d_sub: found %d, expected 1, 2 or 4, a divisor of head_dim %d", how->d_sub,
                         far.head_dim);
    if (how->samples < CODEBOOK_CENTROIDS)
        return error_set(error, YALM_USAGE, "samples: found %d, expected %d or more", how->samples, CODEBOOK_CENTROIDS);
    if (how->iterations < 1 || how->iterations > MAX_ITERATIONS)
        return error_set(error, YALM_USAGE, "iterations of k-means: found %d, expected 1 to %d", how->iterations,
                         MAX_ITERATIONS);
    if (how->positions < 0)
        return error_set(error, YALM_USAGE, "positions: found %d, expected 1 or more (0: chosen)", how->positions);
    c->window = options->context;
    const int trained = config->context_length;
    c->positions = how->positions ? how->positions : options->context > trained ? options->context : trained;
    if (c->window < 2)
        return error_set(error, YALM_USAGE, "context: found %d, calibration needs 2 or more", c->window);
    // Every window, but perhaps the last, gives `window` samples.
    const int64_t inner = c->window - has_bos(c), whole = (int64_t)n / inner, rest = (int64_t)n % inner;
    const int64_t most = whole * c->window + (rest ? rest + has_bos(c) : 0);
    c->n_samples = (int)(most < how->samples ? most : how->samples);
    if (c->n_samples < CODEBOOK_CENTROIDS)
        return error_set(error, YALM_USAGE, "the calibration text: found %zu tokens, expected %d or more", n,
                         CODEBOOK_CENTROIDS);
    return YALM_OK;
}

static yalm_status allocate(struct calibration *c, yalm_error *error)
{
    const struct model_config *config = &c->session->model->config;
    const struct far_shape far = config_far(config);
    const size_t heads = (size_t)far.n_layers * far.n_kv_heads;
    uint64_t keys, bytes;
    const uint64_t centroids = heads * codebook_head_floats(config) * sizeof(float);
    if (!mul_checked(heads * (size_t)far.head_dim * sizeof(uint16_t), (uint64_t)c->n_samples, &keys) ||
        !add_checked(keys, centroids + (uint64_t)c->n_samples * sizeof(int32_t), &bytes) || bytes > memory_available())
        return error_set(error, YALM_NO_MEMORY,
                         "not enough memory for the keys of %d samples: needed %.2f GB, available %.2f GB", c->n_samples,
                         (double)heads * far.head_dim * 2.0 * c->n_samples / 1e9, (double)memory_available() / 1e9);
    c->bytes = bytes;
    c->block = memory_pages(bytes);
    if (!c->block)
        return error_set(error, YALM_NO_MEMORY, "the system refused %zu bytes for keys", c->bytes);
    c->centroids = c->block;
    c->targets = (int32_t *)((char *)c->block + centroids);
    c->record = (struct key_record){(uint16_t *)(c->targets + c->n_samples), c->n_samples, 0};
    return YALM_OK;
}

// splitmix64 (Steele, Lea and Flood, 2014)
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// Evaluates one window of n samples, whose first token is the text's token `at`; a bos before it.
static yalm_status record_window(struct calibration *c, int at, int n, yalm_error *error)
{
    const int32_t bos = c->session->model->config.bos;
    yalm_status status = yalm_rollback(c->session, 0, error);
    for (int i = 0, piece; i < n && status == YALM_OK; i += piece) {
        const int chunk = yalm_session_facts(c->session)->chunk;
        piece = i == 0 && has_bos(c) ? 1 : n - i < chunk ? n - i : chunk;
        const int32_t *tokens = i == 0 && has_bos(c) ? &bos : c->tokens + at + i - has_bos(c);
        status = yalm_eval(c->session, tokens, piece, YALM_LOGITS_NONE, error);
        if (c->how->progress)
            c->how->progress(c->how->context, "recording keys", (double)(c->record.first + i + piece) / c->n_samples);
    }
    return status;
}

// Keys at position 0, which bos never leaves, stay there; all others go anywhere in the context.
static yalm_status record_all(struct calibration *c, yalm_error *error)
{
    yalm_status status = YALM_OK;
    uint64_t random = c->how->seed ^ 0x6e6f6d61642d7031u;
    c->session->backend->record(c->session->state, &c->record);
    for (int at = 0, n; c->record.first < c->n_samples && status == YALM_OK; c->record.first += n, at += n - has_bos(c)) {
        const int left = c->n_samples - c->record.first;
        n = left < c->window ? left : c->window;
        status = record_window(c, at, n, error);
        for (int i = 0; i < n; i++)
            c->targets[c->record.first + i] =
                i == 0 && has_bos(c) ? 0 : (int32_t)(random_next(&random) % (uint64_t)c->positions);
    }
    c->session->backend->record(c->session->state, NULL);
    return status;
}

static yalm_status learn(struct calibration *c, yalm_error *error)
{
    const struct model_config *config = &c->session->model->config;
    const struct far_shape far = config_far(config);
    const yalm_calibration *how = c->how;
    const yalm_status status = c->session->backend->learn(c->session->state,
                                                          &(struct learning){.record = &c->record,
                                                                             .positions = c->targets,
                                                                             .n = c->n_samples,
                                                                             .d_sub = how->d_sub,
                                                                             .iterations = how->iterations,
                                                                             .seed = how->seed,
                                                                             .progress = how->progress,
                                                                             .context = how->context},
                                                          c->centroids, error);
    const size_t head = codebook_head_floats(config), n = (size_t)far.n_layers * far.n_kv_heads * head;
    for (size_t i = 0; i < n && status == YALM_OK; i++)
        if (!isfinite(c->centroids[i]))
            return error_set(error, YALM_FAILED, "calibration: the keys of layer %d, KV head %zu are not finite",
                             config_far_layer(config, (int)(i / head) / far.n_kv_heads), i / head % far.n_kv_heads);
    return status;
}

yalm_status yalm_calibrate(yalm_session *session, const int32_t *tokens, size_t n, const yalm_calibration *how,
                           const char *path, int *samples, yalm_error *error)
{
    const yalm_calibration defaults = yalm_calibration_defaults();
    struct calibration c = {.session = session, .how = how ? how : &defaults, .tokens = tokens};
    struct new_file writer = {0};
    yalm_status status = check(&c, n, error);
    if (status == YALM_OK)
        status = codebook_create(&writer, path, error); // first: a place that cannot be written to is better known at once
    status = status ?: allocate(&c, error);
    status = status ?: record_all(&c, error);
    status = status ?: learn(&c, error);
    if (status == YALM_OK)
        status = codebook_write(
            &writer,
            &(struct codebook){
                .d_sub = c.how->d_sub, .positions = c.positions, .samples = c.n_samples, .centroids = c.centroids},
            &c.session->model->container, &c.session->model->config, error);
    status = new_file_finish(&writer, status, error);
    memory_pages_free(c.block, c.bytes);
    if (status == YALM_INTERRUPTED)
        atomic_store(&c.session->cancel, false);
    if (status == YALM_OK && samples)
        *samples = c.n_samples;
    return status;
}
