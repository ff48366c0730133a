#include "cpu/delta.h"

#include <math.h>
#include <string.h>

// ------------------------------------------------------------------------------------------ places

static size_t layers_before(const struct cpu_state *s, int place, int layer)
{
    const int kind = s->config->kind_of_layer[layer];
    return (size_t)place * config_n_layers_of(s->config, kind) + s->place[layer];
}

float *delta_state(const struct cpu_state *s, int place, int layer, int head)
{
    const struct delta_config *d = config_delta(s->config, layer);
    return cpu_kind_of(s, layer)->states + layers_before(s, place, layer) * delta_state_floats(d) +
           (size_t)head * d->key_dim * d->value_dim;
}

float *delta_inputs(const struct cpu_state *s, int place, int layer)
{
    return cpu_kind_of(s, layer)->inputs + layers_before(s, place, layer) * delta_input_floats(config_delta(s->config, layer));
}

static int find_place(const struct cpu_state *s, int64_t position)
{
    int place = CARRIED_PLACES - 1;
    while (place >= 0 && s->carried.at[place] != position)
        place--;
    return place;
}

// Whether what the last tokens apart brought leads there.
static bool replays_to(const struct cpu_state *s, int64_t position)
{
    const struct carried *c = &s->carried;
    return position > c->first && position <= c->first + c->n_replays && find_place(s, c->first) >= 0;
}

bool delta_holds(const struct cpu_state *s, int64_t position)
{
    return position == 0 || find_place(s, position) >= 0 || replays_to(s, position);
}

// What comes after `position` was taken back.
static void drop_later(struct carried *c, int64_t position)
{
    for (int place = 0; place < CARRIED_PLACES; place++)
        if (c->at[place] > position)
            c->at[place] = -1;
}

static void replay(struct cpu_state *s, int64_t position);

// A place that may be written: one that holds nothing; else neither `but` nor the one that is kept.
static int free_place(const struct cpu_state *s, int but)
{
    int found = -1;
    for (int place = 0; place < CARRIED_PLACES; place++) {
        const int64_t at = s->carried.at[place];
        if (place != but && (at < 0 || (found < 0 && at != s->carried.kept)))
            found = place;
        if (found == place && at < 0)
            break;
    }
    return found;
}

int delta_place(struct cpu_state *s, int64_t position)
{
    if (find_place(s, position) < 0 && replays_to(s, position))
        replay(s, position);
    int place = find_place(s, position);
    if (place < 0)
        place = free_place(s, -1);
    for (int other = 0; other < CARRIED_PLACES; other++) // which a place that is filled now knows nothing of
        if (s->carried.at[other] == position)
            s->carried.at[other] = -1;
    s->carried.at[place] = position;
    return place;
}

// A text begins: in place 0 all is 0, and the others hold nothing.
static void clear(struct cpu_state *s)
{
    for (int kind = 0; kind < config_n_kinds(s->config); kind++) {
        const struct delta_config *d = &s->config->kinds[kind].delta;
        const size_t layers = (size_t)config_n_layers_of(s->config, kind);
        if (!config_kind_recurs(s->config, kind))
            continue;
        memset(s->kinds[kind].states, 0, layers * delta_state_floats(d) * sizeof(float));
        memset(s->kinds[kind].inputs, 0, layers * delta_input_floats(d) * sizeof(float));
    }
    for (int place = 0; place < CARRIED_PLACES; place++)
        s->carried.at[place] = place == 0 ? 0 : -1;
    s->carried.n_replays = 0;
}

void delta_begin(struct cpu_state *s, int64_t position, int n, bool apart)
{
    struct carried *c = &s->carried;
    if (!config_recurs(s->config))
        return;
    if (position == 0)
        clear(s);
    c->from = delta_place(s, position);
    drop_later(c, position);
    if (n > 1 && !apart)
        c->kept = position;
    c->first = position;
    c->n_replays = n > 1 && apart ? n : 0;
    c->to = free_place(s, c->from);
    c->at[c->to] = -1;
}

