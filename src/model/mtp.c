#include "model/mtp.h"

struct model_config mtp_config_of(const struct model_config *model)
{
    const int layer = model->n_layers;
    struct model_config head = *model;
    head.n_layers = 1;
    head.n_more_kinds = 0;
    head.kinds[0] = model->kinds[model->kind_of_layer[layer]];
    head.kind_of_layer[0] = 0;
    head.dense_layer[0] = model->dense_layer[layer];
    head.unrotated_layer[0] = model->unrotated_layer[layer];
    head.mtp = (struct mtp_config){.normed = model->mtp.own_normed};
    head.logits_softcap = 0; // it changes no order
    head.guesses = true;
    return head;
}

struct model_weights mtp_weights_of(const struct model_weights *weights, const struct model_config *model)
{
    struct model_weights head = *weights;
    head.layers = weights->layers + model->n_layers;
    head.norm = weights->mtp_norm;
    return head;
}
