// Guesses of the model's own: its MTP head, where the session has one open (yalm_session_options.mtp).
//
// The head's row r reads the model's hidden state of position r and the token at r + 1, and says what may come at r + 2. So the
// last row waits for its token, and the session keeps hidden states until the head has read them. It reads them when a guess is
// asked for, after a piece of a prompt, and when their room is full. A guess behind a guess reads the head's own hidden state;
// rows that were made so are written over once their tokens have come.
//
// A guess may be wrong, so the head need not know everything. A row whose token turns out to be another is made anew, if its
// hidden state is still there. Where hidden states are missing (a session read from a file, pages, tokens evaluated together
// with other sessions') the head begins anew: its cache counts from `base`, and it sees the text from there on.

#include "engine/mtp.h"

#include <stdlib.h>
#include <string.h>

#include "engine/device.h"
#include "engine/session.h"
#include "recipe/recipe.h"
#include "util/error.h"

enum { FEW = MOST_AHEAD + 1 }; // tokens of a batch that can lie ahead

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static size_t room_of(const yalm_session_options *options)
{
    return (size_t)options->chunk + FEW;
}

static struct backend_plan plan_of(const yalm_model *model, const yalm_session_options *options, const atomic_bool *cancel)
{
    struct backend_plan plan = device_plan(model, options, cancel);
    plan.config = &model->mtp_config;
    plan.weights = &model->mtp_weights;
    plan.lender = plan.weights_copy;
    plan.weights_copy = (struct shared *)&model->mtp_copy;
    plan.kv[0] = plan.kv[model->config.kind_of_layer[model->config.n_layers]];
    return plan;
}

yalm_status mtp_resolve(const yalm_model *model, const struct backend *backend, yalm_session_options *options,
                        yalm_error *error)
{
    yalm_session_options there = *options;
    yalm_error why = {.status = YALM_OK};
    if (!model->config.mtp.there)
        error_set(&why, YALM_USAGE, "%s has no MTP head: auto does without", model->info.name);
    else if (model->group)
        error_set(&why, YALM_USAGE, "an MTP head does not run on several machines");
    else if (strcmp(options->attention, "dense") != 0)
        error_set(&why, YALM_USAGE,
                  "an MTP head is of no use with --attention %s, which evaluates tokens one by one: use dense",
                  options->attention);
    else if (backend->own_memory && options->mtp == YALM_MTP_AUTO && !options->several)
        error_set(&why, YALM_USAGE, "a token may be one kernel, which is not given up unasked");
    else
        backend->resolve(&model->mtp_config, &model->mtp_weights, &there, &why);
    const bool wanted = options->mtp == YALM_MTP_ON;
    options->mtp = options->mtp != YALM_MTP_OFF && why.status == YALM_OK ? YALM_MTP_ON : YALM_MTP_OFF;
    return wanted && why.status != YALM_OK ? error_set(error, why.status, "mtp: %s", why.text) : YALM_OK;
}

yalm_status mtp_memory(const yalm_model *model, const struct backend *backend, const yalm_session_options *options,
                       yalm_memory *memory, yalm_error *error)
{
    if (options->mtp != YALM_MTP_ON)
        return YALM_OK;
    yalm_memory own = {0};
    const struct backend_plan plan = plan_of(model, options, NULL);
    const yalm_status status = backend->memory(&plan, &own, error);
    if (backend->own_memory) {
        pthread_mutex_lock(&plan.weights_copy->lock);
        memory->available += plan.weights_copy->data ? own.weights : 0;
        pthread_mutex_unlock(&plan.weights_copy->lock);
        memory->weights += own.weights;
    }
    const size_t row = sizeof(float) * (size_t)model->config.hidden_dim,
                 logits = sizeof(float) * (size_t)plan.config->vocab_size;
    memory->kv_cache += own.kv_cache;
    memory->scratch += own.scratch;
    if (!backend->own_memory)
        memory->scratch += (room_of(options) + (size_t)options->chunk) * row + logits;
    return status;
}

// Guesses from the classifier's first rows cost less, and miss tokens of other rows. If a guess leaves out a share of what a
// token reads, as large a share of misses, times 1.3 to 2, makes up for that: with 1 to 3 guesses, of which 60 to 80 % come.
static double bearable_misses(const yalm_model *model)
{
    const struct matrix *w = &model->mtp_weights.classifier;
    const double saved = (double)(w->rows - MTP_ROWS) * (double)dtype_row_bytes(w->dtype, w->cols);
    return 1.5 * saved / recipe_outline(&model->config, &model->weights).cost.bytes;
}

yalm_status mtp_open(yalm_session *s, yalm_error *error)
{
    if (s->options.mtp != YALM_MTP_ON)
        return YALM_OK;
    const size_t row = sizeof(float) * (size_t)s->model->config.hidden_dim, chunk = (size_t)s->options.chunk;
    const struct backend_plan plan = plan_of(s->model, &s->options, &s->cancel);
    struct mtp *m = s->mtp = calloc(1, sizeof *m);
    if (m) {
        m->room = (int)room_of(&s->options);
        m->rows = malloc((size_t)m->room * row);
        m->own = malloc(chunk * row);
        m->logits = malloc(sizeof(float) * (size_t)plan.config->vocab_size);
        m->tokens = malloc(sizeof *m->tokens * chunk);
    }
    if (!m || !m->rows || !m->own || !m->logits || !m->tokens)
        return error_set(error, YALM_NO_MEMORY, "out of memory for an MTP head");
    m->misses = bearable_misses(s->model);
    m->state = s->backend->open(&plan, error);
    return m->state ? YALM_OK : error ? error->status : YALM_FAILED;
}

