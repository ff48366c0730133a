// What phases.cu writes with: words, and phases that read and write them (writer.cu).
//
// What a phase writes are words that tell by parity when they are there, so all words of a buffer must be written each time it
// is. So a buffer has words of its own for each width that it is written with. The residual stream changes places where the
// phases that read it need not have ended when it is next written: behind the embedding, and behind experts.
#pragma once
#include "cuda/step/plan.h"

// Where words lie besides the recipe's buffers.
enum {
    WORDS_EMBEDDED = BUFFERS,
    WORDS_BRANCH,    // what is added once it is normalised
    WORDS_NORMED_Q,  // of all heads together
    WORDS_NORMED_K,  // likewise
    WORDS_WEIGH,     // the shared expert's logit
    WORDS_ROUTED,    // experts' logits
    WORDS_EXPERTS,   // the chosen experts' units
    WORDS_SUM,       // x and the experts so far, of which each thread knows its own alone
    WORDS_X_EXPERTS, // x behind the experts
    WORDS,
};

// A buffer's words, written with one width.
struct word_use {
    int buffer, width;
    size_t at;
    int written, total; // how often: so far, and in a launch
};

struct words {
    float *at;
    enum step_words words;
};

struct step_writer {
    struct step_plan *to;
    const struct cuda_state *s;
    float *words; // NULL: they are only counted
    struct word_use spans[4 * WORDS];
    int n_spans;
    struct word_use *latest[WORDS]; // of a buffer, what was written last; NULL: nothing was
    const float *head_norms[3];     // of the attention that comes next
    struct step_phase counted;      // the last one, where phases are only counted
};

// Those that the next phase reads of a buffer, and those that it writes.
struct words reading(const struct step_writer *w, int buffer);
struct words writing(struct step_writer *w, int buffer, int width);

// A phase that reads `x`, normalised where the step says so.
struct step_phase phase_of(const struct step_writer *w, const struct step *step, enum step_work work, const struct words &x);
void add_matrix(struct step_phase *p, const struct matrix *m, const float *bias, const struct words &y);
void put(struct step_writer *w, const struct step_phase &phase);
// A product whose matrices are there: it is spread over blocks and warps, unless it is narrow.
void put_product(struct step_writer *w, struct step_phase p);
struct step_phase *last(struct step_writer *w);
// A step of the recipe, as the phases that it needs (phases.cu).
void write_step(struct step_writer *w, const struct step *step);
