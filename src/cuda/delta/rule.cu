// The kernels of recurrent layers. Positions and places are read on the device, so that a captured graph serves every step.
#include "cuda/delta/delta.h"
#include "cuda/kernels/reduce.cuh"
#include "cuda/kernels/vec.cuh"

enum { WARP = 32, RULE_THREADS = 128, SCAN_THREADS = 256 };

// struct delta, as a kernel takes it.
struct sizes {
    const struct evaluation *step;
    float *states, *inputs;                                        // of the layer, in place 0
    size_t states_pitch, inputs_pitch;                             // floats from place to place
    int n, n_key_heads, n_value_heads, key_dim, value_dim, before; // before: inputs of earlier tokens that a token sees
    int keys, values, channels, head_decays;                       // head_decays: of a head and token, one or key_dim
    bool tiled, scan;
};

static struct sizes sizes_of(const struct delta *d, int n)
{
    const struct delta_config *c = d->config;
    struct sizes s = {};
    s.step = d->step;
    s.states = d->states + d->layer * delta_state_floats(c);
    s.inputs = d->inputs + d->layer * delta_input_floats(c);
    s.states_pitch = d->n_layers * delta_state_floats(c);
    s.inputs_pitch = d->n_layers * delta_input_floats(c);
    s.n = n;
    s.n_key_heads = c->n_key_heads;
    s.n_value_heads = c->n_value_heads;
    s.key_dim = c->key_dim;
    s.value_dim = c->value_dim;
    s.before = c->conv_width - 1;
    s.keys = delta_keys(c);
    s.values = delta_values(c);
    s.channels = delta_channels(c);
    s.tiled = c->tiled;
    s.scan = c->scan.there;
    s.head_decays = delta_head_decays(c);
    return s;
}

// ------------------------------------------------------------------------------------------ the convolution

struct mixing {
    struct sizes s;
    const float *q, *k, *v, *conv, *conv_bias, *decay_bias, *decay_rate, *decays, *betas;
    float dt_min, dt_max; // 0: no bound
    float *to_decays, *to_betas, *mixed, *given;
    int n_given;
};

// What the convolution goes over: a head of q, of k, or of v.
struct convolved {
    const float *given; // of token 0 of the batch
    int width;          // floats from token to token there
    int channel, size;  // its first channel, its components
    int value_head;     // -1: it is of q or k
    float scale;        // of the normalised head
};

__device__ static struct convolved part_of(const struct mixing &m, int i)
{
    const struct sizes &s = m.s;
    if (i >= 2 * s.n_key_heads) {
        const int head = i - 2 * s.n_key_heads, at = head * s.value_dim;
        return {m.v + at, s.values, 2 * s.keys + at, s.value_dim, head, 1.0f};
    }
    const bool query = i < s.n_key_heads;
    const int at = (query ? i : i - s.n_key_heads) * s.key_dim;
    return {(query ? m.q : m.k) + at,
            s.keys,
            (query ? 0 : s.keys) + at,
            s.key_dim,
            -1,
            query ? 1.0f / sqrtf((float)s.key_dim) : 1.0f};
}

// Component i of token t's input, which stands t tokens behind the batch's first; t may be negative.
__device__ static inline float input_at(const struct mixing &m, const struct convolved &p, const float *inputs, int t, int i)
{
    const struct sizes &s = m.s;
    const int among_given = m.n_given + t;
    if (t >= 0)
        return p.given[(size_t)t * p.width + i];
    if (among_given >= 0)
        return m.given[(size_t)among_given * s.channels + p.channel + i];
    return s.step->position > 0 ? inputs[(size_t)(s.before + among_given) * s.channels + p.channel + i] : 0.0f;
}

