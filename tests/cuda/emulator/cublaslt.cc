// cuBLASLt's matrix product in plain loops: products of 16-bit numbers exact, sums in fp32, operands turned to fp32 rows once.
#include "cublasLt.h"

#include <vector>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "runtime.h"

struct cublasLtContext {
    int unused;
};

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "unknown";
}
const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = new cublasLtContext();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale)
{
    *desc = new cublasLtMatmulDesc{
        compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr, -1, CUBLASLT_POINTER_MODE_HOST};
    return scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    void *field;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        field = &desc->transpose_a;
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        field = &desc->transpose_b;
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        field = &desc->epilogue;
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        field = &desc->bias;
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        field = &desc->bias_type;
        break;
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        field = &desc->pointer_mode;
        break;
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (bytes != (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof(void *) : sizeof(int))) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type, uint64_t rows, uint64_t cols,
                                          int64_t leading)
{
    *layout = new cublasLtMatrixLayout{type, rows, cols, leading};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = new cublasLtMatmulPreference{0};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes)
{
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        if (bytes != sizeof(preference->workspace)) {
            return CUBLAS_STATUS_INVALID_VALUE;
        }
        memcpy(&preference->workspace, value, bytes);
    }
    return CUBLAS_STATUS_SUCCESS;
}

static size_t element_bytes(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

static float element(const void *data, cudaDataType_t type, size_t index)
{
    switch (type) {
    case CUDA_R_16F:
        return static_cast<const half *>(data)[index];
    case CUDA_R_16BF:
        return static_cast<const __nv_bfloat16 *>(data)[index];
    default:
        return static_cast<const float *>(data)[index];
    }
}

static void set_element(void *data, cudaDataType_t type, size_t index, float value)
{
    switch (type) {
    case CUDA_R_16F:
        static_cast<half *>(data)[index] = half(value);
        break;
    case CUDA_R_16BF:
        static_cast<__nv_bfloat16 *>(data)[index] = __nv_bfloat16(value);
        break;
    default:
        static_cast<float *>(data)[index] = value;
    }
}

struct product {
    cublasLtMatmulDesc desc;
    cublasLtMatrixLayout a_layout, b_layout, c_layout, d_layout;
    const void *a, *b, *c;
    void *d;
    float alpha, beta;                       // where these pointers are null
    const float *device_alpha, *device_beta; // read when the product runs
};

// What the library has kernels for: both operands of one type, sums in fp32.
static bool supported(const cublasLtMatmulDesc &desc, const cublasLtMatrixLayout &a, const cublasLtMatrixLayout &b,
                      const cublasLtMatrixLayout &c, const cublasLtMatrixLayout &d)
{
    uint64_t m = desc.transpose_a ? a.cols : a.rows, k = desc.transpose_a ? a.rows : a.cols;
    uint64_t k_of_b = desc.transpose_b ? b.cols : b.rows, n = desc.transpose_b ? b.rows : b.cols;
    bool shapes = m && n && k && k == k_of_b && d.rows == m && d.cols == n && c.rows == m && c.cols == n;
    bool strides =
        a.leading >= (int64_t)a.rows && b.leading >= (int64_t)b.rows && c.leading >= (int64_t)m && d.leading >= (int64_t)m;
    bool types = a.type == b.type && c.type == d.type && (d.type == CUDA_R_32F || d.type == a.type);
    return shapes && strides && types &&
           (desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT || desc.epilogue == CUBLASLT_EPILOGUE_BIAS);
}

// op(X)'s rows (rows_first) or columns as consecutive fp32: (n, k).
static std::vector<float> unpacked(const void *data, const cublasLtMatrixLayout &layout, uint64_t n, uint64_t k,
                                   bool k_is_stored_column)
{
    std::vector<float> rows(n * k);
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t j = 0; j < k; j++) {
            uint64_t at = k_is_stored_column ? i * (uint64_t)layout.leading + j : j * (uint64_t)layout.leading + i;
            rows[i * k + j] = element(data, layout.type, at);
        }
    }
    return rows;
}

