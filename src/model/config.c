// Reads the metadata's `config`.
//
// The bounds are far above any model there is, and low enough that products of two of these numbers, and of one of them with a
// batch of 2^16 tokens, can be formed in 64 bits without thought, and the few that stay in int are checked here.

#include "model/config.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "model/json.h"
#include "model/rope.h"

enum {
    MAX_LAYERS = CONFIG_MAX_LAYERS,
    MAX_DIM = CONFIG_MAX_DIM,
    MAX_HEADS = 1 << 14,
    MAX_HEAD_DIM = 1 << 12,
    MAX_VOCAB = 1 << 24,   // float32 still tells all ids apart
    MAX_CONTEXT = 1 << 28, // positions plus a chunk stay far inside int
    MAX_EXPERTS = 1 << 10,
    MAX_TOKEN_TYPES = 1 << 8, // a batch has a byte for each token's
};

struct config_reader {
    struct model_config *config;
    struct json_object object;
    yalm_error *error;
};

static yalm_status refuse(const struct config_reader *r, const char *what, const char *found, const char *expected)
{
    return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: '%s': found '%s', expected %s", r->object.path, what,
                     json_show(found).text, expected);
}

static yalm_status read_names(struct config_reader *r)
{
    static const char *const activations[ACTIVATIONS + 1] = {"silu", "gelu_tanh", "clamped", "gelu", "relu2", "xielu"};
    const char *name, *activation;
    yalm_status status = json_get_string(&name, &r->object, "architecture", r->error);
    if (status == YALM_OK && strlen(name) >= sizeof r->config->architecture)
        return refuse(r, "config.architecture", name, "at most 63 bytes");
    status = status ?: json_get_string(&activation, &r->object, "activation", r->error);
    if (status != YALM_OK)
        return status;
    int a = 0;
    while (a <= ACTIVATIONS && strcmp(activation, activations[a]) != 0)
        a++;
    if (a > ACTIVATIONS)
        return refuse(r, "config.activation", activation, "silu, gelu_tanh, gelu, relu2, clamped or xielu");
    r->config->activation = (enum activation)a;
    snprintf(r->config->architecture, sizeof r->config->architecture, "%s", name);
    return YALM_OK;
}

enum member_kind { FLAG, SIZE, NUMBER };