void delta_end(struct cpu_state *s, int64_t position, int n, bool done)
{
    if (!config_recurs(s->config))
        return;
    if (done)
        s->carried.at[s->carried.to] = position + n;
    else
        s->carried.n_replays = 0;
}

void delta_skip(struct cpu_state *s, int64_t position, int n)
{
    if (!config_recurs(s->config))
        return;
    if (position == 0)
        clear(s);
    const int place = delta_place(s, position);
    drop_later(&s->carried, position);
    s->carried.at[place] = position + n;
    s->carried.n_replays = 0;
}

// ------------------------------------------------------------------------------------------ steps

// Tokens in order in one session: the batch's, or one turn's.
struct delta_sequence {
    struct cpu_state *state; // whose session
    int first, n;            // tokens of the batch
};

struct delta_block {
    struct cpu_state *s;
    const struct delta_config *d;
    const struct layer_weights *w;
    const struct turn *turns;
    int n_turns, n, layer, channels;
    float *mixed;          // (n, channels); of a convolution alone, what it goes over
    float *decays, *betas; // (n, delta_decays()), (n, n_value_heads)
    float *given;          // (n, channels): what the convolution goes over is kept there; NULL: it is not
};

// With what it works on: scratch, or what outlasts the evaluation.
static struct delta_block block_of(struct cpu_state *s, const struct turn *turns, int n_turns, int n, int layer, bool outlasts)
{
    const struct delta_config *d = config_delta(s->config, layer);
    const int channels = delta_channels(d);
    struct delta_block b = {
        .s = s,
        .d = d,
        .w = &s->weights->layers[layer],
        .turns = turns,
        .n_turns = n_turns,
        .n = n,
        .layer = layer,
        .channels = channels,
        .mixed = s->mixed,
        .decays = s->decays,
        .betas = s->betas,
    };
    if (outlasts)
        b.mixed = cpu_kind_of(s, layer)->replays + (size_t)s->place[layer] * replay_floats(d);
    if (d->conv_dim)
        b.given = b.mixed;
    else if (outlasts) {
        b.given = b.mixed + (size_t)MOST_APART * channels;
        b.decays = b.given + (size_t)MOST_APART * channels;
        b.betas = b.decays + (size_t)MOST_APART * delta_decays(d);
    }
    return b;
}

static int n_sequences(const struct delta_block *b)
{
    return b->n_turns ? b->n_turns : 1;
}

static struct delta_sequence sequence_of(const struct delta_block *b, int i)
{
    return b->n_turns ? (struct delta_sequence){b->turns[i].state, i, 1} : (struct delta_sequence){b->s, 0, b->n};
}

// The convolution's inputs for token t and the channels of one head: pointers to what the products gave, or to what the tokens
// before left.
static void point_to_inputs(const struct delta_block *b, const float *rows[], const float *given, int width, int channel, int t)
{
    const struct delta_sequence own = sequence_of(b, b->n_turns ? t : 0);
    const int before = b->d->conv_width - 1, within = t - own.first;
    const float *inputs = delta_inputs(own.state, own.state->carried.from, b->layer) + channel;
    for (int j = 0; j <= before; j++)
        rows[j] =
            within + j < before ? inputs + (ptrdiff_t)(within + j) * b->channels : given + (ptrdiff_t)(t + j - before) * width;
}

// Logits become what the state is multiplied by before the token writes, and how much of its news it writes.
static void weigh(const struct delta_block *b, int t, int head)
{
    const ptrdiff_t at = (ptrdiff_t)t * b->d->n_value_heads + head;
    const struct scan_config *scan = &b->d->scan;
    const int n = delta_head_decays(b->d);
    float dt = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        const float x = b->s->decays[at * n + i] + b->w->delta.decay_bias[head * n + i];
        dt = x > 20 ? x : log1pf(expf(x));
        if (scan->dt_min > 0 && dt < scan->dt_min)
            dt = scan->dt_min;
        if (scan->dt_max > 0 && dt > scan->dt_max)
            dt = scan->dt_max;
        b->decays[at * n + i] = expf(-b->w->delta.decay_rate[head] * dt);
    }
    b->betas[at] = scan->there ? dt : 1.0f / (1.0f + expf(-b->s->betas[at]));
}

