// What no single number of the metadata's `config` tells: which divide what, and which exclude each other.

#include "model/config.h"
#include "model/rope.h"
#include "util/error.h"

struct config_check {
    const struct model_config *config;
    const char *path; // of the file
    yalm_error *error;
};

// Of kind's layers, or with kind 0 of those that no member of `kinds` names.
static yalm_status check_heads(const struct config_check *r, int kind)
{
    const struct model_config *c = r->config;
    const char *path = r->path;
    const int n_kv_heads = config_kind_kv_heads(c, kind), head_dim = config_kind_head_dim(c, kind);
    if (c->n_heads % n_kv_heads != 0)
        return error_set(r->error, YALM_BAD_MODEL,
                         "%s: metadata: 'config.n_heads': found %d, expected a multiple of n_kv_heads = %d", path, c->n_heads,
                         n_kv_heads);
    if (head_dim % 2 != 0)
        return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: 'config.head_dim': found %d, expected an even number", path,
                         head_dim);
    if ((int64_t)c->n_heads * head_dim > CONFIG_MAX_DIM)
        return error_set(r->error, YALM_BAD_MODEL,
                         "%s: metadata: 'config.n_heads' times 'head_dim': found %lld, expected at most %d", path,
                         (long long)c->n_heads * head_dim, CONFIG_MAX_DIM);
    return YALM_OK;
}

// Whether two kinds' keys and values are alike, and seen alike.
static bool see_alike(const struct model_config *c, int a, int b)
{
    const struct layer_kind *x = &c->kinds[a], *y = &c->kinds[b];
    return x->sliding_window == y->sliding_window && rope_equal(&x->rope, &y->rope) &&
           config_kind_head_dim(c, a) == config_kind_head_dim(c, b) &&
           config_kind_kv_heads(c, a) == config_kind_kv_heads(c, b) && config_kind_keeps(c, b);
}

static yalm_status check_sharing(const struct config_check *r)
{
    const struct model_config *c = r->config;
    bool met[CONFIG_MAX_KINDS] = {false}, closed[CONFIG_MAX_KINDS] = {false};
    for (int l = 0; l < c->n_layers; l++) {
        const int kind = c->kind_of_layer[l], of = c->kinds[kind].kv_of;
        met[kind] = true;
        if (closed[kind] || (c->kinds[kind].shares_keys && (!met[of] || !see_alike(c, kind, of))))
            return error_set(
                r->error, YALM_BAD_MODEL,
                "%s: metadata: 'config.kinds.kv_of': expected a kind with keys of its own, alike, whose layers all "
                "come before",
                r->path);
        if (c->kinds[kind].shares_keys)
            closed[of] = true;
    }
    return YALM_OK;
}

static yalm_status check_kinds(const struct config_check *r)
{
    yalm_status status = YALM_OK;
    for (int kind = 0; kind < config_n_kinds(r->config) && status == YALM_OK; kind++)
        if (kind == 0 || config_kind_attends(r->config, kind))
            status = check_heads(r, kind);
    return status ?: check_sharing(r);
}

static yalm_status refuse_beside(const struct config_check *r, const char *fact, const char *beside)
{
    return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: 'config.%s': found beside %s", r->path, fact, beside);
}

// The first that the model has of the facts that check_encoder() is about; NULL: none.
static const char *encoder_fact(const struct model_config *c)
{
    const struct {
        bool found;
        const char *fact;
    } facts[] = {
        {c->bidirectional, "bidirectional"},
        {c->layer_norm, "layer_norm"},
        {c->post_norm, "post_norm"},
        {c->learned_positions, "learned_positions"},
        {c->n_token_types > 0, "n_token_types"},
        {c->embedding_norm, "embedding_norm"},
        {c->bare_first, "bare_first"},
    };
    size_t i = 0;
    while (i < sizeof facts / sizeof *facts && !facts[i].found)
        i++;
    return i < sizeof facts / sizeof *facts ? facts[i].fact : NULL;
}

