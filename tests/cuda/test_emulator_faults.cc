// Kernels and calls that are wrong, each in one way that a GPU might let pass: the emulator finds every one.
#include "cuda_testing.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "block_state.h"
#include "sanitizers.h"

static yalm_error failure;

// ------------------------------------------------------------------------------------------ helpers

// The launch's kernel fails with a line that has these words in it; the device is of no use until it is reset.
#define expect_fault(launch, words)                                                                                            \
    do {                                                                                                                       \
        emulated_fault_quiet(true);                                                                                            \
        launch;                                                                                                                \
        check_fault(cudaDeviceSynchronize(), words);                                                                           \
    } while (0)

static void check_fault(cudaError_t code, const char *words)
{
    assert_int_equal(code, cudaErrorLaunchFailure);
    if (!strstr(emulated_fault_text(), words)) {
        fail_msg("found '%s', expected '%s'", emulated_fault_text(), words);
    }
    void *memory;
    assert_int_equal(cudaMalloc(&memory, 1), cudaErrorLaunchFailure);
    cudaDeviceReset();
    emulated_fault_quiet(false);
}

static int reset(void **)
{
    cudaDeviceReset();
    emulated_fault_quiet(false);
    return 0;
}

// body() ends its process, saying these words.
static void expect_death(const std::function<void()> &body, const char *words)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(nullptr);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        body();
        exit(0);
    }
    close(ends[1]);
    std::string said;
    char text[4096];
    for (ssize_t n; (n = read(ends[0], text, sizeof(text))) > 0;) {
        said.append(text, (size_t)n);
    }
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_not_equal(status, 0);
    if (said.find(words) == std::string::npos) {
        fail_msg("found '%.2000s', expected '%s'", said.c_str(), words);
    }
}

// What `kernel` makes of its one array of n floats in each of several orders: how many runs had the value wanted in all places.
template <class Kernel> static int n_right(const char *name, Kernel kernel, int n_threads, float wanted, int n_runs)
{
    int right = 0;
    for (int run = 0; run < n_runs; run++) {
        float *x = device_array<float>((size_t)n_threads);
        expect_run(launch_kernel(OVERLAP_OTHERS, &failure, name, kernel, dim3(1), dim3((unsigned)n_threads), 0, nullptr, x));
        bool all = true;
        for (float value : host_copy(x, (size_t)n_threads)) {
            all = all && value == wanted;
        }
        right += all;
        cudaFree(x);
    }
    return right;
}

enum { N_ORDERS = 10 };

// ------------------------------------------------------------------------------------------ barriers

static __global__ void barrier_missed_kernel(int n)
{
    grid_dependency_wait();
    if ((int)threadIdx.x < n) {
        __syncthreads();
    }
}

static __global__ void barriers_differ_kernel(void)
{
    grid_dependency_wait();
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

static __global__ void named_barrier_kernel(int n_expected, int n_coming)
{
    grid_dependency_wait();
    if ((int)threadIdx.x < n_coming) {
        barrier_sync(1, n_expected);
    }
}

static void test_barriers(void **)
{
    expect_run(LAUNCH(&failure, barrier_missed_kernel, 1, 64, 0, nullptr, 64));
    expect_fault(LAUNCH(&failure, barrier_missed_kernel, 1, 64, 0, nullptr, 63), "63 of 64 threads wait");
    expect_fault(LAUNCH(&failure, barriers_differ_kernel, 1, 64, 0, nullptr), "others wait at");
    expect_run(LAUNCH(&failure, named_barrier_kernel, 1, 96, 0, nullptr, 64, 64));
    expect_fault(LAUNCH(&failure, named_barrier_kernel, 1, 96, 0, nullptr, 64, 32), "deadlock");
    expect_fault(LAUNCH(&failure, named_barrier_kernel, 1, 96, 0, nullptr, 40, 40), "a multiple of 32");
}

// Each thread reads what its neighbour wrote, with and without the barrier between.
template <bool barrier> static __global__ void neighbour_kernel(float *x)
{
    grid_dependency_wait();
    SHARED_ARRAY(float, values, 256);
    values[threadIdx.x] = 1;
    if (barrier) {
        __syncthreads();
    }
    x[threadIdx.x] = values[(threadIdx.x + 1) % blockDim.x];
}

// The same within a warp.
template <bool barrier> static __global__ void lane_kernel(float *x)
{
    grid_dependency_wait();
    SHARED_ARRAY(float, values, 32);
    values[threadIdx.x] = 1;
    if (barrier) {
        __syncwarp();
    }
    x[threadIdx.x] = values[(threadIdx.x + 1) % 32];
}

// A buffer that is written again while others may still read it: wrong only where one warp overtakes another.
template <bool barrier> static __global__ void overtaking_kernel(float *x)
{
    grid_dependency_wait();
    SHARED_ARRAY(float, value, 1);
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        if (threadIdx.x == 0) {
            value[0] = (float)i;
        }
        __syncthreads();
        sum += value[0];
        if (barrier) {
            __syncthreads();
        }
    }
    x[threadIdx.x] = sum;
}

