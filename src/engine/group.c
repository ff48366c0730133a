#include "engine/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/share.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/round.h"

enum { PIECE_FLOATS = 1 << 20 };

// Up to so many bytes each rank sends all it has to all others: one message's delay. Of more, each sums up a part, which
// makes two delays, and fewer bytes.
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
                  "rank %d (%s) has not answered for %g seconds: it hangs, or is too slow for these prompts (--set "
                  "machine.chunk=N makes "
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

// Memory for what goes and comes.
static uint8_t *room_for(struct yalm_group *g, size_t bytes)
{
    if (bytes > g->room) {
        free(g->parcels);
        g->parcels = malloc(bytes);
        g->room = g->parcels ? bytes : 0;
    }
    if (!g->parcels && !g->lost) {
        g->lost = true;
        error_set(&g->why, YALM_NO_MEMORY, "out of memory for what other ranks send");
    }
    return g->parcels;
}

// ------------------------------------------------------------------------------------------ floats on the wire

// As they are, or as fp16 in a unit of their own, a power of two, which comes first.
static size_t coded_bytes(const struct yalm_group *g, size_t n)
{
    return g->halves ? sizeof(float) + n * sizeof(uint16_t) : n * sizeof(float);
}

static size_t slot_bytes(const struct yalm_group *g, size_t n)
{
    return round_up(coded_bytes(g, n), 64);
}

enum { BLOCK = 256 };

static size_t block_at(size_t at, size_t n)
{
    return n - at < BLOCK ? n - at : BLOCK;
}

// The largest becomes 2^14 to 2^15; NaN and infinities stay what they are.
static float unit_of(const float *x, size_t n)
{
    float largest = 0;
    int exponent = 15;
    for (size_t i = 0; i < n; i++)
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    if (largest > 0 && isfinite(largest))
        frexpf(largest, &exponent);
    return ldexpf(1, exponent < -100 ? -115 : exponent - 15);
}

// Coded x (n), in `room` or where it is; x becomes what it says.
static void *encode(const struct yalm_group *g, float *x, size_t n, uint8_t *room)
{
    if (!g->halves)
        return x;
    const float unit = unit_of(x, n);
    memcpy(room, &unit, sizeof unit);
    uint16_t *to = (uint16_t *)(room + sizeof unit);
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t length = block_at(at, n);
        for (size_t i = 0; i < length; i++)
            x[at + i] /= unit;
        g->halves->to(to + at, x + at, (int)length);
        g->halves->from(x + at, to + at, (int)length);
        for (size_t i = 0; i < length; i++)
            x[at + i] *= unit;
    }
    return room;
}

// Elements at … at + length - 1 of what is coded, in `block` or where they are.
static const float *decode(const struct yalm_group *g, const uint8_t *coded, size_t at, size_t length, float *block)
{
    if (!g->halves)
        return (const float *)coded + at;
    float unit;
    memcpy(&unit, coded, sizeof unit);
    g->halves->from(block, (const uint16_t *)(coded + sizeof unit) + at, (int)length);
    for (size_t i = 0; i < length; i++)
        block[i] *= unit;
    return block;
}

// ------------------------------------------------------------------------------------------ sums

// mine (n) becomes the sum of all ranks', in their order; the other ranks' are coded in their slots.
static void add_up(const struct yalm_group *g, float *mine, const uint8_t *slots, size_t slot, size_t n)
{
    float sum[BLOCK], block[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t length = block_at(at, n);
        for (int r = 0; r < g->transport.n; r++) {
            const float *x = r == g->transport.rank ? mine + at : decode(g, slots + slot * (size_t)r, at, length, block);
            for (size_t i = 0; i < length; i++)
                sum[i] = r == 0 ? x[i] : sum[i] + x[i];
        }
        memcpy(mine + at, sum, length * sizeof *sum);
    }
}

static void sum_direct(struct yalm_group *g, float *x, size_t n)
{
    const size_t slot = slot_bytes(g, n), bytes = coded_bytes(g, n);
    uint8_t *slots = room_for(g, slot * (size_t)g->transport.n);
    if (!slots)
        return;
    void *mine = encode(g, x, n, slots + slot * (size_t)g->transport.rank);
    struct round out = {.n = 0}, in = {.n = 0};
    for (int r = 0; r < g->transport.n; r++)
        if (r != g->transport.rank) {
            put(&out, r, mine, bytes);
            put(&in, r, slots + slot * (size_t)r, bytes);
        }
    if (exchange(g, out.parcels, out.n, in.parcels, in.n, g->patience))
        add_up(g, x, slots, slot, n);
}

static size_t length_of(struct share_span span)
{
    return (size_t)(span.last - span.first);
}

// Of all other ranks' parts x (n): mine goes to each, theirs come, in their slots or, not coded, in their places.
static bool send_sums(struct yalm_group *g, float *x, size_t n, uint8_t *slots, size_t slot)
{
    const int rank = g->transport.rank, n_ranks = g->transport.n;
    const struct share_span mine = share_of_rows((int)n, rank, n_ranks);
    void *sum = encode(g, x + mine.first, length_of(mine), slots + slot * (size_t)rank);
    struct round out = {.n = 0}, in = {.n = 0};
    for (int r = 0; r < n_ranks; r++) {
        const struct share_span part = share_of_rows((int)n, r, n_ranks);
        if (r == rank)
            continue;
        put(&out, r, sum, coded_bytes(g, length_of(mine)));
        put(&in, r, g->halves ? (void *)(slots + slot * (size_t)r) : x + part.first, coded_bytes(g, length_of(part)));
    }
    return exchange(g, out.parcels, out.n, in.parcels, in.n, g->patience);
}

