#include "engine/group.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/share.h"
#include "util/clock.h"
#include "util/error.h"

enum { PIECE_FLOATS = 1 << 20 };

// Up to so many bytes each rank sends all it has to all others: one message's delay. Of more, each sums up a part, which makes two delays, and fewer bytes.
enum { DIRECT_BYTES = 32 << 10 };

// ------------------------------------------------------------------------------------------ parcels

yalm_status group_failure(const struct yalm_group *group, yalm_error *error)
{
    if (error)
        *error = group->why;
    return group->why.status;
}

static bool exchange(struct yalm_group *g, const struct parcel *out, int n_out, const struct parcel *in, int n_in,
                     double patience)
{
    if (g->lost)
        return false;
    const struct exchanged done = g->transport.exchange(g->transport.context, out, n_out, in, n_in, patience);
    for (int i = 0; i < n_out; i++)
        g->traffic.bytes += out[i].length;
    g->traffic.messages += (uint64_t)n_out;
    if (done.lost < 0)
        return true;
    g->lost = true;
    g->lost_rank = done.lost;
    const char *name = g->transport.name(g->transport.context, done.lost);
    if (done.late)
        error_set(&g->why, YALM_FAILED,
                  "rank %d (%s) has not answered for %g seconds: it hangs, or is too slow for these prompts (--chunk N makes "
                  "its turns shorter)",
                  done.lost, name, patience);
    else
        error_set(&g->why, YALM_FAILED, "rank %d (%s) has ended: the others cannot go on without its share of the model",
                  done.lost, name);
    return false;
}

// A parcel for each of the other ranks, or from each.
struct round {
    struct parcel parcels[GROUP_MOST];
    int n;
};

static void put(struct round *round, int rank, void *bytes, size_t length)
{
    round->parcels[round->n++] = (struct parcel){rank, bytes, length};
}

// Memory for what others send.
static float *room_for(struct yalm_group *g, size_t floats)
{
    if (floats > g->room) {
        free(g->theirs);
        g->theirs = malloc(floats * sizeof(float));
        g->room = g->theirs ? floats : 0;
    }
    if (!g->theirs && !g->lost) {
        g->lost = true;
        error_set(&g->why, YALM_NO_MEMORY, "out of memory for what other ranks send");
    }
    return g->theirs;
}

// ------------------------------------------------------------------------------------------ sums

// mine (n) becomes the sum of all ranks', in their order; theirs (n_ranks - 1, n), those of the other ranks in theirs.
static void add_up(float *mine, const float *theirs, size_t n, int rank, int n_ranks)
{
    enum { BLOCK = 256 };
    float sum[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t length = n - at < BLOCK ? n - at : BLOCK;
        for (int r = 0; r < n_ranks; r++) {
            const float *x = r == rank ? mine + at : theirs + (size_t)(r < rank ? r : r - 1) * n + at;
            for (size_t i = 0; i < length; i++)
                sum[i] = r == 0 ? x[i] : sum[i] + x[i];
        }
        memcpy(mine + at, sum, length * sizeof *sum);
    }
}

static void sum_direct(struct yalm_group *g, float *x, size_t n)
{
    const int rank = g->transport.rank, n_ranks = g->transport.n;
    float *theirs = room_for(g, n * (size_t)(n_ranks - 1));
    struct round out = {.n = 0}, in = {.n = 0};
    for (int r = 0; r < n_ranks; r++)
        if (r != rank) {
            put(&out, r, x, n * sizeof *x);
            put(&in, r, theirs + (size_t)in.n * n, n * sizeof *x);
        }
    if (exchange(g, out.parcels, out.n, in.parcels, in.n, g->patience))
        add_up(x, theirs, n, rank, n_ranks);
}

