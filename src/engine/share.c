// How a group's ranks get their shares of a model.

#include "engine/group.h"
#include "engine/model.h"
#include "recipe/recipe.h"
#include "util/error.h"

// What the model has that one process alone computes; NULL: nothing.
static const char *of_one_process(const struct recipe *outline)
{
    static const struct {
        unsigned ops, traits;
        const char *what;
    } facts[] = {
        {0, TRAIT_BARE, "experts with norms of their own"}, // two norms of sums, one within the other
        {0, TRAIT_BOTH_WAYS, "attention both ways"},
        {0, TRAIT_SCAN, "scans (Mamba-2)"},
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if ((outline->ops & facts[i].ops) || (outline->traits & facts[i].traits))
            return facts[i].what;
    return NULL;
}

yalm_status share_check(const struct model_config *config, const struct model_weights *weights, int n_ranks, yalm_error *error)
{
    const struct recipe outline = recipe_outline(config, weights);
    const char *const what = of_one_process(&outline);
    if (what)
        return error_set(error, YALM_USAGE, "ranks: this model has %s, which ranks do not share: run it without mpirun", what);
    const int most = share_most_ranks(config, weights);
    const bool latents = config->latent.kv_rank;
    if (n_ranks <= most)
        return YALM_OK;
    return error_set(
        error, YALM_USAGE,
        "ranks: found %d, expected at most %d: so many parts of this model's %s (%d), heads of recurrent layers and "
        "feed-forward units can be cut",
        n_ranks, most, latents ? "heads" : "KV heads", latents ? config->n_heads : config->n_kv_heads);
}

yalm_status model_take_share(yalm_model *model, yalm_error *error)
{
    const struct transport *transport = &model->group->transport;
    const yalm_status status = share_check(&model->config, &model->weights, transport->n, error);
    return status
               ?: share_open(&model->share, &model->config, &model->weights, &model->container, transport->rank, transport->n,
                             error);
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
