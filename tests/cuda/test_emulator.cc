// The emulator itself: kernels that are right give what CUDA defines. (What it finds wrong: test_emulator_faults.cc.)
#include "block.h"
#include "cuda/kernels/reduce.cuh"
#include "cuda_testing.h"
#include "sanitizers.h"

#include <algorithm>

static yalm_error failure;

// ------------------------------------------------------------------------------------------ what CUDA defines

static __global__ void sum_kernel(const float *x, float *total, int n)
{
    grid_dependency_wait();
    SHARED_ARRAY(float, sums, 32);
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += x[i];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, offset);
    }
    if (threadIdx.x % 32 == 0) {
        sums[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        float all = 0;
        for (unsigned warp = 0; warp < blockDim.x / 32; warp++) {
            all += sums[warp];
        }
        atomicAdd(total, all);
    }
}

static void test_sum(void **)
{
    const int n = 10000;
    float *x = device_array<float>(n), *total = device_array<float>(1);
    float host[n], found = 0;
    for (int i = 0; i < n; i++) {
        host[i] = (float)(i % 100);
    }
    cudaMemcpy(x, host, sizeof(host), cudaMemcpyHostToDevice);
    cudaMemset(total, 0, sizeof(float));
    expect_run(LAUNCH(&failure, sum_kernel, 7, 256, 0, nullptr, x, total, n));
    cudaMemcpy(&found, total, sizeof(found), cudaMemcpyDeviceToHost);
    assert_true(found == 495000);
    cudaFree(x);
    cudaFree(total);
}

// Large allocations have pages of the pattern mapped, their ends are filled.
static void test_unwritten_memory(void **)
{
#if EMULATED_MSAN
    skip(); // it would see these reads
#endif
    for (size_t bytes : {(size_t)4 << 20, ((size_t)4 << 20) - 1, ((size_t)4 << 20) + 1, ((size_t)6 << 20) - 300, (size_t)5}) {
        std::vector<unsigned char> found(bytes);
        unsigned char *x = device_array<unsigned char>(bytes);
        cudaMemcpy(found.data(), x, bytes, cudaMemcpyDeviceToHost);
        for (unsigned char each : found) {
            assert_int_equal(each, (unsigned char)EMULATED_POISON);
        }
        cudaFree(x);
    }
}

static __global__ void shuffles_kernel(int *out)
{
    grid_dependency_wait();
    int lane = (int)threadIdx.x;
    int *row = out + lane * 9;
    row[0] = __shfl_sync(0xffffffff, lane, 5);
    row[1] = __shfl_sync(0xffffffff, lane, 9, 8);
    row[2] = __shfl_up_sync(0xffffffff, lane, 3);
    row[3] = __shfl_down_sync(0xffffffff, lane, 3, 16);
    row[4] = __shfl_xor_sync(0xffffffff, lane, 1);
    row[5] = (int)__ballot_sync(0xffffffff, lane % 3 == 0);
    row[6] = __reduce_max_sync(0xffffffff, lane * 7 % 32);
    row[7] = lane < 8 ? __shfl_xor_sync(0xff, lane, 7) : -1;
    row[8] = (int)__match_any_sync(0xffffffff, lane % 16);
}

static void test_shuffles(void **)
{
    int *out = device_array<int>(32 * 9), host[32][9];
    expect_run(LAUNCH(&failure, shuffles_kernel, 1, 32, 0, nullptr, out));
    cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost);
    for (int lane = 0; lane < 32; lane++) {
        assert_int_equal(host[lane][0], 5);
        assert_int_equal(host[lane][1], lane / 8 * 8 + 1);
        assert_int_equal(host[lane][2], lane < 3 ? lane : lane - 3);
        assert_int_equal(host[lane][3], lane % 16 + 3 < 16 ? lane + 3 : lane);
        assert_int_equal(host[lane][4], lane ^ 1);
        assert_int_equal((unsigned)host[lane][5], 0x49249249);
        assert_int_equal(host[lane][6], 31);
        assert_int_equal(host[lane][7], lane < 8 ? 7 - lane : -1);
        assert_int_equal((unsigned)host[lane][8], 0x10001u << lane % 16);
    }
    cudaFree(out);
}

// (3, 2, 32): sums of all lanes, of some, and maxima, by shuffles and by one operation.
static __global__ void folds_kernel(const float *x, float *out)
{
    grid_dependency_wait();
    const int lane = (int)threadIdx.x;
    out[lane] = fold_by_shuffles<16, 1>(x[lane], add_two());
    out[32 + lane] = warp_sum(x[lane]);
    out[64 + lane] = fold_by_shuffles<8, 4>(x[lane], add_two());
    out[96 + lane] = warp_sum<8, 4>(x[lane]);
    out[128 + lane] = fold_by_shuffles<16, 1>(x[lane], larger_of_two());
    out[160 + lane] = warp_max(x[lane]);
}

