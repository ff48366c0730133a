// Turns a model's facts into steps: the only file that says in which order a model does what.

#include <stdlib.h>

#include "recipe/states.h"
#include "recipe/writer.h"

static unsigned activation_trait(const struct model_config *c)
{
    return c->activation == ACTIVATION_SILU ? 0u : TRAIT_ACTIVATION;
}

// x = norm(x)
static void norm(struct recipe_writer *out, const float *weight, const float *bias)
{
    put_step(out, (struct step){.op = OP_NORM,
                                .in = BUFFER_X,
                                .out = {BUFFER_X},
                                .post_norm = weight,
                                .norm_bias = bias,
                                .traits = step_norm_trait(out->config),
                                .observed = NOT_OBSERVED});
}

// ------------------------------------------------------------------------------------------ attention

static unsigned attention_traits(const struct model_config *c, int layer)
{
    const struct layer_kind *kind = &c->kinds[c->kind_of_layer[layer]];
    return (c->unrotated_layer[layer] ? TRAIT_UNROTATED : 0u) | (c->attention_softcap > 0 ? TRAIT_CAPPED : 0u) |
           (c->sink_logits ? TRAIT_SINK_LOGITS : 0u) | (c->query_growth > 0 ? TRAIT_GROWING : 0u) |
           (kind->shares_keys ? TRAIT_OTHERS_KEYS : 0u) | (config_n_kinds(c) > 1 ? TRAIT_KIND : 0u) |
           (kind->head_dim || kind->n_kv_heads ? TRAIT_WIDTH : 0u) | (c->bidirectional ? TRAIT_BOTH_WAYS : 0u) |
           (c->alibi ? TRAIT_ALIBI : 0u) | (c->latent.kv_rank ? TRAIT_LATENT : 0u) | (c->rotated_qk_norm ? TRAIT_WEIGHTED : 0u);
}

static void units(struct recipe_writer *out, const struct expert_weights *ffn)
{
    const struct model_config *c = out->config;
    const bool own_width = c->kinds[c->kind_of_layer[out->layer]].ffn_dim > 0;
    struct step step = {.op = OP_UNITS,
                        .in = BUFFER_X,
                        .activation = c->activation,
                        .weights = c->activation == ACTIVATION_XIELU ? out->w : NULL,
                        .traits = activation_trait(c) | (own_width ? TRAIT_WIDTH : 0u) | (c->ungated ? TRAIT_UNGATED : 0u),
                        .observed = observed_input(out, INPUT_FFN)};
    step_read_norm(&step, c, out->w->ffn_norm, out->w->ffn_norm_bias);
    step_multiply(&step, &ffn->gate, ffn->gate_bias, BUFFER_UNITS);
    step_multiply(&step, &ffn->up, ffn->up_bias, BUFFER_UNITS);
    put_step(out, step);
}

static void attend(struct recipe_writer *out)
{
    const struct model_config *c = out->config;
    put_step(out, (struct step){.op = OP_ATTEND,
                                .out = {BUFFER_ATTENDED},
                                .weights = out->w,
                                .attending = attending_of(out),
                                .number = c->attention_softcap,
                                .query = {config_attention_scale(c, config_head_dim(c, out->layer)), c->query_growth,
                                          c->query_growth_context},
                                .traits = attention_traits(c, out->layer)});
}

// out of each head = w · in of it
static void heads(struct recipe_writer *out, const struct matrix *w, enum recipe_buffer in, enum recipe_buffer to,
                  struct per_head of)
{
    put_step(out,
             (struct step){.op = OP_HEADS, .w = {w}, .n_w = 1, .in = in, .out = {to}, .heads = of, .observed = NOT_OBSERVED});
}

