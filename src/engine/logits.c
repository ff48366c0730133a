// The logits of a session's last evaluation, and the token that is drawn by them.

#include <math.h>

#include "engine/session.h"
#include "text/sampler.h"

// True where the device has logits that s->logits points to a place for.
static bool left_on_device(const yalm_session *s)
{
    return s->backend->fetch && s->n_logits && (s->logits == s->last_logits || ahead_has_logits(s));
}

const float *yalm_logits(const yalm_session *s, int i)
{
    const bool ahead = ahead_has_logits(s);
    float *place = ahead ? s->ahead_logits + (size_t)s->row * s->model->config.vocab_size : s->last_logits;
    if (left_on_device(s) && s->backend->fetch(s->state, ahead ? s->row : 0, place, NULL) != YALM_OK)
        return NULL;
    return i >= 0 && i < s->n_logits ? s->logits + (size_t)i * s->model->config.vocab_size : NULL;
}

yalm_status yalm_sampling_check(const yalm_model *model, const yalm_sampling *sampling, yalm_error *error)
{
    return sampling_check(sampling, model->config.vocab_size, error);
}

void yalm_seed(yalm_session *s, uint64_t seed)
{
    sampler_seed(&s->sampler, seed);
}

int32_t yalm_sample(yalm_session *s, const yalm_sampling *sampling)
{
    if (s->n_logits == 0)
        return -1;
    int n = sampling->penalty_last_n < 0 || sampling->penalty_last_n > s->options.context ? s->options.context
                                                                                          : sampling->penalty_last_n;
    if (n > s->position)
        n = (int)s->position;
    for (int i = 0; i < n; i++)
        s->recent[i] = s->history[(s->position - n + i) % s->options.context];
    int32_t token = -1;
    float logit = NAN;
    if (left_on_device(s) && !sampling->allowed) {
        struct draw draw = {.row = ahead_has_logits(s) ? s->row : 0, .sampling = sampling, .recent = s->recent, .n_recent = n};
        if (sampling->temperature > 0)
            draw.uniform = sampler_uniform(&s->sampler);
        if (s->backend->sample(s->state, &draw, &token, &logit, NULL) != YALM_OK)
            return -1;
    } else {
        const float *logits = yalm_logits(s, s->n_logits - 1);
        if (logits == NULL)
            return -1;
        token = sampler_draw(&s->sampler, sampling, logits, s->recent, n);
        logit = logits[token];
    }
    return isfinite(logit) ? token : -1;
}
