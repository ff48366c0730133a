#include "cuda/shares.h"

#include "cuda/kernels/reduce.cuh"
#include "cuda/nccl.h"
#include "cuda/state.h"

#include <pthread.h>

struct shares {
    struct yalm_group *group;
    const struct nccl *nccl;
    nccl_comm comm; // NULL: not joined yet, or given up
};

#define TRY_NCCL(shares, call) TRY(nccl_check((shares)->nccl, (shares)->nccl->call, "nccl " #call, (shares)->comm, error))

enum { THREADS = 256 };

// ------------------------------------------------------------------------------------------ joining

yalm_status shares_choose_gpu(const struct yalm_group *group, int n_gpus, int *gpu, yalm_error *error)
{
    const struct transport *t = &group->transport;
    int before = 0, here = 0;
    for (int r = 0; r < t->n; r++)
        if (strcmp(t->name(t->context, r), t->name(t->context, t->rank)) == 0) {
            before += r < t->rank;
            here++;
        }
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"); // by which some launchers give each rank its own, as the only one
    *gpu = visible && n_gpus == 1 ? 0 : before;
    if (*gpu < n_gpus)
        return YALM_OK;
    return error_set(error, YALM_FAILED, "device cuda: no GPU of its own: %d ranks run on this host, and its driver finds %d",
                     here, n_gpus);
}

yalm_status shares_open(struct shares **shares, struct yalm_group *group, yalm_error *error)
{
    const struct nccl *nccl = nccl_open(error);
    if (!nccl)
        return YALM_FAILED;
    *shares = static_cast<struct shares *>(malloc(sizeof **shares));
    if (!*shares)
        return error_set(error, YALM_NO_MEMORY, "out of memory for a group of ranks");
    **shares = {group, nccl, NULL};
    return YALM_OK;
}

// Not by ncclCommDestroy(), which may wait for ranks: by now nothing is under way.
void shares_close(struct shares *shares)
{
    if (shares && shares->comm)
        shares->nccl->comm_abort(shares->comm);
    free(shares);
}

yalm_status shares_invite(void *invitation, yalm_error *error)
{
    const struct nccl *nccl = nccl_open(error);
    nccl_id id = {};
    if (!nccl)
        return YALM_FAILED;
    TRY(nccl_check(nccl, nccl->get_unique_id(&id), "ncclGetUniqueId", NULL, error));
    memcpy(invitation, &id, sizeof id);
    return YALM_OK;
}

// One token's sums, the most tokens', and logits. NCCL makes its connections when they are first used, and then waits for other
// ranks outside of the stream: better now than in a pass.
static yalm_status shake_hands(struct cuda_state *s, yalm_error *error)
{
    TRY_CUDA(cudaMemsetAsync(s->x, 0, (size_t)s->chunk * s->config->hidden_dim * sizeof *s->x, s->stream));
    TRY_CUDA(cudaMemsetAsync(s->part_logits, 0, s->config->vocab_size * sizeof *s->part_logits, s->stream));
    TRY(shares_end_block(s, NULL, 1, error));
    TRY(shares_end_block(s, NULL, s->chunk, error));
    TRY(shares_gather(s, s->logits, 1, error));
    TRY_CUDA(cudaStreamSynchronize(s->stream));
    return YALM_OK;
}

yalm_status shares_join(struct cuda_state *s, const void *invitation, yalm_error *error)
{
    struct shares *shares = s->weights->shares;
    const struct transport *t = &shares->group->transport;
    nccl_id id;
    memcpy(&id, invitation, sizeof id);
    TRY(nccl_check(shares->nccl, shares->nccl->comm_init_rank(&shares->comm, t->n, id, t->rank), "ncclCommInitRank", NULL,
                   error));
    return shake_hands(s, error);
}

void shares_take(struct cuda_state *s, struct cuda_blocks *b)
{
    if (!s->group)
        return;
    take(b, s->part_logits, (size_t)LOGITS_AT_ONCE * s->config->vocab_size, sizeof(float));
    if (s->config->whole_qk_norm)
        take(b, s->squares, 2 * (size_t)s->chunk, sizeof(float));
}