// Logits become what the state is multiplied by before the token writes, and how much of its news it writes.
__device__ static inline void weigh(const struct mixing &m, int t, int head, int lane)
{
    const size_t at = (size_t)t * m.s.n_value_heads + head;
    const int n = m.s.head_decays;
    for (int i = lane; i < n; i += WARP) {
        const float x = m.decays[at * n + i] + m.decay_bias[head * n + i];
        float dt = x > 20 ? x : log1pf(expf(x));
        if (dt < m.dt_min)
            dt = m.dt_min;
        if (m.dt_max > 0 && dt > m.dt_max)
            dt = m.dt_max;
        m.to_decays[at * n + i] = expf(-m.decay_rate[head] * dt);
        if (i == 0)
            m.to_betas[at] = m.s.scan ? dt : 1.0f / (1.0f + expf(-m.betas[at]));
    }
}

// Block (part, t), one warp: token t; or behind the last token, one of the inputs that are kept.
static __global__ void mix_kernel(struct mixing m)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const struct sizes &s = m.s;
    const struct convolved p = part_of(m, (int)blockIdx.x);
    const int t = (int)blockIdx.y, lane = (int)threadIdx.x;
    const float *inputs = s.inputs + s.step->from * s.inputs_pitch;
    if (t >= s.n) {
        float *kept = s.inputs + s.step->to * s.inputs_pitch + (size_t)(t - s.n) * s.channels + p.channel;
        for (int i = lane; i < p.size; i += WARP)
            kept[i] = input_at(m, p, inputs, t - s.before, i);
        return;
    }
    float *y = m.mixed + (size_t)t * s.channels + p.channel, squares = 0;
    for (int i = lane; i < p.size; i += WARP) {
        const int channel = p.channel + i;
        float sum = m.conv_bias ? m.conv_bias[channel] : 0.0f;
        if (m.given)
            m.given[(size_t)t * s.channels + channel] = input_at(m, p, inputs, t, i);
        for (int j = 0; j <= s.before; j++)
            sum = fmaf(m.conv[(size_t)j * s.channels + channel], input_at(m, p, inputs, t + j - s.before, i), sum);
        y[i] = sum / (1.0f + expf(-sum));
        squares = fmaf(y[i], y[i], squares);
    }
    if (p.value_head >= 0) {
        weigh(m, t, p.value_head, lane);
        return;
    }
    if (s.scan)
        return;
    const float scale = p.scale / sqrtf(warp_sum(squares) + 1e-6f);
    for (int i = lane; i < p.size; i += WARP)
        y[i] *= scale;
}

yalm_status delta_mix(const struct delta *d, int n, cudaStream_t stream, yalm_error *error)
{
    const struct mixing m = {sizes_of(d, n),
                             d->q,
                             d->k,
                             d->v,
                             d->w->delta.conv,
                             d->w->scan.conv_bias,
                             d->w->delta.decay_bias,
                             d->w->delta.decay_rate,
                             d->decays,
                             d->betas,
                             d->config->scan.dt_min,
                             d->config->scan.dt_max,
                             d->kept_decays ? d->kept_decays : d->decays,
                             d->kept_betas ? d->kept_betas : d->betas,
                             d->mixed,
                             d->given,
                             d->n_given};
    const dim3 grid(2 * m.s.n_key_heads + m.s.n_value_heads, n + m.s.before);
    return LAUNCH(error, mix_kernel, grid, WARP, 0, stream, m);
}

// ------------------------------------------------------------------------------------------ the rule

struct ruling {
    struct sizes s;
    const float *mixed, *decays, *betas;
    float *y;
};

// A token's update of a column, of which a lane has every LANES-th row; and that column's component of Sᵀq. A scan takes in
// β v as it is. CHANNELS: each row has a decay of its own.
template <int LANES, bool CHANNELS, int ROWS>
__device__ __forceinline__ float update(float (&column)[ROWS], const float *q, const float *k, float v, const float *decays,
                                        float beta, int key_dim, bool scan)
{
    const int lane = (int)threadIdx.x % LANES;
    float keys[ROWS], recalled = 0, sum = 0;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int row = lane + LANES * i;
        keys[i] = row < key_dim ? k[row] : 0.0f;
        if (CHANNELS)
            column[i] *= row < key_dim ? decays[row] : 0.0f;
        recalled = fmaf(keys[i], column[i], recalled);
    }
    const float decay = CHANNELS ? 1.0f : decays[0];
    const float news = beta * (scan ? v : v - decay * warp_sum<LANES / 2>(recalled));
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int row = lane + LANES * i;
        column[i] = fmaf(keys[i], news, decay * column[i]);
        sum = fmaf(row < key_dim ? q[row] : 0.0f, column[i], sum);
    }
    return warp_sum<LANES / 2>(sum);
}

