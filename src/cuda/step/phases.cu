// The step kernel's executor: turns the recipe's steps (recipe.h) into phases (step.cuh).
#include "cuda/step/writer.h"

// ------------------------------------------------------------------------------------------ ops

static void embed(struct step_writer *w, const struct step *step)
{
    struct step_launch *l = &w->to->launch;
    const struct words x = writing(w, WORDS_EMBEDDED, step->table->cols);
    w->latest[BUFFER_X] = w->latest[WORDS_EMBEDDED];
    l->embedding = *step->table;
    l->embedding_scale = step->number;
    l->embedded = x.at;
    l->embedded_words = x.words;
}

// Up to three matrices of the same type are one phase.
static void project(struct step_writer *w, const struct step *step)
{
    const struct words x = reading(w, step->in);
    const int n_wide = step->n_w - step->n_narrow;
    for (int i = 0, n; i < step->n_w; i += n) {
        struct step_phase p = phase_of(w, step, i < n_wide ? STEP_STORE : STEP_NARROW, x);
        for (n = 0; n < 3 && i + n < step->n_w && i + n != (i < n_wide ? n_wide : -1); n++) {
            const struct matrix *m = step->w[i + n];
            const bool logits = step->out[i + n] == BUFFER_LOGITS;
            if (n > 0 && m->dtype != p.type)
                break;
            add_matrix(&p, m, step->bias[i + n],
                       logits ? words{w->s->logits, STEP_PLAIN} : writing(w, step->out[i + n], m->rows));
        }
        put_product(w, p);
    }
}

// [x +] rmsnorm(in), a phase of its own.
static void put_norm(struct step_writer *w, const struct step *step, const float *norm, int from, const struct words *old,
                     int to, int width)
{
    struct step_phase p = phase_of(w, step, STEP_NORM, reading(w, from));
    const struct words y = writing(w, to, width);
    p.norm = norm;
    p.cols = p.units = p.rows[0] = width;
    p.old = old ? old->at : NULL;
    p.old_words = old ? old->words : STEP_PLAIN;
    p.y[0] = y.at;
    p.y_words[0] = y.words;
    put(w, p);
}

// Each head's norm is the attention's; that of all heads together needs all of them.
static void normalise_heads(struct step_writer *w, const struct step *step)
{
    const struct layer_weights *of = step->weights;
    if (step->traits & TRAIT_WHOLE) {
        put_norm(w, step, of->q_norm, BUFFER_Q, NULL, WORDS_NORMED_Q, of->q.rows);
        put_norm(w, step, of->k_norm, BUFFER_K, NULL, WORDS_NORMED_K, of->k.rows);
        w->latest[BUFFER_Q] = w->latest[WORDS_NORMED_Q];
        w->latest[BUFFER_K] = w->latest[WORDS_NORMED_K];
    } else {
        w->head_norms[0] = of->q_norm;
        w->head_norms[1] = of->k_norm;
    }
    w->head_norms[2] = step->traits & TRAIT_VALUES ? w->s->ones : NULL;
}

static void attend(struct step_writer *w, const struct step *step)
{
    const struct attending *a = &step->attending;
    const struct kv_cache *cache = &w->s->caches[a->kind];
    const struct words q = reading(w, BUFFER_Q), k = reading(w, BUFFER_K), v = reading(w, BUFFER_V),
                       y = writing(w, BUFFER_ATTENDED, a->n_heads * a->head_dim);
    struct step_heads *heads = &w->to->launch.kinds[a->kind];
    *heads = {q.at,
              k.at,
              v.at,
              static_cast<half *>(cache->keys),
              static_cast<half *>(cache->values),
              cache->policy,
              w->s->ropes[a->kind],
              a->n_heads,
              a->n_kv_heads,
              a->head_dim,
              0,
              step->query.scale,
              step->number};
    for (int kind = 0; kind < a->kind; kind++)
        heads->turns += w->s->caches[kind].head_dim / 2;
    struct step_phase p = phase_of(w, step, STEP_ATTEND, q);
    p.k_words = k.words;
    p.v_words = v.words;
    memcpy(p.head_norms, w->head_norms, sizeof p.head_norms);
    p.still = step->traits & TRAIT_UNROTATED;
    p.kind = a->kind;
    p.place = a->place;
    p.sink_logits = step->weights->sink_logits;
    p.y[0] = y.at;
    p.y_words[0] = y.words;
    put(w, p);
    memset(w->head_norms, 0, sizeof w->head_norms);
    w->to->query = step->query;
}

