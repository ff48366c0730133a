// Builds small valid model files in memory, and damages them one place at a time: everything that is not damaged, checksums
// among it, stays right.
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

enum { BUILDER_HEADER = 64, BUILDER_PAGE = 4096, BUILDER_ROOM = 2048, BUILDER_TEXT = 1 << 16, BUILDER_TENSORS = 160 };

// What the model is like. Zeros are the plainest model: Llama, two layers, fp32, no biases, a classifier of its own.
struct build_options {
    int n_experts; // > 0: Mixtral with 2 active ones
    bool tied, attention_bias, mlp_bias;
    bool qkv_bias, qk_norm, first_dense;         // facts of version 2 of the format; first_dense: layer 0 has no experts
    int expert_ffn;                              // likewise; 0: TINY_FFN
    bool norms_after, norms_around, sink_logits; // likewise
    bool router_bias, sigmoid_router;            // likewise, of models with experts
    int shared_ffn;                              // likewise; 0: none
    bool recurrent;   // layer 0 is, with 2 key and 4 value heads of 3 and 5 components, and a convolution of 4
    bool kda;         // with `recurrent`: with as many key heads as value heads, and latents of 7 components
    bool convolves;   // layer 0 does, over 3 tokens, with biases
    bool output_gate; // in layer 1, at least
    bool shared_gate;
    bool own_heads;   // layer 0 is of a kind that has one KV head of 6 components, and an ffn of 20
    bool shared_keys; // layer 1 sees layer 0's keys, and has an ffn of 20
    bool layer_scale, v_norm, expert_norms;
    bool mtp;            // a head that guesses
    const char *latents; // dtype of k_b and v_b: one latent of 6 components for all heads, one of 6 for queries; NULL: none
    int layer_input;     // components of each layer's own input; 0: none
    const char *weights; // dtype of the matrices; NULL: "fp32"
    const char *rope;    // JSON; NULL: default
};

enum { TINY_LAYERS = 2, TINY_HIDDEN = 8, TINY_FFN = 12, TINY_HEADS = 4, TINY_KV_HEADS = 2, TINY_HEAD_DIM = 4, TINY_VOCAB = 11 };
enum { OWN_HEAD_DIM = 6, OWN_FFN = 20 };

struct built {
    uint8_t *data; // (size)
    size_t size;
};

struct built_tensor {
    char name[64];
    const char *dtype;
    int rank, rows, cols;
    size_t length;
};

struct builder {
    struct built_tensor tensors[BUILDER_TENSORS];
    int n_tensors;
};

static inline void builder_check(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "model_builder: %s\n", what);
        abort();
    }
}

static inline void builder_add(struct builder *b, const char *dtype, int rows, int cols, const char *format, ...)
{
    builder_check(b->n_tensors < BUILDER_TENSORS, "too many tensors");
    struct built_tensor *t = &b->tensors[b->n_tensors++];
    const bool quantised = dtype[0] == 'q', fp8 = !strncmp(dtype, "fp8", 3);
    const size_t group = !strcmp(dtype, "q8") ? 34 : 18, element = !strcmp(dtype, "fp32") ? 4 : fp8 ? 1 : 2;
    const size_t scales = !strcmp(dtype, "fp8") ? 4 * (size_t)rows : 0;
    *t = (struct built_tensor){.dtype = dtype,
                               .rank = cols ? 2 : 1,
                               .rows = rows,
                               .cols = cols,
                               .length = quantised ? group * (size_t)rows * (size_t)((cols + 31) / 32)
                                                   : element * (size_t)rows * (size_t)(cols ? cols : 1) + scales};
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof t->name, format, args);
    va_end(args);
}

