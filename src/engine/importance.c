// Importance: a text goes through the model in windows, and what the weight matrices read is added up, column by column.
#include <stdlib.h>

#include "engine/session.h"
#include "model/importance.h"
#include "util/error.h"
#include "util/memory.h"

struct observation {
    yalm_session *session;
    struct input_sums *sums;
    int n_sums;
    uint64_t room; // bytes that products may take
    float *turned; // room that all inputs share
    int widest;    // of the inputs whose products are added up
    bool failed;   // to get memory
};

static void make_room(void *context, const char *name, int input, const struct matrix *matrix)
{
    (void)name;
    struct observation *o = context;
    struct input_sums *sums = &o->sums[input];
    if (sums->squares)
        return;
    sums->cols = matrix->cols;
    sums->squares = calloc((size_t)matrix->cols, sizeof *sums->squares);
    o->failed |= !sums->squares;
    const uint64_t bytes = sizeof(float) * (uint64_t)matrix->cols * (uint64_t)importance_block(matrix->cols);
    if (!importance_has_products(&o->session->model->config, input) || bytes > o->room)
        return; // the converter says which have none
    o->room -= bytes;
    sums->products = calloc(1, bytes);
    o->failed |= !sums->products;
    o->widest = matrix->cols > o->widest ? matrix->cols : o->widest;
}

static yalm_status allocate(struct observation *o, yalm_error *error)
{
    const yalm_model *model = o->session->model;
    o->n_sums = importance_n_inputs(&model->config);
    o->room = memory_available() / 2;
    o->sums = calloc((size_t)o->n_sums, sizeof *o->sums);
    if (o->sums)
        importance_each(&model->config, &model->weights, make_room, o);
    const size_t tokens = (size_t)yalm_session_facts(o->session)->chunk;
    o->turned = malloc((size_t)o->widest * tokens * sizeof *o->turned);
    o->failed |= o->widest && !o->turned;
    for (int i = 0; o->sums && i < o->n_sums; i++)
        o->sums[i].turned = o->turned;
    return o->sums && !o->failed ? YALM_OK : error_set(error, YALM_NO_MEMORY, "out of memory for importance");
}

static void release(struct observation *o)
{
    for (int i = 0; o->sums && i < o->n_sums; i++) {
        free(o->sums[i].squares);
        free(o->sums[i].products);
    }
    free(o->turned);
    free(o->sums);
}

static yalm_status evaluate(struct observation *o, const int32_t *tokens, size_t n, const yalm_importance *how,
                            yalm_error *error)
{
    const yalm_session_options *options = yalm_session_facts(o->session);
    const int32_t bos = how->bos ? o->session->model->config.bos : -1;
    const size_t window = (size_t)(options->context - (bos >= 0));
    yalm_status status = YALM_OK;
    for (size_t at = 0, size; at < n && status == YALM_OK; at += size) {
        size = n - at < window ? n - at : window;
        status = yalm_rollback(o->session, 0, error);
        if (status == YALM_OK && bos >= 0)
            status = yalm_eval(o->session, &bos, 1, YALM_LOGITS_NONE, error);
        for (size_t i = 0, piece; i < size && status == YALM_OK; i += piece) {
            piece = size - i < (size_t)options->chunk ? size - i : (size_t)options->chunk;
            status = yalm_eval(o->session, tokens + at + i, (int)piece, YALM_LOGITS_NONE, error);
            if (how->progress)
                how->progress(how->context, (double)(at + i + piece) / (double)n);
        }
    }
    return status;
}

yalm_importance yalm_importance_defaults(void)
{
    return (yalm_importance){.size = sizeof(yalm_importance)};
}

static yalm_status check(const struct observation *o, size_t n, yalm_error *error)
{
    const yalm_session_options *options = yalm_session_facts(o->session);
    if (!o->session->backend->observe)
        return error_set(error, YALM_USAGE, "importance: found device %s, expected cpu", options->device);
    if (options->context < 2)
        return error_set(error, YALM_USAGE, "context: found %d, importance needs 2 or more", options->context);
    return n ? YALM_OK : error_set(error, YALM_USAGE, "the calibration text: found no tokens, expected one or more");
}

yalm_status yalm_importance_write(yalm_session *session, const int32_t *tokens, size_t n, const yalm_importance *how,
                                  const char *path, yalm_error *error)
{
    const yalm_importance defaults = yalm_importance_defaults();
    struct observation o = {.session = session};
    const yalm_model *model = o.session->model;
    struct new_file file = {0};
    how = how ? how : &defaults;
    yalm_status status = error_of_size(how->size, sizeof *how, "yalm_importance", error);
    status = status ?: check(&o, n, error);
    status = status ?: importance_create(&file, path, error);
    status = status ?: allocate(&o, error);
    status = status ?: importance_reserve(&file, o.sums, &model->config, &model->weights, error);
    if (status == YALM_OK) {
        o.session->backend->observe(o.session->state, o.sums);
        status = evaluate(&o, tokens, n, how, error);
        o.session->backend->observe(o.session->state, NULL);
    }
    if (status == YALM_OK)
        status = importance_write(&file, o.sums, o.sums[o.n_sums - 1].tokens, &model->container, &model->config,
                                  &model->weights, error);
    status = new_file_finish(&file, status, error);
    release(&o);
    if (status == YALM_INTERRUPTED)
        atomic_store(&o.session->cancel, false);
    return status;
}