static void recur(struct step_writer *w, const struct step *step)
{
    const struct delta_config *c = step->delta;
    const struct delta_weights *of = &step->weights->delta;
    const struct attending *a = &step->attending;
    const struct words q = reading(w, BUFFER_Q), k = reading(w, BUFFER_K), v = reading(w, BUFFER_V),
                       gates = reading(w, BUFFER_GATES), decays = reading(w, BUFFER_DECAYS), betas = reading(w, BUFFER_BETAS),
                       y = writing(w, BUFFER_ATTENDED, delta_values(c));
    const int64_t states = delta_state_floats(c), inputs = delta_input_floats(c);
    struct step_phase p = phase_of(w, step, STEP_RECUR, q);
    p.delta = {{q.at, k.at, v.at},
               decays.at,
               betas.at,
               {q.words, k.words, v.words, decays.words, betas.words},
               of->conv,
               of->decay_bias,
               of->decay_rate,
               of->value_norm,
               w->s->states[a->kind] + a->place * states,
               w->s->inputs[a->kind] + a->place * inputs,
               a->layers * states,
               a->layers * inputs,
               c->n_key_heads,
               c->n_value_heads,
               c->key_dim,
               c->value_dim,
               c->conv_width - 1,
               c->tiled};
    p.gates = gates.at;
    p.more_words = gates.words;
    p.y[0] = y.at;
    p.y_words[0] = y.words;
    put(w, p);
}

static void gate(struct step_writer *w, const struct step *step)
{
    const struct words gates = reading(w, step->in);
    last(w)->gates = gates.at;
    last(w)->more_words = gates.words;
}

static void add(struct step_writer *w, const struct step *step)
{
    const struct matrix *m = step->w[0];
    const struct words old = reading(w, BUFFER_X);
    struct step_phase p = phase_of(w, step, step->post_norm ? STEP_STORE : STEP_ADD, reading(w, step->in));
    if (step->in == BUFFER_UNITS && w->latest[WORDS_WEIGH]) {
        const struct words weigh = reading(w, WORDS_WEIGH);
        p.weigh = weigh.at;
        p.more_words = weigh.words;
        w->latest[WORDS_WEIGH] = NULL;
    }
    const struct words y = writing(w, step->post_norm ? (int)WORDS_BRANCH : (int)BUFFER_X, m->rows);
    if (!step->post_norm) {
        p.old = old.at;
        p.old_words = old.words;
    }
    add_matrix(&p, m, step->bias[0], y);
    put_product(w, p);
    if (step->post_norm)
        put_norm(w, step, step->post_norm, WORDS_BRANCH, &old, BUFFER_X, m->rows);
}

static void make_units(struct step_writer *w, const struct step *step)
{
    struct step_phase p = phase_of(w, step, STEP_GATED, reading(w, step->in));
    const struct words y = writing(w, BUFFER_UNITS, step->w[0]->rows);
    w->to->fits = w->to->fits && step->w[0]->dtype == step->w[1]->dtype;
    p.activation = step->activation;
    add_matrix(&p, step->w[0], step->bias[0], y);
    add_matrix(&p, step->w[1], step->bias[1], {});
    put_product(w, p);
}

// Logits of few rows: a router's, or the shared expert's.
static void put_logits(struct step_writer *w, const struct step *step, const struct matrix *m, const float *bias, int to)
{
    struct step_phase p = phase_of(w, step, STEP_NARROW, reading(w, step->in));
    const struct words y = writing(w, to, m->rows);
    add_matrix(&p, m, bias, y);
    put_product(w, p);
}

// Experts of a layer that differ in type or size are not of one phase.
static bool alike(const struct expert_weights *e, int n)
{
    bool all = true;
    for (int i = 0; i < n; i++)
        all = all && e[i].gate.dtype == e->gate.dtype && e[i].up.dtype == e->gate.dtype && e[i].down.dtype == e->down.dtype &&
              e[i].gate.rows == e->gate.rows;
    return all;
}

