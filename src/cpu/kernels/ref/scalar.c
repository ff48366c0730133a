// The scalar kernels in plain C: the fallback for machines without AVX2, and the readable statement of what each kernel
// computes. Sums run in double. Here are the element-wise kernels and the table; the products are in ref/matmul.c,
// attention in ref/attend.c.
#include "cpu/kernels/ref/scalar.h"

#include "cpu/kernels/sparse.h"

// y[i] = w[i] x[i] / sqrt(mean(x²) + eps)      (Zhang and Sennrich, 2019)
static void scalar_rmsnorm(float *y, const float *x, const float *w, int n, float eps)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    const double scale = 1.0 / sqrt(sum / n + (double)eps);
    for (int i = 0; i < n; i++)
        y[i] = (float)(w[i] * (x[i] * scale));
}

// y[i] = w[i] (x[i] - mean(x)) / sqrt(mean((x - mean(x))²) + eps) + bias[i]      (Ba, Kiros and Hinton, arXiv 1607.06450)
static void scalar_layernorm(float *y, const float *x, const float *w, const float *bias, int n, float eps)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i];
    const double mean = sum / n;
    for (int i = 0; i < n; i++)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    const double scale = 1.0 / sqrt(squares / n + (double)eps);
    for (int i = 0; i < n; i++)
        y[i] = (float)((double)w[i] * (((double)x[i] - mean) * scale) + (bias ? (double)bias[i] : 0));
}

// Components i and i + head_dim/2 are one complex number, turned by angle i.      (Su et al., arXiv 2104.09864)
static void scalar_rope(float *x, const float *cos, const float *sin, int head_dim)
{
    const int half = head_dim / 2;
    for (int i = 0; i < half; i++) {
        const float re = x[i], im = x[i + half];
        x[i] = re * cos[i] - im * sin[i];
        x[i + half] = re * sin[i] + im * cos[i];
    }
}

static void scalar_silu_multiply(float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++)
        gate[i] = (float)(gate[i] / (1.0 + exp(-(double)gate[i])) * up[i]);
}

static void scalar_gelu_multiply(float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++) {
        const double x = gate[i];
        gate[i] = (float)(0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))) * up[i]);
    }
}

static void scalar_gelu_erf_multiply(float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++)
        gate[i] = (float)(0.5 * gate[i] * erfc(-0.70710678118654752 * (double)gate[i]) * up[i]);
}

static void scalar_relu2_multiply(float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++)
        gate[i] = (gate[i] < 0 ? 0 : gate[i] * gate[i]) * up[i];
}

static void scalar_clamped_multiply(float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++) {
        const double g = gate[i] > CLAMPED_LIMIT ? CLAMPED_LIMIT : gate[i];
        const double u = up[i] > CLAMPED_LIMIT ? CLAMPED_LIMIT : up[i] < -CLAMPED_LIMIT ? -CLAMPED_LIMIT : up[i];
        gate[i] = (float)(g / (1.0 + exp(-(double)CLAMPED_SLOPE * g)) * (u + 1));
    }
}

static void scalar_softcap(float *x, float cap, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)(cap * tanh((double)x[i] / cap));
}

static void scalar_add(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += y[i];
}

static void scalar_add_scaled(float *x, const float *y, float scale, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += scale * y[i];
}

static void scalar_sigmoid_multiply(float *x, const float *z, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)(x[i] / (1.0 + exp(-(double)z[i])));
}

static void scalar_convolve(float *y, const float *const *rows, const float *taps, const float *bias, ptrdiff_t ldt, int n_taps,
                            int n)
{
    for (int i = 0; i < n; i++) {
        double sum = bias ? bias[i] : 0;
        for (int j = 0; j < n_taps; j++)
            sum += (double)taps[j * ldt + i] * rows[j][i];
        y[i] = (float)(sum / (1.0 + exp(-sum)));
    }
}

static void scalar_convolve_gated(float *y, const float *const *rows, const float *taps, ptrdiff_t ldt, int n_taps,
                                  const float *bias, const float *gates, int n)
{
    for (int i = 0; i < n; i++) {
        double sum = bias ? bias[i] : 0;
        for (int j = 0; j < n_taps; j++)
            sum += (double)taps[j * ldt + i] * rows[j][i];
        y[i] = (float)(gates[i] * sum);
    }
}

// Columns do not depend on each other. Element (i, c) of the state is at i * its block's columns of the block's.
static void scalar_delta_rule(const struct delta_args *a)
{
    for (int t = 0; t < a->n; t++) {
        const float *q = a->q + t * a->ldx, *k = a->k + t * a->ldx;
        const float *decays = a->decay + t * a->ldd;
        const double decay = a->channels ? 1 : decays[0], beta = a->beta[t * a->ldg];
        for (int c = a->first_col; c < a->last_col; c++) {
            const int block = c / DELTA_COLS * DELTA_COLS, left = a->value_dim - block;
            const ptrdiff_t ld = left < DELTA_COLS ? left : DELTA_COLS, at = (ptrdiff_t)block * a->key_dim + (c - block);
            const float *s = (t == 0 ? a->before : a->after) + at;
            float *after = a->after + at;
            double recalled = 0, sum = 0;
            for (int i = 0; i < a->key_dim && !a->scan; i++)
                recalled += (a->channels ? (double)decays[i] : 1) * k[i] * s[i * ld];
            const double u = beta * (a->v[t * a->ldx + c] - decay * recalled);
            for (int i = 0; i < a->key_dim; i++) {
                const double kept = (a->channels ? (double)decays[i] : decay) * s[i * ld] + k[i] * u;
                after[i * ld] = (float)kept;
                sum += q[i] * kept;
            }
            if (a->y)
                a->y[t * a->ldy + c] = (float)sum;
        }
    }
}