static void test_folds_have_the_bits_of_shuffles(void **)
{
    uint64_t seed = 3;
    float *x = device_array<float>(32), *out = device_array<float>(192), found[192];
    for (int i = 0; i < 20; i++) {
        const std::vector<float> host = random_floats(&seed, 32, 1e3);
        cudaMemcpy(x, host.data(), 32 * sizeof(float), cudaMemcpyHostToDevice);
        expect_run(LAUNCH(&failure, folds_kernel, 1, 32, 0, nullptr, x, out));
        cudaMemcpy(found, out, sizeof(found), cudaMemcpyDeviceToHost);
        assert_memory_equal(found, found + 32, 32 * sizeof(float));
        assert_memory_equal(found + 64, found + 96, 32 * sizeof(float));
        assert_memory_equal(found + 128, found + 160, 32 * sizeof(float));
        assert_true(found[128] == *std::max_element(host.begin(), host.end()));
    }
    cudaFree(x);
    cudaFree(out);
}

// fp16 and bf16 to the nearest, ties to even, at every boundary that there is between two neighbours.
static void test_conversions(void **)
{
    for (unsigned bits = 0; bits < 0x7c00; bits++) {
        half low = __ushort_as_half((unsigned short)bits), high = __ushort_as_half((unsigned short)(bits + 1));
        float middle = bits + 1 < 0x7c00 ? ((float)low + (float)high) / 2 : 65520;
        half even = bits % 2 ? high : low;
        assert_int_equal(__half_as_ushort(__float2half_rn(__half2float(low))), bits);
        assert_int_equal(__half_as_ushort(__float2half_rn(middle)), __half_as_ushort(even));
        assert_int_equal(__half_as_ushort(__float2half_rn(nextafterf(middle, 0))), bits);
        assert_int_equal(__half_as_ushort(__float2half_rn(-nextafterf(middle, INFINITY))), (bits + 1) | 0x8000);
    }
    for (unsigned bits = 0; bits < 0x7f80; bits++) {
        float low = __uint_as_float(bits << 16), middle = __uint_as_float(bits << 16 | 0x8000);
        assert_int_equal(__bfloat16_as_ushort(__float2bfloat16_rn(low)), bits);
        assert_int_equal(__bfloat16_as_ushort(__float2bfloat16_rn(middle)), bits + bits % 2);
        assert_int_equal(__bfloat16_as_ushort(__float2bfloat16_rn(nextafterf(middle, 0))), bits);
        assert_int_equal(__bfloat16_as_ushort(__float2bfloat16_rn(nextafterf(middle, INFINITY))), bits + 1);
    }
    assert_true(isnan(__half2float(__float2half_rn(NAN))) && isnan(__bfloat162float(__float2bfloat16_rn(NAN))));
    assert_true(__half2float(__float2half_rn(-1e9f)) == -INFINITY &&
                __bfloat162float(__float2bfloat16_rn(FLT_MAX)) == INFINITY);
}

// C (16, 8) = A (16, 16) B (16, 8), A loaded by ldmatrix from rows, B from rows of (k, n) by its transposing form.
template <class T> static __global__ void mma_kernel(const T *a, const T *b, float *c)
{
    grid_dependency_wait();
    SHARED_ARRAY(T, a_rows, 16 * 16);
    SHARED_ARRAY(T, b_rows, 16 * 16);
    int lane = (int)threadIdx.x;
    for (int i = lane; i < 256; i += 32) {
        a_rows[i] = a[i];
        b_rows[i] = b[i];
    }
    __syncwarp();
    unsigned a_parts[4], b_parts[4];
    ldmatrix_x4(a_parts, &a_rows[(lane % 8 + lane / 8 % 2 * 8) * 16 + lane / 16 * 8]);
    ldmatrix_x4_trans(b_parts, &b_rows[(lane % 8 + lane / 8 % 2 * 8) * 16 + lane / 16 * 8]);
    for (int right = 0; right < 2; right++) {
        float sum[4] = {};
        const unsigned b_half[2] = {b_parts[2 * right], b_parts[2 * right + 1]};
        mma_m16n8k16<T>(sum, a_parts, b_half);
        for (int r = 0; r < 4; r++) {
            c[(lane / 4 + r / 2 * 8) * 16 + 8 * right + 2 * (lane % 4) + r % 2] = sum[r];
        }
    }
}

