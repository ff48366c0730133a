#include "cpu/attention.h"

#include <math.h>
#include <string.h>

#include "cpu/attention_parts.h"
#include "cpu/kernels/attend_blocks.h"
#include "cpu/kernels/rows.h"
#include "util/round.h"

// One task: the queries of some tokens' heads that share a KV head, against a range of positions.
struct attend_task {
    struct cpu_state *s;
    const struct batch *batch;
    const struct cpu_kind *kind; // the layer's
    const float *sink_logits;    // (n_heads), a logit of each head without a key; NULL: none
    float softcap;               // of scores; 0: none
    const float *slopes;         // (n_heads), by how much scores fall with each key of distance; NULL: not
    int layer, kv_head, thread;
    int first_token, n_tokens;   // of the batch
    int n_queries;               // n_tokens * group
    int n_beside;                // rows behind them that see all keys, and are nobody's
    float *acc, *max, *sum;      // (n_queries + n_beside, head_dim), (n_queries + n_beside) each
    int *first, *last;           // likewise, scratch for masks
    const void *next_k, *next_v; // keys and values that this thread will probably read after the task's, or NULL
    void *kernel_scratch;
};

size_t attention_task_scratch(const struct cpu_state *s)
{
    size_t most = 0;
    for (int i = 0; i < config_n_kinds(s->config); i++) {
        const struct cpu_kind *kind = &s->kinds[i];
        const size_t queries = (size_t)kind->group * kind->block_tokens + ATTENTION_MOST_BESIDE;
        const size_t bytes = queries * (kind->head_dim + 2) * sizeof(float) + 2 * queries * sizeof(int);
        most = bytes > most ? bytes : most;
    }
    return round_up(most, 64);
}

// Whether the kernels for a few queries in integers take n of them.
static bool has_few(const struct cpu_kind *kind, int n)
{
    return kind->few && n >= kind->few->least && n <= kind->few->most;
}

// The kernel on a run of consecutive slots, of which each query sees [first, last). k: (n_keys, head_dim), k_scales: (n_keys)
// of int8.
static void attend_keys(const struct attend_task *task, const float *q, int slot, int n_keys, const void *k,
                        const float *k_scales, const float *bias)
{
    const struct cpu_state *s = task->s;
    const struct cpu_kind *kind = task->kind;
    const int d = kind->head_dim;
    bool masked = false;
    for (int i = 0; i < task->n_queries && !masked; i++)
        masked = task->first[i] > 0 || task->last[i] < n_keys;
    const size_t at = (size_t)slot * d * kv_sizes[s->kv_type];
    const float *v_scales = cpu_value_scales(s, task->layer, task->kv_head);
    const int n = task->n_queries + task->n_beside;
    const bool many = kind->fixed && n >= kind->fixed->least;
    (many               ? kind->fixed->attend
     : has_few(kind, n) ? kind->few->attend
                        : s->kernels->attend)[s->kv_type](&(struct attend_args){
        .acc = task->acc,
        .max = task->max,
        .sum = task->sum,
        .q = q,
        .k = k,
        .v = (const uint8_t *)cpu_values(s, task->layer, task->kv_head) + at,
        .k_scales = k_scales,
        .v_scales = v_scales ? v_scales + slot : NULL,
        .n_queries = n,
        .n_keys = n_keys,
        .head_dim = d,
        .softcap = task->softcap,
        .first = masked ? task->first : NULL,
        .last = masked ? task->last : NULL,
        .next_k = task->next_k,
        .next_v = task->next_v,
        .fetching = s->fetching,
        .bias = bias,
        .scratch = task->kernel_scratch,
    });
}

static void next_tile(const struct attend_task *task)
{
    for (int i = 0; i < task->n_queries; i++) {
        task->first[i] -= KEY_TILE;
        task->last[i] -= KEY_TILE;
    }
}

// A run of consecutive slots whose keys the policy decodes, a tile at a time into this thread's scratch.
static void attend_decoded(const struct attend_task *task, const float *q, int slot, int n_keys)
{
    const struct cpu_state *s = task->s;
    void *keys = cpu_own(s, s->decoded_keys, task->thread);
    float *scales = s->kv_type == KV_INT8 ? cpu_own(s, s->decoded_scales, task->thread) : NULL;
    for (int at = 0; at < n_keys; at += KEY_TILE) {
        const int n = n_keys - at < KEY_TILE ? n_keys - at : KEY_TILE;
        s->policy->decode_keys(s, task->layer, task->kv_head, slot + at, n, keys, scales);
        attend_keys(task, q, slot + at, n, keys, scales, NULL);
        next_tile(task);
    }
}