// b->mixed of token t: the part of one head of q, then of k, then of v.
static void mix_part(const struct delta_block *b, int t, int part)
{
    struct cpu_state *s = b->s;
    const struct delta_config *d = b->d;
    const int keys = delta_keys(d), of_keys = d->n_key_heads;
    const int head = part < of_keys ? part : part < 2 * of_keys ? part - of_keys : part - 2 * of_keys;
    const bool query = part < of_keys, value = part >= 2 * of_keys;
    const int size = value ? d->value_dim : d->key_dim, width = value ? delta_values(d) : keys;
    const int channel = (query ? 0 : value ? 2 * keys : keys) + head * size;
    const struct cpu_kind *kind = cpu_kind_of(s, b->layer);
    const float *rows[CONFIG_MAX_CONV], *given = (query ? s->q : value ? s->v : s->k) + (ptrdiff_t)head * size;
    point_to_inputs(b, rows, given, width, channel, t);
    float *y = b->mixed + (ptrdiff_t)t * b->channels + channel;
    const float *bias = b->w->scan.conv_bias ? b->w->scan.conv_bias + channel : NULL;
    s->kernels->convolve(y, rows, b->w->delta.conv + channel, bias, b->channels, d->conv_width, size);
    if (value)
        weigh(b, t, head);
    else if (!d->scan.there) // x / √(Σ x² + 10^-6), and queries by √key_dim besides, said as an rmsnorm
        s->kernels->rmsnorm(y, y, query ? kind->query_units : kind->key_units, size, 1e-6f / (float)size);
}

static void mix(const struct delta_block *b, struct member *me)
{
    const int parts = 2 * b->d->n_key_heads + b->d->n_value_heads;
    for (struct grains span; team_claim(me, b->n * parts, 4, &span);)
        for (int i = span.first; i < span.last; i++)
            mix_part(b, i / parts, i % parts);
}

// Token t's q, k and v before the convolution, one after another.
static void copy_given(const struct delta_block *b, float *to, ptrdiff_t t)
{
    const int keys = delta_keys(b->d), values = delta_values(b->d);
    memcpy(to, b->s->q + t * keys, sizeof *to * (size_t)keys);
    memcpy(to + keys, b->s->k + t * keys, sizeof *to * (size_t)keys);
    memcpy(to + 2 * keys, b->s->v + t * values, sizeof *to * (size_t)values);
}

// What the convolution of the tokens to come will see of these, of some channels. given: what it goes over, (n, channels) of
// the sequence; NULL: q, k and v, of which all channels are kept.
static void keep_inputs(const struct delta_block *b, const struct delta_sequence *own, const float *given,
                        struct grains channels)
{
    const int before = b->d->conv_width - 1;
    const struct carried *c = &own->state->carried;
    const size_t bytes = sizeof *given * (size_t)(channels.last - channels.first);
    const float *old = delta_inputs(own->state, c->from, b->layer) + channels.first;
    float *kept = delta_inputs(own->state, c->to, b->layer) + channels.first;
    for (int j = 0; j < before; j++, kept += b->channels) {
        const int within = own->n - before + j;
        if (within < 0)
            memcpy(kept, old + (ptrdiff_t)(own->n + j) * b->channels, bytes);
        else if (given)
            memcpy(kept, given + (ptrdiff_t)within * b->channels + channels.first, bytes);
        else
            copy_given(b, kept, own->first + within);
    }
    for (int t = 0; t < b->n && b->given && !given; t++)
        copy_given(b, b->given + (ptrdiff_t)t * b->channels, t);
}

static struct grains all_channels(const struct delta_block *b)
{
    return (struct grains){0, b->channels};
}

