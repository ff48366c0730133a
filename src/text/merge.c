// The rules of merging, and their use on one word.

#include "text/merge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "util/utf8.h"

#define EMPTY_RULE UINT32_MAX

struct merge_symbol {
    uint32_t start, length; // bytes of the word; length 0: merged into the one before
    int32_t previous, next; // -1: none
    int32_t id;             // -1: no piece has these bytes
};

struct merge_candidate {
    uint64_t key;    // priority (less is better), then place: the least comes first
    uint32_t length; // of both symbols together: tells whether they are still as they were
    int32_t id;      // of the result
};

// ------------------------------------------------------------------------------------ rules

static uint32_t pair_hash(uint32_t left, uint32_t right)
{
    const uint64_t mixed = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(mixed >> 32 ^ mixed);
}

static const struct merge_rule *rule_find(const struct merges *merges, uint32_t left, uint32_t right)
{
    for (uint32_t i = pair_hash(left, right);; i++) {
        const struct merge_rule *rule = &merges->rules[i & merges->mask];
        if (rule->left == EMPTY_RULE || (rule->left == left && rule->right == right))
            return rule;
    }
}

// The piece that is `left` and `right` in a row; -1 where one of the three is not a normal piece.
static int32_t merge_result(const struct vocabulary *v, uint32_t left, uint32_t right)
{
    if (left >= (uint32_t)v->n || right >= (uint32_t)v->n || v->kinds[left] != PIECE_NORMAL || v->kinds[right] != PIECE_NORMAL)
        return -1;
    uint8_t joined[2 * YALM_MAX_PIECE];
    size_t n, m;
    const uint8_t *p = vocabulary_piece(v, (int32_t)left, &n);
    const uint8_t *q = vocabulary_piece(v, (int32_t)right, &m);
    memcpy(joined, p, n);
    memcpy(joined + n, q, m);
    return vocabulary_find(v, joined, n + m);
}

static yalm_status rules_open(struct merges *merges, const struct vocabulary *vocabulary, const struct container *container,
                              yalm_error *error)
{
    const struct tensor *tensor = tokenizer_tensor(container, "tokenizer.merges", DTYPE_U32, -1, 2, error);
    if (!tensor)
        return YALM_BAD_MODEL;
    const int64_t n = tensor->shape[0];
    if (n > 1 << 28)
        return error_set(error, YALM_BAD_MODEL, "%s: tokenizer.merges has %lld rows, expected at most %d",
                         container->mapping.path, (long long)n, 1 << 28);
    uint64_t n_slots = 1024;
    while (n_slots < 2 * (uint64_t)n)
        n_slots *= 2;
    merges->rules = malloc(n_slots * sizeof *merges->rules);
    if (!merges->rules)
        return error_set(error, YALM_NO_MEMORY, "tokenizer: no memory for %lld merges", (long long)n);
    memset(merges->rules, 0xff, n_slots * sizeof *merges->rules);
    merges->mask = (uint32_t)(n_slots - 1);
    const uint32_t *pairs = tensor->data; // (n, 2)
    for (int64_t i = 0; i < n; i++) {
        const uint32_t left = pairs[2 * i], right = pairs[2 * i + 1];
        const int32_t result = merge_result(vocabulary, left, right);
        if (result < 0)
            return error_set(error, YALM_BAD_MODEL, "%s: tokenizer: merge %lld (tokens %u and %u) names an absent token",
                             container->mapping.path, (long long)i, left, right);
        struct merge_rule *rule = (struct merge_rule *)rule_find(merges, left, right);
        if (rule->left != EMPTY_RULE)
            return error_set(error, YALM_BAD_MODEL, "%s: tokenizer: merges %u and %lld are the same", container->mapping.path,
                             rule->rank, (long long)i);
        *rule = (struct merge_rule){left, right, (uint32_t)i, result};
    }
    return YALM_OK;
}

