// Mixture of experts: the router, its choice, and the products of the chosen experts only. One token's are vectors
// (matvec.cuh), several tokens' are grouped by expert (experts.cuh).
#include "cuda/experts/experts.cuh"

enum { ROUTER_THREADS = 256, CHOOSE_THREADS = 32, LIST_THREADS = 32, COMBINE_THREADS = 256 };

// Where everything lies in the scratch.
struct experts_scratch {
    float *logits;                 // (n, n_experts)
    struct expert_choice *choices; // (n, n_active), experts ascending
    int32_t *counts, *slots;       // (n_experts), (n_experts, n): see struct group_product
    float *h;                      // (n, dim)
    float *gated;                  // (n, n_active, ffn_dim)
    float *down;                   // (n, n_active, dim)
};

static size_t take(size_t *used, size_t n, size_t size)
{
    const size_t at = *used;
    *used = round_up(at + n * size, 256);
    return at;
}

static size_t lay_out(struct experts_scratch *s, void *scratch, int n, int n_experts, int n_active, int dim, int ffn_dim)
{
    char *base = static_cast<char *>(scratch);
    size_t used = 0;
    const size_t slots = (size_t)n * n_active;
    s->logits = reinterpret_cast<float *>(base + take(&used, (size_t)n * n_experts, sizeof *s->logits));
    s->choices = reinterpret_cast<struct expert_choice *>(base + take(&used, slots, sizeof *s->choices));
    s->gated = reinterpret_cast<float *>(base + take(&used, slots * ffn_dim, sizeof *s->gated));
    if (n == 1)
        return used;
    s->counts = reinterpret_cast<int32_t *>(base + take(&used, n_experts, sizeof *s->counts));
    s->slots = reinterpret_cast<int32_t *>(base + take(&used, (size_t)n_experts * n, sizeof *s->slots));
    s->h = reinterpret_cast<float *>(base + take(&used, (size_t)n * dim, sizeof *s->h));
    s->down = reinterpret_cast<float *>(base + take(&used, slots * dim, sizeof *s->down));
    return used;
}

size_t experts_scratch_bytes(const struct model_config *config, int most_tokens)
{
    struct experts_scratch s;
    char origin[1] = {0};
    return lay_out(&s, origin, most_tokens, config->n_experts, config->n_active_experts, config->hidden_dim,
                   config_expert_ffn(config));
}

// ------------------------------------------------------------------------------------------ routing

// Block (expert, token): one logit, of rmsnorm(x[t]), or x[t] where norm is NULL.
template <class T>
static __global__ void router_kernel(float *logits, const T *router, const float *bias, const float *x, const float *norm,
                                     float eps, int dim)
{
    SHARED_ARRAY(float, products, 32);
    SHARED_ARRAY(float, squares, 32);
    grid_dependency_launch();
    grid_dependency_wait();
    const T *w = router + (size_t)blockIdx.x * dim;
    const float *from = x + (size_t)blockIdx.y * dim;
    float product = 0, square = 0;
#pragma unroll 8
    for (int i = (int)threadIdx.x; i < dim; i += ROUTER_THREADS) {
        const float value = __ldcg(from + i);
        product = fmaf(norm ? value * norm[i] : value, to_float(w[i]), product);
        square = fmaf(value, value, square);
    }
    product = block_sum(product, products);
    square = block_sum(square, squares);
    if (threadIdx.x == 0)
        logits[(size_t)blockIdx.y * gridDim.x + blockIdx.x] =
            (norm ? product / sqrtf(square / (float)dim + eps) : product) + (bias ? bias[blockIdx.x] : 0.0f);
}

__device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

// How many come before number i of n by rating; of equals the first.
__device__ static inline int rank_of(const float *ratings, int n, int i)
{
    int rank = 0;
    for (int other = 0; other < n; other++)
        rank += ratings[other] > ratings[i] || (ratings[other] == ratings[i] && other < i);
    return rank;
}

struct expert_rule {
    int n_experts, n_active;
    bool raw;
    const float *choice_bias;
    float scale;
    const float *weight_scale;
    int n_groups, n_active_groups;
    float eps;
    bool softmax;
};

// What turns a token's logits into scores, with choice_bias: sigmoids, or the softmax, whose largest logit and sum these are.
struct score_rule {
    bool softmax;
    float max, sum;
};

