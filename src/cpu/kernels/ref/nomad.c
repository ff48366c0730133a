// NoMAD's kernels in plain C; see nomad.h for the formulas. fmaf() rounds once, as the vector kernels do, so that tables and
// scores are the same to the bit.
#include "cpu/kernels/ref/scalar.h"

static void scalar_encode(uint8_t *codes, const float *key, const struct nomad_book *book)
{
    const float *centroids = book->centroids;
    for (int s = 0; s < book->n_sub; s++, key += book->d_sub, centroids += book->d_sub * NOMAD_CENTROIDS) {
        float distances[NOMAD_CENTROIDS];
        int nearest = 0;
        for (int c = 0; c < NOMAD_CENTROIDS; c++) {
            distances[c] = 0;
            for (int i = 0; i < book->d_sub; i++) {
                const float x = key[i] - centroids[i * NOMAD_CENTROIDS + c];
                distances[c] = fmaf(x, x, distances[c]);
            }
            nearest = distances[c] < distances[nearest] ? c : nearest;
        }
        codes[s] = (uint8_t)nearest;
    }
}

static void scalar_table(const struct nomad_table *table, const float *q, const struct nomad_book *book, float *scratch)
{
    struct nomad_range range = {0};
    const int n_sub = book->n_sub, d_sub = book->d_sub;
    for (int s = 0; s < n_sub; s++) {
        float *row = scratch + s * NOMAD_CENTROIDS;
        for (int c = 0; c < NOMAD_CENTROIDS; c++) {
            row[c] = 0;
            for (int i = 0; i < d_sub; i++)
                row[c] = fmaf(q[s * d_sub + i], book->centroids[(s * d_sub + i) * NOMAD_CENTROIDS + c], row[c]);
        }
        float least = row[0], largest = row[0];
        for (int c = 1; c < NOMAD_CENTROIDS; c++) {
            least = row[c] < least ? row[c] : least;
            largest = row[c] > largest ? row[c] : largest;
        }
        nomad_range_add(&range, least, largest);
        for (int c = 0; c < NOMAD_CENTROIDS; c++)
            row[c] -= least;
    }
    const float a = nomad_factor(&range, n_sub, table->base, table->step);
    memset(table->entries, 0, nomad_block_bytes(n_sub));
    for (int i = 0; a > 0 && i < n_sub * NOMAD_CENTROIDS; i++)
        table->entries[i] = (uint8_t)rintf(scratch[i] * a);
}

static void scalar_scores(const struct nomad_score_args *a)
{
    const size_t bytes = (size_t)a->rows * NOMAD_ROW;
    for (int b = 0; b < a->n_blocks; b++)
        for (int q = 0; q < a->n_queries; q++) {
            const uint8_t *block = a->codes + (size_t)b * bytes, *entries = a->entries + (size_t)q * bytes;
            for (int j = 0; j < NOMAD_BLOCK; j++) {
                int sum = 0;
                for (int s = 0; s < a->rows; s++)
                    sum += entries[s * NOMAD_CENTROIDS + nomad_code(block, j, s)];
                a->scores[q * a->ld + b * NOMAD_BLOCK + j] = fmaf((float)sum, a->step[q], a->base[q]);
            }
        }
}

static void scalar_code_scores(const struct code_score_args *a)
{
    for (int q = 0; q < a->n_queries; q++)
        for (int j = 0; j < a->n_groups * CODE_GROUP; j++) {
            int sum = a->offset[q];
            for (int c = 0; c < a->n; c++) {
                const uint8_t byte = a->runs[a->run_of[c] * a->stride + code_offset(j) + code_byte(j)];
                sum += a->weights[q * a->n + c] * a->values[c * CODE_VALUES + (byte >> code_shift(j) & 15)];
            }
            a->scores[q * a->ld + j] = fmaf((float)sum, a->step[q], a->base[q]);
        }
}

static void scalar_decode(float *y, const uint8_t *block, const struct nomad_book *book)
{
    const int d = book->n_sub * book->d_sub;
    for (int j = 0; j < NOMAD_BLOCK; j++)
        for (int c = 0; c < d; c++)
            y[j * d + c] = book->centroids[c * NOMAD_CENTROIDS + nomad_code(block, j, c / book->d_sub)];
}

static inline __attribute__((always_inline)) void values(enum kv_type type, const struct nomad_value_args *a)
{
    const ptrdiff_t d = a->head_dim;
    for (ptrdiff_t j = 0; j < a->n_keys; j++) {
        bool kept = !a->inverse_least;
        for (int i = 0; i < a->n_queries && !kept; i++)
            kept = a->inverse_least[i] * expf(a->scores[i * a->ld + j] - a->max[i]) >= 1;
        for (int i = 0; i < a->n_queries && kept; i++) {
            const float w = expf(a->scores[i * a->ld + j] - a->max[i]), by = type == KV_INT8 ? w * a->v_scales[j] : w;
            a->sum[i] += w;
            for (ptrdiff_t c = 0; c < d; c++)
                a->acc[i * d + c] +=
                    by * (type == KV_INT8 ? (float)((const int8_t *)a->v)[j * d + c]
                                          : element(type == KV_FP32 ? DTYPE_FP32 : DTYPE_FP16, a->v, j * d + c));
        }
    }
}

static void scalar_values_fp16(const struct nomad_value_args *args)
{
    values(KV_FP16, args);
}
static void scalar_values_fp32(const struct nomad_value_args *args)
{
    values(KV_FP32, args);
}
static void scalar_values_int8(const struct nomad_value_args *args)
{
    values(KV_INT8, args);
}

const struct nomad_kernels nomad_kernels_scalar = {
    .name = "scalar",
    .encode = scalar_encode,
    .table = scalar_table,
    .scores = scalar_scores,
    .code_scores = scalar_code_scores,
    .decode = scalar_decode,
    .values = {[KV_FP16] = scalar_values_fp16, [KV_FP32] = scalar_values_fp32, [KV_INT8] = scalar_values_int8},
};
