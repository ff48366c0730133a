// Weights go from the file's pages to the device through pinned memory, which the copy engine reads without the processor's
// help: while it drains one buffer, threads fill another. One thread copies out of the page cache at a fraction of what the bus
// takes, so each buffer is filled by several, a slice each.
#include "cuda/shares.h"
#include "cuda/upload.h"

#include <pthread.h>
#include <sys/mman.h>

enum { N_BUFFERS = 2, MAX_THREADS = 16, ALIGNMENT = 256 };
static const size_t most_buffer_bytes = (size_t)64 << 20;

// ------------------------------------------------------------------------------------------ what goes where

// A matrix of a type that has no kernels here: bf12 becomes bfloat16, and what GGUF's blocks became fp16, rounded to its 11
// bits. `cols` is 0 where the tensor stays as it is.
struct unpacked {
    enum dtype type;
    int rows, cols;
};

#define DEVICE_CASE(TYPE, type, name) case DTYPE_##TYPE:
static enum dtype type_in_block(enum dtype type)
{
    switch (type) {
        DEVICE_QUANT_TYPES(DEVICE_CASE, )
        return type;
    case DTYPE_BF12:
        return DTYPE_BF16;
    default:
        return dtype_group_bytes[type] ? DTYPE_FP16 : type;
    }
}

// A tensor: where it lies in the mapping, and in the block.
struct upload_piece {
    const uint8_t *from;
    size_t bytes, at; // in the block
    struct unpacked unpacked;
};

// What is copied whole: a row of what is unpacked, or a byte.
static size_t unit_in_block(const struct unpacked *u)
{
    return u->cols ? u->cols * sizeof(uint16_t) : 1;
}
static size_t unit_in_file(const struct unpacked *u)
{
    return u->cols ? dtype_row_bytes(u->type, u->cols) : 1;
}

struct layout {
    uint8_t *base;               // NULL: sizes only
    struct upload_piece *pieces; // (n), owned
    int n, room;
    size_t bytes;
    bool failed; // out of memory
};

// Gives the tensor a place with room for `extra` bytes behind it, and makes the pointer that one.
template <typename T>
static void place(struct layout *l, T *&pointer, uint64_t bytes, uint64_t extra = 0, struct unpacked unpacked = {})
{
    if (!pointer)
        return;
    if (l->n == l->room) {
        const int room = l->room ? 2 * l->room : 256;
        void *grown = realloc(l->pieces, room * sizeof *l->pieces);
        if (!grown) {
            l->failed = true;
            return;
        }
        l->pieces = static_cast<struct upload_piece *>(grown);
        l->room = room;
    }
    l->pieces[l->n++] = {reinterpret_cast<const uint8_t *>(pointer), bytes, l->bytes, unpacked};
    pointer = reinterpret_cast<T *>(l->base + l->bytes);
    l->bytes += round_up(bytes + extra, ALIGNMENT);
}

static void place_matrix(struct layout *l, struct matrix *m)
{
    const enum dtype in_file = m->dtype;
    m->dtype = type_in_block(in_file);
    const struct unpacked unpacked = {in_file, m->rows, in_file != m->dtype ? m->cols : 0};
    const size_t bytes = m->rows * dtype_row_bytes(m->dtype, m->cols);
    place(l, m->data, bytes, matrix_is_quantised(m) ? factors_at(m) + sizeof(struct product_factors) - bytes : 0, unpacked);
}

static void place_vector(struct layout *l, const float *&vector, int n)
{
    place(l, vector, n * sizeof(float));
}

static void place_expert(struct layout *l, struct expert_weights *e, const struct model_config *c)
{
    place_matrix(l, &e->gate);
    place_matrix(l, &e->up);
    place_matrix(l, &e->down);
    place_vector(l, e->gate_bias, e->gate.rows);
    place_vector(l, e->up_bias, e->up.rows);
    place_vector(l, e->down_bias, c->hidden_dim);
    if (c->ungated) // the one matrix in gate's place, as experts of mixed types have their products
        *e = {e->up, {NULL, DTYPE_U8, 0, 0}, e->down, e->up_bias, NULL, e->down_bias};
}