// y: where the first token's values come to lie, of all heads; NULL: they are not wanted.
static void recur(const struct delta_block *b, const struct delta_sequence *own, float *y, int head, int first_col,
                  int last_col)
{
    const struct delta_config *d = b->d;
    const struct carried *c = &own->state->carried;
    const int key_head = d->tiled ? head % d->n_key_heads : head / (d->n_value_heads / d->n_key_heads);
    const float *x = b->mixed + (ptrdiff_t)own->first * b->channels;
    const ptrdiff_t row = (ptrdiff_t)own->first * d->n_value_heads + head;
    b->s->kernels->delta_rule(&(struct delta_args){
        .y = y ? y + (ptrdiff_t)head * d->value_dim : NULL,
        .ldy = delta_values(d),
        .before = delta_state(own->state, c->from, b->layer, head),
        .after = delta_state(own->state, c->to, b->layer, head),
        .q = x + (ptrdiff_t)key_head * d->key_dim,
        .k = x + delta_keys(d) + (ptrdiff_t)key_head * d->key_dim,
        .v = x + 2 * (ptrdiff_t)delta_keys(d) + (ptrdiff_t)head * d->value_dim,
        .ldx = b->channels,
        .decay = b->decays + row * delta_head_decays(d),
        .beta = b->betas + row,
        .ldd = delta_decays(d),
        .ldg = d->n_value_heads,
        .n = own->n,
        .key_dim = d->key_dim,
        .value_dim = d->value_dim,
        .first_col = first_col,
        .last_col = last_col,
        .scan = d->scan.there,
        .channels = d->kda_rank > 0,
    });
}

// Item 0 of a sequence keeps the inputs; the others each have a block of columns of a head's state.
static void recur_all(const struct delta_block *b, float *y, struct member *me)
{
    const int slices = (b->d->value_dim + DELTA_COLS - 1) / DELTA_COLS, items = 1 + b->d->n_value_heads * slices;
    for (struct grains span; team_claim_near(me, n_sequences(b) * items, 1, &span);)
        for (int i = span.first; i < span.last; i++) {
            const struct delta_sequence own = sequence_of(b, i / items);
            const int item = i % items - 1, first = item % slices * DELTA_COLS, left = b->d->value_dim - first;
            if (item < 0)
                keep_inputs(b, &own, NULL, all_channels(b));
            else
                recur(b, &own, y + (ptrdiff_t)own.first * delta_values(b->d), item / slices, first,
                      first + (left < DELTA_COLS ? left : DELTA_COLS));
        }
}

// y *= silu(gates); both (n)
static void multiply_gates(struct cpu_state *s, float *y, float *gates, int n)
{
    s->kernels->activate[ACTIVATION_SILU](gates, y, n);
    memcpy(y, gates, sizeof *y * (size_t)n);
}

// y = silu(gates) ∘ rmsnorm(y), or of KDA sigmoid(gates) ∘ rmsnorm(y), head by head.
static void gate(const struct delta_block *b, float *y, struct member *me)
{
    struct cpu_state *s = b->s;
    const int dim = b->d->value_dim;
    for (struct grains span; team_claim(me, b->n * b->d->n_value_heads, 4, &span);)
        for (ptrdiff_t i = span.first; i < span.last; i++) {
            s->kernels->rmsnorm(y + i * dim, y + i * dim, b->w->delta.value_norm, dim, s->config->norm_eps);
            if (b->d->kda_rank)
                s->kernels->sigmoid_multiply(y + i * dim, s->gates + i * dim, dim);
            else
                multiply_gates(s, y + i * dim, s->gates + i * dim, dim);
        }
}

// y += skip x, head by head; then rmsnorm(silu(z) y), or silu(z) rmsnorm(y), group by group, or silu(z) y.
static void gate_scan(const struct delta_block *b, float *y, struct member *me)
{
    struct cpu_state *s = b->s;
    const struct delta_config *d = b->d;
    const int values = delta_values(d), groups = d->scan.norm_groups ? d->scan.norm_groups : 1, dim = values / groups;
    for (struct grains span; team_claim(me, b->n * groups, 1, &span);)
        for (ptrdiff_t i = span.first; i < span.last; i++) {
            const int first = (int)(i % groups) * dim;
            const float *x = b->mixed + i / groups * b->channels + 2 * (ptrdiff_t)delta_keys(d) + first;
            float *own = y + i * dim, *gates = s->gates + i * dim;
            for (int j = 0; j < dim;) {
                const int head = (first + j) / d->value_dim, end = (head + 1) * d->value_dim - first;
                for (const float skip = b->w->scan.skip[head]; j < dim && j < end; j++)
                    own[j] += skip * x[j];
            }
            if (!d->scan.norm_first)
                multiply_gates(s, own, gates, dim);
            if (d->scan.norm_groups)
                s->kernels->rmsnorm(own, own, b->w->delta.value_norm + first, dim, d->scan.norm_eps);
            if (d->scan.norm_first)
                multiply_gates(s, own, gates, dim);
        }
}

