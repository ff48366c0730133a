// Normalisation, rotation, activation, conversions and the log of a softmax's sum, for either vector width; included by
// table.c. Each reads its input once or twice from L1 or L2; tails are partial vectors, so any length is welcome.
#pragma once
#include <math.h>

#include "cpu/kernels/vec/math.h"

VEC_INLINE vec square_sum(const float *x, int n)
{
    vec sum[4] = {vec_zero(), vec_zero(), vec_zero(), vec_zero()}; // four chains hide the latency of the FMA
    int i = 0;
    for (; i + 4 * VEC <= n; i += 4 * VEC)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const vec v = vec_load(x + i + j * VEC);
            sum[j] = vec_fma(v, v, sum[j]);
        }
    for (; i < n; i += VEC) {
        const vec v = n - i < VEC ? vec_load_part(x + i, n - i) : vec_load(x + i);
        sum[0] = vec_fma(v, v, sum[0]);
    }
    return vec_add(vec_add(sum[0], sum[1]), vec_add(sum[2], sum[3]));
}

VEC_INLINE void rmsnorm(float *y, const float *x, const float *w, int n, float eps)
{
    const vec scale = vec_set(1.0f / sqrtf(vec_total(square_sum(x, n)) / (float)n + eps));
    int i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(y + i, vec_mul(vec_load(w + i), vec_mul(vec_load(x + i), scale)));
    if (i < n)
        vec_store_part(y + i, vec_mul(vec_load_part(w + i, n - i), vec_mul(vec_load_part(x + i, n - i), scale)), n - i);
}

// Σ (x - mean)², in a second pass: what is left of a difference of two large sums would be noise.
VEC_INLINE vec deviation_sum(const float *x, int n, float mean)
{
    const vec m = vec_set(mean);
    vec sum = vec_zero();
    int i = 0;
    for (; i + VEC <= n; i += VEC) {
        const vec d = vec_sub(vec_load(x + i), m);
        sum = vec_fma(d, d, sum);
    }
    if (i < n) {
        float last[VEC] = {0}; // what is behind the end deviates by nothing
        for (int j = 0; j < n - i; j++)
            last[j] = x[i + j] - mean;
        sum = vec_fma(vec_load(last), vec_load(last), sum);
    }
    return sum;
}

VEC_INLINE vec value_sum(const float *x, int n)
{
    vec sum = vec_zero();
    int i = 0;
    for (; i + VEC <= n; i += VEC)
        sum = vec_add(sum, vec_load(x + i));
    return i < n ? vec_add(sum, vec_load_part(x + i, n - i)) : sum;
}

VEC_INLINE void layernorm(float *y, const float *x, const float *w, const float *bias, int n, float eps)
{
    const float mean = vec_total(value_sum(x, n)) / (float)n;
    const vec m = vec_set(mean), scale = vec_set(1.0f / sqrtf(vec_total(deviation_sum(x, n, mean)) / (float)n + eps));
    for (int i = 0; i < n; i += VEC) {
        const int part = n - i < VEC ? n - i : VEC;
        const vec b = bias ? vec_load_part(bias + i, part) : vec_zero();
        const vec normal = vec_mul(vec_sub(vec_load_part(x + i, part), m), scale);
        vec_store_part(y + i, vec_fma(vec_load_part(w + i, part), normal, b), part);
    }
}

VEC_INLINE void rope(float *x, const float *cos, const float *sin, int head_dim)
{
    const int half = head_dim / 2;
    for (int i = 0; i < half; i += VEC) {
        const int n = half - i < VEC ? half - i : VEC;
        const vec c = vec_load_part(cos + i, n), s = vec_load_part(sin + i, n);
        const vec re = vec_load_part(x + i, n), im = vec_load_part(x + i + half, n);
        vec_store_part(x + i, vec_sub(vec_mul(re, c), vec_mul(im, s)), n);
        vec_store_part(x + i + half, vec_fma(re, s, vec_mul(im, c)), n);
    }
}

VEC_INLINE vec silu(vec x)
{
    const vec power = vec_min(vec_set(88.3f), vec_sub(vec_zero(), x)); // in this order NaN passes
    return vec_div(x, vec_add(vec_set(1.0f), vec_exp(power)));
}

// x / (1 + e^-y), y = 2 sqrt(2 / π) (x + 0.044715 x³): GELU by tanh.
VEC_INLINE vec gelu(vec x)
{
    const vec cubic = vec_fma(vec_mul(x, x), vec_set(-1.5957691216f * 0.044715f), vec_set(-1.5957691216f));
    const vec power = vec_min(vec_set(88.3f), vec_mul(x, cubic));
    return vec_div(x, vec_add(vec_set(1.0f), vec_exp(power)));
}

