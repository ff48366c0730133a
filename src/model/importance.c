#include "model/importance.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "util/error.h"

enum { NAME_ROOM = 64 };

static const char head[] = "{\"__metadata__\":{\"format\":\"yalm importance\"";

// ------------------------------------------------------------------------------------------ names

struct visit {
    importance_visitor *to;
    void *context;
};

static void visit_one(const struct visit *visit, const char *within, const char *part, int input, const struct matrix *m)
{
    char name[NAME_ROOM];
    snprintf(name, sizeof name, "%s%s", within, part);
    visit->to(visit->context, name, input, m);
}

static void visit_ffn(const struct visit *visit, const char *within, int units_input, int down_input,
                      const struct expert_weights *w)
{
    visit_one(visit, within, "gate", units_input, &w->gate);
    visit_one(visit, within, "up", units_input, &w->up);
    visit_one(visit, within, "down", down_input, &w->down);
}

static void visit_layer(const struct visit *visit, const struct model_config *config, const struct layer_weights *w, int layer)
{
    const int first = importance_input(config, layer, 0);
    char within[NAME_ROOM - 16];
    snprintf(within, sizeof within, "layers.%d.", layer);
    static const char *const names[] = {"q", "k", "v", "output_gate"};
    const struct matrix *const of_stream[] = {&w->q, &w->k, &w->v, &w->output_gate};
    for (int i = 0; i < 4; i++)
        if (of_stream[i]->data)
            visit_one(visit, within, names[i], first + INPUT_QKV, of_stream[i]);
    visit_one(visit, within, "o", first + INPUT_O, &w->o);
    if (!w->router.data) {
        visit_ffn(visit, within, first + INPUT_FFN, first + INPUT_DOWN, &w->experts[0]);
        return;
    }
    for (int e = 0, input = first + INPUT_EXPERTS; e < config->n_experts; e++, input += 2) {
        snprintf(within, sizeof within, "layers.%d.experts.%d.", layer, e);
        visit_ffn(visit, within, input, input + 1, &w->experts[e]);
    }
    snprintf(within, sizeof within, "layers.%d.shared.", layer);
    if (w->shared.gate.data)
        visit_ffn(visit, within, first + INPUT_FFN, first + INPUT_DOWN, &w->shared);
}

void importance_each(const struct model_config *config, const struct model_weights *weights, importance_visitor *visit,
                     void *context)
{
    const struct visit to = {visit, context};
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

// The parts of the file while they are made, in memory.
struct parts {
    const struct input_sums *sums;
    FILE *table, *body;
    size_t at; // bytes of the body so far
    char unfit[NAME_ROOM];
};

// A matrix's sums, and how many tokens they are of.
static void put_matrix(void *context, const char *name, int input, const struct matrix *matrix)
{
    struct parts *p = context;
    const struct input_sums *sums = &p->sums[input];
    const size_t counted = p->at + sizeof sums->tokens, end = counted + (size_t)matrix->cols * sizeof(float);
    fprintf(p->table, ",\"%s.tokens\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}", name, p->at, counted);
    fprintf(p->table, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]}", name, matrix->cols, counted,
            end);
    fwrite(&sums->tokens, sizeof sums->tokens, 1, p->body);
    for (int i = 0; i < matrix->cols; i++) {
        const float sum = (float)sums->squares[i];
        if (!isfinite(sum))
            snprintf(p->unfit, sizeof p->unfit, "%s", name);
        fwrite(&sum, sizeof sum, 1, p->body);
    }
    p->at = end;
}

static yalm_status put_file(FILE *file, const char *table, const char *body, size_t length, int64_t tokens, uint64_t checksum,
                            const char *path, yalm_error *error)
{
    char *text = NULL;
    const int n =
        asprintf(&text, "%s,\"model\":\"%016llx\",\"xxh3\":\"%016llx\",\"tokens\":\"%lld\"}%s}", head,
                 (unsigned long long)checksum, (unsigned long long)XXH3_64bits(body, length), (long long)tokens, table);
    if (n < 0)
        return error_set(error, YALM_NO_MEMORY, "%s: no memory", path);
    const uint64_t padded = ((uint64_t)n + 7) / 8 * 8;
    bool written = fwrite(&padded, sizeof padded, 1, file) == 1 && fprintf(file, "%-*s", (int)padded, text) == (int)padded;
    written = written && fwrite(body, 1, length, file) == length;
    free(text);
    return written ? YALM_OK : error_set(error, YALM_FAILED, "%s: %s", path, strerror(errno));
}

yalm_status importance_write(struct new_file *file, const struct input_sums *sums, int64_t tokens,
                             const struct container *model, const struct model_config *config,
                             const struct model_weights *weights, yalm_error *error)
{
    char *table = NULL, *body = NULL;
    size_t table_length, body_length;
    struct parts parts = {.sums = sums, .table = open_memstream(&table, &table_length)};
    parts.body = open_memstream(&body, &body_length);
    if (parts.table && parts.body)
        importance_each(config, weights, put_matrix, &parts);
    const bool table_made = parts.table && fclose(parts.table) == 0, body_made = parts.body && fclose(parts.body) == 0;
    yalm_status status = YALM_OK;
    if (!table_made || !body_made || body_length != parts.at)
        status = error_set(error, YALM_NO_MEMORY, "%s: no memory", file->path);
    else if (parts.unfit[0])
        status = error_set(error, YALM_FAILED, "importance: what %s reads is not finite", parts.unfit);
    else
        status = put_file(file->file, table, body, body_length, tokens, model->metadata_checksum, file->path, error);
    free(table);
    free(body);
    return status;
}
