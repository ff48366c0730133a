// The public API's model and text functions: what src/model and src/text know, put together.

#include "engine/model.h"

#include <stdlib.h>
#include <string.h>

#include "chat/chat.h"
#include "model/codebook.h"
#include "model/json.h"
#include "model/mtp.h"
#include "recipe/recipe.h"
#include "util/error.h"
#include "yalm_group.h"

// ------------------------------------------------------------------------------------------ opening

// Names that users see: where the model came from, and its chat template.
static yalm_status read_source(yalm_model *model, yalm_error *error)
{
    const struct json_object root = {model->container.mapping.path, "", model->container.metadata};
    struct json_object source;
    const char *converter;
    yalm_status status = json_get_object(&source, &root, "source", "source", error);
    status = status ?: json_get_string(&model->info.name, &source, "name", error);
    status = status ?: json_get_string(&converter, &source, "converter", error);
    for (const cJSON *c = status == YALM_OK ? source.node->child : NULL; c; c = c->next)
        if (!cJSON_IsString(c))
            return error_set(error, YALM_BAD_MODEL, "%s: metadata: 'source.%s' is not a string", root.path,
                             json_show(c->string).text);
    if (status == YALM_OK && cJSON_HasObjectItem(root.node, "chat_template"))
        status = json_get_string(&model->info.chat_template, &root, "chat_template", error);
    return status;
}

// Quantised layers usually stand between an embedding and a classifier of a finer type; they give the model its name.
static const char *weight_dtype(const yalm_model *model)
{
    type_set types = recipe_outline(&model->config, &model->weights).block_types;
    bool quantised = false;
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        quantised |= dtype_group_bytes[type] && types & type_bit((enum dtype)type);
    if (!quantised)
        types |= type_bit(model->weights.embedding.dtype) | type_bit(model->weights.classifier.dtype);
    const char *name = "mixed";
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        if (types == type_bit((enum dtype)type))
            name = dtype_names[type];
    return name;
}

static void fill_info(yalm_model *model)
{
    static const char *const rope_types[] = {"default", "linear", "llama3", "yarn", "longrope"};
    const struct model_config *c = &model->config;
    yalm_model_info *info = &model->info; // name and chat_template are there already
    info->architecture = c->architecture;
    info->weight_dtype = weight_dtype(model);
    info->rope_type = rope_types[c->kinds[0].rope.type];
    info->tokenizer = tokenizer_type(model->tokenizer);
    info->n_layers = c->n_layers;
    info->hidden_dim = c->hidden_dim;
    info->ffn_dim = c->ffn_dim;
    info->n_heads = c->n_heads;
    info->n_kv_heads = c->n_kv_heads;
    info->head_dim = c->head_dim;
    info->vocab_size = c->vocab_size;
    info->tokenizer_vocab = tokenizer_n_pieces(model->tokenizer);
    info->context_length = c->context_length;
    for (int kind = 0; kind < config_n_kinds(c); kind++) {
        const int window = c->kinds[kind].sliding_window;
        if (window > 0) {
            info->sliding_window = info->sliding_window && info->sliding_window < window ? info->sliding_window : window;
            info->n_windowed_layers += config_n_layers_of(c, kind);
        }
    }
    for (int l = 0; l < c->n_layers; l++)
        info->n_recurrent_layers += config_is_recurrent(c, l);
    info->mtp = c->mtp.there;
    info->pooling = (const char *const[POOLINGS]){NULL, "last", "mean", "first"}[c->pooling];
    info->bidirectional = c->bidirectional;
    info->scores = c->scores;
    info->vector_dim = c->pooling == POOLING_NONE ? 0 : config_vector_dim(c);
    info->least_vector_dim = c->matryoshka ? c->matryoshka : info->vector_dim;
    info->n_experts = c->n_experts;
    info->n_active_experts = c->n_active_experts;
    info->bos = c->bos;
    info->add_bos = tokenizer_adds_bos(model->tokenizer);
    info->n_eos = c->n_eos;
    memcpy(info->eos, c->eos, sizeof info->eos);
    info->n_params = model->weights.n_params;
    info->file_bytes = model->container.mapping.size;
    info->weight_bytes = model->weights.bytes;
    info->checksum = model->container.metadata_checksum;
}

static yalm_status open_parts(yalm_model *model, const char *path, const yalm_model_options *options, yalm_error *error)
{
    if (options->group && (options->lock || options->huge_pages))
        return error_set(error, YALM_USAGE,
                         "%s in memory: a rank keeps a copy of its share of the weights, not the file: leave it out",
                         options->lock ? "locking the file" : "huge pages for the file");
    yalm_status status = container_open(&model->container, path, options->huge_pages, error);
    status = status ?: config_read(&model->config, &model->container, error);
    status = status ?: weights_bind(&model->weights, &model->config, &model->container, error);
    if (status == YALM_OK && model->config.mtp.there) {
        model->mtp_config = mtp_config_of(&model->config);
        model->mtp_weights = mtp_weights_of(&model->weights, &model->config);
    }
    status = status ?: read_source(model, error);
    // Before the tokenizer, which reads tensors: damage is better named as such than as what it makes of the vocabulary.
    for (int i = 0; options->verify && i < model->container.n_tensors && status == YALM_OK; i++)
        status = container_verify(&model->container, &model->container.tensors[i], error);
    status = status ?: tokenizer_open(&model->tokenizer, &model->container, &model->config, error);
    status = status ?: chat_load(&model->chat, &model->container, error);
    model->codebooks_path = status == YALM_OK ? codebook_default_path(path) : NULL;
    if (status == YALM_OK && !model->codebooks_path)
        status = error_set(error, YALM_NO_MEMORY, "%s: no memory", path);
    if (status == YALM_OK && options->lock)
        status = mapping_lock(&model->container.mapping, error);
    return status;
}

