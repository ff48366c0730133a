// NoMAD's scores beside the dot products that they stand for, out of the caches: keys a second, on all threads together. Each
// round times the codes, the same number of keys in float32 and in fp16, and plain reading, so a busy neighbour slows all of
// them. The keys' product with one or several vectors runs at memory bandwidth. Then the hybrid's scores, from half of the
// codes in runs, beside plain reading; and values, weighted by scores that are known, in parts as a layer's tasks have them.
//
//     build/release/bench/nomad [--isa NAME] [--threads N] [--rounds N] [--clock wall|cpu]
//
// Printed are the medians over the rounds: GB/s of codes, that as a fraction of reading, and how many times faster than the
// dot products; GB/s of values, and that as a fraction of reading.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/kernels/kernels.h"
#include "cpu/machine/isa.h"
#include "cpu/machine/team.h"
#include "util/memory.h"

enum { MAX_ROUNDS = 200, MAX_QUERIES = 8, BLOCKS = 256, HEAD_DIM = 128 }; // BLOCKS: blocks of keys in one call

enum { RUN_SLOTS = 16384, RUN_BLOCK = 1024, RUN_LISTED = HEAD_DIM / 2 };

static const size_t pool_bytes = (size_t)512 << 20; // of codes, and of keys: far more than the last-level cache

struct bench {
    const struct cpu_kernels *kernels;
    const struct nomad_kernels *nomad;
    struct team *team;
    struct fetching fetching;
    int n_threads, rounds;
    clockid_t clock;
    char *pool;
    float *q;         // (MAX_QUERIES, HEAD_DIM)
    float *scores;    // (n_threads, MAX_QUERIES, BLOCKS * 32)
    uint8_t *entries; // (MAX_QUERIES, HEAD_DIM, 16)
    float base[MAX_QUERIES], step[MAX_QUERIES];
    uint64_t *read; // (n_threads * 8)
    float *weights; // (MAX_QUERIES, BLOCKS * 32)
    float *acc;     // (n_threads, MAX_QUERIES, HEAD_DIM + 1)
    char *scratch;  // (n_threads, attend_scratch)

    int run_of[RUN_LISTED], offset[MAX_QUERIES];
    int8_t bytes[MAX_QUERIES * RUN_LISTED];

    int n_queries, d_sub;
    enum dtype type;

    enum kv_type kv;
    int part_keys; // values in one call
};

static char *share_of(const struct bench *b, int thread, size_t *bytes)
{
    *bytes = pool_bytes / (size_t)b->n_threads / 65536 * 65536;
    return b->pool + (size_t)thread * *bytes;
}

static size_t run_bytes(void) // of a KV head
{
    return (size_t)code_stride(RUN_SLOTS) * HEAD_DIM;
}

static float *scores_of(const struct bench *b, int thread)
{
    return b->scores + (size_t)thread * MAX_QUERIES * BLOCKS * NOMAD_BLOCK;
}

static void read_codes(void *context, int thread)
{
    struct bench *b = context;
    size_t bytes;
    const char *codes = share_of(b, thread, &bytes);
    const int rows = HEAD_DIM / b->d_sub;
    const size_t piece = (size_t)rows * NOMAD_ROW * BLOCKS;
    for (size_t at = 0; at + piece <= bytes; at += piece)
        b->nomad->scores(&(struct nomad_score_args){
            .scores = scores_of(b, thread),
            .ld = (ptrdiff_t)BLOCKS * NOMAD_BLOCK,
            .codes = (const uint8_t *)codes + at,
            .entries = b->entries,
            .base = b->base,
            .step = b->step,
            .n_queries = b->n_queries,
            .rows = rows,
            .n_blocks = BLOCKS,
        });
}

// KV heads of RUN_SLOTS slots; of each those components that are listed, block by block as attention does.
static void read_runs(void *context, int thread)
{
    struct bench *b = context;
    size_t bytes;
    const uint8_t *pool = (const uint8_t *)share_of(b, thread, &bytes);
    const ptrdiff_t stride = code_stride(RUN_SLOTS);
    for (size_t at = 0; at + run_bytes() <= bytes; at += run_bytes())
        for (int slot = 0; slot < RUN_SLOTS; slot += RUN_BLOCK)
            b->nomad->code_scores(&(struct code_score_args){
                .scores = scores_of(b, thread),
                .ld = RUN_BLOCK,
                .runs = pool + at + code_offset(slot),
                .stride = stride,
                .run_of = b->run_of,
                .values = b->entries,
                .weights = b->bytes,
                .offset = b->offset,
                .base = b->base,
                .step = b->step,
                .n_queries = b->n_queries,
                .n = RUN_LISTED,
                .n_groups = RUN_BLOCK / CODE_GROUP,
                .to_l2 = b->fetching.runs_to_l2,
            });
}

