// See speculate.h.
#include "speculate/speculate.h"

#include <stdlib.h>
#include <string.h>

#include "speculate/draft.h"
#include "speculate/suffix.h"
#include "util/clock.h"

enum {
    MOST_GUESSES = 15, // yalm_expect()'s
    DRAFTED = 9,       // the first class that is not of matches, by their length; one for each place among a model's guesses
    PLACES = 3,        // the last one: and behind it
    CLASSES = DRAFTED + PLACES,
    MOST_OF_HEAD = 3, // guesses of the model's own head
    AGAIN = 64,       // tokens, after which a model that promises nothing is asked again
};

// How often guesses of one class come true: counts, of which the older ones fade.
struct record {
    double right, all;
};

struct speculator {
    struct suffix *suffix;
    struct draft *draft;
    double (*clock)(void);
    struct record records[CLASSES];
    double seconds[MOST_GUESSES + 2]; // that a batch of so many tokens takes, on average of late; 0: not known yet
    double head_seconds;              // that a guess of the model's own head takes, likewise

    // What is thought to come next, whether it is evaluated ahead or not; and what is.
    int32_t guess;
    int guess_class; // -1: nothing is
    int32_t ahead[MOST_GUESSES];
    int n_ahead;
    int place;    // of ahead[0] among the guesses
    bool drafted; // by a model, not by a match
    bool in_vain; // the session takes none
    struct speculation_counts counts;
};

static const double fading = 0.97; // of a record's counts, with each guess
// Of the newest batch's in the average: less where it is above, for that may be others' doing.
static const double weight_below = 0.5, weight_above = 0.05;
static const double least_gain = 1.03; // what is less is not worth the risk

void speculator_forget(struct speculator *s)
{
    // At first: that a match of one token goes on as before once in five times, a long one nearly always.
    static const double likely[CLASSES] = {0.2, 0.4, 0.55, 0.65, 0.75, 0.8, 0.85, 0.9, 0.95, 0.7, 0.7, 0.7};
    if (!s)
        return;
    *s = (struct speculator){.suffix = s->suffix, .draft = s->draft, .clock = s->clock, .guess_class = -1};
    suffix_forget(s->suffix);
    for (int i = 0; i < CLASSES; i++)
        s->records[i] = (struct record){3 * likely[i], 3};
}

struct speculator *speculator_open(struct draft *draft, double (*clock)(void))
{
    struct speculator *s = calloc(1, sizeof *s);
    if (s)
        s->suffix = suffix_open(SPECULATE_TOKENS);
    if (!s || !s->suffix) {
        free(s);
        return NULL;
    }
    s->draft = draft;
    s->clock = clock ? clock : clock_seconds;
    speculator_forget(s);
    return s;
}

void speculator_close(struct speculator *s)
{
    if (s)
        suffix_close(s->suffix);
    free(s);
}

struct speculation_counts speculator_counts(const struct speculator *s)
{
    return s ? s->counts : (struct speculation_counts){0};
}

// ---------------------------------------------------------------- what is guessed, and how often it was right

static int class_of(size_t length)
{
    static const size_t from[DRAFTED] = {1, 2, 3, 4, 6, 9, 14, 20, 32};
    int class = -1;
    while (class + 1 < DRAFTED && length >= from[class + 1])
        class ++;
    return class;
}

static int drafted_class(int place)
{
    return DRAFTED + (place < PLACES ? place : PLACES - 1);
}

static double chance(const struct speculator *s, int class)
{
    return class < 0 ? 0 : s->records[class].right / s->records[class].all;
}

static void take_note(struct speculator *s, int class, bool right)
{
    struct record *record = &s->records[class];
    record->right = fading * record->right + right;
    record->all = fading * record->all + 1;
}

// The text goes on: was that what was thought?
static void add(struct speculator *s, int32_t token)
{
    if (s->guess_class >= 0)
        take_note(s, s->guess_class, s->guess == token);
    suffix_add(s->suffix, token);
    const int32_t *next;
    size_t n = 1;
    const size_t length = suffix_match(s->suffix, &next, &n);
    s->guess_class = n > 0 ? class_of(length) : -1;
    s->guess = n > 0 ? *next : -1;
}

// Whether the token is the next one that has been evaluated ahead; if it is not, none is any more.
static bool came_true(struct speculator *s, int32_t token)
{
    const bool right = s->n_ahead > 0 && s->ahead[0] == token;
    if (s->n_ahead > 0 && s->drafted)
        take_note(s, drafted_class(s->place), right);
    s->place++;
    s->n_ahead = right ? s->n_ahead - 1 : 0;
    memmove(s->ahead, s->ahead + 1, sizeof *s->ahead * (size_t)s->n_ahead);
    return right;
}

void speculator_begin(struct speculator *s)
{
    if (!s)
        return;
    suffix_break(s->suffix);
    s->guess_class = -1;
    s->n_ahead = 0;
}

void speculator_read(struct speculator *s, const int32_t *tokens, size_t n)
{
    for (size_t i = 0; s && i < n; i++) {
        suffix_add(s->suffix, tokens[i]); // what a prompt repeats says little about what a model will
        came_true(s, tokens[i]);
        s->guess_class = -1;
    }
}

// ---------------------------------------------------------------- how many are worth it

