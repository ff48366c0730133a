// Tokens apart: several at once, each with the bits that it has alone. They are the next tokens of as many sessions, or of one
// session those that its caller expects.
//
// A pass is run.cu's with the kernels of one token. Products read each matrix once for up to eight tokens (several.cuh). Norms
// and the like have a block for each token as it is. Each token attends by itself to the keys that it would see alone, with its
// session's cache, plan and scratch. Those of one session that come later are in the cache by then, beyond its position.
// Activations are those of the first session, on whose stream the pass goes.
//
// A pass is captured when it comes a second time, of the same sessions, and launched from then on: all that changes lies in
// device memory.
#include "cuda/capture.h"
#include "cuda/state.h"

enum { MOST_APART = 16 }; // tokens of a batch: two readings of the weights

int cuda_most_apart(const struct cuda_state *s)
{
    return !s->several ? 1 : s->chunk < MOST_APART ? s->chunk : MOST_APART;
}

// ------------------------------------------------------------------------------------------ a layer's part of it

// How many turns from `first` on are of one session, whose positions follow each other.
static int run_of(const struct turn *turns, int first, int n)
{
    int end = first + 1;
    while (end < n && turns[end].s == turns[first].s)
        end++;
    return end - first;
}

yalm_status turns_append(const struct cuda_state *by, struct rope_append append, const struct step *step, int n,
                         yalm_error *error)
{
    const struct attending *a = &step->attending;
    for (int t = 0, run; t < n; t += run) {
        const struct cuda_state *s = by->turns[t].s;
        const size_t q_at = (size_t)t * a->n_heads * a->head_dim, kv_at = (size_t)t * a->n_kv_heads * a->head_dim;
        run = run_of(by->turns, t, n);
        struct rope_append own = append;
        own.step += t;
        own.q += q_at;
        own.k = append.k ? append.k + kv_at : NULL;
        own.v = append.v ? append.v + kv_at : NULL;
        own.rotated_q += q_at;
        own.sink_q = append.sink_q ? append.sink_q + q_at : NULL;
        own.cache = &s->caches[a->seen_kind];
        own.rope = s->ropes[a->kind];
        own.key_offset = s->key_offsets ? s->key_offsets + (size_t)step->layer * s->kv_dim : NULL;
        TRY(rope_append(&own, run, by->stream, error));
    }
    return YALM_OK;
}

yalm_status turns_attend(const struct cuda_state *by, struct attention attention, const struct step *step, int n,
                         yalm_error *error)
{
    const struct attending *a = &step->attending;
    for (int t = 0; t < n; t++) {
        const struct cuda_state *s = by->turns[t].s;
        const size_t at = (size_t)t * a->n_heads * a->head_dim;
        struct attention own = attention;
        own.step += t;
        own.q += at;
        own.sink_q = attention.sink_q ? attention.sink_q + at : NULL;
        own.cache = &s->caches[a->seen_kind];
        TRY(attention_decode(&own, &s->attention_plans[a->seen_kind], static_cast<float *>(by->attended) + at,
                             s->attention_scratch, by->stream, error));
    }
    return YALM_OK;
}

// ------------------------------------------------------------------------------------------ a pass

// What the kernels read, on its way to the device before them.
static yalm_status copy_turns(struct cuda_state *by, const struct turn *turns, int n, yalm_error *error)
{
    TRY_CUDA(cudaEventSynchronize(by->copied));
    for (int t = 0; t < n; t++) {
        by->step_host[t] = {turns[t].position, 1, 0};
        by->tokens_host[t] = turns[t].token;
    }
    TRY_CUDA(cudaMemcpyAsync(by->step, by->step_host, n * sizeof *by->step, cudaMemcpyHostToDevice, by->stream));
    TRY_CUDA(cudaMemcpyAsync(by->tokens, by->tokens_host, n * sizeof *by->tokens, cudaMemcpyHostToDevice, by->stream));
    TRY_CUDA(cudaEventRecord(by->copied, by->stream));
    return YALM_OK;
}

// How often in a row a pass of n tokens has now been of these sessions.
static int count_pass(struct several_graph *g, const struct turn *turns, int n)
{
    bool same = g->passed > 0;
    for (int t = 0; t < n; t++) {
        same = same && g->sessions[t] == turns[t].s->number;
        g->sessions[t] = turns[t].s->number;
    }
    if (!same) {
        if (g->graph)
            cudaGraphExecDestroy(g->graph);
        *g = {.sessions = {}, .passed = 0, .graph = NULL};
        for (int t = 0; t < n; t++)
            g->sessions[t] = turns[t].s->number;
    }
    return ++g->passed;
}