// Keys at positions from `from` on, whose scores fall with their distance from the task's last token: from each token they
// fall by as much less for all keys alike, which its softmax does not see.
static void attend_sloping(const struct attend_task *task, const float *q, int slot, int n_keys, int64_t from)
{
    const struct cpu_state *s = task->s;
    const float *scales = cpu_key_scales(s, task->layer, task->kv_head);
    const int64_t last = task->batch->position + task->first_token + task->n_tokens - 1;
    for (int at = 0; at < n_keys; at += KEY_TILE) {
        const int n = n_keys - at < KEY_TILE ? n_keys - at : KEY_TILE;
        const uint8_t *keys = cpu_keys(s, task->layer, task->kv_head);
        float bias[KEY_TILE];
        for (int j = 0; j < n; j++)
            bias[j] = task->slopes[task->kv_head] * (float)(from + at + j - last);
        attend_keys(task, q, slot + at, n, keys + (size_t)(slot + at) * cpu_row_bytes(s, task->layer),
                    scales ? scales + slot + at : NULL, bias);
        next_tile(task);
    }
}

static void attend_slots(const struct attend_task *task, const float *q, int slot, int n_keys)
{
    const struct cpu_state *s = task->s;
    if (cpu_decodes(s, task->layer)) {
        attend_decoded(task, q, slot, n_keys);
        return;
    }
    const float *scales = cpu_key_scales(s, task->layer, task->kv_head);
    const size_t at = (size_t)slot * cpu_row_bytes(s, task->layer);
    attend_keys(task, q, slot, n_keys, (const uint8_t *)cpu_keys(s, task->layer, task->kv_head) + at,
                scales ? scales + slot : NULL, NULL);
}

static int clamp_to(int64_t x, int n)
{
    return x < 0 ? 0 : x > n ? n : (int)x;
}

// Positions that the batch's token sees: all of its text, or what is before it; of a window, what is no further away.
static struct sight {
    int64_t first, last;
} sees(const struct attend_task *task, int token)
{
    const struct batch *batch = task->batch;
    const struct kv_policy *kv = &task->kind->kv;
    const int64_t position = batch->position + token;
    struct sight sight = {kv_first_visible(kv, position), position + 1};
    if (!batch->texts)
        return sight;
    const struct extent *text = &batch->texts[token];
    if (sight.first < text->first)
        sight.first = text->first;
    if (task->s->config->bidirectional)
        sight.last = text->last < position + kv->span ? text->last : position + kv->span;
    return sight;
}

// The end of the run of slots that begins at `first`. With exact bits it does not depend on how long the ring is.
static int64_t run_end(const struct attend_task *task, int64_t first, int64_t last)
{
    const struct kv_policy *kv = &task->kind->kv;
    const int64_t end = kv_run_end(kv, first, last), unit = (first / KV_ALIGNMENT + 1) * KV_ALIGNMENT;
    return task->s->plan.exact && kv->span < kv->context && unit < end ? unit : end;
}

// Adds the keys at positions [from, to) to the task's queries, as far as each sees them.
static void attend_positions(const struct attend_task *task, int64_t from, int64_t to)
{
    const struct cpu_state *s = task->s;
    const struct kv_policy *kv = &task->kind->kv;
    const int group = task->kind->group;
    const float *q = s->rotated_q + ((size_t)task->kv_head * s->chunk + task->first_token) * group * task->kind->head_dim;
    for (int64_t end; from < to; from = end) {
        end = run_end(task, from, to);
        const int n_keys = (int)(end - from);
        for (int i = 0; i < task->n_queries; i++) {
            const struct sight sight = sees(task, task->first_token + i / group);
            task->first[i] = clamp_to(sight.first - from, n_keys);
            task->last[i] = clamp_to(sight.last - from, n_keys);
        }
        for (int i = task->n_queries; i < task->n_queries + task->n_beside; i++) {
            task->first[i] = 0;
            task->last[i] = n_keys;
        }
        if (task->slopes)
            attend_sloping(task, q, kv_slot(kv, from), n_keys, from);
        else
            attend_slots(task, q, kv_slot(kv, from), n_keys);
    }
}

