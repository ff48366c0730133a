// Matrix products against double: every type, odd sizes, bias, sums onto what is there, in captured graphs and after more
// shapes than there are plans.
#include "cuda_testing.h"

struct product_case {
    enum dtype dtype;
    int rows, cols, n;
    bool bias, add;
};

// Elements of a type, in device memory; x becomes what they are.
static void *upload_as(enum dtype type, std::vector<float> *x)
{
    if (type == DTYPE_FP32) {
        return device_copy(*x);
    }
    std::vector<uint16_t> bits(x->size());
    for (size_t i = 0; i < bits.size(); i++) {
        if (type == DTYPE_FP16) {
            const half h = __float2half_rn((*x)[i]);
            memcpy(&bits[i], &h, sizeof h);
            (*x)[i] = __half2float(h);
        } else {
            const __nv_bfloat16 b = __float2bfloat16_rn((*x)[i]);
            memcpy(&bits[i], &b, sizeof b);
            (*x)[i] = __bfloat162float(b);
        }
    }
    return device_copy(bits);
}

struct product_fixture {
    struct product_case c;
    std::vector<float> w, x, bias, y;
    struct matrix matrix;
    void *device_x;
    float *device_bias, *device_y;
};

static void open_product(struct product_fixture *f, const struct product_case &c)
{
    uint64_t seed = (uint64_t)c.rows * 7919 + c.cols * 31 + c.n;
    f->c = c;
    f->w = random_floats(&seed, (size_t)c.rows * c.cols, 1.0);
    f->x = random_floats(&seed, (size_t)c.n * c.cols, 1.0);
    f->bias = random_floats(&seed, c.rows, 1.0);
    f->y = random_floats(&seed, (size_t)c.n * c.rows, 1.0);
    f->matrix = {upload_as(c.dtype, &f->w), c.dtype, c.rows, c.cols};
    f->device_x = upload_as(c.dtype, &f->x);
    f->device_bias = device_copy(f->bias);
    f->device_y = c.add ? device_copy(f->y) : device_nan<float>(f->y.size());
}

static void close_product(struct product_fixture *f)
{
    cudaFree(const_cast<void *>(f->matrix.data));
    cudaFree(f->device_x);
    cudaFree(f->device_bias);
    cudaFree(f->device_y);
}

// After `times` products; each adds once more where the case adds.
static void assert_product(const struct product_fixture *f, int times)
{
    const struct product_case &c = f->c;
    const std::vector<float> found = host_copy(f->device_y, f->y.size());
    for (int t = 0; t < c.n; t++) {
        for (int r = 0; r < c.rows; r++) {
            double sum = c.bias ? f->bias[r] : 0, magnitude = 1;
            for (int i = 0; i < c.cols; i++) {
                const double term = (double)f->w[(size_t)r * c.cols + i] * f->x[(size_t)t * c.cols + i];
                sum += term;
                magnitude += fabs(term);
            }
            const double expected = c.add ? f->y[(size_t)t * c.rows + r] + times * sum : sum;
            assert_near(found[(size_t)t * c.rows + r], expected, times * magnitude * (c.cols + 4) * 0x1p-24,
                        dtype_names[c.dtype], t, r);
        }
    }
}

static yalm_status run_product(struct matmul *matmul, struct product_fixture *f, cudaStream_t stream, yalm_error *error)
{
    return matmul_run(matmul, f->device_y, f->device_x, &f->matrix, f->c.bias ? f->device_bias : NULL, f->c.n, f->c.add, stream,
                      error);
}

static void run(struct matmul *matmul, const struct product_case &c)
{
    yalm_error error = {};
    struct product_fixture f;
    open_product(&f, c);
    assert_ok(run_product(matmul, &f, 0, &error), error);
    assert_cuda(cudaDeviceSynchronize());
    assert_product(&f, 1);
    close_product(&f);
}

static struct matmul *open_matmul(void)
{
    yalm_error error = {};
    struct matmul *matmul = NULL;
    assert_ok(matmul_open(&matmul, &error), error);
    return matmul;
}

static void shapes(void **)
{
    static const int shapes[][3] = {{1, 1, 1},    {32, 32, 2},  {33, 31, 5}, {47, 96, 33},
                                    {96, 47, 17}, {128, 64, 8}, {333, 65, 3}};
    struct matmul *matmul = open_matmul();
    for (enum dtype type : {DTYPE_FP32, DTYPE_FP16, DTYPE_BF16}) {
        for (const auto &shape : shapes) {
            for (int options = 0; options < 4; options++) {
                run(matmul, {type, shape[0], shape[1], shape[2], (options & 1) != 0, (options & 2) != 0});
            }
        }
    }
    matmul_close(matmul);
}

static void more_shapes_than_plans(void **)
{
    struct matmul *matmul = open_matmul();
    for (int n = 1; n <= 150; n++) {
        run(matmul, {DTYPE_FP16, 16, 16, n, n % 2 == 0, false});
    }
    run(matmul, {DTYPE_FP16, 16, 16, 1, false, false});
    matmul_close(matmul);
}

// Two products of one shape but with biases of their own, in one graph, launched three times.
static void graphs(void **)
{
    yalm_error error = {};
    struct matmul *matmul = open_matmul();
    struct product_fixture f[2];
    open_product(&f[0], {DTYPE_FP16, 33, 48, 7, true, true});
    open_product(&f[1], {DTYPE_FP16, 33, 48, 7, true, true});
    for (float &b : f[1].bias) {
        b += 1;
    }
    assert_cuda(cudaMemcpy(f[1].device_bias, f[1].bias.data(), f[1].bias.size() * sizeof(float), cudaMemcpyHostToDevice));
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    assert_cuda(cudaStreamCreate(&stream));
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (struct product_fixture &one : f) {
        assert_ok(run_product(matmul, &one, stream, &error), error);
    }
    assert_cuda(cudaStreamEndCapture(stream, &graph));
    assert_cuda(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; i++) {
        assert_cuda(cudaGraphLaunch(executable, stream));
    }
    assert_cuda(cudaStreamSynchronize(stream));
    for (struct product_fixture &one : f) {
        assert_product(&one, 3);
        close_product(&one);
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    matmul_close(matmul);
}

static void refusals(void **)
{
    yalm_error error = {};
    struct matmul *matmul = open_matmul();
    const struct matrix bytes = {NULL, DTYPE_U8, 32, 32}, quantised = {NULL, DTYPE_Q8, 32, 32};
    assert_int_equal(matmul_run(matmul, NULL, NULL, &bytes, NULL, 1, false, 0, &error), YALM_BAD_MODEL);
    assert_non_null(strstr(error.text, "u8"));
    // More tokens than are multiplied straight from the quantised matrix.
    assert_int_equal(matmul_run(matmul, NULL, NULL, &quantised, NULL, 17, false, 0, &error), YALM_FAILED);
    assert_non_null(strstr(error.text, "no room to dequantise a row of 32 columns"));
    matmul_close(matmul);
    matmul_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(more_shapes_than_plans),
        cmocka_unit_test(graphs),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