#define AT(member) offsetof(struct model_config, member)
#define FACTOR     1e-9, 1e9 // numbers only have to keep arithmetic away from overflow and zero
static const struct member {
    const char *key;
    enum member_kind kind;
    size_t at;
    double min, max;
    bool later; // it came after version 1 of the format: where it is not there, its value is 0, which means "unused"
} members[] = {
    {"n_layers", SIZE, AT(n_layers), 1, MAX_LAYERS, false},
    {"hidden_dim", SIZE, AT(hidden_dim), 1, MAX_DIM, false},
    {"ffn_dim", SIZE, AT(ffn_dim), 1, MAX_DIM, false},
    {"n_heads", SIZE, AT(n_heads), 1, MAX_HEADS, false},
    {"n_kv_heads", SIZE, AT(n_kv_heads), 1, MAX_HEADS, false},
    {"head_dim", SIZE, AT(head_dim), 2, MAX_HEAD_DIM, false},
    {"vocab_size", SIZE, AT(vocab_size), 1, MAX_VOCAB, false},
    {"context_length", SIZE, AT(context_length), 1, MAX_CONTEXT, false},
    {"sliding_window", SIZE, AT(kinds[0].sliding_window), 0, MAX_CONTEXT, false},
    {"n_experts", SIZE, AT(n_experts), 0, MAX_EXPERTS, false},
    {"n_active_experts", SIZE, AT(n_active_experts), 0, MAX_EXPERTS, false},
    {"tied_embeddings", FLAG, AT(tied_embeddings), 0, 1, false},
    {"attention_bias", FLAG, AT(attention_bias), 0, 1, false},
    {"mlp_bias", FLAG, AT(mlp_bias), 0, 1, false},
    {"norm_eps", NUMBER, AT(norm_eps), FLT_MIN, 1, false},
    {"expert_ffn_dim", SIZE, AT(expert_ffn_dim), 0, MAX_DIM, true},
    {"n_expert_groups", SIZE, AT(n_expert_groups), 0, MAX_EXPERTS, true},
    {"n_active_groups", SIZE, AT(n_active_groups), 0, MAX_EXPERTS, true},
    {"raw_expert_weights", FLAG, AT(raw_expert_weights), 0, 1, true},
    {"qkv_bias", FLAG, AT(qkv_bias), 0, 1, true},
    {"qk_norm", FLAG, AT(qk_norm), 0, 1, true},
    {"whole_qk_norm", FLAG, AT(whole_qk_norm), 0, 1, true},
    {"rotated_qk_norm", FLAG, AT(rotated_qk_norm), 0, 1, true},
    {"norms_after", FLAG, AT(norms_after), 0, 1, true},
    {"norms_around", FLAG, AT(norms_around), 0, 1, true},
    {"router_bias", FLAG, AT(router_bias), 0, 1, true},
    {"sink_logits", FLAG, AT(sink_logits), 0, 1, true},
    {"sigmoid_router", FLAG, AT(sigmoid_router), 0, 1, true},
    {"softmax_choice_bias", FLAG, AT(softmax_choice_bias), 0, 1, true},
    {"expert_scale", NUMBER, AT(expert_scale), FACTOR, true},
    {"expert_eps", NUMBER, AT(expert_eps), FLT_MIN, 1, true},
    {"shared_ffn_dim", SIZE, AT(shared_ffn_dim), 0, MAX_DIM, true},
    {"shared_gate", FLAG, AT(shared_gate), 0, 1, true},
    {"output_gate", FLAG, AT(output_gate), 0, 1, true},
    {"expert_norms", FLAG, AT(expert_norms), 0, 1, true},
    {"v_norm", FLAG, AT(v_norm), 0, 1, true},
    {"layer_scale", FLAG, AT(layer_scale), 0, 1, true},
    {"layer_input_dim", SIZE, AT(layer_input_dim), 0, MAX_DIM, true},
    {"attention_softcap", NUMBER, AT(attention_softcap), FACTOR, true},
    {"logits_softcap", NUMBER, AT(logits_softcap), FACTOR, true},
    {"attention_scale", NUMBER, AT(attention_scale), FACTOR, true},
    {"query_growth", NUMBER, AT(query_growth), FACTOR, true},
    {"query_growth_context", SIZE, AT(query_growth_context), 0, MAX_CONTEXT, true},
    {"embedding_scale", NUMBER, AT(embedding_scale), FACTOR, true},
    {"bidirectional", FLAG, AT(bidirectional), 0, 1, true},
    {"layer_norm", FLAG, AT(layer_norm), 0, 1, true},
    {"norm_bias", FLAG, AT(norm_bias), 0, 1, true},
    {"embedding_norm", FLAG, AT(embedding_norm), 0, 1, true},
    {"post_norm", FLAG, AT(post_norm), 0, 1, true},
    {"bare_first", FLAG, AT(bare_first), 0, 1, true},
    {"ungated", FLAG, AT(ungated), 0, 1, true},
    {"parallel", FLAG, AT(parallel), 0, 1, true},
    {"one_norm", FLAG, AT(one_norm), 0, 1, true},
    {"classifier_bias", FLAG, AT(classifier_bias), 0, 1, true},
    {"alibi", FLAG, AT(alibi), 0, 1, true},
    {"learned_positions", FLAG, AT(learned_positions), 0, 1, true},
    {"n_token_types", SIZE, AT(n_token_types), 0, MAX_TOKEN_TYPES, true},
};
#undef AT
#undef FACTOR
// Members with readers of their own.
static const char *const others[] = {"architecture",     "activation",    "rope", "bos",     "eos",   "kinds",  "dense_layers",
                                     "unrotated_layers", "no_ffn_layers", "mtp",  "pooling", "score", "latent", "delta"};
