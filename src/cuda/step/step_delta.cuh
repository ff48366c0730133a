// A step's recurrent layers (step.cuh): the gated delta rule for one token, as delta/rule.cu has it for many. A block takes a
// value head at a time, with the convolution of its q, k and v. A warp has columns of the head's state, a lane every 32nd row.
// Bytes: the state once read, from the L2 cache (step_prefetch_state), and once written.
#pragma once
#include "cuda/step/step_experts.cuh"

// What is in shared memory while a head runs, where attention has its own.
struct step_mixed {
    float *q, *k, *v, *y; // (key_dim) twice, (value_dim) twice
};

__device__ __forceinline__ struct step_mixed step_mixed_of(float *work, const struct step_delta &d)
{
    return {work, work + d.key_dim, work + 2 * d.key_dim, work + 2 * d.key_dim + d.value_dim};
}

__device__ __forceinline__ int step_key_head(const struct step_delta &d, int head)
{
    return d.tiled ? head % d.n_key_heads : head / (d.n_value_heads / d.n_key_heads);
}
// Of the value heads that share a key head, one keeps its inputs.
__device__ __forceinline__ bool step_keeps_keys(const struct step_delta &d, int head)
{
    return d.tiled ? head < d.n_key_heads : head % (d.n_value_heads / d.n_key_heads) == 0;
}

// The block's states set out for the L2 cache, by a warp.
__device__ __forceinline__ void step_prefetch_state(const struct step_delta &d, const struct step_now &now)
{
    const int64_t floats = (int64_t)d.key_dim * d.value_dim;
    for (int head = (int)blockIdx.x; now.position > 0 && head < d.n_value_heads; head += (int)gridDim.x)
        for (int64_t i = 32 * (int)(threadIdx.x % 32); i < floats; i += 32 * 32)
            prefetch_l2(d.states + now.from * d.states_pitch + head * floats + i);
}

// The token's inputs, convolved with those of tokens before it; and those that tokens to come will see.
__device__ __forceinline__ void step_mix(float *mixed, const struct step_delta &d, const struct step_now &now, int head)
{
    const int keys = d.n_key_heads * d.key_dim, channels = 2 * keys + d.n_value_heads * d.value_dim;
    const int key_at = step_key_head(d, head) * d.key_dim, value_at = head * d.value_dim;
    const float *before = d.inputs + now.from * d.inputs_pitch;
    float *kept = d.inputs + now.to * d.inputs_pitch;
    for (int i = (int)threadIdx.x; i < 2 * d.key_dim + d.value_dim; i += STEP_THREADS) {
        const int part = min(i / d.key_dim, 2), at = part == 2 ? value_at + i - 2 * d.key_dim : key_at + i - part * d.key_dim;
        const float own = told_wait(d.given[part] + at, step_parity(d.words[part], now.launch));
        const bool keeps = part == 2 || step_keeps_keys(d, head);
        const int channel = part * keys + at;
        float sum = 0;
        for (int j = 0; j < d.before; j++) {
            const float x = now.position > 0 ? before[j * channels + channel] : 0.0f;
            sum = fmaf(__ldg(d.conv + j * channels + channel), x, sum);
            if (keeps && j > 0)
                kept[(j - 1) * channels + channel] = x;
        }
        sum = fmaf(__ldg(d.conv + d.before * channels + channel), own, sum);
        if (keeps && d.before > 0)
            kept[(d.before - 1) * channels + channel] = own;
        mixed[i] = sum / (1.0f + expf(-sum));
    }
}

// The length of a vector in shared memory, squared: all lanes have it.
__device__ __forceinline__ float step_squares(const float *x, int n)
{
    float sum = 0;
    for (int i = (int)threadIdx.x % 32; i < n; i += 32)
        sum = fmaf(x[i], x[i], sum);
    return warp_sum(sum);
}