static void test_missing_barriers(void **)
{
    assert_int_equal(n_right("neighbour_kernel", neighbour_kernel<true>, 256, 1, N_ORDERS), N_ORDERS);
    assert_int_equal(n_right("neighbour_kernel", neighbour_kernel<false>, 256, 1, N_ORDERS), 0);
    assert_int_equal(n_right("lane_kernel", lane_kernel<true>, 32, 1, N_ORDERS), N_ORDERS);
    assert_int_equal(n_right("lane_kernel", lane_kernel<false>, 32, 1, N_ORDERS), 0);
    assert_int_equal(n_right("overtaking_kernel", overtaking_kernel<true>, 64, 6, N_ORDERS), N_ORDERS);
    assert_true(n_right("overtaking_kernel", overtaking_kernel<false>, 64, 6, N_ORDERS) <= N_ORDERS / 2);
}

// ------------------------------------------------------------------------------------------ warp operations

static __global__ void inactive_source_kernel(float *x)
{
    grid_dependency_wait();
    if (threadIdx.x < 16) {
        x[threadIdx.x] = __shfl_xor_sync(0xffff, 1.0f, 16);
    }
}

static __global__ void outside_mask_kernel(float *x)
{
    grid_dependency_wait();
    x[threadIdx.x] = __shfl_sync(0xffff, 1.0f, 0);
}

static __global__ void absent_lane_kernel(float *x)
{
    grid_dependency_wait();
    if (threadIdx.x != 7) {
        x[threadIdx.x] = __shfl_sync(0xffffffff, 1.0f, 0);
    }
}

static __global__ void different_operations_kernel(float *x)
{
    grid_dependency_wait();
    if (threadIdx.x % 2) {
        x[threadIdx.x] = (float)__any_sync(0xffffffff, 1);
    } else {
        x[threadIdx.x] = (float)__all_sync(0xffffffff, 1);
    }
}

static void test_warp_operations(void **)
{
    float *x = device_array<float>(64);
    expect_fault(LAUNCH(&failure, inactive_source_kernel, 1, 32, 0, nullptr, x), "does not take part");
    expect_fault(LAUNCH(&failure, outside_mask_kernel, 1, 32, 0, nullptr, x), "which is not in the mask");
    expect_fault(LAUNCH(&failure, absent_lane_kernel, 1, 32, 0, nullptr, x), "31 of 32 threads wait");
    expect_fault(LAUNCH(&failure, absent_lane_kernel, 1, 40, 0, nullptr, x), "in a warp of 8 lanes");
    expect_fault(LAUNCH(&failure, different_operations_kernel, 1, 32, 0, nullptr, x), "others of mask 0xffffffff wait at");
    cudaFree(x);
}

// ------------------------------------------------------------------------------------------ memory

static __global__ void write_kernel(float *x, int index)
{
    x[index] = 1;
    grid_dependency_wait();
}

static __global__ void read_kernel(float *x, int index)
{
    grid_dependency_wait();
    x[0] = x[index];
}