enum { N_MEMBERS = sizeof members / sizeof *members, N_OTHERS = sizeof others / sizeof *others };

static yalm_status check_members(const struct config_reader *r)
{
    const char *known[N_MEMBERS + N_OTHERS];
    for (int i = 0; i < N_MEMBERS; i++)
        known[i] = members[i].key;
    memcpy(known + N_MEMBERS, others, sizeof others);
    return json_only(&r->object, known, N_MEMBERS + N_OTHERS, r->error);
}

static yalm_status read_member(struct config_reader *r, const struct member *m)
{
    void *const value = (char *)r->config + m->at;
    int64_t size = 0;
    double number = 0;
    yalm_status status;
    switch (m->kind) {
    case FLAG:
        return json_get_bool(value, &r->object, m->key, r->error);
    case SIZE:
        status = json_get_integer(&size, &r->object, m->key, (int64_t)m->min, (int64_t)m->max, r->error);
        *(int *)value = (int)size;
        return status;
    default:
        status = json_get_number(&number, &r->object, m->key, m->min, m->max, r->error);
        *(float *)value = (float)number;
        return status;
    }
}

// A list of layers; listed: (n_layers) whether each is in it.
static yalm_status read_layers(struct config_reader *r, const char *key, bool *listed, int *n)
{
    const int n_layers = config_n_listed(r->config);
    const cJSON *list;
    if (!json_has(&r->object, key))
        return YALM_OK;
    const yalm_status status = json_get_array(&list, &r->object, key, r->error);
    if (status != YALM_OK)
        return status;
    for (const cJSON *node = list->child; node; node = node->next) {
        int64_t layer;
        if (!json_integer_in(node, 0, n_layers - 1, &layer) || listed[layer])
            return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: 'config.%s': expected layers from 0 to %d, each once",
                             r->object.path, key, n_layers - 1);
        listed[layer] = true;
        ++*n;
    }
    return YALM_OK;
}

// A list of at most `most` integers, where there is one.
static yalm_status read_list(struct config_reader *r, const struct json_object *object, const char *key, int min, int max,
                             int most, int *list, int *n)
{
    const cJSON *array;
    if (!json_has(object, key))
        return YALM_OK;
    const yalm_status status = json_get_array(&array, object, key, r->error);
    if (status != YALM_OK)
        return status;
    for (const cJSON *node = array->child; node; node = node->next) {
        int64_t value;
        if (*n == most || !json_integer_in(node, min, max, &value))
            return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: '%s.%s': expected at most %d integers from %d to %d",
                             object->path, object->where, key, most, min, max);
        list[(*n)++] = (int)value;
    }
    return YALM_OK;
}

static yalm_status read_score(struct config_reader *r)
{
    static const char *const keys[] = {"between", "end", "by", "normed"};
    int64_t end = -1;
    const char *by = "first";
    struct model_config *c = r->config;
    struct json_object object;
    c->scores = json_has(&r->object, "score");
    if (!c->scores)
        return YALM_OK;
    yalm_status status = json_get_object(&object, &r->object, "score", "config.score", r->error);
    status = status ?: json_only(&object, keys, 4, r->error);
    status = status ?: json_get_integer(&end, &object, "end", -1, c->vocab_size - 1, r->error);
    if (status == YALM_OK && json_has(&object, "by"))
        status = json_get_string(&by, &object, "by", r->error);
    c->score_by = strcmp(by, "mean") == 0 ? POOLING_MEAN : strcmp(by, "last") == 0 ? POOLING_LAST : POOLING_FIRST;
    if (status == YALM_OK && c->score_by == POOLING_FIRST && strcmp(by, "first") != 0)
        return refuse(r, "config.score.by", by, "first, mean or last");
    if (status == YALM_OK && json_has(&object, "normed"))
        status = json_get_bool(&c->score_normed, &object, "normed", r->error);
    if (status == YALM_OK && c->pooling != POOLING_NONE && end != c->pooling_end)
        return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: 'config.score.end': found %d, expected pooling's, %d",
                         r->object.path, (int)end, (int)c->pooling_end);
    c->pooling_end = (int32_t)end;
    return status == YALM_OK
               ? read_list(r, &object, "between", 0, c->vocab_size - 1, CONFIG_MAX_BETWEEN, c->between, &c->n_between)
               : status;
}