static struct step_router router_of(const struct step_writer *w, const struct step *step)
{
    const struct layer_weights *of = step->weights;
    const struct words logits = reading(w, WORDS_ROUTED);
    return {logits.at,
            logits.words,
            step->n_experts,
            step->n_active,
            step->raw_weights,
            step->number > 0 ? step->number : 1.0f,
            of->router_choice_bias,
            of->router_scale,
            w->s->config->expert_eps,
            w->s->config->softmax_choice_bias};
}

// A phase for the units of all experts that the token has chosen; then one for each of these, which adds to what the one before
// left. They are spread alike, so that a thread's rows are its own, and the sum need not be told to others.
static void run_experts(struct step_writer *w, const struct step *step)
{
    const struct expert_weights *e = step->weights->experts;
    const int n = step->n_active, units = e->gate.rows;
    struct step_phase p = phase_of(w, step, STEP_GATED, reading(w, BUFFER_X));
    w->to->fits = w->to->fits && alike(e, step->n_experts);
    p.activation = step->activation;
    p.router = router_of(w, step);
    p.table = w->s->weights ? w->s->weights->experts + (size_t)step->layer * step->n_experts : NULL;
    const struct words y = writing(w, WORDS_EXPERTS, n * units);
    add_matrix(&p, &e->gate, NULL, y);
    add_matrix(&p, &e->up, NULL, {});
    p.units = 2 * n * units;
    put_product(w, p);
    const struct words x = reading(w, BUFFER_X), sum = writing(w, WORDS_SUM, e->down.rows),
                       after = writing(w, WORDS_X_EXPERTS, e->down.rows);
    const int spread = w->to->n;
    for (int i = 0; i < n; i++) {
        struct step_phase down = phase_of(w, step, STEP_ADD, y);
        down.x = y.at ? y.at + i * units : NULL;
        down.norm = NULL;
        down.old = i == 0 ? x.at : sum.at;
        down.old_words = i == 0 ? x.words : STEP_PLAIN;
        down.router = p.router;
        down.table = p.table;
        down.slot = i;
        add_matrix(&down, &e->down, NULL, i == n - 1 ? after : words{sum.at, STEP_PLAIN});
        put_product(w, down);
        last(w)->spread = spread;
    }
    w->latest[BUFFER_X] = w->latest[WORDS_X_EXPERTS];
}

// ------------------------------------------------------------------------------------------ all of them

void write_step(struct step_writer *w, const struct step *step)
{
    switch (step->op) {
    case OP_EMBED:
        return embed(w, step);
    case OP_PROJECT:
        return project(w, step);
    case OP_HEAD_NORM:
        return normalise_heads(w, step);
    case OP_ATTEND:
        return attend(w, step);
    case OP_RECUR:
        return recur(w, step);
    case OP_GATE:
        return gate(w, step);
    case OP_ADD:
        return add(w, step);
    case OP_UNITS:
        return make_units(w, step);
    case OP_WEIGH:
        return put_logits(w, step, &step->weights->shared_router, NULL, WORDS_WEIGH);
    case OP_ROUTE:
        return put_logits(w, step, step->w[0], step->bias[0], WORDS_ROUTED);
    case OP_EXPERTS:
        return run_experts(w, step);
    case OP_SCALE:
        last(w)->scale = step->weights->scale;
        return;
    case OP_CAP:
        last(w)->cap = step->number;
        return;
    default: // step_knows()
        return;
    }
}

bool step_knows(const struct recipe *recipe, bool plain)
{
    const unsigned llama =
        1u << OP_EMBED | 1u << OP_PROJECT | 1u << OP_HEAD_NORM | 1u << OP_ATTEND | 1u << OP_ADD | 1u << OP_UNITS;
    const unsigned more =
        1u << OP_RECUR | 1u << OP_GATE | 1u << OP_WEIGH | 1u << OP_ROUTE | 1u << OP_EXPERTS | 1u << OP_SCALE | 1u << OP_CAP;
    const unsigned traits = (TRAITS_OF_ATTENTION & ~(unsigned)(TRAIT_OTHERS_KEYS | TRAIT_ALIBI | TRAIT_BOTH_WAYS)) |
                            TRAIT_WIDTH | TRAIT_WHOLE | TRAIT_VALUES | TRAIT_NORM_BEHIND | TRAIT_ACTIVATION;
    return plain ? recipe_within(recipe, llama, TRAIT_UNROTATED) : recipe_within(recipe, llama | more, traits);
}