// Seconds of a batch of n tokens: measured, or between those of its neighbours, or, above the largest that was, a tenth of
// one token's more for each; and no more than a larger one has taken.
static double batch_seconds(const struct speculator *s, int n)
{
    int below = n, above = n;
    while (below > 1 && s->seconds[below] == 0)
        below--;
    while (above < MOST_GUESSES + 1 && s->seconds[above] == 0)
        above++;
    const double known = s->seconds[below], next = s->seconds[above];
    double seconds = known;
    if (below < n)
        seconds += next > 0 ? (next - known) * (n - below) / (above - below) : 0.1 * s->seconds[1] * (n - below);
    for (int i = n + 1; i <= MOST_GUESSES + 1; i++)
        if (s->seconds[i] > 0 && s->seconds[i] < seconds)
            seconds = s->seconds[i];
    return seconds;
}

struct plan {
    int n;       // guesses
    double rate; // tokens a second that they promise
};

// Of up to n guesses those first ones that promise most. likely (n): each one's chance where those before it are right; each:
// seconds that a guess costs.
static struct plan make_plan(const struct speculator *s, const double *likely, int n, double each)
{
    struct plan best = {0, least_gain / batch_seconds(s, 1)};
    double all_right = 1, tokens = 1;
    for (int i = 1; i <= n; i++) {
        all_right *= likely[i - 1];
        tokens += all_right;
        const double rate = tokens / (batch_seconds(s, i + 1) + i * each);
        if (rate > best.rate)
            best = (struct plan){i, rate};
    }
    return best;
}

// Of up to n guesses of a model that takes `each` seconds for one; 0: that is not known yet.
static struct plan plan_model(const struct speculator *s, int n, double each)
{
    double likely[MOST_GUESSES];
    for (int i = 0; i < n; i++)
        likely[i] = chance(s, drafted_class(i));
    struct plan plan = make_plan(s, likely, n, each);
    if (each == 0 || (plan.n == 0 && s->counts.tokens % AGAIN == 0)) // its time, or its luck, is to be seen
        plan.n = 2;
    return plan;
}

static void average(double *seconds, double taken)
{
    *seconds = *seconds > 0 ? *seconds + (taken < *seconds ? weight_below : weight_above) * (taken - *seconds) : taken;
}

static int ask_head(struct speculator *s, yalm_session *session, int32_t token, int n)
{
    const double start = s->clock();
    n = yalm_guess(session, token, s->ahead, n);
    if (n > 0)
        average(&s->head_seconds, (s->clock() - start) / n);
    return n;
}

// Leaves in s->ahead what the session is to evaluate with `token`.
static void guess_ahead(struct speculator *s, yalm_session *session, int32_t token)
{
    s->n_ahead = 0;
    s->place = 0;
    s->drafted = false;
    if (s->seconds[1] == 0 || s->in_vain) // what a single token takes must be known
        return;
    const int32_t *next;
    size_t n = MOST_GUESSES;
    const size_t length = suffix_match(s->suffix, &next, &n);
    double likely[MOST_GUESSES];
    for (size_t i = 0; i < n; i++)
        likely[i] = chance(s, class_of(length + i));
    const struct plan repeated = make_plan(s, likely, (int)n, 0);
    struct plan drafted = {0};
    if (s->draft)
        drafted = plan_model(s, MOST_GUESSES, draft_seconds(s->draft));
    else if (yalm_session_facts(session)->mtp == YALM_MTP_ON)
        drafted = plan_model(s, MOST_OF_HEAD, s->head_seconds);
    if (drafted.n > 0 && (repeated.n == 0 || drafted.rate > repeated.rate)) {
        s->n_ahead =
            s->draft ? draft_guess(s->draft, session, token, s->ahead, drafted.n) : ask_head(s, session, token, drafted.n);
        s->drafted = s->n_ahead > 0;
    }
    if (!s->drafted) {
        memcpy(s->ahead, next, sizeof *s->ahead * (size_t)repeated.n);
        s->n_ahead = repeated.n;
    }
}

// ---------------------------------------------------------------- a token

static yalm_status evaluate(struct speculator *s, yalm_session *session, int32_t token, yalm_error *error)
{
    const int wanted = s->n_ahead;
    s->n_ahead = yalm_expect(session, s->ahead, wanted);
    if (wanted > 0)
        s->in_vain = s->n_ahead == 0;
    const double start = s->clock();
    yalm_status status = yalm_eval(session, &token, 1, YALM_LOGITS_LAST, error);
    if (status == YALM_OK && !s->in_vain) // its time is wanted, which on a GPU goes on
        status = yalm_finish(session, error);
    average(&s->seconds[1 + s->n_ahead], s->clock() - start);
    s->counts.evaluations++;
    s->counts.guessed += s->n_ahead;
    return status;
}

yalm_status speculator_eval(struct speculator *s, yalm_session *session, int32_t token, yalm_error *error)
{
    if (!s)
        return yalm_eval(session, &token, 1, YALM_LOGITS_LAST, error);
    add(s, token);
    s->counts.tokens++;
    yalm_status status;
    if (came_true(s, token)) { // the session has it
        status = yalm_eval(session, &token, 1, YALM_LOGITS_LAST, error);
    } else {
        guess_ahead(s, session, token);
        status = evaluate(s, session, token, error);
    }
    if (status != YALM_OK)
        s->n_ahead = 0;
    return status;
}
