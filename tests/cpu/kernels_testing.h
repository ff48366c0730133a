// What the kernels' tests share. Each test runs once for each instruction set, and is skipped where the machine lacks it. Its
// memory ends at a page that may not be touched: to read or write one byte too far is a crash.
#pragma once
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "cpu/kernels/kernels.h"
#include "cpu/machine/isa.h"
#include "thorough.h"

enum { MAX_BLOCKS = 64, PAGE = 4096, MAX_CASES = 32 };

// AddressSanitizer watches what kernels do. Whether their numbers are right is for the release's run of the same tests.
#ifdef __SANITIZE_ADDRESS__
enum { NUMBERS_COUNT = false };
#else
enum { NUMBERS_COUNT = true };
#endif

struct fixture {
    const struct cpu_kernels *kernels;
    uint64_t seed;
    int turn; // the instruction set's number, for cases that the sets take by turns
    struct {
        void *start;
        size_t bytes;
    } blocks[MAX_BLOCKS];
    int n_blocks;
};

static inline double uniform(struct fixture *f) // in [-1, 1)
{
    f->seed = f->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(f->seed >> 32) * 0x1p-31;
}

static inline int below(struct fixture *f, int n)
{
    return (int)((uniform(f) + 1) / 2 * n);
}

// Ends where readable memory ends; filled with 0xff, a NaN in every floating-point type.
static inline void *guarded(struct fixture *f, size_t bytes)
{
    const size_t whole = (bytes + PAGE - 1) / PAGE * PAGE + PAGE;
    char *start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(start != MAP_FAILED);
    assert_int_equal(mprotect(start + whole - PAGE, PAGE, PROT_NONE), 0);
    assert_true(f->n_blocks < MAX_BLOCKS);
    f->blocks[f->n_blocks].start = start;
    f->blocks[f->n_blocks++].bytes = whole;
    memset(start, 0xff, whole - PAGE);
    return start + whole - PAGE - bytes;
}

static inline void release(struct fixture *f)
{
    while (f->n_blocks > 0) {
        f->n_blocks--;
        munmap(f->blocks[f->n_blocks].start, f->blocks[f->n_blocks].bytes);
    }
}

// Kernels may ask for 64-byte aligned scratch: a multiple of it that ends at the guard.
static inline void *guarded_scratch(struct fixture *f, size_t bytes)
{
    return guarded(f, (bytes + 63) / 64 * 64);
}

static inline float *random_floats(struct fixture *f, size_t n, double range)
{
    float *x = guarded(f, n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(range * uniform(f));
    return x;
}

// The value of a half, by its definition.
static inline double fp16_value(uint16_t half)
{
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double sign = half & 0x8000 ? -1 : 1;
    if (exponent == 31)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? 1024 + fraction : fraction) * (1 << (exponent ? exponent : 1)) * 0x1p-25;
}

