// Products of many tokens with a matrix, by cuBLASLt: large ones with a standard shape are what it is for.
//
// It stores matrices by columns. w (rows, cols) by rows is wᵀ by columns, and so are x and y. What we ask for is yᵀ (rows, n) =
// w xᵀ: the library sees our w as A (cols, rows), to be transposed, and our x as B (cols, n).
//
// Quantised matrices are multiplied as fp16, some rows at a time, as many as the slab has room for (dequantise.cu): y's columns
// then are some of a wider y's.
//
// Operations: 2 * n * rows * cols, summed in fp32. Products of fp32 are products of fp32: TF32 would have to be asked for.
#include <cublasLt.h>

#include "cuda/kernels/kernels.h"

enum { MATMUL_PLANS = 64 };
static const size_t WORKSPACE_BYTES = (size_t)32 << 20; // what the library's documentation advises for Hopper

// What decides which algorithm is best.
struct matmul_shape {
    enum dtype dtype;
    int rows, cols, n;
    int pitch; // from a token to the next in y
    bool bias, add;
    bool factors_on_device;
    uint32_t x_alignment, w_alignment, y_alignment; // bytes
};

struct matmul_plan {
    struct matmul_shape shape;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algorithm;
};

struct matmul {
    cublasLtHandle_t handle;
    void *workspace; // (WORKSPACE_BYTES)
    struct matmul_plan plans[MATMUL_PLANS];
    int n_plans, oldest; // when all are taken, the oldest goes
    void *slab;          // (slab_bytes), the session's
    size_t slab_bytes;
};

static yalm_status check_library(cublasStatus_t status, const char *call, yalm_error *error)
{
    if (status == CUBLAS_STATUS_SUCCESS) {
        return YALM_OK;
    }
    return error_set(error, YALM_FAILED, "%.*s: %s (%d)", (int)strcspn(call, "("), call, cublasLtGetStatusString(status),
                     (int)status);
}
#define TRY_LIBRARY(call) TRY(check_library((call), #call, error))

size_t matmul_workspace_bytes(void)
{
    return WORKSPACE_BYTES;
}

static yalm_status open_parts(struct matmul *m, yalm_error *error)
{
    TRY_LIBRARY(cublasLtCreate(&m->handle));
    TRY_CUDA(cudaMalloc(&m->workspace, WORKSPACE_BYTES));
    return YALM_OK;
}

yalm_status matmul_open(struct matmul **matmul, yalm_error *error)
{
    *matmul = static_cast<struct matmul *>(calloc(1, sizeof **matmul));
    if (!*matmul) {
        return error_set(error, YALM_NO_MEMORY, "matrix products: no memory for %zu bytes", sizeof **matmul);
    }
    const yalm_status status = open_parts(*matmul, error);
    if (status != YALM_OK) {
        matmul_close(*matmul);
        *matmul = NULL;
    }
    return status;
}

static void plan_free(struct matmul_plan *plan) // as far as it was made
{
    if (plan->y) {
        cublasLtMatrixLayoutDestroy(plan->y);
    }
    if (plan->x) {
        cublasLtMatrixLayoutDestroy(plan->x);
    }
    if (plan->w) {
        cublasLtMatrixLayoutDestroy(plan->w);
    }
    if (plan->product) {
        cublasLtMatmulDescDestroy(plan->product);
    }
    *plan = {};
}

void matmul_close(struct matmul *matmul)
{
    if (!matmul) {
        return;
    }
    for (int i = 0; i < matmul->n_plans; i++) {
        plan_free(&matmul->plans[i]);
    }
    cudaFree(matmul->workspace);
    if (matmul->handle) {
        cublasLtDestroy(matmul->handle);
    }
    free(matmul);
}

