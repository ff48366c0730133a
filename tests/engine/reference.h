// The forward pass in double precision: written from the formulas, one token at a time, one loop for each sum, sharing nothing
// with the engine but the structs.
#pragma once
#include "engine/random_model.h"
#include "engine/reference_matrix.h"
#include "model/importance.h"

struct reference {
    const yalm_model *model;
    struct kv_policy kv[CONFIG_MAX_KINDS];
    double *keys, *values; // (n_layers, tokens so far, reference_kv_dim()); keys before rotation
    double *states[64];    // of recurrent layers: (n_value_heads, key_dim, value_dim)
    double *inputs[64];    // (tokens so far, channels): what their convolutions go over
    int n, room;
    bool int8;                   // keys and values are kept as an int8 cache keeps them
    struct input_sums *observed; // what matrices read is added up there; NULL: not
};

static double *doubles(size_t n)
{
    double *d = calloc(n, sizeof *d);
    if (!d)
        abort();
    return d;
}

// The most of any layer.
static int reference_kv_dim(const struct model_config *c)
{
    int most = 0;
    for (int l = 0; l < c->n_layers; l++) {
        const int dim = config_kv_heads(c, l) * config_head_dim(c, l);
        most = dim > most ? dim : most;
    }
    return most;
}

static void reference_observe(const struct reference *r, int layer, int which, const double *x, int n)
{
    if (!r->observed)
        return;
    struct input_sums *sums = &r->observed[importance_input(&r->model->config, layer, which)];
    for (int i = 0; i < n; i++)
        sums->squares[i] += x[i] * x[i];
    const int block = importance_block(sums->cols = n);
    for (int i = 0; i < n && sums->products; i++)
        for (int j = i / block * block; j <= i; j++)
            sums->products[(size_t)i * block + j % block] += (float)(x[i] * x[j]);
    sums->tokens++;
}

static void reference_norm(double *y, const double *x, const float *w, int n, double eps)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = (w ? w[i] : 1) * x[i] / sqrt(sum / n + eps);
}

static void reference_product(double *y, const struct matrix *w, const float *bias, const double *x)
{
    const double *values = matrix_values(w);
    for (int r = 0; r < w->rows; r++) {
        y[r] = bias ? bias[r] : 0;
        for (int c = 0; c < w->cols; c++)
            y[r] += values[(size_t)r * w->cols + c] * x[c];
    }
}

// Of RoPE's default type; components from rotary_dim / 2 on stand still.
static double reference_frequency(const struct rope_config *rope, int d, int i)
{
    const int rotary_dim = rope->rotary_dim ? rope->rotary_dim : d;
    return i < rotary_dim / 2 ? pow(rope->theta, -2.0 * i / rotary_dim) : 0;
}

static double rotated_dot(const double *q, const double *k, int d, const struct rope_config *rope, double distance)
{
    double sum = 0; // the rotation by `distance` of each pair, q relative to k
    for (int i = 0; i < d / 2; i++) {
        const double a = distance * reference_frequency(rope, d, i), c = cos(a), s = sin(a);
        const double q0 = q[i] * c - q[i + d / 2] * s, q1 = q[i] * s + q[i + d / 2] * c;
        sum += q0 * k[i] + q1 * k[i + d / 2];
    }
    return sum;
}

// The visibility rule of kv_cache.h, restated: the distance at which position j stands to the query at p, or -1 where it is not
// seen.
static int reference_distance(const struct kv_policy *kv, int p, int j)
{
    if (p < kv->span)
        return p - j;
    if (j < kv->n_sinks)
        return kv->span - 1 - j;
    return p - j < kv->span - kv->n_sinks ? p - j : -1;
}

static double plain_dot(const double *q, const double *k, int d)
{
    double sum = 0;
    for (int i = 0; i < d; i++)
        sum += q[i] * k[i];
    return sum;
}

#include "engine/reference_deepseek.h"

