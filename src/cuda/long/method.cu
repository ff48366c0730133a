// Attention methods on the host's side: which there are, what a session has of its own, and a token's steps in one layer.
#include "cuda/long/method.h"

static const struct cuda_method_table *const methods[] = {&method_sparq, &method_hybrid};

yalm_status method_find(const struct cuda_method_table **table, const char *name, yalm_error *error)
{
    char names[64] = "dense";
    *table = NULL;
    if (strcmp(name, "dense") == 0)
        return YALM_OK;
    for (const struct cuda_method_table *m : methods) {
        if (strcmp(m->name, name) == 0) {
            *table = m;
            return YALM_OK;
        }
        strncat(names, ", ", sizeof names - strlen(names) - 1);
        strncat(names, m->name, sizeof names - strlen(names) - 1);
    }
    return error_set(error, YALM_USAGE, "device cuda: %s attention does not run on the GPU, only %s (-d cpu runs it)", name,
                     names);
}

yalm_status method_check(const struct model_config *config, const struct model_weights *weights,
                         const yalm_session_options *options, yalm_error *error)
{
    const struct cuda_method_table *table = NULL;
    TRY(method_find(&table, options->attention, error));
    if (!table)
        return YALM_OK;
    const struct recipe outline = recipe_outline(config, weights);
    if (outline.traits & (TRAIT_CAPPED | TRAIT_SINK_LOGITS))
        return error_set(error, YALM_USAGE,
                         "attention: found %s, but this model caps scores or has logits without keys, which the GPU has with "
                         "dense attention alone (-d cpu has all)",
                         options->attention);
    if (!recipe_selects(&outline))
        return error_set(error, YALM_USAGE, "attention: found %s, but this model's %s: use dense", options->attention,
                         outline.traits & TRAIT_LATENT  ? "tokens keep latents, not keys (MLA)"
                         : outline.traits & TRAIT_ALIBI ? "scores fall with the distance (ALiBi)"
                                                        : "tokens see those behind them, and come together");
    return table->check(config, options, error);
}

// ------------------------------------------------------------------------------------------ a session's

yalm_status method_plan(struct cuda_state *s, const struct backend_plan *plan, yalm_error *error)
{
    const struct cuda_method_table *table = NULL;
    TRY(method_find(&table, plan->options->attention, error));
    if (!table)
        return YALM_OK;
    s->method = static_cast<struct cuda_method *>(calloc(1, sizeof *s->method));
    if (!s->method)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a session");
    s->method->table = table;
    selective_plan(s);
    return table->plan(s, plan, error);
}

void method_take_kept(struct cuda_state *s, struct cuda_blocks *b)
{
    selective_take_kept(s, b);
    s->method->table->take_kept(s, b);
}

void method_take_scratch(struct cuda_state *s, struct cuda_blocks *b)
{
    selective_take_scratch(s, b);
    s->method->table->take_scratch(s, b);
}

yalm_status method_open(struct cuda_state *s, const struct backend_plan *plan, yalm_error *error)
{
    TRY(selective_open(s, error));
    return s->method->table->open ? s->method->table->open(s, plan, error) : YALM_OK;
}

void method_close(struct cuda_state *s)
{
    if (s->method && s->method->table->close)
        s->method->table->close(s);
    free(s->method);
    s->method = NULL;
}

bool method_applies(const struct cuda_state *s, int n, int64_t position)
{
    return s->method && n == 1 && selective_n_keys(&far_cache(s)->policy, position) >= s->method->selective.from;
}

struct choice method_choice(const struct cuda_state *s, int64_t position)
{
    return s->method->table->choice(s, selective_n_keys(&far_cache(s)->policy, position));
}

double method_bytes(const struct cuda_state *s, int64_t position)
{
    return s->method->table->bytes(s, position);
}

// ------------------------------------------------------------------------------------------ steps

// The running sums come to what the token at step->position sees of the past, or forget what the batch may overwrite.
yalm_status method_begin(struct cuda_state *s, bool applies, yalm_error *error)
{
    if (!s->method->selective.tail)
        return YALM_OK;
    const struct value_sums sums = {s->step, far_cache(s), s->method->selective.sums, s->method->selective.covered};
    return applies ? value_sums_cover(&sums, s->stream, error) : value_sums_forget(&sums, s->stream, error);
}

yalm_status method_append(struct cuda_state *s, const struct attention *a, int n, yalm_error *error)
{
    return s->method->table->append(s, a, n, error);
}

yalm_status method_attend(struct cuda_state *s, const struct attention *a, float *attended, yalm_error *error)
{
    TRY(s->method->table->prepare(s, a, error));
    TRY(s->method->table->score(s, a, error));
    TRY(selective_select(s, a, error));
    return selective_gather(s, a, attended, error);
}