static inline void builder_add_ffn(struct builder *b, const struct build_options *o, const char *w, int l)
{
    const int ffn = o->expert_ffn ? o->expert_ffn : TINY_FFN, n_experts = l == 0 && o->first_dense ? 0 : o->n_experts;
    for (int e = 0; e < n_experts; e++) {
        builder_add(b, w, ffn, TINY_HIDDEN, "layers.%d.experts.%d.gate", l, e);
        builder_add(b, w, ffn, TINY_HIDDEN, "layers.%d.experts.%d.up", l, e);
        builder_add(b, w, TINY_HIDDEN, ffn, "layers.%d.experts.%d.down", l, e);
        if (o->mlp_bias) {
            builder_add(b, "fp32", ffn, 0, "layers.%d.experts.%d.gate_bias", l, e);
            builder_add(b, "fp32", ffn, 0, "layers.%d.experts.%d.up_bias", l, e);
            builder_add(b, "fp32", TINY_HIDDEN, 0, "layers.%d.experts.%d.down_bias", l, e);
        }
    }
    if (n_experts) {
        builder_add(b, "fp32", o->n_experts, TINY_HIDDEN, "layers.%d.router", l);
        if (o->router_bias)
            builder_add(b, "fp32", o->n_experts, 0, "layers.%d.router_bias", l);
        if (o->sigmoid_router)
            builder_add(b, "fp32", o->n_experts, 0, "layers.%d.router_choice_bias", l);
        if (o->shared_ffn) {
            builder_add(b, w, o->shared_ffn, TINY_HIDDEN, "layers.%d.shared.gate", l);
            builder_add(b, w, o->shared_ffn, TINY_HIDDEN, "layers.%d.shared.up", l);
            builder_add(b, w, TINY_HIDDEN, o->shared_ffn, "layers.%d.shared.down", l);
            if (o->shared_gate)
                builder_add(b, "fp32", 1, TINY_HIDDEN, "layers.%d.shared.router", l);
        }
        if (o->expert_norms) {
            builder_add(b, "fp32", TINY_HIDDEN, 0, "layers.%d.expert_norm", l);
            builder_add(b, "fp32", TINY_HIDDEN, 0, "layers.%d.expert_post_norm", l);
            builder_add(b, "fp32", TINY_HIDDEN, 0, "layers.%d.shared_post_norm", l);
            builder_add(b, "fp32", o->n_experts, 0, "layers.%d.router_scale", l);
        }
        return;
    }
    const int dense = (o->own_heads && l == 0) || (o->shared_keys && l == 1) ? OWN_FFN : TINY_FFN;
    builder_add(b, w, dense, TINY_HIDDEN, "layers.%d.gate", l);
    builder_add(b, w, dense, TINY_HIDDEN, "layers.%d.up", l);
    builder_add(b, w, TINY_HIDDEN, dense, "layers.%d.down", l);
    if (o->mlp_bias) {
        builder_add(b, "fp32", TINY_FFN, 0, "layers.%d.gate_bias", l);
        builder_add(b, "fp32", TINY_FFN, 0, "layers.%d.up_bias", l);
        builder_add(b, "fp32", TINY_HIDDEN, 0, "layers.%d.down_bias", l);
    }
}

static inline void builder_recurrent(struct builder *b, const struct build_options *o, const char *w, int l)
{
    const int keys = (o->kda ? 4 : 2) * 3, values = 4 * 5;
    builder_add(b, w, keys, TINY_HIDDEN, "layers.%d.q", l);
    builder_add(b, w, keys, TINY_HIDDEN, "layers.%d.k", l);
    builder_add(b, w, values, TINY_HIDDEN, "layers.%d.v", l);
    if (o->kda) {
        builder_add(b, w, 7, TINY_HIDDEN, "layers.%d.decay_a", l);
        builder_add(b, w, keys, 7, "layers.%d.decay_b", l);
        builder_add(b, w, 7, TINY_HIDDEN, "layers.%d.gate_a", l);
        builder_add(b, w, values, 7, "layers.%d.gate_b", l);
    } else {
        builder_add(b, w, values, TINY_HIDDEN, "layers.%d.output_gate", l);
        builder_add(b, "fp32", 4, TINY_HIDDEN, "layers.%d.decay", l);
    }
    builder_add(b, w, TINY_HIDDEN, values, "layers.%d.o", l);
    builder_add(b, "fp32", 4, 2 * keys + values, "layers.%d.conv", l);
    builder_add(b, "fp32", 4, TINY_HIDDEN, "layers.%d.beta", l);
    builder_add(b, "fp32", o->kda ? keys : 4, 0, "layers.%d.decay_bias", l);
    builder_add(b, "fp32", 4, 0, "layers.%d.decay_rate", l);
    builder_add(b, "fp32", 5, 0, "layers.%d.value_norm", l);
}