static yalm_status read_pooling(struct config_reader *r)
{
    static const char *const keys[] = {"by", "end", "dense", "matryoshka"}, *const names[POOLINGS] = {"", "last", "mean",
                                                                                                      "first"};
    struct json_object object;
    const char *by;
    int64_t end = -1, least = 0;
    r->config->pooling_end = -1;
    if (!json_has(&r->object, "pooling"))
        return YALM_OK;
    yalm_status status = json_get_object(&object, &r->object, "pooling", "config.pooling", r->error);
    status = status ?: json_only(&object, keys, 4, r->error);
    status = status ?: json_get_string(&by, &object, "by", r->error);
    status = status ?: json_get_integer(&end, &object, "end", -1, r->config->vocab_size - 1, r->error);
    status = status ?: read_list(r, &object, "dense", 1, MAX_DIM, CONFIG_MAX_DENSE, r->config->dense_dims, &r->config->n_dense);
    if (status == YALM_OK && json_has(&object, "matryoshka"))
        status = json_get_integer(&least, &object, "matryoshka", 1, config_vector_dim(r->config), r->error);
    if (status != YALM_OK)
        return status;
    int p = POOLING_LAST;
    while (p < POOLINGS && strcmp(by, names[p]) != 0)
        p++;
    if (p == POOLINGS)
        return refuse(r, "config.pooling.by", by, "last, mean or first");
    if (config_kinds_share(r->config)) // later layers do not see every token
        return refuse(r, "config.pooling", by, "none where layers share keys");
    r->config->pooling = (enum pooling)p;
    r->config->pooling_end = (int32_t)end;
    r->config->matryoshka = (int)least;
    return YALM_OK;
}

static yalm_status read_mtp(struct config_reader *r)
{
    static const char *const keys[] = {"normed", "own_normed"};
    struct mtp_config *mtp = &r->config->mtp;
    struct json_object object;
    mtp->there = json_has(&r->object, "mtp");
    if (!mtp->there)
        return YALM_OK;
    yalm_status status = json_get_object(&object, &r->object, "mtp", "config.mtp", r->error);
    status = status ?: json_only(&object, keys, 2, r->error);
    status = status ?: json_get_bool(&mtp->normed, &object, "normed", r->error);
    return status ?: json_get_bool(&mtp->own_normed, &object, "own_normed", r->error);
}

static yalm_status read_latent(struct config_reader *r)
{
    static const char *const keys[] = {"q_rank", "kv_rank", "nope_dim", "rope_dim", "v_dim", "norm_eps"};
    struct latent_config *latent = &r->config->latent;
    const struct {
        int min, max, *value;
    } sizes[] = {{0, MAX_DIM, &latent->q_rank},
                 {1, MAX_HEAD_DIM, &latent->kv_rank},
                 {1, MAX_HEAD_DIM, &latent->nope_dim},
                 {2, MAX_HEAD_DIM, &latent->rope_dim},
                 {1, MAX_HEAD_DIM, &latent->v_dim}};
    enum { N_SIZES = sizeof sizes / sizeof *sizes };
    struct json_object object;
    double eps = 0;
    if (!json_has(&r->object, "latent"))
        return YALM_OK;
    yalm_status status = json_get_object(&object, &r->object, "latent", "config.latent", r->error);
    status = status ?: json_only(&object, keys, sizeof keys / sizeof *keys, r->error);
    for (int i = 0; i < N_SIZES && status == YALM_OK; i++) {
        int64_t value = 0;
        status = json_get_integer(&value, &object, keys[i], sizes[i].min, sizes[i].max, r->error);
        *sizes[i].value = (int)value;
    }
    status = status ?: json_get_number(&eps, &object, keys[N_SIZES], FLT_MIN, 1, r->error);
    latent->norm_eps = (float)eps;
    return status;
}

