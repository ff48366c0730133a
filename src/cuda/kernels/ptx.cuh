// Instructions that CUDA C++ has no name for, as the PTX ISA documents them (its section in brackets). The emulator has twins
// of all.
#pragma once

#ifndef __CUDACC__
#include <emulated_ptx.h>
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Waits until the grids before this one in the stream have ended and what they wrote can be read [griddepcontrol]. Compute
// capability 9.0 and later overlap kernels; on others a kernel starts when its predecessor has ended.
static __device__ __forceinline__ void grid_dependency_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next grid in the stream may start as soon as every block has come here or ended.
static __device__ __forceinline__ void grid_dependency_launch(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Barrier `id` (1 … 15; 0 is __syncthreads') for n_threads of the block, a multiple of 32 [bar.sync].
static __device__ __forceinline__ void barrier_sync(int id, int n_threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

// 16 bytes that are read once and by nobody else: constant for the kernel, past the L1 cache [ld.global.nc].
static __device__ __forceinline__ uint4 load_stream(const uint4 *address)
{
    uint4 value;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
        : "l"(address));
    return value;
}

// The 128 bytes around an address set out for the L2 cache [prefetch].
static __device__ __forceinline__ void prefetch_l2(const void *address)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Copies 16 bytes, both addresses 16-byte aligned, from global to shared memory while the thread goes on [cp.async]. Where not
// `valid` nothing is read and zeros arrive.
static __device__ __forceinline__ void copy_async16(void *shared, const void *global, bool valid = true)
{
    unsigned address = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(valid ? 16 : 0) : "memory");
}

// The same of 4 or 8 bytes, aligned to their number; these go by way of the L1 cache.
template <int BYTES> static __device__ __forceinline__ void copy_async_few(void *shared, const void *global)
{
    static_assert(BYTES == 4 || BYTES == 8, "what the instruction has, beside 16");
    unsigned address = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(global), "n"(BYTES) : "memory");
}

// The copies that this thread has begun since the last commit are one group.
static __device__ __forceinline__ void copy_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until at most N of this thread's youngest groups are under way. Other threads see the copies after a barrier.
template <int N> static __device__ __forceinline__ void copy_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Loads four 8 x 8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8 and gets in fragment[i]
// elements (l / 4, 2 (l % 4)) and the next of matrix i [ldmatrix]; transposed: (2 (l % 4), l / 4) and the next row's.
static __device__ __forceinline__ void ldmatrix_x4(unsigned (&fragment)[4], const void *shared_row)
{
    unsigned address = (unsigned)__cvta_generic_to_shared(shared_row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&fragment)[4], const void *shared_row)
{
    unsigned address = (unsigned)__cvta_generic_to_shared(shared_row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address)
                 : "memory");
}

// sum += A B on the tensor cores: A (16, 16) by rows, B (16, 8) by columns, of T = half or __nv_bfloat16; sums in fp32
// [mma.m16n8k16]. With g = lane / 4, t = lane % 4, and two elements in each register, the lower first:
//   a[0] (g, 2t) (g, 2t+1)   a[1] (g+8, 2t) …   a[2] (g, 2t+8) …   a[3] (g+8, 2t+8) …
//   b[0] (2t, g) (2t+1, g)   b[1] (2t+8, g) (2t+9, g)
//   sum[0] (g, 2t)  sum[1] (g, 2t+1)  sum[2] (g+8, 2t)  sum[3] (g+8, 2t+1)
template <class T>
static __device__ __forceinline__ void mma_m16n8k16(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]);