static inline void builder_convolution(struct builder *b, const char *w, int l)
{
    for (const char *name = "qkvo"; *name; name++) {
        builder_add(b, w, TINY_HIDDEN, TINY_HIDDEN, "layers.%d.%c", l, *name);
        builder_add(b, "fp32", TINY_HIDDEN, 0, "layers.%d.%c_bias", l, *name);
    }
    builder_add(b, "fp32", 3, TINY_HIDDEN, "layers.%d.conv", l);
    builder_add(b, "fp32", TINY_HIDDEN, 0, "layers.%d.conv_bias", l);
}

static inline void builder_attention(struct builder *b, const struct build_options *o, const char *w, int l)
{
    const bool own = o->own_heads && l == 0, keeps = !(o->shared_keys && l == 1);
    const int dim = own ? OWN_HEAD_DIM : TINY_HEAD_DIM, q = TINY_HEADS * dim, kv = (own ? 1 : TINY_KV_HEADS) * dim;
    builder_add(b, w, q, TINY_HIDDEN, "layers.%d.q", l);
    if (keeps) {
        builder_add(b, w, kv, TINY_HIDDEN, "layers.%d.k", l);
        builder_add(b, w, kv, TINY_HIDDEN, "layers.%d.v", l);
    }
    if (o->output_gate)
        builder_add(b, w, q, TINY_HIDDEN, "layers.%d.output_gate", l);
    builder_add(b, w, TINY_HIDDEN, q, "layers.%d.o", l);
    if (o->attention_bias || o->qkv_bias) {
        builder_add(b, "fp32", q, 0, "layers.%d.q_bias", l);
        if (keeps) {
            builder_add(b, "fp32", kv, 0, "layers.%d.k_bias", l);
            builder_add(b, "fp32", kv, 0, "layers.%d.v_bias", l);
        }
    }
    if (o->output_gate && (o->attention_bias || o->qkv_bias))
        builder_add(b, "fp32", q, 0, "layers.%d.output_gate_bias", l);
    if (o->attention_bias)
        builder_add(b, "fp32", TINY_HIDDEN, 0, "layers.%d.o_bias", l);
    if (o->qk_norm) {
        builder_add(b, "fp32", dim, 0, "layers.%d.q_norm", l);
        if (keeps)
            builder_add(b, "fp32", dim, 0, "layers.%d.k_norm", l);
    }
}

static inline void builder_latents(struct builder *b, const char *w, const char *of_heads, int l)
{
    builder_add(b, w, 6, TINY_HIDDEN, "layers.%d.q_a", l);
    builder_add(b, "fp32", 6, 0, "layers.%d.q_a_norm", l);
    builder_add(b, w, TINY_HEADS * (3 + 2), 6, "layers.%d.q", l);
    builder_add(b, w, 6 + 2, TINY_HIDDEN, "layers.%d.kv_a", l);
    builder_add(b, "fp32", 6, 0, "layers.%d.kv_a_norm", l);
    builder_add(b, of_heads, TINY_HEADS * 6, 3, "layers.%d.k_b", l);
    builder_add(b, of_heads, TINY_HEADS * 4, 6, "layers.%d.v_b", l);
    builder_add(b, w, TINY_HIDDEN, TINY_HEADS * 4, "layers.%d.o", l);
}