static inline double bf16_value(uint16_t bits)
{
    const uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

// An 8-bit float's value, by its definition; 0x7f and 0xff of E4M3, which mean NaN elsewhere, do not occur in a model.
static inline double fp8_value(enum dtype type, uint8_t bits)
{
    const int fraction_bits = type == DTYPE_FP8 ? 3 : 2, bias = type == DTYPE_FP8 ? 7 : 15;
    const int exponent = (bits & 0x7f) >> fraction_bits, one = 1 << fraction_bits, fraction = bits & (one - 1);
    const double sign = bits & 0x80 ? -1 : 1;
    if (type == DTYPE_FP8_E5M2 && exponent == 31)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    return sign * ldexp(exponent ? one + fraction : fraction, (exponent ? exponent : 1) - bias - fraction_bits);
}

static inline double value_of(enum dtype type, const void *x, size_t i)
{
    switch (type) {
    case DTYPE_FP32:
        return ((const float *)x)[i];
    case DTYPE_FP16:
        return fp16_value(((const uint16_t *)x)[i]);
    case DTYPE_BF16:
        return bf16_value(((const uint16_t *)x)[i]);
    default:
        return fp8_value(type, ((const uint8_t *)x)[i]);
    }
}

// n random elements of a type, of magnitude 1 and less; for the short types any bit pattern with such a value, subnormals too.
static inline void *random_elements(struct fixture *f, enum dtype type, size_t n)
{
    if (type == DTYPE_FP32)
        return random_floats(f, n, 1.0);
    if (dtype_sizes[type] == 1) {
        const int most = type == DTYPE_FP8 ? 0x38 : 0x3c; // 1
        uint8_t *x = guarded(f, n);
        for (size_t i = 0; i < n; i++)
            x[i] = (uint8_t)(below(f, most + 1) | (uniform(f) < 0 ? 0x80 : 0));
        return x;
    }
    uint16_t *x = guarded(f, n * sizeof *x);
    const int one = type == DTYPE_FP16 ? 0x3c00 : 0x3f80;
    const int least = type == DTYPE_FP16 ? 0 : 0x3000; // of bf16, small values only as small as they do something
    for (size_t i = 0; i < n; i++) {
        const int usual = one - (type == DTYPE_FP16 ? 0x0800 : 0x0100) + below(f, type == DTYPE_FP16 ? 0x0800 : 0x0100);
        x[i] = (uint16_t)((i % 8 == 0 ? least + below(f, one - least) : usual) | (uniform(f) < 0 ? 0x8000 : 0));
    }
    return x;
}

// Each float sum of n terms has a relative error of at most about (n / lanes + log lanes) half units of the terms' magnitudes;
// no kernel here uses fewer than 8 lanes, and scalar ones sum in double.
static inline double sum_error(int n)
{
    return (n / 8 + 16) * 0x1p-24;
}

static inline void assert_near(double found, double expected, double tolerance, const char *what, int i, int j)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("%s at (%d, %d): found %.9g, expected %.9g ± %.3g", what, i, j, found, expected, tolerance);
}

#ifdef __aarch64__
static const char *const isa_names[] = {"scalar", "neon", "neondot", "neoni8mm"};
#else
static const char *const isa_names[] = {"scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "amx"};
#endif

struct kernel_case {
    const char *name;
    CMUnitTestFunction run; // *state: a struct fixture
};

static inline int fixture_open(void **state)
{
    const char *isa = *state;
    struct fixture *f = calloc(1, sizeof *f);
    f->kernels = cpu_kernels_select(isa);
    f->seed = 1;
    for (size_t i = 0; i < sizeof isa_names / sizeof *isa_names; i++) // "auto" has the first turn
        f->turn = strcmp(isa, isa_names[i]) == 0 ? (int)i : f->turn;
    *state = f;
    return 0;
}

static inline int fixture_close(void **state)
{
    release(*state);
    free(*state);
    return 0;
}

static inline struct fixture *fixture_of(void **state)
{
    struct fixture *f = *state;
    if (!f->kernels)
        skip();
    return f;
}

// AddressSanitizer's short suite has these from the release (TAKEN_asan of the Makefile), whose own tests watch them.
static inline bool is_watched(const char *isa)
{
#ifdef __SANITIZE_ADDRESS__
    return thorough() || (strcmp(isa, "avxvnni") != 0 && strcmp(isa, "avx512") != 0);
#else
    (void)isa;
    return true;
#endif
}

static inline int run_on_every_isa(const char *group, const struct kernel_case *cases, int n_cases)
{
    enum { N_ISAS = sizeof isa_names / sizeof *isa_names };
    static char names[MAX_CASES * N_ISAS][96];
    static struct CMUnitTest tests[MAX_CASES * N_ISAS];
    int n = 0;
    for (int i = 0; i < n_cases && i < MAX_CASES; i++)
        for (int isa = 0; isa < N_ISAS; isa++) {
            if (!is_watched(isa_names[isa]))
                continue;
            snprintf(names[n], sizeof names[n], "%s, %s", cases[i].name, isa_names[isa]);
            tests[n] =
                (struct CMUnitTest){names[n], cases[i].run, fixture_open, fixture_close, (void *)(uintptr_t)isa_names[isa]};
            n++;
        }
    return _cmocka_run_group_tests(group, tests, (size_t)n, NULL, NULL);
}