static void reference_rotate(double *x, int d, const struct rope_config *rope, double position)
{
    for (int i = 0; i < d / 2; i++) {
        const double a = position * reference_frequency(rope, d, i), c = cos(a), s = sin(a), x0 = x[i], x1 = x[i + d / 2];
        x[i] = x0 * c - x1 * s;
        x[i + d / 2] = x0 * s + x1 * c;
    }
}

// Each head's row (d) becomes the nearest multiples of max |x| / 127.
static void reference_int8(double *x, int n, int d)
{
    for (int at = 0; at < n; at += d) {
        double largest = 0;
        for (int i = at; i < at + d; i++)
            largest = fmax(largest, fabs(x[i]));
        for (int i = at; i < at + d && largest > 0; i++)
            x[i] = rint(x[i] * 127 / largest) * largest / 127;
    }
}

// keys += by what an int8 cache keeps them less of, where a bias is all that they have in common: the mean of its rotations
// over the context, an integral.
static void reference_offset(const struct reference *r, int layer, double *keys, double by)
{
    const struct model_config *c = &r->model->config;
    const float *bias = r->model->weights.layers[layer].k_bias;
    const int d = c->head_dim, n = c->context_length < 1024 ? c->context_length : 1024;
    if (!bias || config_kinds_differ(c) || c->qk_norm || c->whole_qk_norm || c->attention_softcap > 0 || c->sink_logits ||
        r->kv[0].n_sinks > 0)
        return;
    for (int h = 0; h < c->n_kv_heads * d; h += d)
        for (int i = 0; i < d / 2; i++) {
            const double f = c->unrotated_layer[layer] ? 0 : reference_frequency(&c->kinds[c->kind_of_layer[layer]].rope, d, i);
            const double cosine = f > 0 ? sin(f * n) / (f * n) : 1, sine = f > 0 ? (1 - cos(f * n)) / (f * n) : 0;
            const double x = (double)bias[h + i], y = (double)bias[h + i + d / 2];
            keys[h + i] += by * (x * cosine - y * sine);
            keys[h + i + d / 2] += by * (y * cosine + x * sine);
        }
}

// The last token's keys and values of a layer, (kv_dim) each. Keys are rounded as they lie in the cache: rotated.
static void reference_round(const struct reference *r, int layer, double *keys, double *values)
{
    const struct model_config *c = &r->model->config;
    const int d = config_head_dim(c, layer), kv_dim = config_kv_heads(c, layer) * d;
    const bool still = c->unrotated_layer[layer];
    const struct rope_config *rope = &c->kinds[c->kind_of_layer[layer]].rope;
    for (int h = 0; h < kv_dim && !still; h += d)
        reference_rotate(keys + h, d, rope, r->n);
    reference_offset(r, layer, keys, -1);
    reference_int8(keys, kv_dim, d);
    reference_offset(r, layer, keys, 1);
    for (int h = 0; h < kv_dim && !still; h += d)
        reference_rotate(keys + h, d, rope, -r->n);
    reference_int8(values, kv_dim, d);
}

// Of the last token's query and the key at position j, both rotated, with the norms' weights.
static double weighted_dot(const struct reference *r, int layer, const double *q, const double *k, int j)
{
    const struct model_config *c = &r->model->config;
    const struct rope_config *rope = &c->kinds[c->kind_of_layer[layer]].rope;
    const int d = c->head_dim;
    double *turned[2] = {doubles(d), doubles(d)}, sum = 0;
    memcpy(turned[0], q, sizeof *q * d), memcpy(turned[1], k, sizeof *k * d);
    for (int i = 0; i < 2 && !c->unrotated_layer[layer]; i++)
        reference_rotate(turned[i], d, rope, i ? j : r->n);
    for (int i = 0; i < d; i++)
        sum += turned[0][i] * turned[1][i] * (double)r->model->weights.layers[layer].q_norm[i];
    free(turned[0]), free(turned[1]);
    return sum;
}

