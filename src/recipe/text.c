// A recipe for people to read.

#include <string.h>

#include "recipe/recipe.h"
#include "util/listing.h"

enum { LINE_ROOM = 512 };

static void say_step(struct listing *text, const struct step *step)
{
    static const char *const ops[] = {
        [OP_EMBED] = "embed",         [OP_PAIR] = "pair",       [OP_PROJECT] = "project", [OP_MIX_INPUTS] = "mix inputs",
        [OP_HEAD_NORM] = "head norm", [OP_ATTEND] = "attend",   [OP_RECUR] = "recur",     [OP_CONVOLVE] = "convolve",
        [OP_GATE] = "gate",           [OP_ADD] = "add",         [OP_UNITS] = "units",     [OP_WEIGH] = "weigh",
        [OP_ROUTE] = "route",         [OP_EXPERTS] = "experts", [OP_JOIN] = "join",       [OP_GATE_INPUT] = "gate input",
        [OP_HEADS] = "heads",         [OP_SCALE] = "scale",     [OP_NORM] = "norm",       [OP_CAP] = "cap",
    };
    static const struct {
        enum trait trait;
        const char *word;
    } words[] = {
        {TRAIT_UNROTATED, "unrotated"},
        {TRAIT_CAPPED, "capped"},
        {TRAIT_SINK_LOGITS, "sink logits"},
        {TRAIT_GROWING, "growing"},
        {TRAIT_OTHERS_KEYS, "others' keys"},
        {TRAIT_WIDTH, "own width"},
        {TRAIT_WHOLE, "whole"},
        {TRAIT_VALUES, "and values"},
        {TRAIT_BARE, "of bare norm"},
        {TRAIT_NORM_BEHIND, "norm"},
        {TRAIT_ACTIVATION, "not SiLU"},
        {TRAIT_BOTH_WAYS, "both ways"},
        {TRAIT_UNGATED, "ungated"},
        {TRAIT_LAYER_NORM, "LayerNorm"},
        {TRAIT_ROWS, "of positions or types, too"},
        {TRAIT_LATENT, "of latents"},
        {TRAIT_GROUPS, "among groups"},
        {TRAIT_ALIBI, "ALiBi"},
        {TRAIT_SCAN, "a scan"},
        {TRAIT_CHANNELS, "each channel"},
        {TRAIT_WEIGHTED, "weighted behind rotation"},
    };
    listing_add(text, "%s", ops[step->op]);
    if (step->n_w > 1 && step->op == OP_PROJECT)
        listing_add(text, " %d", step->n_w);
    if (step->in == BUFFER_X && step->norm)
        listing_add(text, " of norm");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (step->traits & words[i].trait)
            listing_add(text, " (%s)", words[i].word);
}

// The steps of a layer, and where they end.
static const struct step *say_layer(struct listing *text, const struct step *step, const struct step *end)
{
    const int layer = step->layer;
    for (const char *between = ""; step < end && step->layer == layer; step++, between = ", ") {
        listing_add(text, "%s", between);
        say_step(text, step);
    }
    return step;
}

static bool is_first_alike(const struct recipe *recipe, const struct step *of, const char *line)
{
    char other[LINE_ROOM];
    for (const struct step *step = recipe->steps; step < of;) {
        step = say_layer(&(struct listing){other, sizeof other, 0}, step, recipe->steps + recipe->n);
        if (strcmp(other, line) == 0)
            return false;
    }
    return true;
}

// "0 to 2, 4": the layers whose steps read like this line.
static void say_layers_alike(struct listing *text, const struct recipe *recipe, const char *line)
{
    const struct step *const end = recipe->steps + recipe->n;
    int first = -1, last = -1;
    const char *between = "";
    for (const struct step *step = recipe->steps; step <= end;) {
        char other[LINE_ROOM] = "";
        const int layer = step < end ? step->layer : -1;
        step = step < end ? say_layer(&(struct listing){other, sizeof other, 0}, step, end) : end + 1;
        const bool alike = strcmp(other, line) == 0;
        if (alike && first < 0)
            first = layer;
        if (alike)
            last = layer;
        if (alike || first < 0)
            continue;
        listing_add(text, last > first ? "%s%d to %d" : "%s%d", between, first, last);
        first = -1;
        between = ", ";
    }
}

size_t recipe_text(const struct recipe *recipe, char *to, size_t room)
{
    struct listing text = {to, room, 0};
    const struct step *const end = recipe->steps + recipe->n;
    for (const struct step *step = recipe->steps, *next; step < end; step = next) {
        char line[LINE_ROOM];
        next = say_layer(&(struct listing){line, sizeof line, 0}, step, end);
        if (!is_first_alike(recipe, step, line))
            continue;
        if (step > recipe->steps)
            listing_add(&text, "\n");
        if (step->layer < 0 || next == end) {
            listing_add(&text, "%s", line);
            continue;
        }
        listing_add(&text, "layers ");
        say_layers_alike(&text, recipe, line);
        listing_add(&text, ": %s", line);
    }
    return text.length;
}
