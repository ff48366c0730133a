// Which kernels an x86-64 can run. The compiler's run-time checks include the operating system's part: whether it saves
// the wide registers.
#include <cpuid.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/sparse.h"
#include "cpu/machine/isa.h"

// Conversion of fp16, which not every compiler's run-time checks know by name.
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

// Nor this.
static bool has_avx512bf16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5);
}

// Nor this: VNNI with AVX2's vectors.
static bool has_avxvnni(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

// Tiles are large, so Linux lets a process use them only if it has asked to; its threads then may, too.
static bool has_amx(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; // arch_prctl's ARCH_REQ_XCOMP_PERM, and the component
    const unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25;
    unsigned a, b, c, d;
    return matmul16_tiles.size && __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & bf16 && d & tile && d & int8 &&
           has_avx512bf16() && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static bool has_vnni(const struct cpu_kernels *kernels)
{
    return kernels == &cpu_kernels_avx512vnni || kernels == &cpu_kernels_amx;
}

static bool can_run(const struct cpu_kernels *kernels)
{
    __builtin_cpu_init();
    if (has_vnni(kernels) && !__builtin_cpu_supports("avx512vnni"))
        return false;
    if (kernels == &cpu_kernels_amx && !has_amx())
        return false;
    if (has_vnni(kernels) || kernels == &cpu_kernels_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               has_f16c();
    if (kernels == &cpu_kernels_avx2 || kernels == &cpu_kernels_avxvnni)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    return true;
}

const struct cpu_kernels *const *cpu_kernels_of_machine(void)
{
    // Best first: what a machine can run is always a tail of one of these lists, for each implies the rest, but AVX-512 not
    // AVX-VNNI.
    static const struct cpu_kernels *const all[] = {&cpu_kernels_amx,
                                                    &cpu_kernels_avx512vnni,
                                                    &cpu_kernels_avx512,
                                                    &cpu_kernels_avxvnni,
                                                    &cpu_kernels_avx2,
                                                    &cpu_kernels_scalar,
                                                    NULL};
    static const struct cpu_kernels *const others[] = {&cpu_kernels_amx,  &cpu_kernels_avx512vnni, &cpu_kernels_avx512,
                                                       &cpu_kernels_avx2, &cpu_kernels_scalar,     NULL};
    const struct cpu_kernels *const *list = has_avxvnni() ? all : others;
    while (!can_run(*list))
        list++;
    return list;
}

// Measured: a Zen 5 reads quantised rows at 95 to 100 % of its limit two at a time, and at 87 four at a time. An Emerald Rapids
// is faster with four. A Zen 4, whose L1 is a third smaller, loses up to a quarter where all that is read passes through that
// (docs/kernels.md, what L1 keeps). An Emerald Rapids reads runs at 95 % of its limit when they are fetched to L2 and at 79
// when to L1, whose line buffers are few; to a Zen 5 it makes no difference.
struct fetching machine_fetching(void)
{
    enum { SMALL_L1 = 32 << 10 };
    __builtin_cpu_init();
    const bool amd = __builtin_cpu_is("amd");
    const long l1 = sysconf(_SC_LEVEL1_DCACHE_SIZE); // 0 or -1 where it is not known
    return (struct fetching){.streams = amd ? 2 : 4, .to_l2 = amd && l1 > 0 && l1 <= SMALL_L1, .runs_to_l2 = !amd};
}

const struct nomad_kernels *nomad_kernels_select(const struct cpu_kernels *kernels)
{
    __builtin_cpu_init();
    if (has_vnni(kernels) && __builtin_cpu_supports("avx512vbmi"))
        return &nomad_kernels_avx512vbmi;
    return kernels->nomad;
}

const struct matmul16 *matmul16_of(const struct cpu_kernels *kernels, enum matmul16_form form)
{
    static const struct matmul16 *const all[MATMUL16_FORMS] = {
        [MATMUL16_SHORT] = &matmul16_short,
        [MATMUL16_INTEGERS] = &matmul16_integers,
        [MATMUL16_TILES] = &matmul16_tiles,
        [MATMUL16_TILES_ROUND] = &matmul16_tiles_round,
        [MATMUL16_TILES_BYTES] = &matmul16_tiles_bytes,
    };
    return (form <= MATMUL16_INTEGERS ? has_vnni(kernels) : kernels == &cpu_kernels_amx) ? all[form] : NULL;
}

const struct fixed_attention *fixed_attention_select(const struct cpu_kernels *kernels, yalm_activations activations)
{
    return has_vnni(kernels) && activations != YALM_ACTIVATIONS_FP32 ? &fixed_attention_avx512vnni : NULL;
}

const struct byte_attention *byte_attention_select(const struct cpu_kernels *kernels, yalm_activations activations,
                                                   enum kv_type type, int head_dim)
{
    const struct byte_attention *few = &byte_attention_avx512vnni;
    const bool has = has_vnni(kernels) && activations != YALM_ACTIVATIONS_FP32 && few->attend[type] &&
                     head_dim <= few->most_dim && head_dim % few->dim_step == 0;
    return has ? few : NULL;
}

void (*score_select(const struct cpu_kernels *kernels, yalm_activations activations,
                    enum copy_type type))(const struct score_args *args)
{
    const bool bytes = type == COPY_INT8 && has_vnni(kernels) && activations != YALM_ACTIVATIONS_FP32;
    return bytes ? avx512vnni_sparq_score : kernels->sparse->score[type];
}
