// One model on several ranks with a GPU each, here threads of one process, beside one process with one GPU:
//
//     compare_ranks RANKS MODEL…
//
// MODEL is a kind of model, or a type of weights. Of each it says in a line its name, the largest difference of two logits in
// parts of their range, and how many greedy tokens differ.
//
//     compare_ranks lost RANK | fp16 | open
//
// say what becomes of three ranks: of which one is lost, each other's error and after how many seconds, one line each; with
// sums in fp16; or where a session cannot be opened, for reasons of the emulated GPU's.
#include "devices_testing.h"
#include "engine/rank_threads.h"
#include "engine/session.h"
#include "engine/shared_models.h"
#include "util/clock.h"

enum { PROMPT = 9, STEPS = 3, CHUNK = 8 };
static const double patience = 30, little_patience = 0.8;

static yalm_session_options options_of(void)
{
    yalm_session_options options = yalm_session_defaults();
    options.device = "cuda";
    options.chunk = CHUNK;
    options.kv = YALM_KV_FP32;
    return options;
}

static yalm_session *open_or_quit(const yalm_model *model)
{
    yalm_error error = {0};
    const yalm_session_options options = options_of();
    yalm_session *session = yalm_session_open(model, &options, &error);
    if (!session)
        quit("a session", &error);
    return session;
}

static void evaluate(yalm_session *session, int from, int n, yalm_logits_of which)
{
    int32_t tokens[PROMPT];
    yalm_error error = {0};
    for (int i = 0; i < n; i++)
        tokens[i] = token_of(from + i);
    if (yalm_eval(session, tokens, n, which, &error) != YALM_OK)
        quit("a pass", &error);
}

static double difference(const yalm_session *a, const yalm_session *b, int n)
{
    double most = 0, low = INFINITY, high = -INFINITY;
    for (int i = 0; i < n * VOCAB; i++) {
        const double x = (double)yalm_logits(a, i / VOCAB)[i % VOCAB], y = (double)yalm_logits(b, i / VOCAB)[i % VOCAB];
        most = isfinite(x) ? fmax(most, fabs(x - y)) : INFINITY;
        low = fmin(low, y);
        high = fmax(high, y);
    }
    return most / (high - low);
}

// A prompt with all its logits, tokens one by one, a prompt with the last one's logits, and greedy tokens, which are the
// device's own choice.
static void compare(const char *name, struct model_config config, enum dtype dtype, int n_ranks)
{
    struct random_model *m = random_model_make(config, dtype, 5);
    struct ranks ranks;
    yalm_error error = {0};
    ranks_start(&ranks, m, n_ranks, 1, patience);
    if (model_share_out(&ranks.each[0].model, &error) != YALM_OK)
        quit("shares", &error);
    yalm_session *both[] = {open_or_quit(&ranks.each[0].model), open_or_quit(&m->model)};
    static const struct {
        int from, n;
        yalm_logits_of which;
    } passes[] = {{0, PROMPT, YALM_LOGITS_ALL},
                  {9, 1, YALM_LOGITS_LAST},
                  {10, 1, YALM_LOGITS_ALL},
                  {11, 3, YALM_LOGITS_NONE},
                  {14, 3, YALM_LOGITS_LAST}};
    double most = 0;
    for (size_t p = 0; p < sizeof passes / sizeof *passes; p++) {
        for (int i = 0; i < 2; i++)
            evaluate(both[i], passes[p].from, passes[p].n, passes[p].which);
        const int rows = passes[p].which == YALM_LOGITS_ALL ? passes[p].n : passes[p].which == YALM_LOGITS_LAST;
        most = fmax(most, rows ? difference(both[0], both[1], rows) : 0);
    }
    yalm_sampling greedy = yalm_sampling_defaults();
    greedy.temperature = 0;
    int differ = 0;
    for (int step = 0; step < STEPS; step++) {
        const int32_t token = yalm_sample(both[1], &greedy);
        differ += yalm_sample(both[0], &greedy) != token;
        for (int i = 0; i < 2; i++)
            if (yalm_eval(both[i], &token, 1, YALM_LOGITS_LAST, &error) != YALM_OK)
                quit("a token", &error);
    }
    printf("%s %.3e %d\n", name, most, differ);
    yalm_session_close(both[0]);
    yalm_session_close(both[1]);
    ranks_end(&ranks);
    for (int r = 1; r < n_ranks; r++)
        if (ranks.each[r].status != YALM_OK)
            quit("a rank", &ranks.each[r].error);
    random_model_free(m);
}