// GELU itself: what x has less than max(x, 0) is |x| Φ(-|x|). Φ(-|x|) e^(x²/2) is a polynomial in t = 1 / (1 + 0.297 |x|):
// least squares of relative errors, which are below 2e-7 for |x| <= 12. There is nothing left of it beyond.
VEC_INLINE vec gelu_erf(vec x)
{
    static const float terms[] = {-0.16401134f, 0.22716963f, -0.071705841f, 0.13787514f,
                                  0.096267146f, 0.11997496f, 0.11839975f};
    const vec a = vec_min(vec_set(13.0f), vec_abs(x)); // in this order NaN passes
    const vec t = vec_div(vec_set(1.0f), vec_fma(a, vec_set(0.29698485f), vec_set(1.0f)));
    vec p = vec_set(0.036030456f);
#pragma GCC unroll 7
    for (int i = 0; i < 7; i++)
        p = vec_fma(p, t, vec_set(terms[i]));
    const vec tail = vec_mul(vec_mul(a, vec_mul(p, t)), vec_exp(vec_mul(vec_mul(a, vec_set(-0.5f)), a)));
    return vec_sub(vec_max(vec_zero(), x), tail);
}

VEC_INLINE vec relu2(vec x)
{
    const vec above = vec_max(vec_zero(), x); // in this order NaN passes
    return vec_mul(above, above);
}

VEC_INLINE vec clamped(vec gate, vec up)
{
    const vec g = vec_min(vec_set(CLAMPED_LIMIT), gate); // in this order NaN passes
    const vec u = vec_max(vec_set(-CLAMPED_LIMIT), vec_min(vec_set(CLAMPED_LIMIT), up));
    const vec power = vec_min(vec_set(88.3f), vec_mul(vec_set(-CLAMPED_SLOPE), g));
    return vec_mul(vec_div(g, vec_add(vec_set(1.0f), vec_exp(power))), vec_add(u, vec_set(1.0f)));
}

VEC_INLINE vec sigmoid(vec x)
{
    const vec power = vec_min(vec_set(88.3f), vec_sub(vec_zero(), x)); // in this order NaN passes
    return vec_div(vec_set(1.0f), vec_add(vec_set(1.0f), vec_exp(power)));
}

VEC_INLINE void softcap(float *x, float cap, int n)
{
    const int whole = n - n % VEC;
    softcap_vecs(x, cap, whole);
    if (whole < n) {
        float last[VEC];
        vec_store(last, vec_load_part(x + whole, n - whole));
        softcap_vecs(last, cap, VEC);
        vec_store_part(x + whole, vec_load(last), n - whole);
    }
}

// x becomes what is made of each vector a of it, and b of y.
#define OF_PAIRS(name, made)                                                                                                   \
    VEC_INLINE void name(float *x, const float *y, int n)                                                                      \
    {                                                                                                                          \
        int i = 0;                                                                                                             \
        for (; i + VEC <= n; i += VEC) {                                                                                       \
            const vec a = vec_load(x + i), b = vec_load(y + i);                                                                \
            vec_store(x + i, made);                                                                                            \
        }                                                                                                                      \
        if (i < n) {                                                                                                           \
            const vec a = vec_load_part(x + i, n - i), b = vec_load_part(y + i, n - i);                                        \
            vec_store_part(x + i, made, n - i);                                                                                \
        }                                                                                                                      \
    }

OF_PAIRS(silu_multiply, vec_mul(silu(a), b))
OF_PAIRS(gelu_multiply, vec_mul(gelu(a), b))
OF_PAIRS(gelu_erf_multiply, vec_mul(gelu_erf(a), b))
OF_PAIRS(relu2_multiply, vec_mul(relu2(a), b))
OF_PAIRS(clamped_multiply, clamped(a, b))
OF_PAIRS(sigmoid_multiply, vec_mul(a, sigmoid(b)))
OF_PAIRS(add, vec_add(a, b))

VEC_INLINE void add_scaled(float *x, const float *y, float scale, int n)
{
    const vec s = vec_set(scale);
    int i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(x + i, vec_fma(s, vec_load(y + i), vec_load(x + i)));
    if (i < n)
        vec_store_part(x + i, vec_fma(s, vec_load_part(y + i, n - i), vec_load_part(x + i, n - i)), n - i);
}

VEC_INLINE void to_fp32(enum dtype type, float *y, const void *x, int n)
{
    int i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(y + i, vec_load_as(type, x, i));
    if (i < n)
        vec_store_part(y + i, vec_load_part_as(type, x, i, n - i), n - i);
}

VEC_INLINE vec within_fp16(vec x)
{
    return vec_max(vec_set(-65504.0f), vec_min(vec_set(65504.0f), x));
} // NaN passes

VEC_INLINE void to_fp16(uint16_t *y, const float *x, int n)
{
    int i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store_fp16(y + i, within_fp16(vec_load(x + i)));
    if (i < n)
        vec_store_fp16_part(y + i, within_fp16(vec_load_part(x + i, n - i)), n - i);
}