// The sinks, for those queries from which they stand apart.
static void attend_sinks(const struct attend_task *task)
{
    const struct cpu_state *s = task->s;
    const struct kv_policy *kv = &task->kind->kv;
    const int group = task->kind->group;
    if (!kv_sinks_apart(kv, task->batch->position + task->first_token + task->n_tokens - 1))
        return;
    for (int i = 0; i < task->n_queries; i++) {
        const int64_t position = task->batch->position + task->first_token + i / group;
        task->first[i] = 0;
        task->last[i] = kv_sinks_apart(kv, position) ? kv->n_sinks : 0;
    }
    attend_slots(task, s->sink_q + ((size_t)task->kv_head * s->chunk + task->first_token) * group * task->kind->head_dim, 0,
                 kv->n_sinks);
}

static void task_begin(const struct attend_task *task)
{
    const int n = task->n_queries + task->n_beside;
    memset(task->acc, 0, sizeof(float) * n * task->kind->head_dim);
    for (int i = 0; i < n; i++) {
        task->max[i] = -INFINITY;
        task->sum[i] = 0;
    }
}

// A logit without a key counts as if one had been seen, whose value is 0. For the first of a query's parts.
static void task_begin_first(const struct attend_task *task)
{
    const float *logits = task->sink_logits;
    const int group = task->kind->group;
    task_begin(task);
    for (int i = 0; i < task->n_queries && logits; i++) {
        task->max[i] = logits[task->kv_head * group + i % group];
        task->sum[i] = 1;
    }
}

static struct attend_task task_make(struct cpu_state *s, const struct batch *batch, int layer, const struct member *me)
{
    const struct cpu_kind *kind = cpu_kind_of(s, layer);
    struct attend_task task = {.s = s, .batch = batch, .kind = kind, .layer = layer, .thread = me->thread};
    const size_t most = (size_t)kind->group * kind->block_tokens + ATTENTION_MOST_BESIDE;
    task.acc = cpu_own(s, s->task_scratch, me->thread);
    task.max = task.acc + most * kind->head_dim;
    task.sum = task.max + most;
    task.first = (int *)(task.sum + most);
    task.last = task.first + most;
    task.kernel_scratch = cpu_own(s, s->attend_scratch, me->thread);
    return task;
}

static struct attend_task task_of_step(struct cpu_state *s, const struct batch *batch, const struct step *step,
                                       const struct member *me)
{
    struct attend_task task = task_make(s, batch, step->layer, me);
    task.softcap = step->number;
    task.sink_logits = step->weights->sink_logits;
    task.slopes = s->weights->alibi_slopes;
    return task;
}

// Exact bits: a query's result is not to depend on those that stand beside it. The kernel in floats takes more than 8 queries
// in blocks of 192 keys, from the first that any of them sees. So it gets more of them, and one that sees a key whose slot
// begins a block. Returns where that is.
static int64_t stand_beside(struct attend_task *task, int64_t first)
{
    enum { MORE_THAN_FEW = ATTENTION_MOST_BESIDE + 1 };
    _Static_assert(KV_ALIGNMENT % ATTEND_BLOCK_KEYS == 0, "blocks begin at the same positions, however long the ring is");
    const int64_t begin = first - kv_slot(&task->kind->kv, first) % ATTEND_BLOCK_KEYS;
    task->n_beside = task->n_queries < MORE_THAN_FEW ? MORE_THAN_FEW - task->n_queries : begin < first;
    return begin;
}

// The queries of a block of the batch's tokens, of one KV head.
static void attend_block(struct attend_task *task, int first_token, int tokens)
{
    struct cpu_state *s = task->s;
    const struct cpu_kind *kind = task->kind;
    const struct batch *batch = task->batch;
    task->first_token = first_token;
    task->n_tokens = batch->n - first_token < tokens ? batch->n - first_token : tokens;
    task->n_queries = task->n_tokens * kind->group;
    // The first token sees the least positions, and the last one the most.
    const int64_t first = sees(task, first_token).first, last = sees(task, first_token + task->n_tokens - 1).last;
    const int64_t begin = s->plan.exact ? stand_beside(task, first) : first;
    task_begin_first(task);
    attend_sinks(task);
    attend_positions(task, begin, last);
    for (int q = 0; q < task->n_queries; q++)
        attention_write(s, kind, task->kv_head, task->first_token, q, task->acc + (size_t)q * kind->head_dim,
                        task->sum[q] > 0 ? 1.0f / task->sum[q] : 0.0f);
}

