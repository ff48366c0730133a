// Recurrent layers in double precision, straight from their papers; included by reference.h.
#pragma once

// Gated DeltaNet or KDA, as docs/format.md says: y (delta_values()) is what o reads. decay: a head's (delta_head_decays()).
static void reference_delta_head(const struct reference *r, int layer, int head, const double *u, const double *decay,
                                 double beta, double *y)
{
    const struct delta_config *d = config_delta(&r->model->config, layer);
    const int keys = delta_keys(d), at = d->tiled ? head % d->n_key_heads : head * d->n_key_heads / d->n_value_heads;
    const double *q = u + at * d->key_dim, *k = u + keys + at * d->key_dim, *v = u + 2 * keys + head * d->value_dim;
    double *state = r->states[layer] + (size_t)head * d->key_dim * d->value_dim, q_length = 1e-6, k_length = 1e-6;
    for (int i = 0; i < d->key_dim; i++) {
        q_length += q[i] * q[i];
        k_length += k[i] * k[i];
    }
    for (int c = 0; c < d->value_dim; c++) {
        double news = v[c];
        for (int i = 0; i < d->key_dim; i++) {
            state[i * d->value_dim + c] *= decay[d->kda_rank ? i : 0];
            news -= state[i * d->value_dim + c] * k[i] / sqrt(k_length);
        }
        y[c] = 0;
        for (int i = 0; i < d->key_dim; i++) {
            state[i * d->value_dim + c] += beta * news * k[i] / sqrt(k_length);
            y[c] += state[i * d->value_dim + c] * q[i] / sqrt(q_length * d->key_dim);
        }
    }
}

// What decays come from, with their bias, and the output gate's logits: by matrices of h, or by way of latents.
static void reference_delta_gates(const struct delta_config *d, const struct layer_weights *w, const double *h, double *decay,
                                  double *gate)
{
    double latent[64];
    if (!d->kda_rank) {
        reference_product(gate, &w->output_gate, NULL, h);
        reference_product(decay, &w->delta.decay, w->delta.decay_bias, h);
        return;
    }
    reference_product(latent, &w->delta.gate_a, NULL, h);
    reference_product(gate, &w->delta.gate_b, NULL, latent);
    reference_product(latent, &w->delta.decay_a, NULL, h);
    reference_product(decay, &w->delta.decay_b, w->delta.decay_bias, latent);
}

static void reference_delta(const struct reference *r, int layer, const double *h, double *y)
{
    const struct delta_config *d = config_delta(&r->model->config, layer);
    const struct layer_weights *w = &r->model->weights.layers[layer];
    const int keys = delta_keys(d), values = delta_values(d), channels = delta_channels(d);
    double *given = r->inputs[layer] + (size_t)r->n * channels, *u = doubles(channels), *gate = doubles(values);
    double *decay = doubles(delta_decays(d)), beta[64];
    const int n_decays = delta_head_decays(d);
    reference_product(given, &w->q, NULL, h);
    reference_product(given + keys, &w->k, NULL, h);
    reference_product(given + 2 * keys, &w->v, NULL, h);
    reference_delta_gates(d, w, h, decay, gate);
    reference_product(beta, &w->delta.beta, NULL, h);
    for (int c = 0; c < channels; c++) {
        for (int back = 0; back < d->conv_width && back <= r->n; back++)
            u[c] += w->delta.conv[(d->conv_width - 1 - back) * channels + c] * *(given + c - (ptrdiff_t)back * channels);
        u[c] = u[c] / (1 + exp(-u[c]));
    }
    for (int head = 0; head < d->n_value_heads; head++) {
        double *out = y + head * d->value_dim;
        for (int i = head * n_decays; i < (head + 1) * n_decays; i++)
            decay[i] = exp(-w->delta.decay_rate[head] * log(1 + exp(decay[i])));
        reference_delta_head(r, layer, head, u, decay + head * n_decays, 1 / (1 + exp(-beta[head])), out);
        reference_norm(out, out, w->delta.value_norm, d->value_dim, r->model->config.norm_eps);
    }
    for (int i = 0; i < values; i++)
        y[i] *= (d->kda_rank ? 1 : gate[i]) / (1 + exp(-gate[i]));
    free(u), free(gate), free(decay);
}