static void reference_attention(const struct reference *r, int layer, const double *q, double *y)
{
    const struct model_config *c = &r->model->config;
    const int d = config_head_dim(c, layer), group = c->n_heads / config_kv_heads(c, layer), p = r->n;
    const int kv_dim = reference_kv_dim(c), from = config_kv_layer(c, layer);
    double scale = c->attention_scale > 0 ? c->attention_scale : 1 / sqrt(d);
    if (c->query_growth > 0)
        scale *= 1 + c->query_growth * log(1 + floor((double)p / c->query_growth_context));
    const int kind = c->kind_of_layer[layer];
    double *weight = doubles(p + 1);
    for (int h = 0; h < c->n_heads; h++) {
        const size_t offset = (size_t)from * r->room * kv_dim + (size_t)(h / group) * d;
        double max = -INFINITY, sum = 0;
        for (int j = 0; j <= p; j++) {
            const int distance = reference_distance(&r->kv[kind], p, j);
            const double *k = r->keys + offset + (size_t)j * kv_dim;
            if (distance < 0)
                weight[j] = -INFINITY;
            else if (c->rotated_qk_norm)
                weight[j] = weighted_dot(r, layer, q + h * d, k, j) * scale;
            else if (c->unrotated_layer[layer])
                weight[j] = plain_dot(q + h * d, k, d) * scale;
            else
                weight[j] = rotated_dot(q + h * d, k, d, &c->kinds[kind].rope, distance) * scale;
            if (c->attention_softcap > 0 && distance >= 0)
                weight[j] = c->attention_softcap * tanh(weight[j] / c->attention_softcap);
            max = fmax(max, weight[j]);
        }
        const float *logits = r->model->weights.layers[layer].sink_logits;
        if (logits)
            sum = exp(logits[h] - max);
        for (int j = 0; j <= p; j++)
            sum += weight[j] = exp(weight[j] - max);
        for (int i = 0; i < d; i++) {
            y[h * d + i] = 0;
            for (int j = 0; j <= p; j++)
                y[h * d + i] += weight[j] / sum * r->values[offset + (size_t)j * kv_dim + i];
        }
    }
    free(weight);
}

static double reference_xielu(const float *p, double x)
{
    return p[2] * x + (x > 0 ? p[0] * x * x : p[1] * (expm1(x) - x));
}

static double reference_unit(enum activation activation, double x, double up)
{
    if (activation == ACTIVATION_GELU)
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x))) * up;
    if (activation == ACTIVATION_SILU)
        return x / (1 + exp(-x)) * up;
    if (activation == ACTIVATION_RELU2)
        return fmax(x, 0) * fmax(x, 0) * up;
    x = fmin(x, 7);
    return x / (1 + exp(-1.702 * x)) * (fmax(fmin(up, 7), -7) + 1);
}

// units: the number of gate's and up's input; down's is the next.
static void reference_expert(const struct reference *r, int layer, int units, const struct expert_weights *w, const double *h,
                             double scale, double *x)
{
    const enum activation activation = r->model->config.activation;
    double *gate = doubles(w->up.rows), *up = doubles(w->up.rows), *down = doubles(w->down.rows);
    reference_observe(r, layer, units, h, w->up.cols);
    if (w->gate.data)
        reference_product(gate, &w->gate, w->gate_bias, h);
    reference_product(up, &w->up, w->up_bias, h);
    const float *xielu = r->model->weights.layers[layer].xielu;
    for (int i = 0; i < w->up.rows; i++)
        gate[i] = xielu          ? reference_xielu(xielu, up[i])
                  : w->gate.data ? reference_unit(activation, gate[i], up[i])
                                 : reference_unit(activation, up[i], 1);
    reference_observe(r, layer, units + 1, gate, w->down.cols);
    reference_product(down, &w->down, w->down_bias, gate);
    for (int i = 0; i < w->down.rows; i++)
        x[i] += scale * down[i];
    free(gate), free(up), free(down);
}