// What a recurrent layer has besides q, k, v, output_gate and o, or in their places.
static void place_delta(struct layout *l, struct layer_weights *layer, const struct delta_config *c)
{
    struct delta_weights *w = &layer->delta;
    struct scan_weights *scan = &layer->scan;
    struct matrix *const matrices[] = {&w->decay, &w->beta, &w->decay_a, &w->decay_b, &w->gate_a, &w->gate_b,
                                       &scan->c,  &scan->b, &scan->x,    &scan->z,    &scan->o};
    for (struct matrix *m : matrices)
        place_matrix(l, m);
    place_vector(l, scan->conv_bias, delta_channels(c));
    place_vector(l, scan->skip, c->n_value_heads);
    place_vector(l, w->conv, c->conv_width * delta_channels(c));
    place_vector(l, w->conv_bias, c->conv_dim);
    place_vector(l, w->decay_bias, delta_decays(c));
    place_vector(l, w->decay_rate, c->n_value_heads);
    place_vector(l, w->value_norm, c->scan.there ? delta_values(c) : c->value_dim);
}

// What Gemma 4's layers have besides.
static void place_more(struct layout *l, struct layer_weights *w, const struct model_config *c)
{
    place_vector(l, w->expert_norm, c->hidden_dim);
    place_vector(l, w->expert_post_norm, c->hidden_dim);
    place_vector(l, w->shared_post_norm, c->hidden_dim);
    place_vector(l, w->router_scale, c->n_experts);
    if (w->input_gate.data) {
        place_matrix(l, &w->input_gate);
        place_matrix(l, &w->input_projection);
    }
    place_vector(l, w->input_norm, c->hidden_dim);
    place_vector(l, w->scale, 1);
}

// delta: NULL where the layer has attention.
static void place_layer(struct layout *l, struct layer_weights *w, const struct model_config *c,
                        const struct delta_config *delta)
{
    const int n_experts = w->router.data ? c->n_experts : 1;
    place_vector(l, w->attention_norm, c->hidden_dim);
    place_vector(l, w->attention_norm_bias, c->hidden_dim);
    place_vector(l, w->attention_post_norm, c->hidden_dim);
    place_matrix(l, &w->q);
    place_matrix(l, &w->k);
    place_matrix(l, &w->v);
    place_matrix(l, &w->o);
    place_matrix(l, &w->output_gate);
    place_vector(l, w->output_gate_bias, w->output_gate.rows);
    place_vector(l, w->q_bias, w->q.rows);
    place_vector(l, w->k_bias, w->k.rows);
    place_vector(l, w->v_bias, w->v.rows);
    place_vector(l, w->o_bias, w->o.rows);
    place_matrix(l, &w->latent.q_a);
    place_matrix(l, &w->latent.k_b);
    place_matrix(l, &w->latent.v_b);
    const int q_width = w->q.rows / (c->whole_qk_norm ? 1 : c->n_heads), k_width = c->whole_qk_norm ? w->k.rows : q_width;
    place_vector(l, w->q_norm, w->latent.q_a.data ? w->q.cols : q_width);
    place_vector(l, w->k_norm, w->latent.v_b.data ? w->latent.v_b.cols : k_width);
    place_vector(l, w->ffn_norm, c->hidden_dim);
    place_vector(l, w->ffn_norm_bias, c->hidden_dim);
    place_vector(l, w->ffn_post_norm, c->hidden_dim);
    place_vector(l, w->xielu, 3);
    place_vector(l, w->sink_logits, c->n_heads);
    place_vector(l, w->router_bias, c->n_experts);
    place_vector(l, w->router_choice_bias, c->n_experts);
    if (w->shared.up.data)
        place_expert(l, &w->shared, c);
    place_matrix(l, &w->router);
    place_matrix(l, &w->shared_router);
    if (delta)
        place_delta(l, w, delta);
    place_more(l, w, c);
    for (int e = 0; e < n_experts; e++)
        place_expert(l, &w->experts[e], c);
}