__device__ static inline float score_of(const struct score_rule &rule, float logit)
{
    return rule.softmax ? expf(logit - rule.max) / rule.sum : sigmoid(logit);
}

__device__ static inline struct score_rule score_rule_of(const float *logits, const struct expert_rule &rule)
{
    struct score_rule scores = {rule.softmax, -INFINITY, 0};
    if (!rule.softmax)
        return scores;
    for (int e = (int)threadIdx.x; e < rule.n_experts; e += CHOOSE_THREADS)
        scores.max = fmaxf(scores.max, logits[e]);
    scores.max = warp_max(scores.max);
    for (int e = (int)threadIdx.x; e < rule.n_experts; e += CHOOSE_THREADS)
        scores.sum += expf(logits[e] - scores.max);
    scores.sum = warp_sum(scores.sum);
    return scores;
}

// Experts outside of the best groups come to rate lowest. best: (n_groups).
__device__ static inline void keep_groups(float *ratings, float *best, const struct expert_rule &rule)
{
    const int n = rule.n_groups, size = rule.n_experts / n;
    for (int g = (int)threadIdx.x; g < n; g += CHOOSE_THREADS) {
        float first = -INFINITY, second = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; e++) {
            second = fmaxf(second, fminf(first, ratings[e]));
            first = fmaxf(first, ratings[e]);
        }
        best[g] = rule.choice_bias && size > 1 ? first + second : first;
    }
    __syncthreads();
    for (int g = (int)threadIdx.x; g < n; g += CHOOSE_THREADS)
        if (rank_of(best, n, g) >= rule.n_active_groups)
            for (int e = g * size; e < (g + 1) * size; e++)
                ratings[e] = -INFINITY;
    __syncthreads();
}

// Block t chooses the n_active largest of token t's logits (the lower index of equals) and sorts them by index. Their weights
// are the softmax over them, or over all where it is to be raw. With choice_bias: the best by the sum of that and the score;
// weights are the scores, divided by their sum, or raw. All are multiplied by scale, and each expert's by its own.
// Dynamic shared memory: (n_experts) what each is chosen by, (n_experts) how many come before it, (n_groups).
static __global__ void choose_kernel(struct expert_choice *choices, const float *logits, const struct expert_rule rule)
{
    SHARED_DYNAMIC(float, ratings);
    const int n_experts = rule.n_experts, n_active = rule.n_active;
    const float *choice_bias = rule.choice_bias;
    int *ranks = reinterpret_cast<int *>(ratings + n_experts);
    grid_dependency_launch();
    grid_dependency_wait();
    logits += (size_t)blockIdx.x * n_experts;
    choices += (size_t)blockIdx.x * n_active;
    const struct score_rule scores = score_rule_of(logits, rule);
    for (int e = (int)threadIdx.x; e < n_experts; e += CHOOSE_THREADS)
        ratings[e] = choice_bias ? score_of(scores, logits[e]) + choice_bias[e] : logits[e];
    __syncthreads();
    if (rule.n_groups > 0)
        keep_groups(ratings, ratings + 2 * n_experts, rule);
    for (int e = (int)threadIdx.x; e < n_experts; e += CHOOSE_THREADS)
        ranks[e] = rank_of(ratings, n_experts, e);
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    int n = 0;
    for (int e = 0; e < n_experts && n < n_active; e++)
        if (ranks[e] < n_active)
            choices[n++].expert = e;
    for (int e = 0; n < n_active; e++) // only where NaN logits compare with nothing
        choices[n++].expert = e;
    float max = -INFINITY, sum = choice_bias && !rule.softmax ? rule.eps : 0;
    for (int i = 0; i < n_active; i++)
        max = fmaxf(max, logits[choices[i].expert]);
    for (int i = 0; i < n_active; i++)
        sum += choices[i].weight =
            choice_bias ? score_of(scores, logits[choices[i].expert]) : expf(logits[choices[i].expert] - max);
    if (rule.raw && choice_bias) {
        sum = 1;
    } else if (rule.raw) {
        sum = 0;
        for (int e = 0; e < n_experts; e++)
            sum += expf(logits[e] - max);
    } else if (rule.softmax) {
        sum = fmaxf(sum, rule.eps);
    }
    for (int i = 0; i < n_active; i++)
        choices[i].weight =
            choices[i].weight / sum * rule.scale * (rule.weight_scale ? rule.weight_scale[choices[i].expert] : 1.0f);
}