// Block (i, head): the i-th columns of a value head's state, each in the registers of LANES threads while the tokens go by.
template <int LANES, int ROWS, bool CHANNELS>
static __global__ void __launch_bounds__(RULE_THREADS) rule_kernel(struct ruling r)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const struct sizes &s = r.s;
    const int lane = (int)threadIdx.x % LANES, head = (int)blockIdx.y;
    const int own = (int)(blockIdx.x * (RULE_THREADS / LANES) + threadIdx.x / LANES);
    const int col = own < s.value_dim ? own : s.value_dim - 1; // beyond the last, nothing is written
    const int key_head = s.tiled ? head % s.n_key_heads : head / (s.n_value_heads / s.n_key_heads);
    const size_t at = ((size_t)head * s.value_dim + col) * s.key_dim;
    const float *from = s.states + s.step->from * s.states_pitch + at;
    const bool begins = s.step->position == 0;
    float column[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int row = lane + LANES * i;
        column[i] = row < s.key_dim && !begins ? from[row] : 0.0f;
    }
    for (int t = 0; t < s.n; t++) {
        const float *q = r.mixed + (size_t)t * s.channels + key_head * s.key_dim, *k = q + s.keys;
        const float v = r.mixed[(size_t)t * s.channels + 2 * s.keys + head * s.value_dim + col];
        const size_t of_head = (size_t)t * s.n_value_heads + head;
        const float y =
            update<LANES, CHANNELS>(column, q, k, v, r.decays + of_head * s.head_decays, r.betas[of_head], s.key_dim, s.scan);
        if (lane == 0 && own == col)
            r.y[(size_t)t * s.values + head * s.value_dim + col] = y;
    }
    float *to = s.states + s.step->to * s.states_pitch + at;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (lane + LANES * i < s.key_dim && own == col)
            to[lane + LANES * i] = column[i];
}

template <int LANES, int ROWS> static yalm_status run(const struct ruling &r, cudaStream_t stream, yalm_error *error)
{
    const int cols = RULE_THREADS / LANES;
    const dim3 grid((r.s.value_dim + cols - 1) / cols, r.s.n_value_heads);
    if (r.s.head_decays > 1)
        return LAUNCH(error, (rule_kernel<LANES, ROWS, true>), grid, RULE_THREADS, 0, stream, r);
    return LAUNCH(error, (rule_kernel<LANES, ROWS, false>), grid, RULE_THREADS, 0, stream, r);
}

yalm_status delta_rule(const struct delta *d, float *y, int n, cudaStream_t stream, yalm_error *error)
{
    const struct ruling r = {sizes_of(d, n), d->mixed, d->kept_decays ? d->kept_decays : d->decays,
                             d->kept_betas ? d->kept_betas : d->betas, y};
    if (r.s.key_dim <= 32)
        return run<8, 4>(r, stream, error);
    if (r.s.key_dim <= 128)
        return run<8, 16>(r, stream, error);
    static_assert(MAX_KEY_DIM == 32 * 16, "all that cuda_resolve() lets through");
    return run<32, 16>(r, stream, error);
}

// ------------------------------------------------------------------------------------------ what comes out

