// What a session is asked for: tokens on their way to the device, and passes (run.cu). One token's pass is captured as a graph,
// and launched for every step. Where the session has an attention method (selective.h) there are two such graphs, and the host,
// which knows the position, launches the dense one or the other.
#include "cuda/capture.h"
#include "cuda/delta/recur.h"
#include "cuda/shares.h"
#include "cuda/state.h"
#include "cuda/step.h"

static yalm_status one_token(struct cuda_state *s, bool selective, yalm_error *error)
{
    TRY(cuda_steps(s, 0, s->recipe.classifier, 1, selective, error));
    return cuda_classify(s, s->logits, s->x, 1, error);
}

// The last step's time, where it has ended.
static void take_time(struct cuda_state *s)
{
    float milliseconds = 0.0f;
    if (!s->step_time)
        return;
    if (cudaEventElapsedTime(&milliseconds, s->step_began, s->step_ended) != cudaSuccess)
        cudaGetLastError();
    else if (*s->step_time == 0.0f || milliseconds < *s->step_time)
        *s->step_time = milliseconds;
    s->step_time = NULL;
}

// The next step's form. Each one's first step, which brings its graph to the device, is not timed.
static enum cuda_overlap next_form(struct cuda_state *s, struct step_forms *forms)
{
    enum { TURNS = 6 };
    if (s->device.capability < 90 || cuda_without("overlap"))
        return OVERLAP_NONE;
    if (cuda_without("turns"))
        return cuda_without("products") ? OVERLAP_OTHERS : OVERLAP_ALL;
    int form = forms->launched % STEP_FORMS;
    if (forms->launched < TURNS * STEP_FORMS) {
        s->step_time = forms->launched++ < STEP_FORMS ? NULL : &forms->least[form];
        return (enum cuda_overlap)form;
    }
    form = 0;
    for (int i = 1; i < STEP_FORMS; i++)
        form = forms->least[i] < forms->least[form] ? i : form;
    return (enum cuda_overlap)form;
}

// The first token goes kernel by kernel, which loads them; the next ones as a graph.
static yalm_status decode(struct cuda_state *s, bool selective, yalm_error *error)
{
    struct step_forms *forms = &s->decode[selective];
    if (!forms->loaded || cuda_without("graph")) {
        TRY(one_token(s, selective, error));
        forms->loaded = true;
        return YALM_OK;
    }
    take_time(s);
    const enum cuda_overlap form = next_form(s, forms);
    if (!forms->graphs[form])
        TRY(capture(
            &forms->graphs[form], s->stream, form, [=]() { return one_token(s, selective, error); }, error));
    const bool timed = s->step_time != NULL;
    if (timed)
        TRY_CUDA(cudaEventRecord(s->step_began, s->stream));
    TRY_CUDA(cudaGraphLaunch(forms->graphs[form], s->stream));
    if (timed)
        TRY_CUDA(cudaEventRecord(s->step_ended, s->stream));
    return YALM_OK;
}

// Sends to the device where each token's text lies.
static yalm_status copy_texts(struct cuda_state *s, const struct batch *batch, yalm_error *error)
{
    for (int t = 0; t < batch->n; t++)
        s->texts_host[t] = {batch->texts[t].first, s->config->bidirectional ? batch->texts[t].last : t + 1,
                            batch->types ? batch->types[t] : 0};
    s->step_host->texts = s->texts;
    TRY_CUDA(cudaMemcpyAsync(s->texts, s->texts_host, batch->n * sizeof *s->texts, cudaMemcpyHostToDevice, s->stream));
    return YALM_OK;
}

