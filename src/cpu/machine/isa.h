// Which kernels this machine can run, and how it best reads.
#pragma once
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/sparse.h"
#include "yalm.h"

// "auto", or a name. NULL where the name is unknown or this machine cannot run it.
const struct cpu_kernels *cpu_kernels_select(const char *isa);

// What the machine can run: a list, best first, NULL-terminated.
const struct cpu_kernels *const *cpu_kernels_of_machine(void);

// The same, from the one on that the environment's YALM_ISA names: a machine that has more then computes as a lesser one does.
// Empty where the machine cannot run that one.
const struct cpu_kernels *const *cpu_kernels_usable(void);

// Those of the instruction set, or better ones where it is the best one and the machine has more (VBMI besides VNNI).
const struct nomad_kernels *nomad_kernels_select(const struct cpu_kernels *kernels);

// NULL where the instruction set has none.
const struct matmul16 *matmul16_of(const struct cpu_kernels *kernels, enum matmul16_form form);

// NULL where there is no VNNI, or activations are fp32.
const struct fixed_attention *fixed_attention_select(const struct cpu_kernels *kernels, yalm_activations activations);

// Likewise, also of a machine that has some, where heads are not of such a size.
const struct byte_attention *byte_attention_select(const struct cpu_kernels *kernels, yalm_activations activations,
                                                   enum kv_type type, int head_dim);

// By what the scores of a copy are computed: the table's function; of an int8 copy, where the machine has VNNI and
// `activations` is not fp32, dot products of bytes (vnni/sparq.c), for which each query is rounded to 127ths of its largest
// component.
void (*score_select(const struct cpu_kernels *kernels, yalm_activations activations,
                    enum copy_type type))(const struct score_args *args);

struct fetching machine_fetching(void);
