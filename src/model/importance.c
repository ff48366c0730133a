#include "model/importance.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "util/error.h"

enum { NAME_ROOM = 64, NONE = -1 };

static const char head[] = "{\"__metadata__\":{\"format\":\"yalm importance\"";

// ------------------------------------------------------------------------------------------ names

struct naming {
    importance_visitor *to;
    void *context;
};

static void visit_one(const struct naming *visit, const char *within, const char *part, int input, const struct matrix *m)
{
    char name[NAME_ROOM];
    if (!m->data) // the model has none
        return;
    snprintf(name, sizeof name, "%s%s", within, part);
    visit->to(visit->context, name, input, m);
}

static void visit_ffn(const struct naming *visit, const char *within, int units_input, int down_input,
                      const struct expert_weights *w)
{
    visit_one(visit, within, "gate", units_input, &w->gate);
    visit_one(visit, within, "up", units_input, &w->up);
    visit_one(visit, within, "down", down_input, &w->down);
}

static void visit_layer(const struct naming *visit, const struct model_config *config, const struct layer_weights *w, int layer)
{
    const int first = importance_input(config, layer, 0);
    char within[NAME_ROOM - 16];
    snprintf(within, sizeof within, "layers.%d.", layer);
    const bool latent = w->latent.k_b.data, q_reads_latent = w->latent.q_a.data;
    const char *const names[] = {"q", latent ? "kv_a" : "k", "v", "output_gate", "q_a"};
    const struct matrix *const of_stream[] = {&w->q, &w->k, &w->v, &w->output_gate, &w->latent.q_a};
    for (int i = q_reads_latent; i < 5; i++)
        visit_one(visit, within, names[i], first + INPUT_QKV, of_stream[i]);
    visit_one(visit, within, "o", first + INPUT_O, &w->o);
    const char *const of_scan[] = {"scan.c", "scan.b", "scan.x", "scan.z"};
    const struct matrix *const scanned[] = {&w->scan.c, &w->scan.b, &w->scan.x, &w->scan.z};
    for (int i = 0; i < 4; i++)
        visit_one(visit, within, of_scan[i], first + INPUT_QKV, scanned[i]);
    visit_one(visit, within, "scan.o", first + INPUT_SCAN_O, &w->scan.o);
    if (!w->router.data) {
        visit_ffn(visit, within, first + INPUT_FFN, first + INPUT_DOWN, &w->experts[0]);
        return;
    }
    for (int e = 0, input = first + INPUT_EXPERTS; e < config->n_experts; e++, input += 2) {
        snprintf(within, sizeof within, "layers.%d.experts.%d.", layer, e);
        visit_ffn(visit, within, input, input + 1, &w->experts[e]);
    }
    snprintf(within, sizeof within, "layers.%d.shared.", layer);
    visit_ffn(visit, within, first + INPUT_FFN, first + INPUT_DOWN, &w->shared);
}

void importance_each(const struct model_config *config, const struct model_weights *weights, importance_visitor *visit,
                     void *context)
{
    const struct naming to = {visit, context};
    for (int layer = 0; layer < config->n_layers; layer++)
        visit_layer(&to, config, &weights->layers[layer], layer);
    const bool tied = weights->classifier.data == weights->embedding.data;
    visit(context, tied ? "embedding" : "classifier", importance_n_inputs(config) - 1, &weights->classifier);
}

// ------------------------------------------------------------------------------------------ writing

static bool holds_importance(FILE *file)
{
    char begin[8 + sizeof head - 1];
    return fread(begin, sizeof begin, 1, file) == 1 && memcmp(begin + 8, head, sizeof head - 1) == 0;
}

yalm_status importance_create(struct new_file *file, const char *path, yalm_error *error)
{
    return new_file_create(file, path, holds_importance, "importance", error);
}

// The file while it is made: its table first. Then the bytes are gone through twice, for their checksum and to be written.
struct parts {
    const struct input_sums *sums;
    FILE *table, *body;     // one of them, or none
    XXH3_state_t *checksum; // of the body
    size_t at;              // bytes of the body so far
    int before;             // the input whose products were put last
    bool failed;            // to write
    char unfit[NAME_ROOM];
};

static void put_entry(struct parts *p, const char *name, const char *suffix, const char *dtype, int rows, int cols, size_t size)
{
    char shape[32];
    const size_t end = p->at + size * (size_t)rows * (size_t)cols;
    snprintf(shape, sizeof shape, cols == 1 ? "%d" : "%d,%d", rows, cols);
    if (p->table)
        fprintf(p->table, ",\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", name, suffix, dtype, shape,
                p->at, end);
    p->at = end;
}