// x += what the router's experts give for h; of: what the router reads.
static void reference_experts(const struct reference *r, int layer, const double *of, const double *h, double *x)
{
    const struct model_config *c = &r->model->config;
    const struct layer_weights *w = &r->model->weights.layers[layer];
    const float *bias = w->router_choice_bias;
    double p[64], sum = c->softmax_choice_bias ? 0 : c->expert_eps, all = 0;
    reference_product(p, &w->router, w->router_bias, of);
    for (int e = 0; e < c->n_experts; e++)
        all += p[e] = c->sigmoid_router ? 1 / (1 + exp(-p[e])) : exp(p[e]);
    for (int e = 0; e < c->n_experts && !c->sigmoid_router; e++)
        p[e] /= all;
    int chosen[64];
    for (int i = 0; i < c->n_active_experts; i++) {
        chosen[i] = -1;
        for (int e = 0; e < c->n_experts; e++) {
            bool taken = !reference_asked(c, e, p, bias);
            for (int j = 0; j < i; j++)
                taken |= chosen[j] == e;
            if (!taken && (chosen[i] < 0 || p[e] + (bias ? bias[e] : 0) > p[chosen[i]] + (bias ? bias[chosen[i]] : 0)))
                chosen[i] = e;
        }
        sum += p[chosen[i]];
    }
    if (c->raw_expert_weights)
        sum = 1;
    else if (c->softmax_choice_bias)
        sum = fmax(sum, c->expert_eps);
    for (int i = 0; i < c->n_active_experts; i++) {
        const double scale = (c->expert_scale > 0 ? c->expert_scale : 1) * (w->router_scale ? w->router_scale[chosen[i]] : 1);
        reference_expert(r, layer, INPUT_EXPERTS + 2 * chosen[i], &w->experts[chosen[i]], h, p[chosen[i]] / sum * scale, x);
    }
}

// out += what a layer's feed-forward network gives for h, the norm of the stream x.
static void reference_ffn(const struct reference *r, int layer, const double *x, const double *h, double *out)
{
    const struct layer_weights *w = &r->model->weights.layers[layer];
    const int dim = r->model->config.hidden_dim;
    const double eps = r->model->config.norm_eps;
    if (!w->router.data) {
        reference_expert(r, layer, INPUT_FFN, &w->experts[0], h, 1, out);
        return;
    }
    double logit = INFINITY; // the weight is 1 then
    if (w->shared_router.data)
        reference_product(&logit, &w->shared_router, NULL, h);
    if (w->shared.up.data)
        reference_expert(r, layer, INPUT_FFN, &w->shared, h, 1 / (1 + exp(-logit)), out);
    if (!w->expert_norm) {
        reference_experts(r, layer, h, h, out);
        return;
    }
    double *of = doubles(dim), *own = doubles(dim), *sum = doubles(dim);
    reference_norm(out, out, w->shared_post_norm, dim, eps);
    reference_norm(of, x, NULL, dim, eps);
    reference_norm(own, x, w->expert_norm, dim, eps);
    reference_experts(r, layer, of, own, sum);
    reference_norm(sum, sum, w->expert_post_norm, dim, eps);
    for (int i = 0; i < dim; i++)
        out[i] += sum[i];
    free(of), free(own), free(sum);
}

#include "engine/reference_recurrent.h"

// A short convolution alone, likewise.
static void reference_convolution(const struct reference *r, int layer, const double *h, double *y)
{
    const struct delta_config *d = config_delta(&r->model->config, layer);
    const struct layer_weights *w = &r->model->weights.layers[layer];
    const int channels = d->conv_dim;
    double *given = r->inputs[layer] + (size_t)r->n * channels, *k = doubles(channels), *v = doubles(channels);
    reference_product(k, &w->k, w->k_bias, h);
    reference_product(v, &w->v, w->v_bias, h);
    reference_product(y, &w->q, w->q_bias, h);
    for (int c = 0; c < channels; c++) {
        given[c] = k[c] * v[c];
        double sum = d->conv_bias ? w->delta.conv_bias[c] : 0;
        for (int back = 0; back < d->conv_width && back <= r->n; back++)
            sum += w->delta.conv[(d->conv_width - 1 - back) * channels + c] * *(given + c - (ptrdiff_t)back * channels);
        y[c] *= sum;
    }
    free(k), free(v);
}

