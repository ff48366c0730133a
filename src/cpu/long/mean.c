#include "cpu/long/mean.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/kernels/sparse.h"
#include "cpu/long/selective.h"
#include "cpu/state.h"

static size_t head_index(const struct cpu_state *s, int layer, int kv_head)
{
    return cpu_far_place(s, layer) * s->far->n_kv_heads + kv_head;
}

// sum ± the values of a position, as the cache has them.
static void add_position(const struct cpu_state *s, double *sum, int layer, int kv_head, int64_t position, double sign)
{
    float row[SELECTIVE_DIMS];
    cpu_load_value(s, layer, kv_head, kv_slot(s->kv, position), row);
    s->kernels->sparse->add_exactly(sum, row, s->far->head_dim, sign);
}

// Makes the sums cover [from, to), all of whose rows, and all of those covered now, are in the cache.
static void cover(const struct cpu_state *s, double *sum, int64_t covered[2], int layer, int kv_head, int64_t from, int64_t to)
{
    const int64_t moved = llabs(covered[0] - from) + llabs(covered[1] - to);
    if (moved > to - from || covered[0] > to || covered[1] < from) {
        memset(sum, 0, sizeof *sum * s->far->head_dim);
        covered[0] = covered[1] = from;
    }
    while (covered[1] > to)
        add_position(s, sum, layer, kv_head, --covered[1], -1);
    while (covered[0] < from)
        add_position(s, sum, layer, kv_head, covered[0]++, -1);
    while (covered[0] > from)
        add_position(s, sum, layer, kv_head, --covered[0], 1);
    while (covered[1] < to)
        add_position(s, sum, layer, kv_head, covered[1]++, 1);
}

void value_sums_append(struct cpu_state *s, struct value_sums *sums, const struct append *row)
{
    if (sums->sums) {
        const size_t head = head_index(s, row->layer, row->kv_head);
        int64_t *covered = sums->covered + 2 * head;
        const int64_t from = kv_first_visible(s->kv, row->position);
        if (row->n == 1)
            cover(s, sums->sums + head * s->far->head_dim, covered, row->layer, row->kv_head, from, row->position);
        else if (row->token == 0 &&
                 (covered[1] > row->position || covered[0] != kv_first_visible(s->kv, row->position + row->n - 1)))
            covered[0] = covered[1] = -1; // nothing, and nowhere near
        cpu_store_value(s, row->layer, row->kv_head, row->slot, row->v);
        if (row->n == 1)
            cover(s, sums->sums + head * s->far->head_dim, covered, row->layer, row->kv_head, from, row->position + 1);
        return;
    }
    cpu_store_value(s, row->layer, row->kv_head, row->slot, row->v);
}

void value_mean(const struct cpu_state *s, const struct value_sums *sums, int layer, int kv_head, int64_t position, float *mean)
{
    const int d = s->far->head_dim;
    double total[SELECTIVE_DIMS];
    memcpy(total, sums->sums + head_index(s, layer, kv_head) * d, sizeof *total * d);
    for (int sink = 0; kv_sinks_apart(s->kv, position) && sink < s->kv->n_sinks; sink++)
        add_position(s, total, layer, kv_head, sink, 1);
    for (int i = 0; i < d; i++)
        mean[i] = (float)(total[i] / kv_n_visible(s->kv, position));
}