// Facts of models that read a whole text at once, or have LayerNorm.
static yalm_status check_encoder(const struct config_check *r)
{
    const struct model_config *c = r->config;
    const char *const fact = encoder_fact(c);
    if (fact && (c->n_experts > 0 || config_recurs(c) || c->layer_input_dim > 0 || c->mtp.there || config_kinds_share(c)))
        return refuse_beside(r, fact, "experts, recurrent layers, inputs of layers, shared keys or an MTP head");
    if (c->layer_norm && (c->norms_after || c->norms_around || c->qk_norm || c->whole_qk_norm || c->v_norm))
        return refuse_beside(r, "layer_norm", "norms_after, norms_around or norms of heads, which are RMSNorm");
    if ((c->parallel || c->classifier_bias) && (!c->layer_norm || c->post_norm || c->bidirectional))
        return refuse_beside(r, c->parallel ? "parallel" : "classifier_bias", "RMSNorm, post_norm or bidirectional");
    if (c->alibi && (c->n_heads != c->n_kv_heads || config_n_kinds(c) > 1 || c->bidirectional || c->mtp.there))
        return refuse_beside(r, "alibi", "fewer KV heads than heads, kinds of layers, bidirectional or an MTP head");
    if (c->one_norm && !c->parallel)
        return refuse_beside(r, "one_norm", "blocks that come one after the other");
    if (c->ungated && (c->activation == ACTIVATION_CLAMPED || c->layer_input_dim > 0 || c->expert_norms))
        return refuse_beside(r, "ungated", "activation clamped, which adds 1 to what there is none of, or Gemma 4's facts");
    if (c->activation == ACTIVATION_XIELU && (!c->ungated || c->n_experts > 0))
        return refuse_beside(r, "activation", "gates or experts, as xielu");
    if (c->expert_eps > 0 && (!(c->sigmoid_router || c->softmax_choice_bias) || c->raw_expert_weights))
        return refuse_beside(r, "expert_eps", "weights that are not divided by the sum of scores");
    if (c->softmax_choice_bias && (c->n_experts == 0 || c->sigmoid_router || c->n_expert_groups > 0 || c->expert_norms))
        return refuse_beside(r, "softmax_choice_bias", "sigmoid_router, groups or norms of experts, or no experts");
    if (c->softmax_choice_bias && !c->raw_expert_weights && c->expert_eps <= 0) // chosen experts' scores may all be 0
        return refuse_beside(r, "softmax_choice_bias", "a sum of scores without its least value, expert_eps");
    if (c->norm_bias && !c->layer_norm)
        return refuse_beside(r, "norm_bias", "RMSNorm, which has none");
    if (c->post_norm && (c->norms_after || c->norms_around || c->bare_first))
        return refuse_beside(r, "post_norm", "norms_after, norms_around or bare_first");
    if (c->bidirectional && (!c->tied_embeddings || c->sink_logits || c->query_growth > 0 || c->logits_softcap > 0))
        return refuse_beside(r, "bidirectional", "a classifier of its own, sink_logits, query_growth or logits_softcap");
    if (c->post_norm && !c->bidirectional)
        return refuse_beside(r, "post_norm", "logits, which it knows no norm for");
    if (c->scores && c->bidirectional == (c->score_by == POOLING_LAST))
        return refuse_beside(r, "score",
                             c->bidirectional ? "attention both ways, and by the last token"
                                              : "attention to what is before alone, and not by the last token");
    if (c->scores && (config_kinds_share(c) || (c->score_by == POOLING_LAST && c->pooling != POOLING_NONE)))
        return refuse_beside(r, "score", "shared keys or, by the last token, pooling");
    if (c->score_normed && !c->layer_norm)
        return refuse_beside(r, "score.normed", "RMSNorm");
    return YALM_OK;
}

// Attention and a recurrence side by side, and layers that end behind either.
static yalm_status check_scan(const struct config_check *r)
{
    const struct model_config *c = r->config;
    bool scans = false;
    for (int kind = 0; kind < config_n_kinds(c); kind++)
        scans |= c->kinds[kind].delta.scan.there;
    if (config_kind_recurs(c, 0) && (!c->kinds[0].delta.scan.there || c->n_more_kinds > 0))
        return refuse_beside(r, "delta", "kinds of layers, or without 'scan'");
    if (c->n_no_ffn_layers > 0 && !scans)
        return refuse_beside(r, "no_ffn_layers", "layers none of which has a 'scan'");
    if (scans && (c->parallel || c->post_norm || c->norms_after || c->norms_around || c->latent.kv_rank || c->mtp.there))
        return refuse_beside(r, "kinds.delta.scan", "parallel blocks, norms behind them, latents or an MTP head");
    return YALM_OK;
}

static yalm_status check_latent(const struct config_check *r)
{
    const struct model_config *c = r->config;
    const struct latent_config *l = &c->latent;
    const int64_t widest = l->nope_dim + l->rope_dim > l->v_dim ? l->nope_dim + l->rope_dim : l->v_dim;
    if (l->kv_rank == 0)
        return YALM_OK;
    if (c->n_kv_heads != 1 || c->head_dim != l->kv_rank + l->rope_dim || l->rope_dim % 2 != 0)
        return error_set(
            r->error, YALM_BAD_MODEL,
            "%s: metadata: 'config.latent': expected an even 'rope_dim', n_kv_heads = 1 and head_dim = 'kv_rank' + "
            "'rope_dim'",
            r->path);
    if (c->n_heads * widest > CONFIG_MAX_DIM)
        return error_set(r->error, YALM_BAD_MODEL,
                         "%s: metadata: 'config.latent': heads times their width: expected at most %d", r->path,
                         CONFIG_MAX_DIM);
    bool kinds = false; // of attention: latents lie in kind 0's cache alone
    for (int kind = 1; kind < config_n_kinds(c); kind++)
        kinds |= config_kind_attends(c, kind);
    if (kinds || c->bidirectional || c->layer_norm || c->attention_bias || c->qkv_bias || c->qk_norm || c->whole_qk_norm ||
        c->v_norm || c->output_gate || c->sink_logits || c->attention_softcap > 0 || c->attention_scale == 0)
        return refuse_beside(r, "latent", "kinds of attention, biases, norms of heads, gates, or without attention_scale");
    return YALM_OK;
}

