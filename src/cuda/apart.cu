// Tokens apart: several at once, each with the bits that it has alone. They are the next tokens of as many sessions, or of one
// session those that its caller expects.
//
// A pass is run.cu's with the kernels of one token. Products read each matrix once for up to eight tokens (several.cuh). Norms
// and the like have a block for each token as it is. Each token attends by itself (turns.cu). Activations are those of the
// first session, on whose stream the pass goes.
//
// A pass is captured when it comes a second time, of the same sessions, and launched from then on: all that changes lies in
// device memory.
#include "cuda/capture.h"
#include "cuda/state.h"

// Tokens of a batch: two readings of the weights. Recurrent layers keep much of each token, so there it is one (SEVERAL).
enum { MOST_APART = 16 };

int cuda_most_apart(const struct cuda_state *s)
{
    const int most = config_recurs(s->config) ? (int)SEVERAL : (int)MOST_APART;
    return !s->several ? 1 : s->chunk < most ? s->chunk : most;
}

// What the kernels read, on its way to the device before them.
static yalm_status copy_turns(struct cuda_state *by, const struct turn *turns, int n, yalm_error *error)
{
    TRY_CUDA(cudaEventSynchronize(by->copied));
    for (int t = 0; t < n; t++) {
        const struct carried *c = &turns[t].s->carried;
        by->step_host[t] = {turns[t].position, 1, (int16_t)c->from, (int16_t)c->to};
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

yalm_status turns_pass(struct cuda_state *by, const struct turn *turns, int first, int n, yalm_error *error)
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

yalm_status cuda_forward_apart(struct cuda_state *s, const struct batch *batch, yalm_error *error)
{
    struct turn turns[SEVERAL];
    for (int done = 0, n; done < batch->n; done += n) {
        n = batch->n - done < SEVERAL ? batch->n - done : SEVERAL;
        for (int t = 0; t < n; t++)
            turns[t] = {s, batch->position + done + t, batch->tokens[done + t]};
        TRY(turns_pass(s, turns, done, n, error));
        TRY(cuda_keep_hidden(s, batch, done, n, error));
    }
    s->last_logits = s->many_logits;
    s->fetched = NULL;
    return YALM_OK;
}