// x += o · attention to latents. A head's score without rotation is q · (k_b latent), and so (k_b turned · q) · latent.
// Queries are brought to the latents, which are keys and values of all heads. v_b makes each head's output of what it sees.
static void latent_attention(struct recipe_writer *out)
{
    const struct model_config *c = out->config;
    const struct layer_weights *w = out->w;
    const struct latent_config *d = &c->latent;
    const int q_dim = d->nope_dim + d->rope_dim;
    struct step first = {.op = OP_PROJECT, .in = BUFFER_X, .observed = observed_input(out, INPUT_QKV)};
    step_read_norm(&first, c, w->attention_norm, w->attention_norm_bias);
    step_multiply(&first, &w->k, NULL, BUFFER_K);
    step_multiply(&first, d->q_rank ? &w->latent.q_a : &w->q, NULL, d->q_rank ? BUFFER_LATENT : BUFFER_HEADS);
    first.n_exact = first.n_w;
    put_step(out, first);
    put_step(out, (struct step){.op = OP_HEAD_NORM, .weights = w, .traits = TRAIT_LATENT});
    if (d->q_rank) {
        struct step second = {.op = OP_PROJECT, .in = BUFFER_LATENT, .observed = NOT_OBSERVED, .n_exact = 1};
        step_multiply(&second, &w->q, NULL, BUFFER_HEADS);
        put_step(out, second);
    }
    heads(out, &w->latent.k_b, BUFFER_HEADS, BUFFER_Q, (struct per_head){c->n_heads, q_dim, c->head_dim, d->rope_dim});
    attend(out);
    heads(out, &w->latent.v_b, BUFFER_ATTENDED, BUFFER_HEADS, (struct per_head){c->n_heads, c->head_dim, d->v_dim, 0});
    put_add(out, &w->o, NULL, BUFFER_HEADS, w->attention_post_norm, observed_input(out, INPUT_O), true);
}

// x += o · attention(q, k, v of rmsnorm(x)); where a scan stands beside it, that adds to x, too.
static void attention(struct recipe_writer *out)
{
    const struct model_config *c = out->config;
    const struct layer_weights *w = out->w;
    struct step qkv = {.op = OP_PROJECT, .in = BUFFER_X, .observed = observed_input(out, INPUT_QKV)};
    step_read_norm(&qkv, c, w->attention_norm, w->attention_norm_bias);
    step_multiply(&qkv, &w->q, w->q_bias, BUFFER_Q);
    step_multiply(&qkv, &w->k, w->k_bias, BUFFER_K);
    step_multiply(&qkv, &w->v, w->v_bias, BUFFER_V);
    qkv.n_exact = qkv.n_w;
    step_multiply(&qkv, &w->output_gate, w->output_gate_bias, BUFFER_GATES);
    put_step(out, qkv);
    if (c->parallel) // the feed-forward block reads x before anything is added to it
        units(out, &w->experts[0]);
    const struct attending how = attending_of(out);
    if (c->qk_norm || c->whole_qk_norm || c->v_norm)
        put_step(out, (struct step){.op = OP_HEAD_NORM,
                                    .weights = w,
                                    .attending = how,
                                    .traits = (c->whole_qk_norm ? TRAIT_WHOLE : 0u) | (c->v_norm ? TRAIT_VALUES : 0u) |
                                              (c->rotated_qk_norm ? TRAIT_WEIGHTED : 0u)});
    attend(out);
    if (c->output_gate)
        put_step(out, (struct step){.op = OP_GATE, .in = BUFFER_GATES, .out = {BUFFER_ATTENDED}, .attending = how});
    if (config_is_recurrent(c, out->layer)) // it reads x before anything is added to it
        put_scan(out, BUFFER_UNITS);
    put_add(out, &w->o, w->o_bias, BUFFER_ATTENDED, w->attention_post_norm, observed_input(out, INPUT_O), true);
    if (config_is_recurrent(c, out->layer))
        put_scan_sum(out, BUFFER_UNITS);
    if (c->post_norm)
        norm(out, w->attention_norm, w->attention_norm_bias);
}

// ------------------------------------------------------------------------------------------ feed-forward