static __global__ void shared_kernel(float *x, int index)
{
    grid_dependency_wait();
    SHARED_ARRAY(float, array, 5);
    SHARED_DYNAMIC(float, second);
    float *first = array; // an index into the array itself is found by other means
    first[index] = 1;
    second[index] = 2;
    x[0] = first[index] + second[index];
}

static void test_bounds(void **)
{
    float *x = device_array<float>(100);
    expect_run(LAUNCH(&failure, write_kernel, 1, 1, 0, nullptr, x, 99));
    expect_run(LAUNCH(&failure, shared_kernel, 1, 1, 5 * sizeof(float), nullptr, x, 4));
    auto dies = [&](auto kernel, int index) {
        expect_death(
            [&] {
                launch_kernel(OVERLAP_OTHERS, &failure, "kernel", kernel, dim3(1), dim3(1), 5 * sizeof(float), nullptr, x,
                              index);
                cudaDeviceSynchronize();
            },
            EMULATED_ASAN ? "AddressSanitizer" : "emulated GPU: kernel, block (0, 0, 0), thread (0, 0, 0)");
    };
    if (EMULATED_ASAN) {
        dies(write_kernel, 100);
        dies(read_kernel, 100);
        dies(read_kernel, -1);
        dies(shared_kernel, 5);
        dies(shared_kernel, -1);
    } else {
        // Pages end where allocations do, to 256 bytes; what is written in between shows afterwards.
        dies(write_kernel, 2000);
        dies(read_kernel, 2000);
        dies(read_kernel, -2000);
        expect_fault(LAUNCH(&failure, write_kernel, 1, 1, 0, nullptr, x, 100), "before or after an allocation of 400 bytes");
        emulated_fault_quiet(true);
        assert_int_equal(cudaFree(x), cudaErrorLaunchFailure); // it still shows
        reset(nullptr);
        x = device_array<float>(100);
        expect_fault(LAUNCH(&failure, shared_kernel, 1, 1, 5 * sizeof(float), nullptr, x, 5), "has been overwritten");
    }
    cudaFree(x);
    expect_fault(LAUNCH(&failure, shared_kernel, 1, 1, 0, nullptr, x, 0),
                 "dynamic shared memory, of which the launch has none");
}

// Nothing has written what these read.
static __global__ void unwritten_kernel(float *x)
{
    grid_dependency_wait();
    SHARED_ARRAY(float, values, 32);
    x[threadIdx.x + 32] = values[threadIdx.x];
}

// What was computed from what nothing wrote decides where to write.
static __global__ void deciding_kernel(float *x)
{
    grid_dependency_wait();
    float sum = x[1] * 2 + 1;
    x[sum > 0 ? 2 : 3] = 5;
}

static void test_unwritten(void **)
{
    float *x = device_array<float>(64);
    if (EMULATED_MSAN) {
        auto decide = [&] { expect_run(LAUNCH(&failure, deciding_kernel, 1, 1, 0, nullptr, x)); };
        expect_death(decide, "use-of-uninitialized-value");
    }
    for (int run = 0; run < 2; run++) {
        expect_run(LAUNCH(&failure, unwritten_kernel, 2, 32, 0, nullptr, x));
        std::vector<float> host = host_copy(x, 64);
        sanitizer_written(host.data(), 64 * sizeof(float));
        for (float value : host) {
            assert_true(isnan(value));
        }
    }
    cudaFree(x);
}

// ------------------------------------------------------------------------------------------ asynchronous copies

// Sums of two rows of 128 floats, fetched as two groups; of these `left` may be under way when the first is read.
template <int left_first, int left_second> static __global__ void copies_kernel(float *x)
{
    grid_dependency_wait();
    SHARED_ARRAY(float, rows, 2 * 128);
    int lane = (int)threadIdx.x;
    for (int i = 0; i < 4; i++) {
        x[4 * lane + i] = 1;
    }
    for (int row = 0; row < 2; row++) {
        copy_async16(&rows[128 * row + 4 * lane], &x[4 * lane]);
        copy_async_commit();
    }
    copy_async_wait<left_first>();
    float sum = rows[4 * lane];
    copy_async_wait<left_second>();
    sum += rows[128 + 4 * lane];
    for (int i = 0; i < 4; i++) {
        x[4 * lane + i] = sum;
    }
}