static yalm_status route(const struct experts *e, const struct experts_scratch *s, const float *x, int n, cudaStream_t stream,
                         yalm_error *error)
{
    const dim3 grid(e->n_experts, n);
    const void *router = e->router.data;
    const float *norm = e->router_norm ? e->router_norm : e->norm;
    const int dim = e->router.cols;
    if (e->router.dtype == DTYPE_FP32)
        TRY(LAUNCH(error, router_kernel<float>, grid, ROUTER_THREADS, 0, stream, s->logits, static_cast<const float *>(router),
                   e->router_bias, x, norm, e->eps, dim));
    else if (e->router.dtype == DTYPE_FP16)
        TRY(LAUNCH(error, router_kernel<half>, grid, ROUTER_THREADS, 0, stream, s->logits, static_cast<const half *>(router),
                   e->router_bias, x, norm, e->eps, dim));
    else if (e->router.dtype == DTYPE_BF16)
        TRY(LAUNCH(error, router_kernel<__nv_bfloat16>, grid, ROUTER_THREADS, 0, stream, s->logits,
                   static_cast<const __nv_bfloat16 *>(router), e->router_bias, x, norm, e->eps, dim));
    else
        return no_kernel(e->router.dtype, error);
    const struct expert_rule rule = {
        e->n_experts,    e->n_active, e->raw_weights,     e->choice_bias, e->scale > 0 ? e->scale : 1.0f,
        e->weight_scale, e->n_groups, e->n_active_groups, e->eps_of_sum,  e->softmax_scores};
    return LAUNCH(error, choose_kernel, n, CHOOSE_THREADS, sizeof(float) * (2 * e->n_experts + e->n_groups), stream, s->choices,
                  s->logits, rule);
}

// Block e, one warp: the slots that chose expert e, in order.
static __global__ void list_kernel(int32_t *counts, int32_t *slots, const struct expert_choice *choices, int n, int n_active)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int expert = (int)blockIdx.x, lane = (int)threadIdx.x, n_slots = n * n_active;
    int count = 0;
    for (int first = 0; first < n_slots; first += LIST_THREADS) {
        const int slot = first + lane;
        const bool chosen = slot < n_slots && choices[slot].expert == expert;
        const unsigned all = __ballot_sync(0xffffffffu, chosen);
        if (chosen)
            slots[(size_t)expert * n + count + __popc(all & ((1u << lane) - 1))] = slot;
        count += __popc(all);
    }
    if (lane == 0)
        counts[expert] = count;
}

// to[t] += Σ_i weight_i down[t, i]
static __global__ void combine_kernel(float *to, const float *down, const struct expert_choice *choices, int n_active, int dim)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const int t = (int)blockIdx.y, col = (int)(blockIdx.x * COMBINE_THREADS + threadIdx.x);
    if (col >= dim)
        return;
    float sum = to[(size_t)t * dim + col];
    for (int i = 0; i < n_active; i++) {
        const size_t slot = (size_t)t * n_active + i;
        sum = fmaf(choices[slot].weight, down[slot * dim + col], sum);
    }
    to[(size_t)t * dim + col] = sum;
}

// ------------------------------------------------------------------------------------------ products

// Experts of a layer usually are of one type; launches are made for those that there are.
template <enum matvec_kind KIND> static bool any_has(const struct experts *e, enum dtype type)
{
    for (int i = 0; i < e->n_experts; i++)
        if (expert_has<KIND>(&e->experts[i], type))
            return true;
    return false;
}

template <enum matvec_kind KIND>
static yalm_status one_token(const struct experts *e, struct matvec m, cudaStream_t stream, yalm_error *error)
{
    for (int type = 0; type < DTYPE_WEIGHTS; type++) {
        m.type = (enum dtype)type;
        if (any_has<KIND>(e, m.type))
            TRY((KIND == MATVEC_ADD ? matvec_add<true>(&m, m.type, stream, error)
                                    : matvec_run<KIND, true>(&m, m.type, stream, error)));
    }
    return YALM_OK;
}

