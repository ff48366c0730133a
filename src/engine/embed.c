// A text's vector: what its tokens have become before the classifier, pooled ("pooling" in docs/format.md).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session.h"
#include "util/error.h"

struct embedding {
    const yalm_model *model;
    float *rows; // (chunk, hidden_dim), of the batch that is evaluated
    double *sum; // (hidden_dim)
};

float *embed_rows(struct embedding *e)
{
    return e->rows;
}

// rmsnorm(x; norm), where the backend has not done that already (struct batch).
static double norm_factor(const yalm_model *model, const float *x)
{
    const struct model_config *c = &model->config;
    double squares = 0;
    for (int i = 0; i < c->hidden_dim; i++)
        squares += (double)x[i] * x[i];
    return 1 / sqrt(squares / c->hidden_dim + c->norm_eps);
}

void embed_take(struct embedding *e, int n)
{
    const struct model_config *c = &e->model->config;
    const float *weight = c->mtp.normed ? NULL : e->model->weights.norm;
    const bool last = c->pooling == POOLING_LAST;
    for (int t = last ? n - 1 : 0; t < n; t++) {
        const float *x = e->rows + (size_t)t * (size_t)c->hidden_dim;
        const double factor = weight ? norm_factor(e->model, x) : 1;
        for (int i = 0; i < c->hidden_dim; i++)
            e->sum[i] = (last ? 0 : e->sum[i]) + factor * x[i] * (weight ? weight[i] : 1);
    }
}

static yalm_status check(const yalm_session *s, int n, yalm_error *error)
{
    if (s->model->config.pooling == POOLING_NONE)
        return error_set(error, YALM_USAGE, "the model makes no vectors of texts: it was trained to go on with them");
    if (s->backend != &backend_cpu || s->model->group)
        return error_set(error, YALM_USAGE, "vectors of texts: found device %s%s, expected cpu and one process",
                         s->options.device, s->model->group ? " on several machines" : "");
    if (n < 0)
        return error_set(error, YALM_USAGE, "number of tokens: found %d, expected 0 or more", n);
    return YALM_OK;
}

static yalm_status take_vector(const struct embedding *e, float *vector, yalm_error *error)
{
    const int dim = e->model->config.hidden_dim;
    double squares = 0;
    for (int i = 0; i < dim; i++)
        squares += e->sum[i] * e->sum[i];
    if (!(squares > 0) || !isfinite(squares))
        return error_set(error, YALM_FAILED, "the text's vector has no finite length");
    for (int i = 0; i < dim; i++)
        vector[i] = (float)(e->sum[i] / sqrt(squares));
    return YALM_OK;
}

yalm_status yalm_embed(yalm_session *s, const int32_t *tokens, int n, float *vector, yalm_error *error)
{
    yalm_status status = check(s, n, error);
    if (status == YALM_OK)
        status = yalm_rollback(s, 0, error);
    if (status != YALM_OK)
        return status;
    const struct model_config *c = &s->model->config;
    const size_t dim = (size_t)c->hidden_dim, all = (size_t)n + (c->pooling_end >= 0);
    struct embedding e = {
        .model = s->model, .rows = malloc(sizeof(float) * dim * (size_t)s->options.chunk), .sum = calloc(dim, sizeof(double))};
    int32_t *text = malloc(sizeof *text * (all + 1));
    if (e.rows && e.sum && text && all <= INT32_MAX) {
        if (n > 0)
            memcpy(text, tokens, sizeof *text * (size_t)n);
        text[n] = c->pooling_end;
        s->embedding = &e;
        status = yalm_eval(s, text, (int)all, YALM_LOGITS_NONE, error);
        s->embedding = NULL;
        if (status == YALM_OK)
            status = take_vector(&e, vector, error);
        const yalm_status emptied = yalm_rollback(s, 0, status == YALM_OK ? error : NULL);
        status = status == YALM_OK ? emptied : status;
        mtp_forget(s);
    } else
        status = error_set(error, YALM_NO_MEMORY, "out of memory for a vector of %d tokens", n);
    free(e.rows);
    free(e.sum);
    free(text);
    return status;
}