// Each rank sums up its part of x, and then has all the others'.
static void sum_by_parts(struct yalm_group *g, float *x, size_t n)
{
    const int rank = g->transport.rank, n_ranks = g->transport.n;
    const struct share_span mine = share_of_rows((int)n, rank, n_ranks);
    const size_t n_mine = (size_t)(mine.last - mine.first);
    float *theirs = room_for(g, n_mine * (size_t)(n_ranks - 1));
    struct round out = {.n = 0}, in = {.n = 0}, out_sums = {.n = 0}, in_sums = {.n = 0};
    for (int r = 0; r < n_ranks; r++) {
        const struct share_span part = share_of_rows((int)n, r, n_ranks);
        if (r == rank)
            continue;
        put(&in, r, theirs + (size_t)in.n * n_mine, n_mine * sizeof *x);
        put(&out, r, x + part.first, (size_t)(part.last - part.first) * sizeof *x);
        put(&out_sums, r, x + mine.first, n_mine * sizeof *x);
        put(&in_sums, r, x + part.first, (size_t)(part.last - part.first) * sizeof *x);
    }
    if (!exchange(g, out.parcels, out.n, in.parcels, in.n, g->patience))
        return;
    add_up(x + mine.first, theirs, n_mine, rank, n_ranks);
    exchange(g, out_sums.parcels, out_sums.n, in_sums.parcels, in_sums.n, g->patience);
}

bool group_sum(struct yalm_group *g, float *x, size_t n)
{
    const double begin = clock_seconds();
    x[n] = g->transport.rank == 0 && g->cancel && atomic_load_explicit(g->cancel, memory_order_relaxed);
    for (size_t done = 0, all = n + 1, piece; done < all; done += piece) {
        piece = all - done < PIECE_FLOATS ? all - done : PIECE_FLOATS;
        if (g->transport.n == 2 || piece * sizeof *x <= DIRECT_BYTES)
            sum_direct(g, x + done, piece);
        else
            sum_by_parts(g, x + done, piece);
    }
    g->traffic.seconds += clock_seconds() - begin;
    return g->lost || x[n] > 0;
}

// ------------------------------------------------------------------------------------------ gathering

// Some tokens' parts, from all other ranks.
static void gather_few(struct yalm_group *g, float *whole, int n, int rows)
{
    struct round in = {.n = 0};
    float *theirs = room_for(g, (size_t)n * (size_t)rows);
    for (int r = 1, first = 0; r < g->transport.n; r++) {
        const struct share_span part = share_of_rows(rows, r, g->transport.n);
        const size_t floats = (size_t)n * (size_t)(part.last - part.first);
        put(&in, r, n == 1 ? whole + part.first : theirs + first, floats * sizeof *whole);
        first += (int)floats;
    }
    if (!exchange(g, NULL, 0, in.parcels, in.n, g->patience) || n == 1)
        return;
    for (int i = 0; i < in.n; i++) {
        const struct share_span part = share_of_rows(rows, in.parcels[i].rank, g->transport.n);
        const size_t width = (size_t)(part.last - part.first);
        for (int t = 0; t < n; t++)
            memcpy(whole + (size_t)t * (size_t)rows + part.first, (const float *)in.parcels[i].bytes + (size_t)t * width,
                   width * sizeof *whole);
    }
}

void group_gather(struct yalm_group *g, const float *part, float *whole, int n, int rows)
{
    enum { TOKENS = 16 };
    const double begin = clock_seconds();
    const struct share_span mine = share_of_rows(rows, g->transport.rank, g->transport.n);
    const size_t width = (size_t)(mine.last - mine.first);
    for (int t = 0; t < n; t += TOKENS) {
        const int tokens = n - t < TOKENS ? n - t : TOKENS;
        const float *from = part + (size_t)t * width;
        if (g->transport.rank == 0)
            gather_few(g, whole + (size_t)t * (size_t)rows, tokens, rows);
        else
            exchange(g, &(struct parcel){0, (void *)from, (size_t)tokens * width * sizeof *from}, 1, NULL, 0, g->patience);
        for (int i = 0; i < tokens && g->transport.rank == 0; i++)
            memcpy(whole + (size_t)(t + i) * (size_t)rows, from + (size_t)i * width, width * sizeof *from);
    }
    g->traffic.seconds += clock_seconds() - begin;
}