// As many tokens as the kernel likes, but fewer of a short batch, so that it has work for many threads. Not a matter of how
// many there are, for a result may depend on its block: the integers that keys and values become have units that the block's
// keys have together.
static int tokens_in_block(const struct cpu_kind *kind, const struct batch *batch)
{
    enum { TASKS = 64 };
    const int share = (int)((int64_t)batch->n * kind->n_kv_heads / TASKS);
    return share < kind->query_tokens ? kind->query_tokens : share < kind->block_tokens ? share : kind->block_tokens;
}

// Prefill: each claim takes a block of tokens of a KV head and all the keys that they see. Of a head's the longest come first,
// and so are not what is left to others at the end.
static void attend_blocks(struct cpu_state *s, const struct batch *batch, const struct step *step, struct member *me)
{
    const struct cpu_kind *kind = cpu_kind_of(s, step->layer);
    const int n_kv_heads = kind->n_kv_heads, tokens = tokens_in_block(kind, batch);
    const int n_blocks = (batch->n + tokens - 1) / tokens;
    struct attend_task task = task_of_step(s, batch, step, me);
    for (struct grains span; team_claim_near(me, n_blocks * n_kv_heads, 1, &span);)
        for (int i = span.first; i < span.last; i++) {
            task.kv_head = i / n_blocks;
            attend_block(&task, (n_blocks - 1 - i % n_blocks) * tokens, tokens);
        }
}

// The positions that the task's tokens see, and the parts that these are cut into.
struct parts_seen {
    int64_t from, to;
    int n_parts;
};

static struct parts_seen task_sees(const struct attend_task *task)
{
    const int64_t position = task->batch->position + task->first_token;
    struct parts_seen seen = {kv_first_visible(&task->kind->kv, position), position + task->n_tokens, 0};
    seen.n_parts = attention_run_parts(task->kind, (int)(seen.to - seen.from));
    return seen;
}

// One part of the keys, all the task's queries of one KV head. `begin`: where the parts of its tokens lie, (n_kv_heads,
// n_parts); they are mostly taken one after another.
static void attend_part(struct attend_task *task, struct parts_seen seen, size_t begin, int kv_head, int part)
{
    struct cpu_state *s = task->s;
    const int next = kv_head * seen.n_parts + part + 1;
    const size_t at = (begin + (size_t)next - 1) * task->n_queries;
    task->kv_head = kv_head;
    task->next_k = task->next_v = NULL;
    if (!cpu_decodes(s, task->layer) && next < seen.n_parts * task->kind->n_kv_heads) {
        const int slot = kv_slot(&task->kind->kv, attention_part_start(seen.from, seen.to, next % seen.n_parts, seen.n_parts));
        const size_t row = (size_t)slot * cpu_row_bytes(s, task->layer);
        task->next_k = (const uint8_t *)cpu_keys(s, task->layer, next / seen.n_parts) + row;
        task->next_v = (const uint8_t *)cpu_values(s, task->layer, next / seen.n_parts) + row;
    }
    task->acc = s->part_acc + at * task->kind->head_dim;
    task->max = s->part_max + at;
    task->sum = s->part_sum + at;
    (part == 0 ? task_begin_first : task_begin)(task);
    if (part == 0)
        attend_sinks(task);
    attend_positions(task, attention_part_start(seen.from, seen.to, part, seen.n_parts),
                     attention_part_start(seen.from, seen.to, part + 1, seen.n_parts));
}

// Tokens [first, first + n), in blocks that are attended to together: of all n, or of one each, which then has the parts that
// it would have alone.
static void attend_parts(struct cpu_state *s, const struct batch *batch, const struct step *step, int first, int n, int block,
                         struct member *me)
{
    const struct cpu_kind *kind = cpu_kind_of(s, step->layer);
    const int n_kv_heads = kind->n_kv_heads, n_queries = block * kind->group, n_blocks = n / block;
    struct attend_task task = task_of_step(s, batch, step, me);
    task.n_tokens = block;
    task.n_queries = n_queries;
    task.first_token = first + n - block;
    const int most = task_sees(&task).n_parts; // the last block's
    for (struct grains span; team_claim_share(me, most * n_kv_heads * n_blocks, 1, &span);)
        for (int i = span.first; i < span.last; i++) { // one part's keys for all blocks, while they are in the cache
            task.first_token = first + i % n_blocks * block;
            const struct parts_seen seen = task_sees(&task);
            const int part = i / n_blocks % most;
            if (part < seen.n_parts)
                attend_part(&task, seen, (size_t)(i % n_blocks) * n_kv_heads * most, i / n_blocks / most, part);
        }
    for (struct grains span;
         team_claim_share(me, n_kv_heads * n_queries * n_blocks, 4, &span);) // whose parts it has mostly computed itself
        for (int i = span.first; i < span.last; i++) {
            task.first_token = first + i % n_blocks * block;
            attention_merge_query(s, kind, (size_t)(i % n_blocks) * n_kv_heads * most, task_sees(&task).n_parts, n_queries,
                                  i / n_blocks / n_queries, task.first_token, i / n_blocks % n_queries, 1);
        }
}