// ------------------------------------------------------------------------------------------ sums

// In place.
static yalm_status sum(struct cuda_state *s, float *x, size_t n, yalm_error *error)
{
    struct shares *shares = s->weights->shares;
    if (!shares->comm)
        return error_set(error, YALM_FAILED, "NCCL: given up after a failure");
    TRY_NCCL(shares, all_reduce(x, x, n, NCCL_FLOAT32, NCCL_SUM, shares->comm, s->stream));
    return YALM_OK;
}

yalm_status shares_end_block(struct cuda_state *s, const float *norm, int n, yalm_error *error)
{
    const int dim = s->config->hidden_dim;
    TRY(sum(s, s->branch, (size_t)n * dim, error));
    TRY(add_rmsnorm(s->x, s->branch, norm, s->config->norm_eps, n, dim, s->stream, error));
    TRY_CUDA(cudaMemsetAsync(s->branch, 0, (size_t)n * dim * sizeof *s->branch, s->stream));
    return YALM_OK;
}

// Block t: the sum of the squares of x[t], every second of `squares`.
static __global__ void squares_kernel(float *squares, const float *x, int pitch, int width)
{
    SHARED_ARRAY(float, sums, 32);
    grid_dependency_launch();
    grid_dependency_wait();
    float own = 0;
    for (int i = (int)threadIdx.x; i < width; i += THREADS)
        own = fmaf(x[(size_t)blockIdx.x * pitch + i], x[(size_t)blockIdx.x * pitch + i], own);
    own = block_sum(own, sums);
    if (threadIdx.x == 0)
        squares[2 * blockIdx.x] = own;
}

// Block t: x[t] = x[t] / sqrt(squares / n_all + eps) * weight.
static __global__ void scale_kernel(float *x, int pitch, int width, const float *weight, const float *squares, int n_all,
                                    float eps)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const float scale = 1.0f / sqrtf(squares[2 * blockIdx.x] / (float)n_all + eps);
    for (int i = (int)threadIdx.x; i < width; i += THREADS)
        x[(size_t)blockIdx.x * pitch + i] *= scale * weight[i];
}

yalm_status shares_normalise(struct cuda_state *s, const struct layer_weights *w, float *k, int q_pitch, int k_pitch, int n,
                             yalm_error *error)
{
    const struct model_config *c = s->config;
    const int all_kv = config_all_kv_heads(c) * c->head_dim, all_q = all_kv * (c->n_heads / c->n_kv_heads);
    TRY(LAUNCH(error, squares_kernel, n, THREADS, 0, s->stream, s->squares, s->q, q_pitch, s->q_dim));
    TRY(LAUNCH(error, squares_kernel, n, THREADS, 0, s->stream, s->squares + 1, k, k_pitch, s->kv_dim));
    TRY(sum(s, s->squares, 2 * (size_t)n, error));
    TRY(LAUNCH(error, scale_kernel, n, THREADS, 0, s->stream, s->q, q_pitch, s->q_dim, w->q_norm, s->squares, all_q,
               c->norm_eps));
    return LAUNCH(error, scale_kernel, n, THREADS, 0, s->stream, k, k_pitch, s->kv_dim, w->k_norm, s->squares + 1, all_kv,
                  c->norm_eps);
}

// ------------------------------------------------------------------------------------------ logits

static yalm_status send_rows(struct cuda_state *s, int n, yalm_error *error)
{
    struct shares *shares = s->weights->shares;
    const size_t rows = s->config->vocab_size;
    for (int t = 0; t < n; t++)
        TRY_NCCL(shares, send(s->part_logits + t * rows, rows, NCCL_FLOAT32, 0, shares->comm, s->stream));
    return YALM_OK;
}