template <class Kernel> static bool copies_arrive(Kernel kernel)
{
    float *x = device_array<float>(128);
    expect_run(launch_kernel(OVERLAP_OTHERS, &failure, "copies_kernel", kernel, dim3(1), dim3(32), 0, nullptr, x));
    bool arrived = host_copy(x, 128)[5] == 2;
    cudaFree(x);
    return arrived;
}

static void test_copies(void **)
{
    assert_true(copies_arrive(copies_kernel<1, 0>));
    assert_true(copies_arrive(copies_kernel<0, 0>));
    assert_false(copies_arrive(copies_kernel<2, 0>));
    assert_false(copies_arrive(copies_kernel<1, 1>));
}

// A matrix that the lanes fetch and then read together, whoever fetched it.
template <bool ordered> static __global__ void matrix_kernel(float *x)
{
    grid_dependency_wait();
    SHARED_ARRAY(float, rows, 128);
    unsigned fragment[4];
    copy_async16(&rows[4 * threadIdx.x], &x[4 * threadIdx.x]);
    copy_async_commit();
    copy_async_wait<0>();
    if (ordered) {
        __syncwarp();
    } else {
        (void)__shfl_sync(0xffffffff, 1, 0); // which brings lanes together but orders no memory
    }
    ldmatrix_x4(fragment, &rows[4 * threadIdx.x]);
    x[threadIdx.x] = (float)fragment[0];
}

static void test_unordered_copies(void **)
{
    float *x = device_copy(std::vector<float>(128));
    expect_run(LAUNCH(&failure, matrix_kernel<true>, 1, 32, 0, nullptr, x));
    expect_fault(LAUNCH(&failure, matrix_kernel<false>, 1, 32, 0, nullptr, x), "no __syncwarp() or barrier since");
    cudaFree(x);
}

// ------------------------------------------------------------------------------------------ bulk copies, and blocks that wait for each other

enum bulk_mistake { NO_MISTAKE, NOT_WAITED, ONE_ARRIVAL_MORE, ODD_BYTES, TOO_FEW_BYTES };