// ------------------------------------------------------------------------------------------ commands

struct group_model group_model_of(const yalm_model_info *info)
{
    struct group_model model;
    memset(&model, 0, sizeof model); // it is sent as it lies there
    snprintf(model.version, sizeof model.version, "%.*s)", (int)strcspn(yalm_version(), ","), yalm_version());
    model.checksum = info->checksum;
    model.file_bytes = info->file_bytes;
    return model;
}

static bool tell_all(struct yalm_group *g, const void *bytes, size_t length)
{
    struct round out = {.n = 0};
    for (int r = 1; r < g->transport.n; r++)
        put(&out, r, (void *)bytes, length);
    return exchange(g, out.parcels, out.n, NULL, 0, g->patience);
}

yalm_status group_tell(struct yalm_group *g, struct command *command, const void *body, size_t body_bytes, yalm_error *error)
{
    command->body_bytes = body_bytes;
    const bool told = tell_all(g, command, sizeof *command) && (!body_bytes || tell_all(g, body, body_bytes));
    return told ? YALM_OK : group_failure(g, error);
}

yalm_status group_answers(struct yalm_group *g, yalm_error *error)
{
    yalm_status status = YALM_OK;
    for (int r = 1; r < g->transport.n; r++) {
        yalm_error theirs;
        // Reading a share of a large file takes its time: who dies meanwhile is the launcher's to notice.
        if (!exchange(g, NULL, 0, &(struct parcel){r, &theirs, sizeof theirs}, 1, INFINITY))
            return group_failure(g, error);
        if (theirs.status != YALM_OK && status == YALM_OK)
            status = error_set(error, theirs.status, "rank %d (%s): %.400s", r, g->transport.name(g->transport.context, r),
                               theirs.text);
    }
    return status;
}

yalm_status group_hear(struct yalm_group *g, bool has_pulse, struct command *command, void **body, yalm_error *error)
{
    *body = NULL;
    if (!exchange(g, NULL, 0, &(struct parcel){0, command, sizeof *command}, 1, has_pulse ? g->patience : INFINITY))
        return group_failure(g, error);
    if (command->body_bytes == 0)
        return YALM_OK;
    *body = malloc(command->body_bytes);
    if (!*body)
        return error_set(error, YALM_NO_MEMORY, "out of memory for what rank 0 sends");
    if (exchange(g, NULL, 0, &(struct parcel){0, *body, command->body_bytes}, 1, g->patience))
        return YALM_OK;
    free(*body);
    *body = NULL;
    return group_failure(g, error);
}

yalm_status group_answer(struct yalm_group *g, const yalm_error *mine, yalm_error *error)
{
    yalm_error text;
    memset(&text, 0, sizeof text);
    text.status = mine->status;
    memcpy(text.text, mine->text, strnlen(mine->text, sizeof text.text - 1));
    return exchange(g, &(struct parcel){0, &text, sizeof text}, 1, NULL, 0, g->patience) ? YALM_OK : group_failure(g, error);
}

static void *pulse(void *context)
{
    struct yalm_group *g = context;
    pthread_mutex_lock(&g->lock);
    while (!g->pulse_ends && !g->lost) {
        group_tell(g, &(struct command){.kind = COMMAND_NOTHING}, NULL, 0, NULL);
        struct timespec next;
        clock_gettime(CLOCK_REALTIME, &next);
        const double seconds = g->patience / 4;
        next.tv_sec += (time_t)seconds;
        next.tv_nsec += (long)((seconds - floor(seconds)) * 1e9);
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&g->end_pulse, &g->lock, &next);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

void group_begin_pulse(struct yalm_group *g)
{
    if (!g->has_pulse)
        g->has_pulse = pthread_create(&g->pulse, NULL, pulse, g) == 0;
}

void group_end_pulse(struct yalm_group *g)
{
    if (!g->has_pulse)
        return;
    pthread_mutex_lock(&g->lock);
    g->pulse_ends = true;
    pthread_cond_signal(&g->end_pulse);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->pulse, NULL);
    g->has_pulse = false;
}