// Each rank sums up its part of x, and then has all the others'.
static void sum_by_parts(struct yalm_group *g, float *x, size_t n)
{
    const int rank = g->transport.rank, n_ranks = g->transport.n;
    const struct share_span mine = share_of_rows((int)n, rank, n_ranks);
    const size_t slot = slot_bytes(g, n / (size_t)n_ranks + 1);
    uint8_t *come = room_for(g, 2 * slot * (size_t)n_ranks), *go = come + slot * (size_t)n_ranks;
    if (g->lost)
        return;
    struct round out = {.n = 0}, in = {.n = 0};
    for (int r = 0; r < n_ranks; r++) {
        const struct share_span part = share_of_rows((int)n, r, n_ranks);
        if (r == rank)
            continue;
        void *coded = encode(g, x + part.first, length_of(part), go + slot * (size_t)r);
        put(&out, r, coded, coded_bytes(g, length_of(part)));
        put(&in, r, come + slot * (size_t)r, coded_bytes(g, length_of(mine)));
    }
    if (!exchange(g, out.parcels, out.n, in.parcels, in.n, g->patience))
        return;
    add_up(g, x + mine.first, come, slot, length_of(mine));
    if (!send_sums(g, x, n, go, slot) || !g->halves)
        return;
    for (int r = 0; r < n_ranks; r++) {
        const struct share_span part = share_of_rows((int)n, r, n_ranks);
        float *to = x + part.first;
        for (size_t at = 0; r != rank && at < length_of(part); at += BLOCK)
            decode(g, go + slot * (size_t)r, at, block_at(at, length_of(part)), to + at);
    }
}

bool group_sum(struct yalm_group *g, const struct half_conversion *halves, float *x, size_t n)
{
    const double begin = clock_seconds();
    g->halves = g->fp16 ? halves : NULL;
    x[n] = g->transport.rank == 0 && g->cancel && atomic_load_explicit(g->cancel, memory_order_relaxed);
    for (size_t done = 0, all = n + 1, piece; done < all; done += piece) {
        piece = all - done < PIECE_FLOATS ? all - done : PIECE_FLOATS;
        if (g->transport.n == 2 || coded_bytes(g, piece) <= DIRECT_BYTES)
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
    float *theirs = (float *)room_for(g, (size_t)n * (size_t)rows * sizeof *theirs);
    if (!theirs)
        return;
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
    if (g->has_heard) {
        *command = g->heard.command;
        *body = g->heard.body;
        g->has_heard = false;
        return YALM_OK;
    }
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

// ------------------------------------------------------------------------------------------ the roll

// Rank 0's last word on a roll, to all that have answered.
struct verdict {
    int32_t lost; // a rank; -1: none
    yalm_error why;
};

static void lose(struct yalm_group *g, int rank, const yalm_error *why)
{
    g->lost = true;
    g->lost_rank = rank;
    g->why = *why;
}

// The other ranks' answers: who cannot go on is lost, and so is who gives none, whose rank this is; -1: all did.
static int hear_answers(struct yalm_group *g)
{
    struct round in = {.n = 0};
    yalm_error *answers = (yalm_error *)room_for(g, sizeof *answers * (size_t)g->transport.n), why;
    for (int r = 1; answers && r < g->transport.n; r++)
        put(&in, r, answers + r, sizeof *answers);
    if (!answers || !exchange(g, NULL, 0, in.parcels, in.n, g->patience))
        return g->lost_rank;
    for (int r = 1; r < g->transport.n && !g->lost; r++)
        if (answers[r].status != YALM_OK) {
            error_set(&why, answers[r].status, "rank %d (%s): %.400s", r, g->transport.name(g->transport.context, r),
                      answers[r].text);
            lose(g, r, &why);
        }
    return -1;
}

static void give_verdict(struct yalm_group *g, int silent)
{
    enum { SECONDS = 1 };
    struct verdict verdict;
    memset(&verdict, 0, sizeof verdict); // it is sent as it lies there
    verdict.lost = g->lost ? g->lost_rank : -1;
    verdict.why = g->why;
    for (int r = 1; r < g->transport.n; r++)
        if (r != silent) // past exchange(), which does nothing any more once a rank is lost
            g->transport.exchange(g->transport.context, &(struct parcel){r, &verdict, sizeof verdict}, 1, NULL, 0, SECONDS);
}

bool group_answer_roll(struct yalm_group *g, const yalm_error *mine)
{
    struct verdict verdict;
    if (group_answer(g, mine, NULL) != YALM_OK ||
        !exchange(g, NULL, 0, &(struct parcel){0, &verdict, sizeof verdict}, 1, 2 * g->patience)) // others may let it wait
        return false;
    if (verdict.lost >= 0)
        lose(g, verdict.lost, &verdict.why);
    return !g->lost;
}

bool group_call_roll(struct yalm_group *g)
{
    if (g->transport.rank == 0) {
        const bool told = group_tell(g, &(struct command){.kind = COMMAND_ROLL}, NULL, 0, NULL) == YALM_OK;
        give_verdict(g, told ? hear_answers(g) : g->lost_rank);
        return !g->lost;
    }
    if (g->has_heard)
        return true;
    struct heard heard;
    if (group_hear(g, true, &heard.command, &heard.body, NULL) != YALM_OK)
        return false;
    if (heard.command.kind == COMMAND_ROLL)
        return group_answer_roll(g, &(yalm_error){0});
    g->heard = heard;
    g->has_heard = true;
    return true;
}

// ------------------------------------------------------------------------------------------ the pulse

static void *pulse(void *context)
{
    struct yalm_group *g = context;
    pthread_mutex_lock(&g->lock);
    while (!g->pulse_ends && !g->lost) {
        group_tell(g, &(struct command){.kind = COMMAND_NOTHING}, NULL, 0, NULL);
        const struct timespec next = clock_after(g->patience / 4);
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
