// Measures each kernel at the shapes of real models, on all threads together, against what the machine can do in the same
// moments. Each round times the kernel and then, for about as long, its limit (reading memory, or multiply-adds from
// registers), so a busy neighbour slows both.
//
//     build/release/bench/kernels [--isa NAME] [--threads N] [--rounds N] [--only TEXT] [--clock wall|cpu] [--fetch l1|l2]
//
// Printed are the best speed, and the median over the rounds of kernel / limit. On a machine that others use, `--clock cpu`
// counts the time that the threads had a processor, so that waiting for one does not show.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernel_work.h"
#include "model/bf12.h"
#include "naive_attention.h"
#include "util/memory.h"

enum { MAX_ROUNDS = 1000 };

// ---------------------------------------------------------------------------------------- rounds

static double clock_of(const struct bench *b)
{
    struct timespec t;
    clock_gettime(b->clock, &t);
    return ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec) / (b->clock == CLOCK_PROCESS_CPUTIME_ID ? b->n_threads : 1);
}

static double seconds_of(struct bench *b, void (*work)(void *context, int thread))
{
    const double start = clock_of(b);
    if (work == matmul)
        team_for(b->team, b->n_threads, pack, b);
    if (work == quant_few || work == quant_many)
        team_for(b->team, b->n_threads, quantise, b);
    team_for(b->team, b->n_threads, work, b);
    return clock_of(b) - start;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Bytes per second.
static double read_speed(struct bench *b)
{
    const size_t share = pool_bytes / (size_t)b->n_threads / 65536 * 65536;
    return (double)share * b->n_threads / seconds_of(b, read_pool);
}

// Operations per second, for as long as `ops` operations would take at the limit.
static double multiply_speed(struct bench *b, double ops)
{
    b->multiply_rounds = (long)(ops / b->n_threads / b->multiply_loop(1)) + 1;
    return (double)b->multiply_rounds * b->multiply_loop(1) * b->n_threads / seconds_of(b, multiply);
}

// The way of reading that is best here, among those that were on some machine.
static void choose_reading(struct bench *b)
{
    enum { WAYS = 9, TRIES = 5 };
    double speeds[WAYS] = {0};
    int best = 0;
    for (int i = 0; i < TRIES * WAYS; i++) {
        const int way = i % WAYS;
        b->streams = 1 << way % 3;
        b->ahead = 2048 << way / 3;
        const double speed = read_speed(b);
        speeds[way] = speed > speeds[way] ? speed : speeds[way];
    }
    for (int way = 0; way < WAYS; way++)
        best = speeds[way] > speeds[best] ? way : best;
    b->streams = 1 << best % 3;
    b->ahead = 2048 << best / 3;
}

// `amount` is in bytes (limit: reading) or operations (limit: multiply-adds, of float32 or 16 bits; of quantised matrices
// 8-bit dot products).
static void measure(struct bench *b, const char *name, void (*work)(void *context, int thread), double amount, bool reading)
{
    if (b->only && !strstr(name, b->only))
        return;
    b->multiply_loop = work == quant_many ? b->kernels->quant->dot_loop
                       : b->half          ? b->half->fma_loop
                       : b->fixed         ? b->fixed->dot_loop
                                          : b->kernels->fma_loop;
    double best = 0, ratios[MAX_ROUNDS] = {0};
    for (int i = -1; i < b->rounds; i++) { // the first one warms up
        if (work != matmul && work != quant_many)
            atomic_store(&b->next, 0);
        else
            atomic_fetch_add(&b->next, 1);
        const double took = seconds_of(b, work);
        const double limit = reading ? read_speed(b) : multiply_speed(b, amount);
        if (i < 0)
            continue;
        best = amount / took > best ? amount / took : best;
        ratios[i] = amount / took / limit;
    }
    qsort(ratios, (size_t)b->rounds, sizeof *ratios, compare);
    printf("%-44s %8.1f %s  %5.1f %%  (rounds %.0f to %.0f %%)\n", name, 1e-9 * best, reading ? "GB/s " : "GOP/s",
           100 * ratios[b->rounds / 2], 100 * ratios[0], 100 * ratios[b->rounds - 1]);
    fflush(stdout);
}

// Products in 16 bits, of machines that have them.
static const struct {
    enum matmul16_form form;
    const char *name;
} halves[] = {{MATMUL16_SHORT, "integers"},
              {MATMUL16_INTEGERS, "integers in blocks"},
              {MATMUL16_TILES, "tiles of three"},
              {MATMUL16_TILES_BYTES, "tiles of bytes"}};
enum { HALVES = sizeof halves / sizeof *halves };

static void bench_halves(struct bench *b)
{
    char name[64];
    for (int i = 0; i < HALVES; i++) {
        b->half = matmul16_of(b->kernels, halves[i].form);
        if (!b->half || !b->half->product[b->type] || (b->half->most && b->n > b->half->most))
            continue;
        snprintf(name, sizeof name, "matmul %s, %s, %d x %d, n %d", dtype_names[b->type], halves[i].name, b->rows, b->cols,
                 b->n);
        measure(b, name, matmul, 2.0 * b->rows * b->cols * b->n, false);
    }
    b->half = NULL;
}

static void bench_matmul(struct bench *b, enum dtype type, int rows, int cols, int n)
{
    char name[64];
    b->type = type;
    b->rows = rows;
    b->cols = cols;
    b->n = n;
    snprintf(name, sizeof name, "matmul %s %d x %d, n %d", dtype_names[type], rows, cols, n);
    measure(b, name, matmul, 2.0 * rows * cols * n, false);
    bench_halves(b);
}

static void bench_quant(struct bench *b, enum dtype type, int rows, int cols, int n)
{
    char name[64];
    b->type = type;
    b->rows = rows;
    b->cols = cols;
    b->n = n;
    b->quant = b->kernels->quant;
    snprintf(name, sizeof name, "product %s %d x %d, n %d", dtype_names[type], rows, cols, n);
    if (n <= b->kernels->matvec_max)
        measure(b, name, quant_few, (double)matrices(b) * rows * (double)dtype_row_bytes(type, cols), true);
    else
        measure(b, name, quant_many, 2.0 * rows * cols * n, false);
    if (n <= QUANT_FEW)
        return;
    b->quant = b->kernels->quant8;
    snprintf(name, sizeof name, "product %s, int8, %d x %d, n %d", dtype_names[type], rows, cols, n);
    measure(b, name, quant_many, 2.0 * rows * cols * n, false);
    bench_halves(b);
}

static void fill_pool(void *context, int thread)
{
    struct bench *b = context;
    const size_t share = pool_bytes / (size_t)b->n_threads;
    uint16_t *p = (uint16_t *)(b->pool + (size_t)thread * share);
    uint32_t seed = (uint32_t)thread + 1;
    for (size_t i = 0; i < share / 2; i++) {
        seed = seed * 1664525 + 1013904223;
        p[i] = (uint16_t)((seed >> 16 & 0x83bf) | 0x2c00); // as fp16: about ±0.06 to ±0.12; as fp8: less than 2
    }
}

// Rows of bf12 in the pool as trained weights have them: one number in 8,192 is an exception, and no exponent is zero. Such
// numbers are below 2^-126, as hardly any weight is, and some processors take a hundred cycles to multiply one.
static void write_bf12(struct bench *b)
{
    const size_t row_bytes = bf12_row_bytes(b->cols);
    for (size_t row = 0; row < (size_t)matrices(b) * (size_t)b->rows; row++) {
        const struct bf12_header header = {.exponent = 126,
                                           .n_exceptions = (uint16_t)((b->cols + (int)(row % 2) * 8191) / 8192)};
        const struct bf12_exception exception = {.col = (uint16_t)(row % (size_t)b->cols)};
        char *at = b->pool + row * row_bytes;
        memset(at, 0, bf12_header_bytes(b->cols));
        memcpy(at, &header, sizeof header);
        memcpy(at + sizeof header, &exception, sizeof exception);
        uint32_t *block = (uint32_t *)(at + bf12_header_bytes(b->cols));
        for (; (char *)block < at + row_bytes; block += BF12_BLOCK_BYTES / sizeof *block)
            for (int i = 32; i < 48; i++)
                block[i] &= 0xeeeeeeee; // even codes
    }
}

static void bench_matvec(struct bench *b, enum dtype type, int rows, int cols, int n)
{
    char name[64];
    b->type = type;
    b->rows = rows;
    b->cols = cols;
    b->n = n;
    snprintf(name, sizeof name, "matvec %s %d x %d, n %d", dtype_names[type], rows, cols, n);
    if (type == DTYPE_BF12)
        write_bf12(b);
    measure(b, name, matvec, (double)matrices(b) * rows * (double)(dtype_row_bytes(type, cols) - dtype_row_scale[type]), true);
    if (type == DTYPE_BF12)
        team_for(b->team, b->n_threads, fill_pool, b); // headers are not small numbers in every type
}

static void bench_decode(struct bench *b, enum kv_type kv, int group, int head_dim, int n_keys)
{
    static const char *const names[KV_TYPES] = {"fp16", "fp32", "int8"};
    char name[64];
    const size_t head = 2 * (size_t)n_keys * ((size_t)head_dim * kv_sizes[kv] + (kv == KV_INT8 ? sizeof(float) : 0));
    b->kv = kv;
    b->group = group;
    b->head_dim = head_dim;
    b->n_keys = n_keys;
    b->n_heads = (int)(pool_bytes / head);
    snprintf(name, sizeof name, "attend %s decode, %d queries, d %d", names[kv], group, head_dim);
    measure(b, name, attend_decode, (double)head * b->n_heads, true);
    b->few = byte_attention_select(b->kernels, YALM_ACTIVATIONS_INT16, kv, head_dim);
    if (!b->few)
        return;
    snprintf(name, sizeof name, "attend %s decode, integers, %d queries, d %d", names[kv], group, head_dim);
    measure(b, name, attend_decode, (double)head * b->n_heads, true);
    b->few = NULL;
}

static void bench_prefill(struct bench *b, int group, int head_dim, int n_tokens)
{
    char name[64];
    b->kv = KV_FP16;
    b->group = group;
    b->head_dim = head_dim;
    b->n_keys = n_tokens;
    b->n_heads = 8;
    b->query_tokens = 128 / group;
    const double ops = 4.0 * head_dim * group * b->n_heads * (0.5 * n_tokens * (n_tokens + 1));
    snprintf(name, sizeof name, "attend fp16 prefill %d, group %d, d %d", n_tokens, group, head_dim);
    measure(b, name, attend_prefill, ops, false);
    b->fixed = fixed_attention_select(b->kernels, YALM_ACTIVATIONS_INT16);
    if (!b->fixed)
        return;
    b->query_tokens = b->fixed->queries / group;
    snprintf(name, sizeof name, "attend fp16 prefill, integers, %d, group %d, d %d", n_tokens, group, head_dim);
    measure(b, name, attend_prefill, ops, false);
    b->fixed = NULL;
}

static void bench_all(struct bench *b)
{
    static const enum dtype types[] = {DTYPE_FP16, DTYPE_BF16, DTYPE_FP32, DTYPE_FP8, DTYPE_FP8_E5M2, DTYPE_BF12};
    for (int i = 0; i < 6; i++) {
        bench_matvec(b, types[i], 2048, 2048, 1);
        bench_matvec(b, types[i], 5632, 2048, 1);
        bench_matvec(b, types[i], 2048, 5632, 1);
        bench_matvec(b, types[i], 4096, 4096, 1);
        bench_matvec(b, types[i], 4096, 14336, 1);
    }
    for (int n = 2; n <= b->kernels->matvec_max; n *= 2)
        bench_matvec(b, DTYPE_FP16, 5632, 2048, n);
    for (enum dtype type = DTYPE_Q8; type <= DTYPE_Q6; type++) {
        bench_quant(b, type, 2048, 2048, 1);
        bench_quant(b, type, 5632, 2048, 1);
        bench_quant(b, type, 2048, 5632, 1);
        bench_quant(b, type, 4096, 4096, 1);
        bench_quant(b, type, 4096, 14336, 1);
        bench_quant(b, type, 5632, 2048, 4);
        bench_quant(b, type, 5632, 2048, 16);
        bench_quant(b, type, 5632, 2048, 32);
        bench_quant(b, type, 5632, 2048, 64);
        bench_quant(b, type, 5632, 2048, 512);
        bench_quant(b, type, 2048, 5632, 512);
    }
    for (int n = 16; n <= 512; n = n < 64 ? 2 * n : 8 * n)
        bench_matmul(b, DTYPE_FP16, 5632, 2048, n);
    bench_matmul(b, DTYPE_FP16, 2048, 2048, 512);
    bench_matmul(b, DTYPE_FP16, 2048, 5632, 512);
    bench_matmul(b, DTYPE_FP16, 4096, 4096, 512);
    bench_matmul(b, DTYPE_BF16, 5632, 2048, 512);
    bench_matmul(b, DTYPE_FP32, 5632, 2048, 512);
    bench_matmul(b, DTYPE_FP8, 5632, 2048, 512);
    bench_matmul(b, DTYPE_FP8_E5M2, 5632, 2048, 512);
    for (int group = 1; group <= 8; group *= 2)
        bench_decode(b, KV_FP16, group, 128, 16384);
    bench_decode(b, KV_FP16, 4, 64, 16384);
    bench_decode(b, KV_FP16, 8, 64, 16384);
    bench_decode(b, KV_FP32, 4, 128, 16384);
    for (int group = 1; group <= 8; group *= 2)
        bench_decode(b, KV_INT8, group, 128, 16384);
    bench_decode(b, KV_INT8, 4, 64, 16384);
    bench_decode(b, KV_INT8, 8, 64, 16384);
    bench_prefill(b, 1, 128, 1975);
    bench_prefill(b, 4, 128, 1975);
    bench_prefill(b, 8, 64, 1975);
    if (!b->only || strstr("attend naive", b->only))
        compare_naive(b->kernels, (const uint16_t *)b->pool, b->scratch[0], 1975, 128);
}

// ---------------------------------------------------------------------------------------- set-up

static float *random_floats(size_t n)
{
    float *x = memory_pages(n * sizeof *x);
    for (size_t i = 0; x && i < n; i++)
        x[i] = (float)(int)(i * 2654435761u >> 8 & 0xff) / 256 - 0.5f;
    return x;
}

static int fail(const char *what)
{
    fprintf(stderr, "kernels: %s\n", what);
    return 1;
}

static bool set_up(struct bench *b, yalm_error *error)
{
    const size_t most_cols = 5632, most_rows = 5632;
    b->team = team_open(b->n_threads, false, error);
    b->pool = memory_pages(pool_bytes);
    b->x = random_floats(MAX_TOKENS * most_cols);
    b->y = random_floats(MAX_TOKENS * most_rows);
    size_t of_halves = 0, half_scratch = 0;
    for (int i = 0; i < HALVES; i++) {
        const struct matmul16 *half = matmul16_of(b->kernels, halves[i].form);
        const int most = half && half->most ? half->most : MAX_TOKENS;
        const size_t size = half ? half->size(most, (int)most_cols) : 0, scratch = half ? half->scratch : 0;
        of_halves = size > of_halves ? size : of_halves;
        half_scratch = scratch > half_scratch ? scratch : half_scratch;
    }
    const size_t packed_bytes = sizeof(float) * b->kernels->packed_size(MAX_TOKENS, (int)most_cols);
    b->packed = memory_pages(packed_bytes > of_halves ? packed_bytes : of_halves);
    b->scratch = calloc((size_t)b->n_threads, sizeof *b->scratch);
    const size_t of_int16 = plan_quantised_bytes(b->kernels->quant, MAX_TOKENS, (int)most_cols);
    const size_t of_int8 = plan_quantised_bytes(b->kernels->quant8, MAX_TOKENS, (int)most_cols);
    b->quantised = memory_pages(of_int16 > of_int8 ? of_int16 : of_int8);
    const size_t float_scratch = b->kernels->matmul_scratch;
    const size_t of_floats = half_scratch > float_scratch ? half_scratch : float_scratch,
                 float_attend = b->kernels->attend_scratch;
    const struct fixed_attention *fixed = fixed_attention_select(b->kernels, YALM_ACTIVATIONS_INT16);
    const size_t attend_bytes =
        fixed && fixed->scratch > float_attend ? fixed->scratch : float_attend; // byte_attention needs less
    const size_t of_quants =
        b->kernels->quant->scratch > b->kernels->quant8->scratch ? b->kernels->quant->scratch : b->kernels->quant8->scratch;
    const size_t matmul_bytes = of_floats > of_quants ? of_floats : of_quants;
    for (int i = 0; b->scratch && i < b->n_threads; i++)
        b->scratch[i] = memory_pages((matmul_bytes > attend_bytes ? matmul_bytes : attend_bytes) + 64);
    return b->team && b->pool && b->x && b->y && b->packed && b->quantised && b->scratch;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); // each kernel's line when it is known, into a pipe as well
    struct bench b = {
        .n_threads = team_default_threads(), .rounds = 15, .clock = CLOCK_MONOTONIC, .fetching = machine_fetching()};
    const char *isa = "auto";
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            return fail("options come in pairs: --isa NAME --threads N --rounds N --only TEXT --clock wall|cpu --fetch l1|l2");
        if (!strcmp(argv[i], "--isa"))
            isa = argv[i + 1];
        else if (!strcmp(argv[i], "--threads"))
            b.n_threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--rounds"))
            b.rounds = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--only"))
            b.only = argv[i + 1];
        else if (!strcmp(argv[i], "--clock") && (!strcmp(argv[i + 1], "wall") || !strcmp(argv[i + 1], "cpu")))
            b.clock = argv[i + 1][0] == 'c' ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
        else if (!strcmp(argv[i], "--fetch") && (!strcmp(argv[i + 1], "l1") || !strcmp(argv[i + 1], "l2")))
            b.fetching.to_l2 = argv[i + 1][1] == '2';
        else
            return fail("unknown option: try --isa NAME --threads N --rounds N --only TEXT --clock wall|cpu --fetch l1|l2");
    }
    b.kernels = cpu_kernels_select(isa);
    if (!b.kernels)
        return fail("this machine has no such instruction set");
    if (b.rounds < 1 || b.rounds > MAX_ROUNDS)
        return fail("--rounds: expected 1 to 1000");
    yalm_error error = {0};
    if (!set_up(&b, &error))
        return fail(error.text[0] ? error.text : "out of memory");
    team_for(b.team, b.n_threads, fill_pool, &b);
    struct reader reader = {0}; // stays: a system that is given memory back may be slow for a while
    if (limits_measure(b.team, b.kernels, 4, &reader, &b.limits, &error) != YALM_OK)
        return fail(error.text);
    printf("%s, %d threads; read %.1f GB/s, float32 multiply-adds %.0f GOP/s, 8-bit dot products %.0f GOP/s\n", b.kernels->name,
           b.n_threads, b.limits.read_gb_per_s, b.limits.fma_gop_per_s, b.limits.dot_gop_per_s);
    choose_reading(&b);
    printf("reading by %d streams, prefetched %d bytes ahead; kernels fetch %s\n", b.streams, b.ahead,
           b.fetching.to_l2 ? "to L2" : "to L1");
    bench_all(&b);
    reader_close(&reader);
    return 0;
}