// What the kernels read, on its way to the device before them.
static yalm_status copy_step(struct cuda_state *s, const struct batch *batch, yalm_error *error)
{
    TRY_CUDA(cudaEventSynchronize(s->copied)); // the last batch's copies are over
    *s->step_host = {batch->position, batch->n, (int16_t)s->carried.from, (int16_t)s->carried.to};
    if (method_applies(s, batch->n, batch->position))
        s->step_host->choice = method_choice(s, batch->position);
    if (batch->texts)
        TRY(copy_texts(s, batch, error));
    s->step_host[1] = {batch->position + batch->n - 1, 1}; // of the last token alone
    TRY_CUDA(cudaMemcpyAsync(s->step, s->step_host, 2 * sizeof *s->step, cudaMemcpyHostToDevice, s->stream));
    if (batch->tokens) {
        memcpy(s->tokens_host, batch->tokens, batch->n * sizeof *batch->tokens);
        TRY_CUDA(cudaMemcpyAsync(s->tokens, s->tokens_host, batch->n * sizeof *s->tokens, cudaMemcpyHostToDevice, s->stream));
    }
    if (batch->given)
        TRY_CUDA(cudaMemcpyAsync(s->given, batch->given, (size_t)batch->n * s->config->hidden_dim * sizeof *s->given,
                                 cudaMemcpyHostToDevice, s->stream));
    TRY_CUDA(cudaEventRecord(s->copied, s->stream));
    return YALM_OK;
}

// Of a group rank 0 alone.
static bool has_logits(const struct cuda_state *s)
{
    return !s->group || s->group->transport.rank == 0;
}

// Logits of all tokens, some rows at a time, to the host.
static yalm_status classify_all(struct cuda_state *s, const struct batch *batch, yalm_error *error)
{
    const size_t vocab = s->vocab, dim = s->config->hidden_dim;
    for (int t = 0, n; t < batch->n; t += n) {
        n = batch->n - t < LOGITS_AT_ONCE ? batch->n - t : LOGITS_AT_ONCE;
        TRY(cuda_classify(s, s->many_logits, s->x + t * dim, n, error));
        TRY(shares_wait(s, error)); // a copy to memory that is not pinned would, but for ever
        if (!has_logits(s))
            continue;
        TRY_CUDA(cudaMemcpyAsync(batch->logits + t * vocab, s->many_logits, n * vocab * sizeof(float), cudaMemcpyDeviceToHost,
                                 s->stream));
    }
    TRY_CUDA(cudaStreamSynchronize(s->stream));
    return YALM_OK;
}

// One token's logits: as one kernel where the session has it, else as a graph.
static yalm_status generate(struct cuda_state *s, const struct batch *batch, bool selective, yalm_error *error)
{
    s->last_logits = s->logits;
    s->fetched = NULL;
    if (step_runs(s, batch->position)) {
        TRY(step_run(s, batch->position, batch->tokens[0], error));
    } else {
        TRY(copy_step(s, batch, error));
        TRY(decode(s, selective, error));
    }
    TRY(cuda_keep_hidden(s, batch, 0, 1, error));
    if (!batch->all_logits || !has_logits(s))
        return YALM_OK;
    TRY(shares_wait(s, error));
    TRY_CUDA(cudaMemcpyAsync(batch->logits, s->logits, s->vocab * sizeof(float), cudaMemcpyDeviceToHost, s->stream));
    TRY_CUDA(cudaStreamSynchronize(s->stream));
    return YALM_OK;
}

// Steps from `first` on, of layers that keep no keys, for the last of n tokens alone: what is read of it becomes the first's.
static yalm_status last_alone(struct cuda_state *s, int first, int n, yalm_error *error)
{
    const size_t dim = s->config->hidden_dim, inputs = (size_t)s->config->n_layers * s->config->layer_input_dim, at = n - 1;
    TRY_CUDA(cudaMemcpyAsync(s->x, s->x + at * dim, dim * sizeof *s->x, cudaMemcpyDeviceToDevice, s->stream));
    if (s->layer_inputs)
        TRY_CUDA(cudaMemcpyAsync(s->layer_inputs, s->layer_inputs + at * inputs, inputs * sizeof *s->layer_inputs,
                                 cudaMemcpyDeviceToDevice, s->stream));
    s->step++;
    const yalm_status status = cuda_steps(s, first, s->recipe.classifier, 1, false, error);
    s->step--;
    return status;
}