static void read_keys(void *context, int thread)
{
    struct bench *b = context;
    size_t bytes;
    const char *keys = share_of(b, thread, &bytes);
    const size_t piece = (size_t)HEAD_DIM * dtype_sizes[b->type] * BLOCKS * NOMAD_BLOCK;
    for (size_t at = 0; at + piece <= bytes; at += piece)
        b->kernels->matvec[b->type](scores_of(b, thread), (ptrdiff_t)BLOCKS * NOMAD_BLOCK, keys + at, 0, BLOCKS * NOMAD_BLOCK,
                                    HEAD_DIM, b->q, HEAD_DIM, b->n_queries, b->fetching.to_l2);
}

// Each thread takes every n-th part, as tasks are claimed. The scores are the first thread's: small numbers.
static void read_values(void *context, int thread)
{
    struct bench *b = context;
    const size_t piece = (size_t)HEAD_DIM * kv_sizes[b->kv] * (size_t)b->part_keys;
    float *acc = b->acc + (size_t)thread * MAX_QUERIES * (HEAD_DIM + 1), *sum = acc + (size_t)MAX_QUERIES * HEAD_DIM;
    for (size_t at = (size_t)thread * piece; at + piece <= pool_bytes; at += (size_t)b->n_threads * piece)
        b->nomad->values[b->kv](&(struct nomad_value_args){
            .acc = acc,
            .sum = sum,
            .scores = b->weights,
            .ld = (ptrdiff_t)BLOCKS * NOMAD_BLOCK,
            .max = b->base,
            .v = b->pool + at,
            .v_scales = b->weights,
            .n_queries = b->n_queries,
            .n_keys = b->part_keys,
            .head_dim = HEAD_DIM,
            .fetching = b->fetching,
            .scratch = b->scratch + (size_t)thread * b->kernels->attend_scratch,
        });
}

static void read_plainly(void *context, int thread)
{
    struct bench *b = context;
    size_t bytes;
    const char *data = share_of(b, thread, &bytes);
    b->read[thread * 8] ^= b->kernels->read_streams(data, bytes, 2, 4096);
}

static double seconds_of(struct bench *b, void (*work)(void *context, int thread))
{
    struct timespec begin, end;
    clock_gettime(b->clock, &begin);
    team_for(b->team, b->n_threads, work, b);
    clock_gettime(b->clock, &end);
    const double seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    return seconds / (b->clock == CLOCK_PROCESS_CPUTIME_ID ? b->n_threads : 1);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, compare);
    return x[n / 2];
}

// The whole pool in each case, so a key's time is as its bytes.
static void measure(struct bench *b, int d_sub, int n_queries)
{
    static double speed[MAX_ROUNDS], of_limit[MAX_ROUNDS], of_fp32[MAX_ROUNDS], of_fp16[MAX_ROUNDS];
    b->d_sub = d_sub;
    b->n_queries = n_queries;
    const double smaller = 8.0 * d_sub; // than float32
    for (int i = -1; i < b->rounds; i++) {
        const double codes = seconds_of(b, read_codes);
        b->type = DTYPE_FP32;
        const double fp32 = seconds_of(b, read_keys);
        b->type = DTYPE_FP16;
        const double fp16 = seconds_of(b, read_keys), limit = seconds_of(b, read_plainly);
        if (i < 0)
            continue;
        speed[i] = 1e-9 * (double)pool_bytes / codes;
        of_limit[i] = limit / codes;
        of_fp32[i] = smaller * fp32 / codes;
        of_fp16[i] = smaller / 2 * fp16 / codes;
    }
    printf("d_sub %d, %d quer%s: %6.1f GB/s of codes, %5.1f %% of reading; %5.2f times fp32 dot products, %5.2f times fp16\n",
           d_sub, n_queries, n_queries == 1 ? "y  " : "ies", median(speed, b->rounds), 100 * median(of_limit, b->rounds),
           median(of_fp32, b->rounds), median(of_fp16, b->rounds));
    fflush(stdout);
}

// GB/s of the codes that are read.
static void measure_runs(struct bench *b, int n_queries)
{
    static double speed[MAX_ROUNDS], of_limit[MAX_ROUNDS];
    size_t share;
    share_of(b, 0, &share);
    const double heads = (double)(share / run_bytes()) * b->n_threads;
    const double read = heads * RUN_SLOTS * RUN_LISTED * CODE_GROUP_BYTES / CODE_GROUP, all = (double)share * b->n_threads;
    b->n_queries = n_queries;
    for (int i = -1; i < b->rounds; i++) {
        const double scores = seconds_of(b, read_runs), limit = seconds_of(b, read_plainly);
        if (i < 0)
            continue;
        speed[i] = 1e-9 * read / scores;
        of_limit[i] = read / scores / (all / limit);
    }
    printf("half of the codes in runs, %d quer%s: %6.1f GB/s of these, %5.1f %% of reading\n", n_queries,
           n_queries == 1 ? "y  " : "ies", median(speed, b->rounds), 100 * median(of_limit, b->rounds));
    fflush(stdout);
}