static cudaDataType_t library_type(enum dtype type)
{
    return type == DTYPE_FP16 ? CUDA_R_16F : type == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static yalm_status describe(struct matmul_plan *plan, const struct matmul_shape *shape, yalm_error *error)
{
    const cudaDataType_t type = library_type(shape->dtype);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtPointerMode_t pointers = shape->factors_on_device ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST;
    const cublasLtEpilogue_t epilogue = shape->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    plan->shape = *shape;
    TRY_LIBRARY(cublasLtMatmulDescCreate(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    TRY_LIBRARY(cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    TRY_LIBRARY(cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    TRY_LIBRARY(cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_POINTER_MODE, &pointers, sizeof pointers));
    TRY_LIBRARY(cublasLtMatrixLayoutCreate(&plan->w, type, shape->cols, shape->rows, shape->cols));
    TRY_LIBRARY(cublasLtMatrixLayoutCreate(&plan->x, type, shape->cols, shape->n, shape->cols));
    TRY_LIBRARY(cublasLtMatrixLayoutCreate(&plan->y, CUDA_R_32F, shape->rows, shape->n, shape->pitch));
    return YALM_OK;
}

static yalm_status set_preference(cublasLtMatmulPreference_t preference, const struct matmul_shape *shape, yalm_error *error)
{
    const size_t bytes = WORKSPACE_BYTES;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        uint32_t alignment;
    } alignments[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape->w_alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape->x_alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape->y_alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape->y_alignment},
    };
    TRY_LIBRARY(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    for (const auto &a : alignments) {
        TRY_LIBRARY(cublasLtMatmulPreferenceSetAttribute(preference, a.attribute, &a.alignment, sizeof a.alignment));
    }
    return YALM_OK;
}

// The library's first choice.
static yalm_status choose(struct matmul_plan *plan, cublasLtHandle_t handle, cublasLtMatmulPreference_t preference,
                          yalm_error *error)
{
    cublasLtMatmulHeuristicResult_t best = {};
    int n_found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, plan->product, plan->w, plan->x, plan->y, plan->y,
                                                                 preference, 1, &best, &n_found);
    if (status != CUBLAS_STATUS_SUCCESS || n_found == 0) {
        const struct matmul_shape *s = &plan->shape;
        return error_set(error, YALM_FAILED, "cuBLASLt has no product of (%d, %d) with %d tokens in %s on this GPU: %s (%d)",
                         s->rows, s->cols, s->n, dtype_names[s->dtype], cublasLtGetStatusString(status), (int)status);
    }
    plan->algorithm = best.algo;
    return YALM_OK;
}

static yalm_status plan_make(struct matmul_plan *plan, cublasLtHandle_t handle, const struct matmul_shape *shape,
                             yalm_error *error)
{
    TRY(describe(plan, shape, error));
    cublasLtMatmulPreference_t preference = NULL;
    TRY_LIBRARY(cublasLtMatmulPreferenceCreate(&preference));
    yalm_status status = set_preference(preference, shape, error);
    if (status == YALM_OK) {
        status = choose(plan, handle, preference, error);
    }
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

static bool same_shape(const struct matmul_shape *a, const struct matmul_shape *b)
{
    return a->dtype == b->dtype && a->rows == b->rows && a->cols == b->cols && a->n == b->n && a->pitch == b->pitch &&
           a->bias == b->bias && a->add == b->add && a->factors_on_device == b->factors_on_device &&
           a->x_alignment == b->x_alignment && a->w_alignment == b->w_alignment && a->y_alignment == b->y_alignment;
}

// The plan for a shape, made where there is none yet.
static yalm_status plan_find(struct matmul *m, const struct matmul_shape *shape, struct matmul_plan **found, yalm_error *error)
{
    for (int i = 0; i < m->n_plans; i++) {
        if (same_shape(&m->plans[i].shape, shape)) {
            *found = &m->plans[i];
            return YALM_OK;
        }
    }
    struct matmul_plan plan = {};
    const yalm_status status = plan_make(&plan, m->handle, shape, error);
    if (status != YALM_OK) {
        plan_free(&plan);
        return status;
    }
    if (m->n_plans < MATMUL_PLANS) {
        *found = &m->plans[m->n_plans++];
    } else {
        *found = &m->plans[m->oldest];
        m->oldest = (m->oldest + 1) % MATMUL_PLANS;
        plan_free(*found);
    }
    **found = plan;
    return YALM_OK;
}

// The largest power of two, at most 256, that divides an address.
static uint32_t alignment_of(const void *address)
{
    const uintptr_t bits = (uintptr_t)address | 256;
    return (uint32_t)(bits & (~bits + 1));
}

void matmul_use_slab(struct matmul *matmul, void *slab, size_t bytes)
{
    matmul->slab = slab;
    matmul->slab_bytes = bytes;
}

// y, whose rows are `pitch` apart, = x wᵀ + bias, or y += that; times factors->alpha where there are factors, in device memory.
static yalm_status multiply(struct matmul *matmul, float *y, int pitch, const void *x, const struct matrix *w,
                            const struct product_factors *factors, const float *bias, int n, bool add, cudaStream_t stream,
                            yalm_error *error)
{
    struct matmul_shape shape = {};
    shape.dtype = w->dtype;
    shape.rows = w->rows;
    shape.cols = w->cols;
    shape.n = n;
    shape.pitch = pitch;
    shape.bias = bias != NULL;
    shape.add = add;
    shape.factors_on_device = factors != NULL;
    shape.x_alignment = alignment_of(x);
    shape.w_alignment = alignment_of(w->data);
    shape.y_alignment = alignment_of(y);
    struct matmul_plan *plan = NULL;
    TRY(plan_find(matmul, &shape, &plan, error));
    if (bias) {
        TRY_LIBRARY(cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    }
    const float one = 1.0f, zero = 0.0f;
    const float *alpha = factors ? &factors->alpha : &one;
    const float *beta = factors ? (add ? &factors->one : &factors->zero) : add ? &one : &zero;
    TRY_LIBRARY(cublasLtMatmul(matmul->handle, plan->product, alpha, w->data, plan->w, x, plan->x, beta, y, plan->y, y, plan->y,
                               &plan->algorithm, matmul->workspace, WORKSPACE_BYTES, stream));
    return YALM_OK;
}

// Rows of a matrix that are multiplied together: as many as the slab holds, in slabs of about the same size and of whole tiles
// of the library's.
static int slab_rows(const struct matmul *matmul, const struct matrix *w)
{
    const size_t most = matmul->slab_bytes / (sizeof(half) * w->cols), tile = most < 256 ? 1 : 256;
    if (most == 0) {
        return 0;
    }
    const size_t n_slabs = ((size_t)w->rows + most - 1) / most, even = round_up((w->rows + n_slabs - 1) / n_slabs, tile);
    return (int)(even < most ? even : most);
}

static yalm_status multiply_quantised(struct matmul *matmul, float *y, const void *x, const struct matrix *w, const float *bias,
                                      int n, bool add, cudaStream_t stream, yalm_error *error)
{
    const int at_once = slab_rows(matmul, w);
    if (at_once == 0) {
        return error_set(error, YALM_FAILED, "matrix products on the GPU: no room to dequantise a row of %d columns", w->cols);
    }
    for (int row = 0; row < w->rows; row += at_once) {
        const int rows = w->rows - row < at_once ? w->rows - row : at_once;
        const struct matrix slab = {matmul->slab, DTYPE_FP16, rows, w->cols};
        TRY(dequantise(matmul->slab, w, row, rows, stream, error));
        TRY(multiply(matmul, y + row, w->rows, x, &slab, product_factors_of(w), bias ? bias + row : NULL, n, add, stream,
                     error));
    }
    return YALM_OK;
}

yalm_status matmul_run(struct matmul *matmul, float *y, const void *x, const struct matrix *w, const float *bias, int n,
                       bool add, cudaStream_t stream, yalm_error *error)
{
    if (matrix_is_quantised(w)) {
        return multiply_quantised(matmul, y, x, w, bias, n, add, stream, error);
    }
    if ((int)w->dtype >= (int)DTYPE_WEIGHTS) {
        return error_set(error, YALM_BAD_MODEL, "matrix products on the GPU: a matrix of %s, expected a type of weights",
                         dtype_names[w->dtype]);
    }
    return multiply(matmul, y, w->rows, x, w, NULL, bias, n, add, stream, error);
}

yalm_status matmul_run_split(struct matmul *matmul, float *y, const void *x, const struct matrix *w, const float *bias, int n,
                             cudaStream_t stream, yalm_error *error)
{
    const char *lost = static_cast<const char *>(x) + (size_t)n * w->cols * dtype_sizes[input_type(w->dtype)];
    TRY(matmul_run(matmul, y, x, w, bias, n, false, stream, error));
    return matmul_run(matmul, y, lost, w, NULL, n, true, stream, error);
}