#define TO_FP32(TYPE, type, ...)                                                                                               \
    static void scalar_##type##_to_fp32(float *y, const void *x, int n)                                                        \
    {                                                                                                                          \
        for (int i = 0; i < n; i++)                                                                                            \
            y[i] = element(DTYPE_##TYPE, x, i);                                                                                \
    }
FLOAT_TYPES(TO_FP32, )

static uint16_t float_to_fp16(float value)
{
    const uint32_t bits = float_to_bits(value), magnitude = bits & 0x7fffffff;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477fe000) // 65504
        return sign | 0x7bff;
    if (magnitude < 0x38800000) { // below 2^-14 halves are multiples of 2^-24: adding 1/2 rounds to just such a multiple
        const float shifted = bits_to_float(magnitude) + 0.5f;
        return (uint16_t)(sign | (float_to_bits(shifted) - float_to_bits(0.5f)));
    }
    const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1); // to nearest, ties to even; a carry moves the exponent
    return (uint16_t)(sign | ((rounded >> 13) - ((127 - 15) << 10)));
}

static void scalar_to_fp16(uint16_t *y, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = float_to_fp16(x[i]);
}

static uint64_t scalar_read_streams(const void *data, size_t bytes, int n_streams, int ahead)
{
    const size_t per_stream = bytes / (size_t)n_streams;
    uint64_t sum[8] = {0};
    for (size_t at = 0; at < per_stream; at += 64)
        for (int s = 0; s < n_streams; s++) {
            const char *line = (const char *)data + (size_t)s * per_stream + at;
            uint64_t words[8];
            memcpy(words, line, sizeof words);
            if (ahead)
                __builtin_prefetch(line + ahead);
            for (int i = 0; i < 8; i++)
                sum[i] += words[i];
        }
    uint64_t all = 0;
    for (int i = 0; i < 8; i++)
        all ^= sum[i];
    return all;
}

static float scalar_to_int8(int8_t *y, const float *x, int n)
{
    float largest = 0;
    bool finite = true;
    for (int i = 0; i < n; i++) {
        finite &= isfinite(x[i]) != 0;
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    const float scale = largest / 127;
    const bool usable = finite && scale >= INT8_LEAST_SCALE;
    for (int i = 0; i < n; i++)
        y[i] = usable ? (int8_t)lrintf(x[i] * (1 / scale)) : 0;
    return usable ? scale : finite ? 0 : NAN;
}

static double scalar_log_sum_exp(const float *x, int n)
{
    float largest = -INFINITY;
    for (int i = 0; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - largest);
    return largest + log(sum);
}

static double scalar_fma_loop(long rounds)
{
    enum { LANES = 32 }; // SSE's width times enough chains to hide the latency of the addition
    float sum[LANES];
    volatile float start = 0.5f; // volatile: the compiler must not know the factors
    const float factor = start, term = start;
    for (int i = 0; i < LANES; i++)
        sum[i] = (float)i;
    for (long round = 0; round < rounds; round++)
        for (int i = 0; i < LANES; i++)
            sum[i] = sum[i] * factor + term;
    float all = 0;
    for (int i = 0; i < LANES; i++)
        all += sum[i];
    start = all; // used
    return 2.0 * LANES * (double)rounds;
}

#define ENTRY(TYPE, type, before, behind) [DTYPE_##TYPE] = before##type##behind,

const struct cpu_kernels cpu_kernels_scalar = {
    .name = "scalar",
    .matvec = {FLOAT_TYPES(ENTRY, scalar_matvec_, )[DTYPE_BF12] = scalar_matvec_bf12},
    .unpack_bf12 = bf12_to_bf16,
    .matvec_max = 8,
    .packed_size = scalar_packed_size,
    .pack_tokens = scalar_pack_tokens,
    .matmul = {FLOAT_TYPES(ENTRY, scalar_matmul_, )},
    .matmul_scratch = 0,
    .quant = &quant_kernels_scalar,
    .quant8 = &quant8_kernels_scalar,
    .nomad = &nomad_kernels_scalar,
    .attend = {[KV_FP16] = scalar_attend_fp16, [KV_FP32] = scalar_attend_fp32, [KV_INT8] = scalar_attend_int8},
    .attend_scratch = 0,
    .sparse = &sparse_kernels_scalar,
    .rmsnorm = scalar_rmsnorm,
    .layernorm = scalar_layernorm,
    .rope = scalar_rope,
    .activate = {[ACTIVATION_SILU] = scalar_silu_multiply,
                 [ACTIVATION_GELU] = scalar_gelu_multiply,
                 [ACTIVATION_CLAMPED] = scalar_clamped_multiply,
                 [ACTIVATION_GELU_ERF] = scalar_gelu_erf_multiply,
                 [ACTIVATION_RELU2] = scalar_relu2_multiply},
    .softcap = scalar_softcap,
    .add = scalar_add,
    .add_scaled = scalar_add_scaled,
    .sigmoid_multiply = scalar_sigmoid_multiply,
    .convolve = scalar_convolve,
    .convolve_gated = scalar_convolve_gated,
    .delta_rule = scalar_delta_rule,
    .to_fp32 = {FLOAT_TYPES(ENTRY, scalar_, _to_fp32)},
    .to_fp16 = scalar_to_fp16,
    .to_int8 = scalar_to_int8,
    .log_sum_exp = scalar_log_sum_exp,
    .read_streams = scalar_read_streams,
    .fma_loop = scalar_fma_loop,
};