// Those that a token goes through of many. What is to be normalised behind them (joined) is not added to x yet.
static void chosen_experts(struct recipe_writer *out, bool joined, bool ends_block)
{
    const struct model_config *c = out->config;
    const struct layer_weights *w = out->w;
    put_step(out, (struct step){.op = OP_ROUTE,
                                .w = {&w->router},
                                .bias = {w->router_bias},
                                .n_w = 1,
                                .in = BUFFER_X,
                                .norm = c->expert_norms ? NULL : w->ffn_norm,
                                .weights = w,
                                .number = c->expert_scale,
                                .n_experts = c->n_experts,
                                .n_active = c->n_active_experts,
                                .raw_weights = c->raw_expert_weights,
                                .traits = (c->expert_norms ? TRAIT_BARE : 0u) | (c->n_expert_groups ? TRAIT_GROUPS : 0u),
                                .observed = NOT_OBSERVED});
    put_step(out, (struct step){.op = OP_EXPERTS,
                                .in = BUFFER_X,
                                .out = {joined ? BUFFER_EXPERT_SUM : BUFFER_X},
                                .norm = c->expert_norms ? w->expert_norm : w->ffn_norm,
                                .post_norm = w->expert_post_norm,
                                .weights = w,
                                .number = c->expert_scale,
                                .n_experts = c->n_experts,
                                .n_active = c->n_active_experts,
                                .raw_weights = c->raw_expert_weights,
                                .activation = c->activation,
                                .traits = activation_trait(c) | (c->ungated ? TRAIT_UNGATED : 0u),
                                .observed = observed_input(out, INPUT_EXPERTS),
                                .ends_block = ends_block});
}

// x += down · (activation(gate · h) ∘ (up · h)), h = rmsnorm(x); or so of the chosen experts, and of one that all tokens go
// through. What reads x comes before what adds to it.
static void feed_forward(struct recipe_writer *out)
{
    const struct model_config *c = out->config;
    const struct layer_weights *w = out->w;
    const bool chosen = config_has_experts(c, out->layer), shared = chosen && c->shared_ffn_dim > 0;
    const bool joined = chosen && w->ffn_post_norm;
    const struct expert_weights *ffn = chosen ? &w->shared : &w->experts[0];
    if ((shared || !chosen) && !c->parallel)
        units(out, ffn);
    if (shared && c->shared_gate)
        put_step(out, (struct step){.op = OP_WEIGH, .in = BUFFER_X, .out = {BUFFER_UNITS}, .norm = w->ffn_norm, .weights = w});
    if (chosen)
        chosen_experts(out, joined, !shared && !joined);
    if (joined)
        put_step(out, (struct step){.op = OP_JOIN,
                                    .w = {&ffn->down},
                                    .bias = {ffn->down_bias},
                                    .n_w = shared,
                                    .in = shared ? BUFFER_UNITS : BUFFER_EXPERT_SUM,
                                    .out = {BUFFER_X},
                                    .post_norm = w->ffn_post_norm,
                                    .weights = w,
                                    .observed = shared ? observed_input(out, INPUT_DOWN) : NOT_OBSERVED,
                                    .ends_block = true});
    else if (shared || !chosen)
        put_add(out, &ffn->down, ffn->down_bias, BUFFER_UNITS, w->ffn_post_norm, observed_input(out, INPUT_DOWN), true);
    if (c->post_norm)
        norm(out, w->ffn_norm, w->ffn_norm_bias);
}

// ------------------------------------------------------------------------------------------ the layers' own inputs

static void make_inputs(struct recipe_writer *out, const struct model_weights *w)
{
    struct step projection = {.op = OP_PROJECT, .in = BUFFER_X, .observed = NOT_OBSERVED, .n_exact = 1};
    step_multiply(&projection, &w->layer_projection, NULL, BUFFER_INPUTS);
    put_step(out, projection);
    put_step(out, (struct step){.op = OP_MIX_INPUTS,
                                .in = BUFFER_INPUTS,
                                .out = {BUFFER_INPUTS},
                                .table = &w->layer_embedding,
                                .norm = w->layer_projection_norm});
}

// x += rmsnorm(input_projection · (activation(input_gate · x) ∘ the layer's input))
static void own_input(struct recipe_writer *out)
{
    put_step(out, (struct step){.op = OP_GATE_INPUT,
                                .w = {&out->w->input_gate},
                                .n_w = 1,
                                .in = BUFFER_X,
                                .out = {BUFFER_UNITS},
                                .activation = out->config->activation,
                                .traits = activation_trait(out->config),
                                .observed = NOT_OBSERVED});
    put_add(out, &out->w->input_projection, NULL, BUFFER_UNITS, out->w->input_norm, NOT_OBSERVED, false);
}