static inline void builder_tensors(struct builder *b, const struct build_options *o)
{
    const char *w = o->weights ? o->weights : "fp32";
    builder_add(b, w, TINY_VOCAB, TINY_HIDDEN, "embedding");
    for (int l = 0; l < TINY_LAYERS + o->mtp; l++) {
        builder_add(b, "fp32", TINY_HIDDEN, 0, "layers.%d.attention_norm", l);
        if (o->recurrent && l == 0)
            builder_recurrent(b, o, w, l);
        else if (o->convolves && l == 0)
            builder_convolution(b, w, l);
        else if (o->latents)
            builder_latents(b, w, o->latents, l);
        else
            builder_attention(b, o, w, l);
        builder_add(b, "fp32", TINY_HIDDEN, 0, "layers.%d.ffn_norm", l);
        if (o->norms_around) {
            builder_add(b, "fp32", TINY_HIDDEN, 0, "layers.%d.attention_post_norm", l);
            builder_add(b, "fp32", TINY_HIDDEN, 0, "layers.%d.ffn_post_norm", l);
        }
        if (o->sink_logits)
            builder_add(b, "fp32", TINY_HEADS, 0, "layers.%d.sink_logits", l);
        builder_add_ffn(b, o, w, l);
        if (o->layer_input) {
            builder_add(b, w, o->layer_input, TINY_HIDDEN, "layers.%d.input_gate", l);
            builder_add(b, w, TINY_HIDDEN, o->layer_input, "layers.%d.input_projection", l);
            builder_add(b, "fp32", TINY_HIDDEN, 0, "layers.%d.input_norm", l);
        }
        if (o->layer_scale)
            builder_add(b, "fp32", 1, 0, "layers.%d.scale", l);
    }
    if (o->layer_input) {
        builder_add(b, w, TINY_VOCAB, TINY_LAYERS * o->layer_input, "layer_embedding");
        builder_add(b, w, TINY_LAYERS * o->layer_input, TINY_HIDDEN, "layer_projection");
        builder_add(b, "fp32", o->layer_input, 0, "layer_projection_norm");
    }
    if (o->mtp) {
        builder_add(b, w, TINY_HIDDEN, 2 * TINY_HIDDEN, "mtp.projection");
        builder_add(b, "fp32", TINY_HIDDEN, 0, "mtp.embedding_norm");
        builder_add(b, "fp32", TINY_HIDDEN, 0, "mtp.hidden_norm");
        builder_add(b, "fp32", TINY_HIDDEN, 0, "mtp.norm");
    }
    builder_add(b, "fp32", TINY_HIDDEN, 0, "norm");
    if (!o->tied)
        builder_add(b, w, TINY_VOCAB, TINY_HIDDEN, "classifier");
}

static inline void put_u32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, sizeof value);
}
static inline void put_u64(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}
static inline uint64_t get_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

// Header fields by their offset in the file.
enum {
    AT_VERSION = 8,
    AT_HEADER_SIZE = 12,
    AT_FILE_LENGTH = 16,
    AT_METADATA = 24,
    AT_METADATA_LENGTH = 32,
    AT_CHECKSUM = 40,
    AT_DATA = 48,
    AT_RESERVED = 56
};

// Puts text[0..length) in the metadata's place, before the tensors, and makes length and checksum right.
static inline void set_metadata(struct built *file, const char *text, size_t length)
{
    const size_t room = get_u64(file->data + AT_DATA) - BUILDER_HEADER;
    builder_check(length <= room, "no room for the metadata");
    memset(file->data + BUILDER_HEADER, 0, room);
    memcpy(file->data + BUILDER_HEADER, text, length);
    put_u64(file->data + AT_METADATA_LENGTH, length);
    put_u64(file->data + AT_CHECKSUM, XXH3_64bits(text, length));
}