// A copy to shared memory, whose barrier has one arrival.
template <enum bulk_mistake MISTAKE> static __global__ void bulk_kernel(const float *x, float *y)
{
    grid_dependency_wait();
    SHARED_ARRAY(float, row, 64);
    SHARED_ARRAY(uint64_t, barrier, 1);
    if (threadIdx.x == 0) {
        arrivals_init(barrier, 1);
        for (int i = 0; MISTAKE == ONE_ARRIVAL_MORE && i < 2; i++) {
            arrivals_arrive(barrier);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        arrivals_expect(barrier, MISTAKE == TOO_FEW_BYTES ? 128 : 256);
        copy_bulk(row, x, MISTAKE == ODD_BYTES ? 250 : 256, barrier);
    }
    if (MISTAKE != NOT_WAITED) {
        arrivals_wait(barrier, 0);
    }
    y[threadIdx.x] = row[threadIdx.x];
}

template <enum bulk_mistake MISTAKE> static void expect_bulk_fault(const char *words)
{
    float *x = device_copy(std::vector<float>(64, 3.0f)), *y = device_array<float>(64);
    expect_fault(LAUNCH(&failure, bulk_kernel<MISTAKE>, 1, 64, 0, nullptr, x, y), words);
    cudaFree(x);
    cudaFree(y);
}

static void test_bulk_copies(void **)
{
    float *x = device_copy(std::vector<float>(64, 3.0f)), *y = device_array<float>(64);
    expect_run(LAUNCH(&failure, bulk_kernel<NO_MISTAKE>, 1, 64, 0, nullptr, x, y));
    assert_true(host_copy(y, 64)[63] == 3.0f);
    expect_run(LAUNCH(&failure, bulk_kernel<NOT_WAITED>, 1, 64, 0, nullptr, x, y));
    assert_true(host_copy(y, 64)[63] != 3.0f); // a copy lands when it is waited for
    cudaFree(x);
    cudaFree(y);
    expect_bulk_fault<ODD_BYTES>("expected a multiple of 16");
    expect_bulk_fault<ONE_ARRIVAL_MORE>("one arrival more");
    expect_bulk_fault<TOO_FEW_BYTES>("deadlock");
}

// Each block adds 1 to what the one before it in a ring hands it; the first begins. `told`: it says so, too.
static __global__ void ring_kernel(float *words, bool told)
{
    grid_dependency_wait();
    if (blockIdx.x > 0) {
        const float before = told_wait(words + blockIdx.x - 1, 1);
        told_store(words + blockIdx.x, before + 1024, 1);
    } else if (told) {
        told_store(words, 1024, 1);
    }
}

static void test_blocks_together(void **)
{
    float *words = device_copy(std::vector<float>(3));
    expect_run(LAUNCH_TOGETHER(&failure, ring_kernel, 3, 32, 0, nullptr, words, true));
    assert_true(fabsf(host_copy(words, 3)[2] - 3072) < 0.01f);
    cudaMemset(words, 0, 3 * sizeof(float));
    expect_fault(LAUNCH_TOGETHER(&failure, ring_kernel, 3, 32, 0, nullptr, words, false), "words of another block");
    cudaFree(words);
    words = device_copy(std::vector<float>(3));
    expect_fault(LAUNCH(&failure, ring_kernel, 3, 32, 0, nullptr, words, true), "need not run at once");
    cudaFree(words);
    words = device_copy(std::vector<float>(100));
    expect_fault(LAUNCH_TOGETHER(&failure, ring_kernel, 100, 32, 0, nullptr, words, true), "do not fit the device");
    cudaFree(words);
}

// ------------------------------------------------------------------------------------------ one kernel after another

static __global__ void no_wait_kernel(float *x)
{
    x[0] = 1;
}

static __global__ void produce_kernel(float *x)
{
    grid_dependency_wait();
    x[threadIdx.x] = 1;
}

// Reads what the kernel before it wrote, before or after it may.
template <bool early> static __global__ void consume_kernel(const float *x, float *y)
{
    float value = early ? x[threadIdx.x] : 0;
    grid_dependency_wait();
    y[threadIdx.x] = early ? value : x[threadIdx.x];
}

static void test_dependencies(void **)
{
    float *x = device_array<float>(32), *y = device_array<float>(32);
    expect_fault(LAUNCH(&failure, no_wait_kernel, 1, 1, 0, nullptr, x), "without grid_dependency_wait");
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    for (int early = 0; early < 2; early++) {
        cudaMemset(x, 0, 32 * sizeof(float));
        assert_int_equal(LAUNCH(&failure, produce_kernel, 1, 32, 0, stream, x), YALM_OK);
        auto consume = early ? consume_kernel<true> : consume_kernel<false>;
        assert_int_equal(LAUNCH(&failure, consume, 1, 32, 0, stream, x, y), YALM_OK);
        assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
        assert_true(host_copy(y, 32)[3] == (early ? 0 : 1));
    }
    cudaStreamDestroy(stream);
    cudaFree(x);
    cudaFree(y);
}

// ------------------------------------------------------------------------------------------ the host's side

static void test_missing_synchronisation(void **)
{
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    float *x = device_copy(std::vector<float>{1}), *pinned = nullptr;
    cudaMallocHost(&pinned, sizeof(float));
    *pinned = 5;
    assert_int_equal(cudaMemcpyAsync(pinned, x, sizeof(float), cudaMemcpyDeviceToHost, stream), cudaSuccess);
    assert_true(*pinned == 5); // the copy has not happened
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_true(*pinned == 1);
    if (!EMULATED_ASAN) {
        expect_death([&] { *pinned = x[0]; }, "device memory is touched by the host");
    }
    cudaStreamDestroy(stream);
    cudaFreeHost(pinned);
    cudaFree(x);
}

// Each call that a capture forbids spoils it.
static void test_capture(void **)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    float *x = device_array<float>(32), host = 0;
    void *memory;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    const std::function<cudaError_t()> forbidden[] = {
        [&] { return cudaMalloc(&memory, 4); },
        [&] { return cudaFree(x); },
        [&] { return cudaStreamSynchronize(stream); },
        [&] { return cudaDeviceSynchronize(); },
        [&] { return cudaMemcpyAsync(x, &host, 4, cudaMemcpyHostToDevice, stream); }, // pageable
        [&] { return cudaMemcpy(x, &host, 4, cudaMemcpyHostToDevice); },
    };
    for (const auto &call : forbidden) {
        assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
        assert_int_equal(call(), cudaErrorStreamCaptureUnsupported);
        assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    }
    // Work in another stream that the first never waits for.
    cudaStream_t side;
    cudaEvent_t forked;
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreate(&forked);
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    cudaEventRecord(forked, stream);
    cudaStreamWaitEvent(side, forked);
    assert_int_equal(LAUNCH(&failure, produce_kernel, 1, 32, 0, side, x), YALM_OK);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
    cudaEventDestroy(forked);
    cudaStreamDestroy(side);
    cudaStreamDestroy(stream);
    cudaFree(x);
}

