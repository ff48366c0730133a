#include "cpu/inputs.h"

#include <math.h>

#include "model/bf12.h"
#include "model/quant.h"

void input_row(const struct cpu_state *s, const struct matrix *m, int row, float scale, float *x)
{
    if (dtype_group_bytes[m->dtype])
        quant_row_to_fp32(x, m->dtype, m->data, m->rows, m->cols, row);
    else if (m->dtype == DTYPE_BF12)
        bf12_to_fp32(x, m->data, m->cols, row, 0, m->cols);
    else
        s->kernels->to_fp32[m->dtype](x, (const uint8_t *)m->data + (size_t)row * m->cols * dtype_sizes[m->dtype], m->cols);
    if (dtype_row_scale[m->dtype])
        scale *= matrix_row_scale(m, row);
    for (int i = 0; i < m->cols && scale != 1; i++)
        x[i] *= scale;
}

void input_mix(const struct cpu_state *s, const struct step *step, int token, float *inputs, float *row)
{
    const struct model_config *c = s->config;
    const int n = c->layer_input_dim;
    const float shrink = 1.0f / sqrtf((float)c->hidden_dim), root_half = sqrtf(0.5f);
    input_row(s, step->table, token, sqrtf((float)n), row);
    for (int i = 0; i < c->n_layers * n; i++)
        inputs[i] *= shrink;
    for (int l = 0; l < c->n_layers; l++) {
        float *u = inputs + (size_t)l * n;
        s->kernels->rmsnorm(u, u, step->norm, n, c->norm_eps);
        for (int i = 0; i < n; i++)
            u[i] = root_half * (u[i] + row[(size_t)l * n + i]);
    }
}