// Members of config that version 1 of the format does not have, where they are wanted.
static inline size_t builder_later(char *text, size_t room, const struct build_options *o)
{
    size_t n = 0;
    if (o->expert_ffn)
        n += (size_t)snprintf(text + n, room - n, "\"expert_ffn_dim\":%d,", o->expert_ffn);
    if (o->shared_ffn)
        n += (size_t)snprintf(text + n, room - n, "\"shared_ffn_dim\":%d,", o->shared_ffn);
    n += (size_t)snprintf(text + n, room - n, "%s%s%s", o->norms_after ? "\"norms_after\":true," : "",
                          o->norms_around ? "\"norms_around\":true," : "", o->sink_logits ? "\"sink_logits\":true," : "");
    if (o->mtp)
        n += (size_t)snprintf(text + n, room - n, "\"mtp\":{\"normed\":true,\"own_normed\":false},");
    if (o->recurrent)
        n += (size_t)snprintf(text + n, room - n,
                              "\"kinds\":[{\"layers\":[0],\"delta\":{%s\"n_value_heads\":4,"
                              "\"key_dim\":3,\"value_dim\":5,\"conv_width\":4}}],",
                              o->kda ? "\"kda_rank\":7,\"n_key_heads\":4," : "\"n_key_heads\":2,");
    if (o->convolves)
        n += (size_t)snprintf(text + n, room - n, "\"kinds\":[{\"layers\":[0],\"conv\":{\"conv_width\":3,\"bias\":true}}],");
    if (o->latents)
        n += (size_t)snprintf(text + n, room - n,
                              "\"latent\":{\"q_rank\":6,\"kv_rank\":6,\"nope_dim\":3,\"rope_dim\":2,\"v_dim\":4,"
                              "\"norm_eps\":1e-06},\"attention_scale\":0.4,");
    if (o->own_heads)
        n += (size_t)snprintf(text + n, room - n,
                              "\"kinds\":[{\"layers\":[0],\"sliding_window\":7,\"rope\":{\"type\":\"default\",\"theta\":1e4},"
                              "\"head_dim\":6,\"n_kv_heads\":1,\"ffn_dim\":20}],");
    if (o->shared_keys)
        n += (size_t)snprintf(text + n, room - n,
                              "\"kinds\":[{\"layers\":[1],\"sliding_window\":0,\"rope\":{\"type\":\"default\",\"theta\":1e4},"
                              "\"ffn_dim\":20,\"kv_of\":0}],");
    if (o->layer_input)
        n += (size_t)snprintf(text + n, room - n, "\"layer_input_dim\":%d,", o->layer_input);
    n += (size_t)snprintf(text + n, room - n, "%s%s%s", o->layer_scale ? "\"layer_scale\":true," : "",
                          o->v_norm ? "\"v_norm\":true," : "", o->expert_norms ? "\"expert_norms\":true," : "");
    n += (size_t)snprintf(text + n, room - n, "%s%s", o->output_gate ? "\"output_gate\":true," : "",
                          o->shared_gate ? "\"shared_gate\":true," : "");
    n += (size_t)snprintf(text + n, room - n, "%s%s", o->router_bias ? "\"router_bias\":true," : "",
                          o->sigmoid_router ? "\"sigmoid_router\":true," : "");
    return n + (size_t)snprintf(text + n, room - n, "%s%s%s", o->qkv_bias ? "\"qkv_bias\":true," : "",
                                o->qk_norm ? "\"qk_norm\":true," : "", o->first_dense ? "\"dense_layers\":[0]," : "");
}

static inline size_t builder_config(char *text, size_t room, const struct build_options *o)
{
    char later[512];
    builder_later(later, sizeof later, o);
    return (size_t)snprintf(
        text, room,
        "{\"config\":{%s\"architecture\":\"%s\",\"activation\":\"silu\",\"n_layers\":%d,\"hidden_dim\":%d,\"ffn_dim\":%d,"
        "\"n_heads\":%d,\"n_kv_heads\":%d,\"head_dim\":%d,\"vocab_size\":%d,\"context_length\":64,\"norm_eps\":1e-05,"
        "\"rope\":%s,\"sliding_window\":0,\"n_experts\":%d,\"n_active_experts\":%d,\"tied_embeddings\":%s,"
        "\"attention_bias\":%s,\"mlp_bias\":%s,\"bos\":1,\"eos\":[2,10]},"
        "\"tokenizer\":{\"type\":\"none\"},\"chat_template\":\"{{ caf\\u00e9 }}\","
        "\"source\":{\"name\":\"tiny\",\"converter\":\"0.1.0\"},\"tensors\":[",
        later, o->n_experts ? "MixtralForCausalLM" : "LlamaForCausalLM", TINY_LAYERS, TINY_HIDDEN, TINY_FFN, TINY_HEADS,
        o->latents ? 1 : TINY_KV_HEADS, o->latents ? 6 + 2 : TINY_HEAD_DIM, TINY_VOCAB,
        o->rope ? o->rope : "{\"type\":\"default\",\"theta\":10000.0}", o->n_experts, o->n_experts ? 2 : 0,
        o->tied ? "true" : "false", o->attention_bias ? "true" : "false", o->mlp_bias ? "true" : "false");
}

