// k-means of keys as the cache sees them. Samples are recorded before their rotation, and each is rotated to a position of its
// own. So a head's samples are spread over all rotations that the context can reach: attention scores keys where they stand.
//
// k-means++ (Arthur and Vassilvitskii, 2007) chooses the first centroids, then Lloyd's iterations move them: each sample goes
// to its nearest centroid, by the very kernel that encodes keys, and each centroid to the mean of its samples. One KV head is
// one item of the team's work, in one order, with a random sequence of its own.

#include "cpu/learn.h"
#include "cpu/machine/isa.h"

#include <math.h>
#include <string.h>

#include "model/rope.h"
#include "util/error.h"
#include "util/memory.h"

enum { K = NOMAD_CENTROIDS, HEADS_PER_THREAD = 4 };

// What one thread works in.
struct workplace {
    float *keys;     // (n, head_dim), rotated
    float *column;   // (d_sub, n): one sub-vector of all samples
    float *distance; // (n): to the nearest centroid so far
    uint8_t *codes;  // (n_sub)
    double *sums;    // (head_dim, 16)
    int *counts;     // (n_sub, 16)
};

struct class
{
    struct cpu_state *s;
    const struct learning *how;
    const struct nomad_kernels *kernels;
    float *centroids;
    float *cos, *sin; // (n, head_dim / 2)
    uint8_t *block;   // workplaces, one for each thread
    size_t workplace_bytes;
};

// Heads that are learned in one run, of all layers'.
struct lesson {
    const struct class *class;
    int first_head, n_heads;
};

