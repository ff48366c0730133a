#include "cpu/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cpu/machine/isa.h"

type_set plan_types(const struct model_config *config, const struct model_weights *w)
{
    return weights_layer_types(config, w) | type_bit(w->classifier.dtype);
}

static bool any_of(type_set types, bool quantised)
{
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        if (types & type_bit((enum dtype)type) && (dtype_group_bytes[type] > 0) == quantised)
            return true;
    return false;
}

// Measured on real models: docs/quantisation.md, "Tokens as 8-bit integers".
static yalm_activations coarsest(type_set of_layers)
{
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        if (of_layers & type_bit((enum dtype)type) && dtype_group_bytes[type] && dtype_group_bytes[type] * 8 <= 5 * QUANT_GROUP)
            return YALM_ACTIVATIONS_INT8;
    return YALM_ACTIVATIONS_INT16;
}

yalm_status plan_resolve(yalm_activations *activations, const struct model_config *config, const struct model_weights *weights,
                         yalm_error *error)
{
    const type_set types = plan_types(config, weights);
    if (*activations == YALM_ACTIVATIONS_AUTO)
        *activations = coarsest(weights_layer_types(config, weights));
    if (*activations == YALM_ACTIVATIONS_INT8 && !any_of(types, true))
        return error_set(error, YALM_USAGE, "activations: found int8, which multiplies quantised weights: this model has none");
    if (*activations == YALM_ACTIVATIONS_FP32 && !any_of(types, false))
        return error_set(
            error, YALM_USAGE,
            "activations: found fp32, which multiplies fp32, fp16, bf16 and fp8 weights: this model has none of these");
    return YALM_OK;
}

// Kernels of many tokens are chosen for all of a model's matrices together, since those of a step share its tokens.
static enum matrices common_kind(type_set types)
{
    if (!any_of(types, false))
        return MATRICES_QUANTISED;
    if (any_of(types, true) || types & type_bit(DTYPE_FP32))
        return MATRICES_ANY;
    return types & type_bit(DTYPE_FP16) ? MATRICES_FP16 : MATRICES_BF16;
}

// Those that would begin no earlier than this one never come to their turn.
static void add(struct product_plan *plan, enum dtype type, struct multiplier multiplier)
{
    int *n = &plan->n_by[type];
    if (multiplier.least > plan->chunk && *n > 0)
        return;
    while (*n > 1 && plan->by[type][*n - 1].least >= multiplier.least)
        --*n;
    plan->by[type][(*n)++] = multiplier;
}

static void add_halves(struct product_plan *plan, enum dtype type, const struct half_kernels *half)
{
    if (!half || !half->product[unpacked_type(type)])
        return;
    add_halves(plan, type, half->few);
    add(plan, type, (struct multiplier){half->least, TOKENS_HALVES, half});
}

// Of all types, not the model's alone: so it takes no reading of the weights.
static void add_type(struct product_plan *plan, enum dtype type)
{
    if (dtype_group_bytes[type]) {
        add(plan, type, (struct multiplier){1, TOKENS_QUANTISED, NULL});
    } else {
        add(plan, type, (struct multiplier){1, TOKENS_FLOAT, NULL});
        add(plan, type, (struct multiplier){plan->kernels->matvec_max + 1, TOKENS_PACKED, NULL});
    }
    add_halves(plan, type, plan->half);
}

struct product_plan plan_products(const struct cpu_kernels *kernels, yalm_activations activations, type_set types, int chunk)
{
    struct product_plan plan = {
        .kernels = kernels,
        .quant = activations == YALM_ACTIVATIONS_INT8 ? kernels->quant8 : kernels->quant,
        .half = half_kernels_select(kernels, activations, common_kind(types)),
        .types = types,
        .chunk = chunk,
        .most_few = kernels->matvec_max,
    };
    for (const struct half_kernels *half = plan.half; half; half = half->few)
        if (half->least <= plan.most_few)
            plan.most_few = half->least - 1;
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        add_type(&plan, (enum dtype)type);
    return plan;
}

const struct multiplier *plan_multiplier(const struct product_plan *plan, enum dtype type, int n, bool apart)
{
    int i = apart ? 0 : plan->n_by[type] - 1;
    while (i > 0 && n < plan->by[type][i].least)
        i--;
    return &plan->by[type][i];
}