yalm_model *yalm_model_open(const char *path, const yalm_model_options *options, yalm_error *error)
{
    if (options && error_of_size(options->size, sizeof *options, "yalm_model_options", error) != YALM_OK)
        return NULL;
    yalm_model *model = calloc(1, sizeof *model);
    if (!model) {
        error_set(error, YALM_NO_MEMORY, "%s: no memory", path);
        return NULL;
    }
    pthread_mutex_init(&model->weights_copy.lock, NULL);
    pthread_mutex_init(&model->mtp_copy.lock, NULL);
    pthread_mutex_init(&model->of_cpu.lock, NULL);
    if (open_parts(model, path, options ? options : &(yalm_model_options){0}, error) != YALM_OK) {
        yalm_model_close(model);
        return NULL;
    }
    fill_info(model);
    model->group = options ? options->group : NULL;
    if (model->group && yalm_group_rank(model->group) == 0 && model_share_out(model, error) != YALM_OK) {
        yalm_model_close(model);
        return NULL;
    }
    return model;
}

static void shared_release(struct shared *shared)
{
    if (shared->data)
        shared->release(shared->data);
    pthread_mutex_destroy(&shared->lock);
}

void yalm_model_close(yalm_model *model)
{
    if (!model)
        return;
    shared_release(&model->mtp_copy); // which borrows of the next
    shared_release(&model->weights_copy);
    shared_release(&model->of_cpu);
    chat_unload(model->chat);
    tokenizer_close(model->tokenizer);
    share_close(&model->share);
    weights_free(&model->weights);
    container_close(&model->container);
    free(model->codebooks_path);
    free(model);
}

// ------------------------------------------------------------------------------------------ facts

const char *yalm_codebooks_path(const yalm_model *model)
{
    return model->codebooks_path;
}

const yalm_model_info *yalm_model_facts(const yalm_model *model)
{
    return &model->info;
}

int yalm_model_n_tensors(const yalm_model *model)
{
    return model->container.n_tensors;
}

yalm_tensor_info yalm_model_tensor(const yalm_model *model, int index)
{
    if (index < 0 || index >= model->container.n_tensors)
        return (yalm_tensor_info){.name = "", .dtype = ""};
    const struct tensor *t = &model->container.tensors[index];
    yalm_tensor_info info = {.name = t->name,
                             .dtype = dtype_names[t->dtype],
                             .rank = t->rank,
                             .offset = t->offset,
                             .bytes = t->length,
                             .checksum = t->checksum};
    memcpy(info.shape, t->shape, sizeof info.shape);
    return info;
}

yalm_status yalm_model_verify_tensor(const yalm_model *model, int index, yalm_error *error)
{
    const struct container *c = &model->container;
    if (index < 0 || index >= c->n_tensors)
        return error_set(error, YALM_USAGE, "%s: tensor %d: expected 0 to %d", c->mapping.path, index, c->n_tensors - 1);
    return container_verify(c, &c->tensors[index], error);
}

// ------------------------------------------------------------------------------------------ text

yalm_status yalm_tokenize(const yalm_model *model, const char *text, size_t length, int flags, int32_t **tokens,
                          size_t *n_tokens, yalm_error *error)
{
    *tokens = NULL;
    *n_tokens = 0;
    if (!model->tokenizer)
        return error_set(error, YALM_USAGE, "%s: this model has no tokenizer: it takes token ids, not text",
                         model->container.mapping.path);
    return tokenizer_encode(model->tokenizer, text, length, flags, tokens, n_tokens, error);
}

const char *yalm_piece(const yalm_model *model, int32_t token, size_t *length)
{
    *length = 0;
    return model->tokenizer ? tokenizer_piece(model->tokenizer, token, length) : NULL;
}

bool yalm_is_control(const yalm_model *model, int32_t token)
{
    return model->tokenizer && tokenizer_is_control(model->tokenizer, token);
}

// What stands in the way of rendering, as an error of the caller's; YALM_OK where nothing does.
static yalm_status check_chat(const yalm_model *model, yalm_error *error)
{
    const char *path = model->container.mapping.path;
    if (model->chat->refused)
        return error_set(error, YALM_USAGE, "%s: its chat template cannot be rendered: %s", path, model->chat->refused);
    if (model->chat->found)
        return YALM_OK;
    if (model->info.chat_template)
        return error_set(error, YALM_USAGE,
                         "%s: an earlier version converted this model, and did not read its chat template: convert it again",
                         path);
    return error_set(error, YALM_USAGE, "%s: this model has no chat template: it completes text (-m completion)", path);
}

yalm_status yalm_chat_render(const yalm_model *model, const char *variables, size_t n_variables, char **text, size_t *length,
                             yalm_error *error)
{
    *text = NULL;
    *length = 0;
    return check_chat(model, error) ?: chat_render(model->chat, variables, n_variables, text, length, error);
}

bool yalm_is_eos(const yalm_model *model, int32_t token)
{
    for (int i = 0; i < model->config.n_eos; i++)
        if (model->config.eos[i] == token)
            return true;
    return false;
}

size_t yalm_stream_token(const yalm_model *model, yalm_stream *stream, int32_t token, bool spell_control, char *out)
{
    return model->tokenizer ? tokenizer_stream(model->tokenizer, stream, token, spell_control, out) : 0;
}

size_t yalm_stream_end(yalm_stream *stream, char *out)
{
    const size_t n = (size_t)stream->n_pending;
    memcpy(out, stream->pending, n);
    *stream = (yalm_stream){0};
    return n;
}