// splitmix64 (Steele, Lea and Flood, 2014), in [0, 1).
static double random_unit(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static void carve_workplace(struct workplace *w, struct carver *c, const struct learning *how, int head_dim)
{
    w->keys = carve(c, (size_t)how->n * (size_t)head_dim, sizeof(float));
    w->column = carve(c, (size_t)how->n * (size_t)how->d_sub, sizeof(float));
    w->distance = carve(c, (size_t)how->n, sizeof(float));
    w->codes = carve(c, (size_t)head_dim, 1);
    w->sums = carve(c, (size_t)head_dim * K, sizeof(double));
    w->counts = carve(c, (size_t)head_dim * K, sizeof(int));
}

static void rotate_samples(const struct class *class, const struct workplace *w, int head)
{
    const struct cpu_state *s = class->s;
    const int d = s->far->head_dim;
    const struct key_record *record = class->how->record;
    const uint16_t *keys = record->keys + (size_t)head * (size_t)record->room * (size_t)d;
    const bool turns = !s->config->unrotated_layer[config_far_layer(s->config, head / s->far->n_kv_heads)];
    for (int i = 0; i < class->how->n; i++) {
        float *key = w->keys + (size_t)i * d;
        s->kernels->to_fp32[DTYPE_FP16](key, keys + (size_t)i * d, d);
        if (turns)
            s->kernels->rope(key, class->cos + (size_t)i * (d / 2), class->sin + (size_t)i * (d / 2), d);
    }
}

// distance[i] = min(distance[i], |x_i - centroid|²); returns the total.
static double shorten(float *distance, const float *column, const float *centroid, int n, int d_sub)
{
    double total = 0;
    for (int i = 0; i < n; i++) {
        float squares = 0;
        for (int c = 0; c < d_sub; c++) {
            const float x = column[(size_t)c * n + i] - centroid[c * K];
            squares += x * x;
        }
        distance[i] = squares < distance[i] ? squares : distance[i];
        total += (double)distance[i];
    }
    return total;
}

// The first centroids of a sub-vector: samples, each drawn with a probability as its squared distance from those that are
// there.
static void seed_centroids(const struct class *class, const struct workplace *w, float *centroids, int sub, uint64_t *random)
{
    const int n = class->how->n, d_sub = class->how->d_sub, d = class->s->far->head_dim;
    for (int i = 0; i < n; i++) {
        w->distance[i] = INFINITY;
        for (int c = 0; c < d_sub; c++)
            w->column[(size_t)c * n + i] = w->keys[(size_t)i * d + sub * d_sub + c];
    }
    int chosen = (int)(random_unit(random) * n);
    for (int k = 0; k < K; k++) {
        for (int c = 0; c < d_sub; c++)
            centroids[c * K + k] = w->column[(size_t)c * n + chosen];
        double left = random_unit(random) * shorten(w->distance, w->column, centroids + k, n, d_sub);
        for (chosen = 0; chosen < n - 1 && (left -= (double)w->distance[chosen]) >= 0; chosen++)
            ;
    }
}

// One of Lloyd's iterations, of all sub-vectors at once. A centroid without samples stays where it is.
static void move_centroids(const struct class *class, const struct workplace *w, float *centroids)
{
    const int d = class->s->far->head_dim, d_sub = class->how->d_sub, n_sub = d / d_sub;
    const struct nomad_book book = {centroids, n_sub, d_sub};
    memset(w->sums, 0, sizeof(double) * (size_t)d * K);
    memset(w->counts, 0, sizeof(int) * (size_t)n_sub * K);
    for (int i = 0; i < class->how->n; i++) {
        const float *key = w->keys + (size_t)i * d;
        class->kernels->encode(w->codes, key, &book);
        for (int sub = 0; sub < n_sub; sub++) {
            w->counts[sub * K + w->codes[sub]]++;
            for (int c = sub * d_sub; c < (sub + 1) * d_sub; c++)
                w->sums[c * K + w->codes[sub]] += (double)key[c];
        }
    }
    for (int c = 0; c < d; c++)
        for (int k = 0; k < K; k++) {
            const int count = w->counts[c / d_sub * K + k];
            if (count > 0)
                centroids[c * K + k] = (float)(w->sums[c * K + k] / count);
        }
}

static void learn_head(const struct class *class, const struct workplace *w, int head)
{
    const int d = class->s->far->head_dim, d_sub = class->how->d_sub;
    float *centroids = class->centroids + (size_t)head * codebook_head_floats(class->s->config);
    uint64_t random = class->how->seed + (uint64_t)head * 0xd1342543de82ef95u;
    rotate_samples(class, w, head);
    for (int sub = 0; sub < d / d_sub; sub++)
        seed_centroids(class, w, centroids + (size_t)sub * d_sub * K, sub, &random);
    for (int i = 0; i < class->how->iterations; i++)
        move_centroids(class, w, centroids);
}

static void learn_heads(struct member *me, const void *arguments)
{
    const struct lesson *lesson = arguments;
    for (struct grains heads; team_claim(me, lesson->n_heads, 1, &heads);)
        for (int i = heads.first; i < heads.last; i++) {
            const struct class *class = lesson->class;
            struct workplace w;
            carve_workplace(&w, &(struct carver){.base = class->block + (size_t)me->thread * class->workplace_bytes},
                            class->how, class->s->far->head_dim);
            if (!atomic_load_explicit(class->s->cancel, memory_order_relaxed))
                learn_head(class, &w, lesson->first_head + i);
        }
}

// All heads, some at a time, so that progress can be told between.
static yalm_status learn_all(const struct class *class, yalm_error *error)
{
    const struct learning *how = class->how;
    const int all = class->s->far_layers * class->s->far->n_kv_heads, threads = team_size(class->s->team);
    struct lesson lesson = {.class = class};
    for (; lesson.first_head < all; lesson.first_head += lesson.n_heads) {
        const int left = all - lesson.first_head;
        lesson.n_heads = left < HEADS_PER_THREAD * threads ? left : HEADS_PER_THREAD * threads;
        if (how->progress)
            how->progress(how->context, "learning codebooks", (double)lesson.first_head / all);
        team_run(class->s->team, threads, learn_heads, &lesson, sizeof lesson);
        if (atomic_load(class->s->cancel))
            return error_set(error, YALM_INTERRUPTED, "interrupted");
    }
    return YALM_OK;
}

static void angles(void *context, int i)
{
    const struct class *class = context;
    const struct cpu_state *s = class->s;
    const size_t at = (size_t)i * (s->far->head_dim / 2);
    rope_angles(class->cos + at, class->sin + at, s->far->inverse_frequency, s->far->rope_scale, s->far->head_dim,
                class->how->positions[i]);
}

static void carve_class(struct class *class, struct carver *c)
{
    const size_t angles_of_all = (size_t) class->how->n * (class->s->far->head_dim / 2);
    class->cos = carve(c, angles_of_all, sizeof(float));
    class->sin = carve(c, angles_of_all, sizeof(float));
    class->block = carve(c, (size_t)team_size(class->s->team), class->workplace_bytes);
}

yalm_status learn_codebooks(struct cpu_state *s, const struct learning *how, float *centroids, yalm_error *error)
{
    struct class class = {.s = s, .how = how, .kernels = nomad_kernels_select(s->kernels), .centroids = centroids};
    struct carver one = {0}, all = {0};
    carve_workplace(&(struct workplace){0}, &one, how, s->far->head_dim);
    class.workplace_bytes = one.used;
    carve_class(&class, &all);
    const uint64_t available = memory_available();
    if (all.used > available)
        return error_set(error, YALM_NO_MEMORY, "not enough memory for learning codebooks: needed %.2f GB, available %.2f GB",
                         (double)all.used / 1e9, (double)available / 1e9);
    void *memory = memory_pages(all.used);
    if (!memory)
        return error_set(error, YALM_NO_MEMORY, "the system refused %zu bytes for learning codebooks", all.used);
    carve_class(&class, &(struct carver){.base = memory});
    team_for(s->team, how->n, angles, &class);
    const yalm_status status = learn_all(&class, error);
    memory_pages_free(memory, all.used);
    return status;
}