static struct reference reference_open(const yalm_model *model, const struct kv_policy *kv, int room)
{
    matrices_forget(); // another model's, or this one's before a test changed them
    const size_t n = (size_t)model->config.n_layers * room * reference_kv_dim(&model->config);
    struct reference r = {.model = model, .keys = doubles(n), .values = doubles(n), .room = room};
    memcpy(r.kv, kv, sizeof *kv * config_n_kinds(&model->config));
    for (int l = 0; l < model->config.n_layers; l++) {
        const struct delta_config *d = config_delta(&model->config, l);
        r.states[l] = doubles((size_t)d->n_value_heads * d->key_dim * d->value_dim + 1);
        r.inputs[l] = doubles((size_t)room * delta_channels(d) + 1);
    }
    return r;
}

static void reference_close(struct reference *r)
{
    for (int l = 0; l < r->model->config.n_layers; l++)
        free(r->states[l]), free(r->inputs[l]);
    free(r->keys), free(r->values);
    matrices_forget();
}

// The token's key and value in a layer that has its own.
static void reference_append(struct reference *r, int l, const double *h)
{
    const struct model_config *c = &r->model->config;
    const struct layer_weights *w = &r->model->weights.layers[l];
    const int d = config_head_dim(c, l), kv_dim = config_kv_heads(c, l) * d, k_width = c->whole_qk_norm ? kv_dim : d;
    const size_t at = ((size_t)l * r->room + r->n) * reference_kv_dim(c);
    reference_product(r->keys + at, &w->k, w->k_bias, h);
    reference_product(r->values + at, &w->v, w->v_bias, h);
    for (int i = 0; (w->k_norm || c->rotated_qk_norm) && i < kv_dim; i += k_width)
        reference_norm(r->keys + at + i, r->keys + at + i, w->k_norm, k_width, c->norm_eps);
    for (int i = 0; c->v_norm && i < kv_dim; i += d)
        reference_norm(r->values + at + i, r->values + at + i, NULL, d, c->norm_eps);
    if (r->int8)
        reference_round(r, l, r->keys + at, r->values + at);
}

// What o reads in a layer with attention: y (q_dim).
static void reference_attend(struct reference *r, int l, const double *h, double *y)
{
    const struct model_config *c = &r->model->config;
    const struct layer_weights *w = &r->model->weights.layers[l];
    const int d = config_head_dim(c, l), q_dim = c->n_heads * d;
    double *q = doubles(q_dim);
    reference_product(q, &w->q, w->q_bias, h);
    const int q_width = c->whole_qk_norm ? q_dim : d;
    for (int i = 0; w->q_norm && i < q_dim; i += q_width)
        reference_norm(q + i, q + i, c->rotated_qk_norm ? NULL : w->q_norm, q_width, c->norm_eps);
    if (w->k.data)
        reference_append(r, l, h);
    reference_attention(r, l, q, y);
    if (w->output_gate.data)
        reference_product(q, &w->output_gate, w->output_gate_bias, h);
    for (int i = 0; i < q_dim && w->output_gate.data; i++)
        y[i] /= 1 + exp(-q[i]);
    free(q);
}

// Each layer's own input, (n_layers, layer_input_dim), of a token whose scaled embedding is x; to be freed.
static double *reference_inputs(const struct reference *r, int32_t token, const double *x)
{
    const struct model_config *c = &r->model->config;
    const struct model_weights *w = &r->model->weights;
    const int n = c->layer_input_dim;
    double *inputs = doubles((size_t)c->n_layers * n + 1);
    if (n == 0)
        return inputs;
    reference_product(inputs, &w->layer_projection, NULL, x);
    for (int i = 0; i < c->n_layers * n; i++)
        inputs[i] /= sqrt(c->hidden_dim);
    for (int l = 0; l < c->n_layers; l++)
        reference_norm(inputs + l * n, inputs + l * n, w->layer_projection_norm, n, c->norm_eps);
    for (int i = 0; i < c->n_layers * n; i++)
        inputs[i] = (inputs[i] + sqrt(n) * matrix_at(&w->layer_embedding, token, i)) / sqrt(2);
    return inputs;
}