template <class T> static void expect_product(void)
{
    std::vector<T> a, b;
    for (int i = 0; i < 256; i++) {
        a.push_back(T((float)(i * 7 % 23 - 11)));
        b.push_back(T((float)(i * 5 % 19 - 9)));
    }
    T *device_a = device_copy(a), *device_b = device_copy(b);
    float *c = device_array<float>(256);
    expect_run(LAUNCH(&failure, mma_kernel<T>, 1, 32, 0, nullptr, device_a, device_b, c));
    std::vector<float> found = host_copy(c, 256);
    for (int row = 0; row < 16; row++) {
        for (int column = 0; column < 16; column++) {
            float sum = 0;
            for (int k = 0; k < 16; k++) {
                sum += (float)a[row * 16 + k] * (float)b[k * 16 + column];
            }
            assert_true(found[row * 16 + column] == sum);
        }
    }
    cudaFree(device_a);
    cudaFree(device_b);
    cudaFree(c);
}

static void test_matrices(void **)
{
    expect_product<half>();
    expect_product<__nv_bfloat16>();
}

// Copies of 8 bytes and of 4: from x to y, by way of shared memory.
static __global__ void few_kernel(const uint8_t *x, uint8_t *y)
{
    grid_dependency_wait();
    SHARED_ARRAY(uint8_t, bytes, 32 * 12);
    int lane = (int)threadIdx.x;
    copy_async_few<8>(bytes + 8 * lane, x + 8 * lane);
    copy_async_few<4>(bytes + 256 + 4 * lane, x + 256 + 4 * lane);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    for (int i = lane; i < 32 * 12; i += 32) {
        y[i] = bytes[i];
    }
}

static void test_small_copies(void **)
{
    uint8_t host[32 * 12], found[32 * 12];
    for (int i = 0; i < 32 * 12; i++) {
        host[i] = (uint8_t)(7 * i + i / 256);
    }
    uint8_t *x = device_array<uint8_t>(sizeof(host)), *y = device_array<uint8_t>(sizeof(host));
    cudaMemcpy(x, host, sizeof(host), cudaMemcpyHostToDevice);
    expect_run(LAUNCH(&failure, few_kernel, 1, 32, 0, nullptr, x, y));
    cudaMemcpy(found, y, sizeof(host), cudaMemcpyDeviceToHost);
    assert_memory_equal(found, host, sizeof(host));
    cudaFree(x);
    cudaFree(y);
}

static __global__ void add_kernel(float *x, float value)
{
    grid_dependency_wait();
    x[threadIdx.x] += value;
}

// A graph holds what was captured, in two streams; it runs as often as it is launched, on what its pointers then point to.
static void test_graph(void **)
{
    cudaStream_t stream, side;
    cudaEvent_t forked, joined;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float *x = device_array<float>(32), *pinned = nullptr;
    cudaMallocHost(&pinned, 32 * sizeof(float));
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreate(&forked);
    cudaEventCreate(&joined);
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(x, pinned, 32 * sizeof(float), cudaMemcpyHostToDevice, stream), cudaSuccess);
    assert_int_equal(cudaEventRecord(forked, stream), cudaSuccess);
    assert_int_equal(cudaStreamWaitEvent(side, forked), cudaSuccess);
    assert_int_equal(LAUNCH(&failure, add_kernel, 1, 32, 0, side, x, 1.0f), YALM_OK);
    assert_int_equal(cudaEventRecord(joined, side), cudaSuccess);
    assert_int_equal(cudaStreamWaitEvent(stream, joined), cudaSuccess);
    assert_int_equal(LAUNCH(&failure, add_kernel, 1, 32, 0, stream, x, 10.0f), YALM_OK);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    cudaGraphDestroy(graph);
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 32; j++) {
            pinned[j] = (float)(100 * i + j);
        }
        assert_int_equal(cudaGraphLaunch(exec, stream), cudaSuccess);
        assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
        std::vector<float> found = host_copy(x, 32);
        for (int j = 0; j < 32; j++) {
            assert_true(found[j] == (float)(100 * i + j + 11));
        }
    }
    cudaGraphExecDestroy(exec);
    cudaEventDestroy(forked);
    cudaEventDestroy(joined);
    cudaStreamDestroy(stream);
    cudaStreamDestroy(side);
    cudaFreeHost(pinned);
    cudaFree(x);
}

int main(void)
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_unwritten_memory), cmocka_unit_test(test_sum),
        cmocka_unit_test(test_shuffles),         cmocka_unit_test(test_folds_have_the_bits_of_shuffles),
        cmocka_unit_test(test_conversions),      cmocka_unit_test(test_matrices),
        cmocka_unit_test(test_small_copies),     cmocka_unit_test(test_graph),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
