// The emulator itself: kernels that are right give what CUDA defines, and each fault that it promises to find is found.
#include "cuda/testing.h"

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

static __global__ void shuffles_kernel(int *out)
{
    grid_dependency_wait();
    int lane = (int)threadIdx.x;
    int *row = out + lane * 8;
    row[0] = __shfl_sync(0xffffffff, lane, 5);
    row[1] = __shfl_sync(0xffffffff, lane, 9, 8);
    row[2] = __shfl_up_sync(0xffffffff, lane, 3);
    row[3] = __shfl_down_sync(0xffffffff, lane, 3, 16);
    row[4] = __shfl_xor_sync(0xffffffff, lane, 1);
    row[5] = (int)__ballot_sync(0xffffffff, lane % 3 == 0);
    row[6] = __reduce_max_sync(0xffffffff, lane * 7 % 32);
    row[7] = lane < 8 ? __shfl_xor_sync(0xff, lane, 7) : -1;
}

static void test_shuffles(void **)
{
    int *out = device_array<int>(32 * 8), host[32][8];
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
    }
    cudaFree(out);
}

int main(void)
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_sum), cmocka_unit_test(test_shuffles)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
