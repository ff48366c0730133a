// A group of ranks that are threads of one process, whose transport copies bytes.
#pragma once
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/group.h"
#include "engine/random_model.h"
#include "engine/ranks.h"

enum { MOST_THREADS = 4 };

struct letter {
    void *bytes;
    size_t length;
    struct letter *next;
};

// What is on its way between any two ranks.
struct post {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct letter *boxes[MOST_THREADS][MOST_THREADS]; // from, to; the oldest first
    int dead;                                         // a rank that takes and gives nothing any more; -1: none
};

struct rank {
    struct post *post;
    int rank;
    yalm_group *group;
    pthread_t thread;
    struct random_model *source;
    yalm_model model; // the same, with a share of its own
    yalm_session_options options;
    yalm_status status;
    yalm_error error;
};

struct ranks {
    struct post post;
    struct rank each[MOST_THREADS];
    int n;
};

static const char *rank_name(void *context, int rank)
{
    (void)context, (void)rank;
    return "here";
}

static void post_send(struct post *post, int from, const struct parcel *out)
{
    struct letter *letter = malloc(sizeof *letter), **at = &post->boxes[from][out->rank];
    *letter = (struct letter){malloc(out->length), out->length, NULL};
    memcpy(letter->bytes, out->bytes, out->length);
    while (*at)
        at = &(*at)->next;
    *at = letter;
    pthread_cond_broadcast(&post->arrived);
}

// False where it is too late.
static bool post_take(struct post *post, int to, const struct parcel *in, const struct timespec *until)
{
    struct letter **box = &post->boxes[in->rank][to];
    while (!*box)
        if (pthread_cond_timedwait(&post->arrived, &post->lock, until) == ETIMEDOUT)
            return false;
    struct letter *letter = *box;
    if (letter->length != in->length)
        abort(); // ranks disagree about what they do
    memcpy(in->bytes, letter->bytes, letter->length);
    *box = letter->next;
    free(letter->bytes);
    free(letter);
    return true;
}

static struct exchanged rank_exchange(void *context, const struct parcel *out, int n_out, const struct parcel *in, int n_in,
                                      double patience)
{
    const struct rank *rank = context;
    struct post *post = rank->post;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    const double left = isfinite(patience) ? patience : 60; // no test waits for ever
    until.tv_sec += (time_t)left;
    until.tv_nsec += (long)((left - floor(left)) * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    struct exchanged done = {-1, false};
    pthread_mutex_lock(&post->lock);
    if (post->dead == rank->rank)
        done = (struct exchanged){0, false};
    for (int i = 0; i < n_out && done.lost < 0; i++)
        post_send(post, rank->rank, &out[i]);
    for (int i = 0; i < n_in && done.lost < 0; i++)
        if (!post_take(post, rank->rank, &in[i], &until))
            done = (struct exchanged){in[i].rank, true};
    pthread_mutex_unlock(&post->lock);
    return done;
}

static void rank_leave(void *context, bool lost)
{
    (void)context, (void)lost;
}

static yalm_model *rank_open(const struct model_source *source, yalm_group *group, yalm_error *error)
{
    (void)source, (void)error;
    struct rank *rank = group->transport.context;
    rank->model.group = group;
    return &rank->model;
}

static void rank_close(yalm_model *model)
{
    share_close(&model->share);
    struct shared *const kept[] = {&model->of_cpu, &model->weights_copy};
    for (int i = 0; i < 2; i++) {
        if (kept[i]->data)
            kept[i]->release(kept[i]->data);
        kept[i]->data = NULL;
    }
    model->group = NULL;
}

static void *rank_follow(void *context)
{
    struct rank *rank = context;
    static const yalm_model_options how;
    const struct model_source source = {.open = rank_open, .close = rank_close, .path = "the model", .how = &how};
    rank->status = group_follow(rank->group, &source, &rank->options, &rank->error);
    yalm_group_leave(rank->group);
    return NULL;
}

static void ranks_make(struct ranks *ranks, struct random_model *model, int n, int n_threads, double patience)
{
    memset(ranks, 0, sizeof *ranks);
    ranks->n = n;
    ranks->post.dead = -1;
    pthread_mutex_init(&ranks->post.lock, NULL);
    pthread_cond_init(&ranks->post.arrived, NULL);
    for (int r = 0; r < n; r++) {
        struct rank *rank = &ranks->each[r];
        *rank = (struct rank){.post = &ranks->post, .rank = r, .source = model, .model = model->model};
        rank->model.container.mapping.path = "the model";
        rank->model.of_cpu.data = NULL;
        rank->model.weights_copy.data = NULL;
        pthread_mutex_init(&rank->model.of_cpu.lock, NULL);
        pthread_mutex_init(&rank->model.weights_copy.lock, NULL);
        rank->options = yalm_session_defaults();
        rank->options.n_threads = n_threads;
        rank->group = group_make(&(struct transport){
            .rank = r, .n = n, .context = rank, .name = rank_name, .exchange = rank_exchange, .leave = rank_leave});
        rank->group->patience = patience;
    }
    ranks->each[0].model.group = ranks->each[0].group;
}

// Ranks 1 … n - 1 follow; rank 0's model is ranks->each[0].model, of which it has no share yet.
static void ranks_start(struct ranks *ranks, struct random_model *model, int n, int n_threads, double patience)
{
    ranks_make(ranks, model, n, n_threads, patience);
    for (int r = 1; r < n; r++)
        pthread_create(&ranks->each[r].thread, NULL, rank_follow, &ranks->each[r]);
}

// Letters that nobody has taken.
static void post_empty(struct ranks *ranks)
{
    for (int from = 0; from < ranks->n; from++)
        for (int to = 0; to < ranks->n; to++)
            for (struct letter *letter = ranks->post.boxes[from][to], *next; letter; letter = next) {
                next = letter->next;
                free(letter->bytes);
                free(letter);
            }
}

static void ranks_end(struct ranks *ranks)
{
    rank_close(&ranks->each[0].model);
    yalm_group_leave(ranks->each[0].group);
    for (int r = 1; r < ranks->n; r++)
        pthread_join(ranks->each[r].thread, NULL);
    post_empty(ranks);
}