// x += what a layer's own input u adds, and all of it times the layer's factor.
static void reference_layer_end(const struct reference *r, int l, const double *u, double *x)
{
    const struct model_config *c = &r->model->config;
    const struct layer_weights *w = &r->model->weights.layers[l];
    const int n = c->layer_input_dim, dim = c->hidden_dim;
    double *gate = doubles(n + 1), *out = doubles(dim);
    if (n > 0) {
        reference_product(gate, &w->input_gate, NULL, x);
        for (int i = 0; i < n; i++)
            gate[i] = reference_unit(c->activation, gate[i], u[i]);
        reference_product(out, &w->input_projection, NULL, gate);
        reference_norm(out, out, w->input_norm, dim, c->norm_eps);
    }
    for (int i = 0; i < dim; i++)
        x[i] = (x[i] + out[i]) * (w->scale ? *w->scale : 1);
    free(gate), free(out);
}

// Appends one token and leaves its logits: (vocab_size).
static void reference_token(struct reference *r, int32_t token, double *logits)
{
    const struct model_config *c = &r->model->config;
    const int dim = c->hidden_dim;
    double *x = doubles(dim), *h = doubles(dim), *out = doubles(dim);
    for (int i = 0; i < dim; i++)
        x[i] = matrix_at(&r->model->weights.embedding, token, i) * (c->embedding_scale > 0 ? c->embedding_scale : 1);
    double *inputs = reference_inputs(r, token, x);
    for (int l = 0; l < c->n_layers; l++) {
        const struct layer_weights *w = &r->model->weights.layers[l];
        memcpy(h, x, sizeof *h * dim);
        if (!c->norms_after)
            reference_norm(h, x, w->attention_norm, dim, c->norm_eps);
        reference_observe(r, l, INPUT_QKV, h, dim);
        double *y = doubles(w->o.cols + 1);
        if (config_delta(c, l)->conv_dim)
            reference_convolution(r, l, h, y);
        else if (!config_attends(c, l) && !w->scan.o.data)
            reference_delta(r, l, h, y);
        else if (!config_attends(c, l))
            ; // below
        else if (c->latent.kv_rank)
            reference_latents(r, l, h, y);
        else
            reference_attend(r, l, h, y);
        memset(out, 0, sizeof *out * dim);
        if (w->o.data)
            reference_observe(r, l, INPUT_O, y, w->o.cols);
        if (w->o.data)
            reference_product(out, &w->o, w->o_bias, y);
        if (w->scan.o.data)
            reference_scan(r, l, h, out);
        free(y);
        if (c->norms_after || c->norms_around)
            reference_norm(out, out, w->attention_post_norm, dim, c->norm_eps);
        for (int i = 0; i < dim; i++)
            x[i] += out[i];
        if (c->no_ffn_layer[l])
            continue;
        memcpy(h, x, sizeof *h * dim);
        if (!c->norms_after)
            reference_norm(h, x, w->ffn_norm, dim, c->norm_eps);
        memset(out, 0, sizeof *out * dim);
        reference_ffn(r, l, x, h, out);
        if (c->norms_after || c->norms_around)
            reference_norm(out, out, w->ffn_post_norm, dim, c->norm_eps);
        for (int i = 0; i < dim; i++)
            x[i] += out[i];
        reference_layer_end(r, l, inputs + (size_t)l * c->layer_input_dim, x);
    }
    reference_norm(h, x, r->model->weights.norm, dim, c->norm_eps);
    reference_observe(r, c->n_layers, 0, h, dim);
    reference_product(logits, &r->model->weights.classifier, NULL, h);
    for (int i = 0; i < c->vocab_size && c->logits_softcap > 0; i++)
        logits[i] = c->logits_softcap * tanh(logits[i] / c->logits_softcap);
    r->n++;
    free(x), free(h), free(out), free(inputs);
}