static __global__ void overrun_kernel(int *x)
{
    grid_dependency_wait();
    x[threadIdx.x] = 1;
    __syncthreads(); // a later thread is on a stack of its own
    if (threadIdx.x == 40) {
        memset(block->running->stack, 0, 4);
    }
}

// Seen once the grid has ended; then the device is as it was.
static void test_stacks(void **)
{
    int *x = device_array<int>(64);
    expect_fault(LAUNCH(&failure, overrun_kernel, 3, 64, 0, nullptr, x), "overrun_kernel: a thread's stack has been overrun");
    float *y = device_array<float>(32);
    assert_int_equal(LAUNCH(&failure, produce_kernel, 1, 32, 0, nullptr, y), YALM_OK);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    cudaFree(x);
    cudaFree(y);
}

static void expect_call_fault(cudaError_t code, const char *words)
{
    assert_int_not_equal(code, cudaSuccess);
    if (!strstr(emulated_fault_text(), words)) {
        fail_msg("found '%s', expected '%s'", emulated_fault_text(), words);
    }
    cudaDeviceReset();
}

static void test_calls(void **)
{
    emulated_fault_quiet(true);
    float *x = device_array<float>(4), *freed = device_array<float>(4), host[8] = {};
    cudaFree(freed);
    expect_call_fault(cudaFree(freed), "freed before");
    expect_call_fault(cudaFree(x + 1), "no such allocation");
    expect_call_fault(cudaFreeHost(x), "no such allocation");
    expect_call_fault(cudaMemcpy(x, host, sizeof(host), cudaMemcpyHostToDevice),
                      "run past the end of an allocation of 16 bytes");
    expect_call_fault(cudaMemcpy(x, host, 16, cudaMemcpyDeviceToDevice), "is host memory, not device");
    expect_call_fault(cudaMemcpy(x, host, 16, cudaMemcpyDeviceToHost), "is device memory, not host");
    expect_call_fault(cudaMemset(x, 0, 17), "run past the end");
    emulated_fault_quiet(false);
    expect_fault(LAUNCH(&failure, produce_kernel, 1, 1025, 0, nullptr, x), "out of the device's range");
    expect_death([&] { exit(0); }, "were never freed");
    cudaFree(x);
}

int main(void)
{
    const CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_barriers, reset),         cmocka_unit_test_teardown(test_missing_barriers, reset),
        cmocka_unit_test_teardown(test_warp_operations, reset),  cmocka_unit_test_teardown(test_bounds, reset),
        cmocka_unit_test_teardown(test_unwritten, reset),        cmocka_unit_test_teardown(test_copies, reset),
        cmocka_unit_test_teardown(test_dependencies, reset),     cmocka_unit_test_teardown(test_missing_synchronisation, reset),
        cmocka_unit_test_teardown(test_capture, reset),          cmocka_unit_test_teardown(test_calls, reset),
        cmocka_unit_test_teardown(test_unordered_copies, reset), cmocka_unit_test_teardown(test_bulk_copies, reset),
        cmocka_unit_test_teardown(test_blocks_together, reset),  cmocka_unit_test_teardown(test_stacks, reset),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