static yalm_status check_groups(const struct config_check *r)
{
    const struct model_config *c = r->config;
    const int n = c->n_expert_groups, active = c->n_active_groups;
    const int most = n > 0 ? c->n_experts / n : 0; // experts of a group
    if (n == 0 && active == 0)
        return YALM_OK;
    if (n == 0 || c->n_experts == 0 || c->n_experts % n != 0 || active < 1 || active > n || c->n_active_experts > most * active)
        return error_set(
            r->error, YALM_BAD_MODEL,
            "%s: metadata: 'config.n_expert_groups': found %d with %d active, expected a divisor of n_experts = %d, "
            "and active ones with room for n_active_experts = %d",
            r->path, n, active, c->n_experts, c->n_active_experts);
    return YALM_OK;
}

// What no single number tells.
yalm_status config_check(const struct model_config *config, const char *config_path, yalm_error *error)
{
    const struct config_check of = {config, config_path, error}, *const r = &of;
    const struct model_config *c = r->config;
    const char *path = r->path;
    yalm_status status = check_kinds(r);
    status = status ?: check_encoder(r);
    status = status ?: check_latent(r);
    status = status ?: check_scan(r);
    status = status ?: check_groups(r);
    if (status != YALM_OK)
        return status;
    if (c->attention_bias && c->qkv_bias)
        return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: 'config.qkv_bias': found true beside attention_bias", path);
    if ((c->query_growth > 0) != (c->query_growth_context > 0))
        return error_set(r->error, YALM_BAD_MODEL,
                         "%s: metadata: 'config.query_growth': found without 'query_growth_context', or that without it", path);
    if (c->qk_norm && c->whole_qk_norm)
        return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: 'config.whole_qk_norm': found true beside qk_norm", path);
    if (c->rotated_qk_norm && (!c->qk_norm || config_kinds_share(c)))
        return refuse_beside(r, "rotated_qk_norm", "shared keys, or without qk_norm");
    if (c->norms_after && c->norms_around)
        return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: 'config.norms_around': found true beside norms_after", path);
    if (c->expert_norms && (!c->norms_around || c->shared_ffn_dim == 0 || c->sigmoid_router))
        return error_set(r->error, YALM_BAD_MODEL,
                         "%s: metadata: 'config.expert_norms': expected with norms_around and shared_ffn_dim, without "
                         "sigmoid_router",
                         path);
    if (c->n_experts == 0 && (c->expert_ffn_dim > 0 || c->raw_expert_weights || c->router_bias || c->n_dense_layers > 0))
        return error_set(r->error, YALM_BAD_MODEL,
                         "%s: metadata: 'config.expert_ffn_dim', 'raw_expert_weights', 'router_bias' or 'dense_layers': found "
                         "without experts",
                         path);
    if (c->n_experts == 0 && (c->sigmoid_router || c->expert_scale > 0 || c->shared_ffn_dim > 0))
        return error_set(r->error, YALM_BAD_MODEL,
                         "%s: metadata: 'config.sigmoid_router', 'expert_scale' or 'shared_ffn_dim': found without experts",
                         path);
    if ((int64_t)c->n_layers * c->layer_input_dim > CONFIG_MAX_DIM)
        return error_set(r->error, YALM_BAD_MODEL,
                         "%s: metadata: 'config.layer_input_dim': found %d, expected at most %d of all layers together", path,
                         c->layer_input_dim, CONFIG_MAX_DIM);
    if (c->shared_gate && c->shared_ffn_dim == 0)
        return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: 'config.shared_gate': found without 'shared_ffn_dim'", path);
    if (c->mtp.there && (config_is_recurrent(c, c->n_layers) || c->layer_input_dim > 0 || config_kinds_share(c)))
        return error_set(r->error, YALM_BAD_MODEL,
                         "%s: metadata: 'config.mtp': found where layers share keys or have inputs of their own, or with a "
                         "recurrent layer",
                         path);
    if (c->n_active_experts > c->n_experts || (c->n_experts > 0 && c->n_active_experts == 0))
        return error_set(r->error, YALM_BAD_MODEL, "%s: metadata: 'config.n_active_experts': found %d, expected %d to %d", path,
                         c->n_active_experts, c->n_experts > 0, c->n_experts);
    return YALM_OK;
}