static yalm_status read_members(struct config_reader *r)
{
    struct model_config *c = r->config;
    yalm_status status = YALM_OK;
    for (const struct member *m = members; m < members + N_MEMBERS && status == YALM_OK; m++)
        if (!m->later || json_has(&r->object, m->key))
            status = read_member(r, m);
    status = status ?: read_latent(r);
    status = status ?: read_layers(r, "unrotated_layers", c->unrotated_layer, &c->n_unrotated_layers);
    status = status ?: read_layers(r, "no_ffn_layers", c->no_ffn_layer, &c->n_no_ffn_layers);
    return status ?: read_layers(r, "dense_layers", c->dense_layer, &c->n_dense_layers);
}

// A short convolution alone, of the stream's width.
static yalm_status read_conv(struct delta_config *delta, const struct json_object *kind, int dim, yalm_error *error)
{
    static const char *const keys[] = {"conv_width", "bias"};
    struct json_object object;
    int64_t width = 0;
    yalm_status status = json_get_object(&object, kind, "conv", "config.kinds.conv", error);
    status = status ?: json_only(&object, keys, sizeof keys / sizeof *keys, error);
    status = status ?: json_get_integer(&width, &object, keys[0], 2, CONFIG_MAX_CONV, error);
    if (status == YALM_OK && json_has(&object, keys[1]))
        status = json_get_bool(&delta->conv_bias, &object, keys[1], error);
    delta->conv_width = (int)width;
    delta->conv_dim = dim;
    return status;
}

// Whose keys and values the layers of a kind see that has none: another one's, which comes before.
static yalm_status read_sharing(struct layer_kind *kind, const struct json_object *object, int n_kinds, yalm_error *error)
{
    int64_t of = 0;
    kind->shares_keys = json_has(object, "kv_of");
    const yalm_status status = kind->shares_keys ? json_get_integer(&of, object, "kv_of", 0, n_kinds - 1, error) : YALM_OK;
    kind->kv_of = (int)of;
    return status;
}

static yalm_status read_attention(struct layer_kind *kind, const struct json_object *object, const struct model_config *c,
                                  yalm_error *error)
{
    const struct {
        const char *key;
        int min, max, *value;
    } sizes[] = {{"sliding_window", 0, MAX_CONTEXT, &kind->sliding_window},
                 {"head_dim", 2, MAX_HEAD_DIM, &kind->head_dim},
                 {"n_kv_heads", 1, MAX_HEADS, &kind->n_kv_heads},
                 {"ffn_dim", 1, MAX_DIM, &kind->ffn_dim}};
    yalm_status status = YALM_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && status == YALM_OK; i++) {
        int64_t value = 0;
        if (i == 0 || json_has(object, sizes[i].key))
            status = json_get_integer(&value, object, sizes[i].key, sizes[i].min, sizes[i].max, error);
        *sizes[i].value = (int)value;
    }
    status = status ?: read_sharing(kind, object, config_n_kinds(c) - 1, error);
    const int head_dim = kind->head_dim ? kind->head_dim : c->head_dim;
    return status ?: rope_read(&kind->rope, object, "config.kinds.rope", head_dim, error);
}

