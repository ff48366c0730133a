// Which kernels an aarch64 can run: all have NEON, and conversion of fp16 with it.
#include <sys/auxv.h>

#include <asm/hwcap.h>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/sparse.h"
#include "cpu/machine/isa.h"

const struct cpu_kernels *const *cpu_kernels_of_machine(void)
{
    static const struct cpu_kernels *const all[] = {&cpu_kernels_neoni8mm, &cpu_kernels_neondot, &cpu_kernels_neon,
                                                    &cpu_kernels_scalar, NULL};
    if (!(getauxval(AT_HWCAP) & HWCAP_ASIMDDP))
        return all + 2;
    return getauxval(AT_HWCAP2) & HWCAP2_I8MM ? all : all + 1;
}

// Not measured.
struct fetching machine_fetching(void)
{
    return (struct fetching){.streams = 4, .runs_to_l2 = true};
}

// Nothing here multiplies many tokens, or attends, in integers but what every instruction set does.

const struct nomad_kernels *nomad_kernels_select(const struct cpu_kernels *kernels)
{
    return kernels->nomad;
}

const struct matmul16 *matmul16_of(const struct cpu_kernels *kernels, enum matmul16_form form)
{
    return (void)kernels, (void)form, NULL;
}

const struct fixed_attention *fixed_attention_select(const struct cpu_kernels *kernels, yalm_activations activations)
{
    return (void)kernels, (void)activations, NULL;
}

const struct byte_attention *byte_attention_select(const struct cpu_kernels *kernels, yalm_activations activations,
                                                   enum kv_type type, int head_dim)
{
    return (void)kernels, (void)activations, (void)type, (void)head_dim, NULL;
}

void (*score_select(const struct cpu_kernels *kernels, yalm_activations activations,
                    enum copy_type type))(const struct score_args *args)
{
    return (void)activations, kernels->sparse->score[type];
}