static float dot(const float *a, const float *b, uint64_t n)
{
    float sums[8] = {};
    uint64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; j++) {
            sums[j] += a[i + j] * b[i + j];
        }
    }
    for (; i < n; i++) {
        sums[0] += a[i] * b[i];
    }
    return (sums[0] + sums[4]) + (sums[1] + sums[5]) + (sums[2] + sums[6]) + (sums[3] + sums[7]);
}

static bool factor_is_there(const float *factor, const char *what)
{
    const memory_range *range = memory_find(factor);
    if (!range || range->kind != MEMORY_DEVICE) {
        emulated_fault("cublasLtMatmul: %s at %p is not in device memory", what, (const void *)factor);
        return false;
    }
    return true;
}

static bool range_has(const void *data, const cublasLtMatrixLayout &layout, const char *what)
{
    const memory_range *range = memory_find(data);
    size_t bytes = ((layout.cols - 1) * (uint64_t)layout.leading + layout.rows) * element_bytes(layout.type);
    if (!range || range->kind != MEMORY_DEVICE ||
        bytes > (size_t)(range->begin + range->bytes - static_cast<const char *>(data))) {
        emulated_fault("cublasLtMatmul: %s (%llu, %llu) at %p is not wholly in device memory", what,
                       (unsigned long long)layout.rows, (unsigned long long)layout.cols, data);
        return false;
    }
    return true;
}

static void run(const product &p)
{
    if (!range_has(p.a, p.a_layout, "A") || !range_has(p.b, p.b_layout, "B") || !range_has(p.d, p.d_layout, "D")) {
        return;
    }
    float alpha = p.alpha, beta = p.beta;
    if (p.desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
        if (!factor_is_there(p.device_alpha, "alpha") || !factor_is_there(p.device_beta, "beta")) {
            return;
        }
        alpha = *p.device_alpha;
        beta = *p.device_beta;
    }
    uint64_t m = p.d_layout.rows, n = p.d_layout.cols, k = p.desc.transpose_a ? p.a_layout.rows : p.a_layout.cols;
    std::vector<float> a = unpacked(p.a, p.a_layout, m, k, p.desc.transpose_a);
    std::vector<float> b = unpacked(p.b, p.b_layout, n, k, !p.desc.transpose_b);
    cudaDataType_t bias_type = p.desc.bias_type < 0 ? p.d_layout.type : (cudaDataType_t)p.desc.bias_type;
    for (uint64_t column = 0; column < n; column++) {
        for (uint64_t row = 0; row < m; row++) {
            float value = alpha * dot(&a[row * k], &b[column * k], k);
            if (beta != 0) {
                value += beta * element(p.c, p.c_layout.type, column * (uint64_t)p.c_layout.leading + row);
            }
            if (p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS) {
                value += element(p.desc.bias, bias_type, row);
            }
            set_element(p.d, p.d_layout.type, column * (uint64_t)p.d_layout.leading + row, value);
        }
    }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int n_wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *n_found)
{
    *n_found = 0;
    if (!handle || n_wanted < 1) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!supported(*desc, *a, *b, *c, *d)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    *results = {};
    *n_found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t stream)
{
    if (!handle) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    if (!supported(*desc, *a_layout, *b_layout, *c_layout, *d_layout)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    auto lock = runtime_lock();
    bool on_host = desc->pointer_mode == CUBLASLT_POINTER_MODE_HOST;
    product p = {*desc,
                 *a_layout,
                 *b_layout,
                 *c_layout,
                 *d_layout,
                 a,
                 b,
                 c,
                 d,
                 on_host ? *static_cast<const float *>(alpha) : 0,
                 on_host ? *static_cast<const float *>(beta) : 0,
                 static_cast<const float *>(alpha),
                 static_cast<const float *>(beta)};
    return stream_enqueue(stream, [p] { run(p); }) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
