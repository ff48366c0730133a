#include "cpu/plan.h"

#include <limits.h>
#include <string.h>

#include "cpu/machine/isa.h"
#include "util/listing.h"

static bool any_of(type_set types, bool quantised)
{
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        if (types & type_bit((enum dtype)type) && (dtype_group_bytes[type] > 0) == quantised)
            return true;
    return false;
}

// Whether rounding to this type loses so much that tokens of 8 bits lose little beside it. Measured on real models:
// docs/quantisation.md, "Tokens as 8-bit integers".
static bool is_coarse(enum dtype type)
{
    return dtype_group_bytes[type] && dtype_group_bytes[type] * 8 <= 5 * QUANT_GROUP && !dtype_keeps(type);
}

static yalm_activations coarsest(type_set of_layers)
{
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        if (of_layers & type_bit((enum dtype)type) && is_coarse((enum dtype)type))
            return YALM_ACTIVATIONS_INT8;
    return YALM_ACTIVATIONS_INT16;
}

yalm_status plan_resolve(yalm_activations *activations, type_set types, type_set of_layers, yalm_error *error)
{
    if (*activations == YALM_ACTIVATIONS_AUTO)
        *activations = coarsest(of_layers);
    if (*activations == YALM_ACTIVATIONS_INT8 && !any_of(types, true))
        return error_set(error, YALM_USAGE, "activations: found int8, which multiplies quantised weights: this model has none");
    if (*activations == YALM_ACTIVATIONS_FP32 && !any_of(types, false))
        return error_set(
            error, YALM_USAGE,
            "activations: found fp32, which multiplies fp32, fp16, bf16 and fp8 weights: this model has none of these");
    return YALM_OK;
}

// What a model's matrices are, by which kernels of many tokens are chosen for all of them: a step packs its tokens once.
enum {
    OF_QUANTISED = 1, // all quantised
    OF_FP16 = 2,      // of 16 or 8 bits, fp16 among them
    OF_BF16 = 4,      // the same without fp16
    OF_ANY = 8,
    OF_ALL = 15
};

static unsigned common_kind(type_set types)
{
    if (!any_of(types, false))
        return OF_QUANTISED;
    if (any_of(types, true) || types & type_bit(DTYPE_FP32))
        return OF_ANY;
    return types & type_bit(DTYPE_FP16) ? OF_FP16 : OF_BF16;
}

// From how many tokens on products in 16 bits are faster than those in the rows before. All measured: docs/kernels.md.
enum { INT16 = 1 << YALM_ACTIVATIONS_INT16, INT8 = 1 << YALM_ACTIVATIONS_INT8, FP32 = 1 << YALM_ACTIVATIONS_FP32 };
static const struct matmul16_row {
    bool tiles; // of machines that have tiles, or of others
    enum matmul16_form form;
    int least;
    unsigned activations, matrices; // bits
} matmul16_rows[] = {
    {false, MATMUL16_SHORT, 5, INT16 | INT8, OF_ALL},
    {false, MATMUL16_INTEGERS, 29, INT16 | INT8, OF_ALL},
    {true, MATMUL16_SHORT, 5, INT16, OF_FP16 | OF_BF16},
    {true, MATMUL16_INTEGERS, 29, INT16, OF_FP16 | OF_BF16},
    {true, MATMUL16_TILES, 17, FP32, OF_ALL},
    {true, MATMUL16_TILES, 17, INT16, OF_ANY},
    {true, MATMUL16_TILES, 65, INT16, OF_BF16},
    {true, MATMUL16_TILES, 129, INT16, OF_FP16},
    {true, MATMUL16_TILES_ROUND, 33, INT8, OF_ANY | OF_QUANTISED},
    {true, MATMUL16_TILES_BYTES, 33, INT16, OF_QUANTISED},
};

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

// Of all types, not the model's alone: so it takes no reading of the weights.
static void add_type(struct product_plan *plan, enum dtype type)
{
    if (dtype_group_bytes[type]) {
        add(plan, type, (struct multiplier){1, TOKENS_QUANTISED, NULL});
    } else {
        add(plan, type, (struct multiplier){1, TOKENS_FLOAT, NULL});
        add(plan, type, (struct multiplier){plan->kernels->matvec_max + 1, TOKENS_PACKED, NULL});
    }
}

static void add_matmul16(struct product_plan *plan, const struct matmul16_row *row)
{
    const struct matmul16 *matmul16 = matmul16_of(plan->kernels, row->form);
    if (!matmul16)
        return;
    if (row->least <= plan->most_few)
        plan->most_few = row->least - 1;
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        if (matmul16->product[unpacked_type((enum dtype)type)])
            add(plan, (enum dtype)type, (struct multiplier){row->least, TOKENS_16_BITS, matmul16});
}

