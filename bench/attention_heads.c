// What each KV head's attention is in a real model's layers, and what a method makes of it. Says which share of the
// probability the best eighth of the keys has, and how far a method's result is from dense attention's. The text is a prompt
// but for its last tokens, which are fed one by one. Each layer is given what dense attention makes of the one before, so
// every head errs on its own.
//
//     build/release/bench/attention_heads MODEL TEXT CONTEXT TOKENS ATTENTION [RATIO [CODEBOOKS [KEY=VALUE …]]]
//
// Prints a line for each layer and KV head, tabs between: layer, KV head, share of the best eighth (mean over its queries and
// the tokens), error. The error is the root mean square of |y − y_dense| / |y_dense|.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/state.h"
#include "engine/session.h"

struct head_sums {
    double share, errors;
    int64_t n; // queries
};

static struct watch {
    const struct policy *watched;
    struct policy policy;
    struct head_sums *sums;   // (n_layers, n_kv_heads)
    double *scores, *weights; // (group, n), (n)
    double *dense;            // (group, head_dim)
    float *key;               // (head_dim)
} watch;

static void fail(const char *what)
{
    fprintf(stderr, "attention_heads: %s\n", what);
    exit(1);
}

static void *room(size_t n, size_t size)
{
    void *p = calloc(n, size);
    if (p == NULL)
        fail("no memory");
    return p;
}

static void softmax(double *x, int n)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = fmax(max, x[i]);
    for (int i = 0; i < n; i++)
        sum += x[i] = exp(x[i] - max);
    for (int i = 0; i < n; i++)
        x[i] /= sum;
}

// Of a KV head's queries: watch.scores become probabilities, watch.dense what dense attention makes of them. Keys 0 to n - 1
// lie in slots 0 to n - 1.
static void attend_exactly(const struct cpu_state *s, int layer, int kv_head, int n)
{
    const int d = s->config->head_dim, group = cpu_group(s);
    const float *q = cpu_rotated_query(s, s->rotated_q, kv_head);
    for (int j = 0; j < n; j++) {
        cpu_load_key(s, layer, kv_head, j, watch.key);
        for (int i = 0; i < group; i++) {
            double sum = 0;
            for (int c = 0; c < d; c++)
                sum += (double)q[i * d + c] * (double)watch.key[c];
            watch.scores[(size_t)i * n + j] = sum;
        }
    }
    memset(watch.dense, 0, sizeof *watch.dense * group * d);
    for (int i = 0; i < group; i++)
        softmax(watch.scores + (size_t)i * n, n);
    for (int j = 0; j < n; j++) {
        cpu_load_value(s, layer, kv_head, j, watch.key);
        for (int i = 0; i < group; i++)
            for (int c = 0; c < d; c++)
                watch.dense[i * d + c] += watch.scores[(size_t)i * n + j] * (double)watch.key[c];
    }
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

// Which share of one query's probability its best eighth has.
static double best_share(const double *p, int n)
{
    double sum = 0;
    memcpy(watch.weights, p, sizeof *p * n);
    qsort(watch.weights, n, sizeof *p, descending);
    for (int j = 0; j < n / 8; j++)
        sum += watch.weights[j];
    return sum;
}

static void compare_head(struct cpu_state *s, int layer, int kv_head, int n)
{
    const int d = s->config->head_dim, group = cpu_group(s);
    struct head_sums *sums = &watch.sums[layer * s->config->n_kv_heads + kv_head];
    attend_exactly(s, layer, kv_head, n);
    for (int i = 0; i < group; i++) {
        float *y = s->attended + (size_t)(kv_head * group + i) * d;
        double square = 0, error = 0;
        for (int c = 0; c < d; c++) {
            const double exact = watch.dense[i * d + c];
            square += exact * exact;
            error += (y[c] - exact) * (y[c] - exact);
            y[c] = (float)exact; // what the next layer is given
        }
        sums->errors += error / square;
        sums->share += best_share(watch.scores + (size_t)i * n, n);
        sums->n++;
    }
}

static void attend(struct cpu_state *s, const struct batch *batch, int layer, struct member *me)
{
    watch.watched->attend(s, batch, layer, me);
    for (int kv_head = 0; kv_head < s->config->n_kv_heads; kv_head++)
        compare_head(s, layer, kv_head, (int)batch->position + 1);
}

static void watch_session(struct cpu_state *s, int context)
{
    const struct model_config *c = s->config;
    watch.watched = s->policy;
    watch.policy = *s->policy;
    watch.policy.attend = attend;
    s->policy = &watch.policy;
    watch.sums = room((size_t)c->n_layers * c->n_kv_heads, sizeof *watch.sums);
    watch.scores = room((size_t)cpu_group(s) * context, sizeof(double));
    watch.weights = room(context, sizeof(double));
    watch.dense = room((size_t)cpu_group(s) * c->head_dim, sizeof(double));
    watch.key = room(c->head_dim, sizeof(float));
}

static int32_t *read_tokens(const yalm_model *model, const char *path, int n)
{
    FILE *file = fopen(path, "rb");
    const size_t most = (size_t)n * 16;
    char *text = room(most, 1);
    if (file == NULL)
        fail("the text cannot be opened");
    const size_t length = fread(text, 1, most, file);
    fclose(file);
    int32_t *tokens;
    size_t found;
    yalm_error error;
    if (yalm_tokenize(model, text, length, YALM_TOKENIZE_BOS, &tokens, &found, &error) != YALM_OK)
        fail(error.text);
    if (found < (size_t)n)
        fail("the text is too short");
    free(text);
    return tokens;
}

int main(int argc, char **argv)
{
    if (argc < 6)
        fail("usage: attention_heads MODEL TEXT CONTEXT TOKENS ATTENTION [RATIO [CODEBOOKS [KEY=VALUE …]]]");
    const int context = atoi(argv[3]), n = atoi(argv[4]);
    if (n < 1 || context <= n)
        fail("CONTEXT is to be greater than TOKENS, and that at least 1");
    yalm_error error;
    yalm_model *model = yalm_model_open(argv[1], NULL, &error);
    if (model == NULL)
        fail(error.text);
    yalm_session_options options = yalm_session_defaults();
    options.device = "cpu";
    options.context = context;
    options.n_threads = 1; // who attends also compares
    options.attention = argv[5];
    options.attention_ratio = argc > 6 ? strtof(argv[6], NULL) : 0;
    options.codebooks = argc > 7 ? argv[7] : NULL;
    options.settings = (const char *const *)argv + 8;
    options.n_settings = argc > 8 ? argc - 8 : 0;
    yalm_session *session = yalm_session_open(model, &options, &error);
    if (session == NULL)
        fail(error.text);
    int32_t *tokens = read_tokens(model, argv[2], context);
    if (yalm_eval(session, tokens, context - n, YALM_LOGITS_NONE, &error) != YALM_OK)
        fail(error.text);
    watch_session(session->state, context);
    for (int i = context - n; i < context; i++)
        if (yalm_eval(session, tokens + i, 1, YALM_LOGITS_LAST, &error) != YALM_OK)
            fail(error.text);
    const struct model_config *c = ((struct cpu_state *)session->state)->config;
    for (int i = 0; i < c->n_layers * c->n_kv_heads; i++) {
        const struct head_sums *sums = &watch.sums[i];
        printf("%d\t%d\t%.4f\t%.4f\n", i / c->n_kv_heads, i % c->n_kv_heads, sums->share / (double)sums->n,
               sqrt(sums->errors / (double)sums->n));
    }
    return 0;
}
