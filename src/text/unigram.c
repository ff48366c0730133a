// See unigram.h. Viterbi's algorithm over the places between characters.
#include "text/unigram.h"

#include <math.h>
#include <stdlib.h>

#include "util/utf8.h"

#define UNKNOWN_PENALTY 10.0 // an unknown character's score is the least of any piece's, less this

struct unigram_node { // the best way to a place
    double score;
    int32_t id;     // of the piece that ends there
    uint32_t begin; // where that begins
};

static size_t character(const uint8_t *word, size_t length, size_t at)
{
    const int n = utf8_character(word + at, length - at);
    return n > 0 ? (size_t)n : 1;
}

static void reach(struct unigram_node *nodes, size_t from, size_t to, int32_t id, double score)
{
    score += nodes[from].score;
    if (score > nodes[to].score)
        nodes[to] = (struct unigram_node){score, id, (uint32_t)from};
}

// Every piece that begins at `at`, and the unknown token where none is that character.
static void reach_from(struct unigram_node *nodes, const struct merges *scores, const struct vocabulary *v, int32_t unknown,
                       const uint8_t *word, size_t length, size_t at)
{
    const size_t first = character(word, length, at);
    bool known = false;
    for (size_t to = at; to < length;) {
        to += character(word, length, to);
        if (to - at > v->longest)
            break;
        const int32_t id = vocabulary_find(v, word + at, to - at);
        if (id < 0)
            continue;
        reach(nodes, at, to, id, (double)scores->scores[id]);
        known |= to - at == first;
    }
    if (!known)
        reach(nodes, at, at + first, unknown, scores->least - UNKNOWN_PENALTY);
}

// From the end back, then turned round.
static bool take_path(struct ids *ids, const struct unigram_node *nodes, int32_t unknown, size_t length)
{
    const size_t begin = ids->n;
    for (size_t at = length; at > 0; at = nodes[at].begin) {
        const bool run = nodes[at].id == unknown && ids->n > begin && ids->data[ids->n - 1] == unknown;
        if (!run && !ids_push(ids, nodes[at].id))
            return false;
    }
    for (size_t i = begin, j = ids->n; i + 1 < j; i++) {
        const int32_t id = ids->data[--j];
        ids->data[j] = ids->data[i];
        ids->data[i] = id;
    }
    return true;
}

bool unigram_word(struct ids *ids, struct unigram_work *work, const struct merges *scores, const struct vocabulary *vocabulary,
                  int32_t unknown, const uint8_t *word, size_t length)
{
    if (length + 1 > work->capacity) {
        struct unigram_node *nodes = realloc(work->nodes, 2 * (length + 1) * sizeof *nodes);
        if (!nodes)
            return false;
        work->nodes = nodes;
        work->capacity = 2 * (length + 1);
    }
    for (size_t at = 0; at <= length; at++)
        work->nodes[at] = (struct unigram_node){.score = at ? -INFINITY : 0};
    for (size_t at = 0; at < length; at += character(word, length, at))
        reach_from(work->nodes, scores, vocabulary, unknown, word, length, at);
    return take_path(ids, work->nodes, unknown, length);
}
