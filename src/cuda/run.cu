// Queues a recipe's steps (recipe.h) on the session's stream, with what concerns every one alike: sums among ranks; and keeps
// what tokens have become.
#include "cuda/product_ops.h"
#include "cuda/shares.h"

static yalm_status queue_all(const struct pass *r, int first, int last, yalm_error *error)
{
    struct cuda_state *s = r->s;
    for (const struct step *step = s->recipe.steps + first; step < s->recipe.steps + last; step++) {
        TRY(queue_step(r, step, error));
        if (step->ends_block && s->group)
            TRY(shares_end_block(s, step->post_norm, r->n, error));
        if (step->ends_layer)
            TRY(shares_keep_up(s, step->layer, error));
    }
    return YALM_OK;
}

yalm_status cuda_steps(struct cuda_state *s, int first, int last, int n, bool selective, yalm_error *error)
{
    const struct pass run = {s, n, selective, s->x, NULL};
    return queue_all(&run, first, last, error);
}

yalm_status cuda_classify(struct cuda_state *s, float *logits, const float *x, int n, yalm_error *error)
{
    const struct pass run = {s, n, false, x, logits};
    TRY(queue_all(&run, s->recipe.classifier, s->recipe.n, error));
    return s->group ? shares_gather(s, logits, n, error) : YALM_OK;
}

yalm_status cuda_keep_hidden(struct cuda_state *s, const struct batch *batch, int first, int n, yalm_error *error)
{
    const size_t dim = s->config->hidden_dim;
    const struct model_weights *w = &s->weights->weights;
    const struct norm norm = {s->config->mtp.normed || batch->normed ? w->norm : NULL, w->norm_bias};
    if (!batch->hidden)
        return YALM_OK;
    if (norm.weight)
        TRY(normalise(s, s->h, DTYPE_FP32, s->x, &norm, n, (int)dim, false, error));
    TRY_CUDA(cudaMemcpyAsync(batch->hidden + first * dim, norm.weight ? s->h : s->x, n * dim * sizeof(float),
                             cudaMemcpyDeviceToHost, s->stream));
    TRY_CUDA(cudaStreamSynchronize(s->stream));
    return YALM_OK;
}
