// How a group's ranks get their shares of a model.

#include "engine/group.h"
#include "engine/model.h"
#include "recipe/recipe.h"
#include "util/error.h"

yalm_status share_check(const struct model_config *config, const struct model_weights *weights, int n_ranks, yalm_error *error)
{
    enum {
        ALONE = 1 << OP_JOIN, // two norms of sums, one within the other
    };
    const struct recipe outline = recipe_outline(config, weights);
    if (outline.ops & ALONE)
        return error_set(error, YALM_USAGE,
                         "ranks: experts with norms of their own cannot be shared among ranks: run this model without mpirun");
    if ((outline.ops & 1 << OP_NORM) || (outline.traits & TRAITS_ALONE))
        return error_set(
            error, YALM_USAGE,
            "ranks: LayerNorm, MLPs without a gate, attention both ways or to latents (MLA), scans (Mamba-2), KDA, and "
            "groups of experts cannot be shared among ranks: run this model without mpirun");
    const int most = share_most_ranks(config, weights);
    if (n_ranks <= most)
        return YALM_OK;
    return error_set(
        error, YALM_USAGE,
        "ranks: found %d, expected at most %d: so many parts of this model's KV heads (%d), heads of recurrent layers "
        "and feed-forward units can be cut",
        n_ranks, most, config->n_kv_heads);
}

yalm_status model_take_share(yalm_model *model, yalm_error *error)
{
    const struct transport *transport = &model->group->transport;
    const yalm_status status = share_check(&model->config, &model->weights, transport->n, error);
    return status == YALM_OK ? share_open(&model->share, &model->config, &model->weights, &model->container, transport->rank,
                                          transport->n, error)
                             : status;
}

yalm_status model_share_out(yalm_model *model, yalm_error *error)
{
    yalm_group *group = model->group;
    group->joined = false;
    yalm_status status = share_check(&model->config, &model->weights, group->transport.n, error);
    if (status != YALM_OK)
        return status;
    struct group_model mine = group_model_of(&model->info);
    mine.fp16 = group->fp16;
    pthread_mutex_lock(&group->lock);
    status = group_tell(group, &(struct command){.kind = COMMAND_LOAD}, &mine, sizeof mine, error);
    yalm_error ours = {0};
    if (status == YALM_OK) {
        model_take_share(model, &ours); // while they take theirs
        status = group_answers(group, error);
    }
    pthread_mutex_unlock(&group->lock);
    if (status == YALM_OK && ours.status != YALM_OK)
        status = error_set(error, ours.status, "%s", ours.text);
    if (status == YALM_OK)
        group_begin_pulse(group);
    return status;
}