struct product_plan plan_products(const struct cpu_kernels *kernels, yalm_activations activations, type_set types, int chunk)
{
    struct product_plan plan = {
        .kernels = kernels,
        .quant = activations == YALM_ACTIVATIONS_INT8 ? kernels->quant8 : kernels->quant,
        .types = types,
        .chunk = chunk,
        .most_few = kernels->matvec_max,
    };
    const bool tiles = matmul16_of(kernels, MATMUL16_TILES);
    const unsigned kind = common_kind(types);
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        add_type(&plan, (enum dtype)type);
    for (const struct matmul16_row *row = matmul16_rows; row < matmul16_rows + sizeof matmul16_rows / sizeof *matmul16_rows;
         row++)
        if (row->tiles == tiles && row->activations & 1u << activations && row->matrices & kind)
            add_matmul16(&plan, row);
    return plan;
}

struct product_plan plan_exact(const struct cpu_kernels *kernels, yalm_activations activations, type_set types, int chunk)
{
    struct product_plan plan = plan_products(kernels, activations, types, INT_MAX);
    plan.exact = true;
    plan.chunk = chunk;
    plan.most_few = 0;
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        if (plan.n_by[type] > 1) {
            plan.by[type][1] = plan.by[type][plan.n_by[type] - 1];
            plan.by[type][1].least = 1;
            plan.n_by[type] = 2;
        }
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

const struct quant_form *plan_quant_form(const struct quant_kernels *quant, int n)
{
    return n <= QUANT_FEW ? &quant->few : n <= QUANT_SOME && quant->some.size ? &quant->some : &quant->many;
}

const struct quant_form *plan_quant_form_of(const struct product_plan *plan, int n, bool apart)
{
    const int least = plan->exact && !apart ? QUANT_FEW + 1 : 0; // `few` alone adds up in another order
    return plan_quant_form(plan->quant, n > least ? n : least);
}

size_t plan_quantised_bytes(const struct quant_kernels *quant, int n, int cols)
{
    const struct quant_form *forms[] = {&quant->few, &quant->some, &quant->many};
    const int most[] = {QUANT_FEW, QUANT_SOME, n};
    size_t bytes = 0;
    for (int i = 0; i < 3; i++) {
        const size_t size = forms[i]->size ? forms[i]->size(n < most[i] ? n : most[i], cols) : 0;
        bytes = size > bytes ? size : bytes;
    }
    return bytes;
}

static int most_of(const struct product_plan *plan, enum dtype type, int i)
{
    if (i + 1 == plan->n_by[type])
        return plan->chunk;
    return plan->by[type][i + 1].least > 1 ? plan->by[type][i + 1].least - 1 : 1;
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

size_t plan_16_bits_bytes(const struct product_plan *plan, int cols)
{
    size_t bytes = 0;
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        for (int i = 0; plan->types & type_bit((enum dtype)type) && i < plan->n_by[type]; i++) {
            const struct multiplier *m = &plan->by[type][i];
            const size_t size = m->matmul16 ? m->matmul16->size(most_of(plan, (enum dtype)type, i), cols) : 0;
            bytes = size > bytes ? size : bytes;
        }
    return bytes;
}

size_t plan_scratch(const struct product_plan *plan)
{
    size_t bytes = plan->kernels->matmul_scratch > plan->quant->scratch ? plan->kernels->matmul_scratch : plan->quant->scratch;
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        for (int i = 0; i < plan->n_by[type]; i++) {
            const struct matmul16 *matmul16 = plan->by[type][i].matmul16;
            bytes = matmul16 && matmul16->scratch > bytes ? matmul16->scratch : bytes;
        }
    return bytes;
}

int plan_16_bits_rows(const struct product_plan *plan)
{
    int rows = 0;
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        for (int i = 0; i < plan->n_by[type]; i++) {
            const struct matmul16 *matmul16 = plan->by[type][i].matmul16;
            rows = matmul16 && matmul16->rows > rows ? matmul16->rows : rows;
        }
    return rows;
}

static const char *form_name(const struct product_plan *plan, const struct multiplier *m)
{
    if (m->matmul16)
        return m->matmul16->name;
    if (m->form != TOKENS_QUANTISED)
        return "float32";
    return plan->quant == plan->kernels->quant8 ? "8-bit integers" : "16-bit integers";
}

static bool alike(const struct product_plan *plan, int a, int b)
{
    return plan->n_by[a] == plan->n_by[b] && !memcmp(plan->by[a], plan->by[b], plan->n_by[a] * sizeof *plan->by[a]);
}

// A line. Kernels that differ in the order of floats alone are named once.
static void append_kind(struct listing *text, const struct product_plan *plan, type_set types, int like)
{
    const char *before = text->length ? "\n" : "";
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        if (types & type_bit((enum dtype)type)) {
            listing_add(text, "%s%s", before, dtype_names[type]);
            before = ", ";
        }
    const char *name = form_name(plan, &plan->by[like][0]);
    listing_add(text, ": tokens as %s", name);
    for (int i = 1; i < plan->n_by[like]; i++) {
        const char *next = form_name(plan, &plan->by[like][i]);
        if (strcmp(next, name) != 0 && plan->exact)
            listing_add(text, "; a prompt's as %s", next);
        else if (strcmp(next, name) != 0)
            listing_add(text, "; %d and more as %s", plan->by[like][i].least, next);
        name = next;
    }
}

size_t plan_text(const struct product_plan *plan, char *to, size_t room)
{
    struct listing text = {to, room, 0};
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
