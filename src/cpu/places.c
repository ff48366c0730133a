#include "cpu/places.h"

#include "cpu/machine/nodes.h"
#include "cpu/machine/team.h"
#include "cpu/matmul.h"

struct places {
    const struct cpu_state *s;
    int n_threads; // that decode
    int nodes[TEAM_MAX];
};

// Rows [first, last) of both planes: elements, then scales.
static void move_rows(const struct matrix *w, int first, int last, int node)
{
    const size_t row = dtype_row_bytes(w->dtype, w->cols),
                 elements = dtype_group_bytes[w->dtype] ? quant_groups(w->cols) * dtype_group_bytes[w->dtype] : row,
                 scales = row - elements, n = (size_t)(last - first);
    const char *at = w->data;
    nodes_move(at + (size_t)first * elements, n * elements, node);
    if (scales)
        nodes_move(at + (size_t)w->rows * elements + (size_t)first * scales, n * scales, node);
}

// Rows [first, last) of the matrices, one after another.
static void move_claim(const struct matrix *const *w, int n_w, int first, int last, int node)
{
    for (int i = 0, base = 0; i < n_w; base += w[i++]->rows) {
        const int from = first > base ? first - base : 0, to = last - base < w[i]->rows ? last - base : w[i]->rows;
        if (from < to)
            move_rows(w[i], from, to, node);
    }
}

// Matrices whose rows are claimed together, as one sequence. Neighbours' shares on one node are one piece.
static void place(const struct places *p, const struct matrix *const *w, int n_w)
{
    int total = 0;
    for (int i = 0; i < n_w; i++)
        total += w[i]->rows;
    for (int thread = 0, next; thread < p->n_threads; thread = next) {
        for (next = thread + 1; next < p->n_threads && p->nodes[next] == p->nodes[thread];)
            next++;
        const int first = matmul_share(w[0], total, thread, p->n_threads),
                  last = next < p->n_threads ? matmul_share(w[0], total, next, p->n_threads) : total;
        move_claim(w, n_w, first, last, p->nodes[thread]);
    }
}

static void place_alone(const struct places *p, const struct matrix *w)
{
    if (w->data)
        place(p, &w, 1);
}

static void place_experts(const struct places *p, const struct expert_weights *experts, int n)
{
    for (int i = 0; i < n; i++) {
        place_alone(p, &experts[i].gate);
        place_alone(p, &experts[i].up);
        place_alone(p, &experts[i].down);
    }
}

static bool on_several_nodes(const struct places *p)
{
    for (int i = 1; i < p->n_threads; i++)
        if (p->nodes[i] != p->nodes[0])
            return true;
    return false;
}

void places_weights(const struct cpu_state *s)
{
    struct places p = {.s = s, .n_threads = s->n_threads};
    int cores[TEAM_MAX];
    for (int i = 0; i < p.n_threads; i++)
        cores[i] = team_core(s->team, i);
    nodes_of(cores, p.n_threads, p.nodes);
    if (!on_several_nodes(&p))
        return;
    for (const struct step *step = s->recipe.steps, *end = step + s->recipe.n; step < end; step++)
        if (step->op == OP_EXPERTS)
            place_experts(&p, step->weights->experts, step->n_experts);
        else if (step->op == OP_UNITS) // units are claimed by the rows of both
            for (int i = 0; i < step->n_w; i++)
                place_alone(&p, step->w[i]);
        else if (step->n_w > step->n_narrow)
            place(&p, step->w, step->n_w - step->n_narrow);
}
