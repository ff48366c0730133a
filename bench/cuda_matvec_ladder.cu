// Times the steps of matvec_ladder.cuh and the engine's product, each checked against double precision, at a model's matrices
// (fp16):
//
//     cuda_matvec_ladder NAME=VALUE…
//     name=TEXT dim=N ffn=N vocab=N
//
// One JSON object a line, as cuda_attention_ladder's; "length" is the number of columns. Exits with 1 where a step is wrong.
// Matrices come in turn from a pool that is larger than the L2 cache.
#include "cuda_timing.h"
#include "matvec_ladder.cuh"
#include "read_arguments.h"

static const double most_error = 1e-4; // of the largest value
enum { CHECKED_ROWS = 64 };

struct ladder {
    struct shape_arguments shape;
    cudaStream_t stream;
    yalm_limits limits;
    uint8_t *pool;
    size_t pool_bytes, at;
    float *x, *y;
    float *x_host;
};

static const half *next_matrix(struct ladder *l, int rows, int cols)
{
    const size_t bytes = round_up((size_t)rows * cols * sizeof(half), 256);
    if (l->at + bytes > l->pool_bytes)
        l->at = 0;
    const half *w = reinterpret_cast<const half *>(l->pool + l->at);
    l->at += bytes;
    return w;
}

// Step LADDER_MATVEC_STEPS is the engine's, which adds to y.
static yalm_status run_step(struct ladder *l, int step, const half *w, int rows, int cols, yalm_error *error)
{
    if (step == LADDER_MATVEC_STEPS) {
        const struct matrix matrix = {w, DTYPE_FP16, rows, cols};
        return matvec_residual(l->y, &matrix, NULL, l->x, l->stream, error);
    }
    const struct ladder_matvec m = {w, l->x, l->y, rows, cols};
    return ladder_matvec_run((enum ladder_matvec_step)step, &m, l->stream, error);
}

// The largest difference in some rows, the last among them, of the largest value expected.
static double error_of(struct ladder *l, int step, int rows, int cols)
{
    const int n = rows < CHECKED_ROWS ? rows : CHECKED_ROWS, first = rows - n;
    uint16_t *w = static_cast<uint16_t *>(malloc((size_t)n * cols * sizeof *w));
    float *found = static_cast<float *>(malloc(n * sizeof *found));
    MUST_CUDA(cudaMemcpy(w, reinterpret_cast<uint16_t *>(l->pool) + (size_t)first * cols, (size_t)n * cols * sizeof *w,
                         cudaMemcpyDeviceToHost));
    MUST_CUDA(cudaMemset(l->y, step == LADDER_MATVEC_STEPS ? 0 : 0xff, rows * sizeof *found)); // 0xff…: not a number
    MUST(run_step(l, step, reinterpret_cast<const half *>(l->pool), rows, cols, error));
    MUST_CUDA(cudaStreamSynchronize(l->stream));
    MUST_CUDA(cudaMemcpy(found, l->y + first, n * sizeof *found, cudaMemcpyDeviceToHost));
    double error = 0, largest = 0;
    for (int r = 0; r < n; r++) {
        double expected = 0;
        for (int c = 0; c < cols; c++)
            expected += (double)__half2float(__ushort_as_half(w[(size_t)r * cols + c])) * l->x_host[c];
        const double difference = fabs(found[r] - expected);
        error = difference <= error ? error : isnan(difference) ? INFINITY : difference;
        largest = fmax(largest, fabs(expected));
    }
    free(w);
    free(found);
    return error / largest;
}

// Number of steps that were wrong.
static int time_matrix(struct ladder *l, const char *matrix, int rows, int cols)
{
    int wrong = 0;
    double before = 0;
    const double bytes = 2.0 * rows * cols;
    for (int step = 0; step <= LADDER_MATVEC_STEPS; step++) {
        const double error = error_of(l, step, rows, cols);
        MUST_CUDA(cudaMemset(l->y, 0, rows * sizeof *l->y));
        const double t = seconds_of(
            l->stream, [&](yalm_error *error) { return run_step(l, step, next_matrix(l, rows, cols), rows, cols, error); });
        wrong += !(error <= most_error);
        printf("{\"ladder\": \"matvec\", \"model\": \"%s %s\", \"step\": \"%s\", \"length\": %d, \"seconds\": %.4e, \"bytes\": "
               "%.6e, "
               "\"gb_per_s\": %.1f, \"of_read\": %.4f, \"gain\": %.3f, \"error\": %.2e}\n",
               l->shape.name, matrix, step < LADDER_MATVEC_STEPS ? ladder_matvec_names[step] : "the engine's", cols, t, bytes,
               1e-9 * bytes / t, 1e-9 * bytes / t / l->limits.read_gb_per_s, step > 0 ? before / t : 1.0,
               isfinite(error) ? error : 1e9);
        fflush(stdout);
        before = t;
    }
    return wrong;
}

int main(int argc, char **argv)
{
    struct ladder l = {};
    if (!read_arguments(&l.shape, argc, argv, "cuda_matvec_ladder"))
        return YALM_USAGE;
    const struct shape_arguments *s = &l.shape;
    const int widest = s->ffn > s->dim ? s->ffn : s->dim;
    int n_sms;
    struct matmul *matmul = NULL;
    MUST_CUDA(cudaStreamCreateWithFlags(&l.stream, cudaStreamNonBlocking));
    MUST(matmul_open(&matmul, error));
    l.limits = measure_limits(l.stream, matmul, 0.6, &n_sms);
    printf("{\"limits\": {\"read_gb_per_s\": %.1f}}\n", l.limits.read_gb_per_s);
    l.pool_bytes = round_up((size_t)2 * s->dim * widest, 256) + 6 * l2_bytes();
    take(&l.pool, l.pool_bytes);
    fill_words(l.pool, l.pool_bytes, 0x83ff, 9 << 10); // magnitudes from 2^-6 to 2^-5
    take(&l.x, widest * sizeof(float));
    take(&l.y, widest * sizeof(float));
    l.x_host = static_cast<float *>(malloc(widest * sizeof(float)));
    uint64_t state = 1;
    for (int i = 0; i < widest; i++)
        l.x_host[i] = noise_float(&state);
    MUST_CUDA(cudaMemcpy(l.x, l.x_host, widest * sizeof(float), cudaMemcpyHostToDevice));
    int wrong = time_matrix(&l, "o", s->dim, s->dim);
    wrong += time_matrix(&l, "gate", s->ffn, s->dim);
    wrong += time_matrix(&l, "down", s->dim, s->ffn);
    free(l.x_host);
    cudaFree(l.pool);
    cudaFree(l.x);
    cudaFree(l.y);
    matmul_close(matmul);
    cudaStreamDestroy(l.stream);
    return wrong > 0;
}