// For limits.c: the exclusive or of n_streams contiguous streams, a cache line of each in turn.
VEC_INLINE uint64_t read_lines(int n_streams, const char *data, size_t bytes, int ahead)
{
    const size_t per_stream = bytes / (size_t)n_streams;
    struct lines read = {0};
    for (size_t at = 0; at < per_stream; at += 64)
#pragma GCC unroll 16
        for (int s = 0; s < n_streams; s++) {
            const char *line = data + (size_t)s * per_stream + at;
            if (ahead)
                __builtin_prefetch(line + ahead);
            lines_add(&read, line);
        }
    return lines_value(&read);
}

VEC_INLINE float to_int8(int8_t *y, const float *x, int n)
{
    vec most = vec_zero(), nothing = vec_zero(); // NaN where something is not finite
    for (int i = 0; i < n; i += VEC) {
        const vec part = n - i < VEC ? vec_load_part(x + i, n - i) : vec_load(x + i);
        most = vec_max(vec_abs(part), most);
        nothing = vec_fma(part, vec_zero(), nothing);
    }
    const float largest = vec_largest(most), scale = largest / 127 + vec_total(nothing);
    const vec inverse = vec_set(scale >= INT8_LEAST_SCALE ? 1 / scale : 0);
    for (int i = 0; i < n; i += VEC) {
        const int part = n - i < VEC ? n - i : VEC;
        vec_store_int8_part(y + i, vec_mul(inverse, vec_load_part(x + i, part)), part);
    }
    return scale < INT8_LEAST_SCALE ? 0 : scale;
}

// e^x for x <= 0, in double: within 1e-14 of it down to x = -700, e^-708 at most below; NaN stays NaN. As exp_below(): x = n ln
// 2 + r, n from the last bits of a sum. Taylor's polynomial in r, |r| <= ln 2 / 2, has a next term below 2^-52 / 100. In plain
// C: the loops that it is in become vectors.
VEC_INLINE double double_exp_below(double x)
{
    static const double inverses[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                                      1.0 / 120,      1.0 / 24,      1.0 / 6,      1.0 / 2,     1.0,        1.0};
    const double base = 0x1.8p52, held = x < -708 ? -708 : x;
    const double shifted = fma(held, 0x1.71547652b82fep0, base), n = shifted - base;
    const double r = fma(n, -0x1.cf79abc9e3b3ap-40, fma(n, -0x1.62e42fefa0000p-1, held)); // ln 2 in two parts
    double p = 1.0 / 479001600;
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++)
        p = fma(p, r, inverses[i]);
    uint64_t bits, power;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&power, &shifted, sizeof power);
    bits += power << 52;
    memcpy(&p, &bits, sizeof p);
    return p;
}

VEC_INLINE double log_sum_exp(const float *x, int n)
{
    enum { LANES = 2 * VEC };
    float most[LANES], largest = -INFINITY;
    double sum[LANES], all = 0;
    int i = 0;
    for (int j = 0; j < LANES; j++)
        most[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            most[j] = x[i + j] > most[j] ? x[i + j] : most[j];
    for (int j = 0; j < LANES; j++)
        largest = most[j] > largest ? most[j] : largest;
    for (; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    const double top = (double)largest;
    for (int j = 0; j < LANES; j++)
        sum[j] = 0;
    for (i = 0; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            sum[j] += double_exp_below((double)x[i + j] - top);
    for (; i < n; i++)
        all += double_exp_below((double)x[i] - top);
    for (int j = 0; j < LANES; j++)
        all += sum[j];
    return top + log(all);
}

VEC_INLINE uint64_t read_streams(const void *data, size_t bytes, int n_streams, int ahead)
{
    switch (n_streams) {
    case 1:
        return ahead ? read_lines(1, data, bytes, ahead) : read_lines(1, data, bytes, 0);
    case 2:
        return ahead ? read_lines(2, data, bytes, ahead) : read_lines(2, data, bytes, 0);
    case 4:
        return ahead ? read_lines(4, data, bytes, ahead) : read_lines(4, data, bytes, 0);
    case 8:
        return ahead ? read_lines(8, data, bytes, ahead) : read_lines(8, data, bytes, 0);
    default:
        return read_lines(n_streams, data, bytes, ahead);
    }
}

VEC_INLINE double fma_loop(long rounds)
{
    enum { CHAINS = 12 }; // more than the latency of two FMA units, fewer than the registers
    vec sum[CHAINS];
    volatile float start = 0.5f; // volatile: the compiler must not know the factors
    const vec factor = vec_set(start), term = vec_set(start);
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        sum[i] = vec_set((float)i);
    for (long round = 0; round < rounds; round++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            sum[i] = vec_fma(sum[i], factor, term);
    vec all = vec_zero();
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        all = vec_add(all, sum[i]);
    start = vec_total(all); // used
    return 2.0 * VEC * CHAINS * (double)rounds;
}