// From by->tokens to rows [first, first + n) of by->many_logits; first: 0 or SEVERAL.
static yalm_status queue_pass(struct cuda_state *by, int first, int n, yalm_error *error)
{
    struct several_graph *g = &by->passes[first > 0][n];
    float *logits = by->many_logits + (size_t)first * by->config->vocab_size;
    const auto pass = [=]() -> yalm_status {
        TRY(cuda_steps(by, 0, by->recipe.classifier, n, false, error));
        return cuda_classify(by, logits, by->x, n, error);
    };
    if (count_pass(g, by->turns, n) == 1 || cuda_without("graph")) // which loads the kernels
        return pass();
    if (!g->graph)
        TRY(capture(&g->graph, by->stream, OVERLAP_ALL, pass, error));
    TRY_CUDA(cudaGraphLaunch(g->graph, by->stream));
    return YALM_OK;
}

static yalm_status run_pass(struct cuda_state *by, const struct turn *turns, int first, int n, yalm_error *error)
{
    TRY(copy_turns(by, turns, n, error));
    by->turns = turns;
    const yalm_status status = queue_pass(by, first, n, error);
    by->turns = NULL;
    return status;
}

void turns_close(struct cuda_state *s)
{
    for (const auto &of_one : s->passes)
        for (const struct several_graph &g : of_one)
            if (g.graph)
                cudaGraphExecDestroy(g.graph);
}

// ------------------------------------------------------------------------------------------ whose tokens

// Groups of at most `most`, all of about the same size.
static int end_of_group(int group, int n, int most)
{
    const int groups = (n + most - 1) / most;
    return (int)((int64_t)n * (group + 1) / groups);
}

yalm_status cuda_forward_apart(struct cuda_state *s, const struct batch *batch, yalm_error *error)
{
    struct turn turns[SEVERAL];
    for (int done = 0, n; done < batch->n; done += n) {
        n = batch->n - done < SEVERAL ? batch->n - done : SEVERAL;
        for (int t = 0; t < n; t++)
            turns[t] = {s, batch->position + done + t, batch->tokens[done + t]};
        TRY(run_pass(s, turns, done, n, error));
    }
    s->last_logits = s->many_logits;
    s->fetched = NULL;
    return YALM_OK;
}

// After all that each session was asked for before, and before what it is asked for next.
static yalm_status pass_together(const struct turn *turns, int n, yalm_error *error)
{
    struct cuda_state *by = turns[0].s;
    const size_t vocab = by->config->vocab_size;
    for (int t = 1; t < n; t++) {
        TRY_CUDA(cudaEventRecord(turns[t].s->passed, turns[t].s->stream));
        TRY_CUDA(cudaStreamWaitEvent(by->stream, turns[t].s->passed, 0));
    }
    TRY(run_pass(by, turns, 0, n, error));
    for (int t = 0; t < n; t++) {
        turns[t].s->last_logits = turns[t].s->logits;
        turns[t].s->fetched = NULL;
        TRY_CUDA(cudaMemcpyAsync(turns[t].s->logits, by->many_logits + t * vocab, vocab * sizeof(float),
                                 cudaMemcpyDeviceToDevice, by->stream));
    }
    TRY_CUDA(cudaEventRecord(by->passed, by->stream));
    for (int t = 1; t < n; t++)
        TRY_CUDA(cudaStreamWaitEvent(turns[t].s->stream, by->passed, 0));
    return YALM_OK;
}

// Whether one's activations have room for the other's.
static bool alike(const struct cuda_state *a, const struct cuda_state *b)
{
    return a->several && b->several && a->weights == b->weights && !a->sink_q == !b->sink_q;
}

// Those that do not fit the first one go by themselves.
yalm_status cuda_forward_together(void *const *states, const struct batch *batches, int n, yalm_error *error)
{
    struct cuda_state *const first = static_cast<struct cuda_state *>(states[0]);
    const int most = first->chunk < SEVERAL ? first->chunk : SEVERAL;
    int n_alike = 0;
    for (int i = 0; i < n; i++)
        n_alike += alike(first, static_cast<struct cuda_state *>(states[i]));
    struct turn turns[SEVERAL];
    for (int i = 0, taken = 0, in_group = 0, group = 0; i < n; i++) {
        struct cuda_state *s = static_cast<struct cuda_state *>(states[i]);
        if (!alike(first, s)) {
            TRY(cuda_forward(s, &batches[i], error));
            continue;
        }
        turns[in_group++] = {s, batches[i].position, batches[i].tokens[0]};
        if (++taken < end_of_group(group, n_alike, most))
            continue;
        if (in_group == 1)
            TRY(cuda_forward(s, &batches[i], error));
        else
            TRY(pass_together(turns, in_group, error));
        group++;
        in_group = 0;
    }
    return YALM_OK;
}
