#include "cpu/kernels/rows.h"

#include "cpu/kernels/sparse.h"

enum {
    BLOCK_BYTES = 16384,   // of keys, and of values, about
    BLOCK_BYTES_L1 = 4096, // where rows are fetched into L1: what is named faster than lines arrive is dropped
    BLOCK_STEP = 16,       // rows: whole vectors of every instruction set
    BLOCK_MOST = 128,      // rows
};

static int block_rows(size_t row_bytes, bool to_l1)
{
    const size_t rows = (to_l1 ? BLOCK_BYTES_L1 : BLOCK_BYTES) / row_bytes & -(size_t)BLOCK_STEP;
    return rows > BLOCK_MOST ? BLOCK_MOST : rows < BLOCK_STEP ? BLOCK_STEP : (int)rows;
}

size_t attend_rows_tile(size_t row_bytes)
{
    return (size_t)block_rows(row_bytes, false) * 2 * (row_bytes + sizeof(float)) + 64;
}

// Blocks of about the same size: what a short one at the end leaves unfetched is waited for at the beginning of the next part.
static int next_block(int left, int most)
{
    const int steps = (left + BLOCK_STEP - 1) / BLOCK_STEP, most_steps = most / BLOCK_STEP;
    if (left <= 0)
        return 0;
    const int blocks = (steps + most_steps - 1) / most_steps, n = (steps + blocks - 1) / blocks * BLOCK_STEP;
    return n < left ? n : left;
}

// The first block has nothing before it that could fetch it.
static void fetch_first(const struct attend_args *a, const int *rows, int n, size_t row_bytes)
{
    for (int j = 0; j < n; j++)
        for (size_t at = 0; at < row_bytes; at += 64) {
            __builtin_prefetch((const char *)a->k + (size_t)rows[j] * row_bytes + at, 0, 2);
            __builtin_prefetch((const char *)a->v + (size_t)rows[j] * row_bytes + at, 0, 2);
        }
}

static void gather_scales(float *to, const float *scales, const int *rows, int n)
{
    for (int j = 0; j < n; j++)
        to[j] = scales[rows[j]];
}

void attend_rows(const struct cpu_kernels *kernels, attend_function *attend, enum kv_type type, const struct attend_args *args,
                 struct given_rows given, void *tile)
{
    const size_t row_bytes = (size_t)args->head_dim * kv_sizes[type];
    const int most = block_rows(row_bytes, rows_to_l1(args->fetching)), room = block_rows(row_bytes, false);
    struct attend_args block = *args;
    const size_t rows_bytes = (size_t)room * row_bytes;
    char *const k = tile, *const v = k + rows_bytes;
    float *const k_scales = (float *)(k + (2 * rows_bytes + 63) / 64 * 64), *const v_scales = k_scales + room;
    block.k = k;
    block.v = v;
    if (type == KV_INT8) {
        block.k_scales = k_scales;
        block.v_scales = v_scales;
    }
    const int *rows = given.rows;
    for (int left = args->n_keys, n; left > 0; left -= n, rows += n) {
        n = next_block(left, most);
        if (rows == given.rows && !given.fetched)
            fetch_first(args, rows, n, row_bytes);
        kernels->sparse->gather(k, args->k, row_bytes, rows, n);
        kernels->sparse->gather(v, args->v, row_bytes, rows, n);
        if (type == KV_INT8) {
            gather_scales(k_scales, args->k_scales, rows, n);
            gather_scales(v_scales, args->v_scales, rows, n);
        }
        block.n_keys = n;
        block.bias = args->bias ? args->bias + (rows - given.rows) : NULL;
        const bool others = left == n;
        block.next_k = others ? args->next_k : args->k;
        block.next_v = others ? args->next_v : args->v;
        block.next_rows = others ? args->next_rows : rows + n;
        block.n_next = others ? (args->n_next < most ? args->n_next : most) : next_block(left - n, most);
        attend(&block);
    }
}
