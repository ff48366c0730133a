// The CPU's half of compare_selections: see cpu.h. It stands in for the session's policy, whose own attend() it calls, and copies what that leaves in
// the session's scratch.
#include "cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/long/method.h"
#include "cpu/long/priority.h"
#include "engine/session.h"

// A score's rounding, in standard deviations of a sum of independent errors, each spread evenly over ± half a step. Few of the 10^5 scores that
// are compared may be expected beyond 4.5 of them.
static const double DEVIATIONS = 6;
// Queries, keys and sums of both devices, which are computed in float in different orders.
static const double FLOATS = 1e-5;
enum { NEWEST = 32 }; // keys that the CPU may score from their rows, where the other device has copied them

static const struct policy *original;
static struct policy watched;
static struct cpu_selection *layers;
static bool *selected; // (n_layers)
static int n_layers;

static void *room(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        fputs("compare_selections: out of memory\n", stderr);
        exit(YALM_NO_MEMORY);
    }
    return memory;
}

static int group_size(const struct cpu_state *s)
{
    return s->config->n_heads / s->config->n_kv_heads;
}

// SparQ: score = q' · k[i1]. Both round the copy's elements alike, but for the newest keys, which have copies on one device only; a key that is as
// near to the middle between two elements may become either, which nothing here allows for.
static double sparq_rounding(const struct cpu_state *s, int layer, int head, int key, int n_keys, int slot)
{
    const struct sparq *p = &s->method->sparq;
    const int kv_head = head / group_size(s), d = s->config->head_dim;
    const float *q = p->q + (size_t)head * p->r;
    const int *components = p->components + (size_t)kv_head * p->r;
    float row[SELECTIVE_DIMS], most = 0;
    double plain = 0, squares = 0;
    cpu_load_key(s, layer, kv_head, slot, row);
    for (int c = 0; c < d; c++)
        most = fmaxf(most, fabsf(row[c]));
    for (int c = 0; c < p->r; c++) {
        const double x = fabs((double)row[components[c]]), by = fabs((double)q[c]);
        const double step =
            p->copy == COPY_FP16 ? fmax(ldexp(x, -10), 0x1p-24) : (double)most / (p->copy == COPY_INT8 ? 127 : 7);
        plain += by * (double)most;
        squares += by * step * by * step / 12;
    }
    return FLOATS * plain + (key >= n_keys - NEWEST ? DEVIATIONS * sqrt(squares) : 0);
}

// The hybrid: score = Σ_c q_c centroid[c, code]. Both round the centroids' components to 1/254 of their span and each q_c times that to 1/127 of the largest, so that
// most scores differ by what floats do alone; one that is as near to the middle between two integers may become either.
static double hybrid_rounding(const struct cpu_state *s, int layer, int head)
{
    const int kv_head = head / group_size(s), d = s->config->head_dim;
    const float *q = s->rotated_q + ((size_t)kv_head * s->chunk * group_size(s) + head % group_size(s)) * d;
    const float *centroids = codebook_of(&s->method->nomad.book, s->config, layer, kv_head);
    double squares = 0, most = 0, plain = 0, bytes = 0;
    for (int c = 0; c < d; c++) {
        const float *values = centroids + (size_t)c * CODEBOOK_CENTROIDS;
        double least = INFINITY, largest = -INFINITY, square = 0;
        for (int i = 0; i < CODEBOOK_CENTROIDS; i++) {
            least = fmin(least, (double)values[i]);
            largest = fmax(largest, (double)values[i]);
        }
        const double scale = (largest - least) / 254, middle = (least + largest) / 2;
        for (int i = 0; i < CODEBOOK_CENTROIDS; i++)
            square = fmax(square, scale > 0 ? pow(((double)values[i] - middle) / scale, 2) : 0);
        bytes += square;
        most = fmax(most, fabs((double)q[c]) * scale);
        squares += pow((double)q[c] * scale, 2) / 12;
        plain += fabs((double)q[c]) * fmax(fabs(least), fabs(largest));
    }
    squares += pow(most / 127, 2) / 12 * bytes;
    return DEVIATIONS * sqrt(squares) + FLOATS * plain;
}

static void forget(struct cpu_selection *l)
{
    free(l->slots);
    free(l->scores);
    free(l->sink_scores);
    free(l->rounding);
    free(l->sums);
    free(l->components);
    free(l->taken);
    free(l->lifts);
    free(l->bias);
    *l = (struct cpu_selection){0};
}

static void keep_queries(const struct cpu_state *s, struct cpu_selection *l)
{
    const int d = s->config->head_dim, n_kv_heads = s->config->n_kv_heads, group = group_size(s);
    l->sums = room((size_t)n_kv_heads * d, sizeof *l->sums);
    for (int h = 0; h < n_kv_heads; h++)
        for (int i = 0; i < group * d; i++)
            l->sums[h * d + i % d] += fabs((double)s->rotated_q[(size_t)h * s->chunk * group * d + i]);
    if (s->policy->selector == policy_sparq.selector) {
        l->r = s->method->sparq.r;
        l->components = room((size_t)n_kv_heads * l->r, sizeof(int));
        memcpy(l->components, s->method->sparq.components, sizeof(int) * n_kv_heads * l->r);
    }
}