void mtp_close(yalm_session *s)
{
    struct mtp *m = s->mtp;
    if (!m)
        return;
    if (m->state)
        s->backend->close(m->state);
    free(m->rows);
    free(m->own);
    free(m->logits);
    free(m->tokens);
    free(m);
}

void mtp_forget(yalm_session *s)
{
    if (!s->mtp)
        return;
    s->mtp->n = 0;
    s->mtp->from = s->mtp->base = s->mtp->done = s->position;
}

// ------------------------------------------------------------------------------------------ in step with the session

// What is kept of `position` and later is of other tokens.
static void go_to(struct mtp *m, int64_t position)
{
    const bool known = position >= m->from && position <= m->from + m->n;
    m->n = known ? (int)(position - m->from) : 0;
    m->from = known ? m->from : position;
    if (m->done > position) {
        m->done = position;
        m->last = -1;
    }
    if (m->done < m->from || m->base > m->done)
        m->base = m->done = m->from;
}

// The head reads positions before `end`, whose token is `next`; logits: NULL, or the last one's. Returns how many its last
// batch had; -1 where it failed.
static int read_rows(yalm_session *s, int64_t end, int32_t next, float *logits)
{
    struct mtp *m = s->mtp;
    const size_t dim = (size_t)s->model->config.hidden_dim;
    const int32_t *history = s->history;
    int n = 0;
    if (m->done > m->from && m->last != (m->done < end ? history[m->done % s->options.context] : next))
        m->done--;
    for (; m->done < end; m->done += n) {
        n = (int)min64(end - m->done, s->options.chunk);
        for (int i = 0; i < n; i++) {
            const int64_t position = m->done + i + 1;
            m->tokens[i] = position < end ? history[position % s->options.context] : next;
        }
        const struct batch batch = {.tokens = m->tokens,
                                    .n = n,
                                    .position = m->done - m->base,
                                    .given = m->rows + (size_t)(m->done - m->from) * dim,
                                    .hidden = m->own,
                                    .n_logits = m->n_logits,
                                    .logits = m->done + n == end ? logits : NULL};
        if (s->backend->evaluate(m->state, &batch, NULL) != YALM_OK) {
            mtp_forget(s);
            return -1;
        }
        m->last = m->tokens[n - 1];
    }
    return n;
}

float *mtp_rows(yalm_session *s, const struct batch *batch)
{
    struct mtp *m = s->mtp;
    if (!m)
        return NULL;
    go_to(m, batch->position);
    if (m->n + batch->n > m->room) {
        read_rows(s, batch->position, batch->tokens[0], NULL);
        m->n = 0;
        m->from = batch->position;
    }
    return m->rows + (size_t)m->n * (size_t)s->model->config.hidden_dim;
}

void mtp_take(yalm_session *s, const struct batch *batch)
{
    struct mtp *m = s->mtp;
    if (!m)
        return;
    m->n += batch->n;
    const int64_t last = m->from + m->n - 1; // its token is to come
    if (batch->n > FEW)
        read_rows(s, last, s->history[last % s->options.context], NULL);
}

// How many of the classifier's first rows the next guesses come from. Ids are in the order in which a vocabulary's pieces were
// learned, the commonest first. How well the first ones serve, the text itself shows: English and programs use others for a
// token in ten or twenty, Chinese for two of three.
static int rows_for(const yalm_session *s)
{
    enum { LOOK_BACK = 256 };
    const int vocab = s->model->config.vocab_size;
    const int64_t n = min64(s->position, min64(LOOK_BACK, s->options.context));
    int others = 0;
    for (int64_t i = s->position - n; i < s->position; i++)
        others += s->history[i % s->options.context] >= MTP_ROWS;
    return vocab > MTP_ROWS && others <= s->mtp->misses * (double)n ? MTP_ROWS : vocab;
}

// By the head's last evaluation, wherever its logits are. -1: it failed.
static int32_t likeliest(yalm_session *s)
{
    const float *logits = s->mtp->logits;
    int32_t best = 0;
    if (s->backend->sample) {
        const yalm_sampling sampling = {.top_p = 1, .repeat_penalty = 1};
        float logit;
        return s->backend->sample(s->mtp->state, &(struct draw){.sampling = &sampling}, &best, &logit, NULL) == YALM_OK ? best
                                                                                                                        : -1;
    }
    for (int i = 1; i < s->mtp->n_logits; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

int yalm_guess(yalm_session *s, int32_t token, int32_t *guesses, int n)
{
    struct mtp *m = s->mtp;
    const int vocab = s->model->config.vocab_size;
    if (!m || s->n_ahead > 0 || n < 1 || token < 0 || token >= vocab)
        return 0;
    go_to(m, s->position);
    if (m->n == 0) // nothing is known of the last position
        return 0;
    m->done = min64(m->done, s->position - 1);
    const int64_t room = s->options.endless ? n : s->options.context - (s->position - m->base) + 1;
    n = (int)min64(n, room);
    m->n_logits = rows_for(s);
    const int n_read = read_rows(s, s->position, token, m->logits);
    if (n_read < 1)
        return 0;
    float *own = m->own + (size_t)(n_read - 1) * (size_t)s->model->config.hidden_dim;
    for (int i = 0; i < n; i++) {
        guesses[i] = likeliest(s);
        if (guesses[i] < 0)
            return i;
        const struct batch batch = {.tokens = &guesses[i],
                                    .n = 1,
                                    .position = s->position - m->base + i,
                                    .given = own,
                                    .hidden = own,
                                    .n_logits = m->n_logits,
                                    .logits = m->logits};
        if (i + 1 < n && s->backend->evaluate(m->state, &batch, NULL) != YALM_OK)
            return i + 1;
    }
    return n;
}
