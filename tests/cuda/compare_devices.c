// Does the same on the CPU and on the GPU, by one program through the public API, and says how far apart they come:
//
//     compare_devices MODEL TOKENS [kv=fp16|fp32|int8] [chunk=N] [sparq=R,K,LOCAL,COPY,TAIL]
//                     [hybrid=RATIO,MIN_K,LOCAL,D_SUB,DRAW codebooks=FILE] [brief|short|texts] [ends] [isa=NAME …]
//
// texts: of a model that makes vectors or scores of texts, these in the logits' place.
// isa: the GPU is compared with the CPU by that instruction set, too; the worst counts.
// TOKENS holds int32 ids. sparq, hybrid: that attention, from the first key on, with these settings; the hybrid's codebooks
// are learned from the tokens, into FILE. For each scenario one line on stdout: its name, the largest difference of two logits
// in units of their row's range (on the CPU), the median of the rows' largest differences, and how many rows were compared; of
// sampling, how many tokens differ and how many were drawn.
#include <math.h>

#include "devices_testing.h"

enum { MAX_ROWS = 4096, CPU = 0, GPU = 1, MAX_SESSIONS = 4 };

// Where a session runs: the CPU, the GPU, and the CPU again by further instruction sets.
static struct place {
    const char *device, *isa;
} places[MAX_SESSIONS] = {{"cpu", "auto"}, {"cuda", "auto"}};
static int n_places = 2;

struct pair {
    const yalm_model *model;
    yalm_session_options options; // of both, but for the device
    const int32_t *tokens;        // (n)
    int n, vocab;
    bool brief;                           // prefill, decode of a few tokens, and rollback only
    bool few;                             // likewise, and fewer tokens
    bool ends;                            // the model has no endless sessions
    yalm_session *sessions[MAX_SESSIONS]; // in the order of `places`
    double rows[MAX_ROWS];                // (n_rows): the largest difference in each
    int n_rows;
};

static void open_both(struct pair *p)
{
    p->n_rows = 0;
    for (int i = 0; i < n_places; i++) {
        yalm_error error = {0};
        yalm_session_options options = p->options;
        options.device = places[i].device;
        options.isa = places[i].isa;
        p->sessions[i] = i == GPU ? yalm_session_open(p->model, &options, &error) : open_exact(p->model, options, &error);
        if (p->sessions[i] == NULL)
            quit(places[i].device, &error);
        if (strcmp(yalm_session_facts(p->sessions[i])->device, places[i].device) != 0)
            quit("the session runs on another device", NULL);
    }
}

static void close_both(struct pair *p)
{
    for (int i = 0; i < n_places; i++)
        yalm_session_close(p->sessions[i]);
}

// How far the GPU's row is from the CPU's.
static double distance_between(const float *cpu, const float *gpu, int n)
{
    double low = INFINITY, high = -INFINITY, worst = 0;
    for (int i = 0; i < n; i++) {
        low = fmin(low, cpu[i]);
        high = fmax(high, cpu[i]);
        worst = isfinite(gpu[i]) && isfinite(cpu[i]) ? fmax(worst, fabs((double)gpu[i] - cpu[i])) : INFINITY;
    }
    return worst / (high - low);
}

// Of logits, from those of a session on the CPU.
static double distance(const struct pair *p, int place, int row)
{
    const float *cpu = yalm_logits(p->sessions[place], row), *gpu = yalm_logits(p->sessions[GPU], row);
    if (cpu == NULL || gpu == NULL)
        quit("no logits", NULL);
    return distance_between(cpu, gpu, p->vocab);
}

static void compare_rows(struct pair *p, int n)
{
    for (int row = 0; row < n; row++) {
        double worst = 0;
        for (int place = 0; place < n_places; place++)
            worst = place == GPU ? worst : fmax(worst, distance(p, place, row));
        if (p->n_rows == MAX_ROWS)
            quit("too many rows", NULL);
        p->rows[p->n_rows++] = worst;
    }
}

static void evaluate(struct pair *p, const int32_t *tokens, int n, yalm_logits_of which)
{
    for (int i = 0; i < n_places; i++) {
        yalm_error error = {0};
        if (yalm_eval(p->sessions[i], tokens, n, which, &error) != YALM_OK)
            quit(places[i].device, &error);
    }
    compare_rows(p, which == YALM_LOGITS_ALL ? n : which == YALM_LOGITS_LAST ? 1 : 0);
}