// ------------------------------------------------------------------------------------------ a head that guesses

// x = projection · [rmsnorm(embedding); rmsnorm(hidden state)]
static void pair(struct recipe_writer *out, const struct model_weights *w)
{
    put_step(out, (struct step){.op = OP_PAIR,
                                .in = BUFFER_X,
                                .out = {BUFFER_UNITS},
                                .norm = w->mtp_embedding_norm,
                                .post_norm = w->mtp_hidden_norm,
                                .observed = NOT_OBSERVED});
    struct step projection = {.op = OP_PROJECT, .in = BUFFER_UNITS, .observed = NOT_OBSERVED, .n_exact = 1};
    step_multiply(&projection, &w->mtp_projection, NULL, BUFFER_X);
    put_step(out, projection);
}

// ------------------------------------------------------------------------------------------ the whole

static void layer(struct recipe_writer *out)
{
    if (config_delta(out->config, out->layer)->conv_dim)
        put_convolution(out);
    else if (!config_attends(out->config, out->layer))
        put_recurrence(out);
    else if (out->config->latent.kv_rank)
        latent_attention(out);
    else
        attention(out);
    if (!out->config->no_ffn_layer[out->layer])
        feed_forward(out);
    if (out->config->layer_input_dim)
        own_input(out);
    if (out->config->layer_scale)
        put_step(out, (struct step){.op = OP_SCALE, .out = {BUFFER_X}, .weights = out->w});
    if (out->to->steps)
        out->to->steps[out->to->n - 1].ends_layer = true;
}

static void logits(struct recipe_writer *out, const struct model_weights *w)
{
    struct step classifier = {.op = OP_PROJECT, .in = BUFFER_X, .observed = observed_input(out, 0)};
    step_read_norm(&classifier, out->config, w->norm, w->norm_bias);
    step_multiply(&classifier, &w->classifier, w->classifier_bias, BUFFER_LOGITS);
    put_step(out, classifier);
    if (out->config->logits_softcap > 0)
        put_step(out, (struct step){.op = OP_CAP, .out = {BUFFER_LOGITS}, .number = out->config->logits_softcap});
}

static void write_all(struct recipe *to, const struct model_config *c, const struct model_weights *w)
{
    struct recipe_writer out = {.to = to, .config = c, .layer = -1};
    const float scale = c->embedding_scale > 0 ? c->embedding_scale : 1;
    struct cost before = {0};
    put_step(&out, (struct step){.op = OP_EMBED,
                                 .out = {BUFFER_X},
                                 .table = &w->embedding,
                                 .number = scale,
                                 .traits = c->learned_positions || c->n_token_types ? TRAIT_ROWS : 0u});
    if (c->embedding_norm)
        norm(&out, w->embedding_norm, w->embedding_norm_bias);
    if (c->layer_input_dim)
        make_inputs(&out, w);
    if (c->guesses)
        pair(&out, w);
    for (out.layer = 0; out.layer <= c->n_layers; out.layer++) {
        if (out.layer == config_tail(c)) {
            to->tail = to->n;
            before = to->cost;
        }
        if (out.layer == c->n_layers)
            break;
        out.w = &w->layers[out.layer];
        layer(&out);
    }
    to->classifier = to->n;
    if (!c->bidirectional)
        logits(&out, w);
    to->tail_cost = (struct cost){to->cost.bytes - before.bytes, to->cost.ops - before.ops};
}

struct recipe recipe_outline(const struct model_config *config, const struct model_weights *weights)
{
    struct recipe outline = {0};
    write_all(&outline, config, weights);
    return outline;
}

bool recipe_open(struct recipe *recipe, const struct model_config *config, const struct model_weights *weights)
{
    const struct recipe outline = recipe_outline(config, weights);
    *recipe = (struct recipe){.steps = calloc((size_t)outline.n, sizeof *recipe->steps)};
    if (recipe->steps)
        write_all(recipe, config, weights);
    return recipe->steps;
}

void recipe_close(struct recipe *recipe)
{
    free(recipe->steps);
    recipe->steps = NULL;
}