static yalm_status forward(struct cuda_state *s, const struct batch *batch, yalm_error *error)
{
    if (batch->apart)
        return cuda_forward_apart(s, batch, error);
    const bool last = batch->logits && !batch->all_logits, selective = method_applies(s, batch->n, batch->position);
    if (batch->n == 1 && batch->logits)
        return generate(s, batch, selective, error);
    TRY(copy_step(s, batch, error));
    if (last) {
        s->last_logits = s->logits;
        s->fetched = NULL;
    }
    const int classifier = s->recipe.classifier, tail = batch->all_logits ? classifier : s->recipe.tail;
    TRY(cuda_steps(s, 0, tail, batch->n, selective, error));
    TRY(cuda_keep_hidden(s, batch, 0, batch->n, error));
    if (last && tail < classifier) {
        TRY(last_alone(s, tail, batch->n, error));
        return cuda_classify(s, s->logits, s->x, 1, error);
    }
    if (last)
        return cuda_classify(s, s->logits, s->x + (size_t)(batch->n - 1) * s->config->hidden_dim, 1, error);
    return batch->logits ? classify_all(s, batch, error) : YALM_OK;
}

yalm_status cuda_begin(struct cuda_state *s, const struct batch *batch, yalm_error *error)
{
    TRY(delta_replay(s, batch->position, error));
    carried_begin(&s->carried, batch->position, batch->n, batch->apart);
    return YALM_OK;
}

void cuda_end(struct cuda_state *s, const struct batch *batch, yalm_status status)
{
    carried_end(&s->carried, batch->position, batch->n, status == YALM_OK);
}

yalm_status cuda_forward(struct cuda_state *s, const struct batch *batch, yalm_error *error)
{
    TRY(cuda_begin(s, batch, error));
    const yalm_status status = forward(s, batch, error);
    cuda_end(s, batch, status);
    return status;
}

// A recurrent layer's states stay what they are: what is in them costs no time.
static yalm_status skip(struct cuda_state *s, int64_t position, int kind, yalm_error *error)
{
    const struct delta_config *c = &s->config->kinds[kind].delta;
    const size_t layers = config_n_layers_of(s->config, kind), states = layers * delta_state_floats(c),
                 inputs = layers * delta_input_floats(c);
    const int place = s->carried.from;
    if (position > 0)
        return YALM_OK;
    if (states > 0)
        TRY_CUDA(cudaMemsetAsync(s->states[kind] + place * states, 0, states * sizeof(float), s->stream));
    TRY_CUDA(cudaMemsetAsync(s->inputs[kind] + place * inputs, 0, inputs * sizeof(float), s->stream));
    return YALM_OK;
}

yalm_status cuda_fill(struct cuda_state *s, int64_t position, int n, uint64_t seed, yalm_error *error)
{
    struct batch batch = {};
    batch.n = n;
    batch.position = position;
    if (s->method) {
        TRY(copy_step(s, &batch, error));
        TRY(method_begin(s, false, error));
    }
    TRY(delta_replay(s, position, error));
    s->carried.from = carried_skip(&s->carried, position, n);
    for (int kind = 0; kind < config_n_kinds(s->config); kind++) {
        if (config_kind_recurs(s->config, kind))
            TRY(skip(s, position, kind, error));
        if (config_kind_keeps(s->config, kind))
            TRY(fill_noise(&s->caches[kind], position, n, seed + kind, s->stream, error));
    }
    for (int layer = 0; s->method && layer < s->caches[s->far].n_layers; layer++) {
        const struct attention attention = {s->step,           NULL, NULL, &s->caches[s->far], layer,
                                            s->config->n_heads}; // there are rows only
        TRY(method_append(s, &attention, n, error));
    }
    return YALM_OK;
}