// Block (head, t), one warp.
template <class T>
static __global__ void gate_kernel(void *to, const float *y, const float *gates, const float *norm, float eps, int dim,
                                   bool sigmoid)
{
    grid_dependency_launch();
    grid_dependency_wait();
    const size_t at = ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * dim;
    float squares = 0;
    for (int i = (int)threadIdx.x; i < dim; i += WARP)
        squares = fmaf(y[at + i], y[at + i], squares);
    const float scale = 1.0f / sqrtf(warp_sum(squares) / (float)dim + eps);
    for (int i = (int)threadIdx.x; i < dim; i += WARP) {
        const float gate = gates[at + i], x = y[at + i] * scale * norm[i];
        static_cast<T *>(to)[at + i] = from_float<T>(sigmoid ? x / (1.0f + expf(-gate)) : silu(gate) * x);
    }
}

struct scan_gating {
    const float *y, *x;                     // (n, values), (n, channels): what comes out, and the convolution's x
    const float *gates;                     // (n, values)
    const float *skip, *norm;               // (heads), (values); norm NULL: none
    int values, channels, value_dim, width; // width: of a group, which has a norm of its own
    float eps;
    bool norm_first;
};

// y + skip x, and times silu(gate) before a norm.
__device__ static inline float skipped(const struct scan_gating &g, int t, int i)
{
    const size_t at = (size_t)t * g.values + i;
    const float y = fmaf(g.skip[i / g.value_dim], g.x[(size_t)t * g.channels + i], g.y[at]);
    return g.norm_first ? y : gated_unit(ACTIVATION_SILU, g.gates[at], y);
}

// Block (group, t): rmsnorm(silu(gates) (y + skip x)), or silu(gates) rmsnorm(y + skip x).
template <class T> static __global__ void gate_scan_kernel(void *to, struct scan_gating g)
{
    SHARED_ARRAY(float, sums, 32);
    grid_dependency_launch();
    grid_dependency_wait();
    const int first = (int)blockIdx.x * g.width, t = (int)blockIdx.y;
    float squares = 0;
    for (int i = first + (int)threadIdx.x; i < first + g.width; i += SCAN_THREADS) {
        const float y = skipped(g, t, i);
        squares = fmaf(y, y, squares);
    }
    const float scale = g.norm ? 1.0f / sqrtf(block_sum(squares, sums) / (float)g.width + g.eps) : 1.0f;
    for (int i = first + (int)threadIdx.x; i < first + g.width; i += SCAN_THREADS) {
        const size_t at = (size_t)t * g.values + i;
        const float y = skipped(g, t, i) * (g.norm ? scale * g.norm[i] : 1.0f);
        static_cast<T *>(to)[at] = from_float<T>(g.norm_first ? gated_unit(ACTIVATION_SILU, g.gates[at], y) : y);
    }
}

static yalm_status gate_scan(const struct delta *d, void *to, enum dtype type, const float *y, const float *gates, int n,
                             cudaStream_t stream, yalm_error *error)
{
    const struct delta_config *c = d->config;
    const struct scan_config *scan = &c->scan;
    const int values = delta_values(c), groups = scan->norm_groups ? scan->norm_groups : c->n_value_heads;
    const struct scan_gating g = {y,
                                  d->mixed + 2 * delta_keys(c),
                                  gates,
                                  d->w->scan.skip,
                                  scan->norm_groups ? d->w->delta.value_norm : NULL,
                                  values,
                                  delta_channels(c),
                                  c->value_dim,
                                  values / groups,
                                  scan->norm_eps,
                                  scan->norm_first};
    const dim3 grid(groups, n);
    return LAUNCH_TYPE(type, error, gate_scan_kernel, grid, SCAN_THREADS, 0, stream, to, g);
}

yalm_status delta_gate(const struct delta *d, void *to, enum dtype type, const float *y, const float *gates, float eps, int n,
                       cudaStream_t stream, yalm_error *error)
{
    const dim3 grid(d->config->n_value_heads, n);
    if (d->config->scan.there)
        return gate_scan(d, to, type, y, gates, n, stream, error);
    return LAUNCH_TYPE(type, error, gate_kernel, grid, WARP, 0, stream, to, y, gates, d->w->delta.value_norm, eps,
                       d->config->value_dim, d->config->kda_rank > 0);
}