static yalm_status scores_open(struct merges *merges, const struct vocabulary *vocabulary, const struct container *container,
                               yalm_error *error)
{
    const struct tensor *tensor = tokenizer_tensor(container, "tokenizer.scores", DTYPE_FP32, vocabulary->n, 0, error);
    if (!tensor)
        return YALM_BAD_MODEL;
    merges->scores = tensor->data;
    for (int id = 0; id < vocabulary->n; id++) {
        merges->least = (double)merges->scores[id] < merges->least ? (double)merges->scores[id] : merges->least;
        if (!isfinite(merges->scores[id]))
            return error_set(error, YALM_BAD_MODEL, "%s: tokenizer: the score of token %d is not finite",
                             container->mapping.path, id);
    }
    return YALM_OK;
}

yalm_status merges_open(struct merges *merges, enum merge_order order, const struct vocabulary *vocabulary,
                        const struct container *container, yalm_error *error)
{
    *merges = (struct merges){.order = order};
    return order == MERGE_BY_RANK ? rules_open(merges, vocabulary, container, error)
                                  : scores_open(merges, vocabulary, container, error);
}

void merges_close(struct merges *merges)
{
    free(merges->rules);
}

// A float's bits in an order that integers have: the higher the score, the smaller.
static uint32_t score_priority(float score)
{
    uint32_t bits;
    score += 0.0f; // -0 and 0 are equal
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : 0x7fffffffu - bits;
}

// ------------------------------------------------------------------------------------ a word

bool ids_push(struct ids *ids, int32_t id)
{
    if (ids->n == ids->capacity) {
        const size_t capacity = ids->capacity ? 2 * ids->capacity : 64;
        int32_t *data = realloc(ids->data, capacity * sizeof *data);
        if (!data)
            return false;
        ids->data = data;
        ids->capacity = capacity;
    }
    ids->data[ids->n++] = id;
    return true;
}

void merge_work_free(struct merge_work *work)
{
    free(work->symbols);
    free(work->heap);
}

static bool push_symbol(struct merge_work *work, size_t start, size_t length, int32_t id)
{
    if (work->n_symbols == work->symbol_capacity) {
        const size_t capacity = work->symbol_capacity ? 2 * work->symbol_capacity : 64;
        struct merge_symbol *symbols = realloc(work->symbols, capacity * sizeof *symbols);
        if (!symbols)
            return false;
        work->symbols = symbols;
        work->symbol_capacity = capacity;
    }
    const int32_t i = (int32_t)work->n_symbols++;
    work->symbols[i] = (struct merge_symbol){(uint32_t)start, (uint32_t)length, i - 1, i + 1, id};
    return true;
}

static bool first_symbols(struct merge_work *work, const struct merges *merges, const struct vocabulary *vocabulary,
                          bool characters, const uint8_t *word, size_t length)
{
    work->n_symbols = 0;
    for (size_t at = 0; at < length;) {
        const int size = characters ? utf8_character(word + at, length - at) : 0;
        const int32_t id = size ? vocabulary_find(vocabulary, word + at, (size_t)size) : -1;
        // By score, two characters that are no pieces may together be one; by rank, only pieces merge.
        if (id >= 0 || (size && merges->order == MERGE_BY_SCORE)) {
            if (!push_symbol(work, at, (size_t)size, id))
                return false;
            at += (size_t)size;
            continue;
        }
        for (int i = 0; i < (size ? size : 1); i++, at++) // a byte without a token is left out
            if (vocabulary->byte_ids[word[at]] >= 0 && !push_symbol(work, at, 1, vocabulary->byte_ids[word[at]]))
                return false;
    }
    if (work->n_symbols)
        work->symbols[work->n_symbols - 1].next = -1;
    return true;
}