// Tokens [from, to), `piece` at a time, with the last one's logits.
static void evaluate_pieces(struct pair *p, int from, int to, int piece)
{
    for (int at = from; at < to; at += piece)
        evaluate(p, p->tokens + at, piece < to - at ? piece : to - at, YALM_LOGITS_LAST);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(struct pair *p, const char *scenario)
{
    qsort(p->rows, (size_t)p->n_rows, sizeof p->rows[0], ascending);
    printf("%s %.3e %.3e %d\n", scenario, p->rows[p->n_rows - 1], p->rows[p->n_rows / 2], p->n_rows);
    close_both(p);
}

// ------------------------------------------------------------------------------------------ scenarios

static void prefill(struct pair *p)
{
    open_both(p);
    evaluate(p, p->tokens, p->n, YALM_LOGITS_ALL);
    report(p, "prefill");
}

static void pieces(struct pair *p)
{
    open_both(p);
    evaluate_pieces(p, 0, p->few ? 14 : p->n, 7);
    report(p, "pieces");
}

static void decode(struct pair *p)
{
    const int from = p->brief ? p->n - 4 : p->n / 2;
    open_both(p);
    evaluate(p, p->tokens, from, YALM_LOGITS_LAST);
    evaluate_pieces(p, from, p->n, 1);
    report(p, "decode");
}

// From the first token on one by one, in fp32 where the cache were of fp16: nothing is rounded but what weights and tokens are
// multiplied as.
static void singles(struct pair *p)
{
    const yalm_session_options options = p->options;
    if (p->options.kv == YALM_KV_FP16)
        p->options.kv = YALM_KV_FP32;
    open_both(p);
    evaluate_pieces(p, 0, p->few ? 8 : p->n / 3, 1);
    report(p, "singles");
    p->options = options;
}

// Logits of a token that is evaluated alone, wanted as "all"; and a token whose logits nobody wants.
static void odd_calls(struct pair *p)
{
    open_both(p);
    for (int i = 0; i < 8; i++)
        evaluate(p, p->tokens + i, 1, i % 3 == 0 ? YALM_LOGITS_ALL : i % 3 == 1 ? YALM_LOGITS_NONE : YALM_LOGITS_LAST);
    evaluate(p, p->tokens, 3, YALM_LOGITS_NONE);
    evaluate(p, p->tokens, 1, YALM_LOGITS_LAST);
    report(p, "odd-calls");
}

static void roll_back(struct pair *p, int64_t position)
{
    for (int i = 0; i < n_places; i++) {
        yalm_error error = {0};
        if (yalm_rollback(p->sessions[i], position, &error) != YALM_OK)
            quit(places[i].device, &error);
        if (yalm_logits(p->sessions[i], 0) || yalm_sample(p->sessions[i], &(yalm_sampling){0}) != -1)
            quit("logits after a rollback", NULL);
    }
}

// As near to there as both can, which is the same; all the way where no layer is recurrent.
static int roll_back_towards(struct pair *p, int64_t position)
{
    const int64_t cpu = yalm_rollback_point(p->sessions[CPU], position), gpu = yalm_rollback_point(p->sessions[GPU], position);
    if (cpu != gpu || (cpu != position && yalm_model_facts(p->model)->n_recurrent_layers == 0))
        quit("the devices cannot go back alike", NULL);
    roll_back(p, cpu);
    return (int)cpu;
}

static void rollback(struct pair *p)
{
    const int window = yalm_model_facts(p->model)->sliding_window, back = window || p->brief ? p->n - 4 : p->n / 3;
    open_both(p);
    evaluate(p, p->tokens, back, YALM_LOGITS_NONE);
    evaluate(p, p->tokens + back, p->n - back, YALM_LOGITS_LAST);
    if (roll_back_towards(p, back) != back)
        quit("the last evaluation cannot be taken back", NULL);
    evaluate_pieces(p, back, p->n, 1);
    for (int i = 1; i < 3; i++) // one token, and where a recurrent state was kept, those since the prompt
        evaluate_pieces(p, roll_back_towards(p, p->n - i), p->n, 1);
    evaluate_pieces(p, roll_back_towards(p, back), p->n, 1);
    if (!window) {
        const int at = roll_back_towards(p, 1);
        evaluate(p, p->tokens + at, p->n - at, YALM_LOGITS_ALL);
    }
    report(p, "rollback");
}

// Past a context of a third of the text: sinks and the ring, or the model's own window.
static void endless(struct pair *p)
{
    const yalm_session_options options = p->options;
    if (p->ends) // a model that has no rows for later positions, or ALiBi
        return;
    p->options.context = p->n / 3;
    p->options.endless = true;
    open_both(p);
    evaluate(p, p->tokens, p->n / 2, YALM_LOGITS_ALL);
    evaluate_pieces(p, p->n / 2, 3 * p->n / 4, 1);
    evaluate_pieces(p, 3 * p->n / 4, p->n, 5);
    report(p, "endless");
    p->options = options;
}

static void noise(struct pair *p)
{
    open_both(p);
    for (int i = 0; i < n_places; i++) {
        yalm_error error = {0};
        if (yalm_fill_random(p->sessions[i], p->n / 2, 5, &error) != YALM_OK)
            quit(places[i].device, &error);
    }
    evaluate_pieces(p, 0, 3, 1);
    evaluate(p, p->tokens, p->n / 4, YALM_LOGITS_ALL);
    report(p, "noise");
}

// Two timelines on one model, in turns: neither disturbs the other, and the weights are there once.
static void two_sessions(struct pair *p)
{
    static struct pair other;
    other = *p;
    open_both(p);
    open_both(&other);
    evaluate(p, p->tokens, p->n / 2, YALM_LOGITS_LAST);
    evaluate(&other, p->tokens + p->n / 2, p->n / 2, YALM_LOGITS_LAST);
    for (int i = 0; i < 4; i++) {
        evaluate(p, p->tokens + i, 1, YALM_LOGITS_LAST);
        evaluate(&other, p->tokens + p->n - 1 - i, 1, YALM_LOGITS_LAST);
    }
    for (int i = 0; i < other.n_rows; i++)
        p->rows[p->n_rows++] = other.rows[i];
    close_both(&other);
    report(p, "two-sessions");
}

// The same seed draws the same tokens. Both go on with the CPU's, so that one that differs does not make all the others differ.
static void draw(struct pair *p, const char *name, const yalm_sampling *sampling)
{
    int differ = 0, drawn = 0;
    open_both(p);
    for (int i = 0; i < n_places; i++)
        yalm_seed(p->sessions[i], 11);
    evaluate(p, p->tokens, p->n / 2, YALM_LOGITS_LAST);
    for (; drawn < p->n / 3; drawn++) {
        const int32_t token = yalm_sample(p->sessions[CPU], sampling);
        differ += yalm_sample(p->sessions[GPU], sampling) != token;
        if (token < 0)
            quit("no token", NULL);
        evaluate(p, &token, 1, YALM_LOGITS_LAST);
    }
    close_both(p);
    printf("%s %d %d\n", name, differ, drawn);
}

static void draws(struct pair *p)
{
    const yalm_logit_bias biases[] = {{3, -INFINITY}, {5, 2}, {p->vocab - 1, 1.5f}};
    yalm_sampling greedy = yalm_sampling_defaults(), plain = greedy, kept = greedy, held = greedy;
    greedy.temperature = 0;
    plain.temperature = 1;
    plain.top_k = 0;
    plain.top_p = 1;
    plain.min_p = 0;
    kept.top_k = 0;
    kept.min_p = 0;
    kept.top_p = 0.7f;
    held.repeat_penalty = 1.3f;
    held.presence_penalty = 0.2f;
    held.frequency_penalty = 0.1f;
    held.biases = biases;
    held.n_biases = 3;
    draw(p, "draw-greedy", &greedy);
    draw(p, "draw-plain", &plain);
    draw(p, "draw-top-p", &kept);
    draw(p, "draw-penalties", &held);
}

// ------------------------------------------------------------------------------------------ texts

enum { N_TEXTS = 6, MOST_VALUES = 256 };

// Texts' vectors, or one row of their scores, so many texts in a call. (Beside the CPU's best instruction set alone.)
static void compare_texts(struct pair *p, const yalm_text *texts, int at_once)
{
    static float values[2][N_TEXTS * MOST_VALUES];
    const yalm_model_info *facts = yalm_model_facts(p->model);
    const yalm_text query = {p->tokens + 3, 5};
    const int dim = facts->scores ? N_TEXTS : facts->vector_dim;
    for (int t = 0; t < 2 * N_TEXTS; t += at_once) {
        const int device = t / N_TEXTS, text = t % N_TEXTS;
        yalm_session *s = p->sessions[device];
        float *to = values[device] + text * (facts->scores ? 1 : dim);
        yalm_error error = {0};
        if (dim > MOST_VALUES || (facts->scores ? yalm_score_texts(s, query, texts + text, at_once, to, &error)
                                                : yalm_embed_texts(s, texts + text, at_once, to, &error)) != YALM_OK)
            quit(places[device].device, &error);
    }
    for (int i = 0; i < (facts->scores ? 1 : N_TEXTS); i++)
        p->rows[p->n_rows++] = distance_between(values[CPU] + i * dim, values[GPU] + i * dim, dim);
}

// Texts of several lengths in one batch; in batches of some; and each for itself.
static void compare_vectors(struct pair *p)
{
    static const int lengths[N_TEXTS] = {1, 9, 70, 2, 33, 5}, most[] = {0, 85, 0};
    yalm_text texts[N_TEXTS];
    for (int i = 0, at = 0; i < N_TEXTS; at += lengths[i++])
        texts[i] = (yalm_text){p->tokens + at, lengths[i]};
    static const char *const names[] = {"together", "batches", "alone"};
    for (int i = 0; i < 3; i++) {
        p->options.chunk = most[i];
        open_both(p);
        compare_texts(p, texts, i < 2 ? N_TEXTS : 1);
        report(p, names[i]);
    }
}

// Both take as much for a cache, but for where their arrays begin, and what a CPU keeps to take back tokens that were evaluated
// ahead.
static void compare_memory(const struct pair *p)
{
    yalm_memory memory[2];
    for (int i = 0; i < 2; i++) {
        yalm_error error = {0};
        yalm_session_options options = p->options;
        options.device = places[i].device;
        options.context = 512;
        options.chunk = 64;
        if (yalm_session_memory(p->model, &options, &memory[i], &error) != YALM_OK)
            quit(places[i].device, &error);
    }
    const double more = (double)memory[0].kv_cache - (double)memory[1].kv_cache;
    if (more < -2048 || (more > 2048 && yalm_model_facts(p->model)->n_recurrent_layers == 0))
        quit("the devices' caches differ in size", NULL);
}

static void compare_logits(struct pair *p)
{
    static void (*const scenarios[])(struct pair *) = {singles,                    // of `short` and `brief`
                                                       prefill,   pieces,  decode, // and of all
                                                       rollback,                   // but `short`
                                                       odd_calls, endless, noise,  two_sessions, draws};
    const size_t n = p->few ? 4 : p->brief ? 5 : sizeof scenarios / sizeof scenarios[0];
    compare_memory(p);
    for (size_t i = p->brief ? 0 : 1; i < n; i++)
        scenarios[i](p);
}

// ------------------------------------------------------------------------------------------ main

int main(int argc, char **argv)
{
    static struct pair p;
    int d_sub = 1;
    bool texts = false;
    p.options = yalm_session_defaults();
    p.options.activations = YALM_ACTIVATIONS_INT16; // as a GPU has them
    int32_t *tokens = argc > 2 ? read_tokens(argv[2], &p.n) : NULL;
    if (tokens == NULL || p.n < 24)
        quit("usage: compare_devices MODEL TOKENS [kv=fp16|fp32|int8] [chunk=N] [sparq=…] [isa=NAME …], "
             "where TOKENS holds 24 int32 ids or more",
             NULL);
    for (int i = 3; i < argc; i++)
        if (strcmp(argv[i], "brief") == 0)
            p.brief = true;
        else if (strcmp(argv[i], "short") == 0)
            p.brief = p.few = true;
        else if (strcmp(argv[i], "ends") == 0)
            p.ends = true;
        else if (strcmp(argv[i], "texts") == 0)
            texts = true;
        else if (strncmp(argv[i], "isa=", 4) == 0 && n_places < MAX_SESSIONS)
            places[n_places++] = (struct place){"cpu", argv[i] + 4};
        else
            read_option(&p.options, &d_sub, argv[i]);
    yalm_error error = {0};
    yalm_model *model = yalm_model_open(argv[1], NULL, &error);
    if (model == NULL)
        quit(argv[1], &error);
    p.model = model;
    p.tokens = tokens;
    p.vocab = yalm_model_facts(model)->vocab_size;
    p.options.context = p.n;
    p.options.n_threads = 2;
    if (p.options.codebooks)
        learn(model, tokens, p.n, d_sub, p.options.codebooks);
    (texts ? compare_vectors : compare_logits)(&p);
    yalm_model_close(model);
    free(tokens);
    return 0;
}