template <> __device__ __forceinline__ void mma_m16n8k16<half>(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// sum += A B in integers: A (16, 32) by rows, B (32, 8) by columns, signed bytes, four in each register, the lowest first
// [mma.m16n8k32]. With g = lane / 4, t = lane % 4:
//   a[0] (g, 4t) … (g, 4t+3)   a[1] (g+8, 4t) …   a[2] (g, 4t+16) …   a[3] (g+8, 4t+16) …
//   b[0] (4t, g) … (4t+3, g)   b[1] (4t+16, g) …
//   sum as mma_m16n8k16's
static __device__ __forceinline__ void mma_m16n8k32_s8(int (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ------------------------------------------------------------------------------- arrivals, bulk copies (capability 9.0)

// A barrier in shared memory for n_arrivals in each of its phases [mbarrier.init]. One thread makes it; others use it behind a
// barrier of the block.
static __device__ __forceinline__ void arrivals_init(uint64_t *barrier, unsigned n_arrivals)
{
#if __CUDA_ARCH__ >= 900
    const unsigned address = (unsigned)__cvta_generic_to_shared(barrier);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(n_arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

static __device__ __forceinline__ void arrivals_arrive(uint64_t *barrier)
{
#if __CUDA_ARCH__ >= 900
    const unsigned address = (unsigned)__cvta_generic_to_shared(barrier);
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
#endif
}

// Arrives, and the phase besides waits for `bytes` of copies [mbarrier.arrive.expect_tx].
static __device__ __forceinline__ void arrivals_expect(uint64_t *barrier, unsigned bytes)
{
#if __CUDA_ARCH__ >= 900
    const unsigned address = (unsigned)__cvta_generic_to_shared(barrier);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
#endif
}

// Until the phase of this parity has ended: phases are 0, 1, 0, … [mbarrier.try_wait]. What arrived before can be read then.
static __device__ __forceinline__ void arrivals_wait(uint64_t *barrier, unsigned parity)
{
#if __CUDA_ARCH__ >= 900
    const unsigned address = (unsigned)__cvta_generic_to_shared(barrier);
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(address),
                 "r"(parity)
                 : "memory");
#endif
}

// Copies `bytes`, which like both addresses is a multiple of 16, from global to shared memory, and lets the barrier's phase
// know [cp.async.bulk].
static __device__ __forceinline__ void copy_bulk(void *shared, const void *global, unsigned bytes, uint64_t *barrier)
{
#if __CUDA_ARCH__ >= 900
    const unsigned to = (unsigned)__cvta_generic_to_shared(shared), told = (unsigned)__cvta_generic_to_shared(barrier);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(global), "r"(bytes), "r"(told)
                 : "memory");
#endif
}

// ------------------------------------------------------------------------------- words that tell when they are there

// Between blocks of one grid, all of which are there at once (LAUNCH_TOGETHER): each word in global memory carries its own
// news, so neither fences nor counters are needed. A float's lowest bit is the parity of how often it has been written: who
// reads it knows the parity that he waits for.
static __device__ __forceinline__ void told_store(float *to, float value, unsigned parity)
{
    const unsigned word = (__float_as_uint(value) & ~1u) | parity;
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}

static __device__ __forceinline__ float told_wait(const float *from, unsigned parity)
{
    unsigned word;
    for (;;) {
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
        if ((word & 1) == parity)
            break;
        __nanosleep(20);
    }
    return __uint_as_float(word);
}

// N times four words, each at a multiple of 16 bytes; zeros from NULL. All loads are on their way together; where they are many
// the last word alone is asked for until it is there, lest asking takes what bandwidth the others need.
template <int N>
static __device__ __forceinline__ void told_wait_fours(float4 (&to)[N], const float *const (&from)[N], unsigned parity)
{
    unsigned missing;
    do {
        if (N > 4 && from[N - 1])
            told_wait(from[N - 1] + 3, parity);
        uint4 words[N];
        missing = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            words[i] = {parity, parity, parity, parity};
            if (from[i])
                asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(words[i].x), "=r"(words[i].y), "=r"(words[i].z), "=r"(words[i].w)
                             : "l"(from[i])
                             : "memory");
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            missing |= (words[i].x ^ parity) | (words[i].y ^ parity) | (words[i].z ^ parity) | (words[i].w ^ parity);
            to[i] = {__uint_as_float(words[i].x), __uint_as_float(words[i].y), __uint_as_float(words[i].z),
                     __uint_as_float(words[i].w)};
            if (!from[i])
                to[i] = {0, 0, 0, 0};
        }
    } while (missing & 1);
}

// Three floats and a number that says which writing this is, 16 bytes at once [ld and st .b128].
static __device__ __forceinline__ void told_store_part(float4 *to, float a, float b, float c, unsigned number)
{
#if __CUDA_ARCH__ >= 900
    const uint64_t low = __float_as_uint(a) | (uint64_t)__float_as_uint(b) << 32,
                   high = __float_as_uint(c) | (uint64_t)number << 32;
    asm volatile("{\n"
                 ".reg .b128 part;\n"
                 "mov.b128 part, {%1, %2};\n"
                 "st.relaxed.gpu.global.b128 [%0], part;\n"
                 "}" ::"l"(to),
                 "l"(low), "l"(high)
                 : "memory");
#endif
}

// N of them, `stride` float4s apart; those beyond n are zeros.
template <int N>
static __device__ __forceinline__ void told_wait_parts(float4 (&to)[N], const float4 *from, size_t stride, int n,
                                                       unsigned number)
{
#if __CUDA_ARCH__ >= 900
    bool missing;
    do {
        uint64_t low[N], high[N];
        missing = false;
#pragma unroll
        for (int i = 0; i < N; i++) {
            low[i] = 0;
            high[i] = (uint64_t)number << 32;
            if (i < n)
                asm volatile("{\n"
                             ".reg .b128 part;\n"
                             "ld.relaxed.gpu.global.b128 part, [%2];\n"
                             "mov.b128 {%0, %1}, part;\n"
                             "}"
                             : "=l"(low[i]), "=l"(high[i])
                             : "l"(from + i * stride)
                             : "memory");
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            missing = missing || (unsigned)(high[i] >> 32) != number;
            to[i] = {__uint_as_float((unsigned)low[i]), __uint_as_float((unsigned)(low[i] >> 32)),
                     __uint_as_float((unsigned)high[i]), 0};
        }
    } while (missing);
#endif
}
#endif