// Units of one matrix, which MATVEC_STORE has left as they are.
static yalm_status activate_ungated(const struct experts *e, const struct experts_scratch *s, int n, cudaStream_t stream,
                                    yalm_error *error)
{
    const size_t n_units = (size_t)n * e->n_active * e->experts[0].down.cols;
    return e->experts[0].up.dtype == DTYPE_U8
               ? gate_multiply(s->gated, DTYPE_FP32, s->gated, NULL, n_units, stream, error, e->activation)
               : YALM_OK;
}

// All products with h come before any with x: they need x as it was.
static yalm_status run_one(float *to, const float *x, const struct experts *e, const struct experts_scratch *s,
                           cudaStream_t stream, yalm_error *error)
{
    const int dim = e->experts[0].down.rows, ffn_dim = e->experts[0].down.cols;
    for (int i = 0; i < e->n_active; i++) {
        struct matvec m = {};
        m.choice = s->choices + i;
        m.table = e->table;
        m.x = x;
        m.norm = e->norm;
        m.eps = e->eps;
        m.activation = e->activation;
        m.cols = m.stride = dim;
        m.rows[0] = ffn_dim;
        m.y[0] = s->gated + (size_t)i * ffn_dim;
        TRY(one_token<MATVEC_STORE>(e, m, stream, error));
        TRY(one_token<MATVEC_UP>(e, m, stream, error));
        m.rows[1] = ffn_dim;
        TRY(one_token<MATVEC_GATED>(e, m, stream, error));
    }
    TRY(activate_ungated(e, s, 1, stream, error));
    for (int i = 0; i < e->n_active; i++) {
        struct matvec m = {};
        m.choice = s->choices + i;
        m.table = e->table;
        m.x = s->gated + (size_t)i * ffn_dim;
        m.cols = m.stride = ffn_dim;
        m.rows[0] = dim;
        m.y[0] = to;
        TRY(one_token<MATVEC_ADD>(e, m, stream, error));
    }
    return YALM_OK;
}

template <enum matvec_kind KIND>
static yalm_status many_tokens(const struct experts *e, struct group_product p, cudaStream_t stream, yalm_error *error)
{
    for (int type = 0; type < DTYPE_WEIGHTS; type++) {
        p.type = (enum dtype)type;
        if (any_has<KIND>(e, p.type))
            TRY(group_run<KIND>(&p, e->n_experts, stream, error));
    }
    return YALM_OK;
}

static yalm_status run_many(float *to, const float *x, const struct experts *e, const struct experts_scratch *s, int n,
                            cudaStream_t stream, yalm_error *error)
{
    const int dim = e->experts[0].down.rows, ffn_dim = e->experts[0].down.cols;
    TRY(LAUNCH(error, list_kernel, e->n_experts, LIST_THREADS, 0, stream, s->counts, s->slots, s->choices, n, e->n_active));
    TRY(rmsnorm(s->h, DTYPE_FP32, x, e->norm, e->eps, n, dim, stream, error));
    struct group_product p = {e->table, DTYPE_FP32, s->counts, s->slots,     n, e->n_active, ffn_dim,
                              dim,      s->h,       s->gated,  e->activation};
    TRY(many_tokens<MATVEC_STORE>(e, p, stream, error));
    TRY(many_tokens<MATVEC_UP>(e, p, stream, error));
    TRY(many_tokens<MATVEC_GATED>(e, p, stream, error));
    TRY(activate_ungated(e, s, n, stream, error));
    p.rows = dim;
    p.cols = ffn_dim;
    p.x = s->gated;
    p.y = s->down;
    TRY(many_tokens<MATVEC_ADD>(e, p, stream, error));
    const dim3 grid((dim + COMBINE_THREADS - 1) / COMBINE_THREADS, n);
    return LAUNCH(error, combine_kernel, grid, COMBINE_THREADS, 0, stream, to, s->down, s->choices, e->n_active, dim);
}

yalm_status experts_run(float *to, const float *x, const struct experts *e, int n, void *scratch, cudaStream_t stream,
                        yalm_error *error)
{
    struct experts_scratch s;
    lay_out(&s, scratch, n, e->n_experts, e->n_active, e->experts[0].down.rows, e->experts[0].down.cols);
    TRY(route(e, &s, x, n, stream, error));
    return n == 1 ? run_one(to, x, e, &s, stream, error) : run_many(to, x, e, &s, n, stream, error);
}