unsigned plan_forms(const struct product_plan *plan, type_set types, int n, bool apart)
{
    unsigned forms = 0;
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        if (types & type_bit((enum dtype)type))
            forms |= 1u << plan_multiplier(plan, (enum dtype)type, n, apart)->form;
    return forms;
}

unsigned plan_all_forms(const struct product_plan *plan, type_set types)
{
    unsigned forms = 0;
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        for (int i = 0; types & type_bit((enum dtype)type) && i < plan->n_by[type]; i++)
            forms |= 1u << plan->by[type][i].form;
    return forms;
}

static int most_of(const struct product_plan *plan, enum dtype type, int i)
{
    return i + 1 < plan->n_by[type] ? plan->by[type][i + 1].least - 1 : plan->chunk;
}

int plan_most(const struct product_plan *plan, enum token_form form)
{
    int most = 0;
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        for (int i = 0; plan->types & type_bit((enum dtype)type) && i < plan->n_by[type]; i++)
            if (plan->by[type][i].form == form && most_of(plan, (enum dtype)type, i) > most)
                most = most_of(plan, (enum dtype)type, i);
    return most;
}

size_t plan_halves_bytes(const struct product_plan *plan, int cols)
{
    size_t bytes = 0;
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        for (int i = 0; plan->types & type_bit((enum dtype)type) && i < plan->n_by[type]; i++) {
            const struct multiplier *m = &plan->by[type][i];
            const size_t size = m->half ? m->half->size(most_of(plan, (enum dtype)type, i), cols) : 0;
            bytes = size > bytes ? size : bytes;
        }
    return bytes;
}

size_t plan_scratch(const struct product_plan *plan)
{
    size_t bytes = plan->kernels->matmul_scratch > plan->quant->scratch ? plan->kernels->matmul_scratch : plan->quant->scratch;
    for (const struct half_kernels *half = plan->half; half; half = half->few)
        bytes = half->scratch > bytes ? half->scratch : bytes;
    return bytes;
}

static const char *form_name(const struct product_plan *plan, const struct multiplier *m)
{
    if (m->half)
        return m->half->name;
    if (m->form != TOKENS_QUANTISED)
        return "float32";
    return plan->quant == plan->kernels->quant8 ? "8-bit integers" : "16-bit integers";
}

static bool alike(const struct product_plan *plan, int a, int b)
{
    return plan->n_by[a] == plan->n_by[b] && !memcmp(plan->by[a], plan->by[b], plan->n_by[a] * sizeof *plan->by[a]);
}

// What would not fit is counted, as by snprintf().
struct text {
    char *to;
    size_t room, length;
};

__attribute__((format(printf, 2, 3))) static void append(struct text *text, const char *format, ...)
{
    const size_t at = text->length < text->room ? text->length : text->room;
    va_list args;
    va_start(args, format);
    text->length += (size_t)vsnprintf(text->to + at, text->room - at, format, args);
    va_end(args);
}

// A line. Kernels that differ in the order of floats alone are named once.
static void append_kind(struct text *text, const struct product_plan *plan, type_set types, int like)
{
    const char *before = text->length ? "\n" : "";
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        if (types & type_bit((enum dtype)type)) {
            append(text, "%s%s", before, dtype_names[type]);
            before = ", ";
        }
    const char *name = form_name(plan, &plan->by[like][0]);
    append(text, ": tokens as %s", name);
    for (int i = 1; i < plan->n_by[like]; i++) {
        const char *next = form_name(plan, &plan->by[like][i]);
        if (strcmp(next, name) != 0)
            append(text, "; %d and more as %s", plan->by[like][i].least, next);
        name = next;
    }
}

size_t plan_text(const struct product_plan *plan, char *to, size_t room)
{
    struct text text = {to, room, 0};
    type_set left = plan->types;
    for (int type = 0; type < DTYPE_WEIGHTS; type++) {
        type_set same = 0;
        for (int other = type; left & type_bit((enum dtype)type) && other < DTYPE_WEIGHTS; other++)
            if (left & type_bit((enum dtype)other) && alike(plan, type, other))
                same |= type_bit((enum dtype)other);
        left &= ~same;
        if (same)
            append_kind(&text, plan, same, type);
    }
    return text.length;
}