// A column's update, and that column's component of Sᵀq.
template <int ROWS>
__device__ __forceinline__ float step_update(float (&column)[ROWS], const struct step_mixed &m, float v, float decay,
                                             float beta, int key_dim)
{
    const int lane = (int)threadIdx.x % 32;
    float recalled = 0, sum = 0;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        recalled = fmaf(lane + 32 * i < key_dim ? m.k[lane + 32 * i] : 0.0f, column[i], recalled);
    const float news = beta * (v - decay * warp_sum(recalled));
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const bool there = lane + 32 * i < key_dim;
        column[i] = fmaf(there ? m.k[lane + 32 * i] : 0.0f, news, decay * column[i]);
        sum = fmaf(there ? m.q[lane + 32 * i] : 0.0f, column[i], sum);
    }
    return warp_sum(sum);
}

// All columns of a head, AT_ONCE on their way together for a warp.
template <int ROWS, int AT_ONCE>
__device__ __forceinline__ void step_recall(const struct step_mixed &m, const struct step_delta &d, const struct step_now &now,
                                            int head, float decay, float beta)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int64_t at = (int64_t)head * d.value_dim * d.key_dim;
    const float *from = d.states + now.from * d.states_pitch + at;
    float *to = d.states + now.to * d.states_pitch + at;
    for (int first = warp; first < d.value_dim; first += STEP_WARPS * AT_ONCE) {
        float column[AT_ONCE][ROWS];
#pragma unroll
        for (int c = 0; c < AT_ONCE; c++)
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const int col = first + c * STEP_WARPS, row = lane + 32 * i;
                const bool there = col < d.value_dim && row < d.key_dim && now.position > 0;
                column[c][i] = there ? from[(int64_t)col * d.key_dim + row] : 0.0f;
            }
#pragma unroll
        for (int c = 0; c < AT_ONCE; c++) {
            const int col = first + c * STEP_WARPS;
            if (col >= d.value_dim)
                break;
            const float y = step_update(column[c], m, m.v[col], decay, beta, d.key_dim);
            if (lane == 0)
                m.y[col] = y;
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                if (lane + 32 * i < d.key_dim)
                    to[(int64_t)col * d.key_dim + lane + 32 * i] = column[c][i];
        }
    }
}

__device__ __forceinline__ void step_recur_head(const struct step_phase &p, const struct step_delta &d, float *work,
                                                const struct step_now &now, int head)
{
    const struct step_mixed m = step_mixed_of(work, d);
    const int warp = (int)threadIdx.x / 32;
    const float x = told_wait(d.decays + head, step_parity(d.words[3], now.launch)) + __ldg(d.decay_bias + head);
    const float decay = expf(-__ldg(d.decay_rate + head) * (x > 20 ? x : log1pf(expf(x))));
    const float beta = 1.0f / (1.0f + expf(-told_wait(d.betas + head, step_parity(d.words[4], now.launch))));
    step_pass(); // nobody reads any more what lies there
    step_mix(work, d, now, head);
    step_pass();
    if (warp < 2) {
        float *of = warp == 0 ? m.q : m.k;
        const float scale = (warp == 0 ? 1.0f / sqrtf((float)d.key_dim) : 1.0f) / sqrtf(step_squares(of, d.key_dim) + 1e-6f);
        for (int i = (int)threadIdx.x % 32; i < d.key_dim; i += 32)
            of[i] *= scale;
    }
    step_pass();
    if (d.key_dim <= 128)
        step_recall<4, 4>(m, d, now, head, decay, beta);
    else
        step_recall<16, 1>(m, d, now, head, decay, beta);
    step_pass();
    const float scale = 1.0f / sqrtf(step_squares(m.y, d.value_dim) / (float)d.value_dim + p.eps);
    for (int i = (int)threadIdx.x; i < d.value_dim; i += STEP_THREADS) {
        const float gate = told_wait(p.gates + head * d.value_dim + i, step_parity(p.more_words, now.launch));
        told_store(p.y[0] + head * d.value_dim + i, gated_unit(ACTIVATION_SILU, gate, m.y[i] * scale * __ldg(d.value_norm + i)),
                   step_parity(p.y_words[0], now.launch));
    }
}

// y = what the rule makes of q, k and v: the block's heads.
__device__ __forceinline__ void step_recur(const struct step_phase &p, const struct step_memory &m, const struct step_now &now)
{
    for (int head = (int)blockIdx.x; head < p.delta.n_value_heads; head += (int)gridDim.x)
        step_recur_head(p, p.delta, m.attention, now, head);
    step_pass();
}