// kinds: the layers that differ from kind 0, which config's own `sliding_window` and `rope` describe.
static yalm_status read_kind(struct config_reader *r, const cJSON *node, int kind)
{
    static const char *const of_attention[] = {"layers",     "sliding_window", "rope", "head_dim",
                                               "n_kv_heads", "ffn_dim",        "kv_of"},
                             *const recurrent[] = {"layers", "delta"}, *const convolving[] = {"layers", "conv"};
    struct model_config *c = r->config;
    const struct config_reader inner = {c, {r->object.path, "config.kinds", node}, r->error};
    const cJSON *layers;
    if (!cJSON_IsObject(node))
        return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: 'config.kinds': expected objects", r->object.path);
    const bool recurs = json_has(&inner.object, "delta"), convolves = !recurs && json_has(&inner.object, "conv");
    yalm_status status = json_only(&inner.object,
                                   recurs      ? recurrent
                                   : convolves ? convolving
                                               : of_attention,
                                   recurs || convolves ? 2 : 7, r->error);
    if (status == YALM_OK)
        status = recurs      ? delta_read(&c->kinds[kind].delta, &inner.object, r->error)
                 : convolves ? read_conv(&c->kinds[kind].delta, &inner.object, c->hidden_dim, r->error)
                             : read_attention(&c->kinds[kind], &inner.object, c, r->error);
    status = status ?: json_get_array(&layers, &inner.object, "layers", r->error);
    if (status != YALM_OK)
        return status;
    for (const cJSON *item = layers->child; item; item = item->next) {
        int64_t layer;
        if (!json_integer_in(item, 0, config_n_listed(c) - 1, &layer) || c->kind_of_layer[layer])
            return error_set(r->error, YALM_BAD_MODEL,
                             "%s: metadata: 'config.kinds.layers': expected layers from 0 to %d, each once", r->object.path,
                             config_n_listed(c) - 1);
        c->kind_of_layer[layer] = (uint8_t)kind;
    }
    return YALM_OK;
}

static yalm_status read_kinds(struct config_reader *r)
{
    struct model_config *c = r->config;
    const cJSON *list;
    yalm_status status = rope_read(&c->kinds[0].rope, &r->object, "config.rope", config_kind_rotary(c, 0), r->error);
    if (status == YALM_OK && json_has(&r->object, "delta"))
        status = delta_read(&c->kinds[0].delta, &r->object, r->error);
    if (status != YALM_OK || !json_has(&r->object, "kinds"))
        return status;
    status = json_get_array(&list, &r->object, "kinds", r->error);
    for (const cJSON *node = status == YALM_OK ? list->child : NULL; node && status == YALM_OK; node = node->next) {
        if (config_n_kinds(c) == CONFIG_MAX_KINDS)
            return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: 'config.kinds': found more than %d", r->object.path,
                             CONFIG_MAX_KINDS - 1);
        status = read_kind(r, node, ++c->n_more_kinds);
    }
    for (int kind = 0; kind < config_n_kinds(c) && status == YALM_OK; kind++)
        if (config_n_layers_of(c, kind) == 0)
            return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: 'config.kinds': found a kind without layers",
                             r->object.path);
    return status;
}

static yalm_status read_ids(struct config_reader *r)
{
    struct model_config *c = r->config;
    int64_t id;
    yalm_status status = json_get_integer(&id, &r->object, "bos", -1, c->vocab_size - 1, r->error);
    if (status != YALM_OK)
        return status;
    c->bos = (int32_t)id;
    const cJSON *eos;
    status = json_get_array(&eos, &r->object, "eos", r->error);
    if (status != YALM_OK)
        return status;
    for (const cJSON *node = eos->child; node; node = node->next) {
        if (c->n_eos == YALM_MAX_EOS)
            return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: 'config.eos': more than %d ids", r->object.path,
                             YALM_MAX_EOS);
        if (!json_integer_in(node, 0, c->vocab_size - 1, &id))
            return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: 'config.eos[%d]': expected an id from 0 to %d",
                             r->object.path, c->n_eos, c->vocab_size - 1);
        c->eos[c->n_eos++] = (int32_t)id;
    }
    return YALM_OK;
}

yalm_status config_read(struct model_config *config, const struct container *container, yalm_error *error)
{
    memset(config, 0, sizeof *config); // gaps as well: see_alike() compares rotations as bytes
    config->bos = -1;
    const struct json_object root = {container->mapping.path, "", container->metadata};
    struct config_reader r = {.config = config, .error = error};
    yalm_status status = json_get_object(&r.object, &root, "config", "config", error);
    status = status ?: check_members(&r);
    status = status ?: read_names(&r);
    status = status ?: read_mtp(&r);
    status = status ?: read_members(&r);
    status = status ?: read_kinds(&r);
    status = status ?: read_ids(&r);
    status = status ?: read_pooling(&r);
    status = status ?: read_score(&r);
    return status ?: config_check(config, r.object.path, error);
}