// What stands before the layers, and the classifier.
static void place_ends(struct layout *l, struct model_weights *w, const struct model_config *c)
{
    const bool tied = w->classifier.data == w->embedding.data;
    place_matrix(l, &w->embedding);
    place_matrix(l, &w->positions);
    place_matrix(l, &w->token_types);
    place_vector(l, w->embedding_norm, c->hidden_dim);
    place_vector(l, w->embedding_norm_bias, c->hidden_dim);
    place_vector(l, w->alibi_slopes, c->n_heads);
    if (w->layer_embedding.data) {
        place_matrix(l, &w->layer_embedding);
        place_matrix(l, &w->layer_projection);
    }
    place_vector(l, w->layer_projection_norm, c->layer_input_dim);
    if (tied)
        w->classifier = w->embedding;
    else
        place_matrix(l, &w->classifier);
    place_vector(l, w->classifier_bias, w->classifier.rows);
    place_vector(l, w->norm_bias, c->hidden_dim);
}

// A head that guesses has the model's embedding and classifier, of which there is one copy.
static void place_head(struct layout *l, struct model_weights *w, const struct model_config *c)
{
    place_matrix(l, &w->mtp_projection);
    place_vector(l, w->mtp_embedding_norm, c->hidden_dim);
    place_vector(l, w->mtp_hidden_norm, c->hidden_dim);
}

static void place_all(struct layout *l, struct model_weights *w, const struct model_config *c)
{
    (c->guesses ? place_head : place_ends)(l, w, c);
    for (int i = 0; i < c->n_layers; i++)
        place_layer(l, &w->layers[i], c, config_is_recurrent(c, i) ? config_delta(c, i) : NULL);
    place_vector(l, w->norm, c->hidden_dim);
}

// Of all layers; 0 where they are dense.
static size_t table_bytes(const struct model_config *c)
{
    return (size_t)c->n_layers * c->n_experts * sizeof(struct expert_weights);
}

static void free_structure(struct model_weights *w, const int n_layers)
{
    for (int i = 0; w->layers && i < n_layers; i++)
        free(w->layers[i].experts);
    free(w->layers);
    w->layers = NULL;
}

// A copy whose arrays are its own: what they point to is the other's still.
static bool copy_structure(struct model_weights *to, const struct model_weights *from, const struct model_config *c)
{
    const size_t n_experts = c->n_experts ? c->n_experts : 1;
    *to = *from;
    to->layers = static_cast<struct layer_weights *>(calloc(c->n_layers, sizeof *to->layers));
    bool ok = to->layers != NULL;
    for (int i = 0; ok && i < c->n_layers; i++) {
        to->layers[i] = from->layers[i];
        to->layers[i].experts = static_cast<struct expert_weights *>(malloc(n_experts * sizeof(struct expert_weights)));
        ok = to->layers[i].experts != NULL;
        if (ok)
            memcpy(to->layers[i].experts, from->layers[i].experts, n_experts * sizeof(struct expert_weights));
    }
    if (!ok)
        free_structure(to, c->n_layers);
    return ok;
}

// Bytes of the block; with `base` also the device's structure, and the pieces that are to be copied.
static bool lay_out(struct layout *l, struct model_weights *to, const struct model_config *c, const struct model_weights *from,
                    void *base)
{
    *l = {};
    l->base = static_cast<uint8_t *>(base);
    if (!copy_structure(to, from, c))
        return false;
    place_all(l, to, c);
    if (l->failed) {
        free_structure(to, c->n_layers);
        free(l->pieces);
    }
    return !l->failed;
}

size_t weights_bytes(const struct model_config *config, const struct model_weights *weights)
{
    struct layout l;
    struct model_weights copy;
    if (!lay_out(&l, &copy, config, weights, NULL))
        return SIZE_MAX / 2; // no memory to count with: certainly none to copy to
    free_structure(&copy, config->n_layers);
    free(l.pieces);
    return l.bytes + ALIGNMENT + table_bytes(config); // behind the tensors: a word for their conversion, the experts' tables
}

// ------------------------------------------------------------------------------------------ copying

// A part of what goes into a buffer, one thread's.
struct slice {
    uint8_t *to;
    const uint8_t *from; // the piece's first unit
    size_t first, units;
    struct unpacked unpacked;
};