static void measure_values(struct bench *b, enum kv_type kv, const char *name, int part_keys, int n_queries)
{
    static double speed[MAX_ROUNDS], of_limit[MAX_ROUNDS];
    b->kv = kv;
    b->part_keys = part_keys;
    b->n_queries = n_queries;
    for (int i = -1; i < b->rounds; i++) {
        const double values = seconds_of(b, read_values), limit = seconds_of(b, read_plainly);
        if (i < 0)
            continue;
        speed[i] = 1e-9 * (double)pool_bytes / values;
        of_limit[i] = limit / values;
    }
    printf("%s values, %d quer%s, %4d in a part: %6.1f GB/s, %5.1f %% of reading\n", name, n_queries,
           n_queries == 1 ? "y  " : "ies", part_keys, median(speed, b->rounds), 100 * median(of_limit, b->rounds));
    fflush(stdout);
}

static void fill(void *context, int thread)
{
    struct bench *b = context;
    size_t bytes;
    char *data = share_of(b, thread, &bytes);
    uint32_t seed = (uint32_t)thread + 1;
    for (size_t i = 0; i < bytes; i += 4) {
        seed = seed * 1664525 + 1013904223;
        const uint32_t x = (seed & 0x83ff83ff) | 0x2c002c00; // two small numbers in fp16, one in float32
        memcpy(data + i, &x, 4);
    }
}

static bool set_up(struct bench *b, yalm_error *error)
{
    b->team = team_open(b->n_threads, false, error);
    b->pool = memory_pages(pool_bytes);
    b->q = memory_pages(sizeof(float) * MAX_QUERIES * HEAD_DIM);
    b->scores = memory_pages(sizeof(float) * (size_t)b->n_threads * MAX_QUERIES * BLOCKS * NOMAD_BLOCK);
    b->entries = memory_pages((size_t)MAX_QUERIES * HEAD_DIM * NOMAD_ROW);
    b->read = memory_pages(sizeof(uint64_t) * 8 * (size_t)b->n_threads);
    b->weights = memory_pages(sizeof(float) * MAX_QUERIES * BLOCKS * NOMAD_BLOCK);
    b->acc = memory_pages(sizeof(float) * (size_t)b->n_threads * MAX_QUERIES * (HEAD_DIM + 1));
    b->scratch = memory_pages((size_t)b->n_threads * b->kernels->attend_scratch);
    if (!b->team || !b->pool || !b->q || !b->scores || !b->entries || !b->read || !b->weights || !b->acc || !b->scratch)
        return false;
    team_for(b->team, b->n_threads, fill, b);
    for (int i = 0; i < MAX_QUERIES * HEAD_DIM; i++)
        b->q[i] = (float)(i % 7) - 3;
    for (int i = 0; i < MAX_QUERIES * HEAD_DIM * NOMAD_ROW; i++)
        b->entries[i] = (uint8_t)(i * 37);
    for (int i = 0; i < MAX_QUERIES; i++)
        b->step[i] = 0.01f;
    for (int i = 0, n = 0; n < RUN_LISTED; i++) // half of them, here closer and there farther apart
        if (RUN_LISTED - n == HEAD_DIM - i || (uint32_t)i * 2654435761u >> 16 & 1)
            b->run_of[n++] = i;
    for (int i = 0; i < MAX_QUERIES * RUN_LISTED; i++)
        b->bytes[i] = (int8_t)(i % 200 - 100);
    return true;
}

static int fail(const char *what)
{
    fprintf(stderr, "nomad: %s\n", what);
    return 1;
}

int main(int argc, char **argv)
{
    struct bench b = {
        .n_threads = team_default_threads(), .rounds = 9, .clock = CLOCK_MONOTONIC, .fetching = machine_fetching()};
    const char *isa = "auto";
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            return fail("options come in pairs: --isa NAME --threads N --rounds N --clock wall|cpu");
        if (!strcmp(argv[i], "--isa"))
            isa = argv[i + 1];
        else if (!strcmp(argv[i], "--threads"))
            b.n_threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--rounds"))
            b.rounds = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--clock") && (!strcmp(argv[i + 1], "wall") || !strcmp(argv[i + 1], "cpu")))
            b.clock = argv[i + 1][0] == 'c' ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
        else
            return fail("unknown option: try --isa NAME --threads N --rounds N --clock wall|cpu");
    }
    b.kernels = cpu_kernels_select(isa);
    if (!b.kernels)
        return fail("this machine has no such instruction set");
    if (b.rounds < 1 || b.rounds > MAX_ROUNDS)
        return fail("--rounds: expected 1 to 200");
    b.nomad = nomad_kernels_select(b.kernels);
    yalm_error error = {0};
    if (!set_up(&b, &error))
        return fail(error.text[0] ? error.text : "out of memory");
    printf("%s, %d threads, head_dim %d\n", b.nomad->name, b.n_threads, HEAD_DIM);
    for (int d_sub = 1; d_sub <= 4; d_sub *= 2)
        for (int n = 1; n <= MAX_QUERIES; n *= 2)
            measure(&b, d_sub, n);
    for (int n = 1; n <= MAX_QUERIES; n *= 2)
        measure_runs(&b, n);
    for (int part_keys = 256; part_keys <= 4096; part_keys *= 4)
        for (int n = 1; n <= 4; n *= 4) {
            measure_values(&b, KV_FP16, "fp16", part_keys, n);
            measure_values(&b, KV_INT8, "int8", part_keys, n);
        }
    return 0;
}