void delta_recur(struct cpu_state *s, const struct turn *turns, int n_turns, int n, int layer, float *y, struct member *me)
{
    const struct delta_block b = block_of(s, turns, n_turns, n, layer, me->apart && n_turns == 0 && n > 1);
    mix(&b, me);
    recur_all(&b, y, me);
    (b.d->scan.there ? gate_scan : gate)(&b, y, me);
}

// All of a convolution alone, for some channels of a sequence: no channel depends on another.
static void convolve_channels(const struct delta_block *b, const struct delta_sequence *own, struct grains channels)
{
    const struct cpu_state *s = b->s;
    const int width = b->channels, first = channels.first, n = channels.last - first;
    const float *rows[CONFIG_MAX_CONV], *bias = b->w->delta.conv_bias;
    for (ptrdiff_t t = own->first; t < own->first + own->n; t++)
        for (ptrdiff_t i = t * width + first; i < t * width + channels.last; i++)
            b->mixed[i] = s->k[i] * s->v[i];
    for (ptrdiff_t t = own->first; t < own->first + own->n; t++) {
        point_to_inputs(b, rows, b->mixed + first, width, first, (int)t);
        s->kernels->convolve_gated(s->attended + t * width + first, rows, b->w->delta.conv + first, width, b->d->conv_width,
                                   bias ? bias + first : NULL, s->q + t * width + first, n);
    }
    keep_inputs(b, own, b->mixed + (ptrdiff_t)own->first * width, channels);
}

void delta_convolve(struct cpu_state *s, const struct turn *turns, int n_turns, int n, int layer, struct member *me)
{
    enum { GRAIN = 64 }; // channels
    const struct delta_block b = block_of(s, turns, n_turns, n, layer, me->apart && n_turns == 0 && n > 1);
    const int grains = (b.channels + GRAIN - 1) / GRAIN;
    for (struct grains span; team_claim_near(me, n_sequences(&b) * grains, 1, &span);)
        for (int i = span.first; i < span.last; i++) {
            const struct delta_sequence own = sequence_of(&b, i / grains);
            const int first = i % grains * GRAIN, last = first + GRAIN;
            convolve_channels(&b, &own, (struct grains){first, last < b.channels ? last : b.channels});
        }
}

// ------------------------------------------------------------------------------------------ replaying

struct replaying {
    struct cpu_state *s;
    int n; // tokens
};

static void replay_layer(void *context, int layer)
{
    const struct replaying *r = context;
    struct cpu_state *s = r->s;
    if (!config_is_recurrent(s->config, layer))
        return;
    const struct delta_block b = block_of(s, NULL, 0, r->n, layer, true);
    const struct delta_sequence own = {s, 0, r->n};
    for (int head = 0; head < b.d->n_value_heads; head++)
        recur(&b, &own, NULL, head, 0, b.d->value_dim);
    keep_inputs(&b, &own, b.given, all_channels(&b));
}

// Fills a place with what stands before `position`, behind some of the last tokens apart: all but the rule itself was computed
// then.
static void replay(struct cpu_state *s, int64_t position)
{
    struct carried *c = &s->carried;
    drop_later(c, position); // that of the end of those tokens
    c->from = find_place(s, c->first);
    c->to = free_place(s, c->from);
    team_for(s->team, s->config->n_layers, replay_layer, &(struct replaying){s, (int)(position - c->first)});
    c->at[c->to] = position;
}