// Rows of a quantised matrix as fp16; beyond its range its largest.
static void unpack_rows(const struct slice *s)
{
    const struct unpacked *u = &s->unpacked;
    const struct matrix whole = {s->from, u->type, u->rows, u->cols};
    half *to = reinterpret_cast<half *>(s->to);
    for (size_t r = 0; r < s->units; r++, to += u->cols)
        for (int c = 0; c < u->cols; c += QUANT_GROUP) {
            struct quant_group group;
            float values[QUANT_GROUP];
            quant_read_group(&group, u->type, s->from, u->rows, quant_groups(u->cols), static_cast<int>(s->first + r),
                             c / QUANT_GROUP);
            quant_group_to_fp32(values, &group);
            const float scale = dtype_row_scale[u->type] ? matrix_row_scale(&whole, static_cast<int>(s->first + r)) : 1;
            for (int i = 0; i < QUANT_GROUP && c + i < u->cols; i++)
                to[c + i] = __float2half_rn(fminf(fmaxf(values[i] * scale, -65504.0f), 65504.0f));
        }
}

static void *fill_slice(void *argument)
{
    const struct slice *s = static_cast<struct slice *>(argument);
#ifdef MADV_POPULATE_READ
    // One call maps the slice's pages, which single faults would do at a fraction of the speed. A hint: it may fail.
    const size_t unit = unit_in_file(&s->unpacked);
    const uintptr_t page = 4096, at = reinterpret_cast<uintptr_t>(s->from) + s->first * unit, first = at / page * page;
    const uintptr_t end = at + s->units * unit;
    madvise(reinterpret_cast<void *>(first), end - first, MADV_POPULATE_READ);
#endif
    if (!s->unpacked.cols)
        memcpy(s->to, s->from + s->first, s->units);
    else if (s->unpacked.type == DTYPE_BF12)
        bf12_to_bf16(reinterpret_cast<uint16_t *>(s->to), s->from, static_cast<int>(s->first),
                     static_cast<int>(s->first + s->units), s->unpacked.cols);
    else
        unpack_rows(s);
    return NULL;
}