// Mamba-2's selective state space: one head, whose x, B and C are given: y (value_dim).
static void reference_scan_head(const struct delta_config *d, double *state, const double *x, const double *b, const double *c,
                                double dt, double rate, double skip, double *y)
{
    for (int i = 0; i < d->value_dim; i++) {
        y[i] = skip * x[i];
        for (int j = 0; j < d->key_dim; j++) {
            double *h = &state[j * d->value_dim + i];
            *h = exp(-rate * dt) * *h + dt * b[j] * x[i];
            y[i] += c[j] * *h;
        }
    }
}

static double reference_silu(double x)
{
    return x / (1 + exp(-x));
}

// y: (delta_values()), z likewise: gated, and normalised by groups where the model does that.
static void reference_scan_gate(const struct delta_config *d, const float *norm, double *y, const double *z)
{
    const int values = delta_values(d), dim = d->scan.norm_groups ? values / d->scan.norm_groups : values;
    for (int i = 0; i < values && !d->scan.norm_first; i++)
        y[i] *= reference_silu(z[i]);
    for (int i = 0; i < values && norm; i += dim)
        reference_norm(y + i, y + i, norm + i, dim, d->scan.norm_eps);
    for (int i = 0; i < values && d->scan.norm_first; i++)
        y[i] *= reference_silu(z[i]);
}

// out += what the layer's scan makes of h.
static void reference_scan(const struct reference *r, int layer, const double *h, double *out)
{
    const struct delta_config *d = config_delta(&r->model->config, layer);
    const struct layer_weights *w = &r->model->weights.layers[layer];
    const int keys = delta_keys(d), values = delta_values(d), channels = delta_channels(d), dim = r->model->config.hidden_dim;
    double *given = r->inputs[layer] + (size_t)r->n * channels, *u = doubles(channels), *z = doubles(values);
    double *y = doubles(values), *added = doubles(dim), dt[64];
    reference_product(given, &w->scan.c, NULL, h);
    reference_product(given + keys, &w->scan.b, NULL, h);
    reference_product(given + 2 * keys, &w->scan.x, NULL, h);
    reference_product(z, &w->scan.z, NULL, h);
    reference_product(dt, &w->delta.decay, w->delta.decay_bias, h);
    for (int c = 0; c < channels; c++) {
        u[c] = w->scan.conv_bias ? w->scan.conv_bias[c] : 0;
        for (int back = 0; back < d->conv_width && back <= r->n; back++)
            u[c] += w->delta.conv[(d->conv_width - 1 - back) * channels + c] * *(given + c - (ptrdiff_t)back * channels);
        u[c] = reference_silu(u[c]);
    }
    for (int head = 0; head < d->n_value_heads; head++) {
        const int group = head * d->n_key_heads / d->n_value_heads;
        double step = fmax(log(1 + exp(dt[head])), d->scan.dt_min);
        step = d->scan.dt_max > 0 ? fmin(step, d->scan.dt_max) : step;
        reference_scan_head(d, r->states[layer] + (size_t)head * d->key_dim * d->value_dim, u + 2 * keys + head * d->value_dim,
                            u + keys + group * d->key_dim, u + group * d->key_dim, step, w->delta.decay_rate[head],
                            w->scan.skip[head], y + head * d->value_dim);
    }
    reference_scan_gate(d, w->delta.value_norm, y, z);
    reference_observe(r, layer, INPUT_SCAN_O, y, values);
    reference_product(added, &w->scan.o, NULL, y);
    for (int i = 0; i < dim; i++)
        out[i] += added[i];
    free(u), free(z), free(y), free(added);
}