// Decode, and short batches: the keys are cut into parts, so that one token can use the whole machine. Of tokens apart there
// are as many at once as their parts have room.
static void attend_few(struct cpu_state *s, const struct batch *batch, const struct step *step, struct member *me)
{
    const int most = cpu_kind_of(s, step->layer)->query_tokens;
    if (!batch->apart)
        attend_parts(s, batch, step, 0, batch->n, batch->n, me);
    for (int first = 0, n; batch->apart && first < batch->n; first += n) {
        n = batch->n - first < most ? batch->n - first : most;
        attend_parts(s, batch, step, first, n, 1, me);
    }
}

void attention_attend_rows(struct cpu_state *s, const struct batch *batch, const struct step *step, int n_parts,
                           const struct row_part *rows, const struct row_part *next, struct member *me)
{
    enum { AT_ONCE = 8 }; // queries that the kernel takes
    const int d = s->far->head_dim, group = cpu_group(s), kv_head = rows->kv_head, i = kv_head * n_parts + rows->part;
    const int layer = step->layer;
    struct attend_task task = task_of_step(s, batch, step, me);
    task.kv_head = kv_head;
    task.n_tokens = 1;
    task.n_queries = group;
    task.acc = s->part_acc + (size_t)i * group * d;
    task.max = s->part_max + (size_t)i * group;
    task.sum = s->part_sum + (size_t)i * group;
    (rows->part == 0 ? task_begin_first : task_begin)(&task);
    if (rows->part == 0)
        attend_sinks(&task);
    for (int q = 0; q < group; q += AT_ONCE) {
        const int n = group - q < AT_ONCE ? group - q : AT_ONCE;
        attend_rows(s->kernels, (has_few(task.kind, n) ? task.kind->few->attend : s->kernels->attend)[s->kv_type], s->kv_type,
                    &(struct attend_args){
                        .acc = task.acc + (size_t)q * d,
                        .max = task.max + q,
                        .sum = task.sum + q,
                        .q = cpu_rotated_query(s, s->rotated_q, kv_head) + (size_t)q * d,
                        .k = cpu_keys(s, layer, kv_head),
                        .v = cpu_values(s, layer, kv_head),
                        .k_scales = cpu_key_scales(s, layer, kv_head),
                        .v_scales = cpu_value_scales(s, layer, kv_head),
                        .n_queries = n,
                        .n_keys = rows->n,
                        .head_dim = d,
                        .softcap = task.softcap,
                        .next_k = next ? cpu_keys(s, layer, next->kv_head) : NULL,
                        .next_v = next ? cpu_values(s, layer, next->kv_head) : NULL,
                        .fetching = s->fetching,
                        .next_rows = next ? next->rows : NULL,
                        .n_next = next ? next->n : 0,
                        .bias = rows->bias,
                        .scratch = task.kernel_scratch,
                    },
                    (struct given_rows){rows->rows, rows->fetched || q > 0}, cpu_own(s, s->rows_tile, me->thread));
    }
}

static void attend_last_apart(struct cpu_state *s, const struct batch *batch, const struct step *step, struct member *me)
{
    struct batch others = *batch;
    others.n--;
    attend_blocks(s, &others, step, me);
    attend_parts(s, batch, step, others.n, 1, 1, me);
}

void attention_attend(struct cpu_state *s, const struct batch *batch, const struct step *step, struct member *me)
{
    if (cpu_selects(s, batch->n, batch->position, step->layer))
        s->policy->attend(s, batch, step, me);
    else if (batch->last_apart)
        attend_last_apart(s, batch, step, me);
    else if (batch->texts || (!batch->apart && (s->plan.exact || batch->n > cpu_kind_of(s, step->layer)->query_tokens)))
        attend_blocks(s, batch, step, me);
    else
        attend_few(s, batch, step, me);
}