// Fills a buffer with `units` of a piece, from unit `first` on, by several threads. Starting them costs far less than they
// save, once in a buffer.
static void fill(void *to, const struct upload_piece *p, size_t first, size_t units, int n_threads)
{
    struct slice slices[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    bool started[MAX_THREADS] = {};
    const size_t unit = unit_in_block(&p->unpacked), least = ((1 << 20) + unit - 1) / unit;
    const size_t share = round_up((units + n_threads - 1) / n_threads, least);
    int n = 0;
    for (size_t at = 0; at < units; at += share, n++)
        slices[n] = {static_cast<uint8_t *>(to) + at * unit, p->from, first + at, share < units - at ? share : units - at,
                     p->unpacked};
    for (int i = 1; i < n; i++)
        started[i] = pthread_create(&threads[i], NULL, fill_slice, &slices[i]) == 0;
    for (int i = 0; i < n; i++)
        if (started[i])
            pthread_join(threads[i], NULL);
        else
            fill_slice(&slices[i]);
}

struct upload {
    void *buffers[N_BUFFERS];       // pinned
    size_t buffer_bytes;            // of each: of a small model, all of it
    cudaEvent_t drained[N_BUFFERS]; // the copy engine has read it
    cudaStream_t stream;
    int n_threads;
};

static void upload_close(struct upload *u)
{
    for (int i = 0; i < N_BUFFERS; i++) {
        if (u->buffers[i])
            cudaFreeHost(u->buffers[i]);
        if (u->drained[i])
            cudaEventDestroy(u->drained[i]);
    }
    if (u->stream)
        cudaStreamDestroy(u->stream);
}

static yalm_status upload_open(struct upload *u, size_t bytes, int n_threads, yalm_error *error)
{
    *u = {};
    u->buffer_bytes = bytes < most_buffer_bytes ? bytes : most_buffer_bytes;
    u->n_threads = n_threads < MAX_THREADS ? n_threads : MAX_THREADS;
    TRY_CUDA(cudaStreamCreateWithFlags(&u->stream, cudaStreamNonBlocking));
    for (int i = 0; i < N_BUFFERS; i++) {
        TRY_CUDA(cudaHostAlloc(&u->buffers[i], u->buffer_bytes, cudaHostAllocDefault));
        TRY_CUDA(cudaEventCreateWithFlags(&u->drained[i], cudaEventDisableTiming));
    }
    return YALM_OK;
}

static yalm_status copy_pieces(struct upload *u, const struct layout *l, const yalm_session_options *o, yalm_error *error)
{
    uint64_t done = 0;
    int next = 0;
    for (int i = 0; i < l->n; i++) {
        const struct upload_piece *p = &l->pieces[i];
        const size_t unit = unit_in_block(&p->unpacked), n_units = p->bytes / unit, most = u->buffer_bytes / unit;
        for (size_t at = 0, units; at < n_units; at += units, next = (next + 1) % N_BUFFERS) {
            units = n_units - at < most ? n_units - at : most;
            const size_t bytes = units * unit;
            TRY_CUDA(cudaEventSynchronize(u->drained[next])); // at once for one that was never recorded
            fill(u->buffers[next], p, at, units, u->n_threads);
            TRY_CUDA(cudaMemcpyAsync(l->base + p->at + at * unit, u->buffers[next], bytes, cudaMemcpyHostToDevice, u->stream));
            TRY_CUDA(cudaEventRecord(u->drained[next], u->stream));
            done += bytes;
            if (o->progress)
                o->progress(o->progress_context, done, l->bytes);
        }
    }
    TRY_CUDA(cudaStreamSynchronize(u->stream));
    return YALM_OK;
}

// Kernels that choose experts themselves need to find them: a table in the block, (n_layers, n_experts).
static yalm_status copy_tables(struct cuda_weights *w, const struct model_config *c, void *to, yalm_error *error)
{
    w->experts = static_cast<struct expert_weights *>(to);
    for (int i = 0; i < c->n_layers; i++)
        TRY_CUDA(cudaMemcpy(w->experts + (size_t)i * c->n_experts, w->weights.layers[i].experts,
                            c->n_experts * sizeof(struct expert_weights), cudaMemcpyHostToDevice));
    return YALM_OK;
}

void weights_release(void *weights)
{
    struct cuda_weights *w = static_cast<struct cuda_weights *>(weights);
    if (!w)
        return;
    shares_close(w->shares);
    if (w->block)
        cudaFree(w->block);
    free_structure(&w->weights, w->n_layers);
    free(w);
}

static yalm_status upload(struct cuda_weights *w, const struct backend_plan *plan, yalm_error *error)
{
    w->bytes = weights_bytes(plan->config, plan->weights);
    w->n_layers = plan->config->n_layers;
    if (plan->group)
        TRY(shares_open(&w->shares, plan->group, error));
    TRY_CUDA(cudaMalloc(&w->block, w->bytes));
    struct layout l;
    if (!lay_out(&l, &w->weights, plan->config, plan->weights, w->block))
        return error_set(error, YALM_NO_MEMORY, "out of memory for a table of the weights");
    if (plan->lender) {
        const struct model_weights *model = &static_cast<const struct cuda_weights *>(plan->lender->data)->weights;
        w->weights.embedding = model->embedding;
        w->weights.classifier = model->classifier;
    }
    struct upload u;
    yalm_status status = upload_open(&u, w->bytes, plan->options->n_threads, error);
    if (status == YALM_OK)
        status = copy_pieces(&u, &l, plan->options, error);
    if (status == YALM_OK)
        status = matrices_convert(&w->weights, plan->config, reinterpret_cast<unsigned *>(l.base + l.bytes), u.stream, error);
    if (status == YALM_OK && plan->config->n_experts)
        status = copy_tables(w, plan->config, l.base + l.bytes + ALIGNMENT, error);
    upload_close(&u);
    free(l.pieces);
    return status;
}

yalm_status weights_upload(struct cuda_weights **weights, const struct backend_plan *plan, yalm_error *error)
{
    struct cuda_weights *w = static_cast<struct cuda_weights *>(calloc(1, sizeof *w));
    if (!w)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a table of the weights");
    const yalm_status status = upload(w, plan, error);
    if (status == YALM_OK)
        *weights = w;
    else
        weights_release(w);
    return status;
}
