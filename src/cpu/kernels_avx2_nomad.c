// NoMAD's kernels with AVX2, FMA and F16C.
#include "cpu/vec_nomad_avx2.h"

static void avx2_encode(uint8_t *codes, const float *key, const struct nomad_book *book)
{
    nomad_encode_any(codes, key, book);
}
static void avx2_table(const struct nomad_table *table, const float *q, const struct nomad_book *book, float *scratch)
{
    nomad_table(table, q, book, scratch);
}
static void avx2_scores(const struct nomad_score_args *args)
{
    nomad_scores(args);
}
static void avx2_decode(float *y, const uint8_t *block, const struct nomad_book *book)
{
    nomad_decode(y, block, book);
}

const struct nomad_kernels nomad_kernels_avx2 = {
    .name = "avx2",
    .encode = avx2_encode,
    .table = avx2_table,
    .scores = avx2_scores,
    .decode = avx2_decode,
};