static yalm_status receive_rows(struct cuda_state *s, float *logits, int n, yalm_error *error)
{
    struct shares *shares = s->weights->shares;
    for (int t = 0; t < n; t++)
        for (int r = 1; r < shares->group->transport.n; r++) {
            const struct share_span rows = share_of_rows(s->vocab, r, shares->group->transport.n);
            TRY_NCCL(shares, recv(logits + (size_t)t * s->vocab + rows.first, rows.last - rows.first, NCCL_FLOAT32, r,
                                  shares->comm, s->stream));
        }
    return YALM_OK;
}

yalm_status shares_gather(struct cuda_state *s, float *logits, int n, yalm_error *error)
{
    struct shares *shares = s->weights->shares;
    const bool first = shares->group->transport.rank == 0;
    const size_t own = s->config->vocab_size * sizeof *logits;
    if (first)
        TRY_CUDA(cudaMemcpy2DAsync(logits, s->vocab * sizeof *logits, s->part_logits, own, own, n, cudaMemcpyDeviceToDevice,
                                   s->stream));
    TRY_NCCL(shares, group_start());
    const yalm_status status = first ? receive_rows(s, logits, n, error) : send_rows(s, n, error);
    const int ended = shares->nccl->group_end(); // also after a failure
    return status == YALM_OK ? nccl_check(shares->nccl, ended, "ncclGroupEnd", shares->comm, error) : status;
}

// ------------------------------------------------------------------------------------------ waiting

static void *close_left(void *context)
{
    shares_close(static_cast<struct shares *>(context));
    return NULL;
}

// In a thread of its own: NCCL's kernels end at once, but the call does when no graph has any more, and other sessions still
// have theirs.
void shares_give_up(struct cuda_state *s)
{
    struct shares *shares = s->weights->shares;
    struct shares *left = shares && shares->comm ? static_cast<struct shares *>(malloc(sizeof *left)) : NULL;
    pthread_t thread;
    if (!left)
        return;
    *left = *shares;
    shares->comm = NULL;
    if (pthread_create(&thread, NULL, close_left, left) == 0)
        pthread_detach(thread);
}

// Nothing at first: most passes take milliseconds.
static void wait_a_little(double waited)
{
    const struct timespec pause = {0, 100000};
    if (waited > 0.1)
        nanosleep(&pause, NULL);
}

// What NCCL has noticed of itself; YALM_OK while it works.
static yalm_status look(const struct shares *shares, yalm_error *error)
{
    int result = NCCL_SUCCESS;
    if (shares->comm)
        shares->nccl->comm_get_async_error(shares->comm, &result);
    return result == NCCL_IN_PROGRESS ? YALM_OK : nccl_check(shares->nccl, result, "a sum over ranks", shares->comm, error);
}

yalm_status shares_wait(struct cuda_state *s, yalm_error *error)
{
    struct yalm_group *group = s->group;
    if (!group)
        return YALM_OK;
    const double begin = clock_seconds();
    double asked = begin;
    for (;;) {
        const cudaError_t done = cudaStreamQuery(s->stream);
        if (done != cudaErrorNotReady)
            return cuda_check(done, "cudaStreamQuery", error);
        const double now = clock_seconds();
        wait_a_little(now - begin);
        yalm_error why = {};
        const bool fails = look(s->weights->shares, &why) != YALM_OK, late = now - asked > group->patience / 2;
        if (!fails && !late)
            continue;
        const bool rank_0_is_gone = group->has_heard && (group->heard.command.kind == COMMAND_END || late);
        if (!group_call_roll(group)) // which says best who is to blame
            return group_failure(group, error);
        if (fails)
            return error_set(error, why.status, "%s", why.text);
        if (rank_0_is_gone)
            return error_set(error, YALM_FAILED, "rank 0 has gone on without this pass");
        asked = clock_seconds();
    }
}

yalm_status shares_keep_up(struct cuda_state *s, int layer, yalm_error *error)
{
    enum { LAYERS = 4 };
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (!s->group || (layer + 1) % LAYERS != 0)
        return YALM_OK;
    TRY_CUDA(cudaStreamIsCapturing(s->stream, &capture));
    return capture == cudaStreamCaptureStatusNone ? shares_wait(s, error) : YALM_OK;
}