static void put_bytes(struct parts *p, const void *data, size_t bytes)
{
    if (p->body)
        p->failed |= fwrite(data, 1, bytes, p->body) != bytes;
    else if (p->checksum)
        XXH3_64bits_update(p->checksum, data, bytes);
}

static void put_products(struct parts *p, int input, const struct input_sums *sums)
{
    char name[NAME_ROOM];
    const int block = importance_block(sums->cols);
    snprintf(name, sizeof name, "input.%d", input);
    put_entry(p, name, "", "F32", sums->cols, block, sizeof(float));
    put_bytes(p, sums->products, sizeof(float) * (size_t)sums->cols * (size_t)block);
    p->before = input;
}

// How many tokens a matrix's sums are of, and the number of its input; the sums; behind its first matrix an input's products.
static void put_matrix(void *context, const char *name, int input, const struct matrix *matrix)
{
    struct parts *p = context;
    const struct input_sums *sums = &p->sums[input];
    put_entry(p, name, ".tokens", "I64", 2, 1, sizeof(int64_t));
    put_bytes(p, (int64_t[2]){sums->tokens, input}, sizeof(int64_t[2]));
    put_entry(p, name, "", "F32", matrix->cols, 1, sizeof(float));
    for (int i = 0; i < matrix->cols; i++) {
        const float sum = (float)sums->squares[i];
        if (!isfinite(sum))
            snprintf(p->unfit, sizeof p->unfit, "%s", name);
        put_bytes(p, &sum, sizeof sum);
    }
    if (sums->products && p->before != input)
        put_products(p, input, sums);
}

yalm_status importance_reserve(struct new_file *file, const struct input_sums *sums, const struct model_config *config,
                               const struct model_weights *weights, yalm_error *error)
{
    struct parts parts = {.sums = sums, .before = NONE};
    importance_each(config, weights, put_matrix, &parts);
    const int code = posix_fallocate(fileno(file->file), 0, (off_t)parts.at);
    if (code == 0 || code == EINTR || code == EINVAL || code == EOPNOTSUPP) // then it is said when it is written
        return YALM_OK;
    return error_set(error, YALM_FAILED, "%s: %zu bytes are needed: %s", file->path, parts.at, strerror(code));
}

static yalm_status put_file(FILE *file, const char *table, struct parts *p, int64_t tokens, uint64_t model,
                            const struct model_config *config, const struct model_weights *weights, const char *path,
                            yalm_error *error)
{
    char *text = NULL;
    p->before = NONE;
    importance_each(config, weights, put_matrix, p);
    const int n =
        asprintf(&text, "%s,\"model\":\"%016llx\",\"xxh3\":\"%016llx\",\"tokens\":\"%lld\"}%s}", head,
                 (unsigned long long)model, (unsigned long long)XXH3_64bits_digest(p->checksum), (long long)tokens, table);
    if (n < 0)
        return error_set(error, YALM_NO_MEMORY, "%s: no memory", path);
    const uint64_t padded = ((uint64_t)n + 7) / 8 * 8;
    p->failed = fwrite(&padded, sizeof padded, 1, file) != 1 || fprintf(file, "%-*s", (int)padded, text) != (int)padded;
    p->body = file;
    p->before = NONE;
    importance_each(config, weights, put_matrix, p);
    free(text);
    return p->failed ? error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno)) : YALM_OK;
}

yalm_status importance_write(struct new_file *file, const struct input_sums *sums, int64_t tokens,
                             const struct container *model, const struct model_config *config,
                             const struct model_weights *weights, yalm_error *error)
{
    char *table = NULL;
    size_t table_length;
    struct parts parts = {.sums = sums, .before = NONE, .table = open_memstream(&table, &table_length)};
    if (parts.table)
        importance_each(config, weights, put_matrix, &parts);
    const bool table_made = parts.table && fclose(parts.table) == 0;
    parts.table = NULL;
    parts.checksum = XXH3_createState();
    yalm_status status = YALM_OK;
    if (!table_made || !parts.checksum || XXH3_64bits_reset(parts.checksum) != XXH_OK)
        status = error_set(error, YALM_NO_MEMORY, "%s: no memory", file->path);
    else if (parts.unfit[0])
        status = error_set(error, YALM_FAILED, "importance: what %s reads is not finite", parts.unfit);
    else
        status = put_file(file->file, table, &parts, tokens, model->metadata_checksum, config, weights, file->path, error);
    XXH3_freeState(parts.checksum);
    free(table);
    return status;
}