static void compare_named(const char *name, int n_ranks)
{
    static const char *const names[N_SHARED_KINDS] = {
        "tied",      "biases",  "head-norms",    "whole-norms", "norms-after", "norms-around", "sink-logits",
        "two-kinds", "experts", "shared-expert", "layer-norm",  "alibi",       "groups"};
    struct model_config kinds[N_SHARED_KINDS];
    shared_kinds(kinds);
    for (int i = 0; i < N_SHARED_KINDS; i++)
        if (strcmp(names[i], name) == 0)
            compare(name, kinds[i], DTYPE_FP32, n_ranks);
    for (int type = 0; type < DTYPE_WEIGHTS; type++)
        if (strcmp(dtype_names[type], name) == 0)
            compare(name, plain(), (enum dtype)type, n_ranks);
}

static void say(int rank, const yalm_error *error, double begin)
{
    printf("%d %.1f %s\n", rank, clock_seconds() - begin, error->text);
}

static void lose(int rank)
{
    struct random_model *m = random_model_make(plain(), DTYPE_FP32, 5);
    struct ranks ranks;
    yalm_error error = {0};
    ranks_start(&ranks, m, 3, 1, little_patience);
    if (model_share_out(&ranks.each[0].model, &error) != YALM_OK)
        quit("shares", &error);
    yalm_session *together = open_or_quit(&ranks.each[0].model);
    evaluate(together, 0, 5, YALM_LOGITS_LAST);
    evaluate(together, 5, 1, YALM_LOGITS_LAST);
    evaluate(together, 6, 1, YALM_LOGITS_LAST); // as a graph
    pthread_mutex_lock(&ranks.post.lock);
    ranks.post.dead = rank;
    pthread_mutex_unlock(&ranks.post.lock);
    const int32_t next = token_of(7);
    double begin;
    yalm_status status = YALM_OK;
    for (int i = 0; i < 3 && status == YALM_OK; i++) { // it may have heard of the first already
        begin = clock_seconds();
        status = yalm_eval(together, &next, 1, YALM_LOGITS_LAST, &error);
    }
    say(0, &error, begin);
    begin = clock_seconds();
    yalm_eval(together, &next, 1, YALM_LOGITS_LAST, &error);
    say(0, &error, begin);
    yalm_session_close(together);
    ranks_end(&ranks);
    for (int r = 1; r < ranks.n; r++)
        if (r != rank)
            say(r, &ranks.each[r].error, begin);
    random_model_free(m);
}

static void open_only(bool fp16)
{
    struct random_model *m = random_model_make(plain(), DTYPE_FP32, 5);
    struct ranks ranks;
    yalm_error error = {0};
    ranks_start(&ranks, m, 3, 1, patience);
    yalm_group_use_fp16(ranks.each[0].group, fp16);
    if (model_share_out(&ranks.each[0].model, &error) != YALM_OK)
        quit("shares", &error);
    const yalm_session_options options = options_of();
    yalm_session *session = yalm_session_open(&ranks.each[0].model, &options, &error);
    printf("%d %s\n", error.status, error.text);
    yalm_session_close(session);
    ranks_end(&ranks);
    random_model_free(m);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    setenv("YALM_EMULATED_DEVICES", "4", 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(what, "lost") == 0 && argc == 3)
        lose(atoi(argv[2]));
    else if (strcmp(what, "fp16") == 0 || strcmp(what, "open") == 0)
        open_only(strcmp(what, "fp16") == 0);
    else if (argc > 2)
        for (int i = 2; i < argc; i++)
            compare_named(argv[i], atoi(what));
    else
        quit("usage: compare_ranks RANKS MODEL… | lost RANK | fp16 | open", NULL);
    return 0;
}
