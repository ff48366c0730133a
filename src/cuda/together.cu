// The next tokens of several sessions, which come through the layers together (apart.cu).
#include "cuda/state.h"

// Groups of at most `most`, all of about the same size.
static int end_of_group(int group, int n, int most)
{
    const int groups = (n + most - 1) / most;
    return (int)((int64_t)n * (group + 1) / groups);
}

// After all that each session was asked for before, and before what it is asked for next.
static yalm_status queue_together(const struct turn *turns, int n, yalm_error *error)
{
    struct cuda_state *by = turns[0].s;
    const size_t vocab = by->config->vocab_size;
    for (int t = 1; t < n; t++) {
        TRY_CUDA(cudaEventRecord(turns[t].s->passed, turns[t].s->stream));
        TRY_CUDA(cudaStreamWaitEvent(by->stream, turns[t].s->passed, 0));
    }
    TRY(turns_pass(by, turns, 0, n, error));
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

static yalm_status pass_together(const struct turn *turns, const struct batch *const *batches, int n, yalm_error *error)
{
    yalm_status status = YALM_OK;
    int begun = 0;
    for (; begun < n && status == YALM_OK; begun++)
        status = cuda_begin(turns[begun].s, batches[begun], error);
    if (status == YALM_OK)
        status = queue_together(turns, n, error);
    for (int t = 0; t < begun; t++)
        cuda_end(turns[t].s, batches[t], status);
    return status;
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
    const struct batch *of_turns[SEVERAL];
    for (int i = 0, taken = 0, in_group = 0, group = 0; i < n; i++) {
        struct cuda_state *s = static_cast<struct cuda_state *>(states[i]);
        if (!alike(first, s)) {
            TRY(cuda_forward(s, &batches[i], error));
            continue;
        }
        of_turns[in_group] = &batches[i];
        turns[in_group++] = {s, batches[i].position, batches[i].tokens[0]};
        if (++taken < end_of_group(group, n_alike, most))
            continue;
        if (in_group == 1)
            TRY(cuda_forward(s, &batches[i], error));
        else
            TRY(pass_together(turns, of_turns, in_group, error));
        group++;
        in_group = 0;
    }
    return YALM_OK;
}