// Where query heads share keys, e^(score - base of its block) stands in a score's place; where not, and keys are drawn, the score and -ln u.
static float score_of(const struct cpu_state *s, int head, int key, double lift)
{
    const struct selective *t = &s->method->selective;
    const float kept = t->scores[(size_t)head * t->ld + key];
    return group_size(s) == 1 ? (float)(kept - log(lift))
                              : logf(kept) + t->bases[(size_t)head * t->blocks + key / SELECTIVE_BLOCK];
}

// Of a layer's KV head.
static void keep_lifts(const struct cpu_state *s, int layer, int kv_head, struct cpu_selection *l)
{
    const float *lifts = s->method->selective.lifts + priority_phase(config_head_number(s->config, layer, kv_head));
    for (int j = 0; j < l->n_keys; j++) {
        const double lift = !l->drawn ? 1 : group_size(s) == 1 ? exp((double)lifts[j]) : (double)lifts[j];
        l->lifts[(size_t)kv_head * l->n_keys + j] = lift;
    }
}

static void keep_keys(const struct cpu_state *s, int layer, struct cpu_selection *l)
{
    const int n = l->n_keys, n_heads = s->config->n_heads, n_kv_heads = s->config->n_kv_heads;
    const int64_t from = kv_first_visible(s->kv, l->position);
    const struct selective *t = &s->method->selective;
    l->slots = room(n, sizeof(int));
    l->scores = room((size_t)n_heads * n, sizeof(float));
    l->rounding = room((size_t)n_heads * n, sizeof(double));
    l->sink_scores = room((size_t)n_heads * l->n_sinks, sizeof(float));
    l->taken = room((size_t)n_kv_heads * n, 1);
    l->lifts = room((size_t)n_kv_heads * n, sizeof *l->lifts);
    l->bias = room((size_t)n_kv_heads * n, sizeof *l->bias);
    for (int j = 0; j < n; j++)
        l->slots[j] = kv_slot(s->kv, from + j);
    for (int h = 0; h < n_kv_heads; h++)
        keep_lifts(s, layer, h, l);
    for (int h = 0; h < n_heads; h++) {
        const double of_codes = l->r ? 0 : hybrid_rounding(s, layer, h);
        for (int j = 0; j < n; j++) {
            const double lift = l->lifts[(size_t)(h / group_size(s)) * n + j];
            l->scores[(size_t)h * n + j] = score_of(s, h, j, lift);
            l->rounding[(size_t)h * n + j] =
                l->r ? sparq_rounding(s, layer, h, j, n, l->slots[j]) : of_codes + FLOATS / 10 * log(lift);
        }
        for (int i = 0; i < l->n_sinks; i++)
            l->sink_scores[h * l->n_sinks + i] = t->sink_scores[(size_t)h * (s->kv->n_sinks + 1) + i];
    }
    for (int h = 0; h < n_kv_heads; h++) // rows are slots by now
        for (int i = 0, j = 0; i < t->n_rows[h]; i++) {
            for (j = 0; j < n && l->slots[j] != t->rows[(size_t)h * t->ld + i]; j++)
                ;
            if (j < n) {
                l->taken[(size_t)h * n + j] = 1;
                l->bias[(size_t)h * n + j] = l->drawn ? t->bias[(size_t)h * t->ld + i] : 0;
            }
        }
}

static void attend(struct cpu_state *s, const struct batch *batch, const struct step *step, struct member *me)
{
    const int layer = step->layer;
    original->attend(s, batch, step, me);
    selected[layer] = true;
    struct cpu_selection *l = &layers[layer];
    forget(l);
    l->position = batch->position;
    l->n_keys = selective_n_keys(s, batch->position);
    l->n_sinks = kv_sinks_apart(s->kv, batch->position) ? s->kv->n_sinks : 0;
    const struct choice c = s->policy->selector->choice(s, layer, l->n_keys);
    l->k = c.k < l->n_keys ? c.k : l->n_keys;
    l->local = c.local < l->k ? c.local : l->k;
    l->drawn = c.drawn;
    l->first = c.first < l->k - l->local ? c.first : l->k - l->local;
    keep_queries(s, l);
    keep_keys(s, layer, l);
}

void cpu_watch(yalm_session *session)
{
    struct cpu_state *s = session->state;
    s->method->selective.keep_all = true;
    original = s->policy;
    watched = *s->policy;
    watched.attend = attend;
    s->policy = &watched;
    n_layers = s->config->n_layers;
    layers = room(n_layers, sizeof *layers);
    selected = room(n_layers, sizeof *selected);
}

const struct cpu_selection *cpu_selection(int layer)
{
    return selected[layer] ? &layers[layer] : NULL;
}

void cpu_watch_end(void)
{
    for (int i = 0; i < n_layers; i++)
        forget(&layers[i]);
    free(layers);
    free(selected);
    layers = NULL;
    selected = NULL;
    n_layers = 0;
}