// What symbol i and its right neighbour would become; false where they don't merge.
static bool candidate_at(struct merge_candidate *candidate, const struct merge_work *work, const struct merges *merges,
                         const struct vocabulary *vocabulary, const uint8_t *word, int32_t i)
{
    const struct merge_symbol *left = &work->symbols[i];
    if (left->next < 0)
        return false;
    const struct merge_symbol *right = &work->symbols[left->next];
    uint32_t priority;
    int32_t id;
    const uint32_t length = left->length + right->length;
    if (merges->order == MERGE_BY_RANK) {
        const struct merge_rule *rule = rule_find(merges, (uint32_t)left->id, (uint32_t)right->id);
        if (rule->left == EMPTY_RULE)
            return false;
        priority = rule->rank;
        id = rule->result;
    } else {
        id = vocabulary_find(vocabulary, word + left->start, length);
        if (id < 0)
            return false;
        priority = score_priority(merges->scores[id]);
    }
    *candidate = (struct merge_candidate){(uint64_t)priority << 32 | (uint32_t)i, length, id};
    return true;
}

static void sift_down(struct merge_candidate *heap, size_t n, size_t i)
{
    const struct merge_candidate moved = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1].key < heap[child].key)
            child++;
        if (moved.key <= heap[child].key)
            break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

static bool reserve_heap(struct merge_work *work, size_t n)
{
    if (n <= work->heap_capacity)
        return true;
    struct merge_candidate *heap = realloc(work->heap, n * sizeof *heap);
    if (!heap)
        return false;
    work->heap = heap;
    work->heap_capacity = n;
    return true;
}

static void heap_push(struct merge_work *work, struct merge_candidate candidate)
{
    size_t i = work->n_heap++;
    for (; i > 0 && candidate.key < work->heap[(i - 1) / 2].key; i = (i - 1) / 2)
        work->heap[i] = work->heap[(i - 1) / 2];
    work->heap[i] = candidate;
}

static struct merge_candidate heap_pop(struct merge_work *work)
{
    const struct merge_candidate best = work->heap[0];
    work->heap[0] = work->heap[--work->n_heap];
    if (work->n_heap)
        sift_down(work->heap, work->n_heap, 0);
    return best;
}

static void apply(struct merge_work *work, const struct merges *merges, const struct vocabulary *vocabulary,
                  const uint8_t *word, struct merge_candidate best)
{
    const int32_t i = (int32_t)(uint32_t)best.key;
    struct merge_symbol *left = &work->symbols[i];
    if (left->length == 0 || left->next < 0 || left->length + work->symbols[left->next].length != best.length)
        return; // one of the two has merged elsewhere meanwhile
    struct merge_symbol *right = &work->symbols[left->next];
    left->length = best.length;
    left->id = best.id;
    left->next = right->next;
    right->length = 0;
    if (left->next >= 0)
        work->symbols[left->next].previous = i;
    struct merge_candidate candidate;
    if (left->previous >= 0 && candidate_at(&candidate, work, merges, vocabulary, word, left->previous))
        heap_push(work, candidate);
    if (candidate_at(&candidate, work, merges, vocabulary, word, i))
        heap_push(work, candidate);
}

bool merge_word(struct ids *ids, struct merge_work *work, const struct merges *merges, const struct vocabulary *vocabulary,
                bool characters, const uint8_t *word, size_t length)
{
    // Each symbol begins as one candidate, and each merge brings two at most and takes one.
    if (!first_symbols(work, merges, vocabulary, characters, word, length) || !reserve_heap(work, 2 * work->n_symbols + 2))
        return false;
    work->n_heap = 0;
    for (size_t i = 0; i < work->n_symbols; i++)
        if (candidate_at(&work->heap[work->n_heap], work, merges, vocabulary, word, (int32_t)i))
            work->n_heap++;
    for (size_t i = work->n_heap / 2; i-- > 0;)
        sift_down(work->heap, work->n_heap, i);
    while (work->n_heap)
        apply(work, merges, vocabulary, word, heap_pop(work));

    for (int32_t i = work->n_symbols ? 0 : -1; i >= 0; i = work->symbols[i].next) {
        const struct merge_symbol *symbol = &work->symbols[i];
        if (symbol->id >= 0) {
            if (!ids_push(ids, symbol->id))
                return false;
            continue;
        }
        for (uint32_t k = 0; k < symbol->length; k++)
            if (!ids_push(ids, vocabulary->byte_ids[word[symbol->start + k]]))
                return false;
    }
    return true;
}