// The whole file; freed with built_free().
static inline struct built build(const struct build_options *options)
{
    static const struct build_options plain;
    options = options ? options : &plain;
    struct builder b = {.n_tensors = 0};
    builder_tensors(&b, options);
    // Entries are of a bounded length, so that the data's offset is known before the metadata's exact length is.
    char *text = malloc(BUILDER_TEXT);
    builder_check(text != NULL, "no memory");
    size_t n = builder_config(text, BUILDER_TEXT, options);
    const size_t bound = BUILDER_HEADER + n + (size_t)b.n_tensors * 180 + BUILDER_ROOM;
    const size_t data_offset = (bound + BUILDER_PAGE - 1) / BUILDER_PAGE * BUILDER_PAGE;
    struct built file = {.size = data_offset};
    for (int i = 0; i < b.n_tensors; i++)
        file.size = (file.size + 63) / 64 * 64 + b.tensors[i].length;
    file.data = calloc(1, file.size);
    builder_check(file.data != NULL, "no memory");

    size_t offset = data_offset;
    for (int i = 0; i < b.n_tensors; i++) {
        const struct built_tensor *t = &b.tensors[i];
        offset = (offset + 63) / 64 * 64;
        for (size_t j = 0; j < t->length; j++)
            file.data[offset + j] = (uint8_t)(j % 4 == 3 ? 0x3c : i * 31 + (int)j * 7); // small finite numbers in any type
        char shape[32];
        snprintf(shape, sizeof shape, t->rank == 2 ? "%d,%d" : "%d", t->rows, t->cols);
        n += (size_t)snprintf(
            text + n, BUILDER_TEXT - n,
            "%s{\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":[%s],\"offset\":%zu,\"length\":%zu,\"xxh3\":\"%016llx\"}",
            i ? "," : "", t->name, t->dtype, shape, offset, t->length,
            (unsigned long long)XXH3_64bits(file.data + offset, t->length));
        offset += t->length;
    }
    n += (size_t)snprintf(text + n, BUILDER_TEXT - n, "]}");
    builder_check(n < BUILDER_TEXT, "metadata too long");

    memcpy(file.data, "YALM\r\n\x1a\n", 8);
    put_u32(file.data + AT_VERSION,
            options->qkv_bias || options->qk_norm || options->first_dense || options->expert_ffn ? 2 : 1);
    put_u32(file.data + AT_HEADER_SIZE, BUILDER_HEADER);
    put_u64(file.data + AT_FILE_LENGTH, file.size);
    put_u64(file.data + AT_METADATA, BUILDER_HEADER);
    put_u64(file.data + AT_DATA, data_offset);
    set_metadata(&file, text, n);
    free(text);
    return file;
}

static inline void built_free(struct built *file)
{
    free(file->data);
    *file = (struct built){0};
}

// The metadata's text, terminated; the caller frees it.
static inline char *metadata_text(const struct built *file)
{
    const size_t n = get_u64(file->data + AT_METADATA_LENGTH);
    char *text = calloc(1, n + 1);
    builder_check(text != NULL, "no memory");
    memcpy(text, file->data + BUILDER_HEADER, n);
    return text;
}

// Replaces the first `from` in the metadata, which must be there.
static inline void edit(struct built *file, const char *from, const char *to)
{
    char *text = metadata_text(file);
    char *at = strstr(text, from);
    builder_check(at != NULL, from);
    const size_t n = strlen(text) - strlen(from) + strlen(to);
    char *edited = malloc(n + 1);
    builder_check(edited != NULL, "no memory");
    snprintf(edited, n + 1, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    set_metadata(file, edited, n);
    free(edited);
    free(text);
}

// A file that exists only as long as its descriptor: data[0..size) under the path in `path`. Close it with close().
static inline int file_of(const void *data, size_t size, char path[64])
{
    const int fd = memfd_create("model", MFD_CLOEXEC);
    builder_check(fd >= 0, "memfd_create");
    for (size_t done = 0; done < size;) {
        const ssize_t n = write(fd, (const char *)data + done, size - done);
        builder_check(n > 0, "write");
        done += (size_t)n;
    }
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}
